"""Names of types and functions as CPython's own messages have them."""

from __future__ import annotations

from typing import Any

from pliant.native import made_in_python


def type_name(t: type) -> str:
    """A type as CPython's own messages name it: those that C has made with their modules."""
    return t.__name__ if t.__module__ == "builtins" or made_in_python(t) else f"{t.__module__}.{t.__name__}"


def function_text(fn: Any) -> str:
    """A callable as CPython's own messages name it."""
    name = getattr(fn, "__qualname__", None)
    if name is None:
        return str(fn)
    module = getattr(fn, "__module__", None)
    return f"{module}.{name}()" if module not in (None, "builtins") else f"{name}()"
