"""Runtime assertions in whole programs: what eager would have raised for is raised, early, with the user's line; no more than needed."""

from __future__ import annotations

import contextlib
import inspect
import os
import re

import pytest
import torch

import pliant
from pliant.codegen import aten
from tests.helpers import check, compiled, own_backend


@pytest.fixture
def sources(monkeypatch):
    """The text of every program that is generated from now on."""
    found = []
    original = aten.compile_text

    def note(source, name, namespace):
        found.append(source)
        return original(source, name, namespace)

    monkeypatch.setattr(aten, "compile_text", note)
    return found


def line_of(fn, text):
    """`file:line` of the first line of `fn` that contains `text`."""
    lines, first = inspect.getsourcelines(fn)
    return f"test_asserts.py:{first + next(i for i, line in enumerate(lines) if text in line)}"


def raised(fn, *args):
    with pytest.raises(Exception) as info:
        fn(*args)
    return info.value


def told(error):
    """The exception's words: eager's, and what pliant adds."""
    return "\n".join([str(error), *getattr(error, "__notes__", ())])


def whole(*values):
    return torch.tensor(values)


def checked(x, sizes):
    n, m = sizes[0].item(), sizes[1].item()
    torch._check(n >= 2, lambda: "n is too small")
    torch._check(m <= 7, lambda: "m is too large")
    y = x * n
    return y + m


def test_several_assertions_each_with_its_own_words():
    f = compiled(checked)
    x = torch.ones(3)
    assert f(x, whole(2, 7)).tolist() == [9.0] * 3
    for sizes, words in ((whole(1, 7), "too small"), (whole(2, 8), "too large"), (whole(0, 9), "too small")):
        want, got = raised(checked, x, sizes), raised(f, x, sizes)
        assert type(got) is type(want) and words in str(want) and words in str(got)
    assert f(x, whole(3, 0)).tolist() == [3.0] * 3
    assert pliant.stats()["captures"] == 1 and pliant.stats()["graph_breaks"] == 0


def test_an_assertion_stands_before_what_does_not_need_its_values(sources):
    pliant.compile(checked, backend="aten", strict=True)(torch.ones(3), whole(2, 7))
    (text,) = sources
    assert text.index("u0 = ") < text.index("too small") < text.index("u1 = ") < text.index("too large") < text.index(" * ")


@pytest.mark.skipif(os.environ.get("PLIANT_TEST_TIERS") == "1", reason="there are two sources of each graph")
@own_backend
def test_implied_assertions_are_not_emitted(sources):
    def fn(x, sizes):
        n, m = sizes[0].item(), sizes[1].item()
        torch._check(n >= 4)
        torch._check(n >= 1)
        torch._check(n + m >= m)
        torch._check(n * 2 > 7)
        torch._check(m == n)
        torch._check(m > 3)
        return x + n

    f = compiled(fn)
    assert f(torch.ones(2), whole(4, 4)).tolist() == [5.0, 5.0]
    assert sum(text.count("raise ") for text in sources) == 2
    assert isinstance(raised(f, torch.ones(2), whole(4, 5)), RuntimeError)
    assert isinstance(raised(f, torch.ones(2), whole(3, 3)), RuntimeError)


def fill(x, lengths):
    parts = torch.split(x, lengths.tolist())
    return torch.cat([p * 2 for p in parts])


@own_backend
def test_an_error_without_words_names_the_line_and_the_values():
    f = compiled(fill)
    assert f(torch.ones(6), whole(1, 2, 3)).shape == (6,)
    assert isinstance(raised(fill, torch.ones(6), whole(1, 2, 4)), RuntimeError)
    got = raised(f, torch.ones(6), whole(1, 2, 4))
    assert str(got) == str(raised(fill, torch.ones(6), whole(1, 2, 4)))
    assert isinstance(got, RuntimeError) and line_of(fill, "torch.split") in told(got), told(got)
    assert "torch.split(x, lengths.tolist())" in told(got), told(got)
    assert re.search(r"= 4\b", told(got)), told(got)


def test_assertions_of_a_training_graph():
    def fn(x, w, sizes):
        n = sizes[0].item()
        torch._check(n >= 2, lambda: "too few")
        y = (x * w).view(n, -1)
        m = sizes[1].item()
        torch._check(m != 3, lambda: "three")
        return (y * m).sum()

    f = compiled(fn)
    w = torch.full((6,), 2.0, requires_grad=True)
    for sizes in (whole(2, 5), whole(3, 4)):
        w.grad = None
        f(torch.arange(6.0), w, sizes).backward()
        assert w.grad.tolist() == (torch.arange(6.0) * sizes[1]).tolist()
    assert "too few" in str(raised(f, torch.arange(6.0), w, whole(1, 5)))
    assert "three" in str(raised(f, torch.arange(6.0), w, whole(2, 3)))
    assert isinstance(raised(fn, torch.arange(6.0), w, whole(4, 5)), RuntimeError)
    assert line_of(fn, "view(n, -1)") in told(raised(f, torch.arange(6.0), w, whole(4, 5)))
    assert pliant.stats()["captures"] == 1


def inner(x, n):
    return x.narrow(0, 0, n)


def test_an_assertion_of_an_inlined_callee_names_the_line_of_the_callee():
    def fn(x, sizes):
        return inner(x + 1, sizes[0].item()) * 2

    f = compiled(fn)
    assert f(torch.ones(5), whole(3)).shape == (3,)
    assert isinstance(raised(fn, torch.ones(5), whole(6)), RuntimeError)
    assert line_of(inner, "narrow") in told(raised(f, torch.ones(5), whole(6)))


def test_assertions_after_a_graph_break():
    def fn(x, sizes):
        n = sizes[0].item()
        torch._check(n > 0, lambda: "before")
        y = x * n
        pliant.graph_break()
        m = sizes[1].item()
        torch._check(m > n, lambda: "after")
        return y.sum() + m

    f = compiled(fn)
    assert f(torch.ones(2), whole(1, 2)).item() == 4.0
    assert "before" in str(raised(f, torch.ones(2), whole(0, 2)))
    assert "after" in str(raised(f, torch.ones(2), whole(2, 2)))
    assert f(torch.ones(2), whole(2, 5)).item() == 9.0
    assert pliant.stats()["graph_breaks"] == 1


def test_nothing_is_written_before_an_assertion_fails():
    def fn(x, state, sizes):
        n = sizes[0].item()
        torch._check(n > 0, lambda: "positive")
        state.add_(1)
        return x * n

    f, state = compiled(fn), torch.zeros(2)
    f(torch.ones(2), state, whole(1))
    raised(f, torch.ones(2), state, whole(0))
    assert state.tolist() == [1.0, 1.0]


class Stepper:
    """Its end depends on data."""

    def __init__(self, n):
        self.n, self.i = n, 0

    def __iter__(self):
        return self

    def __next__(self):
        if self.i >= self.n:
            raise StopIteration
        self.i += 1
        return self.i


class Sequence:
    def __init__(self, n):
        self.n = n

    def __getitem__(self, i):
        if i >= self.n:
            raise IndexError
        return i

    @property
    def many(self):
        if self.n < 3:
            raise AttributeError("few")
        return self.n


def test_exceptions_that_are_answers():
    """What tells a loop to end, or `hasattr` that there is nothing, is no error of the program."""

    def fn(x, sizes):
        n = sizes[0].item()
        return [x * i for i in Stepper(n)], list(Sequence(n)), hasattr(Sequence(n), "many"), next(Stepper(n), "none")

    check(fn, *[(torch.ones(2), whole(n)) for n in (2, 3, 0, 4, 1)])


@pytest.mark.parametrize("writes", [False, True])
def test_a_branch_that_only_raises_is_told_where_it_raises(writes):
    def program(x, y):
        if writes:
            x.zero_()
        if y.sum() > 3:
            raise ValueError(
                "too much"
            )
        return x + 1

    calls = [(torch.ones(n), torch.full((1,), float(v))) for n, v in ((3, 1), (4, 2), (5, 7), (3, 1), (2, 9))]
    check(program, *calls)


# -- under context managers and handlers that do not take the exception ------------------------------------------------------
SEEN = []


class Own:
    def __init__(self, takes=False):
        self.takes = takes

    def __enter__(self):
        SEEN.append("in")

    def __exit__(self, kind, *_):
        SEEN.append(kind and kind.__name__)
        return self.takes


def under_no_grad(x):
    with torch.no_grad():
        if not torch.all(x > 0):
            raise ValueError("not above zero")
    return x + 1


def behind_output(x):
    print("looked at")
    SEEN.append(1)
    with torch.inference_mode():
        if (x <= 0).any():
            raise ValueError(f"sum {x.sum().item():.2f}")
    return x + 1


def under_a_profile(x):
    with torch.profiler.record_function("checks"):
        if not x.sum() > 0:
            raise AssertionError("bad")
    return x * 2


def under_its_own(x):
    with Own():
        if not x.sum() > 0:
            raise AssertionError("bad")
    return x * 2


def swallowed(x):
    with Own(True):
        if x.sum() <= 0:
            raise ValueError("swallowed")
        x = x + 1
    return x * 2


def suppressed(x):
    with contextlib.suppress(ValueError):
        if x.sum() <= 0:
            raise ValueError("suppressed")
        x = x + 1
    return x * 2


def suppressed_other(x):
    with contextlib.suppress(KeyError):
        if x.sum() <= 0:
            raise ValueError("not suppressed")
        x = x + 1
    return x * 2


def before_finally(x):
    try:
        if x.sum() <= 0:
            raise ValueError("finally")
        x = x + 1
    finally:
        SEEN.append("finally")
    return x * 2


def another_handler(x):
    try:
        if x.sum() <= 0:
            raise ValueError("not a KeyError")
        x = x + 1
    except KeyError as e:
        raise RuntimeError("never") from e
    return x * 2


def its_handler(x):
    try:
        if x.sum() <= 0:
            raise ValueError("taken")
        x = x + 1
    except ValueError as e:
        SEEN.append(str(e))
    return x * 2


def behind_a_write(x):
    x.add_(1)
    with torch.no_grad():
        if x.sum() <= 3:
            raise ValueError("small")
    return x * 2


def a_callers_handler(x):
    def check(x):
        with torch.set_grad_enabled(False):
            if not (x > 0).all():
                raise AssertionError("zero")
        return 1 / x

    try:
        return check(x)
    except AssertionError:
        return x - 1


def while_another_is_handled(x):
    x.add_(1)
    n = x.sum().item()
    try:
        raise KeyError("first")
    except KeyError:
        if n < 0:
            raise ValueError("second")  # noqa: B904
    return x + 1


ONE_GRAPH = (under_no_grad, behind_output, under_a_profile, suppressed_other, another_handler)
OTHERS = (under_its_own, swallowed, suppressed, before_finally, its_handler, behind_a_write, a_callers_handler, while_another_is_handled)


def outcome(fn, x, capsys):
    SEEN.clear()
    try:
        result = fn(x).tolist()
    except Exception as e:
        result = type(e), str(e), type(e.__context__)
    modes = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
    return result, SEEN[:], capsys.readouterr().out, x.tolist(), modes


@pytest.mark.parametrize("fn", [*ONE_GRAPH, *OTHERS], ids=lambda fn: fn.__name__)
def test_errors_that_pass_managers_and_handlers(fn, capsys):
    """What the program raises on data is an assertion of the graph also inside of a `with` and a `try`, unless that would take it."""
    c = compiled(fn)
    for i in range(12):
        x = torch.rand(2 + i % 4, generator=torch.Generator().manual_seed(i)) + 0.1
        x = -x if i in (3, 6, 7, 9) else x
        assert outcome(c, x.clone(), capsys) == outcome(fn, x.clone(), capsys)
    if own_backend() and fn in ONE_GRAPH:
        assert (pliant.stats()["captures"], pliant.stats()["graph_breaks"]) == (1, 0)
