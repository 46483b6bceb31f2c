"""Layers: normalization, convolution, pooling, losses, and their gradients."""

from __future__ import annotations

from typing import Any

import torch

from pliant.graph import symnode
from pliant.graph.layout import has_channels_last_strides, is_declared, is_open
from pliant.graph.originals import math
from pliant.graph.rules.misfits import misfit, one_size
from pliant.graph.rules.shape import (
    channels_last_strides,
    holds,
    is_packed,
    key,
    less,
    new,
    preserved_strides,
    require_equal,
    same,
    strided,
)
from pliant.graph.rules.table import add, aten, rule
from pliant.graph.traced import TracedTensor, Untraceable
from pliant.symbolic import ops

WHOLE_FLOATS = (torch.float32, torch.float64)


def statistics(x: TracedTensor, *params: Any) -> torch.dtype | None:
    """The dtype of the mean and the like; None if operands of these dtypes are for PyTorch's own shape functions, or errors.

    On the CPU a half with parameters in `float32` has such statistics, else those are halves too. (The shape functions disagree.)
    """
    found = {t.dtype for t in params if t is not None}
    if x.dtype in (torch.bfloat16, torch.float16) and x.device.type == "cpu" and found == {torch.float32}:
        return torch.float32
    known = x.dtype in WHOLE_FLOATS or x.dtype in (torch.bfloat16, torch.float16) and x.device.type == "cpu"
    return x.dtype if known and found <= {x.dtype} else None


def shaped(trace: Any, shape: Any, *params: Any) -> bool:
    """Whether parameters, those that are there, have this shape, as eager demands: of sizes that only a call knows, a fact from here on."""
    return all([
        t is None or (len(t.sizes) == len(shape) and all([require_equal(trace, a, b) for a, b in zip(t.sizes, shape)])) for t in params
    ])  # fmt: skip


@rule("fake_quantize_per_tensor_affine_cachemask", "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams")
def fake_quantize(trace: Any, x: TracedTensor, *args: Any) -> Any:
    strides = preserved_strides(trace, x)
    return strided(trace, x.sizes, strides, x.dtype, x.device), strided(trace, x.sizes, strides, torch.bool, x.device)


@rule("native_layer_norm")
def layer_norm(trace: Any, x: TracedTensor, normalized_shape: list, weight: Any, bias: Any, eps: float) -> Any:
    n = len(x.sizes) - len(normalized_shape)
    of = statistics(x, weight, bias)
    if n < 0 or not normalized_shape or of is None:
        return NotImplemented
    if not all([require_equal(trace, a, b) for a, b in zip(x.sizes[n:], normalized_shape)]):
        return NotImplemented
    if not shaped(trace, normalized_shape, weight, bias):
        return NotImplemented
    stat = (*x.sizes[:n], *(1,) * len(normalized_shape))
    return new(trace, x.sizes, x.dtype, x.device), new(trace, stat, of, x.device), new(trace, stat, of, x.device)


@rule("native_layer_norm_backward")
def layer_norm_backward(
    trace: Any, grad: TracedTensor, x: TracedTensor, normalized_shape: list, mean: Any, rstd: Any, weight: Any, bias: Any, mask: list
) -> Any:
    if x.dtype not in WHOLE_FLOATS:
        return NotImplemented
    shape = tuple(normalized_shape)
    return (
        new(trace, x.sizes, x.dtype, x.device) if mask[0] else None,
        new(trace, shape, weight.dtype, x.device) if mask[1] and weight is not None else None,
        new(trace, shape, bias.dtype, x.device) if mask[2] and bias is not None else None,
    )


@rule("native_group_norm")
def group_norm(trace: Any, x: TracedTensor, weight: Any, bias: Any, n: Any, c: Any, hw: Any, group: int, eps: float) -> Any:
    of = statistics(x, weight, bias)
    if not require_equal(trace, math.prod(x.sizes), n * c * hw) or not shaped(trace, (c,), weight, bias):
        return misfit(trace, torch.ops.aten.native_group_norm.default, x, weight, bias, n, c, hw, group, eps)
    if not x.dense or of is None:
        return NotImplemented
    stat = (n, group)
    return new(trace, x.sizes, x.dtype, x.device), new(trace, stat, of, x.device), new(trace, stat, of, x.device)


def batch_norm(trace: Any, x: TracedTensor, training: bool, weight: Any, bias: Any, *running: Any) -> Any:
    """(output, mean, 1/std); the last two are empty unless training."""
    n = len(x.sizes)
    if any([t is not None and len(t.sizes) != 1 for t in (weight, bias, *running)]):
        raise Untraceable(aten.native_batch_norm.default, "statistics that are no vectors, which some of its kernels refuse")
    of = statistics(x, weight, bias, *running)
    if n < 2 or of is None or not shaped(trace, (x.sizes[1],), weight, bias, *running):
        return NotImplemented
    if n not in (4, 5) or is_packed(x) or not is_packed(x, True):
        out = new(trace, x.sizes, x.dtype, x.device)
    else:
        out = strided(trace, x.sizes, channels_last_strides(x.sizes), x.dtype, x.device)
    stat = (x.sizes[1],) if training else (0,)
    return out, new(trace, stat, of, x.device), new(trace, stat, of, x.device)


def plain_floats(x: TracedTensor, *others: Any) -> bool:
    return x.dtype in WHOLE_FLOATS and all([t is None or t.dtype is x.dtype for t in others])


@rule("native_batch_norm", "_native_batch_norm_legit")
def native_batch_norm(
    trace: Any, x: TracedTensor, weight: Any, bias: Any, mean: Any, var: Any, training: bool, momentum: Any, eps: float
) -> Any:
    if (mean is None) is not (var is None):
        raise ValueError("running_mean and running_var must either both be None or neither be None")
    return batch_norm(trace, x, training, weight, bias, mean, var)


@rule("_native_batch_norm_legit.no_stats")
def batch_norm_without_stats(trace: Any, x: TracedTensor, weight: Any, bias: Any, training: bool, momentum: Any, eps: float) -> Any:
    return batch_norm(trace, x, training, weight, bias)


# convolution and pooling -------------------------------------------------------------------------------------
def at(values: list, i: int) -> Any:
    return values[i] if len(values) > 1 else values[0]


def check_windows(trace: Any, stride: list, padding: list, dilation: list, output_padding: list) -> None:
    """What the kernels of convolutions refuse; none is asked where nobody reads what they make."""
    for values, least, words in ((padding, 0, "negative padding is not supported"),
            (output_padding, 0, "negative output_padding is not supported"), (stride, 1, "non-positive stride is not supported"),
            (dilation, 0, "dilation should be greater than zero")):
        if any([less(trace, v, least) for v in values]):
            raise RuntimeError(words)
    if any([less(trace, v, 1) for v in dilation]) or any([less(trace, 2**31 - 1, v) for v in (*stride, *padding, *dilation)]):
        raise Untraceable("convolution", "windows that kernels may refuse, each in its words")


@rule("convolution")
def convolution(
    trace: Any, x: TracedTensor, weight: TracedTensor, bias: Any, stride: list, padding: list, dilation: list, transposed: bool,
    output_padding: list, groups: int,
) -> Any:  # fmt: skip
    check_windows(trace, stride, padding, dilation, output_padding)
    n = len(x.sizes) - 2
    rows = weight.sizes[0] if n >= 1 and len(weight.sizes) == n + 2 else 0
    fits = groups > 0 and not less(trace, rows, 1) and not less(trace, rows, groups)
    fits = fits and (same(groups, 1) or require_equal(trace, rows % groups, 0))
    if fits:
        channels, features = weight.sizes[:2] if transposed else reversed(weight.sizes[:2])
        channels, features = (channels, features * groups) if transposed else (channels * groups, features)
        fits = require_equal(trace, x.sizes[1], channels) and shaped(trace, (features,), bias) and not less(trace, features, 1)
    given = (torch.ops.aten.convolution.default, x, weight, bias, stride, padding, dilation, transposed, output_padding, groups)
    if not fits or any([less(trace, s, 1) for s in x.sizes]):
        return misfit(trace, *given)
    space = []
    for i in range(n):
        s, k, st, p, d = x.sizes[2 + i], weight.sizes[2 + i], at(stride, i), at(padding, i), at(dilation, i)
        if transposed:
            out = (s - 1) * st - 2 * p + d * (k - 1) + at(output_padding, i) + 1
        else:
            out = (s + (2 * p - d * (k - 1) - 1)) // st + 1
        if transposed and not any([less(trace, at(output_padding, i), v) for v in (st, d)]):
            return misfit(trace, *given)
        if out < 1 if type(out) is int else not trace.scope.assume(out.node.expr >= 1):
            return misfit(trace, *given)
        space.append(out)
    if x.dtype is not weight.dtype or x.dtype not in WHOLE_FLOATS or x.device.type != "cpu":
        return NotImplemented
    sizes = (x.sizes[0], features, *space)
    # PyTorch makes the input of a 1-d convolution row-major first
    if x.dtype is torch.float32 and (n > 1 and suggests_channels_last(trace, x) or suggests_channels_last(trace, weight)):
        strides = channels_last_strides(sizes) if n > 1 else (channels_last_strides((*sizes[:2], 1, sizes[2])))
        return strided(trace, sizes, strides if n > 1 else (*strides[:2], strides[3]), x.dtype, x.device)
    return new(trace, sizes, x.dtype, x.device)


def suggests_channels_last(trace: Any, x: TracedTensor) -> bool:
    """Whether the strides of an input or a weight make PyTorch's CPU convolution work in channels-last order."""
    if x.dense:
        return False
    sizes, strides = list(map(key, x.sizes)), list(map(key, x.strides))
    if len(sizes) == 3:  # a 1-d convolution is a 2-d one of height 1
        sizes.insert(2, 1)
        strides.insert(2, ops.mul(sizes[3], strides[2]))
    return has_channels_last_strides(trace.scope, sizes, strides, len(sizes), symnode.site_hook())


def pooled(s: Any, k: int, st: int, p: int, d: int) -> Any:
    return (s + (2 * p - d * (k - 1) - 1)) // st + 1


def within_int32(*values: Any) -> None:
    """Windows of pools are C ints. (Their shape functions do not ask.)"""
    if any([type(v) is int and not -(2**31) <= v < 2**31 for given in values for v in given]):
        raise RuntimeError("value cannot be converted to type int without overflow")


def is_window(k: int, st: int, p: int, d: int) -> bool:
    """Whether kernels take such a window of a pool: PyTorch's shape functions say what they do not like about others."""
    return min(k, st, d) >= 1 and 0 <= p <= (d * (k - 1) + 1) // 2


@rule("im2col")
def im2col(trace: Any, x: TracedTensor, kernel_size: list, dilation: list, padding: list, stride: list) -> Any:
    if any([type(p) is int and p < 0 for p in padding]):
        raise RuntimeError(f"padding should be non-negative, but got pad_height: {padding[0]} pad_width: {padding[1]}")
    return NotImplemented


@rule("max_pool3d_with_indices")
def max_pool3d(
    trace: Any, x: TracedTensor, kernel_size: list, stride: Any = (), padding: Any = (0,), dilation: Any = (1,), *args: Any
) -> Any:
    within_int32(kernel_size, stride, padding, dilation)
    return NotImplemented


@rule("avg_pool3d")
def avg_pool3d(trace: Any, x: TracedTensor, kernel_size: list, stride: Any = (), padding: Any = (0,), *args: Any) -> Any:
    within_int32(kernel_size, stride, padding)
    return NotImplemented


def pool_sizes(trace: Any, x: TracedTensor, kernel: list, stride: list, padding: list, dilation: list) -> tuple | None:
    within_int32(kernel, stride, padding, dilation)
    if len(x.sizes) not in (3, 4) or not x.dense or any([type(s) is int and s == 0 for s in x.sizes]):
        return None
    space = []
    for i in range(2):
        k = at(kernel, i)
        window = k, at(stride, i) if stride else k, at(padding, i), at(dilation, i)
        if any([type(v) is not int for v in window]) or not is_window(*window):
            return None
        out = pooled(x.sizes[-2 + i], *window)
        if type(out) is int and out < 1:
            return None
        if type(out) is not int and not trace.scope.assume(out.node.expr >= 1):
            return None
        space.append(out)
    return (*x.sizes[:-2], *space)


@rule("max_pool2d_with_indices")
def max_pool2d(
    trace: Any, x: TracedTensor, kernel_size: list, stride: Any = (), padding: Any = (0,), dilation: Any = (1,), ceil_mode: bool = False
) -> Any:
    sizes = pool_sizes(trace, x, kernel_size, list(stride), list(padding), list(dilation))
    if ceil_mode:
        sizes = None
    if sizes is None:
        return NotImplemented
    return new(trace, sizes, x.dtype, x.device), new(trace, sizes, torch.int64, x.device)


@rule("avg_pool2d")
def avg_pool2d(
    trace: Any, x: TracedTensor, kernel_size: list, stride: Any = (), padding: Any = (0,), ceil_mode: bool = False,
    count_include_pad: bool = True, divisor_override: Any = None,
) -> Any:  # fmt: skip
    sizes = pool_sizes(trace, x, kernel_size, list(stride), list(padding), [1])
    if divisor_override == 0:
        raise RuntimeError("divisor must be not zero")
    return new(trace, sizes, x.dtype, x.device) if sizes is not None and not ceil_mode else NotImplemented


@rule("_adaptive_avg_pool2d")
def adaptive_avg_pool2d(trace: Any, x: TracedTensor, output_size: list) -> Any:
    n = len(x.sizes) - 2
    if n not in (1, 2) or not x.dense or x.dtype not in WHOLE_FLOATS or len(output_size) != 2:
        return NotImplemented
    if any([type(s) is not int or s < 1 for s in x.sizes[-2:]]) or any([type(s) is not int or s < 0 for s in output_size]):
        return NotImplemented
    return new(trace, (*x.sizes[:n], *output_size), x.dtype, x.device)


# losses ------------------------------------------------------------------------------------------------------------
@rule("nll_loss_forward")
def nll_loss(trace: Any, x: TracedTensor, target: TracedTensor, weight: Any, reduction: int, ignore_index: int) -> Any:
    if len(x.sizes) != 2 or len(target.sizes) != 1 or not require_equal(trace, x.sizes[0], target.sizes[0]):
        return NotImplemented
    sizes = (x.sizes[0],) if reduction == 0 else ()
    return new(trace, sizes, x.dtype, x.device), new(trace, (), x.dtype, x.device)


@rule("nll_loss2d_backward")
def nll_loss2d_backward(trace: Any, grad: TracedTensor, x: TracedTensor, target: TracedTensor, *args: Any) -> Any:
    """(PyTorch's shape function compares sizes, which the forward part has done.)"""
    fit = len(x.sizes) == 4 and len(target.sizes) == 3 and shaped(trace, (x.sizes[0], *x.sizes[2:]), target)
    return new(trace, x.sizes, x.dtype, x.device) if fit and x.dense and x.device.type == "cpu" else NotImplemented


@rule("nll_loss_backward")
def nll_loss_backward(trace: Any, grad: TracedTensor, x: TracedTensor, *args: Any) -> Any:
    return new(trace, x.sizes, x.dtype, x.device) if len(x.sizes) == 2 else NotImplemented


TO_NOTHING = "Input and output sizes should be greater than 0"


def there(trace: Any, size: torch.SymInt) -> bool:
    """Whether this is not 0, which the kernels refuse. What an export leaves open, or the program has declared, is taken to be there."""
    e = key(size)
    return e.backed and (is_open(e) or is_declared(e)) or holds(trace, ops.gt(e, 0), TO_NOTHING)


@rule(
    "upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "_upsample_nearest_exact1d", "_upsample_nearest_exact2d",
    "_upsample_nearest_exact3d", "upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d", "upsample_bicubic2d",
    "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa",
)  # fmt: skip
def upsample(trace: Any, x: TracedTensor, output_size: list, *how: Any) -> Any:
    n = len(output_size)
    if x.device.type != "cpu" or len(x.sizes) != n + 2 or any([type(s) is int and s < 1 for s in (*x.sizes[1:], *output_size)]):
        return NotImplemented
    if not all([type(s) is int or there(trace, s) for s in (*x.sizes[1:], *output_size)]):
        return NotImplemented
    sizes = (*x.sizes[:2], *output_size)
    if n > 1 and not x.dense:
        strides = list(map(key, x.strides))
        if has_channels_last_strides(trace.scope, list(map(key, x.sizes)), strides, n + 2, symnode.site_hook()):
            return strided(trace, sizes, channels_last_strides(sizes), x.dtype, x.device)
    return new(trace, sizes, x.dtype, x.device)


def keeps_channels_last(trace: Any, x: TracedTensor) -> bool:
    """Whether kernels that ask `suggest_memory_format` make another image of this one in channels-last order."""
    known = x.device.type == "cpu" and len(x.sizes) == 4 and all([type(s) is not int or s > 0 for s in x.sizes])
    return known and suggests_channels_last(trace, x)


@rule("pixel_shuffle")
def pixel_shuffle(trace: Any, x: TracedTensor, by: int) -> Any:
    if type(by) is not int or by < 1 or not keeps_channels_last(trace, x) or not require_equal(trace, x.sizes[1] % (by * by), 0):
        return NotImplemented  # in row-major order PyTorch's shape function is right
    sizes = (x.sizes[0], x.sizes[1] // (by * by), x.sizes[2] * by, x.sizes[3] * by)
    return strided(trace, sizes, channels_last_strides(sizes), x.dtype, x.device)


def is_nothing(trace: Any, size: Any) -> bool:
    """Whether a size is 0. What an export leaves open is taken to be more, as is a size that only the run knows."""
    e = key(size)
    if type(e) is int:
        return e == 0
    return e.backed and not (is_open(e) or is_declared(e)) and holds(trace, ops.eq(e, 0))


@rule("pixel_unshuffle")
def pixel_unshuffle(trace: Any, x: TracedTensor, by: int) -> Any:
    """Of nothing, the kernel of CPUs makes a copy, sizes and all."""
    if x.device.type != "cpu" or len(x.sizes) < 3 or type(by) is not int or by < 1:
        return NotImplemented
    if not any([is_nothing(trace, s) for s in x.sizes]) or not all([require_equal(trace, s % by, 0) for s in x.sizes[-2:]]):
        return NotImplemented
    return strided(trace, x.sizes, preserved_strides(trace, x), x.dtype, x.device)


@rule("channel_shuffle", "native_channel_shuffle")
def channel_shuffle(trace: Any, x: TracedTensor, groups: Any) -> Any:
    """A new tensor in the memory format that the argument suggests. (PyTorch's shape function asks for numbers, or reshapes.)"""
    n = len(x.sizes)
    if x.device.type != "cpu" or n < 3 or any([type(s) is int and s < 1 for s in (*x.sizes, groups)]):
        return NotImplemented
    if not bool(groups >= 1) or not require_equal(trace, x.sizes[1] % groups, 0):
        return NotImplemented
    last = n in (4, 5) and suggests_channels_last(trace, x)
    return strided(trace, x.sizes, channels_last_strides(x.sizes), x.dtype, x.device) if last else new(trace, x.sizes, x.dtype, x.device)


@rule("log_sigmoid_forward")
def log_sigmoid_forward(trace: Any, x: TracedTensor) -> Any:
    """On CPUs both are row-major, however the argument lies in memory."""
    cpu = x.device.type == "cpu"
    return (new(trace, x.sizes, x.dtype, x.device), new(trace, x.sizes, x.dtype, x.device)) if cpu else NotImplemented


@rule("log_sigmoid_backward")
def log_sigmoid_backward(trace: Any, grad: TracedTensor, x: TracedTensor, buffer: TracedTensor) -> Any:
    """Like `grad`. (PyTorch's shape function asks whether the buffer is empty, as it is on CUDA.)"""
    if x.device.type != "cpu" or not grad.dtype is x.dtype is buffer.dtype or not shaped(trace, grad.sizes, x, buffer):
        return NotImplemented
    return strided(trace, grad.sizes, preserved_strides(trace, grad), grad.dtype, grad.device)


def rrelu(func: Any) -> Any:
    def rule_of(trace: Any, x: TracedTensor, noise: TracedTensor, *args: Any, **named: Any) -> Any:
        return NotImplemented if one_size(trace, x.sizes, noise.sizes) else misfit(trace, func, x, noise, *args, **named)

    return rule_of


add(rrelu(aten.rrelu_with_noise.default), "rrelu_with_noise")
add(rrelu(aten.rrelu_with_noise_.default), "rrelu_with_noise_")
