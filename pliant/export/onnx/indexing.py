"""Gathers, scatters, and what the data decides: nonzero, masked_select, unique, item, repeat_interleave.

Negative indices: ONNX's gathers and scatters take them as PyTorch does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import onnx_ir as ir
import torch

from pliant.export.onnx.elementwise import out_dtype
from pliant.export.onnx.graph import Graph, NotExpressible, Size, Tensor, torch_dtype
from pliant.export.onnx.shapes import arange_of, combined, cut, put_rows, sizes_of, spread
from pliant.symbolic.expr import Expr

Row = Callable[..., Any]
I64 = torch.int64


def long(g: Graph, v: ir.Value) -> ir.Value:
    return v if torch_dtype(v) is torch.int32 else g.cast(v, I64)


def embedding(g: Graph, op: Any, weight: Tensor, at: Tensor, *_: Any) -> ir.Value:
    return g.op("Gather", weight.value, long(g, at.value), axis=0)


def index_select(g: Graph, op: Any, x: Tensor, dim: int, at: Tensor) -> ir.Value:
    v = g.op("Gather", x.value if x.rank else g.reshape(x.value, [1]), long(g, at.value), axis=dim % max(x.rank, 1))
    return v if at.rank and x.rank else g.reshape(v, sizes_of(g, op.outs[0]))


def gather(g: Graph, op: Any, x: Tensor, dim: int, at: Tensor, *_: Any) -> ir.Value:
    if not x.rank or not at.rank:
        v = g.op("Gather", g.reshape(x.value, [-1]), g.cast(at.value, I64), axis=0)
        return g.reshape(v, sizes_of(g, op.outs[0]))
    if x.rank != at.rank:
        raise NotExpressible("a gather by an empty index of other dims")
    return g.op("GatherElements", x.value, g.cast(at.value, I64), axis=dim % x.rank)


def take(g: Graph, op: Any, x: Tensor, at: Tensor) -> ir.Value:
    return g.op("Gather", g.reshape(x.value, [-1]), g.cast(at.value, I64), axis=0)


# advanced indexing ------------------------------------------------------------------------------------------------------------------
def vectors(g: Graph, x: Tensor, indices: Sequence[Tensor | None]) -> tuple[list[int], list[ir.Value], int]:
    """The indexed dims, the index of each (broadcasting), and the rank that these have together. A mask is the places where it is set."""
    dims: list[int] = []
    at: list[ir.Value] = []
    rank, d = 0, 0
    for index in indices:
        if index is None:
            d += 1
        elif index.dtype in (torch.bool, torch.uint8):
            places = nonzero_of(g, index)
            for i in range(index.rank):
                dims.append(d)
                at.append(g.op("Gather", places, g.const(i), axis=1))
                d += 1
            rank = max(rank, 1)
        else:
            dims.append(d)
            at.append(long(g, index.value))
            rank = max(rank, index.rank)
            d += 1
    return dims, at, rank


def joined(g: Graph, at: list[ir.Value]) -> ir.Value:
    """Index vectors as one tensor of index tuples."""
    at = [g.cast(a, I64) for a in at]
    if len(at) > 1:
        zero = at[0]
        for a in at[1:]:
            zero = g.op("Add", g.op("Mul", zero, g.const(0)), g.op("Mul", a, g.const(0)))
        at = [g.op("Add", a, zero) for a in at]
    return g.op("Concat", *[g.op("Unsqueeze", a, g.ints(-1)) for a in at], axis=-1)


def index(g: Graph, op: Any, x: Tensor, indices: Sequence[Tensor | None]) -> ir.Value:
    dims, at, rank = vectors(g, x, indices)
    if not dims:
        return x.value
    if len(dims) == 1:
        return g.op("Gather", x.value, at[0], axis=dims[0])
    rest = [d for d in range(x.rank) if d not in dims]
    v = g.op("GatherND", g.transpose(x.value, [*dims, *rest]), joined(g, at))
    before = dims[0] if adjacent(dims) else 0
    if not before:
        return v
    return g.transpose(v, [*range(rank, rank + before), *range(rank), *range(rank + before, rank + len(rest))])


def adjacent(dims: list[int]) -> bool:
    return dims == list(range(dims[0], dims[0] + len(dims)))


def index_put(
    g: Graph, op: Any, x: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False, *_: Any
) -> ir.Value:
    only = [i for i in indices if i is not None]
    if len(only) == 1 and only[0].dtype is torch.bool and values.rank == 0 and not accumulate:
        return masked_put(g, x, indices, only[0], values)
    dims, at, rank = vectors(g, x, indices)
    if not dims:
        return g.op("Expand", g.cast(values.value, x.dtype), g.sizes.vector(x.sizes))
    rest = [d for d in range(x.rank) if d not in dims]
    front = [*dims, *rest]
    places = joined(g, at)
    shape = cut(g, g.op("Shape", places), 0, 0, rank)
    before = dims[0] if adjacent(dims) else 0
    parts = [g.sizes.vector([x.sizes[d] for d in rest[:before]]), shape, g.sizes.vector([x.sizes[d] for d in rest[before:]])]
    v = g.op("Expand", g.cast(values.value, x.dtype), g.op("Concat", *parts, axis=0))
    v = g.transpose(v, [*range(before, before + rank), *range(before), *range(before + rank, rank + len(rest))])
    out = combined(g, "ScatterND", g.transpose(x.value, front), places, v, "add" if accumulate else "none")
    return g.transpose(out, [front.index(d) for d in range(x.rank)])


def masked_put(g: Graph, x: Tensor, indices: Sequence[Tensor | None], mask: Tensor, value: Tensor) -> ir.Value:
    at = next(i for i, m in enumerate(indices) if m is not None)
    m = g.reshape(mask.value, [*mask.sizes, *[1] * (x.rank - at - mask.rank)])
    return g.op("Where", m, g.cast(value.value, x.dtype), x.value)


# scatters --------------------------------------------------------------------------------------------------------------------------
def scatter(reduction: str) -> Row:
    def row(g: Graph, op: Any, x: Tensor, dim: int, at: Tensor, src: Any, **_: Any) -> ir.Value:
        return scattered(g, x, dim, at, src, reduction)

    return row


def scattered(g: Graph, x: Tensor, dim: int, at: Tensor, src: Any, reduction: str) -> ir.Value:
    if not x.rank:
        flat = Tensor(g.reshape(x.value, [1]), x.dtype, (1,))
        flat_at = Tensor(g.reshape(at.value, [-1]), at.dtype, (1,))
        v = Tensor(g.reshape(src.value, [-1]), src.dtype, (1,)) if isinstance(src, Tensor) else src
        return g.reshape(scattered(g, flat, 0, flat_at, v, reduction), [])
    places = g.cast(at.value, I64)
    if isinstance(src, Tensor):
        v = g.cast(src.value, x.dtype)
        if any(not (a is b or (not isinstance(a, Expr) and not isinstance(b, Expr) and a == b)) for a, b in zip(src.sizes, at.sizes)):
            n = x.rank
            v = g.op("Slice", v, g.ints(*[0] * n), g.op("Shape", places), g.ints(*range(n)))
    else:
        v = g.op("Expand", g.number(src, x.dtype), g.op("Shape", places))
    return combined(g, "ScatterElements", x.value, places, v, reduction, axis=dim % x.rank)


REDUCTIONS = {"sum": "add", "prod": "mul", "amax": "max", "amin": "min", "add": "add", "multiply": "mul"}


def scatter_reduce(g: Graph, op: Any, x: Tensor, dim: int, at: Tensor, src: Tensor, reduce: str, *, include_self: bool = True) -> ir.Value:
    if reduce not in REDUCTIONS and reduce != "mean":
        raise NotExpressible(f"scatter_reduce with {reduce!r}")
    ones = g.op("Expand", g.const(1, x.dtype), g.op("Shape", g.cast(at.value, I64)))
    source = Tensor(ones, x.dtype, at.sizes)
    if not include_self:
        start = {"sum": 0, "mean": 0, "prod": 1, "amax": lowest(x.dtype), "amin": highest(x.dtype)}[reduce]
        base = Tensor(scattered(g, x, dim, at, start, "none"), x.dtype, x.sizes)
    else:
        base = x
    if reduce != "mean":
        return scattered(g, base, dim, at, src, REDUCTIONS[reduce])
    zero = Tensor(g.op("Expand", g.const(0, x.dtype), g.op("Shape", x.value)), x.dtype, x.sizes)
    n = scattered(g, zero, dim, at, source, "add")
    n = g.op("Add", n, g.const(1, x.dtype)) if include_self else g.op("Max", n, g.const(1, x.dtype))
    total = scattered(g, base, dim, at, src, "add")
    if x.dtype.is_floating_point:
        return g.op("Div", total, n)
    return g.op("Div", g.op("Sub", total, g.op("Mod", total, n)), n)


def lowest(dtype: torch.dtype) -> Any:
    return float("-inf") if dtype.is_floating_point else torch.iinfo(dtype).min


def highest(dtype: torch.dtype) -> Any:
    return float("inf") if dtype.is_floating_point else torch.iinfo(dtype).max


def of_rows(row: Row) -> Row:
    """A row for tensors with dims, for one without, too."""

    def either(g: Graph, op: Any, x: Tensor, dim: int, at: Tensor, src: Any, **kwargs: Any) -> ir.Value:
        if x.rank and at.rank:
            return row(g, op, x, dim, at, src, **kwargs)

        def wide(t: Any) -> Any:
            return Tensor(g.reshape(t.value, [1]), t.dtype, (1,)) if isinstance(t, Tensor) and not t.rank else t

        if x.rank:
            return row(g, op, x, dim, wide(at), src, **kwargs)
        return g.reshape(row(g, op, wide(x), 0, wide(at), wide(src), **kwargs), [])

    return either


def index_add(g: Graph, op: Any, x: Tensor, dim: int, at: Tensor, src: Tensor, *, alpha: Any = 1) -> ir.Value:
    v = g.cast(src.value, x.dtype)
    if isinstance(alpha, Expr) or alpha != 1:
        v = g.op("Mul", v, g.number(alpha, x.dtype))
    return put_rows(g, x, dim % x.rank, g.cast(at.value, I64), v, "add")


def index_copy(g: Graph, op: Any, x: Tensor, dim: int, at: Tensor, src: Tensor) -> ir.Value:
    return put_rows(g, x, dim % x.rank, g.cast(at.value, I64), g.cast(src.value, x.dtype))


def index_fill(g: Graph, op: Any, x: Tensor, dim: int, at: Tensor, value: Any) -> ir.Value:
    d, places = dim % x.rank, g.cast(at.value, I64)
    return put_rows(g, x, d, places, g.op("Expand", g.operand(value, x.dtype), spread(g, x, d, places)))


def masked_scatter(g: Graph, op: Any, x: Tensor, mask: Tensor, src: Tensor) -> ir.Value:
    """The i-th place that is set takes the i-th element of the source."""
    sizes = sizes_of(g, op.outs[0])
    m = g.op("Expand", g.cast(mask.value, torch.bool), g.sizes.vector(sizes))
    n = g.op("Sub", g.op("CumSum", g.cast(g.reshape(m, [-1]), I64), g.const(0)), g.const(1))
    padded = g.op("Concat", g.reshape(src.value, [-1]), g.const([0], x.dtype), axis=0)  # nothing is taken of an empty source
    last = g.op("Sub", g.op("Size", padded), g.const(1))
    v = g.op("Gather", padded, g.op("Min", g.op("Max", n, g.const(0)), last), axis=0)
    return g.op("Where", m, g.reshape(v, sizes), x.value)


# what the data decides -----------------------------------------------------------------------------------------------------------
def nonzero_of(g: Graph, x: Tensor) -> ir.Value:
    """[n, rank]."""
    v = g.cast(x.value, torch.bool)
    if not x.rank:
        places = g.op("NonZero", g.reshape(v, [1]))
        return g.op("Slice", g.op("Transpose", places, perm=[1, 0]), g.ints(0), g.ints(0), g.ints(1))
    return g.op("Transpose", g.op("NonZero", v), perm=[1, 0])


def nonzero(g: Graph, op: Any, x: Tensor) -> ir.Value:
    return nonzero_of(g, x)


def masked_select(g: Graph, op: Any, x: Tensor, mask: Tensor) -> ir.Value:
    m, v = g.cast(mask.value, torch.bool), x.value
    both = broadcast_shape(g, x, mask)
    v, m = g.op("Expand", v, both), g.op("Expand", m, both)
    return g.op("Compress", g.reshape(v, [-1]), g.reshape(m, [-1]), axis=0)


def broadcast_shape(g: Graph, a: Tensor, b: Tensor) -> ir.Value:
    """Of two shapes, the one that both have in the end."""
    one, two = (g.op("Expand", g.const(False, torch.bool), g.sizes.vector(t.sizes)) for t in (a, b))
    return g.op("Shape", g.op("Or", one, two))


def unique(g: Graph, op: Any, x: Tensor, *args: Any, **_: Any) -> tuple:
    """Sorted, as PyTorch's always is."""
    return unique_along(g, Tensor(g.reshape(x.value, [-1]), x.dtype, ()), x, None)


def unique_dim(g: Graph, op: Any, x: Tensor, dim: int, *_: Any, **__: Any) -> tuple:
    return unique_along(g, x, x, dim % x.rank)


def unique_along(g: Graph, x: Tensor, like: Tensor, axis: int | None) -> tuple:
    given = {} if axis is None else {"axis": axis}
    values, _, inverse, counts = g.ops("Unique", 4, x.value, dtypes=[torch_of(g, x), I64, I64, I64], sorted=1, **given)
    if axis is None:
        inverse = g.reshape(inverse, like.sizes)
    return values, inverse, counts


def torch_of(g: Graph, x: Tensor) -> torch.dtype:
    return torch_dtype(x.value)


def unique_consecutive(g: Graph, op: Any, x: Tensor, inverse: bool = False, counts: bool = False, dim: int | None = None) -> tuple:
    if dim is not None and x.rank != 1:
        raise NotExpressible("unique_consecutive along a dim")
    v = g.reshape(x.value, [-1])
    first = g.op("Not", g.op("Equal", cut(g, v, 0, 1, None), cut(g, v, 0, 0, -1)))
    some = g.op("Greater", g.op("Shape", v), g.ints(0))
    change = g.op("Concat", g.op("Compress", g.const([True], torch.bool), some, axis=0), first, axis=0)
    group = g.op("Sub", g.op("CumSum", g.cast(change, I64), g.const(0)), g.const(1))
    starts = g.op("Squeeze", g.op("NonZero", change), g.ints(0))
    ends = g.op("Concat", cut(g, starts, 0, 1, None), g.op("Compress", g.op("Shape", v), some, axis=0), axis=0)
    return g.op("Gather", v, starts, axis=0), g.reshape(group, x.sizes), g.op("Sub", ends, starts)


def item(g: Graph, op: Any, x: Tensor) -> ir.Value:
    """A number: one element, 1-d, in the dtype of its kind."""
    kind = {True: torch.float64, False: I64}[x.dtype.is_floating_point]
    return g.cast(g.reshape(x.value, [1]), torch.bool if x.dtype is torch.bool else kind)


def repeat_interleave(g: Graph, op: Any, repeats: Tensor, *, output_size: Any = None) -> ir.Value:
    """Index i, repeats[i] times: every index adds one where its run begins."""
    n = g.cast(repeats.value, I64)
    ends = g.op("CumSum", n, g.const(0))
    starts = g.op("Sub", ends, n)
    total = g.op("ReduceSum", n, g.ints(0), keepdims=1)
    zeros = g.op("Expand", g.const(0), g.op("Add", total, g.ints(1)))
    marks = g.op("ScatterND", zeros, g.op("Unsqueeze", starts, g.ints(1)), g.op("Expand", g.const(1), g.op("Shape", n)), reduction="add")
    counted = g.op("Sub", g.op("CumSum", marks, g.const(0)), g.const(1))
    return g.cast(g.op("Slice", counted, g.ints(0), total, g.ints(0)), out_dtype(op))


def bincount(g: Graph, op: Any, x: Tensor, weights: Tensor | None = None, minlength: int = 0) -> ir.Value:
    n = sizes_of(g, op.outs[0])
    dtype = out_dtype(op)
    highest_ = g.op("ReduceMax", g.op("Concat", g.cast(x.value, I64), g.ints(-1), axis=0), g.ints(0), keepdims=1)
    length = g.op("Max", g.op("Add", highest_, g.ints(1)), g.sizes.vector([minlength])) if isinstance(n[0], Expr) else g.ints(n[0])
    zeros = g.op("Expand", g.const(0, dtype), length)
    at = g.op("Unsqueeze", g.cast(x.value, I64), g.ints(1))
    v = g.cast(weights.value, dtype) if weights is not None else g.op("Expand", g.const(1, dtype), g.op("Shape", x.value))
    return g.op("ScatterND", zeros, at, v, reduction="add")


def one_hot(g: Graph, op: Any, x: Tensor, n: Size = -1) -> ir.Value:
    classes = g.size(op.outs[0].sizes[-1])
    return g.cast(g.op("Equal", g.op("Unsqueeze", g.cast(x.value, I64), g.ints(-1)), arange_of(g, classes)), I64)


def bucketize(g: Graph, op: Any, x: Any, bounds: Tensor, *, out_int32: bool = False, right: bool = False) -> ir.Value:
    """How many bounds lie below."""
    dtype = torch.promote_types(bounds.dtype, x.dtype) if isinstance(x, Tensor) else bounds.dtype
    v = g.op("Unsqueeze", g.operand(x, dtype), g.ints(-1))
    below = g.op("LessOrEqual" if right else "Less", g.cast(bounds.value, dtype), v)
    return g.cast(g.op("ReduceSum", g.cast(below, I64), g.ints(-1), keepdims=0), out_dtype(op))


def searchsorted(g: Graph, op: Any, bounds: Tensor, x: Any, *, out_int32: bool = False, right: bool = False, side: str | None = None,
                 sorter: Any = None) -> ir.Value:  # fmt: skip
    if sorter is not None or bounds.rank != 1:
        raise NotExpressible("searchsorted with a sorter, or in several rows")
    return bucketize(g, op, x, bounds, right=right or side == "right")


def isin(g: Graph, op: Any, x: Any, among: Any, *, assume_unique: bool = False, invert: bool = False) -> ir.Value:
    dtypes = [t.dtype for t in (x, among) if isinstance(t, Tensor)]
    dtype = dtypes[0] if len(dtypes) == 1 else torch.promote_types(*dtypes)
    tests = g.reshape(g.operand(among, dtype), [-1])
    hits = g.cast(g.op("Equal", g.op("Unsqueeze", g.operand(x, dtype), g.ints(-1)), tests), I64)
    n = g.op("ReduceSum", hits, g.ints(-1), keepdims=0)
    return g.op("Equal" if invert else "Greater", n, g.const(0))


ROWS: dict[str, Row] = {
    "embedding": embedding, "index_select": index_select, "gather": gather, "take": take, "index.Tensor": index,
    "_unsafe_index.Tensor": index, "index_put": index_put, "_unsafe_index_put": index_put, "_index_put_impl": index_put,
    "scatter.src": scatter("none"), "scatter.value": scatter("none"), "scatter_add": scatter("add"),
    "scatter.reduce": lambda g, op, x, dim, at, src, *, reduce: scattered(g, x, dim, at, src, REDUCTIONS[reduce]),
    "scatter.value_reduce": lambda g, op, x, dim, at, src, *, reduce: scattered(g, x, dim, at, src, REDUCTIONS[reduce]),
    "scatter_reduce.two": scatter_reduce, "index_add": of_rows(index_add), "index_copy": of_rows(index_copy),
    "index_fill.int_Scalar": of_rows(index_fill), "index_fill.int_Tensor": of_rows(index_fill),
    "masked_scatter": masked_scatter, "nonzero": nonzero, "masked_select": masked_select,
    "_unique2": unique, "unique_dim": unique_dim, "unique_consecutive": unique_consecutive, "_local_scalar_dense": item, "item": item,
    "repeat_interleave.Tensor": repeat_interleave, "bincount": bincount, "one_hot": one_hot, "bucketize.Tensor": bucketize,
    "bucketize.Scalar": bucketize, "searchsorted.Tensor": searchsorted, "searchsorted.Scalar": searchsorted,
    "isin.Tensor_Tensor": isin, "isin.Tensor_Scalar": isin, "isin.Scalar_Tensor": isin,
}  # fmt: skip
