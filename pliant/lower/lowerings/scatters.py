"""Stores at computed positions. What meets at one element is added in the order of the indices, as eager's kernels do.

An operation that returns a new tensor is two nests: a copy, and the stores into it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from pliant.graph.traced import TracedTensor
from pliant.lower import liveness
from pliant.lower.loop_nest import TensorStore
from pliant.lower.loops import OUT_OF_BOUNDS, OUT_OF_GATHER, OUT_OF_SELF
from pliant.lower.lowerings.builder import Builder, Refuse, Space, arguments, lowering
from pliant.lower.lowerings.gathers import Indexed, bounded, no_larger, not_empty, placed, position
from pliant.lower.lowerings.pointwise import named, overloads
from pliant.lower.lowerings.scalars import V, cast, const, op, where

aten = torch.ops.aten
HALVES = ("bf16", "f16")
SCATTERS: set[Any] = set()
"""Operations whose nests only make sense together: all of them are kernels, or none."""


def scatter(*names: str) -> Callable[[Callable], Callable]:
    """Register a rule that fills `Target`s, for these overloads and their in-place forms."""

    def register(rule: Callable[[Builder, Any], None]) -> Callable[[Builder, Any], None]:
        targets = overloads(*names)
        SCATTERS.update(targets)
        return lowering(*targets)(rule)

    return register


def target(b: Builder, o: Any) -> TracedTensor:
    """The tensor that stores go to: the operand, or the result, which starts as its copy."""
    x, out = o.args[0], o.outs[0]
    if liveness.written(o):
        if b.meets(x):
            raise Refuse
        return x
    s = b.space(out.sizes)
    s.store(out, s.load(x))
    return out


def store(s: Space, t: TracedTensor, axes: dict[int, int], positions: dict[int, V], value: V, mode: str = "set") -> None:
    """`value` to the element of `t` whose dim `d` is at the counter of `axes[d]`, or at `positions[d]`."""
    nodes, place, steps = placed(s, t, axes, positions)
    if any(type(x) is int and x == 0 for x in steps):
        raise Refuse
    s.nest.stores.append(TensorStore(t, *place, cast(value, named(t.dtype)).node, True, False, nodes, steps, mode))


def sums(t: TracedTensor) -> str:
    """The dtype to add in: eager rounds sums of halves in ways of its own."""
    name = named(t.dtype)
    if name in HALVES or name == "bool":
        raise Refuse
    return name


def same_rows(b: Builder, x: TracedTensor, source: TracedTensor, but: int) -> None:
    """Refuse sources that may be shaped otherwise, apart from one dim; eager raises on them."""
    for d, (m, n) in enumerate(zip(source.sizes, x.sizes, strict=True)):
        if d != but and not b.facts.surely_equal(b.facts.size(m), b.facts.size(n)):
            raise Refuse


@scatter("index_add.default")
def _index_add(b: Builder, o: Any) -> None:
    x, dim, index, source, alpha = arguments(o, "self", "dim", "index", "source", "alpha")
    name, rank = sums(x), len(x.sizes)
    if not rank or len(index.sizes) != 1 or len(source.sizes) != rank or source.dtype != x.dtype or not isinstance(alpha, (int, float)):
        raise Refuse
    dim %= rank
    if not not_empty(b, x, [dim]):
        raise Refuse  # eager says otherwise or nothing
    same_rows(b, x, source, dim)
    t = target(b, o)
    s = b.space(source.sizes)
    at = position(s, index, [dim], x.sizes[dim], OUT_OF_GATHER if rank > 1 else OUT_OF_SELF)
    value = s.load(source)
    value = value if alpha == 1 else value * const(alpha, name)
    store(s, t, {d: d for d in range(rank) if d != dim}, {dim: at}, value, "add")


def scattered(mode: str, number: bool = False) -> Callable[[Builder, Any], None]:
    """Each element of the source to the place that the index of the same position names along one dim."""

    def rule(b: Builder, o: Any) -> None:
        x, dim, index, source = o.args[:4]
        if mode != "set":
            sums(x)
        rank, given = len(x.sizes), None if number else source
        if not rank or len(index.sizes) != rank or given is not None and (len(given.sizes) != rank or given.dtype != x.dtype):
            raise Refuse
        dim %= rank
        no_larger(b, index, x, dim)
        if given is not None:
            no_larger(b, index, given)
        t = target(b, o)
        s = b.space(index.sizes)
        at = position(s, index, range(rank), x.sizes[dim], OUT_OF_GATHER)
        value = s.value(source, named(x.dtype)) if given is None else s.load_at(given, list(map(b.facts.size, given.strides)))
        store(s, t, {d: d for d in range(rank) if d != dim}, {dim: at}, value, mode)

    return rule


scatter("scatter_add.default")(scattered("add"))
scatter("scatter.src")(scattered("set"))
scatter("scatter.value")(scattered("set", number=True))


@scatter("scatter_reduce.two")
def _scatter_reduce(b: Builder, o: Any) -> None:
    modes = {"sum": "add", "amax": "maximum", "amin": "minimum"}
    kind, include = arguments(o, "reduce", "include_self")
    if kind not in modes or not include:
        raise Refuse
    scattered(modes[kind])(b, o)


@scatter("index_copy.default")
def _index_copy(b: Builder, o: Any) -> None:
    x, dim, index, source = o.args
    rank = len(x.sizes)
    if not rank or len(index.sizes) != 1 or len(source.sizes) != rank or source.dtype != x.dtype:
        raise Refuse
    dim %= rank
    if not not_empty(b, x, [dim]):
        raise Refuse  # eager says otherwise or nothing
    same_rows(b, x, source, dim)
    t = target(b, o)
    s = b.space(source.sizes)
    at = position(s, index, [dim], x.sizes[dim], OUT_OF_BOUNDS)
    store(s, t, {d: d for d in range(rank) if d != dim}, {dim: at}, s.load(source))


@scatter("index_put.default", "_index_put_impl.default", "_unsafe_index_put.default")
def _index_put(b: Builder, o: Any) -> None:
    x, indices, values, accumulate = arguments(o, "self", "indices", "values", "accumulate")
    if values.dtype != x.dtype or any(t is x for t in (values, *indices)):
        raise Refuse
    if [t.dtype for t in indices if t is not None] == [torch.bool]:
        masked(b, o, x, indices, values, accumulate)
        return
    if accumulate:
        sums(x)
    where_ = Indexed(x, indices)
    sizes: list[Any] = [1] * where_.rank
    for t in where_.given.values():
        for k, n in enumerate(reversed(t.sizes), 1):
            n = b.facts.size(n)
            sizes[-k] = n if type(sizes[-k]) is int and sizes[-k] == 1 else sizes[-k]
    free = [x.sizes[d] for d in where_.axes]
    whole = [*free[: where_.start], *sizes, *free[where_.start :]]
    t = target(b, o)
    s = b.space(whole)
    value = s.load(values)
    store(s, t, where_.axes, where_.positions(s, x), value, "add" if accumulate else "set")


def masked(b: Builder, o: Any, x: TracedTensor, indices: Any, values: TracedTensor, accumulate: bool) -> None:
    """`x[mask] = number` needs no positions."""
    mask, out = indices[0], o.outs[0]
    if accumulate or values.sizes or len(indices) != 1 or not 0 < len(mask.sizes) <= len(x.sizes):
        raise Refuse
    s = b.space(x.sizes)
    on = s.load(mask, range(len(mask.sizes)))
    t = x if liveness.written(o) else out
    s.store(t, where(on, s.load(values), s.load(x)))


@lowering(aten.embedding_dense_backward.default)
def _embedding_backward(b: Builder, o: Any) -> None:
    """Rows of the gradient are added to the rows of the table that they came from; those of `padding_idx` are not."""
    grad, index, _, padding, by_frequency = arguments(o, "grad_output", "indices", "num_weights", "padding_idx", "scale_grad_by_freq")
    out, rank = o.outs[0], len(index.sizes)
    if by_frequency or sums(grad) != named(out.dtype):
        raise Refuse
    z = b.space(out.sizes)
    z.store(out, const(0, named(out.dtype)))
    s = b.space(grad.sizes)
    value, given = s.load(grad), cast(s.load(index, range(rank)), "i64")
    if not isinstance(padding, int):
        raise Refuse
    if padding >= 0:
        off = op("eq", given, padding)
        value, given = where(off, 0, value), where(off, 0, given)
    at = bounded(given, b.facts.size(out.sizes[0]), OUT_OF_SELF)
    store(s, out, {1: rank}, {0: at}, value, "add")


SCATTERS.add(aten.embedding_dense_backward.default)
