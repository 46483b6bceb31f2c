"""Small functions that emitted code calls to do what one instruction does (no tensors, no capture state)."""

from __future__ import annotations

import operator
import sys
from typing import Any


def call_ex(fn: Any, args: Any, kwargs: Any) -> Any:
    return fn(*args, **kwargs)


def not_contains(container: Any, item: Any) -> bool:
    return not operator.contains(container, item)


def unpack_ex(value: Any, before: int, after: int) -> tuple:
    """The `before + 1 + after` values that `a, *b, c = value` binds."""
    r = list(value)
    if len(r) < before + after:
        raise ValueError(f"not enough values to unpack (expected at least {before + after}, got {len(r)})")
    return (*r[:before], r[before : len(r) - after], *(r[len(r) - after :] if after else ()))


def build_string(*parts: str) -> str:
    """BUILD_STRING."""
    return "".join(parts)


def format_value(value: Any, conversion: int, spec: str) -> str:
    if conversion:
        value = (str, repr, ascii)[conversion - 1](value)
    return format(value, spec)


def import_from(module: Any, name: str) -> Any:
    try:
        return getattr(module, name)
    except AttributeError:
        full = f"{module.__name__}.{name}"
        if full in sys.modules:
            return sys.modules[full]
        raise ImportError(f"cannot import name {name!r} from {module.__name__!r}") from None


def dict_update(target: dict, other: Any) -> None:
    target.update(other)


def dict_merge(target: dict, other: Any) -> None:
    for k in other.keys():
        if k in target:
            raise TypeError(f"got multiple values for keyword argument {k!r}")
        target[k] = other[k]


def build_set(*items: Any) -> set:
    return set(items)


def build_map(*items: Any) -> dict:
    return dict(zip(items[::2], items[1::2], strict=True))


def call_method(obj: Any, name: str, *args: Any, **kwargs: Any) -> Any:
    return getattr(obj, name)(*args, **kwargs)


def globals_of(fn: Any) -> dict:
    return fn.__globals__


def evaluate(fn: Any, source: Any, frame_function: Any, names: dict) -> Any:
    """`eval(source)` or `exec(source)` with the names of the frame that the program wrote it in."""
    return fn(source, frame_function.__globals__, names)
