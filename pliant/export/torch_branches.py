"""The variants of a program in one `ExportedProgram`: calls of `torch.cond`, one within the other, that take what each variant needs.

The graph around them has inputs of its own (`common`): of what the variants take, only what all of them say of sizes is promised. A side is
taken where its relations hold of the sizes; where it asks data, too, these are computed first, by a graph of the operations that they need.
The last side takes what is left, and asserts what it needs. Results are row-major copies: `torch.cond` wants none that is an operand, and
the same strides of both sides. Numbers among them are tensors between the graphs.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator
from typing import Any

import torch

from pliant.errors import PliantError
from pliant.export.program import USER, Input, Program
from pliant.export.torch_nodes import CHECKS, Nodes, linear
from pliant.export.torch_values import CALLED, Environment, Values, chosen, rebuilt, same
from pliant.graph.builder import Undefined
from pliant.graph.dispatch import is_dense
from pliant.graph.layout import contiguous_strides
from pliant.graph.symnode import to_sym
from pliant.graph.trace import Trace
from pliant.graph.traced import TracedTensor, make
from pliant.lower import liveness
from pliant.symbolic.dims import OPEN
from pliant.symbolic.expr import Expr
from pliant.symbolic.scope import BRANCH, Scope

aten = torch.ops.aten
DTYPES = {int: torch.int64, float: torch.float64, bool: torch.bool}
"""Of numbers, as tensors."""


# -- the inputs of all ------------------------------------------------------------------------------------------------------------
def common(p: Program) -> Program:
    """A program without operations, whose inputs are those of `p` and its variants. Its outputs are those of `p`, and none of its own."""
    parts = [p, *p.variants]
    hints = [chosen(q) for q in parts]
    scope = Scope()
    trace = Trace(scope)
    symbols: dict[tuple, Expr] = {}
    dims: dict[str, str] = {}

    def symbol(key: tuple, values: list[Any], kind: type, size: bool) -> Any:
        """One for all values that are the same in each part."""
        if len(set(key)) == 1 and not isinstance(values[0], Expr):
            return values[0]
        found = symbols.get((key, kind))
        if found is None:
            n, e = next((n, e) for n, e in enumerate(values) if e is not None)
            ends = [ends_of(q, v) if isinstance(v, Expr) else (v, v) for q, v in zip(parts, values, strict=True) if v is not None]
            lo = None if len(ends) < len(parts) or any(a is None for a, _ in ends) else min(a for a, _ in ends)
            hi = None if len(ends) < len(parts) or any(b is None for _, b in ends) else max(b for _, b in ends)
            hint = e.evaluate(hints[n]) if isinstance(e, Expr) else e
            more = {"dim": OPEN} if size else {}
            lo = max(lo or 0, 0) if size else lo
            found = symbols[key, kind] = scope.backed(f"s{len(symbols)}", hint=hint, lo=lo, hi=hi, kind=kind, size_like=size, **more)
            if isinstance(e, Expr) and e.op == "sym":
                dims[found.name] = parts[n].dims.get(e.name, e.name)
        return found

    inputs: list[Input] = []
    for name, row in rows(parts).items():
        i = next(i for i in row if i is not None)
        values = [None if x is None else x.value for x in row]
        if not i.is_tensor:
            if any(isinstance(v, TracedTensor) for v in values):
                raise PliantError(f"to_torch_export: {name} is a number on one side of a branch, and a tensor on another")
            value = symbol(tuple(map(str, values)), values, i.value.kind, False)
        else:
            tensors = [v for v in values if v is not None]
            if len({(type(v), v.dtype, v.device, len(v.sizes)) for v in tensors}) > 1:
                raise PliantError(f"to_torch_export: the sides of a branch take different tensors as {name}")
            sizes = []
            for d in range(len(i.value.sizes)):
                each = [None if v is None else simple(q, v.sizes[d]) for q, v in zip(parts, values, strict=True)]
                sizes.append(symbol(tuple(map(str, each)), each, int, True))
            sizes = [to_sym(scope, s) if isinstance(s, Expr) else s for s in sizes]
            value = make(trace, tuple(sizes), contiguous_strides(tuple(sizes)), i.value.dtype, 0, None, i.value.device, True)
        inputs.append(Input(name, i.kind, value, i.path, any(x.written for x in row if x is not None)))
    return Program(
        name=p.name, form=p.form, trace=trace, inputs=inputs, outputs=p.outputs, ops=[], relations=[], asserts=[], checks=p.checks,
        result=p.result, state=p.state, parameters=p.parameters, keywords=p.keywords, rest=p.rest, defaults=p.defaults, dims=dims,
    )  # fmt: skip


def rows(parts: list[Program]) -> dict[str, list[Input | None]]:
    """The input of each part by that name, state first."""
    named = [{i.name: i for i in q.inputs} for q in parts]
    order = {i.name: i.kind == USER for q in parts for i in q.inputs}
    return {name: [n.get(name) for n in named] for name in sorted(order, key=order.__getitem__)}


def simple(q: Program, size: Any) -> Any:
    e = liveness.number(size)
    if e is None:
        return size
    e = q.scope.simplify(e)
    return e if e.const is None else e.const


def ends_of(q: Program, e: Expr) -> tuple[Any, Any]:
    lo, hi = q.scope.range(e) or (None, None)
    return (None if lo is None or math.isinf(lo) else lo), (None if hi is None or math.isinf(hi) else hi)


# -- graphs ------------------------------------------------------------------------------------------------------------------------
class Graph:
    """One graph of the nest. `given`: its placeholders, by the input's name."""

    def __init__(self, around: Environment, graph: torch.fx.Graph, given: dict[str, torch.fx.Node], root: torch.nn.Module) -> None:
        self.around = around
        self.graph = graph
        self.given = given
        self.handed = dict(given)  # what graphs that are called from this one get: floats and bools go as tensors
        self.root = root

    def inner(self) -> Graph:
        """A graph to be called from this one, with the same inputs."""
        inner = Graph(self.around, torch.fx.Graph(), {}, torch.nn.Module())
        for name, node in self.given.items():
            value = node.meta["val"]
            inner.handed[name] = inner.given[name] = taken = inner.graph.placeholder(node.name)
            if not isinstance(value, (torch.SymFloat, torch.SymBool)):
                taken.meta["val"] = value
                continue
            kind = float if isinstance(value, torch.SymFloat) else bool
            with self.around.mode:
                taken.meta["val"] = torch.empty((), dtype=DTYPES[kind])
            new = self.around.unbacked(kind)
            inner.given[name] = inner.call(aten.item.default, (taken,), new)
            inner.given[name].meta["unbacked_bindings"] = {new.node.expr: ()}
        return inner

    def call(self, fn: Any, args: tuple, value: Any, **kwargs: Any) -> torch.fx.Node:
        node = self.graph.call_function(fn, args, kwargs)
        node.meta["val"] = value
        return node

    def taken(self, results: list[torch.fx.Node]) -> list[str]:
        """The names of the inputs that it needs for these results, with which it ends."""
        self.graph.output(tuple(results))
        for node in reversed(self.graph.nodes):
            if not node.users and node.op == "call_function" and node.target in NUMBERS:
                self.graph.erase_node(node)
        for name, node in self.given.items():
            if not node.users and node is not self.handed[name]:
                self.graph.erase_node(node)
        return [name for name, node in self.handed.items() if node.users]

    def module(self, names: list[str]) -> torch.fx.GraphModule:
        """As a module that takes these inputs."""
        for name, node in self.handed.items():
            if name not in names:
                self.graph.erase_node(node)
        return torch.fx.GraphModule(self.root, self.graph)

    def choose(self, test: torch.fx.Node, yes: Ended, no: Ended) -> list[torch.fx.Node]:
        """The results of the one graph or the other."""
        taken = [{*graph.taken(results)} for graph, results in (yes, no)]
        names = [n for n in self.given if any(n in t for t in taken)]
        for n in names:
            value = self.handed[n].meta["val"]
            if isinstance(value, torch.SymFloat):
                with self.around.mode:
                    self.handed[n] = self.call(aten.scalar_tensor.default, (self.handed[n],), torch.empty((), dtype=torch.float64),
                                               dtype=torch.float64)  # fmt: skip
            elif isinstance(value, torch.SymBool):
                raise PliantError(f"to_torch_export: a branch needs the bool {n}, and torch.cond takes tensors and ints only")
        values, found = self.around.either([n.meta["val"] for n in yes[1]], [n.meta["val"] for n in no[1]])
        sides = []
        for word, (graph, _) in (("true", yes), ("false", no)):
            name = f"{word}_graph_{sum(1 for _ in self.root.named_children()) // 2}"
            self.root.add_module(name, graph.module(names))
            sides.append(self.graph.get_attr(name))
        call = self.call(torch.ops.higher_order.cond, (test, *sides, tuple(self.handed[n] for n in names)), tuple(values))
        if found:
            call.meta["unbacked_bindings"] = found
        return [self.call(operator.getitem, (call, k), v) for k, v in enumerate(values)]

    def number_of(self, node: torch.fx.Node, column: list[Any]) -> tuple[Any, Any]:
        """An output of the nest for its users, and what it is. `column`: the values that the variants have there."""
        value = column[0]
        if isinstance(value, TracedTensor):
            return node, torch.Tensor
        numbers = [liveness.number(v) for v in column]
        if numbers[0] is None and all(n is None and v == value for n, v in zip(numbers, column, strict=True)):
            return value, None
        kind = numbers[0].kind if numbers[0] is not None else type(value)
        new = self.around.unbacked(kind)
        taken = self.call(aten.item.default, (node,), new)
        taken.meta["unbacked_bindings"] = {new.node.expr: ()}
        return taken, kind


Ended = tuple[Graph, list[torch.fx.Node]]
"""A graph and its results."""

NUMBERS = frozenset((aten.sym_size.int, operator.getitem, *CALLED.values(), torch.sym_int))
"""Calls that are not needed where nobody reads what they give."""


class Part(Nodes):
    """The operations of one variant `q` in a graph of the nest. `raw`: its sizes are what comes, not what the variant knows of them."""

    def __init__(self, q: Program, g: Graph, raw: bool = False, asks: bool = False) -> None:
        super().__init__(q)
        self.g = g
        self.graph, self.root = g.graph, g.root
        self.raw = self.exact = raw
        self.told = Values(q, g.around, asks, raw)
        self.ties: list[tuple[torch.fx.Node, int, Any]] = []  # (input, dim, what else its size is)
        for i in q.inputs:
            self.input(i, g.given[i.name])
        self.told.strides()

    def input(self, i: Input, node: torch.fx.Node) -> None:
        value = node.meta["val"]
        if not isinstance(i.value, TracedTensor):
            e = i.value if self.raw else self.p.scope.simplify(i.value)
            self.symbols[e] = node
            self.told.numbers[e] = value
            return
        self.values[i.value.vid] = node
        self.told.fakes[i.value.vid] = value
        for d, size in enumerate(i.value.sizes):
            e = liveness.number(size)
            if e is None or not self.raw:
                e = simple(self.p, size)
            found = linear(e) if isinstance(e, Expr) else None
            if found is None or found[0] in self.read:
                self.ties.append((node, d, e))
            else:
                symbol, c, k = found
                self.read[symbol] = (node, d, c, k)
                self.told.numbers[symbol] = (value.shape[d] - k) // c
                if c != 1:
                    self.ties.append((node, d, e))

    def number(self, e: Expr) -> Any:
        if not self.raw or e.op != "sym" or e in self.symbols:
            return super().number(e)
        if e not in self.read:
            raise Undefined(e, f"nothing tells {e}")
        return self.size(e)

    def filled(self, grow: Callable[[], Any]) -> Any:
        """What `grow` gives, which adds nodes; their values are worked out."""
        with torch._C._DisableTorchDispatch():
            grown = grow()
        self.told.fill(self.graph)
        return grown

    def all_of(self, tests: list[Any]) -> Any:
        out = tests[0]
        for t in tests[1:]:
            out = self.call(operator.and_, out, t)
        return out


class Branches:
    """Writes the nest."""

    def __init__(self, name: str) -> None:
        self.name = name

    def choice(self, parts: list[Program], g: Graph) -> list[torch.fx.Node]:
        """The outputs of the first of the parts that takes the call, as tensors."""
        q, *rest = parts
        sizes = self.of_sizes(q, g) if rest else None
        asked = [a.expr for a in q.asserts if a.why == BRANCH and a.expr.const is None]
        if not rest or (sizes is None and not asked):
            return self.body(q, g, last=True)
        if not asked:
            test: Any = sizes
        elif sizes is None:
            test = self.of_data(q, g, asked)
        else:
            yes, no = g.inner(), g.inner()
            (test,) = g.choose(sizes, (yes, [self.of_data(q, yes, asked)]), (no, [never(no)]))
        yes, no = g.inner(), g.inner()
        return g.choose(test, (yes, self.body(q, yes)), (no, self.choice(rest, no)))

    def of_sizes(self, q: Program, g: Graph) -> torch.fx.Node | None:
        """Whether the sizes are those that `q` takes. None: they always are."""
        part = Part(q, g, raw=True)
        tests = [t for t in part.filled(lambda: list(self.tests(q, part))) if t.meta["val"] is not True]
        return part.filled(lambda: part.all_of(tests)) if tests else None

    def tests(self, q: Program, part: Part) -> Iterator[torch.fx.Node]:
        for node, d, e in part.ties:
            size = node.meta["val"].shape[d]
            if type(size) is int and size == e:
                continue
            if isinstance(e, Expr) and (first := linear(e)) and first[1:] == (1, 0) and same(part.told.numbers[first[0]], size):
                continue
            yield part.call(operator.eq, part.put(aten.sym_size.int, (node, d), size), part.number(e) if isinstance(e, Expr) else e)
        known = {*part.read, *part.symbols}
        for r in q.relations:
            if r.expr.const is None and all(s in known for s in r.expr.symbols()):
                yield part.number(r.expr)

    def of_data(self, q: Program, g: Graph, asked: list[Expr]) -> torch.fx.Node:
        """Whether the data are those that `q` takes: a tensor."""
        needed = liveness.live_ops(q.ops, asked, [i.value for i in q.inputs], keep_effects=False)
        if any(liveness.draws(op.target) for op in needed):
            raise PliantError(f"to_torch_export: {self.name} branches on random numbers, which would be drawn twice")
        part = Part(q, g, asks=True)

        def grow() -> torch.fx.Node:
            for op in needed:
                part.operation(op)
            return part.scalar(part.all_of([part.condition(rebuilt(e, q.scope)) for e in asked]), torch.bool)

        return part.filled(grow)

    def body(self, q: Program, g: Graph, last: bool = False) -> list[torch.fx.Node]:
        """The outputs of `q`. What told that it takes the call is not asked again; where nothing did (`last`), it is asserted."""
        if last:
            self.asserted(q, g)
        part = Part(q, g)

        def grow() -> list[torch.fx.Node]:
            for op in q.ops:
                if op.target not in CHECKS:
                    part.operation(op)
            part.assertions(q.asserts if last else [a for a in q.asserts if a.why != BRANCH], bounds=True)
            own = {i.value.storage_id for i in q.inputs if i.is_tensor}
            return [self.output(part, o.value, own) for o in q.outputs]

        return part.filled(grow)

    def output(self, part: Part, value: Any, own: set[int]) -> torch.fx.Node:
        """A result that is no operand, and no other result. `own`: the memory that is taken."""
        if not isinstance(value, TracedTensor):
            e = liveness.number(value)
            return part.scalar(value if e is None else part.number(e), DTYPES[type(value) if e is None else e.kind])
        fresh = value.storage_id not in own and is_dense(tuple(value.sizes), tuple(value.strides))
        own.add(value.storage_id)
        node = part.argument(value)
        return node if fresh else part.made(aten.clone.default, node, memory_format=torch.contiguous_format)

    def asserted(self, q: Program, g: Graph) -> None:
        """What `q` needs of sizes, where no other part takes them."""
        part = Part(q, g, raw=True)
        words = f"no captured side of the branches of {self.name} takes these sizes"

        def grow() -> None:
            tests = list(self.tests(q, part))
            if tests:
                part.put(aten._assert_async.msg, (part.scalar(part.all_of(tests), torch.bool), words), None)

        part.filled(grow)


def never(g: Graph) -> torch.fx.Node:
    """A tensor that says no."""
    with g.around.mode:
        value = torch.full((), False)
    return g.call(aten.full.default, ([], False), value, dtype=torch.bool)
