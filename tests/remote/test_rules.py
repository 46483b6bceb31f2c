"""Rules of placement: each operator on tensors placed in every way gives what one process gives. And random programs of many."""

from __future__ import annotations

import itertools

import pytest
import torch
import torch.nn.functional as F

import pliant
from benchmarks import remote_fuzz
from pliant import remote
from pliant.remote import product_rules, sharding, view_rules  # noqa: F401  (the rules that are swept)

A, B, W = (torch.linspace(-1, 1, n).sin().reshape(s).double() for n, s in ((30, (5, 6)), (30, (5, 6)), (24, (4, 6))))
IDS = torch.arange(5) % 4
IMAGES, KERNEL = torch.linspace(-2, 2, 192).cos().reshape(4, 3, 4, 4).double(), torch.linspace(-1, 1, 54).reshape(2, 3, 3, 3).double()
Q = torch.linspace(-2, 2, 96).sin().reshape(2, 4, 3, 4).double()

CASES = {
    "pointwise": (lambda a, b: torch.where(a > b, a * 2, b.exp()) + a.sum(1, keepdim=True), (A, B)),
    "reductions": (lambda a: (a.sum(), a.mean(0), a.mean(1), a.amax(0), a.var(1), a.softmax(1), a.argmax(1), a.log_softmax(0)), (A,)),
    "product": (lambda a, w: (a @ w.t(), F.linear(a, w, w.sum(1)), a.t() @ a), (A, W)),
    "views": (lambda a: (a.t(), a.reshape(5, 2, 3), a.flatten(), a.unsqueeze(1).expand(5, 2, 6), a[:, 1:4], a[1:4], a.unbind(1)[2]), (A,)),
    "joined": (lambda a, b: (torch.cat([a, b]), torch.cat([a, b], 1), torch.stack([a, b], 1)), (A, B)),
    "embedding": (lambda w, i: F.embedding(i, w), (W, IDS)),
    "cross entropy": (lambda w, i: (F.cross_entropy(w[i], i), F.cross_entropy(w[i], i, reduction="sum")), (W, IDS)),
    "mean squares": (lambda a, b: (F.mse_loss(a, b), F.smooth_l1_loss(a, b, reduction="sum")), (A, B.cos())),
    "layer norm": (lambda a, w: F.layer_norm(a, (6,), w[0], w[1]), (A, W)),
    "convolution": (lambda x, k: (F.conv2d(x, k), F.max_pool2d(x, 2), F.avg_pool2d(x, 2)), (IMAGES, KERNEL)),
    "attention": (lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True), (Q,)),
    "writes": (lambda a, b: (a.clone().add_(b).mul_(2), torch.zeros_like(a).copy_(b)), (A, B)),
    "sorting": (lambda a: (a.sort(1).values, a.topk(2, 0).values, a.cumsum(1), a.flip(0)), (A,)),
}


def flat(x):
    return [x] if isinstance(x, torch.Tensor) else list(x)


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients(mesh, name):
    fn, tensors = CASES[name]
    compiled = pliant.compile(fn, on=mesh)
    free = [t.is_floating_point() for t in tensors]
    mine = [t.clone().requires_grad_(f) for t, f in zip(tensors, free, strict=True)]
    want = flat(fn(*mine))
    total = lambda outs: sum((o.double() ** 2).sum() for o in outs if o.is_floating_point())
    gradients = torch.autograd.grad(total(want), [t for t, f in zip(mine, free, strict=True) if f], allow_unused=True)
    for places in itertools.islice(itertools.product(*[["r", *range(t.dim())] for t in tensors]), 0, None, 2 if len(tensors) > 1 else 1):
        put = [mesh.replicate(t) if p == "r" else mesh.shard(t, p) for t, p in zip(tensors, places, strict=True)]
        put = [t.requires_grad_(f) for t, f in zip(put, free, strict=True)]
        got = flat(compiled(*put))
        for a, b in zip(want, got, strict=True):
            assert a.dtype is b.dtype and a.shape == b.shape
            torch.testing.assert_close(b.cpu().detach(), a.detach(), msg=lambda m: f"{places}: {m}")
        found = torch.autograd.grad(total(got), [t for t, f in zip(put, free, strict=True) if f], allow_unused=True)
        for a, b in zip(gradients, found, strict=True):
            torch.testing.assert_close(None if b is None else b.cpu(), a, msg=lambda m: f"gradient, {places}: {m}")


def test_collectives_are_those_that_are_needed(mesh):
    """Data-parallel and weight-parallel products move what they must, nothing is gathered."""
    x, w = mesh.shard(torch.randn(6, 4)), mesh.replicate(torch.randn(4, 3))
    rows = pliant.compile(lambda a, b: (a @ b).relu() * 2, on=mesh)
    assert str(rows(x, w).placement) == "Shard(0)" and mesh.counts["collectives"] == 0
    sums = pliant.compile(lambda a, b: (a.t() @ (a @ b), (a @ b).sum(0)), on=mesh)
    assert [str(t.placement) for t in sums(x, w)] == ["Replicate()"] * 2 and mesh.counts["collectives"] == 1  # both in one go
    up, down = mesh.shard(torch.randn(4, 6), 1), mesh.shard(torch.randn(6, 4), 0)
    before = mesh.counts["collectives"]
    inner = pliant.compile(lambda a, u, d: (a @ u).relu() @ d, on=mesh)
    assert str(inner(mesh.replicate(torch.randn(5, 4)), up, down).placement) == "Replicate()" and mesh.counts["collectives"] - before == 1
    assert pliant.stats()["captures"] == 3 and not pliant.events.events("gathered")


def test_what_has_no_rule_is_gathered_and_says_so(mesh):
    x = torch.randn(6, 6)
    f = pliant.compile(lambda a: torch.linalg.det(a), on=mesh)
    assert torch.allclose(f(mesh.shard(x)).cpu(), torch.linalg.det(x), rtol=1e-4) and pliant.events.events("gathered")


@pytest.mark.parametrize("seed", [0, 100, 200])
def test_random_programs(seed):
    with remote.mesh(3, transport="threads", timeout=60, recover=False) as mesh:
        for i in range(seed, seed + 6):
            what, told = remote_fuzz.one(mesh, i)
            assert what != "wrong", told
