"""How often a capture begins anew: not where a branch that only the run decides ends the graph, nor for loops that were left before."""

from __future__ import annotations

import collections
import os

import pytest
import torch

import pliant
from pliant.interpret import engine

told: list[float] = []


def tell(x: torch.Tensor) -> None:
    """What a graph breaks at, and no branch may be one operation with."""
    open(os.devnull).close()
    told.append(float(x.sum()))


def of_a_number(x):
    if x.sum().item() > 0:
        tell(x)
    return x + 1


def negated(x):
    positive = x.sum().item() > 0
    if not positive:
        tell(x)
    return x + 1


def either(x):
    n = x.sum().item()
    s = n > 100 or n
    tell(x)
    return x * s


def of_a_tensor(x):
    if x.sum() > 0:
        tell(x)
    return x + 1


@pytest.fixture
def attempts(monkeypatch):
    """By the name of the code that a capture began with: how often it did."""
    counts: collections.Counter[str] = collections.Counter()
    original = engine.attempt

    def attempt(fn, *rest):
        counts[fn.__code__.co_name] += 1
        return original(fn, *rest)

    monkeypatch.setattr(engine, "attempt", attempt)
    return counts


@pytest.mark.parametrize("fn", [of_a_number, negated, either, of_a_tensor], ids=lambda fn: fn.__name__)
def test_a_branch_on_data_is_captured_up_to_there_at_once(fn, attempts):
    pliant.reset()
    compiled = pliant.compile(fn)
    for sign in (1.0, -1.0, 1.0):
        x = torch.full((3,), sign)
        del told[:]
        want = fn(x)
        seen = list(told)
        del told[:]
        assert torch.equal(compiled(x), want) and told == seen
    assert attempts[fn.__name__] == 1


def writing(x, n):
    kept = x.clone()
    while kept.sum() > n:
        kept.sub_(1)
        tell(kept)
    return kept


def test_a_loop_that_captures_have_left_is_left_at_once(attempts):
    """The third capture of the function (for another dtype) does not try its loop again."""
    pliant.reset()
    compiled = pliant.compile(writing)
    spent = []
    for dtype in (torch.float32, torch.float64, torch.int64, torch.int32):
        before = attempts["writing"]
        assert torch.equal(compiled(torch.full((3,), 3, dtype=dtype), 4), writing(torch.full((3,), 3, dtype=dtype), 4))
        spent.append(attempts["writing"] - before)
    assert spent[0] > 1 and spent[2:] == [1, 1], spent

