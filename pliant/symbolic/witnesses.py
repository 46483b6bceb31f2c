"""A few worlds in which all facts hold: what is false in one of them need not be proven.

Most questions that cannot be proven are simply not true (`u == 1` of a length), and a search would only find out slowly. A witness is an
assignment of numbers to symbols that satisfies every fact; evaluating a claim in it is cheap, as values are remembered for each expression.
A fact that a witness violates repairs it by moving one symbol, or drops it. Without witnesses nothing is lost but time: they only ever
say "do not try".
"""

from __future__ import annotations

from typing import Any

from pliant.symbolic.expr import Expr, postorder, value_of
from pliant.symbolic.facts import Facts
from pliant.symbolic.static import declared

COUNT = 4
OFFSETS = (0, 1, 2, 5)  # a symbol takes each of them above its lower bound in one of the worlds
RECHECKED = 64  # facts; with more, a violated witness is dropped rather than repaired


class Witness:
    """One world: values of symbols, made up when first needed, and of the expressions seen so far."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.symbols: dict[Expr, Any] = {}
        self.values: dict[Expr, Any] = {}

    def value(self, e: Expr) -> Any:
        """The value of e, None where it has none (a division by zero)."""
        values = self.values
        v = values.get(e, e)
        if v is not e:
            return v
        for n in postorder(e, done=values):
            try:
                values[n] = self.symbol(n) if n.info is not None else value_of(n, values.__getitem__)
            except (ArithmeticError, ValueError):
                values[n] = None
        return values[e]

    def symbol(self, s: Expr) -> Any:
        v = self.symbols.get(s)
        return v if v is not None else self.symbols.setdefault(s, self._invent(s))

    def _invent(self, s: Expr) -> Any:
        info = s.info
        if info.kind is bool:
            return bool((s.serial + self.index) % 2)
        if info.kind is float or (info.backed and self.index == 0):
            return info.hint if info.hint is not None else info.lo if info.lo is not None else 0.5
        lo = info.lo if info.lo is not None else -1 if info.hi is None else info.hi - 5
        v = lo + OFFSETS[(s.serial + self.index) % COUNT]
        return v if info.hi is None or v <= info.hi else info.hi

    def move(self, s: Expr, v: int) -> bool:
        """Change a symbol; False if its declared range forbids that."""
        lo, hi = declared(s)
        if not lo <= v <= hi:
            return False
        self.symbols[s] = v
        self.values.clear()
        return True


class Witnesses:
    """The worlds of one scope."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.worlds = [Witness(i) for i in range(COUNT)]

    def learn(self, c: Expr) -> None:
        """c, a normal relation, has just become a fact."""
        self.worlds = [w for w in self.worlds if w.value(c) is True or self._repair(w, c)]

    def _repair(self, w: Witness, c: Expr) -> bool:
        """Move one symbol so that c holds, and with it all other facts."""
        if c.op not in ("eq", "ge") or c.args[0].kind is not int or len(self.facts.true) > 2 * RECHECKED:
            return False
        p = c.args[0]
        v = w.value(p)
        if v is None:
            return False
        singles = [(m[0], k) for m, k in p.terms if len(m) == 1 and m[0].info is not None and abs(k) == 1]
        singles.sort(key=lambda t: -t[0].serial)
        for s, k in [*singles[:2], *singles[2:][-1:]]:
            old = w.symbol(s)
            if w.move(s, old - v * k):
                if w.value(c) is True and all(w.value(f) is True for f, true in self.facts.true.items() if true):
                    return True
                w.move(s, old)
        return False

    def refute_nonnegative(self, p: Expr) -> bool:
        """Whether p is negative in some world."""
        return any((v := w.value(p)) is not None and v < 0 for w in self.worlds)

    def refute_zero(self, p: Expr) -> bool:
        return any((v := w.value(p)) is not None and v != 0 for w in self.worlds)

    def refute_nonzero(self, p: Expr) -> bool:
        return any(w.value(p) == 0 for w in self.worlds)
