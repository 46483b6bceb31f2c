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


# -- names that are asked for on both sides of a graph break ---------------------------------------------------------------------
def bound_by_text(x):
    exec("b = x + 1")
    return locals().get("b")


def bound_in_a_loop(x):
    for i in range(3):
        exec(f"k{i} = x + {i}")
    return sorted(name for name in locals() if name.startswith("k"))


def bound_by_eval(x):
    eval("(q := x * 2)")
    return locals().get("q")


def stored(x):
    locals()["q"] = 4
    pliant.graph_break()
    return locals().get("q"), vars().get("q")


def kept(x):
    d = locals()
    pliant.graph_break()
    y = x + 1
    return locals() is d, sorted(d)


def below(x):
    return bound_by_text(x), stored(x)


def only_read(x):
    a = "{x.ndim}".format(**locals())
    pliant.graph_break()
    return a, sorted(locals()), x + 1


@pytest.mark.parametrize("fn", [bound_by_text, bound_in_a_loop, bound_by_eval, stored, kept, below, only_read], ids=lambda fn: fn.__name__)
def test_the_dict_of_a_frame_is_one_on_both_sides_of_a_break(fn):
    """Up to 3.12; since then each `locals()` gives another, and what text binds is in none of them. As eager has it."""
    compiled = pliant.compile(fn)
    for n in (2, 3, 4):
        x = torch.ones(n)
        assert repr(compiled(x)) == repr(fn(x))


def test_names_that_are_only_read_leave_the_frame_compiled():
    pliant.compile(only_read)(torch.ones(2))
    assert pliant.stats()["captures"] == 2
