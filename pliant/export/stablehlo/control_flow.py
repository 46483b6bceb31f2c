"""Branches and loops on data as `case` and `while`.

The state of a `while` is whether there is another round, then what is carried (`flows.slots`); each block that branches is a `case`
within it. Assertions of blocks are results of theirs: whether all have held. Sizes that change from round to round are `?`, and
whoever runs the module must know such sizes: XLA does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from jaxlib.mlir import ir

from pliant.export.flows import is_open, kind_of, slots, starting_size, wanted
from pliant.export.stablehlo.branches import OPEN, fitted
from pliant.export.stablehlo.builder import Value
from pliant.graph.control_flow import Block, FlowOp, Leave, number_of, sizes_of_params
from pliant.graph.traced import TracedTensor
from pliant.lower import liveness
from pliant.symbolic.expr import Expr

NUMBERS = {int: torch.int64, float: torch.float64, bool: torch.bool}
Type = tuple[tuple[Any, ...], torch.dtype]


class Flows:
    """Writes one flow. `b`: the lowering of the function."""

    def __init__(self, b: Any) -> None:
        self.b = b
        self.texts: list[str] = []

    def values(self, op: FlowOp) -> list[Value]:
        """The results."""
        flow = op.flow
        self.texts = [a.message or str(a.expr) for block in flow.blocks() for a in block.asserts if a.expr.const is None]
        self.texts += [text for inner in flow.ops() if isinstance(inner, FlowOp) for block in inner.flow.blocks() for text in words(block)]
        found = {number_of(bind.symbol).name for bind in op.binds}
        types = [self.place(o, frozenset(found)) for o in op.outs]
        if flow.loops:
            made, holds = self.loop(op)
        else:
            *made, holds = self.tree(flow.body, lambda end: [self.value(v) for v in end.values], types)
        if self.texts:
            self.b.holds.append((holds, "; or ".join(dict.fromkeys(self.texts))))
        return [Value(v.ir, self.sizes(o), v.dtype) for o, v in zip(op.outs, made, strict=True)]

    def sizes(self, o: Any) -> tuple[Any, ...]:
        return self.b.sizes_of(o) if type(o) is TracedTensor else ()

    def loop(self, op: FlowOp) -> tuple[list[Value], Value]:
        b, flow, s = self.b, op.flow, slots(op)
        open_ = flow.sizes | {number_of(bind.symbol).name for bind in op.binds}
        types = [self.place(p, frozenset(open_)) for p in s.places]
        first = [self.value(v) for v in op.args[0]]
        first += [self.nothing(p) for p in s.places[len(first) :]]
        go, holds = b.splat(True, (), torch.bool), b.splat(True, (), torch.bool)
        flag: Type = ((), torch.bool)
        if flow.entry is not None:
            go, *first, holds = self.tree(flow.entry, lambda end: self.state(end, first, s, first[: len(flow.params)]), [flag, *types])
        state = [go, *(self.typed(v, t) for v, t in zip(first, types)), holds]
        every = [flag, *types, flag]
        kinds = [v.ir.type for v in state]
        made = ir.Operation.create("stablehlo.while", kinds, [v.ir for v in state], regions=2)
        test = made.regions[0].blocks.append(*kinds)
        with ir.InsertionPoint(test):
            ir.Operation.create("stablehlo.return", [], [test.arguments[0]])
        block = made.regions[1].blocks.append(*kinds)
        with ir.InsertionPoint(block), self.scoped():
            given = [Value(a, t[0], t[1]) for a, t in zip(block.arguments, every)]
            given[1:-1] = [Value(v.ir, self.sizes(p), v.dtype) for p, v in zip(s.places, given[1:-1])]
            for p, v in zip(flow.params, given[1:]):
                self.bind(p, v)
            for name, (t, d) in sizes_of_params(flow).items():
                b.bind(name, lambda v=b.values[t.vid], d=d: (b.dimension(v.ir, d), 32), of_data=True)
            now = given[1:-1]

            def leave(end: Leave) -> list[Value]:
                return self.state(end, now, s, [self.value(v) for v in end.values] if end.again else [])

            *after, ok = self.tree(flow.body, leave, [flag, *types])
            out = [self.typed(v, t) for v, t in zip(after, every)] + [b.same("and", given[-1], ok)]
            ir.Operation.create("stablehlo.return", [], [v.ir for v in out])
        results = [Value(r, t[0], t[1]) for r, t in zip(made.results, every)]
        return [results[1 + i] for i in s.of_result], results[-1]

    def state(self, end: Leave, now: list[Value], s: Any, carried: list[Value]) -> list[Value]:
        """Whether there is another round, and the state with which it begins, or the loop ends."""
        if end.again:
            return [self.b.splat(True, (), torch.bool), *carried, *now[len(carried) :]]
        return [self.b.splat(False, (), torch.bool), *s.after_leave(now, [self.value(v) for v in end.values])]

    def tree(self, block: Block, leave: Callable[[Leave], list[Value]], types: Sequence[Type]) -> list[Value]:
        """The values that `leave` makes of the end that is come to, and whether all assertions on the way have held."""
        b = self.b
        kept, b.holds = b.holds, []
        behind = wanted(block, b.scope.simplify)
        b.reads |= {t.vid for op in block.ops for t in liveness.op_inputs(op)} | {v.vid for v in behind if type(v) is TracedTensor}
        for op in block.ops:
            b.operation(op)
        holds = b.splat(True, (), torch.bool)
        for v in [v for v, _ in b.holds] + [Value(b.scalar(a.expr), (), torch.bool) for a in block.asserts if a.expr.const is None]:
            holds = b.same("and", holds, v)
        b.holds = kept
        if isinstance(block.end, Leave):
            return [*leave(block.end), holds]
        test = b.number(block.end.test)
        index = b.select(test, b.splat(0, (), torch.int32), b.splat(1, (), torch.int32))
        every = [*types, ((), torch.bool)]
        kinds = [b.type(*t) for t in every]
        made = ir.Operation.create("stablehlo.case", kinds, [index.ir], regions=2)
        for region, side in zip(made.regions, (block.end.yes, block.end.no)):
            inner = region.blocks.append()
            with ir.InsertionPoint(inner), self.scoped():
                found = self.tree(side, leave, types)
                ir.Operation.create("stablehlo.return", [], [fitted(b, v, t) for v, t in zip(found, kinds, strict=True)])
        *results, ok = [Value(r, t[0], t[1]) for r, t in zip(made.results, every)]
        return [*results, b.same("and", holds, ok)]

    @contextmanager
    def scoped(self) -> Iterator[None]:
        """Nobody outside of a region sees what is made in it."""
        b = self.b
        kept = dict(b.memo), dict(b.sources), dict(b.values), b.inside
        b.inside = []
        try:
            yield
        finally:
            b.memo, b.sources, b.values, b.inside = kept

    # -- values -------------------------------------------------------------------------------------------------------------------
    def value(self, v: Any) -> Value:
        b = self.b
        if type(v) is TracedTensor:
            return b.argument(v)
        e = number_of(v)
        return b.number(v if e is None else b.simple(e))

    def place(self, p: Any, open_: frozenset[str]) -> Type:
        """The type of a part of the state, or of a result."""
        if type(p) is not TracedTensor:
            return (), NUMBERS[kind_of(p)]
        return tuple(OPEN if is_open(n, open_) else n for n in self.sizes(p)), p.dtype

    def typed(self, v: Value, t: Type) -> Value:
        return Value(fitted(self.b, v, self.b.type(*t)), t[0], v.dtype)

    def bind(self, p: Any, v: Value) -> None:
        b = self.b
        if type(p) is TracedTensor:
            b.values[p.vid] = v
        else:
            bits = {int: 64, float: -64, bool: 1}[kind_of(p)]
            b.bind(number_of(p).name, lambda: (v.ir, bits), of_data=True)

    def nothing(self, p: Any) -> Value:
        """A result before the loop has one."""
        if type(p) is not TracedTensor:
            return self.b.splat(0, (), NUMBERS[kind_of(p)])

        def known(e: Expr) -> bool:
            return e.name in self.b.sources

        return self.b.full(0, [starting_size(n, known) for n in self.sizes(p)], p.dtype)


def words(block: Block) -> list[str]:
    return [a.message or str(a.expr) for a in block.asserts if a.expr.const is None]
