"""From fused nests to kernels: which values are stored, fewer dims, canonical names.

Kernels that are equal but for the names of their sizes are one kernel: the layers of a model share their code.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

from pliant.lower.loop_nest import Dims, Facts, LoopNest, Size, TensorStore, is_zero
from pliant.lower.loops import Buffer, Kernel, Node, Store, operands_first
from pliant.lower.lowerings.scalars import NAMES


@dataclass(slots=True, eq=False)
class Launch:
    """A kernel with what it is called with: the tensors of its buffers in order, the values of its sizes, the results to allocate.

    `key` identifies the code. `buffers` holds root tensors; those in `made` (positions in `buffers`) are allocated by the launch.
    """

    kernel: Kernel
    key: Hashable
    buffers: list[Any]
    made: list[int]
    sizes: list[Any]


class Finisher:
    """Turns one nest into a `Launch`."""

    def __init__(self, facts: Facts, tensors: dict[int, Any], nest: LoopNest, stores: list[TensorStore], name: str) -> None:
        self.facts = facts
        self.tensors = tensors
        self.stores = stores
        self.name = name
        self.ordered = any(p.index for p in stores)
        self.needed = nest.only(stores).nodes()
        self.dims: Dims = nest.dims
        self.outer = nest.outer
        self.order = self.loop_order(nest)
        self.names: dict[Any, str] = {}
        self.values: list[Any] = []
        self.buffers: dict[int, int] = {}
        self.nodes: dict[Hashable, Node] = {}
        self.serial: dict[int, int] = {}
        self.done: dict[int, Node] = {}  # id of a node of the nest -> that with canonical names

    def hint(self, size: Size) -> int:
        if type(size) is int:
            return size
        h = size.hint
        return 64 if h is None else int(h)

    def loop_order(self, nest: LoopNest) -> list[list[int]]:
        """Groups of dims, outermost group first; the dims of a group are walked as one. Reduction dims stay in their order."""
        lead = max(self.stores, key=lambda p: (p.full, p.fresh))
        outer = list(range(self.outer))
        if not self.ordered:
            outer.sort(key=lambda d: -self.hint(lead.strides[d]))
        accesses = [n.attrs[1] for n in self.needed if n.op == "load"] + [p.strides for p in self.stores]
        indexed = {n.attrs[0] for n in self.needed if n.op == "index"}
        groups: list[list[int]] = []
        for part in (outer, list(range(self.outer, len(self.dims)))):
            for k, d in enumerate(part):
                if k and not {d, groups[-1][-1]} & indexed and all(self.continues(a, groups[-1][-1], d) for a in accesses):
                    groups[-1].append(d)
                else:
                    groups.append([d])
        return groups

    def continues(self, strides: Dims, a: int, b: int) -> bool:
        """Does walking dim `b` to its end lead to the next element of dim `a`, in this access?"""
        if b >= len(strides):
            return True  # once per outer point
        if is_zero(strides[a]) and is_zero(strides[b]):
            return True
        return self.facts.equal(strides[a], self.facts.product((self.dims[b], strides[b])))

    # -- canonical names ---------------------------------------------------------------------------------------
    def size(self, value: Size) -> Size:
        if type(value) is int:
            return value
        name = self.names.get(value)
        if name is None:
            name = self.names[value] = f"n{len(self.values)}"
            self.values.append(value)
        return name

    def strides(self, strides: Dims, n: int) -> tuple[Size, ...]:
        return tuple(self.size(strides[g[-1]]) for g in self.order[:n])

    def offset(self, root: int, offset: Size) -> Size:
        """Element offset from where the data of the root begins."""
        base = self.facts.size(self.tensors[root].offset)
        return self.size(offset if type(base) is int and base == 0 else self.facts.difference(offset, base))

    def buffer(self, root: int) -> int:
        return self.buffers.setdefault(root, len(self.buffers))

    def node(self, n: Node) -> Node:
        """The node with canonical names; equal nodes are one."""
        done = self.done
        if id(n) in done:
            return done[id(n)]
        for x in operands_first([n]):
            if id(x) in done:
                continue
            args = tuple(done[id(a)] for a in x.args)
            attrs: tuple = x.attrs
            if x.op == "load":
                root, strides, offset, *rest = x.attrs
                steps, *rest = rest
                place = (self.buffer(root), self.strides(strides, len(self.order)), self.offset(root, offset))
                attrs = (*place, tuple(map(self.size, steps)) if steps else (), *rest)
            elif x.op in ("size", "bounded"):
                attrs = (self.size(x.attrs[0]), *x.attrs[1:])
            elif x.op == "index":
                attrs = (next(i for i, g in enumerate(self.order) if x.attrs[0] in g),)
            key = (x.op, tuple([self.serial[id(a)] for a in args]), x.dtype, attrs if x.op in PLACES else tuple(map(exact, attrs)))
            new = self.nodes.get(key)
            if new is None:
                new = self.nodes[key] = Node(x.op, args, x.dtype, attrs)
                self.serial[id(new)] = len(self.serial)
            done[id(x)] = new
        return done[id(n)]

    def finish(self) -> Launch:
        n_outer = sum(g[0] < self.outer for g in self.order)
        dims = tuple([self.size(self.dims[g[0]] if len(g) == 1 else self.facts.product([self.dims[d] for d in g])) for g in self.order])
        stores = []
        for p in self.stores:
            node = self.node(p.node)
            strides = self.strides(p.strides, len(self.order) if p.full else n_outer)
            index, steps = tuple(map(self.node, p.index)), tuple(map(self.size, p.index_strides))
            stores.append(Store(self.buffer(p.root), strides, self.offset(p.root, p.offset), node, index, steps, None, p.mode))
        roots = [self.tensors[r] for r in self.buffers]
        written = {p.root: p.fresh for p in self.stores}
        old = [r for r, fresh in written.items() if not fresh]
        buffers = [Buffer(NAMES[t.dtype], t.vid in written, not old or t.vid in written and t.vid not in old) for t in roots]
        kernel = Kernel(self.name, dims, len(self.order) - n_outer, buffers, stores, tuple(f"n{i}" for i in range(len(self.values))))
        kernel.hints = {name: self.hint(v) for v, name in self.names.items()}
        made = [i for i, t in enumerate(roots) if written.get(t.vid)]
        return Launch(kernel, self.key(kernel), roots, made, self.values)

    def key(self, k: Kernel) -> Hashable:
        nodes = tuple(self.nodes)
        serial = self.serial
        stores = tuple(
            [
                (s.buffer, s.strides, s.offset, serial[id(s.node)], tuple([serial[id(i)] for i in s.index]), s.index_strides, s.mode)
                for s in k.stores
            ]
        )
        return (k.dims, k.reduced, tuple([(b.dtype, b.written, b.unique) for b in k.buffers]), nodes, stores)


PLACES = frozenset(("load", "index"))
"""Nodes whose attributes are places: among these no numbers are equal that are not the same."""


def exact(value: Any) -> Any:
    """A key that tells 1 from 1.0 and True, and 0.0 from -0.0, and knows NaN."""
    return (type(value).__name__, repr(value)) if isinstance(value, (int, float, complex)) else value
