"""Gradients that are differentiated, from the third time on by a graph of their own: as eager's, to any order."""

from __future__ import annotations

import math

import pytest
import torch

import pliant
from pliant.codegen import recipe_source
from tests.helpers import compiled

F = torch.nn.functional
grad = torch.autograd.grad
SIZES = [3, 5, 2, 7, 4, 1, 6]


def close(want, got):
    for a, b in zip(want, got, strict=True):
        assert (a is None) == (b is None)
        assert a is None or torch.allclose(a, b, rtol=1e-4, atol=1e-5), (a, b)


def network(seed=0, last=1):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.LayerNorm(8), torch.nn.GELU(), torch.nn.Linear(8, last))


def both(step, make=network, sizes=SIZES, **options):
    """`step(fn, x, weights)` returns tensors: the same of a module and of the module compiled, in each call."""
    pliant.reset()
    eager, other = make(), make()
    target = compiled(other, **options)
    for i, n in enumerate(sizes):
        torch.manual_seed(100 + i)
        x = torch.randn(n, 4)
        want = step(eager, x.clone().requires_grad_(), list(eager.parameters()), i)
        close(want, step(target, x.clone().requires_grad_(), list(other.parameters()), i))
    return pliant.stats()


def penalty(f, x, weights, i):
    y = f(x)
    (g,) = grad(y.sum(), x, create_graph=True)
    loss = ((g.norm(2, 1) - 1) ** 2).mean() + y.mean()
    return [loss.detach(), *grad(loss, [x, *weights], allow_unused=True)]


@pytest.mark.parametrize("backend", ["native", "aten"])
def test_penalty_on_gradients(backend):
    stats = both(penalty, backend=backend)
    assert stats["fallbacks"] == 0 and 2 <= stats["captures"] <= 4  # the forward part, and what takes its place


def test_as_backward_leaves_them():
    def step(f, x, weights, i):
        for p in weights:
            p.grad = None
        f(x).pow(2).sum().backward(create_graph=True)
        loss = sum((p.grad**2).sum() for p in weights)
        return [loss.detach(), *grad(loss, weights)]

    both(step)


def test_three_times():
    """What is differentiated on and on stays in eager."""

    def step(f, x, weights, i):
        (g,) = grad(f(x).sum(), x, create_graph=True)
        (h,) = grad(g[:, 0].sum(), x, create_graph=True)
        (k,) = grad(h[:, 1].sum(), x, create_graph=True)
        return [g.detach(), h.detach(), k.detach(), *grad(k.sum(), weights, allow_unused=True)]

    stats = both(step)
    assert stats["captures"] <= 2


def test_first_twice_then_three_times():
    """By then there is a graph, and that is differentiated."""

    def step(f, x, weights, i):
        (g,) = grad(f(x).sum(), x, create_graph=True)
        if i < 4:
            return list(grad((g**2).sum(), weights, allow_unused=True))
        (h,) = grad(g[:, 0].sum(), x, create_graph=True)
        return [h.detach(), *grad(h.pow(2).sum(), weights, allow_unused=True)]

    both(step, sizes=SIZES * 2)


class Heads(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk, self.a, self.b = torch.nn.Linear(4, 6), torch.nn.Linear(6, 2), torch.nn.Linear(6, 1)

    def forward(self, x):
        h = torch.tanh(self.trunk(x))
        return self.a(h), self.b(h).sigmoid()


def heads():
    torch.manual_seed(1)
    return Heads()


def test_some_results():
    """Which heads have gradients is another question in each call."""

    def step(f, x, weights, i):
        a, b = f(x)
        loss = (a.pow(2).sum() if i % 3 != 1 else 0) + (b.exp().sum() if i % 3 != 2 else 0)
        (g,) = grad(loss, x, create_graph=True)
        return [g.detach(), *grad((g * g).sum(), weights, allow_unused=True)]

    both(step, heads, sizes=SIZES * 3)


def test_dropout_is_not_drawn_again():
    def make():
        torch.manual_seed(2)
        return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.3), torch.nn.Tanh(), torch.nn.Linear(8, 1))

    def step(f, x, weights, i):
        torch.manual_seed(i)
        return penalty(f, x, weights, i)

    both(step, make)


def test_statistics_are_written_once():
    def make():
        torch.manual_seed(3)
        return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Softplus(), torch.nn.Linear(8, 1))

    seen = []

    def step(f, x, weights, i):
        out = penalty(f, x, weights, i)
        seen.append([b.clone() for b in (getattr(f, "_orig_mod", f)[1]).buffers()])
        return [*out, *(b.float() for b in seen[-1])]

    both(step, make, sizes=[3, 5, 2, 7, 4, 6])


def test_numbers_and_sizes_in_the_forward_part():
    def fn(x, w, k, scale):
        y = (x @ w).view(-1, k)
        return (y * scale / x.shape[0]).tanh().sum(1) + math.sqrt(x.shape[0])

    pliant.reset()
    target = compiled(fn)
    torch.manual_seed(4)
    w = torch.randn(4, 6, requires_grad=True)
    for i, n in enumerate(SIZES * 2):
        x = torch.randn(n, 4)
        results = []
        for f in (fn, target):
            a = x.clone().requires_grad_()
            (g,) = grad(f(a, w, 2 + i % 2, 0.5 + i / 10).sum(), a, create_graph=True)
            results.append([g.detach(), *grad(g.pow(2).sum(), [a, w])])
        close(*results)


def test_gradients_inside_differentiated_outside():
    """What autograd saves without its history gets it back where the forward part runs again."""

    def slope(x, w1, w2):
        u = torch.tanh(x @ w1) @ w2
        return grad(u.sum(), x, create_graph=True)[0] + x * 2

    pliant.reset()
    target = compiled(slope)
    torch.manual_seed(5)
    w1, w2 = torch.randn(4, 8, requires_grad=True), torch.randn(8, 1, requires_grad=True)
    for n in SIZES * 2:
        x = torch.randn(n, 4)
        results = []
        for f in (slope, target):
            a = x.clone().requires_grad_()
            g = f(a, w1, w2)
            (h,) = grad(g[:, 0].sum(), a, create_graph=True)
            results.append([g.detach(), h.detach(), *grad(h.pow(2).sum(), [a, w1, w2])])
        close(*results)


def test_under_autocast():
    def step(f, x, weights, i):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = f(x)
            (g,) = grad(y.float().sum(), x, create_graph=True)
        return [g.detach(), *grad(g.pow(2).sum(), weights, allow_unused=True)]

    pliant.reset()
    eager, other = network(), network()
    target = compiled(other)
    for i, n in enumerate(SIZES):
        x = torch.randn(n, 4)
        want = step(eager, x.clone().requires_grad_(), list(eager.parameters()), i)
        got = step(target, x.clone().requires_grad_(), list(other.parameters()), i)
        for a, b in zip(want, got, strict=True):
            assert (a is None) == (b is None)
            assert a is None or torch.allclose(a, b, rtol=0.1, atol=0.1)


def test_a_written_input_is_told():
    f = compiled(lambda x, w: (x * w).tanh())
    for _ in range(4):
        w = torch.randn(3)
        x = torch.randn(3, requires_grad=True)
        (g,) = grad(f(x, w).sum(), x, create_graph=True)
        (want,) = grad((x * w).tanh().sum(), x, create_graph=True)
        close([grad(want.sum(), x)[0]], [grad(g.sum(), x)[0]])
    y = f(x, w)
    w.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace|written since"):
        (g,) = grad(y.sum(), x, create_graph=True)
        grad(g.sum(), x)


def test_printed_code_is_patient():
    """Once or twice an operation at a time is enough."""
    stats = both(penalty, sizes=SIZES[: recipe_source.PATIENCE])
    assert stats["captures"] == 1
