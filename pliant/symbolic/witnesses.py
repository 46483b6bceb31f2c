"""A few worlds in which all facts hold: what is false in one of them need not be proven.

Most questions that cannot be proven are simply not true (`u == 1` of a length), and a search would only find out slowly. A witness is an
assignment of numbers to symbols that satisfies every fact; evaluating a claim in all of them is cheap, as values are remembered for each
expression. A fact that a witness violates repairs it by moving one symbol, or drops it. Without witnesses nothing is lost but time: they
only ever say "do not try".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pliant.symbolic.expr import Expr, Mono, postorder, value_of
from pliant.symbolic.facts import Facts, Memo
from pliant.symbolic.intervals import ALL, intersect
from pliant.symbolic.relation import direction
from pliant.symbolic.static import declared

#: How far above its lower bound a symbol lies; each symbol meets all four. In one more world everything is huge, for `s <= 2**63 - 1`.
OFFSETS = (0, 1, 2, 5)
HUGE = 1 << 66
WORLDS = len(OFFSETS) + 1
RECHECKED = 64  # facts about one symbol; with more, a violated witness is dropped rather than repaired
MAX_EXPONENT = 64
Values = tuple[Any, ...]  # of one expression in every world; None where it has none (a division by zero)


class Witnesses:
    """The worlds of one scope."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.worlds = list(range(WORLDS))  # those in which all facts hold
        self.symbols: dict[Expr, list[Any]] = {}
        self._values = Memo()
        self._pending: dict[Expr, None] = {}  # facts not yet looked at, in their order

    def values(self, e: Expr) -> Values:
        """Its value in every world."""
        memo = self._values
        v = memo.get(e)
        if v is None:
            for n in postorder(e, done=memo):
                memo.keep(n, self._compute(n))
            v = memo[e]
        return v

    def _compute(self, n: Expr) -> Values:
        if n.const is not None:
            return (n.const,) * WORLDS
        if n.info is not None:
            return tuple(self._symbol(n))
        memo = self._values
        if n.op == "sum":  # the usual case, without a call for each world
            columns = [_product(memo, m, c) for m, c in n.terms]
            return tuple([None if None in row else sum(row) for row in zip(*columns, strict=True)])
        if n.op in ("lshift", "int_pow") and not all(x is not None and x <= MAX_EXPONENT for x in memo[n.args[1]]):
            return (None,) * WORLDS  # a number with 2**66 digits
        return tuple([_guarded(n, lambda a, i=i: memo[a][i]) for i in range(WORLDS)])

    def _symbol(self, s: Expr) -> list[Any]:
        values = self.symbols.get(s)
        if values is None:
            lo, hi = self.facts.bounds.get(s, ALL)
            values = self.symbols[s] = [min(max(_invent(s, i), lo), hi) for i in range(WORLDS)]
        return values

    # facts ---------------------------------------------------------------------------

    def learn(self, c: Expr) -> None:
        """c, a normal relation, has just become a fact: the worlds hear of it when they are next asked."""
        self._pending[c] = None

    def _settle(self) -> None:
        """Every fact that was learned meanwhile holds in the worlds that remain."""
        while self._pending:
            c = next(iter(self._pending))
            del self._pending[c]
            if c.op == "ge" and (s := direction(c.args[0])[0]).info is not None and s not in self.symbols:
                continue  # a bound of a symbol that no world has met: it will be born within
            values = self.values(c)
            wrong = [w for w in self.worlds if values[w] is not True]
            if wrong:
                lost = self._repair(wrong, c)
                if lost:
                    self.worlds = [w for w in self.worlds if w not in lost]

    def _repair(self, wrong: list[int], c: Expr) -> list[int]:
        """Move one symbol in each of these worlds so that c holds, and with it all other facts. Returns those where that failed."""
        if c.op not in ("eq", "ge") or c.args[0].kind is not int:
            return wrong
        p = c.args[0]
        singles = [(m[0], k) for m, k in p.terms if len(m) == 1 and m[0].info is not None and abs(k) == 1]
        singles.sort(key=lambda t: -t[0].serial)
        for s, k in [*singles[:2], *singles[2:][-1:]]:
            about = self.facts.about.get(s, ())
            inside = "member" in s.cache  # a fact about a subtotal is one about s
            if len(about) > RECHECKED or (inside and len(self.facts.true) > 2 * RECHECKED):
                continue
            lo, hi = intersect(declared(s), self.facts.bounds.get(s, ALL))
            off = self.values(p)
            values = self._symbol(s)
            old = list(values)
            for w in wrong:
                v = off[w]
                if v is not None and lo <= old[w] - v * k <= hi:
                    values[w] = old[w] - v * k
            self._forget(s, inside)
            others = [f for f in ([f for f, true in self.facts.true.items() if true] if inside else about) if f not in self._pending]
            failed = [w for w in wrong if not (self.values(c)[w] is True and all(self.values(f)[w] is True for f in others))]
            if failed:
                for w in failed:
                    values[w] = old[w]
                self._forget(s, inside)
            if not failed:
                return []
            wrong = failed
        return wrong

    def _forget(self, s: Expr, inside: bool) -> None:
        if inside:
            self._values.clear()
        else:
            self._values.forget(s)

    # refutations ---------------------------------------------------------------------

    def refute_nonnegative(self, p: Expr) -> bool:
        """Whether p is negative in some world."""
        if self._pending:
            self._settle()
        values = self.values(p)
        return any((v := values[w]) is not None and v < 0 for w in self.worlds)

    def refute_zero(self, p: Expr) -> bool:
        if self._pending:
            self._settle()
        values = self.values(p)
        return any((v := values[w]) is not None and v != 0 for w in self.worlds)

    def refute_nonzero(self, p: Expr) -> bool:
        if self._pending:
            self._settle()
        values = self.values(p)
        return any(values[w] == 0 for w in self.worlds)


def _invent(s: Expr, world: int) -> Any:
    """A value within the declared range."""
    info = s.info
    if info.kind is bool:
        return bool((s.serial + world) % 2)
    if info.kind is float or (info.backed and world == 0):
        return info.hint if info.hint is not None else info.lo if info.lo is not None else 0.5
    if info.lo is None and info.hi is None and world == 0:
        return -1 - s.serial % 3  # the one world in which such a symbol is negative
    lo = info.lo if info.lo is not None else 0 if info.hi is None else info.hi - 5
    v = lo + (HUGE + s.serial if world == WORLDS - 1 else OFFSETS[(s.serial + world) % len(OFFSETS)])
    return v if info.hi is None or v <= info.hi else info.hi


def _product(memo: dict[Expr, Values], mono: Mono, c: int) -> Sequence[Any]:
    """The values of one term."""
    if c == 1 and len(mono) == 1:
        return memo[mono[0]]
    out: list[Any] = [c] * WORLDS
    for a in mono:
        out = [None if x is None or y is None else x * y for x, y in zip(out, memo[a], strict=True)]
    return out


def _guarded(n: Expr, of: Any) -> Any:
    try:
        return value_of(n, of)
    except (ArithmeticError, ValueError, MemoryError):
        return None
