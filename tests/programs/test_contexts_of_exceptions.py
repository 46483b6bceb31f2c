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
