"""The equality part of the prover: a triangular substitution, and simplification under the facts.

Learning `p == 0` solves for an atom and replaces it everywhere from then on (a union-find whose representatives are
expressions). Simplification also uses ranges and residues: what has one value is that value.

Rewriting ends, since every rule leads to something smaller:

- `symbol -> e`: e has only symbols that stand for themselves, so of two replaced symbols the one that was replaced first
  never comes back. The order in which symbols go is that of the program's facts.
- `operator(...) -> e`: only between expressions whose symbols all stand for themselves (when one of them is replaced, such a rule is
  dropped, and learned anew from its fact in the simpler form); e is smaller by `size`: the newest symbols first, then age.
- `operator(...) -> constant` leads nowhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pliant.symbolic.congruence import Congruence
from pliant.symbolic.expr import Expr, apply, poly_add, poly_mul, postorder, same, value_of
from pliant.symbolic.facts import Facts
from pliant.symbolic.ranges import Ranges

MAX_TERMS = 4  # longer right-hand sides would make every later expression grow: they stay linear facts


def _at(e: Expr, constants: dict[Expr, Expr]) -> Expr:
    """The value of e, whose symbols are all known."""
    done: dict[Expr, Any] = {}
    for n in postorder(e):
        done[n] = constants[n].const if n.info is not None else value_of(n, done.__getitem__)
    return e.ctx.lift(done[e])


Size = tuple[tuple[int, ...], int]


def size(e: Expr) -> Size:
    """A well-founded order: by the set of symbols, compared from the newest on, then by age. No part of e is larger than e."""
    return tuple([s.serial for s in reversed(e.symbols())]), e.serial


def _later(s: Expr, x: Expr) -> bool:
    """Whether s may be unknown where x is used: a symbol is only replaced by what the graph has by then."""
    return not s.info.backed and (x.info.backed or s.serial > x.serial)


class Equalities:
    """`simplify` and `solve` over the shared facts."""

    def __init__(self, facts: Facts, ranges: Ranges, congruence: Congruence, holds: Callable[[Expr], bool | None]) -> None:
        self.facts = facts
        self.ranges = ranges
        self.congruence = congruence
        self.holds = holds  # a cheap look-up of a bool expression
        self._memo = facts.simple
        self._conditional = -1  # the version at which a choice was last simplified: it rests on any fact
        self.opened = False  # whether a member of some subtotal was replaced: only then are they looked into

    def simplify(self, e: Expr) -> Expr:
        """An equal expression, as simple as the facts make it."""
        facts = self.facts
        equal = facts.equal
        if equal:
            value = equal.get(e)
            if value is not None and value.const is not None:
                return value
        if not self.opened and facts.touched.isdisjoint(e.leaves()):
            return e
        memo = self._memo
        if equal and e.const is None and not self._conditional >= 0:
            for s in e.leaves():
                value = equal.get(s)
                if value is None or value.const is None:
                    break
            else:  # all specialized
                r = memo.get(e)
                if r is None:
                    r = _at(e, equal)
                    memo.keep(e, r)
                return r
        if (self.opened or self._conditional >= 0) and self._conditional != facts.version:
            memo.clear()  # a choice rests on any fact, and inside subtotals nobody keeps track
            self._conditional = facts.version
        r = memo.get(e)
        if r is None:
            for n in (e,) if e.info is not None else postorder(e, done=memo, leaf="" if self.opened else "subtotal"):
                r = self._rewrite(n)
                memo.keep(n, r, r if r is not n else None)
            r = memo[e]
        return r

    def _rewrite(self, e: Expr) -> Expr:
        if e.const is not None:
            return e
        target = self.facts.equal.get(e)
        if target is not None:
            while target.info is not None and (further := self.facts.equal.get(target)) is not None:
                target = further  # 500 equal lengths are a long chain
            return target if target.const is not None else self.simplify(target)
        if e.op == "sym":
            return self._value(e)
        memo = self._memo
        if e.op == "sum":
            return self._value(self._sum(e))
        if e.op == "subtotal" and not self.opened:
            return e
        args = tuple([memo[a] for a in e.args])
        r = e if same(args, e.args) else apply(e.op, *args)
        if r is not e:
            return r if r.const is not None else self._value(self._further(e, r))
        return self._value(self._local(e))

    def _further(self, e: Expr, r: Expr) -> Expr:
        """What r equals, where e has become r: simplified if that leads downwards, as it stands if that is not plain to see."""
        target = self.facts.equal.get(r)
        if target is None:
            return r
        if target.const is not None or not (self._replaced(e) or size(r) < size(e)):
            return target
        return self.simplify(target)

    def _replaced(self, e: Expr) -> bool:
        """Whether a symbol of e stands for something else."""
        return not self.facts.equal.keys().isdisjoint(e.symbols())

    def _sum(self, e: Expr) -> Expr:
        memo = self._memo
        if all(memo[a] is a for mono, _ in e.terms for a in mono):
            return e
        total = e.ctx.zero
        for mono, c in e.terms:
            t = e.ctx.lift(c)
            for a in mono:
                t = poly_mul(t, memo[a])
            total = poly_add(total, t)
        return total

    def _value(self, e: Expr) -> Expr:
        """Its constant, if the facts leave only one."""
        if e.const is not None or e.kind is float:
            return e
        r = self.ranges.of(e)
        if r[0] == r[1]:
            return e.ctx.lift(r[0] if e.kind is int else bool(r[0]))
        if e.kind is int:
            m, v = self.congruence.of(e)
            if m == 0:
                return e.ctx.lift(v)
        return e

    def _local(self, e: Expr) -> Expr:
        """Rules of single operators that need facts."""
        match e.op:
            case "mod":
                a, b = e.args
                if self.ranges.of(a)[0] >= 0 and self.ranges.of(poly_add(b, a, -1))[0] > 0:
                    return a
            case "min" | "max":
                sign = 1 if e.op == "max" else -1
                if len(e.args) == 2:
                    lo, hi = self.ranges.of(poly_add(e.args[0], e.args[1], -sign * sign))
                    if (lo if sign > 0 else -hi) >= 0:
                        return e.args[0]
                    if (hi if sign > 0 else -lo) <= 0:
                        return e.args[1]
            case "where":
                self._conditional = self.facts.version
                v = self.holds(e.args[0])
                if v is not None:
                    return e.args[1] if v else e.args[2]
            case "abs":
                lo, hi = self.ranges.of(e.args[0])
                if lo >= 0:
                    return e.args[0]
                if hi <= 0:
                    return -e.args[0]
        return e

    def solve(self, p: Expr) -> tuple[Expr, Expr] | None:
        """(x, e) with x == e from p == 0, such that `x -> e` may be a rule; None if no atom is worth it. p is simplified."""
        if len(p.terms) > MAX_TERMS + 1:
            return None
        best: tuple[tuple, Expr, int] | None = None
        atoms = [(m[0], c) for m, c in p.terms if len(m) == 1 and abs(c) == 1]
        long = any(a.op == "subtotal" for m, _ in p.terms for a in m)
        for x, c in atoms:
            info = x.info
            if info is None or (long and "member" in x.cache):
                continue
            others = {s for m, _ in p.terms if not (len(m) == 1 and m[0] is x) for a in m for s in a.symbols()}
            if x in others or any(_later(s, x) for s in others) or not self.facts.equal.keys().isdisjoint(others):
                continue
            rank = (not info.backed, x.serial)
            if best is None or rank > best[0]:
                best = (rank, x, c)
        if best is None:
            found = self._largest(p, atoms)
            if found is None:
                return None
            best = ((), *found)
        _, x, c = best
        rest = poly_add(p, p.ctx.poly({(x,): c}), -1)
        return x, rest if c == -1 else -rest

    def _largest(self, p: Expr, atoms: list[tuple[Expr, int]]) -> tuple[Expr, int] | None:
        """The operator's node among the atoms of p that is larger than all else in it."""
        all_atoms = {a for m, _ in p.terms for a in m}
        if len(all_atoms) > 1 and (any(a.info is not None for a in all_atoms) or self._replaced(p)):
            return None  # keep what is known of the operator; a symbol goes instead, or nothing
        largest = max(all_atoms, key=size)
        if largest.op == "subtotal" or sum(a is largest for m, _ in p.terms for a in m) > 1:
            return None
        return next(((x, c) for x, c in atoms if x is largest), None)
