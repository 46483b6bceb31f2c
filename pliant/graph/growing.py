"""Lists that a loop on data appends to: values of a trace whose length only the run knows.

Such a list is a traced tensor whose `pytype` is `list`: at run time a list of Python's, made by the flow (`control_flow.py`) that its loop
is. Its only size is the length. Nothing reads it but the operations here, the flow, and who is given the results of the graph.

A flow's operand for such a list, and what its blocks leave in place of one, is a tuple: (the list that it goes on from or None, items...).
"""

from __future__ import annotations

from typing import Any

import torch

from pliant.graph.layout import contiguous_strides
from pliant.graph.record import Bind, Op
from pliant.graph.symnode import to_sym
from pliant.graph.traced import TracedTensor, make
from pliant.symbolic.expr import Expr

LIBRARY = torch.library.Library("pliant", "FRAGMENT")
LIBRARY.define("list_item(Tensor list, Scalar index) -> Tensor")
LIBRARY.define("list_number(Tensor list, Scalar index) -> Scalar")
LIBRARY.define("list_stack(Tensor list, Tensor[] more, int dim) -> Tensor")
LIBRARY.define("list_cat(Tensor list, Tensor[] more, int dim) -> Tensor")
LIBRARY.define("list_tensor(Tensor list, Scalar[] more, ScalarType dtype) -> Tensor")
ITEM, NUMBER, STACK, CAT, TENSOR = (getattr(torch.ops.pliant, f"list_{name}").default for name in "item number stack cat tensor".split())
READERS: frozenset[Any] = frozenset((ITEM, NUMBER, STACK, CAT, TENSOR))
"""The targets of operations that read such a list. Nobody calls them."""

CALLS: dict[Any, tuple[str, dict[str, Any]]] = {
    ITEM: ("{0}[{1}]", {}),
    NUMBER: ("{0}[{1}]", {}),
    STACK: ("_stack([*{0}, *{1}], {2})", {"_stack": torch.stack}),
    CAT: ("_cat([*{0}, *{1}], {2})", {"_cat": torch.cat}),
    TENSOR: ("_tensor([*{0}, *{1}], dtype={2})", {"_tensor": torch.tensor}),
}
"""How programs spell them."""


def is_list(t: TracedTensor) -> bool:
    return t.pytype is list


def new_size(trace: Any) -> Any:
    """A symbol for a size that each round of a loop reads anew."""
    e = trace.unbacked(int, size_like=True, lo=0)
    trace.flow_sizes.add(e.name)
    return to_sym(trace.scope, e)


def new_list(trace: Any) -> TracedTensor:
    t = make(trace, (new_size(trace),), (1,), torch.uint8, 0, None, None, True)
    t.pytype = list
    return t


def read_length(t: TracedTensor) -> str:
    """How a program reads the size of what may be a list."""
    return "__len__()" if t.pytype is list else "size(0)"


def record_reader(trace: Any, target: Any, args: tuple, out: Any, new: list[Any], site: Any) -> Any:
    """Append an operation that reads a list. `new`: the symbols that its result defines, itself or its sizes by dim (None: no new one)."""
    if type(out) is TracedTensor:
        binds = [Bind(s, 0, d) for d, s in enumerate(new) if s is not None]
    else:
        binds = [Bind(new[0], 0)]
    trace.ops.append(Op(target, args, {}, [out], None, site, -1, binds))
    return out


def from_list(trace: Any, sizes: tuple, dtype: torch.dtype, device: Any, target: Any, args: tuple, site: Any) -> TracedTensor:
    """The tensor that an operation gives: sizes that are None only the run knows."""
    known = tuple([new_size(trace) if n is None else n for n in sizes])
    offset: Any = new_size(trace) if target is ITEM else 0
    t = make(trace, known, contiguous_strides(known), dtype, offset, None, device, True)
    record_reader(trace, target, args, t, [number(k) if n is None else None for n, k in zip(sizes, known, strict=True)], site)
    if target is ITEM:  # it is the very object that was appended
        e: Expr = number(offset)
        trace.ops.append(Op(torch.ops.aten.sym_storage_offset.default, (t,), {}, [offset], None, site, -1, [Bind(e, 0)]))
        trace.flow_results.add(t.vid)
        trace.frozen.setdefault(t.storage_id, set()).add(t.storage_id)
    return t


def number(n: Any) -> Expr:
    return n.node.expr
