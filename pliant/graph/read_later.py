"""What code of the program reads of the outside when autograd calls it: asked again then, by the backward part of a region.

Eager reads what is there at `backward()`; the region was made with what was there in the forward part. `interpret/late_reads.py` finds it.
"""

from __future__ import annotations

import types
import weakref
from collections.abc import Callable
from typing import Any

NOTHING = type("Nothing", (), {"__repr__": lambda self: "NOTHING"})()
"""There is no such item, or attribute."""

OF_FUNCTIONS = ("__code__", "__defaults__", "__kwdefaults__")
BY_VALUE = frozenset({int, float, complex, str, bytes})
MOST = 64  # of what is read again: more takes longer than it is worth


def of_dict(d: Any, name: Any) -> Any:
    return dict.get(d, name, NOTHING)


def of_list(v: Any, i: int) -> Any:
    return list.__getitem__(v, i) if -list.__len__(v) <= i < list.__len__(v) else NOTHING


def of_object(o: Any, name: str) -> Any:
    return dict.get(object.__getattribute__(o, "__dict__"), name, NOTHING)


def of_class(cls: type, name: str) -> Any:
    return next((c.__dict__[name] for c in cls.__mro__ if name in c.__dict__), NOTHING)


def in_cell(cell: Any, _: None) -> Any:
    return cell.cell_contents if cell != types.CellType() else NOTHING


def of_function(fn: Any, name: str) -> Any:
    return getattr(fn, name)


def how_many(c: Any, _: None) -> int:
    return len(c)


def keys_of(d: Any, _: None) -> tuple:
    return tuple(dict.keys(d))


def held_weakly(v: Any) -> Callable[[], Any] | None:
    """A reference to an object that is not kept alive for this; None for one that has to be."""
    try:
        return weakref.ref(v) if not issubclass(type(v), (types.FunctionType, type, types.ModuleType)) else None
    except TypeError:
        return None


class ReadLater:
    """Whether all of it is as it was. `places`: (how it is read, of what, by which name, what was there)."""

    __slots__ = ("known", "places")

    def __init__(self) -> None:
        self.known: set[tuple] = set()
        self.places: list[tuple] = []

    def add(self, read: Callable[[Any, Any], Any], of: Any, name: Any) -> None:
        key = (read, id(of), type(name), name)
        if key in self.known:
            return
        self.known.add(key)
        there = read(of, name)
        kept = held_weakly(of) if read is of_object else None
        found = held_weakly(there)
        self.places.append((read, of if kept is None else None, kept, name, there if found is None else None, found))

    def __call__(self) -> bool:
        for read, of, kept, name, there, found in self.places:
            if kept is not None:
                of = kept()
                if of is None:
                    return False
            if found is not None:
                there = found()
                if there is None:
                    return False
            now = read(of, name)
            if now is not there and not same(now, there):
                return False
        return True


CHANGED_SINCE = (
    "what the backward of an autograd.Function, or a hook, reads outside of it has changed since the compiled forward part ran, and its "
    "gradients cannot be computed anew"
)


def same(a: Any, b: Any) -> bool:
    """Whether two constants are one to every program."""
    if type(a) is not type(b):
        return False
    if type(a) is tuple:
        return len(a) == len(b) and all([x is y or same(x, y) for x, y in zip(a, b, strict=True)])
    return type(a) in BY_VALUE and a == b and (type(a) not in (float, complex) or repr(a) == repr(b))
