# ruff: noqa: F841  (variables that are read by their names)
"""Functions that look at the variables of whoever calls them, as `DataFrame.query` of pandas and `numexpr.evaluate` do."""

from __future__ import annotations

import sys

import pytest
import torch

import pliant
from pliant.interpret import callers_variables


def evaluate(text):
    frame = sys._getframe(1)
    return eval(text, frame.f_globals, frame.f_locals)


@pytest.fixture(autouse=True)
def known(monkeypatch):
    monkeypatch.setattr(callers_variables, "READERS", {(__name__, "evaluate")})


def at_once(x, v):
    t = 2
    return x + evaluate("t + v")


def behind_a_break(x, v):
    t = 2
    x = x + 1
    print(end="")
    x = x * 2
    return x + evaluate("t + v")


def helper(v):
    t = 1.5
    return evaluate("v + t")


def inlined(x, v):
    y = torch.sin(x) * helper(v)
    return y + 1


def twice(x, v):
    return helper(v) * x + at_once(x, v) + helper(v + 1)


def in_a_list(x, v):
    return [x + evaluate("t + 1") for t in (1, v)]


class Net(torch.nn.Module):
    def forward(self, x, v):
        t = 3
        return x * evaluate("t * v")


NET = Net()


@pytest.mark.parametrize("fn", [at_once, behind_a_break, inlined, twice, in_a_list, lambda x, v: NET(x, v) * 2])
def test_the_variables_are_those_of_the_program(fn):
    compiled = pliant.compile(fn, background=False)
    for n in (2, 3, 4, 5, 3):
        x = torch.arange(float(n))
        want, got = fn(x, n), compiled(x, n)
        for a, b in zip(want if type(want) is list else [want], got if type(got) is list else [got], strict=True):
            torch.testing.assert_close(b, a)


def test_the_rest_is_compiled():
    compiled = pliant.compile(inlined, background=False)
    for n in (3, 4, 5):
        compiled(torch.ones(n), n)
    assert pliant.stats()["entries"] > 0


@pytest.mark.parametrize("fn", [inlined, at_once])
def test_fullgraph_says_why(fn):
    for _ in range(2):
        with pytest.raises(pliant.PliantError, match="variables"):
            pliant.compile(fn, fullgraph=True)(torch.ones(3), 2)
