"""Rules of placement for norms over a batch and over groups, for dropout, and for random numbers like a tensor.

The statistics of a batch norm are those of the whole batch, as in one process: two sums over all workers forward, one backward.
"""

from __future__ import annotations

from typing import Any

import torch

from pliant.graph.record import Op
from pliant.graph.traced import TracedTensor
from pliant.remote import collectives as c
from pliant.remote.partition import P, Partitioner, Place, R, Shard, argument
from pliant.remote.sharding import rule_of_cut

aten = torch.ops.aten
FLOATS = (torch.float32, torch.float64)


def statistics(p: Partitioner, x: TracedTensor) -> tuple[list[int], Any, list[Any]]:
    """The dims that a batch norm goes over, how many elements that is, and the sizes of statistics that are broadcast again."""
    dims = [d for d in range(len(x.sizes)) if d != 1]
    count: Any = 1
    for d in dims:
        count = count * p.number(x.sizes[d])
    return dims, count, [p.number(n) if d == 1 else 1 for d, n in enumerate(x.sizes)]


def maybe(p: Partitioner, t: Any) -> Any:
    return p.at(t, R) if isinstance(t, TracedTensor) else None


@rule_of_cut("native_batch_norm _native_batch_norm_legit", 0)
def batch_norm(p: Partitioner, op: Op, place: Shard) -> Any:
    x = op.args[0]
    if x.dtype not in FLOATS:
        return NotImplemented
    if not argument(op, "training"):
        channels = Shard(0, place.base, place.factor)
        p.apply(op, lambda t: place if t is x else channels if place.dim == 1 else R, [place, R, R])
        return None
    if place.dim == 1:
        return NotImplemented  # the running statistics are whole
    dims, n, shape = statistics(p, x)
    wide = lambda t: p.emit(aten.view.default, t, shape)
    local = p.local[x.vid]
    mean = p.emit(aten.div.Tensor, p.emit(c.ALL_REDUCE, p.emit(aten.sum.dim_IntList, local, dims), "sum"), n)
    centred = p.emit(aten.sub.Tensor, local, wide(mean))
    squares = p.emit(c.ALL_REDUCE, p.emit(aten.sum.dim_IntList, p.emit(aten.mul.Tensor, centred, centred), dims), "sum")
    std = p.emit(aten.rsqrt.default, p.emit(aten.add.Tensor, p.emit(aten.div.Tensor, squares, n), p.number(argument(op, "eps"))))
    out = p.emit(aten.mul.Tensor, centred, wide(std))
    weight, bias = maybe(p, argument(op, "weight")), maybe(p, argument(op, "bias"))
    if weight is not None:
        out = p.emit(aten.mul.Tensor, out, wide(weight))
    if bias is not None:
        out = p.emit(aten.add.Tensor, out, wide(bias))
    momentum = p.number(argument(op, "momentum"))
    for name, now in (("running_mean", lambda: mean), ("running_var", lambda: p.emit(aten.div.Tensor, squares, n - 1))):
        kept = maybe(p, argument(op, name))
        if kept is not None:
            p.emit(aten.mul_.Tensor, kept, 1 - momentum)
            p.emit(aten.add_.Tensor, kept, p.emit(aten.mul.Tensor, now(), momentum))
    p.give(op.outs[0], out, place)
    p.give(op.outs[1], mean, R)
    p.give(op.outs[2], std, R)
    return None


@rule_of_cut("native_batch_norm_backward", 1, 0)
def batch_norm_backward(p: Partitioner, op: Op, place: Shard) -> Any:
    grad, x, weight = op.args[:3]
    if x.dtype not in FLOATS or place.dim == 1 or len(grad.sizes) != len(x.sizes):
        return NotImplemented
    dims, n, shape = statistics(p, x)
    wide = lambda t: p.emit(aten.view.default, t, shape)
    if not argument(op, "train"):  # PyTorch's kernel ends the process where a worker has no rows
        g, mean, var = p.at(grad, place), maybe(p, argument(op, "running_mean")), maybe(p, argument(op, "running_var"))
        std = p.emit(aten.rsqrt.default, p.emit(aten.add.Tensor, var, p.number(argument(op, "eps"))))
        scale = std if weight is None else p.emit(aten.mul.Tensor, std, p.at(weight, R))
        centred = p.emit(aten.sub.Tensor, p.at(x, place), wide(mean))
        slopes = p.emit(aten.mul.Tensor, p.emit(aten.sum.dim_IntList, p.emit(aten.mul.Tensor, g, centred), dims), std)
        made = p.emit(aten.mul.Tensor, g, wide(scale)), slopes, p.emit(aten.sum.dim_IntList, g, dims)
        places: tuple[Place, ...] = (place, P, P)
        for o, t, at in zip(op.outs, made, places, strict=True):
            p.give(o, t, at)
        return None
    g, std = p.at(grad, place), p.at(argument(op, "save_invstd"), R)
    centred = p.emit(aten.sub.Tensor, p.at(x, place), wide(p.at(argument(op, "save_mean"), R)))
    total, weighed = p.emit(c.ALL_REDUCE_MANY, [
        p.emit(aten.sum.dim_IntList, g, dims), p.emit(aten.sum.dim_IntList, p.emit(aten.mul.Tensor, g, centred), dims),
    ], "sum")  # fmt: skip
    if isinstance(op.outs[0], TracedTensor):
        slope = p.emit(aten.div.Tensor, p.emit(aten.mul.Tensor, p.emit(aten.mul.Tensor, weighed, std), std), n)
        out = p.emit(aten.sub.Tensor, g, wide(p.emit(aten.div.Tensor, total, n)))
        out = p.emit(aten.sub.Tensor, out, p.emit(aten.mul.Tensor, centred, wide(slope)))
        scale = std if weight is None else p.emit(aten.mul.Tensor, std, p.at(weight, R))
        p.give(op.outs[0], p.emit(aten.mul.Tensor, out, wide(scale)), place)
    if isinstance(op.outs[1], TracedTensor):
        p.give(op.outs[1], p.emit(aten.mul.Tensor, weighed, std), R)
    p.give(op.outs[2], total, R)
    return None


@rule_of_cut("native_group_norm", 0)
def group_norm(p: Partitioner, op: Op, place: Shard) -> Any:
    """Each row of the batch by itself."""
    x = op.args[0]
    if place.dim != 0:
        return NotImplemented
    weight, bias = maybe(p, op.args[1]), maybe(p, op.args[2])
    made = p.emit(op.target, p.local[x.vid], weight, bias, p.length(place), *map(p.converted, op.args[4:]))
    for o, t in zip(op.outs, made, strict=True):
        p.give(o, t, place)
    return None


@rule_of_cut("native_group_norm_backward", 1, 0)
def group_norm_backward(p: Partitioner, op: Op, place: Shard) -> Any:
    grad, x, mean, rstd, weight = op.args[:5]
    if place.dim != 0:
        return NotImplemented
    given = [p.at(t, place) for t in (grad, x, mean, rstd)]
    made = p.emit(op.target, *given, maybe(p, weight), p.length(place), *map(p.converted, op.args[6:]))
    for i, (o, t) in enumerate(zip(op.outs, made, strict=True)):
        if isinstance(o, TracedTensor):
            p.give(o, t, P if i else place)
    return None


# -- random numbers -----------------------------------------------------------------------------------------------------------------
@rule_of_cut("native_dropout", 0)
def dropout(p: Partitioner, op: Op, place: Shard) -> Any:
    """Every worker draws for the whole tensor, so that all of them have drawn alike, and takes what belongs to its piece."""
    x = op.args[0]
    ones = p.emit(aten.ones.default, [p.number(n) for n in x.sizes], dtype=x.dtype, device=x.device)
    scaled, mask = (p.redistribute(t, R, place) for t in p.emit(op.target, ones, *map(p.converted, op.args[1:])))
    p.give(op.outs[0], p.emit(aten.mul.Tensor, p.local[x.vid], scaled), place)
    p.give(op.outs[1], mask, place)
    return None


@rule_of_cut("rand_like randn_like randint_like", 0)
def random_like(p: Partitioner, op: Op, place: Shard) -> Any:
    """The operand says sizes and dtype only."""
    x = op.args[0]
    full = p.emit(aten.empty.memory_format, [p.number(n) for n in x.sizes], dtype=x.dtype, device=x.device)
    drawn = p.emit(op.target, full, *map(p.converted, op.args[1:]), **{k: p.converted(v) for k, v in op.kwargs.items()})
    p.give(op.outs[0], p.redistribute(drawn, R, place), place)
    return None
