"""Memory of a segment: which intermediate results share which part of the arena, with sizes that only a run knows.

Each buffer lives from the step that makes it to the last step that reads it. Buffers that never live at once may share a *slot*; a slot
takes as many bytes as the largest of its buffers, and the arena is the slots one behind the other. Sizes are expressions, so the largest
is a maximum taken at run time, left out where it is proved who is. The choice who shares rests on the hints: for other sizes the plan is
as right, only perhaps less tight.

Results that the caller gets are *given*: their memory exists from the start, so until they are written it serves whatever surely fits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pliant.lower.nest import Facts, Size
from pliant.symbolic import ops
from pliant.symbolic.expr import Expr

ALIGNMENT = 64
UNKNOWN = 64  # elements, where a size has no hint


@dataclass(slots=True, eq=False)
class Interval:
    """`size` bytes, needed from step `first` to step `last`, both included."""

    size: Size
    first: int
    last: int


@dataclass(slots=True, eq=False)
class Slot:
    """A part of the arena: the bytes of those who share it (the largest counts), and when they live."""

    sizes: list[Size]
    hint: int
    busy: list[Interval] = field(default_factory=list)

    def free(self, i: Interval) -> bool:
        return all(i.last < b.first or b.last < i.first for b in self.busy)


@dataclass(slots=True, eq=False)
class Plan:
    """Slots of the arena in order, and the slot of each buffer; -1 is the memory of the first given buffer, -2 of the second, and so on."""

    slots: list[Slot]
    place: list[int]

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


def plan(intervals: list[Interval], facts: Facts, given: Sequence[Interval] = ()) -> Plan:
    """Places for all buffers: large ones first, each in the free slot that it fits best. `given` buffers have their place."""
    slots: list[Slot] = []
    results = [Slot([g.size], hinted(g.size), [g]) for g in given]
    place = [0] * len(intervals)
    # Among equals the last ones first: taken in order of their ends they need no more slots than live at once, and results come last.
    for k in sorted(range(len(intervals)), key=lambda k: (-hinted(intervals[k].size), -intervals[k].last)):
        i, size = intervals[k], hinted(intervals[k].size)
        lent = next((g for g, slot in enumerate(results) if slot.free(i) and surely_reaches(facts, slot.sizes[0], i.size)), -1)
        if lent >= 0:
            results[lent].busy.append(i)
            place[k] = -1 - lent
            continue
        fits = [s for s, slot in enumerate(slots) if slot.free(i)]
        best = min(fits, key=lambda s: (not same(facts, slots[s], i.size), max(size - slots[s].hint, 0), slots[s].hint), default=-1)
        if best < 0:
            best = len(slots)
            slots.append(Slot([], 0))
        slot = slots[best]
        slot.hint = max(slot.hint, size)
        slot.busy.append(i)
        widen(facts, slot, i.size)
        place[k] = best
    return Plan(slots, place)


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
