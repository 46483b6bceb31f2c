"""Products of matrices, convolutions, normalizations, attention."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import onnx_ir as ir
import torch

from pliant.export.onnx.elementwise import is_one, out_dtype, working
from pliant.export.onnx.graph import Graph, NotExpressible, Tensor, compute, torch_dtype
from pliant.export.onnx.reductions import count, moments, reduce, reduced
from pliant.export.onnx.shapes import arange_of, sizes_of
from pliant.symbolic import ops
from pliant.symbolic.expr import Expr

Row = Callable[..., Any]


def working_values(g: Graph, op: Any, *xs: Tensor) -> list[ir.Value]:
    return [g.cast(x.value, working(op)) for x in xs]


def matmul(g: Graph, op: Any, a: Tensor, b: Tensor) -> ir.Value:
    x, y = working_values(g, op, a, b)
    return g.cast(g.op("MatMul", x, y), out_dtype(op))


def scaled(g: Graph, v: ir.Value, by: Any) -> ir.Value:
    return v if is_one(by) else g.op("Mul", v, g.number(by, torch_dtype(v)))


def add_matmul(g: Graph, op: Any, c: Tensor, a: Tensor, b: Tensor, *, beta: Any = 1, alpha: Any = 1) -> ir.Value:
    bias, x, y = working_values(g, op, c, a, b)
    simple = op.target._schema.name == "aten::addmm" and torch_dtype(x).is_floating_point and is_one(alpha) and is_one(beta)
    if simple and c.rank <= 2:
        return g.cast(g.op("Gemm", x, y, bias), out_dtype(op))
    out = scaled(g, g.op("MatMul", x, y), alpha)
    if not isinstance(beta, Expr) and beta == 0:
        return g.cast(g.op("Expand", out, g.sizes.vector(sizes_of(g, op.outs[0]))), out_dtype(op))
    return g.cast(g.op("Add", out, scaled(g, bias, beta)), out_dtype(op))


def linear(g: Graph, op: Any, x: Tensor, w: Tensor, bias: Tensor | None = None) -> ir.Value:
    v, m = working_values(g, op, x, w)
    m = g.transpose(m, [1, 0]) if w.rank == 2 else m
    if x.rank == 2 and bias is not None and w.rank == 2 and torch_dtype(v).is_floating_point:
        return g.cast(g.op("Gemm", v, g.cast(w.value, torch_dtype(v)), *working_values(g, op, bias), transB=1), out_dtype(op))
    out = g.op("MatMul", v, m)
    return g.cast(g.op("Add", out, *working_values(g, op, bias)) if bias is not None else out, out_dtype(op))


def outer(g: Graph, op: Any, a: Tensor, b: Tensor) -> ir.Value:
    x, y = working_values(g, op, a, b)
    return g.cast(g.op("Mul", g.op("Unsqueeze", x, g.ints(1)), y), out_dtype(op))


def cdist(g: Graph, op: Any, a: Tensor, b: Tensor, p: float, *_: Any) -> ir.Value:
    x, y = working_values(g, op, a, b)
    d = g.op("Abs", g.op("Sub", g.op("Unsqueeze", x, g.ints(-2)), g.op("Unsqueeze", y, g.ints(-3))))
    dtype = torch_dtype(d)
    if p == 2:
        return g.op("Sqrt", g.op("ReduceSum", g.op("Mul", d, d), g.ints(-1), keepdims=0))
    if p == 1:
        return g.op("ReduceSum", d, g.ints(-1), keepdims=0)
    if p == math.inf:
        return g.op("ReduceMax", d, g.ints(-1), keepdims=0)
    if p == 0:
        raise NotExpressible("cdist of order 0")
    return g.op("Pow", g.op("ReduceSum", g.op("Pow", d, g.const(p, dtype)), g.ints(-1), keepdims=0), g.const(1 / p, dtype))


# convolutions -----------------------------------------------------------------------------------------------------------------------
def static(numbers: Sequence[Any], what: str) -> list[int]:
    if any(isinstance(n, Expr) for n in numbers):
        raise NotExpressible(f"{what} that is not constant")
    return [int(n) for n in numbers]


def spread(numbers: Sequence[int], n: int) -> list[int]:
    return list(numbers) * n if len(numbers) == 1 else list(numbers)


def convolution(g: Graph, op: Any, x: Tensor, w: Tensor, bias: Tensor | None, stride: Any, padding: Any, dilation: Any, transposed: bool,
                output_padding: Any, groups: int) -> ir.Value:  # fmt: skip
    n = w.rank - 2
    stride, padding, dilation = (spread(static(v, "a stride, padding or dilation"), n) for v in (stride, padding, dilation))
    given: dict[str, Any] = {"strides": stride, "pads": padding * 2, "dilations": dilation, "group": groups}
    if transposed:
        given["output_padding"] = spread(static(output_padding, "an output padding"), n)
    v = g.cast(x.value, working(op))
    batched = x.rank == w.rank
    v = v if batched else g.op("Unsqueeze", v, g.ints(0))
    operands = [v, *working_values(g, op, w), *(working_values(g, op, bias) if bias is not None else [])]
    out = g.op("ConvTranspose" if transposed else "Conv", *operands, **given)
    return g.cast(out if batched else g.op("Squeeze", out, g.ints(0)), out_dtype(op))


def im2col(g: Graph, op: Any, x: Tensor, kernel: Any, dilation: Any, padding: Any, stride: Any) -> ir.Value:
    k, d, p, s = (spread(static(v, "a size of a patch"), 2) for v in (kernel, dilation, padding, stride))
    batch = list(x.sizes[:-3])
    c, h, w = x.sizes[-3:]
    v = g.op("Pad", x.value, g.ints(*[0] * (x.rank - 2), *p, *[0] * (x.rank - 2), *p), g.const(0, x.dtype), mode="constant")
    lengths = []
    for axis, size, i in ((x.rank - 2, h, 0), (x.rank - 1, w, 1)):
        n = (size + 2 * p[i] - d[i] * (k[i] - 1) - 1) // s[i] + 1
        lengths.append(n)
        taps = g.op("Unsqueeze", g.op("Mul", arange_of(g, k[i]), g.const(d[i])), g.ints(1))
        at = g.op("Add", taps, g.op("Unsqueeze", g.op("Mul", arange_of(g, n), g.const(s[i])), g.ints(0)))
        v = g.op("Gather", v, at, axis=axis + i)
    b = len(batch)  # [batch, c, kh, nh, kw, nw]
    v = g.transpose(v, [*range(b), b, b + 1, b + 3, b + 2, b + 4])
    return g.reshape(v, [*batch, c * k[0] * k[1], lengths[0] * lengths[1]])


def col2im(g: Graph, op: Any, x: Tensor, size: Any, kernel: Any, dilation: Any, padding: Any, stride: Any) -> ir.Value:
    v = x.value if x.rank == 3 else g.op("Unsqueeze", x.value, g.ints(0))
    pads = spread(list(padding), 2) * 2
    out = g.op(
        "Col2Im", v, g.sizes.vector(size), g.ints(*kernel), dilations=spread(list(dilation), 2), pads=pads, strides=spread(list(stride), 2)
    )
    return out if x.rank == 3 else g.op("Squeeze", out, g.ints(0))


# normalizations ---------------------------------------------------------------------------------------------------------------------
def layer_norm(
    g: Graph, op: Any, x: Tensor, shape: Sequence[Any], weight: Tensor | None, bias: Tensor | None, eps: float = 1e-5, *_: Any
) -> Any:
    dtype = working(op)
    n = len(shape)
    axes = list(range(x.rank - n, x.rank))
    v = g.cast(x.value, dtype)
    extra = isinstance(op.outs, list) and len(op.outs) == 3 and (g.wants(op, 1) or g.wants(op, 2))
    if not extra and (weight is not None or not any(isinstance(s, Expr) for s in shape)):
        scale = g.cast(weight.value, dtype) if weight is not None else g.op("Expand", g.const(1.0, dtype), g.ints(*shape))
        shift = [g.cast(bias.value, dtype)] if bias is not None else []
        out = g.op("LayerNormalization", v, scale, *shift, axis=x.rank - n, epsilon=float(eps))
        return several(op, g.cast(out, out_dtype(op)))
    var, mu = moments(g, v, axes, True, reduced(g, x, axes), 0)
    rstd = g.op("Reciprocal", g.op("Sqrt", g.op("Add", var, g.const(eps, dtype))))
    out = g.op("Mul", g.op("Sub", v, mu), rstd)
    return several(op, affine(g, op, out, weight, bias), mu, rstd)


def several(op: Any, *values: Any) -> Any:
    return values[0] if op.out_spec is None else (*values, *[None] * (len(op.outs) - len(values)))


def affine(g: Graph, op: Any, v: ir.Value, weight: Tensor | None, bias: Tensor | None, sizes: Sequence[Any] | None = None) -> ir.Value:
    """`v * weight + bias`, these reshaped to `sizes`."""
    for name, t in (("Mul", weight), ("Add", bias)):
        if t is not None:
            k = g.cast(t.value, torch_dtype(v))
            v = g.op(name, v, g.reshape(k, sizes) if sizes is not None else k)
    return g.cast(v, out_dtype(op))


def rms_norm(g: Graph, op: Any, x: Tensor, shape: Sequence[Any], weight: Tensor | None = None, eps: float | None = None) -> Any:
    dtype = working(op)
    v = g.cast(x.value, dtype)
    eps = torch.finfo(x.dtype).eps if eps is None else eps
    mu = g.op("ReduceMean", g.op("Mul", v, v), g.ints(*range(x.rank - len(shape), x.rank)), keepdims=1)
    rstd = g.op("Reciprocal", g.op("Sqrt", g.op("Add", mu, g.const(eps, dtype))))
    return several(op, affine(g, op, g.op("Mul", v, rstd), weight, None), rstd)


def group_norm(
    g: Graph, op: Any, x: Tensor, weight: Tensor | None, bias: Tensor | None, n: Any, c: Any, hw: Any, groups: int, eps: float
) -> tuple:
    dtype = working(op)
    per = count(g, [c, hw]) // groups
    v = g.reshape(g.cast(x.value, dtype), [x.sizes[0], groups, per])
    var, mu = moments(g, v, [2], True, per, 0)
    rstd = g.op("Reciprocal", g.op("Sqrt", g.op("Add", var, g.const(eps, dtype))))
    out = g.reshape(g.op("Mul", g.op("Sub", v, mu), rstd), x.sizes)
    flat = [g.op("Squeeze", s, g.ints(2)) for s in (mu, rstd)]
    return affine(g, op, out, weight, bias, [x.sizes[1], *[1] * (x.rank - 2)]), *flat


def batch_norm_inference(
    g: Graph, op: Any, x: Tensor, weight: Any, bias: Any, mean: Tensor, var: Tensor, momentum: float, eps: float
) -> Any:
    dtype = working(op)
    c = x.sizes[1]
    if x.rank > 1 and weight is not None and bias is not None:
        parts = [g.cast(t.value, dtype) for t in (x, weight, bias, mean, var)]
        return several(op, g.cast(g.op("BatchNormalization", *parts, epsilon=float(eps)), out_dtype(op)))
    shape = [c, *[1] * (x.rank - 2)]
    v = g.op("Sub", g.cast(x.value, dtype), g.reshape(g.cast(mean.value, dtype), shape))
    rstd = g.op("Reciprocal", g.op("Sqrt", g.op("Add", g.cast(var.value, dtype), g.const(eps, dtype))))
    return several(op, affine(g, op, g.op("Mul", v, g.reshape(rstd, shape)), weight, bias, shape))


def batch_norm(
    g: Graph, op: Any, x: Tensor, weight: Any, bias: Any, mean: Any, var: Any, training: bool, momentum: float, eps: float
) -> Any:
    if not training:
        return batch_norm_inference(g, op, x, weight, bias, mean, var, momentum, eps)
    dtype = working(op)
    axes = [d for d in range(x.rank) if d != 1]
    v = g.cast(x.value, dtype)
    n = reduced(g, x, axes)
    mixed, mu = moments(g, v, axes, True, n, 0)
    rstd = g.op("Reciprocal", g.op("Sqrt", g.op("Add", mixed, g.const(eps, dtype))))
    out = affine(g, op, g.op("Mul", g.op("Sub", v, mu), rstd), weight, bias, [x.sizes[1], *[1] * (x.rank - 2)])
    flat_mean, flat_rstd = (g.reshape(s, [x.sizes[1]]) for s in (mu, rstd))
    if len(op.outs) < 5:
        return out, flat_mean, flat_rstd
    unbiased, _ = moments(g, v, axes, False, n, 1)
    keep, take = g.const(1 - momentum, dtype), g.const(momentum, dtype)
    news = [
        g.cast(g.op("Add", g.op("Mul", g.cast(old.value, dtype), keep), g.op("Mul", new, take)), old.dtype)
        for old, new in ((mean, flat_mean), (var, unbiased))
    ]
    return out, flat_mean, flat_rstd, *news


def batch_norm_no_stats(g: Graph, op: Any, x: Tensor, weight: Any, bias: Any, training: bool, momentum: float, eps: float) -> Any:
    return batch_norm(g, op, x, weight, bias, None, None, True, momentum, eps)


def weight_norm(g: Graph, op: Any, v: Tensor, scale: Tensor, dim: int = 0) -> tuple:
    dtype = working(op)
    x = g.cast(v.value, dtype)
    axes = [d for d in range(v.rank) if d != dim % v.rank]
    norm = g.op("Sqrt", reduce(g, "ReduceSum", g.op("Mul", x, x), axes, True))
    return g.cast(g.op("Mul", x, g.op("Div", g.cast(scale.value, dtype), norm)), out_dtype(op)), norm


# attention --------------------------------------------------------------------------------------------------------------------------
def attention(
    g: Graph, op: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, dropout_p: float = 0.0, is_causal: bool = False,
    *, scale: Any = None, enable_gqa: bool = False,
) -> ir.Value:  # fmt: skip
    """softmax(q k^T * scale + mask) v; a row whose every place is masked gives zeros, as eager's does."""
    if isinstance(dropout_p, Expr) or dropout_p:
        raise NotExpressible("attention with dropout")
    dtype = working(op)
    x, y, z = (g.cast(t.value, dtype) for t in (q, k, v))
    if enable_gqa and q.rank > 2:
        y, z = repeated(g, q, k, y), repeated(g, q, v, z)
    by = g.number(scale, dtype) if scale is not None else attention_scale(g, q, dtype)
    order = [*range(k.rank - 2), k.rank - 1, k.rank - 2]
    scores = g.op("MatMul", g.op("Mul", x, by), g.transpose(y, order))
    none: ir.Value | None = None  # which rows are masked throughout
    low = g.const(-math.inf, dtype)
    if is_causal:
        rows, cols = q.sizes[-2], k.sizes[-2]
        seen = g.op("GreaterOrEqual", g.op("Unsqueeze", arange_of(g, rows), g.ints(1)), g.op("Unsqueeze", arange_of(g, cols), g.ints(0)))
        scores = g.op("Where", seen, scores, low)
    if mask is not None:
        if mask.dtype is torch.bool:
            scores = g.op("Where", mask.value, scores, low)
            some = g.op("ReduceMax", g.cast(mask.value, torch.int32), g.ints(-1), keepdims=1)
            none = g.op("Equal", some, g.const(0, torch.int32))
        else:
            m = g.cast(mask.value, dtype)
            scores = g.op("Add", scores, m)
            none = g.op("Equal", g.op("ReduceMax", m, g.ints(-1), keepdims=1), low)
    weights = g.op("Softmax", scores, axis=-1)
    if none is not None:
        weights = g.op("Where", none, g.const(0.0, dtype), weights)
    return g.cast(g.op("MatMul", weights, z), out_dtype(op))


def attention_scale(g: Graph, q: Tensor, dtype: torch.dtype) -> ir.Value:
    size = q.sizes[-1]
    if isinstance(size, Expr):
        return g.op("Reciprocal", g.op("Sqrt", g.number(size, dtype)))
    return g.const(1 / math.sqrt(size) if size else 1.0, dtype)


def repeated(g: Graph, q: Tensor, k: Tensor, v: ir.Value) -> ir.Value:
    """Heads of keys and values as often as queries have them."""
    *batch, heads, n, d = k.sizes
    times = q.sizes[-3] // ops.max_(heads, 1)
    if not isinstance(times, Expr) and times == 1:
        return v
    b = len(batch)
    wide = g.op("Expand", g.op("Unsqueeze", v, g.ints(b + 1)), g.sizes.vector([*batch, heads, times, n, d]))
    return g.reshape(wide, [*batch, q.sizes[-3], n, d])


def flash_attention(g: Graph, op: Any, q: Tensor, k: Tensor, v: Tensor, dropout_p: float = 0.0, is_causal: bool = False, *,
                    attn_mask: Tensor | None = None, scale: Any = None) -> tuple:  # fmt: skip
    if g.wants(op, 1):
        raise NotExpressible("the sums of attention, which only its gradient reads")
    fewer = q.sizes[1] is not k.sizes[1] and (isinstance(q.sizes[1], Expr) or isinstance(k.sizes[1], Expr) or q.sizes[1] != k.sizes[1])
    return attention(g, op, q, k, v, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=fewer), None


def native_dropout(g: Graph, op: Any, x: Tensor, p: float, train: bool | None) -> tuple:
    if train and p > 0:
        keep = g.op("GreaterOrEqual", g.op("RandomUniformLike", g.cast(x.value, torch.float32)), g.const(p, torch.float32))
        dtype = compute(x.dtype)
        out = g.op("Mul", g.op("Mul", g.cast(x.value, dtype), g.cast(keep, dtype)), g.const(1 / (1 - p) if p < 1 else 0.0, dtype))
        return g.cast(out, x.dtype), keep
    return x.value, g.op("Expand", g.const(True, torch.bool), g.op("Shape", x.value))


ROWS: dict[str, Row] = {
    "mm": matmul, "bmm": matmul, "mv": matmul, "dot": matmul, "matmul": matmul, "addmm": add_matmul, "baddbmm": add_matmul,
    "addmv": add_matmul, "linear": linear, "outer": outer, "_cdist_forward": cdist, "convolution": convolution, "im2col": im2col,
    "col2im": col2im, "native_layer_norm": layer_norm, "layer_norm": layer_norm, "rms_norm": rms_norm, "_fused_rms_norm": rms_norm,
    "native_group_norm": group_norm, "_native_batch_norm_legit_no_training": batch_norm_inference, "native_batch_norm": batch_norm,
    "_native_batch_norm_legit": batch_norm, "_native_batch_norm_legit_functional": batch_norm,
    "_native_batch_norm_legit.no_stats": batch_norm_no_stats, "_weight_norm_interface": weight_norm,
    "scaled_dot_product_attention": attention, "_scaled_dot_product_flash_attention_for_cpu": flash_attention,
    "native_dropout": native_dropout,
}  # fmt: skip
