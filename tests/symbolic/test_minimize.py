"""Guards that others imply are dropped; what is kept says the same."""

from __future__ import annotations

import random

from pliant.symbolic import Scope, ops
from tests.symbolic.models import Game


def forms(scope: Scope) -> list[str]:
    return [str(g.user_form) for g in scope.guards]


def test_later_guard_implies_earlier() -> None:
    scope = Scope()
    s = scope.backed("s0", hint=8, size_like=True)
    t = scope.backed("s1", hint=4, size_like=True)
    assert scope.decide(s > 3, "a")
    assert scope.decide(s + t > 7, "b")
    assert scope.decide(s % 8 == 0, "c")
    assert forms(scope) == ["s0 > 3", "s0 + s1 > 7", "s0 % 8 == 0"]
    scope.specialize(s, "d")
    assert forms(scope) == ["s0 == 8"]
    assert len(scope.all_guards) == 4


def test_user_form_is_kept() -> None:
    scope = Scope()
    a, b = scope.backed("s0", 6, size_like=True), scope.backed("s1", 3, size_like=True)
    assert scope.decide(2 * a > 4 * b - 2, "x.py:3")
    (g,) = scope.guards
    assert str(g.user_form) == "2*s0 > 4*s1 - 2"
    assert str(g.expr) == "s0 - 2*s1 >= 0"


def test_declared_range_dropped_only_for_a_tighter_one() -> None:
    scope = Scope()
    s = scope.backed("s0", hint=8, lo=2, hi=100)
    assert scope.decide(s >= 4)
    assert forms(scope) == ["s0 <= 100", "s0 >= 4"]
    assert not scope.decide(s > 8)
    assert forms(scope) == ["s0 >= 4", "s0 <= 8"]


def test_declared_range_stays_where_a_proof_rests_on_it() -> None:
    scope = Scope()
    a, b = scope.backed("s0", hint=8, lo=2, size_like=True), scope.backed("s1", hint=1, size_like=True)
    assert scope.decide(a * b == a)  # b == 1, because a is not zero
    assert set(forms(scope)) == {"s0 >= 2", "s0*s1 == s0"}
    assert str(scope.guards[-1].expr) == "s1 - 1 == 0"


def test_assertions_do_not_replace_guards() -> None:
    scope = Scope()
    a = scope.backed("s0", hint=8, size_like=True)
    assert scope.decide(a > 3)
    assert scope.assume(a > 5)
    assert forms(scope) == ["s0 > 3"]


def test_kept_guards_imply_all(monkeypatch) -> None:
    """In every model of a small world."""
    dropped = 0
    for seed in range(250):
        game = Game(random.Random(seed))
        models = list(game.models)
        for _ in range(10):
            game.step()
        kept, everything = game.scope.guards, game.scope.all_guards
        dropped += len(everything) - len(kept)
        for m in models:
            if all(game.evaluate(g.expr, m) for g in kept):
                assert all(game.evaluate(g.user_form, m) is not False for g in everything), (seed, m)
    assert dropped > 50


def test_rollback_forgets_guards() -> None:
    scope = Scope()
    s = scope.backed("s0", hint=8, size_like=True)
    token = scope.snapshot()
    assert scope.decide(s > 3)
    scope.specialize(s)
    t = scope.unbacked("u0")
    scope.assume(ops.le(t, s))
    scope.rollback(token)
    assert forms(scope) == [] and scope.asserts == [] and list(scope.symbols) == ["s0"]
    assert not scope.known_true(s > 3)
    assert scope.simplify(s) is s
    assert scope.prover.facts.bounds == {} and scope.prover.facts.equal == {}


def test_assertions_stay_the_objects_they_are() -> None:
    scope = Scope()
    t = scope.unbacked("u0")
    token = scope.snapshot()
    scope.assume(ops.le(t, 7))
    first = scope.asserts
    scope.assume(ops.le(t, 5))
    assert [a is b for a, b in zip(first, scope.asserts, strict=False)] == [True] and len(scope.asserts) == 2
    scope.rollback(token)
    scope.assume(ops.le(t, 3))
    assert len(scope.asserts) == 1 and scope.asserts[0] is not first[0]
