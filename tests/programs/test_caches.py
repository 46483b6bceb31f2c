"""Caches that libraries keep: `functools.lru_cache` of tensors, pickles of keywords as keys, views of dicts that are kept."""

from __future__ import annotations

import collections
import enum
import functools
import pickle
import time

import pytest
import torch

import pliant
from pliant import events


def breaks():
    return [e.fields["reason"] for e in events.events("graph_break")]


def compiled(fn, **options):
    pliant.reset()
    return pliant.compile(fn, strict=True, **options)


# -- answers that are tensors ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("cache", [functools.cache, functools.lru_cache(maxsize=8)])
def test_a_cached_tensor_is_an_input(cache):
    @cache
    def window(n, dtype):
        return torch.hann_window(n).to(dtype)

    def fn(x):
        return x * window(4, x.dtype).sum()

    f = compiled(fn, fullgraph=True)
    for n in (3, 5, 4):
        x = torch.randn(n)
        assert torch.equal(f(x), fn(x))
    assert pliant.stats()["captures"] == 1
    kept = window(4, torch.float32)
    kept.add_(1)  # it is read again in each call
    x = torch.randn(3)
    assert torch.equal(f(x), fn(x)) and window(4, torch.float32) is kept
    window.cache_clear()
    assert torch.equal(f(x), fn(x))


def test_cached_tensors_in_containers_and_writes_to_them():
    @functools.cache
    def tables(n):
        return {"all": torch.arange(float(n)), "one": [n, torch.ones(())]}

    def fn(x):
        t = tables(3)
        t["one"][1].add_(1)
        return x + t["all"] + t["one"][1], t

    f = compiled(fn)
    answers = [f(torch.zeros(3)) for _ in range(3)]
    assert [a.tolist() for a, _ in answers] == [[2, 3, 4], [3, 4, 5], [4, 5, 6]]
    assert all(t is answers[0][1] for _, t in answers) and not breaks()


class Kind(enum.Enum):
    WIDE = "wide"
    NARROW = "narrow"


def test_members_of_enumerations_as_keys():
    @functools.cache
    def weight(kind):
        return torch.full((2,), 3.0 if kind is Kind.WIDE else 5.0)

    def fn(x, kind):
        return x * weight(kind)

    f = compiled(fn)
    for kind in (Kind.WIDE, Kind.NARROW, Kind.WIDE):
        assert torch.equal(f(torch.ones(2), kind), fn(torch.ones(2), kind))
    assert not breaks()


def test_what_draws_or_changes_something_is_run_once():
    log = []

    @functools.cache
    def noise(n):
        return torch.rand(n)

    @functools.cache
    def logged(n):
        log.append(n)
        return torch.ones(n)

    @functools.cache
    def now(n):
        return time.perf_counter() + n

    def fn(x):
        return x + noise(3) + logged(3) + now(1)

    f = compiled(fn)
    first = f(torch.zeros(3))
    assert all(torch.equal(f(torch.zeros(3)), first) for _ in range(3)) and log == [3]
    assert torch.equal(fn(torch.zeros(3)), first)


def test_a_break_for_the_sake_of_a_miss_is_met_once():
    @functools.cache
    def noise(n):
        return torch.rand(n)

    f = compiled(lambda x: x + noise(3))
    for _ in range(4):
        f(torch.zeros(3))
    captures = pliant.stats()["captures"]
    events_before = len(breaks())
    for n in (1, 3):
        f(torch.zeros(n, 3))
    assert len(breaks()) == events_before == 1 and pliant.stats()["captures"] <= captures + 2


# -- pickles ---------------------------------------------------------------------------------------------------------------
def memoized(method):
    @functools.wraps(method)
    def wrapper(self, *args, **kwargs):
        key = (method.__name__, args, pickle.dumps(kwargs))
        if key not in self.memo:
            self.memo[key] = method(self, *args, **kwargs)
        return self.memo[key]

    return wrapper


class Operator:
    def __init__(self, x):
        self.x, self.memo = x, {}

    @memoized
    def scaled(self, by, *, bias=0):
        return self.x * by + bias

    def total(self):
        return self.scaled(2).sum() + self.scaled(2).mean() + self.scaled(2, bias=1).sum()


def test_pickled_keywords_are_keys():
    f = compiled(lambda x: Operator(x).total(), fullgraph=True)
    for n in (3, 5, 4):
        x = torch.randn(n)
        assert torch.allclose(f(x), Operator(x).total())
    assert pliant.stats()["captures"] == 1


def test_pickles_of_values_are_those_of_each_call():
    def fn(x, a, b):
        return pickle.dumps({"a": a, "b": [b, (1, None)]}), pickle.dumps(a, 2), pickle.dumps(b, protocol=0)

    f = compiled(fn)
    one = [1, 2]
    given = [("s", 1.5), ("t", 1.5), ("s", 2.5), (b"s", "s"), (one, one), (one, [1, 2]), ([1, 2], one), ((), []), ({}, {}), (3, 4)]
    for a, b in given * 2:
        assert f(torch.ones(2), a, b) == fn(torch.ones(2), a, b)


# -- views of dicts ----------------------------------------------------------------------------------------------------------
class Holder:
    def __init__(self, kind):
        self.d = kind(a=1, b=2)
        self.names, self.amounts, self.pairs = self.d.keys(), self.d.values(), self.d.items()


@pytest.mark.parametrize("kind", [dict, collections.OrderedDict])
def test_views_that_an_object_keeps(kind):
    def fn(x, h):
        n = len(h.names)
        h.d["c"] = n
        for amount in h.amounts:
            x = x + amount
        return x, "c" in h.names, list(h.pairs), h.names

    f = compiled(fn)
    for more in ({}, {"z": 3}, {}):
        mine, theirs = Holder(kind), Holder(kind)
        mine.d.update(more)
        theirs.d.update(more)
        (x, *got), (y, *want) = f(torch.ones(2), mine), fn(torch.ones(2), theirs)
        assert torch.equal(x, y) and got[:2] == want[:2] and list(got[2]) == list(want[2]) and got[2] is mine.names
        assert mine.d == theirs.d
    assert not breaks()


def test_views_behind_a_graph_break():
    def fn(x):
        names = collections.OrderedDict(a=1, b=2).keys()
        pliant.graph_break()
        return x + len(names)

    f = compiled(fn)
    assert torch.equal(f(torch.ones(2)), torch.full((2,), 3.0)) and len(breaks()) == 1


# -- classes as keys --------------------------------------------------------------------------------------------------------
def test_a_class_of_tensors_as_a_key():
    """As `opt_einsum` finds out whose arrays it is given. A metaclass that compares classes in its own way is asked."""

    @functools.cache
    def backend(cls):
        return cls.__module__.split(".")[0]

    def fn(x):
        return x * 2, backend(x.__class__)

    f = compiled(fn, fullgraph=True)
    for x in (torch.ones(3), torch.nn.Parameter(torch.ones(4)), torch.ones(5)):
        assert f(x)[1] == fn(x)[1] == "torch"

    asked = []

    class Meta(type):
        def __hash__(cls):
            asked.append(cls)
            return 1

    class Own(metaclass=Meta):
        pass

    def other(x):
        return x * 2, backend(Own)

    f = compiled(other)
    for n in (3, 4, 5):
        want = other(torch.ones(n))
        counted = len(asked)
        got = f(torch.ones(n))
        assert torch.equal(got[0], want[0]) and got[1] == want[1] and len(asked) == 2 * counted
        asked.clear()
