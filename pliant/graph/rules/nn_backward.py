"""Gradients of layers, for row-major inputs: each gradient is laid out as a new tensor. (PyTorch's own shape functions decompose
these operators, and ask about sizes that the program never compared.)"""

from __future__ import annotations

from typing import Any

from pliant.graph.rules.nn import WHOLE_FLOATS, plain_floats, suggests_channels_last
from pliant.graph.rules.shape import channels_last_strides, new, preserved_strides, same, strided
from pliant.graph.rules.table import rule
from pliant.graph.symnode import expr_of
from pliant.graph.traced import TracedTensor
from pliant.symbolic import ops


def plain(*tensors: Any) -> bool:
    """Row-major tensors of one full-precision type, on the CPU; None is fine."""
    real = [t for t in tensors if t is not None]
    return all([t.dense and t.dtype is real[0].dtype and t.dtype in WHOLE_FLOATS and t.device.type == "cpu" for t in real])


def gradients(trace: Any, wanted: list, *like: tuple | None) -> Any:
    """New tensors of the sizes in `like` = (tensor, sizes), None where not wanted."""
    return tuple(new(trace, of[1], of[0].dtype, of[0].device) if w and of is not None else None for w, of in zip(wanted, like))


@rule("_ctc_loss_backward.Tensor")
def ctc_loss(trace: Any, grad: TracedTensor, log_probs: TracedTensor, *args: Any) -> Any:
    return new(trace, log_probs.sizes, log_probs.dtype, log_probs.device)


@rule("native_group_norm_backward")
def group_norm_backward(
    trace: Any, grad: TracedTensor, x: TracedTensor, mean: Any, rstd: Any, weight: Any, n: Any, c: Any, hw: Any, group: Any, mask: list
) -> Any:
    if not plain(grad, x, mean, rstd, weight):
        return NotImplemented
    return gradients(trace, mask, (x, x.sizes), (x, (c,)), (x, (c,)))


@rule("native_batch_norm_backward")
def batch_norm_backward(
    trace: Any, grad: TracedTensor, x: TracedTensor, weight: Any, mean: Any, var: Any, save_mean: Any, save_invstd: Any, train: bool,
    eps: float, mask: list,
) -> Any:  # fmt: skip
    if len(x.sizes) < 2 or not plain_floats(x, grad, weight, mean, var):
        return NotImplemented
    stat = (x.sizes[1],)
    first, scale, shift = gradients(trace, mask, (x, x.sizes), (x, stat), (x, stat))
    if first is not None and len(x.sizes) in (4, 5) and suggests_channels_last(trace, x):
        first = strided(trace, x.sizes, channels_last_strides(x.sizes), x.dtype, x.device)
    return first, scale, shift


@rule("convolution_backward")
def convolution_backward(
    trace: Any, grad: TracedTensor, x: TracedTensor, weight: TracedTensor, bias_sizes: Any, stride: list, padding: list, dilation: list,
    transposed: bool, output_padding: list, groups: int, mask: list,
) -> Any:  # fmt: skip
    if not plain(grad, x, weight):
        return NotImplemented
    features = weight.sizes[1] * groups if transposed else weight.sizes[0]
    return gradients(trace, mask, (x, x.sizes), (weight, weight.sizes), (grad, (features,)))


@rule("max_pool2d_with_indices_backward", "avg_pool2d_backward", "_adaptive_avg_pool2d_backward")
def pool_backward(trace: Any, grad: TracedTensor, x: TracedTensor, *args: Any, **kwargs: Any) -> Any:
    return new(trace, x.sizes, x.dtype, x.device) if plain(grad, x) else NotImplemented


def known(trace: Any, m: Any, n: Any) -> bool:
    """Whether two sizes are known to be the same."""
    return same(m, n) or bool(trace.scope.known_true(ops.eq(expr_of(m, trace.scope), expr_of(n, trace.scope))))


@rule("mse_loss_backward", "smooth_l1_loss_backward", "huber_loss_backward")
def loss_backward(trace: Any, grad: TracedTensor, x: TracedTensor, target: TracedTensor, *args: Any) -> Any:
    """PyTorch's own, written with operators, divides by the number of elements, which may be none."""
    alike = len(x.sizes) == len(target.sizes) and all([known(trace, m, n) for m, n in zip(x.sizes, target.sizes)])
    empty = grad.dtype is x.dtype is target.dtype and any([known(trace, n, 0) for n in x.sizes])
    return new(trace, x.sizes, x.dtype, x.device) if alike and (empty or of_one_type(grad, x, target)) else NotImplemented


def of_one_type(*tensors: TracedTensor) -> bool:
    """As `plain`, in any layout."""
    first = tensors[0]
    return first.dtype in WHOLE_FLOATS and all([t.dtype is first.dtype and t.device.type == "cpu" for t in tensors])


def alike_in_all(trace: Any, x: TracedTensor, *others: TracedTensor) -> bool:
    return all([len(x.sizes) == len(o.sizes) and all([known(trace, m, n) for m, n in zip(x.sizes, o.sizes)]) for o in others])


@rule("binary_cross_entropy")
def cross_entropy(trace: Any, x: TracedTensor, target: TracedTensor, weight: Any = None, reduction: Any = 1) -> Any:
    """Its kernels write to what they make like their input."""
    if reduction != 0 or weight is not None or not of_one_type(x, target) or not alike_in_all(trace, x, target):
        return NotImplemented
    return strided(trace, x.sizes, preserved_strides(trace, x), x.dtype, x.device)


@rule("binary_cross_entropy_backward")
def cross_entropy_backward(
    trace: Any, grad: TracedTensor, x: TracedTensor, target: TracedTensor, weight: Any = None, reduction: Any = 1
) -> Any:
    if weight is not None or not of_one_type(grad, x, target) or not alike_in_all(trace, x, target):
        return NotImplemented
    return strided(trace, x.sizes, preserved_strides(trace, x), x.dtype, x.device)


@rule("fractional_max_pool3d_backward", "multilabel_margin_loss_backward", "multi_margin_loss_backward", "_ctc_loss_backward")
def like_input(trace: Any, grad: TracedTensor, x: TracedTensor, *args: Any, **kwargs: Any) -> Any:
    """Gradients for which PyTorch has no shape function: a row-major tensor of the input's sizes."""
    return new(trace, x.sizes, x.dtype, x.device)
