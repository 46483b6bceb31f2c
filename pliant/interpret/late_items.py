"""Items of lists of strings at a place that changes from call to call, or comes from data: `names[i]` in a loop that stays
in Python, `labels[logits.argmax()]`.

To pin the place would be an entry for each, or is not possible. Emitted code takes the item out of the list when it needs it, as a text
made late (`late_text.py`); that all items are strings is guarded (`views.is_of_texts`), and the place is one of the list. Where the
capture writes to the list after all, it begins again and pins the place.
"""

from __future__ import annotations

from operator import is_
from typing import Any

from pliant.graph.symnode import expr_of
from pliant.guards import views
from pliant.interpret import shadows
from pliant.interpret.comparisons import of_data
from pliant.interpret.late_text import LateText, Piece, varies
from pliant.interpret.shadows import WRITTEN, Shadow
from pliant.interpret.state import current_site, vm
from pliant.interpret.world import World
from pliant.symbolic import ops


class ListItem:
    """Item number `place` of the list at `source`."""

    __slots__ = ("place", "source")

    def __init__(self, source: Any, place: Any) -> None:
        self.source = source
        self.place = place


class TextAt:
    """Number `place` of some texts."""

    __slots__ = ("place", "texts")

    def __init__(self, texts: tuple[str, ...], place: Any) -> None:
        self.texts = texts
        self.place = place


def is_item(v: Any) -> bool:
    """Whether this is an item that emitted code takes out: the very object that another name may be of."""
    return type(v) is LateText and any([type(p) is Piece and type(p.value) in (ListItem, TextAt) for p in v.pieces or ()])


def are_made_late() -> bool:
    """Whether items may be left to emitted code here."""
    return vm.late_texts is not None and not vm.asking and not vm.exploring and getattr(vm.history, "joins", False)


def may_be_late(h: Shadow | None, place: Any) -> bool:
    """Whether the item at this place can be left to emitted code."""
    if h is None or type(h.orig) is not list or not are_made_late() or not (varies(place) or of_data(place)):
        return False
    if not views.is_of_texts(h.orig):
        return False
    return len(h.copy) == len(h.orig) and all(map(is_, h.copy, h.orig)) and not any([v is WRITTEN for v in h.located.values()])


def item_at(world: World, h: Shadow, place: Any) -> LateText | None:
    """The item at this place, which may be late; None where the place counts from the end."""
    n = shadows.changing_length(world, h) if shadows.countable(h) else len(h.orig)
    firm = of_data(place)
    if firm:
        hold_to_range(place, n, "list index out of range")
    elif vm.truth(place < 0):
        return None
    elif not vm.truth(place < n):
        raise IndexError("list index out of range")
    world.unusual()
    world.guard(h.source.apply("is_of_texts"), "EQ_MATCH", True)
    h.late = True
    return LateText((Piece(ListItem(h.source, place), 0, ""),), firm)


def item_of(texts: Any, place: Any) -> LateText | None:
    """The item of a tuple or list that is made here, at a place from data; None where not all of them are strings."""
    if not are_made_late() or not of_data(place) or not texts or not all([type(x) is str for x in texts]):
        return None
    hold_to_range(place, len(texts), f"{type(texts).__name__} index out of range")
    return LateText((Piece(TextAt(tuple(texts), place), 0, ""),), True)


def hold_to_range(place: Any, n: Any, words: str) -> None:
    """There is an item at this place from data, which may count from the end: an assertion of the graph."""
    e, length = expr_of(place, vm.scope), expr_of(n, vm.scope)
    if not vm.scope.assume(ops.and_(ops.ge(e, -length), ops.lt(e, length)), current_site(), words, IndexError):
        raise IndexError(words)
