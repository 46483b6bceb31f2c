"""Reductions and what is built on them: softmax, normalization, and their gradients. Sums of halves are kept in `f32`, as in eager."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from pliant.graph.originals import math
from pliant.graph.traced import TracedTensor
from pliant.lower.lowerings.builder import Builder, Refuse, Space, arguments, lowering
from pliant.lower.lowerings.pointwise import named, up_name
from pliant.lower.lowerings.scalars import FLOATS, HALVES, V, cast, exp, log, maximum, op, reduce, rounded, scan, sqrt, up

aten = torch.ops.aten


def split_dims(t: TracedTensor, dims: Any) -> tuple[list[int], list[int]]:
    """(the dims that stay, the dims that are reduced over)."""
    n = len(t.sizes)
    if dims is None or (isinstance(dims, (list, tuple)) and not dims):
        return [], list(range(n))
    chosen = {d % n for d in (dims if isinstance(dims, (list, tuple)) else [dims])} if n else set()
    return [d for d in range(n) if d not in chosen], [d for d in range(n) if d in chosen]


def reducing(b: Builder, x: TracedTensor, dims: Any) -> tuple[Space, list[int], list[int], list[int]]:
    """A space that reduces `x` over `dims` (none means all): (it, axes for loads of tensors shaped like `x`, kept dims, reduced dims)."""
    return exactly(b, x, split_dims(x, dims)[1])


def exactly(b: Builder, x: TracedTensor, gone: list[int]) -> tuple[Space, list[int], list[int], list[int]]:
    """As `reducing`; no dims are no dims."""
    kept = [d for d in range(len(x.sizes)) if d not in gone]
    s = b.space([x.sizes[d] for d in (*kept, *gone)], len(gone))
    place = {d: i for i, d in enumerate((*kept, *gone))}
    return s, [place[d] for d in range(len(x.sizes))], kept, gone


def put_reduced(s: Space, out: Any, value: V, axes: Sequence[int], n: int) -> None:
    """`out` has all `n` dims of the operand (reduced ones of size 1) or only those that stay."""
    if len(out.sizes) == n:
        s.store(out, value, axes, full=False)
    else:
        s.store(out, value, range(len(out.sizes)), full=False)


def count(s: Space, gone: list[int], x: TracedTensor, dtype: str) -> V:
    """How many elements are reduced to one, as a number."""
    return s.size(s.build.facts.product(s.build.facts.size(x.sizes[d]) for d in gone), dtype)


def simple(kind: str, prepare: Callable[[V, Any], V], finish: Callable[[V, V], V] | None = None) -> Callable[[Builder, Any], None]:
    def rule(b: Builder, o: Any) -> None:
        x = o.args[0]
        dims = arguments(o, "dim")[0]
        s, axes, _, gone = reducing(b, x, dims)
        out = o.outs[0]
        value = reduce(kind, prepare(s.load(x, axes), out))
        if finish is not None:
            value = finish(value, count(s, gone, x, value.dtype))
        put_reduced(s, out, value, axes, len(x.sizes))

    return rule


def to_result(x: V, out: Any) -> V:
    """Summands in the dtype of the result, halves in `f32`."""
    return cast(x, up_name(named(out.dtype)))


def no_halves(x: V, out: Any) -> V:
    """Eager rounds after each factor, in an order of its own."""
    if named(out.dtype) in HALVES:
        raise Refuse
    return to_result(x, out)


def only_floats(x: V, out: Any) -> V:
    if named(out.dtype) not in FLOATS:
        raise Refuse
    return to_result(x, out)


def as_bool(x: V, out: Any) -> V:
    return cast(x, "bool")


lowering(aten.sum.default, aten.sum.dim_IntList)(simple("sum", to_result))
lowering(aten.prod.default, aten.prod.dim_int)(simple("prod", no_halves))
lowering(aten.mean.default, aten.mean.dim)(simple("sum", only_floats, lambda total, n: total / n))
lowering(aten.any.default, aten.any.dim, aten.any.dims)(simple("any", as_bool))
lowering(aten.all.default, aten.all.dim, aten.all.dims)(simple("all", as_bool))


def cumulative(kind: str) -> Callable[[Builder, Any], None]:
    """Floats go up in `f64`, halves in `f32`, as in eager."""

    def rule(b: Builder, o: Any) -> None:
        x, dim = arguments(o, "self", "dim")
        out = o.outs[0]
        to = named(out.dtype)
        if not len(x.sizes) or to == "bool":
            raise Refuse
        s, axes, _, _ = reducing(b, x, dim)
        value = cast(cast(s.load(x, axes), to), "f32" if to in HALVES else "f64" if to in FLOATS else to)
        s.store(out, scan(kind, value), axes)

    return rule


lowering(aten.cumsum.default)(cumulative("sum"))
lowering(aten.cumprod.default)(cumulative("prod"))


def extreme(kind: str) -> Callable[[Builder, Any], None]:
    def rule(b: Builder, o: Any) -> None:
        x = o.args[0]
        s, axes, _, gone = reducing(b, x, arguments(o, "dim")[0])
        empty = [d for d in gone if not b.facts.positive(b.facts.size(x.sizes[d]))]
        if empty:
            raise Refuse  # eager raises on rows without elements
        put_reduced(s, o.outs[0], reduce(kind, up(s.load(x, axes))), axes, len(x.sizes))

    return rule


lowering(aten.amax.default, aten.max.default)(extreme("max"))
lowering(aten.amin.default, aten.min.default)(extreme("min"))


def moments(s: Space, x: V, n: V, correction: float | None = None) -> tuple[V, V, V]:
    """(mean, deviations, sum of squared deviations), in two passes."""
    mean = reduce("sum", x) / n
    d = x - mean
    return mean, d, reduce("sum", d * d)


@lowering(aten.var.correction, aten.std.correction, aten.var_mean.correction, aten.std_mean.correction)
def _var(b: Builder, o: Any) -> None:
    x = o.args[0]
    dims, correction = arguments(o, "dim", "correction")
    correction = 1 if correction is None else correction
    s, axes, _, gone = reducing(b, x, dims)
    v = up(s.load(x, axes))
    if v.dtype not in FLOATS:
        raise Refuse
    v = cast(v, "f64")  # as eager sums them: squares of what a float can hold may be more than it can
    n = count(s, gone, x, v.dtype)
    mean, _, squares = moments(s, v, n)
    var = squares / maximum(n - float(correction), 0.0)
    put_reduced(s, o.outs[0], sqrt(var) if "std" in o.target._schema.name else var, axes, len(x.sizes))
    if len(o.outs) > 1:
        put_reduced(s, o.outs[1], mean, axes, len(x.sizes))


@lowering(aten.linalg_vector_norm.default)
def _vector_norm(b: Builder, o: Any) -> None:
    """Orders 2, 1, infinity and any other positive power; the sum of halves in `f32`."""
    x, order, dims, dtype = arguments(o, "self", "ord", "dim", "dtype")
    if dtype is not None or not isinstance(order, (int, float)) or order != order or named(x.dtype) not in FLOATS:
        raise Refuse
    s, axes, _, gone = reducing(b, x, dims)
    v = up(s.load(x, axes))
    if order == 2:
        value = sqrt(reduce("sum", v * v))
    elif order == 1:
        value = reduce("sum", op("abs", v))
    elif order == 0:
        value = reduce("sum", cast(op("ne", v, 0.0), v.dtype))
    elif abs(order) == math.inf:
        if not all(b.facts.positive(b.facts.size(x.sizes[d])) for d in gone):
            raise Refuse  # of nothing it is an error
        value = reduce("max" if order > 0 else "min", op("abs", v))
    elif order > 0:
        value = op("pow", reduce("sum", op("pow", op("abs", v), float(order))), 1.0 / order)
    else:
        raise Refuse
    put_reduced(s, o.outs[0], value, axes, len(x.sizes))


@lowering(aten._softmax.default, aten._log_softmax.default)
def _softmax(b: Builder, o: Any) -> None:
    x, dim, to_float = o.args
    if to_float or not len(x.sizes):
        raise Refuse
    s, axes, _, _ = reducing(b, x, dim)
    v = up(s.load(x, axes))
    shifted = v - reduce("max", v)
    total = reduce("sum", exp(shifted))
    if o.target is aten._softmax.default:
        s.store(o.outs[0], exp(shifted) / total, axes)
        return
    if dim % len(x.sizes) == len(x.sizes) - 1:  # eager keeps the sums of such rows in the dtype of the operand
        s.store(o.outs[0], shifted - rounded(log(rounded(total, x.dtype)), x.dtype), axes)
    else:
        s.store(o.outs[0], shifted - log(total), axes)


@lowering(aten._safe_softmax.default)
def _safe_softmax(b: Builder, o: Any) -> None:
    """Softmax whose rows of nothing but -inf are 0."""
    x, dim, dtype = arguments(o, "self", "dim", "dtype")
    if dtype is not None or not len(x.sizes):
        raise Refuse
    s, axes, _, _ = reducing(b, x, dim)
    v = up(s.load(x, axes))
    top = reduce("max", v)
    e = exp(v - top)
    s.store(o.outs[0], op("where", op("eq", top, -math.inf), 0.0, e / reduce("sum", e)), axes)


@lowering(aten.mse_loss.default)
def _mse_loss(b: Builder, o: Any) -> None:
    x, y, reduction = arguments(o, "self", "target", "reduction")
    out = o.outs[0]
    computed = up_name(named(out.dtype))
    if computed not in FLOATS or reduction == 0:
        raise Refuse
    s = b.space(x.sizes, len(x.sizes))
    d = s.value(x, computed) - s.value(y, computed)
    total = reduce("sum", d * d)
    s.store(out, total / s.size(b.facts.product(s.sizes), computed) if reduction == 1 else total, [], full=False)


def row_gradient(formula: Callable[[V, V], V]) -> Callable[[Builder, Any], None]:
    """The gradient of a softmax from that of its result and the result."""

    def rule(b: Builder, o: Any) -> None:
        g, y, dim, _ = o.args
        if not len(y.sizes) or g.dtype != y.dtype:
            raise Refuse
        s, axes, _, _ = reducing(b, y, dim)
        s.store(o.outs[0], formula(up(s.load(g, axes)), up(s.load(y, axes))), axes)

    return rule


lowering(aten._softmax_backward_data.default)(row_gradient(lambda g, y: (g - reduce("sum", g * y)) * y))
lowering(aten._log_softmax_backward_data.default)(row_gradient(lambda g, y: g - exp(y) * reduce("sum", g)))


@lowering(aten.logsumexp.default)
def _logsumexp(b: Builder, o: Any) -> None:
    x, dims = arguments(o, "self", "dim")
    s, axes, _, _ = reducing(b, x, dims)
    v = up(s.load(x, axes))
    if v.dtype not in FLOATS:
        raise Refuse
    top = reduce("max", v)
    base = op("where", op("abs", top) >= float("inf"), 0.0, top)
    total = reduce("sum", rounded(exp(rounded(v - base, x.dtype)), x.dtype))
    put_reduced(s, o.outs[0], rounded(log(rounded(total, x.dtype)), x.dtype) + base, axes, len(x.sizes))


def refuse_mixed(x: Any, *parameters: Any) -> None:
    """ATen normalizes with parameters of the dtype of `x`, or rows of halves with ones of float32; it raises on others."""
    dtypes = {p.dtype for p in parameters if p is not None}
    if not dtypes <= {x.dtype} and not (x.dtype in HALVES.values() and dtypes == {torch.float32}):
        raise Refuse


@lowering(aten.native_layer_norm.default)
def _layer_norm(b: Builder, o: Any) -> None:
    x, shape, weight, bias, eps = o.args
    refuse_mixed(x, weight, bias)
    k = len(shape)
    s, axes, kept, gone = reducing(b, x, list(range(len(x.sizes) - k, len(x.sizes))))
    v = up(s.load(x, axes))
    mean, d, squares = moments(s, v, n := count(s, gone, x, v.dtype))
    scale = 1.0 / sqrt(squares / n + float(eps))
    y = d * scale
    last = list(range(len(s.sizes) - k, len(s.sizes)))
    if weight is not None:
        y = y * up(s.load(weight, last))
    y = y + (0.0 if bias is None else up(s.load(bias, last)))  # ATen adds a zero, too, which makes 0.0 of -0.0
    s.store(o.outs[0], y, axes)
    for out, value in zip(o.outs[1:], (mean, scale), strict=True):
        if b.needed(out):
            put_reduced(s, out, value, axes, len(x.sizes))


@lowering(aten.native_layer_norm_backward.default)
def _layer_norm_backward(b: Builder, o: Any) -> None:
    g, x, shape, mean, rstd, weight, bias, mask = o.args
    k = len(shape)
    dims = list(range(len(x.sizes) - k, len(x.sizes)))
    dx, dw, db = o.outs
    if b.needed(dx):
        s, axes, kept, gone = reducing(b, x, dims)
        last = list(range(len(s.sizes) - k, len(s.sizes)))
        gv, xhat = up(s.load(g, axes)), (up(s.load(x, axes)) - up(s.load(mean, axes))) * up(s.load(rstd, axes))
        if weight is not None:
            gv = gv * up(s.load(weight, last))
        n = count(s, gone, x, gv.dtype)
        s.store(dx, (gv - reduce("sum", gv) / n - xhat * (reduce("sum", gv * xhat) / n)) * up(s.load(rstd, axes)), axes)
    if b.needed(dw) or b.needed(db):
        s, axes, kept, gone = exactly(b, x, [d for d in range(len(x.sizes)) if d not in dims])
        gv = up(s.load(g, axes))
        if b.needed(dw):
            xhat = (up(s.load(x, axes)) - up(s.load(mean, axes))) * up(s.load(rstd, axes))
            s.store(dw, reduce("sum", gv * xhat), range(k), full=False)
        if b.needed(db):
            s.store(db, reduce("sum", gv), range(k), full=False)
