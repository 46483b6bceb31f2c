"""Reading and writing at indices that are data, and sorting.

PyTorch raises on an index out of range; XLA clamps one that reads and ignores one that writes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from pliant.export.stablehlo.builder import Builder, Unsupported, Value, is_float
from pliant.export.stablehlo.pointwise import common, is_nan, like, to, wide
from pliant.export.stablehlo.reductions import highest, lowest, scan
from pliant.export.stablehlo.table import lowering
from pliant.export.stablehlo.views import product, take
from pliant.symbolic.expr import Expr

Body = Callable[[Value, Value], Value]


# -- rows ------------------------------------------------------------------------------------------------------------------------------
@lowering("embedding.default")
def embedding(b: Builder, weight: Value, indices: Value, *_: Any) -> Value:
    starts = b.reshape(indices, [*indices.sizes, 1])
    width = weight.sizes[1]
    return b.gather(weight, starts, [*indices.sizes, width], [indices.rank], [0], [1, width])


@lowering("embedding_dense_backward.default")
def embedding_backward(b: Builder, grad_output: Value, indices: Value, num_weights: Any, padding_idx: Any,
                       scale_grad_by_freq: bool) -> Value:  # fmt: skip
    if scale_grad_by_freq:
        raise Unsupported("gradients scaled by frequency")
    out = b.outs[0]
    grad = b.convert(grad_output, wide(out.dtype))
    if type(padding_idx) is not int or padding_idx >= 0:
        skip = b.compare("EQ", indices, b.full(padding_idx, indices.sizes, indices.dtype))
        skip = b.broadcast(skip, grad.sizes, range(indices.rank))
        grad = b.select(skip, like(b, 0, grad), grad)
    starts = b.reshape(indices, [*indices.sizes, 1])
    zeros = b.full(0, out.sizes, grad.dtype)
    made = b.scatter(zeros, starts, grad, [indices.rank], [0], lambda x, y: b.same("add", x, y))
    return b.convert(made, out.dtype)


@lowering("index_select.default")
def index_select(b: Builder, self: Value, dim: int, index: Value) -> Value:
    if not self.rank:
        return self
    index = b.reshape(index, (1,)) if not index.rank else index
    return take(b, self, dim % self.rank, index)


@lowering("take.default")
def take_flat(b: Builder, self: Value, index: Value) -> Value:
    flat = b.reshape(self, (product(b, self.sizes),))
    line = b.reshape(counted(b, index, flat.sizes[0]), (product(b, index.sizes),))
    return b.reshape(take(b, flat, 0, line), index.sizes)


def counted(b: Builder, index: Value, n: Any) -> Value:
    """Indices from 0 on: negative ones count from the end."""
    index = b.convert(index, torch.int64)
    return b.select(b.compare("LT", index, like(b, 0, index)), b.same("add", index, like(b, n, index)), index)


# -- x[i, :, j] --------------------------------------------------------------------------------------------------------------------------
class Places:
    """Where `x[indices]` reads: the starts, and the layout of the result."""

    def __init__(self, b: Builder, x: Value, indices: Any) -> None:
        given = [(d, i) for d, i in enumerate(indices) if i is not None]
        if any(i.dtype in (torch.bool, torch.uint8) for _, i in given):
            raise Unsupported("an index that is a mask: the size of its result is known only from data")
        self.dims = [d for d, _ in given]
        rank = max(i.rank for _, i in given)
        shape = self.shape(b, [i for _, i in given], rank)
        parts = [b.reshape(b.expand(counted(b, i, x.sizes[d]), shape), [*shape, 1]) for d, i in given]
        self.starts = b.concat(parts, rank)
        adjacent = self.dims == list(range(self.dims[0], self.dims[-1] + 1))
        at = self.dims[0] if adjacent else 0
        rest = [s for d, s in enumerate(x.sizes) if d not in self.dims]
        self.sizes = [*rest[:at], *shape, *rest[at:]]
        self.window = [*range(at), *range(at + rank, len(self.sizes))]
        self.slices = [1 if d in self.dims else s for d, s in enumerate(x.sizes)]

    @staticmethod
    def shape(b: Builder, given: list[Value], rank: int) -> list[Any]:
        """The indices broadcast against each other."""
        shape: list[Any] = [1] * rank
        for i in given:
            for d, s in enumerate(i.sizes, rank - i.rank):
                if not (type(s) is int and s == 1) and (type(shape[d]) is int and shape[d] == 1 or type(s) is int):
                    shape[d] = s
        return shape


@lowering("index.Tensor _unsafe_index.Tensor")
def index(b: Builder, self: Value, indices: Any) -> Value:
    p = Places(b, self, indices)
    return b.gather(self, p.starts, p.sizes, p.window, p.dims, p.slices)


def put(b: Builder, x: Value, indices: Any, values: Value, body: Body) -> Value:
    if all(i is None or i.dtype == torch.bool for i in indices) and sum(i is not None for i in indices) == 1:
        return put_masked(b, x, indices, values, body)
    p = Places(b, x, indices)
    return b.scatter(x, p.starts, b.expand(b.convert(values, x.dtype), p.sizes), p.window, p.dims, body)


def put_masked(b: Builder, x: Value, indices: Any, values: Value, body: Body) -> Value:
    """`x[mask] = number`: no size depends on the mask."""
    at = next(d for d, i in enumerate(indices) if i is not None)
    mask = indices[at]
    if any(not (type(s) is int and s == 1) for s in values.sizes):
        raise Unsupported("values for a mask: which go where is known only from data")
    spread = b.broadcast(mask, x.sizes, range(at, at + mask.rank))
    return b.select(spread, body(x, b.full(b.reshape(b.convert(values, x.dtype), ()), x.sizes, x.dtype)), x)


@lowering("index_put.default _unsafe_index_put.default")
def index_put(b: Builder, self: Value, indices: Any, values: Value, accumulate: bool = False) -> Value:
    return put(b, self, indices, values, adder(b, self) if accumulate else last)


def adder(b: Builder, x: Value) -> Body:
    return lambda p, q: b.same("or" if x.dtype == torch.bool else "add", p, q)


def last(old: Value, new: Value) -> Value:
    return new


# -- gather and scatter along a dim --------------------------------------------------------------------------------------------------
def along(b: Builder, index: Value, dim: int) -> Value:
    """Full positions: those of `index` along `dim`, its own in the other dims."""
    shape = [*index.sizes, 1]
    parts = [b.reshape(b.convert(index, torch.int64) if d == dim else b.iota(index.sizes, d), shape) for d in range(index.rank)]
    return b.concat(parts, index.rank)


@lowering("gather.default")
def gather(b: Builder, self: Value, dim: int, index: Value, sparse_grad: bool = False) -> Value:
    if not self.rank or not index.rank:
        flat = b.reshape(self, (1,)) if not self.rank else self
        return b.reshape(take(b, flat, 0, b.reshape(index, (product(b, index.sizes),))), index.sizes)
    starts = along(b, index, dim % self.rank)
    return b.gather(self, starts, index.sizes, [], list(range(self.rank)), [1] * self.rank)


def scattered(b: Builder, self: Value, dim: int, index: Value, src: Any, body: Body) -> Value:
    if not self.rank:
        self, index = b.reshape(self, (1,)), b.reshape(index, (1,))
        src = b.reshape(src, (1,)) if type(src) is Value else src
        return b.reshape(scattered(b, self, 0, index, src, body), ())
    dim %= self.rank
    if type(src) is Value:
        for d in range(self.rank):
            src = b.slice(src, d, 0, index.sizes[d], size=index.sizes[d])
    updates = to(b, src, index.sizes, self.dtype)
    return b.scatter(self, along(b, index, dim), updates, [], list(range(self.rank)), body)


@lowering("scatter.src scatter.value")
def scatter(b: Builder, self: Value, dim: int, index: Value, src: Any) -> Value:
    return scattered(b, self, dim, index, src, last)


@lowering("scatter_add.default")
def scatter_add(b: Builder, self: Value, dim: int, index: Value, src: Value) -> Value:
    return scattered(b, self, dim, index, src, adder(b, self))


REDUCERS = {"sum": "add", "add": "add", "prod": "multiply", "multiply": "multiply", "amax": "maximum", "amin": "minimum"}


@lowering("scatter.reduce scatter.value_reduce")
def scatter_reduce_old(b: Builder, self: Value, dim: int, index: Value, src: Any, reduce: str) -> Value:
    return scattered(b, self, dim, index, src, lambda p, q: b.same(REDUCERS[reduce], p, q))


@lowering("scatter_reduce.two")
def scatter_reduce(b: Builder, self: Value, dim: int, index: Value, src: Value, reduce: str, include_self: bool = True) -> Value:
    base = self
    start = {"sum": 0, "mean": 0, "prod": 1, "amax": lowest(self.dtype), "amin": highest(self.dtype)}[reduce]
    ones = b.full(1, index.sizes, torch.int64)
    hits = scattered(b, b.full(0, self.sizes, torch.int64), dim, index, ones, lambda p, q: b.same("add", p, q))
    hit = b.compare("GT", hits, like(b, 0, hits))
    if not include_self:
        base = b.select(hit, like(b, start, self), self)
    name = REDUCERS["sum" if reduce == "mean" else reduce]
    made = scattered(b, base, dim, index, src, lambda p, q: b.same(name, p, q))
    if reduce != "mean":
        return made
    n = b.same("add", hits, like(b, int(include_self), hits))
    n = b.convert(b.same("maximum", n, like(b, 1, n)), made.dtype)
    if not is_float(made.dtype):
        raise Unsupported("the mean of integers")
    return b.same("divide", made, n)


def by_rows(b: Builder, self: Value, dim: int, index: Value, source: Value, body: Body) -> Value:
    """Whole slices along `dim` go where a 1-d index says."""
    dim %= self.rank
    index = b.reshape(index, (1,)) if not index.rank else index
    window = [d for d in range(self.rank) if d != dim]
    starts = b.reshape(index, (index.sizes[0], 1))
    return b.scatter(self, starts, b.convert(source, self.dtype), window, [dim], body)


@lowering("index_add.default")
def index_add(b: Builder, self: Value, dim: int, index: Value, source: Value, alpha: Any = 1) -> Value:
    if not (type(alpha) is not Expr and alpha == 1):
        source = b.same("multiply", source, like(b, alpha, source))
    return by_rows(b, self, dim, index, source, adder(b, self))


@lowering("index_copy.default")
def index_copy(b: Builder, self: Value, dim: int, index: Value, source: Value) -> Value:
    return by_rows(b, self, dim, index, source, last)


@lowering("index_fill.int_Scalar")
def index_fill(b: Builder, self: Value, dim: int, index: Value, value: Any) -> Value:
    sizes = list(self.sizes)
    sizes[dim % self.rank] = index.sizes[0] if index.rank else 1
    return by_rows(b, self, dim, counted(b, index, self.sizes[dim]), b.full(value, sizes, self.dtype), last)


@lowering("masked_scatter.default")
def masked_scatter(b: Builder, self: Value, mask: Value, source: Value) -> Value:
    """The k-th true element takes the k-th of `source`."""
    from_start = b.reshape(b.convert(b.expand(mask, self.sizes), torch.int64), (product(b, self.sizes),))
    order = scan(b, [from_start], 0, [0], lambda p, q: [b.same("add", p, q)])[0]
    at = b.same("maximum", b.same("subtract", order, like(b, 1, order)), like(b, 0, order))
    flat = b.reshape(source, (product(b, source.sizes),))
    flat = b.pad(flat, [0], [1])  # there may be nothing to take
    taken = b.reshape(take(b, flat, 0, at), self.sizes)
    return b.select(b.expand(mask, self.sizes), b.convert(taken, self.dtype), self)


@lowering("isin.Tensor_Tensor isin.Tensor_Scalar")
def isin(b: Builder, elements: Value, test_elements: Any, assume_unique: bool = False, invert: bool = False) -> Value:
    tests = test_elements if type(test_elements) is Value else b.full(test_elements, (1,), elements.dtype)
    dtype = common(elements, tests)
    n = product(b, tests.sizes)
    shape = [*elements.sizes, n]
    x = b.broadcast(b.convert(elements, dtype), shape, range(elements.rank))
    y = b.broadcast(b.reshape(b.convert(tests, dtype), (n,)), shape, [elements.rank])
    found = b.fold("or", b.compare("EQ", x, y), False, [elements.rank])
    return b.same("not", found) if invert else found


@lowering("bucketize.Tensor")
def bucketize(b: Builder, self: Value, boundaries: Value, out_int32: bool = False, right: bool = False) -> Value:
    return searched(b, boundaries, self, right)


@lowering("searchsorted.Tensor")
def searchsorted(b: Builder, sorted_sequence: Value, self: Value, out_int32: bool = False, right: bool = False, side: Any = None,
                 sorter: Any = None) -> Value:  # fmt: skip
    if sorter is not None:
        raise Unsupported("a sorter")
    return searched(b, sorted_sequence, self, right or side == "right")


def searched(b: Builder, edges: Value, x: Value, right: bool) -> Value:
    """How many edges lie before each value; nan lies beyond all."""
    dtype = torch.promote_types(edges.dtype, x.dtype)
    shape = [*x.sizes, edges.sizes[-1]]
    e = b.convert(edges, dtype)
    dims = [x.rank] if edges.rank == 1 else [*range(x.rank - 1), x.rank]
    p, q = b.broadcast(e, shape, dims), b.broadcast(b.convert(x, dtype), shape, range(x.rank))
    before = b.compare("LE" if right else "LT", p, q)
    if is_float(dtype):
        n, m = is_nan(b, p), is_nan(b, q)
        before = b.same("or", before, b.same("and", m, n) if right else b.full(False, shape, torch.bool))
        before = b.same("or", before, b.same("and", m, b.same("not", n)))
    counted_ = b.fold("add", b.convert(before, torch.int64), 0, [x.rank])
    return b.convert(counted_, b.outs[0].dtype)


# -- sorting -----------------------------------------------------------------------------------------------------------------------------
def sorted_with_places(b: Builder, x: Value, dim: int, descending: bool) -> list[Value]:
    """A stable sort, nan last (first when descending), and where each element stood."""

    def before(p: Value, q: Value, *_: Value) -> Value:
        if descending:
            p, q = q, p
        less = b.compare("LT", p, q)
        if not is_float(p.dtype):
            return less
        return b.same("or", less, b.same("and", is_nan(b, q), b.same("not", is_nan(b, p))))

    return b.sort([x, b.iota(x.sizes, dim)], dim, before)


@lowering("sort.default")
def sort(b: Builder, self: Value, dim: int = -1, descending: bool = False) -> list[Value]:
    if not self.rank:
        return [self, b.full(0, (), torch.int64)]
    return sorted_with_places(b, self, dim % self.rank, descending)


@lowering("sort.stable")
def sort_stable(b: Builder, self: Value, stable: Any = True, dim: int = -1, descending: bool = False) -> list[Value]:
    return sort(b, self, dim, descending)


@lowering("argsort.default")
def argsort(b: Builder, self: Value, dim: int = -1, descending: bool = False) -> Value:
    return sort(b, self, dim, descending)[1]


@lowering("argsort.stable")
def argsort_stable(b: Builder, self: Value, stable: bool, dim: int = -1, descending: bool = False) -> Value:
    return sort(b, self, dim, descending)[1]


@lowering("topk.default")
def topk(b: Builder, self: Value, k: Any, dim: int = -1, largest: bool = True, sorted: bool = True) -> list[Value]:
    if not self.rank:
        return [self, b.full(0, (), torch.int64)]
    dim %= self.rank
    return [b.slice(v, dim, 0, k, size=k) for v in sorted_with_places(b, self, dim, largest)]


@lowering("kthvalue.default")
def kthvalue(b: Builder, self: Value, k: Any, dim: int = -1, keepdim: bool = False) -> list[Value]:
    dim %= self.rank
    found = [b.slice(v, dim, b.simple(k - 1), k, size=1) for v in sorted_with_places(b, self, dim, False)]
    return [b.reshape(v, o.sizes) for v, o in zip(found, b.outs)]


@lowering("median.dim nanmedian.dim")
def median(b: Builder, self: Value, dim: int, keepdim: bool = False) -> list[Value]:
    """The lower of two middle elements; a nan, which is sorted last, is the median of its row."""
    if b.name.startswith("aten::nan"):
        raise Unsupported("a median that leaves nans out")
    dim %= self.rank
    values, places = sorted_with_places(b, self, dim, False)
    n = self.sizes[dim]
    middle = b.simple((n - 1) // 2)
    pick = [b.slice(v, dim, middle, b.simple(middle + 1), size=1) for v in (values, places)]
    if is_float(self.dtype):
        end = [b.slice(v, dim, b.simple(n - 1), n, size=1) for v in (values, places)]
        spoiled = is_nan(b, end[0])
        first = b.fold("minimum", b.select(is_nan(b, values), places, like(b, 2**62, places)), 2**62, [dim])
        pick = [b.select(spoiled, end[0], pick[0]), b.select(spoiled, b.reshape(first, pick[1].sizes), pick[1])]
    return [b.reshape(v, o.sizes) for v, o in zip(pick, b.outs)]


# -- known only from data ------------------------------------------------------------------------------------------------------------------
@lowering("nonzero.default masked_select.default unique_dim.default _unique2.default unique_consecutive.default repeat_interleave.Tensor"
          " bincount.default")  # fmt: skip
def of_unknown_size(b: Builder, *_: Any, **__: Any) -> Value:
    raise Unsupported("the size of its result is known only from data, which no StableHLO type can say in a form that XLA runs")


@lowering("histc.default")
def histc(b: Builder, self: Value, bins: int = 100, min: Any = 0, max: Any = 0) -> Value:
    """How many values fall into each of `bins` equal ranges; the last one takes its upper end too."""
    if type(min) is Expr or type(max) is Expr or min == max:
        raise Unsupported("ranges that only data tell: name min and max")
    work = torch.float64
    x = b.reshape(b.convert(self, work), (product(b, self.sizes),))
    low, high = b.full(min, x.sizes, work), b.full(max, x.sizes, work)
    part = b.same("divide", b.same("multiply", b.same("subtract", x, low), like(b, bins, x)), like(b, max - min, x))
    at = b.convert(b.same("minimum", b.same("floor", part), like(b, bins - 1, part)), torch.int64)
    inside = b.same("and", b.compare("GE", x, low), b.compare("LE", x, high))
    grid = (bins, x.sizes[0])
    hit = b.same("and", b.compare("EQ", b.iota(grid, 0), b.broadcast(at, grid, (1,))), b.broadcast(inside, grid, (1,)))
    return b.convert(b.fold("add", b.convert(hit, torch.int64), 0, [1]), b.outs[0].dtype)


@lowering("one_hot.default")
def one_hot(b: Builder, self: Value, num_classes: Any = -1) -> Value:
    out = b.outs[0]
    if type(num_classes) is int and num_classes < 0:
        raise Unsupported("the number of classes is known only from data: name it")
    k = self.rank
    return b.convert(b.compare("EQ", b.iota(out.sizes, k), b.broadcast(b.convert(self, torch.int64), out.sizes, range(k))), out.dtype)


@lowering("nll_loss_forward.default nll_loss2d_forward.default")
def nll_loss(b: Builder, self: Value, target: Value, weight: Value | None, reduction: int, ignore_index: Any) -> list[Value]:
    at = 1 if self.rank > 1 else 0
    rows = b.reshape(target, [*target.sizes[:at], 1, *target.sizes[at:]])
    skip = b.compare("EQ", rows, like(b, ignore_index, rows))
    safe = b.select(skip, like(b, 0, rows), rows)
    dtype = wide(self.dtype)
    picked = b.convert(gather(b, self, at, safe), dtype)
    mass = b.full(1, rows.sizes, dtype) if weight is None else b.convert(
        b.reshape(take(b, weight, 0, b.reshape(safe, (product(b, safe.sizes),))), rows.sizes), dtype)  # fmt: skip
    mass = b.select(skip, like(b, 0, mass), mass)
    loss = b.select(skip, like(b, 0, picked), b.same("negate", b.same("multiply", picked, mass)))
    every = list(range(rows.rank))
    whole = b.fold("add", mass, 0, every)
    out = b.outs[0]
    if reduction == 0:
        return [b.convert(b.reshape(loss, out.sizes), out.dtype), b.convert(b.full(0, (), dtype), b.outs[1].dtype)]
    s = b.fold("add", loss, 0, every)
    return [b.convert(b.same("divide", s, whole) if reduction == 1 else s, out.dtype), b.convert(whole, b.outs[1].dtype)]


@lowering("nll_loss_backward.default")
def nll_loss_backward(b: Builder, grad_output: Value, self: Value, target: Value, weight: Value | None, reduction: int, ignore_index: Any,
                      total_weight: Value) -> Value:  # fmt: skip
    at = 1 if self.rank > 1 else 0
    dtype = wide(self.dtype)
    rows = b.expand(b.reshape(target, [*target.sizes[:at], 1, *target.sizes[at:]]), self.sizes)
    hit = b.compare("EQ", b.iota(self.sizes, at), b.convert(rows, torch.int64))
    hit = b.same("and", hit, b.compare("NE", rows, like(b, ignore_index, rows)))
    g = b.convert(grad_output, dtype)
    if reduction == 0:
        g = b.reshape(g, [*g.sizes[:at], 1, *g.sizes[at:]])
    elif reduction == 1:
        g = b.same("divide", g, b.convert(total_weight, dtype))
    g = b.same("negate", b.expand(g, self.sizes))
    if weight is not None:
        g = b.same("multiply", g, b.broadcast(b.convert(weight, dtype), self.sizes, [at]))
    return b.convert(b.select(hit, g, like(b, 0, g)), self.dtype)
