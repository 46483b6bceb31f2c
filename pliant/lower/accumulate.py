"""Rows of gradients that are added to a gradient that is there, as of a table of embeddings whose weights a projection uses too.

Autograd makes a new gradient of the whole table, mostly zeros, and adds the two. Here the rows go into the one that is there, where nobody
else reads it: two passes over the table and its memory are saved. Each row is added to what the projection said, not that to the sum of
the rows: the same numbers in another order.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import torch

from pliant.graph.record import Op
from pliant.graph.traced import TracedTensor, make
from pliant.lower import liveness, views
from pliant.lower.pattern_fusion import Matcher
from pliant.lower.program import Program
from pliant.lower.restriding import renamed

aten = torch.ops.aten
DTYPES = (torch.float32, torch.float64)


def accumulate(p: Program) -> list[Any]:
    """The operations, with sums of a tensor and the gradient of a table as rows added to that tensor in place."""
    if not any(op.target is aten.embedding_dense_backward.default for op in p.steps):
        return p.steps
    m = Matcher(p)
    memory: dict[int, set[int]] = defaultdict(set)  # storage -> the tensors that share it
    for op in p.steps:
        for t in (*liveness.op_inputs(op), *liveness.op_outputs(op)):
            memory[t.storage_id].add(t.vid)
    out: list[Any] = []
    gone: set[int] = set()
    for op in p.steps:
        found = rows_of(m, memory, op) if op.target is aten.add.Tensor and not op.kwargs and len(op.args) == 2 else None
        if found is None:
            out.append(op)
            continue
        x, table = found
        gone.add(id(table))
        result = op.outs[0]  # from now on this is what x was: nobody else reads it
        first = next(i for i, made in enumerate(out) if any(t is x for t in made.outs))
        out[first:] = [renamed(made, x, result) for made in out[first:]]
        out += in_place(op, result, *table.args[:2])
        memory[result.storage_id] = {result.vid}
    return [op for op in out if id(op) not in gone]


def rows_of(m: Matcher, memory: dict[int, set[int]], op: Any) -> tuple[TracedTensor, Any] | None:
    """(the tensor that rows are added to, the operation that would make a table of them), if the sum `op` is one of these."""
    a, b = op.args
    result = op.outs[0]
    for x, y in ((a, b), (b, a)):
        table = m.made_by(y, aten.embedding_dense_backward.default)
        if table is None or not isinstance(x, TracedTensor) or not m.private(x) or not m.private(y) or memory[x.storage_id] != {x.vid}:
            continue
        grad, index, _, padding, by_frequency = table.args
        maker = m.makers.get(x.vid)
        fresh = maker is not None and views.view_base(maker) is None and x.source is None and x.constant is None
        alike = x.dtype is y.dtype is grad.dtype and x.dtype in DTYPES and x.dense and result.dense and grad.dense and index.dense
        known = type(padding) is int and padding < 0 and by_frequency is False
        same = len(x.sizes) == len(result.sizes) and all(map(m.same, x.sizes, result.sizes)) and all(map(m.same, y.sizes, result.sizes))
        if fresh and alike and known and same and m.clean(grad, index, x, y):
            return x, table
    return None


def in_place(op: Any, x: TracedTensor, grad: TracedTensor, index: TracedTensor) -> list[Any]:
    """The operations that add rows of `grad` to those of `x`, in place of `op`."""
    n: Any = 1
    for s in index.sizes:
        n = n * s
    width = grad.sizes[-1]
    rows = make(grad.trace, (n, width), (width, 1), grad.dtype, grad.offset, grad.storage_id, grad.device, grad.dense)
    flat = make(index.trace, (n,), (1,), index.dtype, index.offset, index.storage_id, index.device, index.dense)
    return [
        Op(aten.view.default, (grad, rows.sizes), {}, [rows], None, op.site, -1),
        Op(aten.view.default, (index, flat.sizes), {}, [flat], None, op.site, -1),
        Op(aten.index_add_.default, (x, 0, flat, rows), {}, [x], None, op.site, -1),
    ]
