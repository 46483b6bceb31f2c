"""Items of outside lists of strings at a place that changes from call to call: `names[i]` in a loop that stays in Python.

To pin the place would be an entry for each. Emitted code takes the item out of the list when it needs it, as a text made late
(`late_text.py`); that all items are strings is guarded (`views.is_of_texts`), and the place is one of the list. Where the capture
writes to the list after all, it begins again and pins the place.
"""

from __future__ import annotations

from operator import is_
from typing import Any

from pliant.guards import views
from pliant.interpret import shadows
from pliant.interpret.late_text import LateText, Piece, varies
from pliant.interpret.shadows import WRITTEN, Shadow
from pliant.interpret.state import vm
from pliant.interpret.world import World


class ListItem:
    """Item number `place` of the list at `source`."""

    __slots__ = ("place", "source")

    def __init__(self, source: Any, place: Any) -> None:
        self.source = source
        self.place = place


def may_be_late(h: Shadow | None, place: Any) -> bool:
    """Whether the item at this place can be left to emitted code."""
    if h is None or vm.late_texts is None or vm.asking or type(h.orig) is not list or not getattr(vm.history, "joins", False):
        return False
    if not varies(place) or vm.exploring or not views.is_of_texts(h.orig):
        return False
    return len(h.copy) == len(h.orig) and all(map(is_, h.copy, h.orig)) and not any([v is WRITTEN for v in h.located.values()])


def item_at(world: World, h: Shadow, place: Any) -> LateText | None:
    """The item at this place, which may be late; None where the place counts from the end."""
    n = shadows.changing_length(world, h) if shadows.countable(h) else len(h.orig)
    if vm.truth(place < 0):
        return None
    if not vm.truth(place < n):
        raise IndexError("list index out of range")
    world.unusual()
    world.guard(h.source.apply("is_of_texts"), "EQ_MATCH", True)
    h.late = True
    return LateText((Piece(ListItem(h.source, place), 0, ""),))
