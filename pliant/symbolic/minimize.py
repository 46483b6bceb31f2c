"""Fewer guards that say the same: what other guards imply is dropped.

A guard was recorded because the facts *before* it did not imply it; later ones may (`s0 > 3`, then `s0 == 8`). Going backwards, a guard
is kept unless those kept so far imply it. Assertions play no part: an assertion speaks only for runs that reach it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from pliant.symbolic.expr import Expr
from pliant.symbolic.prover import Prover
from pliant.symbolic.relation import direction


class Guarded(Protocol):
    @property
    def expr(self) -> Expr: ...


G = TypeVar("G", bound=Guarded)


def minimal(guards: Sequence[G]) -> list[G]:
    """A subset that implies all of them, in their order."""
    prover = Prover()
    kept = []
    for g in reversed(guards):
        if prover.prove(g.expr) is not True:
            prover.learn(g.expr)
            kept.append(g)
    return kept[::-1]


def without_declared(declared: Sequence[G], decided: Sequence[Guarded]) -> list[G]:
    """The declared ranges that no decided guard on the same symbol makes superfluous.

    Only plain bounds and equalities of that one symbol count: proofs in general rest on the declared ranges themselves.
    """
    bounds: dict[Expr, tuple] = {}
    for g in decided:
        c = g.expr
        if c.op not in ("ge", "eq") or c.args[0].kind is not int or c.args[1].const != 0:
            continue
        q, k, offset = direction(c.args[0])
        if q.op == "sym" and abs(k) == 1:
            lo, hi = bounds.get(q, (float("-inf"), float("inf")))
            at = -offset * k
            if c.op == "eq" or k > 0:
                lo = max(lo, at)
            if c.op == "eq" or k < 0:
                hi = min(hi, at)
            bounds[q] = lo, hi
    return [g for g in declared if not _covered(g.expr, bounds)]


def _covered(c: Expr, bounds: dict[Expr, tuple]) -> bool:
    """c is `s >= k` or `s <= k`: whether the bounds of s say so."""
    if c.op != "ge" or c.args[0].kind is not int:
        return False
    q, k, offset = direction(c.args[0])
    lo, hi = bounds.get(q, (float("-inf"), float("inf")))
    return (lo + offset >= 0) if k > 0 else (offset - hi >= 0)
