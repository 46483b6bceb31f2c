"""Templates of repeated blocks: recording a call of a module (`blocks.py` tells what for), and what has to be alike for a replay."""

from __future__ import annotations

import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from pliant import native as engine
from pliant.graph.control_flow import FLOWS
from pliant.graph.growing import READERS
from pliant.graph.operands import op_inputs
from pliant.graph.originals import ORIGINAL, math
from pliant.graph.record import FAILED, PENDING, Op, TorchOp
from pliant.graph.schema import written
from pliant.graph.symnode import SYMS
from pliant.graph.traced import TracedTensor, template_of, tensors_of
from pliant.guards import source as S
from pliant.guards.guard import Site
from pliant.interpret import globalstate, shadows
from pliant.interpret.calls import call
from pliant.interpret.effects import DIFFERENCES, untouched
from pliant.interpret.gradients import SETTERS
from pliant.interpret.shadows import ABSENT, INDEX, ITEM, LACKS, WRITTEN, Shadow
from pliant.interpret.state import current_site, vm
from pliant.interpret.world import World

MOST = 4  # templates of one class, and calls that could not be one, before no more are made
PLAIN = {str, bytes, bool, int, type(None), type(Ellipsis), torch.dtype, torch.device, torch.layout, torch.memory_format}
OWN = FLOWS | READERS


@dataclass(slots=True)
class Template:
    """One recorded call."""

    shadow: Shadow  # of the module's `__dict__`
    root: S.Source  # the path to the module
    args: tuple
    kwargs: dict
    reads: list[tuple]  # below the module
    guards: list[tuple]  # below the module, too: (key among the guards, value)
    elsewhere: list[tuple]  # the other reads
    touched: list[tuple[Shadow, Any]]  # the other containers that were read, and what the program had written there
    result: Any
    ops: list[Op]
    torch_ops: list[TorchOp]
    first_op: int
    first_torch_op: int
    first_vid: int
    vids: int
    frames: int
    site: Site | None
    state: tuple
    asked: list
    constants: list[TracedTensor]
    known: dict[int, Any]  # by their memory, the results whose data is known
    direct: bool  # operations are recorded as they are; else torch calls are made again
    steps: list[Step] | None = None  # how operations are recorded as they are, once that has been asked for


@dataclass(slots=True)
class Step:
    """An operation of a template: which of its arguments are made of tensors, and the results that are new, in order."""

    op: Op
    at: tuple[int, ...]
    named: bool  # whether arguments by name are made of tensors
    outs: list[tuple[Any, TracedTensor | None]]  # each with its template (`traced.make`)
    reads: tuple[TracedTensor, ...]


def steps_of(t: Template, trace: Any) -> list[Step]:
    if t.steps is None:
        t.steps = [
            Step(
                op, tuple([i for i, a in enumerate(op.args) if tensors_of(a)]), bool(op.kwargs and tensors_of(op.kwargs)),
                [(o, template_of(trace, o) if type(o) is TracedTensor and o.vid >= t.first_vid else None) for o in op.outs], op_inputs(op),
            )
            for op in t.ops
        ]  # fmt: skip
    return t.steps


class Blocks:
    """The templates of a capture. `count`: how many modules of a class there are below those that were called."""

    def __init__(self) -> None:
        self.templates: dict[tuple, list[Template]] = {}
        self.failures: dict[tuple, int] = {}
        self.seen: set[int] = set()
        self.count: dict[type, int] = {}
        self.recording: list[int] = []  # the counts of the classes that are being recorded, outermost first
        self.replayed = 0

    def number(self, module: Any) -> int:
        """How many of its class there are, as far as can be seen without asking the program: which blocks are worth recording."""
        todo = [module] if id(module) not in self.seen else []
        while todo:
            m = todo.pop()
            if id(m) in self.seen:
                continue
            self.seen.add(id(m))
            self.count[type(m)] = self.count.get(type(m), 0) + 1
            parts = shadows.GENERIC_GETATTR(m, "__dict__").get("_modules")
            if type(parts) is dict:
                todo += [p for p in parts.values() if issubclass(type(p), torch.nn.Module)]
        return self.count.get(type(module), 0)


# -- what has to be as it was -----------------------------------------------------------------------------------------------------
def state_of(world: World) -> tuple:
    """What a block may depend on without reading a container: compared before a replay."""
    trace, scope = world.trace, world.scope
    return (
        engine.global_state(), globalstate.function_modes(), scope.prover.facts.version, len(scope._guards), len(scope._asserts),
        len(trace.journal), len(trace.of_inference), held(world.global_writes, 2),
        held(world.context_values, 1), held(world.cell_values, 1) if world.cell_writes else (),
    )  # fmt: skip


def held(d: dict, i: int) -> tuple:
    """What a table of writes holds, part `i` of each. Values that may change by themselves are like nothing else."""
    return tuple([(k, S.Ref(v[i] if steady(v[i]) else object())) for k, v in d.items()]) if d else ()


def steady(v: Any) -> bool:
    return type(v) in PLAIN or type(v) is float


def counts(world: World) -> tuple:
    """What a template must not add to."""
    trace = world.trace
    return (
        world.n_symbols, len(world.relations), len(world.arrays), len(world.calls), len(world.own_classes), len(world.remade),
        len(world.data_of), len(world.retained), len(world.nodes), len(world.rebound), len(world.given),
        len(world.function_sources), len(world.raised_outside), len(world.context_values), len(world.tensor_writes),
        len(world.tensor_dicts),
        len(world.global_writes), len(world.cell_writes), sum(map(len, world.keys.values())), world.bound_here, id(world.subclasses),
        len(trace.leaves), len(trace.masks), len(trace.items), trace.recalled, len(trace.journal), trace.next_unbacked,
        len(trace.freed), len(trace.of_inference), trace.lazy_bits, trace.hooked, len(vm.late_texts) if vm.late_texts is not None else -1,
        engine.global_state(), globalstate.function_modes(), vm.exc, vm.asking, len(trace.exits), len(trace.marks), len(trace.scope.taken),
        len(vm.loop_codes),
    )  # fmt: skip


def clean(world: World, h: Shadow) -> bool:
    """Whether the program has written nothing there."""
    if type(h.copy) is dict:
        return untouched(h, h.orig, h.copy)
    if any([v is WRITTEN for v in h.located.values()]):
        return False
    found: list = []
    DIFFERENCES[shadows.base_of(h.copy)](world, h, found)
    return not found


def contents(h: Shadow) -> Any:
    """What a container that was written holds, to be compared with what it holds later."""
    pairs = list(dict.items(h.copy)) if isinstance(h.copy, dict) else list(enumerate(h.copy))
    return tuple([(S.Ref(k) if type(k) not in PLAIN else k, S.Ref(v)) for k, v in pairs])


def writes(world: World) -> dict[int, Any]:
    """Every container that the program has written, and what it holds."""
    return {id(h): contents(h) for h in world.made if not clean(world, h)}


def below(s: S.Source | None, root: S.Source) -> bool:
    """Whether a path leads through another one."""
    while s is not None:
        if s is root:
            return True
        s = s.base
    return False


# -- recording ------------------------------------------------------------------------------------------------------------------------
def recorded(world: World, blocks: Blocks, key: tuple, n: int, module: Any, forward: Any, args: tuple, kwargs: dict) -> Any:
    """The call, interpreted, and a template of it if it can be one."""
    trace = world.trace
    if world.log is None:
        world.log = []
    h = shadows.instance_dict(world, module)
    log, site = world.log, current_site()
    before = counts(world), writes(world)
    n_log, n_guards, n_ops, n_torch, n_asked = len(log), len(world.guards), len(trace.ops), len(trace.torch_ops), len(world.asked)
    n_constants, n_known = len(trace.constants), len(trace.known)
    first_vid, frames = trace.next_vid, vm.frames_made
    blocks.recording.append(n)
    try:
        result = call(forward, args, kwargs)
        reads = log[n_log:]
    finally:
        blocks.recording.pop()
        if not blocks.recording:
            world.log = None
    assert h is not None
    t = Template(
        h, world.sources[id(module)], args, kwargs, [], [], [], [], result, trace.ops[n_ops:], trace.torch_ops[n_torch:], n_ops, n_torch,
        first_vid, trace.next_vid - first_vid, vm.frames_made - frames, site, (), world.asked[n_asked:], trace.constants[n_constants:],
        {m: data for m, data in trace.known.items() if m >= first_vid}, True,
    )  # fmt: skip
    same = before == (counts(world), writes(world)) and n_known + len(t.known) == len(trace.known)
    if same and sorted_reads(world, t, reads, n_guards) and repeatable(world, t):
        t.state = state_of(world)
        blocks.templates.setdefault(key, []).append(t)
    else:
        blocks.failures[key] = blocks.failures.get(key, 0) + 1
    return result


def sorted_reads(world: World, t: Template, log: list[tuple], n_guards: int) -> bool:
    """Tell the reads below the module from those elsewhere. False if something was asked there that they do not tell."""
    root = t.root
    known: dict[S.Source, bool] = {}
    covered: set[int] = set()
    touched: dict[int, Shadow] = {}
    done: set[tuple] = set()
    for event in log:
        how, h, k, result, _, first, end = event
        if how == "unusual":
            return False
        covered.update(range(first, end))
        inside = known.get(h.source)
        if inside is None:
            inside = known[h.source] = below(h.source, root)
        if not inside:
            touched[id(h)] = h
            t.elsewhere.append((*event[:5], 0, 0))
            continue
        mark = (how, id(h), tuple(k) if type(k) is dict else k)
        if mark not in done:
            done.add(mark)
            if how == ABSENT or (how in (ITEM, INDEX) and not repeated(world, result)):
                return False
            last = t.reads[-1] if t.reads else None
            if how == LACKS and last is not None and last[0] == LACKS and last[1] is h and last[4] is event[4]:
                t.reads[-1] = (how, h, last[2] | k, *last[3:])  # of one instruction, which has one guard for them
            else:
                t.reads.append(event)
    for i, (k, g) in enumerate(world.guards.items()):
        inside = known.get(g.source)
        if inside is None:
            inside = known[g.source] = below(g.source, root)
        if inside:
            if (i >= n_guards and i not in covered) or (g.kind not in SAME_VALUE and g.kind not in TOLD_BY_READS):
                return False
            if g.kind in SAME_VALUE:
                t.guards.append((k, g.value))
        elif i >= n_guards and i not in covered and g.kind in ("NOT_ALIAS", "STORAGE_OVERLAP", "PREDICATE"):
            return False
    if any([below(g.value, root) and not below(g.source, root) for g in world.aliases]):
        return False  # something else leads below it
    t.touched = [(h, None if clean(world, h) else contents(h)) for h in touched.values()]
    return all([c is None or all([steady(v.obj) for _, v in c]) for _, c in t.touched])


def repeated(world: World, v: Any) -> bool:
    """Whether what a read has found can be compared with what another one finds."""
    kind = type(v)
    if kind is tuple or kind is torch.Size:
        return all([repeated(world, x) for x in v])
    return kind in PLAIN or kind is float or kind is TracedTensor or id(v) in world.by_copy or id(v) in world.outside or lasting(v)


def lasting(v: Any) -> bool:
    """Whether a value is known by its identity."""
    return issubclass(type(v), (type, types.FunctionType, types.BuiltinFunctionType, types.ModuleType))


def given(world: World, v: Any, root: S.Source) -> bool:
    """Whether an argument is one that replays compare: nothing that the program made and may have changed."""
    kind = type(v)
    if kind is TracedTensor:
        return v.source is None or not below(v.source, root)
    if kind is tuple or kind is torch.Size:
        return all([given(world, x, root) for x in v])
    if kind in PLAIN or kind is float or kind in SYMS:
        return True
    h = world.by_copy.get(id(v))
    if h is not None:
        return not below(h.source, root)
    if id(v) in world.outside:
        return not below(world.sources[id(v)], root)
    return lasting(v) and id(v) not in world.own_functions


def returned(world: World, v: Any, t: Template) -> bool:
    """Whether a replay can make this result again."""
    kind = type(v)
    if kind is tuple:
        return all([returned(world, x, t) for x in v])
    if kind in (list, dict) and id(v) not in world.by_copy and id(v) not in world.shadows and v is t.result:
        return all([type(x) not in (list, dict) and returned(world, x, t) for x in (v.values() if kind is dict else v)])
    return kind is TracedTensor or kind in PLAIN or kind is float or kind in SYMS


def repeatable(world: World, t: Template) -> bool:
    """Whether the operations of a template can be recorded again, and how."""
    root, trace = t.root, world.trace
    if not all([given(world, v, root) for v in (*t.args, *t.kwargs.values())]) or not returned(world, t.result, t):
        return False
    if any([id(a) in world.outside or id(a) in world.by_copy for _, args, kwargs, _ in t.asked for a in (*args, *kwargs.values())]):
        return False
    if any([o.out is PENDING or o.out is FAILED or hasattr(o.fn, "differentiates") for o in t.torch_ops]):
        return False
    if any([op.binds or op.again or op.before is not None or op.out_spec not in (None, "flat") or op.target in OWN for op in t.ops]):
        return False
    made = {o.vid for op in t.ops for o in op.outs if type(o) is TracedTensor}
    old = {id(x): x for x in tensors_of((t.args, tuple(t.kwargs.values())))}
    if any([x.storage_id in trace.known for x in old.values()]):
        return False
    t.direct = is_direct(t, made)
    if t.direct:
        return True
    if any([o.fn in SETTERS or o.fn is torch.autograd.grad for o in t.torch_ops if hashable(o.fn)]):
        return False
    if any([op.torch_index < t.first_torch_op for op in t.ops]) or any([o.vids is None for o in t.torch_ops]):
        return False
    # what the calls are made of: arguments, what is from before, inputs, what calls before have returned
    shown = {x.vid for o in t.torch_ops for x in tensors_of(o.out)}
    for o in t.torch_ops:
        if any([x.vid >= t.first_vid and x.source is None and x.vid not in shown for x in tensors_of((o.args, o.kwargs))]):
            return False
    return all([x.vid < t.first_vid or x.vid in shown or x.source is not None for x in tensors_of(t.result)])


def hashable(fn: Any) -> bool:
    return type(fn) in (types.FunctionType, types.BuiltinFunctionType, types.MethodDescriptorType, type)


def is_direct(t: Template, made: set[int]) -> bool:
    """Whether nothing but the trace sees the operations: no gradients, no writes to what is from before, no views among the results."""
    for op in t.ops:
        if any([x.storage_id < t.first_vid or x.source is not None for x in written(op)]):
            return False
        if any([type(o) is TracedTensor and (o.requires_grad or o.constant is not None) for o in op.outs]):
            return False
        if any([type(o) is not TracedTensor and o is not None and type(o) not in SYMS for o in op.outs]):
            return False
        if op.grad and any([x.requires_grad for x in tensors_of((op.args, op.kwargs))]):
            return False
    return not any([x.vid in made and (ORIGINAL._is_view(x) or x.storage_id < t.first_vid) for x in tensors_of(t.result)])


# -- what is the same
Path = Callable[[S.Source], S.Source]


def same_constant(a: Any, b: Any) -> bool:
    """Two constants of one type. Floats bit by bit, as guards compare them."""
    if a is b:
        return True
    if type(a) is float:
        return (a == b and math.copysign(1, a) == math.copysign(1, b)) or (a != a and b != b)
    return a == b


def same_keys(path: Path, a: list, b: list) -> bool:
    return len(a) == len(b) and all([x is y or (type(x) is type(y) and type(x) in PLAIN and x == y) for x, y in zip(a, b, strict=True)])


def same_literal(path: Path, a: Any, b: Any) -> bool:
    return type(a) is type(b) and (type(a) in PLAIN or type(a) is float) and same_constant(a, b)


SAME_VALUE: dict[str, Callable[[Path, Any, Any], bool]] = {
    "TYPE_MATCH": lambda path, a, b: a is b,
    "ID_MATCH": lambda path, a, b: a is b,
    "EQ_MATCH": same_literal,
    "LENGTH": lambda path, a, b: a == b,
    "DICT_KEYS": same_keys,
    "DICT_CONTAINS": lambda path, a, b: a == b,
    "ALIAS": lambda path, a, b: path(a) is b,
}
"""Kinds of guards a template may have below its module: (how paths translate, its value, the one here) -> whether both say the same."""

TOLD_BY_READS = ("DICT_LACKS", "TENSOR_MATCH")
"""Other kinds that it may have: compared where a read makes them."""
