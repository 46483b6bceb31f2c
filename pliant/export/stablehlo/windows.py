"""Pooling and resizing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jaxlib.mlir import ir

from pliant.export.stablehlo.builder import Builder, Unsupported, Value, integers, is_float, pairs
from pliant.export.stablehlo.linear import spread
from pliant.export.stablehlo.pointwise import is_nan, like, wide
from pliant.export.stablehlo.reductions import finish, lowest, mean_of
from pliant.export.stablehlo.table import lowering
from pliant.export.stablehlo.views import take
from pliant.symbolic import ops


def lists(n: int, kernel: Any, stride: Any, padding: Any, dilation: Any = 1) -> tuple[list[int], ...]:
    kernel = spread(kernel, n)
    return kernel, spread(stride, n) if stride not in (None, [], ()) else kernel, spread(padding, n), spread(dilation, n)


def reach(b: Builder, x: Value, n: int, kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int],
          fill: Any) -> tuple[Value, list[tuple[int, int]]]:  # fmt: skip
    """`x` padded so that windows fit the sizes of the result exactly, and the padding that is left to the operation.

    With `ceil_mode` the last window may reach beyond the padding; by how much depends on the size.
    """
    over, lead = [], x.rank - n
    for i in range(n):
        size, out = x.sizes[lead + i], b.outs[0].sizes[lead + i]
        over.append(b.simple((out - 1) * stride[i] + (kernel[i] - 1) * dilation[i] + 1 - size - 2 * padding[i]))
    edges = [(0, 0)] * lead + [(p, p) for p in padding]
    tail = [0] * lead + [o if type(o) is not int or o > 0 else 0 for o in over]
    if all(type(o) is int for o in over) or all(b.scope.known_true(ops.le(o, 0)) for o in over):
        return x, [(p, p + (t if type(t) is int else 0)) for (p, _), t in zip(edges, tail)]
    high = [0] * lead + [b.simple(ops.max_(o, 0) + p) for o, p in zip(over, padding)]
    return b.pad(x, [p for p, _ in edges], high, fill), [(0, 0)] * x.rank


def max_pool(n: int, names: str) -> None:
    @lowering(names)
    def lower(b: Builder, self: Value, kernel_size: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1,
              ceil_mode: bool = False) -> list[Value | None]:  # fmt: skip
        kernel, stride, padding, dilation = lists(n, kernel_size, stride, padding, dilation)
        one = [1] * (self.rank - n)
        out = b.outs[0]
        worst = lowest(self.dtype)
        windows = ([*one, *kernel], [*one, *stride])
        if not b.used[1]:
            x, edges = reach(b, self, n, kernel, stride, padding, dilation, worst)
            made = b.window(
                [x], [worst], out.sizes, *windows, edges, [*one, *dilation], lambda p, q: [b.same("maximum", p, q)]
            )
            return [made[0], None]
        place = positions(b, self, n)
        x, edges = reach(b, self, n, kernel, stride, padding, dilation, worst)
        at, _ = reach(b, place, n, kernel, stride, padding, dilation, -1)

        def better(v: Value, i: Value, w: Value, j: Value) -> list[Value]:
            """The larger one, or nan; of equal ones the first that is no padding."""
            real = b.compare("GE", j, like(b, 0, j))
            none = b.compare("LT", i, like(b, 0, i))
            beyond = b.compare("GT", w, v)
            if is_float(v.dtype):
                beyond = b.same("or", beyond, b.same("and", is_nan(b, w), b.same("not", is_nan(b, v))))
            second = b.same("and", real, b.same("or", none, beyond))
            return [b.select(second, w, v), b.select(second, j, i)]

        return list(b.window([x, at], [worst, -1], out.sizes, *windows, edges, [*one, *dilation], better))


def positions(b: Builder, x: Value, n: int) -> Value:
    """Where each element stands in its plane."""
    total: Value | None = None
    step: Any = 1
    for d in reversed(range(x.rank - n, x.rank)):
        line = b.same("multiply", b.iota(x.sizes, d), b.full(step, x.sizes, torch.int64))
        total = line if total is None else b.same("add", total, line)
        step = b.simple(step * x.sizes[d])
    assert total is not None
    return total


max_pool(2, "max_pool2d_with_indices.default")
max_pool(3, "max_pool3d_with_indices.default")
max_pool(1, "max_pool1d_with_indices.default")


@lowering("max_pool2d.default")
def max_pool2d(b: Builder, self: Value, kernel_size: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1,
               ceil_mode: bool = False) -> Value:  # fmt: skip
    kernel, stride, padding, dilation = lists(2, kernel_size, stride, padding, dilation)
    one = [1] * (self.rank - 2)
    x, edges = reach(b, self, 2, kernel, stride, padding, dilation, lowest(self.dtype))
    return b.window([x], [lowest(self.dtype)], b.outs[0].sizes, [*one, *kernel], [*one, *stride], edges, [*one, *dilation],
                    lambda p, q: [b.same("maximum", p, q)])[0]  # fmt: skip


@lowering("max_pool2d_with_indices_backward.default")
def max_pool_backward(b: Builder, grad_output: Value, self: Value, kernel_size: Any, stride: Any, padding: Any, dilation: Any,
                      ceil_mode: bool, indices: Value) -> Value:  # fmt: skip
    """`select_and_scatter`: each window's gradient goes to its first maximum."""
    kernel, stride, padding, dilation = lists(2, kernel_size, stride, padding, dilation)
    if any(d != 1 for d in dilation) or ceil_mode:
        raise Unsupported("the derivative of max pooling with dilation or ceil_mode")
    one = [1] * (self.rank - 2)
    zero = b.full(0, (), self.dtype)
    attributes = dict(window_dimensions=integers([*one, *kernel]), window_strides=integers([*one, *stride]),
                      padding=pairs([(0, 0)] * len(one) + [(p, p) for p in padding]))  # fmt: skip
    made = ir.Operation.create("stablehlo.select_and_scatter", [b.type(self.sizes, self.dtype)], [self.ir, grad_output.ir, zero.ir],
                               attributes, regions=2)  # fmt: skip
    scalar = [b.type((), self.dtype)] * 2
    b.region(made, 0, scalar, lambda p, q: [b.compare("GE", p, q)], [self.dtype] * 2)
    b.region(made, 1, scalar, lambda p, q: [b.same("add", p, q)], [self.dtype] * 2)
    return Value(made.results[0], self.sizes, self.dtype)


def avg_pool(n: int, names: str) -> None:
    @lowering(names)
    def lower(b: Builder, self: Value, kernel_size: Any, stride: Any = (), padding: Any = 0, ceil_mode: bool = False,
              count_include_pad: bool = True, divisor_override: Any = None) -> Value:  # fmt: skip
        kernel, stride, padding, dilation = lists(n, kernel_size, stride, padding)
        one = [1] * (self.rank - n)
        out = b.outs[0]
        x = b.convert(self, wide(self.dtype))

        def sums(v: Value, edges: Any) -> Value:
            windows = ([*one, *kernel], [*one, *stride], edges, [1] * self.rank)
            return b.window([v], [0], out.sizes, *windows, lambda p, q: [b.same("add", p, q)])[0]

        padded, edges = reach(b, x, n, kernel, stride, padding, dilation, 0)
        s = sums(padded, edges)
        if divisor_override is not None:
            return b.convert(b.same("divide", s, like(b, divisor_override, s)), out.dtype)
        ones = b.full(1, x.sizes, x.dtype)
        if count_include_pad:  # padding counts, but not what ceil_mode reaches beyond it
            ones = b.pad(ones, [0] * len(one) + padding, [0] * len(one) + padding, 1)
            x, padding = ones, [0] * n
        counts, edges = reach(b, ones, n, kernel, stride, padding, dilation, 0)
        return b.convert(b.same("divide", s, sums(counts, edges)), out.dtype)


avg_pool(1, "avg_pool1d.default")
avg_pool(2, "avg_pool2d.default")
avg_pool(3, "avg_pool3d.default")


def adaptive(names: str, n: int) -> None:
    @lowering(names)
    def lower(b: Builder, self: Value, output_size: Any) -> Value:
        """Each cell is the mean of a range of rows and columns; sums go dim by dim, the counts multiply."""
        out = b.outs[0]
        x = b.convert(self, wide(self.dtype))
        lead = x.rank - n
        if all(type(s) is int and s == 1 for s in out.sizes[lead:]):
            return finish(b, mean_of(b, x, list(range(lead, x.rank))))
        for d in range(lead, x.rank):
            size, cells = x.sizes[d], out.sizes[d]
            grid = (cells, size)
            i, place = b.iota(grid, 0), b.iota(grid, 1)
            whole, parts = b.full(size, grid, torch.int64), b.full(cells, grid, torch.int64)
            one = b.full(1, grid, torch.int64)
            first = b.same("divide", b.same("multiply", i, whole), parts)
            end = b.same("multiply", b.same("add", i, one), whole)
            last = b.same("divide", b.same("subtract", b.same("add", end, parts), one), parts)
            inside = b.same("and", b.compare("GE", place, first), b.compare("LT", place, last))
            n_inside = b.fold("add", b.convert(inside, x.dtype), 0, [1])
            shape = [*x.sizes[:d], cells, *x.sizes[d:]]
            rows = b.broadcast(x, shape, [*range(d), *range(d + 1, len(shape))])
            chosen = b.select(b.broadcast(inside, shape, [d, d + 1]), rows, b.full(0, shape, x.dtype))
            s = b.fold("add", chosen, 0, [d + 1])
            x = b.same("divide", s, b.broadcast(n_inside, s.sizes, [d]))
        return b.convert(x, out.dtype)


adaptive("adaptive_avg_pool1d.default", 1)
adaptive("_adaptive_avg_pool2d.default adaptive_avg_pool2d.default", 2)
adaptive("_adaptive_avg_pool3d.default adaptive_avg_pool3d.default", 3)


# -- resizing ------------------------------------------------------------------------------------------------------------------------
def step_of(b: Builder, size: Any, out: Any, align: bool, scale: Any, dtype: torch.dtype) -> Value:
    """How far apart in the input two neighbours of the result stand."""
    if align:
        top, bottom = b.number(b.simple(size - 1), dtype), b.number(b.simple(ops.max_(out - 1, 1)), dtype)
        step = b.same("divide", top, bottom)
        return b.select(b.compare("GT", b.number(out, torch.int64), b.number(1)), step, b.full(0, (), dtype))
    if scale is not None:
        return b.full(1.0 / scale if isinstance(scale, float) else scale, (), dtype)
    return b.same("divide", b.number(size, dtype), b.number(out, dtype))


def source(b: Builder, size: Any, out: Any, align: bool, scale: Any, dtype: torch.dtype, cubic: bool = False) -> Value:
    """Where each position of the result lies in the input."""
    line = b.iota((out,), 0, dtype)
    step = b.broadcast(step_of(b, size, out, align, scale, dtype), line.sizes, ())
    if align:
        return b.same("multiply", line, step)
    half = like(b, 0.5, line)
    at = b.same("subtract", b.same("multiply", b.same("add", line, half), step), half)
    return at if cubic else b.same("maximum", at, like(b, 0, at))


def clipped(b: Builder, at: Value, size: Any) -> Value:
    low = b.same("maximum", at, like(b, 0, at))
    return b.same("minimum", low, b.full(b.simple(size - 1), at.sizes, at.dtype))


def nearest(names: str, n: int, exact: bool = False) -> None:
    @lowering(names)
    def lower(b: Builder, self: Value, output_size: Any, *scales: Any) -> Value:
        x, lead = self, self.rank - n
        given = scales_of(scales, n)
        for i in range(n):
            size, out = x.sizes[lead + i], b.outs[0].sizes[lead + i]
            line = b.iota((out,), 0, torch.float32)
            if exact:
                line = b.same("add", line, like(b, 0.5, line))
            step = b.broadcast(step_of(b, size, out, False, given[i], torch.float32), line.sizes, ())
            at = b.convert(b.same("floor", b.same("multiply", line, step)), torch.int64)
            x = take(b, x, lead + i, clipped(b, at, size))
        return x


def scales_of(scales: Sequence[Any], n: int) -> list[Any]:
    if len(scales) == 1 and isinstance(scales[0], (list, tuple)):
        scales = scales[0]
    scales = [s for s in scales if not isinstance(s, bool)]
    return [*scales, *[None] * n][:n] if scales and scales[0] is not None else [None] * n


for _n, _suffix in ((1, "1d"), (2, "2d"), (3, "3d")):
    nearest(f"upsample_nearest{_suffix}.default upsample_nearest{_suffix}.vec", _n)
    nearest(f"_upsample_nearest_exact{_suffix}.default _upsample_nearest_exact{_suffix}.vec", _n, exact=True)


def linear_resize(names: str, n: int) -> None:
    @lowering(names)
    def lower(b: Builder, self: Value, output_size: Any, align_corners: bool, *scales: Any) -> Value:
        dtype = wide(self.dtype)
        x, lead = b.convert(self, dtype), self.rank - n
        given = scales_of(scales, n)
        for i in range(n):
            d, size, out = lead + i, x.sizes[lead + i], b.outs[0].sizes[lead + i]
            at = source(b, size, out, align_corners, given[i], dtype)
            low = b.same("floor", at)
            part = b.same("subtract", at, low)
            first = clipped(b, b.convert(low, torch.int64), size)
            second = clipped(b, b.same("add", first, like(b, 1, first)), size)
            p, q = take(b, x, d, first), take(b, x, d, second)
            w = b.broadcast(part, p.sizes, (d,))
            x = b.same("add", b.same("multiply", p, b.same("subtract", like(b, 1, w), w)), b.same("multiply", q, w))
        return b.convert(x, b.outs[0].dtype)


linear_resize("upsample_linear1d.default upsample_linear1d.vec", 1)
linear_resize("upsample_bilinear2d.default upsample_bilinear2d.vec", 2)
linear_resize("upsample_trilinear3d.default upsample_trilinear3d.vec", 3)


@lowering("upsample_bicubic2d.default upsample_bicubic2d.vec")
def bicubic(b: Builder, self: Value, output_size: Any, align_corners: bool, *scales: Any) -> Value:
    dtype = wide(self.dtype)
    x, lead = b.convert(self, dtype), self.rank - 2
    given = scales_of(scales, 2)
    for i in range(2):
        d, size, out = lead + i, x.sizes[lead + i], b.outs[0].sizes[lead + i]
        at = source(b, size, out, align_corners, given[i], dtype, cubic=True)
        low = b.same("floor", at)
        t = b.same("subtract", at, low)
        base = b.convert(low, torch.int64)
        total = None
        for k, weight in enumerate(cubic_weights(b, t)):
            row = take(b, x, d, clipped(b, b.same("add", base, like(b, k - 1, base)), size))
            part = b.same("multiply", row, b.broadcast(weight, row.sizes, (d,)))
            total = part if total is None else b.same("add", total, part)
        assert total is not None
        x = total
    return b.convert(x, b.outs[0].dtype)


def cubic_weights(b: Builder, t: Value) -> list[Value]:
    """Keys' cubic convolution with a = -0.75, at distances t + 1, t, 1 - t, 2 - t."""
    a = -0.75
    one = like(b, 1, t)

    def poly(x: Value, *coefficients: float) -> Value:
        total = like(b, coefficients[0], x)
        for c in coefficients[1:]:
            total = b.same("add", b.same("multiply", total, x), like(b, c, x))
        return total

    far, near = (a, -5 * a, 8 * a, -4 * a), (a + 2, -(a + 3), 0.0, 1.0)
    back_ = b.same("subtract", one, t)
    return [poly(b.same("add", t, one), *far), poly(t, *near), poly(back_, *near), poly(b.same("add", back_, one), *far)]


# -- patches and sampling ----------------------------------------------------------------------------------------------------------------
@lowering("im2col.default")
def im2col(b: Builder, self: Value, kernel_size: Any, dilation: Any, padding: Any, stride: Any) -> Value:
    """Each window as a column."""
    out = b.outs[0]
    x = self if self.rank == 4 else b.reshape(self, (1, *self.sizes))
    x = b.pad(x, [0, 0, *padding], [0, 0, *padding])
    n, c = x.sizes[:2]
    counts = []
    for i in range(2):
        d, k = (2, 4)[i], kernel_size[i]
        size = x.sizes[d]
        m = b.simple((size - dilation[i] * (k - 1) - 1) // stride[i] + 1)
        counts.append(m)
        grid = (k, m)
        at = b.same("add", b.same("multiply", b.iota(grid, 0), b.full(dilation[i], grid, torch.int64)),
                    b.same("multiply", b.iota(grid, 1), b.full(stride[i], grid, torch.int64)))  # fmt: skip
        x = take(b, x, d, b.reshape(at, (b.simple(k * m),)))
        x = b.reshape(x, [*x.sizes[:d], k, m, *x.sizes[d + 1 :]])
    x = b.transpose(x, [0, 1, 2, 4, 3, 5])  # n, c, kh, kw, rows, columns
    return b.reshape(x, out.sizes)


@lowering("grid_sampler_2d.default")
def grid_sampler(b: Builder, input: Value, grid: Value, interpolation_mode: int, padding_mode: int, align_corners: bool) -> Value:
    if interpolation_mode == 2 or padding_mode == 2:
        raise Unsupported("grid sampling with cubic interpolation or reflected borders")
    dtype = wide(input.dtype)
    x, g = b.convert(input, dtype), b.convert(grid, dtype)
    n, c, h, w = x.sizes
    rows = [g.sizes[0], g.sizes[1], g.sizes[2]]
    at = []
    for k, size in ((0, w), (1, h)):
        p = b.reshape(b.slice(g, 3, k, k + 1, size=1), rows)
        full = b.full(size, rows, dtype)
        one, half = like(b, 1, p), like(b, 0.5, p)
        if align_corners:
            p = b.same("multiply", b.same("multiply", b.same("add", p, one), half), b.same("subtract", full, one))
        else:
            p = b.same("multiply", b.same("subtract", b.same("multiply", b.same("add", p, one), full), one), half)
        if padding_mode == 1:
            p = b.same("minimum", b.same("maximum", p, like(b, 0, p)), b.same("subtract", full, one))
        at.append(p)
    batch = b.iota(rows, 0)

    def read(px: Value, py: Value) -> Value:
        """The pixels at whole positions, zero outside."""
        inside = None
        parts = [b.reshape(batch, [*rows, 1])]
        for p, size in ((py, h), (px, w)):
            i = b.convert(p, torch.int64)
            ok = b.same("and", b.compare("GE", i, like(b, 0, i)), b.compare("LT", i, b.full(size, rows, torch.int64)))
            inside = ok if inside is None else b.same("and", inside, ok)
            parts.append(b.reshape(clipped(b, i, size), [*rows, 1]))
        found = b.gather(x, b.concat(parts, 3), [rows[0], c, *rows[1:]], [1], [0, 2, 3], [1, c, 1, 1])
        assert inside is not None
        return b.select(b.broadcast(inside, found.sizes, (0, 2, 3)), found, like(b, 0, found))

    if interpolation_mode == 1:
        return b.convert(read(*[b.same("round_nearest_even", p) for p in at]), b.outs[0].dtype)
    low = [b.same("floor", p) for p in at]
    total = None
    for dx in (0, 1):
        for dy in (0, 1):
            corner = [b.same("add", p, like(b, k, p)) for p, k in zip(low, (dx, dy))]
            weight = None
            for p, l, k in zip(at, low, (dx, dy)):
                part = b.same("subtract", p, l)
                part = part if k else b.same("subtract", like(b, 1, part), part)
                weight = part if weight is None else b.same("multiply", weight, part)
            pixels = read(*corner)
            assert weight is not None
            piece = b.same("multiply", pixels, b.broadcast(weight, pixels.sizes, (0, 2, 3)))
            total = piece if total is None else b.same("add", total, piece)
    assert total is not None
    return b.convert(total, b.outs[0].dtype)
