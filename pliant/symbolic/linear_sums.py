"""The linear part of the prover: p >= 0 as a sum of known facts and a remainder that intervals settle.

To show p >= 0, a monomial that pulls p down is eliminated with a fact f >= 0 in which it has the same sign:
`|f_m| * p - |p_m| * f >= 0` implies the goal and no longer has m. Facts are the learned bounds, what an operator says of
itself (`b * (a // b) <= a`), and, for products, a fact times a factor that is not negative. Depth and work are limited:
this is where strength is paid for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pliant.symbolic import intervals as iv
from pliant.symbolic.expr import Expr, Mono, poly_add, poly_mul, poly_scale, same
from pliant.symbolic.facts import Facts
from pliant.symbolic.ranges import Ranges
from pliant.symbolic.relation import mono_common, mono_without, shift
from pliant.symbolic.static import mono_range, static_range
from pliant.symbolic.subtotals import cover, extends

WORK = 48  # eliminations tried for one question
LEAST = 4  # and for one whose answer is known for the values at hand, where many before it have come to nothing
MAX_TERMS = 40


class Linear:
    """Elimination over the shared facts."""

    def __init__(self, facts: Facts, ranges: Ranges) -> None:
        self.facts = facts
        self.ranges = ranges
        self.effort = WORK

    def nonnegative(self, p: Expr, depth: int) -> bool:
        """Whether p >= 0 follows, with at most `depth` facts in a row."""
        if p.const is not None:
            return bool(p.const >= 0)
        if not self.promising(p):
            return bool(self.ranges.of(p)[0] >= 0)
        if p.hint is None:  # without a proof there is no answer
            self._left = WORK
            return self._search(p, depth, set())
        self._left = self.effort  # without one there is a guard more
        found = self._search(p, depth, set())
        self.effort = WORK if found else max(self.effort * 3 // 4, LEAST)
        return found

    def within_total(self, p: Expr) -> bool:
        """Whether p >= 0 is plain from what a long sum comes to: p is that total less a part of the sum, whose parts are not negative.

        So is each prefix of 500 lengths that add up to a size. `nonnegative` finds it too, after it has looked at every term.
        """
        newest: Expr | None = None
        part: Expr | None = None  # the subtotal that p is less than
        positive = False
        for m, c in p.terms:
            if c > 0:
                positive = True
            elif len(m) == 1:
                a = m[0]
                if a.op == "subtotal":
                    part = a
                elif "member" in a.cache and (newest is None or a.serial > newest.serial):
                    newest = a
        if not positive:
            return False
        if newest is not None:
            part = newest.cache["member"]
            rest = cover(part, p, self.ranges.of)
            if rest is None:
                return False
            p = poly_add(p, rest, -1)
        if part is None:
            return False
        c = next((k for m, k in p.terms if len(m) == 1 and m[0] is part), 0)
        if c < 0:
            for a, qs in self.facts.chains.items():
                if a is part or extends(a, part):
                    for q in qs:
                        lo, hi = self.facts.bounds[q]
                        k = next(x for m, x in q.terms if len(m) == 1 and m[0] is a)
                        if lo == hi and c % k == 0 and self.ranges.of(poly_add(p, q, -c // k, c // k * lo))[0] >= 0:
                            return True
        return False

    def promising(self, p: Expr) -> bool:
        """Whether anything beyond ranges may speak of p (no number): not where ranges are exact and no longer fact has a part of it."""
        first = p.terms[0][0]
        if len(first) == 1 and first[0].info is not None and (len(p.terms) == 1 or not p.terms[1][0]):  # a symbol against a number
            return first in self.facts.mentions or "member" in first[0].cache
        parts = p.cache.get("corners", p)
        if parts is p:
            parts = p.cache["corners"] = corners(p)
        return parts is None or not self.facts.mentions.keys().isdisjoint(parts)

    def _search(self, p: Expr, depth: int, seen: set[Expr]) -> bool:
        if self.ranges.of(p)[0] >= 0:
            return True
        if depth == 0 or p in seen or p.const is not None:
            return False
        seen.add(p)
        obstacles = self._obstacles(p)
        if obstacles is None:
            return False
        for mono, c in obstacles:
            for f in self.facts_on(p, mono, c > 0):
                if self._left <= 0:
                    return False
                self._left -= 1
                k = next((x for m, x in f.terms if same(m, mono)), c)  # none: a fact about a longer subtotal, taken as it is
                scaled = shift(poly_scale(p, abs(k)), abs(k) - 1)  # p is whole: k*p + k - 1 >= 0 says no less
                if self._search(poly_add(scaled, f, -abs(c)), depth - 1, seen):
                    return True
        return False

    def _obstacles(self, p: Expr) -> list[tuple[Mono, int]] | None:
        """The monomials that pull p below zero, the worst first; None if one has no end and no fact is about it."""
        out = []
        for mono, c in p.terms:
            if mono:
                lo, hi = mono_range(mono, self.ranges.of)
                low = iv.endpoint_mul(lo if c > 0 else hi, c)
                if low < 0 or (c > 0 and lo > 0 and len(p.terms) == 2):
                    out.append((low, mono, c))
        out.sort(key=lambda t: t[0])
        unbounded = [t for t in out if t[0] == -iv.INF]
        for _, m, c in reversed(unbounded[1:]):  # the first finds out by itself
            if next(self.facts_on(p, m, c > 0), None) is None:
                return None
        return [(m, c) for _, m, c in (unbounded[:1] if unbounded else out[:3])]

    def facts_on(self, p: Expr, mono: Mono, positive: bool) -> Iterator[Expr]:
        """Expressions known to be >= 0 in which `mono` has a coefficient of that sign."""
        yield from self._bounds_on(mono, positive)
        if len(mono) == 1 and mono[0].ctx.subtotals:
            yield from self._subtotal_facts(p, mono[0], positive)
        for x in dict.fromkeys(mono):
            rest = mono_without(mono, (x,))
            if x.op not in ("sym", "sum"):
                for f in definitional(x, self.ranges):
                    g = f if not rest else poly_mul(f, f.ctx.poly({rest: 1})) if mono_range(rest, self.ranges.of)[0] >= 0 else None
                    if g is not None and any(same(m, mono) and (c > 0) == positive for m, c in g.terms):
                        yield g
            if rest and self.ranges.of(x)[0] >= 0:
                for f in self._bounds_on(rest, positive):
                    yield poly_mul(f, x)
        for other, _ in p.terms:  # y between bounds in a product: x*y >= lo*x and x*y <= hi*x for x >= 0
            if len(other) > len(mono) and mono and len(mono_common(other, mono)) == len(mono) and mono_range(mono, self.ranges.of)[0] >= 0:
                for sign, bound in zip((1, -1), mono_range(mono_without(other, mono), self.ranges.of), strict=True):
                    if bound not in (0, iv.INF, -iv.INF) and (-sign * bound > 0) == positive:
                        yield p.ctx.poly({other: sign, mono: -sign * bound})
        for other, _ in p.terms:  # what max, abs, // say of their operands
            if len(other) == 1 and other[0].op in ("max", "abs", "floordiv", "min", "mod"):
                for f in definitional(other[0], self.ranges):
                    if any(same(m, mono) and (c > 0) == positive for m, c in f.terms):
                        yield f

    def _subtotal_facts(self, p: Expr, x: Expr, positive: bool) -> Iterator[Expr]:
        """For a symbol, the subtotal that holds it; for a subtotal, the facts about those that extend it."""
        if x.op == "subtotal":
            for a, qs in self.facts.chains.items():
                if a is not x and extends(a, x):
                    for q in qs:
                        yield from self._bound_facts(q, (a,), positive)
        elif "member" in x.cache and not positive:
            f = cover(x.cache["member"], p, self.ranges.of)
            if f is not None:
                yield f

    def _bounds_on(self, mono: Mono, positive: bool) -> Iterator[Expr]:
        about: Sequence[Expr] = self.facts.mentions.get(mono, ())
        if len(about) > 2 * WORK:
            about = [*about[:WORK], *about[-WORK:]]  # no more could be tried
        for q in about:
            if len(q.terms) == 1 or len(q.terms) > MAX_TERMS:
                continue
            yield from self._bound_facts(q, mono, positive)

    def _bound_facts(self, q: Expr, mono: Mono, positive: bool) -> Iterator[Expr]:
        """The bounds of q as facts in which `mono` has that sign."""
        lo, hi = self.facts.bounds[q]
        above = next(c for m, c in q.terms if same(m, mono)) > 0
        if above == positive and lo != -iv.INF:
            yield shift(q, -lo)
        elif above != positive and hi != iv.INF:
            yield shift(poly_scale(q, -1), hi)


def corners(p: Expr) -> list[Mono] | None:
    """The monomials that p is made of, if its bounds are those of intervals as long as its symbols have only bounds; else None.

    So it is where p never falls with a symbol, or never rises: then it is least with all of them at one end. Or where each
    monomial is such and no two share a symbol.
    """
    found: list[Mono] = []
    terms = [(m, c) for m, c in p.terms if m]
    for m, _ in terms:
        if len(m) > 1:
            found.append(m)
        for a in m:
            if (len(m) > 1 and static_range(a)[0] < 0) or not _rises(a, found):
                return None
    if len(terms) > 1 and len({c > 0 for _, c in terms}) == 2 and any(len(m) > 1 or m[0].info is None for m, _ in terms):
        leaves = [s for m, _ in terms for s in {s for a in m for s in a.leaves()}]
        if len(leaves) != len(set(leaves)):
            return None
    return found


def _rises(a: Expr, found: list[Mono]) -> bool:
    """Whether the atom a never falls when a symbol grows, as far as is plain to see; what it is made of is added to `found`."""
    found.append((a,))
    if a.info is not None:
        return "member" not in a.cache
    if a.op != "floordiv" or (a.args[1].const or 0) <= 0:
        return False
    return all(not m or (c > 0 and len(m) == 1 and _rises(m[0], found)) for m, c in a.args[0].terms)


def definitional(x: Expr, ranges: Ranges) -> list[Expr]:
    """Expressions >= 0 that the meaning of an operator's node gives."""
    match x.op:
        case "floordiv":
            a, b = x.args
            lo, hi = ranges.of(b)
            remainder = poly_add(a, poly_mul(b, x), -1)
            if lo > 0:
                out = [remainder, shift(poly_add(b, remainder, -1), -1)]
                alo, ahi = ranges.of(a)
                if b.const is None and alo >= 0:
                    out.append(poly_add(a, x, -1))  # a // b <= a
                if b.const is None and ahi <= 0:
                    out.append(poly_add(x, a, -1))
                return out
            if hi < 0:
                return [-remainder, shift(poly_add(remainder, b, -1), -1)]
        case "mod":
            a, b = x.args
            lo, hi = ranges.of(b)
            if lo > 0:
                out = [x, shift(poly_add(b, x, -1), -1)]
                if ranges.of(a)[0] >= 0:
                    out.append(poly_add(a, x, -1))
                return out
            if hi < 0:
                return [-x, shift(poly_add(x, b, -1), -1)]
        case "min":
            return [poly_add(a, x, -1) for a in x.args]
        case "max":
            return [poly_add(x, a, -1) for a in x.args]
        case "abs":
            return [poly_add(x, x.args[0], -1), poly_add(x, x.args[0])]
    return []
