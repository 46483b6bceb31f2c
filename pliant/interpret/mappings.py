"""What `dict(m)`, `{**m}` and `f(**m)` take from a mapping: CPython's `dict_merge`, read by read.

A dict is copied item by item as it is stored, whatever its class makes of `keys` and `__getitem__`, unless the class has an `__iter__` of
its own; everything else is asked for its `keys()` and then for each item."""

from __future__ import annotations

import collections
import types
from collections.abc import Callable
from typing import Any

from pliant.interpret import shadows
from pliant.interpret.attributes import getattr_, lookup
from pliant.interpret.calls import call
from pliant.interpret.capture import UNSET
from pliant.interpret.gate import through_c
from pliant.interpret.slips import slipped
from pliant.interpret.slots import getitem, iterator, setitem, unpack
from pliant.interpret.state import Break, Restart, vm
from pliant.interpret.type_names import type_name


def copied_whole(m: Any) -> bool:
    """Whether C takes what is stored in it."""
    t = type(m)
    return t is collections.OrderedDict or issubclass(t, dict) and lookup(t, "__iter__") is dict.__iter__


def is_mapping(m: Any) -> bool:
    """Whether C takes it for a mapping: a dict, or what answers to `keys`, if only by a `__getattr__`."""
    t = type(m)
    keys = lookup(t, "keys")
    if issubclass(t, dict) or type(keys) in (types.FunctionType, types.MethodDescriptorType):
        return True
    own = lookup(t, "__getattr__") is not UNSET or lookup(t, "__getattribute__") is not object.__getattribute__
    if keys is UNSET and t.__dictoffset__ == 0 and not own:
        return False
    try:
        getattr_(m, "keys")
    except AttributeError:
        return False
    return True


def entries(m: Any, once: dict | None = None) -> dict:
    """The items of mapping `m` as C code that merges it would find them: read and guarded. None of the keys may be there twice or in
    `once`, where that is given (keywords): what CPython raises then depends on which exceptions are handled all around, so it runs that."""
    if type(m) is dict or copied_whole(m):
        shadows.read_all(vm.world, m)
        if once and any(type(k) is not str or k in once for k in shadows.stored(m)):
            raise Break("PL0003", "a keyword that is given twice, or that is no str")
        return m if type(m) is dict else {**m}
    found: dict = {}
    for k in keys_of(m):
        if once is not None and (type(k) is not str or k in once or k in found):
            raise Break("PL0003", "a keyword that is given twice, or that is no str")
        try:
            setitem(found, k, getitem(m, k))
        except KeyError as e:
            if once is None or slipped(e):
                raise
            raise Break("PL0003", "a keyword that a mapping names and does not have") from None
    return found


def keys_of(m: Any) -> list:
    keys = call(getattr_(m, "keys"), (), {})
    return unpack(iterator(keys, f"{type_name(vm.type_of(m))}.keys() returned a non-iterable (type {type_name(vm.type_of(keys))})"))


class Asked:
    """A mapping as C code is given it that merges it: what that asks it for, the interpreter asks."""

    __slots__ = ("held",)

    def __init__(self, held: Any) -> None:
        self.held = held

    def keys(self) -> list:
        return within_c(keys_of, self.held)

    def __getitem__(self, k: Any) -> Any:
        return within_c(getitem, self.held, k)


def within_c(fn: Callable, *args: Any) -> Any:
    try:
        return fn(*args)
    except (Break, Restart) as e:
        through_c(e)
        raise


vm.mapping_for_c = lambda m: Asked(m) if is_mapping(m) else m
