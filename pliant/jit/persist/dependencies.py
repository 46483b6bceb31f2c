"""What a capture learned of the program without guarding it, checked when an entry is taken up again.

- Source files: of every function that was interpreted and of every class that was looked at, by content. A file that was written
  after the process began may not be what runs, neither here nor there.
- Bytecode: of every function that was interpreted (rows of the table, see `names.py`).
- Answers: of functions that are asked once and taken to stay (rows that read "process"; plumbing). They are asked again.
"""

from __future__ import annotations

import functools
import hashlib
import os
import sys
import types
from typing import Any

import torch

from pliant.graph.traced import TracedTensor
from pliant.interpret.policy_tables import python_modules
from pliant.jit.persist import environment
from pliant.jit.persist.names import Missing, Writer
from pliant.jit.persist.prints import HEAPTYPE, PROXY, built_in, module_of
from pliant.jit.persist.values import NotPortable, decode, encode

STDLIB = os.path.dirname(os.__file__) + os.sep
PACKAGES = os.path.join(STDLIB, "site-packages") + os.sep
OWN = (environment.TORCH, str(environment.HOME) + os.sep)


def versioned(path: str) -> bool:
    """Whether a file is known by a version that is part of the environment."""
    return path.startswith(OWN) or (path.startswith(STDLIB) and not path.startswith(PACKAGES))


@functools.cache
def content(path: str) -> str:
    """A hash of a file as it is; it is only asked for files that were not written since the process began."""
    with open(path, "rb", buffering=0) as file:
        return hashlib.sha256(file.read()).hexdigest()


def file_row(path: str) -> tuple:
    try:
        status = os.stat(path)
        if status.st_ctime_ns > environment.BEGUN:
            raise NotPortable(f"{path} was written after this process had begun")
        return path, *environment.signature(status), content(path)
    except OSError:
        raise NotPortable(f"{path} is no file") from None


def file_of(module: str | None) -> str | None:
    """The file of a module that is no version's; None where there is none. Raises NotPortable for a module that came from nowhere."""
    found = sys.modules.get(module) if module else None
    path = getattr(found, "__file__", None)
    if isinstance(path, str):
        return None if versioned(path) else path
    if found is None or getattr(found, "__spec__", None) is None or getattr(found.__spec__, "origin", None) not in ("built-in", "frozen"):
        if module is not None and not module.startswith("torch") and module != "types" and not built_in(module):
            raise NotPortable(f"{module} was read from no file")
    return None


def is_generated(path: str) -> bool:
    """Code that was made from text, as `dataclasses` does: its bytecode says all."""
    return path.startswith("<")


def files(table: Writer) -> list[str]:
    """The files that the objects of a table were made from."""
    paths: dict[str, None] = {}
    for fn in table.functions:
        path = fn.__code__.co_filename
        if not is_generated(path) and not versioned(path):
            paths[path] = None
    for cls in table.classes:
        if cls.__flags__ & HEAPTYPE and not table.hand_over:
            path_or_none = file_of(module_of(cls))
            if path_or_none is not None:
                paths[path_or_none] = None
    return [] if table.hand_over else list(paths)


def same_files(rows: list[tuple]) -> None:
    """Raises Missing where a file is not what it was."""
    for path, size, modified, changed, digest in rows:
        try:
            status = os.stat(path)
        except OSError:
            raise Missing(f"{path} is gone") from None
        if status.st_ctime_ns > environment.BEGUN:
            raise Missing(f"{path} was written after this process had begun")
        if environment.signature(status) != (size, modified, changed) and content(path) != digest:
            raise Missing(f"{path} has changed")


def answers(asked: list[tuple], table: Writer) -> list[tuple]:
    """Questions and answers as data: (function, arguments, keywords, answer)."""
    rows: dict[str, tuple] = {}
    for fn, args, kwargs, answer in asked:
        name = getattr(fn, "__name__", "")
        if args and is_plumbing(fn):
            continue
        args, kwargs = tuple(map(plain_tensor, args)), {k: plain_tensor(v) for k, v in kwargs.items()}
        row = (("@", table.refer(fn)), encode(args, table.refer), encode(kwargs, table.refer), encode(answer, table.refer))
        if repr(row) not in rows:
            if encode(ask(fn, args, kwargs), table.refer) != row[3]:
                raise NotPortable(f"{name} answers differently by now")
            rows[repr(row)] = row
    return list(rows.values())


def plain_tensor(v: Any) -> Any:
    """For a question about a traced tensor, one like any other."""
    return PROXY if isinstance(v, TracedTensor) else v


def ask(fn: Any, args: tuple, kwargs: dict) -> Any:
    """The answer that a capture would get."""
    torch.compiler._is_compiling_flag, flag = True, torch.compiler._is_compiling_flag
    try:
        return fn(*args, **kwargs)
    finally:
        torch.compiler._is_compiling_flag = flag


def is_plumbing(fn: Any) -> bool:
    """Functions of versioned files whose answer depends on their arguments alone."""
    if isinstance(fn, functools._lru_cache_wrapper):
        return versioned(fn.__wrapped__.__code__.co_filename) and fn.__module__ == "typing"
    if type(fn) is not types.FunctionType:
        return False
    rule = python_modules.module_policy(fn.__globals__.get("__name__"))
    return rule.kind == "native_python" and versioned(fn.__code__.co_filename)


def same_answers(rows: list[tuple], objects: list[Any]) -> None:
    """Raises Missing where a question has another answer here."""
    seen = objects.__getitem__
    for row in rows:
        fn, args, kwargs, answer = (decode(x, seen) for x in row)
        now = ask(fn, args, kwargs)
        if type(now) is not type(answer) or now != answer:
            raise Missing(f"{getattr(fn, '__name__', fn)} answers differently here")
