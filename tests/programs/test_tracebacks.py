"""Tracebacks: what an exception went through is the same list of the user's lines, whatever breaks on its way."""

from __future__ import annotations

import contextlib
import os
import traceback

import pytest
import torch

from tests.helpers import compiled, pliant
from tests.programs.registry import t


def fails(x, n):
    x = x + 1
    raise ValueError("here", n)


@contextlib.contextmanager
def breaking_at_exit():
    try:
        yield 1
    finally:
        pliant.graph_break()


class Keeps:
    """A context manager that keeps what it was told, and swallows it."""

    def __enter__(self):
        return self

    def __exit__(self, kind, error, tb):
        self.seen = [(f.name, f.lineno) for f in traceback.extract_tb(tb)]
        return True


def in_finally(x, n):
    try:
        return fails(x, n)
    finally:
        pliant.graph_break()


def in_with(x, n):
    with breaking_at_exit():
        raise KeyError(n)


def in_nested(x, n):
    try:
        try:
            fails(x, n)
        except ValueError:
            pliant.graph_break()
            try:
                raise
            finally:
                pliant.graph_break()
    finally:
        x = x * 2


def raised_again(x, n):
    try:
        fails(x, n)
    except ValueError as e:
        pliant.graph_break()
        try:
            raise e
        except ValueError as f:
            pliant.graph_break()
            raise KeyError(n) from f


def from_generator(x, n):
    def gen():
        try:
            yield x
        finally:
            pliant.graph_break()

    for v in gen():
        fails(v, n)


def in_generator(x, n):
    def gen():
        yield x
        fails(x, n)

    try:
        return sum(gen())
    finally:
        pliant.graph_break()


def while_handling(x, n):
    """The call breaks, for it may raise what a `try` block is around; what it raises leaves by the end of the handler, which is resumed."""

    def gen():
        yield x
        yield (n, n) + n

    try:
        raise KeyError(n)
    except KeyError as error:
        g = gen()
        return list(g), error


def behind_a_handled_one(x, n):
    """The loop is one that stays in Python, and begins while an exception is handled; what is behind the handler handles nothing."""
    try:
        try:
            fails(x, n)
        finally:
            for _ in range(n):
                pliant.graph_break()
    except ValueError:
        pass
    raise KeyError(n)


def in_a_handler(x, n):
    def gen():
        yield x
        raise KeyError(n)

    try:
        fails(x, n)
    except ValueError:
        for _ in gen():
            pliant.graph_break()


def with_traceback(x, n):
    try:
        fails(x, n)
    except ValueError as e:
        error = e.with_traceback(None)
        pliant.graph_break()
        raise error from None


def refusing(n):
    yield torch.relu(n)


def of_a_starred_target(x, n):
    try:
        *a, b = refusing(n)
    finally:
        n += 1
    return a, b


def of_starred_arguments(x, n):
    try:
        print(*refusing(n))
    finally:
        n += 1
    return x


def lines(error: BaseException | None) -> list:
    """The user's lines in the tracebacks of an exception and of what it came from."""
    out = []
    while error is not None:
        out.append([f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == __file__][1:])
        error = error.__cause__ or error.__context__
    return out


def called(fn, *args):
    with pytest.raises((ValueError, KeyError, TypeError)) as info:
        fn(*args)
    return lines(info.value)


FUNCTIONS = [
    in_finally, in_with, in_nested, raised_again, from_generator, in_generator, while_handling, behind_a_handled_one, in_a_handler,
    with_traceback, of_a_starred_target, of_starred_arguments,
]  # fmt: skip


@pytest.mark.parametrize("fn", FUNCTIONS)
def test_traceback_across_breaks(fn):
    target = compiled(fn)
    want = called(fn, t(3), 2)
    for k in (3, 4, 5):
        got = called(target, t(k), 2)
        assert len(got) == len(want)
        for a, b in zip(want, got, strict=True):
            assert a[-1:] == b[-1:] and list(dict.fromkeys(a)) == list(dict.fromkeys(x for x in b if x in a))


def test_traceback_as_an_object():
    def fn(x, n):
        keeps = Keeps()
        with keeps:
            fails(x, n)
        try:
            fails(x, n)
        except ValueError as e:
            error, line = e, e.__traceback__.tb_next.tb_lineno
        return x * 2, keeps.seen, line, error

    target = compiled(fn)
    want = fn(t(3), 2)
    for k in (3, 4):
        got = target(t(k), 2)
        assert got[1:3] == want[1:3]
        assert lines(got[3]) == lines(want[3])


def test_exceptions_from_outside_are_left_alone():
    error = ValueError("kept")

    def fn(x, e):
        try:
            raise e
        except ValueError as same:
            assert same is e
        return x + 1

    target = compiled(fn)
    for k in (3, 4):
        error.__traceback__ = None
        target(t(k), error)
        assert [(f.filename, f.name) for f in traceback.extract_tb(error.__traceback__)] == [(__file__, "fn")]


# -- what is marked of a line -----------------------------------------------------------------------------------------------------
def of_c(x, n):
    return 1, os.stat("/é" + "q" * n), 3


def over_lines(x, n):
    y = x + 1
    return [y, os.stat(
        "/é" + "q" * n,
    ), 2]  # fmt: skip


def deep(n):
    v = 1
    return v + os.stat("/é" + "q" * n).st_size + 1


def in_a_callee(x, n):
    return x.sum(), deep(n), 1


def in_an_attribute(x, n):
    s = "é", type("T", (), {"__getattr__": lambda self, name: os.stat("/é" + name)})()
    return s[0], print(end=""), s[1].nothing, 2


def behind_breaks(x, n):
    print(end="")
    y = x * 2
    print(end="")
    return y, os.stat("/é" + "q" * n), 2


@pytest.mark.parametrize("fn", [of_c, over_lines, in_a_callee, in_an_attribute, behind_breaks])
def test_marked_columns(fn):
    target = compiled(fn)
    for k in (2, 3, 3):
        said = []
        for f in (fn, target):
            with pytest.raises(OSError) as info:
                f(t(3), k)
            found = traceback.extract_tb(info.value.__traceback__)
            said.append([(f.name, f.lineno, f.end_lineno, f.colno, f.end_colno) for f in found if f.name in (fn.__name__, "deep")])
        assert said[1] == said[0]
