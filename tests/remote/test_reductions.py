"""Reductions, softmax and cumulative sums along a dim that is cut: by rule, nothing gathered, as in one process."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
import torch.nn.functional as F

import pliant
from pliant import remote

X = torch.linspace(-3, 3, 35).cos().reshape(5, 7).double().round(decimals=1)  # with elements that are equal
BY_RULE = {
    "softmax": lambda x: x.softmax(0),
    "log_softmax": lambda x: F.log_softmax(x, 0),
    "logsumexp": lambda x: (x.logsumexp(0), x.logsumexp(0, keepdim=True)),
    "amax": lambda x: (x.amax(0), x.amin(0, keepdim=True), x.amax((0, 1))),
    "argmax": lambda x: (x.argmax(0), x.argmin(0, keepdim=True)),
    "max": lambda x: (*x.max(0), *x.min(0, keepdim=True)),
    "any": lambda x: ((x > 0.8).any(0), (x < 0.9).all(0, keepdim=True)),
    "prod": lambda x: x.prod(0),
    "cumsum": lambda x: (x.cumsum(0), (x * 10).long().cumsum(0), x.cumsum(0, dtype=torch.float32)),
    "var": lambda x: (x.var(0), x.std(0, correction=0), *torch.var_mean(x, (0, 1), keepdim=True)),
    "norms": lambda x: [torch.linalg.vector_norm(x, o, 0) for o in (0, 1, 2, 2.5, math.inf)],
}


def flat(x):
    return [x] if isinstance(x, torch.Tensor) else list(x)


@pytest.mark.parametrize("name", BY_RULE)
def test_by_rule(mesh, name):
    """On rows for all workers, for some of them, with NaNs and infinities in them."""
    fn = BY_RULE[name]
    f = pliant.compile(fn, on=mesh)
    special = X.clone()
    special[1, 0], special[3, 1], special[2, 2], special[:, 3] = math.nan, math.inf, -math.inf, -math.inf
    for x in (X, X[:4], X[:2], torch.cat([X, X]), special):
        for a, b in zip(flat(fn(x)), flat(f(mesh.shard(x))), strict=True):
            assert a.dtype is b.dtype and a.shape == b.shape
            torch.testing.assert_close(b.cpu(), a, equal_nan=True)
    assert not pliant.events.events("gathered") and not pliant.events.events("remote")


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "logsumexp", "var"])
def test_gradients(mesh, name):
    fn = BY_RULE[name]
    total = lambda x: sum((o**2).sum() for o in flat(fn(x)))
    for rows in (5, 2):
        a, b = X[:rows].clone().requires_grad_(), mesh.shard(X[:rows]).requires_grad_()
        total(a).backward()
        pliant.compile(total, on=mesh)(b).backward()
        torch.testing.assert_close(b.grad.cpu(), a.grad)


@pytest.mark.parametrize("fn", [lambda x: x.sort(0).values, lambda x: x.topk(2, 0).values, lambda x: x.median(0).values])
def test_what_is_gathered_says_so(mesh, fn):
    f = pliant.compile(fn, on=mesh)
    assert torch.equal(f(mesh.shard(X)).cpu(), fn(X)) and pliant.events.events("gathered")


def test_pieces_without_elements_and_whole_numbers(mesh):
    fn = lambda x: (x.amax(0), x.argmax(0), x.cumsum(0), x.prod(0), *x.min(0))
    f = pliant.compile(fn, on=mesh)
    for rows, dtype in itertools.product((1, 2, 4), (torch.int8, torch.uint8, torch.int64)):
        x = (X[:rows] * 9).abs().to(dtype) if dtype is torch.uint8 else (X[:rows] * 9).to(dtype)
        for a, b in zip(fn(x), f(mesh.shard(x)), strict=True):
            assert torch.equal(a, b.cpu())


@pytest.mark.parametrize("fn", [lambda x: x.amax(0), lambda x: x.argmin(0), lambda x: x.max(0).values])
def test_of_nothing_raises(mesh, fn):
    """Also in a program that was made for other sizes."""
    f = pliant.compile(fn, on=mesh)
    for rows in (5, 6, 7):
        assert torch.equal(f(mesh.shard(torch.cat([X, X])[:rows])).cpu(), fn(torch.cat([X, X])[:rows]))
    with pytest.raises((IndexError, RuntimeError, remote.Failed)):
        f(mesh.shard(X[:0])).cpu()


def test_variance_of_nothing(mesh):
    """0 / 0: there is no divisor below 0."""
    f = pliant.compile(lambda x: (x.var(), x.std(0), x.std(correction=0), torch.var_mean(x, 1)[0]), on=mesh)
    for x in (X, X[:1], X[:, :1], X[:0], X[:, :0]):
        for y in (mesh.shard(x), mesh.shard(x, 1)):
            for a, b in zip(f(y), (x.var(), x.std(0), x.std(correction=0), torch.var_mean(x, 1)[0]), strict=True):
                torch.testing.assert_close(a.cpu(), b, equal_nan=True)


def test_logsumexp_of_nothing(mesh):
    f = pliant.compile(lambda x: (x.logsumexp((0, 1)), x.logsumexp(0)), on=mesh)
    for x in (X, X[:0], X[:, :0]):
        for y in (mesh.shard(x), mesh.shard(x, 1)):
            for a, b in zip(f(y), (x.logsumexp((0, 1)), x.logsumexp(0)), strict=True):
                torch.testing.assert_close(a.cpu(), b)
