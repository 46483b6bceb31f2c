"""The prover: cooperating parts, each a file, asked in order of cost up to a stated strength.

| strength | what may be used                                                             | cost          |
|----------|------------------------------------------------------------------------------|---------------|
| LOOKUP   | constants and what was asked or learned before                               | constant      |
| CHEAP    | + substitution, intervals, residues, one known direction                     | size of p     |
| FULL     | + elimination with facts, operators' own inequalities, factors and divisions | bounded search |

Every part is sound: it may miss a truth, it never invents one.
"""

from __future__ import annotations

from typing import Any

from pliant.symbolic import intervals as iv
from pliant.symbolic.congruence import Congruence
from pliant.symbolic.equalities import Equalities
from pliant.symbolic.expr import TABLE, Expr, apply, poly_add, poly_mul, poly_scale
from pliant.symbolic.facts import Facts
from pliant.symbolic.linear_sums import Linear
from pliant.symbolic.ranges import Ranges
from pliant.symbolic.relation import (
    MIRROR,
    direction,
    is_int_comparison,
    mono_common,
    mono_without,
    negated,
    normal,
    relation,
    shift,
    whole_quotient,
)
from pliant.symbolic.subtotals import flat, overlapping
from pliant.symbolic.witnesses import Witnesses

LOOKUP, CHEAP, FULL = 0, 1, 2
DEPTH = 4
INF = iv.INF
UNSETTLED = object()


class Prover:
    """Answers for one scope. `prove` never changes facts, `learn` only adds to them."""

    def __init__(self) -> None:
        self.facts = Facts()
        self.ranges = Ranges(self.facts)
        self.congruence = Congruence(self.facts)
        self.equalities = Equalities(self.facts, self.ranges, self.congruence, self._lookup)
        self.linear = Linear(self.facts, self.ranges)
        self.witnesses = Witnesses(self.facts)

    # questions -----------------------------------------------------------------------

    def _lookup(self, c: Expr) -> bool | None:
        """What is remembered of c, or of its opposite."""
        v = self._plain(c, LOOKUP)
        if v is not UNSETTLED:
            return v
        n = normal(c)
        if n.const is not None:
            return bool(n.const)
        v = self.facts.true.get(n)
        return v if v is not None or self.facts.true.get(negated(n)) is not True else False

    def prove(self, c: Expr, strength: int = FULL) -> bool | None:
        """True or False if that follows for every model of the facts, else None. `c` is a bool expression."""
        v = self._plain(c, strength)
        if v is not UNSETTLED:
            return v
        if self.facts.equal and strength > LOOKUP and is_int_comparison(c):
            v = self._pinned(c)
            if v is not None:
                return v
        n = normal(c)
        if n.const is not None:
            return bool(n.const)
        if strength == LOOKUP:
            return self._lookup(n)
        v = self.facts.true.get(n)
        if v is not None:
            return v
        s = self._substituted(n)
        if s.const is not None:
            return bool(s.const)
        if s is not n:
            v = self.facts.true.get(s)
            if v is not None:
                return v
        return self._structure(s, strength)

    def _plain(self, c: Expr, strength: int) -> Any:
        """The answer for a symbol against a number, most questions of all; UNSETTLED if c is something else, or wants more thought."""
        plain = symbol_and_number(c)
        if plain is None:
            return UNSETTLED
        op, s, k = plain
        facts = self.facts
        if s in facts.equal:
            return UNSETTLED
        lo, hi = self.ranges.of_symbol(s)
        if op == "ge" or op == "lt":
            if lo >= k or hi < k:
                return (lo >= k) == (op == "ge")
        elif op == "gt" or op == "le":
            if lo > k or hi <= k:
                return (lo > k) == (op == "gt")
        elif lo > k or hi < k or k in facts.excluded.get(s, ()):
            return op == "ne"
        elif lo == hi:
            return op == "eq"
        elif s in facts.residues:
            return UNSETTLED
        return None if strength < FULL or not self.linear.promising(s) else UNSETTLED

    def _pinned(self, c: Expr) -> bool | None:
        """The comparison c, if its sides have become constants: found without normal form."""
        a, b = c.args
        equal, simplify = self.facts.equal, self.equalities.simplify
        for x in (a, b):
            if x.const is None:
                first = equal.get(x.leaves()[0])
                if first is None or first.const is None:
                    return None
        a, b = simplify(a), simplify(b)
        return None if a.const is None or b.const is None else bool(TABLE[c.op].fn(a.const, b.const))

    def _substituted(self, n: Expr) -> Expr:
        """The normal relation n under the equalities."""
        if n.op in ("ge", "eq", "ne") and n.args[1].const == 0 and self._stands(n.args[0]):
            return n  # nothing to put in; what ranges say of the whole is asked next
        s = self.equalities.simplify(n)
        return n if s is n else normal(s)

    def _stands(self, p: Expr) -> bool:
        """Whether it is plain that each atom of p stands for itself: a symbol that equals nothing else, or a quotient of such."""
        for m, _ in p.terms:
            for x in m:
                if x.info is not None:
                    if self.equalities.simplify(x) is not x:
                        return False
                elif x.op == "subtotal":
                    if self.equalities.opened or x in self.facts.equal:
                        return False
                elif x.op != "floordiv" or x.args[1].const is None or x in self.facts.equal or not self._stands(x.args[0]):
                    return False
                else:
                    lo, hi = self.ranges.of(x)
                    if lo == hi:
                        return False
        return True

    def _structure(self, c: Expr, strength: int) -> bool | None:
        match c.op:
            case "and" | "or":
                stop = c.op == "or"
                answers = [self.prove(a, strength) for a in c.args]
                return stop if stop in answers else None if None in answers else not stop
            case "not":
                v = self.prove(c.args[0], strength)
                return None if v is None else not v
            case "where":
                v = self.prove(c.args[0], strength)
                if v is not None:
                    return self.prove(c.args[1 if v else 2], strength)
                a, b = (self.prove(x, strength) for x in c.args[1:])
                return a if a == b else None
            case "ge" | "eq" | "ne" if c.args[0].kind is int and c.args[1].const == 0:
                p = c.args[0]
                if c.op == "ge":
                    return self._nonnegative(p, strength)
                v = self._zero(p, strength)
                return v if v is None or c.op == "eq" else not v
        r = self.ranges.of(c)
        return bool(r[0]) if r is not None and r[0] == r[1] else None

    def _nonnegative(self, p: Expr, strength: int) -> bool | None:
        lo, hi = self.ranges.of(p)
        if lo >= 0:
            return True
        if hi < 0:
            return False
        if strength < FULL or not self.linear.promising(p):
            return None
        if self._sign(p, p.hint):
            return True
        return False if self._sign(shift(poly_scale(p, -1), -1), p.hint, negate=True) else None

    def _sign(self, p: Expr, hint, negate: bool = False) -> bool:
        """p >= 0 by search; not even tried where the hint or a witness, models of all facts, say otherwise."""
        if hint is not None and (hint >= 0) == negate:
            return False
        if p.ctx.subtotals and self.linear.within_total(p):
            return True
        if self.witnesses.refute_nonnegative(p):
            return False
        if self.linear.nonnegative(p, DEPTH):
            return True
        q = expand_divisions(p)
        if q is not p and self.linear.nonnegative(q, DEPTH):
            return True
        return self._by_factors(p) or (p.ctx.subtotals and overlapping(p) and self._flat_low(p) >= 0)

    def _flat_low(self, p: Expr):
        """A lower bound with all subtotals opened."""
        low = 0
        for m, c in flat(p).items():
            lo, hi = self.ranges.of(p.ctx.poly({m: 1}))
            low = iv.endpoint_add(low, iv.endpoint_mul(lo if c > 0 else hi, c))
            if low == -iv.INF:
                break
        return low

    def _by_factors(self, p: Expr) -> bool:
        """p = m * rest with both of one sign."""
        common = list(p.terms[0][0])
        for m, _ in p.terms[1:]:
            common = mono_common(common, m)
        if not common or len(p.terms) == 1:
            return False
        rest = p.ctx.poly({mono_without(m, common): c for m, c in p.terms})
        lo, hi = self.ranges.of(p.ctx.poly({tuple(common): 1}))
        if lo >= 0:
            return self.linear.nonnegative(rest, DEPTH)
        return hi <= 0 and self.linear.nonnegative(poly_scale(rest, -1), DEPTH)

    def _zero(self, p: Expr, strength: int) -> bool | None:
        lo, hi = self.ranges.of(p)
        if lo > 0 or hi < 0:
            return False
        if lo == hi == 0:
            return True
        if self.congruence.of(p)[1] != 0:
            return False
        q, k, c = direction(p)
        excluded = self.facts.excluded.get(q)
        if excluded and c % k == 0 and -c // k in excluded:
            return False
        if strength < FULL or not self.linear.promising(p):
            return None
        return self._zero_hard(p)

    def _zero_hard(self, p: Expr) -> bool | None:
        hint = p.hint
        if (hint is None or hint == 0) and not self.witnesses.refute_zero(p):
            q = expand_divisions(p)
            if q.const == 0 or self.equalities.simplify(q).const == 0:
                return True
            if p.ctx.subtotals and overlapping(p) and not flat(p):
                return True
            if self.linear.nonnegative(p, 2) and self.linear.nonnegative(poly_scale(p, -1), 2):
                return True
        if hint != 0 and not self.witnesses.refute_nonzero(p):
            if self._product_nonzero(p):
                return False
            if hint is None or hint > 0:
                if self._sign(shift(p, -1), None if hint is None else hint - 1):
                    return False
            if hint is None or hint < 0:
                if self._sign(shift(poly_scale(p, -1), -1), None if hint is None else -hint - 1):
                    return False
        return None

    def _product_nonzero(self, p: Expr) -> bool:
        """A product is zero only if a factor is."""
        return len(p.terms) == 1 and all(self.prove(relation("ne", a), CHEAP) for a in p.terms[0][0])

    # learning ------------------------------------------------------------------------

    def learn(self, c: Expr) -> None:
        """Add a truth. Several parts keep what they can use of it."""
        if self._learn_plain(c):
            return
        n = normal(c)
        if n.const is not None:
            return
        s = self._substituted(n)
        known = s.const is not None or self._by_range(s)
        self._note(n)
        if known:
            return
        if s is not n:
            self._note(s)
        self._absorb(s)
        if s.op != "or":
            self._reopen(s)

    def _learn_plain(self, c: Expr) -> bool:
        """Add a bound of a symbol; False if c is something else, or more follows from it. The bound is all that is to be kept of it."""
        plain = symbol_and_number(c)
        if plain is None:
            return False
        op, s, k = plain
        facts = self.facts
        if op == "eq" or op == "ne" or s in facts.equal or s in facts.excluded or facts.alternatives or s in self.witnesses.symbols:
            return False
        lo, hi = self.ranges.of_symbol(s)
        if op == "ge" or op == "gt":
            low, high = k + (op == "gt"), hi
        else:
            low, high = lo, k - (op == "lt")
        if low >= high or "member" in s.cache:
            return False
        if low > lo or high < hi:
            facts.bound(s, low, high)
        return True

    def _by_range(self, c: Expr) -> bool:
        """Whether ranges settle the relation c."""
        if c.op != "ge" or c.args[0].kind is not int:
            return False
        lo, hi = self.ranges.of(c.args[0])
        return lo >= 0 or hi < 0

    def _reopen(self, c: Expr) -> None:
        """Alternatives that c may have narrowed to one."""
        alternatives = self.facts.alternatives
        if alternatives:
            for x in near_symbols(c):
                for n in list(alternatives.get(x, ())):
                    self._absorb(n)

    def _note(self, n: Expr) -> None:
        facts = self.facts
        if facts.true.get(n) is True:
            return
        self.witnesses.learn(n)
        facts.set(facts.true, n, True)
        if not (n.op in ("ge", "eq", "ne") and n.args[0].kind is int):  # for these, bounds and excluded values say as much
            facts.set(facts.true, negated(n), False)
        for s in near_symbols(n):
            facts.add(facts.about, s, n)
            if n.op == "or":
                facts.add(facts.alternatives, s, n)

    def _absorb(self, c: Expr) -> None:
        match c.op:
            case "and":
                for a in c.args:
                    self.learn(a)
            case "or":
                open_ = [a for a in c.args if self.prove(a, CHEAP) is not False]
                if len(open_) == 1 and self.prove(open_[0], CHEAP) is None:
                    self.learn(open_[0])
            case "not" if c.args[0].op == "or":
                for a in c.args[0].args:
                    self.learn(apply("not", a))
            case "not" if c.args[0].kind is bool:
                self.assign(c.args[0], c.ctx.false)
            case "ge" if c.args[0].kind is int and c.args[1].const == 0:
                self._learn_ge(c.args[0])
            case "eq" if c.args[0].kind is int and c.args[1].const == 0:
                self._learn_zero(c.args[0])
            case "ne" if c.args[0].kind is int and c.args[1].const == 0:
                self._learn_nonzero(c.args[0])
            case "eq" if c.args[0].kind is float and c.args[1].const is not None and c.args[1].const != 0.0:
                self.assign(c.args[0], c.args[1])
            case "eq" if c.args[1].kind is float and c.args[0].const is not None and c.args[0].const != 0.0:
                self.assign(c.args[1], c.args[0])
            case "lt" | "le" | "gt" | "ge" if any(a.kind is float for a in c.args):
                self._learn_float_bound(c)
            case _ if c.kind is bool:
                self.assign(c, c.ctx.true)

    def assign(self, x: Expr, value: Expr) -> None:
        """x is that constant from here on."""
        facts = self.facts
        if x not in facts.equal and x.const is None and x.op != "sum":
            self._replace(x, value)
            self._revisit(x)

    def _replace(self, x: Expr, e: Expr) -> None:
        """`x -> e` is a rule from here on, and the other rules follow: see equalities.py for why rewriting ends."""
        facts, equal = self.facts, self.facts.equal
        self.equalities.opened |= "member" in x.cache
        facts.set(equal, x, e)
        if x.info is not None:
            for k in facts.resting.get(x, ()):
                target = equal.get(k)
                if target is None or target.const is not None:
                    continue
                if k.info is None:
                    facts.drop(equal, k)  # its fact is one about x: `_revisit` learns it anew
                elif target.info is None and (simpler := self.equalities.simplify(target)) is not target:
                    facts.set(equal, k, simpler)
                    self._rests(k, simpler)
        if e.const is None:
            self._rests(x, e)

    def _rests(self, x: Expr, e: Expr) -> None:
        for s in {*e.symbols(), *(x.symbols() if x.info is None else ())}:
            self.facts.add(self.facts.resting, s, x)

    def _revisit(self, x: Expr) -> None:
        """The facts about x say something about what replaces it."""
        for n in list(self.facts.about.get(x, ())):
            s = normal(self.equalities.simplify(n))
            if s is not n and s.const is None and self.facts.true.get(s) is None:
                self._note(s)
                self._absorb(s)

    def _learn_ge(self, p: Expr) -> None:
        q, k, c = direction(p)  # k*q + c >= 0
        changed = self.facts.tighten(q, -(c // k), float("inf")) if k > 0 else self.facts.tighten(q, -float("inf"), c // -k)
        if changed:
            self._close(q)
        common = list(p.terms[0][0])
        for m, _ in p.terms[1:]:
            common = mono_common(common, m)
        if common and len(p.terms) > 1 and self.ranges.of(p.ctx.poly({tuple(common): 1}))[0] > 0:
            self.learn(relation("ge", p.ctx.poly({mono_without(m, common): x for m, x in p.terms})))

    def _close(self, q: Expr) -> None:
        """Bounds that meet are an equality; an excluded end moves inwards."""
        lo, hi = self.facts.bounds[q]
        excluded = self.facts.excluded.get(q, ())
        if excluded:
            while lo in excluded:
                lo += 1
            while hi in excluded:
                hi -= 1
            self.facts.tighten(q, lo, hi)
        if lo == hi:
            self.learn(relation("eq", shift(q, -lo)))

    def _learn_zero(self, p: Expr) -> None:
        q, k, c = direction(p)
        self.facts.tighten(q, -c // k, -c // k)
        if q.info is not None:  # a symbol is a number
            self.assign(q, p.ctx.lift(-c // k))
            return
        self.congruence.learn_equal(p)
        if whole_quotient(p) is not None:
            self.learn(relation("ge", p))
            self.learn(relation("ge", poly_scale(p, -1)))
        solved = self.equalities.solve(p)
        if solved is not None:
            x, e = solved
            facts = self.facts
            if x not in facts.equal:
                bounds, residue = self.ranges.of(x), self.congruence.of(x)
                self._replace(x, e)
                self._inherit(e, bounds, residue)
                self._revisit(x)
        common = list(p.terms[0][0])
        for m, _ in p.terms[1:]:
            common = mono_common(common, m)
        common = [a for a in common if self.prove(relation("ne", a), CHEAP)]
        if common:
            self.learn(relation("eq", p.ctx.poly({mono_without(m, common): x for m, x in p.terms})))

    def _inherit(self, e: Expr, bounds, residue) -> None:
        """e takes over what was known of the atom that it replaces."""
        if e.const is not None:
            return
        if bounds[0] != -float("inf"):
            self.learn(relation("ge", shift(e, -bounds[0])))
        if bounds[1] != float("inf"):
            self.learn(relation("ge", shift(poly_scale(e, -1), bounds[1])))
        if residue[0] > 1:
            self.congruence._store(e, *residue)

    def _learn_nonzero(self, p: Expr) -> None:
        q, k, c = direction(p)
        if c % k:
            return
        v = -c // k
        facts = self.facts
        facts.set(facts.excluded, q, facts.excluded.get(q, frozenset()) | {v})
        lo, hi = self.ranges.of(q)
        if v == lo:
            self.learn(relation("ge", shift(q, -v - 1)))
        elif v == hi:
            self.learn(relation("ge", shift(poly_scale(q, -1), v - 1)))

    def _learn_float_bound(self, c: Expr) -> None:
        """x < k of a float: not nan, and an interval (closed: a sound hull)."""
        a, b = c.args
        below = c.op in ("lt", "le")
        for x, k, upper in ((a, b, below), (b, a, not below)):
            if x.kind is float and x.const is None and k.const is not None and k.const == k.const:
                self.facts.tighten(x, *((-float("inf"), k.const) if upper else (k.const, float("inf"))))


def symbol_and_number(c: Expr) -> tuple[str, Expr, int] | None:
    """(operator, symbol, number) of a comparison of the two, turned so that the symbol comes first; None if c is something else."""
    op = c.op
    if op not in MIRROR:
        return None
    a, b = c.args
    if a.info is not None:
        k = b.const
        if k.__class__ is int and a.kind is int:
            return op, a, k
    elif b.info is not None:
        k = a.const
        if k.__class__ is int and b.kind is int:
            return MIRROR[op], b, k
    return None


def near_symbols(c: Expr) -> list[Expr]:
    """The symbols of a relation, not looking into subtotals: a fact about a sum of 500 lengths is no fact about each."""
    return [n for n in c.leaves() if n.op == "sym"]


def expand_divisions(p: Expr) -> Expr:
    """p with every `b * (a // b)` written as `a - a % b`: remainders are easier to bound."""
    for _ in range(4):
        for mono, c in p.terms:
            q = _expand_term(p, mono, c)
            if q is not None:
                p = q
                break
        else:
            return p
    return p


def _expand_term(p: Expr, mono, c: int) -> Expr | None:
    ctx = p.ctx
    for x in mono:
        if x.op != "floordiv":
            continue
        a, b = x.args
        rest = mono_without(mono, (x,))
        if b.const is not None:
            k = c // b.const if c % b.const == 0 else None
        elif len(b.terms) == 1 and c % b.terms[0][1] == 0 and len(mono_common(rest, b.terms[0][0])) == len(b.terms[0][0]):
            k = c // b.terms[0][1]
            rest = mono_without(rest, b.terms[0][0])
        else:
            k = None
        if k is not None:
            remainder = poly_add(a, apply("mod", a, b), -1)
            return poly_add(poly_add(p, ctx.poly({mono: c}), -1), poly_mul(remainder, ctx.poly({rest: k})))
    return None
