"""Segments: runs of kernels and matrix products that become one native function, with an arena for what only they read.

`arrange` brings the operations of a program into an order with long runs: whatever stays an ATen call moves before or behind, as far as
dependencies allow and not far from its place. `Segment` is one run, with all that a printer needs: its steps in order, the tensors that
come with the call, those in the arena and where, the sizes that come with the call.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pliant.graph.traced import TracedTensor
from pliant.lower import liveness
from pliant.lower.attention import Attention
from pliant.lower.conv import Convolution
from pliant.lower.fuse import Fuser, Order
from pliant.lower.gemm import Gemm
from pliant.lower.inplace import over
from pliant.lower.kernels import Launch
from pliant.lower.memory import Interval, Plan, hinted, plan
from pliant.lower.nest import Facts, Size
from pliant.lower.peaks import Block, blocks_of, cut_at_peaks
from pliant.symbolic.expr import Expr, postorder

WINDOW = 24
"""How far an operation may move ahead of one that could have run: moving further only keeps results alive for longer."""
MOST_ARGUMENTS = 1000
"""Of one native call (`kMaxArgs` of the launcher)."""

Step = Launch | Gemm | Attention | Convolution


@dataclass(slots=True, eq=False)
class Item:
    """Something that runs: kernels or products (`steps`), or the ATen call `op`, or either of the two, as its neighbours are.

    `reads` and `written` (memory from before) and `made` are root tensors.
    """

    steps: list[Step]
    op: Any
    ops: list[Any]
    reads: list[TracedTensor] = field(default_factory=list)
    made: list[TracedTensor] = field(default_factory=list)
    written: list[TracedTensor] = field(default_factory=list)
    index: int = -1
    deps: set[int] = field(default_factory=set)

    @property
    def native(self) -> bool:
        return bool(self.steps)

    @property
    def only_checks(self) -> bool:
        effects = [op for op in self.ops if liveness.has_effect(op)]
        return bool(effects) and all(op.outs and liveness.only_checks(op.target) for op in effects)

    @property
    def has_effect(self) -> bool:
        """Of kernels: they check indices."""
        return any(map(liveness.has_effect, self.ops))


def item_of_steps(steps: list[Step], ops: list[Any], op: Any = None) -> Item:
    """Kernels and products, made from `ops`."""
    item = Item(steps, op, ops)
    mine: set[int] = set()
    for step in steps:
        fresh = [step.buffers[i] for i in step.made] if isinstance(step, Launch) else [step.out]
        mine |= {t.vid for t in fresh}
        item.made += fresh
        old = [t for t in step.buffers if t.vid not in mine]
        item.reads += old
        if isinstance(step, Launch):
            item.written += [t for t, b in zip(step.buffers, step.kernel.buffers, strict=True) if b.written and t.vid not in mine]
    if op is not None:  # the ATen call may need more: `zeros_like` takes sizes from its operand
        known = {t.vid for t in item.reads}
        item.reads += [t for t in liveness.op_inputs(op) if t.vid not in known]
    return item


def arrange(items: list[Item], f: Fuser) -> list[Item]:
    """The items in an order with long runs of native ones, all dependencies kept."""
    order = Order()
    for i, item in enumerate(items):
        item.index = i
        for t in item.reads:
            order.read(item, f.storage(t))
        order.write(item, {f.storage(t) for t in item.written}, {f.storage(t) for t in item.made}, item.has_effect, item.only_checks)
        for op in item.ops:
            order.symbols(item, op)
        order.uses(item, [step.sizes for step in item.steps])  # values that are computed again bring numbers of operations elsewhere
        item.deps.discard(i)
    users: list[list[int]] = [[] for _ in items]
    missing = [len(item.deps) for item in items]
    for i, item in enumerate(items):
        for d in item.deps:
            users[d].append(i)
    ready: dict[bool, list[int]] = {True: [], False: []}
    for i, n in enumerate(missing):
        if not n:
            heapq.heappush(ready[items[i].native], i)
    out: list[Item] = []
    waiting, done, kind = 0, [False] * len(items), False
    while ready[True] or ready[False]:
        while done[waiting]:
            waiting += 1
        if not ready[kind] or ready[kind][0] > waiting + WINDOW:
            kind = not kind if ready[not kind] else kind
        i = heapq.heappop(ready[kind])
        done[i] = True
        out.append(items[i])
        for j in users[i]:
            missing[j] -= 1
            if not missing[j]:
                heapq.heappush(ready[items[j].native], j)
    return late(out)


def late(items: list[Item]) -> list[Item]:
    """The order, with kernels that read nothing (fills, mostly) where their results are first read: until then these took memory.

    Where an ATen call reads them they join the native run before it.
    """
    at = {item.index: k for k, item in enumerate(items)}
    first: dict[int, int] = {}
    for k, item in enumerate(items):
        for d in item.deps:
            first.setdefault(d, k)
    before: dict[int, list[Item]] = {}
    for item in items:
        target = first.get(item.index, -1)
        if not item.native or item.reads or item.written or item.has_effect or target < 0:
            continue
        while target > at[item.index] and not items[target].native:
            target -= 1
            if items[target].native:
                target += 1
                break
        if target > at[item.index] + 1:
            before.setdefault(target, []).append(item)
    moved = {item.index for found in before.values() for item in found}
    out: list[Item] = []
    for k, item in enumerate(items):
        out += before.get(k, [])
        if item.index not in moved:
            out.append(item)
    return out


def runs(items: list[Item], f: Fuser) -> list[list[Item]]:
    """The items cut where native ones begin and end, and where memory from before is written after an index was checked.

    So what fails in a check has, as a rule, not done anything yet, and the frame may run again. Where the program holds most, runs are also
    cut where what they were given has died, as tensors saved for a backward pass do: results of the next run take its memory.
    """
    out: list[list[Item]] = []
    made: set[int] = set()
    checks = False
    for item in items:
        lasts = any(f.storage(t) not in made for t in item.written)
        joins = out and out[-1][-1].native == item.native and not (checks and lasts)
        if joins:
            out[-1].append(item)
        else:
            out.append([item])
            checks = False
        checks = checks or item.native and item.has_effect
        made |= {f.storage(t) for t in item.made}
    cuts = set(cut_at_peaks([(len(run), run[0].native) for run in out], blocks(items, f)))
    return cut(out, cuts) if cuts else out


def cut(parts: list[list[Item]], at: set[int]) -> list[list[Item]]:
    """The runs, cut at these positions, too."""
    out: list[list[Item]] = []
    position = 0
    for run in parts:
        for k, item in enumerate(run):
            if k == 0 or position in at:
                out.append([])
            out[-1].append(item)
            position += 1
    return out


def blocks(items: list[Item], f: Fuser) -> list[Block]:
    """What the program holds of memory, in typical bytes. Results, and what belongs to others, are freed by nobody here."""
    bytes: dict[int, int] = {}
    given: set[int] = set()
    for item in items:
        for t in (*item.reads, *item.made, *item.written):
            s = f.storage(t)
            if t.source is not None or t.constant is not None:
                given.add(s)
            elif s not in bytes:
                bytes[s] = hinted(bytes_of(t, f.facts))
    kept = {f.storage(t) for t in f.kept}
    return blocks_of(items, f.storage, {s: n for s, n in bytes.items() if s not in given}, kept)


@dataclass(slots=True, eq=False)
class Segment:
    """One native function. Its arguments are the addresses of `outer`, then the values of `leaves`."""

    name: str
    steps: list[Step]
    outer: list[TracedTensor]
    inner: list[TracedTensor]
    given: list[TracedTensor]  # those of `outer` that are made here: their memory comes with the call
    intervals: list[Interval]
    plan: Plan
    given_bytes: list[Size]
    leaves: list[Expr]
    shared: dict[int, int]  # operand -> the result (by vid) that a kernel writes over it
    taken: dict[int, TracedTensor]  # result (by vid) -> the tensor, of no more use to others, whose memory it takes

    @property
    def launches(self) -> list[Launch]:
        return [s for s in self.steps if isinstance(s, Launch)]

    def expressions(self) -> list[Expr]:
        """Every size that is no constant."""
        sizes = [s for step in self.steps for s in step.sizes] + [s for slot in self.plan.slots for s in slot.sizes]
        sizes += self.plan.within
        return list(dict.fromkeys(s for s in [*sizes, *(i.size for i in self.intervals)] if type(s) is Expr))


def make_segment(name: str, items: list[Item], outside: set[int], facts: Facts, dying: Sequence[TracedTensor] = ()) -> Segment | None:
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


def segment_of(name: str, items: list[Item], outside: set[int], facts: Facts, heirs: dict[int, list[TracedTensor]]) -> Segment:
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
    for n in postorder(e):
        if n.kind is float:
            return False
        if n.const is None and n.op not in TOTAL:
            if n.op not in ("floordiv", "mod") or not n.args[1].const:
                return False
    return True


def leaves(sizes: list[Expr]) -> list[Expr]:
    """What sizes are computed from: symbols, and whole those that only Python can compute."""
    out: dict[Expr, None] = {}
    for e in sizes:
        out.update(dict.fromkeys(e.symbols() if is_native(e) else (e,)))
    return list(out)
