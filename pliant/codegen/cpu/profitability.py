"""Single operations that are worth a kernel of their own, with nothing to fuse: where PyTorch's takes several passes or slower code.

Measured against ATen's, both called from Python, one thread: on a handful of elements the call decides, and that of a kernel with the
memory for its result takes 0.6 us, ATen's 0.8 to 4. That is tuning: results are the same either way.
"""

from __future__ import annotations

from typing import Any

import torch

from pliant.graph.operators import Column
from pliant.graph.traced import TracedTensor
from pliant.lower.lowerings.scalars import HALVES
from pliant.lower.lowerings.scatters import SCATTERS

aten = torch.ops.aten
ALWAYS = frozenset(
    getattr(aten, name).default
    for name in (
        "_softmax", "_log_softmax", "native_layer_norm", "native_layer_norm_backward", "_softmax_backward_data",
        "_log_softmax_backward_data", "gelu", "gelu_backward", "silu", "silu_backward", "tanh", "erf", "mish", "logsumexp",
        "_native_batch_norm_legit_no_training", "native_batch_norm", "native_group_norm", "native_group_norm_backward", "mse_loss", "mean",
        "constant_pad_nd", "cumsum", "cumprod", "max_pool2d_with_indices", "avg_pool2d", "argmax", "argmin", "aminmax",
    )
) | {
    aten.var.correction, aten.std.correction, aten.var_mean.correction, aten.std_mean.correction, aten.mean.dim, aten.max.dim, aten.min.dim,
}  # fmt: skip
"""At every size."""

GATHERS = frozenset((aten.index_select.default, aten.embedding.default))
"""What reads by indices, as `index` and `gather` do: 1.0 to 9 times as fast as eager (rows, columns, pairs, masks of 8 to 2,000 rows)."""

FLOATS = frozenset(
    getattr(aten, name).default for name in ("exp", "expm1", "sin", "cos", "log", "sqrt", "rsqrt", "atan", "amax", "amin")
) | {getattr(getattr(aten, name), kind) for name in ("eq", "ne", "lt", "le", "gt", "ge") for kind in ("Tensor", "Scalar")}  # fmt: skip
"""Of any floats: 1.2 to 9 times as fast as eager, comparisons of halves more."""

ARITHMETIC = frozenset(getattr(aten, name).Tensor for name in ("add", "sub", "mul", "div"))
"""The same with a number, for which eager makes a tensor; of halves; and of every other element."""

OF_HALVES = ARITHMETIC | {aten.sum.default, aten.sum.dim_IntList} | frozenset(
    getattr(aten, name).default
    for name in ("relu", "sigmoid", "maximum", "minimum", "clamp", "leaky_relu", "hardswish", "exp2", "log1p", "softplus")
)  # fmt: skip
"""Of bf16 and f16 only: 1.2 to 4 times."""


def always(op: Any) -> bool:
    return True


def of_floats(op: Any) -> bool:
    x = op.args[0] if op.args else None
    return isinstance(x, TracedTensor) and x.dtype.is_floating_point


def of_halves(op: Any) -> bool:
    return of_floats(op) and op.args[0].dtype in HALVES.values()


def with_numbers(op: Any) -> bool:
    return of_floats(op) and (not isinstance(op.args[1], TracedTensor) or any(map(every_other, op.args[:2]))) or of_halves(op)


def every_other(t: TracedTensor) -> bool:
    """Are its elements two to four apart? PyTorch moves them one by one."""
    return bool(t.strides) and type(t.strides[-1]) is int and 2 <= t.strides[-1] <= 4


def interleaves(op: Any) -> bool:
    """Along the last dim stacking interleaves; along others PyTorch's copies of whole rows are as good."""
    dim = op.args[1] if len(op.args) > 1 else op.kwargs.get("dim", 0)
    return dim in (-1, len(op.args[0][0].sizes))


def by_lines(op: Any) -> bool:
    """Is each index of `x[i, j]` of one dim? Without any elements, PyTorch's strides of what others give are its own."""
    return all(len(t.sizes) == 1 for t in op.args[1] if t is not None)


def by_longs(op: Any) -> bool:
    """PyTorch reads expanded indices of 32 bits in a way of its own."""
    return op.args[2].dtype is torch.int64


WORTH = Column("worth")
WORTH.update(dict.fromkeys(OF_HALVES, of_halves) | dict.fromkeys(ARITHMETIC, with_numbers) | dict.fromkeys(FLOATS, of_floats))
WORTH.update(dict.fromkeys((*SCATTERS, *GATHERS, *ALWAYS), always))
WORTH.update({aten.stack.default: interleaves, aten.index.Tensor: by_lines, aten.gather.default: by_longs})


def worth_a_kernel(op: Any) -> bool:
    """Is this operation faster as a kernel than as the ATen call, where nothing joins it?"""
    worth = WORTH.get(op.target)
    return worth is not None and worth(op)
