"""Rows that a mask picks: how many is known only at run time. Eager's answers, gradients and errors for many, all, one and no row."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

import pliant
from tests import helpers

ONE_GRAPH = {
    "logsigmoid": lambda x, y: F.logsigmoid(x),
    "logsigmoid of columns": lambda x, y: F.logsigmoid(x.t()).sum(1),
    "multilabel_soft_margin_loss": lambda x, y: F.multilabel_soft_margin_loss(x, (y > 0).to(x.dtype)),
    "std_mean": lambda x, y: torch.std_mean(x, dim=0),
    "var": lambda x, y: x.var(0),
    "batch_norm": lambda x, y: F.batch_norm(x, None, None, training=True),
    "batch_norm, weighted": lambda x, y: F.batch_norm(x, None, None, y.sum(0), y.abs().sum(0), training=True),
    "batch_norm of images": lambda x, y: F.batch_norm(x[:, :, None, None], None, None, training=True),
    "instance_norm": lambda x, y: F.instance_norm(x.t()[None]),
    "instance_norm, weighted": lambda x, y: F.instance_norm(x.t()[None], weight=y.sum(0), bias=y.abs().sum(0)),
    "cdist": torch.cdist,
    "cdist, p": lambda x, y: torch.cdist(x, y, p=1.0),
    "interpolate": lambda x, y: F.interpolate(x[None, None], scale_factor=2.0, mode="bilinear"),
    "interpolate, 1d": lambda x, y: F.interpolate(x.t()[None], scale_factor=2.0, mode="linear"),
    "upsample": lambda x, y: F.upsample(x.t()[None], scale_factor=0.6, mode="nearest"),
    "upsample by name": lambda x, y: torch.ops.aten._upsample_bilinear2d_aa(x[None, None], [17, 6], False, None, None),
    "cross_entropy of images": lambda x, y: F.cross_entropy(x.t()[None, :, :, None], y.argmax(1)[None, :, None]),
    "linspace": lambda x, y: torch.linspace(0, 1, x.shape[0])[:, None] * x,
    "logspace": lambda x, y: torch.logspace(0, 1, x.shape[0])[:, None] * x,
    "var less what only the run knows": lambda x, y: x.var(1, correction=int((y > 5).sum())),
}
BREAKS = {
    "svdvals": lambda x, y: torch.linalg.svdvals(x),
    "qr": lambda x, y: torch.linalg.qr(x).R.abs(),
    "squeeze_copy": lambda x, y: torch.squeeze_copy(x),
    "squeeze_copy of a dim": lambda x, y: torch.squeeze_copy(x, 0),
    "trapezoid": lambda x, y: torch.trapezoid(x.t()),
    "trapezoid at points": lambda x, y: torch.trapezoid(x.t(), x.detach().cumsum(0).t()),
}
"""What asks, in its derivative or for its rank, what only the run knows: left to eager, not errors of ours."""


def outcome(fn: Any, a: torch.Tensor, b: torch.Tensor, m: torch.Tensor) -> Any:
    leaf = a.clone().requires_grad_()
    try:
        out = fn(leaf, b, m)
        outs = out if isinstance(out, tuple) else (out,)
        return out, torch.autograd.grad(sum(o.sum() + (o * o).sum() for o in outs), leaf)
    except (RuntimeError, ValueError) as e:
        return type(e)


@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
@pytest.mark.parametrize("name", [*ONE_GRAPH, *BREAKS])
def test_rows_of_a_mask(name: str) -> None:
    of = ONE_GRAPH.get(name) or BREAKS[name]

    def fn(a: torch.Tensor, b: torch.Tensor, m: torch.Tensor) -> Any:
        return of(a[m], b[m])

    compiled = helpers.compiled(fn)
    for rows, picked in ((12, 7), (15, 9), (40, 31), (12, 1), (12, 12), (12, 0), (10, 4)):
        g = torch.Generator().manual_seed(rows + picked)
        a, b = torch.randn(2, rows, 6, generator=g, dtype=torch.float64)
        m = torch.randperm(rows, generator=g) < picked
        got, want = outcome(compiled, a, b, m), outcome(fn, a, b, m)
        if isinstance(want, type):
            assert got is want, (picked, got)
        else:
            torch.testing.assert_close(got, want, equal_nan=True)
    stats = pliant.stats()
    assert stats["fallbacks"] == 0
    assert stats["graph_breaks"] == (name in BREAKS)


@pytest.mark.parametrize("kind", [torch.nn.BatchNorm1d, torch.nn.InstanceNorm1d])
def test_running_statistics_of_rows_of_a_mask(kind: type) -> None:
    """They follow each batch, and stay as they are where it is empty."""
    ours, theirs = (kind(6, affine=True, track_running_stats=True) for _ in range(2))

    def fn(module: torch.nn.Module, a: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
        x = a[m]
        return module(x if kind is torch.nn.BatchNorm1d else torch.stack([x, x * 2]).transpose(1, 2))

    compiled = helpers.compiled(fn)
    for rows, picked in ((12, 7), (15, 9), (12, 12), (12, 0), (9, 3)):
        a = torch.randn(rows, 6, generator=torch.Generator().manual_seed(rows))
        m = torch.arange(rows) < picked
        torch.testing.assert_close(compiled(ours, a, m), fn(theirs, a, m))
        for got, want in zip(ours.buffers(), theirs.buffers(), strict=True):
            torch.testing.assert_close(got, want)
    assert pliant.stats()["graph_breaks"] == 0


SPREAD = {
    "add": lambda x, b: x + b,
    "addcmul": lambda x, b: torch.addcmul(b, x, b, value=0.5),
    "addmm": lambda x, b: torch.addmm(x, b, b[:6]),
    "where": lambda x, b: torch.where(b > 0, x, b),
    "cov": lambda x, b: x.t().cov() + b[0],
}


@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
@pytest.mark.parametrize("name", SPREAD)
@pytest.mark.parametrize("grad", [False, True])
def test_a_single_row_is_repeated(name: str, grad: bool) -> None:
    """As many rows as the others is what a graph takes for granted; where that does not hold, eager goes on, and the next capture ends at
    the mask."""

    def fn(a: torch.Tensor, b: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
        return SPREAD[name](a[m], b).sin()

    compiled = helpers.compiled(fn)
    b = torch.randn(7, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for picked in (7, 1, 7, 1, 7, 1):
        a = torch.randn(9, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(picked)).requires_grad_(grad)
        m = torch.arange(9) < picked
        got, want = compiled(a, b, m), fn(a, b, m)
        torch.testing.assert_close(got, want, equal_nan=True)
        if grad:
            torch.testing.assert_close(torch.autograd.grad(got.sum(), a), torch.autograd.grad(want.sum(), a), equal_nan=True)
    stats = pliant.stats()
    assert stats["fallbacks"] == 0
    assert stats["graph_breaks"] <= 1 + (name == "cov")  # which warns of one
    assert stats["captures"] <= 6


def test_repeats_of_no_row() -> None:
    """PyTorch does not look at `output_size` where there is nothing to repeat."""

    def fn(x: torch.Tensor, repeats: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
        return torch.repeat_interleave(x[m], repeats[m], dim=0, output_size=5) + 1

    compiled = helpers.compiled(fn)
    x = torch.randn(5, 3)
    for repeats, picked in (([1, 1, 1, 1, 1], 5), ([2, 1, 1, 1, 1], 4), ([1, 1, 1, 1, 1], 0), ([5, 1, 1, 1, 1], 1)):
        m = torch.arange(5) < picked
        torch.testing.assert_close(compiled(x, torch.tensor(repeats), m), fn(x, torch.tensor(repeats), m))
    stats = pliant.stats()
    assert stats["graph_breaks"] == stats["fallbacks"] == 0


# -- gradients of several results, of which one has rows written by a mask, behind a break ------------------------------
def labels(t, k=4):
    return (t.detach().sum(1) * 4 + 0.3).floor().long() % k


def clustered(t, ids, k):
    return t.new_zeros(k, t.shape[1]).index_add(0, ids % k, t)


@pliant.disable
def opaque(t):
    return t * 1.5


def two_results(x, k):
    t = (x * 1).clone()
    t[labels(x) == k] += opaque(x.sum(0))
    return t, clustered(x, labels(t), 3).sum(0) + x


def three_results(x, k):
    t = (x * 1).clone()
    t[labels(x) == k] += opaque(opaque(x.sum(0)))
    return x, t, clustered(x, labels(t), 3).sum(0) + x


@pytest.mark.parametrize("program", [two_results, three_results], ids=lambda f: f.__name__)
def test_gradients_of_results_of_which_one_is_written_by_a_mask(program):
    compiled = pliant.compile(program)
    for n, k in ((4, 2), (3, 0), (4, 1), (2, 5), (5, 2), (1, 0)):
        told = []
        for fn in (program, compiled):
            x = (torch.arange(n * 2.0) / 4).reshape(n, 2).requires_grad_()
            results = fn(x * 1, k)
            sum(t.square().sum() for t in results).backward()
            told.append([t.detach() for t in results] + [x.grad])
        for a, b in zip(*told, strict=True):
            torch.testing.assert_close(b, a)
