"""Resizing as one operator: its shape rule against eager, and programs of `F.interpolate` at other sizes than the exported ones."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

import pliant
from pliant.graph import resizing
from pliant.graph.rules import RULES
from pliant.graph.trace import Trace
from pliant.symbolic.scope import Scope

SHAPES = {1: (2, 3, 5), 2: (2, 3, 4, 5), 3: (2, 3, 4, 5, 6)}
ORDERS = ("rows", "channels last", "one of one, channels last", "transposed")


def laid_out(n: int, order: str) -> torch.Tensor:
    x = torch.rand(SHAPES[n])
    if order == "rows":
        return x
    if order == "transposed":
        return x.transpose(-1, 1).contiguous().transpose(-1, 1) if n == 1 else x.transpose(-1, -2).contiguous().transpose(-1, -2)
    if order.startswith("one"):
        x = x[:1]
    return x.movedim(1, -1).reshape(-1).reshape(x.movedim(1, -1).shape).movedim(-1, 1)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("key", resizing.OPERATORS, ids=str)
def test_rule(key, order):
    mode, n, antialias = key
    x = laid_out(n, order)
    target = resizing.OPERATORS[key]
    args = (list(range(3, 3 + n)), *(() if mode.startswith("nearest") else (False,)))
    want = target(x, *args)
    assert target in RULES
    trace = Trace(Scope())
    t = trace.input(x, None, tuple(x.shape), tuple(x.stride()))
    with trace.recording():
        got = target(t, *args)
    assert (tuple(got.sizes), tuple(got.strides), got.dtype) == (tuple(want.shape), want.stride(), want.dtype)


@pytest.mark.parametrize("scale", (None, 1.3, (0.5, 2.0, 1.1)), ids=str)
@pytest.mark.parametrize("key", resizing.OPERATORS, ids=str)
def test_export(key, scale):
    mode, n, antialias = key
    factors = scale[:n] if isinstance(scale, tuple) else scale

    def f(x, y):
        how = {"size": y.shape[2:]} if factors is None else {"scale_factor": factors}
        return F.interpolate(x, mode=mode, antialias=antialias, **how) + 1

    p = pliant.export(f, (torch.rand(SHAPES[n]), torch.rand(2, 3, *range(6, 6 + n))))
    assert not p.relations
    for k in (1, 2, 5):
        x, y = torch.rand(k, 3, *[s + k for s in SHAPES[n][2:]]), torch.rand(2, 3, *[s * k for s in range(4, 4 + n)])
        for z in (x, x.movedim(1, -1).contiguous().movedim(-1, 1)):
            torch.testing.assert_close(p(z, y), f(z, y))


@pytest.mark.parametrize("key", resizing.OPERATORS, ids=str)
def test_same_size(key):
    """Where the result is as long as what is resized, most kernels copy, whatever the factor says."""
    mode, n, antialias = key
    f = lambda x: F.interpolate(x, mode=mode, antialias=antialias, scale_factor=1.3)  # noqa: E731
    p = pliant.export(f, (torch.rand(SHAPES[n]),))
    for k in (1, 2, 3):
        x = torch.rand(2, 3, *[k] * n)
        torch.testing.assert_close(p(x), f(x))


def test_positions():
    """A learned grid of one row of channels, resized to a size of the input: `(1, C, h, w)` laid out by channels."""
    grid = torch.rand(1, 16, 8)

    def f(x):
        g = grid.reshape(1, 4, 4, 8).permute(0, 3, 1, 2)
        g = F.interpolate(g, size=x.shape[2:], mode="bicubic", align_corners=False)
        return x + g.permute(0, 2, 3, 1).reshape(1, -1, 8).sum()

    p = pliant.export(f, (torch.rand(2, 3, 6, 5),))
    for shape in ((1, 3, 7, 9), (2, 3, 4, 4), (2, 1, 1, 1)):
        x = torch.rand(shape)
        torch.testing.assert_close(p(x), f(x))
