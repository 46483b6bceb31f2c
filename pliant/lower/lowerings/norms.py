"""Group and batch normalization with statistics of the batch, and their gradients."""

from __future__ import annotations

from typing import Any

import torch

from pliant.lower.lowerings.builder import Builder, Refuse, lowering
from pliant.lower.lowerings.pointwise import named
from pliant.lower.lowerings.reductions import count, exactly, moments, put_reduced, refuse_mixed
from pliant.lower.lowerings.scalars import FLOATS, V, reduce, sqrt, up

aten = torch.ops.aten


class Groups:
    """`[N, C, *spatial]` seen as `[N, groups, C / groups, *spatial]`, with the dims in an order of the caller's."""

    def __init__(self, b: Builder, x: Any, groups: int, order: tuple[int, ...], n_reduced: int) -> None:
        self.facts, self.x, self.order = b.facts, x, order
        channels = b.facts.size(x.sizes[1])
        if type(channels) is not int or channels % groups:
            raise Refuse
        self.per = channels // groups
        sizes = [x.sizes[0], groups, self.per, *x.sizes[2:]]
        self.space = b.space([sizes[d] for d in self.order], n_reduced)

    def arranged(self, strides: list[Any]) -> list[Any]:
        return [strides[d] for d in self.order]

    def big(self, t: Any) -> list[Any]:
        """Strides of a tensor shaped like `x`."""
        n, c, *rest = map(self.facts.size, t.strides)
        return self.arranged([n, self.facts.product((c, self.per)), c, *rest])

    def channel(self, t: Any) -> list[Any]:
        """Strides of a vector over the channels."""
        c = self.facts.size(t.strides[0])
        return self.arranged([0, self.facts.product((c, self.per)), c, *self.spatial])

    def group(self, t: Any) -> list[Any]:
        """Strides of a matrix over samples and groups."""
        return self.arranged([*map(self.facts.size, t.strides), 0, *self.spatial])

    @property
    def spatial(self) -> list[int]:
        return [0] * (len(self.x.sizes) - 2)

    def load(self, t: Any, strides: list[Any]) -> V:
        return up(self.space.load_at(t, strides))


@lowering(aten.native_group_norm.default)
def _group_norm(b: Builder, o: Any) -> None:
    x, weight, bias, _, _, _, groups, eps = o.args
    refuse_mixed(x, weight, bias)
    rank = len(x.sizes)
    g = Groups(b, x, groups, tuple(range(rank + 1)), rank - 1)
    v = g.load(x, g.big(x))
    n = g.space.size(b.facts.product(g.space.sizes[2:]), v.dtype)
    mean, d, squares = moments(g.space, v, n)
    rstd = 1.0 / sqrt(squares / n + float(eps))
    y = d * rstd
    if weight is not None:
        y = y * g.load(weight, g.channel(weight))
    if bias is not None:
        y = y + g.load(bias, g.channel(bias))
    out, *stats = o.outs
    g.space.store_at(out, y, g.big(out))
    for t, value in zip(stats, (mean, rstd), strict=True):
        if b.needed(t):
            g.space.store_at(t, value, g.group(t), full=False)


@lowering(aten.native_group_norm_backward.default)
def _group_norm_backward(b: Builder, o: Any) -> None:
    dy, x, mean, rstd, weight, _, _, _, groups, _ = o.args
    dx, dw, db = o.outs
    rank = len(x.sizes)
    if b.needed(dx):
        g = Groups(b, x, groups, tuple(range(rank + 1)), rank - 1)
        gv, r = g.load(dy, g.big(dy)), g.load(rstd, g.group(rstd))
        xhat = (g.load(x, g.big(x)) - g.load(mean, g.group(mean))) * r
        if weight is not None:
            gv = gv * g.load(weight, g.channel(weight))
        n = g.space.size(b.facts.product(g.space.sizes[2:]), gv.dtype)
        g.space.store_at(dx, (gv - reduce("sum", gv) / n - xhat * (reduce("sum", gv * xhat) / n)) * r, g.big(dx))
    if b.needed(dw) or b.needed(db):
        g = Groups(b, x, groups, (1, 2, 0, *range(3, rank + 1)), rank - 1)
        gv = g.load(dy, g.big(dy))
        if b.needed(dw):
            xhat = (g.load(x, g.big(x)) - g.load(mean, g.group(mean))) * g.load(rstd, g.group(rstd))
            g.space.store_at(dw, reduce("sum", gv * xhat), g.channel(dw), full=False)
        if b.needed(db):
            g.space.store_at(db, reduce("sum", gv), g.channel(db), full=False)


@lowering(aten._native_batch_norm_legit.no_stats)
def _batch_norm(b: Builder, o: Any) -> None:
    x, weight, bias, training, _, eps = o.args
    if not training:
        raise Refuse
    with_statistics_of_batch(b, o, x, weight, bias, eps)


def with_statistics_of_batch(b: Builder, o: Any, x: Any, weight: Any, bias: Any, eps: float) -> None:
    refuse_mixed(x, weight, bias)
    s, axes, kept, gone = exactly(b, x, [d for d in range(len(x.sizes)) if d != 1])
    v = up(s.load(x, axes))
    if v.dtype not in FLOATS:
        raise Refuse
    n = count(s, gone, x, v.dtype)
    mean, d, squares = moments(s, v, n)
    rstd = 1.0 / sqrt(squares / n + float(eps))
    y = d * rstd
    if weight is not None:
        y = y * up(s.load(weight, [0]))
    y = y + (0.0 if bias is None else up(s.load(bias, [0])))  # ATen adds a zero, too, which makes 0.0 of -0.0
    s.store(o.outs[0], y, axes)
    for t, value in zip(o.outs[1:], (mean, rstd), strict=True):
        if b.needed(t):
            put_reduced(s, t, value, axes, len(x.sizes))


@lowering(aten._native_batch_norm_legit_no_training.default, aten.native_batch_norm.default)
def _batch_norm_inference(b: Builder, o: Any) -> None:
    x, weight, bias, mean, var, *rest = o.args
    eps = rest[-1]
    if o.target is aten.native_batch_norm.default and rest[0] is True and mean is None and var is None:
        with_statistics_of_batch(b, o, x, weight, bias, eps)
        return
    if o.target is aten.native_batch_norm.default and rest[0] is not False or mean is None or var is None:
        raise Refuse
    if any(b.needed(t) for t in o.outs[1:]):
        raise Refuse
    refuse_mixed(x, weight, bias, mean, var)
    s = b.space(x.sizes)
    v = up(s.load(x))
    scale = 1.0 / sqrt(up(s.load(var, [1])) + float(eps))
    if weight is not None:
        scale = scale * up(s.load(weight, [1]))
    shift = (0.0 if bias is None else up(s.load(bias, [1]))) - up(s.load(mean, [1])) * scale
    s.store(o.outs[0], v * scale + shift)


@lowering(aten.native_batch_norm_backward.default)
def _batch_norm_backward(b: Builder, o: Any) -> None:
    dy, x, weight, running_mean, running_var, save_mean, save_rstd, train, eps, _ = o.args
    dx, dw, db = o.outs
    center, spread = (save_mean, save_rstd) if train else (running_mean, running_var)
    if center is None or spread is None or any(named(t.dtype) not in ("f32", "f64") for t in (dy, x, center, spread)):
        raise Refuse
    s, axes, kept, gone = exactly(b, x, [d for d in range(len(x.sizes)) if d != 1])
    gv = s.load(dy, axes)
    rstd = s.load(spread, [0]) if train else 1.0 / sqrt(s.load(spread, [0]) + float(eps))
    xhat = (s.load(x, axes) - s.load(center, [0])) * rstd
    n = count(s, gone, x, gv.dtype)
    shift, scale = reduce("sum", gv), reduce("sum", gv * xhat)
    if b.needed(dx):
        slope = rstd if weight is None else rstd * s.load(weight, [0])
        s.store(dx, (gv - shift / n - xhat * (scale / n) if train else gv) * slope, axes)
    for t, value in ((dw, scale), (db, shift)):
        if b.needed(t):
            s.store(t, value, [0], full=False)
