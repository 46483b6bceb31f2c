"""Lint of traces and graphs: what later stages take for granted. A violation is a bug of pliant, so it raises `InternalError`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import fx

from pliant.errors import InternalError
from pliant.graph.record import Op
from pliant.graph.schema import written
from pliant.graph.symnode import SYMS, SymNode
from pliant.graph.trace import Trace
from pliant.graph.traced import TracedTensor

CONSTANTS = (
    int, float, bool, complex, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Generator,
)  # fmt: skip


def fail(where: Any, why: str) -> None:
    raise InternalError(f"malformed graph: {why}, in `{where}`")


def verify_trace(trace: Trace, inputs: Iterable[Any] | None = None, outputs: Any = ()) -> None:
    """Every value is defined once and before its use, every symbol has an origin, arguments are of the kinds that a graph may hold.

    `inputs`: traced tensors and symbols (expressions) that the graph is given; by default all inputs of the trace and all backed symbols.
    """
    values: set[int] = set()
    symbols: set[Any] = set()
    given = [*trace.inputs, *trace.leaves.values()] if inputs is None else list(inputs)
    for i in given:
        if type(i) is TracedTensor:
            values.add(i.vid)
        else:
            symbols.add(i)
    if inputs is None:
        symbols.update(s for s in trace.scope.symbols.values() if s.info.backed)
    for c in trace.constants:
        if c.constant is None:
            fail(f"%{c.vid}", "a constant without data")
        values.add(c.vid)
    for op in trace.ops:
        for a in (*op.args, *op.kwargs.values()):
            check_value(trace, op, a, values, symbols)
        check_results(trace, op, values, symbols)
    check_value(trace, "outputs", outputs, values, symbols)


def check_value(trace: Trace, where: Any, x: Any, values: set[int], symbols: set[Any]) -> None:
    if type(x) is TracedTensor:
        if x.trace is not trace:
            fail(where, f"%{x.vid} belongs to another trace")
        if x.vid not in values:
            fail(where, f"%{x.vid} is used before it is defined")
    elif isinstance(x, SYMS):
        if type(x.node) is not SymNode or x.node.scope is not trace.scope:
            fail(where, f"{x.node} is not a number of this capture")
        missing = [s for s in x.node.expr.symbols() if s not in symbols]
        if missing:
            fail(where, f"the symbols {missing} have no origin before this use")
    elif isinstance(x, (list, tuple)):
        for v in x:
            check_value(trace, where, v, values, symbols)
    elif isinstance(x, torch.Tensor):
        fail(where, f"a real {type(x).__name__} among the arguments")
    elif not isinstance(x, CONSTANTS):
        fail(where, f"an argument of type {type(x).__name__}")


def check_results(trace: Trace, op: Op, values: set[int], symbols: set[Any]) -> None:
    if not isinstance(op.target, torch._ops.OpOverload):
        fail(op, f"the target is a {type(op.target).__name__}, not an ATen operator")
    for b in op.binds:
        if b.symbol in symbols:
            fail(op, f"{b.symbol} is defined twice")
        symbols.add(b.symbol)
        if b.dim is not None and op.outs[b.out].sizes[b.dim].node.expr is not b.symbol:
            fail(op, f"{b.symbol} is not size {b.dim} of result {b.out}")
    for o in op.outs:
        if type(o) is TracedTensor:
            if o.vid in values and not any(o is w for w in written(op)):
                fail(op, f"%{o.vid} is defined twice")
            values.add(o.vid)
            for s in (*o.sizes, *o.strides, o.offset):
                if isinstance(s, SYMS):
                    check_value(trace, op, s, values, symbols)
                elif type(s) is not int:
                    fail(op, f"a size of type {type(s).__name__}")


def verify_module(module: fx.GraphModule) -> None:
    """The same for a graph module: fx's own lint, and a value on every node."""
    module.graph.lint()
    for n in module.graph.nodes:
        if n.op in ("placeholder", "get_attr") and "val" not in n.meta:
            fail(n.format_node(), "no meta['val']")
        if n.op == "get_attr" and not isinstance(getattr(module, n.target, None), torch.Tensor):
            fail(n.format_node(), "the attribute is not a tensor")
