"""Random questions with concrete models: what a scope says must hold in every model that satisfies what it was told."""

from __future__ import annotations

import random
from itertools import product

from pliant.symbolic import DataDependent, Expr, Scope, ops

INT_OPS = ("add", "add", "sub", "mul", "mul", "floordiv", "mod", "min", "max", "neg", "abs", "ceildiv", "where", "bit_and", "bit_or")
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")


class Game:
    """A scope with a few small symbols, and every model (assignment) that its facts still allow."""

    def __init__(self, rng: random.Random, scope: Scope | None = None) -> None:
        self.rng = rng
        self.scope = scope or Scope()
        self.actual: dict[str, int] = {}
        self.symbols: list[Expr] = []
        domains: dict[str, list[int]] = {}
        for i in range(rng.randint(1, 4)):
            lo = rng.choice([-4, -1, 0, 0, 1, 2, 2])
            hi = lo + rng.choice([2, 5, 9])
            name = f"s{i}"
            value = rng.randint(lo, hi)
            bounds = {"lo": rng.choice([lo, lo, None]), "hi": rng.choice([hi, None])}
            if rng.random() < 0.7:
                s = self.scope.backed(name, hint=value, **bounds)
            else:
                s = self.scope.unbacked(name, **bounds)
            self.actual[name] = value
            self.symbols.append(s)
            domains[name] = list(range(lo, hi + 1))
        names = list(domains)
        models = [dict(zip(names, v, strict=True)) for v in product(*domains.values())]
        self.models = rng.sample(models, min(len(models), 150)) + [self.actual]
        self.asked = 0

    def expr(self, depth: int) -> Expr:
        rng = self.rng
        if depth == 0 or rng.random() < 0.2:
            return rng.choice(self.symbols) if rng.random() < 0.75 else self.scope.const(rng.choice([-3, -2, -1, 0, 1, 2, 3, 4, 8, 12]))
        op = rng.choice(INT_OPS)
        if op in ("neg", "abs"):
            return ops.DOORS[op](self.expr(depth - 1))
        if op == "where":
            return ops.where(self.condition(depth - 1), self.expr(depth - 1), self.expr(depth - 1))
        a, b = self.expr(depth - 1), self.expr(depth - 1)
        if op in ("floordiv", "mod", "ceildiv") and not self.nonzero(b):
            return a
        return ops.DOORS[op](a, b)

    def nonzero(self, b: Expr) -> bool:
        """As a program does before it divides."""
        if not self.evaluate(b, self.actual):
            return False
        c = ops.ne(b, 0)
        self.scope.assume(c)
        self.keep(c, True)
        return True

    def condition(self, depth: int) -> Expr:
        rng = self.rng
        r = rng.random()
        if depth > 0 and r < 0.15:
            return rng.choice([ops.and_, ops.or_])(self.condition(depth - 1), self.condition(depth - 1))
        if depth > 0 and r < 0.2:
            return ops.not_(self.condition(depth - 1))
        c = ops.DOORS[rng.choice(COMPARISONS)](self.expr(depth), self.expr(depth if rng.random() < 0.6 else 0))
        return c if isinstance(c, Expr) else self.scope.const(c)

    @staticmethod
    def evaluate(e: Expr, model: dict[str, int]):
        """The value, or None where the model makes a division by zero (then no claim is made about it)."""
        try:
            return e.evaluate(model)
        except ZeroDivisionError:
            return None

    def keep(self, c: Expr, truth: bool) -> None:
        """c has that truth from here on: forget the other models."""
        self.models = [m for m in self.models if self.evaluate(c, m) == truth]

    def check(self, c: Expr, answer: bool) -> None:
        for m in self.models:
            v = self.evaluate(c, m)
            assert v is None or v == answer, f"{c} said {answer}, but {m} allows {v}\n" + "\n".join(map(str, self.scope.guards))

    def step(self) -> None:
        rng, scope = self.rng, self.scope
        self.asked += 1
        r = rng.random()
        c = self.condition(rng.randint(0, 2))
        truth = self.evaluate(c, self.actual)
        if truth is None:
            return
        if r < 0.5:
            if scope.known_true(c):
                self.check(c, True)
            elif scope.known_false(c):
                self.check(c, False)
        elif r < 0.75:
            try:
                v = scope.decide(c)
            except DataDependent:
                return
            assert v == truth
            self.keep(c, v)
        elif r < 0.85:
            if truth:
                assert scope.assume(c)
                self.keep(c, True)
        elif r < 0.9:
            e = self.expr(1)
            if e.backed and (v := self.evaluate(e, self.actual)) is not None:
                assert scope.specialize(e) == v
                self.keep(ops.eq(e, v) if isinstance(e, Expr) else c, True)
        else:
            self.views(self.expr(2))

    def views(self, e: Expr) -> None:
        """Ranges contain, residues agree, simplification keeps the value."""
        scope = self.scope
        lo, hi = scope.range(e)
        m, r = scope.prover.congruence.of(e)
        s = scope.simplify(e)
        for model in self.models:
            v = self.evaluate(e, model)
            if v is not None:
                assert lo <= v <= hi, (e, lo, hi, model)
                assert (v - r) % m == 0 if m else v == r, (e, m, r, model)
                assert self.evaluate(s, model) in (v, None), (e, s, model)


def play(seed: int, steps: int = 12) -> Game:
    game = Game(random.Random(seed))
    for _ in range(steps):
        game.step()
    return game
