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
import types
from typing import Any

from pliant.graph import symnode
from pliant.graph.dispatch import all_same
from pliant.graph.dispatch import same as same_size
from pliant.graph.originals import ORIGINAL, torch
from pliant.graph.record import PENDING, Op, TorchOp
from pliant.graph.traced import ABOVE_KERNELS, TracedTensor, copied, make, tensors_of
from pliant.guards import source as S
from pliant.guards.guard import Guard, Site
from pliant.interpret import globalstate, late_errors, shadows
from pliant.interpret.block_templates import (
    MOST,
    PLAIN,
    SAME_VALUE,
    SYMS,
    Blocks,
    Step,
    Template,
    clean,
    contents,
    counts,
    recorded,
    repeated,
    same_constant,
    state_of,
    steps_of,
)
from pliant.interpret.calls import call, graph_call
from pliant.interpret.capture import UNSET
from pliant.interpret.shadows import INDEX, ITEM, LACKS, LENGTH, PRESENT, Shadow
from pliant.interpret.state import Break, ReplayFailed, Restart, current_site, vm
from pliant.interpret.tensor_inputs import unheard
from pliant.interpret.world import World

ENABLED = True
"""Tests capture with and without (`tests/interpret/test_blocks.py`)."""


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
            if t.state == state and replay.fits(args, kwargs) and late_errors.may_replay(world.trace, t.ops):
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
        and not vm.rehearsing
        and vm.exc is None
        and not world.data_views
        and not world.tensor_writes
        and not world.tensor_dicts
        and not world.trace.masks
        and not world.trace.lazy_bits
        and not world.levels.entered
        and (not world.trace.torch_ops or world.trace.torch_ops[-1].out is not PENDING)
        and not torch.is_inference_mode_enabled()
        and not globalstate.user_modes()
    )


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
        in_place = True  # whether inputs that are met here for the first time have the numbers that those of the template had
        quick = world.log is None and not world.opaque  # else a block around this one is being recorded, or not all is located alike
        found = self.found
        try:
            if h is None or not clean(world, h):
                return False
            for event in t.reads:
                how, old, k, result, stand.here, _, _ = event
                if quick:
                    h = found.get(id(old)) or self.shadow_for(old)
                    if h is None:
                        return False
                    if how is LACKS:
                        alike = self.lacks_names(h, k)
                    elif how is ITEM and type(result) in GUARDED:
                        alike = self.constant(h, k, result, stand.here)
                    else:
                        alike = None
                    if alike is not None:
                        if alike:
                            continue
                        return False
                before = None
                if type(result) is TracedTensor and result.vid >= t.first_vid:
                    before = first_vid + result.vid - t.first_vid
                    trace.next_vid = max(trace.next_vid, before)
                last = trace.next_vid
                if not self.read(event):
                    return False
                in_place = in_place and (trace.next_vid == last or (last == before and trace.next_vid == last + 1))
            if world.n_symbols != n_symbols:
                return False
        finally:
            vm.frame = frame
        if not all([self.guarded(k, value) for k, value in t.guards]):
            return False
        if world.log is not None:  # a block around this one is being recorded
            world.log += t.elsewhere
        if in_place:
            trace.next_vid = first_vid
        self.first_vid = trace.next_vid  # else behind all of these: they would have the numbers of what the operations make
        return True

    def guarded(self, k: tuple, value: Any) -> bool:
        """Whether what the template guarded below its module is guarded here, with the same value."""
        source, kind, key = k
        g = self.world.guards.get((self.path(source), kind, key))
        return g is not None and SAME_VALUE[kind](self.path, value, g.value)

    def shadow_for(self, old: Shadow) -> Shadow | None:
        """The `__dict__` of the object in the place of that which `old` is of."""
        owner = self.owners.get(id(old.owner)) if old.owner is not None else None
        h = shadows.instance_dict(self.world, owner) if owner is not None else None
        if h is None or h.source is not self.path(old.source) or not clean(self.world, h):
            return None
        self.found[id(old)] = h
        return h

    def read(self, event: tuple) -> bool:
        how, old, k, result, _, _, _ = event
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

    def constant(self, h: Shadow, k: Any, result: Any, site: Any) -> bool | None:
        """`shadows.item` of what is located by one guard of its value, if that is what the template found. None: not a plain dict."""
        copy = h.copy
        if type(copy) is not dict:
            return None
        v = copy.get(k, UNSET)
        if v is not result and (type(v) is not type(result) or v != result):
            return False
        if k not in h.located and k in h.orig:
            h.located[k] = v
            source = h.source.key(k)
            kind = GUARDED[type(v)]
            key = (source, kind, None)
            guards = self.world.guards
            if key not in guards:
                guards[key] = Guard(source, kind, v, site)
        return True

    def lacks_names(self, h: Shadow, kinds: dict) -> bool | None:
        """`lacks`, where no name leads to an empty dict. None: some do."""
        copy, orig, lacks = h.copy, h.orig, h.lacks
        new: dict[str, Any] = {}
        for name, kind in kinds.items():
            if kind is not None:
                return None
            if name in lacks:
                if lacks[name] is not None:
                    return False
            else:
                new[name] = None
            if name in copy or name in orig:
                return False
        if new:
            shadows.lacking_all(self.world, h, new)
        return True

    def lacks(self, h: Shadow, kinds: dict) -> bool:
        """The same names are not there, or lead to empty dicts that nobody has looked into."""
        world, new, glimpsed = self.world, {}, {}
        copy, orig, lacks = h.copy, h.orig, h.lacks
        for name, kind in kinds.items():
            known = name in lacks
            if known and lacks[name] is not kind:
                return False
            if kind is None:
                if name in copy or name in orig:
                    return False
            else:
                v = copy.get(name)
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
            source = a.source
            if source is None or b.source is not (self.paths.get(source) or self.path(source)):
                return False
            return a is b and self.pair(a, b) if source is b.source else alike_input(self.world, a, b) and self.pair(a, b)
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
        world.replayed = True
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
        shift, n_ops = self.first_vid - t.first_vid, len(ops)
        tensors, memory = self.tensors, self.memory
        for c in t.constants:
            trace.next_vid = c.vid + shift
            x = tensors[id(c)] = make(trace, c.sizes, c.strides, c.dtype, c.offset, None, c.device, c.dense)
            x.constant = c.constant
            trace.constants.append(x)
        with torch._C._ExcludeDispatchKeyGuard(ABOVE_KERNELS):
            for step in steps_of(t, trace):
                ops.append(self.recorded(step, shift, n_torch))
        trace.known |= {memory[m]: data for m, data in t.known.items()}
        for o in t.torch_ops:
            args, kwargs = self.exchanged(o.args), self.exchanged(o.kwargs) if o.kwargs else {}
            torch_ops.append(TorchOp(o.fn, args, kwargs, self.exchanged(o.out), self.moved(o.site), o.begin - t.first_op + n_ops))

    def recorded(self, step: Step, shift: int, n_torch: int) -> Op:
        """The operation of the template, with the tensors of this call."""
        t, op, tensors, memory = self.t, step.op, self.tensors, self.memory
        outs = []
        for o, template in step.outs:
            x = tensors.get(id(o))
            if x is None and type(o) is TracedTensor and o.vid >= t.first_vid:
                vid = o.vid + shift
                m = memory.get(o.storage_id)
                if m is None and o.storage_id < t.first_vid:
                    m = o.storage_id  # of something from before, the same in every call
                if template is None:
                    self.trace.next_vid = vid
                    x = make(self.trace, o.sizes, o.strides, o.dtype, o.offset, m, o.device, o.dense)
                else:
                    x = copied(o, template, vid, vid if m is None else m)
                if m is None:
                    memory[o.storage_id] = vid
                tensors[id(o)] = x
            outs.append(self.exchanged(o) if x is None else x)
        args = op.args
        if step.at:
            values = list(args)
            for i in step.at:
                x = tensors.get(id(values[i]))
                values[i] = self.exchanged(values[i]) if x is None else x
            args = tuple(values)
        index = op.torch_index - t.first_torch_op + n_torch if op.torch_index >= t.first_torch_op else -1
        kwargs = self.exchanged(op.kwargs) if step.named else op.kwargs
        new = Op(op.target, args, kwargs, outs, op.out_spec, self.moved(op.site), index, [], op.grad)
        new.reads, new.numbers = tuple([tensors.get(id(x), x) for x in step.reads]), op.numbers
        return new

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
        if isinstance(v, (tuple, list, dict)) and tensors_of(v):
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


GUARDED = {bool: "EQ_MATCH", str: "EQ_MATCH", type(None): "ID_MATCH", torch.dtype: "ID_MATCH"}
"""Types of constants that are located by a guard of this kind and nothing else, whatever is known of them (`types/constants.py`)."""


def itself(v: Any) -> Any:
    return v


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
        and ORIGINAL.is_inference(a) is ORIGINAL.is_inference(b)
        and all_same(a.sizes, b.sizes)
        and all_same(a.strides, b.strides)
        and same_size(a.offset, b.offset)
        and ORIGINAL._is_view(a) is ORIGINAL._is_view(b)
    )


def alike_input(world: World, a: TracedTensor, b: TracedTensor) -> bool:
    """`alike`, for inputs: they have memory of their own, or not, alike."""
    real, other = world.real.get(id(a)), world.real.get(id(b))
    if real is None or other is None or unheard(real, "is_leaf") is not unheard(other, "is_leaf"):
        return False
    return alike(a, b) and (a.storage_id == a.vid) is (b.storage_id == b.vid)


__all__ = ["ReplayFailed", "block_call"]
