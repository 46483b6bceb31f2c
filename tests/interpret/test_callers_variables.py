# ruff: noqa: F841  (variables that are read by their names)
"""Functions that look at the variables of whoever calls them, as `DataFrame.query` of pandas and `numexpr.evaluate` do."""

from __future__ import annotations

import inspect
import sys
import traceback

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


# -- frames and tracebacks that are handed to a library --------------------------------------------------------------------------
def boom(v, k):
    t = k + 1
    raise ValueError("x")


def what_is_shown(x):
    try:
        boom(x, 2)
    except ValueError as e:
        shown = traceback.TracebackException.from_exception(e, capture_locals=True)
        return [(s.name, s.locals) for s in shown.stack], x + 1


def summed_up(x):
    try:
        boom(x, 2)
    except ValueError as e:
        stack = traceback.StackSummary.extract(traceback.walk_tb(e.__traceback__), capture_locals=True)
        return [(s.name, s.locals) for s in stack], x + 1


def walked(x):
    try:
        boom(x, 2)
    except ValueError as e:
        return [(f.f_code.co_name, sorted(f.f_locals)) for f, _ in traceback.walk_tb(e.__traceback__)], x + 1


def inspected(x):
    try:
        boom(x, 2)
    except ValueError:
        return [(i.function, sorted(inspect.getargvalues(i.frame).locals)) for i in inspect.trace()], x + 1


def handled_later(x):
    found = None
    try:
        boom(x, 2)
    except ValueError as e:
        found = e
    print(end="")
    return [sorted(i.frame.f_locals) for i in inspect.getinnerframes(found.__traceback__)], x + 1


def raised_by_what_breaks(x):
    try:
        int("x" if x.sum().item() else "y")
    except ValueError as e:
        return sorted(getattr(e.__traceback__.tb_frame, "f_locals")), x + 1  # noqa: B009


def own_stack(x):
    y = 5
    stack = traceback.StackSummary.extract(traceback.walk_stack(None), limit=1, capture_locals=True)
    return [(s.name, s.locals) for s in stack], x + y


def helpers_stack():
    z = 3
    stack = traceback.StackSummary.extract(traceback.walk_stack(sys._getframe()), limit=2, capture_locals=True)
    return [(s.name, s.locals) for s in stack]


def callers_stack(x):
    y = 6
    return helpers_stack(), x + y


def arguments(x):
    y = 3
    return inspect.getargvalues(sys._getframe()), x + y


def in_a_comprehension(x):
    y = 1
    return [sorted(i.frame.f_locals) for i in inspect.stack()[:1]], x + y


def where_it_stands(x):
    try:
        boom(x, 2)
    except ValueError as e:
        return e.__traceback__.tb_next.tb_frame.f_lineno - boom.__code__.co_firstlineno, x + 1


@pytest.mark.parametrize(
    "fn",
    [what_is_shown, summed_up, walked, inspected, handled_later, raised_by_what_breaks, own_stack, callers_stack, arguments,
     in_a_comprehension, where_it_stands],
    ids=lambda fn: fn.__name__,
)
def test_libraries_that_look_at_variables(fn, monkeypatch):
    monkeypatch.setattr(boom, "__code__", boom.__code__.replace())  # nothing is known of it
    compiled = pliant.compile(fn)
    for n in (2, 3, 4):
        x = torch.ones(n)
        assert repr(compiled(x)) == repr(fn(x))


def test_tracebacks_that_are_handed_on_for_their_lines_leave_the_frame_compiled():
    def fails(v):
        raise ValueError

    def fn(x):
        try:
            fails(x)
        except ValueError as e:
            return traceback.format_tb(e.__traceback__)[-1], x + 1

    assert "raise ValueError" in pliant.compile(fn)(torch.ones(2))[0]
    assert pliant.stats()["captures"] > 1


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
