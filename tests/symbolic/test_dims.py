"""Declared dims: promises, derived dims, and violations that name the line and the fix."""

from __future__ import annotations

import pytest

from pliant.errors import ConstraintViolation
from pliant.symbolic import Scope
from pliant.symbolic.dims import Dim, check, declare


def test_dim_is_checked() -> None:
    with pytest.raises(ValueError):
        Dim("batch", min=4, max=2)
    with pytest.raises(ValueError):
        Dim("not a name")
    assert str(Dim("batch", min=1, max=64, multiple_of=8)) == "Dim('batch', min=1, max=64, multiple_of=8)"
    assert str(2 * Dim("s") + 1) == "2*s + 1"


def test_declared_range_is_a_fact_and_a_guard() -> None:
    scope = Scope()
    s = declare(scope, Dim("batch", min=1, max=64, multiple_of=8), 16, "x.size(0)")
    assert scope.known_true(s >= 1) and scope.known_true(s <= 64) and scope.known_true(s % 4 == 0)
    assert scope.known_true((s // 8) * 8 == s)
    assert not scope.known_false(s == 8)
    assert [str(g.user_form) for g in scope.guards] == ["batch >= 1", "batch <= 64", "batch % 8 == 0"]
    check(scope)


def test_hint_must_fit() -> None:
    with pytest.raises(ConstraintViolation, match="size 12 at x.size"):
        declare(Scope(), Dim("batch", multiple_of=8), 12, "x.size(0)")


def test_same_dim_twice_is_one_symbol() -> None:
    scope = Scope()
    d = Dim("n")
    a, b = declare(scope, d, 6, "x.size(0)"), declare(scope, d, 6, "y.size(0)")
    assert a is b
    assert len(scope.guards) == 1 and "==" in str(scope.guards[0])
    with pytest.raises(ConstraintViolation, match="must agree"):
        declare(scope, d, 7, "z.size(0)")


def test_derived() -> None:
    scope = Scope()
    n = Dim("n", min=1)
    a, b = declare(scope, n, 6, "x.size(0)"), declare(scope, 2 * n + 1, 13, "y.size(0)")
    assert scope.known_true(b == 2 * a + 1)
    with pytest.raises(ConstraintViolation):
        declare(scope, 2 * n, 13, "z.size(0)")
    check(scope)


def test_derived_alone() -> None:
    scope = Scope()
    b = declare(scope, 4 * Dim("n", min=1, max=10), 12, "y.size(0)")
    assert scope.known_true(b % 4 == 0) and scope.range(b) == (4, 40)


@pytest.mark.parametrize(
    ("ask", "needs", "fix"),
    [
        (lambda s, n: s.decide(n > 5, "model.py:7"), "n > 5", "Dim('n', min=6)"),
        (lambda s, n: s.decide(n > 8, "model.py:7"), "n <= 8", "Dim('n', max=8)"),
        (lambda s, n: s.specialize(n, "model.py:7"), "n == 8", "mark it static (its size is always 8)"),
        (lambda s, n: s.decide(n % 4 == 0, "model.py:7"), "n % 4 == 0", "multiple_of=4"),
    ],
)
def test_violation_names_line_expression_and_fix(ask, needs, fix) -> None:
    scope = Scope()
    ask(scope, declare(scope, Dim("n", min=1), 8, "x.size(0)"))
    with pytest.raises(ConstraintViolation) as e:
        check(scope)
    assert "model.py:7" in str(e.value) and needs in str(e.value) and fix in str(e.value)


def test_two_dims_that_must_agree() -> None:
    scope = Scope()
    a, b = declare(scope, Dim("a"), 8, "x.size(0)"), declare(scope, Dim("b"), 8, "y.size(0)")
    assert scope.decide(a == b, "model.py:9")
    with pytest.raises(ConstraintViolation, match="one Dim"):
        check(scope)


def test_no_violation_within_the_promise() -> None:
    scope = Scope()
    n = declare(scope, Dim("n", min=2, max=64), 8, "x.size(0)")
    free = scope.backed("s0", hint=3, size_like=True)
    assert scope.decide(n != 0) and scope.decide(n * 2 > 3) and scope.decide(n > free)
    check(scope)
