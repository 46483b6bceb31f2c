"""Giving a tensor object of a trace other memory (`t.data = u`, `t.set_(u)`): before and behind that it is two values of the graph.

What was recorded keeps the old value, under the old number; the object gets a new one. The tape of autograd holds the object, as in eager.
"""

from __future__ import annotations

from typing import Any

import torch

from pliant.graph.dispatch import record, twin
from pliant.graph.traced import TracedTensor

DETACH = torch.ops.aten.detach.default


def exchanged(value: Any, x: TracedTensor, old: TracedTensor) -> Any:
    """`value` with `old` in the place of `x`; the same object where `x` is not in there."""
    if value is x:
        return old
    t = type(value)
    if t in (list, tuple, torch.Size):
        items = [exchanged(v, x, old) for v in value]
        return value if all([a is b for a, b in zip(items, value, strict=True)]) else t(items)
    if t is dict:
        found = {k: exchanged(v, x, old) for k, v in value.items()}
        return value if all([found[k] is v for k, v in value.items()]) else found
    if t is slice:
        parts = [exchanged(v, x, old) for v in (value.start, value.stop, value.step)]
        return slice(*parts) if any([p is old for p in parts]) else value
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return t(*[exchanged(v, x, old) for v in value])
    return value


def rebind(trace: Any, x: TracedTensor, u: TracedTensor) -> TracedTensor:
    """Make `x` a tensor over the memory of `u`, laid out as `u` is. Returns what stands for `x` as it was."""
    old = twin(x)
    old.vid, x.vid = x.vid, old.vid
    if old.storage_id == x.vid:
        raise AssertionError("a new tensor has no memory of its own")
    for op in trace.ops:
        args, kwargs, outs = exchanged(op.args, x, old), exchanged(op.kwargs, x, old), exchanged(op.outs, x, old)
        if args is not op.args or kwargs is not op.kwargs or outs is not op.outs:
            op.args, op.kwargs, op.outs, op.reads = args, kwargs, outs, None
    for way in (*trace.exits, *trace.marks):
        way.values = exchanged(way.values, x, old)
    for call in trace.torch_ops:
        call.args, call.kwargs, call.out = exchanged(call.args, x, old), exchanged(call.kwargs, x, old), exchanged(call.out, x, old)
    if old.vid in trace.own_leaves:
        trace.own_leaves.add(x.vid)
        trace.rebound_leaves.add(x.vid)
    with torch._C._DisableTorchDispatch():
        x.data = twin(u)
    x.sizes, x.strides, x.offset, x.dense, x.storage_id, x.meta = u.sizes, u.strides, u.offset, u.dense, u.storage_id, None
    record(trace, DETACH, (u,), {}, x)
    return old
