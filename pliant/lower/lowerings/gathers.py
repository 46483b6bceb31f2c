"""Loads at computed positions: rows of tables, elements by index. Indices are checked, and counted from the end, where eager does so."""

from __future__ import annotations

from typing import Any

import torch

from pliant.graph.traced import TracedTensor
from pliant.lower.loop_nest import Size
from pliant.lower.loops import OUT_OF_BOUNDS, OUT_OF_CLASSES, OUT_OF_GATHER, OUT_OF_SELF, Node
from pliant.lower.lowerings.builder import Builder, Refuse, Space, arguments, lowering
from pliant.lower.lowerings.pointwise import named
from pliant.lower.lowerings.scalars import V, cast, const, op, reduce, where

aten = torch.ops.aten
INDICES = ("i64", "i32")


def position(s: Space, index: TracedTensor, axes: Any, size: Any, code: int, wraps: bool = False, among: V | None = None) -> V:
    """The elements of `index` as positions in a dim of `size`; the kernel fails with `code` where they are none (and `among` is true)."""
    if named(index.dtype) not in INDICES:
        raise Refuse
    return bounded(cast(s.load(index, axes), "i64"), s.build.facts.size(size), code, wraps, among)


def bounded(at: V, size: Size, code: int, wraps: bool = False, among: V | None = None) -> V:
    args = (at.node,) if among is None else (at.node, among.node)
    return V(Node("bounded", args, "i64", (size, wraps, code)))


def no_larger(b: Builder, index: TracedTensor, x: TracedTensor, but: int | None = None) -> None:
    """Refuse indices that may have more rows than there are; eager raises on them."""
    for d, (m, n) in enumerate(zip(index.sizes, x.sizes, strict=True)):
        if d != but and not b.facts.at_least(b.facts.size(n), b.facts.size(m)):
            raise Refuse


def not_empty(b: Builder, x: TracedTensor, dims: Any) -> bool:
    """Whether `x` surely has something in each of these dims. Eager looks at indices although there is nothing to select, or does not."""
    return all(b.facts.positive(b.facts.size(x.sizes[d])) for d in dims)


def load_through(s: Space, t: TracedTensor, axes: dict[int, int], positions: dict[int, V]) -> V:
    """The element of `t` whose dim `d` is at the counter of `axes[d]`, or at `positions[d]`."""
    nodes, place, steps = placed(s, t, axes, positions)
    return V(Node("load", nodes, named(t.dtype), (*place, steps)))


def placed(s: Space, t: TracedTensor, axes: dict[int, int], positions: dict[int, V]) -> tuple[tuple, tuple, tuple[Size, ...]]:
    """(the positions, where the counters lead: root, moves and offset, a step of each position) of an element of `t`."""
    if not s.build.supports(t.device) or t.layout is not torch.strided:
        raise Refuse
    size = s.build.facts.size
    moves: list[Size] = [0] * len(s.axes)
    for d, axis in axes.items():
        if axis in s.position:
            moves[s.position[axis]] = size(t.strides[d])
    nodes = tuple(p.node for p in positions.values())
    return nodes, (s.build.root(t), tuple(moves), size(t.offset)), tuple(size(t.strides[d]) for d in positions)


@lowering(aten.embedding.default)
def _embedding(b: Builder, o: Any) -> None:
    table, index = o.args[:2]
    out, rank = o.outs[0], len(index.sizes)
    if not not_empty(b, table, [1]):
        raise Refuse
    s = b.space(out.sizes)
    row = position(s, index, range(rank), table.sizes[0], OUT_OF_SELF)
    s.store(out, load_through(s, table, {1: rank}, {0: row}))


@lowering(aten.index_select.default)
def _index_select(b: Builder, o: Any) -> None:
    x, dim, index = o.args
    out, rank = o.outs[0], len(x.sizes)
    if not rank or len(index.sizes) > 1:
        raise Refuse
    dim %= rank
    if not not_empty(b, x, [d for d in range(rank) if d != dim]):
        raise Refuse
    s = b.space(out.sizes)
    at = position(s, index, [dim] if index.sizes else [], x.sizes[dim], OUT_OF_SELF)
    s.store(out, load_through(s, x, {d: d for d in range(rank) if d != dim}, {dim: at}))


@lowering(aten.gather.default)
def _gather(b: Builder, o: Any) -> None:
    x, dim, index = o.args[:3]
    out, rank = o.outs[0], len(x.sizes)
    if not rank or len(index.sizes) != rank:
        raise Refuse
    dim %= rank
    no_larger(b, index, x, dim)
    s = b.space(out.sizes)
    at = position(s, index, range(rank), x.sizes[dim], OUT_OF_GATHER)
    s.store(out, load_through(s, x, {d: d for d in range(rank) if d != dim}, {dim: at}))


class Indexed:
    """`x[indices]`: which dims of the result are those of the index tensors, laid over each other, and which those of `x`."""

    def __init__(self, x: TracedTensor, indices: Any) -> None:
        self.given = {d: t for d, t in enumerate(indices) if t is not None}
        if not self.given or any(named(t.dtype) not in INDICES for t in self.given.values()):
            raise Refuse  # masks are for `nonzero`
        where = list(self.given)
        self.rank = max(len(t.sizes) for t in self.given.values())
        self.start = where[0] if where[-1] - where[0] == len(where) - 1 else 0  # apart: in front
        free = [d for d in range(len(x.sizes)) if d not in self.given]
        self.axes = {d: k if k < self.start else k + self.rank for k, d in enumerate(free)}

    def positions(self, s: Space, x: TracedTensor) -> dict[int, V]:
        if not not_empty(s.build, x, self.axes) and not not_empty(s.build, x, self.given):
            raise Refuse  # eager demands places where there are indices, whether or not a point of the nest looks at them
        end = self.start + self.rank
        return {
            d: position(s, t, range(end - len(t.sizes), end), x.sizes[d], OUT_OF_BOUNDS, wraps=True) for d, t in self.given.items()
        }  # fmt: skip


@lowering(aten.index.Tensor, aten._unsafe_index.Tensor)
def _index(b: Builder, o: Any) -> None:
    x, indices = o.args
    where = Indexed(x, indices)
    s = b.space(o.outs[0].sizes)
    s.store(o.outs[0], load_through(s, x, where.axes, where.positions(s, x)))


@lowering(aten.nll_loss_forward.default)
def _nll_loss(b: Builder, o: Any) -> None:
    """(minus the target's column of each row, weighted, and their mean or sum; the sum of the weights). Ignored rows count nothing."""
    x, target, weight, reduction, ignored = arguments(o, "self", "target", "weight", "reduction", "ignore_index")
    out, total = o.outs
    name = named(x.dtype)
    if len(x.sizes) != 2 or len(target.sizes) != 1 or name not in ("f32", "f64") or weight is not None and weight.dtype != x.dtype:
        raise Refuse
    if not b.facts.positive(b.facts.size(x.sizes[1])) or named(target.dtype) != "i64" or reduction == 0 and b.needed(total):
        raise Refuse
    pairs = [(target.sizes[0], x.sizes[0]), *([] if weight is None else [(weight.sizes[0], x.sizes[1])])]
    if not all(b.facts.surely_equal(b.facts.size(m), b.facts.size(n)) for m, n in pairs):
        raise Refuse
    s = b.space(target.sizes, 1 if reduction else 0)
    given = s.load(target)
    kept = op("ne", given, s.value(ignored, "i64"))
    at = where(kept, bounded(given, b.facts.size(x.sizes[1]), OUT_OF_CLASSES, among=kept), 0)
    w = const(1, name) if weight is None else load_through(s, weight, {}, {0: at})
    loss = where(kept, -load_through(s, x, {0: 0}, {1: at}) * w, 0.0)
    if not reduction:
        s.store(out, loss)
        return
    weights = reduce("sum", where(kept, w, 0.0))
    loss = reduce("sum", loss)
    s.store(out, loss / weights if reduction == 1 else loss, [], full=False)
    if b.needed(total):
        s.store(total, weights, [], full=False)
