"""Numbers that change from call to call and that only the backward part reads: a gradient reversal's weight, what a hook multiplies by."""

from __future__ import annotations

import random

import pytest
import torch

import pliant


class Reversed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.weight = weight
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        return -ctx.weight * g, None


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(x, weight):
        return x * 1

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.weight = inputs[1] + 1

    @staticmethod
    def backward(ctx, g):
        return g / ctx.weight, None


def reversal(x, n):
    return Reversed.apply(x, n).sin()


def at_the_end(x, n):
    return Scaled.apply(x.cos(), n)


def hook(x, n):
    y = x * 2
    y.register_hook(lambda g: g * n)
    return y.sin()


def two_results(x, n):
    return Reversed.apply(x * 2, n).sin(), x.cos()


def in_sections(x, n):
    a = Reversed.apply(x.exp(), n)
    b = Scaled.apply(a.tanh(), n * 2)
    return b, a


def hook_in_a_section(x, n):
    a = x.exp()
    b = a.sin()
    b.register_hook(lambda g: g - n)
    return b * 2, a


def behind_a_break(x, n):
    y = x.exp()
    pliant.graph_break()
    return Reversed.apply(y, n).sin()


def of_a_size(x, n):
    return Reversed.apply(x, x.shape[0] * n).sin()


def twice_read(x, n):
    m = n * 2
    return Scaled.apply(Reversed.apply(x, n), m) * (n + 1)


PROGRAMS = [reversal, at_the_end, hook, two_results, in_sections, hook_in_a_section, behind_a_break, of_a_size, twice_read]
NUMBERS = {"int": (3, 4, 5, 6, 3), "float": (0.5, 0.25, 2.0, 0.75, 0.5)}


@pytest.mark.parametrize("backend", ["aten", "native"])
@pytest.mark.parametrize("kind", NUMBERS)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_numbers_that_only_backward_reads(program, kind, backend):
    compiled = pliant.compile(program, backend=backend, background=False)
    for k, n in enumerate(NUMBERS[kind]):
        x = torch.rand(k + 2, 3)
        sides = []
        for f in (program, compiled):
            leaf = x.clone().requires_grad_()
            out = f(leaf, n)
            first = out[0] if isinstance(out, tuple) else out
            sides.append([first.detach(), *torch.autograd.grad(first.sum(), leaf)])
        for want, got in zip(*sides, strict=True):
            torch.testing.assert_close(got, want)
    assert pliant.stats()["fallbacks"] == 0


class ReadsItem(torch.autograd.Function):
    """Its backward reads a number off a saved tensor, and relies on it being the size of what arrives."""

    @staticmethod
    def forward(ctx, x, n):
        ctx.save_for_backward(n)
        return x * 2

    @staticmethod
    def backward(ctx, g):
        (n,) = ctx.saved_tensors
        return g + torch.ones(n.item()).expand(g.shape), None


@pytest.mark.parametrize("backend", ["native", "aten"])
@pytest.mark.parametrize("last", [lambda n: torch.zeros(n.item()), lambda n: n.item(), lambda n: torch.zeros(int(n)).sum()])
def test_numbers_found_in_a_rehearsal_are_forgotten(last, backend):
    """What the rehearsal of a backward reads off a tensor is no number of the graph, nor is what it assumes of it."""

    def fn(x, n):
        y = ReadsItem.apply(x, n)
        return y.sum() + last(n), (y * 3).sum()

    run = pliant.compile(fn, backend=backend, strict=True, background=False)
    for size in (5, 6, 7, 5):
        for grad in (True, False):
            x = torch.randn(size, requires_grad=grad)
            want, got = fn(x, torch.tensor(size)), run(x, torch.tensor(size))
            torch.testing.assert_close(got, want)
            if grad:
                torch.testing.assert_close(torch.autograd.grad(got[1], x), torch.autograd.grad(want[1], x))


class Drawn(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a):
        return a * random.random()

    @staticmethod
    def backward(ctx, g):
        return g * random.uniform(1, 2)


def by_function(x):
    return Drawn.apply(x) * random.random()


def by_hook(x):
    h = x * 2
    h.register_hook(lambda g: g * random.random())
    return h.sum() * random.random()


def by_hook_inside(x):
    w = x.detach().clone().requires_grad_()
    h = w * 2
    h.register_hook(lambda g: g * random.gauss(0, 1))
    h.sum().backward()
    return x * random.random(), w.grad


@pytest.mark.parametrize("fn", [by_function, by_hook, by_hook_inside])
def test_numbers_drawn_by_python_in_a_backward_part(fn):
    """They are drawn when the gradients are worked out, each time; a capture has drawn them once, for good."""
    run, told = pliant.compile(fn, strict=True), []
    for f in (fn, run):
        random.seed(0)
        for n in (3, 3, 4, 5, 3):
            x = torch.ones(n, requires_grad=True)
            out = f(x)
            y, *rest = out if isinstance(out, tuple) else (out,)
            y.sum().backward()
            told.append([y.tolist(), x.grad.tolist(), *[r.tolist() for r in rest], random.random()])
    torch.testing.assert_close(told[:5], told[5:])
