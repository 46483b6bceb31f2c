"""Going through what is iterable, as C code does it. To make room, `list(o)`, `[*o]` and `f(*o)` ask for a length first, `__len__` or else
`__length_hint__`. The answer says nothing about the result, but a class of the program's may do anything when it is asked."""

from __future__ import annotations

import types
from typing import Any

from pliant.interpret.attributes import lookup
from pliant.interpret.state import vm
from pliant.native import made_in_python


class Items:
    """Iterable by its subscripts alone."""

    def __getitem__(self, i: int) -> None:
        raise IndexError


ITEM_BY_ITEM = type(iter(Items()))


def ask_length(o: Any) -> None:
    """`PyObject_LengthHint`: raises what the methods raise, but for a TypeError, and what CPython says of wrong answers."""
    if type(o) is ITEM_BY_ITEM:  # which asks what it goes through
        o = (*o.__reduce__()[1], None)[0]
    t = vm.type_of(o)
    if not made_in_python(t):
        return
    if type(lookup(t, "__len__")) is types.FunctionType:
        try:
            vm.length(o)
        except TypeError:
            pass
        else:
            return
    hint = lookup(t, "__length_hint__")
    if type(hint) is not types.FunctionType:
        return
    try:
        n = vm.interp(hint, (o,), {})
    except TypeError:
        return
    if n is NotImplemented:
        return
    if not issubclass(vm.type_of(n), int):
        raise TypeError(f"__length_hint__ must be an integer, not {vm.type_of(n).__name__}")
    if n < 0:
        raise ValueError("__length_hint__() should return >= 0")


def drain(it: Any) -> list:
    """What is left in an iterator."""
    out: list[Any] = []
    while True:
        try:
            out.append(vm.next(it))
        except StopIteration:
            return out


__all__ = ["ask_length", "drain"]
