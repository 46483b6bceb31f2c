"""Operators that give a tensor object other sizes or strides in place (`squeeze_`, `t_`, `unsqueeze_`), as views.

What came before such an operator and what comes after it see one object with two layouts, which no other pass could tell apart. So where
nobody outside has the object, it is taken for two: the old one, and the new one, a view of it. Operators that only change strides of dims
of size 1, as adaptive pooling does, need no such care (`liveness.restrides`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import torch

from pliant.graph.dispatch import is_dense
from pliant.graph.traced import TracedTensor, make
from pliant.lower import liveness
from pliant.lower.cse import swap

AS_STRIDED = torch.ops.aten.as_strided.default


def as_views(trace: Any, ops: list[Any], outputs: Iterable[Any]) -> list[Any]:
    """The operations, with views in place of those that restride tensors without history that nobody outside has."""
    if not liveness.any_restrides(ops):
        return ops
    seen = {t.vid for t in liveness.tensors_of(list(outputs))} | {t.vid for t in trace.inputs}
    out = list(ops)
    for i in reversed(range(len(out))):
        op = out[i]
        if op.before is None or op.target._schema.name not in liveness.RESTRIDERS or not liveness.restrides(op):
            continue
        x = op.outs[0]
        if x.vid in seen or x.source is not None or x.constant is not None or x.requires_grad:
            continue
        sizes, strides, offset = op.before
        old = make(trace, sizes, strides, x.dtype, offset, x.storage_id, x.device, is_dense(sizes, strides))
        for j in range(i):
            out[j] = renamed(out[j], x, old)
        out[i] = replace(op, target=AS_STRIDED, args=(old, x.sizes, x.strides, x.offset), kwargs={}, outs=[x], before=None)
    return out


def renamed(op: Any, x: TracedTensor, old: TracedTensor) -> Any:
    """`op` with `old` in place of `x`."""
    if not any([t is x for t in (*liveness.op_inputs(op), *op.outs)]):
        return op
    same = {x.vid: old}
    return replace(op, args=swap(op.args, same), kwargs=swap(op.kwargs, same), outs=list(swap(op.outs, same)))
