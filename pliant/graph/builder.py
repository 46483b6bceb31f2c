"""Growing a `torch.fx.Graph` from traced values: which node stands for which tensor, and which computes which size.

Placeholders come first: tensors and symbols. Sizes that are expressions become calls of Python operators on the placeholders (or
`sym_size` calls for symbols that the graph itself defines). Every node has its traced value in `meta["val"]` and the user's line in
`meta["site"]`.
"""

from __future__ import annotations

import keyword
import math
from collections.abc import Callable
from typing import Any

from torch import fx

from pliant.graph.originals import operator, torch
from pliant.graph.record import Bind, Op
from pliant.graph.symnode import SYMS, SymNode, to_sym
from pliant.graph.trace import Trace
from pliant.graph.traced import TracedTensor
from pliant.symbolic.expr import TABLE, Expr

#: The Python function of a scalar operator, where the operator table's own would not print well in generated code.
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "neg": operator.neg, "floordiv": operator.floordiv,
    "mod": operator.mod, "truediv": operator.truediv, "int_truediv": operator.truediv, "pow": operator.pow, "int_pow": operator.pow,
    "abs": operator.abs, "min": torch.sym_min, "max": torch.sym_max, "not": torch.sym_not, "where": torch.sym_ite,
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
    "and": operator.and_, "or": operator.or_, "to_float": torch.sym_float, "floor": math.floor, "ceil": math.ceil, "trunc": math.trunc,
}  # fmt: skip


def positional(op: Op) -> tuple[list[Any], dict[str, Any]]:
    """The arguments of an operation with as many by place as its schema has by place."""
    given, named = list(op.args), dict(op.kwargs)
    for a in op.target._schema.arguments[len(given) :]:
        if a.kwarg_only:
            break
        given.append(named.pop(a.name, a.default_value))
    return given, named


class Undefined(KeyError):
    """A value that neither an input nor an operation of the graph defines: a traced tensor, or a symbol."""

    def __init__(self, value: Any, text: str) -> None:
        super().__init__(text)
        self.value = value


class Builder:
    """Grows one graph. `values` maps vids to nodes, `symbols` maps expressions to nodes."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.graph = fx.Graph()
        self.values: dict[int, fx.Node] = {}
        self.symbols: dict[Expr, fx.Node] = {}
        self.constants: dict[str, torch.Tensor] = {}
        self.modules: dict[str, fx.GraphModule] = {}
        self.numbers: dict[int, fx.Node] = {}  # the results of the operation at hand, by their place

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
                equal = self.trace.scope.simplify(e)
                if equal is e:
                    raise Undefined(e, f"no input and no operation of the graph defines the size symbol {e}")
                return self.number(equal)
            node = self.total(e) if e.op == "sum" else self.apply(e)
            if not isinstance(node, fx.Node):
                return node
            node.meta["val"] = to_sym(self.trace.scope, e)
            self.symbols[e] = node
        return node

    def apply(self, e: Expr) -> fx.Node:
        fn = FUNCTIONS.get(e.op) or TABLE[e.op].fn
        args = [self.number(a) for a in e.args]
        if e.op == "bool_to_int":
            return self.graph.call_function(torch.sym_ite, (args[0], 1, 0))
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
                    raise Undefined(x, f"%{x.vid} is neither an input nor the result of an operation")
                node = self.constant(x)
            return node
        if isinstance(x, SYMS) and type(x.node) is SymNode:
            return self.number(x.node.expr)
        if isinstance(x, Expr):
            return self.number(x)
        if isinstance(x, (list, tuple)):
            return list(map(self.argument, x)) if isinstance(x, list) else tuple(map(self.argument, x))
        if isinstance(x, dict):
            return {k: self.argument(v) for k, v in x.items()}
        if type(x) is slice:
            return slice(self.argument(x.start), self.argument(x.stop), self.argument(x.step))
        return self.plain(x)

    def plain(self, x: Any) -> Any:
        """An argument that is neither a value of the trace nor a nest of them."""
        return x

    def operation(self, op: Op) -> fx.Node:
        """Append an ATen operation and what it defines. Returns its node."""
        target: Any = op.target
        given: Any = op.args
        named: Any = op.kwargs
        if keyword.iskeyword(target._overloadname):  # `from` of `random_`: no line of Python says so
            target = target.overloadpacket
        if any(map(keyword.iskeyword, named)):
            given, named = positional(op)
        args = tuple(self.argument(a) for a in given)
        node = self.graph.call_function(target, args, {k: self.argument(v) for k, v in named.items()})
        node.meta["site"] = op.site
        self.numbers = {0: node}
        if op.out_spec is None:
            self.result(op.outs[0], node)
        elif op.out_spec == "flat":
            node.meta["val"] = tuple(op.outs)
            for i, o in enumerate(op.outs):
                if o is not None:
                    part = self.numbers[i] = self.graph.call_function(operator.getitem, (node, i))
                    self.result(o, part)
        else:
            node.meta["val"] = op.out_spec.unflatten(op.outs)
            self.nested(node, node.meta["val"])
        for b in op.binds:
            self.bind(op, b)
        return node

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
            self.symbols[b.symbol] = self.numbers[b.out]
            return
        node = self.graph.call_function(torch.ops.aten.sym_size.int, (self.values[out.vid], b.dim))
        node.meta["val"] = to_sym(self.trace.scope, b.symbol)
        self.symbols[b.symbol] = node

    def module(self, outputs: Any, name: str) -> fx.GraphModule:
        made = self.module_of_nodes(self.argument(outputs), name)
        next(reversed(made.graph.nodes)).meta["val"] = outputs
        return made

    def module_of_nodes(self, outputs: Any, name: str) -> fx.GraphModule:
        self.graph.output(outputs)
        root = torch.nn.Module()
        for attr, data in self.constants.items():
            root.register_buffer(attr, data, persistent=False)
        for attr, module in self.modules.items():
            root.add_module(attr, module)
        return fx.GraphModule(root, self.graph, name)

    def held(self, module: fx.GraphModule) -> str:
        """The name of an attribute of the graph's module, which this is from here on."""
        name = f"side_{len(self.modules)}"
        self.modules[name] = module
        return name
