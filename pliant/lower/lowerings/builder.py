"""What a lowering rule works with: loads of traced tensors over the dims of its nest, and stores of its results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from pliant.graph.operators import Column
from pliant.graph.originals import math
from pliant.graph.traced import TracedTensor, is_lazy
from pliant.lower import liveness
from pliant.lower.loop_nest import Facts, LoopNest, Size, TensorStore
from pliant.lower.loops import SCALARS, Node, operands_first
from pliant.lower.lowerings.scalars import NAMES, Refuse, V, cast, const, up
from pliant.symbolic import DataDependent, ops
from pliant.symbolic.expr import Expr

Rule = Callable[["Builder", Any], None]
TABLE = Column("lowering")


def lowering(*targets: Any) -> Callable[[Rule], Rule]:
    """Register a rule for these overloads."""

    def register(rule: Rule) -> Rule:
        TABLE.update(dict.fromkeys(targets, rule))
        return rule

    return register


class Numbers:
    """Operands of any kind as values, for whoever can `load` a tensor."""

    build: Builder

    def load(self, t: TracedTensor, axes: Sequence[int] | None = None) -> V:
        raise NotImplementedError

    def value(self, x: Any, dtype: str) -> V:
        """A tensor, Python number or symbolic integer as a value of `dtype`."""
        if isinstance(x, TracedTensor):
            return cast(self.load(x), dtype)
        e = liveness.number(x)
        if e is not None:
            if e.kind is not int:
                raise Refuse
            return self.size(e, dtype)
        if not isinstance(x, (int, float)) or (isinstance(x, float) and not math.isfinite(x) and dtype[0] in "iu"):
            raise Refuse
        return const(x, dtype)

    def size(self, e: Any, dtype: str) -> V:
        """A size as a number."""
        n = self.build.facts.size(e) if isinstance(e, (int, Expr)) else e
        return const(n, dtype) if type(n) is int else cast(V(Node("size", (), "i64", (n,))), dtype)


class Space(Numbers):
    """The dims of one nest as the rule sees them, dims of size 1 included; the nest itself goes without those."""

    def __init__(self, build: Builder, sizes: Sequence[Any], reduced: int = 0) -> None:
        self.build = build
        self.sizes: list[Size] = [build.facts.size(s) for s in sizes]
        self.axes = [i for i, s in enumerate(self.sizes) if not (type(s) is int and s == 1)]
        self.reduced = sum(i >= len(self.sizes) - reduced for i in self.axes)
        self.n_outer = len(self.sizes) - reduced
        self.nest = LoopNest(tuple(self.sizes[i] for i in self.axes), self.reduced, [])
        self.position = {axis: k for k, axis in enumerate(self.axes)}

    def strides(self, t: TracedTensor, axes: Sequence[int] | None = None, spread: bool = False) -> tuple[Size, ...]:
        """How `t` moves along the dims of the nest; `axes` are the dims of this space that its dims lie on (default: the last ones).

        `spread`: a size may be one that is known to be 1 or that of the space, and which of the two only the run tells.
        """
        facts = self.build.facts
        if axes is None:
            axes = range(len(self.sizes) - len(t.sizes), len(self.sizes))
            if axes.start < 0:
                raise Refuse
        out: list[Size] = [0] * len(self.axes)
        for axis, n, stride in zip(axes, t.sizes, t.strides, strict=True):
            n = facts.size(n)
            if type(n) is int and n == 1:
                continue
            if not facts.surely_equal(n, self.sizes[axis]):
                if not spread or type(n) is int or not facts.scope.known_true(ops.or_(ops.eq(n, self.sizes[axis]), ops.eq(n, 1))):
                    raise Refuse
                stride = facts.size(ops.where(ops.eq(n, 1), 0, facts.size(stride)))
            if axis not in self.position:  # the space has one element there, and so has `t`
                continue
            # what does not move along a loop is loaded outside of it, also where the loop has no turn and the tensor no memory
            out[self.position[axis]] = 1 if type(n) is int and n == 0 else facts.size(stride)
        return tuple(out)

    def load(self, t: TracedTensor, axes: Sequence[int] | None = None) -> V:
        """The elements of `t`, in its dtype. A number stands for itself."""
        name = NAMES.get(t.dtype)
        if name is None or not self.build.supports(t.device) or t.layout is not torch.strided:
            raise Refuse
        root = self.build.root(t)
        offset = self.build.facts.size(t.offset)
        return V(Node("load", (), name, (root, self.strides(t, axes, spread=axes is None), offset, ())))

    def load_at(self, t: TracedTensor, strides: Sequence[Size]) -> V:
        """The elements of `t`, which moves by `strides` along the dims of this space."""
        name = NAMES.get(t.dtype)
        if name is None or not self.build.supports(t.device):
            raise Refuse
        moves = tuple(strides[i] for i in self.axes)
        return V(Node("load", (), name, (self.build.root(t), moves, self.build.facts.size(t.offset), ())))

    def window(self, t: TracedTensor, dim: int, start: Size, keep: V, drop: bool = False) -> V:
        """`t` laid at `start` along `dim`, where `keep` is true. With `drop`, `t` has no such dim."""
        axes = [d for d in range(len(self.sizes)) if not (drop and d == dim)]
        return self.windows(t, {} if drop else {dim: start}, keep, axes)

    def windows(self, t: TracedTensor, starts: dict[int, Size], keep: V, axes: Sequence[int] | None = None) -> V:
        """`t` laid at `starts[dim]` along each of those dims, anything where `keep` is false: nothing is read there.

        What a pointwise operation makes for this reader alone is computed from its operands, so that no tensor is in between. A negated
        one always is, for that costs nothing.
        """
        facts = self.build.facts
        axes = list(range(len(self.sizes))) if axes is None else axes
        seen = Window(self, t, starts, keep, axes).computed()
        if seen is not None:
            return seen
        name = NAMES.get(t.dtype)
        if name is None or len(axes) != len(t.sizes) or not self.build.supports(t.device):
            raise Refuse
        out: list[Size] = [0] * len(self.axes)
        offset = facts.size(t.offset)
        for axis, n, stride in zip(axes, t.sizes, t.strides, strict=True):
            n, stride = facts.size(n), facts.size(stride)
            if axis in starts:
                offset = facts.difference(offset, facts.product((starts[axis], stride)))
            elif type(n) is int and n == 1:
                continue
            elif not facts.surely_equal(n, self.sizes[axis]):
                raise Refuse
            if axis in self.position:
                out[self.position[axis]] = stride
        return V(Node("load", (keep.node,), name, (self.build.root(t), tuple(out), offset, (), True)))

    def index(self, axis: int) -> V:
        """The position along a dim of this space, i64."""
        return V(Node("index", (), "i64", (self.position[axis],))) if axis in self.position else const(0, "i64")

    def store(self, t: Any, value: V, axes: Sequence[int] | None = None, full: bool = True) -> None:
        """`value`, rounded to the dtype of `t`, is what `t` holds. Not `full`: `t` has the outer dims only."""
        if not isinstance(t, TracedTensor) or t.dtype not in NAMES or not self.build.supports(t.device):
            raise Refuse
        if axes is None and not full:
            axes = range(self.n_outer - len(t.sizes), self.n_outer)
        self.store_moves(t, value, self.strides(t, axes), full)

    def store_at(self, t: Any, value: V, strides: Sequence[Size], full: bool = True) -> None:
        """`value` is what `t` holds, which moves by `strides` along the dims of this space."""
        if not isinstance(t, TracedTensor) or t.dtype not in NAMES or not self.build.supports(t.device):
            raise Refuse
        self.store_moves(t, value, tuple(strides[i] for i in self.axes), full)

    def store_moves(self, t: TracedTensor, value: V, strides: tuple[Size, ...], full: bool) -> None:
        if any(type(s) is int and s == 0 for s in (strides if full else strides[: self.nest.outer])):
            raise Refuse  # several points, one element
        root, facts = self.build.root(t), self.build.facts
        fresh = self.build.is_fresh(t)
        if not fresh and self.build.meets(t):
            raise Refuse  # an element is written more than once, and others read what was written last
        if not full:
            strides = strides[: self.nest.outer]
        node = cast(value, NAMES[t.dtype]).node
        self.nest.stores.append(TensorStore(t, root, strides, facts.size(t.offset), node, full or not self.reduced, fresh))


class Window(Numbers):
    """What the rule of a pointwise operation gets in place of a space of its own, where its result `t` is laid into another space."""

    def __init__(self, space: Space, t: TracedTensor, starts: dict[int, Size], keep: V, axes: Sequence[int]) -> None:
        self.space, self.t, self.starts, self.keep, self.axes = space, t, starts, keep, axes
        self.build = space.build
        self.result: V | None = None

    def __getattr__(self, name: str) -> Any:
        raise Refuse  # the rule is none of a pointwise operation

    def computed(self) -> V | None:
        """The value of `t`; None if it is to be read from memory."""
        b, t = self.build, self.t
        maker = b.makers.get(t.vid)
        if maker is None or (t.vid not in b.once and maker.target is not torch.ops.aten.neg.default) or maker.target not in TABLE:
            return None
        if len(self.axes) != len(t.sizes) or liveness.mutable(maker.target) or liveness.has_effect(maker):
            return None
        if any(x.storage_id in b.dirty for x in (t, *liveness.op_inputs(maker))):
            return None
        try:
            TABLE[maker.target](Through(b, maker, self), maker)
        except (Refuse, DataDependent):  # a parameter that only the run knows
            return None
        b.through = True
        return self.result

    def load(self, t: TracedTensor, axes: Sequence[int] | None = None) -> V:
        facts, lead = self.build.facts, len(self.t.sizes) - len(t.sizes)
        if axes is not None or lead < 0:
            raise Refuse
        starts = dict(self.starts)
        for axis, n, whole in zip(self.axes[lead:], t.sizes, self.t.sizes[lead:], strict=True):
            n = facts.size(n)
            if type(n) is int and n == 1:
                starts.pop(axis, None)  # one element for all
            elif not facts.surely_equal(n, facts.size(whole)):
                raise Refuse
        return self.space.windows(t, starts, self.keep, self.axes[lead:])

    def store(self, t: Any, value: V) -> None:
        if t is not self.t:
            raise Refuse
        self.result = cast(value, NAMES[t.dtype])


class Builder:
    """Collects the nests of one operation.

    `roots` maps the vid of a view to that of what it is a view of, `makers` the vid of a result to its operation; `read` holds the vids
    that somebody reads, `dirty` the storages that some operation writes to, `reinterpreted` the views whose elements are not those of
    their root: of another dtype, or negated, `once` those that one operation reads and nobody else. `supports`: the target's
    word on a device. `meets`: whether elements of a tensor may have one place. `through`: the last nests compute what an operand was
    to be made of.
    """

    def __init__(
        self, facts: Facts, roots: dict[int, int], read: set[int], makers: dict[int, Any], dirty: set[int], reinterpreted: set[int],
        once: set[int], supports: Callable[[torch.device], bool], meets: Callable[[TracedTensor], bool],
    ) -> None:  # fmt: skip
        self.facts = facts
        self.roots = roots
        self.reinterpreted = reinterpreted
        self.read = read
        self.makers = makers
        self.dirty = dirty
        self.once = once
        self.supports = supports
        self.meets = meets
        self.spaces: list[Space] = []
        self.op: Any = None
        self.through = False

    def lower(self, op: Any) -> list[LoopNest] | None:
        """The nests of `op`, or None if it stays an ATen call."""
        rule = TABLE.get(op.target)
        if rule is None:
            return None
        self.spaces, self.op, self.through = [], op, False
        try:
            rule(self, op)
        except (Refuse, DataDependent):  # a parameter that only the run knows
            return None
        nests = [s.nest for s in self.spaces if s.nest.stores]
        put = {p.tensor.vid for n in nests for p in n.stores}
        if not nests or any(isinstance(t, TracedTensor) and t.vid in self.read and t.vid not in put for t in op.outs):
            return None
        return [settled(n) for n in nests]

    def space(self, sizes: Sequence[Any], reduced: int = 0) -> Space:
        """A new nest over `sizes`, the last `reduced` of which are reduced over."""
        s = Space(self, sizes, reduced)
        self.spaces.append(s)
        return s

    def root(self, t: TracedTensor) -> int:
        if t.vid in self.reinterpreted or is_lazy(t):
            raise Refuse
        return self.roots.get(t.vid, t.vid)

    def is_fresh(self, t: TracedTensor) -> bool:
        """Is `t` made by this operation (and not one of its operands, written in place)?"""
        return all(t is not x for x in liveness.op_inputs(self.op))

    def needed(self, t: Any) -> bool:
        return isinstance(t, TracedTensor) and t.vid in self.read

    def arguments(self, op: Any, *names: str, **defaults: Any) -> list[Any]:
        """The arguments of these names, however they were passed; the schema's defaults where they were not."""
        return arguments(op, *names, **defaults)


class Through(Builder):
    """The builder of an operation that is computed inside the space of its reader."""

    def __init__(self, outer: Builder, op: Any, window: Window) -> None:
        super().__init__(
            outer.facts, outer.roots, outer.read, outer.makers, outer.dirty, outer.reinterpreted, outer.once, outer.supports, outer.meets
        )  # fmt: skip
        self.op, self.window = op, window

    def space(self, sizes: Sequence[Any], reduced: int = 0) -> Any:
        if reduced or len(sizes) != len(self.window.t.sizes):
            raise Refuse
        return self.window


def arguments(op: Any, *names: str, **defaults: Any) -> list[Any]:
    schema = op.target._schema.arguments
    at = {a.name: i for i, a in enumerate(schema)}
    out = []
    for name in names:
        i = at.get(name)
        if i is None:
            out.append(defaults.get(name))
        elif not schema[i].kwarg_only and i < len(op.args):
            out.append(op.args[i])
        elif name in op.kwargs:
            out.append(op.kwargs[name])
        else:
            a = schema[i]
            out.append(a.default_value if a.has_default_value() else defaults.get(name))
    return out


def settled(nest: LoopNest) -> LoopNest:
    """The nest with its cost. Reductions over nothing but dims of size 1 are no reductions."""
    if not nest.reduced:
        done: dict[int, Node] = {}
        for p in nest.stores:
            p.node = unreduced(p.node, done)
    nest.cost = cost(nest)
    return nest


def unreduced(node: Node, done: dict[int, Node]) -> Node:
    """The node without reductions and scans. `done` keeps shared nodes shared. (A sum begins at 0.0: that of -0.0 alone is 0.0.)"""
    for n in operands_first([node]):
        if id(n) in done:
            continue
        args = tuple(done[id(a)] for a in n.args)
        if n.op in ("reduce", "scan") and n.attrs[0] == "sum" and n.dtype in ("f32", "f64"):
            done[id(n)] = Node("add", (args[0], Node("const", (), n.dtype, (0.0,))), n.dtype)
        elif n.op == "reduce":
            done[id(n)] = Node("const", (), "i64", (0,)) if n.attrs[0].startswith("arg") else args[0]
        elif n.op == "scan":
            done[id(n)] = args[0]
        else:
            done[id(n)] = n if all(a is b for a, b in zip(args, n.args, strict=True)) else Node(n.op, args, n.dtype, n.attrs)
    return done[id(node)]


def cost(nest: LoopNest) -> int:
    """Vector instructions at each point, roughly."""
    total = 0
    for n in nest.nodes():
        row = SCALARS.get(n.op)
        total += row.cost if row is not None else 1 if n.op == "reduce" else 0
    return total


__all__ = ["TABLE", "Builder", "Refuse", "Space", "arguments", "cost", "lowering", "up"]
