"""Rules of placement for views and for what joins and takes apart: where a cut dim goes."""

from __future__ import annotations

from typing import Any

import torch

from pliant.graph.record import Op
from pliant.graph.traced import TracedTensor
from pliant.lower import liveness
from pliant.remote.partition import P, Partial, Partitioner, Place, R, Shard, Sizes, argument
from pliant.remote.sharding import behind, bytes_of, is_one, rule
from pliant.symbolic import ops
from pliant.symbolic.expr import Expr

aten = torch.ops.aten


# -- views --------------------------------------------------------------------------------------------------------------------------
@rule("view _unsafe_view reshape")
def view(p: Partitioner, op: Op) -> Any:
    """The cut dim must begin a group of dims that are flattened, or be what is taken apart again."""
    x, out = op.args[0], op.outs[0]
    if op.target is aten.view.dtype:
        return NotImplemented if x.dtype.itemsize != out.dtype.itemsize else same_bytes(p, op, x, out)
    place = p.place(x)
    sizes = [p.number(n) for n in out.sizes]
    if isinstance(place, Shard):
        found = through_view(p, x, out, place)
        if found is None:
            p.gathered.append(f"{op.target} at {p.where()}")
            place = R
        else:
            sizes[found.dim] = p.length(found)
            local = p.emit(op.target, p.local[x.vid], sizes)
            p.give(out, local, found)
            return None
    outer: Place = P if isinstance(place, Partial) else R
    if isinstance(p.place(x), Shard):
        p.separated.add(out.storage_id)
    p.give(out, p.emit(op.target, p.at(x, outer), sizes), outer)
    return None


def same_bytes(p: Partitioner, op: Op, x: TracedTensor, out: TracedTensor) -> None:
    """The elements as those of another dtype of their size. The bytes of partial sums say nothing."""
    place = R if isinstance(p.place(x), Partial) else p.place(x)
    if place is not p.place(x):
        p.separated.add(out.storage_id)
    p.give(out, p.emit(op.target, p.at(x, place), out.dtype), place)


def through_view(p: Partitioner, x: TracedTensor, out: TracedTensor, place: Shard) -> Shard | None:
    """How the result of a view is cut; None where pieces do not stay together."""
    ins, outs = [p.plain(p.number(n)) for n in x.sizes], [p.plain(p.number(n)) for n in out.sizes]
    i = j = 0
    while i < len(ins) and j < len(outs):
        group_in, group_out = [i], [j]
        a, b = ins[i], outs[j]
        i, j = i + 1, j + 1
        while not p.equal(a, b):
            # the shorter product grows; which one that is, hints tell, and equality is proved
            if hint(a) < hint(b) or (hint(a) == hint(b) and j >= len(outs)):
                if i >= len(ins):
                    return None
                a = p.plain(p.symbol(a) * p.symbol(ins[i]))
                group_in.append(i)
                i += 1
            else:
                if j >= len(outs):
                    return None
                b = p.plain(p.symbol(b) * p.symbol(outs[j]))
                group_out.append(j)
                j += 1
        if place.dim in group_in:
            return in_group(p, ins, outs, group_in, group_out, place)
    return None


def in_group(p: Partitioner, ins: list, outs: list, group_in: list[int], group_out: list[int], place: Shard) -> Shard | None:
    before = [d for d in group_in if d < place.dim]
    if any(not (type(ins[d]) is int and ins[d] == 1) for d in before):
        return None
    inner: Any = 1
    for d in group_in:
        if d > place.dim:
            inner = p.symbol(inner) * p.symbol(ins[d])
    lead = next((d for d in group_out if not (type(outs[d]) is int and outs[d] == 1)), group_out[0])
    if any(d > lead for d in group_out[: group_out.index(lead)]):
        return None
    rest: Any = 1
    for d in group_out:
        if d > lead:
            rest = p.symbol(rest) * p.symbol(outs[d])
    # a piece has `length(base) * factor * inner` elements, in rows of `rest`
    total = p.plain(p.symbol(place.factor) * p.symbol(inner))
    return divided(p, place, total, p.plain(rest), lead)


def divided(p: Partitioner, place: Shard, total: Any, rest: Any, dim: int) -> Shard | None:
    """Pieces of `length(base) * total` elements as rows of `rest`."""
    if p.equal(total, rest):
        return Shard(dim, place.base, 1)
    if type(rest) is int and rest == 1:
        return Shard(dim, place.base, total)
    if type(total) is int and type(rest) is int:
        if total % rest == 0:
            return Shard(dim, place.base, total // rest)
        whole_ = place.base * total if type(place.base) is int else None
        if whole_ is not None and place.base % p.workers == 0 and (place.base // p.workers * total) % rest == 0:
            n = whole_ // rest
            return Shard(dim, n, 1) if n % p.workers == 0 else None
        return None
    e = expr(p, total)
    f = expr(p, rest)
    q = p.scope.simplify(ops.floordiv(e, f))
    if p.scope.known_true(ops.eq(ops.mul(q, f), e)):
        return Shard(dim, place.base, q if q.const is None else q.const)
    return None


def expr(p: Partitioner, x: Any) -> Expr:
    return x if isinstance(x, Expr) else p.scope.ctx.lift(x)


def hint(x: Any) -> int:
    return x if type(x) is int else (x.hint if x.hint is not None else 64)


def moved_dims(p: Partitioner, op: Op, order: list[int]) -> Any:
    """A permutation: dim `order[i]` becomes dim `i`."""
    place = p.place(op.args[0])
    out: Place = Shard(order.index(place.dim), place.base, place.factor) if isinstance(place, Shard) else place
    p.apply(op, lambda t: place, out)


@rule("permute t transpose")
def permute(p: Partitioner, op: Op) -> Any:
    if liveness.mutable(op.target):
        return NotImplemented
    n = len(op.args[0].sizes)
    order = list(range(n))
    name = op.target._schema.name
    if name == "aten::permute":
        order = [d % n for d in op.args[1]]
    elif n > 1:
        i, j = (0, 1) if name == "aten::t" else (op.args[1] % n, op.args[2] % n)
        order[i], order[j] = order[j], order[i]
    return moved_dims(p, op, order)


@rule("unsqueeze")
def unsqueeze(p: Partitioner, op: Op) -> Any:
    x = op.args[0]
    place, d = p.place(x), op.args[1] % (len(x.sizes) + 1)
    out = Shard(place.dim + (place.dim >= d), place.base, place.factor) if isinstance(place, Shard) else place
    p.apply(op, lambda t: place, out)


@rule("squeeze")
def squeeze(p: Partitioner, op: Op) -> Any:
    """Dims of size 1 go; which ones these are, the graph has decided, and a piece of another dim may have that size too."""
    x, out = op.args[0], op.outs[0]
    place = p.place(x)
    if liveness.mutable(op.target):
        return NotImplemented
    if not isinstance(place, Shard):
        p.apply(op, lambda t: place, place)
        return None
    asked = argument(op, "dim")
    n = len(x.sizes)
    dims = range(n) if asked is None else [d % n for d in (asked if isinstance(asked, (list, tuple)) else [asked])]
    gone = [d for d in dims if is_one(p, x.sizes[d])]
    if place.dim in gone or len(gone) != n - len(out.sizes):
        return NotImplemented
    local = p.emit(aten.squeeze.dims, p.local[x.vid], gone) if gone else p.emit(aten.alias.default, p.local[x.vid])
    p.give(out, local, Shard(behind(place.dim, gone, False), place.base, place.factor))
    return None


@rule("expand")
def expand(p: Partitioner, op: Op) -> Any:
    x, out = op.args[0], op.outs[0]
    place = p.place(x)
    if isinstance(place, Shard):
        d = place.dim + len(out.sizes) - len(x.sizes)
        if is_one(p, x.sizes[place.dim]):
            return NotImplemented
        place_out: Place = Shard(d, place.base, place.factor)
    else:
        place_out = place
    p.apply(op, lambda t: place, place_out, (x, Sizes(p.sizes(out, place_out))), {})
    return None


@rule("slice select split split_with_sizes unbind narrow")
def along_others(p: Partitioner, op: Op) -> Any:
    """Parts along a dim that is not cut."""
    x = op.args[0]
    place = p.place(x)
    if not isinstance(place, Shard):
        p.apply(op, lambda t: place, place)
        return None
    n = len(x.sizes)
    name = op.target._schema.name
    dim = (argument(op, "dim", 0) or 0) % n
    if dim == place.dim:
        out = op.outs[0]
        if name == "aten::slice" and p.equal(p.number(out.sizes[dim]), p.number(x.sizes[dim])):
            p.give(out, p.emit(aten.alias.default, p.local[x.vid]), place)
            return None
        return NotImplemented
    gone = name in ("aten::select", "aten::unbind")
    p.apply(op, lambda t: place, Shard(behind(place.dim, [dim] if gone else [], False), place.base, place.factor))
    return None


@rule("slice_backward select_backward")
def part_backward(p: Partitioner, op: Op) -> Any:
    grad, sizes, dim = op.args[:3]
    place, out = p.place(grad), op.outs[0]
    dim %= len(sizes)
    if isinstance(place, Partial):
        p.apply(op, lambda t: P, P)
        return None
    if not isinstance(place, Shard):
        return NotImplemented
    selected = op.target._schema.name == "aten::select_backward"
    d = place.dim + (selected and place.dim >= dim)
    if d == dim and not selected and p.equal(p.number(out.sizes[dim]), p.number(grad.sizes[dim])):
        p.give(out, p.emit(aten.clone.default, p.local[grad.vid]), place)  # all of it was taken
        return None
    if d == dim:
        return NotImplemented
    at = Shard(d, place.base, place.factor)
    p.apply(op, lambda t: place, at, (grad, Sizes(p.sizes(out, at)), *op.args[2:]))
    return None


@rule("cat stack")
def joined(p: Partitioner, op: Op) -> Any:
    """Pieces joined along a dim that is not cut."""
    parts, out = op.args[0], op.outs[0]
    n = len(out.sizes)
    dim = (argument(op, "dim", 0) or 0) % n
    if any(len(t.sizes) != len(parts[0].sizes) for t in parts):
        return NotImplemented
    shift = op.target._schema.name == "aten::stack"
    if all(isinstance(p.place(t), Partial) for t in parts) and out.dtype.is_floating_point:
        p.apply(op, lambda t: P, P)
        return None
    found = None
    for t in sorted(parts, key=bytes_of, reverse=True):
        place = p.place(t)
        if isinstance(place, Shard) and found is None:
            found = place
    if found is None:
        return NotImplemented
    d = found.dim + (shift and found.dim >= dim)
    if d == dim:
        return NotImplemented
    p.apply(op, lambda t: found, Shard(d, found.base, found.factor))
    return None
