"""What the prover knows, part by part, and what it must not claim."""

from __future__ import annotations

import pytest

from pliant.symbolic import DataDependent, Scope, ops
from pliant.symbolic.scope import CHEAP, FULL, LOOKUP

#: (facts, conclusion, negative control: a stronger claim that does not follow)
THEOREMS = {
    "symbolic upper bound": (["u <= a * b"], "u <= a * b + 3", "u < a * b"),
    "symbolic bound, scaled": (["u <= a * b"], "2 * u <= 2 * a * b + 1", "2 * u <= a * b"),
    "nonzero fits twice": (["u <= a"], "u <= 2 * a", "2 * u <= a"),
    "transitivity": (["u <= v", "v <= w"], "u <= w", "u < w"),
    "difference chain": (["u + 2 <= v", "v + 3 <= w", "w <= x"], "u + 5 <= x", "u + 6 <= x"),
    "sum of two": (["u + v == a"], "u <= a", "u < a"),
    "sum of three": (["u + v + w == a"], "u + w <= a", "u + w == a"),
    "two inequalities added": (["u <= v", "w <= x"], "u + w <= v + x", "u + w < v + x"),
    "product of non-negatives": ([], "u * v >= 0", "u * v >= 1"),
    "product grows": ([], "a * u >= 2 * u", "a * u >= 3 * u"),
    "product of inequalities": (["u <= v"], "u * a <= v * a", "u * a < v * a"),
    "square": ([], "(u - v) * (u - v) >= 0 or True", "u * u >= u + 1"),
    "floor below": ([], "(u // a) * a <= u", "(u // a) * a < u"),
    "floor above": ([], "(u // a) * a + a > u", "(u // a) * a >= u"),
    "floor of a constant divisor": ([], "(u // 8) * 8 <= u", "(u // 8) * 8 == u"),
    "quotient is smaller": ([], "u // a <= u", "u // a < u"),
    "remainder": ([], "u % a < a", "u % a < a - 1"),
    "remainder is not more": ([], "u % a <= u", "u % a < u"),
    "quotient and remainder": ([], "(u // a) * a + u % a == u", "(u // a) * a == u"),
    "quotient and remainder, no more": ([], "(u // 8) * 8 + u % 8 <= u", "(u // 8) * 8 + u % 8 < u"),
    "quotient and remainder, no less": ([], "a * (u // 8) * 8 >= a * u - a * (u % 8)", "a * (u // 8) * 8 > a * u - a * (u % 8)"),
    "round up": ([], "(u + 7) // 8 * 8 >= u", "(u + 7) // 8 * 8 > u"),
    "round up, not too far": ([], "(u + 7) // 8 * 8 < u + 8", "(u + 7) // 8 * 8 < u + 7"),
    "divisible": (["u % 8 == 0"], "(u // 8) * 8 == u", "u // 8 == u"),
    "divisibility divides": (["u % 8 == 0"], "u % 4 == 0", "u % 16 == 0"),
    "divisibility of a sum": (["u % 8 == 0", "v % 12 == 0"], "(u + v) % 4 == 0", "(u + v) % 8 == 0"),
    "divisibility of a product": (["u % 3 == 0"], "(u * v) % 3 == 0", "(u * v) % 6 == 0"),
    "remainders combine": (["u % 3 == 2", "u % 5 == 4"], "u % 15 == 14", "u == 14"),
    "factors of an equation": (["2 * u == 3 * v"], "u % 3 == 0", "u % 9 == 0"),
    "equal to equal": (["u == v", "v == w"], "u * a == w * a", "u == a"),
    "equality through division": (["u == 2 * v"], "u // 2 == v", "u == v"),
    "cancel a common factor": (["u * a == v * a"], "u == v", "u == 0"),
    "excluded end": (["u != 0"], "u >= 1", "u >= 2"),
    "excluded ends": (["u != 0", "u != 1"], "u >= 2", "u >= 3"),
    "quotient of a smaller one": (["u <= v"], "u // 8 <= v", "u // 8 < v"),
    "product of a bounded quotient": (["u >= 16"], "(u // 8) * a >= 4", "(u // 8) * a >= 5"),
    "quotients apart": (["u >= 16", "v <= 7"], "u // 8 > v // 4", "u // 8 > v // 4 + 1"),
    "squeezed": (["u >= 5", "u <= 5"], "u * v == 5 * v", "u == v"),
    "min is below": ([], "min(u, v) <= u", "min(u, v) < u"),
    "max is above": ([], "max(u, v) >= v", "max(u, v) > v"),
    "min of ordered": (["u <= v"], "min(u, v) == u", "min(u, v) == v"),
    "clamped": ([], "min(max(u, 0), a) <= a", "min(max(u, 0), a) < a"),
    "absolute value": ([], "abs(i) >= i", "abs(i) == i"),
    "either way": (["i >= 0"], "abs(i) == i", "i >= 1"),
    "one case left": (["u == 0 or u == v", "u != 0"], "u == v", "v == 1"),
    "slice inside": (["u + v <= a"], "a - u >= v", "a - u > v"),
    "stride inside": (["u < a", "v < b"], "u * b + v < a * b", "u * b + v < a * b - 1"),
}


def world() -> tuple[Scope, dict]:
    scope = Scope()
    names = {n: scope.unbacked(n, size_like=True) for n in "uvwx"} | {"i": scope.unbacked("i")}
    names |= {n: scope.unbacked(n, lo=2) for n in "ab"}
    return scope, names | {"min": ops.min_, "max": ops.max_, "abs": ops.abs_}


def build(text: str, names: dict):
    """A condition; `or` between relations is the symbolic one."""
    parts = [eval(t, {}, names) for t in text.split(" or ")]
    return parts[0] if len(parts) == 1 else ops.or_(*parts)


@pytest.mark.parametrize("name", THEOREMS)
def test_theorem(name: str) -> None:
    facts, goal, too_much = THEOREMS[name]
    scope, names = world()
    for f in facts:
        assert scope.assume(build(f, names))
    assert scope.known_true(build(goal, names))
    assert scope.known_false(ops.not_(build(goal, names)))
    assert not scope.known_true(build(too_much, names))
    if facts:
        fresh, names = world()
        assert not fresh.known_true(build(goal, names)), "follows without the facts"


def test_strengths() -> None:
    """What a strength may not use, it does not find; what it found before, every strength remembers."""
    scope, names = world()
    u, v, w = names["u"], names["v"], names["w"]
    scope.assume(u <= v)
    scope.assume(v <= w)
    assert not scope.known_true(u <= v + 3, LOOKUP) and scope.known_true(u <= v + 3, CHEAP)
    assert not scope.known_true(u <= w, CHEAP) and scope.known_true(u <= w, FULL)
    assert scope.known_true(u <= w, LOOKUP)
    assert scope.known_false(u > v, LOOKUP) and scope.known_false(u - v >= 1, LOOKUP)  # the opposite of a fact


def test_unbacked_decisions() -> None:
    scope, names = world()
    u = names["u"]
    with pytest.raises(DataDependent) as e:
        scope.decide(u == 1, "model.py:3")
    assert e.value.site == "model.py:3" and "u is known only at run time" in str(e.value)
    assert scope.decide_or_false(u == 1) is False and scope.decide_or_false(u == 0) is False
    assert not scope.known_false(u == 0) and not scope.known_false(u == 1)
    assert scope.decide_or_false(u >= 0) is True
    assert scope.guards == [] and scope.asserts == []


def test_assume() -> None:
    scope, names = world()
    u, a = names["u"], names["a"]
    s = scope.backed("s0", hint=5, size_like=True)
    assert scope.assume(u < a, "model.py:4")
    assert scope.assume(u < a + 1) and scope.assume(u <= a)  # implied: not emitted
    assert [str(x.expr) for x in scope.asserts] == ["u < a"]
    assert scope.assume(s > 3) and len(scope.asserts) == 2 and scope.guards == []
    assert scope.assume(s > 7) is False  # eager raises in this call: guarded, so that others do not
    assert [str(g.user_form) for g in scope.guards] == ["s0 <= 7"]
    assert scope.assume(u >= a) is False


def test_specialize() -> None:
    scope = Scope()
    s, t = scope.backed("s0", hint=5, lo=2), scope.backed("s1", hint=4, lo=2)
    f = scope.backed("f0", hint=-0.0, kind=float)
    assert scope.specialize(s * t + 1, "l1") == 21
    assert scope.simplify(s * t).const == 20 and scope.specialize(s * t) == 20
    assert scope.specialize(s, "l2") == 5 and scope.simplify(t).const == 4
    assert scope.specialize(f, "l3") == 0.0 and str(scope.simplify(f)) == "-0.0"
    assert all(g.expr.evaluate({"s0": 5, "s1": 4, "f0": -0.0}) for g in scope.guards)
    assert not all(g.expr.evaluate({"s0": 5, "s1": 4, "f0": 0.0}) for g in scope.guards)
    with pytest.raises(DataDependent):
        scope.specialize(scope.unbacked("u0"))


def test_nan_is_specialized_to_nan() -> None:
    scope = Scope()
    f = scope.backed("f0", hint=float("nan"), kind=float)
    scope.specialize(f)
    (g,) = scope.guards
    assert g.expr.evaluate({"f0": float("nan")}) and not g.expr.evaluate({"f0": 1.0})


def test_float_negation_and_nan() -> None:
    scope = Scope()
    f = scope.backed("f0", hint=float("nan"), kind=float)
    assert scope.decide(f < 1.0) is False
    assert scope.decide(f >= 1.0) is False  # not implied by the other answer: both are false for nan
    assert len(scope.guards) == 2


def test_hints() -> None:
    scope = Scope()
    s, u = scope.backed("s0", hint=5), scope.unbacked("u0", lo=3, hi=40)
    assert (s * 2).hint == 10 and (s * u).hint is None
    assert scope.optimization_hint(s * u, fallback=64) == 200
    assert scope.guards == []


def test_products_between_bounds() -> None:
    """x*y lies between lo*x and hi*x for x >= 0: squares outgrow what they are squares of."""
    scope = Scope()
    s = scope.backed("s", hint=5, lo=2, size_like=True)
    t = scope.unbacked("t", lo=1, hi=8, size_like=True)
    assert scope.known_true(s < s * s) and scope.known_true(s * t <= 8 * s) and scope.known_true(s * t * 2 + s < 17 * s + 1)
    assert not scope.known_true(s < s * t) and scope.known_true(s <= s * t)
    assert not scope.guards[1:] and not scope.asserts


def test_what_premises_would_imply_leaves_no_trace():
    scope = Scope()
    s, u = scope.backed("s0", hint=4, lo=2), scope.unbacked("u0", size_like=True)
    grows = ops.lt(s, ops.mul(s, u))
    assert not scope.known_true(grows)
    assert scope.implied(grows, [ops.ge(u, 2)])
    assert not scope.known_true(grows) and not scope.known_true(ops.ge(u, 2)) and not scope.guards[1:]
    scope.learn(ops.le(u, 1))
    assert not scope.implied(grows, [ops.ge(u, 2)]), "a premise that cannot hold is none"
