"""A trace as a `torch.fx.GraphModule` of its ATen operations: for logs, and as the form in which graphs are saved and verified.

Placeholders come first, in the order of `inputs`: tensors and size symbols (`builder.py`). The program as the user wrote it, which is
what backends get, is `torch_graph.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import fx

from pliant.graph.builder import Builder
from pliant.graph.record import Op
from pliant.graph.symnode import SYMS
from pliant.graph.torch_graph import torch_level
from pliant.graph.trace import Trace
from pliant.graph.traced import TracedTensor


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
