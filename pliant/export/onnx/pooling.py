"""Pooling and resampling. Adaptive windows and interpolation are weights over positions, so they work for every size."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import onnx_ir as ir
import torch

from pliant.export.onnx.elementwise import out_dtype, working
from pliant.export.onnx.graph import Graph, NotExpressible, Size, Tensor, torch_dtype
from pliant.export.onnx.networks import spread, static
from pliant.export.onnx.shapes import arange_of, sizes_of
from pliant.symbolic.expr import Expr

Row = Callable[..., Any]
I64 = torch.int64


def batched(g: Graph, x: Tensor, n: int, v: ir.Value, pool: Callable[[ir.Value], tuple]) -> tuple:
    """`pool` of a batch; one without is a batch of one."""
    if x.rank == n + 2:
        return pool(v)
    return tuple(g.op("Squeeze", o, g.ints(0)) for o in pool(g.op("Unsqueeze", v, g.ints(0))))


def windows(n: int, kernel: Any, stride: Any, padding: Any, dilation: Any = (1,)) -> tuple[list[int], list[int], list[int], list[int]]:
    k = spread(static(kernel, "a window"), n)
    s = spread(static(stride, "a stride"), n) if stride else k
    return k, s, spread(static(padding, "a padding"), n), spread(static(dilation, "a dilation"), n)


def padded(g: Graph, op: Any, x: Tensor, v: ir.Value, value: float, k: list[int], s: list[int], p: list[int], d: list[int]) -> ir.Value:
    """With what `ceil_mode` reads beyond the end, so that the number of windows is eager's whatever the runtime rounds."""
    n = len(k)
    outs, space = sizes_of(g, op.outs[0])[-n:], x.sizes[-n:]
    ends = [(outs[i] - 1) * s[i] + d[i] * (k[i] - 1) + 1 - space[i] - p[i] for i in range(n)]  # negative: not all is read
    front: list[Size] = [0] * (x.rank - n)
    return g.op("Pad", v, g.sizes.vector([*front, *p, *front, *ends]), g.const(value, torch_dtype(v)), mode="constant")


def max_pool(n: int) -> Row:
    def row(
        g: Graph, op: Any, x: Tensor, kernel: Any, stride: Any = (), padding: Any = (0,), dilation: Any = (1,), ceil: bool = False
    ) -> Any:
        k, s, p, d = windows(n, kernel, stride, padding, dilation)
        v = g.cast(x.value, working(op))
        pads = p + p
        positions = op.out_spec is not None and g.wants(op, 1)
        if ceil:
            if positions:
                raise NotExpressible("the positions of max pooling with ceil_mode")
            low: Any = float("-inf") if x.dtype.is_floating_point else torch.iinfo(x.dtype).min
            v, pads = padded(g, op, x, v, low, k, s, p, d), [0] * (2 * n)
        given = dict(kernel_shape=k, strides=s, pads=pads, dilations=d)
        if not positions:
            out = g.cast(batched(g, x, n, v, lambda v: (g.op("MaxPool", v, **given),))[0], x.dtype)
            return out if op.out_spec is None else (out, None)
        out, at = batched(g, x, n, v, lambda v: g.ops("MaxPool", 2, v, dtypes=[torch_dtype(v), I64], **given))
        return g.cast(out, x.dtype), g.op("Mod", at, g.number(math.prod(x.sizes[-n:]), I64))

    return row


def avg_pool(n: int) -> Row:
    def row(g: Graph, op: Any, x: Tensor, kernel: Any, stride: Any = (), padding: Any = (0,), ceil: bool = False, count_pad: bool = True,
            divisor: int | None = None) -> ir.Value:  # fmt: skip
        k, s, p, d = windows(n, kernel, stride, padding)
        v = g.cast(x.value, working(op))
        dtype = torch_dtype(v)
        if not ceil and divisor is None:
            given = dict(kernel_shape=k, strides=s, pads=p + p, count_include_pad=int(count_pad))
            return g.cast(batched(g, x, n, v, lambda v: (g.op("AveragePool", v, **given),))[0], out_dtype(op))
        v = padded(g, op, x, v, 0.0, k, s, p, d)
        v = batched(g, x, n, v, lambda v: (g.op("AveragePool", v, kernel_shape=k, strides=s),))[0]
        v = g.op("Mul", v, g.const(float(math.prod(k)), dtype))
        if divisor is not None:
            return g.cast(g.op("Div", v, g.const(divisor, dtype)), out_dtype(op))
        outs = sizes_of(g, op.outs[0])[-n:]
        for i in range(n):
            c = window_counts(g, x.sizes[x.rank - n + i], outs[i], k[i], s[i], p[i], count_pad)
            v = g.op("Div", v, g.reshape(g.cast(c, dtype), [outs[i], *[1] * (n - 1 - i)]))
        return g.cast(v, out_dtype(op))

    return row


def window_counts(g: Graph, size: Size, out: Size, k: int, s: int, p: int, count_pad: bool) -> ir.Value:
    """How many positions each window averages over."""
    n = g.number(size, I64)
    begin = g.op("Sub", g.op("Mul", arange_of(g, out), g.const(s)), g.const(p))
    end = g.op("Min", g.op("Add", begin, g.const(k)), g.op("Add", n, g.const(p)))
    if not count_pad:
        begin, end = g.op("Max", begin, g.const(0)), g.op("Min", end, n)
    return g.op("Sub", end, begin)


# adaptive ---------------------------------------------------------------------------------------------------------------------------
def adaptive_windows(g: Graph, size: Size, out: Size) -> tuple[ir.Value, ir.Value]:
    """Begin and end of each: floor(i * size / out), ceil((i + 1) * size / out)."""
    i, n, m = arange_of(g, out), g.number(size, I64), g.op("Max", g.number(out, I64), g.const(1))
    end = g.op("Sub", g.op("Add", g.op("Mul", g.op("Add", i, g.const(1)), n), m), g.const(1))
    return g.op("Div", g.op("Mul", i, n), m), g.op("Div", end, m)


def inside(g: Graph, size: Size, out: Size) -> tuple[ir.Value, ir.Value]:
    """[out, size]: whether a position lies in a window; and the windows' lengths."""
    begin, end = adaptive_windows(g, size, out)
    at = g.op("Unsqueeze", arange_of(g, size), g.ints(0))
    first = g.op("GreaterOrEqual", at, g.op("Unsqueeze", begin, g.ints(1)))
    return g.op("And", first, g.op("Less", at, g.op("Unsqueeze", end, g.ints(1)))), g.op("Sub", end, begin)


def last(rank: int, axis: int) -> list[int]:
    """The order of dims in which `axis` and the last one have changed places."""
    order = list(range(rank))
    order[axis], order[-1] = order[-1], order[axis]
    return order


def adaptive_avg_pool(n: int) -> Row:
    def row(g: Graph, op: Any, x: Tensor, _: Any) -> ir.Value:
        v = g.cast(x.value, working(op))
        dtype = torch_dtype(v)
        outs, space = sizes_of(g, op.outs[0])[-n:], x.sizes[-n:]
        axes = list(range(x.rank - n, x.rank))
        if all(not isinstance(o, Expr) and o == 1 for o in outs):
            return g.cast(g.op("ReduceMean", v, g.ints(*axes), keepdims=1), out_dtype(op))
        if all(not isinstance(s, Expr) and not isinstance(o, Expr) and o and s % o == 0 and s for s, o in zip(space, outs)):
            k = [int(s // o) for s, o in zip(space, outs)]
            return g.cast(batched(g, x, n, v, lambda v: (g.op("AveragePool", v, kernel_shape=k, strides=k),))[0], out_dtype(op))
        for axis, size, out in zip(axes, space, outs):
            within, lengths = inside(g, size, out)
            order = last(x.rank, axis)
            sums = g.op("MatMul", g.transpose(v, order), g.transpose(g.cast(within, dtype), [1, 0]))
            v = g.transpose(g.op("Div", sums, g.cast(lengths, dtype)), order)
        return g.cast(v, out_dtype(op))

    return row


def adaptive_max_pool(n: int) -> Row:
    def row(g: Graph, op: Any, x: Tensor, _: Any) -> tuple:
        if g.wants(op, 1):
            raise NotExpressible("the positions of adaptive max pooling")
        v = g.cast(x.value, working(op))
        outs, space = sizes_of(g, op.outs[0])[-n:], x.sizes[-n:]
        for axis, size, out in zip(range(x.rank - n, x.rank), space, outs):
            within, _lengths = inside(g, size, out)
            order = last(x.rank, axis)
            rows = g.op("Unsqueeze", g.transpose(v, order), g.ints(-2))
            best = g.op("ReduceMax", g.op("Where", within, rows, g.const(-math.inf, torch_dtype(v))), g.ints(-1), keepdims=0)
            v = g.transpose(best, order)
        return g.cast(v, x.dtype), None

    return row


# resampling -------------------------------------------------------------------------------------------------------------------------
def scale_of(g: Graph, size: Size, out: Size, scale: Any, align: bool) -> ir.Value:
    """How far apart in the input two neighbours of the output lie, in float32 as eager's kernels have it."""
    f32 = torch.float32
    if align:
        n, m = g.cast(g.number(size, I64), f32), g.cast(g.number(out, I64), f32)
        one = g.const(1.0, f32)
        step = g.op("Div", g.op("Sub", n, one), g.op("Max", g.op("Sub", m, one), one))
        return g.op("Where", g.op("Greater", m, one), step, g.const(0.0, f32))
    if scale is not None and (isinstance(scale, Expr) or scale > 0):
        return g.op("Div", g.const(1.0, f32), g.number(scale, f32)) if isinstance(scale, Expr) else g.const(1.0 / scale, f32)
    return g.op("Div", g.cast(g.number(size, I64), f32), g.cast(g.number(out, I64), f32))


def source(g: Graph, out: Size, step: ir.Value, align: bool, clipped: bool) -> ir.Value:
    """Where each place of the output lies in the input."""
    f32 = torch.float32
    i = g.cast(arange_of(g, out), f32)
    if align:
        return g.op("Mul", i, step)
    half = g.const(0.5, f32)
    at = g.op("Sub", g.op("Mul", g.op("Add", i, half), step), half)
    return g.op("Max", at, g.const(0.0, f32)) if clipped else at


def taps(g: Graph, mode: str, size: Size, out: Size, scale: Any, align: bool) -> list[tuple[ir.Value, ir.Value | None]]:
    """Positions and weights (None: 1) whose sum is the result along one dim."""
    f32 = torch.float32
    step = scale_of(g, size, out, scale, align)
    top = g.number(size - 1, I64)

    def bounded(v: ir.Value) -> ir.Value:
        return g.op("Min", g.op("Max", v, g.const(0)), top)

    if mode in ("nearest", "nearest-exact"):
        i = g.cast(arange_of(g, out), f32)
        at = g.op("Mul", g.op("Add", i, g.const(0.5, f32)) if mode == "nearest-exact" else i, step)
        return [(g.op("Min", g.cast(g.op("Floor", at), I64), top), None)]
    at = source(g, out, step, align, mode == "linear")
    low = g.op("Floor", at)
    t = g.op("Sub", at, low)
    base = g.cast(low, I64)
    one = g.const(1.0, f32)
    if mode == "linear":
        return [(bounded(base), g.op("Sub", one, t)), (bounded(g.op("Add", base, g.const(1))), t)]
    return [(bounded(g.op("Add", base, g.const(j - 1))), w) for j, w in enumerate(cubic(g, t))]


def cubic(g: Graph, t: ir.Value) -> list[ir.Value]:
    """The four weights of cubic convolution with A = -0.75."""
    a, f32 = -0.75, torch.float32

    def polynomial(x: ir.Value, *coefficients: float) -> ir.Value:
        out = g.const(coefficients[0], f32)
        for c in coefficients[1:]:
            out = g.op("Mul", out, x)
            out = g.op("Add", out, g.const(c, f32)) if c else out
        return out

    one = g.const(1.0, f32)
    rest = g.op("Sub", one, t)
    near = (a + 2, -(a + 3), 0.0, 1.0)
    far = (a, -5 * a, 8 * a, -4 * a)
    return [
        polynomial(g.op("Add", t, one), *far), polynomial(t, *near), polynomial(rest, *near), polynomial(g.op("Add", rest, one), *far),
    ]  # fmt: skip


def upsample(mode: str, n: int, aligns: bool, vec: bool = False) -> Row:
    def row(g: Graph, op: Any, x: Tensor, size: Any, *args: Any) -> ir.Value:
        rest = list(args)
        align = bool(rest.pop(0)) if aligns else False
        scales = (list(rest[0]) if rest and rest[0] is not None else [None] * n) if vec else (rest + [None] * n)[:n]
        v = x.value if mode.startswith("nearest") else g.cast(x.value, working(op))
        outs = sizes_of(g, op.outs[0])[-n:]
        for i in range(n):
            axis = x.rank - n + i
            total: ir.Value | None = None
            for at, w in taps(g, mode, x.sizes[axis], outs[i], scales[i], align):
                part = g.op("Gather", v, at, axis=axis)
                if w is not None:
                    part = g.op("Mul", part, g.reshape(g.cast(w, torch_dtype(v)), [outs[i], *[1] * (n - 1 - i)]))
                total = part if total is None else g.op("Add", total, part)
            assert total is not None
            v = total
        return g.cast(v, out_dtype(op))

    return row


GRID_MODES, GRID_PADDING = ("linear", "nearest", "cubic"), ("zeros", "border", "reflection")


def grid_sample(g: Graph, op: Any, x: Tensor, grid: Tensor, mode: int, padding: int, align: bool | None) -> ir.Value:
    v = g.op("GridSample", g.cast(x.value, working(op)), g.cast(grid.value, working(op)), mode=GRID_MODES[mode],
             padding_mode=GRID_PADDING[padding], align_corners=int(bool(align)))  # fmt: skip
    return g.cast(v, out_dtype(op))


def sampled(names: Sequence[tuple[str, str, int, bool]]) -> dict[str, Row]:
    rows: dict[str, Row] = {}
    for name, mode, n, aligns in names:
        rows[name], rows[f"{name}.vec"] = upsample(mode, n, aligns), upsample(mode, n, aligns, vec=True)
    return rows


ROWS: dict[str, Row] = {
    "max_pool2d_with_indices": max_pool(2), "max_pool3d_with_indices": max_pool(3), "max_pool1d": max_pool(1), "max_pool2d": max_pool(2),
    "avg_pool1d": avg_pool(1), "avg_pool2d": avg_pool(2), "avg_pool3d": avg_pool(3), "_adaptive_avg_pool2d": adaptive_avg_pool(2),
    "_adaptive_avg_pool3d": adaptive_avg_pool(3), "adaptive_avg_pool1d": adaptive_avg_pool(1), "adaptive_max_pool1d": adaptive_max_pool(1),
    "adaptive_max_pool2d": adaptive_max_pool(2), "adaptive_max_pool3d": adaptive_max_pool(3), "grid_sampler_2d": grid_sample,
    "grid_sampler_3d": grid_sample,
    **sampled([
        ("upsample_nearest1d", "nearest", 1, False), ("upsample_nearest2d", "nearest", 2, False), ("upsample_nearest3d",
        "nearest", 3, False),
        ("_upsample_nearest_exact1d", "nearest-exact", 1, False), ("_upsample_nearest_exact2d", "nearest-exact", 2, False),
        ("_upsample_nearest_exact3d", "nearest-exact", 3, False), ("upsample_linear1d", "linear", 1, True),
        ("upsample_bilinear2d", "linear", 2, True), ("upsample_trilinear3d", "linear", 3, True), ("upsample_bicubic2d", "cubic", 2, True),
    ]),
}  # fmt: skip
