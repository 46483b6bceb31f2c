"""The FX graph of an `ExportedProgram`: operations as they are, numbers as the calls that the format allows."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

import torch
from torch.utils import _pytree as pytree

from pliant.errors import PliantError
from pliant.export.program import Program
from pliant.export.torch_flows import Flows
from pliant.export.torch_values import CALLED, COMPUTED, SIZE, TRUTH, rebuilt
from pliant.graph.builder import Builder
from pliant.graph.control_flow import FlowOp
from pliant.graph.record import Bind, Op
from pliant.lower import liveness
from pliant.symbolic.expr import Expr
from pliant.symbolic.scope import BRANCH

aten = torch.ops.aten

LOOSER = {aten.view.default: aten.reshape.default, aten._unsafe_view.default: aten.reshape.default}
"""Operands may lie otherwise than in the capture (PyTorch's decomposition of attention does that to its result): a view could fail."""

ITEMS = frozenset((aten.item.default, aten._local_scalar_dense.default))
CHECKS = frozenset((aten.sym_constrain_range.default, aten.sym_constrain_range_for_size.default))


def linear(e: Expr) -> tuple[Expr, int, int] | None:
    """(symbol, c, k) of c * symbol + k."""
    if e.op == "sym":
        return e, 1, 0
    symbol, c, k = None, 0, 0
    for mono, n in e.terms if e.op == "sum" else ():
        if not mono:
            k = n
        elif len(mono) == 1 and mono[0].op == "sym" and symbol is None:
            symbol, c = mono[0], n
        else:
            return None
    return (symbol, c, k) if symbol is not None and c > 0 else None


class Nodes(Builder):
    """Grows the FX graph. Symbols are read off the inputs' sizes where they are first needed."""

    def __init__(self, p: Program) -> None:
        super().__init__(p.trace)
        self.p = p
        self.read: dict[Expr, tuple[torch.fx.Node, int, int, int]] = {}  # symbol -> (input, dim, c, k): size is c * symbol + k
        self.exact = False  # conditions that the scope takes for true are written out
        self.flags: dict[Expr, torch.fx.Node] = {}  # tensors that hold a bool
        self.root = torch.nn.Module()  # of the graphs that this one calls

    def placeholder(self, value: Any) -> None:
        raise NotImplementedError

    def taken(self, name: str, value: Any) -> torch.fx.Node:
        node = self.graph.placeholder(name)
        node.meta["val"] = value
        return node

    def number(self, e: Expr) -> Any:
        if not self.exact or (e.op == "sym" and e not in self.symbols):
            e = self.trace.scope.simplify(e)
        if e.op == "sym" and e not in self.symbols and e in self.read:
            self.size(e)
        new = e not in self.symbols
        node = super().number(e)
        if new and e.op != "sym" and isinstance(node, torch.fx.Node):
            node.meta["val"] = COMPUTED
        return node

    def size(self, e: Expr) -> torch.fx.Node:
        """The node of a symbol that a size of an input tells."""
        of, d, c, k = self.read[e]
        size = self.put(aten.sym_size.int, (of, d), c * e + k)
        if k:
            size = self.put(operator.sub, (size, k), c * e)
        if c != 1:
            size = self.put(operator.floordiv, (size, c), e)
        size.name = self.graph._graph_namespace.create_name(self.p.dims.get(e.name, e.name), None)
        self.symbols[e] = size
        return size

    def condition(self, e: Any) -> Any:
        """The node of something that must hold: it is written out, whatever the scope takes for true."""
        self.exact = True
        try:
            return self.number(e)
        finally:
            self.exact = False

    def put(self, fn: Any, args: tuple, val: Any) -> torch.fx.Node:
        node = self.graph.call_function(fn, args)
        node.meta["val"] = val
        return node

    def call(self, fn: Any, *args: Any) -> torch.fx.Node:
        """A node on numbers, whose value is worked out from theirs later on."""
        return self.put(fn, args, COMPUTED)

    def made(self, fn: Any, *args: Any, **kwargs: Any) -> torch.fx.Node:
        node = self.graph.call_function(fn, args, kwargs)
        node.meta["val"] = COMPUTED
        return node

    def scalar(self, value: Any, dtype: torch.dtype) -> torch.fx.Node:
        """A number as a tensor."""
        if isinstance(value, torch.fx.Node) and dtype is torch.bool:
            value = self.call(torch.sym_ite, value, 1, 0)
        return self.made(aten.scalar_tensor.default, value, dtype=dtype)

    def total(self, e: Expr) -> Any:
        out: Any = None
        for mono, c in e.terms:
            term: Any = c if c != 1 or not mono else None
            for atom in mono:
                node = self.number(atom)
                term = node if term is None else self.call(operator.mul, term, node)
            out = term if out is None else self.call(operator.add, out, term)
        return out

    def apply(self, e: Expr) -> Any:
        args = [self.number(a) for a in e.args]
        a = args[0]
        if e.op in ("abs", "fabs"):
            return self.call(torch.sym_max, a, self.call(operator.neg, a))
        if e.op == "floor":
            return self.call(torch.sym_int, self.call(operator.floordiv, a, 1.0))
        if e.op == "ceil":
            down = self.call(operator.floordiv, self.call(operator.neg, a), 1.0)
            return self.call(operator.neg, self.call(torch.sym_int, down))
        if e.op == "trunc":
            return self.call(torch.sym_int, a)
        if e.op == "bool_to_int":
            return self.call(torch.sym_ite, a, 1, 0)
        if e.op == "subtotal":
            return a
        if e.op == "where" and e.kind is int and any(isinstance(x, torch.fx.Node) for x in args[1:]):
            chosen = self.call(torch.sym_ite, a, 1, 0)  # which takes two of one type: ints, or symbolic ones
            return self.call(operator.add, args[2], self.call(operator.mul, chosen, self.call(operator.sub, args[1], args[2])))
        fn = CALLED.get(e.op)
        if fn is None:
            raise PliantError(f"to_torch_export: an ExportedProgram has no `{e.op}` of numbers, in {e}")
        if len(args) > 2 and e.op != "where":
            out = a
            for b in args[1:]:
                out = self.call(fn, out, b)
            return out
        return self.call(fn, *args)

    def truth(self, op: Op) -> torch.fx.Node:
        """`item` of a bool: as that of an int, since PyTorch's passes do not follow bools from data."""
        e = liveness.number(op.binds[0].symbol)
        assert e is not None
        if op.args[0].sizes:
            return self.truth_of(e, self.made(aten.reshape.default, self.argument(op.args[0]), []))
        return self.truth_of(e, self.argument(op.args[0]))

    def truth_of(self, e: Expr, flag: torch.fx.Node) -> torch.fx.Node:
        """A bool, and the tensor that holds it."""
        number = self.graph.call_function(aten._to_copy.default, (flag,), {"dtype": torch.int64})
        number.meta["val"] = COMPUTED
        found = self.put(aten.item.default, (number,), TRUTH)
        node = self.call(operator.eq, found, 1)
        node.meta["is"] = e
        self.symbols[e] = node
        self.flags[e] = flag
        return node

    def inside(self) -> Nodes:
        """A graph that this one is to call."""
        return Nodes(self.p)

    def submodule(self, word: str, inner: Nodes) -> torch.fx.Node:
        """The node of a graph that this one calls."""
        name = f"{word}_graph_{len(list(self.root.children()))}"
        self.root.add_module(name, torch.fx.GraphModule(inner.root, inner.graph))
        return self.graph.get_attr(name)

    def operation(self, op: Op) -> Any:
        if isinstance(op, FlowOp):
            Flows(self, op).write()
            return None
        if op.target in ITEMS and op.binds and op.args[0].dtype is torch.bool:
            return self.truth(op)
        node = super().operation(op)
        node.target = LOOSER.get(op.target, op.target)
        if op.site is not None:
            node.meta["stack_trace"] = f'  File "{op.site.filename}", line {op.site.lineno}, in {op.site.function}\n'
        return node

    def assertions(self, relations: Iterable[Any], bounds: bool = False) -> None:
        """Nodes for the relations that shared symbols do not say, nor ranges. `bounds`: those, too, of assertions of the program."""
        known = {s for s in self.read} | set(self.symbols)
        for r in relations:
            e = rebuilt(r.expr, self.p.scope)
            if not isinstance(e, Expr) or e.const is not None:
                continue
            if bounds_one(e) and not bounds and not any(s in self.symbols for s in e.symbols()):
                continue  # ranges of numbers are said, and nobody checks their lower ends
            if any(s not in known for s in e.symbols()):
                continue  # of strides: the operators themselves refuse what they cannot view
            test = self.condition(e)
            site = f", needed at {r.site}" if r.site else ""
            words = r.told if bounds and r.why != BRANCH else ""
            words = words or f"{e.python(self.p.dims)} must hold{site}"
            if any(s.kind is float for s in e.symbols()):  # torch.export.load cannot read assertions about them
                self.put(aten._assert_async.msg, (self.scalar(test, torch.bool), words), None)
            else:
                self.put(aten._assert_scalar.default, (test, words), None)

    def bind(self, op: Op, b: Bind) -> None:
        e = liveness.number(b.symbol)
        assert e is not None
        if b.dim is None:
            self.symbols[e] = self.numbers[b.out]
        else:
            self.symbols[e] = self.put(aten.sym_size.int, (self.values[op.outs[b.out].vid], b.dim), e)
        node = self.numbers[0]
        path: tuple = () if b.dim is None else (SIZE, pytree.SequenceKey(b.dim))
        if op.out_spec is not None:  # the symbol is found by the operation, of one of its results
            whole = self.numbers[b.out].args[0]
            assert isinstance(whole, torch.fx.Node)
            node, path = whole, (pytree.SequenceKey(b.out), *path)
        node.meta.setdefault("finds", []).append((e, path))


def bounds_one(e: Expr) -> bool:
    """Whether a relation bounds one symbol from one side: ranges say so."""
    if e.op not in ("le", "ge", "lt", "gt") or len(e.symbols()) != 1:
        return False
    s = e.symbols()[0]
    return all(a.const is not None or a is s or (a.op == "sum" and linear_abs(a)) for a in e.args)


def linear_abs(e: Expr) -> bool:
    return all(not mono or (len(mono) == 1 and mono[0].op == "sym" and abs(c) == 1) for mono, c in e.terms)
