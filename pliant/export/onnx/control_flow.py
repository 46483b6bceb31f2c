"""Branches and loops on data as `If` and `Loop`.

A loop is a `Loop` without a count: its state is what is carried (`flows.slots`), and a truth value says whether there is another round.
Each block that branches is an `If` within it. Integers that a loop carries have 64 bits there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx_ir as ir
import torch

from pliant.export.flows import kind_of, slots, starting_size, wanted
from pliant.export.onnx.graph import Tensor, onnx_dtype, torch_dtype
from pliant.export.onnx.sizes import DTYPE
from pliant.graph.control_flow import Block, Branch, FlowOp, Leave, number_of, sizes_of_params
from pliant.graph.record import Op
from pliant.graph.traced import TracedTensor
from pliant.lower import liveness
from pliant.symbolic.expr import Expr


class Flows:
    """Writes the flows of one part of a model (`model.Part`)."""

    def __init__(self, part: Any) -> None:
        self.part = part
        self.g = part.g

    def values(self, op: FlowOp) -> list[ir.Value]:
        """The results of a flow, numbers as vectors of one."""
        made = self.loop(op) if op.flow.loops else self.tree(op.flow.body, lambda end: [self.value(v) for v in end.values])
        return [v if type(o) is TracedTensor else self.g.reshape(v, [1]) for o, v in zip(op.outs, made, strict=True)]

    def loop(self, op: FlowOp) -> list[ir.Value]:
        g, flow, s = self.g, op.flow, slots(op)
        first = [self.value(v) for v in op.args[0]]
        first += [self.nothing(p) for p in s.places[len(first) :]]
        go = g.const(True, torch.bool)
        if flow.entry is not None:
            go, *first = self.tree(flow.entry, lambda end: self.state(end, first, s, first[: len(flow.params)]))
        given = [self.input(p, flow.sizes) for p in s.places]
        count, again = ir.Value(name=g.name("round")), ir.Value(name=g.name("goes_on"))
        for v, dtype in ((count, torch.int64), (again, torch.bool)):
            v.type, v.shape = ir.TensorType(onnx_dtype(dtype)), ir.Shape([])

        def around() -> list[ir.Value]:
            for p, v in zip(flow.params, given):
                self.bind(p, v)
            for e, (t, d) in sizes_of_params(flow).items():
                symbol = number_of(t.sizes[d])  # type: ignore[index]
                assert symbol.name == e
                g.sizes.define(symbol, lambda t=t, d=d: g.sizes.dim(g.tensor(t).value, d))
            return self.tree(flow.body, lambda end: self.state(end, given, s, [self.value(v) for v in end.values] if end.again else []))

        body = self.inside(around, (count, again, *given))
        outs = [g.value(torch_dtype(v), f"loop_{len(g.nodes)}") for v in first]
        g.nodes.append(ir.Node("", "Loop", [None, go, *first], [ir.AttrGraph("body", body)], outputs=outs, name=g.name("Loop")))
        g.used += [go, *first]
        return [outs[i] for i in s.of_result]

    def state(self, end: Leave, now: list[ir.Value], s: Any, carried: list[ir.Value]) -> list[ir.Value]:
        """Whether there is another round, and the state with which it begins, or the loop ends."""
        if end.again:
            return [self.g.const(True, torch.bool), *carried, *now[len(carried) :]]
        return [self.g.const(False, torch.bool), *s.after_leave(now, [self.value(v) for v in end.values])]

    def tree(self, b: Block, leave: Callable[[Leave], list[ir.Value]]) -> list[ir.Value]:
        """The values that `leave` makes of the end that is come to."""
        part, g = self.part, self.g
        part.operations(needed(g.scope, b.ops, wanted(b, g.scope.simplify), g.live))
        if isinstance(b.end, Leave):
            return leave(b.end)
        end: Branch = b.end
        test = g.sizes.scalar(end.test)
        yes, no = (self.inside(lambda side=side: self.tree(side, leave), ()) for side in (end.yes, end.no))  # type: ignore[misc]
        return list(g.choose(test, yes, no, [torch_dtype(v) for v in yes.outputs]))

    def inside(self, make: Callable[[], list[ir.Value]], inputs: tuple[ir.Value, ...]) -> ir.Graph:
        """A graph within this one; nobody outside sees what it makes."""
        g = self.g
        context, saved = g.context, g.context.saved()
        with g.inside() as nodes:
            values = [g.node("Identity", [v], 1, (), {}, fresh=True)[0] for v in make()]
        g.context = context
        context.restore(saved)
        return ir.Graph(inputs, values, nodes=nodes, name=g.name("block"))

    # -- values -------------------------------------------------------------------------------------------------------------------
    def value(self, v: Any) -> ir.Value:
        if type(v) is TracedTensor:
            return self.g.tensor(v).value
        e = number_of(v)
        return self.g.sizes.scalar(v if e is None else self.g.size(e))

    def input(self, p: Any, open_: frozenset[str]) -> ir.Value:
        """What stands for a place of the state in a round."""
        g = self.g
        tensor = type(p) is TracedTensor
        v = g.value(p.dtype if tensor else DTYPE[kind_of(p)], "carried")
        v.shape = ir.Shape([n if type(n) is int else None for n in p.sizes] if tensor else [])
        return v

    def bind(self, p: Any, v: ir.Value) -> None:
        g = self.g
        if type(p) is TracedTensor:
            g.values[p.vid] = Tensor(v, p.dtype, tuple(g.size(n) for n in p.sizes))
        else:
            g.sizes.define(number_of(p), lambda: g.reshape(v, [1]))

    def nothing(self, p: Any) -> ir.Value:
        """A result before the loop has one."""
        g = self.g
        if type(p) is not TracedTensor:
            return g.const(0, DTYPE[kind_of(p)])
        sizes = g.sizes.vector([starting_size(g.size(n), g.sizes.tells) for n in p.sizes])
        return g.op("Expand", g.const(0, p.dtype), sizes)


def needed(scope: Any, ops: list[Op], values: list[Any], live: set[int]) -> list[Op]:
    """The operations that these values depend on; `live` gets the tensors that are read."""
    numbers: set[Expr] = set()

    def number(e: Any) -> None:
        if isinstance(e, Expr):
            numbers.update(e.symbols(), scope.simplify(e).symbols())

    def tensor(t: TracedTensor) -> None:
        live.add(t.vid)
        for s in t.sizes:
            number(liveness.number(s))

    for v in values:
        tensor(v) if type(v) is TracedTensor else number(liveness.number(v))
    kept: list[Op] = []
    for op in reversed(ops):
        outs = [o for o in op.outs if type(o) is TracedTensor]
        if not (any(o.vid in live for o in outs) or any(liveness.number(b.symbol) in numbers for b in op.binds)):
            continue
        kept.append(op)
        for b in op.binds:
            if type(op.outs[b.out]) is TracedTensor:
                live.add(op.outs[b.out].vid)
        for t in (*liveness.op_inputs(op), *(o for o in outs if o.vid in live)):
            tensor(t)
        for e in liveness.op_numbers(op):
            number(e)
    kept.reverse()
    return kept
