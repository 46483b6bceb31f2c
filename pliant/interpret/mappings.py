"""What `dict(m)`, `{**m}` and `f(**m)` take from a mapping: CPython's `dict_merge`, read by read.

A dict is copied item by item as it is stored, whatever its class makes of `keys` and `__getitem__`, unless the class has an `__iter__` of
its own; everything else is asked for its `keys()` and then for each item."""

from __future__ import annotations

import collections
import types
from typing import Any

from pliant.interpret import shadows
from pliant.interpret.attributes import getattr_, lookup
from pliant.interpret.calls import call
from pliant.interpret.capture import UNSET
from pliant.interpret.slots import getitem, setitem, unpack
from pliant.interpret.state import vm


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


def entries(m: Any) -> dict:
    """The items of mapping `m` as C code that merges it would find them: read and guarded."""
    if type(m) is dict or copied_whole(m):
        shadows.read_all(vm.world, m)
        return m if type(m) is dict else {**m}
    found: dict = {}
    for k in unpack(call(getattr_(m, "keys"), (), {})):
        setitem(found, k, getitem(m, k))
    return found
