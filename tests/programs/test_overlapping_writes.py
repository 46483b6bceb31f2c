"""Writes to a tensor of which elements have one place in memory: what is read then is what was written last."""

from __future__ import annotations

import pytest
import torch

import pliant
from pliant.lower import overlaps


def negated(v):
    v.neg_()
    return v.clone(), v.clamp(max=0.5)


def doubled(v):
    v.t().mul_(2)
    return v * 1, v.t() + 1


def added(v):
    v.add_(v.clone())
    v.t().add_(1)
    v.neg_()
    return v * 1, v


def masked(v):
    v[v > 2] = 0.5
    v.add_(1)
    return v + 0, v.sum(1)


def scattered(v):
    v.scatter_add_(0, torch.zeros_like(v, dtype=torch.int64), v.clone())
    return v * 2, v


BODIES = (negated, doubled, added, masked, scattered)
VIEWS = {
    "unfold": lambda x: x.unfold(0, 2, 1),
    "unfold of a part": lambda x: x[1:].unfold(0, 3, 2),
    "as_strided": lambda x: x.as_strided((3, 3), (1, 1)),
    "apart": lambda x: x[: x.shape[0] // 4 * 4].view(-1, 4)[:, 1:3],
}


@pytest.mark.parametrize("outside", [False, True], ids=["inside", "outside"])
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("body", BODIES, ids=lambda f: f.__name__)
def test_writes_through_views(body, view, outside):
    def inside(x):
        return body(VIEWS[view](x))

    compiled = pliant.compile(body if outside else inside, backend="native", background=False)
    for n in (8, 33, 9, 64):
        x = torch.arange(n, dtype=torch.float32)
        y = x.clone()
        want = body(VIEWS[view](x))
        got = compiled(VIEWS[view](y)) if outside else compiled(y)
        assert torch.equal(x, y)
        assert all(map(torch.equal, want, got))


PARTS = (lambda x: x, lambda x: x.t(), lambda x: x[1:-2, :-5], lambda x: x[::2, ::2], lambda x: x[0], lambda x: x[..., 1])


@pytest.mark.parametrize("view", PARTS)
def test_parts_of_a_matrix_are_known_to_be_apart(view, monkeypatch):
    met, may_meet = [], overlaps.may_meet

    def spy(*args, **kwargs):
        met.append(may_meet(*args, **kwargs))
        return met[-1]

    monkeypatch.setattr(overlaps, "may_meet", spy)

    def fn(v):
        w = v * 2
        v.add_(w)
        v[1:].mul_(3)
        return w + v

    compiled = pliant.compile(fn, backend="native", background=False)
    for n in (8, 12, 16):
        x = torch.randn(n, n + 4)
        y = x.clone()
        assert torch.equal(fn(view(x)), compiled(view(y))) and torch.equal(x, y)
    assert met and not any(met)


def parts_of_nothing(x, k):
    y = x * 1
    y[..., :1].clamp_(max=k)
    y[: x.shape[0] // 2].copy_((y * 2)[: x.shape[0] // 2])
    return y


def test_a_tensor_without_elements_shares_no_memory():
    """Gradients of writes to a tensor without elements go through one with a stride of 0 in a dim whose size varies."""
    for sizes in ((1, 2), (3, 3), (1, 0), (2, 4), (0, 2), (2, 0)):
        given = [torch.ones(sizes, requires_grad=True) for _ in range(2)]
        results = [fn(x, 0.5) for fn, x in zip((parts_of_nothing, PARTS), given)]
        for y in results:
            y.sum().backward()
        torch.testing.assert_close(*results)
        torch.testing.assert_close(*[x.grad for x in given])


PARTS = pliant.compile(parts_of_nothing, background=False)
