"""Items of outside dicts under a text that is another in each call or round: `d[name]` where `name` is opaque.

To guard the text would be an entry for each. Which texts are equal, and which hash they have, runs no code of the program: so the item
is found by whichever text is there when the guards run (`source.item(...)`), like that of an object that is another in each call. Only
where the program has written nothing to the dict before: what it has written may be under this key, or not.
"""

from __future__ import annotations

from typing import Any

from pliant.interpret.capture import UNSET
from pliant.interpret.late_text import hold_to_type
from pliant.interpret.opaque import Opaque
from pliant.interpret.shadows import WRITTEN, Shadow
from pliant.interpret.state import vm
from pliant.interpret.world import World


def may_be_late(h: Shadow | None, k: Any) -> bool:
    """Whether the item under this key can be left to the guards."""
    if type(k) is not Opaque or type(k.value) is not str or h is None or type(h.orig) is not dict or h.owner is not None:
        return False
    if vm.asking or vm.exploring or len(h.copy) != len(h.orig):
        return False
    return not any([v is WRITTEN for v in h.located.values()])


def is_there(world: World, h: Shadow, k: Opaque) -> bool:
    """`k in d`."""
    hold_to_type(k)
    world.unusual()
    if k.value in h.orig:
        world.guard(h.source.item(k.source), "NOT_ALIAS", ())  # of nothing: it can be read
        return True
    world.guard(h.source, "DICT_LACKS_ITEM", k.source, k.source)
    return False


def item(world: World, h: Shadow, k: Opaque) -> Any:
    """`d[k]`, which is there."""
    hold_to_type(k)
    world.unusual()
    source = h.source.item(k.source)
    found = world.reads.get((source, "late key"), UNSET)
    if found is UNSET:
        found = world.reads[source, "late key"] = world.locate(h.orig[k.value], source)
    return found


def asked(world: World, h: Shadow, name: str, args: tuple) -> Any:
    """What method `name` of the dict (`get`, `__contains__`, `__getitem__`) answers; UNSET where the key is no such text, or lacks."""
    k = args[0]
    if name == "get" and (found := vm.got_of_data(h.copy, args)) is not UNSET:
        return found
    if not may_be_late(h, k) or name == "__getitem__" and k.value not in h.orig:
        return UNSET
    if name == "__contains__" or k.value not in h.orig:
        there = is_there(world, h, k)
        return there if name == "__contains__" else args[1] if len(args) > 1 else None
    return item(world, h, k)
