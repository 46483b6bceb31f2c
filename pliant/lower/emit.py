"""From runs to calls: allocations, views that ATen calls need, calls of kernels and segments."""

from __future__ import annotations

import os
from itertools import count
from typing import Any

import torch

from pliant.bytecode.assemble import is_covered
from pliant.graph.leaving import MARK
from pliant.graph.record import Op
from pliant.lower import liveness
from pliant.lower.aliases import Aliases
from pliant.lower.kernels import Launch
from pliant.lower.program import REUSE, Alloc, Instruction, KernelCall, LibraryCall, Program, Run, SegmentCall
from pliant.lower.rechecks import rechecks
from pliant.lower.segments import Segment, make_segment

aten = torch.ops.aten
ALLOCATIONS = frozenset((aten.empty.memory_format, aten.empty_strided.default, REUSE))
_serial = count()


NAMED = 6
"""Operations, and lines of the program, that a segment is called after."""


def label(items: list[Instruction]) -> str:
    """What a segment is to people who profile: operations in order, and the lines that ask for them."""
    ops = [op for item in items for op in item.ops]
    names = list(dict.fromkeys(str(getattr(op.target, "_opname", op.target)) for op in ops))
    lines = list(dict.fromkeys(f"{os.path.basename(op.site.filename)}:{op.site.lineno}" for op in ops if op.site is not None))
    shown = ["+".join(names[:NAMED]) + "+…" * (len(names) > NAMED), ", ".join(lines[:NAMED]) + ", …" * (len(lines) > NAMED)]
    return f"{shown[0]} ({shown[1]})" if lines else shown[0]


def unheard(ops: list[Any]) -> bool:
    """Whether what these operations write they write through `.data`, all of it."""
    return {op.unheard for op in ops if liveness.written(op)} == {True}


class Emitter:
    """Prints one program at level "runs" as one at level "calls"."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.aliases: Aliases = program.fact("aliases")
        self.runs: list[Run] = over_marks(program.steps, self.aliases)
        self.made_views: set[int] = set()
        self.out: list[Op] = []
        self.own: dict[int, Any] = {}  # what others than the segment that made it read, by vid

    def emit(self) -> list[Op]:
        readers = self.readers()
        for k, run in enumerate(self.runs):
            run.segment = self.segment(run, {root for root, who in readers.items() if who != {k}}, self.dying(readers, k))
            if run.segment is not None:
                self.out += self.segmented(run.segment, run.instructions)
                continue
            for item in run.instructions:
                if item.op is not None:
                    self.make_views(liveness.op_inputs(item.op))
                    self.out.append(item.op)
                else:
                    (launch,) = item.steps
                    assert isinstance(launch, Launch)
                    self.out += self.launched(launch, item.ops)
        self.make_views(self.aliases.kept)
        return self.out + self.restrided()

    def restrided(self) -> list[Op]:
        """Operations after which results have the strides that ATen's give: those that ATen calls made do already."""
        deferred = self.program.deferred
        if not deferred:
            return []
        allocated = {op.outs[0].vid for op in self.out if op.target in ALLOCATIONS}
        seen = {t.vid for t in liveness.tensors_of(self.program.outputs)}
        return [op for op in deferred if op.outs[0].vid in seen - allocated]

    def readers(self) -> dict[int, set[int]]:
        """Root (by vid) -> the runs that touch it; -1 is whoever gets the results."""
        root = self.aliases.root
        out: dict[int, set[int]] = {root(t): {-1} for t in self.aliases.kept}
        for k, run in enumerate(self.runs):
            for item in run.instructions:
                for t in (*item.reads, *item.made, *item.written):
                    out.setdefault(root(t), set()).add(k)
        return out

    def dying(self, readers: dict[int, set[int]], k: int) -> list[Any]:
        """What segments before this run made, and it alone still reads: only native code ever knew of it."""
        return [t for vid, t in self.own.items() if max(readers[vid]) == k and all(p >= 0 and self.runs[p].native for p in readers[vid])]

    def segment(self, run: Run, outside: set[int], dying: list[Any]) -> Segment | None:
        """One function for a run of kernels, if it is one, and long enough."""
        items, target = [item for item in run.instructions if item.native], self.program.target
        if not run.native or not target.has_segments():
            return None
        worth = any(item.op is None or isinstance(item.steps[-1], LibraryCall) for item in items)
        if len(items) == 1:  # a product alone, where ours beat PyTorch's
            worth = target.worth_a_call(items[0].steps[-1])
        segment = make_segment(f"segment{next(_serial)}", items, outside, self.program.sizes, dying) if worth else None
        if segment is not None:
            segment.label = label(items)
        return segment

    def make_views(self, tensors: Any) -> None:
        """The view operations that tensors need which an ATen call or the caller gets."""
        for t in tensors:
            chain = []
            while t.vid in self.aliases.steps:
                step = self.aliases.steps[t.vid]
                if id(step.op) in self.made_views:
                    break
                self.made_views.add(id(step.op))
                chain.append(step.op)
                t = step.base
            self.out += reversed(chain)

    def launched(self, launch: Launch, ops: list[Any]) -> list[Op]:
        """The allocations and the call of one kernel."""
        site = raising_site(ops)
        lines = [allocation(launch.buffers[i], site) for i in launch.made]
        written = [t for t, b in zip(launch.buffers, launch.kernel.buffers, strict=True) if b.written]
        made = {launch.buffers[i].vid for i in launch.made}
        checks = rechecks(ops, self.aliases, [t for t in launch.buffers if t.vid not in made], [])
        call = KernelCall(launch, checks, any(map(liveness.has_effect, ops)))
        lines.append(Op(call, (*launch.buffers, *launch.sizes), {}, written, "flat", site, -1, unheard=unheard(ops)))
        return lines

    def segmented(self, segment: Segment, items: list[Instruction]) -> list[Op]:
        """The allocations of what others read, and the call of a segment."""
        ops = [op for item in items for op in item.ops]
        site = raising_site(ops)
        marks, items = [item.op for item in items if not item.native], [item for item in items if item.native]
        fresh = {t.vid for item in items for t in item.made}
        written = fresh | {t.vid for item in items for t in item.written}
        lines = []
        for t in segment.outer:
            if t.vid in fresh:
                old = segment.taken.get(t.vid)
                lines.append(allocation(t, site) if old is None else Op(REUSE, (old,), {}, [t], None, site, -1))
                self.own[t.vid] = t
        outs = [t for t in segment.outer if t.vid in written]
        lines += marks  # what they hold has memory by now, and is written before the segment may raise
        checks = rechecks(ops, self.aliases, [t for t in segment.outer if t.vid not in fresh], list(segment.taken.values()))
        call = SegmentCall(segment, checks, any(map(liveness.has_effect, ops)))
        lines.append(Op(call, (*segment.outer, *segment.leaves), {}, outs, "flat", site, -1, unheard=unheard(ops)))
        return lines


def over_marks(runs: list[Run], aliases: Aliases) -> list[Run]:
    """The runs, native ones joined where only a mark is between them and nothing before it may raise: it is passed before both, then."""
    out: list[Run] = []
    for run in runs:
        before = out[-2:] if run.native and len(out) > 1 else ()
        if before and before[0].native and is_mark(before[1], aliases) and not any([item.has_effect for item in before[0].instructions]):
            items = [item for r in (*before, run) for item in r.instructions]
            out[-2:] = [Run(items)]
        else:
            out.append(run)
    return out


def is_mark(run: Run, aliases: Aliases) -> bool:
    """Whether there are only marks in it, of tensors that are no views."""
    marks = [item.op for item in run.instructions if item.op is not None and item.op.target is MARK]
    return len(marks) == len(run.instructions) and not any([t.vid in aliases.steps for op in marks for t in liveness.op_inputs(op)])


def raising_site(ops: list[Any]) -> Any:
    """Where native code that stands for `ops` raises, if it does: at one of those that check data, at best one inside a handler."""
    checks = [op.site for op in ops if liveness.has_effect(op)]
    return ([s for s in checks if is_handled(s)] or checks or [ops[-1].site])[-1]


def is_handled(site: Any) -> bool:
    """May an exception from there meet a handler, in this frame or in one that called it?"""
    while site is not None and site.code is not None:
        if is_covered(site.code, site.offset):
            return True
        site = site.outer
    return False


def allocation(t: Any, site: Any) -> Alloc:
    """The operation that makes memory for `t`."""
    options = {"dtype": t.dtype, "device": t.device}
    if t.dense:
        return Alloc(aten.empty.memory_format, (t.sizes,), options, [t], None, site, -1)
    return Alloc(aten.empty_strided.default, (t.sizes, t.strides), options, [t], None, site, -1)
