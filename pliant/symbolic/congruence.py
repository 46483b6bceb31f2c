"""The congruence part of the prover: what an integer is modulo something.

A residue `(m, r)` says: the value is r modulo m, 0 <= r < m; `(0, r)` says that it is r; `(1, 0)` says nothing.
"""

from __future__ import annotations

from math import gcd  # names that a program may replace in the module

from pliant.symbolic.expr import Expr, postorder
from pliant.symbolic.facts import Facts
from pliant.symbolic.relation import constant_of, direction

Residue = tuple[int, int]
NOTHING: Residue = (1, 0)


def make(m: int, r: int) -> Residue:
    m = abs(m)
    return (m, r % m) if m else (0, r)


def add(x: Residue, y: Residue) -> Residue:
    return make(gcd(x[0], y[0]), x[1] + y[1])


def mul(x: Residue, y: Residue) -> Residue:
    (m, r), (n, s) = x, y
    return make(gcd(m * n, m * s, n * r), r * s)


def join(x: Residue, y: Residue) -> Residue:
    """What holds of a value that is one or the other."""
    return make(gcd(x[0], y[0], x[1] - y[1]), x[1])


def meet(x: Residue, y: Residue) -> Residue | None:
    """Both at once (the Chinese remainder theorem); None if they contradict."""
    (m, r), (n, s) = x, y
    if m == 0 or n == 0:
        (v, (k, t)) = (r, y) if m == 0 else (s, x)
        return (0, v) if (v == t if k == 0 else (v - t) % k == 0) else None
    g = gcd(m, n)
    if (r - s) % g:
        return None
    lcm = m // g * n
    return make(lcm, r + m * ((s - r) // g * pow(m // g, -1, n // g) % (n // g)))


def of_symbols(e: Expr) -> Residue | None:
    """The residue of a sum of products of symbols of which nothing is known; None if it has other parts."""
    g = k = 0
    for m, c in e.terms:
        if not m:
            k = c
            continue
        for a in m:
            if a.info is None and a.op != "subtotal":
                return None
        g = gcd(g, c)
        if g == 1:
            return NOTHING
    return make(g, k)


class Congruence:
    """Residues under the facts of a scope."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self._memo = facts.residue

    def of(self, e: Expr) -> Residue:
        if e.info is not None and not self.facts.residues:
            return NOTHING
        if e.op == "sum" and not self.facts.residues:
            r = of_symbols(e)
            if r is not None:
                return r
        memo = self._memo
        r = memo.get(e)
        if r is None:
            for n in postorder(e, done=memo, leaf="subtotal"):
                memo.keep(n, self._compute(n))
            r = memo[e]
        return r

    def _compute(self, e: Expr) -> Residue:
        if e.const is not None:
            return (0, int(e.const)) if e.kind is not float else NOTHING
        if e.kind is not int:
            return NOTHING
        r = self._sum(e) if e.op == "sum" else self._node(e)
        known = self.facts.residues
        if known:
            q, k, c = direction(e)
            f = known.get(q)
            if f is not None:
                r = meet(r, add(mul(f, (0, k)), (0, c))) or r
        return r

    def _sum(self, e: Expr) -> Residue:
        total: Residue = (0, 0)
        for mono, c in e.terms:
            if not self.facts.residues and len(mono) == 1 and mono[0].info is not None:
                total = add(total, (abs(c), 0))  # any multiple of c
                if total[0] == 1:
                    return NOTHING
                continue
            t: Residue = (0, c)
            for a in mono:
                t = mul(t, self._memo[a])
            total = add(total, t)
            if total == NOTHING:
                break
        return total

    def _node(self, e: Expr) -> Residue:
        memo = self._memo
        match e.op:
            case "mod":
                (m, r), k = memo[e.args[0]], e.args[1].const
                if k is None:
                    return NOTHING
                if m % k == 0:
                    return (0, r % k)
                return make(gcd(m, k), r)
            case "floordiv":
                (m, r), k = memo[e.args[0]], e.args[1].const
                if k is None or m % k:
                    return NOTHING
                return make(m // k, r // k)
            case "min" | "max" | "where":
                args = e.args[1:] if e.op == "where" else e.args
                out = memo[args[0]]
                for a in args[1:]:
                    out = join(out, memo[a])
                return out
            case "abs":
                m, r = memo[e.args[0]]
                return join((m, r), make(m, -r))
        return NOTHING

    def learn_equal(self, p: Expr) -> bool:
        """p == 0: what it says of remainders. True if something was stored."""
        lin = [(m, c) for m, c in p.terms if m]
        if len(lin) == 1 and abs(lin[0][1]) == 1 and len(lin[0][0]) == 1 and lin[0][0][0].op == "mod":
            a, b = lin[0][0][0].args
            if b.const is not None:
                return self._store(a, b.const, -constant_of(p) * lin[0][1])
        changed = False
        if len(lin) <= 4:
            for m, c in lin:  # c*x == -rest: rest is divisible by c, so x is known modulo what rest/c is
                if abs(c) == 1 or len(m) != 1:
                    continue
                rest = p.ctx.poly({n: k for n, k in p.terms if n is not m})
                changed |= self._store(rest, abs(c), 0)
        return changed

    def _store(self, a: Expr, m: int, r: int) -> bool:
        """a is r modulo m: as a residue of a's direction."""
        m = abs(m)
        q, k, c = direction(a)
        g = gcd(k, m)
        if (r - c) % g:
            return False  # contradiction: no model reaches this point
        m, target = m // g, (r - c) // g
        if m == 1:
            return False
        new = make(m, target * pow(k // g, -1, m))
        old = self.facts.residues.get(q, NOTHING)
        both = meet(old, new)
        if both is None or both == old:
            return False
        self.facts.set(self.facts.residues, q, both)
        return True
