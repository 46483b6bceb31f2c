"""What `dict(m)`, `{**m}` and `f(**m)` take from a mapping: CPython's `dict_merge`, read by read.

A dict is copied item by item as it is stored, whatever its class makes of `keys` and `__getitem__`, unless the class has an `__iter__` of
its own; everything else is asked for its `keys()` and then for each item."""

from __future__ import annotations

import collections
from typing import Any

from pliant.interpret import shadows
from pliant.interpret.attributes import getattr_, lookup
from pliant.interpret.calls import call
from pliant.interpret.slots import getitem, setitem, unpack
from pliant.interpret.state import vm


def copied_whole(m: Any) -> bool:
    """Whether C takes what is stored in it."""
    t = type(m)
    return t is collections.OrderedDict or issubclass(t, dict) and lookup(t, "__iter__") is dict.__iter__


def entries(m: Any) -> dict:
    """The items of mapping `m` as C code that merges it would find them: read and guarded."""
    if type(m) is dict or copied_whole(m):
        shadows.read_all(vm.world, m)
        return m if type(m) is dict else {**m}
    found: dict = {}
    for k in unpack(call(getattr_(m, "keys"), (), {})):
        setitem(found, k, getitem(m, k))
    return found
