"""Concatenation and padding: points that fall into pieces, each with code of its own.

`where(i < n, load(a) if i < n, load(b) if i >= n)` asks at every point what the bounds know: on one side of `n` all points read `a`, on
the other `b`. A kernel whose loads ask such questions of the counters of its dims is cut at the bounds. Each piece has its own stores, in
which the answers are constants and loads ask nothing. Along the vector dim a piece is a loop, along others a branch.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from pliant.lower.loops import Kernel, Node, Store, operands_first

MOST = 6
"""Pieces of one kernel; each is printed."""
ABOVE = {"lt": (0, False), "ge": (0, True), "le": (1, False), "gt": (1, True)}
"""Comparison of a counter with a bound -> (how much is added to the bound, the answer from there on)."""


@dataclass(slots=True, eq=False)
class Cut:
    """Below `bound` (+ `more`) of `dim` the points are those of `low`, from there on those of `high`: stores, or further cuts."""

    dim: int
    bound: Node
    more: int
    low: Cut | list[Store]
    high: Cut | list[Store]

    def parts(self) -> list[list[Store]]:
        """The stores of each piece, in order."""
        return [part for side in (self.low, self.high) for part in (side.parts() if isinstance(side, Cut) else [side])]

    def bounds(self) -> list[Node]:
        return [self.bound, *(b for side in (self.low, self.high) if isinstance(side, Cut) for b in side.bounds())]


def pieces(kernel: Kernel, v: int, depends: dict[int, int]) -> Cut | None:
    """How to cut the points of a kernel whose vector dim is `v`; None where no load has a reason. `depends`: `schedule.dependence`."""
    if kernel.reduced:
        return None
    cut = cut_at_bounds(kernel.stores, v, depends, MOST)
    return cut if isinstance(cut, Cut) else None


def cut_at_bounds(stores: list[Store], v: int, depends: dict[int, int], most: int) -> Cut | list[Store] | None:
    """The stores cut until no load asks; None if that makes more than `most` pieces."""
    found = question(stores, v, depends)
    if found is None:
        return stores
    if most < 2:
        return None
    (dim,), bound, more = found.args[0].attrs, found.args[1], ABOVE[found.op][0]
    low = cut_at_bounds(answered(stores, found, False), v, depends, most - 1)
    if low is None:
        return None
    taken = len(low.parts()) if isinstance(low, Cut) else 1
    high = cut_at_bounds(answered(stores, found, True), v, depends, most - taken)
    return None if high is None else Cut(dim, bound, more, low, high)


def question(stores: list[Store], v: int, depends: dict[int, int]) -> Node | None:
    """A comparison of a counter with what is the same along `v`, that a load asks; of the counter of another dim than `v` first."""
    predicates = [n.args[-1] for n in operands_first(roots(stores)) if n.op == "load" and n.predicated]
    asked = [n for n in operands_first(predicates) if asks(n) and not depends.get(id(n.args[1]), 1 << v) >> v & 1]
    return next((n for n in asked if n.args[0].attrs != (v,)), asked[0] if asked else None)


def asks(n: Node) -> bool:
    return n.op in ABOVE and n.args[0].op == "index"


def roots(stores: Iterable[Store]) -> list[Node]:
    return [n for s in stores for n in (*s.index, *((s.predicate,) if s.predicate is not None else ()), s.node)]


def answered(stores: list[Store], asked: Node, above: bool) -> list[Store]:
    """The stores of the points on one side of the bound of a comparison."""
    dim, bound, more = asked.args[0].attrs, asked.args[1], ABOVE[asked.op][0]
    done: dict[int, Node] = {}
    for n in operands_first(roots(stores)):
        args = tuple(done[id(a)] for a in n.args)
        if asks(n) and n.args[0].attrs == dim and n.args[1] is bound and ABOVE[n.op][0] == more:
            done[id(n)] = truth(ABOVE[n.op][1] == above)
        elif all(a is b for a, b in zip(args, n.args, strict=True)):
            done[id(n)] = n
        else:
            done[id(n)] = simpler(n, args)
    out = []
    for s in stores:
        predicate = None if s.predicate is None else done[id(s.predicate)]
        if predicate is not None and known(predicate) is not None:
            if not known(predicate):
                continue
            predicate = None
        index = tuple(done[id(i)] for i in s.index)
        out.append(replace(s, node=done[id(s.node)], index=index, predicate=predicate))
    return out


def truth(value: bool) -> Node:
    return Node("const", (), "bool", (value,))


def known(n: Node) -> bool | None:
    return bool(n.attrs[0]) if n.op == "const" and n.dtype == "bool" else None


def simpler(n: Node, args: tuple[Node, ...]) -> Node:
    """`n` of other operands, some of which are answers."""
    if n.op == "load" and n.predicated and (on := known(args[-1])) is not None:
        return Node("load", args[:-1], n.dtype, n.attrs[:4]) if on else Node("const", (), n.dtype, (0,))
    if n.op == "where" and (chosen := known(args[0])) is not None:
        return args[1] if chosen else args[2]
    if n.op in ("and", "or") and n.dtype == "bool":
        for a, other in (args, args[::-1]):
            if (value := known(a)) is not None:
                return other if value == (n.op == "and") else a
    if n.op == "not" and (value := known(args[0])) is not None:
        return truth(not value)
    return Node(n.op, args, n.dtype, n.attrs)
