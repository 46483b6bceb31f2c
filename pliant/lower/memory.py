"""Memory of a segment: which intermediate results share which part of the arena, with sizes that only a run knows.

Each buffer lives from the step that makes it to the last step that reads it. Buffers that never live at once may share a *slot*; a slot
takes as many bytes as the largest of its buffers, and the arena is the slots one behind the other. Sizes are expressions, so the largest
is a maximum taken at run time, left out where it is proved who is. Behind a buffer in its slot, others may lie that live at the same time,
as far as it is proved that they all fit. The choice who shares rests on the hints: for other sizes the plan is as right, only perhaps less
tight.

Results that the caller gets are *given*: their memory exists from the start, so until they are written it serves whatever surely fits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pliant.lower.loop_nest import Facts, Size
from pliant.native import ALIGNMENT
from pliant.symbolic import ops
from pliant.symbolic.expr import Expr

UNKNOWN = 64  # elements, where a size has no hint


@dataclass(slots=True, eq=False)
class Interval:
    """`size` bytes, needed from step `first` to step `last`, both included."""

    size: Size
    first: int
    last: int

    @property
    def steps(self) -> int:
        """The steps, as bits of a number."""
        return ((1 << (self.last - self.first + 1)) - 1) << self.first


@dataclass(slots=True, eq=False)
class Slot:
    """A part of the arena: the bytes of those who share it (the largest counts), when they live, and how far from its beginning."""

    sizes: list[Size]
    hint: int
    busy: list[tuple[Interval, Size]] = field(default_factory=list)
    taken: int = 0  # the steps at which somebody lives in it, as bits

    def take(self, i: Interval, at: Size, steps: int) -> None:
        self.busy.append((i, at))
        self.taken |= steps

    def beside(self, i: Interval) -> list[tuple[Interval, Size]]:
        """Those who live while `i` does."""
        return [(b, at) for b, at in self.busy if b.first <= i.last and i.first <= b.last]


@dataclass(slots=True, eq=False)
class Plan:
    """Slots of the arena in order, and the slot of each buffer; -1 is the memory of the first given buffer, -2 of the second, and so on.

    `within`: how many bytes from the beginning of that memory.
    """

    slots: list[Slot]
    place: list[int]
    within: list[Size]

    @property
    def hint(self) -> int:
        """A typical size of the arena."""
        return sum(slot.hint for slot in self.slots)

    def bytes(self, env: Mapping[str, int]) -> int:
        """The size of the arena where the symbols have these values."""
        return sum(aligned(max(value(s, env) for s in slot.sizes)) for slot in self.slots)


def value(size: Size, env: Mapping[str, int]) -> int:
    return size if type(size) is int else int(size.evaluate(env))  # type: ignore[union-attr]


def aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def hinted(size: Size) -> int:
    """A typical value of a size."""
    if type(size) is int:
        return size
    assert isinstance(size, Expr)
    hint = size.hint
    return UNKNOWN if hint is None else int(hint)


ORDERS: tuple[Callable[[Interval], Any], ...] = (
    lambda i: -i.last,  # taken in order of their ends they need no more slots than live at once, and results come last
    lambda i: i.first,
    lambda i: (i.first - i.last, i.first),  # those that live long first
)
"""In which buffers of the same size find their places: the plan that takes least wins."""


def plan(intervals: list[Interval], facts: Facts, given: Sequence[Interval] = ()) -> Plan:
    """Places for all buffers, large ones first. `given` buffers have their place."""
    best: Plan | None = None
    for order in ORDERS:
        turns = sorted(range(len(intervals)), key=lambda k: (-hinted(intervals[k].size), order(intervals[k])))
        found = plan_in_order(turns, intervals, facts, given)
        if best is None or found.hint < best.hint:
            best = found
        if len(found.slots) < 2:
            break
    assert best is not None
    return best


def plan_in_order(order: list[int], intervals: list[Interval], facts: Facts, given: Sequence[Interval]) -> Plan:
    """Each buffer in the free slot that it fits best."""
    slots: list[Slot] = []
    results = [Slot([g.size], hinted(g.size), [(g, 0)], g.steps) for g in given]
    place = [0] * len(intervals)
    within: list[Size] = [0] * len(intervals)
    for k in order:
        i, size, steps = intervals[k], hinted(intervals[k].size), intervals[k].steps
        lent = next((g for g, slot in enumerate(results) if not slot.taken & steps and surely_reaches(facts, slot.sizes[0], i.size)), -1)
        if lent >= 0:
            results[lent].take(i, 0, steps)
            place[k] = -1 - lent
            continue
        fits = [s for s, slot in enumerate(slots) if not slot.taken & steps]
        best = min(fits, key=lambda s: (not same(facts, slots[s], i.size), max(size - slots[s].hint, 0), slots[s].hint), default=-1)
        if best < 0:
            gap = next(((s, at) for s, slot in enumerate(slots) if (at := gap_in(facts, slot, i)) is not None), None)
            if gap is not None:
                place[k], within[k] = gap
                slots[gap[0]].take(i, gap[1], steps)
                continue
            best = len(slots)
            slots.append(Slot([], 0))
        slot = slots[best]
        slot.hint = max(slot.hint, size)
        slot.take(i, 0, steps)
        widen(facts, slot, i.size)
        place[k] = best
    return Plan(slots, place, within)


def gap_in(facts: Facts, slot: Slot, i: Interval) -> Size | None:
    """Where in the slot, at its beginning or behind one of those who live at that time, there surely is room for `i`."""
    beside = slot.beside(i)
    for at in (0, *(facts.sum(start, b.size) for b, start in beside)):
        end = facts.sum(at, i.size)
        if hinted(end) > slot.hint or hinted(at) % ALIGNMENT or not surely_aligned(facts, at):
            continue
        apart = all(surely_reaches(facts, start, end) or surely_reaches(facts, at, facts.sum(start, b.size)) for b, start in beside)
        if apart and any(surely_reaches(facts, s, end) for s in slot.sizes):
            return at
    return None


def surely_aligned(facts: Facts, at: Size) -> bool:
    return at % ALIGNMENT == 0 if type(at) is int else facts.surely_equal(ops.mod(at, ALIGNMENT), 0)


def same(facts: Facts, slot: Slot, size: Size) -> bool:
    return any(facts.equal(s, size) for s in slot.sizes)


def widen(facts: Facts, slot: Slot, size: Size) -> None:
    """Let the slot hold `size` too. Sizes that another one surely reaches need not be looked at."""
    if any(surely_reaches(facts, s, size) for s in slot.sizes):
        return
    slot.sizes = [s for s in slot.sizes if not surely_reaches(facts, size, s)] + [size]


def surely_reaches(facts: Facts, a: Size, b: Size) -> bool:
    """Is `a >= b` proved?"""
    if facts.equal(a, b):
        return True
    if type(a) is int and type(b) is int:
        return a >= b
    return bool(facts.scope.known_true(ops.ge(a, b)))
