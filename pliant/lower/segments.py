"""Segments: runs of kernels and library calls that become one native function, with an arena for what only they read.

A `Segment` has all that a printer needs: its steps in order, the tensors that come with the call, those in the arena and where, the sizes
that come with the call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pliant import turns
from pliant.graph.traced import TracedTensor
from pliant.lower import liveness
from pliant.lower.inplace import over
from pliant.lower.kernels import Launch
from pliant.lower.loop_nest import Facts, Size
from pliant.lower.memory import Interval, Plan, plan
from pliant.lower.program import Instruction, NativeStep
from pliant.native import MOST_ARGUMENTS
from pliant.symbolic.expr import Expr, parts, postorder


@dataclass(slots=True, eq=False)
class Segment:
    """One native function. Its arguments are the addresses of `outer`, then the values of `leaves`."""

    name: str
    steps: list[NativeStep]
    outer: list[TracedTensor]
    inner: list[TracedTensor]
    given: list[TracedTensor]  # those of `outer` that are made here: their memory comes with the call
    intervals: list[Interval]
    plan: Plan
    given_bytes: list[Size]
    leaves: list[Expr]
    shared: dict[int, int]  # operand -> the result (by vid) that a kernel writes over it
    taken: dict[int, TracedTensor]  # result (by vid) -> the tensor, of no more use to others, whose memory it takes
    label: str = ""  # for people who profile

    @property
    def launches(self) -> list[Launch]:
        return [s for s in self.steps if isinstance(s, Launch)]

    def expressions(self) -> list[Expr]:
        """Every size that is no constant."""
        sizes = [s for step in self.steps for s in step.sizes] + [s for slot in self.plan.slots for s in slot.sizes]
        sizes += self.plan.within
        return list(dict.fromkeys(s for s in [*sizes, *(i.size for i in self.intervals)] if type(s) is Expr))


def make_segment(
    name: str, items: list[Instruction], outside: set[int], facts: Facts, dying: Sequence[TracedTensor] = ()
) -> Segment | None:
    """The segment of a run; None if it would take too many arguments. `outside`: the roots (by vid) that others read too.

    `dying`: what the program allocated itself for earlier runs, and nobody reads after this one. Results take its memory, unless theirs
    serves this run before they are written: the arena would only grow instead, and lives longer.
    """
    segment = segment_of(name, items, outside, facts, {})
    lending = {segment.given[-1 - k].vid for k in segment.plan.place if k < 0} | set(segment.shared.values())
    heirs = {t.vid: [d for d in dying if same_layout(t, d, facts)] for t in segment.given if t.vid not in lending} if dying else {}
    if any(heirs.values()):
        segment = segment_of(name, items, outside, facts, heirs)
    return segment if len(segment.outer) + len(segment.leaves) <= MOST_ARGUMENTS else None


def segment_of(name: str, items: list[Instruction], outside: set[int], facts: Facts, heirs: dict[int, list[TracedTensor]]) -> Segment:
    """The segment of a run. `heirs`: result (by vid) -> tensors whose memory it may take once they are no longer read."""
    steps = [s for item in items for s in item.steps]
    tensors: dict[int, TracedTensor] = {}
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for i, step in enumerate(steps):
        for t in step.buffers:
            tensors.setdefault(t.vid, t)
            first.setdefault(t.vid, i)
            last[t.vid] = i
    fresh = {t.vid for item in items for t in item.made}
    private = fresh - outside
    size = {vid: bytes_of(tensors[vid], facts) for vid in fresh}
    shared: dict[int, int] = {}
    taken: dict[int, TracedTensor] = {}
    for i, step in enumerate(steps):
        turns.rest()
        if isinstance(step, Launch):
            begun = [t.vid for t in step.buffers if t.vid in fresh and first[t.vid] == i]
            for vid in begun:  # first those whose memory is somebody's already
                olds = [d for d in heirs.get(vid, ()) if last.get(d.vid) == i and d.vid not in shared]
                step = in_place(step, [d.vid for d in olds], [vid], {vid: size[vid]} | {d.vid: size[vid] for d in olds}, facts, shared)
                taken.update((vid, d) for d in olds if d.vid in shared)
            ending = [t.vid for t in step.buffers if t.vid in private and first[t.vid] < i == last[t.vid]]
            steps[i] = in_place(step, ending, begun, size, facts, shared)
    for a, b in shared.items():  # in the order of the steps: what is written over was begun when the first of them was
        first[b] = min(first[a], first[b])
    gone = {d.vid for d in taken.values()}
    for vid, olds in heirs.items():
        free = next((d for d in olds if d.vid not in gone and last.get(d.vid, -1) < first[vid]), None)
        if vid not in taken and free is not None:
            taken[vid] = free
            gone.add(free.vid)
    first.update(dict.fromkeys(taken, 0))  # until it is a result, it is still what it was
    inner = [t for vid, t in tensors.items() if vid in private and vid not in shared]
    outer = [t for vid, t in tensors.items() if vid not in private]
    intervals = [Interval(size[t.vid], first[t.vid], last[t.vid]) for t in inner]
    given = [t for t in outer if t.vid in fresh and t.dense]
    lent = [Interval(size[t.vid], first[t.vid], len(steps)) for t in given]
    segment = Segment(name, steps, outer, inner, given, intervals, plan(intervals, facts, lent), [g.size for g in lent], [], shared, taken)
    segment.leaves = leaves(segment.expressions())
    return segment


def same_layout(a: TracedTensor, b: TracedTensor, facts: Facts) -> bool:
    """Can one tensor be the other? Both have memory of their own."""
    alike = a.dtype is b.dtype and a.dense and b.dense and len(a.sizes) == len(b.sizes)
    return alike and all(map(facts.equal, map(facts.size, a.sizes), map(facts.size, b.sizes)))


def in_place(launch: Launch, dying: list[int], made: list[int], size: dict[int, Size], facts: Facts, shared: dict[int, int]) -> Launch:
    """The launch, writing over operands that die where it can: noted in `shared`."""
    for result in made:
        for operand in dying:
            at = {t.vid: k for k, t in enumerate(launch.buffers)}
            if operand in at and facts.equal(size[operand], size[result]):
                new = over(launch, at[operand], at[result])
                if new is not None:
                    launch, shared[operand] = new, result
                    break
    return launch


def bytes_of(t: TracedTensor, facts: Facts) -> Size:
    """From the first to behind the last element of a tensor with memory of its own. Not positive if it has none."""
    if t.dense:
        return facts.product((*map(facts.size, t.sizes), t.dtype.itemsize))
    extent: Size = 1
    for n, stride in zip(t.sizes, t.strides, strict=True):
        extent = facts.sum(extent, facts.product((facts.difference(facts.size(n), 1), facts.size(stride))))
    return facts.product((extent, t.dtype.itemsize))


TOTAL = frozenset("sym sum min max abs subtotal where and or not eq ne lt le gt ge bool_to_int".split())
"""Operators of integers that native code may compute for any values."""


def is_native(e: Expr) -> bool:
    """Can native code compute it, without a division that might be by zero?"""
    for n in postorder(e, stop="native"):
        if "native" not in n.cache:
            n.cache["native"] = all([p.cache["native"] for p in parts(n)]) and one_is_native(n)
    return e.cache["native"]


def one_is_native(n: Expr) -> bool:
    """`is_native` of what is made of native parts."""
    if n.kind is float:
        return False
    return n.const is not None or n.op in TOTAL or (n.op in ("floordiv", "mod") and bool(n.args[1].const))


def leaves(sizes: list[Expr]) -> list[Expr]:
    """What sizes are computed from: symbols, and whole those that only Python can compute."""
    out: dict[Expr, None] = {}
    seen: set[Expr] = set()
    for e in sizes:
        out.update(dict.fromkeys(liveness.new_symbols(e, seen) if is_native(e) else (e,)))
    return list(out)
