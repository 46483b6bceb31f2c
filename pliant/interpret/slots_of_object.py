"""What `object` answers by identity (`__eq__`, `__ne__`, `__hash__`), called by its name."""

from __future__ import annotations

from typing import Any

from pliant.interpret.attributes import lookup
from pliant.interpret.capture import UNSET
from pliant.interpret.state import vm

ARGUMENTS = {"__eq__": 1, "__ne__": 1, "__hash__": 0}


def by_identity(fn: Any, args: tuple, kwargs: dict) -> Any:
    """What such a slot says, bound to what is of the outside or stands for it; UNSET if it is another slot, or of what is made here."""
    o, name, world = fn.__self__, fn.__name__, vm.world
    if fn.__objclass__ is not object or kwargs or ARGUMENTS.get(name) != len(args):
        return UNSET
    if id(o) not in world.outside and id(o) not in world.standing:
        return UNSET
    asked = "__hash__" if name == "__hash__" else "__eq__"  # (`__ne__` inverts what that one says)
    if name != "__eq__" and lookup(type(o), asked) is not vars(object)[asked]:
        return UNSET
    if name == "__hash__":
        return vm.call(hash, (o,), {})
    return name == "__eq__" if vm.same_object(o, args[0]) else NotImplemented
