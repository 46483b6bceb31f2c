"""Prints a loop over the vector dim whose iterations run every stage of a long chain, each for points of its own (`codegen/cpu/stages.py`).

Iteration i runs stage k for the points that stage 0 had in iteration i - k. What it is given is carried from one iteration to the next. So
the stages of one iteration are independent of each other, which is what the processor needs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pliant.codegen.cpu.access import Frame, step
from pliant.codegen.cpu.dtypes import REGISTER
from pliant.codegen.cpu.stages import Stage
from pliant.codegen.cpu.text import Value, const
from pliant.lower.loops import Node

if TYPE_CHECKING:
    from pliant.codegen.cpu.kernel import Body

ZERO = const(0, "i64")
Places = list[list[Frame]]
"""For each stage, the frames of its copies."""


class Pipeline:
    """The loop of one body over [start, stop) of the vector dim."""

    def __init__(self, body: Body, stages: list[Stage]) -> None:
        self.body, self.b, self.s, self.stages = body, body.b, body.s, stages
        self.width = self.s.lanes * self.s.unroll

    def run(self, start: Value, stop: Value, frame: Frame) -> None:
        """Print it. Every stage has run for every point in the end: hence the iterations behind `stop`."""
        b = self.b
        more = const((len(self.stages) - 1) * self.width, "i64")
        first: list[Value] = [ZERO for _ in self.stages[1:]]
        slots = [self.slots(k) for k in range(len(self.stages) - 1)]
        for k, stage in enumerate(self.stages[:-1]):
            first += [self.nothing(stage.carried[at]) for _, at in slots[k]]

        def iteration(i: Value, carried: list[Value]) -> list[Value]:
            now = b.intrinsic("smin", b.intrinsic("smax", b.sub(stop, i), ZERO), const(self.width, "i64"))
            lefts = [now, *carried[: len(self.stages) - 1]]
            places = self.places(frame, i)
            values = iter(carried[len(self.stages) - 1 :])
            taken = [[next(values) for _ in mine] for mine in slots]
            out = lefts[:-1]
            for k, stage in enumerate(self.stages):
                if k:
                    for (u, n), v in zip(slots[k - 1], taken[k - 1]):
                        places[k][u].values[id(self.stages[k - 1].carried[n])] = v
                mine = slots[k] if k < len(slots) else []

                def work(k: int = k, stage: Stage = stage, mine: list[tuple[int, int]] = mine) -> list[Value]:
                    self.stage_work(stage, places[k], lefts[k])
                    return [self.given(places[k][u], stage.carried[n]) for u, n in mine]

                nothing = [self.nothing(stage.carried[n]) for _, n in mine]
                out += b.when(b.compare("sgt", lefts[k], ZERO), work, nothing)
            return out

        b.loop(start, b.add(stop, more), self.width, first, iteration, "pipe")

    def slots(self, k: int) -> list[tuple[int, int]]:
        """(copy, number in `carried`) of what stage k hands on."""
        return [(u, n) for n in range(len(self.stages[k].carried)) for u in range(self.s.unroll)]

    def nothing(self, n: Node) -> Value:
        """What a stage that is skipped hands on: the next one will be skipped, too."""
        return Value("poison", REGISTER[n.dtype], self.s.lanes)

    def given(self, frame: Frame, n: Node) -> Value:
        return self.b.splat(frame.values[id(n)], self.s.lanes)

    def places(self, frame: Frame, i: Value) -> Places:
        body, b, s = self.body, self.b, self.s
        d, lanes = s.vector, s.lanes
        assert d is not None
        out: Places = []
        for k in range(len(self.stages)):
            here = []
            for u in range(s.unroll):
                f = frame.child()
                f.vector, f.lanes = d, lanes
                if k == u == 0:
                    body.move(f, d, i)
                    origin = f
                else:
                    away = const(u * lanes - k * self.width, "i64")
                    f.counters[d] = b.add(i, away)
                    for a in frame.pointers:
                        f.pointers[a] = step(b, origin.pointers[a], b.times(away, a.strides[d]), a)
                here.append(f)
            out.append(here)
        return out

    def stage_work(self, stage: Stage, frames: list[Frame], left: Value) -> None:
        body, b = self.body, self.b
        full = b.compare("eq", left, const(self.width, "i64"))
        moves = body.moves([n for n in stage.nodes if n.op == "load"], frames)

        def either(work: Callable[[list[Frame]], list[Value]]) -> list[Value]:
            return b.either(full, lambda: work(frames), lambda: work(self.masked(frames, left)))

        if moves:
            found = iter(either(lambda at: [v for move in moves for v in move.read(at)]))
            for move in moves:
                move.take(frames, [next(found) for _ in range(move.count)])
        body.evaluate(stage.nodes, frames)
        puts = body.puts(stage.stores, frames)

        def write(at: list[Frame]) -> list[Value]:
            for put in puts:
                put(at)
            return []

        if puts:
            either(write)

    def masked(self, frames: list[Frame], count: Value) -> list[Frame]:
        """The same places where some lanes may not be active; masks are computed where they are wanted."""
        left = self.b.convert("trunc", count, "i32")
        here = [f.partial() for f in frames]
        for u, f in enumerate(here):
            self.body.mask(f, left, u, len(here))
        return here
