"""Long sums: prefixes, slices and totals of ragged lengths."""

from __future__ import annotations

import random

import pytest

from pliant.symbolic import Expr, Scope, expr, ops, subtotals
from pliant.symbolic.linear_sums import Linear
from pliant.symbolic.static import static_range


def ragged(n: int) -> tuple[Scope, Expr, list[Expr], list[Expr]]:
    """A scope with n lengths that sum to s0, and their prefix sums."""
    scope = Scope()
    s = scope.backed("s0", hint=3 * n, size_like=True)
    lengths = [scope.unbacked(f"u{i}", size_like=True) for i in range(n)]
    total: Expr = scope.const(0)
    prefix = [total]
    for u in lengths:
        total = total + u
        prefix.append(total)
    scope.assume(total == s)
    return scope, s, lengths, prefix


@pytest.mark.parametrize("n", [3, 16, 17, 33, 100, 500])
def test_slices_of_a_split(n: int) -> None:
    scope, s, lengths, prefix = ragged(n)
    assert scope.known_true(prefix[-1] == s)
    assert scope.known_true(ops.sum_(lengths) == s)
    assert ops.sum_(lengths) is prefix[-1]
    for k, u in enumerate(lengths):
        assert scope.known_true(prefix[k] >= 0)
        assert scope.known_true(prefix[k + 1] <= s)
        assert scope.known_true(u <= s)
        assert scope.simplify(prefix[k + 1] - prefix[k]) is scope.simplify(u)
        assert not scope.known_true(u >= 1)
    assert len(scope.asserts) == 1


def test_far_apart_prefixes() -> None:
    scope, _, _, prefix = ragged(200)
    rng = random.Random(3)
    for _ in range(40):
        i, j = sorted(rng.sample(range(200), 2))
        assert scope.known_true(prefix[i] <= prefix[j])
        assert not scope.known_true(prefix[i] < prefix[j])
        assert not scope.known_true(prefix[j] <= prefix[i])


def test_another_order_is_the_same_sum() -> None:
    scope, _, lengths, prefix = ragged(60)
    backwards = ops.sum_(reversed(lengths))
    assert scope.known_true(backwards == prefix[-1])
    assert scope.known_true(ops.sum_(lengths[1:]) + lengths[0] == prefix[-1])
    assert not scope.known_true(ops.sum_(lengths[1:]) == prefix[-1])


def test_expressions_stay_short() -> None:
    _, _, _, prefix = ragged(300)
    assert max(len(p.terms) for p in prefix) <= expr.LONG + 1


def test_members_specialized_later() -> None:
    scope = Scope()
    xs = [scope.backed(f"s{i}", hint=i) for i in range(40)]
    total = ops.sum_(xs)
    for x in xs:
        scope.specialize(x)
    assert scope.simplify(total).const == sum(range(40))


def test_random_sums(monkeypatch) -> None:
    """Sums, differences and products of long sums keep their value; ranges contain."""
    monkeypatch.setattr(expr, "LONG", 3)
    monkeypatch.setattr(subtotals, "LONG", 3)
    for seed in range(300):
        rng = random.Random(seed)
        scope = Scope()
        xs = [scope.unbacked(f"u{i}", lo=rng.choice([0, 0, 1, -2, None]), hi=rng.choice([None, 9])) for i in range(12)]
        values = {x.name: rng.randint(max(x.info.lo if x.info.lo is not None else -5, -5), 9) for x in xs}
        pool: list[tuple[Expr, int]] = [(x, values[x.name]) for x in xs]
        for _ in range(30):
            (a, va), (b, vb) = rng.choice(pool), rng.choice(pool[:12] if rng.random() < 0.6 else pool)
            op = rng.choice(["add", "add", "add", "sub", "sub", "mul"])
            if op == "mul" and len(a.terms) * len(b.terms) > 12:
                continue
            e, v = ops.DOORS[op](a, b), {"add": va + vb, "sub": va - vb, "mul": va * vb}[op]
            assert e.evaluate(values) == v
            lo, hi = static_range(e)
            assert lo <= v <= hi
            lo, hi = scope.range(e)
            assert lo <= v <= hi, (e, lo, hi, v)
            c = rng.choice([ops.le, ops.ge, ops.eq])(e, rng.choice(pool)[0])
            truth = c.evaluate(values) if isinstance(c, Expr) else c
            assert not scope.known_true(c) or truth
            assert not scope.known_false(c) or not truth
            if truth and rng.random() < 0.2:
                scope.assume(c)
            pool.append((e, v))


def narrowed(n: int, monkeypatch) -> tuple[Scope, int]:
    """What `narrow(0, start, length)` asks for n lengths of which only the sum is known; and how many steps of search that takes."""
    steps = 0
    search = Linear._search

    def counted(*args):
        nonlocal steps
        steps += 1
        return search(*args)

    scope = Scope(record=False)
    s = scope.backed("s0", hint=3 * n, size_like=True)
    lengths = [scope.unbacked(f"u{i}") for i in range(n)]
    scope.assume(ops.sum_(lengths) == s)
    start: Expr = scope.const(0)
    with monkeypatch.context() as m:
        m.setattr(Linear, "_search", counted)
        for u in lengths:
            scope.assume(u >= 0)
            scope.assume(start <= s - u)
            assert scope.known_true(start >= 0) and scope.known_true(start + u <= s)
            start = start + u
    return scope, steps


def test_searches_for_narrow_grow_linearly(monkeypatch) -> None:
    scope, few = narrowed(40, monkeypatch)
    _, many = narrowed(160, monkeypatch)
    assert many < 4 * few and many < 20 * 160
    assert 40 < len(scope.asserts) <= 81  # the lengths to come may be negative: each slice's end is news


@pytest.mark.parametrize("seed", range(12))
def test_what_is_within_a_total_holds_in_every_model(seed: int) -> None:
    """Random questions about parts of sums of which the total is known in various ways: what is proven is true of random lengths."""
    rng = random.Random(seed)
    n = rng.choice([5, 20, 40, 70])
    scope = Scope()
    s, t = (scope.backed(name, hint=3 * n, size_like=True) for name in ("s", "t"))
    lengths = [scope.unbacked(f"u{i}", size_like=True, lo=rng.choice([None, 0, 1])) for i in range(n)]
    twice, more, of = rng.choice([1, 1, 2, -3]), rng.randint(-3, 3), rng.choice([n, n, n // 2 + 1])
    scope.assume(ops.sum_(lengths[:of]) * twice + more == s)
    if rng.random() < 0.4:
        scope.assume(ops.sum_(lengths) == t)
    models = []
    for _ in range(200):
        values = {f"u{i}": max(u.info.lo or 0, rng.choice([0, 0, 1, 2, 7])) for i, u in enumerate(lengths)}
        values |= {"s": sum(values[f"u{i}"] for i in range(of)) * twice + more, "t": sum(values.values())}
        if values["s"] >= 0:
            models.append(values)
    proven = 0
    for _ in range(60):
        i, j = sorted((rng.randint(0, n), rng.randint(0, n)))
        whole = rng.choice([s, t, s * 2, s * twice, scope.const(rng.randint(0, 3 * n)), ops.sum_(lengths)])
        p = whole - ops.sum_(lengths[i:j] or [scope.const(0)]) * rng.choice([1, 1, 1, 2, -1]) + rng.randint(-2, 4)
        if rng.random() < 0.3:
            p = p - rng.choice(lengths) * rng.choice([1, -1])
        within = p.const is None and p.kind is int and scope.prover.linear.within_total(p)
        proven += within
        for values in models:
            assert not within or p.evaluate(values) >= 0, f"{p} is negative for {values}"
    if twice == 1 and of == n and n > 16:
        assert proven
