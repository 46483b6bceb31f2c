"""What a scope has learned, as data that the provers share. Every change is on a trail, so that a scope can be rolled back."""

from __future__ import annotations

from typing import Any

from pliant.symbolic import intervals as iv
from pliant.symbolic.expr import Expr, Mono

_MISSING = object()


class Facts:
    """The tables. Keys `q` are directions (`relation.direction`): primitive polynomials without constant, or atoms.

    - `bounds[q]`: (lo, hi), beyond what declarations and range rules say;
    - `mentions[mono]`: the directions with bounds that contain the monomial (for linear reasoning);
    - `chains[a]`: the directions with bounds that contain the subtotal a;
    - `residues[q]`: (m, r): q is r modulo m;
    - `excluded[q]`: values that q does not take;
    - `equal[x]`: the expression that the atom x equals, free of earlier keys: the substitution of `simplify`;
    - `about[s]`: the relations learned that depend on symbol s.
    """

    def __init__(self) -> None:
        self.bounds: dict[Expr, tuple] = {}
        self.mentions: dict[Mono, tuple[Expr, ...]] = {}
        self.residues: dict[Expr, tuple[int, int]] = {}
        self.excluded: dict[Expr, frozenset[int]] = {}
        self.equal: dict[Expr, Expr] = {}
        self.chains: dict[Expr, tuple[Expr, ...]] = {}
        self.about: dict[Expr, tuple[Expr, ...]] = {}
        self.true: dict[Expr, bool] = {}
        self.version = 0
        self._trail: list[tuple[dict, Any, Any]] = []

    def set(self, table: dict, key: Any, value: Any) -> None:
        self._trail.append((table, key, table.get(key, _MISSING)))
        table[key] = value
        self.version += 1

    def tighten(self, q: Expr, lo, hi) -> bool:
        """Intersect the bounds of q; False if that says nothing new."""
        old = self.bounds.get(q)
        if old is None:
            for mono, _ in q.terms:
                self.set(self.mentions, mono, (*self.mentions.get(mono, ()), q))
                if len(mono) == 1 and mono[0].op == "subtotal":
                    self.set(self.chains, mono[0], (*self.chains.get(mono[0], ()), q))
            old = iv.ALL
        new = iv.intersect(old, (lo, hi))
        if new == old:
            return False
        self.set(self.bounds, q, new)
        return True

    def mark(self) -> int:
        return len(self._trail)

    def undo(self, mark: int) -> None:
        """Back to the state at `mark`."""
        while len(self._trail) > mark:
            table, key, old = self._trail.pop()
            if old is _MISSING:
                del table[key]
            else:
                table[key] = old
        self.version += 1
