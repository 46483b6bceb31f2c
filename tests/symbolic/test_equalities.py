"""Equalities as rewrite rules: rewriting ends, keeps every value, and the rules stay in the shape that guarantees it."""

from __future__ import annotations

import random
from itertools import product

import pytest

from pliant.symbolic import Expr, Scope, ops


def test_quotients_of_products_whose_factors_become_equal() -> None:
    scope = Scope()
    a, b, c, d, e = (scope.backed(f"s{i}", hint=v, lo=2) for i, v in enumerate((5, 16, 5, 16, 16)))
    assert scope.decide(ops.eq(d, b))
    assert scope.decide(ops.eq(e, b))
    assert scope.assume(ops.eq(c * d % 16, 0))
    assert scope.simplify(c * d // 16) is c * b // 16
    assert scope.decide(ops.eq(c * d // 16, a * e // 16))  # one quotient stands for the other
    assert scope.decide(ops.eq(a, c))  # now they are the same
    assert scope.decide(ops.eq(c, c * d // 16))
    assert scope.simplify(c * d // 16) is scope.simplify(a * e // 16)
    assert scope.known_true(ops.eq(c * e // 16, a))


def test_a_symbol_that_equals_a_quotient_of_itself() -> None:
    scope = Scope()
    a, b, c, d = (scope.backed(f"s{i}", hint=v, lo=2) for i, v in enumerate((5, 16, 5, 16)))
    assert scope.assume(ops.eq(c * d % 16, 0))
    quotient = c * d // 16
    assert scope.assume(ops.eq(a * b % 16, 0))
    assert scope.decide(ops.eq(quotient, a * b // 16))
    assert scope.decide(ops.ge(b, 5))
    assert scope.decide(ops.eq(a, c))
    assert scope.decide(ops.eq(b, d))
    assert not scope.decide(ops.eq(16 * quotient, 0))
    assert not scope.decide(ops.eq(quotient, 1))  # a fact about the quotient, looked at again when its symbols are replaced
    assert scope.decide(ops.eq(a, quotient))
    assert scope.simplify(a * b) is scope.simplify(c * d)
    assert scope.known_true(ops.eq(a * d // 16, c))
    assert scope.known_true(ops.le(16 * a, a * b))


def test_rules_between_operators_follow_their_symbols() -> None:
    scope = Scope()
    a, b, c = (scope.backed(f"s{i}", hint=12, lo=2) for i in range(3))
    assert scope.decide(ops.eq(a // 4, b // 3 - 1))
    token = scope.snapshot()
    assert scope.decide(ops.eq(b, c))
    assert scope.known_true(ops.eq(a // 4 + 1, c // 3))
    scope.rollback(token)
    assert not scope.known_true(ops.eq(a // 4 + 1, c // 3))
    assert scope.known_true(ops.eq(a // 4 + 1, b // 3))


@pytest.mark.parametrize("step", (0, 1))
@pytest.mark.parametrize("backwards", (False, True))
def test_long_chains(step: int, backwards: bool) -> None:
    scope = Scope()
    symbols = [scope.backed(f"s{i}", hint=1000 + step * i, lo=2) for i in range(250)]
    pairs = list(zip(symbols, symbols[1:], strict=False))
    for a, b in reversed(pairs) if backwards else pairs:
        assert scope.decide(ops.eq(b, a + step))
    assert scope.known_true(ops.eq(symbols[-1], symbols[0] + 249 * step))


class Equations:
    """Facts between quotients, remainders and products of a few symbols, most of which are equal; and models that satisfy them."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.scope = rng, Scope()
        self.unit = rng.choice((1, 2, 3, 4))
        values = [rng.choice((self.unit, self.unit, self.unit, 2 * self.unit)) for _ in range(rng.randint(3, 6))]
        self.actual = {f"s{i}": v for i, v in enumerate(values)}
        self.symbols = [
            self.scope.backed(n, hint=v, lo=0) if rng.random() < 0.75 else self.scope.unbacked(n, lo=0) for n, v in self.actual.items()
        ]
        models = [dict(zip(self.actual, v, strict=True)) for v in product((0, 1, 2, 3, 4, 6), repeat=len(values))]
        self.models = [*rng.sample(models, min(120, len(models))), self.actual]
        self.pool: list[Expr] = list(self.symbols)

    @staticmethod
    def value(e: Expr | bool, model: dict[str, int]) -> int | bool:
        return e.evaluate(model) if isinstance(e, Expr) else e  # type: ignore[return-value]

    def grow(self) -> None:
        rng, n = self.rng, len(self.symbols)
        a, b, k = rng.choice(self.pool), rng.choice(self.pool), rng.choice((2, 3, 4, self.unit))
        makers = (
            lambda: a * rng.choice(self.symbols) // k, lambda: a // k, lambda: a * b % k, lambda: a * b, lambda: a + b, lambda: a - b,
            lambda: ops.where(ops.gt(a, b), a, b), lambda: ops.min_(a, b), lambda: ops.max_(a, b),
        )  # fmt: skip
        e = rng.choice(makers)()
        if isinstance(e, Expr) and len(str(e)) < 90:
            self.pool.append(e)
        if len(self.pool) > n + 10:
            del self.pool[n + rng.randrange(len(self.pool) - n)]

    def learn(self) -> None:
        a, b = self.rng.choice(self.pool), self.rng.choice(self.pool)
        c = ops.eq(a, b if self.rng.random() < 0.8 else self.value(a, self.actual))
        truth = bool(self.value(c, self.actual))
        if isinstance(c, Expr) and not c.backed:
            if not truth:
                return
            self.scope.assume(c)
        else:
            assert self.scope.decide(c) == truth
        self.models = [m for m in self.models if self.value(c, m) == truth]

    def check(self) -> None:
        for e in self.rng.sample(self.pool, min(4, len(self.pool))):
            s = self.scope.simplify(e)
            assert all(self.value(s, m) == self.value(e, m) for m in self.models), (e, s)
        rules = self.scope.prover.facts.equal
        for x, e in rules.items():
            if e.const is None and x.info is None:
                assert rules.keys().isdisjoint((*x.symbols(), *e.symbols())), (x, e)


@pytest.mark.parametrize("block", range(4))
def test_random_equations(block: int) -> None:
    for seed in range(block * 40, (block + 1) * 40):
        game = Equations(random.Random(seed))
        for _ in range(game.rng.randint(4, 30)):
            game.grow()
            game.learn()
            game.check()
