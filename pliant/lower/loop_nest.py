"""Loop nests over traced tensors, and how two of them become one.

A `LoopNest` is what one ATen operation computes: dims (the last `reduced` are reduced over), and `TensorStore`s, each a value with the
memory that it goes to. Its nodes are those of `lower/loops.py`, with sizes and strides as expressions, and loads by the *root* of a tensor:
the tensor that its memory was made for. Views are no operations here: a view is its root with other strides.

Fusion asks one question, `match`: does this load read, point by point, what that put writes? Both are strides over dims, so the
answer is a pairing of dims with equal size and stride. Where one side has a dim that the other has in pieces (`H` against `heads` and
`H / heads`), the whole one is split, which affine accesses always allow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from pliant.graph.originals import operator
from pliant.lower.loops import Node, operands_first
from pliant.symbolic import ops
from pliant.symbolic.expr import Expr

Size = int | Expr
Dims = tuple[Size, ...]


@dataclass(slots=True, eq=False)
class TensorStore:
    """`node` goes to `tensor`: to its root's memory, by `strides` over the dims of the nest (the outer ones only, if not `full`)."""

    tensor: Any
    root: int
    strides: Dims
    offset: Size
    node: Node
    full: bool
    fresh: bool = True  # memory of its own, made by this operation; else an in-place write
    index: tuple[Node, ...] = ()  # positions (i64) that move the address by `index_strides`: a scatter
    index_strides: Dims = ()
    mode: str = "set"  # how it meets what is there, as in `Store`

    def roots(self) -> tuple[Node, ...]:
        return (*self.index, self.node)

    @property
    def by_rows(self) -> bool:
        """Does walking the last dim write elements that lie side by side?"""
        last = len(self.strides) - 1
        if last < 0 or type(self.strides[last]) is not int or self.strides[last] != 1:
            return False
        below = operands_first(self.index)
        moving = [n for n in below if n.op == "load" and not is_zero(n.attrs[1][last]) or n.op == "index" and n.attrs[0] == last]
        return not moving

    def changed(self, node: Callable[[Node], Node], **other: Any) -> TensorStore:
        """The put of `node(n)` for its nodes n, and other fields."""
        put = TensorStore(
            self.tensor, self.root, self.strides, self.offset, node(self.node), self.full, self.fresh,
            tuple(map(node, self.index)) if self.index else (), self.index_strides, self.mode,
        )  # fmt: skip
        for name, value in other.items():
            setattr(put, name, value)
        return put


@dataclass(slots=True, eq=False)
class LoopNest:
    """A kernel in the making. `ops` are the positions of the operations that it stands for."""

    dims: Dims
    reduced: int
    stores: list[TensorStore]
    ops: set[int] = field(default_factory=set)
    cost: int = 0
    walked: tuple[list[Node], list[Node], list[Node]] | None = field(default=None, init=False, repr=False)  # roots, nodes, loads

    @property
    def outer(self) -> int:
        return len(self.dims) - self.reduced

    def walk(self) -> tuple[list[Node], list[Node], list[Node]]:
        """(roots of the stores, every node below, the loads among these). Asked again and again, worked out when the stores are others."""
        roots = [p.node for p in self.stores] if not any([p.index for p in self.stores]) else [n for p in self.stores for n in p.roots()]
        found = self.walked
        if found is None or len(found[0]) != len(roots) or not all(map(operator.is_, found[0], roots)):
            nodes = operands_first(roots)
            found = self.walked = (roots, nodes, [n for n in nodes if n.op == "load"])
        return found

    def nodes(self) -> list[Node]:
        """Every node that the stores need, operands first."""
        return self.walk()[1]

    def loads(self) -> list[Node]:
        return self.walk()[2]

    def only(self, stores: list[TensorStore]) -> LoopNest:
        """The nest with these of its stores."""
        return self if len(stores) == len(self.stores) else LoopNest(self.dims, self.reduced, stores, self.ops)

    def checking(self, stores: list[TensorStore]) -> list[TensorStore]:
        """`stores`, and those of the others without which an index would go unchecked."""
        out = list(stores)
        if not any([n.op == "bounded" for n in self.nodes()]):
            return out
        done = {id(n) for n in operands_first(n for p in stores for n in p.roots())}
        for p in self.stores:
            below = [n for n in operands_first(p.roots()) if id(n) not in done]
            if any(n.op == "bounded" for n in below):
                out.append(p)
                done |= {id(n) for n in below}
        return out


class Facts:
    """What the scope knows of sizes. Nothing is guarded."""

    def __init__(self, scope: Any) -> None:
        self.scope = scope
        self.memo: dict[tuple[Any, Any], bool] = {}
        self.simplest: dict[Expr, Size] = {}  # what is true stays true

    def size(self, value: Any) -> Size:
        """A size, stride or offset of a traced tensor in its simplest form."""
        if type(value) is int:
            return value
        e = value if type(value) is Expr else value.node.expr
        found = self.simplest.get(e)
        if found is None:
            simple = self.scope.simplify(e)
            found = self.simplest[e] = simple if simple.const is None else simple.const
        return found

    def equal(self, a: Size, b: Size) -> bool:
        """Are they the same expression? Simplified ones are, wherever an equality between symbols is known."""
        return a is b or (type(a) is int and type(b) is int and a == b)

    def alike(self, a: Dims, b: Dims) -> bool:
        """Are they the same sizes or strides, one by one?"""
        return len(a) == len(b) and all(map(self.equal, a, b))

    def surely_equal(self, a: Size, b: Size) -> bool:
        """Can it be proved that they are equal?"""
        if self.equal(a, b):
            return True
        if type(a) is int and type(b) is int:
            return False
        key = (a, b)
        found = self.memo.get(key)
        if found is None:
            x, y = (a, b) if type(a) is Expr else (b, a)
            found = self.memo[key] = bool(self.scope.known_true(ops.eq(x, y)))
        return found

    def positive(self, a: Size) -> bool:
        """Is it at least 1, whatever happens?"""
        return a > 0 if type(a) is int else bool(self.scope.known_true(ops.ge(a, 1)))

    def non_negative(self, a: Size) -> bool:
        return a >= 0 if type(a) is int else bool(self.scope.known_true(ops.ge(a, 0)))

    def at_least(self, a: Size, b: Size) -> bool:
        """Is `a` surely no smaller than `b`?"""
        if self.equal(a, b):
            return True
        if type(a) is int and type(b) is int:
            return a >= b
        return bool(self.scope.known_true(ops.ge(a, b) if type(a) is Expr else ops.le(b, a)))

    def sum(self, a: Size, b: Size) -> Size:
        return a + b if type(a) is int and type(b) is int else self.size(a + b)

    def difference(self, a: Size, b: Size) -> Size:
        return a - b if type(a) is int and type(b) is int else self.size(a - b)

    def product(self, sizes: Iterable[Size]) -> Size:
        out: Size = 1
        for s in sizes:
            if type(s) is Expr:
                out = s if type(out) is int and out == 1 else s * out
            elif s != 1:
                out = out * s
        return out if type(out) is int else self.size(out)


Groups = list[tuple[list[int], list[int]]]


def match(facts: Facts, have: list[tuple[Size, Size]], want: list[tuple[Size, Size]]) -> Groups | None:
    """Pair the dims of two accesses, given as (size, stride) lists; dims with stride 0 take no part.

    Returns groups (dims of `have`, dims of `want`), one of the two being a single dim and the other the pieces of it, outermost
    first; None if the two do not visit the same elements.
    """
    left = [i for i, (_, stride) in enumerate(have) if not is_zero(stride)]
    right = [j for j, (_, stride) in enumerate(want) if not is_zero(stride)]
    groups: Groups = []
    for mine, theirs, a, b, flip in ((left, right, have, want, False), (right, left, want, have, True)):
        for i in list(mine):
            run = pieces(facts, *a[i], b, theirs)
            if run:
                groups.append((run, [i]) if flip else ([i], run))
                mine.remove(i)
                for j in run:
                    theirs.remove(j)
    return None if left or right else groups


def pieces(facts: Facts, size: Size, stride: Size, dims: list[tuple[Size, Size]], free: list[int]) -> list[int]:
    """Dims among `free` that together walk `size` elements, `stride` apart, outermost first; none if there are no such."""
    run: list[int] = []
    count: Size = 1
    while not run or not facts.equal(count, size):
        reach = facts.product((stride, count))
        fits = [j for j in free if j not in run and facts.equal(dims[j][1], reach)]
        j = next((j for j in fits if facts.equal(facts.product((count, dims[j][0])), size)), fits[0] if fits else None)
        if j is None:
            return []
        run.insert(0, j)
        count = facts.product((count, dims[j][0]))
    return run


def is_zero(stride: Size) -> bool:
    return type(stride) is int and stride == 0


# -- rewriting nodes --------------------------------------------------------------------------------------------------
def rewrite(node: Node, leaf: Callable[[Node], Node], memo: dict[int, Node]) -> Node:
    """The DAG with every "load" and "index" replaced by what `leaf` gives. `memo` is kept per rewriting, so sharing stays sharing."""
    for n in operands_first([node]):
        if id(n) not in memo:
            args = tuple(memo[id(a)] for a in n.args)
            same = all(a is b for a, b in zip(args, n.args, strict=True))
            new = n if same else Node(n.op, args, n.dtype, n.attrs)
            memo[id(n)] = leaf(new) if new.op in ("load", "index") else new
    return memo[id(node)]


def with_strides(n: Node, strides: Dims) -> Node:
    return Node("load", n.args, n.dtype, (n.attrs[0], strides, *n.attrs[2:]))


def index(dim: int) -> Node:
    return Node("index", (), "i64", (dim,))


def reorder(nest: LoopNest, places: list[int], dims: Dims, reduced: int) -> LoopNest:
    """The same nest over `dims`, of which dim `i` of the old ones is number `places[i]`. New dims are walked without moving."""
    if len(dims) == len(nest.dims) and places == list(range(len(dims))) and (reduced == nest.reduced or all([p.full for p in nest.stores])):
        return LoopNest(dims, reduced, list(nest.stores), nest.ops, nest.cost)
    at = {p: i for i, p in enumerate(places)}
    outer = len(dims) - reduced

    def strides_of(old: Dims, n: int) -> Dims:
        return tuple(old[at[p]] if p in at and at[p] < len(old) else 0 for p in range(n))

    def leaf(n: Node) -> Node:
        return index(places[n.attrs[0]]) if n.op == "index" else with_strides(n, strides_of(n.attrs[1], len(dims)))

    memo: dict[int, Node] = {}
    stores = []
    for p in nest.stores:
        stores.append(p.changed(lambda n: rewrite(n, leaf, memo), strides=strides_of(p.strides, len(dims) if p.full else outer)))
    return LoopNest(dims, reduced, stores, nest.ops, nest.cost)


def split(facts: Facts, nest: LoopNest, dim: int, pieces: Dims) -> LoopNest:
    """The nest with `dim` walked as nested dims of these sizes, outermost first."""
    steps: list[Size] = []
    step: Size = 1
    for size in reversed(pieces):
        steps.insert(0, step)
        step = facts.product((step, size))

    def strides_of(old: Dims) -> Dims:
        return (*old[:dim], *(facts.product((old[dim], s)) for s in steps), *old[dim + 1 :]) if dim < len(old) else old

    def leaf(n: Node) -> Node:
        if n.op == "load":
            return with_strides(n, strides_of(n.attrs[1]))
        d = n.attrs[0]
        if d != dim:
            return index(d if d < dim else d + len(pieces) - 1)
        total: Node | None = None
        for k, s in enumerate(steps):
            factor = Node("const", (), "i64", (s,)) if type(s) is int else Node("size", (), "i64", (s,))
            term = index(dim + k) if type(s) is int and s == 1 else Node("mul", (index(dim + k), factor), "i64")
            total = term if total is None else Node("add", (total, term), "i64")
        assert total is not None
        return total

    memo: dict[int, Node] = {}
    stores = [p.changed(lambda n: rewrite(n, leaf, memo), strides=strides_of(p.strides)) for p in nest.stores]
    dims = (*nest.dims[:dim], *pieces, *nest.dims[dim + 1 :])
    return LoopNest(dims, nest.reduced + (len(pieces) - 1 if dim >= nest.outer else 0), stores, nest.ops, nest.cost)
