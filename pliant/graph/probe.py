"""Operators whose memory layout PyTorch's meta kernels get wrong on the CPU: the layout is seen by running the operator once.

The order of the dims in memory is taken from a run on tensors of the captured sizes; the strides are then packed in that order.
These kernels choose the order from their arguments (which dims to transform) and from the order of the input's dims, never from sizes.
"""

from __future__ import annotations

from typing import Any

from torch.utils._pytree import tree_flatten, tree_map

from pliant.graph.dispatch import check, record, through_meta
from pliant.graph.originals import torch
from pliant.graph.rules.shape import key, same, strided
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
        data = torch.linspace(0.1, 1.0, span).to(x.dtype)
        return data.as_strided(sizes, strides)
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


def arranged(trace: Any, func: Any, x: TracedTensor, real: torch.Tensor) -> TracedTensor:
    """`x` with its dims in the order in which the real result has them."""
    n = len(x.sizes)
    strides: list[Any] = [0] * n
    step: Any = 1
    for d in sorted(range(n), key=lambda d: (real.stride(d), -d)):
        strides[d] = step
        step = step * x.sizes[d]
    seen = [(likely(trace, t), real.stride(d)) for d, t in enumerate(strides) if real.size(d) > 1]
    if real.numel() and any(a != b for a, b in seen):
        raise Untraceable(func, "the layout of its result cannot be told in advance")
    if all(map(same, strides, x.strides)) or not real.numel():
        return x
    return strided(trace, x.sizes, tuple(strides), x.dtype, x.device)
