"""Fusion: the operations of a graph, grouped into as few kernels as memory traffic and dependencies allow.

Every operation with a lowering starts as a nest of its own; everything else is *opaque*, an ATen call. A consumer joins its producer
where both can run over one nest, point by point (`nest.match`); then what passes between them is a register. Values that cost almost
nothing are computed again wherever they are read. Views are not operations: kernels address what they are views of.

Order is kept by dependencies on memory: a reader after the last writer, a writer after all readers before it, effects after each
other. Two groups are joined only if no path leads from one to the other through a third.
"""

from __future__ import annotations

import heapq
from dataclasses import replace
from functools import partial
from typing import Any

from pliant import turns
from pliant.graph.implemented import implemented
from pliant.graph.leaving import MARK
from pliant.graph.traced import TracedTensor
from pliant.lower import liveness, overlaps
from pliant.lower.dependences import Dependences
from pliant.lower.loop_nest import Dims, Facts, LoopNest, TensorStore, is_zero, match, reorder, rewrite, split
from pliant.lower.loops import Node
from pliant.lower.lowerings import Builder
from pliant.lower.memory import hinted
from pliant.lower.program import Group, Program
from pliant.lower.search import KERNELS

MAX_ACCESSES = 24
"""Loads and stores of one kernel. More of them spill registers."""
MAX_COST = 400
SMALL = 12
"""A value of at most this cost may be computed lane by lane."""
FREE = 3
"""A value of at most this cost, of at most one load, is computed again rather than kept."""

FAR = 64
"""Operations between a producer and its consumer from which on it counts what the producer reads: joined, it runs at the consumer."""
NEAR = 16
"""Readers of the same memory that are looked at together. All pairs of hundreds take minutes."""


class Fuser:
    """The groups of a program at level "graph" in the making. It is a fact of the program ("groups"), and each pass goes on with it."""

    def __init__(self, program: Program) -> None:
        self.ops = ops = program.steps
        self.facts = program.sizes
        self.aliases = program.fact("aliases")
        self.groups: list[Group] = []
        self.parent: list[int] = []  # union-find over groups
        self.low = list(range(len(ops)))  # for each operation the first one of a joined group that reaches from before it to it
        uses = program.fact("uses")
        kept = {t.vid for t in self.aliases.kept}
        read = kept | uses.keys()
        once = {vid for vid, n in uses.items() if n == 1} - kept
        roots, written = self.aliases.roots, self.aliases.written
        makers, bits = program.fact("makers"), self.aliases.reinterpreted()
        self.prints = program.target.prints
        meets = partial(overlaps.may_meet, aliases=self.aliases, facts=self.facts)
        self.builder = Builder(self.facts, roots, read, makers, written, bits, once, program.target.supports, meets)
        self.free: dict[int, tuple[int, TensorStore, LoopNest]] = {}  # root -> (group, put, nest) of values worth computing again
        self.writers: dict[int, list[int]] = {}  # storage -> groups that wrote it, in order
        self.dies: dict[int, int] = {}  # root made here, which nobody gets -> the last operation that reads it
        for i, op in enumerate(ops):
            if id(op) not in self.aliases.view_ops:
                self.dies.update((roots[t.vid], i) for t in liveness.op_inputs(op) if roots[t.vid] in self.aliases.made)
        for t in self.aliases.kept:
            self.dies.pop(roots.get(t.vid, t.vid), None)
        self.form()

    # -- groups and their order ---------------------------------------------------------------------------------
    def form(self) -> None:
        """One group for each nest and each opaque operation, with what it must come after."""
        order = Dependences()
        for position, op in enumerate(self.ops):
            if id(op) in self.aliases.view_ops:
                continue
            turns.rest()
            written = {self.aliases.storage(t) for t in liveness.written(op)}
            effect, checks = liveness.has_effect(op), bool(op.outs) and liveness.only_checks(op.target) and not liveness.sized_by_data(op)
            nests = None if effect and not checks or not KERNELS.allows(op) or not implemented(op) else self.builder.lower(op)
            if nests is not None and not all([self.prints(nest, self.devices(nest)) for nest in nests]):
                nests = None
            if nests is not None and written:
                first = nests[0]
                nests = nests if len(nests) == 1 and self.writes_in_place(first, {p.root for p in first.stores}) else None
            for nest in nests or [None]:
                u = Group(len(self.groups), nest, [position])
                self.groups.append(u)
                self.parent.append(u.index)
                if nest is not None:  # then it computes what its operands were to be made of
                    u.fused = bool({n.attrs[0] for n in nest.loads()} - {self.aliases.roots[t.vid] for t in liveness.op_inputs(op)})
                for t in self.touched(op, nest):
                    w = order.read(u, self.aliases.storage(t))
                    u.reads[self.aliases.roots.get(t.vid, t.vid)] = w
                if nest is not None and self.builder.through and not u.fused:  # it may stay an ATen call, which reads them
                    for t in liveness.op_inputs(op):
                        order.read(u, self.aliases.storage(t))
                made = {self.aliases.storage(t) for t in self.made(op, nest)}
                here = written | {self.aliases.storage(p.tensor) for p in nest.stores if not p.fresh} if nest is not None else written
                raises = nest is not None and any(n.op == "bounded" for n in nest.nodes())
                asked = bool(op.binds) and not effect  # an assertion about the number fails there
                order.write(u, here, made, effect or raises or asked, checks or raises or asked)
                if op.target is MARK:
                    order.publish({self.aliases.storage(t) for t in liveness.op_inputs(op)})
                order.symbols(u, op)
                if nest is not None and order.binders:
                    order.uses(u, [n.attrs for n in nest.nodes()])  # of what it computes again, too
                for s in here | made:
                    self.writers.setdefault(s, []).append(u.index)
                self.remember_free(u, here)

    def devices(self, nest: LoopNest) -> set[Any]:
        return {self.aliases.tensors[n.attrs[0]].device for n in nest.loads()} | {p.tensor.device for p in nest.stores}

    def touched(self, op: Any, nest: LoopNest | None) -> list[TracedTensor]:
        if nest is None:
            return liveness.op_inputs(op)
        return [self.aliases.tensors[n.attrs[0]] for n in nest.loads()] + [p.tensor for p in nest.stores if not p.fresh]

    def made(self, op: Any, nest: LoopNest | None) -> list[TracedTensor]:
        return [p.tensor for p in nest.stores if p.fresh] if nest is not None else liveness.op_outputs(op)

    def remember_free(self, u: Group, written: set[int]) -> None:
        nest = u.nest
        if nest is None or written or nest.reduced or len(nest.stores) != 1 or nest.stores[0].index:
            return
        if nest.cost > FREE or len(nest.loads()) > 1:
            return
        self.free[nest.stores[0].root] = (u.index, nest.stores[0], nest)

    def find(self, i: int) -> int:
        while self.parent[i] != i:
            self.parent[i] = self.parent[self.parent[i]]
            i = self.parent[i]
        return i

    def reaches(self, start: set[int], target: int, floor: int) -> bool:
        """Does a path of dependencies lead from one of `start` to `target`, whose operations come from `floor` on?

        Groups before that cannot lead there, but where a joined group reaches over it.
        """
        while self.low[floor] < floor:
            floor = self.low[floor]
        seen: set[int] = set()
        stack = [self.find(i) for i in start]
        while stack:
            i = stack.pop()
            if i == target:
                return True
            if i in seen:
                continue
            seen.add(i)
            u = self.groups[i]
            if u.ops[-1] >= floor:
                u.deps = {self.find(d) for d in u.deps} - {i}  # what has been joined is told once from now on
                stack.extend(u.deps - seen)
        return False

    # -- joining -------------------------------------------------------------------------------------------------
    def inline(self) -> list[Group]:
        """Values that cost next to nothing are computed again where they are read (rematerialization)."""
        for u in list(self.groups):
            if u.nest is not None:
                turns.rest()
                self.inline_free(u)
        return self.ordered()

    def join_producers(self) -> list[Group]:
        """Each consumer joins its producers where it can, the nearest first."""
        for u in list(self.groups):
            if u.nest is not None:
                turns.rest()
                for w in sorted({w for w in u.reads.values() if w >= 0}, reverse=True):
                    self.try_join(self.find(w), self.find(u.index))
        return self.ordered()

    def inline_free(self, u: Group) -> None:
        """Compute values again that cost next to nothing."""
        nest = u.nest
        assert nest is not None
        for load in nest.loads():
            entry = self.free.get(load.attrs[0])
            if entry is None or u.reads.get(load.attrs[0]) != entry[0] or self.overwritten(entry, u):
                continue
            new = inline(self.facts, entry[1], entry[2], nest, load)
            if new is not None:
                nest = new
                source = self.groups[entry[0]]
                u.fused = True
                for root, w in source.reads.items():
                    u.reads.setdefault(root, w)
                    for later in self.writers.get(self.aliases.storage_of(root), ()):
                        if later > u.index:
                            self.groups[later].deps.add(u.index)
        u.nest = nest
        still = {n.attrs[0] for n in nest.loads()}
        for root in [r for r in u.reads if r not in still and all(p.root != r for p in nest.stores)]:
            del u.reads[root]
        if self.free.get(nest.stores[0].root, (-1,))[0] == u.index:
            self.free[nest.stores[0].root] = (u.index, nest.stores[0], nest)

    def overwritten(self, entry: tuple[int, TensorStore, LoopNest], u: Group) -> bool:
        """Was something that the value is made of written between it and `u`?"""
        for n in entry[2].loads():
            s = self.aliases.storage_of(n.attrs[0])
            if any(entry[0] < w <= u.index for w in self.writers.get(s, ())):
                return True
        return False

    def try_join(self, a: int, b: int) -> bool:
        """Join group `b`, which reads from group `a`, to it, if they fit one nest and no third group is in between."""
        p, c = self.groups[a], self.groups[b]
        if a == b or p.nest is None or c.nest is None:
            return False
        between = {self.find(d) for d in c.deps} - {a, b}
        if self.reaches(between, a, min(p.ops)) or self.holds_memory(p, c):
            return False
        joined = self.joined(p, c)
        if joined is None:
            return False
        self.unite(a, b, joined)
        return True

    def holds_memory(self, p: Group, c: Group) -> bool:
        """Is `c` so far behind `p` that what would live on till then, if `p` ran there, counts, and is it more than `p` makes?

        The sum of two gradients, to which a third is added much later, is to be made when they are there.
        """
        end = max(p.ops)
        if min(c.ops) - end < FAR:
            return False
        assert p.nest is not None
        dying = {n.attrs[0] for n in p.nest.loads() if self.dies.get(n.attrs[0], len(self.ops)) <= end}
        return len(dying) > 1 and sum(map(self.typical_bytes, dying)) > sum(self.typical_bytes(q.root) for q in p.nest.stores)

    def typical_bytes(self, root: int) -> int:
        t = self.aliases.tensors[root]
        return hinted(self.facts.product(map(self.facts.size, t.sizes))) * t.dtype.itemsize

    def unite(self, a: int, b: int, nest: LoopNest) -> None:
        p, c = self.groups[a], self.groups[b]
        p.nest = nest
        p.ops = sorted({*p.ops, *c.ops})
        for i in range(p.ops[0] + 1, p.ops[-1] + 1):
            self.low[i] = min(self.low[i], p.ops[0])
        p.deps = p.deps | c.deps
        p.reads = {**c.reads, **p.reads}
        p.fused = True
        self.parent[b] = a

    def joined(self, p: Group, c: Group) -> LoopNest | None:
        """The nest of both, or None."""
        assert p.nest is not None and c.nest is not None
        if any(q.index for q in p.nest.stores):
            return None
        stores = {q.root: q for q in p.nest.stores}
        links = [n for n in c.nest.loads() if n.attrs[0] in stores and self.reads_from(c, n.attrs[0], p)]
        if not links:
            return None
        first = max(links, key=lambda n: (stores[n.attrs[0]].full, -sum(map(is_zero, n.attrs[1]))))
        put = stores[first.attrs[0]]
        fitted = unify(self.facts, p.nest, list(put.strides), put.full, c.nest, list(first.attrs[1]))
        return self.combine(p, c, *fitted) if fitted is not None else None

    def reads_from(self, c: Group, root: int, p: Group) -> bool:
        w = c.reads.get(root, -1)
        return w >= 0 and self.find(w) == self.find(p.index)

    def combine(self, p: Group, c: Group, producer: LoopNest, consumer: LoopNest) -> LoopNest | None:
        """Both nests have the same dims: the consumer's loads of what the producer stores become its values."""
        stores = {q.root: q for q in producer.stores}
        in_place = {q.root for q in (*producer.stores, *consumer.stores) if not q.fresh}
        n = len(producer.dims)
        bad = False

        def leaf(node: Node) -> Node:
            nonlocal bad
            if node.op != "load" or node.attrs[0] not in stores:
                return node
            put = stores[node.attrs[0]]
            have = (*put.strides, *(0,) * (n - len(put.strides)))
            same = self.facts.alike(have, node.attrs[1]) and self.facts.equal(put.offset, node.attrs[2]) and not node.args
            same = same and not put.index
            if same and self.reads_from(c, put.root, p):
                return put.node
            bad = True
            return node

        memo: dict[int, Node] = {}
        rewritten = [q.changed(lambda n: rewrite(n, leaf, memo)) for q in consumer.stores]
        if bad:
            return None
        replaced = {q.root for q in rewritten if not q.fresh}
        for q in rewritten:
            if not q.fresh and q.root in stores:
                was = stores[q.root]
                if not self.same_place(q, was):
                    return None  # another part of the same memory: both are written
                q.tensor, q.fresh = was.tensor, was.fresh  # the memory is still made here
        out = LoopNest(
            producer.dims,
            producer.reduced,
            [q for q in producer.stores if q.root not in replaced] + rewritten,
            producer.ops | consumer.ops,
            producer.cost + consumer.cost,
        )
        if in_place and not self.writes_in_place(out, in_place) or not self.may_scatter(out) or not self.checks_alike(out):
            return None
        loads = {(node.attrs[0], node.attrs[1], node.attrs[2]) for node in out.loads()}
        if len(loads) + len(out.stores) > MAX_ACCESSES or out.cost > MAX_COST:
            return None
        return out

    def same_place(self, a: TensorStore, b: TensorStore) -> bool:
        """Do two stores to one root write the same elements at every point?"""
        return self.facts.alike(a.strides, b.strides) and self.facts.equal(a.offset, b.offset) and not a.index and not b.index

    def may_scatter(self, nest: LoopNest) -> bool:
        """May these operations share a nest, if one of them writes to computed places or to memory from before?"""
        if any(not q.fresh and self.aliases.is_given(q.root) for q in nest.stores):
            if any(n.op == "bounded" for n in nest.nodes()):
                return False  # it may stop half-way
        if not any(q.index for q in nest.stores):
            return True
        # points run in order: nothing that is worth lanes and threads goes along, where the lanes are not those of rows
        return not nest.reduced and (nest.cost <= SMALL or all(q.by_rows for q in nest.stores if q.index))

    def checks_alike(self, nest: LoopNest) -> bool:
        """Is each index looked at where its operation has points? What does not vary along reduction dims is looked at without any."""
        return all(map(self.facts.positive, nest.dims[nest.outer :])) or not any(n.op == "bounded" for n in nest.nodes())

    def writes_in_place(self, nest: LoopNest, roots: set[int]) -> bool:
        """May this nest write to memory that was there before? Only if all its accesses to it are at the point at hand."""
        memory = {self.aliases.storage_of(r) for r in roots}
        stores = [q for q in nest.stores if self.aliases.storage_of(q.root) in memory]
        loads = [node for node in nest.loads() if self.aliases.storage_of(node.attrs[0]) in memory]
        if nest.reduced and loads or any(node.args and not node.predicated for node in loads):
            return False
        if any(q.index for q in stores):
            return len(stores) + len(loads) == 1
        accesses = [(o.root, o.strides, o.offset) for o in stores] + [(x.attrs[0], x.attrs[1], x.attrs[2]) for x in loads]
        first: dict[int, tuple] = {}
        for root, strides, offset in accesses:
            r, s, o = first.setdefault(self.aliases.storage_of(root), (root, strides, offset))
            if root != r or not self.facts.alike(strides, s) or not self.facts.equal(offset, o):
                return False
        return True

    def join_siblings(self) -> list[Group]:
        """Groups that read the same memory over the same dims become one kernel: it is read once.

        Each is compared with the next few: what is joined brings those together that are further apart.
        """
        by_root: dict[int, list[int]] = {}
        for u in self.groups:
            if u.nest is None or self.find(u.index) != u.index:
                continue
            for root in {n.attrs[0] for n in u.nest.loads()}:
                by_root.setdefault(root, []).append(u.index)
        for root, members in by_root.items():
            for i, first in enumerate(members):
                for other in members[i + 1 : i + 1 + NEAR]:
                    a, b = self.find(first), self.find(other)
                    if a != b:
                        self.try_join_sibling(a, b, root)
        return self.ordered()

    def try_join_sibling(self, a: int, b: int, root: int) -> bool:
        p, c = self.groups[a], self.groups[b]
        assert p.nest is not None and c.nest is not None
        if any(q.index for q in (*p.nest.stores, *c.nest.stores)):
            return False
        if p.nest.reduced != c.nest.reduced or set(p.nest.dims) != set(c.nest.dims):
            return False
        mine = next(n for n in p.nest.loads() if n.attrs[0] == root)
        theirs = next(n for n in c.nest.loads() if n.attrs[0] == root)
        if p.reads.get(root) != c.reads.get(root) or mine.args or theirs.args:
            return False
        if any(is_zero(s) for s in (*mine.attrs[1], *theirs.attrs[1])):
            return False  # a broadcast operand is no reason to run together
        if self.reaches(c.deps, a, min(p.ops)) or self.reaches(p.deps, b, min(c.ops)):
            return False
        fitted = unify(self.facts, p.nest, list(mine.attrs[1]), True, c.nest, list(theirs.attrs[1]))
        nest = self.combine(p, c, *fitted) if fitted is not None else None
        if nest is None:
            return False
        self.unite(a, b, nest)
        return True

    # -- the result ------------------------------------------------------------------------------------------------
    def ordered(self) -> list[Group]:
        groups = [u for u in self.groups if self.find(u.index) == u.index]
        deps = {u.index: {self.find(d) for d in u.deps} - {u.index} for u in groups}
        users: dict[int, list[int]] = {u.index: [] for u in groups}
        for i, ds in deps.items():
            for d in ds:
                users[d].append(i)
        missing = {i: len(ds) for i, ds in deps.items()}
        ready = [(min(self.groups[i].ops), i) for i, n in missing.items() if n == 0]
        heapq.heapify(ready)
        out = []
        while ready:
            _, i = heapq.heappop(ready)
            out.append(self.groups[i])
            for j in users[i]:
                missing[j] -= 1
                if missing[j] == 0:
                    heapq.heappush(ready, (min(self.groups[j].ops), j))
        assert len(out) == len(groups), "fusion made a cycle"
        return out


def inline(facts: Facts, put: TensorStore, source: LoopNest, nest: LoopNest, load: Node) -> LoopNest | None:
    """`nest` with `load` replaced by the value of `put`, computed over its own dims."""
    if load.args or not facts.equal(load.attrs[2], put.offset):
        return None
    want = list(zip(nest.dims, load.attrs[1], strict=True))
    groups = match(facts, list(zip(source.dims, put.strides, strict=True)), want)
    if groups is None or any(len(theirs) > 1 and len(mine) > 1 or len(mine) > 1 for mine, theirs in groups):
        return None
    places, dims = spread(facts, source, groups, nest.dims)
    if places is None:
        return None
    value = reorder(dims, places, nest.dims, nest.reduced).stores[0].node
    memo: dict[int, Node] = {}

    root, strides, offset, *_ = load.attrs

    def leaf(n: Node) -> Node:
        same = n.op == "load" and n.attrs[0] == root and facts.alike(n.attrs[1], strides) and facts.equal(n.attrs[2], offset)
        return value if same else n

    stores = [p.changed(lambda n: rewrite(n, leaf, memo)) for p in nest.stores]
    return LoopNest(nest.dims, nest.reduced, stores, nest.ops, nest.cost + source.cost)


def spread(facts: Facts, source: LoopNest, groups: list, dims: Dims) -> tuple[list[int] | None, LoopNest]:
    """`source` with its dims split as `groups` say, and the place of each of its dims among `dims`."""
    places: list[int] = [-1] * len(source.dims)
    nest = source
    for mine, theirs in sorted(groups, key=lambda g: -g[0][0]):  # later dims first: splitting moves those behind
        (i,) = mine
        if len(theirs) > 1:
            nest = split(facts, nest, i, tuple(dims[j] for j in theirs))
        places[i : i + 1] = theirs
    return (None if -1 in places else places), nest


def unify(facts: Facts, p: LoopNest, p_strides: list, full: bool, c: LoopNest, c_strides: list) -> tuple[LoopNest, LoopNest] | None:
    """Both nests over common dims, such that the two accesses are at the same point; None if there are no such dims.

    `p_strides` cover all dims of `p` if `full`, else its outer dims.
    """
    have = list(zip(p.dims, p_strides, strict=False))
    want = list(zip(c.dims, c_strides, strict=True))
    groups = match(facts, have, want)
    if groups is None:
        return None
    pairs: list[tuple[int, int]] = []
    p_shift, c_shift = {}, {}
    for mine, theirs in groups:
        if len(mine) == 1 and len(theirs) > 1:
            p_shift[mine[0]] = tuple(c.dims[j] for j in theirs)
        elif len(theirs) == 1 and len(mine) > 1:
            c_shift[theirs[0]] = tuple(p.dims[i] for i in mine)
    p_at = positions(len(p.dims), p_shift)
    c_at = positions(len(c.dims), c_shift)
    for mine, theirs in groups:
        a = [k for i in mine for k in p_at[i]]
        b = [k for j in theirs for k in c_at[j]]
        pairs += zip(a, b, strict=True)
    for i in sorted(p_shift, reverse=True):
        p = split(facts, p, i, p_shift[i])
    for j in sorted(c_shift, reverse=True):
        c = split(facts, c, j, c_shift[j])
    return place(facts, p, full, c, dict(pairs))


def positions(n: int, shift: dict[int, Dims]) -> list[list[int]]:
    """Where each of `n` dims ends up when some are split."""
    out, k = [], 0
    for i in range(n):
        m = len(shift.get(i, (0,)))
        out.append(list(range(k, k + m)))
        k += m
    return out


def place(facts: Facts, p: LoopNest, full: bool, c: LoopNest, pairs: dict[int, int]) -> tuple[LoopNest, LoopNest] | None:
    """Bring two nests, some of whose dims are paired (p -> c), to the dims of one of them."""
    active = range(len(p.dims) if full else p.outer)
    if any(i not in pairs for i in active):
        return None
    extra = [j for j in range(len(c.dims)) if j not in pairs.values()]
    back = {j: i for i, j in pairs.items()}
    if full:
        if extra:
            return None
        if p.reduced and c.reduced:
            theirs = [pairs[i] for i in range(p.outer, len(p.dims))]
            if set(theirs) != set(range(c.outer, len(c.dims))) or (theirs != sorted(theirs) and finds_positions(c)):
                return None
        if not p.reduced:
            return reorder(p, [pairs[i] for i in range(len(p.dims))], c.dims, c.reduced), c
        return p, reorder(c, [back[j] for j in range(len(c.dims))], p.dims, p.reduced)
    if not extra:
        if c.reduced:
            return None
        return p, as_outer(reorder(c, [back[j] for j in range(len(c.dims))], p.dims, p.reduced), p)
    inner = list(range(p.outer, len(p.dims)))
    if len(extra) != len(inner) or not all(facts.equal(c.dims[j], p.dims[i]) for j, i in zip(extra, inner, strict=True)):
        return None
    if c.reduced and set(extra) != set(range(c.outer, len(c.dims))):
        return None
    back.update(zip(extra, inner, strict=True))
    return p, reorder(c, [back[j] for j in range(len(c.dims))], p.dims, p.reduced)


def finds_positions(nest: LoopNest) -> bool:
    """Does the order of its reduction dims matter?"""
    seen: set[int] = set()
    stack = [p.node for p in nest.stores]
    while stack:
        n = stack.pop()
        if n.op == "scan" or n.op == "reduce" and n.attrs[0].startswith("arg"):
            return True
        if id(n) not in seen:
            seen.add(id(n))
            stack.extend(n.args)
    return False


def as_outer(nest: LoopNest, over: LoopNest) -> LoopNest:
    """A pointwise nest over the outer dims of `over`: its stores run once per outer point."""
    stores = [replace(p, strides=p.strides[: over.outer], full=False) for p in nest.stores]
    return LoopNest(nest.dims, nest.reduced, stores, nest.ops, nest.cost)
