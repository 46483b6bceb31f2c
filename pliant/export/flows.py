"""Branches and loops on data (`graph/control_flow.py`) in programs that leave the process.

A capture numbers the tensors and symbols of each way through a loop alike, and lets a loop carry whatever layout it meets. `Canonical`
records a flow so that others can read it: names are used once, what is carried and what comes out are row-major tensors of their own
layout, and constants are inputs of the program.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

from pliant.errors import PliantError
from pliant.export.rewrite import SETTLED, Rewriter, row_major
from pliant.graph.control_flow import OFFSET, Block, Branch, Flow, FlowOp, captures, needs, number_of, outputs_of
from pliant.graph.layout import contiguous_strides
from pliant.graph.record import Bind, Op
from pliant.graph.symnode import SYMS, to_sym
from pliant.graph.traced import TracedTensor, make
from pliant.lower import liveness
from pliant.symbolic.expr import Expr
from pliant.symbolic.parser import parse


def all_ops(ops: list[Op]) -> Iterator[Op]:
    """The operations, and those in the blocks of flows."""
    for op in ops:
        yield op
        if isinstance(op, FlowOp):
            yield from all_ops(op.flow.ops())


def has_flows(ops: list[Op]) -> bool:
    return any(isinstance(op, FlowOp) for op in ops)


class Canonical(Rewriter):
    """One use: `run(ops)`. `constants`: by the id of its data, each constant that is read, and what stands for it."""

    def __init__(self, trace: Any) -> None:
        super().__init__(trace)
        self.constants: dict[int, tuple[TracedTensor, TracedTensor]] = {}
        self.names: dict[str, str] = {}  # symbols of the blocks that are being recorded: old name -> new
        self.depth = 0

    def run(self, ops: list[Op]) -> list[Op]:
        for op in ops:
            self.step(op)
        return self.ops

    def now(self, x: Any) -> Any:
        if type(x) is TracedTensor and x.constant is not None:
            if id(x.constant) not in self.constants:
                self.constants[id(x.constant)] = x, self.tensor(x.sizes, x, x.strides)
            return self.constants[id(x.constant)][1]
        if self.names and isinstance(x, (*SYMS, Expr)):
            e = self.expression(number_of(x))
            if e is None:
                raise PliantError(f"a loop or branch on data reads {x}, which nothing makes known")
            return to_sym(self.trace.scope, e)
        return super().now(x)

    def tensor(self, sizes: tuple, like: TracedTensor, strides: tuple | None = None) -> TracedTensor:
        """A new tensor, row-major unless strides are given."""
        strides = contiguous_strides(sizes) if strides is None else strides
        return make(self.trace, sizes, strides, like.dtype, 0, None, like.device, like.dense if strides is like.strides else True)

    def expression(self, e: Any) -> Any:
        if not isinstance(e, Expr) or e.const is not None or not self.depth:
            return e
        symbols = e.symbols()
        if not all(s.name in self.names or s.name in self.trace.scope.symbols for s in symbols):
            return None
        if not any(s.name in self.names for s in symbols):
            return e
        found = parse(e.python(self.names), self.trace.scope.symbols)
        return found if isinstance(found, Expr) else self.trace.scope.ctx.lift(found)

    def step(self, op: Op) -> None:
        if op.target is OFFSET:
            return  # what flows give begins at 0
        if isinstance(op, FlowOp):
            self.flow(op)
        elif self.depth:
            self.renamed(op)
        else:
            self.again(op)

    def renamed(self, op: Op) -> None:
        """An operation of a block, with results of new names."""
        target = SETTLED.get(op.target, op.target)
        out, made = self.record(target, *self.now(op.args), site=op.site, **self.now(op.kwargs))
        self.ops += made
        outs = [out] if op.out_spec is None else liveness.leaves(out)
        found = next((o for o in made if o.target is target), None)
        binds = found.binds if found is not None else []
        if len(outs) != len(op.outs) or len(binds) != len(op.binds):
            raise PliantError(f"{op.target} in a loop or branch on data is another operation when it is recorded again")
        for old, new in zip(op.outs, outs, strict=True):
            if type(old) is TracedTensor:
                self.values[old.vid] = new
        for a, b in zip(op.binds, binds, strict=True):
            self.names[number_of(a.symbol).name] = number_of(b.symbol).name

    # -- flows ----------------------------------------------------------------------------------------------------------------------
    def flow(self, op: FlowOp) -> None:
        flow = op.flow
        carried = [row_major(self, self.now(v)) for v in op.args[0]]
        self.depth += 1
        outside = dict(self.values), dict(self.names)
        own: dict[str, Expr] = {}
        params = [self.param(p, flow, own) for p in flow.params]
        entry = self.apart(flow.entry) if flow.entry is not None else None
        body = self.apart(flow.body)
        self.values, self.names = outside
        self.depth -= 1
        made = Flow(params, body, entry, frozenset(s.name for s in own.values()))
        outs, binds = self.results(op)
        self.put_flow(op, made, carried, outs=outs, binds=binds)

    def apart(self, b: Block) -> Block:
        """A block whose names are its own."""
        values, names = dict(self.values), dict(self.names)
        try:
            return self.block(b)
        finally:
            self.values, self.names = values, names

    def side(self, b: Block, fact: Any) -> Block:
        values, names = dict(self.values), dict(self.names)
        try:
            return super().side(b, fact)
        finally:
            self.values, self.names = values, names

    def fresh(self, e: Expr) -> Expr:
        s = self.trace.unbacked(e.kind, size_like=e.info.size_like, lo=e.info.lo, hi=e.info.hi)
        self.names[e.name] = s.name
        return s

    def param(self, p: Any, flow: Flow, own: dict[str, Expr]) -> Any:
        """What is carried, in a round: a symbol, or a row-major tensor. `own`: the sizes that change."""
        if type(p) is not TracedTensor:
            return self.fresh(number_of(p))
        for s in p.sizes:
            e = number_of(s)
            if e is not None and e.op == "sym" and e.name in flow.sizes and e.name not in own:
                own[e.name] = self.fresh(e)
        offset = number_of(p.offset)
        if offset is not None and offset.op == "sym" and offset.name in flow.sizes:
            self.fresh(offset)
        self.values[p.vid] = made = self.tensor(tuple(self.now(s) for s in p.sizes), p)
        return made

    def results(self, op: FlowOp) -> tuple[list[Any], list[Bind]]:
        """The results, row-major, and the symbols that they define."""
        binds = [Bind(self.fresh(number_of(b.symbol)), b.out, b.dim) for b in op.binds] if self.depth else list(op.binds)
        outs: list[Any] = []
        for o in op.outs:
            if type(o) is TracedTensor and (self.depth or not o.dense or number_of(o.offset) is not None or o.offset != 0):
                self.values[o.vid] = self.tensor(tuple(self.now(s) for s in o.sizes), o)
            outs.append(self.values.get(o.vid, o) if type(o) is TracedTensor else self.now(o))
        return outs, binds


# -- looking into flows ---------------------------------------------------------------------------------------------------------------
def wanted(b: Block, simplify: Any) -> list[Any]:
    """What is read behind the operations of a block: tensors and expressions."""
    out = [v if type(v) is TracedTensor else e for v in outputs_of(b) if type(v) is TracedTensor or (e := number_of(v)) is not None]
    for inner in list(b.walk())[1:]:
        tensors, symbols = needs(inner, simplify)
        out += [*tensors.values(), *symbols.values()]
    return out


def live_flow(op: Op, scope: Any) -> Op:
    """An operation; of a flow, the blocks without operations that nobody needs."""
    if not isinstance(op, FlowOp):
        return op

    def block(b: Block) -> Block:
        end: Any = Branch(b.end.test, block(b.end.yes), block(b.end.no)) if isinstance(b.end, Branch) else b.end
        made = Block(b.ops, b.asserts, end)
        live = liveness.live_ops(b.ops, [*wanted(made, scope.simplify), *[a.expr for a in b.asserts]], [])
        return Block([live_flow(o, scope) for o in live], b.asserts, end)

    flow = op.flow
    made = Flow(flow.params, block(flow.body), block(flow.entry) if flow.entry is not None else None, flow.sizes)
    made.captured = captures(made, scope.simplify)
    captured = [c if type(c) is TracedTensor else to_sym(scope, c) for c in made.captured]
    return dataclasses.replace(op, args=(op.args[0], captured), flow=made)




# -- loops with a state ---------------------------------------------------------------------------------------------------------------
@dataclasses.dataclass(slots=True)
class Slots:
    """The state of a loop that has a test and a body, as other formats know them: what is carried, then results that fit in no place of
    it. `places`: params and those results; `of_result`: the place where each result is when the loop has ended."""

    places: list[Any]
    of_result: list[int]

    def after_leave(self, now: list[Any], results: list[Any]) -> list[Any]:
        """The state with these results."""
        out = list(now)
        for place, r in zip(self.of_result, results, strict=True):
            out[place] = r
        return out


def slots(op: FlowOp) -> Slots:
    """A result lies where something of its type is carried: nobody reads that when the loop has ended."""
    flow = op.flow
    places, of_result = list(flow.params), []
    free = list(range(len(places)))
    for r in op.outs:
        at = next((i for i in free if fits(places[i], r, flow.sizes)), None)
        if at is None:
            at = len(places)
            places.append(r)
        else:
            free.remove(at)
        of_result.append(at)
    return Slots(places, of_result)


def fits(place: Any, r: Any, open_: frozenset[str]) -> bool:
    if type(place) is not TracedTensor or type(r) is not TracedTensor:
        return type(place) is not TracedTensor and type(r) is not TracedTensor and kind_of(place) is kind_of(r)
    if place.dtype is not r.dtype or len(place.sizes) != len(r.sizes):
        return False
    return all(same_size(m, n) or is_open(m, open_) for m, n in zip(place.sizes, r.sizes))


def is_open(n: Any, names: frozenset[str]) -> bool:
    """Whether a size is one of these symbols."""
    e = number_of(n)
    return e is not None and e.op == "sym" and e.name in names


def same_size(m: Any, n: Any) -> bool:
    a, b = number_of(m), number_of(n)
    return a is b and (a is not None or m == n)


def kind_of(v: Any) -> type:
    """int, float or bool: the kind of a number."""
    e = number_of(v)
    return type(v) if e is None else e.kind


def starting_size(n: Any, known: Callable[[Expr], bool]) -> Any:
    """What a size of a result is before the loop has any: 0 where only the loop tells."""
    e = number_of(n)
    return n if e is None else e if all(map(known, e.symbols())) else 0
