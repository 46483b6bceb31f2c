"""Operators whose results PyTorch's meta kernels get wrong on the CPU: how they lie, or their sizes, is seen by running the operator once.

The order of the dims in memory is taken from a run on tensors of the captured sizes; the strides are then packed in that order.
These kernels choose the order from their arguments (which dims to transform) and from the order of the input's dims, never from sizes.
"""

from __future__ import annotations

from typing import Any

from torch.utils._pytree import tree_flatten, tree_map

from pliant.graph.dispatch import check, record, through_meta
from pliant.graph.originals import ORIGINAL, torch
from pliant.graph.rules.shape import key, new, same, strided
from pliant.graph.rules.table import handler
from pliant.graph.traced import TracedTensor, Untraceable


def likely(trace: Any, v: Any) -> int:
    """A plausible value of a size."""
    return v if type(v) is int else int(trace.scope.optimization_hint(key(v), 3))


def example(trace: Any, x: Any) -> Any:
    """A real tensor that looks like `x`; other arguments as they are (symbolic ones with plausible values)."""
    if type(x) is TracedTensor:
        sizes, strides = [[likely(trace, v) for v in vs] for vs in (x.sizes, x.strides)]
        span = 1 + sum((s - 1) * t for s, t in zip(sizes, strides)) if 0 not in sizes else 0
        data = ORIGINAL.to(torch.linspace(0.1, 1.0, span), x.dtype)
        return ORIGINAL.as_strided(data, sizes, strides)
    return likely(trace, x) if type(x) is torch.SymInt else x


@handler("_fft_r2c", "_fft_c2r", "_fft_c2c", "linalg_eig", "_linalg_svd", "max_unpool2d")
def probed(trace: Any, func: Any, args: tuple, kwargs: dict) -> Any:
    check(trace, func, args)
    out = through_meta(trace, func, args, kwargs)
    with torch._C._DisableTorchDispatch():
        real = func(*tree_map(lambda x: example(trace, x), args), **tree_map(lambda x: example(trace, x), kwargs))
    fixed = iter([arranged(trace, func, t, r) for t, r in zip(tree_flatten(out)[0], tree_flatten(real)[0])])
    out = tree_map(lambda _: next(fixed), out)
    record(trace, func, args, kwargs, out)
    return out


ROWS, WIDTH, INDICES, OFFSETS = 7, 4, 5, 3
"""Sizes of which each can be told from the others."""


@handler("_embedding_bag", "_embedding_bag_forward_only")
def bags(trace: Any, func: Any, args: tuple, kwargs: dict) -> Any:
    """Sizes of what is kept for the gradient: they follow from the mode, the dtype and how the table lies, never from its size."""
    check(trace, func, args)
    out = through_meta(trace, func, args, kwargs)  # which refuses operands that do not fit
    names = [a.name for a in func._schema.arguments]
    more = {**dict(zip(names, args)), **kwargs}
    weight, indices, offsets = (more.pop(name) for name in names[:3])
    if weight.device.type != "cpu" or [len(t.sizes) for t in (weight, indices, offsets)] != [2, 1, 1]:
        record(trace, func, args, kwargs, out)
        return out
    twins = [torch.zeros(n, dtype=t.dtype) for n, t in zip(((ROWS, WIDTH), (INDICES,), (OFFSETS,)), (weight, indices, offsets))]
    if not same(weight.strides[1], 1):
        twins[0] = ORIGINAL.t(torch.zeros(WIDTH, ROWS, dtype=weight.dtype))
    if (scale := more.get("per_sample_weights")) is not None:
        more["per_sample_weights"] = ORIGINAL.as_strided(torch.zeros(2 * INDICES, dtype=scale.dtype),
            (INDICES,), (1 if same(scale.strides[0], 1) else 2,)
        )
    if more.get("padding_idx", -1) >= 0:
        more["padding_idx"] = 0
    with torch._C._DisableTorchDispatch():
        real = func(*twins, **more)
    size = {0: 0, WIDTH: weight.sizes[1], INDICES: indices.sizes[0], OFFSETS: offsets.sizes[0], OFFSETS - 1: offsets.sizes[0] - 1}
    out = tuple([new(trace, tuple([size[n] for n in r.shape]), r.dtype, weight.device) for r in real])
    record(trace, func, args, kwargs, out)
    return out


def arranged(trace: Any, func: Any, x: TracedTensor, real: torch.Tensor) -> TracedTensor:
    """`x` with its dims in the order in which the real result has them."""
    n = len(x.sizes)
    strides: list[Any] = [0] * n
    step: Any = 1
    for d in sorted(range(n), key=lambda d: (ORIGINAL.stride(real, d), -d)):
        strides[d] = step
        step = step * x.sizes[d]
    seen = [(likely(trace, t), ORIGINAL.stride(real, d)) for d, t in enumerate(strides) if ORIGINAL.size(real, d) > 1]
    if ORIGINAL.numel(real) and any(a != b for a, b in seen):
        raise Untraceable(func, "the layout of its result cannot be told in advance")
    if all(map(same, strides, x.strides)) or not ORIGINAL.numel(real):
        return x
    return strided(trace, x.sizes, tuple(strides), x.dtype, x.device)
