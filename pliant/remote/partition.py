"""From the operations of a captured graph, over tensors of global sizes, to the program that each worker runs on its pieces.

Operations are recorded anew, in order, on tensors of local sizes. For each one, a rule (`sharding.py`) says which placements it wants of
its operands and what its results then have; operands that lie otherwise are moved by collectives that become part of the program. An
operator without a rule runs on whole tensors, on every worker.

| from \\ to | Replicate        | Shard                  |
|-----------|------------------|------------------------|
| Replicate |                  | a view of the own part |
| Shard     | all-gather       | all-gather, then that  |
| Partial   | all-reduce       | reduce-scatter         |

Memory: what writes to a tensor leaves its placement as it is. Where a view had to be made of a moved copy, writes to that memory are
refused (`Refused`), because the copy would not see them.

A mesh of several dims is divided one dim at a time: the program for the first dim, with its collectives, is the graph of the next one
(`mesh_rules.py`). So each rule knows one dim, and a dim of a tensor that is cut along two of the mesh is a piece that is cut.

The cut of a dim is known by what was cut (`base`, an expression over sizes) and the elements that belong to each of those (`factor`). A
worker is told `l0` and `b0`, length and beginning of its piece of the first such base, and so on: the program is the same for all.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from pliant.export import settle
from pliant.export.program import MUTATION, USER, Input, Output, Program, Relation
from pliant.export.rewrite import SETTLED, Rewriter
from pliant.export.text import UNREADABLE, FormatError, Reader, one_text
from pliant.graph.control_flow import FLOWS
from pliant.graph.dispatch import is_dense
from pliant.graph.layout import contiguous_strides
from pliant.graph.leaving import WAYS
from pliant.graph.operators import overloads
from pliant.graph.record import Op
from pliant.graph.symnode import expr_of, to_sym
from pliant.graph.trace import Trace
from pliant.graph.traced import TracedTensor, make
from pliant.lower import liveness
from pliant.lower.restriding import as_views, renamed
from pliant.remote import collectives as c
from pliant.remote.orders import expected_order, order_of, ordered_strides
from pliant.remote.placements import OnWorker, Placement, Placements, RemoteError, Replicate, chunk, each, together
from pliant.remote.placements import Shard as OuterShard
from pliant.symbolic import ops
from pliant.symbolic.dims import OPEN
from pliant.symbolic.expr import Expr
from pliant.symbolic.parser import parse
from pliant.symbolic.scope import Scope

aten = torch.ops.aten
TOKEN = "token"
EAGER = "eager"
"""Name of the plans of single operators, which are made for sizes and strides that are there."""
PACKED, KEPT, COPIED = "packed", "kept", "copied"
"""Inputs with gaps between their elements: the worker makes a copy without; they are read as they lie, which writes and views of them
need; views of them are copies, because what a view comes to depends on strides that are not the same on all workers."""
Number = Any
"""An int, or a symbolic one."""


def argument(op: Op, name: str, default: Any = None) -> Any:
    """An argument by its name in the schema."""
    for i, a in enumerate(op.target._schema.arguments):
        if a.name == name:
            return op.args[i] if i < len(op.args) else op.kwargs.get(name, a.default_value if a.has_default_value() else default)
    return default


def draws(op: Op) -> bool:
    """Whether it takes random numbers. Attention and recurrent layers without dropout take none, although their schemas do not say so."""
    return all(argument(op, name) != 0.0 for name in ("dropout_p", "dropout")) and liveness.draws(op.target)


class Refused(RemoteError):
    """A graph that cannot run on tensors placed so."""


@dataclass(frozen=True, slots=True)
class Shard:
    """A dim of `base * factor` elements, of which each worker has a piece."""

    dim: int
    base: Any
    factor: Any


@dataclass(frozen=True, slots=True)
class Partial:
    """Each worker has a tensor of global sizes; the value is their sum."""


Rules = tuple[dict[Any, Callable], Callable, Callable]
"""Rules by operator, what is done where there is none, and what is right for all of them: to run on whole tensors."""
MOST_REDUCED = 512
"""Tensors that one all-reduce takes together."""


OF_FLOATS = frozenset(overloads(("gelu", "gelu_", "silu", "silu_", "softplus", "mish", "mish_", "hardswish", "hardswish_", "hardsigmoid",
                                 "hardsigmoid_", "celu", "elu", "log_sigmoid_forward", "hardshrink", "_softmax", "_log_softmax", "lerp",
                                 "lerp_")))  # fmt: skip
"""Operators whose kernels refuse whole numbers, which PyTorch's shape functions do not: a worker would compute something."""


class Sizes(list):
    """Local sizes among the arguments of an operation of the graph."""


R, P = Replicate(), Partial()
Place = Replicate | Shard | Partial


@dataclass(slots=True)
class Plan:
    """What a graph comes to on tensors placed in a certain way.

    `text`: the program of every worker; `name`: by its content. `numbers`: the symbols of the graph that it takes; `cuts`: the dim of the
    mesh and an expression, over these numbers and lengths of pieces, of what is cut. `outputs`: placement of each tensor that it gives,
    `answers`: how many numbers it gives. `constants`: tensors of the graph that go to the workers once. `writes`: which inputs it writes.
    `random`: it draws random numbers. `rank`: the worker that runs it alone. `shares`: for each output, the input whose memory it is in;
    `copies`: the input of whose memory it should be a view, and is a copy. `laid`: whether it lies in memory as the controller says, if
    the input whose memory it is in does.
    """

    name: str
    text: str
    numbers: list[Any]
    cuts: list[list]
    outputs: list[Placement]
    answers: int
    constants: list[torch.Tensor]
    writes: list[int]
    random: bool
    rank: int | None
    shares: list[int | None]
    copies: list[int | None]
    laid: list[bool]
    collectives: int
    gathered: list[str]
    held: list[Any] = field(default_factory=list)  # handles of the constants, once they were sent


class Partitioner(Rewriter):
    """Makes one plan. Rules (`sharding.RULES`) are called with it and the operation; see `run`."""

    def __init__(self, scope: Scope, workers: int, rules: Rules, before: Partitioner | None = None) -> None:
        """`before`: of the dim of the mesh before this one, whose program is divided further."""
        self.outer = scope
        self.scope = Scope()
        super().__init__(Trace(self.scope))
        self.workers = workers
        self.before = before
        self.axis: int = 0 if before is None else before.axis + 1
        self.agrees = True  # workers agree before they write: in the last of the programs, if there are several workers
        self.axes: list[int] = list(before.axes) if before is not None else []  # of each cut: the dim of the mesh
        self.first_cut = len(self.axes)
        self.laid: set[str] = set()  # symbols of strides and offsets
        self.gather: set[int] = set()  # operations that are to run on whole tensors, by number
        self.rules, self.default, self.whole = rules
        self.inputs: list[Input] = []
        self.names: dict[str, Any] = {}  # symbols of the graph -> local expressions
        self.numbers: list[Any] = []
        self.cuts: dict[Any, int] = {}
        self.lengths: list[Any] = []
        self.begins: list[Any] = []
        self.places: dict[int, Place] = {}  # vid of a tensor of the graph -> where it is
        self.local: dict[int, TracedTensor] = {}  # and what stands for it here
        self.moved: dict[tuple[int, Place], TracedTensor] = {}
        self.separated: set[int] = set()  # storage ids of which a view was made of a copy
        self.outside: dict[int, int] = {}  # storage id of an input -> its number
        self.written: list[int] = []
        self.constants: list[torch.Tensor] = []
        self.gathered: list[str] = []
        self.random = False
        self.makers: dict[int, int] = {}  # storage ids of what operations of the graph have made, and these by number
        self.site: Any = None
        self.token: TracedTensor | None = None
        self.before_write: int | None = None  # how many operations there were before the first write to memory from before
        self.with_gaps: list[int] = []  # inputs that are not row-major
        self.gaps = PACKED
        self.last_use: dict[int, int] = {}  # vid -> the last operation that reads it
        self.index = 0  # of the operation at hand
        self.wanted: set[int] = set()  # vids of what the graph gives
        self.storages: dict[int, int] = {}  # vid of a tensor of the graph -> its memory
        self.collectives = 0
        self.shares: list[int | None] = []
        self.copies: list[int | None] = []
        self.as_told: list[bool] = []  # `Plan.laid`

    # -- numbers ----------------------------------------------------------------------------------------------------------------
    def expression(self, e: Any) -> Any:
        """An expression of the graph, in local symbols."""
        e = self.outer.simplify(e)
        if e.const is not None:
            return e.const
        for s in e.symbols():
            if s.name not in self.names:
                self.declare(s)
        return parse(e.python(), self.names)

    def declare(self, s: Any) -> None:
        """A number that the graph takes."""
        if self.before is not None and s.name in self.before.laid:
            raise OfStrides(f"{self.where()}: what a program does depends on how a tensor lies, on a mesh of several dims")
        if not s.info.backed:
            raise Refused(f"{s.name} is used before an operator has made it known")
        lo, hi = self.outer.range(s) or (None, None)
        of = s.kind
        size = of is int and s.info.size_like
        more: dict[str, Any] = {"dim": OPEN} if size else {}
        more |= {k: v for k, v in (("lo", lo), ("hi", hi)) if isinstance(v, (int, float)) and abs(v) != float("inf")}
        local = self.scope.backed(s.name, hint=s.hint, kind=of, size_like=size, **more)
        self.names[s.name] = local
        self.numbers.append(s)

    def number(self, x: Any) -> Any:
        """A number of the graph as one of the local trace: an int, float, bool or a symbolic one."""
        e = liveness.number(x)
        if e is None:
            return x
        found = self.expression(e)
        return to_sym(self.scope, found) if type(found) is Expr else found

    def converted(self, x: Any) -> Any:
        """An argument without tensors, in local numbers."""
        if type(x) in (list, tuple):
            return type(x)(self.converted(v) for v in x)
        return self.number(x)

    def symbol(self, x: Any) -> Any:
        return to_sym(self.scope, x) if type(x) is Expr else x

    def plain(self, x: Any) -> Any:
        """A local number as it is kept in placements: an int, or an expression."""
        e = liveness.number(x)
        if e is None:
            return x
        e = self.scope.simplify(e)
        return e if e.const is None else e.const

    def equal(self, a: Any, b: Any) -> bool:
        """Whether two local numbers are the same for certain."""
        a, b = self.plain(a), self.plain(b)
        if a is b or (type(a) is int and type(b) is int):
            return a is b or a == b
        x, y = expr_of(self.symbol(a), self.scope), expr_of(self.symbol(b), self.scope)
        return x is y or bool(self.scope.known_true(ops.eq(x, y)))

    def cut(self, base: Any) -> int:
        """The number of a cut."""
        found = self.cuts.get(base)
        if found is None:
            found = self.cuts[base] = len(self.cuts)
            hint = base if type(base) is int else base.hint
            first = chunk(hint, self.workers, 0)[1]
            self.axes.append(self.axis)
            self.begins.append(self.scope.backed(f"b{self.first_cut + found}", hint=0, lo=0, size_like=True, dim=OPEN))
            if type(base) is int and base % self.workers == 0:
                self.lengths.append(base // self.workers)
            else:
                self.lengths.append(self.scope.backed(f"l{self.first_cut + found}", hint=first, lo=0, size_like=True, dim=OPEN))
        return found

    def length(self, s: Shard) -> Any:
        """How many elements of the dim a worker has."""
        return self.symbol(self.lengths[self.cut(s.base)] * s.factor)

    def begin(self, s: Shard) -> Any:
        return self.symbol(self.begins[self.cut(s.base)] * s.factor)

    def sizes(self, t: TracedTensor, place: Place) -> list[Any]:
        """The local sizes of a tensor of the graph."""
        out = [self.number(n) for n in t.sizes]
        if type(place) is Shard:
            out[place.dim] = self.length(place)
        return out

    def same(self, a: Place, b: Place) -> bool:
        if type(a) is not Shard or type(b) is not Shard:
            return type(a) is type(b)
        if a.dim != b.dim:
            return False
        if self.equal(a.base, b.base) and self.equal(a.factor, b.factor):
            return True
        return self.even(a) and self.even(b) and a.base * a.factor == b.base * b.factor

    def even(self, s: Shard) -> bool:
        """Whether all pieces have the same length, which is known: heads of 16 are then cut where their elements are."""
        return type(s.base) is int and type(s.factor) is int and s.base % self.workers == 0

    # -- inputs -----------------------------------------------------------------------------------------------------------------
    def input(self, t: TracedTensor, placement: Placement, real: Any) -> None:
        """A tensor that the graph takes. `real` has its sizes, strides and offset at this call."""
        place: Place = R
        if isinstance(placement, OuterShard):
            n = self.plain(self.number(t.sizes[placement.dim]))
            if placement.factor == 1:
                place = Shard(placement.dim, n, 1)
            else:
                base = self.plain(self.symbol(n) // placement.factor)
                place = Shard(placement.dim, base, placement.factor)
        sizes = self.sizes(t, place)
        strides = self.strides(t, sizes, real)
        offset: Any = t.offset
        if type(offset) is not int or real.storage_offset():
            name = f"o{len(self.inputs)}"
            self.laid.add(name)
            offset = to_sym(self.scope, self.scope.backed(name, hint=real.storage_offset(), lo=0, size_like=True))
        x = make(self.trace, tuple(sizes), tuple(strides), t.dtype, offset, None, t.device, is_dense(tuple(sizes), tuple(strides)))
        self.outside[t.storage_id] = len(self.inputs)
        self.inputs.append(Input(f"i{len(self.inputs)}", USER, x))
        self.places[t.vid], self.local[t.vid] = place, x

    def strides(self, t: TracedTensor, sizes: list[Any], real: Any) -> list[Any]:
        """Row-major ones, or others without gaps; where it must be read as it lies, only the worker knows them."""
        if t.dense:
            return list(contiguous_strides(tuple(sizes)))
        self.with_gaps.append(len(self.inputs))
        if self.gaps != KEPT:  # the worker makes a copy of what lies otherwise
            order = order_of(real)
            return list(contiguous_strides(tuple(sizes))) if order is None else ordered_strides(sizes, order)
        out: list[Any] = []
        for d, stride in enumerate(real.stride()):
            if stride == 0:
                out.append(0)
                continue
            name = f"t{len(self.inputs)}{d:02d}"
            self.laid.add(name)
            out.append(to_sym(self.scope, self.scope.backed(name, hint=stride, lo=0, size_like=True)))
        return out

    def constant(self, t: TracedTensor) -> None:
        """A tensor that the capture made out of constants: it travels once."""
        assert t.constant is not None
        data = t.constant.detach()
        x = make(self.trace, t.sizes, tuple(data.stride()), t.dtype, data.storage_offset(), None, t.device, data.is_contiguous())
        self.inputs.append(Input(f"i{len(self.inputs)}", USER, x))
        self.constants.append(data)
        self.places[t.vid], self.local[t.vid] = R, x

    # -- moving -----------------------------------------------------------------------------------------------------------------
    def place(self, t: TracedTensor) -> Place:
        if t.vid not in self.places:
            if t.constant is None:
                raise Refused(f"{t} is used before it is made")
            self.constant(t)
        return self.places[t.vid]

    def emit(self, target: Any, *args: Any, **kwargs: Any) -> Any:
        """Record a local operation; its results."""
        if target in c.COLLECTIVES:
            args = (*args, self.tokened()) if target is c.AGREE else (*args, self.axis, self.tokened())
        return self.put(target, *args, site=self.site, **kwargs)

    def tokened(self) -> TracedTensor:
        """The token, for one more collective."""
        self.collectives += 1
        if self.token is None:
            self.token = make(self.trace, (1,), (1,), torch.int64, 0, None, torch.device("cpu"), True)
        return self.token

    def at(self, t: TracedTensor, want: Place) -> TracedTensor:
        """The local tensor that stands for `t`, placed as wanted."""
        have = self.place(t)
        x = self.local[t.vid]
        if self.same(have, want):
            return x
        key = (t.vid, want)
        if type(have) is Partial and type(want) is Replicate and key not in self.moved:
            self.reduce(t)
        found = self.moved.get(key)
        if found is None:
            found = self.moved[key] = self.redistribute(x, have, want)
        return found

    def reduce(self, t: TracedTensor) -> None:
        """Make partial sums whole, and with them, in one go, all others that are read later on."""
        wanted = [t.vid]
        for vid, place in self.places.items():
            late = self.last_use.get(vid, -1) >= self.index and (vid, R) not in self.moved
            if type(place) is Partial and late and vid != t.vid and self.local[vid].dtype is self.local[t.vid].dtype:
                wanted.append(vid)
        if len(wanted) == 1:
            return
        for at in range(0, len(wanted), MOST_REDUCED):
            some = wanted[at : at + MOST_REDUCED]
            found = self.emit(c.ALL_REDUCE_MANY, [self.local[vid] for vid in some], "sum")
            for vid, x in zip(some, found, strict=True):
                self.moved[vid, R] = x

    def redistribute(self, x: TracedTensor, have: Place, want: Place) -> TracedTensor:
        if type(want) is Partial:
            raise Refused("whole values cannot be made partial sums")
        if type(have) is Partial and type(want) is Shard:
            return self.emit(c.REDUCE_SCATTER, x, want.dim, self.symbol(want.base), self.symbol(want.factor), self.length(want))
        if type(have) is Partial:
            x = self.emit(c.ALL_REDUCE, x, "sum")
        elif type(have) is Shard:
            x = self.emit(c.ALL_GATHER, x, have.dim, self.symbol(have.base), self.symbol(have.factor))
        if type(want) is Shard:
            x = self.emit(c.PART, x, want.dim, self.begin(want), self.length(want))
        return x

    # -- operations -------------------------------------------------------------------------------------------------------------
    def run(self, steps: list[Op]) -> None:
        for i, op in enumerate(steps):
            for t in liveness.op_inputs(op):
                self.last_use[t.vid] = i
        self.last_use |= dict.fromkeys(self.wanted, len(steps))
        known = set(self.outside) | {t.storage_id for t in liveness.tensors_of([op.args for op in steps]) if t.constant is not None}
        for self.index, op in enumerate(steps):
            for t in liveness.op_outputs(op):
                if t.storage_id not in known:
                    self.makers.setdefault(t.storage_id, self.index)
            if op.target in FLOWS or op.target in WAYS:
                raise Refused(f"{op.target} on a mesh: a branch or loop on data within the graph")
            if op.target._schema.name in liveness.METADATA_WRITERS:
                raise Refused(f"{op.target} on a mesh: it changes the sizes of a tensor object")
            self.site = op.site
            if op.target in OF_FLOATS and any(not t.dtype.is_floating_point and not t.dtype.is_complex for t in liveness.op_outputs(op)):
                raise NotImplementedError(f'"{op.target}" not implemented for whole numbers, at {self.where()}')
            if op.target in SETTLED:
                op = Op(SETTLED[op.target], op.args, op.kwargs, op.outs, op.out_spec, op.site, op.torch_index)
            written = liveness.written(op)
            for t in written:
                self.writes(t)
            self.random |= draws(op)
            rule = self.rules.get(op.target) or self.default
            before = self.scope.snapshot()
            if self.index in self.gather:
                self.whole(self, op)
            elif rule(self, op) is NotImplemented:
                self.default(self, op)
            if self.index not in self.gather and any(self.of_pieces(g.expr) for g in self.scope.guards_since(before)):
                raise OfPieces(self.index)
            for t in written:
                for key in [k for k in self.moved if self.storage_of(k[0]) == t.storage_id]:
                    del self.moved[key]

    def of_pieces(self, e: Any) -> bool:
        """Whether an expression is about the piece of a worker."""
        return any(s.name[0] in "lb" and s.name[1:].isdigit() for s in e.symbols())

    def storage_of(self, vid: int) -> int:
        return self.storages.get(vid, vid)

    def writes(self, t: TracedTensor) -> None:
        """An operation is about to write to this tensor's memory."""
        if t.storage_id in self.separated:
            maker = self.makers.get(t.storage_id)
            if maker is not None and maker not in self.gather:  # made whole, views of it are none of copies
                raise OfPieces(maker)
            raise Refused(f"{self.where()} writes to memory of which a view lies on other workers")
        self.place(t)
        if t.storage_id in self.outside:
            i = self.outside[t.storage_id]
            if i not in self.written:
                self.written.append(i)
            if self.before_write is None:
                self.before_write = len(self.ops)

    def where(self) -> str:
        return str(self.site) if self.site is not None else "the graph"

    def give(self, out: Any, x: Any, place: Place) -> None:
        """A result of the operation at hand."""
        if type(out) is TracedTensor:
            self.places[out.vid], self.local[out.vid] = place, x
            self.storages[out.vid] = out.storage_id

    def apply(
        self, op: Op, want: Callable[[TracedTensor], Place], outs: list[Place] | Place, args: tuple | None = None, kwargs: Any = None,
        target: Any = None,
    ) -> None:
        """Run the operation on operands placed as `want` says; its results are placed as in `outs`.

        `args`, `kwargs`, `target`: in place of its own.
        """
        targets: list[Any] = []
        moved: set[int] = set()  # memory of operands that are read from copies

        def now(x: Any) -> Any:
            if type(x) is TracedTensor:
                w = want(x)
                if not self.same(self.place(x), w):
                    moved.add(x.storage_id)
                return self.at(x, w)
            if type(x) is Sizes:
                return list(x)
            if type(x) in (list, tuple):
                return type(x)(now(v) for v in x)
            return self.number(x)

        own = tuple(now(a) for a in (op.args if args is None else args))
        named = {k: now(v) for k, v in (op.kwargs if kwargs is None else kwargs).items()}
        self.separated.update(o.storage_id for o in liveness.op_outputs(op) if o.storage_id in moved)
        n = len(self.ops)
        made = self.emit(target or op.target, *own, **named)
        targets = liveness.leaves(made) if op.out_spec is not None or type(made) in (list, tuple) else [made]
        flat = op.outs
        if len(targets) != len(flat):
            raise Refused(f"{op.target} came to {len(targets)} results, not {len(flat)}")
        if op.binds:
            found = next((o for o in self.ops[n:] if o.target is op.target), None)
            if found is None or len(found.binds) != len(op.binds):
                raise Refused(f"{op.target} makes other numbers known on a mesh")
            for mine, theirs in zip(found.binds, op.binds, strict=True):
                self.names[liveness.number(theirs.symbol).name] = liveness.number(mine.symbol)
        places: list[Any] = outs if isinstance(outs, list) else [outs] * len(flat)
        for out, x, place in zip(flat, targets, places, strict=True):
            self.give(out, x, place)

    # -- the end ----------------------------------------------------------------------------------------------------------------
    def output(self, t: TracedTensor) -> tuple[TracedTensor, Placement]:
        """A tensor that the graph gives: whole or cut, laid out as its global form is."""
        place = self.place(t)
        x = self.at(t, R) if type(place) is Partial else self.local[t.vid]
        outer: Placement = R
        if type(place) is Shard:
            factor = self.plain(place.factor)
            if type(factor) is not int:
                x, place = self.at(t, R), R
            else:
                outer = OuterShard(place.dim, factor)
        if any(x is i.value for i in self.inputs):
            return x, outer
        if self.gaps == COPIED and x.storage_id in {self.inputs[i].value.storage_id for i in self.with_gaps}:
            return self.expanded(self.emit(aten.clone.default, x, memory_format=torch.contiguous_format), t), outer
        if t.dense and not x.dense and x.storage_id not in {i.value.storage_id for i in self.inputs}:
            x = self.emit(aten.clone.default, x, memory_format=torch.contiguous_format)
        elif not t.dense:
            order = expected_order(t)
            if order is None or x.storage_id in {i.value.storage_id for i in self.inputs}:
                return x, outer
            want = ordered_strides(list(x.sizes), order)
            if not all(self.equal(a, b) for a, b in zip(want, x.strides, strict=True)) or not self.equal(x.offset, 0):
                y = self.emit(aten.permute.default, x, list(order))
                y = self.emit(aten.clone.default, y, memory_format=torch.contiguous_format)
                x = self.emit(aten.permute.default, y, [order.index(i) for i in range(len(order))])
        return x, outer

    def lies_as_told(self, x: TracedTensor, t: TracedTensor) -> bool:
        """Whether an output has the strides that the graph says, on all workers; those of an input's memory, if the input does."""
        if t.dense or x.storage_id in {i.value.storage_id for i in self.inputs if i.is_tensor}:
            return True
        numbers = [e for n in t.strides if (e := liveness.number(n)) is not None]
        if any(s.name not in self.names for e in numbers for s in self.outer.simplify(e).symbols()):
            return False
        return all(self.equal(self.number(a), b) for a, b in zip(t.strides, x.strides, strict=True))

    def expanded(self, x: TracedTensor, t: TracedTensor) -> TracedTensor:
        """What lies once in memory for a whole dim does so here, too: programs that view it go by that."""
        place = self.places[t.vid]
        own = lambda d: type(place) is Shard and place.dim == d
        dims = [d for d, (n, s) in enumerate(zip(t.sizes, t.strides, strict=True)) if s == 0 and type(n) is int and n > 1 and not own(d)]
        if all(type(x.strides[d]) is int and x.strides[d] == 0 for d in dims):
            return x
        sizes = list(x.sizes)
        for d in dims:
            x = self.emit(aten.narrow.default, x, d, 0, 1)
        return self.emit(aten.expand.default, x, sizes)

    def program(self, outputs: list[Any], name: str, asserts: list[Any]) -> tuple[Program, list[Placement], int]:
        """The program of a worker, its outputs: tensors first, then numbers."""
        self.index += 1
        given_out = [t for t in outputs if type(t) is TracedTensor]
        made = [self.output(t) for t in given_out]
        self.as_told = [self.lies_as_told(x, t) for (x, _), t in zip(made, given_out, strict=True)]
        answers = [v if (e := liveness.number(v)) is None else self.expression(e) for v in outputs if type(v) is not TracedTensor]
        if self.agrees and self.written and self.before_write is not None:
            self.agreement()
        self.ops = as_views(self.trace, self.ops, [x for x, _ in made])
        checks = [Relation(e, "", "") for a in asserts if type(e := self.expression(a)) is Expr]
        outs = [Output(f"r{i}", USER, x) for i, (x, _) in enumerate(made)]
        outs += [Output(f"a{i}", USER, self.symbol(e)) for i, e in enumerate(answers)]
        if self.token is not None:
            self.inputs.append(Input(TOKEN, USER, self.token))
        numbers = [Input(s.name, USER, self.names[s.name]) for s in self.numbers]
        for i in range(len(self.lengths)):
            numbers += [Input(e.name, USER, e) for e in (self.lengths[i], self.begins[i]) if type(e) is Expr]
        p = Program(
            name=name, form="aten", trace=self.trace, inputs=[*self.inputs, *numbers], outputs=outs, ops=self.ops,
            relations=[Relation(g.user_form, "", g.why) for g in self.scope.guards], asserts=checks, checks=[], result=None, state={},
        )  # fmt: skip
        p.asserts += [Relation(a.expr, "", a.message) for a in self.scope.asserts if a.expr.const is not True]
        memory = {t.storage_id for op in p.ops for t in liveness.written(op)}
        for given in p.inputs:
            given.written = given.is_tensor and given.value.storage_id in memory
        owners = {i.value.storage_id: n for n, i in enumerate(self.inputs) if i.is_tensor}
        self.shares = [owners.get(x.storage_id) for x, _ in made]
        self.copies = [self.outside.get(t.storage_id) if own is None else None for t, own in zip(given_out, self.shares, strict=True)]
        return p, [place for _, place in made], len(answers)

    def agreement(self) -> None:
        """Before the first write to memory from before, workers tell each other that they came so far: all of them write, or none."""
        first = self.before_write or 0
        written = [self.inputs[i].value for i in sorted(self.written)]
        rest, self.ops = self.ops[first:], self.ops[:first]
        self.emit(c.AGREE, written)
        self.ops += rest


def restrided(ops: list[Op], inputs: list[TracedTensor]) -> list[Op]:
    """The operations, with views in place of those that give a tensor object that the graph made other sizes or strides."""
    if not any(op.target._schema.name in liveness.RESTRIDERS for op in ops):
        return ops
    given = {t.vid for t in inputs}
    out = list(ops)
    for i in reversed(range(len(out))):
        op = out[i]
        view = VIEWS.get(op.target)
        if view is None or op.before is None or op.outs[0].vid in given:
            continue
        x = op.outs[0]
        sizes, strides, offset = op.before
        with x.trace.paused():
            old = make(x.trace, sizes, strides, x.dtype, offset, x.storage_id, x.device, is_dense(sizes, strides))
        for j in range(i):
            out[j] = renamed(out[j], x, old)
        out[i] = replace(op, target=view, args=(old, *op.args[1:]), outs=[x], before=None)
    return out


VIEWS = {
    aten.squeeze_.default: aten.squeeze.default, aten.squeeze_.dim: aten.squeeze.dim, aten.squeeze_.dims: aten.squeeze.dims,
    aten.unsqueeze_.default: aten.unsqueeze.default, aten.t_.default: aten.t.default, aten.transpose_.default: aten.transpose.int,
}  # fmt: skip
"""Operators that restride a tensor object -> the views that give another object."""


def settled(p: Program) -> str:
    """The text of a program that a reader takes, who knows less of sizes than was known here (`export/settle.py`)."""
    text = one_text(p)
    try:
        Reader(c.PROGRAM_SPACES).program(text)
        return text
    except FormatError:
        pass
    try:
        text = one_text(settle.anew(p, text))
        Reader(c.PROGRAM_SPACES).program(text)
        return text
    except UNREADABLE as e:
        raise Refused(f"the program of a worker cannot be written down: {e}") from e


def known_to_lie(real: Any, placements: tuple[Placement, ...] | None) -> bool:
    """Whether the strides of a tensor on the workers are those that the controller has for it."""
    return real.handle.laid and not any(isinstance(q, OuterShard) for q in placements or ())


def relies_on_strides(program: Program) -> bool:
    """Whether it holds only for some strides of its inputs."""
    names = {s.name for r in (*program.relations, *program.asserts) for s in r.expr.symbols()}
    return any(n[0] == "t" and n[1:].isdigit() for n in names)


class OfStrides(Refused):
    """A program that would take strides as numbers."""


class OfPieces(Exception):
    """Operation `index` must run on whole tensors: it was recorded in a way that holds for the pieces of some workers only, or what it
    makes is written through views along the dim that is cut."""

    def __init__(self, index: int) -> None:
        super().__init__(index)
        self.index = index


def divided(
    scope: Scope, ops: list[Op], inputs: list[TracedTensor], outputs: list[Any], placements: list[tuple[Placement, ...]],
    reals: list[Any], shape: tuple[int, ...], rules: Rules, name: str, asserts: list[Any], gaps: str,
) -> tuple[list[Partitioner], Program, list[tuple[Placement, ...]], int]:  # fmt: skip
    """The graph divided along each dim of a mesh: partitioners, the last program, placements of its results, how many numbers it gives."""
    done: list[Partitioner] = []
    found: list[list[Placement]] = []
    for axis, workers in enumerate(shape):
        gather: set[int] = set()
        while True:
            p = Partitioner(scope, workers, rules, done[-1] if done else None)
            p.gaps, p.agrees, p.gather = gaps, axis == len(shape) - 1 and math.prod(shape) > 1, gather
            with p.trace.paused():
                for t, real, *own in itertools.zip_longest(inputs, reals, placements):
                    p.input(t, R if own[0] is None else own[0][axis], real)
                    p.storages[t.vid] = t.storage_id
            if len(p.outside) != len(inputs):
                raise Refused("a graph reads two tensors that share memory")
            if done and done[-1].token is not None:
                p.places[done[-1].token.vid], p.local[done[-1].token.vid] = R, p.tokened()
                p.collectives -= 1
            p.wanted = {t.vid for t in liveness.tensors_of(outputs)}
            try:
                p.run(ops)
                break
            except OfPieces as e:
                gather.add(e.index)
            except OfStrides as e:
                if gaps != KEPT or any(i in q.written for q in (*done, p) for i in (*done, p)[0].with_gaps):
                    raise Refused(str(e)) from e
                raise
        done.append(p)
        program, places, answers = p.program(outputs, name, asserts)
        if any(p.of_pieces(r.expr) for r in program.relations):
            raise Refused("a program that would be right on some workers only")
        found.append(places)
        scope, ops, inputs = p.scope, program.ops, [i.value for i in p.inputs if i.name != TOKEN]
        outputs = [o.value for o in program.outputs]
        asserts = [r.expr for r in (*program.relations, *program.asserts)]
        reals = [*reals, *p.constants]
    return done, program, list(zip(*found, strict=True)), answers


def partition(
    scope: Scope, ops: list[Op], inputs: list[TracedTensor], outputs: list[Any], placements: list[Placement], reals: list[Any],
    shape: tuple[int, ...], rules: Rules, name: str = "graph", asserts: list[Any] | None = None,
) -> Plan:  # fmt: skip
    """The plan of a graph on a mesh of this shape.

    `inputs`: its tensors; `reals` have their sizes and strides at this call; `outputs`: tensors, then numbers.
    """
    ranks = {p.rank for p in placements if isinstance(p, OnWorker)}
    if len(ranks) > 1:
        raise Refused(f"one graph reads tensors on the workers {sorted(ranks)}: put it into several functions, or move them")
    rank = next(iter(ranks), None)
    if rank is not None:
        if any(isinstance(p, (OuterShard, Placements)) for p in placements):
            raise Refused(f"one graph reads a tensor on worker {rank} and a sharded one")
        shape = (1,)
    own = [each(p, len(shape)) for p in placements]
    for gaps in (PACKED, KEPT, COPIED):
        try:
            done, program, places, answers = divided(
                scope, ops, inputs, outputs, own, reals, shape, rules, name, asserts or [], gaps
            )
        except OfStrides:
            continue
        first, last = done[0], done[-1]
        written = {i for p in done for i in p.written}
        in_place = [i for i in first.with_gaps if i in last.shares or (i in written and 0 in reals[i].stride())]
        if gaps == PACKED and not in_place:  # what is written is a copy, which the worker writes back
            break
        as_here = name == EAGER and all(known_to_lie(reals[i], own[i]) for i in first.with_gaps)
        if gaps == KEPT and (as_here or not relies_on_strides(program)):
            break
        if gaps == KEPT and any(i in written for i in first.with_gaps):
            raise Refused("a tensor is written, and given as a view, that may lie in memory otherwise on the workers")
    text = settled(program)
    outs: list[Placement] = [together(of) if rank is None else OnWorker(rank) for of in places]
    if rank is not None and any(isinstance(placements[i], Replicate) for i in written if i < len(placements)):
        raise Refused(f"a graph that runs on worker {rank} alone writes to a replicated tensor")
    given = len(inputs)
    copies = [next((i for i in of if i is not None), None) for of in zip(*[p.copies for p in done], strict=True)]
    cuts = [[p.axis, e if type(e) is int else e.python()] for p in done for e in p.cuts]
    told = json.dumps([text, [e.name for e in first.numbers], cuts])
    return Plan(
        hashlib.sha256(told.encode()).hexdigest()[:32], text, first.numbers, cuts, outs, answers, [t for p in done for t in p.constants],
        [i for i in sorted(written) if i < given], any(p.random for p in done), rank, last.shares, copies,
        [all(of) for of in zip(*[p.as_told for p in done], strict=True)], last.collectives,
        list(dict.fromkeys(what for p in done for what in p.gathered)),
    )  # fmt: skip


__all__ = ["MUTATION", "Partial", "Partitioner", "Plan", "Refused", "Shard", "partition"]
