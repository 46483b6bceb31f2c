"""Gradients of tables of embeddings, added to other gradients of the same weight."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

import pliant
from pliant.lower import accumulate

aten = torch.ops.aten


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def tied(w: torch.Tensor, i: torch.Tensor, j: torch.Tensor) -> torch.Tensor:
    return F.linear(torch.tanh(F.embedding(i, w)), w).logsumexp(-1).sum()


def thrice(w: torch.Tensor, i: torch.Tensor, j: torch.Tensor) -> torch.Tensor:
    x, y = torch.tanh(F.embedding(i, w)).mean(1, keepdim=True), F.embedding(j, w).cos()
    return F.linear(x * y, w).square().mean()


def padded(w: torch.Tensor, i: torch.Tensor, j: torch.Tensor) -> torch.Tensor:
    return F.linear(F.embedding(i, w, padding_idx=0), w).square().mean()


def two_tables(w: torch.Tensor, i: torch.Tensor, j: torch.Tensor) -> torch.Tensor:
    return (F.embedding(i, w).sin().sum(1) * F.embedding(j, w).mean(1)).sum()


def turned(w: torch.Tensor, i: torch.Tensor, j: torch.Tensor) -> torch.Tensor:
    return (F.embedding(i.t(), w).sin() @ w.t()).square().mean()


PROGRAMS: dict[str, tuple[Callable, bool]] = {  # and whether rows are added in place
    "tied": (tied, True), "thrice": (thrice, True), "padded": (padded, False), "two": (two_tables, True), "turned": (turned, False),
}  # fmt: skip


@pytest.fixture
def adds(monkeypatch: pytest.MonkeyPatch) -> list:
    """The additions in place of the programs that were compiled."""
    found: list = []

    in_place = accumulate.in_place

    def watch(*args):
        out = in_place(*args)
        found.extend(op for op in out if op.target is aten.index_add_.default)
        return out

    monkeypatch.setattr(accumulate, "in_place", watch)
    return found


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradients(name: str, dtype: torch.dtype, adds: list) -> None:
    fn, in_place = PROGRAMS[name]
    compiled = pliant.compile(fn, backend="native", strict=True)
    for n, m, k in ((3, 4, 5), (2, 70, 9), (6, 1, 2)):
        g = torch.Generator().manual_seed(n)
        i, j = (torch.randint(0, 11, shape, generator=g) for shape in ((n, m), (n, k)))
        ours, theirs = (normal(11, 8).to(dtype).requires_grad_() for _ in range(2))
        grads = [torch.autograd.grad(f(w, i, j), w)[0] for f, w in ((compiled, ours), (fn, theirs))]
        torch.testing.assert_close(*grads, rtol=1e-5, atol=1e-6)
        assert grads[0]._base is None and grads[0].is_contiguous()
    assert bool(adds) == in_place


def test_gradients_that_others_read_are_left(adds: list) -> None:
    """The gradient of the projection is a result of its own."""

    def fn(w: torch.Tensor, i: torch.Tensor) -> tuple:
        x = F.embedding(i, w).detach().requires_grad_()
        loss = F.linear(x, w).square().sum()
        first, rows = torch.autograd.grad(loss, (w, x))
        return first, first + aten.embedding_dense_backward(rows, i, w.shape[0], -1, False)

    compiled = pliant.compile(fn, backend="native", strict=True)
    for seed in range(5):
        i = torch.randint(0, 11, (3, 5), generator=torch.Generator().manual_seed(seed))
        ours, theirs = (normal(11, 8).requires_grad_() for _ in range(2))
        torch.testing.assert_close(compiled(ours, i), fn(theirs, i), rtol=1e-5, atol=1e-5)
    assert not adds
