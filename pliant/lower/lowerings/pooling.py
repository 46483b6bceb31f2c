"""Pooling over windows: every element of a window (a tap) is a load of its own, and taps outside the input are not read."""

from __future__ import annotations

from typing import Any

import torch

from pliant.graph.originals import math
from pliant.lower.loop_nest import Size
from pliant.lower.loops import Node
from pliant.lower.lowerings.builder import Builder, Refuse, Space, arguments, lowering
from pliant.lower.lowerings.pointwise import named
from pliant.lower.lowerings.scalars import COMPUTED, V, cast, const, op, up, where

aten = torch.ops.aten

MOST_TAPS = 49
"""Of one window: larger ones stay ATen calls, for their code would be long."""


class Windows:
    """The taps of a pooling operation over the last two dims of `x`, in a space of the sizes of its result."""

    def __init__(self, b: Builder, x: Any, out: Any, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil: bool) -> None:
        self.b, self.x, self.ceil = b, x, ceil
        self.kernel, self.step = pair(kernel), pair(stride or kernel)
        self.padding, self.dilation = pair(padding), pair(dilation)
        if math.prod(self.kernel) > MOST_TAPS or len(x.sizes) < 3:
            raise Refuse
        self.s: Space = b.space(out.sizes)
        self.lead = len(x.sizes) - 2
        self.sizes: list[Size] = [b.facts.size(n) for n in x.sizes]

    def place(self, k: int, tap: int) -> V:
        """Where a tap reads along spatial dim `k`."""
        return self.s.index(self.lead + k) * const(self.step[k], "i64") + const(tap * self.dilation[k] - self.padding[k], "i64")

    def inside(self, k: int, tap: int) -> V | None:
        """Is it inside the input? None if it always is."""
        size, at, keep = self.s.size(self.sizes[self.lead + k], "i64"), self.place(k, tap), None
        if tap * self.dilation[k] < self.padding[k]:
            keep = op("ge", at, const(0, "i64"))
        if self.ceil or self.padding[k] > self.dilation[k] * (self.kernel[k] - 1 - tap):
            keep = both(keep, at < size)
        return keep

    def taps(self) -> list[tuple[V, V | None, V]]:
        """Of each tap, row by row: its value, whether it is inside (None: always), and its position in the input plane."""
        facts, s = self.b.facts, self.s
        strides = [facts.size(v) for v in self.x.strides]
        moves = [*strides[: self.lead], *[facts.product((v, n)) for v, n in zip(strides[self.lead :], self.step, strict=True)]]
        moves = [0 if type(n) is int and n == 1 else m for n, m in zip(s.sizes, moves, strict=True)]
        root, name = self.b.root(self.x), named(self.x.dtype)
        out = []
        for i in range(self.kernel[0]):
            for j in range(self.kernel[1]):
                offset = facts.size(self.x.offset)
                for k, tap in enumerate((i, j)):
                    away = tap * self.dilation[k] - self.padding[k]
                    offset = facts.sum(offset, facts.product((away, strides[self.lead + k])))
                keep = both(self.inside(0, i), self.inside(1, j))
                access = (root, tuple(moves[a] for a in s.axes), offset, ())
                load = V(Node("load", (), name, access) if keep is None else Node("load", (keep.node,), name, (*access, True)))
                position = self.place(0, i) * s.size(self.sizes[-1], "i64") + self.place(1, j)
                out.append((up(load), keep, position))
        return out


def pair(values: Any) -> tuple[int, int]:
    values = tuple(values) if isinstance(values, (list, tuple)) else (values,)
    if not all(type(v) is int for v in values):
        raise Refuse
    return (values[0], values[-1])


def both(a: V | None, b: V | None) -> V | None:
    return b if a is None else a if b is None else a & b


def least(dtype: str) -> V:
    """What every value of a dtype is larger than, or equal to."""
    if dtype[0] in "fb":
        return const(-math.inf, dtype)
    return const(torch.iinfo(getattr(torch, {"i": "int", "u": "uint"}[dtype[0]] + dtype[1:])).min, dtype)


@lowering(aten.max_pool2d_with_indices.default)
def _max_pool(b: Builder, o: Any) -> None:
    """The first of the largest, or the last NaN, as ATen's loop has it."""
    names = ("self", "kernel_size", "stride", "padding", "dilation", "ceil_mode")
    x, *geometry = arguments(o, *names)
    out, indices = o.outs
    w = Windows(b, x, out, *geometry)
    none = least(COMPUTED.get(named(x.dtype), named(x.dtype)))
    best: V | None = None
    at: V | None = None
    wanted = b.needed(indices)
    for value, keep, position in w.taps():
        if not wanted:
            value = value if keep is None else where(keep, value, none)
            best = value if best is None else op("maximum", best, value)
        elif best is None or at is None:
            best, at = (value, position) if keep is None else (where(keep, value, none), where(keep, position, const(-1, "i64")))
        else:
            better = (value > best) | (at < const(0, "i64"))  # nothing was inside so far
            if value.dtype[0] == "f":
                better = better | op("isnan", value)
            better = better if keep is None else better & keep
            best, at = where(better, value, best), where(better, position, at)
    assert best is not None
    w.s.store(out, cast(best, named(out.dtype)))
    if at is not None and wanted:
        w.s.store(indices, at)


@lowering(aten.avg_pool2d.default)
def _avg_pool(b: Builder, o: Any) -> None:
    names = ("self", "kernel_size", "stride", "padding", "ceil_mode", "count_include_pad", "divisor_override")
    x, kernel, stride, padding, ceil, padded, divisor = arguments(o, *names)
    out = o.outs[0]
    if named(x.dtype)[0] not in "fb" or divisor is not None and type(divisor) is not int:
        raise Refuse
    w = Windows(b, x, out, kernel, stride, padding, 1, ceil)
    total: V | None = None
    for value, keep, _ in w.taps():
        value = value if keep is None else where(keep, value, const(0, value.dtype))
        total = value if total is None else total + value
    assert total is not None
    count = const(divisor, "i64") if divisor is not None else extent(w, 0, padded) * extent(w, 1, padded)
    w.s.store(out, cast(total / cast(count, total.dtype), named(out.dtype)))


def extent(w: Windows, k: int, padded: bool) -> V:
    """How many elements of a window count along spatial dim `k`: those of the input, or (`padded`) also its padding."""
    first = w.place(k, 0)
    low, high = const(0, "i64"), w.s.size(w.sizes[w.lead + k], "i64")
    if padded:
        low, high = low - const(w.padding[k], "i64"), high + const(w.padding[k], "i64")
    if not w.ceil and (padded or w.padding[k] == 0):
        return const(w.kernel[k], "i64")
    begin, end = op("maximum", first, low), op("minimum", first + const(w.kernel[k], "i64"), high)
    return end - begin
