"""Going through what is iterable, as C code does it. To make room, `list(o)`, `[*o]` and `f(*o)` ask for a length first, `__len__` or else
`__length_hint__`. The answer says nothing about the result, but a class of the program's may do anything when it is asked."""

from __future__ import annotations

import sys
import types
from typing import Any

from pliant.interpret.attributes import lookup, not_yet
from pliant.interpret.capture import UNSET
from pliant.interpret.special_methods import bound_special
from pliant.interpret.state import vm
from pliant.interpret.type_names import type_name
from pliant.native import made_in_python


class Items:
    """Iterable by its subscripts alone."""

    def __getitem__(self, i: int) -> None:
        raise IndexError


ITEM_BY_ITEM = type(iter(Items()))


def ask_length(o: Any) -> None:
    """`PyObject_LengthHint` of what is gone through: raises what the methods raise, but for a TypeError, and what CPython says of wrong
    answers."""
    if type(o) is ITEM_BY_ITEM:  # which asks what it goes through
        o = (*o.__reduce__()[1], None)[0]
    if made_in_python(vm.type_of(o)):
        length_hint(o, 0)


def length_hint(o: Any, default: Any) -> Any:
    """`operator.length_hint`."""
    t = vm.type_of(o)
    if lookup(t, "__len__") is not UNSET:
        try:
            return vm.length(o)
        except TypeError:
            pass
    hint = lookup(t, "__length_hint__")
    if hint is UNSET:
        return default
    try:
        if type(hint) is types.FunctionType:
            n = vm.interp(hint, (o,), {})
        else:
            not_yet()
            n = vm.call(bound_special(hint, o, t, "__length_hint__"), (), {})
    except TypeError:
        return default
    if n is NotImplemented:
        return default
    if not issubclass(vm.type_of(n), int):
        raise TypeError(f"__length_hint__ must be an integer, not {type_name(vm.type_of(n))}")
    if isinstance(n, int):
        n = int.__add__(n, 0)  # of a subclass, as C code reads it
        if not -sys.maxsize - 1 <= n <= sys.maxsize:
            raise OverflowError("Python int too large to convert to C ssize_t")
    if n < 0:
        raise ValueError("__length_hint__() should return >= 0")
    return n


def drain(it: Any) -> list:
    """What is left in an iterator."""
    out: list[Any] = []
    while True:
        try:
            out.append(vm.next(it))
        except StopIteration:
            return out


__all__ = ["ask_length", "drain", "length_hint"]
