"""Operations that compute again, for a result, what was computed before."""

from __future__ import annotations

import pytest
import torch

import pliant
from pliant.lower import liveness
from pliant.lower.cse import without_repetition
from tests.lower.test_passes import names, traced

x = torch.randn(5, 6)
y = torch.randn(5, 6)


def kept_names(fn, *examples):
    trace, _, outputs = traced(fn, *examples)
    return names(liveness.live_ops(without_repetition(trace.ops, outputs, results=True), outputs, []))


def normed(s):
    return s * torch.rsqrt(s.pow(2).mean(-1, keepdim=True) + 1e-6)


def written(t, u):
    a = t + u
    b = a.sum()
    c = t + u
    c.mul_(2)
    return b, c


def written_between(t, u):
    a = (t + u).sum()
    t.mul_(2)
    return a, t + u


def chain(t, u):
    return ((t + u).exp() * 2).sum(), (t + u).exp(), t + u


CASES = {
    "private, then a result": (lambda t, u: (normed(t + u), t + u), 1),
    "seen through a view": (lambda t, u: ((t + u).t().exp(), t + u), 1),
    "a result, then private": (lambda t, u: (t + u, (t + u).exp()), 1),
    "a result, then private and seen through a view": (lambda t, u: (t + u, (t + u).t()), 2),
    "two results": (lambda t, u: (t + u, t + u), 2),
    "a view of the first is a result": (lambda t, u: ((t + u).t(), t + u), 2),
    "three times": (lambda t, u: ((t + u).sum(), t + u, t + u), 2),
    "what is made is written": (written, 2),
    "what is read is written": (written_between, 2),
    "other operands": (lambda t, u: ((t + u).sum(), u + t), 2),
    "other numbers": (lambda t, u: (torch.add(t, u, alpha=2).sum(), t + u), 2),
    "a chain": (chain, 1),
}


@pytest.mark.parametrize("case", CASES)
def test_additions_that_stay(case):
    fn, wanted = CASES[case]
    assert sum(n in ("add", "add_") for n in kept_names(fn, x.clone(), y)) == wanted + (case == "private, then a result")


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("grad", [False, True])
def test_results_are_eagers(case, grad):
    fn = CASES[case][0]
    compiled = pliant.compile(fn, backend="native", strict=True)
    for n in (5, 7, 1):
        ours, theirs = ([torch.linspace(-1, 2, n * 6).view(n, 6), torch.linspace(1, 3, n * 6).view(n, 6)] for _ in range(2))
        if grad:
            for t in (*ours[1:], *theirs[1:]):
                t.requires_grad_()
        got, want = compiled(*ours), fn(*theirs)
        torch.testing.assert_close(got, want)
        assert len({t.untyped_storage().data_ptr() for t in got}) == len({t.untyped_storage().data_ptr() for t in want})
        if grad:
            sum((t * t).sum() for t in got).backward()
            sum((t * t).sum() for t in want).backward()
            torch.testing.assert_close(ours[1].grad, theirs[1].grad)


UNLIKE = (0, 0.0, -0.0, False, 0j, complex(0.0, -0.0), complex(-0.0, 0.0), 1, 1.0, True, 1 + 0j)


@pytest.mark.parametrize("op", [lambda v, c: torch.where(v > 0, v, c), lambda v, c: v * c, lambda v, c: v + c])
def test_numbers_that_are_equal_and_not_alike(op):
    given = torch.tensor([-1.0, 2.0, 0.0])
    for numbers in (UNLIKE, UNLIKE[::-1]):

        def f(v, numbers=numbers):
            found = []
            for c in numbers:
                try:
                    found.append(op(v, c))
                except RuntimeError as e:
                    found.append(type(e))
            return found

        def told(made):
            return [(v.dtype, str(v.tolist())) if isinstance(v, torch.Tensor) else v for v in made]

        assert told(pliant.compile(f)(given)) == told(f(given))
