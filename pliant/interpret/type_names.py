"""Names of types and functions as CPython's own messages have them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pliant.native import made_in_python


def type_name(t: type) -> str:
    """A type as CPython's own messages name it: those that C has made with their modules."""
    return t.__name__ if t.__module__ == "builtins" or made_in_python(t) else f"{t.__module__}.{t.__name__}"


def full_name(t: type) -> str:
    """A type as messages of CPython's since 3.13 name it (`%T`)."""
    module = t.__module__
    return t.__qualname__ if type(module) is not str or module in ("builtins", "__main__") else f"{module}.{t.__qualname__}"


PROTOCOLS = {
    "__enter__": ("context manager", ("__aenter__", "__aexit__"), "asynchronous context manager", "async with"),
    "__aenter__": ("asynchronous context manager", ("__enter__", "__exit__"), "context manager", "with"),
}
PROTOCOLS |= {"__exit__": PROTOCOLS["__enter__"], "__aexit__": PROTOCOLS["__aenter__"]}


def missed_special(t: type, name: str, has: Callable[[str], bool]) -> str:
    """What CPython says since 3.14 of `with` over an instance of `t`, which has no method `name`. `has`: whether it has one that binds."""
    protocol, others, other, statement = PROTOCOLS[name]
    text = f"'{full_name(t)}' object does not support the {protocol} protocol (missed {name} method)"
    if not all([has(n) for n in others]):
        return text
    return f"{text} but it supports the {other} protocol. Did you mean to use '{statement}'?"


def function_text(fn: Any) -> str:
    """A callable as CPython's own messages name it."""
    name = getattr(fn, "__qualname__", None)
    if name is None:
        return str(fn)
    module = getattr(fn, "__module__", None)
    return f"{module}.{name}()" if module not in (None, "builtins") else f"{name}()"
