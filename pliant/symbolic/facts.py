"""What a scope has learned, as data that the provers share. Every change is on a trail, so that a scope can be rolled back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pliant.symbolic import intervals as iv
from pliant.symbolic.expr import Expr, Mono

_MISSING = object()
_ADDED = object()


class Memo(dict):
    """What was worked out of expressions under the facts so far. Learning something about an expression forgets what is made of it.

    Facts only grow, so a remembered value stays true; it is forgotten because more may be known now.
    """

    def __init__(self) -> None:
        self._users: dict[Expr, list[Expr]] = {}  # those remembered, by each of their leaves

    def keep(self, e: Expr, value: Any, result: Expr | None = None, leaves: Iterable[Expr] | None = None) -> None:
        """Remember the value of e, which also rests on what is known of `result`; `leaves`: what it rests on instead of its own."""
        self[e] = value
        users = self._users
        for s in leaves or (e.leaves() if result is None else (*e.leaves(), *result.leaves())):
            known = users.get(s)
            if known is None:
                users[s] = [e]
            else:
                known.append(e)

    def forget(self, q: Expr) -> None:
        """q itself, and all that contains it: they share all its leaves, so the rarest of these leads to them."""
        users = self._users
        if q.info is not None:
            known = users.get(q)
            if known:
                for e in known:
                    self.pop(e, None)
                known.clear()
            return
        lists = [users.get(s) for s in q.leaves()]
        if lists and None not in lists:
            rarest = min(lists, key=len)  # type: ignore[arg-type]
            for e in rarest:  # type: ignore[union-attr]
                self.pop(e, None)
            rarest.clear()  # type: ignore[union-attr]

    def clear(self) -> None:
        super().clear()
        self._users.clear()


class Facts:
    """The tables. Keys `q` are directions (`relation.direction`): primitive polynomials without constant, or atoms.

    - `bounds[q]`: (lo, hi), beyond what declarations and range rules say;
    - `mentions[mono]`: the longer directions with bounds that contain the monomial (for linear reasoning);
    - `chains[a]`: the directions with bounds that contain the subtotal a;
    - `residues[q]`: (m, r): q is r modulo m;
    - `excluded[q]`: values that q does not take;
    - `equal[x]`: the expression that the atom x equals, free of other keys: the substitution of `simplify`;
    - `resting[s]`: the keys of `equal` whose rules speak of the symbol s (but for s itself as a key);
    - `about[s]`: the relations learned that depend on symbol s, `alternatives[s]` those that are an "or";
    - `true[n]`: the truth of the normal relation n.
    """

    def __init__(self) -> None:
        self.bounds: dict[Expr, tuple] = {}
        self.mentions: dict[Mono, list[Expr]] = {}
        self.residues: dict[Expr, tuple[int, int]] = {}
        self.excluded: dict[Expr, frozenset[int]] = {}
        self.equal: dict[Expr, Expr] = {}
        self.resting: dict[Expr, list[Expr]] = {}
        self.chains: dict[Expr, list[Expr]] = {}
        self.about: dict[Expr, list[Expr]] = {}
        self.alternatives: dict[Expr, list[Expr]] = {}
        self.true: dict[Expr, bool] = {}
        self.bounded: set[Expr] = set()  # the leaves of all keys of `bounds`, ever
        self.touched: set[Expr] = set()  # the leaves of all keys, ever
        self.version = 0
        self.ranges, self.residue, self.simple = Memo(), Memo(), Memo()  # of the parts that work them out
        self.chunks = Memo()  # the ranges of what each subtotal adds to the one before
        self.long: list[Expr] = []  # those in `ranges` that contain subtotals
        self._readers: dict[int, tuple[Memo, ...]] = {
            id(self.bounds): (self.ranges, self.simple),
            id(self.residues): (self.residue, self.simple),
            id(self.equal): (self.simple,),
        }
        self._trail: list[tuple[dict, Any, Any]] = []

    def set(self, table: dict, key: Any, value: Any) -> None:
        self._trail.append((table, key, table.get(key, _MISSING)))
        table[key] = value
        self.version += 1
        self.touched.update(key.leaves())
        for memo in self._readers.get(id(table), ()):
            memo.forget(key)
        if table is self.bounds and "member" in key.cache:
            self.chunks.forget(key)
            for e in self.long:
                self.ranges.pop(e, None)
            self.long.clear()

    def drop(self, table: dict, key: Any) -> None:
        """Forget what `table` says of the key. (What was worked out with it stays true.)"""
        self._trail.append((table, key, table.pop(key)))
        self.version += 1

    def add(self, table: dict, key: Any, item: Any) -> None:
        """One more in the list at `key`."""
        items = table.get(key)
        if items is None:
            items = table[key] = []
        items.append(item)
        self._trail.append((table, key, _ADDED))

    def bound(self, s: Expr, lo, hi) -> None:
        """The symbol s, no member of a subtotal, lies between these from here on: `tighten` without its questions."""
        self._trail.append((self.bounds, s, self.bounds.get(s, _MISSING)))
        self.bounds[s] = (lo, hi)
        self.version += 1
        self.touched.add(s)
        self.bounded.add(s)
        self.ranges.forget(s)
        self.simple.forget(s)

    def tighten(self, q: Expr, lo, hi) -> bool:
        """Intersect the bounds of q; False if that says nothing new."""
        old = self.bounds.get(q)
        if old is None:
            for mono, _ in q.terms:
                if len(q.terms) > 1:
                    self.add(self.mentions, mono, q)
                if len(mono) == 1 and mono[0].op == "subtotal":
                    self.add(self.chains, mono[0], q)
            self.bounded.update(q.leaves())
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
            if old is _ADDED:
                table[key].pop()
            elif old is _MISSING:
                del table[key]
            else:
                table[key] = old
        for memo in (self.ranges, self.residue, self.simple, self.chunks):
            memo.clear()
        self.long.clear()
        self.version += 1
