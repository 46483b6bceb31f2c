"""Elements in other places: flips, rolls, repeats; and the positions of extremes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from pliant.lower.loops import Node
from pliant.lower.lowerings.builder import Builder, Refuse, arguments, lowering
from pliant.lower.lowerings.pointwise import named, over_result
from pliant.lower.lowerings.reductions import put_reduced, reducing
from pliant.lower.lowerings.scalars import V, reduce, up, where
from pliant.symbolic.expr import Expr

aten = torch.ops.aten


@lowering(aten.flip.default)
def _flip(b: Builder, o: Any) -> None:
    """The dims are walked backwards, from the last element."""
    x, dims = o.args
    s, out, _ = over_result(b, o)
    facts, n = b.facts, len(out.sizes)
    flipped = {d % n for d in dims} if n else set()
    strides = list(s.strides(x))
    offset = facts.size(x.offset)
    for d in flipped:
        if d not in s.position:
            continue
        stride = facts.size(x.strides[d])
        offset = facts.sum(offset, facts.product((facts.difference(s.sizes[d], 1), stride)))
        strides[s.position[d]] = facts.product((-1, stride))
    s.store(out, V(Node("load", (), named(x.dtype), (b.root(x), tuple(strides), offset, ()))))


@lowering(aten.roll.default)
def _roll(b: Builder, o: Any) -> None:
    """Along one dim: its end, then its beginning."""
    x, shifts, dims = arguments(o, "self", "shifts", "dims")
    dims, shifts = list(dims), list(shifts)
    if len(dims) != 1 or len(shifts) != 1 or not len(x.sizes):  # one number has no dim to roll along: PyTorch says so
        raise Refuse
    s, out, _ = over_result(b, o)
    facts = b.facts
    dim, by = dims[0] % len(out.sizes), facts.size(shifts[0])
    size = s.sizes[dim]
    if not facts.positive(size):
        raise Refuse
    by = facts.size(by % size) if type(by) is int and type(size) is int else facts.size((by if type(by) is Expr else size * 0 + by) % size)
    front = s.index(dim) < s.size(by, "i64")
    s.store(out, where(front, s.window(x, dim, facts.difference(by, size), front), s.window(x, dim, by, ~front)))


@lowering(aten.repeat.default)
def _repeat(b: Builder, o: Any) -> None:
    """Each dim is two: which repetition, and where in it. Nothing is gathered."""
    x, repeats = o.args
    out, facts = o.outs[0], b.facts
    lead = len(repeats) - len(x.sizes)
    sizes: list[Any] = []
    steps: list[Any] = []
    for d, (count, stride) in enumerate(zip(repeats, out.strides, strict=True)):
        n = facts.size(x.sizes[d - lead]) if d >= lead else 1
        sizes += [facts.size(count), n]
        steps += [facts.product((facts.size(stride), n)), facts.size(stride)]
    s = b.space(sizes)
    value = s.load(x, [2 * d + 1 for d in range(lead, len(repeats))])
    s.store_at(out, value, steps)


def positions(kind: str) -> Callable[[Builder, Any], None]:
    def rule(b: Builder, o: Any) -> None:
        x, dim = arguments(o, "self", "dim")
        if x.dtype is torch.bool:
            raise Refuse  # eager raises
        s, axes, _, gone = reducing(b, x, dim)
        check_rows(b, x, gone)
        put_reduced(s, o.outs[0], reduce(kind, up(s.load(x, axes))), axes, len(x.sizes))

    return rule


def extremes(kind: str) -> Callable[[Builder, Any], None]:
    """(values, positions) along one dim."""

    def rule(b: Builder, o: Any) -> None:
        x, dim = arguments(o, "self", "dim")
        s, axes, _, gone = reducing(b, x, dim)
        check_rows(b, x, gone)
        v = up(s.load(x, axes))
        put_reduced(s, o.outs[0], reduce(kind, v), axes, len(x.sizes))
        if b.needed(o.outs[1]):
            put_reduced(s, o.outs[1], reduce(f"arg{kind}", v), axes, len(x.sizes))

    return rule


def check_rows(b: Builder, x: Any, gone: list[int]) -> None:
    """Eager raises on rows without elements."""
    if not all(b.facts.positive(b.facts.size(x.sizes[d])) for d in gone):
        raise Refuse


lowering(aten.argmax.default)(positions("argmax"))
lowering(aten.argmin.default)(positions("argmin"))
lowering(aten.max.dim)(extremes("max"))
lowering(aten.min.dim)(extremes("min"))


@lowering(aten.aminmax.default)
def _aminmax(b: Builder, o: Any) -> None:
    (dim,) = arguments(o, "dim")
    x = o.args[0]
    s, axes, _, gone = reducing(b, x, dim)
    check_rows(b, x, gone)
    v = up(s.load(x, axes))
    for out, kind in zip(o.outs, ("min", "max"), strict=True):
        put_reduced(s, out, reduce(kind, v), axes, len(x.sizes))
