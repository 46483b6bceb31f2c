"""The arena: who lives at once never shares a byte, at the sizes of the hints and at others."""

from __future__ import annotations

import random

import pytest

from pliant.lower.loop_nest import Facts
from pliant.lower.memory import Interval, aligned, plan, value
from pliant.symbolic import Scope


def sizes(scope: Scope) -> list:
    n, m = scope.backed("n", hint=12, lo=1, source=None), scope.backed("m", hint=7, lo=1, source=None)
    return [n * 64, n * 192, n * 256, n * 1024, n * m * 64, n * m * 256, m * 128, n * 4, n * m * 12, 4096, 64]


def check(intervals: list[Interval], given: list[Interval], facts: Facts, env: dict[str, int]) -> int:
    """The bytes of the arena, after looking at every pair."""
    found = plan(intervals, facts, given)
    ends = [aligned(max(value(s, env) for s in slot.sizes)) for slot in found.slots]
    parts = []
    for i, place, at in zip(intervals, found.place, found.within, strict=True):
        begin, size = value(at, env), value(i.size, env)
        assert begin % 64 == 0
        assert begin + size <= (ends[place] if place >= 0 else value(given[-1 - place].size, env))
        if place < 0:  # lent until it is written
            assert i.last < given[-1 - place].first or given[-1 - place].last < i.first
        parts.append((i, place, begin, begin + size))
    for k, (i, place, begin, end) in enumerate(parts):
        for j, other, low, high in parts[:k]:
            assert place != other or i.last < j.first or j.last < i.first or end <= low or high <= begin, (i, j)
    assert found.bytes(env) == sum(ends)
    return sum(ends)


@pytest.mark.parametrize("seed", range(12))
def test_nobody_shares_a_byte(seed):
    rng = random.Random(seed)
    scope = Scope()
    known, facts = sizes(scope), Facts(scope)
    steps = 20

    def interval() -> Interval:
        first = rng.randrange(steps)
        return Interval(rng.choice(known), first, min(steps, first + rng.choice((0, 1, 1, 2, 5, 12))))

    intervals = [interval() for _ in range(rng.randint(1, 30))]
    given = [Interval(rng.choice(known), rng.randrange(steps), steps) for _ in range(rng.randint(0, 3))]
    for env in ({"n": 12, "m": 7}, {"n": 1, "m": 1}, {"n": 333, "m": 2}, {"n": 2, "m": 500}):
        check(intervals, given, facts, env)


def test_small_ones_lie_side_by_side_where_a_large_one_was():
    """The blocks of a transformer: four rows of activations fit where the hidden layer was."""
    scope = Scope()
    n = scope.backed("n", hint=100, lo=1, source=None)
    row, hidden = n * 256, n * 1024
    intervals = [Interval(hidden, 0, 1), *(Interval(row, 2 + k % 2, 4) for k in range(4)), Interval(hidden, 5, 6)]
    facts = Facts(scope)
    assert check(intervals, [], facts, {"n": 100}) == 100 * 1024
    assert check(intervals, [], facts, {"n": 3}) == 3 * 1024
    odd = [Interval(n * 1000, 0, 1), *(Interval(n * 250, 2, 4) for _ in range(4))]  # they would not begin at whole lines of the cache
    assert check(odd, [], facts, {"n": 100}) > 100 * 1000
