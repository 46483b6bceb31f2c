"""Lists that come in a few lengths: a graph for each, where a list without end, long ones and lengths that multiply split the graph."""

from __future__ import annotations

import random

import pytest
import torch

import pliant
from tests import helpers

WEIGHT = torch.randn(4, 4, generator=torch.Generator().manual_seed(1))
UP_AND_DOWN = [3, 5, 2, 6, 1, 4, 6, 2, 3, 5, 1, 4]


def rows(count, seed=0):
    g = torch.Generator().manual_seed(seed)
    return [torch.randn(2 + i % 3, 4, generator=g) for i in range(count)]


def stacked(xs):
    return torch.stack([(x @ WEIGHT).relu().mean(0) for x in xs])


def summed(xs):
    total = torch.zeros(4)
    for i, x in enumerate(xs):
        total = total + x.sum(0) * (i + 1)
    return total


def by_name(xs):
    return {f"part{i}": x.mean(0) for i, x in enumerate(xs)}


def of_a_dict(xs):
    named = {f"k{i}": x for i, x in enumerate(xs)}
    return [named[k].amax(0) for k in sorted(named, reverse=True)]


def by_pairs(xs):
    return [a.sum() * b.mean() for a, b in zip(xs, xs[1:], strict=False)]


PROGRAMS = [stacked, summed, by_name, of_a_dict, by_pairs]


def run(fn, lengths):
    compiled = helpers.compiled(fn)
    for seed, count in enumerate(lengths):
        xs = rows(count, seed)
        torch.testing.assert_close(compiled(xs), fn(xs))
    return pliant.stats()


@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda f: f.__name__)
def test_a_graph_for_each_length(fn):
    stats = run(fn, UP_AND_DOWN)
    assert stats["captures"] == 6
    assert stats["graph_breaks"] == 0


@pytest.mark.parametrize("start", [(1, 3, 6), (2, 3, 6), (6, 4, 1), (5, 2, 1)], ids=repr)
def test_those_that_begin_in_one_direction(start):
    stats = run(stacked, [*start, *UP_AND_DOWN])
    assert stats["captures"] == 6
    assert stats["graph_breaks"] == 0


SETS = [("job", "edu"), ("age", "sex", "zip"), ("age",), ("age", "sex", "zip", "job", "edu"), ("sex", "job")]
WEIGHTS = dict(zip(("age", "sex", "zip", "job", "edu"), range(5), strict=True))


def weighed(d, k):
    total = torch.zeros(4)
    for name, x in d.items():
        total = total + x.mean(0) * WEIGHTS[name]
    return total, k


def renamed(d, k):
    return {f"{name} {i}": x.amax(0) * k for i, (name, x) in enumerate(sorted(d.items()))}


def by_keys(d, k):
    return [(d[name] * k).sum() for name in d]


def read_dicts(fn, sets, calls, seed=0):
    compiled, rng = helpers.compiled(fn), random.Random(seed)
    for i in range(calls):
        keys = sets(rng)
        d = dict(zip(keys, rows(len(keys), i), strict=True))
        got, want = compiled(d, i % 3 + 2), fn(d, i % 3 + 2)
        torch.testing.assert_close(got, want)
        assert type(want) is not dict or list(got) == list(want)
    return pliant.stats()


@pytest.mark.parametrize("fn", [weighed, renamed, by_keys], ids=lambda f: f.__name__)
@pytest.mark.parametrize("seed", range(3))
def test_dicts_of_a_few_lists_of_keys(fn, seed):
    stats = read_dicts(fn, lambda rng: rng.choice(SETS), 24, seed)
    assert stats["captures"] <= len(SETS) + 1  # (a number becomes a symbol)
    assert stats["graph_breaks"] == 0


@pytest.mark.parametrize("fn", [weighed, renamed, by_keys], ids=lambda f: f.__name__)
def test_dicts_of_any_keys(fn):
    stats = read_dicts(fn, lambda rng: rng.sample(sorted(WEIGHTS), rng.randint(1, 5)), 80)
    assert stats["captures"] < 40
    assert stats["graph_breaks"] > 0


@pytest.mark.parametrize("lengths", [range(1, 30), range(30, 0, -1)], ids=["grows", "shrinks"])
@pytest.mark.parametrize("fn", [stacked, summed, by_name], ids=lambda f: f.__name__)
def test_no_end_in_sight(fn, lengths):
    stats = run(fn, lengths)
    assert stats["captures"] < 16
    assert stats["graph_breaks"] > 0


def test_long_ones():
    rng = random.Random(3)
    assert run(stacked, [rng.randint(1, 60) for _ in range(60)])["captures"] < 20


def test_several_lengths_multiply():
    def fn(xs, ys, zs):
        return stacked(xs), summed(ys), by_name(zs)

    compiled, rng = helpers.compiled(fn), random.Random(5)
    for seed in range(80):
        args = [rows(rng.randint(1, 6), seed + i) for i in range(3)]
        torch.testing.assert_close(compiled(*args), fn(*args))
    assert pliant.stats()["captures"] < 45


def test_large_graphs():
    def fn(xs):
        out = []
        for x in xs:
            for k in range(150):
                x = (x @ WEIGHT).tanh() + k
            out.append(x.mean(0))
        return out

    stats = run(fn, UP_AND_DOWN)
    assert stats["graph_breaks"] > 0


def test_it_is_trained():
    compiled = helpers.compiled(stacked)
    for seed, count in enumerate(UP_AND_DOWN):
        xs = [x.requires_grad_() for x in rows(count, seed)]
        got, want = [torch.autograd.grad(f(xs).square().sum(), xs) for f in (compiled, stacked)]
        torch.testing.assert_close(got, want)
    assert pliant.stats()["captures"] == 6


def test_a_list_that_an_object_has():
    class Bag:
        def __init__(self):
            self.items = []

    def fn(bag, x):
        bag.items.append(x * 2)
        if len(bag.items) > 4:
            bag.items.clear()
        return sum([item.sum() for item in bag.items], torch.zeros(()))

    compiled, ours, theirs = helpers.compiled(fn), Bag(), Bag()
    for k in range(24):
        x = torch.full((3,), float(k))
        torch.testing.assert_close(compiled(ours, x), fn(theirs, x))
        torch.testing.assert_close(ours.items, theirs.items)
