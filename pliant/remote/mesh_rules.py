"""Rules of placement for the collectives along another dim of the mesh, which a program has that is divided further.

A sum of partial sums is a partial sum; what is cut stays cut, unless it is along the dim that the collective takes apart or joins.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pliant.graph.record import Op
from pliant.graph.traced import TracedTensor
from pliant.remote import collectives as c
from pliant.remote.partition import P, Partial, Partitioner, Place, R, Shard
from pliant.remote.product_rules import attention
from pliant.remote.sharding import RULES


def ruled(target: Any) -> Callable:
    def enter(fn: Callable) -> Callable:
        RULES[target] = fn
        return fn

    return enter


def axis_of(op: Op) -> int:
    """The dim of the mesh that a collective goes along."""
    return int(op.args[-2])


def kept(p: Partitioner, x: TracedTensor, axis: int, linear: bool, dim: int | None = None) -> Place:
    """The place in which a collective along another dim of the mesh may take its operand. `dim`: which must not be cut."""
    place = p.place(x)
    if isinstance(place, Partial):
        return P if linear and x.dtype.is_floating_point else R
    if isinstance(place, Shard) and (place.dim == dim or differs(p, place, axis)):
        return R
    return place


def differs(p: Partitioner, place: Shard, axis: int) -> bool:
    """Whether pieces of workers that differ along `axis` differ in length."""
    symbols = [s.name for e in (place.base, place.factor) if type(e) is not int for s in e.symbols()]
    return any(n[0] in "lb" and n[1:].isdigit() and p.axes[int(n[1:])] == axis for n in symbols)


def again(p: Partitioner, op: Op, *args: Any) -> Any:
    """The collective, on these operands."""
    return p.put(op.target, *args, axis_of(op), p.tokened(), site=p.site)


@ruled(c.ALL_REDUCE)
def all_reduce(p: Partitioner, op: Op) -> None:
    x, how = op.args[:2]
    place = kept(p, x, axis_of(op), how == "sum")
    p.give(op.outs[0], again(p, op, p.at(x, place), how), place)


@ruled(c.ALL_REDUCE_MANY)
def all_reduce_many(p: Partitioner, op: Op) -> None:
    xs, how = op.args[:2]
    places = [kept(p, x, axis_of(op), how == "sum") for x in xs]
    made = again(p, op, [p.at(x, place) for x, place in zip(xs, places, strict=True)], how)
    for o, t, place in zip(op.outs, made, places, strict=True):
        p.give(o, t, place)


@ruled(c.ALL_GATHER)
def all_gather(p: Partitioner, op: Op) -> None:
    x, dim, base, factor = op.args[:4]
    place = kept(p, x, axis_of(op), False, dim)
    p.give(op.outs[0], again(p, op, p.at(x, place), dim, p.number(base), p.number(factor)), place)


@ruled(c.REDUCE_SCATTER)
def reduce_scatter(p: Partitioner, op: Op) -> None:
    x, dim, base, factor, length = op.args[:5]
    place = kept(p, x, axis_of(op), True, dim)
    p.give(op.outs[0], again(p, op, p.at(x, place), dim, *map(p.number, (base, factor, length))), place)


@ruled(c.PART)
def part(p: Partitioner, op: Op) -> None:
    x, dim, begin, length = op.args
    place = p.place(x)
    if isinstance(place, Shard) and place.dim == dim:
        place = R
    p.give(op.outs[0], p.emit(c.PART, p.at(x, place), dim, p.number(begin), p.number(length)), place)


RULES[c.ATTENTION] = RULES[c.ATTENTION_BACKWARD] = attention
