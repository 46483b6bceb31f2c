# ruff: noqa: F841  (variables that are read by their names)
"""Functions that look at the variables of whoever calls them, as `DataFrame.query` of pandas and `numexpr.evaluate` do."""

from __future__ import annotations

import inspect
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


# -- frames that the program gets itself -----------------------------------------------------------------------------------------
def of_its_own(x):
    a = 3
    return sorted(sys._getframe().f_locals), x + a


def peek(depth):
    return sorted(sys._getframe(depth).f_locals)


def of_the_caller(x):
    a, y = 3, x + 1
    return peek(1), y


def back(x):
    b = 2

    def inner():
        return inspect.currentframe().f_back.f_locals["b"]

    return x + inner()


def from_the_stack(x):
    b = 2

    def inner():
        return inspect.stack()[1].frame.f_locals["b"]

    return x + inner()


def handed_up(x):
    b = 2

    def get():
        return sys._getframe(1)

    return x + get().f_locals["b"]


def written(x):
    a, y = 3, x + 1
    sys._getframe().f_locals["a"] = 8  # since 3.13 that is the variable
    return a, y


def behind_another_break(x):
    y = x * 2
    print(end="")
    return sys._getframe().f_locals["y"] + y


def two_below(x):
    return of_the_caller(x + 1), back(x) * 2


def of_a_traceback(x):
    q = 3
    try:
        raise ValueError
    except ValueError as e:
        return sorted(e.__traceback__.tb_frame.f_locals), sys.exc_info()[2].tb_frame.f_globals["__name__"], x + q


def of_frames_that_raised(x):
    def inner(v):
        raise ValueError

    def middle(v):
        m = 4
        inner(v)

    found = []
    try:
        middle(x)
    except ValueError as e:
        tb = e.__traceback__
        while tb is not None:
            found.append((tb.tb_frame.f_code.co_name, sorted(tb.tb_frame.f_locals)))
            tb = tb.tb_next
    return found, x * 2


@pytest.mark.parametrize(
    "fn",
    [of_its_own, of_the_caller, back, from_the_stack, handed_up, written, behind_another_break, two_below, of_a_traceback,
     of_frames_that_raised],
    ids=lambda fn: fn.__name__,
)
def test_variables_of_frames(fn):
    compiled = pliant.compile(fn)
    for n in (2, 3, 4):
        x = torch.ones(n)
        assert repr(compiled(x)) == repr(fn(x))


def test_frames_whose_variables_nobody_looks_at_stay_compiled():
    def fn(x):
        return sys._getframe().f_code.co_name, x + 1

    assert pliant.compile(fn)(torch.ones(2))[0] == "fn"
    assert pliant.stats()["captures"] == 2


def test_names_and_lines_of_frames_in_tracebacks_are_read_in_the_graph():
    def fn(x):
        try:
            raise ValueError
        except ValueError as e:
            return e.__traceback__.tb_frame.f_code.co_name, e.__traceback__.tb_lineno > 0, x + 1

    assert pliant.compile(fn, fullgraph=True)(torch.ones(2))[:2] == ("fn", True)
