"""A trace as a `torch.fx.GraphModule`: for logs, for user backends, and as the form in which graphs are saved.

Placeholders come first, in the order of `inputs`: tensors and size symbols. Sizes that are expressions become calls of Python
operators on the placeholders (or `sym_size` calls for symbols that the graph itself defines). Every node has its traced value in
`meta["val"]` and the user's line in `meta["site"]`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import fx
from torch.utils._pytree import tree_flatten

from pliant.graph.record import Bind, Op, TorchOp
from pliant.graph.symnode import SymNode, to_sym
from pliant.graph.trace import Trace
from pliant.graph.traced import TracedTensor
from pliant.symbolic.expr import TABLE, Expr

SYMS = (torch.SymInt, torch.SymFloat, torch.SymBool)

#: The Python function of a scalar operator, where the operator table's own would not print well in generated code.
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "neg": operator.neg, "floordiv": operator.floordiv,
    "mod": operator.mod, "truediv": operator.truediv, "int_truediv": operator.truediv, "pow": operator.pow, "int_pow": operator.pow,
    "abs": operator.abs, "min": torch.sym_min, "max": torch.sym_max, "not": torch.sym_not, "where": torch.sym_ite,
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
    "and": operator.and_, "or": operator.or_, "to_float": torch.sym_float, "floor": math.floor, "ceil": math.ceil, "trunc": math.trunc,
}  # fmt: skip


class Builder:
    """Grows one graph. `values` maps vids to nodes, `symbols` maps expressions to nodes."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.graph = fx.Graph()
        self.values: dict[int, fx.Node] = {}
        self.symbols: dict[Expr, fx.Node] = {}
        self.constants: dict[str, torch.Tensor] = {}

    def placeholder(self, value: Any) -> None:
        """An input: a traced tensor, or the expression of a symbol."""
        if isinstance(value, Expr):
            node = self.graph.placeholder(value.name)
            node.meta["val"] = to_sym(self.trace.scope, value)
            self.symbols[value] = node
            return
        node = self.graph.placeholder(f"arg{value.vid}")
        node.meta["val"] = value
        node.meta["source"] = value.source
        self.values[value.vid] = node

    def constant(self, x: TracedTensor) -> fx.Node:
        name = f"_constant{len(self.constants)}"
        self.constants[name] = x.constant  # type: ignore[assignment]
        node = self.graph.get_attr(name)
        node.meta["val"] = x
        self.values[x.vid] = node
        return node

    def number(self, e: Expr) -> Any:
        """The node that computes `e`; a number if it is one."""
        if e.const is not None:
            return e.const
        node = self.symbols.get(e)
        if node is None:
            if e.op == "sym":
                raise KeyError(f"no input and no operation of the graph defines the size symbol {e}")
            node = self.total(e) if e.op == "sum" else self.apply(e)
            node.meta["val"] = to_sym(self.trace.scope, e)
            self.symbols[e] = node
        return node

    def apply(self, e: Expr) -> fx.Node:
        fn = FUNCTIONS.get(e.op) or TABLE[e.op].fn
        args = [self.number(a) for a in e.args]
        if len(args) > 2 and e.op != "where":  # and, or, min, max of many
            out = args[0]
            for a in args[1:]:
                out = self.graph.call_function(fn, (out, a))
            return out
        return self.graph.call_function(fn, tuple(args))

    def total(self, e: Expr) -> fx.Node:
        """A polynomial: sums of products."""
        out: Any = None
        for mono, c in e.terms:
            term: Any = c if c != 1 or not mono else None
            for atom in mono:
                node = self.number(atom)
                term = node if term is None else self.graph.call_function(operator.mul, (term, node))
            out = term if out is None else self.graph.call_function(operator.add, (out, term))
        return out

    def argument(self, x: Any) -> Any:
        if type(x) is TracedTensor:
            node = self.values.get(x.vid)
            if node is None:
                if x.constant is None:
                    raise KeyError(f"%{x.vid} is neither an input nor the result of an operation")
                node = self.constant(x)
            return node
        if isinstance(x, SYMS) and type(x.node) is SymNode:
            return self.number(x.node.expr)
        if isinstance(x, (list, tuple)):
            return type(x)(map(self.argument, x)) if type(x) in (list, tuple) else tuple(map(self.argument, x))
        if isinstance(x, dict):
            return {k: self.argument(v) for k, v in x.items()}
        return x

    def operation(self, op: Op) -> None:
        args = tuple(self.argument(a) for a in op.args)
        node = self.graph.call_function(op.target, args, {k: self.argument(v) for k, v in op.kwargs.items()})
        node.meta["site"] = op.site
        if op.out_spec is None:
            self.result(op.outs[0], node)
        elif op.out_spec == "flat":
            node.meta["val"] = tuple(op.outs)
            for i, o in enumerate(op.outs):
                if o is not None:
                    self.result(o, self.graph.call_function(operator.getitem, (node, i)))
        else:
            node.meta["val"] = op.out_spec.unflatten(op.outs)
            self.nested(node, node.meta["val"])
        for b in op.binds:
            self.bind(op, b)

    def nested(self, node: fx.Node, value: Any) -> None:
        for i, v in enumerate(value):
            part = self.graph.call_function(operator.getitem, (node, i))
            if isinstance(v, (tuple, list)):
                self.nested(part, v)
            else:
                self.result(v, part)

    def result(self, value: Any, node: fx.Node) -> None:
        node.meta["val"] = value
        if type(value) is TracedTensor:
            self.values.setdefault(value.vid, node)  # an in-place operator gives its argument back

    def bind(self, op: Op, b: Bind) -> None:
        """A symbol that an operation defines."""
        out = op.outs[b.out]
        if b.dim is None:
            self.symbols[b.symbol] = next(n for n in reversed(self.graph.nodes) if n.op == "call_function")
            return
        node = self.graph.call_function(torch.ops.aten.sym_size.int, (self.values[out.vid], b.dim))
        node.meta["val"] = to_sym(self.trace.scope, b.symbol)
        self.symbols[b.symbol] = node

    def module(self, outputs: Any, name: str) -> fx.GraphModule:
        node = self.graph.output(self.argument(outputs))
        node.meta["val"] = outputs
        root = torch.nn.Module()
        for attr, data in self.constants.items():
            root.register_buffer(attr, data, persistent=False)
        return fx.GraphModule(root, self.graph, name)


def to_fx(trace: Trace, inputs: Iterable[Any], outputs: Any, ops: Iterable[Op] | None = None, name: str = "Graph") -> fx.GraphModule:
    """The ATen operations of `trace` (or only `ops`) as a graph module from `inputs` to `outputs`.

    `inputs` are traced tensors and symbols (expressions), `outputs` any nest of tuples and lists of traced tensors and numbers.
    Raises KeyError for a value that nothing defines.
    """
    b = Builder(trace)
    with torch._C._DisableTorchDispatch():
        for i in inputs:
            b.placeholder(i)
        for op in trace.ops if ops is None else ops:
            b.operation(op)
        return b.module(outputs, name)


def torch_level(trace: Trace, inputs: Iterable[Any], outputs: Any, name: str = "TorchGraph") -> fx.GraphModule:
    """The Torch-level calls of `trace` as a graph module: the program as the user wrote it, before decomposition and autograd."""
    b = Builder(trace)
    with torch._C._DisableTorchDispatch():
        for i in inputs:
            b.placeholder(i)
        for call in trace.torch_ops:
            torch_call(b, call)
        return b.module(outputs, name)


def torch_call(b: Builder, call: TorchOp) -> None:
    args, kwargs = tuple(map(b.argument, call.args)), {k: b.argument(v) for k, v in call.kwargs.items()}
    if isinstance(call.fn, str):
        node = b.graph.call_method(call.fn, args, kwargs)
    elif is_method(call.fn):
        node = b.graph.call_method(call.fn.__name__, args, kwargs)
    else:
        node = b.graph.call_function(call.fn, args, kwargs)
    node.meta["site"] = call.site
    node.meta["val"] = call.out
    define(b, node, call.out)


def is_method(fn: Any) -> bool:
    """Whether `fn` is a method of Tensor: `x.relu()` is recorded as the descriptor `Tensor.relu`."""
    found = getattr(torch.Tensor, getattr(fn, "__name__", ""), None)
    return found is not None and found is fn


def define(b: Builder, node: fx.Node, value: Any) -> None:
    if type(value) is TracedTensor:
        b.result(value, node)
    elif isinstance(value, SYMS) and type(value.node) is SymNode:
        b.symbols.setdefault(value.node.expr, node)
    elif isinstance(value, (tuple, list)):
        for i, v in enumerate(value):
            if any(isinstance(leaf, (TracedTensor, *SYMS)) for leaf in tree_flatten(v)[0]):
                define(b, b.graph.call_function(operator.getitem, (node, i)), v)


def readable(module: fx.GraphModule) -> str:
    """The graph as a table: opcode, name, target, args, kwargs, and the shape of the value."""
    rows = [("opcode", "name", "target", "args", "kwargs", "value")]
    for n in module.graph.nodes:
        target = n.target if isinstance(n.target, str) else getattr(n.target, "__name__", str(n.target))
        if isinstance(n.target, torch._ops.OpOverload):
            target = str(n.target)
        rows.append((n.op, n.name, str(target), str(n.args), str(n.kwargs), str(shape_text(n.meta.get("val")))))
    widths = [max(len(r[i]) for r in rows) for i in range(5)]
    lines = ["  ".join([*(c.ljust(w) for c, w in zip(r, widths)), r[5]]).rstrip() for r in rows]
    return "\n".join([lines[0], "  ".join("-" * w for w in widths), *lines[1:]])


def shape_text(value: Any) -> Any:
    if type(value) is TracedTensor:
        return str(value).partition(": ")[2]
    if isinstance(value, SYMS):
        return value.node.expr
    if isinstance(value, (tuple, list)):
        return "(" + ", ".join(str(shape_text(v)) for v in value) + ")"
    return "" if value is None else value


__all__ = ["readable", "to_fx", "torch_level"]
