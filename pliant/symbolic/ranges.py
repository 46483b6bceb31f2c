"""The interval part of the prover: ranges under the facts of a scope."""

from __future__ import annotations

from typing import Any

from pliant.symbolic import intervals as iv
from pliant.symbolic.expr import Expr, poly_scale, postorder
from pliant.symbolic.facts import Facts
from pliant.symbolic.relation import direction
from pliant.symbolic.static import declared, node_range, poly_range, static_range
from pliant.symbolic.subtotals import paired_low


class Ranges:
    """Intervals from declarations, learned bounds and the operators' range rules; remembered until more is known of them."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self._memo = facts.ranges

    def of(self, e: Expr) -> Any:
        """(lo, hi) of an int or bool; of a float too, unless it may be nan (None)."""
        memo = self._memo
        r = memo.get(e, e)
        if r is e:
            if not e.ctx.subtotals and self.facts.bounded.isdisjoint(e.leaves()):
                return static_range(e)
            for n in (e,) if e.info is not None else postorder(e, done=memo, leaf="subtotal"):
                memo.keep(n, self._compute(n))
                if n.ctx.subtotals and any(s.op == "subtotal" for s in n.leaves()):
                    self.facts.long.append(n)
            r = memo[e]
        return r

    def of_symbol(self, s: Expr) -> tuple:
        """`of` an int symbol, without a memo."""
        r = s.cache.get("range") or static_range(s)
        b = self.facts.bounds.get(s)
        return r if b is None else (b[0] if b[0] > r[0] else r[0], b[1] if b[1] < r[1] else r[1])

    def chunk(self, a: Expr) -> tuple:
        """The range of what the subtotal a adds to the one that it extends."""
        r = self.facts.chunks.get(a)
        if r is None:
            members = [m[0] for m, _ in a.args[0].terms if m[0].op != "subtotal"]
            r = (0, 0)
            for x in members:
                r = iv.add(r, self.of(x))
            self.facts.chunks.keep(a, r, leaves=members)
        return r

    def _compute(self, e: Expr) -> Any:
        if e.const is not None:
            return None if e.const != e.const else (e.const, e.const)
        memo = self._memo
        if e.op == "sum":
            r: Any = poly_range(e, memo.__getitem__)
            if e.ctx.subtotals and (r[0] == -iv.INF or r[1] == iv.INF or r[0] < 0):
                of = memo.__getitem__
                r = iv.intersect(r, (paired_low(e, of, self.chunk), -paired_low(poly_scale(e, -1), of, self.chunk)))
            bounds = self.facts.bounds
            if bounds:
                q, k, c = direction(e)
                b = bounds.get(q)
                if b is not None:
                    b = iv.scale(b, k)
                    r = iv.intersect(r, (iv.endpoint_add(b[0], c), iv.endpoint_add(b[1], c)))
            return r
        if e.op == "subtotal":
            chain, depth = e.cache["chain"]
            r = (0, 0)
            for a in chain[:depth]:
                r = iv.add(r, self.chunk(a))
        else:
            r = declared(e) if e.op == "sym" else node_range(e, memo.__getitem__)
        b = self.facts.bounds.get(e)
        if b is not None:
            r = iv.intersect(r, b) if r is not None else b
        return r
