"""Convolutions that segments compute themselves (native/conv.cpp): which operations are one, over which memory.

f32, row-major, one to three spatial dims, any strides, padding, dilation and groups. Where every feature has a channel of its own, square
kernels of usual sizes; PyTorch's own kernels are better for others.
"""

from __future__ import annotations

from typing import Any

import torch

from pliant.lower.gemm import LIBRARY, Products, Routine, is_one, reduced_precision_is_off
from pliant.lower.loop_nest import Size
from pliant.lower.lowerings.builder import arguments

CONVOLUTION = torch.ops.aten.convolution.default
DIMS = 3
SQUARES = frozenset((k, k) for k in (3, 5, 7))
"""Kernels that are known to native/depthwise.cpp."""


class Convolution(Routine):
    """`out = conv(x, weight) + bias` (native/conv.cpp). Operands: x, weight and, where there is one, bias."""

    __slots__ = ()


def convolution_steps(p: Products, op: Any, read: set[int]) -> list[Convolution] | None:
    """What to run in place of `op`; None if it is not one of these."""
    if not p.target.has_convolutions() or not reduced_precision_is_off():
        return None
    names = ("input", "weight", "bias", "stride", "padding", "dilation", "transposed", "groups")
    x, w, bias, stride, padding, dilation, transposed, groups = arguments(op, *names)
    out, facts = op.outs[0], p.facts
    tensors = [x, w, *([] if bias is None else [bias])]
    dims = len(x.sizes) - 2
    if transposed is not False or not 1 <= dims <= DIMS or not all(map(p.plain, (*tensors, out))):
        return None
    stride, padding, dilation = ([*map(facts.size, values)] for values in (stride, padding, dilation))
    if type(groups) is not int or groups < 1:  # that the others make sense is looked at when they are known
        return None
    channels, features = facts.size(w.sizes[1]), facts.size(w.sizes[0])
    if groups > 1:
        if type(channels) is not int or type(features) is not int:
            return None
        features //= groups
        if channels == 1 and (features, stride, dilation) != (1, 2 * stride[:1], [1, 1]):
            return None
        if channels == 1 and (tuple(w.sizes[2:]) not in SQUARES or stride[0] not in (1, 2)):
            return None
    strides = [*map(facts.size, x.strides)]
    last = is_one(strides[-1]) or is_one(facts.size(x.sizes[-1]))
    if not last or not w.dense or not out.dense or p.root(out) is not out:
        return None
    moves = [p.offset(x), p.offset(w)]
    if bias is not None:
        row = p.row(bias, facts.size(w.sizes[0]))
        if row is None:
            return None
        moves.append(row[1])

    def spatial(values: Any, lead: Size) -> list[Size]:
        values = [*map(facts.size, values)]
        return [lead] * (DIMS - dims) + (values if len(values) == dims else values * dims)

    fields = [facts.size(x.sizes[0]), groups, channels, features]
    fields += [*spatial(x.sizes[2:], 1), *spatial(out.sizes[2:], 1), *spatial(w.sizes[2:], 1)]
    fields += [*spatial(stride, 1), *spatial(padding, 0), *spatial(dilation, 1)]
    fields += [*strides[:2], *([0] * (DIMS - dims) + strides[2:-1])[-(DIMS - 1) :]]
    return [Convolution([p.root(t) for t in tensors], out, [*fields, *moves])]


LIBRARY[CONVOLUTION] = convolution_steps
