"""Frames suspended at graph breaks, put together again: handlers, nesting, loops, exception state, tracebacks."""

from __future__ import annotations

import sys
import traceback

import pytest
import torch

import pliant
from pliant import native
from pliant.jit import resume

X = torch.arange(3.0)


@pliant.skip
def outside(log, value=None, error=None):
    """Runs between the graphs."""
    exc = sys.exc_info()[1]
    log.append((value, type(exc).__name__ if exc is not None else None))
    if error is not None:
        raise error
    return value


def handlers(log, x, error):
    try:
        x = x + 1
        x = x * outside(log, 2, error)
    except ValueError as e:
        log.append(("handled", repr(e)))
        outside(log, "in handler")
        x = x - 1
    finally:
        x = x * 2
        outside(log, "in finally")
    return x


def nested_handlers(log, x, error):
    def inner(y):
        try:
            return y + outside(log, 1, error)
        except KeyError:
            outside(log, "inner")
            raise ValueError("from inner") from None

    try:
        a = inner(x) * 2
    except ValueError as e:
        a = x - len(e.args)
    return a + inner(x)


def in_handler(log, x, error):
    try:
        raise LookupError("first")
    except LookupError as e:
        y = x + outside(log, 1)
        try:
            z = y + outside(log, 2, error)
        except Exception as f:
            log.append((repr(f), repr(f.__context__)))
            z = y
        log.append((repr(sys.exc_info()[1]), e.args))
    log.append(sys.exc_info()[1])
    return z


def deep(log, x, error):
    def a(v):
        return b(v) + 1

    def b(v):
        return c(v, k=2) * 2

    def c(v, *, k):
        return v + outside(log, k, error)

    return [a(x), outside(log, len(log)), max(1, outside(log, 3)) + a(x)]


def loop(log, x, error):
    total = x
    for i in range(3):
        try:
            if outside(log, i) == 1:
                continue
            total = total + i
        finally:
            total = total * 2
        if i == 2 and error is not None:
            raise error
    else:
        log.append("else")
    return total


def comprehension(log, x, error):
    return [x * outside(log, k, error if k == 2 else None) for k in range(4) if outside(log, "if") is None]


class Swallow:
    def __init__(self, log):
        self.log = log

    def __enter__(self):
        return outside(self.log, 5)

    def __exit__(self, kind, e, tb):
        self.log.append(("exit", kind and kind.__name__))
        return kind is KeyError


def contexts(log, x, error):
    with torch.no_grad(), Swallow(log) as k:
        x = x * k
        outside(log, "body", error)
        x = x + 1
    return x, torch.is_grad_enabled()


def branch(log, x, error):
    try:
        if x.sum() > 2 and (x.min() < 0 or outside(log, True, error)):
            return x * 2
    except KeyError:
        return x * 3
    return x * 4


def arguments(log, x, error):
    return dict(a=outside(log, 1), b=[outside(log, 2), *map(abs, [outside(log, -3)])], **{"c": f"{outside(log, 4)!r:>3}"}), x + 1


PROGRAMS = [handlers, nested_handlers, in_handler, deep, loop, comprehension, contexts, branch, arguments]
ERRORS = [None, ValueError("v"), KeyError("k")]


def run(fn, x, error):
    log = []
    if error is not None:
        error = type(error)(*error.args)
    try:
        value = fn(log, x, error)
    except Exception as e:
        lines = [f.lineno for f in traceback.extract_tb(e.__traceback__) if f.filename == __file__]
        return "raised", repr(e), repr(e.__context__), lines[-1], log
    return "returned", value, log


def same(a, b):
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(v, b[k]) for k, v in a.items())
    return a == b


@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda f: f.__name__)
def test_breaks(fn):
    f = pliant.compile(fn, strict=True)
    for n in (3, 4, 5):
        for error in ERRORS:
            x = torch.arange(float(n))
            want, got = run(fn, x, error), run(f, x, error)
            assert same(want, got), (error, want, got)
    assert pliant.stats()["fallbacks"] == 0 and pliant.stats()["captures"] > 0
    if fn is not branch:
        assert pliant.stats()["graph_breaks"] > 0


def test_callers_exception_state_is_kept():
    def fn(x):
        try:
            raise KeyError
        except KeyError:
            pliant.graph_break()
            x = x + 1
        return x

    f = pliant.compile(fn, strict=True)
    try:
        raise ValueError("caller")
    except ValueError as e:
        f(X)
        assert sys.exc_info()[1] is e


def test_inlined_frames_are_in_the_traceback():
    def leaf(x):
        return x + outside([], 1, ZeroDivisionError("z"))

    def middle(x):
        return leaf(x) * 2

    def fn(x):
        return middle(x) - 1

    with pytest.raises(ZeroDivisionError) as want:
        fn(X)
    with pytest.raises(ZeroDivisionError) as got:
        pliant.compile(fn, strict=True)(X)

    def user(e):
        return [(f.name, f.lineno) for f in traceback.extract_tb(e.__traceback__) if f.filename == __file__][1:]

    assert user(got.value) == user(want.value)


def test_depth_costs_linearly():
    def down(x, n):
        if n == 0:
            pliant.graph_break()
            return x
        return down(x, n - 1) + 1

    def fn(x):
        return down(x, 30)

    f = pliant.compile(fn, strict=True)
    for n in (3, 4):
        x = torch.arange(float(n))
        assert torch.equal(f(x), fn(x))
    assert pliant.stats()["graph_breaks"] == 1


def test_resume_functions_are_named_after_their_offset():
    def fn(x):
        x = x + 1
        pliant.graph_break()
        return x * 2

    f = pliant.compile(fn, strict=True)
    f(X)
    (entry,) = native.entries(fn.__code__)
    points = [v for v in entry.target.__globals__.values() if isinstance(v, native.EntryPoint)]
    assert len(points) == 1
    code = points[0]._fn.__code__
    assert code.co_name.startswith("__resume_at_") and resume.origin_of(code)[0] is fn.__code__
    assert code.co_filename == __file__


def test_generators_survive_a_break():
    def fn(x, log):
        def gen(n):
            try:
                for i in range(n):
                    yield x * i
            finally:
                log.append("closed")

        fresh, running = gen(2), gen(3)
        out = [next(running)]
        pliant.graph_break()
        out += [next(running), *fresh]
        running.close()
        return out

    f = pliant.compile(fn, strict=True)
    for n in (3, 4):
        x, a, b = torch.arange(float(n)), [], []
        assert same(fn(x, a), f(x, b)) and a == b


def test_loops_that_keep_changing_become_regions():
    def fn(x, xs):
        out = x
        for i, y in enumerate(xs):
            if i > 40:
                break
            out = out * 0.5 + y
        else:
            out = out - 1
        return out

    f = pliant.compile(fn, strict=True)
    entries = []
    for n in (2, 3, 5, 7, 9, 50, 11, 4, 30, 60):
        xs = [torch.full((3,), float(k)) for k in range(n)]
        assert torch.equal(f(X, xs), fn(X, xs))
        entries.append(pliant.stats()["entries"])
    assert entries[-1] <= 16


def test_nested_region_loops_do_not_nest_deeper_each_turn():
    def fn(x, rows):
        for row in rows:
            for y in row:
                if y is None:
                    break
                x = x + y
            x = x * 0.5
        return x

    f = pliant.compile(fn, strict=True)
    for n in (2, 3, 4, 5, 6, 300):
        rows = [[1.0, 2.0, None][: 1 + (k + n) % 3] for k in range(n)]
        assert torch.allclose(f(X, rows), fn(X, rows), atol=1e-6)
