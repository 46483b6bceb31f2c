"""In which order the dims of a tensor lie in memory."""

from __future__ import annotations

from typing import Any

from pliant.graph.layout import contiguous_strides
from pliant.graph.traced import TracedTensor
from pliant.lower import liveness


def order_of(t: Any) -> tuple[int, ...] | None:
    """The dims from outer to inner of a tensor without gaps; None for one with gaps."""
    sizes, strides = tuple(t.shape), tuple(t.stride())
    order = tuple(sorted(range(len(sizes)), key=lambda d: (-strides[d], d)))
    n = 1
    for d in reversed(order):
        if sizes[d] != 1 and strides[d] != n and 0 not in sizes:
            return None
        n *= sizes[d]
    return order


def ordered_strides(sizes: list[Any], order: tuple[int, ...]) -> list[Any]:
    """The strides of a tensor without gaps whose dims are in this order, from outer to inner."""
    inner = contiguous_strides(tuple(sizes[d] for d in order))
    out: list[Any] = [1] * len(sizes)
    for d, stride in zip(order, inner, strict=True):
        out[d] = stride
    return out


def expected_order(t: TracedTensor) -> tuple[int, ...] | None:
    """`order_of`, of a traced tensor by its hints."""
    hint = lambda v: v if type(v) is int else liveness.number(v).hint
    if any(hint(v) is None for v in (*t.sizes, *t.strides)):
        return None

    class Layout:
        shape = tuple(map(hint, t.sizes))

        @staticmethod
        def stride() -> tuple:
            return tuple(map(hint, t.strides))

    return order_of(Layout)
