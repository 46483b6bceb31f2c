"""The verifier of programs: what every pass may take for granted, checked after each pass in strict mode.

A program that breaks a rule is a bug of the pass before: `InternalError` names the pass, the rule (a row of `RULES`) and the step. What
shows only beside the program before the pass (`Promise`) is checked too: the order of random draws, inputs and outputs, writes to outside.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

from pliant.errors import InternalError
from pliant.graph import recurrent
from pliant.graph.leaving import MARK
from pliant.graph.schema import UNDECLARED_VIEWS, argument, op_info
from pliant.graph.symnode import SYMS, SymNode
from pliant.graph.traced import TracedTensor
from pliant.lower import liveness, views
from pliant.lower.gemm import Gemm
from pliant.lower.int8 import DynamicLinear, Int8Product
from pliant.lower.kernels import Launch
from pliant.lower.loop_nest import LoopNest
from pliant.lower.loops import DTYPES, REDUCTIONS, SCALARS, Kernel, Node
from pliant.lower.lowerings.scalars import NAMES
from pliant.lower.program import (
    CALLS,
    GRAPH,
    GROUPS,
    INSTRUCTIONS,
    REUSE,
    RUNS,
    Alloc,
    Group,
    Instruction,
    KernelCall,
    Program,
    SegmentCall,
    is_aten,
)
from pliant.lower.segments import MOST_ARGUMENTS, Segment
from pliant.symbolic.expr import Expr

RULES: dict[str, str] = {
    # graph
    "target": "a step of a graph is an operator of PyTorch",
    "undefined": "a tensor is made, given or a constant before it is read",
    "redefined": "a tensor is made once",
    "output": "what is wanted is made or given",
    "symbol": "a symbol is given, read off an input or found by an operation before it is used",
    "argument": "arguments are traced tensors, numbers of this capture and Python constants",
    "trace": "tensors belong to one trace, numbers to its scope",
    "arity": "arguments fit the operator's schema",
    "results": "an operation has as many results as its schema says",
    "metadata": "a tensor has as many strides as sizes, integers or numbers of the scope",
    "in place": "what an operator returns of what it writes is that operand",
    "view": "a view has the memory of what it is a view of, where somebody writes there",
    "fresh": "what is no view has memory of its own",
    "bind": "a symbol is found once, at a result that is there",
    "draws": "random numbers are drawn by the same operators in the same order as before",
    "interface": "what is given and what is wanted are the same as before",
    "effect": "memory from outside that was written still is, and unknown operators still run",
    # groups and loop nests
    "positions": "a group stands for operations of the graph that are no views, each of them in some group",
    "opaque": "a group without a nest is one operation",
    "dependence": "a step comes after all that it depends on",
    "rank": "strides of loads and stores are as many as the loops around them",
    "root": "nests read and write memory of the graph, by its root",
    "dtype": "a load has the dtype of its memory, a store the dtype of its value",
    "node": "nodes are known operators with as many operands as they take, of dtypes that they are defined on",
    "loop": "reduced loops are some of the loops, and indices are of loops that there are",
    # instructions and kernels
    "idle": "an instruction runs something",
    "reads": "an instruction reads what is given or made by earlier ones",
    "buffers": "a kernel is called with its buffers, of their dtypes",
    "sizes": "a kernel is called with its sizes, and uses no others",
    "made": "memory that a kernel's call makes is written by the kernel",
    "written": "a buffer that is stored to is marked as written, and others are not",
    "same element": "a buffer that is written is read only where the same point writes",
    "library": "a library call has operands of one dtype, sizes that are numbers, and memory of its own for its result",
    # runs
    "run": "a run has instructions, all of them native or none",
    # calls and segments
    "unwritten": "memory is written before it is read",
    "wasted": "memory that is made is written",
    "reuse": "memory that another result has taken is read no more",
    "segment": "tensors of a segment's steps come with the call or lie in its arena",
    "arena": "what lies in the arena has a place in it",
    "overlap": "what lives at the same time lies apart",
    "slot": "a slot is as large as what it holds",
    "leaves": "the sizes of a segment are computed from what comes with its call",
    "arguments": "a native call has no more arguments than it can take",
}
"""The rules, by name. `tests/lower/test_verify.py` breaks each of them."""

CONSTANTS = (
    int, float, bool, complex, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Generator,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Promise:
    """What a pass must leave as it was."""

    outputs: tuple[int, ...]
    inputs: tuple[int, ...]
    draws: tuple[str, ...]
    outside: frozenset[int]  # storages from outside that are written
    custom: tuple[str, ...]


class Broken(Exception):
    """A rule is broken: (rule, step, details)."""


def broken(rule: str, where: Any, what: str) -> Broken:
    assert rule in RULES, rule
    return Broken(rule, str(where), what)


def operations(p: Program) -> list[Any]:
    """The operations of the graph that the steps stand for, as far as that is known."""
    if p.level == GRAPH:
        return p.steps
    if p.level == GROUPS:
        ops = p.fact("groups").ops
        return [ops[i] for g in p.steps for i in g.ops]
    if p.level == INSTRUCTIONS:
        return [op for item in p.steps for op in item.ops]
    if p.level == RUNS:
        return [op for run in p.steps for item in run.instructions for op in item.ops]
    return [op for op in p.steps if is_aten(op.target)]


def promised(p: Program) -> Promise:
    """What the next pass must leave as it is."""
    ops = operations(p)
    random = [op for op in ops if liveness.draws(op.target) and not recurrent.draws_nothing(op)]
    made = {t.storage_id for op in ops for t in liveness.op_outputs(op) if all(t is not x for x in liveness.op_inputs(op))}
    given = {t.storage_id for t in liveness.tensors_of(p.inputs)}
    outside = frozenset(t.storage_id for op in ops for t in liveness.written(op) if t.storage_id in given - made)
    custom = [op for op in ops if op_info(op.target).custom]
    draws, calls = (tuple(str(op.target) for op in {id(op): op for op in found}.values()) for found in (random, custom))  # each once
    return Promise(tuple(map(id, p.outputs)), tuple(map(id, p.inputs)), draws, outside, tuple(sorted(calls)))


def verify(p: Program, name: str, promise: Promise | None = None, known: dict[int, Any] | None = None) -> Promise | None:
    """Raise `InternalError` where `p`, which the pass `name` made, breaks a rule; the promise that the next pass must keep.

    `promise`: of the program before. `known`: kernels and library calls that were looked at behind an earlier pass, by identity; only
    what is new to it is looked at, but for the last program (level "calls"), where all are.
    """
    try:
        CHECKS[p.level](p, {} if known is None else known)
        return None if promise is None else keeps(p, promise)
    except Broken as e:
        rule, where, what = e.args
        raise InternalError(f"malformed program {p.name} behind the pass {name}: {RULES[rule]} ({rule}): {what}, in `{where}`") from None


def keeps(p: Program, before: Promise) -> Promise:
    """What `p` promises, where it keeps what was promised before."""
    if tuple(map(id, p.outputs)) != before.outputs or tuple(map(id, p.inputs)) != before.inputs:
        raise broken("interface", p.name, "other inputs or outputs")
    if p.level == CALLS:  # what kernels do is theirs to say
        return before
    now = promised(p)
    if now.draws != before.draws:
        raise broken("draws", p.name, f"{list(before.draws)} became {list(now.draws)}")
    if before.outside - now.outside:
        raise broken("effect", p.name, f"{len(before.outside - now.outside)} memories from outside are not written any more")
    if before.custom != now.custom:
        raise broken("effect", p.name, f"{list(before.custom)} became {list(now.custom)}")
    return now


# -- graphs --------------------------------------------------------------------------------------------------------------------
class Known:
    """What is there at a point of a program: tensors by vid, symbols by name."""

    def __init__(self, p: Program) -> None:
        self.p = p
        self.values: set[int] = set()
        self.names: set[str] = set()
        self.seen: set[Expr] = set()  # expressions whose symbols are all there
        for slot in p.inputs:
            if type(slot) is TracedTensor:
                self.values.add(slot.vid)
                for s in (*slot.sizes, *slot.strides, slot.offset):
                    e = liveness.number(s)
                    if e is not None and e.op == "sym":
                        self.names.add(e.name)
            else:
                self.names.add(slot if isinstance(slot, str) else slot.name)
        self.written = {t.storage_id for op in operations(p) for t in liveness.written(op)}
        self.trace = next((t.trace for t in liveness.tensors_of(p.inputs)), None)

    def tensor(self, t: TracedTensor, where: Any, rule: str = "undefined") -> None:
        if t.vid not in self.values and t.constant is None and self.p.closed:
            raise broken(rule, where, f"%{t.vid}")

    def number(self, e: Expr, where: Any) -> None:
        if e in self.seen:
            return
        simple = self.p.sizes.size(e)
        missing = [s.name for s in simple.symbols() if s.name not in self.names] if type(simple) is Expr else []
        if missing and self.p.closed:
            raise broken("symbol", where, ", ".join(missing))
        self.seen.add(e)

    def value(self, x: Any, where: Any) -> None:
        kind = type(x)
        if kind is TracedTensor:
            self.tensor(x, where)
            if self.trace is not None and x.trace is not self.trace:
                raise broken("trace", where, f"%{x.vid} belongs to another trace")
        elif kind in CONSTANTS:
            return
        elif kind is list or kind is tuple:
            for v in x:
                self.value(v, where)
        elif kind is Expr:
            self.number(x, where)
        elif isinstance(x, SYMS):
            if type(x.node) is not SymNode or x.node.scope is not self.p.scope:
                raise broken("trace", where, f"{x.node} is not a number of this capture")
            self.number(x.node.expr, where)
        elif isinstance(x, (list, tuple)):
            for v in x:
                self.value(v, where)
        elif isinstance(x, torch.Tensor) or not isinstance(x, CONSTANTS):
            raise broken("argument", where, f"a {kind.__name__}")

    def add(self, t: TracedTensor, where: Any) -> None:
        if len(t.sizes) != len(t.strides):
            raise broken("metadata", where, f"%{t.vid} has {len(t.sizes)} sizes and {len(t.strides)} strides")
        for s in (*t.sizes, *t.strides, t.offset):
            if type(s) is not int and not isinstance(s, SYMS):
                raise broken("metadata", where, f"%{t.vid} has a size of type {type(s).__name__}")
        self.values.add(t.vid)


def check_graph(p: Program, seen: dict[int, Any]) -> None:
    for op in p.steps:
        if not isinstance(op.target, torch._ops.OpOverload):
            raise broken("target", op, f"a {type(op.target).__name__}")
    known = Known(p)
    for op in p.steps:
        check_operation(known, op)
    check_outputs(known)


def check_outputs(known: Known) -> None:
    for v in liveness.leaves(known.p.outputs):
        if type(v) is TracedTensor:
            known.tensor(v, "outputs", "output")
        elif (e := liveness.number(v)) is not None:
            known.number(e, "outputs")


def check_operation(known: Known, op: Any) -> None:
    schema, info = op.target._schema, op_info(op.target)
    for a in op.args:
        known.value(a, op)
    for a in op.kwargs.values():
        known.value(a, op)
    check_arguments(op, schema)
    for b in op.binds:
        symbol = liveness.number(b.symbol)
        if not 0 <= b.out < len(op.outs) or b.dim is not None and not 0 <= b.dim < len(op.outs[b.out].sizes):
            raise broken("bind", op, f"{symbol.name} is found at a result that is not there")
        known.names.add(symbol.name)
    tensors = [r for r in schema.returns if str(r.type) == "Tensor"]
    outs = [o for o in op.outs if o is not None] if not schema.returns else op.outs
    if len(tensors) == len(schema.returns) and len(outs) != len(tensors):
        raise broken("results", op, f"{len(op.outs)} results, not {len(tensors)}")
    check_results(known, op, info)


def check_arguments(op: Any, schema: Any) -> None:
    names = [a.name for a in schema.arguments]
    if len(op.args) > len(names) or any(k not in names[len(op.args) :] for k in op.kwargs):
        raise broken("arity", op, f"{len(op.args)} arguments and {sorted(op.kwargs)}, of {names}")
    missing = [a.name for a in schema.arguments[len(op.args) :] if a.name not in op.kwargs and not a.has_default_value()]
    if missing:
        raise broken("arity", op, f"without {', '.join(missing)}")


def check_results(known: Known, op: Any, info: Any) -> None:
    operands = {t.vid: t for t in liveness.op_inputs(op)}
    plain = None
    for i, out in enumerate(op.outs):
        if type(out) is not TracedTensor:
            continue
        alias = info.returns[min(i, len(info.returns) - 1)] if info.returns else None
        if alias is not None and alias[1]:
            operand = argument(info, op.args, op.kwargs, alias[0])
            if operand is not out and type(operand) is TracedTensor:
                raise broken("in place", op, f"%{out.vid} is not {alias[0]}, %{operand.vid}")
        elif out.vid in operands:
            continue  # an operator that gives back what it was given (`contiguous`)
        elif out.vid in known.values:
            raise broken("redefined", op, f"%{out.vid}")
        known.add(out, op)
        base = views.view_base(op, i)
        if base is not None and base.storage_id != out.storage_id and not known.written.isdisjoint((base.storage_id, out.storage_id)):
            raise broken("view", op, f"%{out.vid} has not the memory of %{base.vid}")
        if alias is None and not info.custom and op.target not in UNDECLARED_VIEWS and not info.composite:
            if plain is None:
                plain = {t.storage_id for t in operands.values()}
            if out.storage_id in plain and out.vid not in operands and views.listed_views(op.target) is None:
                raise broken("fresh", op, f"%{out.vid} has the memory of an operand")


# -- loop nests ----------------------------------------------------------------------------------------------------------------
def check_groups(p: Program, seen: dict[int, Any]) -> None:
    f = p.fact("groups")
    covered: set[int] = set()
    for g in p.steps:
        check_positions(g, f)
        covered.update(g.ops)
        if g.nest is not None:
            check_nest(g.nest, f, g)
    lost = [i for i, op in enumerate(f.ops) if i not in covered and id(op) not in f.aliases.view_ops]
    if lost:
        raise broken("positions", f.ops[lost[0]], "in no group")
    place = {g.index: k for k, g in enumerate(p.steps)}
    for k, g in enumerate(p.steps):
        for d in g.deps:
            d = f.find(d)
            if d != g.index and place.get(d, len(place)) >= k:
                raise broken("dependence", group_text(g, f), f"it stands before a group that it depends on ({d})")


def group_text(g: Group, f: Any) -> str:
    return f"group {g.index}: {', '.join(str(f.ops[i].target) for i in g.ops if 0 <= i < len(f.ops))}"


def check_positions(g: Group, f: Any) -> None:
    if not g.ops or not all(0 <= i < len(f.ops) and id(f.ops[i]) not in f.aliases.view_ops for i in g.ops):
        raise broken("positions", group_text(g, f), f"positions {g.ops}")
    if g.nest is None and len(g.ops) != 1:
        raise broken("opaque", group_text(g, f), f"{len(g.ops)} operations")


def check_nest(nest: LoopNest, f: Any, g: Group) -> None:
    where = group_text(g, f)
    if not 0 <= nest.reduced <= len(nest.dims):
        raise broken("loop", where, f"{nest.reduced} of {len(nest.dims)} loops are reduced")
    for put in nest.stores:
        if len(put.strides) != (len(nest.dims) if put.full else nest.outer):
            raise broken("rank", where, f"a store has {len(put.strides)} strides, in {len(nest.dims)} loops, {nest.outer} of them outer")
        if put.root not in f.aliases.tensors:
            raise broken("root", where, f"a store to %{put.root}")
        if put.node.dtype != NAMES.get(f.aliases.tensors[put.root].dtype):
            raise broken("dtype", where, f"a {put.node.dtype} is stored to %{put.root}, {f.aliases.tensors[put.root].dtype}")
    for n in nest.nodes():
        check_node(n, len(nest.dims), where)
        if n.op == "load":
            if n.attrs[0] not in f.aliases.tensors:
                raise broken("root", where, f"a load of %{n.attrs[0]}")
            if n.dtype != NAMES.get(f.aliases.tensors[n.attrs[0]].dtype):
                raise broken("dtype", where, f"%{n.attrs[0]} is loaded as {n.dtype}")


ARITY = {"load": None, "const": 0, "size": 0, "index": 0, "cast": 1, "bitcast": 1, "bounded": None, "reduce": 1, "scan": 1}


def check_node(n: Node, rank: int, where: Any) -> None:
    row = SCALARS.get(n.op)
    if row is None and n.op not in ARITY or n.dtype not in DTYPES:
        raise broken("node", where, f"{n.op}: {n.dtype}")
    arity = row.arity if row is not None else ARITY[n.op]
    if arity is not None and len(n.args) != arity:
        raise broken("node", where, f"{n.op} of {len(n.args)} operands, not {arity}")
    if row is not None:
        operand = n.args[-1] if row.result == "second" else n.args[0]
        want = "bool" if row.result == "bool" else operand.dtype
        if DTYPES[operand.dtype].kind not in row.kinds or operand.dtype in ("bf16", "f16") and n.op != "where":
            raise broken("node", where, f"{n.op} of {operand.dtype}")
        if n.dtype != want:
            raise broken("node", where, f"{n.op} of {operand.dtype} gives {n.dtype}")
    elif n.op == "load":
        if len(n.attrs[1]) != rank:
            raise broken("rank", where, f"a load has {len(n.attrs[1])} strides, in {rank} loops")
    elif n.op == "index" and not 0 <= n.attrs[0] < rank:
        raise broken("loop", where, f"index {n.attrs[0]} of {rank} loops")
    elif n.op == "reduce" and n.attrs[0] not in REDUCTIONS:
        raise broken("node", where, f"reduce by {n.attrs[0]}")


# -- kernels and instructions --------------------------------------------------------------------------------------------------
def check_kernel(k: Kernel) -> None:
    """The rules of loop IR, of a kernel by itself."""
    if not 0 <= k.reduced <= len(k.dims):
        raise broken("loop", k.name, f"{k.reduced} of {len(k.dims)} loops are reduced")
    declared = set(k.sizes)

    def known(values: Iterable[Any]) -> None:
        for v in values:
            if type(v) is not int and v not in declared:
                raise broken("sizes", k.name, f"{v} is not among {list(k.sizes)}")

    known(k.dims)
    outer = len(k.dims) - k.reduced
    stored: dict[int, list[Any]] = {}
    for s in k.stores:
        if not 0 <= s.buffer < len(k.buffers):
            raise broken("buffers", k.name, f"a store to buffer {s.buffer} of {len(k.buffers)}")
        if s.node.dtype != k.buffers[s.buffer].dtype:
            raise broken("dtype", k.name, f"a {s.node.dtype} is stored to b{s.buffer}, {k.buffers[s.buffer].dtype}")
        if len(s.strides) not in (len(k.dims), outer):
            raise broken("rank", k.name, f"a store has {len(s.strides)} strides, in {len(k.dims)} loops, {outer} of them outer ones")
        known((*s.strides, s.offset, *s.index_strides))
        stored.setdefault(s.buffer, []).append(s)
    if {i for i, b in enumerate(k.buffers) if b.written} != set(stored):
        raise broken("written", k.name, f"stores to {sorted(stored)}, marked {[i for i, b in enumerate(k.buffers) if b.written]}")
    for n in k.nodes():
        check_node(n, len(k.dims), k.name)
        if n.op in ("size", "bounded"):
            known(n.attrs[:1])
        if n.op != "load":
            continue
        if not 0 <= n.buffer < len(k.buffers):
            raise broken("buffers", k.name, f"a load of buffer {n.buffer} of {len(k.buffers)}")
        if n.dtype != k.buffers[n.buffer].dtype:
            raise broken("dtype", k.name, f"b{n.buffer}, {k.buffers[n.buffer].dtype}, is loaded as {n.dtype}")
        known((*n.strides, n.offset, *n.attrs[3]))
        places = [(tuple(s.strides) + (0,) * (len(k.dims) - len(s.strides)), s.offset) for s in stored.get(n.buffer, ()) if not s.index]
        if places and (tuple(n.strides), n.offset) not in places:
            raise broken("same element", k.name, f"b{n.buffer} is read at strides {n.strides}, offset {n.offset}")


def check_launch(launch: Launch) -> None:
    k = launch.kernel
    check_kernel(k)
    if len(launch.buffers) != len(k.buffers):
        raise broken("buffers", k.name, f"{len(launch.buffers)} tensors for {len(k.buffers)} buffers")
    for t, b in zip(launch.buffers, k.buffers, strict=True):
        if NAMES.get(t.dtype) != b.dtype:
            raise broken("buffers", k.name, f"%{t.vid}, {t.dtype}, for a buffer of {b.dtype}")
    if len(launch.sizes) != len(k.sizes):
        raise broken("sizes", k.name, f"{len(launch.sizes)} values for {len(k.sizes)} sizes")
    if any(not 0 <= i < len(k.buffers) or not k.buffers[i].written for i in launch.made):
        raise broken("made", k.name, f"made {launch.made}")


def check_step(step: Any) -> None:
    if isinstance(step, Launch):
        check_launch(step)
        return
    name = type(step).__name__
    if any(type(s) is not int and type(s) is not Expr for s in step.sizes):
        raise broken("library", name, "a size that is no number")
    operands = [step.a.root, step.b.root] if isinstance(step, Gemm) else step.operands
    mixed = isinstance(step, Int8Product | DynamicLinear)
    if any(t.dtype is not step.out.dtype and not mixed for t in operands) or any(t is step.out for t in operands):
        raise broken("library", name, "operands of other dtypes, or the result among them")


def check_order(p: Program, items: list[Instruction], seen: dict[int, Any]) -> None:
    """Instructions in an order that keeps what each depends on."""
    a = p.fact("aliases")
    made = {t.vid for item in items for t in item.made if all(t is not w for w in item.written)}
    done: set[int] = set()
    there: set[int] = set()
    for item in items:
        where = item.op or (item.ops[-1] if item.ops else "an instruction")
        if not item.steps and item.op is None:
            raise broken("idle", where, "neither kernels nor an ATen call")
        if not item.deps <= done:
            raise broken("dependence", where, f"it stands before {sorted(item.deps - done)}")
        for step in item.steps:
            if id(step) not in seen:
                check_step(step)
                seen[id(step)] = step
        for t in item.reads:
            root = a.root(t)
            if root in made and root not in there and all(a.root(m) != root for m in item.made):
                raise broken("reads", where, f"%{t.vid}, which is made later")
        there.update(a.root(t) for t in item.made)
        done.add(item.index)


def check_instructions(p: Program, seen: dict[int, Any]) -> None:
    check_order(p, p.steps, seen)


def check_runs(p: Program, seen: dict[int, Any]) -> None:
    for run in p.steps:
        if not run.instructions or len({item.native for item in run.instructions}) != 1:
            raise broken("run", p.name, "native instructions and others in one run" if run.instructions else "an empty run")
    check_order(p, [item for run in p.steps for item in run.instructions], seen)


# -- calls ---------------------------------------------------------------------------------------------------------------------
LOST = -2


def check_calls(p: Program, seen: dict[int, Any]) -> None:
    known = Known(p)
    blank: dict[int, Any] = {}  # allocated for kernels, and not written yet
    gone: dict[int, int] = {}  # what another result takes -> that one, until it is written
    for op in p.steps:
        target = op.target
        results = {t.vid for t in liveness.op_outputs(op)}
        for t in liveness.op_inputs(op):
            if gone.get(t.vid, -1) not in (-1, *results):  # the call that writes the one may read the other
                raise broken("reuse", op, f"%{t.vid}")
        for vid in [vid for vid, heir in gone.items() if heir in results]:
            gone[vid] = LOST
        if target is REUSE:
            known.value(op.args[0], op)
            gone[op.args[0].vid] = op.outs[0].vid
            blank[op.outs[0].vid] = op
            known.add(op.outs[0], op)
        elif is_aten(target):
            for t in liveness.op_inputs(op):
                if t.vid in blank and target is not MARK:  # which only tells where it is
                    raise broken("unwritten", op, f"%{t.vid}")
            check_operation(known, op)
            if type(op) is Alloc:
                blank[op.outs[0].vid] = op
        else:
            check_call(known, op, blank)
    if blank:
        raise broken("wasted", next(iter(blank.values())), f"%{next(iter(blank))}")
    check_outputs(known)


def check_call(known: Known, op: Any, blank: dict[int, Any]) -> None:
    if type(op.target) is SegmentCall:
        check_segment(op.target.segment, op)
    n = len(op.target.launch.buffers) if type(op.target) is KernelCall else len(op.target.segment.outer)
    written = {t.vid for t in op.outs}
    for a in op.args[:n]:
        known.value(a, op)
        if a.vid in blank and a.vid not in written:
            raise broken("unwritten", op, f"%{a.vid}")
    for a in op.args[n:]:
        known.value(a, op)
    if type(op.target) is KernelCall:
        check_launch(op.target.launch)
        marked = {t.vid for t, b in zip(op.target.launch.buffers, op.target.launch.kernel.buffers, strict=True) if b.written}
        if marked != written:
            raise broken("written", op, f"results {sorted(written)}, written {sorted(marked)}")
    for vid in written:
        blank.pop(vid, None)


def check_segment(s: Segment, where: Any) -> None:
    if len(s.outer) + len(s.leaves) > MOST_ARGUMENTS:
        raise broken("arguments", where, f"{len(s.outer) + len(s.leaves)}")
    there = {t.vid for t in (*s.outer, *s.inner)} | s.shared.keys()
    for step in s.steps:
        check_step(step)
        lost = [t.vid for t in step.buffers if t.vid not in there]
        if lost:
            raise broken("segment", where, f"%{lost[0]}")
    if not len(s.inner) == len(s.intervals) == len(s.plan.place) == len(s.plan.within):
        raise broken("arena", where, f"{len(s.inner)} tensors, {len(s.plan.place)} places")
    if any(not -len(s.given) <= k < len(s.plan.slots) for k in s.plan.place):
        raise broken("arena", where, f"places {s.plan.place}, {len(s.plan.slots)} slots")
    check_arena(s, where)
    leaves = set(s.leaves)
    names = {leaf.name for leaf in leaves if leaf.op == "sym"}
    for e in s.expressions():
        if e not in leaves and any(x.name not in names for x in e.symbols()):
            raise broken("leaves", where, str(e))


def check_arena(s: Segment, where: Any) -> None:
    """Those that live in one slot at the same time are apart, as far as their places are plain."""
    by_slot: dict[int, list[int]] = {}
    for i, k in enumerate(s.plan.place):
        by_slot.setdefault(k, []).append(i)
    for k, members in by_slot.items():
        for i in members:
            a = s.intervals[i]
            if k >= 0 and type(a.size) is int and type(s.plan.within[i]) is int:
                room = [x for x in s.plan.slots[k].sizes if type(x) is int]
                if len(room) == len(s.plan.slots[k].sizes) and max(room) < a.size + s.plan.within[i]:  # type: ignore[operator]
                    raise broken("slot", where, f"{a.size} bytes in a slot of {max(room)}")
            for j in members:
                b = s.intervals[j]
                apart = a.last < b.first or b.last < a.first or is_nothing(a.size) or is_nothing(b.size)
                if i < j and not apart and s.plan.within[i] is s.plan.within[j]:
                    raise broken("overlap", where, f"%{s.inner[i].vid} and %{s.inner[j].vid}")


def is_nothing(size: Any) -> bool:
    return type(size) is int and size <= 0


CHECKS = {GRAPH: check_graph, GROUPS: check_groups, INSTRUCTIONS: check_instructions, RUNS: check_runs, CALLS: check_calls}
