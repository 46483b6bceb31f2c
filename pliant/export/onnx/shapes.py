"""Views, and what moves or makes data: shapes, concatenation, slices, padding, constants."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import onnx_ir as ir
import torch

from pliant.export.onnx.elementwise import out_dtype, same
from pliant.export.onnx.graph import Graph, NotExpressible, Size, Tensor, compute, torch_dtype
from pliant.graph.layout import memory_order
from pliant.graph.symnode import expr_of
from pliant.symbolic import ops
from pliant.symbolic.expr import Expr

Row = Callable[..., Any]
LAST = 2**63 - 1


def sizes_of(g: Graph, t: Any) -> list[Size]:
    return [g.size(s) for s in t.sizes]


def reshape(g: Graph, op: Any, x: Tensor, *args: Any, **_: Any) -> ir.Value:
    """To the sizes that the result has: there is nothing to infer."""
    want = sizes_of(g, op.outs[0])
    if len(want) == x.rank and all(
        a is b or a == b if not isinstance(a, Expr) and not isinstance(b, Expr) else a is b for a, b in zip(want, x.sizes)
    ):
        return x.value
    return g.reshape(x.value, want)


def view(g: Graph, op: Any, x: Tensor, sizes: Any) -> ir.Value:
    return reshape(g, op, x)


def squeeze(g: Graph, op: Any, x: Tensor, dims: Any = None) -> ir.Value:
    """Without the dims that are 1: it must be known which are, for the result has as many dims as that leaves."""
    asked = range(x.rank) if dims is None else [d % x.rank for d in ([dims] if isinstance(dims, int) else dims)] if x.rank else []
    for d in asked:
        size = x.sizes[d]
        if isinstance(size, Expr) and not g.scope.known_false(ops.eq(size, 1)) and not g.scope.known_true(ops.eq(size, 1)):
            raise NotExpressible(f"squeeze of a dim that is {size.python()}, perhaps 1")
    return reshape(g, op, x)


def expand(g: Graph, op: Any, x: Tensor, sizes: Any, **_: Any) -> ir.Value:
    return g.op("Expand", x.value, g.sizes.vector(sizes_of(g, op.outs[0])))


def permute(g: Graph, op: Any, x: Tensor, dims: Sequence[int]) -> ir.Value:
    return g.transpose(x.value, [d % x.rank for d in dims] if x.rank else [])


def transpose(g: Graph, op: Any, x: Tensor, a: int = 0, b: int = 1) -> ir.Value:
    order = list(range(x.rank))
    if x.rank > 1 or (x.rank and a != b and op.target._schema.name != "aten::t"):
        a, b = a % x.rank, b % x.rank
        order[a], order[b] = order[b], order[a]
    return g.transpose(x.value, order)


def unsqueeze(g: Graph, op: Any, x: Tensor, dim: int) -> ir.Value:
    return g.op("Unsqueeze", x.value, g.ints(dim % (x.rank + 1)))


def select(g: Graph, op: Any, x: Tensor, dim: int, index: Size) -> ir.Value:
    i = g.sizes.scalar(index) if isinstance(index, Expr) else g.const(index)
    return g.op("Gather", x.value, i, axis=dim % x.rank)


def cut(g: Graph, v: ir.Value, d: int, start: Size | None, end: Size | None, step: int = 1) -> ir.Value:
    """`v[..., start:end:step, ...]`, with Python's meaning of bounds."""
    lo, hi = 0 if start is None else start, LAST if end is None else end
    if not isinstance(lo, Expr) and not isinstance(hi, Expr) and lo == 0 and hi == LAST and step == 1:
        return v
    return g.op("Slice", v, g.sizes.vector([lo]), g.sizes.vector([hi]), g.ints(d), g.ints(step))


def slice_(g: Graph, op: Any, x: Tensor, dim: int = 0, start: Size | None = None, end: Size | None = None, step: int = 1) -> ir.Value:
    if isinstance(step, Expr):
        raise NotExpressible("a slice with a step that is not a constant")
    return cut(g, x.value, dim % x.rank, start, end, step)


def split(g: Graph, op: Any, x: Tensor, sizes: Any, dim: int = 0) -> tuple:
    d = dim % x.rank
    outs = [g.size(o.sizes[d]) for o in op.outs]
    if len(outs) == 1:
        return (x.value,)
    return g.ops("Split", len(outs), x.value, g.sizes.vector(outs), dtypes=[x.dtype] * len(outs), axis=d)


def unbind(g: Graph, op: Any, x: Tensor, dim: int = 0) -> tuple:
    return tuple(g.op("Gather", x.value, g.const(i), axis=dim % x.rank) for i in range(len(op.outs)))


def concat(g: Graph, op: Any, xs: list[Tensor], dim: int = 0) -> ir.Value:
    dtype, rank = out_dtype(op), len(op.outs[0].sizes)
    kept = [g.cast(x.value, dtype) for x in xs if x.rank == rank]  # else it is the empty vector that `cat` overlooks
    return kept[0] if len(kept) == 1 else g.op("Concat", *kept, axis=dim % rank)


def stack(g: Graph, op: Any, xs: list[Tensor], dim: int = 0) -> ir.Value:
    d = dim % len(op.outs[0].sizes)
    return g.op("Concat", *[g.op("Unsqueeze", g.cast(x.value, out_dtype(op)), g.ints(d)) for x in xs], axis=d)


def flip(g: Graph, op: Any, x: Tensor, dims: Sequence[int]) -> ir.Value:
    ds = [d % x.rank for d in dims] if x.rank else []
    n = len(ds)
    return g.op("Slice", x.value, g.ints(*[-1] * n), g.ints(*[-LAST] * n), g.ints(*ds), g.ints(*[-1] * n)) if ds else x.value


def roll(g: Graph, op: Any, x: Tensor, shifts: Any, dims: Any = ()) -> ir.Value:
    by = list(shifts) if isinstance(shifts, (list, tuple)) else [shifts]
    v = x.value if dims else g.reshape(x.value, [-1])
    for d, s in zip([d % x.rank for d in dims] if dims else [0], by, strict=True):
        n = ops.max_(x.sizes[d] if dims else math.prod(x.sizes), 1)  # a remainder of nothing stops the process
        at = n - s % n
        v = g.op("Concat", cut(g, v, d, at, None), cut(g, v, d, 0, at), axis=d)
    return v if dims else g.reshape(v, x.sizes)


def repeat(g: Graph, op: Any, x: Tensor, repeats: Sequence[Size]) -> ir.Value:
    v = g.reshape(x.value, [1] * (len(repeats) - x.rank) + list(x.sizes)) if len(repeats) > x.rank else x.value
    return g.op("Tile", v, g.sizes.vector(repeats)) if repeats else v


def arange_of(g: Graph, n: Size) -> ir.Value:
    """[0, 1, ..., n)."""
    return g.op("Range", g.const(0), g.sizes.scalar(n) if isinstance(n, Expr) else g.const(n), g.const(1))


def unfold(g: Graph, op: Any, x: Tensor, dim: int, size: int, step: int) -> ir.Value:
    if not x.rank:
        return g.reshape(x.value, [1])
    d = dim % x.rank
    n = g.size(op.outs[0].sizes[d])
    at = g.op(
        "Add", g.op("Unsqueeze", g.op("Mul", arange_of(g, n), g.const(step)), g.ints(1)), g.op("Unsqueeze", arange_of(g, size), g.ints(0))
    )
    v = g.op("Gather", x.value, at, axis=d)
    order = [i for i in range(x.rank + 1) if i != d + 1]
    return g.transpose(v, [*order, d + 1])


def diagonal(g: Graph, op: Any, x: Tensor, offset: int = 0, a: int = 0, b: int = 1) -> ir.Value:
    a, b = a % x.rank, b % x.rank
    rest = [d for d in range(x.rank) if d not in (a, b)]
    v = g.transpose(x.value, [*rest, a, b])
    rows, cols = x.sizes[a], x.sizes[b]
    n = g.size(op.outs[0].sizes[-1])
    flat = g.reshape(v, [*[x.sizes[d] for d in rest], rows * cols])
    start = offset if offset >= 0 else cols * -offset
    at = g.op("Add", g.op("Mul", arange_of(g, n), g.number(cols + 1, torch.int64)), g.number(start, torch.int64))
    return g.op("Gather", flat, at, axis=len(rest))


def as_strided(g: Graph, op: Any, x: Tensor, sizes: Sequence[Size], strides: Sequence[Size], offset: Size | None = None) -> ir.Value:
    source = op.args[0]
    begin = g.size(source.offset)
    order = memory_order(g.scope, *([expr_of(n, g.scope) for n in of] for of in (source.sizes, source.strides)))
    if order is None or (begin != 0 if isinstance(begin, int) else source.source is None):
        raise NotExpressible("as_strided of a tensor that does not fill its memory from the start")
    at = g.const(0) if offset is None else g.number(offset, torch.int64)
    for i, (n, s) in enumerate(zip(sizes, strides, strict=True)):
        step = g.op("Mul", arange_of(g, n), g.number(s, torch.int64))
        at = g.op("Add", at, g.reshape(step, [n if j == i else 1 for j in range(len(sizes))]))
    return g.op("Gather", g.reshape(g.transpose(x.value, order), [-1]), at, axis=0)


def pad(mode: str) -> Row:
    def row(g: Graph, op: Any, x: Tensor, pads: Sequence[Size], value: Any = 0) -> ir.Value:
        n = len(pads) // 2
        front = [*[0] * (x.rank - n), *[pads[2 * (n - 1 - i)] for i in range(n)]]
        back = [*[0] * (x.rank - n), *[pads[2 * (n - 1 - i) + 1] for i in range(n)]]
        vector = g.sizes.vector([*front, *back])
        if mode == "constant":
            return g.op("Pad", x.value, vector, g.number(value, x.dtype), mode=mode)
        return g.op("Pad", x.value, vector, mode=mode)

    return row


def slice_scatter(g: Graph, op: Any, x: Tensor, src: Tensor, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> ir.Value:
    """Where the slice of positions goes, the source's rows."""
    d = dim % x.rank
    at = cut(g, arange_of(g, x.sizes[d]), 0, start, end, step)
    return put_rows(g, x, d, at, g.op("Expand", g.cast(src.value, x.dtype), spread(g, x, d, at)))


def spread(g: Graph, x: Tensor, d: int, at: ir.Value) -> ir.Value:
    """The shape of `x` with as many rows along d as `at` has."""
    return g.op("Concat", *[g.op("Shape", at) if i == d else g.sizes.vector([s]) for i, s in enumerate(x.sizes)], axis=0)


def combined(g: Graph, name: str, x: ir.Value, at: ir.Value, v: ir.Value, reduction: str, **given: Any) -> ir.Value:
    """A scatter; what ONNX Runtime does not combine (bools, halves) is combined in another dtype."""
    dtype = torch_dtype(x)
    work = dtype if reduction == "none" else torch.int32 if dtype is torch.bool else compute(dtype)
    return g.cast(g.op(name, g.cast(x, work), at, g.cast(v, work), reduction=reduction, **given), dtype)


def put_rows(g: Graph, x: Tensor, d: int, at: ir.Value, rows: ir.Value, reduction: str = "none") -> ir.Value:
    """`x` with the rows `at` (a vector) along dim d replaced, or added to."""
    order = [d, *[i for i in range(x.rank) if i != d]]
    back = [order.index(i) for i in range(x.rank)]
    index = g.op("Unsqueeze", at, g.ints(1))
    out = combined(g, "ScatterND", g.transpose(x.value, order), index, g.transpose(rows, order), reduction)
    return g.transpose(out, back)


def select_scatter(g: Graph, op: Any, x: Tensor, src: Tensor, dim: int, index: Size) -> ir.Value:
    d = dim % x.rank
    at = g.sizes.vector([index])
    return put_rows(g, x, d, at, g.op("Unsqueeze", g.cast(src.value, x.dtype), g.ints(d)))


def diagonal_scatter(g: Graph, op: Any, x: Tensor, src: Tensor, offset: int = 0, a: int = 0, b: int = 1) -> ir.Value:
    """The positions of the diagonal, in a table of all, say where the source goes."""
    a, b = a % x.rank, b % x.rank
    rest = [d for d in range(x.rank) if d not in (a, b)]
    order = [*rest, a, b]
    n = g.size(op.args[1].sizes[-1])
    rows, cols = x.sizes[a], x.sizes[b]
    flat = g.reshape(g.transpose(x.value, order), [*[x.sizes[d] for d in rest], rows * cols])
    start = offset if offset >= 0 else cols * -offset
    at = g.op("Add", g.op("Mul", arange_of(g, n), g.number(cols + 1, torch.int64)), g.number(start, torch.int64))
    wide = Tensor(flat, x.dtype, tuple([*[x.sizes[d] for d in rest], rows * cols]))
    out = put_rows(g, wide, len(rest), at, g.cast(src.value, x.dtype))
    return g.transpose(g.reshape(out, [x.sizes[d] for d in order]), [order.index(d) for d in range(x.rank)])


def trace(g: Graph, op: Any, x: Tensor) -> ir.Value:
    n, m = x.sizes
    at = g.op("Equal", g.op("Unsqueeze", arange_of(g, n), g.ints(1)), g.op("Unsqueeze", arange_of(g, m), g.ints(0)))
    dtype = out_dtype(op)
    return g.op("ReduceSum", g.op("Where", at, g.cast(x.value, dtype), g.const(0, dtype)), g.ints(0, 1), keepdims=0)


def tri(upper: int) -> Row:
    return lambda g, op, x, diagonal=0: g.op("Trilu", x.value, g.number(diagonal, torch.int64), upper=upper)


# making -------------------------------------------------------------------------------------------------------------------------------
def filled(g: Graph, t: Any, value: Any) -> ir.Value:
    return g.op("Expand", g.number(value, t.dtype), g.sizes.vector(sizes_of(g, t)))


def full(g: Graph, op: Any, sizes: Any, value: Any, **_: Any) -> ir.Value:
    if isinstance(value, Tensor):
        return g.op("Expand", g.cast(value.value, out_dtype(op)), g.sizes.vector(sizes_of(g, op.outs[0])))
    return filled(g, op.outs[0], value)


def constant(value: int) -> Row:
    return lambda g, op, *args, **kwargs: filled(g, op.outs[0], value)


def fill(g: Graph, op: Any, x: Tensor, value: Any, **_: Any) -> ir.Value:
    return full(g, op, None, value)


def new_full(g: Graph, op: Any, x: Tensor, sizes: Any, value: Any, **_: Any) -> ir.Value:
    return full(g, op, None, value)


def scalar_tensor(g: Graph, op: Any, value: Any, **_: Any) -> ir.Value:
    return g.number(value, out_dtype(op))


def arange(g: Graph, op: Any, *numbers: Any, **_: Any) -> ir.Value:
    """Of its length, which the program knows: start + i * step; floats in float64 as eager does."""
    start, step = 0, 1
    if len(numbers) > 1:
        start, step = numbers[0], numbers[2] if len(numbers) > 2 else 1
    dtype = out_dtype(op)
    i = arange_of(g, g.size(op.outs[0].sizes[0]))
    work = torch.float64 if dtype.is_floating_point else torch.int64
    if not isinstance(step, Expr) and step == 1 and not isinstance(start, Expr) and start == 0:
        return g.cast(i, dtype)
    i = g.cast(i, work)
    if isinstance(step, Expr) or step != 1:
        i = g.op("Mul", i, g.number(step, work))
    return g.cast(g.op("Add", i, g.number(start, work)), dtype)


def linspace(g: Graph, op: Any, start: Any, end: Any, steps: int, **_: Any) -> ir.Value:
    """From both ends to the middle, as eager does."""
    dtype = out_dtype(op)
    work = torch.float64
    i = g.cast(arange_of(g, steps), work)
    a, b = g.operand(start, work), g.operand(end, work)
    n = g.number(steps, work)
    one = g.const(1.0, work)
    step = g.op("Div", g.op("Sub", b, a), g.op("Max", g.op("Sub", n, one), one))
    low = g.op("Add", a, g.op("Mul", i, step))
    high = g.op("Sub", b, g.op("Mul", g.op("Sub", g.op("Sub", n, one), i), step))
    half = g.op("Floor", g.op("Div", n, g.const(2.0, work)))
    only = g.op("Where", g.op("Equal", n, one), low, g.op("Where", g.op("Less", i, half), low, high))
    return g.cast(only, dtype)


def eye(g: Graph, op: Any, *_: Any, **__: Any) -> ir.Value:
    n, m = sizes_of(g, op.outs[0])
    at = g.op("Equal", g.op("Unsqueeze", arange_of(g, n), g.ints(1)), g.op("Unsqueeze", arange_of(g, m), g.ints(0)))
    return g.cast(at, out_dtype(op))


def random(name: str, **given: Any) -> Row:
    """Other numbers than PyTorch's: ONNX has no generator to share."""

    def row(g: Graph, op: Any, *_: Any, **__: Any) -> ir.Value:
        like = g.op("Expand", g.const(0.0, torch.float32), g.sizes.vector(sizes_of(g, op.outs[0])))
        return g.cast(g.op(name, like, **given), out_dtype(op))

    return row


def numel(g: Graph, op: Any, x: Tensor) -> ir.Value:
    return g.op("Size", x.value)


def pixel_shuffle(g: Graph, op: Any, x: Tensor, r: int) -> ir.Value:
    *batch, c, h, w = x.sizes
    b = len(batch)
    v = g.reshape(x.value, [*batch, c // r**2, r, r, h, w])
    v = g.transpose(v, [*range(b), b, b + 3, b + 1, b + 4, b + 2])
    return g.reshape(v, sizes_of(g, op.outs[0]))


def pixel_unshuffle(g: Graph, op: Any, x: Tensor, r: int) -> ir.Value:
    *batch, c, h, w = x.sizes
    b = len(batch)
    v = g.reshape(x.value, [*batch, c, h // r, r, w // r, r])
    v = g.transpose(v, [*range(b), b, b + 2, b + 4, b + 1, b + 3])
    return g.reshape(v, sizes_of(g, op.outs[0]))


ROWS: dict[str, Row] = {
    "view": view, "_unsafe_view": view, "reshape": view, "_reshape_alias": reshape, "view_copy": view, "squeeze": squeeze,
    "squeeze.dim": squeeze, "squeeze.dims": squeeze, "flatten.using_ints": reshape, "unflatten.int": reshape, "expand": expand,
    "permute": permute, "transpose.int": transpose, "t": transpose, "unsqueeze": unsqueeze, "select.int": select, "slice.Tensor": slice_,
    "narrow": lambda g, op, x, dim, start, n: cut(g, x.value, dim % x.rank, start, start + n), "split.Tensor": split,
    "split_with_sizes": split, "split_with_sizes_copy": split, "chunk": split, "unbind.int": unbind, "cat": concat, "stack": stack,
    "flip": flip, "roll": roll, "repeat": repeat, "tile": repeat, "unfold": unfold, "diagonal": diagonal, "as_strided": as_strided,
    "diagonal_copy": diagonal, "constant_pad_nd": pad("constant"), "reflection_pad1d": pad("reflect"), "reflection_pad2d": pad("reflect"),
    "reflection_pad3d": pad("reflect"), "replication_pad1d": pad("edge"), "replication_pad2d": pad("edge"),
    "replication_pad3d": pad("edge"),
    "slice_scatter": slice_scatter, "diagonal_scatter": diagonal_scatter, "trace": trace,
    "unbind_copy.int": unbind, "select_scatter": select_scatter, "tril": tri(0), "triu": tri(1), "full": full, "full_like": fill,
    "new_full": new_full, "fill.Scalar": fill, "fill.Tensor": fill, "zeros": constant(0), "zeros_like": constant(0),
    "new_zeros": constant(0),
    "ones": constant(1), "ones_like": constant(1), "new_ones": constant(1), "empty.memory_format": constant(0), "empty_like": constant(0),
    "new_empty": constant(0), "empty_strided": constant(0), "new_empty_strided": constant(0), "empty_permuted": constant(0),
    "scalar_tensor": scalar_tensor, "arange": arange, "arange.start": arange, "arange.start_step": arange, "linspace": linspace, "eye": eye,
    "eye.m": eye, "rand": random("RandomUniformLike"), "randn": random("RandomNormalLike"), "rand_like": random("RandomUniformLike"),
    "randn_like": random("RandomNormalLike"), "numel": numel, "pixel_shuffle": pixel_shuffle, "pixel_unshuffle": pixel_unshuffle,
    "squeeze_copy": reshape, "unsqueeze_copy": unsqueeze, "expand_copy": expand, "permute_copy": permute, "t_copy": transpose,
    "slice_copy.Tensor": slice_, "select_copy.int": select, "alias_copy": same, "detach_copy": same,
}  # fmt: skip
