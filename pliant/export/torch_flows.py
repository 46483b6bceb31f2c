"""Branches and loops on data in an `ExportedProgram`: calls of `torch.cond` and `torch.while_loop` with graphs of their own.

Between the graphs, numbers are tensors without dims. The state of a loop is whether there is another round, then what is carried
(`flows.slots`): `stateful` gives the blocks that leave with all of it. Carried tensors may change their sizes when the program runs;
PyTorch's passes that trace again refuse such a loop.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

from pliant.export.flows import Slots, kind_of, slots, starting_size
from pliant.export.torch_values import SIZE
from pliant.graph.control_flow import Block, Branch, FlowOp, Leave, needs, number_of
from pliant.graph.layout import contiguous_strides
from pliant.graph.symnode import to_sym
from pliant.graph.traced import TracedTensor, make
from pliant.symbolic.expr import Expr

aten = torch.ops.aten
DTYPES = {int: torch.int64, float: torch.float64, bool: torch.bool}
"""Of numbers, as tensors."""


def stateful(b: Block, values: Callable[[Leave], list[Any]]) -> Block:
    """The blocks, each leaving with other values."""
    if isinstance(b.end, Leave):
        return Block(b.ops, b.asserts, Leave(False, values(b.end)))
    return Block(b.ops, b.asserts, Branch(b.end.test, stateful(b.end.yes, values), stateful(b.end.no, values)))


def taken(inner: Any, name: str, value: Any) -> torch.fx.Node:
    """A placeholder, of this name if it is free."""
    used = {n.target for n in inner.graph.nodes if n.op == "placeholder"}
    free = next(n for n in (name, *(f"{name}_{k}" for k in range(1, len(used) + 2))) if n not in used)
    return inner.taken(free, value)


class Flows:
    """Writes one flow. `nodes`: the graph that it is in (`torch_nodes.Nodes`)."""

    def __init__(self, nodes: Any, op: FlowOp) -> None:
        self.nodes = nodes
        self.op = op

    def write(self) -> None:
        """The call, and nodes for its results."""
        nodes, op = self.nodes, self.op
        made = self.loop() if op.flow.loops else self.tree(nodes, op.flow.body, [self.as_tensor(o) for o in op.outs])
        for k, (o, part) in enumerate(zip(op.outs, made, strict=True)):
            if type(o) is TracedTensor:
                part.meta["val"] = o
                nodes.values[o.vid] = part
            for b in op.binds:
                e = number_of(b.symbol)
                if b.out == k and b.dim is None:
                    self.number(nodes, e, part)
                elif b.out == k:
                    nodes.symbols[e] = nodes.put(aten.sym_size.int, (part, b.dim), e)
                    if part.target is operator.getitem:
                        call: Any
                        place: Any
                        call, place = part.args
                        assert b.dim is not None
                        path: Any = (pytree.SequenceKey(place), SIZE, pytree.SequenceKey(b.dim))
                        call.meta.setdefault("finds", []).append((e, path))

    # -- branches -----------------------------------------------------------------------------------------------------------------
    def tree(self, nodes: Any, b: Block, outs: list[TracedTensor]) -> list[torch.fx.Node]:
        """What the end gives that is come to. `outs`: tensors like these."""
        for op in b.ops:
            nodes.operation(op)
        for a in b.asserts:
            if a.expr.const is None:
                test = nodes.scalar(nodes.condition(a.expr), torch.bool)
                nodes.put(aten._assert_async.msg, (test, a.message or f"{a.expr} must hold"), None)
        if isinstance(b.end, Leave):
            return [self.tensor(nodes, v) for v in b.end.values]
        test = nodes.flags.get(b.end.test)
        if test is None:
            test = nodes.scalar(nodes.condition(b.end.test), torch.bool)
        operands = self.operands(nodes, [b.end.yes, b.end.no])
        sides = []
        for side in (b.end.yes, b.end.no):
            inner = nodes.inside()
            self.take(inner, operands)
            self.finish(inner, self.tree(inner, side, outs))
            sides.append(inner)
        graphs = [nodes.submodule(word, side) for word, side in zip(("true", "false"), sides)]
        call = nodes.put(torch.ops.higher_order.cond, (test, *graphs, tuple(n for _, n in operands)), tuple(outs))
        call.meta["inside"] = [side.graph for side in sides]
        return [nodes.put(operator.getitem, (call, k), o) for k, o in enumerate(outs)]

    def operands(self, nodes: Any, blocks: list[Block]) -> list[tuple[Any, torch.fx.Node]]:
        """What these blocks, and those behind them, read that is here: traced tensors and symbols, and their nodes."""
        found: dict[Any, tuple[Any, torch.fx.Node]] = {}
        for b in (inner for block in blocks for inner in block.walk()):
            tensors, symbols = needs(b, nodes.trace.scope.simplify)
            for vid, t in tensors.items():
                if vid in nodes.values:
                    found.setdefault(vid, (t, nodes.values[vid]))
            for e in symbols.values():
                if e in nodes.symbols or e in nodes.read:
                    found.setdefault(e, (e, nodes.number(e) if e.kind is int else self.tensor(nodes, e)))
        return [(v, node) for v, node in found.values() if isinstance(node, torch.fx.Node)]

    def take(self, inner: Any, operands: list[tuple[Any, torch.fx.Node]]) -> None:
        """Placeholders for what a graph is given."""
        for v, node in operands:
            if type(v) is TracedTensor:
                inner.values[v.vid] = taken(inner, node.name, v)
            elif v.kind is int:
                inner.symbols[v] = taken(inner, node.name, v)
            else:
                self.number(inner, v, taken(inner, node.name, self.scalar(v.kind)))

    def finish(self, inner: Any, results: list[torch.fx.Node]) -> None:
        """The end of a graph. It gives no operand, and nothing twice."""
        taken = [n for n in inner.graph.nodes if n.op == "placeholder"]
        memory = {n.meta["val"].storage_id for n in taken if type(n.meta["val"]) is TracedTensor}
        given: set[torch.fx.Node] = set(taken)
        out = []
        for node in results:
            value = node.meta["val"]
            own = value.storage_id if type(value) is TracedTensor else None
            if node in given or own in memory:
                node = inner.made(aten.clone.default, node, memory_format=torch.contiguous_format)
            given.add(node)
            if own is not None:
                memory.add(own)
            out.append(node)
        inner.graph.output(tuple(out))

    # -- loops --------------------------------------------------------------------------------------------------------------------
    def loop(self) -> list[torch.fx.Node]:
        nodes, op, flow = self.nodes, self.op, self.op.flow
        s = slots(op)
        places = s.places
        state = [self.scalar(bool), *map(self.as_tensor, places)]
        first = [*op.args[0], *map(self.nothing, places[len(flow.params) :])]
        entry = flow.entry or Block([], [], Leave(True, []))
        began = self.tree(nodes, stateful(entry, lambda end: self.state(end, first, s, first)), state)
        if began[0].target is operator.getitem:
            call: Any = began[0].args[0]
            call.meta["opens"] = [e for p in places for e, _ in self.told_sizes(nodes, p)]
        round_ = stateful(flow.body, lambda end: self.state(end, places, s, [*end.values, *places[len(flow.params) :]]))
        operands = self.operands(nodes, [round_])
        test, body = nodes.inside(), nodes.inside()
        for inner in (test, body):
            goes_on, *given = [taken(inner, "carried", t) for t in state]
            self.take(inner, operands)
            for p, node in zip(places, given, strict=True):
                if type(p) is TracedTensor:
                    inner.values[p.vid] = node
                    self.read_sizes(inner, p, node)
                elif inner is body:
                    self.number(inner, number_of(p), node)
            if inner is test:
                inner.graph.output(inner.made(aten.clone.default, goes_on))
                continue
            self.finish(inner, self.tree(inner, round_, state))
        graphs = [nodes.submodule("test", test), nodes.submodule("body", body)]
        call = nodes.put(torch.ops.higher_order.while_loop, (*graphs, tuple(began), tuple(n for _, n in operands)), tuple(state))
        call.meta["inside"] = [test.graph, body.graph]
        return [nodes.put(operator.getitem, (call, 1 + i), state[1 + i]) for i in s.of_result]

    def told_sizes(self, inner: Any, p: Any) -> list[tuple[Expr, int]]:
        """Symbols that only the tensors tell that are carried, and the dims that are these."""
        nodes = self.nodes
        sizes = [(number_of(n), d) for d, n in enumerate(p.sizes)] if type(p) is TracedTensor else []
        known = (inner.symbols, nodes.symbols, nodes.read)
        return [(e, d) for e, d in sizes if e is not None and e.op == "sym" and not any(e in k for k in known)]

    def read_sizes(self, inner: Any, p: TracedTensor, node: torch.fx.Node) -> None:
        for e, d in self.told_sizes(inner, p):
            inner.read.setdefault(e, (node, d, 1, 0))
            node.meta.setdefault("opens", []).append(e)

    def state(self, end: Leave, now: list[Any], s: Slots, next_: list[Any]) -> list[Any]:
        """Whether there is another round, and the state with which it begins, or the loop ends."""
        return [True, *next_] if end.again else [False, *s.after_leave(now, end.values)]

    # -- values -------------------------------------------------------------------------------------------------------------------
    def tensor(self, nodes: Any, v: Any) -> torch.fx.Node:
        """A value as a tensor."""
        if type(v) is TracedTensor:
            return nodes.argument(v)
        e = number_of(v)
        if e is None:
            return nodes.made(aten.full.default, [], v, dtype=DTYPES[type(v)])
        flag = nodes.flags.get(e)
        return flag if flag is not None else nodes.scalar(nodes.number(e), DTYPES[e.kind])

    def number(self, nodes: Any, e: Expr, tensor: torch.fx.Node) -> None:
        """The number that a tensor holds."""
        if e.kind is bool:
            nodes.truth_of(e, tensor)
            return
        nodes.symbols[e] = node = nodes.put(aten.item.default, (tensor,), e)
        node.meta["finds"] = [(e, ())]

    def as_tensor(self, v: Any) -> TracedTensor:
        return v if type(v) is TracedTensor else self.scalar(kind_of(v))

    def scalar(self, kind: type) -> TracedTensor:
        """What stands for a number between graphs."""
        return make(self.nodes.trace, (), (), DTYPES[kind], 0, None, torch.device("cpu"), True)

    def nothing(self, p: Any) -> Any:
        """A result before the loop has one."""
        if type(p) is not TracedTensor:
            return kind_of(p)(0)
        nodes, scope = self.nodes, self.nodes.trace.scope
        found = [starting_size(n, lambda e: e in nodes.symbols or e in nodes.read) for n in p.sizes]
        sizes = tuple(to_sym(scope, n) if isinstance(n, Expr) else n for n in found)
        t = make(nodes.trace, sizes, contiguous_strides(sizes), p.dtype, 0, None, p.device, True)
        node = nodes.made(aten.full.default, [nodes.number(n) if isinstance(n, Expr) else n for n in found], 0, dtype=p.dtype)
        nodes.values[t.vid] = node
        return t
