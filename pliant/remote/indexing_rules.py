"""Rules of placement for tensors that index: `index`, `index_put`, `scatter`, `index_add` and their like.

Along dims that no index names, pieces are worked on where they are. Where the indices themselves are cut, each worker looks up its own of
them in the whole tensor; what they add to zeros (gradients of look-ups) is partial sums.
"""

from __future__ import annotations

from typing import Any

import torch

from pliant.graph.operators import overloads
from pliant.graph.record import Op
from pliant.graph.traced import TracedTensor
from pliant.lower import liveness
from pliant.remote import collectives as c
from pliant.remote.partition import P, Partial, Partitioner, Place, R, Refused, Shard, argument
from pliant.remote.sharding import bytes_of, is_one, rule, tensors

aten = torch.ops.aten
ZEROS = frozenset(overloads(("zeros", "new_zeros", "zeros_like")))
MASKS = (torch.bool, torch.uint8)


def cut_at(place: Shard, dim: int) -> Shard:
    """The same pieces, along another dim."""
    return Shard(dim, place.base, place.factor)


def is_zeros(p: Partitioner, t: TracedTensor) -> bool:
    """Whether a tensor is all zeros: made so, and written by nobody since."""
    x = p.local.get(t.vid)
    if x is None or not isinstance(p.place(t), type(R)):
        return False
    made = next((op for op in p.ops if any(o is x for o in op.outs)), None)
    return made is not None and made.target in ZEROS and not any(w.storage_id == x.storage_id for op in p.ops for w in liveness.written(op))


class Indexed:
    """How the result of `x[indices]` lies: dims of `x` that are indexed, where the dims of the indices come, how many they are."""

    def __init__(self, x: TracedTensor, indices: Any) -> None:
        self.given = [t for t in indices if t is not None]
        self.dims = [d for d, t in enumerate(indices) if t is not None]
        self.rank = max([len(t.sizes) for t in self.given], default=0)
        self.together = self.dims == list(range(self.dims[0], self.dims[0] + len(self.dims))) if self.dims else True
        self.start = self.dims[0] if self.dims and self.together else 0
        self.n = len(x.sizes) - len(self.dims) + self.rank  # dims of the result

    def position(self, dim: int) -> int:
        """Where a dim of `x` that is not indexed comes in the result."""
        before = sum(1 for d in range(dim) if d not in self.dims)
        return before if self.together and dim < self.start else before + self.rank

    def cut(self, p: Partitioner) -> Shard | None:
        """How the largest of the indices is cut, as a dim of what they come to together."""
        best: tuple[int, Shard] | None = None
        for t in self.given:
            place = p.place(t)
            if isinstance(place, Shard) and not is_one(p, t.sizes[place.dim]) and (best is None or bytes_of(t) > best[0]):
                best = bytes_of(t), cut_at(place, place.dim + self.rank - len(t.sizes))
        return best[1] if best is not None else None

    def want(self, p: Partitioner, t: TracedTensor, cut: Shard) -> Place:
        """The place of an index where all of them are cut so."""
        at = cut.dim - (self.rank - len(t.sizes))
        return R if at < 0 or is_one(p, t.sizes[at]) else cut_at(cut, at)

    def values(self, p: Partitioner, t: Any, dim: int, cut: Shard) -> Place:
        """The place of values for `x[indices]`, of which dim `dim` is cut so."""
        at = dim - (self.n - len(t.sizes))
        return R if at < 0 or is_one(p, t.sizes[at]) else cut_at(cut, at)


@rule("index _unsafe_index")
def index(p: Partitioner, op: Op) -> Any:
    x, indices = op.args[:2]
    how = Indexed(x, indices)
    if not how.dims or any(t.dtype in MASKS or t is x for t in how.given):
        return NotImplemented
    place = p.place(x)
    if isinstance(place, Shard) and place.dim not in how.dims:
        p.apply(op, lambda t: place if t is x else R, cut_at(place, how.position(place.dim)))
        return None
    cut = how.cut(p)
    if cut is None:
        return NotImplemented
    p.apply(op, lambda t: R if t is x else how.want(p, t, cut), cut_at(cut, how.start + cut.dim))
    return None


@rule("index_put index_put_ _index_put_impl_ _unsafe_index_put")
def index_put(p: Partitioner, op: Op) -> Any:
    x, indices, values = op.args[:3]
    how = Indexed(x, indices)
    if not how.dims or any(t.dtype in MASKS or t is x for t in (*how.given,)) or values is x or any(t is values for t in how.given):
        return NotImplemented
    place = p.place(x)
    if isinstance(place, Shard) and place.dim not in how.dims:
        at = how.position(place.dim)
        p.apply(op, lambda t: place if t is x else how.values(p, t, at, place) if t is values else R, place)
        return None
    if liveness.written(op) or not argument(op, "accumulate") or not x.dtype.is_floating_point or not isinstance(place, type(R)):
        return NotImplemented
    cut = how.cut(p)
    if cut is None:  # only the values are
        lies = p.place(values)
        at = lies.dim + how.n - len(values.sizes) if isinstance(lies, Shard) else -1
        if not isinstance(lies, Shard) or not how.start <= at < how.start + how.rank or is_one(p, values.sizes[lies.dim]):
            return NotImplemented
        cut = cut_at(lies, at - how.start)
    every = [how.want(p, t, cut) for t in how.given] + [how.values(p, values, how.start + cut.dim, cut)]
    if not any(isinstance(w, Shard) for w in every):
        return NotImplemented  # every worker would add all of it
    added(p, op, x, lambda t: how.values(p, t, how.start + cut.dim, cut) if t is values else how.want(p, t, cut))
    return None


def added(p: Partitioner, op: Op, x: TracedTensor, want: Any) -> None:
    """The operation adds to `x`, each worker a part: partial sums where `x` is zeros."""
    out = op.outs[0]
    if is_zeros(p, x):
        p.apply(op, lambda t: R if t is x else want(t), P)
        return
    base = p.at(x, R)
    zeros = p.emit(aten.zeros_like.default, base)
    rest = [given(p, a, want) for a in op.args[1:]]
    made = p.emit(op.target, zeros, *rest, **{k: given(p, v, want) for k, v in op.kwargs.items()})
    p.give(out, p.emit(aten.add.Tensor, base, p.emit(c.ALL_REDUCE, made, "sum")), R)


def given(p: Partitioner, a: Any, want: Any) -> Any:
    if type(a) is TracedTensor:
        return p.at(a, want(a))
    if type(a) in (list, tuple):
        return type(a)(given(p, v, want) for v in a)
    return p.number(a)


def alike(p: Partitioner, d: int, *ts: TracedTensor) -> bool:
    """Whether tensors of one rank have the same size along a dim."""
    n = p.number(ts[0].sizes[d])
    return all(len(t.sizes) == len(ts[0].sizes) and p.equal(p.number(t.sizes[d]), n) for t in ts)


@rule("scatter scatter_ scatter_add scatter_add_ scatter_reduce scatter_reduce_")
def scatter(p: Partitioner, op: Op) -> Any:
    x, dim, at = op.args[:3]
    all_ = tensors(op)
    if not x.sizes or not at.sizes or len({id(t) for t in all_}) != 2 + isinstance(op.args[3], TracedTensor):
        return NotImplemented
    dim %= len(x.sizes)
    place = p.place(x)
    rest = [t for t in all_ if t is not x]
    if isinstance(place, Shard):
        if place.dim == dim or not alike(p, place.dim, *all_):
            return NotImplemented
        p.apply(op, lambda t: place, place)
        return None
    cut = next((pl for t in rest if isinstance(pl := p.place(t), Shard)), None)
    if cut is None or liveness.written(op) or not isinstance(place, type(R)):
        return NotImplemented
    if cut.dim != dim:
        if not alike(p, cut.dim, *all_):
            return NotImplemented
        p.apply(op, lambda t: cut, cut)
        return None
    if op.target is not aten.scatter_add.default or not x.dtype.is_floating_point or not alike(p, dim, *rest):
        return NotImplemented
    added(p, op, x, lambda t: cut)
    return None


@rule("index_add index_add_ index_copy index_copy_ index_fill index_fill_")
def by_rows(p: Partitioner, op: Op) -> Any:
    """Rows of a source to rows of `x` along `dim`."""
    x, dim, at = op.args[:3]
    source = op.args[3]
    has = isinstance(source, TracedTensor) and bool(source.sizes)
    if not x.sizes or not at.sizes or x is at or source is x or source is at or (has and len(source.sizes) != len(x.sizes)):
        return NotImplemented
    dim %= len(x.sizes)
    if has and not all(alike(p, d, x, source) for d in range(len(x.sizes)) if d != dim):
        return NotImplemented  # the operator says what is wrong
    place = p.place(x)
    if isinstance(place, Shard):
        if place.dim == dim:
            return NotImplemented
        p.apply(op, lambda t: place if t is x or (t is source and has) else R, place)
        return None
    if not has or liveness.written(op) or not isinstance(place, type(R)):
        return NotImplemented
    cut = p.place(source)
    if isinstance(cut, Shard) and cut.dim != dim:
        p.apply(op, lambda t: R if t is at else cut, cut)
        return None
    rows = p.place(at)
    if not isinstance(cut, Shard) and isinstance(rows, Shard):
        cut = cut_at(rows, dim)
    if not isinstance(cut, Shard) or op.target is not aten.index_add.default or not x.dtype.is_floating_point:
        return NotImplemented
    pieces = cut
    added(p, op, x, lambda t: cut_at(pieces, 0) if t is at else pieces)
    return None


@rule("as_strided")
def as_strided(p: Partitioner, op: Op) -> Any:
    """It counts from the beginning of the memory, which has to be here what it is in one process."""
    x = op.args[0]
    local = p.local.get(x.vid)
    packed = x.dense and type(x.offset) is int and x.offset == 0
    made = local is not None and isinstance(p.place(x), type(R)) and not any(local is i.value for i in p.inputs)
    alike = made and lies_alike(p, x, local)
    if x.storage_id in p.separated or not (packed or alike):
        raise Refused(f"{p.where()}: as_strided of a tensor that may lie otherwise on the workers")
    return NotImplemented


def lies_alike(p: Partitioner, x: TracedTensor, local: Any) -> bool:
    return all(p.equal(p.number(a), b) for a, b in zip((x.offset, *x.strides), (local.offset, *local.strides), strict=True))


@rule("new_zeros new_ones new_full new_empty new_empty_strided")
def new(p: Partitioner, op: Op) -> Any:
    """The operand says dtype and device only."""
    if op.target is aten.new_empty_strided.default:
        return NotImplemented
    p.apply(op, lambda t: t_place(p, t), R)
    return None


def t_place(p: Partitioner, t: TracedTensor) -> Place:
    place = p.place(t)
    return P if isinstance(place, Partial) else place
