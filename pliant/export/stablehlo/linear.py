"""Matrix products, convolutions and attention."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo as hlo

from pliant.export.stablehlo.builder import HALF, Builder, Unsupported, Value, alike, integers, pairs
from pliant.export.stablehlo.pointwise import like, wide
from pliant.export.stablehlo.reductions import back, shifted, total
from pliant.export.stablehlo.table import lowering
from pliant.symbolic.expr import Expr


# -- products ------------------------------------------------------------------------------------------------------------------------
def product(b: Builder, x: Value, y: Value) -> Value:
    """`x @ y` of two matrices, or of two batches of them."""
    k = x.rank - 2
    batch = list(range(k))
    return b.dot(x, y, (batch, batch), ([k + 1], [k]))


@lowering("mm.default bmm.default")
def mm(b: Builder, self: Value, mat2: Value) -> Value:
    return product(b, self, mat2)


@lowering("mv.default")
def mv(b: Builder, self: Value, vec: Value) -> Value:
    return b.dot(self, vec, ([], []), ([1], [0]))


@lowering("dot.default vdot.default")
def dot(b: Builder, self: Value, tensor: Value) -> Value:
    return b.dot(self, tensor, ([], []), ([0], [0]))


@lowering("addmm.default baddbmm.default")
def addmm(b: Builder, self: Value, mat1: Value, mat2: Value, beta: Any = 1, alpha: Any = 1) -> Value:
    return plus(b, self, wide_product(b, mat1, mat2), beta, alpha)


@lowering("addmv.default")
def addmv(b: Builder, self: Value, mat: Value, vec: Value, beta: Any = 1, alpha: Any = 1) -> Value:
    return plus(b, self, b.dot(mat, vec, ([], []), ([1], [0])), beta, alpha)


def wide_product(b: Builder, x: Value, y: Value) -> Value:
    """The product of halves as float32, to be rounded after a bias is added, as PyTorch's kernels do."""
    dims = ([x.rank - 1], [y.rank - 2])
    batch = list(range(x.rank - 2))
    numbers = hlo.DotDimensionNumbers.get(batch, batch, *dims)
    sizes = [*x.sizes[:-1], y.sizes[-1]]
    return b.op("dot_general", (x, y), sizes, torch.float32 if x.dtype in HALF else x.dtype, dot_dimension_numbers=numbers)


def plus(b: Builder, bias: Value, x: Value, beta: Any, alpha: Any) -> Value:
    dtype = b.outs[0].dtype
    if not (type(alpha) is not Expr and alpha == 1):
        x = b.same("multiply", x, like(b, alpha, x))
    if type(beta) is not Expr and beta == 0:
        return b.convert(x, dtype)
    bias = b.convert(bias, x.dtype)
    if not (type(beta) is not Expr and beta == 1):
        bias = b.same("multiply", bias, like(b, beta, bias))
    return b.convert(b.same("add", x, b.expand(bias, x.sizes)), dtype)


@lowering("matmul.default")
def matmul(b: Builder, self: Value, other: Value) -> Value:
    if self.rank <= 2 and other.rank <= 2:
        return b.dot(self, other, ([], []), ([self.rank - 1], [max(other.rank - 2, 0)]))
    if other.rank <= 2:
        return b.dot(self, other, ([], []), ([self.rank - 1], [max(other.rank - 2, 0)]))
    x = b.reshape(self, (1, self.sizes[0])) if self.rank == 1 else self
    batch = b.outs[0].sizes[: other.rank - 2] if self.rank == 1 else b.outs[0].sizes[:-2]
    x, y = b.expand(x, [*batch, *x.sizes[-2:]]), b.expand(other, [*batch, *other.sizes[-2:]])
    return b.reshape(product(b, x, y), b.outs[0].sizes)


@lowering("linear.default")
def linear(b: Builder, input: Value, weight: Value, bias: Value | None = None) -> Value:
    y = b.dot(input, weight, ([], []), ([input.rank - 1], [1]))
    return y if bias is None else b.same("add", y, b.expand(bias, y.sizes))


@lowering("_trilinear.default")
def trilinear(b: Builder, i1: Value, i2: Value, i3: Value, expand1: Any, expand2: Any, expand3: Any, sumdim: Any,
              unroll_dim: int = 1) -> Value:  # fmt: skip
    """The product of three tensors, each with further dims, summed over some."""
    rank = i1.rank + len(expand1)
    spread_ = []
    for x, more in ((i1, expand1), (i2, expand2), (i3, expand3)):
        own = [d for d in range(rank) if d not in more]
        spread_.append((x, own, {d: s for d, s in zip(own, x.sizes)}))
    sizes = [next((m[d] for _, _, m in spread_ if d in m and not alike((m[d],), (1,))), 1) for d in range(rank)]
    p, q, r = [b.broadcast(x, sizes, own) for x, own, _ in spread_]
    return total(b, b.same("multiply", b.same("multiply", p, q), r), list(sumdim))


@lowering("_grouped_mm.default transformers::grouped_mm_fallback.default", composite=True)
def grouped_mm(b: Builder, self: Value, mat2: Value, offs: Value | None = None, bias: Any = None, out_dtype: Any = None) -> Value:
    """Rows of `self` by the matrix of their group; group g ends before row `offs[g]`. Each row meets every matrix, and its own is kept."""
    if offs is None or self.rank != 2 or mat2.rank != 3 or bias is not None:
        raise Unsupported("grouped products but of rows that are sorted by their group")
    every = b.dot(self, mat2, ([], []), ([1], [1]))  # row, group, column
    rows = b.iota((self.sizes[0], offs.sizes[0]), 0, torch.int32)
    ended = b.compare("GE", rows, b.broadcast(b.convert(offs, torch.int32), rows.sizes, (1,)))
    group = b.fold("add", b.convert(ended, torch.int32), 0, [1])
    own = b.compare("EQ", b.iota(rows.sizes, 1, torch.int32), b.broadcast(group, rows.sizes, (0,)))
    return b.convert(b.fold("add", b.select(b.broadcast(own, every.sizes, (0, 1)), every, like(b, 0, every)), 0, [1]), b.outs[0].dtype)


# -- convolutions ----------------------------------------------------------------------------------------------------------------------
def spread(values: Any, n: int) -> list[Any]:
    values = list(values) if isinstance(values, (list, tuple)) else [values]
    return values * n if len(values) == 1 else values


def convolve(b: Builder, x: Value, w: Value, sizes: Sequence[Any], stride: Sequence[int], padding: Sequence[tuple[Any, Any]],
             dilation: Sequence[int], spacing: Sequence[int], groups: int, layouts: tuple[Sequence[int], Sequence[int], Sequence[int]],
             batch_groups: int = 1) -> Value:  # fmt: skip
    """A convolution; `layouts`: of x (batch, feature, space...), w (in, out, space...), the result (batch, feature, space...)."""
    n = x.rank - 2
    (xb, xf, *xs), (wi, wo, *ws), (ob, of, *os) = layouts
    numbers = hlo.ConvDimensionNumbers.get(xb, xf, list(xs), wi, wo, list(ws), ob, of, list(os))
    attributes = dict(
        dimension_numbers=numbers, window_strides=integers(stride), lhs_dilation=integers(spacing), rhs_dilation=integers(dilation),
        window_reversal=ir.DenseBoolArrayAttr.get([False] * n), feature_group_count=count(groups), batch_group_count=count(batch_groups),
    )  # fmt: skip
    wide_ = torch.float32 if x.dtype in HALF else x.dtype
    if all(type(p) is int for pair in padding for p in pair):
        made = b.op("convolution", (x, w), sizes, wide_, padding=pairs(padding), **attributes)
    else:
        flat = b.shape([p for pair in padding for p in pair])
        grid = b.op("reshape", (flat,), (n, 2), torch.int32)
        made = b.op("dynamic_conv", (x, w, grid), sizes, wide_, **attributes)
    return made


def count(n: int) -> Any:
    return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), n)


@lowering("convolution.default _convolution.default")
def convolution(b: Builder, input: Value, weight: Value, bias: Any, stride: Any, padding: Any, dilation: Any, transposed: bool,
                output_padding: Any, groups: int, *_: Any) -> Value:  # fmt: skip
    out = b.outs[0]
    n = weight.rank - 2
    stride, padding, dilation, more = (spread(v, n) for v in (stride, padding, dilation, output_padding))
    batched = input.rank == weight.rank
    x = input if batched else b.reshape(input, (1, *input.sizes))
    sizes = out.sizes if batched else (1, *out.sizes)
    space = list(range(2, n + 2))
    plain = [0, 1, *space]
    if not transposed:
        edges = [(p, p) for p in padding]
        y = convolve(b, x, weight, sizes, stride, edges, dilation, [1] * n, groups, (plain, [1, 0, *space], plain))
    else:
        w = b.same("reverse", weight, dimensions=integers(space)) if n else weight
        if groups > 1:  # (in, out / groups, ...) -> (in / groups, out, ...)
            i, o, *k = w.sizes
            w = b.reshape(w, (groups, b.simple(i // groups), o, *k))
            w = b.transpose(w, [1, 0, 2, *[d + 1 for d in space]])
            w = b.reshape(w, (b.simple(i // groups), b.simple(o * groups), *k))
        reach = [b.simple(d * (weight.sizes[2 + i] - 1)) for i, d in enumerate(dilation)]
        edges = [(b.simple(r - p), b.simple(r - p + m)) for r, p, m in zip(reach, padding, more)]
        y = convolve(b, x, w, sizes, [1] * n, edges, dilation, stride, groups, (plain, plain, plain))
    if bias is not None:
        y = b.same("add", y, b.broadcast(b.convert(bias, y.dtype), y.sizes, [1]))
    return b.reshape(b.convert(y, out.dtype), out.sizes)


@lowering("convolution_backward.default")
def convolution_backward(b: Builder, grad_output: Value, input: Value, weight: Value, bias_sizes: Any, stride: Any, padding: Any,
                         dilation: Any, transposed: bool, output_padding: Any, groups: int,
                         output_mask: Any) -> list[Value | None]:  # fmt: skip
    """The two convolutions of the derivative, as the transposes of the linear map."""
    if transposed:
        raise Unsupported("the derivative of a transposed convolution")
    n = weight.rank - 2
    stride, padding, dilation = (spread(v, n) for v in (stride, padding, dilation))
    space = list(range(2, n + 2))
    plain = [0, 1, *space]
    g = grad_output
    found: list[Value | None] = [None, None, None]
    reach = [b.simple(d * (weight.sizes[2 + i] - 1)) for i, d in enumerate(dilation)]
    # rows at the end that no window reached
    rest = [b.simple(input.sizes[2 + i] + 2 * p - r - 1 - (g.sizes[2 + i] - 1) * s)
            for i, (p, r, s) in enumerate(zip(padding, reach, stride))]  # fmt: skip
    if output_mask[0]:
        o, i, *k = weight.sizes
        w = b.same("reverse", weight, dimensions=integers(space))
        if groups > 1:
            w = b.reshape(w, (groups, b.simple(o // groups), i, *k))
            w = b.transpose(w, [1, 0, 2, *[d + 1 for d in space]])
            w = b.reshape(w, (b.simple(o // groups), b.simple(i * groups), *k))
        edges = [(b.simple(r - p), b.simple(r - p + m)) for r, p, m in zip(reach, padding, rest)]
        found[0] = convolve(b, g, w, input.sizes, [1] * n, edges, dilation, stride, groups, (plain, plain, plain))
    if output_mask[1]:
        # channels are the batch, the batch is contracted; windows of the gradient, spread by the stride, slide over the input
        edges = [(p, b.simple(p - m)) for p, m in zip(padding, rest)]
        swapped = [1, 0, *space]
        found[1] = convolve(
            b, input, g, weight.sizes, dilation, edges, stride, [1] * n, 1, (swapped, [0, 1, *space], swapped), groups
        )
    if output_mask[2]:
        found[2] = total(b, b.convert(g, wide(g.dtype)), [d for d in range(g.rank) if d != 1])
    return [None if v is None else b.convert(v, o.dtype) for v, o in zip(found, b.outs)]


# -- attention ---------------------------------------------------------------------------------------------------------------------------
@lowering("scaled_dot_product_attention.default", composite=True)
def attention(b: Builder, query: Value, key: Value, value: Value, attn_mask: Value | None = None, dropout_p: float = 0.0,
              is_causal: bool = False, scale: Any = None, enable_gqa: bool = False) -> Value:  # fmt: skip
    if type(dropout_p) is Expr or dropout_p != 0:
        raise Unsupported("dropout: random numbers of PyTorch's own generator")
    out = b.outs[0]
    dtype = wide(out.dtype)
    batch = out.sizes[:-2]
    if query.rank > 2 and (enable_gqa or not alike(key.sizes[-3:-2], query.sizes[-3:-2])):
        key, value = (repeat_heads(b, x, query.sizes[-3]) for x in (key, value))  # the CPU's kernel does it without being told
    q, k, v = (b.expand(b.convert(x, dtype), [*batch, *x.sizes[-2:]]) for x in (query, key, value))
    n = len(batch)
    heads = list(range(n))
    score = b.dot(q, k, (heads, heads), ([n + 1], [n + 1]))
    factor = scale if scale is not None else inverse_root(b, q.sizes[-1])
    score = b.same("multiply", score, like(b, factor, score))
    if is_causal:
        rows, cols = b.iota(score.sizes, n), b.iota(score.sizes, n + 1)
        score = b.select(b.compare("GE", rows, cols), score, like(b, -math.inf, score))
    if attn_mask is not None:
        if attn_mask.dtype == torch.bool:
            score = b.select(b.expand(attn_mask, score.sizes), score, like(b, -math.inf, score))
        else:
            score = b.same("add", score, b.expand(b.convert(attn_mask, dtype), score.sizes))
    e = b.same("exponential", shifted(b, score, n + 1))
    weights = b.same("divide", e, back(b, total(b, e, [n + 1]), e, [n + 1]))
    if is_causal or attn_mask is not None:  # a row that attends to nothing gives zeros
        gone = b.fold("and", b.compare("EQ", score, like(b, -math.inf, score)), True, [n + 1])
        weights = b.select(back(b, gone, weights, [n + 1]), like(b, 0, weights), weights)
    return b.convert(b.dot(weights, v, (heads, heads), ([n + 1], [n])), out.dtype)


def inverse_root(b: Builder, size: Any) -> Any:
    if type(size) is int:
        return 1.0 / math.sqrt(size)
    return b.same("rsqrt", b.number(size, torch.float64))


def repeat_heads(b: Builder, x: Value, heads: Any) -> Value:
    *batch, h, s, d = x.sizes
    times = b.simple(heads // h)
    k = len(batch)
    spread_ = b.broadcast(x, [*batch, h, times, s, d], [*range(k + 1), k + 2, k + 3])
    return b.reshape(spread_, [*batch, heads, s, d])


@lowering("_scaled_dot_product_flash_attention_for_cpu.default")
def flash_attention(b: Builder, query: Value, key: Value, value: Value, dropout_p: float = 0.0, is_causal: bool = False,
                    attn_mask: Value | None = None, scale: Any = None) -> list[Value | None]:  # fmt: skip
    if b.used[1]:
        raise Unsupported("the log-sum-exp of attention is used: export it in the form \"core\"")
    return [attention(b, query, key, value, attn_mask, dropout_p, is_causal, scale), None]


@lowering("_cdist_forward.default")
def cdist(b: Builder, x1: Value, x2: Value, p: float, compute_mode: Any) -> Value:
    out = b.outs[0]
    k = x1.rank
    shape = [*out.sizes, x1.sizes[-1]]
    lead = len(out.sizes) - 2
    at = [*range(lead)] if k - 2 == lead else list(range(lead - (k - 2), lead))
    x = b.broadcast(x1, shape, [*at, lead, lead + 2])
    y = b.broadcast(x2, shape, [*list(range(lead - (x2.rank - 2), lead)), lead + 1, lead + 2])
    gap = b.same("abs", b.same("subtract", x, y))
    if p == 2:
        return b.same("sqrt", total(b, b.same("multiply", gap, gap), [lead + 2]))
    if p == 1:
        return total(b, gap, [lead + 2])
    if p == math.inf:
        return b.fold("maximum", gap, 0, [lead + 2])
    if p == 0:
        return total(b, b.convert(b.compare("NE", gap, like(b, 0, gap)), gap.dtype), [lead + 2])
    s = total(b, b.same("power", gap, like(b, p, gap)), [lead + 2])
    return b.same("power", s, like(b, 1 / p, s))
