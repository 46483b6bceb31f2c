"""Rules of placement for reductions, softmax and cumulative sums along the dim that is cut: `sharding.along` asks them.

Each worker reduces its piece; sums of sums, or what all workers found (`of_all`), come to the whole. What a piece without elements
gives must not count: it is padded with the identity of the reduction where pieces may be empty.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from pliant.graph.record import Op
from pliant.graph.symnode import expr_of
from pliant.graph.traced import TracedTensor
from pliant.lower import liveness
from pliant.remote import collectives as c
from pliant.remote.partition import Partitioner, R, Shard, argument
from pliant.remote.sharding import ACROSS, of_either, rule
from pliant.symbolic import ops

aten = torch.ops.aten
FLOATS = (torch.float32, torch.float64)
INTS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def across(names: str) -> Callable:
    """Enter a rule for operators along dims of which one is cut: `fn(p, op, x, place, dims)`."""

    def enter(fn: Callable) -> Callable:
        for name in names.split():
            ACROSS[f"aten::{name}"] = fn
        return fn

    return enter


def lowest(dtype: torch.dtype, largest: bool) -> float | int:
    """What no element is below; or above, if not `largest`."""
    if dtype.is_floating_point:
        return -math.inf if largest else math.inf
    return torch.iinfo(dtype).min if largest else torch.iinfo(dtype).max


def padded(p: Partitioner, x: TracedTensor, place: Shard, value: float | int) -> TracedTensor:
    """The worker's piece, with one more element of this value behind it if it may have none."""
    t = p.local[x.vid]
    if p.even(place) and place.base > 0:
        return t
    sizes = p.sizes(x, place)
    sizes[place.dim] = 1
    more = p.emit(aten.full.default, sizes, value, dtype=x.dtype, device=x.device)
    made: TracedTensor = p.emit(aten.cat.default, [t, more], place.dim)
    return made


def of_all(p: Partitioner, t: TracedTensor, dim: int) -> TracedTensor:
    """Tensors of size 1 along `dim`, of all workers, behind one another."""
    made: TracedTensor = p.emit(c.ALL_GATHER, t, dim, p.workers, 1)
    return made


def has_elements(p: Partitioner, x: TracedTensor, dims: list[int]) -> bool:
    """Whether there may be something to find along these dims, which workers check: what is padded hides that there is nothing."""
    for d in dims:
        n = p.plain(p.number(x.sizes[d]))
        if p.equal(n, 0):
            return False
        if type(n) is not int:
            p.scope.assume(ops.ge(expr_of(p.symbol(n), p.scope), 1), p.site)
    return True


def total(p: Partitioner, t: TracedTensor, dims: list[int]) -> TracedTensor:
    """The sum over these dims, which stay, and over all workers."""
    made: TracedTensor = p.emit(c.ALL_REDUCE, p.emit(aten.sum.dim_IntList, t, dims, True), "sum")
    return made


def extreme(p: Partitioner, x: TracedTensor, place: Shard, dims: list[int], largest: bool = True) -> TracedTensor:
    """The largest or smallest element over these dims, which stay. Not by a collective: those lose NaNs."""
    target = aten.amax.default if largest else aten.amin.default
    local = p.emit(target, padded(p, x, place, lowest(x.dtype, largest)), dims, True)
    made: TracedTensor = p.emit(target, of_all(p, local, place.dim), [place.dim], True)
    return made


def whole(p: Partitioner, op: Op, out: TracedTensor, t: Any, dims: list[int]) -> None:
    """A result of which all workers have all; the dims that were reduced are still there, with size 1."""
    keep = len(out.sizes) == len(t.sizes)
    p.give(out, t if keep else p.emit(aten.squeeze.dims, t, dims), R)


def count(p: Partitioner, x: TracedTensor, dims: list[int]) -> Any:
    n: Any = 1
    for d in dims:
        n = n * p.number(x.sizes[d])
    return n


# -- softmax ------------------------------------------------------------------------------------------------------------------------
@across("_softmax _log_softmax")
def softmax(p: Partitioner, op: Op, x: TracedTensor, place: Shard, dims: list[int]) -> Any:
    out = op.outs[0]
    if x.dtype not in FLOATS or out.dtype is not x.dtype:
        return NotImplemented
    centred = p.emit(aten.sub.Tensor, p.local[x.vid], extreme(p, x, place, dims))
    powers = p.emit(aten.exp.default, centred)
    sums = total(p, powers, dims)
    if op.target is aten._softmax.default:
        made = p.emit(aten.div.Tensor, powers, sums)
    else:
        made = p.emit(aten.sub.Tensor, centred, p.emit(aten.log.default, sums))
    p.give(out, made, place)
    return None


@rule("_softmax_backward_data _log_softmax_backward_data")
def softmax_backward(p: Partitioner, op: Op) -> Any:
    grad, out, dim = op.args[:3]
    place = of_either(p, out, grad)
    if not isinstance(place, Shard):
        return NotImplemented
    dim %= len(out.sizes)
    if place.dim != dim:
        p.apply(op, lambda t: place, place)
        return None
    if out.dtype not in FLOATS or grad.dtype is not out.dtype or op.outs[0].dtype is not out.dtype:
        return NotImplemented
    g, y = p.at(grad, place), p.at(out, place)
    if op.target is aten._softmax_backward_data.default:
        weighed = p.emit(aten.mul.Tensor, g, y)
        made = p.emit(aten.sub.Tensor, weighed, p.emit(aten.mul.Tensor, y, total(p, weighed, [dim])))
    else:
        made = p.emit(aten.sub.Tensor, g, p.emit(aten.mul.Tensor, p.emit(aten.exp.default, y), total(p, g, [dim])))
    p.give(op.outs[0], made, place)
    return None


@across("logsumexp")
def logsumexp(p: Partitioner, op: Op, x: TracedTensor, place: Shard, dims: list[int]) -> Any:
    others = [p.plain(p.number(x.sizes[d])) for d in dims if d != place.dim]
    if x.dtype not in FLOATS or not all(type(n) is int and n > 0 for n in others):
        return NotImplemented  # of nothing it is minus infinity, and there is no largest
    most = extreme(p, x, place, dims)
    most = p.emit(aten.masked_fill.Scalar, most, p.emit(aten.eq.Scalar, p.emit(aten.abs.default, most), math.inf), 0)
    sums = total(p, p.emit(aten.exp.default, p.emit(aten.sub.Tensor, p.local[x.vid], most)), dims)
    whole(p, op, op.outs[0], p.emit(aten.add.Tensor, p.emit(aten.log.default, sums), most), dims)
    return None


# -- largest and smallest -------------------------------------------------------------------------------------------------------------
@across("amax amin")
def extremes(p: Partitioner, op: Op, x: TracedTensor, place: Shard, dims: list[int]) -> Any:
    if (x.dtype not in FLOATS and x.dtype not in INTS) or not has_elements(p, x, dims):
        return NotImplemented
    whole(p, op, op.outs[0], extreme(p, x, place, dims, op.target is aten.amax.default), dims)
    return None


@across("max min argmax argmin")
def with_positions(p: Partitioner, op: Op, x: TracedTensor, place: Shard, dims: list[int]) -> Any:
    """The first of them, as in one process: pieces are in order, and so are workers."""
    dim, name = place.dim, op.target._schema.name
    if argument(op, "dim") is None or (x.dtype not in FLOATS and x.dtype not in INTS) or not has_elements(p, x, dims):
        return NotImplemented
    largest = name.endswith("max")
    target = aten.max.dim if largest else aten.min.dim
    value, at = p.emit(target, padded(p, x, place, lowest(x.dtype, largest)), dim, True)
    value, worker = p.emit(target, of_all(p, value, dim), dim, True)
    at = p.emit(aten.gather.default, of_all(p, p.emit(aten.add.Tensor, at, p.begin(place)), dim), dim, worker)
    for out, t in zip(op.outs, (at,) if "arg" in name else (value, at), strict=True):
        whole(p, op, out, t, [dim])
    return None


@across("any all")
def truths(p: Partitioner, op: Op, x: TracedTensor, place: Shard, dims: list[int]) -> Any:
    out, name = op.outs[0], op.target._schema.name
    if out.dtype is not torch.bool:
        return NotImplemented
    t = p.emit(aten.any.dims if name == "aten::any" else aten.all.dims, p.local[x.vid], dims, True)
    whole(p, op, out, p.emit(c.ALL_REDUCE, t, "max" if name == "aten::any" else "min"), dims)
    return None


# -- sums and products ----------------------------------------------------------------------------------------------------------------
@across("prod")
def product(p: Partitioner, op: Op, x: TracedTensor, place: Shard, dims: list[int]) -> Any:
    out, dim = op.outs[0], place.dim
    if argument(op, "dim") is None or (out.dtype not in FLOATS and out.dtype not in INTS):
        return NotImplemented
    local = p.emit(aten.prod.dim_int, p.local[x.vid], dim, True, dtype=out.dtype)
    whole(p, op, out, p.emit(aten.prod.dim_int, of_all(p, local, dim), dim, True), [dim])
    return None


@across("cumsum")
def cumsum(p: Partitioner, op: Op, x: TracedTensor, place: Shard, dims: list[int]) -> Any:
    """That of the piece, and the sums of the pieces before it."""
    out, dim = op.outs[0], place.dim
    if liveness.written(op) or (out.dtype not in FLOATS and out.dtype not in INTS):
        return NotImplemented
    own = p.emit(aten.cumsum.default, p.local[x.vid], dim, dtype=out.dtype)
    sums = of_all(p, p.emit(aten.sum.dim_IntList, p.local[x.vid], [dim], True, dtype=out.dtype), dim)
    length = (p.symbol(place.base) + (p.workers - 1)) // p.workers
    starts = p.emit(aten.mul.Tensor, p.emit(aten.arange.default, p.workers, device=x.device), length)
    before = p.emit(aten.lt.Scalar, starts, p.begin(Shard(dim, place.base, 1)))
    before = p.emit(aten.view.default, before, [p.workers if d == dim else 1 for d in range(len(x.sizes))])
    zero = p.emit(aten.full.default, [], 0, dtype=out.dtype, device=x.device)
    sums = p.emit(aten.sum.dim_IntList, p.emit(aten.where.self, before, sums, zero), [dim], True, dtype=out.dtype)
    p.give(out, p.emit(aten.add.Tensor, own, sums), place)
    return None


@across("var std var_mean std_mean")
def variance(p: Partitioner, op: Op, x: TracedTensor, place: Shard, dims: list[int]) -> Any:
    correction = argument(op, "correction")
    if op.target._overloadname != "correction" or correction not in (None, 0, 1) or x.dtype not in FLOATS:
        return NotImplemented
    n, name = count(p, x, dims), op.target._schema.name
    local = p.local[x.vid]
    mean = p.emit(aten.div.Tensor, total(p, local, dims), n)
    centred = p.emit(aten.sub.Tensor, local, mean)
    squares = total(p, p.emit(aten.mul.Tensor, centred, centred), dims)
    left = torch.sym_max(n - (1 if correction is None else correction), 0)  # of nothing: 0 / 0
    found = p.emit(aten.div.Tensor, squares, left)
    if "std" in name:
        found = p.emit(aten.sqrt.default, found)
    for out, t in zip(op.outs, (found, mean) if "mean" in name else (found,), strict=True):
        whole(p, op, out, t, dims)
    return None


@across("linalg_vector_norm")
def norm(p: Partitioner, op: Op, x: TracedTensor, place: Shard, dims: list[int]) -> Any:
    """A norm of the norms of the pieces."""
    out, order = op.outs[0], argument(op, "ord")
    if x.dtype not in FLOATS or out.dtype is not x.dtype or order < 0:
        return NotImplemented
    if order == math.inf:
        if not has_elements(p, x, dims):
            return NotImplemented
        t = p.emit(aten.abs.default, padded(p, x, place, 0))
        t = p.emit(aten.amax.default, of_all(p, p.emit(aten.amax.default, t, dims, True), place.dim), [place.dim], True)
        whole(p, op, out, t, dims)
        return None
    t = p.emit(op.target, p.local[x.vid], order, dims, True)
    if order in (0, 1):
        t = p.emit(c.ALL_REDUCE, t, "sum")
    elif order == 2:
        t = p.emit(aten.sqrt.default, p.emit(c.ALL_REDUCE, p.emit(aten.mul.Tensor, t, t), "sum"))
    else:
        t = p.emit(c.ALL_REDUCE, p.emit(aten.pow.Tensor_Scalar, t, order), "sum")
        t = p.emit(aten.pow.Tensor_Scalar, t, 1 / order)
    whole(p, op, out, t, dims)
    return None
