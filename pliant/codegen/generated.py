"""Python text that the compiler writes, as functions: compiled here, or known by their bytecode from another process."""

from __future__ import annotations

import builtins
import linecache
import types
import weakref
from collections.abc import Callable
from itertools import count
from typing import Any

_serial = count()


def compile_text(source: str, name: str, namespace: dict[str, Any]) -> Callable[..., tuple]:
    """Compile generated source. Tracebacks show it, because it is registered with `linecache`."""
    filename = shown_as(source, name)
    exec(compile(source, filename, "exec"), namespace)
    fn = namespace[name]
    weakref.finalize(fn, linecache.cache.pop, filename, None)
    return fn


def loaded_text(source: str, name: str, code: types.CodeType, namespace: dict[str, Any]) -> Callable[..., tuple]:
    """The function `name` that `compile_text` made of this source in another process: its bytecode is known."""
    filename = shown_as(source, name)
    fn = types.FunctionType(code.replace(co_filename=filename), namespace, name)
    namespace[name] = fn
    namespace["__builtins__"] = builtins.__dict__
    weakref.finalize(fn, linecache.cache.pop, filename, None)
    return fn


GENERATED = "<pliant "
"""How the file names of generated programs begin."""


def shown_as(source: str, name: str) -> str:
    """A file name under which `linecache` shows this text."""
    filename = f"{GENERATED}{name} {next(_serial)}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
    return filename
