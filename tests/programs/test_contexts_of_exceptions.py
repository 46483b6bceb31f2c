"""Contexts of exceptions: what is raised where a program handles nothing has for its context what the caller handles."""

from __future__ import annotations

import contextlib

import pytest
import torch

from tests.helpers import pliant

CONTEXTS = {}


def context(fn):
    CONTEXTS[fn.__name__] = fn
    return fn


def fails():
    raise ValueError("inner")


@context
def context_read(x):
    try:
        fails()
    except ValueError as e:
        return x + 1, repr(e.__context__)


@context
def context_read_behind_a_break(x):
    try:
        fails()
    except ValueError as e:
        pliant.graph_break()
        return x + 1, repr(e.__context__)


@context
def context_given_back(x):
    try:
        fails()
    except ValueError as e:
        return x + 1, e


@context
def context_of_a_chain(x):
    try:
        try:
            fails()
        finally:
            x.nothing  # noqa: B018
    except AttributeError as e:
        return e, e.__context__


@context
def context_of_what_was_made_before(x):
    e = ValueError("made")
    with contextlib.suppress(ValueError):
        raise e
    return e


@context
def context_behind_a_finally(x):
    try:
        pliant.graph_break()
        fails()
    finally:
        pliant.graph_break()


@context
def context_in_a_callee(x):
    try:
        raise KeyError("own")
    except KeyError:

        def callee():
            try:
                if x.sum() > 0:
                    fails()
            finally:
                pliant.graph_break()

        callee()


@context
def context_kept_by_the_outside(x):
    KEPT.append(ValueError("kept"))
    pliant.graph_break()
    with contextlib.suppress(ValueError):
        raise KEPT[-1]
    return KEPT.pop()


KEPT: list = []


@pytest.mark.parametrize("name", CONTEXTS)
@pytest.mark.parametrize("first", [False, True])
def test_what_the_caller_handles_is_the_context(name, first):
    def contexts(e):
        out = []
        while e is not None:
            out.append((type(e), e.args, e.__suppress_context__))
            e = e.__context__
        return out

    def shown(v):
        return contexts(v) if isinstance(v, BaseException) else v.tolist() if isinstance(v, torch.Tensor) else v

    def called(fn, handling):
        try:
            if not handling:
                got = fn(torch.ones(2))
            else:
                try:
                    raise KeyError("outer")
                except KeyError:
                    got = fn(torch.ones(2))
        except Exception as e:
            return ["raised", contexts(e)]
        return [shown(v) for v in (got if isinstance(got, tuple) else (got,))]

    compiled = pliant.compile(CONTEXTS[name])
    for handling in (first, not first, first, not first):
        assert called(CONTEXTS[name], handling) == called(compiled, handling)


# -- what raises in a handler, behind a write ---------------------------------------------------------------------------
POOL = torch.zeros(8)


def risky(n):
    if n % 2:
        raise KeyError(n)
    if n % 3:
        raise ValueError(n)


def a_write_that_raises(x, n):
    y = x * 2
    try:
        risky(n)
    except KeyError:
        POOL.index_add_(0, torch.arange(3), torch.ones(3, dtype=torch.float64))
    return y


def an_index_beyond(x, n):
    y = x * 2
    POOL.add_(1)
    try:
        risky(n)
    except KeyError:
        y = y[n + x.shape[0]]
    return y


def an_index_of_data(x, n):
    POOL.add_(1)
    try:
        risky(n)
    except KeyError:
        x[(x.sum() * 0).long() + n]
    return x


def deeper(x, n):
    if float(x.sum()) > 0:
        raise ValueError(n)
    return x


def sizes_of_data(x, n):
    try:
        deeper(x, n)
    except ValueError:
        k = torch.nonzero(x.sum(1) > 0).squeeze(1)
        POOL.index_add_(0, k.clamp(max=7), torch.ones(k.shape[0], dtype=torch.float64))
    return x


def in_a_finally(x, n):
    try:
        pass
    finally:
        try:
            risky(n)
        except ValueError:
            pass
        except KeyError:
            k = torch.nonzero(x.sum(1) > 0).squeeze(1)
            POOL.index_add_(0, k.clamp(max=7), torch.ones(k.shape[0], dtype=torch.float64))
    return x


def while_it_leaves(x, n):
    POOL.add_(1)
    try:
        risky(n)
    finally:
        x[(x.sum() * 0).long() + n]
    return x


def raised(fn, rows, n):
    POOL.zero_()
    try:
        return str(fn(torch.arange(rows * 2.0).reshape(rows, 2), n))
    except (RuntimeError, IndexError, KeyError) as e:
        return type(e), repr(e.__context__), e.__suppress_context__, POOL.tolist()


@pytest.mark.parametrize(
    "program",
    [a_write_that_raises, an_index_beyond, an_index_of_data, sizes_of_data, in_a_finally, while_it_leaves],
    ids=lambda f: f.__name__,
)
def test_what_raises_in_a_handler_behind_a_write(program):
    compiled = pliant.compile(program)
    for rows, n in ((3, 6), (3, 37), (4, 37), (2, 37), (5, 37), (3, 7), (3, 0), (3, 2)):
        try:
            expected = raised(program, rows, n)
        except ValueError as e:
            expected = repr(e)
        try:
            found = raised(compiled, rows, n)
        except ValueError as e:
            found = repr(e)
        assert found == expected, (rows, n)
