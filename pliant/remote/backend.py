"""The backend "remote" of `pliant.compile`: a captured graph becomes one command to the workers of a mesh.

Captures, guards, effects, graph breaks and gradients are those of every backend. What a graph computes, forward or backward, is one call
(`ExternalCall`); when it is run, the placements of its tensors choose a plan (`partition.py`), made on the first such call. A graph of
which no tensor is remote runs in this process. Tensors of this process among remote ones travel with the call, replicated.
"""

from __future__ import annotations

import itertools
from typing import Any

import torch

from pliant import events, turns
from pliant.codegen.aten import Executable, Writer
from pliant.codegen.effects import written_by
from pliant.codegen.region import compile_region
from pliant.graph.record import Bind, Op
from pliant.graph.symnode import to_sym
from pliant.graph.traced import LEAF, Reconsider, TracedTensor
from pliant.lower import liveness
from pliant.lower.leaves import shown
from pliant.lower.program import ExternalCall, Program
from pliant.remote import indexing_rules, list_rules, mesh_rules, norm_rules, product_rules, reduction_rules, sharding, view_rules
from pliant.remote.orders import order_of
from pliant.remote.partition import Plan, Refused, partition, restrided
from pliant.remote.placements import Placement, RemoteError, Replicate
from pliant.remote.tensor import RemoteTensor

_serial = itertools.count()


def compile_remote(trace: Any, inputs: list[Any], outputs: Any, *, name: str = "region") -> Executable:
    """The executable of a captured region; arguments as for `compile_region`."""
    if shown(trace, inputs, list(liveness.leaves(outputs))):
        raise Reconsider(name, "a leaf that is made here, by workers", LEAF)
    return compile_region(trace, inputs, outputs, name=name, lower=lower, by_autograd=False)


def lower(p: Program) -> Program:
    """The program as one call."""
    if not p.steps:
        return p
    p = p.replaced(restrided(p.steps, [t for t in p.inputs if type(t) is TracedTensor]))
    known: dict[int, TracedTensor] = {}
    made: dict[int, TracedTensor] = {}
    symbols: dict[str, Any] = {}
    bound: dict[str, Any] = {}
    for op in p.steps:
        for t in liveness.op_inputs(op):
            if t.vid not in made and t.constant is None:
                known.setdefault(t.vid, t)
        for t in liveness.op_outputs(op):
            if t.vid not in known:
                made.setdefault(t.vid, t)
        for b in op.binds:
            e = liveness.number(b.symbol)
            bound[e.name] = e
    tensors = list(known.values())
    shapes = [[*t.sizes, *t.strides, t.offset] for t in (*known.values(), *made.values())]
    told = [liveness.number(v) for v in liveness.leaves([shapes, p.outputs])]
    for e in (*told, *[e for op in p.steps for e in liveness.op_numbers(op)], *p.asserts):
        if e is not None:
            for s in (*e.symbols(), *p.scope.simplify(e).symbols()):
                if s.name not in bound:
                    symbols[s.name] = s
    wanted = {t.vid: t for t in liveness.tensors_of(p.outputs) if t.vid in made}
    needed = {s.name for v in p.outputs if (e := liveness.number(v)) is not None for s in p.scope.simplify(e).symbols()}
    laid = [e for t in wanted.values() for n in (*t.sizes, *t.strides) if (e := liveness.number(n)) is not None]
    needed |= {s.name for e in (*laid, *p.asserts) for s in e.symbols()}
    numbers = [e for name, e in bound.items() if name in needed]
    outs: list[Any] = [*wanted.values(), *[to_sym(p.scope, e) for e in numbers]]
    call = Call(p, tensors, list(symbols.values()), list(wanted.values()), numbers)
    args = (*tensors, *[to_sym(p.scope, s) for s in symbols.values()])
    binds = [Bind(to_sym(p.scope, e), len(wanted) + i) for i, e in enumerate(numbers)]
    written = [t for op in p.steps for t in written_by(op)]
    step = Op(ExternalCall(f"remote{next(_serial)}", call.run, written), args, {}, outs, "flat", None, -1, binds)
    return p.replaced([step], level="calls")


class Call:
    """Calls of one graph, on tensors placed in any way."""

    def __init__(
        self, p: Program, tensors: list[TracedTensor], symbols: list[Any], outputs: list[TracedTensor], numbers: list[Any]
    ) -> None:
        self.p, self.tensors, self.symbols, self.outputs, self.numbers = p, tensors, symbols, outputs, numbers
        self.plans: dict[Any, Plan | None] = {}
        self.local: Any = None
        self.bound = tuple([e.name for e in numbers])
        self.dense = [t.dense for t in tensors]
        self.makers = [(evaluator(t.sizes), evaluator(t.strides), evaluator((t.offset,)), t.dtype) for t in outputs]

    def run(self, *values: Any) -> tuple:
        """The tensors, then the numbers, that the graph gives."""
        n = len(self.tensors)
        given = list(values[:n])
        mesh = mesh_of(given)
        if mesh is None:
            return self.here(values)
        env = {s.name: v for s, v in zip(self.symbols, values[n:], strict=True)}
        with mesh.lock:
            slots = [t if type(t) is RemoteTensor else travelling(mesh, t) for t in given]
            if any(t.mesh is not mesh for t in slots):
                raise RemoteError("a graph reads tensors of two meshes")
            lie = [dense or order_of(t) for t, dense in zip(slots, self.dense, strict=True)]
            layout = tuple([(t.placement, t.storage_offset() != 0, how) for t, how in zip(slots, lie, strict=True)])
            key = (mesh, layout)
            if key not in self.plans:
                self.plans[key] = self.plan(mesh, slots)
            plan = self.plans[key]
            if plan is None or any(given[i] is not slots[i] for i in plan.writes) or (plan.writes and overlapping(plan, slots)):
                return self.here(values)  # one by one, each a program of its own
            return start(mesh, plan, slots, env, self.makers, bool(self.numbers), self.bound)

    def plan(self, mesh: Any, slots: list[RemoteTensor]) -> Plan | None:
        """None for a graph that cannot be one program of each worker: its operators run one by one."""
        with turns.compiling:
            try:
                plan = partition(
                    self.p.scope, self.p.steps, self.tensors, [*self.outputs, *[to_sym(self.p.scope, e) for e in self.numbers]],
                    [t.placement for t in slots], slots, mesh.shape, sharding.ALL, self.p.name, self.p.asserts,
                )  # fmt: skip
            except Refused as e:
                events.emit("remote", what="a graph runs operator by operator", worker=-1, text=str(e))
                events.count("graphs_refused")
                return None
        tell(plan)
        return plan

    def here(self, values: tuple) -> tuple:
        """In this process: no tensor is remote."""
        if self.local is None:
            outs = [*self.outputs, *self.numbers]
            writer = Writer(f"{self.p.name}_here", self.p.scope, [*self.tensors, *self.symbols], outs, self.p.steps, [])
            self.local = writer.finish(None).fn
        return self.local(*values)


def overlapping(plan: Plan, slots: list[RemoteTensor]) -> bool:
    """Whether a tensor that is written may share memory with another operand."""
    memory = [t.handle.memory for t in slots]
    return any(memory.count(memory[i]) > 1 for i in plan.writes)


def tell(plan: Plan) -> None:
    for what in plan.gathered:
        events.emit("gathered", what=what)
        events.count("gathered")


def evaluator(numbers: Any) -> Any:
    """A function from the values of symbols to those of sizes."""
    plain = [n if (e := liveness.number(n)) is None else e for n in numbers]
    if all(type(n) is int for n in plain):
        fixed = tuple(plain)
        return lambda env: fixed
    code = compile(f"({', '.join([str(n) if type(n) is int else n.python() for n in plain])},)", "<sizes>", "eval")
    names: dict[str, Any] = {"__builtins__": {}, "min": min, "max": max, "abs": abs, "int": int}
    return lambda env: eval(code, names, env)  # our own text


def mesh_of(tensors: list[Any]) -> Any:
    for t in tensors:
        if type(t) is RemoteTensor:
            return t.handle.mesh
    return None


def travelling(mesh: Any, t: torch.Tensor, to: Placement | None = None) -> RemoteTensor:
    """A tensor of this process on its way with a call."""
    events.count("tensors_sent")
    return mesh.put(t.detach(), to or Replicate())


def seed() -> int:
    """A seed for a program with random numbers: the generator of this process decides, so `torch.manual_seed` here decides all."""
    return int(torch.empty((), dtype=torch.int64).random_())


def start(
    mesh: Any, plan: Plan, slots: list[RemoteTensor], env: dict[str, Any], makers: list[Any], wanted: bool, bound: tuple[str, ...] = (),
    line: Any = None, spoils: tuple[int, ...] = (),
) -> tuple:  # fmt: skip
    """Issue the call of a plan; its results, which are on their way, and its numbers, for which this waits.

    `bound`: the names of the numbers, of which sizes of results may be made. `line`: of the user's, where the program does not tell it.
    `spoils`: handles of what there was before, and has no value if this fails.
    """
    if plan.name not in mesh.sent:
        mesh.sent[plan.name] = ["load", plan.name, plan.text, [e.name for e in plan.numbers], plan.cuts]
        mesh.issue(mesh.sent[plan.name])
        mesh.counts["programs"] += 1
    if len(plan.held) != len(plan.constants):
        plan.held = [mesh.put(t, Replicate()) for t in plan.constants]
    reads = [t.handle.id for t in slots] + [t.handle.id for t in plan.held]
    memory = [t.handle.memory for t in slots] + [t.handle.memory for t in plan.held]
    are_copies = [t.handle.copy for t in slots] + [False] * len(plan.held)
    if plan.writes and any(mesh.copied[memory[i]] > 0 for i in plan.writes):
        raise Refused("a tensor is written of which there is a view on other workers, as a copy that would not see it: .clone() the view")
    handles = []
    lie = [t.handle.laid for t in slots] + [True] * len(plan.held)
    for place, own, copy, laid in zip(plan.outputs, plan.shares, plan.copies, plan.laid, strict=True):
        of = own if own is not None else copy
        is_copy = copy is not None or (own is not None and are_copies[own])  # also a view of such a copy
        handles.append(mesh.handle(place, None if of is None else memory[of], is_copy, laid and (own is None or lie[own])))
    makes = [h.id for h in handles]
    numbers = [env[e.name] for e in plan.numbers]
    if any(h in mesh.failed for h in reads):
        why = next(mesh.failed[h] for h in reads if h in mesh.failed)
        mesh.failed.update(dict.fromkeys(makes, why))
        mesh.tell()
        if wanted:
            raise why.error("a number was not computed")
    else:
        mesh.tell()
        command = ["call", plan.name, reads, makes, numbers, seed() if plan.random else None, plan.rank, wanted]
        seq = mesh.issue(command, reads, [*makes, *spoils], line)
        mesh.counts["calls"] += 1
        mesh.counts["collectives"] += plan.collectives
    answers: list[Any] = []
    if wanted:
        events.emit("fetch", why="a number that the program goes on with", sizes=(), dtype="", placement="")
        events.count("fetches")
        try:
            found = mesh.answered(mesh.flush())[plan.rank or 0]
            mesh.tell(seq)
        except Exception as e:
            e.begun = bool(plan.writes)  # type: ignore[attr-defined]
            raise
        answers = found[-1]
        if answers is None:
            raise RemoteError("a number was not computed")
        env = env | dict(zip(bound, answers, strict=False))
    outs = []
    for handle, place, (sizes, strides, offset, dtype) in zip(handles, plan.outputs, makers, strict=True):
        outs.append(RemoteTensor.make(handle, place, sizes(env), strides(env), dtype, offset(env)[0]))
    return (*outs, *answers)


__all__ = [
    "compile_remote", "indexing_rules", "list_rules", "lower", "mesh_rules", "norm_rules", "product_rules", "reduction_rules", "view_rules",
]  # fmt: skip
