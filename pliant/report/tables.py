"""A captured graph as a table: opcode, name, target, args, kwargs, one line an operation.

A graph comes as a `torch.fx.Graph`, or as a trace, whose Torch-level record is turned into one. That graph is for reading only:
inputs are named after their sources, sizes are printed as expressions, and what nothing defines is shown as it is. (The one that
backends get is made by `graph.fxgraph.torch_level`.)
"""

from __future__ import annotations

import operator
import re
import types
from collections.abc import Iterable, Sequence
from typing import Any

import torch
import torch.fx
from torch.fx.node import map_aggregate

HEADER = ("opcode", "name", "target", "args", "kwargs")
WIDEST = 60  # characters of one column


class Symbolic(str):
    """A symbolic number or an object in the arguments, printed without quotes."""

    def __repr__(self) -> str:
        return str(self)


def text_table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Columns with a rule under the header, two blanks apart."""
    cells = [list(map(str, header)), *([clip(str(c)) for c in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    cells.insert(1, ["-" * w for w in widths])
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(row, widths)).rstrip() for row in cells)


def clip(text: str, width: int = WIDEST) -> str:
    """One line of at most `width` characters."""
    text = " ".join(text.split())
    return text if len(text) <= width else text[: width - 1] + "…"


def graph_table(graph: Any, outputs: Sequence[Any] | None = None) -> str:
    """The table of an `fx.Graph` or of a trace (`outputs`: what a traced graph returns, if known)."""
    if not isinstance(graph, torch.fx.Graph):
        graph = fx_graph(graph, outputs)
    return text_table(HEADER, ((n.op, n.name, target(n.target), n.args, n.kwargs) for n in graph.nodes))


def target(value: Any) -> str:
    """A target as one recognizes it: `<built-in method abs>`, `add`, `aten.mm.default`."""
    if isinstance(value, types.BuiltinFunctionType):
        return f"<built-in function {value.__name__}>"
    return str(getattr(value, "__name__", value)) if isinstance(value, types.FunctionType) else str(value)


# -- from a trace ------------------------------------------------------------------------------------------
class Naming:
    """What each traced tensor is called in the graph under construction. A call that returns several tensors is taken apart on demand."""

    def __init__(self, graph: torch.fx.Graph) -> None:
        self.graph = graph
        self.nodes: dict[int, Any] = {}
        self.parts: dict[int, tuple[torch.fx.Node, int]] = {}

    def value(self, x: Any) -> Any:
        """A leaf of some arguments: the node of a tensor, a number, or the text of anything else."""
        vid = getattr(x, "vid", None)
        if vid is None:
            node = getattr(x, "node", None) if isinstance(x, (torch.SymInt, torch.SymFloat, torch.SymBool)) else None
            return Symbolic(getattr(node, "expr", x)) if node is not None else x
        if vid in self.parts:
            whole, i = self.parts.pop(vid)
            self.nodes[vid] = self.graph.call_function(operator.getitem, (whole, i))
        return self.nodes.get(vid, Symbolic(f"%{vid}"))

    def arguments(self, args: Any) -> Any:
        return map_aggregate(plain(args), self.value)

    def result(self, out: Any, node: torch.fx.Node) -> None:
        """`node` computes `out`, a tensor or a sequence of tensors."""
        if getattr(out, "vid", None) is not None:
            self.nodes[out.vid] = node
            self.parts.pop(out.vid, None)
        elif isinstance(out, (tuple, list)):
            for i, x in enumerate(out):
                if getattr(x, "vid", None) is not None:
                    self.nodes.pop(x.vid, None)
                    self.parts[x.vid] = (node, i)


def plain(args: Any) -> Any:
    """Arguments without subclasses of containers (`torch.Size`, named tuples, ordered dicts), which fx would try to rebuild."""
    if isinstance(args, tuple):
        return tuple(plain(a) for a in args)
    if isinstance(args, list):
        return [plain(a) for a in args]
    if isinstance(args, dict):
        return {k: plain(v) for k, v in args.items()}
    return args


def fx_graph(trace: Any, outputs: Sequence[Any] | None = None) -> torch.fx.Graph:
    """The Torch-level record of a trace as an `fx.Graph`, for reading: un-normalized, before autograd, no `output` unless it is known."""
    graph = torch.fx.Graph()
    names = Naming(graph)
    for x in trace.inputs:
        names.result(x, graph.placeholder(input_name(x)))
    for op in trace.torch_ops:
        args, kwargs = names.arguments(tuple(op.args)), names.arguments(dict(op.kwargs))
        if isinstance(op.fn, (types.MethodDescriptorType, types.WrapperDescriptorType)):
            node = graph.call_method(op.fn.__name__, args, kwargs)
        else:
            node = graph.call_function(op.fn, args, kwargs)
        names.result(op.out, node)
    if outputs is not None:
        graph.output(names.arguments(tuple(outputs)))
    return graph


def input_name(x: Any) -> str:
    """`L['self'].layers[0].weight` -> `self_layers_0_weight`."""
    source = getattr(getattr(x, "source", None), "name", None) or f"arg{x.vid}"
    name = re.sub(r"\W+", "_", re.sub(r"\b[LG](?=\[)", "", source)).strip("_")
    return name if name.isidentifier() else f"arg_{name}"
