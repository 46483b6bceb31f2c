"""Control flow as one operation of a trace: branches and loops on data whose sides are programs of their own.

A `Flow` is a tree of blocks. A block runs its operations, then branches on a number that they made known, or leaves: either with the
values of the next round, or with the results.

    flow(x = %4, n = 0; %1, s0)            carried from round to round; captured, the same in each
      %7 = aten.cos(%5)
      u3 = aten._local_scalar_dense(%9)
      branch u3
        again (%7, u2 + 1)
      else
        leave (%7, u2 + 1)

`entry` runs once, before the first round: where it leaves, there is none. Without one the first round runs; a flow in which no block
goes `again` is a branch. A `FlowOp` is the operation; its operands are what is carried at first, and what is captured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from pliant.graph.originals import is_grad_enabled
from pliant.graph.record import Bind, Op, short
from pliant.graph.symnode import SYMS, to_sym
from pliant.graph.traced import TracedTensor, leaves, tensors_of
from pliant.symbolic.expr import Expr

LIBRARY = torch.library.Library("pliant", "FRAGMENT")
LIBRARY.define("flow(Tensor[] carried, Tensor[] captured) -> Tensor[]")
LIBRARY.define("random_flow(Tensor[] carried, Tensor[] captured) -> Tensor[]", tags=(torch.Tag.nondeterministic_seeded,))
FLOW, RANDOM_FLOW = torch.ops.pliant.flow.default, torch.ops.pliant.random_flow.default
OFFSET = torch.ops.aten.sym_storage_offset.default
FLOWS = frozenset((FLOW, RANDOM_FLOW))
"""The targets of flows. Nobody calls them: they say what is true of all flows."""


@dataclass(slots=True, eq=False)
class Branch:
    """Go on with `yes` where `test`, a truth value, holds, else with `no`."""

    test: Expr
    yes: Block
    no: Block


@dataclass(slots=True, eq=False)
class Leave:
    """The end of a round. `values`: traced tensors, symbolic numbers and constants, carried to the next round (`again`) or the results."""

    again: bool
    values: list[Any]


@dataclass(slots=True, eq=False)
class Block:
    """Operations and the runtime assertions among them, then the end."""

    ops: list[Op]
    asserts: list[Any]
    end: Branch | Leave

    def walk(self) -> Iterator[Block]:
        """This block and those behind it."""
        yield self
        if isinstance(self.end, Branch):
            yield from self.end.yes.walk()
            yield from self.end.no.walk()

    def leaves(self) -> list[Leave]:
        return [b.end for b in self.walk() if isinstance(b.end, Leave)]


@dataclass(slots=True, eq=False)
class Flow:
    """See the module's docstring. `params` and `captured` are what the blocks know the operands as: traced tensors and symbols.

    `late`: vids of carried tensors that are None at first.
    `sizes`: names of symbols that are sizes of carried tensors, or their offsets, in the round at hand.
    """

    params: list[Any]
    body: Block
    entry: Block | None = None
    sizes: frozenset[str] = frozenset()
    captured: list[Any] = field(default_factory=list)
    late: frozenset[int] = frozenset()
    counter: Any = None  # of a branch: while it is `counting`, it is told (`joined`) which side each run takes

    @property
    def loops(self) -> bool:
        return any([leave.again for leave in self.body.leaves()])

    def blocks(self) -> list[Block]:
        return [*(self.entry.walk() if self.entry is not None else ()), *self.body.walk()]

    def ops(self) -> list[Op]:
        return [op for b in self.blocks() for op in b.ops]


@dataclass(slots=True, repr=False)
class FlowOp(Op):
    """The operation `outs = flow(carried, captured)`."""

    flow: Any = None

    def __str__(self) -> str:
        return "\n".join(text(self))

    __repr__ = __str__


def number_of(value: Any) -> Any:
    """The expression of a symbolic number, or None."""
    return value.node.expr if isinstance(value, SYMS) else value if type(value) is Expr else None


def outputs_of(block: Block) -> list[Any]:
    """What is wanted at the end of a block: values, or the test."""
    return [block.end.test] if isinstance(block.end, Branch) else block.end.values


def needs(block: Block, simplify: Callable[[Expr], Expr]) -> tuple[dict[int, TracedTensor], dict[str, Expr]]:
    """What this block alone reads and does not make: tensors by vid, symbols by name."""
    made: set[int] = set()
    bound = {b.symbol.name for op in block.ops for b in op.binds}
    tensors: dict[int, TracedTensor] = {}
    symbols: dict[str, Expr] = {}
    seen: set[Expr] = set()

    def number(e: Any) -> None:
        if e is not None and e not in seen:
            seen.add(e)
            symbols.update((s.name, s) for x in (e, simplify(e)) for s in x.symbols() if s.name not in bound)

    def value(v: Any) -> None:
        if type(v) is TracedTensor:
            if v.vid not in made and v.constant is None:
                tensors[v.vid] = v
        else:
            number(number_of(v))

    for op in block.ops:
        for v in leaves([op.args, op.kwargs]):
            value(v)
        outs = tensors_of(op.outs)
        made.update(t.vid for t in outs)
        for t in (*tensors_of([op.args, op.kwargs]), *outs):
            for s in (*t.sizes, *t.strides):
                number(number_of(s))
    for a in block.asserts:
        number(a.expr)
    for v in leaves(outputs_of(block)):
        value(v)
    return tensors, symbols


def captures(flow: Flow, simplify: Callable[[Expr], Expr]) -> list[Any]:
    """What the blocks read and neither make nor carry: tensors, then symbols. What is known of sizes by then may add symbols later."""
    made = {p.vid for p in flow.params if type(p) is TracedTensor} | {t.vid for op in flow.ops() for t in tensors_of(op.outs)}
    known = {p.name for p in flow.params if type(p) is Expr} | {b.symbol.name for op in flow.ops() for b in op.binds}
    known |= set(sizes_of_params(flow))
    tensors: dict[int, TracedTensor] = {}
    symbols: dict[str, Expr] = {}
    for block in flow.blocks():
        t, s = needs(block, simplify)
        tensors |= t
        symbols |= s
    return [t for vid, t in tensors.items() if vid not in made] + [s for name, s in symbols.items() if name not in known]


def sizes_of_params(flow: Flow) -> dict[str, tuple[TracedTensor, int | None]]:
    """Symbols that are sizes of carried tensors, or their offset (dim None), which change from round to round: name -> (tensor, dim)."""
    found: dict[str, tuple[TracedTensor, int | None]] = {}
    for p in flow.params:
        if type(p) is TracedTensor:
            for i, s in [*enumerate(p.sizes), (None, p.offset)]:
                e = number_of(s)
                if e is not None and e.op == "sym" and e.name in flow.sizes:
                    found.setdefault(e.name, (p, i))
    return found


def record_flow(trace: Any, flow: Flow, carried: list[Any], outs: list[Any], binds: list[Bind], site: Any) -> FlowOp:
    """Append a flow to the trace. Its results may be its operands, or share memory: nobody may write to either from here on."""
    flow.captured = captures(flow, trace.scope.simplify)
    random = any([torch.Tag.nondeterministic_seeded in op.target.tags for op in flow.ops()])
    captured = [c if type(c) is TracedTensor else to_sym(trace.scope, c) for c in flow.captured]
    op = FlowOp(RANDOM_FLOW if random else FLOW, (carried, captured), {}, outs, "flat", site, -1, binds, grad=is_grad_enabled(), flow=flow)
    trace.ops.append(op)
    for t in tensors_of(outs):
        e = number_of(t.offset)
        if e is not None and e.op == "sym" and e.name in trace.flow_sizes:
            trace.ops.append(Op(OFFSET, (t,), {}, [t.offset], None, site, -1, [Bind(e, 0)]))
    trace.flow_results.update(t.vid for t in tensors_of(outs))
    freeze(trace, flow, carried, captured, outs)
    return op


def freeze(trace: Any, flow: Flow, carried: list[Any], captured: list[Any], outs: list[Any]) -> None:
    """Note which memory of the operands each result may be."""
    given: dict[int, set[int]] = {}  # storage of what is carried -> those of what it may be
    again = [leave.values for leave in flow.body.leaves() if leave.again]
    for i, (p, first) in enumerate(zip(flow.params, carried, strict=True)):
        for t in tensors_of([p]):
            given.setdefault(t.storage_id, set()).update(v.storage_id for v in tensors_of([first, *[values[i] for values in again]]))
    ends = [leave.values for b in (flow.entry, flow.body) if b is not None for leave in b.leaves() if not leave.again]
    for i, out in enumerate(outs):
        for t in tensors_of([out]):
            found = {v.storage_id for v in tensors_of([values[i] for values in ends])}
            while more := {s for k in found for s in (*given.get(k, ()), *[m for m, of in trace.frozen.items() if k in of])} - found:
                found |= more
            for storage in found:
                trace.frozen.setdefault(storage, set()).add(t.storage_id)
            trace.frozen.setdefault(t.storage_id, set()).add(t.storage_id)
    if not trace.by_value:
        for t in tensors_of([carried, captured]):
            trace.frozen.setdefault(t.storage_id, set())


# -- text ---------------------------------------------------------------------------------------------------------------------------
def text(op: FlowOp) -> list[str]:
    """The lines of an operation and its blocks."""
    flow = op.flow
    carried = ", ".join(f"{short(p)} = {short(v)}" for p, v in zip(flow.params, op.args[0], strict=True))
    lines = [f"{', '.join(map(short, op.outs))} = {'loop' if flow.loops else 'branch'}({carried}; {', '.join(map(short, op.args[1]))})"]
    if flow.entry is not None:
        lines += ["  entry", *("  " + line for line in block_text(flow.entry)), "  round"]
    return lines + block_text(flow.body)


def block_text(block: Block) -> list[str]:
    lines = [line for op in block.ops for line in str(op).split("\n")]
    lines += [str(a) for a in block.asserts]
    if isinstance(block.end, Leave):
        lines.append(f"{'again' if block.end.again else 'leave'} ({', '.join(map(short, block.end.values))})")
    else:
        lines += [f"branch {block.end.test}", *block_text(block.end.yes), "else", *block_text(block.end.no)]
    return ["  " + line for line in lines]
