"""Items of lists of strings at a place that changes from call to call, or comes from data: `names[i]` in a loop that stays
in Python, `labels[logits.argmax()]`; and of lists of numbers at a place from data, which are selected.

To pin the place would be an entry for each, or is not possible. Emitted code takes the item out of the list when it needs it, as a text
made late (`late_text.py`); that all items are strings is guarded (`views.is_of_texts`), and the place is one of the list. Where the
capture writes to the list after all, it begins again and pins the place.
"""

from __future__ import annotations

from operator import is_
from typing import Any

from pliant.graph.originals import torch
from pliant.graph.symnode import expr_of, number, to_sym
from pliant.guards import views
from pliant.interpret import shadows
from pliant.interpret.comparisons import of_data
from pliant.interpret.late_text import LateText, Piece, varies
from pliant.interpret.shadows import WRITTEN, Shadow
from pliant.interpret.state import current_site, vm
from pliant.interpret.world import World
from pliant.symbolic import ops
from pliant.symbolic.magnitude import WORD, bits


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


def item_of(values: Any, place: Any, there: bool = False) -> Any:
    """The item of a tuple or list that is made here, at a place from data; None where not all of them are strings, or numbers of one type.
    `there`: it is known to be a place of the list, counted from its begin."""
    if not of_data(place) or not values:
        return None
    texts = all([type(x) is str for x in values])
    if not (texts and are_made_late() or not texts and are_numbers(values)):
        return None
    if not there:
        hold_to_range(place, len(values), f"{type(values).__name__} index out of range")
    if texts:
        return LateText((Piece(TextAt(tuple(values), place), 0, ""),), True)
    return number_at(values, expr_of(place, vm.scope), there)


def text_of(texts: tuple[str, ...], place: Any, branch: Any) -> Any:
    """One of these texts, which nobody has read yet: who does begins the capture again, where the sides of the branch that has chosen it
    are none of one graph."""
    return LateText((Piece(TextAt(texts, place), 0, ""),), branch=branch) if type(place) is not int else texts[place]


MOST_NUMBERS = 64
"""Numbers of which one is selected."""


def are_numbers(values: Any) -> bool:
    """Whether all of these are numbers of one type, which graphs have."""
    if len(values) > MOST_NUMBERS or vm.asking or len({NUMBERS.get(type(v)) for v in values}) > 1:
        return False
    return type(values[0]) in NUMBERS and all([type(v) is not int or v.bit_length() <= WORD for v in values])


def number_at(values: Any, place: Any, counted: bool) -> Any:
    """The number at a place of these, as one expression."""
    n = len(values)
    if not counted:
        place = ops.mod(place, n)  # from the end
    exprs = [expr_of(v, vm.scope) for v in values]
    if all([e is exprs[0] for e in exprs]):
        return values[0]
    found = exprs[-1]
    for i in reversed(range(n - 1)):
        c = ops.eq(place, i)
        found = ops.or_(ops.and_(c, exprs[i]), ops.and_(ops.not_(c), found)) if found.kind is bool else ops.where(c, exprs[i], found)
    return to_sym(vm.scope, found)


NUMBERS = {int: int, float: float, bool: bool, torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}


def item_outside(world: World, h: Shadow, place: Any) -> Any:
    """The item of a list from outside at a place that changes, or comes from data; None where it is to be known."""
    if may_be_late(h, place):
        return item_at(world, h, place)
    if type(h.copy) is not list or not of_data(place) or not h.copy or not are_numbers(h.orig):
        return None
    shadows.read_all(world, h.copy)
    return item_of(h.copy, place)


def under_key(world: World, h: Shadow | None, d: Any, k: Any, *default: Any) -> Any:
    """`d[k]`, or `d.get(k, default)`, of a dict with few keys, all known, where `k` is an integer or truth from data; None where its values
    are not numbers of one type, or texts."""
    keys = list(dict.keys(d))
    if type(d) is not dict or not (type(k) is torch.SymInt or type(k) is torch.SymBool) or not 0 < len(keys) <= MOST_NUMBERS or vm.asking:
        return None
    plain = all([type(key) is int and key.bit_length() <= WORD or type(key) is bool or type(key) is str for key in keys])
    numbered = [key for key in keys if type(key) is not str]
    real = d if h is None else h.orig
    if not plain or not numbered or not fit([*[dict.__getitem__(real, key) for key in numbered if dict.__contains__(real, key)], *default]):
        return None
    place = place_of_key(numbered, k, bool(default))
    if place is None:
        return None
    if h is not None:
        shadows.read_all(world, d)
    values = [*[dict.__getitem__(d, key) for key in numbered], *default]
    return item_of(values, place, there=True) if fit(values) else None


def place_of_key(keys: list[Any], k: Any, others: bool) -> Any:
    """Which of these keys it is. `others`: it may be none of them, or the graph raises what a dict raises."""
    e, numbers = number(expr_of(k, vm.scope)), [int(key) for key in keys]
    if not others and not (type(k) is torch.SymBool and {0, 1} <= {*numbers}):
        return vm.place_of_key(numbers, k) if type(k) is torch.SymInt and bits(e) <= WORD else None
    place = vm.scope.ctx.lift(len(keys) - (not others))
    for i, key in reversed([*enumerate(numbers)]):
        place = ops.where(ops.eq(e, key), i, place)
    return to_sym(vm.scope, place)


def fit(values: list[Any]) -> bool:
    """Whether one of these may be chosen."""
    return bool(values) and (all([type(v) is str for v in values]) and are_made_late() or are_numbers(values))


def hold_to_range(place: Any, n: Any, words: str) -> None:
    """There is an item at this place from data, which may count from the end: an assertion of the graph."""
    e, length = expr_of(place, vm.scope), expr_of(n, vm.scope)
    if not vm.scope.assume(ops.and_(ops.ge(e, -length), ops.lt(e, length)), current_site(), words, IndexError):
        raise IndexError(words)
