"""Second gradients with respect to results that the formulas of first gradients read: of `exp`, `tanh`, `softmax`, `sqrt`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import pliant


def exponential(x: Any) -> Any:
    a = x.exp()
    return a, a * a.sin()


def tangent(x: Any) -> Any:
    a = (x * 2).tanh()
    return a, (a * x).sum()


def one_behind_the_other(x: Any) -> Any:
    a = x.softmax(-1)
    b = a.sigmoid()
    return a, b, (a * b).sum()


def turned(x: Any) -> Any:
    a = torch.sigmoid(x).t()
    return a, a.sum(0) * a


def nothing_of_the_result(x: Any) -> Any:
    a = x.relu()
    return a, a * a


def one_of_two(x: Any) -> Any:
    e = x.max(0)[0].exp()
    return e, e * x


def alone(x: Any) -> Any:
    return (x.exp(),)


def apart(x: Any) -> Any:
    return x.exp(), (x * x + 1).sqrt()


def behind_a_break(x: Any) -> Any:
    a = x.exp()
    print(end="")
    return a, (a * a).rsqrt()


PROGRAMS = [exponential, tangent, one_behind_the_other, turned, nothing_of_the_result, one_of_two, alone, apart, behind_a_break]


def told(fn: Callable, rows: int, ask: str) -> tuple[list, list]:
    """(gradients of all orders with respect to each result and the input, what hooks on the results heard)."""
    leaf = (torch.arange(rows * 2.0).reshape(rows, 2) / 4).requires_grad_()
    x = leaf * 1
    results, heard, found = fn(x), [], []
    for k, t in enumerate(results):
        t.register_hook(lambda g, k=k: heard.append((k, None if g is None else g.sum())))
    if ask == "backward":
        sum((b * b).sum() for b in results).backward(create_graph=True)
        leaf.grad.square().sum().backward()
        return [leaf.grad], heard
    for b in results:
        (g,) = torch.autograd.grad((b * torch.linspace(1, 2, b.numel()).reshape(b.shape)).sum(), x, create_graph=True)
        for t in (*results, x):
            found += torch.autograd.grad(g.square().sum(), t, retain_graph=True, allow_unused=True)
        seconds = torch.autograd.grad(g.square().sum(), [*results, x], create_graph=True, allow_unused=True)
        found += seconds
        if ask == "thirds":
            total = sum([t.square().sum() for t in seconds if t is not None])
            found += torch.autograd.grad(total, [*results, x], retain_graph=True, allow_unused=True)
    return found, heard


def close(a: Any, b: Any) -> None:
    assert (a is None) == (b is None)
    if a is not None:
        torch.testing.assert_close(b, a, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("ask", ["seconds", "thirds", "backward"])
@pytest.mark.parametrize("backend", ["aten", "native"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_they_arrive_at_the_results(program: Callable, backend: str, ask: str) -> None:
    compiled = pliant.compile(program, backend=backend)
    for rows in (2, 3, 4, 2, 5):  # from the third on, a graph would compute what arrives at no result
        (values, hears), (ours, own) = told(program, rows, ask), told(compiled, rows, ask)
        assert len(values) == len(ours)
        for a, b in zip(values, ours, strict=True):
            close(a, b)
        if program is not apart:  # results that are one node: a hook on one hears of passes that go to the other
            assert [k for k, _ in hears] == [k for k, _ in own]
            for (_, a), (_, b) in zip(hears, own, strict=True):
                close(a, b)
