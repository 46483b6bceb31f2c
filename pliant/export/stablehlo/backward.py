"""The backward parts of normalization and pooling, and columns back to images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from pliant.export.stablehlo.builder import Builder, Unsupported, Value
from pliant.export.stablehlo.linear import spread
from pliant.export.stablehlo.pointwise import like, wide
from pliant.export.stablehlo.reductions import back, mean_of, total
from pliant.export.stablehlo.table import lowering
from pliant.symbolic import ops


def slope(b: Builder, g: Value, x: Value, mean: Value, rstd: Value, dims: Sequence[int]) -> tuple[Value, Value]:
    """The gradient of (x - mean) * rstd, both taken over `dims`, and that normalized x."""
    m, r = back(b, mean, x, dims), back(b, rstd, x, dims)
    y = b.same("multiply", b.same("subtract", x, m), r)
    flat = back(b, mean_of(b, g, dims), x, dims)
    tilt = b.same("multiply", y, back(b, mean_of(b, b.same("multiply", g, y), dims), x, dims))
    return b.same("multiply", r, b.same("subtract", b.same("subtract", g, flat), tilt)), y


def given(b: Builder, *values: Value | None) -> list[Value | None]:
    return [None if v is None or o is None else b.reshape(b.convert(v, o.dtype), o.sizes) for v, o in zip(values, b.outs)]


@lowering("native_layer_norm_backward.default")
def layer_norm_backward(b: Builder, grad_out: Value, input: Value, normalized_shape: Any, mean: Value, rstd: Value, weight: Value | None,
                        bias: Value | None, output_mask: Any) -> list[Value | None]:  # fmt: skip
    dtype = wide(input.dtype)
    x, g = b.convert(input, dtype), b.convert(grad_out, dtype)
    lead = x.rank - len(normalized_shape)
    dims, outer = list(range(lead, x.rank)), list(range(lead))
    m, r = (b.reshape(b.convert(v, dtype), x.sizes[:lead]) for v in (mean, rstd))
    inner = g if weight is None else b.same("multiply", g, b.broadcast(b.convert(weight, dtype), x.sizes, dims))
    dx, y = slope(b, inner, x, m, r, dims)
    dw = total(b, b.same("multiply", g, y), outer) if output_mask[1] else None
    return given(b, dx if output_mask[0] else None, dw, total(b, g, outer) if output_mask[2] else None)


@lowering("native_group_norm_backward.default")
def group_norm_backward(b: Builder, grad_out: Value, input: Value, mean: Value, rstd: Value, weight: Value | None, N: Any, C: Any, HxW: Any,
                        group: int, output_mask: Any) -> list[Value | None]:  # fmt: skip
    dtype = wide(input.dtype)
    x, g = b.convert(input, dtype), b.convert(grad_out, dtype)
    n, c = x.sizes[:2]
    rows = (n, group, b.simple(c // group), b.simple(HxW))
    inner = g if weight is None else b.same("multiply", g, b.broadcast(b.convert(weight, dtype), x.sizes, [1]))
    m, r = (b.reshape(b.convert(v, dtype), (n, group)) for v in (mean, rstd))
    dx, y = slope(b, b.reshape(inner, rows), b.reshape(x, rows), m, r, [2, 3])
    rest = [d for d in range(x.rank) if d != 1]
    dw = total(b, b.same("multiply", g, b.reshape(y, x.sizes)), rest) if output_mask[1] else None
    return given(b, b.reshape(dx, x.sizes) if output_mask[0] else None, dw, total(b, g, rest) if output_mask[2] else None)


@lowering("avg_pool2d_backward.default")
def avg_pool_backward(b: Builder, grad_output: Value, self: Value, kernel_size: Any, stride: Any, padding: Any, ceil_mode: bool,
                      count_include_pad: bool, divisor_override: Any) -> Value:  # fmt: skip
    """Each element gets the share of every window that it is in."""
    kernel, padding = spread(kernel_size, 2), spread(padding, 2)
    stride = spread(stride, 2) if stride else kernel
    if ceil_mode or not (count_include_pad or all(p == 0 for p in padding)):
        raise Unsupported("the derivative of average pooling with ceil_mode, or that leaves padding out")
    g = b.convert(grad_output, wide(grad_output.dtype))
    share = b.same("divide", g, like(b, divisor_override or kernel[0] * kernel[1], g))
    lead = g.rank - 2
    low, high = [0] * lead, [0] * lead
    for i in range(2):
        reach = b.simple((g.sizes[lead + i] - 1) * stride[i] + 1)
        low.append(kernel[i] - 1 - padding[i])
        high.append(b.simple(self.sizes[lead + i] + padding[i] - reach))
    padded = b.pad(share, low, high, 0, [0] * lead + [s - 1 for s in stride])
    one = [1] * g.rank
    made = b.window([padded], [0], self.sizes, [1] * lead + kernel, one, [(0, 0)] * g.rank, one, lambda p, q: [b.same("add", p, q)])[0]
    return b.convert(made, b.outs[0].dtype)


@lowering("col2im.default")
def col2im(b: Builder, self: Value, output_size: Any, kernel_size: Any, dilation: Any, padding: Any, stride: Any) -> Value:
    """Columns added where their windows stand."""
    x = self if self.rank == 3 else b.reshape(self, (1, *self.sizes))
    n = x.sizes[0]
    c = b.simple(x.sizes[1] // (kernel_size[0] * kernel_size[1]))
    height, width = (b.simple(s + 2 * p) for s, p in zip(output_size, padding))
    counts = [b.simple((s - d * (k - 1) - 1) // t + 1) for s, d, k, t in zip((height, width), dilation, kernel_size, stride)]
    grid = (*kernel_size, *counts)
    at = []
    for i in range(2):
        offset = b.same("multiply", b.iota(grid, i), b.full(dilation[i], grid, torch.int64))
        start = b.same("multiply", b.iota(grid, 2 + i), b.full(stride[i], grid, torch.int64))
        at.append(b.reshape(b.same("add", offset, start), (*grid, 1)))
    columns = b.transpose(b.reshape(x, (n, c, *grid)), [2, 3, 4, 5, 0, 1])
    image = b.full(0, (height, width, n, c), x.dtype)
    image = b.scatter(image, b.concat(at, 4), columns, [4, 5], [0, 1], lambda p, q: b.same("add", p, q))
    image = b.transpose(image, [2, 3, 0, 1])
    p, q = padding
    image = b.slice(image, 2, p, b.simple(output_size[0] + p), size=output_size[0])
    image = b.slice(image, 3, q, b.simple(output_size[1] + q), size=output_size[1])
    return b.reshape(image, b.outs[0].sizes)


@lowering("native_dropout.default")
def dropout(b: Builder, input: Value, p: Any, train: Any) -> list[Value]:
    if train is not False:
        raise Unsupported("random numbers of PyTorch's own generator")
    return [input, b.full(True, input.sizes, torch.bool)]


@lowering("_embedding_bag.default _embedding_bag_forward_only.default")
def embedding_bag(b: Builder, weight: Value, indices: Value, offsets: Value, scale_grad_by_freq: bool = False, mode: int = 0,
                  sparse: bool = False, per_sample_weights: Value | None = None, include_last_offset: bool = False,
                  padding_idx: int = -1) -> list[Value | None]:  # fmt: skip
    """Sums or means of rows, by bag; an index belongs to the last bag that starts before it."""
    if mode > 1 or any(b.used[1:]):
        raise Unsupported("the maximum of bags, or what the derivative needs")
    out = b.outs[0]
    dtype = wide(weight.dtype)
    n, bags, width = indices.sizes[0], out.sizes[0], weight.sizes[1]
    rows = b.convert(b.gather(weight, b.reshape(indices, (n, 1)), (n, width), [1], [0], [1, width]), dtype)
    if per_sample_weights is not None:
        rows = b.same("multiply", rows, b.broadcast(b.convert(per_sample_weights, dtype), rows.sizes, (0,)))
    kept = b.compare("NE", indices, like(b, padding_idx, indices)) if padding_idx >= 0 else b.full(True, (n,), torch.bool)
    grid = (n, offsets.sizes[0])
    begun = b.compare("LE", b.broadcast(b.convert(offsets, torch.int64), grid, (1,)), b.iota(grid, 0))
    bag = b.fold("add", b.convert(begun, torch.int64), 0, [1])
    bag = b.same("subtract", bag, like(b, 1, bag))
    starts = b.reshape(b.same("minimum", bag, b.full(b.simple(ops.max_(bags - 1, 0)), bag.sizes, torch.int64)), (n, 1))
    rows = b.select(b.broadcast(kept, rows.sizes, (0,)), rows, like(b, 0, rows))
    sums = b.scatter(b.full(0, (bags, width), dtype), starts, rows, [1], [0], lambda p, q: b.same("add", p, q))
    if mode == 1:
        ones = b.convert(kept, dtype)
        counts = b.scatter(b.full(0, (bags,), dtype), starts, ones, [], [0], lambda p, q: b.same("add", p, q))
        sums = b.same("divide", sums, b.broadcast(b.same("maximum", counts, like(b, 1, counts)), sums.sizes, (0,)))
    return [b.convert(sums, out.dtype), *[None] * (len(b.outs) - 1)]


@lowering("_adaptive_avg_pool2d_backward.default")
def adaptive_backward(b: Builder, grad_output: Value, self: Value) -> Value:
    """Each cell's share goes to the rows and columns that it was the mean of."""
    g = b.convert(grad_output, wide(grad_output.dtype))
    for d in range(g.rank - 2, g.rank):
        size, cells = self.sizes[d], g.sizes[d]
        grid = (cells, size)
        i, place = b.iota(grid, 0), b.iota(grid, 1)
        whole, parts, one = b.full(size, grid, torch.int64), b.full(cells, grid, torch.int64), b.full(1, grid, torch.int64)
        first = b.same("divide", b.same("multiply", i, whole), parts)
        end = b.same("multiply", b.same("add", i, one), whole)
        last = b.same("divide", b.same("subtract", b.same("add", end, parts), one), parts)
        inside = b.convert(b.same("and", b.compare("GE", place, first), b.compare("LT", place, last)), g.dtype)
        share = b.same("divide", inside, b.broadcast(b.fold("add", inside, 0, [1]), grid, (0,)))
        y = b.dot(g, share, ([], []), ([d], [0]))
        g = b.transpose(y, [*range(d), y.rank - 1, *range(d, y.rank - 1)])
    return b.convert(g, b.outs[0].dtype)
