"""Results of one region that eager can send backward one after the other, since what they have kept is apart."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

import pliant


def three(x, y, z):
    a = (x.exp() * z).sin()
    b = (y.sin() * z).exp()
    return a, b.view(-1), x.cos() * x, a.sum().detach(), x.shape[0]


def drawn(x, y, z):
    return torch.nn.functional.dropout(x, 0.5) * x, y.exp() * z.exp(), z * z


def written(x, y, z):
    y = y.clone()
    y.mul_(x)
    x = x.sin()
    x.add_(1)
    return x * x, y, (z.exp() * z).detach().requires_grad_(False), z * z


def hooked(x, y, z):
    y = y * 1.0
    y.register_hook(lambda g: g * 2)
    return x.exp() * x, y.exp() * y, z.cos()


def unread(x, y, z):
    return x.exp() * x, y.detach() * 2, bool((z.exp() * y).sum() > 0)


PROGRAMS = [three, unread, drawn, written, hooked]


def observed(f: Callable, n: int, order: tuple[int, ...], *, create: bool, keep: bool) -> list[Any]:
    """What a program gives, and the gradients of its results in this order; inputs have a history, and hooks that must not see None."""
    torch.manual_seed(n)
    leaves = [torch.randn(n, n, requires_grad=True, dtype=torch.float64) for _ in range(3)]
    seen: list[Any] = []
    for i, leaf in enumerate(leaves):
        leaf.register_hook(lambda g, i=i: seen.append((i, g.sum())))
    out = f(leaves[0] * leaves[0], leaves[1].exp(), leaves[2])
    got: list[Any] = []
    for o in order:
        try:
            if create:
                first = torch.autograd.grad(out[o].sum(), leaves, allow_unused=True, create_graph=True)
                total = sum((g * g).sum() for g in first if g is not None)
                got += [*first, *torch.autograd.grad(total, leaves, allow_unused=True)]
            else:
                out[o].sum().backward(retain_graph=keep)
        except RuntimeError as e:
            got.append(str(e))
    seen.sort()
    return [*got, *(leaf.grad for leaf in leaves), *out, *itertools.chain(*seen)]


def same(a: Any, b: Any) -> bool:
    return torch.allclose(a, b, atol=1e-6) if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) else type(a) is type(b) and a == b


@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("backend", ["native", "aten"])
def test_one_after_the_other(f: Callable, backend: str) -> None:
    compiled = pliant.compile(f, backend=backend)
    heads = [i for i, t in enumerate(f(*[torch.ones(2, 2, requires_grad=True)] * 3)) if isinstance(t, torch.Tensor) and t.requires_grad]
    for k in range(1, len(heads) + 1):
        for order in itertools.product(heads, repeat=k):
            for keep in (False, True):
                a, b = (observed(g, k + 2, order, create=False, keep=keep) for g in (f, compiled))
                assert len(a) == len(b) and all(map(same, a, b)), (order, keep, a, b)
    assert pliant.stats()["captures"] == 1


def test_gradients_of_gradients() -> None:
    compiled = pliant.compile(three)
    for order in itertools.permutations((0, 1, 2), 2):
        a, b = (observed(g, 3, order, create=True, keep=False) for g in (three, compiled))
        assert len(a) == len(b) and all(map(same, a, b)), (order, a, b)


def test_what_is_written_between_is_refused_where_it_is_read() -> None:
    for f in (three, pliant.compile(three)):
        x, y, z = [torch.ones(2, 2, requires_grad=True) for _ in range(3)]
        a, b, *_ = f(x.exp(), y.exp(), z)
        a.sum().backward()
        with torch.no_grad():
            b.mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            b.sum().backward()


def test_nothing_holds_what_nobody_needs() -> None:
    compiled = pliant.compile(three)
    x, y, z = [torch.ones(2, 2, requires_grad=True) for _ in range(3)]
    results = compiled(x.exp(), y.exp(), z)
    alive = [weakref.ref(t) for t in results[:3]]
    inner = weakref.ref(results[1].grad_fn.next_functions[0][0])
    del results
    assert [r() for r in alive] == [None] * 3 and inner() is None


@pytest.mark.parametrize("own", [lambda w: w * -2.0, torch.exp], ids=["a number", "a tensor"])
def test_what_leads_to_a_leaf_of_the_program_alone_is_not_gone_through(own):
    """Where gradients of an input are asked for: eager frees nothing there, and what it keeps of `w * -2` is no reason to refuse."""

    def program(x, y):
        return own(y.detach().requires_grad_(True)).sum() + x

    answers = []
    for fn in (program, pliant.compile(program, backend="aten", background=False)):
        x, y = torch.ones(3, requires_grad=True), torch.ones(3)
        out = fn(x, y)
        found = [torch.autograd.grad((out * x).sum(), x)[0] for _ in range(2)]
        out.sum().backward()
        answers.append([*found, x.grad])
    torch.testing.assert_close(*answers)


def use_then_write(x, w):
    h = x.detach().clone()
    y, z = h * w, w.sin()
    h.add_(1)
    return y, z, h


def a_buffer_in_a_loop(x, w):
    for i in range(3):
        y = x * w
        with torch.no_grad():
            x.add_(i)
    return y, w.cos(), x


def a_view_of_a_buffer(x, w):
    row = x[:1]
    y, z = row * w, w.exp()
    x.mul_(2)
    return y, z, row


@pytest.mark.parametrize("fn", [use_then_write, a_buffer_in_a_loop, a_view_of_a_buffer])
def test_writes_to_what_gradients_were_to_be_made_of(fn: Callable) -> None:
    """Autograd records the region. Eager refuses these gradients alone, if ever somebody asks for them."""
    compiled = pliant.compile(fn, strict=True)
    for rows in (3, 4, 5):
        got = []
        for f in (fn, compiled):
            w = torch.tensor(2.0, requires_grad=True)
            y, z, h = f(torch.ones(rows, 2), w)
            (g,) = torch.autograd.grad(z, w)
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                y.sum().backward()
            got.append((y.detach(), g, h))
        assert all(torch.allclose(a, b) for a, b in zip(*got, strict=True))
    assert pliant.stats()["fallbacks"] == 0 and pliant.stats()["graph_breaks"] == 0


def test_a_gradient_that_does_not_fit_is_refused_where_it_is_asked_for() -> None:
    def fn(x, i):
        return torch.zeros_like(x).scatter(0, i, x) ** 2, x.sin()

    compiled = pliant.compile(fn, strict=True)
    for rows in (2, 3, 4):
        x = torch.ones(rows, 4, requires_grad=True)
        for f in (fn, compiled):
            a, b = f(x, torch.zeros(1, 4, dtype=torch.long))
            assert torch.allclose(torch.autograd.grad(b.sum(), x)[0], x.cos())
            with pytest.raises(RuntimeError, match="ScatterBackward0 returned an invalid gradient"):
                torch.autograd.grad(a.sum(), x)


def test_hooks_hear_of_gradients_alone() -> None:
    """Results that share a node: the engine calls the hooks on all of them, where eager calls those on its way."""
    seen = []
    for f in (three, pliant.compile(three, strict=True)):
        heard: list = []
        x, y, z = [torch.full((2, 2), 0.5, requires_grad=True) for _ in range(3)]
        a, b, c, *_ = f(x.exp(), y.exp(), z)
        doubled = a.register_hook(lambda g: g * 2)
        for name, t in (("a", a), ("b", b), ("c", c)):
            t.register_hook(lambda g, name=name, heard=heard: heard.append((name, round(g.sum().item(), 4))))
        a.retain_grad()
        (gradient,) = torch.autograd.grad((b * c.view(-1)).sum(), x, retain_graph=True, create_graph=True)
        gradient.sum().backward(retain_graph=True)
        doubled.remove()
        (a.sum() + c.sum()).backward()
        seen.append((heard, len(a._backward_hooks), a.grad, x.grad, z.grad))
    assert seen[0][:2] == seen[1][:2]
    for p, q in zip(seen[0][2:], seen[1][2:], strict=True):
        torch.testing.assert_close(p, q)
