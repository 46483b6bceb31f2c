"""One sweep of a kernel over its reduction dims: loops, blocks of the cascade, what is done at each point.

Sums of floats go up in blocks: a partial sum takes in `BLOCK` points and then joins that of its loop, which keeps what rounding drops
there (`Accumulators.join`). Lanes, unrolled copies and the chunks of `split.py` are further branches of that tree, so that few additions
in a row meet any one value, and a sum loses no more digits than eager's pairwise one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pliant.codegen.cpu.access import Frame
from pliant.codegen.cpu.reduce import Accumulators
from pliant.codegen.cpu.scan import Scans
from pliant.codegen.cpu.schedule import Sweep
from pliant.codegen.cpu.text import Value, const
from pliant.lower.loops import Node

if TYPE_CHECKING:
    from pliant.codegen.cpu.kernel import Body

BLOCK = 32  # additions in a row before a partial sum is put aside
ZERO = const(0, "i64")
OUTER, MID, STRIP, SWEEP = 0, 1, 2, 3  # levels of the nest, see `kernel.py`; loops of a sweep are SWEEP + k


class Sweeper:
    """One sweep over the reduction dims, for the frames of a strip."""

    def __init__(self, body: Body, sweep: Sweep, needed: list[Node]) -> None:
        self.body, self.sweep, self.b, self.s = body, sweep, body.b, body.s
        self.accs = Accumulators(body.m, sweep.reduces, ordered=body.s.inner == sorted(body.s.inner))
        self.needed = [n for n in needed if body.homes[id(n)] >= SWEEP]
        self.positions = any(n.attrs[0].startswith("arg") for n in sweep.reduces)
        self.scans = Scans(body.m, [n for n in self.needed if n.op == "scan" and id(n) not in sweep.loads], body.s.reduces_vector)
        accesses = [body.loads[id(n)] for n in self.needed if n.op == "load" and id(n) not in sweep.loads]
        accesses += [body.store_accesses[id(st)] for st in sweep.stores]
        accesses += [body.saved[i] for i in sweep.loads] + [body.saved[id(n)] for n in sweep.saves]
        self.accesses = accesses
        body.sweeper = self

    def run(self, frames: list[Frame]) -> None:
        """Print it; the values of the reductions are put into the frames."""
        s = self.s
        width = frames[0].lanes if frames[0].vector is not None else 1
        self.body.chain = self.scans.start(1) if s.reduces_vector else [v for _ in frames for v in self.scans.start(width)]
        if s.reduces_vector:
            sets = [self.accs.start(s.lanes)]
            if not self.body.target.masks and s.lanes > 1:
                sets.append(self.accs.start(1))
            frame = frames[0].child()
            done = self.level(0, [frame], sets)
            total = self.accs.across(done[0])
            if len(done) > 1:
                total = self.accs.merge(total, done[1])
            self.body.keep(self, [total], frames)
        else:
            sets = self.level(0, [f.child() for f in frames], [self.accs.start(width) for _ in frames])
            self.body.keep(self, sets, frames)
        self.body.chain = []

    def level(self, k: int, frames: list[Frame], sets: list[list[Value]]) -> list[list[Value]]:
        """The loop over reduction dim `inner[k]` and those inside it. `sets` in and out: per frame, or [vectors, single lanes]."""
        d = self.s.inner[k]
        start, n = ZERO, self.body.size(self.body.kernel.dims[d])
        if k == 0 and self.body.range is not None:
            start, n = self.body.range
        innermost = k == len(self.s.inner) - 1
        vector = innermost and self.s.reduces_vector
        size = BLOCK * (self.s.lanes * self.s.unroll if vector else 1)
        blocks = self.accs.cascades and not (n.constant and int(n.ref) <= size)
        if not blocks:
            return self.span(k, frames, sets, start, n)

        return self.blocks(k, frames, sets, start, n, size)

    def blocks(
        self, k: int, frames: list[Frame], sets: list[list[Value]], start: Value, n: Value, size: int
    ) -> list[list[Value]]:  # fmt: skip
        """[start, n), start <= n, of the loop over `inner[k]`: at least one block, which ends where those of the other rows do."""
        b, body = self.b, self.body
        step = self.s.lanes * self.s.unroll if k == len(self.s.inner) - 1 and self.s.reduces_vector else 0

        def ends(at: Value) -> tuple[Value, Value]:
            stop = b.intrinsic("smin", b.add(at, const(size, "i64")), n)
            return stop, body.whole(at, stop, step) if step else ZERO

        first = body.first_ends if step and start.ref == "0" and body.first_ends is not None else ends(start)
        at, stop, middle = (Value("%" + b.fresh("at"), "i64") for _ in range(3))
        before, head, more, out = b.block, b.fresh("block.h"), b.fresh("block.m"), b.fresh("block.x")
        errors = self.accs.errors(sets)
        count, carried = len(self.flat(sets)), [*self.flat(sets), *errors, *body.chain]
        phis = [Value("%" + b.fresh("a"), v.ty, v.lanes) for v in carried]
        b.enter(head)
        line = len(b.lines)
        b.lines.append("")
        if step:
            body.middles[at, stop] = middle
        body.chain = phis[count + len(errors) :]
        part = self.span(k, frames, self.fresh(sets), at, stop)
        so_far, dropped = self.unflat(phis, sets), phis[count : count + len(errors)]
        b.branch(b.compare("slt", stop, n), more, out)
        b.label(more)
        joined, errors_now = self.accs.join(so_far, dropped, part)
        after = [*self.flat(joined), *errors_now, *body.chain]
        following = (stop, *ends(stop))
        b.jump(head)
        rows = zip((at, stop, middle, *phis), (start, *first, *carried), (*following, *after), strict=True)
        b.lines[line] = "\n".join(f"  {v.ref} = phi {v.type} [ {x.ref}, %{before} ], [ {y.ref}, %{more} ]" for v, x, y in rows)
        b.label(out)
        return self.accs.settled(self.merged(so_far, part), dropped)

    def span(self, k: int, frames: list[Frame], sets: list[list[Value]], start: Value, stop: Value) -> list[list[Value]]:
        """[start, stop) of the loop over `inner[k]`."""
        d = self.s.inner[k]
        innermost = k == len(self.s.inner) - 1
        if innermost and self.s.reduces_vector:
            return self.body.vectors(start, stop, sets, self.points, frames[0], self.meet)

        def iteration(i: Value, carried: list[Value]) -> list[Value]:
            inside = [f.child() for f in frames]
            for f in inside:
                self.body.move(f, d, i, self.accesses)
            self.evaluate(k, inside)
            now = self.unflat(carried, sets)
            if innermost:
                return self.flat(self.visit(inside, now))
            if not self.accs.cascades:
                return self.flat(self.level(k + 1, inside, now))
            return self.flat(self.merged(now, self.level(k + 1, inside, self.fresh(sets))))

        return self.unflat(self.body.loop(start, stop, 1, self.flat(sets), iteration, "red"), sets)

    def points(self, frames: list[Frame], sets: list[list[Value]]) -> list[list[Value]]:
        """Vectors of the innermost reduction dim."""
        self.evaluate(len(self.s.inner) - 1, frames)
        return self.visit(frames, sets)

    def evaluate(self, k: int, frames: list[Frame]) -> None:
        level = SWEEP + k
        body = self.body
        mine = [n for n in self.needed if body.homes[id(n)] == level]
        for n in mine:
            if id(n) in self.sweep.loads:
                for f in frames:
                    f.values[id(n)] = body.memory.load(body.saved[id(n)], f)
        body.evaluate(mine, frames)

    def visit(self, frames: list[Frame], sets: list[list[Value]]) -> list[list[Value]]:
        """What is done at reduction points: put aside, take into the accumulators, store."""
        body, out = self.body, []
        masked = self.s.reduces_vector
        for frame, accs in zip(frames, sets):
            for n in self.sweep.saves:
                body.memory.put(body.saved[id(n)], frame, frame.values[id(n)])
            out.append(self.accs.update(frame, accs, self.position(frame) if self.positions else None, masked))
        body.store_all(self.sweep.stores, frames)
        return out

    def position(self, frame: Frame) -> Value:
        """Where in the reduction dims, row-major."""
        b, kernel = self.b, self.body.kernel
        out = ZERO
        for d in range(len(kernel.dims) - kernel.reduced, len(kernel.dims)):
            out = b.times(out, self.body.size(kernel.dims[d]))
            here = self.body.index(d, frame)
            out = here if out.ref == "0" else b.add(out, here)
        return out

    # -- sets of accumulators --

    def meet(self, sets: list[list[Value]]) -> list[Value]:
        while len(sets) > 1:
            sets = [self.accs.merge(a, c) for a, c in zip(sets[::2], sets[1::2])] + sets[len(sets) & ~1 :]
        return sets[0]

    def fresh(self, sets: list[list[Value]]) -> list[list[Value]]:
        return [self.accs.start(one[0].lanes) if one else [] for one in sets]

    def merged(self, one: list[list[Value]], two: list[list[Value]]) -> list[list[Value]]:
        return [self.accs.merge(a, c) for a, c in zip(one, two)]

    def flat(self, sets: list[list[Value]]) -> list[Value]:
        return [v for one in sets for v in one]

    def unflat(self, values: list[Value], like: list[list[Value]]) -> list[list[Value]]:
        width = self.accs.width()
        return [values[k * width : (k + 1) * width] for k in range(len(like))]
