"""Repeated blocks: calls of modules of one class and structure are interpreted once in a capture, then replayed.

A model is mostly layers that are alike. The first call of such a module is recorded as a `Template`: what was read of containers of the
outside, in order, and what was found there; the torch calls and the operations that it added to the trace; what it was given, and what it
returned. A later call of a module of that class reads the same of *its* attributes, through the functions with which the interpreter itself
reads (so guards, inputs, shadows and sites are those that it would have recorded). If it finds the same everywhere, the operations are
recorded again with other tensors and sites.

Why that is right: guards are complete. What a capture does follows from what it guarded, what it was given and the state of the capture, so
a call for which all these are alike goes the same way. A read that finds something else leaves the capture where the interpreter would have
come to, which makes all the reads before it, too.

| compared                        | how                                                                                                 |
|---------------------------------|-----------------------------------------------------------------------------------------------------|
| the module, what is below it    | read again: constants by value, objects by the path they were first found at, tensors by metadata   |
| what is elsewhere outside       | the very same objects, and what was read there was not written in between                            |
| arguments                       | constants by value; tensors by metadata, and which are the same or share memory; sizes as expressions |
| facts about sizes, settings     | none was learned, or set, in between                                                                 |

What does anything else (writes, prints, makes symbols, asks of the outside what containers do not tell) is no template. Where gradients are
recorded, or memory from before the call is written or returned, the torch calls of the template are made again, through PyTorch's
dispatcher, which builds its tape; else its operations are recorded as they are.
"""

from __future__ import annotations

import functools
import math
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from pliant import native as engine
from pliant.graph import symnode
from pliant.graph.dispatch import same as same_size
from pliant.graph.record import FAILED, PENDING, Op, TorchOp
from pliant.graph.schema import argument, op_info
from pliant.graph.traced import TracedTensor, make
from pliant.guards import source as S
from pliant.guards.guard import Site
from pliant.interpret import globalstate, shadows
from pliant.interpret.calls import call, graph_call
from pliant.interpret.effects import DIFFERENCES, base_of, untouched
from pliant.interpret.gradients import SETTERS
from pliant.interpret.shadows import ABSENT, INDEX, ITEM, LACKS, LENGTH, PRESENT, WRITTEN, Shadow
from pliant.interpret.state import Break, Restart, current_site, vm
from pliant.interpret.world import World

ENABLED = True
"""Tests capture with and without (`tests/interpret/test_blocks.py`)."""

MOST = 4  # templates of one class, and calls that could not be one, before no more are made
PLAIN = {str, bytes, bool, int, type(None), type(Ellipsis), torch.dtype, torch.device, torch.layout, torch.memory_format}
SYMS = {torch.SymInt, torch.SymFloat, torch.SymBool}


class ReplayFailed(Restart):
    """A replay does not come to what its template says, and has begun to record: capture again, without replays."""

    def __init__(self) -> None:
        super().__init__(-1, -1, "", "a repeated block that did not come out as it did before")


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


def block_call(module: Any, forward: Any, args: tuple, kwargs: dict) -> Any:
    """What a call of `module` without hooks is, `forward(*args, **kwargs)`: replayed, recorded, or just interpreted."""
    world = vm.world
    if not fit(world, module, forward):
        return call(forward, args, kwargs)
    blocks: Blocks = world.blocks
    if blocks is None:
        blocks = world.blocks = Blocks()
    key = (type(module), forward.__func__, len(args), *kwargs)
    known = blocks.templates.get(key, ())
    if known:
        state = state_of(world)
        for t in known:
            if vm.frames_made < vm.break_serial <= vm.frames_made + t.frames:
                continue  # the break that this attempt is for lies in there
            replay = Replay(world, t, module)
            if t.state == state and replay.fits(args, kwargs):
                blocks.replayed += 1
                return replay.record()
    n = blocks.number(module)
    if n < 2 or len(known) >= MOST or blocks.failures.get(key, 0) >= MOST or (blocks.recording and blocks.recording[-1] >= n):
        return call(forward, args, kwargs)
    if not shadows.GENERIC_GETATTR(module, "__dict__").get("_modules"):
        return call(forward, args, kwargs)  # too small
    return recorded(world, blocks, key, n, module, forward, args, kwargs)


def fit(world: World, module: Any, forward: Any) -> bool:
    """Whether this call may be a block at all."""
    scope = world.scope
    return (
        ENABLED
        and vm.replays
        and type(forward) is types.MethodType
        and forward.__self__ is module
        and type(forward.__func__) is types.FunctionType
        and id(module) in world.outside
        and id(forward.__func__) not in world.own_functions
        and id(forward.__func__) not in world.function_sources
        and id(type(module)) not in world.own_functions
        and scope.oracle is None
        and scope.events is None
        and not vm.asking
        and vm.exc is None
        and not world.data_views
        and not world.tensor_writes
        and not world.trace.masks
        and not world.trace.lazy_bits
        and (not world.trace.torch_ops or world.trace.torch_ops[-1].out is not PENDING)
        and not torch.is_inference_mode_enabled()
        and not globalstate.user_modes()
    )


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
        len(world.data_of), len(world.function_sources), len(world.raised_outside), len(world.context_values), len(world.tensor_writes),
        len(world.global_writes), len(world.cell_writes), sum(map(len, world.keys.values())), world.bound_here, id(world.subclasses),
        len(trace.leaves), len(trace.masks), len(trace.journal), trace.next_unbacked, len(trace.freed), len(trace.of_inference),
        trace.lazy_bits, len(vm.late_texts) if vm.late_texts is not None else -1, engine.global_state(), globalstate.function_modes(),
        vm.exc, vm.asking,
    )  # fmt: skip


def clean(world: World, h: Shadow) -> bool:
    """Whether the program has written nothing there."""
    if any([v is WRITTEN for v in h.located.values()]):
        return False
    if type(h.copy) is dict:
        return untouched(h, h.orig, h.copy)
    found: list = []
    DIFFERENCES[base_of(h.copy)](world, h, found)
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
    if any([op.binds or op.again or op.before is not None or op.out_spec not in (None, "flat") for op in t.ops]):
        return False
    made = {o.vid for op in t.ops for o in op.outs if type(o) is TracedTensor}
    old = {id(x): x for x in tensors_in((t.args, tuple(t.kwargs.values())))}
    if any([x.storage_id in trace.known for x in old.values()]):
        return False
    t.direct = is_direct(t, made, old)
    if t.direct:
        return True
    if any([o.fn in SETTERS or o.fn is torch.autograd.grad for o in t.torch_ops if hashable(o.fn)]):
        return False
    if any([op.torch_index < t.first_torch_op for op in t.ops]) or any([o.vids is None for o in t.torch_ops]):
        return False
    # what the calls are made of: arguments, what is from before, inputs, what calls before have returned
    shown = {x.vid for o in t.torch_ops for x in tensors_in(o.out)}
    for o in t.torch_ops:
        if any([x.vid >= t.first_vid and x.source is None and x.vid not in shown for x in tensors_in((o.args, o.kwargs))]):
            return False
    return all([x.vid < t.first_vid or x.vid in shown or x.source is not None for x in tensors_in(t.result)])


def hashable(fn: Any) -> bool:
    return type(fn) in (types.FunctionType, types.BuiltinFunctionType, types.MethodDescriptorType, type)


def is_direct(t: Template, made: set[int], old: dict[int, Any]) -> bool:
    """Whether nothing but the trace sees the operations: no gradients, no writes to what is from before, no views among the results."""
    for op in t.ops:
        info = op_info(op.target)
        for name in info.writes:
            x = argument(info, op.args, op.kwargs, name)
            if type(x) is not TracedTensor or x.storage_id < t.first_vid or x.source is not None:
                return False
        if any([type(o) is TracedTensor and (o.requires_grad or o.constant is not None) for o in op.outs]):
            return False
        if any([type(o) is not TracedTensor and o is not None and type(o) not in SYMS for o in op.outs]):
            return False
        if op.grad and any([x.requires_grad for x in tensors_in((op.args, op.kwargs))]):
            return False
    return not any([x.vid in made and (x._is_view() or x.storage_id < t.first_vid) for x in tensors_in(t.result)])


def tensors_in(v: Any) -> list:
    """The traced tensors in nested containers."""
    if type(v) is TracedTensor:
        return [v]
    if isinstance(v, (tuple, list)):
        return [x for y in v for x in tensors_in(y)]
    return [x for y in v.values() for x in tensors_in(y)] if isinstance(v, dict) else []


# -- replaying ------------------------------------------------------------------------------------------------------------------------
class Stand:
    """A frame that stands where an instruction of the template stood: guards are told its site."""

    pc = 1

    def __init__(self) -> None:
        self.decoded = self
        self.here: Any = None

    def site(self, i: int) -> Any:
        return self.here


class Replay:
    """One attempt to make a call by a template."""

    def __init__(self, world: World, t: Template, module: Any) -> None:
        self.world = world
        self.trace = world.trace
        self.t = t
        self.module = module
        self.paths: dict[S.Source, S.Source] = {t.root: world.sources[id(module)]}
        self.found: dict[int, Shadow] = {}  # id of a shadow of the template -> the one in its place
        self.owners: dict[int, Any] = {}  # id of an object below the template's module -> the one in its place
        self.tensors: dict[int, TracedTensor] = {}
        self.back: dict[int, int] = {}  # id of a tensor -> that of the template's, and so on: no two become one
        self.memory: dict[int, int] = {}
        self.memory_back: dict[int, int] = {}
        self.sites: dict[int, Any] = {}
        self.site = current_site()

    def path(self, s: S.Source) -> S.Source:
        """The path from this module that leads where `s` does from the template's."""
        r = self.paths.get(s)
        if r is None:
            r = s
            if s.base is not None:
                b = self.path(s.base)
                if b is not s.base:
                    r = b.key(s.arg) if s.op == "key" else S.make(s.op, b, s.arg)
            self.paths[s] = r
        return r

    # -- what has to be alike
    def fits(self, args: tuple, kwargs: dict) -> bool:
        t, world = self.t, self.world
        for h, held_then in t.touched:
            if not (clean(world, h) if held_then is None else not clean(world, h) and contents(h) == held_then):
                return False
        if not all(map(self.same_argument, t.args, args)):
            return False
        if not all([self.same_argument(v, kwargs[k]) for k, v in t.kwargs.items()]):
            return False
        return self.reads_alike()

    def same_argument(self, a: Any, b: Any) -> bool:
        kind = type(a)
        if kind is not type(b):
            return False
        if kind is TracedTensor:
            if a.source is not None or b.source is not None:  # an input, which other paths may lead to
                return a is b and self.pair(a, b)
            return b.storage_id not in self.trace.known and alike(a, b) and self.pair(a, b)
        if kind is tuple or kind is torch.Size:
            world = self.world
            if (id(a) in world.standing or id(b) in world.standing) and a is not b:
                return False
            return len(a) == len(b) and all(map(self.same_argument, a, b))
        if kind in SYMS:
            return a.node.expr is b.node.expr
        return same_constant(a, b) if kind in PLAIN or kind is float else a is b

    def pair(self, a: TracedTensor, b: TracedTensor) -> bool:
        """`b` is in the place of `a`, and its memory in the place of that of `a`."""
        if self.tensors.setdefault(id(a), b) is not b or self.back.setdefault(id(b), id(a)) != id(a):
            return False
        m, n = a.storage_id, b.storage_id
        return self.memory.setdefault(m, n) == n and self.memory_back.setdefault(n, m) == m

    def reads_alike(self) -> bool:
        """Read below this module what the template read below its own."""
        world, trace, t = self.world, self.trace, self.t
        n_symbols, first_vid = world.n_symbols, trace.next_vid
        frame, stand = vm.frame, Stand()
        self.found[id(t.shadow)] = h = shadows.instance_dict(world, self.module)  # type: ignore[assignment]
        vm.frame = stand
        try:
            if h is None or not clean(world, h):
                return False
            for event in t.reads:
                stand.here = event[4]
                if type(event[3]) is TracedTensor and event[3].vid >= t.first_vid:
                    trace.next_vid = max(trace.next_vid, first_vid + event[3].vid - t.first_vid)
                if not self.read(event):
                    return False
            if world.n_symbols != n_symbols:
                return False
        finally:
            vm.frame = frame
        if not all([self.guarded(k, value) for k, value in t.guards]):
            return False
        if world.log is not None:  # a block around this one is being recorded
            world.log += t.elsewhere
        trace.next_vid = first_vid
        self.first_vid = first_vid
        return True

    def guarded(self, k: tuple, value: Any) -> bool:
        """Whether what the template guarded below its module is guarded here, with the same value."""
        source, kind, key = k
        g = self.world.guards.get((self.path(source), kind, key))
        return g is not None and SAME_VALUE[kind](self, value, g.value)

    def shadow_for(self, old: Shadow) -> Shadow | None:
        """The `__dict__` of the object in the place of that which `old` is of."""
        owner = self.owners.get(id(old.owner)) if old.owner is not None else None
        h = shadows.instance_dict(self.world, owner) if owner is not None else None
        if h is None or h.source is not self.path(old.source) or not clean(self.world, h):
            return None
        self.found[id(old)] = h
        return h

    def read(self, event: tuple) -> bool:
        how, old, k, result = event[:4]
        world = self.world
        h = self.found.get(id(old)) or self.shadow_for(old)
        if h is None:
            return False
        if how is ITEM:
            return dict.__contains__(h.copy, k) and self.same_found(result, shadows.item(world, h, k))
        if how is LACKS:
            return self.lacks(h, k)
        if how is INDEX:
            size = list.__len__(h.copy)
            return -size <= k < size and (k >= 0 or size == list.__len__(old.copy)) and self.same_found(result, shadows.index(world, h, k))
        if how is PRESENT:
            if k not in h.copy:
                return False
            shadows.present(world, h, k)
            return True
        return self.whole(how, old, h)

    def lacks(self, h: Shadow, kinds: dict) -> bool:
        """The same names are not there, or lead to empty dicts that nobody has looked into."""
        world, new, glimpsed = self.world, {}, {}
        for name, kind in kinds.items():
            known = name in h.lacks
            if known and h.lacks[name] is not kind:
                return False
            if kind is None:
                if name in h.copy or name in h.orig:
                    return False
            else:
                v = h.copy.get(name)
                if type(v) is not kind or v or name in h.located or id(v) in world.shadows or id(v) in world.by_copy:
                    return False
                if not known:
                    glimpsed[id(h), name] = (v, h)
                elif world.glimpsed[id(h), name][0] is not v:
                    return False
            if not known:
                new[name] = kind
        began = len(world.guards)
        if new:
            world.glimpsed |= glimpsed
            shadows.lacking_all(world, h, new)
        if world.log is not None:
            shadows.note(world, LACKS, h, kinds, began)
        return True

    def whole(self, how: str, old: Shadow, h: Shadow) -> bool:
        """The same keys, or as many items; with ALL, the same in each place."""
        world = self.world
        a, b = old.copy, h.copy
        if len(a) != len(b):
            return False
        if isinstance(a, dict):
            if not all([type(x) is type(y) and (same_constant(x, y) if type(x) in PLAIN else x is y) for x, y in zip(a, b, strict=True)]):
                return False
        elif isinstance(a, (set, frozenset)):
            return False
        if how == LENGTH:
            shadows.length(world, h)
            return True
        shadows.read_all(world, b)
        pairs = [(v, h.copy[k]) for k, v in a.items()] if isinstance(a, dict) else list(zip(a, b, strict=True))
        return all([repeated(world, x) and self.same_found(x, y) for x, y in pairs])

    def same_found(self, a: Any, b: Any) -> bool:
        """Whether `b`, found here, is what `a` is, found by the template."""
        kind = type(a)
        if kind is not type(b):
            return False
        if kind is TracedTensor:
            if a.source is None or b.source is not self.path(a.source):
                return False
            return a is b and self.pair(a, b) if a.source is b.source else alike_input(self.world, a, b) and self.pair(a, b)
        if kind in PLAIN or kind is float:
            return same_constant(a, b)
        if kind is tuple or kind is torch.Size:
            return len(a) == len(b) and all(map(self.same_found, a, b))
        world = self.world
        h = world.by_copy.get(id(a))
        if h is not None:
            g = world.by_copy.get(id(b))
            if g is None or g.source is not self.path(h.source):
                return False
            if self.found.setdefault(id(h), g) is not g:
                return False
            return g is h or clean(world, g)
        if id(a) in world.outside:
            if id(b) not in world.outside or world.sources[id(b)] is not self.path(world.sources[id(a)]):
                return False
            return self.owners.setdefault(id(a), b) is b
        return a is b

    # -- what is recorded again
    def record(self) -> Any:
        t, world, trace = self.t, self.world, self.trace
        n_ops, n_torch = len(trace.ops), len(trace.torch_ops)
        n_constants, n_known, before = len(trace.constants), len(trace.known), counts(world)
        if t.direct:
            self.record_operations(n_torch)
        else:
            self.call_again()
        trace.next_vid = self.first_vid + t.vids
        vm.frames_made += t.frames
        world.asked += t.asked
        made = len(trace.ops) - n_ops, len(trace.torch_ops) - n_torch, len(trace.constants) - n_constants, len(trace.known) - n_known
        if made != (len(t.ops), len(t.torch_ops), len(t.constants), len(t.known)) or before != counts(world):
            raise ReplayFailed
        return self.made_again(t.result)

    def record_operations(self, n_torch: int) -> None:
        """Append the operations and calls of the template, as they are."""
        t, trace = self.t, self.trace
        ops, torch_ops = trace.ops, trace.torch_ops
        base, shift, n_ops = t.first_vid, self.first_vid - t.first_vid, len(ops)
        tensors, memory = self.tensors, self.memory
        for c in t.constants:
            trace.next_vid = c.vid + shift
            x = tensors[id(c)] = make(trace, c.sizes, c.strides, c.dtype, c.offset, None, c.device, c.dense)
            x.constant = c.constant
            trace.constants.append(x)
        for op in t.ops:
            outs = []
            for o in op.outs:
                if type(o) is TracedTensor and o.vid >= base and id(o) not in tensors:
                    trace.next_vid = o.vid + shift
                    m = memory.get(o.storage_id)
                    if m is None and o.storage_id < base:
                        m = o.storage_id  # of something from before, the same in every call
                    x = make(trace, o.sizes, o.strides, o.dtype, o.offset, m, o.device, o.dense)
                    if m is None:
                        memory[o.storage_id] = x.storage_id
                    tensors[id(o)] = x
                    outs.append(x)
                else:
                    outs.append(self.exchanged(o))
            index = op.torch_index - t.first_torch_op + n_torch if op.torch_index >= t.first_torch_op else -1
            new = Op(op.target, self.exchanged(op.args), self.exchanged(op.kwargs) if op.kwargs else {}, outs, op.out_spec,
                self.moved(op.site), index)  # fmt: skip
            new.grad = op.grad
            ops.append(new)
        trace.known |= {memory[m]: data for m, data in t.known.items()}
        for o in t.torch_ops:
            args, kwargs = self.exchanged(o.args), self.exchanged(o.kwargs)
            torch_ops.append(TorchOp(o.fn, args, kwargs, self.exchanged(o.out), self.moved(o.site), o.begin - t.first_op + n_ops))

    def call_again(self) -> None:
        """Make the torch calls of the template with other tensors."""
        t, trace, ops = self.t, self.trace, self.trace.ops
        shift = len(ops) - t.first_op
        hook = symnode.site_hook
        try:
            for i, o in enumerate(t.torch_ops):
                end = t.torch_ops[i + 1].begin if i + 1 < len(t.torch_ops) else t.first_op + len(t.ops)
                site = self.moved(o.site)
                symnode.site_hook = functools.partial(itself, site)
                first, behind = [v + self.first_vid - t.first_vid for v in o.vids]  # type: ignore[union-attr]
                trace.next_vid = first
                try:
                    out = graph_call(o.fn, self.exchanged(o.args), self.exchanged(o.kwargs))
                except (Exception, Break, Restart) as e:
                    vm.pending = None
                    raise ReplayFailed from e
                if len(ops) != end + shift or trace.next_vid != behind or not self.same_result(o.out, out):
                    raise ReplayFailed
        finally:
            symnode.site_hook = hook
        for old, new in zip(t.ops, ops[len(ops) - len(t.ops) :], strict=True):
            if old.target is not new.target or len(old.outs) != len(new.outs) or old.grad is not new.grad:
                raise ReplayFailed
            new.site = self.moved(old.site)

    def same_result(self, a: Any, b: Any) -> bool:
        kind = type(a)
        if kind is not type(b):
            return False
        if kind is TracedTensor:
            known = self.tensors.get(id(a))
            if known is not None or (a.vid < self.t.first_vid and a is b):
                return known is None or known is b
            self.tensors[id(a)] = b
            m = self.memory.setdefault(a.storage_id, a.storage_id if a.storage_id < self.t.first_vid else b.storage_id)
            return m == b.storage_id and alike(a, b)
        if isinstance(a, (tuple, list)):
            return len(a) == len(b) and all(map(self.same_result, a, b))
        if kind in SYMS:
            return a.node.expr is b.node.expr
        return same_constant(a, b) if kind in PLAIN or kind is float else a is b

    def exchanged(self, v: Any) -> Any:
        """Arguments of the template with the tensors of this call."""
        kind = type(v)
        if kind is TracedTensor:
            x = self.tensors.get(id(v))
            if x is not None:
                return x
            if v.vid >= self.t.first_vid and (v.source is None or self.path(v.source) is not v.source):
                raise ReplayFailed
            return v
        if kind is tuple:
            return tuple([self.exchanged(x) for x in v])
        if kind is list:
            return [self.exchanged(x) for x in v]
        if kind is dict:
            return {k: self.exchanged(x) for k, x in v.items()}
        if kind is slice:
            return slice(self.exchanged(v.start), self.exchanged(v.stop), self.exchanged(v.step))
        if isinstance(v, (tuple, list, dict)) and tensors_in(v):
            raise ReplayFailed
        return v

    made_again = exchanged

    def moved(self, site: Site | None) -> Site | None:
        """A site of the template, called from where this call is."""
        if site is None or self.t.site is self.site:
            return site
        if site is self.t.site:
            return self.site
        s = self.sites.get(id(site))
        if s is None:
            outer = self.moved(site.outer)
            s = site if outer is site.outer else Site(site.filename, site.lineno, site.function, site.offset, site.code, outer)
            self.sites[id(site)] = s
        return s


def itself(v: Any) -> Any:
    return v


def same_constant(a: Any, b: Any) -> bool:
    """Two constants of one type. Floats bit by bit, as guards compare them."""
    if a is b:
        return True
    if type(a) is float:
        return (a == b and math.copysign(1, a) == math.copysign(1, b)) or (a != a and b != b)
    return a == b


def same_keys(replay: Replay, a: list, b: list) -> bool:
    return len(a) == len(b) and all([x is y or (type(x) is type(y) and type(x) in PLAIN and x == y) for x, y in zip(a, b, strict=True)])


def same_literal(replay: Replay, a: Any, b: Any) -> bool:
    return type(a) is type(b) and (type(a) in PLAIN or type(a) is float) and same_constant(a, b)


SAME_VALUE: dict[str, Callable[[Replay, Any, Any], bool]] = {
    "TYPE_MATCH": lambda replay, a, b: a is b,
    "ID_MATCH": lambda replay, a, b: a is b,
    "EQ_MATCH": same_literal,
    "LENGTH": lambda replay, a, b: a == b,
    "DICT_KEYS": same_keys,
    "DICT_CONTAINS": lambda replay, a, b: a == b,
    "ALIAS": lambda replay, a, b: replay.path(a) is b,
}
"""The kinds of guards that a template may have below its module: (replay, its value, the value here) -> whether they say the same."""

TOLD_BY_READS = ("DICT_LACKS", "TENSOR_MATCH")
"""Other kinds that it may have: compared where a read makes them."""


def alike(a: TracedTensor, b: TracedTensor) -> bool:
    """Whether nobody could tell two tensors by anything but their values."""
    return (
        a.dtype is b.dtype
        and a.pytype is b.pytype
        and a.requires_grad is b.requires_grad
        and a.is_leaf is b.is_leaf
        and a.dense is b.dense
        and a.device == b.device
        and a.constant is b.constant is None
        and a.is_inference() is b.is_inference()
        and len(a.sizes) == len(b.sizes)
        and all(map(same_size, a.sizes, b.sizes))
        and all(map(same_size, a.strides, b.strides))
        and same_size(a.offset, b.offset)
        and a._is_view() is b._is_view()
    )


def alike_input(world: World, a: TracedTensor, b: TracedTensor) -> bool:
    """`alike`, for inputs: they have memory of their own, or not, alike."""
    real, other = world.real.get(id(a)), world.real.get(id(b))
    if real is None or other is None or real.is_leaf is not other.is_leaf:
        return False
    return alike(a, b) and (a.storage_id == a.vid) is (b.storage_id == b.vid)


__all__ = ["ReplayFailed", "block_call"]
