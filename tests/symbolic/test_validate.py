"""Translation validation finds nothing wrong in what is right, and each planted mistake at its step."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from itertools import product

import pytest

from pliant.symbolic import Scope, ops

z3 = pytest.importorskip("z3")

from pliant.symbolic import congruence, division, equalities, intervals, linear_sums, minimize, prover, relation, rules  # noqa: E402
from pliant.symbolic import scope as scope_module  # noqa: E402
from pliant.symbolic.expr import TABLE, Op  # noqa: E402
from pliant.symbolic.validate import claim_value, validate  # noqa: E402
from tests.symbolic.models import Game  # noqa: E402

PROGRAMS = int(os.environ.get("PLIANT_VALIDATE_PROGRAMS", "30"))


def test_random_programs_are_valid() -> None:
    checked = 0
    for seed in range(PROGRAMS):
        game = Game(random.Random(seed), Scope(record=True))
        for _ in range(8):
            game.step()
        report = validate(game.scope, timeout_ms=300)
        assert report.violation is None, (seed, str(report.violation))
        checked += report.checked
    assert checked > 10 * PROGRAMS


def symbols(scope: Scope):
    a = scope.backed("s0", hint=8, lo=2, size_like=True)
    b = scope.backed("s1", hint=6, lo=2, size_like=True)
    u = scope.unbacked("u0", size_like=True)
    return a, b, u


def loose(scope: Scope) -> None:
    """Honest questions whose guards leave many sizes; the mistakes below show among them."""
    a, b, u = symbols(scope)
    scope.decide(a * b > 3, "l1")
    scope.decide(a != 7, "l2")
    scope.assume(u <= a * b, "l3")
    scope.known_true(u <= a * b + 1)
    scope.decide(ops.floordiv(5 * a + 7, 4) >= 2, "l4")
    scope.decide(ops.mod(a, 4) == 0, "l5")
    scope.known_true(ops.mod(a, 2) == 0)
    scope.known_false(ops.mod(a + 3, 4) == 0)
    scope.known_false(ops.mod(a + b, 4) == 0)
    scope.known_true(ops.mod(b, 5) < 5)
    scope.known_true(ops.mod(b, 5) < 4)
    scope.known_true(ops.floordiv(a, b) * b <= a)
    scope.known_true(ops.mod(u, b) < b)
    scope.known_true(ops.mod(u, b) < b - 1)
    scope.known_true(ops.min_(a, b) <= b)
    scope.known_true(ops.not_(a > b) == (a <= b))
    scope.decide(2 * b >= 5, "l6")
    scope.known_true(b >= 4)
    scope.known_true(ops.abs_(a - b) >= 0)
    scope.known_true(ops.max_(u, 1) >= 2)
    scope.range(ops.floordiv(u, 2))
    scope.decide(b < 100, "l8")
    scope.decide(ops.ceildiv(b, 4) <= 20, "l9")
    scope.known_true(b < 80)


def tied(scope: Scope) -> None:
    """Sizes that equal one another, and one that is pinned."""
    a, b, u = symbols(scope)
    scope.decide(a - b == 2, "l1")
    scope.simplify(a * a)
    scope.known_true(a == b - 2)
    scope.known_true(a > b)
    scope.assume(ops.eq(u, a + b), "l2")
    scope.range(u)
    scope.known_true(u == 2 * b + 2)


@pytest.mark.parametrize("program", [loose, tied])
def test_program_is_valid(program) -> None:
    scope = Scope(record=True)
    program(scope)
    report = validate(scope)
    assert report.violation is None, str(report.violation)
    assert report.checked > 8 and not report.undecided and not report.skipped
    assert first_wrong_by_models(scope) == -1


def pinned_quotient(scope: Scope) -> None:
    """8 / 6 is no number of 53 bits: as real numbers, `a / b` and what it simplifies to differ."""
    a, b, _ = symbols(scope)
    scope.decide(a == 8, "l1")
    scope.decide(b == 6, "l2")
    assert scope.simplify(ops.truediv(a, b)).const == 8 / 6


def test_reals_refute_no_claim_about_floats() -> None:
    scope = Scope(record=True)
    pinned_quotient(scope)
    report = validate(scope)
    assert report.violation is None, str(report.violation)
    assert len(report.undecided) == 1


def test_wrong_claims_about_floats_are_refuted(monkeypatch) -> None:
    row(monkeypatch, "int_truediv", fn=lambda a, b: a / b + 1e-6)
    scope = Scope(record=True)
    a, b, _ = symbols(scope)
    scope.decide(a == 8, "l1")
    scope.decide(b == 6, "l2")
    scope.simplify(ops.truediv(a, b))
    monkeypatch.undo()
    assert validate(scope).violation is not None


# planted mistakes: (what breaks, how, what the first wrong step says) ----------------------------------------------------------


def row(monkeypatch, name: str, **change) -> None:
    old = TABLE[name]
    fields = {f: getattr(old, f) for f in Op.__dataclass_fields__}
    monkeypatch.setitem(TABLE, name, Op(**{**fields, **change}))


def remainder_lost(m) -> None:
    m.setattr(division, "divide", lambda a, b, right=division.divide: (right(a, b)[0], a.ctx.zero))


def shorter_period(m) -> None:
    row(m, "mod", range=lambda x, y: (0, max(y[1] - 2, 0)))


def quotient_too_small(m) -> None:
    row(m, "floordiv", range=lambda x, y: (intervals.floordiv(x, y)[0] + 1, intervals.INF))


def ge_is_gt(m) -> None:
    m.setattr(relation, "poly_add", lambda a, b, scale=1, k=0, right=relation.poly_add: right(a, b, scale, k + 1 if k else 0))


def tightened_down(m) -> None:
    def wrong(op, p, right=relation.relation):
        r = right(op, p)
        return right(op, relation.shift(r.args[0], 1)) if op == "ge" and r.const is None and p.terms[0][1] % 2 == 0 else r

    m.setattr(relation, "relation", wrong)


def residues_add_wrong(m) -> None:
    m.setattr(congruence, "add", lambda x, y: congruence.make(max(x[0], y[0]), x[1] + y[1]))


def solved_with_wrong_sign(m) -> None:
    def wrong(self, p, right=equalities.Equalities.solve):
        found = right(self, p)
        return (found[0], -found[1]) if found is not None and found[1].const is None else found

    m.setattr(equalities.Equalities, "solve", wrong)


def guard_dropped(m) -> None:
    m.setattr(scope_module, "minimal", lambda guards: minimize.minimal([g for g in guards if g.site != "l5"]))


def remainder_too_small(m) -> None:
    def wrong(x, ranges, right=linear_sums.definitional):
        found = right(x, ranges)
        return [found[0], relation.shift(found[1], -1)] if x.op == "mod" else found

    m.setattr(linear_sums, "definitional", wrong)


def min_is_first(m) -> None:
    row(m, "min", make=lambda ctx, a, b: a)


def not_keeps_equality(m) -> None:
    m.setitem(rules.OPPOSITE, "gt", "lt")


def ceiling_is_floor(m) -> None:
    row(m, "ceildiv", make=lambda ctx, a, b: division.floordiv(ctx, a, b))


def learned_but_not_guarded(m) -> None:
    def wrong(self, c, site, why, right=scope_module.Scope._guard):
        right(self, c, site, why)
        if site == "l6":
            self._guards.pop()

    m.setattr(scope_module.Scope, "_guard", wrong)


def bound_off_by_one(m) -> None:
    def wrong(self, p, right=prover.Prover._learn_ge):
        q, k, c = relation.direction(p)
        self.facts.tighten(q, -(c // k) + 1, float("inf")) if k > 0 else right(self, p)

    m.setattr(prover.Prover, "_learn_ge", wrong)


def max_forgets_constants(m) -> None:
    row(m, "max", range=lambda *xs: (sum(x[0] for x in xs) + 1, intervals.INF))


PLANTED: list[tuple[Callable, Callable, str]] = [
    (remainder_lost, loose, "apply: floordiv(5*s0 + 7, 4)"),
    (shorter_period, loose, "apply: lt(s1 % 5, 4) = True"),
    (quotient_too_small, loose, "range: u0 // 2"),
    (ge_is_gt, loose, "answer: s1 % 5 < 4 is True"),
    (tightened_down, loose, "answer: 2*s1 >= 5 is True"),
    (residues_add_wrong, loose, "answer: (s0 + s1) % 4 == 0 is True"),
    (solved_with_wrong_sign, tied, "simplify: s0**2"),
    (guard_dropped, loose, "guard: s0 % 4 == 0 at l5"),
    (remainder_too_small, loose, "answer: s1 % 5 < 4 is True"),
    (min_is_first, loose, "apply: min(s0, s1)"),
    (not_keeps_equality, loose, "apply: not(s0 > s1)"),
    (ceiling_is_floor, loose, "apply: ceildiv(s1, 4)"),
    (learned_but_not_guarded, loose, "guard: 2*s1 >= 5 at l6"),
    (bound_off_by_one, loose, "answer: s1 >= 4 is True"),
    (max_forgets_constants, loose, "apply: ge(max(1, u0), 2) = True"),
]


def first_wrong_by_models(scope: Scope) -> int:
    """The truth, without z3: the first event that some small world refutes."""
    sizes = product(range(2, 14), (2, 3, 4, 5, 6, 7, 8, 9, 11, 99, 120), (0, 1, 2, 3, 9, 14, 18))
    worlds = [dict(zip(("s0", "s1", "u0"), v, strict=True)) for v in sizes]
    kept = [g.expr for g in scope.guards]
    worlds = [w for w in worlds if all(g.evaluate(w) for g in kept)]
    for i, e in enumerate(scope.events):
        if e.kind in ("assert", "axiom"):
            worlds = [w for w in worlds if e.expr.evaluate(w)]
        elif not all(claim_value(e, w) for w in worlds):
            return i
    return -1


@pytest.mark.parametrize(("plant", "program", "step"), PLANTED, ids=[p[0].__name__ for p in PLANTED])
def test_planted_mistake_is_found_at_its_step(plant, program, step, monkeypatch) -> None:
    scope = Scope(record=True)
    plant(monkeypatch)
    program(scope)
    scope.guards  # noqa: B018  what is kept is decided while the mistake is in place
    monkeypatch.undo()
    report = validate(scope)
    v = report.violation
    assert v is not None, "not found"
    assert v.index == first_wrong_by_models(scope), str(v)
    assert step in str(v.event), str(v)
    assert v.model and any("test_validate.py" in line for line in v.event.stack)
    assert "step" in str(v)


def test_symbols_may_have_any_name():
    scope = Scope(record=True)
    a, b = scope.backed("t1", hint=6, lo=0), scope.backed("t2", hint=4, lo=0)
    assert scope.decide(ops.gt(ops.floordiv(a + b, 2), 3)) and scope.known_true(ops.ge(a + b, 8))
    report = validate(scope)
    assert report.violation is None and report.checked
