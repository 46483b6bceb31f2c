"""Branches on numbers that change from call to call: sizes, counters, places in lists. What bounds captures is branches."""

from __future__ import annotations

import pytest
import torch

import pliant
from pliant import events
from tests import helpers
from tests.helpers import check, check_world
from tests.programs.test_joins import ours

SIZES = [3, 20, 18, 5, 17, 16, 40, 7, 30, 12, 9, 33]


@pytest.fixture(autouse=True)
def no_gradients():
    with torch.no_grad():
        yield


def rows(n):
    return torch.linspace(-1, 2, n * 4).view(n, 4)


def cut(x):
    if x.shape[0] > 16:
        x = x[: x.shape[0] // 2]
    y = x * 2
    return y.sigmoid().mean(0) if y.shape[0] % 2 == 0 else y.exp().amax(0) + x.shape[0]


def untouched(x, n):
    if n % 2 == 0:
        x = x @ x.t()
    if n > 5 and x.shape[0] > 7:
        x = x.relu()
    return x.sum() * n, n + 1


def as_truth(x, n):
    y = x
    if n % 3:
        y = x.cumsum(0)
    return y * (n if n % 2 else 1)


CALLS = [(rows(n), k) for k, n in enumerate(SIZES)]
SEPARATE = [(cut, [x[:1] for x in CALLS]), (untouched, CALLS), (as_truth, CALLS)]


@pytest.mark.parametrize("fn, calls", SEPARATE, ids=lambda v: getattr(v, "__name__", ""))
def test_exact(fn, calls):
    check(fn, *calls)


@ours
@pytest.mark.parametrize("fn, calls", SEPARATE, ids=lambda v: getattr(v, "__name__", ""))
def test_one_entry_has_both_sides(fn, calls):
    compiled = helpers.compiled(fn)
    for args in calls * 8:
        compiled(*args)
    stats = pliant.stats()
    assert stats["graph_breaks"] == 0 and stats["captures"] <= 9, [e.fields for e in events.events("branch_open")]


@ours
def test_a_side_that_is_taken_for_long_stays_joined():
    compiled = helpers.compiled(cut)
    for n in SIZES + [20] * 80 + SIZES:
        torch.testing.assert_close(compiled(rows(n)), cut(rows(n)))
    assert pliant.stats()["graph_breaks"] == 0


def counting():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.calls, self.level, self.seen, self.recent = 0, 0.5, {"hot": 0, "cold": 0}, [0, 0, 0]
            self.log = []

        def forward(self, x):
            self.calls += 1
            if x.sum() > 0:
                self.level = self.level * 0.5 + 1
                x = x * 2
            else:
                self.seen["cold"] += x.shape[0]
            if x[0, 0] > 0.3:
                self.recent[1] += 2
            self.log.append((self.calls, self.recent[1]))
            if len(self.log) > 3:
                self.log.pop(0)
            return x + self.calls + self.level, len(self.log)

    model = Model()
    return model, (model.seen, model.recent, model.log)


def test_what_sides_store_in_objects():
    check_world(counting, *[(s * rows(n),) for n, s in zip(SIZES, [1, -1, 1, 1, -1, 0.1] * 2, strict=True)], must_compile=False)


def stores():
    class Box:
        n, kind = 0, 1

    box, other, seen = Box(), Box(), {"pos": 0, "neg": 0, "big": -1}
    box.n = other.n = 0
    box.kind = 1

    def fn(x, same):
        second = box if same else other
        for i in range(3):
            if x[i].sum() > 0:
                seen["pos"] += 1
                if x[i].max() > 1:
                    seen["big"] = i
            else:
                seen["neg"] += x.shape[0]
        if x.sum() > 0:
            box.n += 1
            second.n += 10
        box.kind = 1 if x.max() > 1 else 1.5  # another type
        if x.min() < 0:
            box.new = x.shape[0]  # another attribute
        return x * seen["pos"] + box.n, box.kind

    return fn, (box.__dict__, other.__dict__, seen)


def test_stores_of_all_kinds():
    check_world(stores, *[(s * rows(n), n > 15) for n, s in zip(SIZES, [1, -1, 1, 1, -1, 0.1] * 2, strict=True)], must_compile=False)


@ours
def test_stores_are_no_breaks():
    model, _ = counting()
    compiled = helpers.compiled(model)
    for n in SIZES * 2:
        compiled(rows(n) - 0.5)
    assert pliant.stats()["graph_breaks"] == 0, [e.fields for e in events.events("branch_open")]


def names_by_place():
    out = {}

    def fn(xs, names, again):
        for i, x in enumerate(xs):
            if x.sum() < 0:
                x = -x
            try:
                out[names[i]] = x.mean(0)
            except IndexError:
                out[f"part{i}"] = x.amax(0)
            if again:
                names[i % len(names)] = f"new{i}"  # what was read is not what is there later
        return dict(out)

    return fn, out


WORDS = ["left", "right", "top", "bottom"]
PARTS = [([(-1) ** k * rows(2 + (k + i) % 5) for i in range(1 + k % 6)], WORDS[: 1 + k % 4]) for k in range(14)]


@pytest.mark.parametrize("again", [False, True])
def test_keys_that_only_the_call_knows(again):
    check_world(names_by_place, *[(xs, list(names), again) for xs, names in PARTS], must_compile=False)


@ours
def test_keys_are_no_entries():
    fn, out = names_by_place()
    compiled = helpers.compiled(fn)
    for xs, names in PARTS:
        compiled(xs, list(names), False)
    before = pliant.stats()["captures"]
    for k in range(20):
        words = [f"word {k} {i}" for i in range(1 + k % 4)]
        out.clear()
        compiled(PARTS[k % 14][0], words, False)
        assert list(out)[: len(words)] == words[: len(out)]
    assert pliant.stats()["captures"] - before <= 6 and before <= 40


def test_items_that_are_no_texts():
    def fn(xs, names):
        out = {}
        for i, x in enumerate(xs):
            out[names[i]] = x * 2
        return out

    words = [["a", "b", 3, "c", "d", "e"], ["a", "b", "c", "d", "e", "f"], [1, 2, 3, 4, 5, 6], [("a",), "b", None, "c", "d", "e"]]
    check(fn, *[(xs, words[k % 4]) for k, (xs, _) in enumerate(PARTS)], must_compile=False)


class Part:
    def __init__(self, n: int) -> None:
        self.rows, self.at = range(n, 2 * n, 2), slice(n, None)


def of_ranges(x, r):
    total = x[0] * len(r)
    for i in r:
        total = total + x[i]
    return total, r.stop, 9 in r


OF_SLICES = {
    "an argument": (lambda x, s: (x[s] * 2, s), lambda n: (slice(n, 2 * n),)),
    "some": (lambda x, a, b: (x[a, b], a == b, x[b].sum()), lambda n: (slice(None, n), slice(-n, None))),
    "with a step": (lambda x, s: (x[s], s.start, s.step), lambda n: (slice(3, None, n),)),
    "in a list": (lambda x, parts: [x[s].sum() for s in parts], lambda n: ([slice(0, n), slice(n, 2 * n)],)),
    "of an object": (lambda x, p: x[p.at], lambda n: (Part(n),)),
    "a write": (lambda x, s: (x.__setitem__(s, 1.0), x)[1], lambda n: (slice(n, 2 * n),)),
}


@pytest.mark.parametrize("name", OF_SLICES)
def test_slices_whose_bounds_change(name):
    """They are numbers as others are: symbols from the first change on."""
    fn, given = OF_SLICES[name]
    report = check(fn, *[(rows(30), *given(n)) for n in range(3, 20)], breaks=0)
    assert report.captures <= 4 and report.graph_breaks == 0


@pytest.mark.parametrize("fn", [of_ranges, lambda x, r: x[list(r)], lambda x, r: [x[i] for i in r][-1] * 2], ids=["loop", "list", "items"])
def test_ranges_that_change(fn):
    check(fn, *[(rows(30), range(n, 2 * n, 2)) for n in range(3, 15)], must_compile=False)
    run = helpers.compiled(lambda x, p: fn(x, p.rows))
    for n in range(3, 10):
        run(rows(30), Part(n))
    before = pliant.stats()["captures"]
    for n in range(10, 15):
        run(rows(30), Part(n))
    assert pliant.stats()["captures"] - before <= 1
