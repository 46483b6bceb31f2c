"""The training plan of a captured region: what is forward, what is backward, and what is kept between them.

The backward operations are recorded by running PyTorch's autograd engine over the tape that it built during capture. The split is
plain: the forward part also keeps what the backward part reads. `codegen/autograd_region.py` makes the differentiable node of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from torch._library import autograd as of_operators

from pliant.graph import arriving, distributed_tensors, layout
from pliant.graph.leaving import WAYS, exit_of
from pliant.graph.light_shapes import shape_functions
from pliant.graph.operands import node_of, views_without
from pliant.graph.originals import torch
from pliant.graph.record import Op
from pliant.graph.trace import engine_gradients, rebased
from pliant.graph.traced import (
    DATA,
    LAYOUTS,
    LEAF,
    LEAF_VIEWS,
    NO_DERIVATIVE,
    PYTHON_BACKWARD,
    REBASED,
    REPLAYED,
    SYMBOLIC_REFUSED,
    UNCUT,
    WRAPPED,
    NoBackward,
    Reconsider,
    TracedTensor,
    Untraceable,
    make,
    qualified,
)
from pliant.lower import cse, liveness, views
from pliant.lower.histories import sharing, together
from pliant.lower.kept_views import KeptViews
from pliant.lower.leaves import nodes_under
from pliant.lower.sections import Section, begun_at, ending, ends, had_gradients, unread
from pliant.lower.views import without_history
from pliant.symbolic import DataDependent

aten = torch.ops.aten
WITHOUT_DERIVATIVE = re.compile(
    r"derivative for '([^':]+)[^']*' is not implemented|derivative for (?:aten::)?([\w:]+)[.\w]* is not implemented"
    r"|backward through (?:aten\.)?(\w[\w.]*?)(?:\.\w+)? but no autograd formula"
)
IN_PLACE = "inplace version of "
"""How autograd speaks of an operator that writes, whose derivative it has only for the one that does not."""
AUTOCAST = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU) | torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCUDA)


def needs_node(trace: Any, inputs: list[Any], outputs: list[Any]) -> bool:
    """Do gradients flow out of this region: through an output, or through an input that it writes?"""
    return any(t.requires_grad for t in liveness.tensors_of(outputs)) or any(rebased(trace, t) for t in liveness.tensors_of(inputs))


@dataclass(slots=True)
class Backward:
    """The backward part for one set of heads that received a gradient: a program over tangents, saved tensors and sizes."""

    ops: list[Any]
    tangents: list[TracedTensor]
    grads: list[Any]
    reads: list[TracedTensor]  # from the forward part
    symbols: list[Any]  # from the forward part
    placed: dict[int, tuple] = field(default_factory=dict)  # by the slot: how its gradient is one of a distributed tensor, placed otherwise


class Plan:
    """How a training region is divided.

    | field          | holds                                                                                       |
    |----------------|---------------------------------------------------------------------------------------------|
    | slots          | the tensors among `inputs`, once each                                                        |
    | rebased        | slots that are written with gradients flowing: the node works on copies of them              |
    | heads          | what the node returns: final values of `rebased`, and every output that is not (a view of) a |
    |                | slot, views by their roots                                                                   |
    | differentiable | the heads that have gradients                                                                |
    | wanted         | the slots that get gradients                                                                 |
    | exports        | symbols known only when the forward part has run, for what is around the node                |
    | replay         | view operations that make the outputs from slots and heads                                   |
    | forward_ops    | the forward part                                                                             |
    """

    def __init__(self, trace: Any, inputs: list[Any], outputs: list[Any], name: str, section: Section | None = None) -> None:
        self.trace = trace
        self.name = name
        self.section = section
        self.crossing = section.crossing if section is not None else []
        self.ends = ends(self.crossing)
        self.inputs = inputs
        self.outputs = outputs
        self.assumed: list[Any] = []  # the assertions that its backward part has added
        self.made_later: set[str] = set()  # symbols that some backward part of it makes known
        self.slots = list({t.vid: t for t in inputs if isinstance(t, TracedTensor)}.values())
        self.slot_vids = {t.vid for t in self.slots}
        self.program = section.ops if section is not None else trace.ops[: trace.n_forward]
        self.steps = views.output_steps(self.program, outputs)
        if views.outlived(self.program, views.view_steps(self.program), False):
            raise Reconsider(name, "an operation gives another layout in place to a view, which is made again behind the node", LAYOUTS)
        crossing = {t.vid for t in self.crossing}
        self.rebased = [t for t in self.slots if t.vid not in crossing and rebased(trace, t)]
        self.rebased_vids = {t.vid for t in self.rebased}
        self.refuse_overlap()
        self.refuse_detached()
        self.refuse_unread()
        roots = [views.root(t, self.steps) for t in liveness.tensors_of(outputs)]
        heads = self.rebased + [t for t in roots if t.vid not in self.slot_vids]
        self.heads = list({t.vid: t for t in heads}.values())
        # a head of which only `detach()` is seen gets no gradient
        self.unseen = section.leaves if section is not None else set()
        moving = [t for t in liveness.tensors_of(outputs) if t.requires_grad and t.vid not in self.unseen]
        seen = {views.root(t, self.steps).vid for t in moving} | self.rebased_vids
        self.differentiable = [h for h in self.heads if h.requires_grad and h.vid in seen]
        self.differentiable_vids = {h.vid for h in self.differentiable}
        self.freed = self.went_backward()
        leaves = [t for t in self.slots if self.leaf(t).is_leaf and self.leaf(t).requires_grad and t.vid not in self.unseen]
        begins = (crossing - self.unseen) | {t.vid for t in leaves}
        self.wanted = [t for t in self.slots if t.vid in begins]
        self.refuse_leaves()
        stop = self.slot_vids | {h.vid for h in self.heads}
        self.replay = views.chain(liveness.tensors_of(outputs), self.steps, stop, self.program)
        self.exports = self.run_time_symbols()
        self.kept_views = KeptViews(self.program, [t for t in self.slots if t.vid not in self.rebased_vids])
        self.same = cse.Same()
        told = [exit_of(trace, op).values for op in self.program if op.target in WAYS]  # what is stored where it leaves, or raises
        self.forward_ops = cse.without_repetition(self.program, [*self.heads, *liveness.tensors_of(told)], self.same)
        self.forward_steps = views.view_steps(self.forward_ops)

    def leaf(self, t: TracedTensor) -> TracedTensor:
        return t if any([t is c for c in self.crossing]) else self.trace.leaves.get(t.vid, t)

    def went_backward(self) -> bool:
        """Was `backward()` captured, so that the history of every head has been freed? `Reconsider` if only that of some has."""
        freed = self.trace.freed
        through = [bool(freed & nodes_under([h.grad_fn], self.ends) - self.ends) for h in self.differentiable] if freed else []
        if any(through) and (self.section is not None and not self.section.whole or not all(through)):
            raise Reconsider(self.name, "backward() has gone through a part of what the outputs depend on", "backward")
        return any(through)

    def refuse_leaves(self) -> None:
        """A leaf that the region has made is one for the program to see if it is an output, or all that an output has gradients from."""
        without = [op for op in self.program if not any(t.requires_grad for t in liveness.op_inputs(op))]
        made = {t.vid for op in without for t in liveness.op_outputs(op) if t.requires_grad} - self.slot_vids | self.trace.own_leaves
        moving = [t for t in liveness.tensors_of(self.outputs) if t.requires_grad and t.vid in made - self.unseen]
        shown = any(map(without_history, moving))
        views = views_without(self.program)
        if shown or not self.freed and (self.differentiable and not self.wanted or (made or views) and not self.from_inputs()):
            word = LEAF_VIEWS if views and not made else LEAF
            raise Reconsider(self.name, "an output has gradients that do not come from any input", word)

    def from_inputs(self) -> bool:
        """Whether the node of every head has edges: its history begins at an input, among others, or all are one node, which has all."""
        begins, heads = {self.leaf(t).vid for t in self.wanted}, self.differentiable
        under = [nodes_under([h.grad_fn], self.ends) for h in heads]
        begun = [any([n in self.ends or begun_at(n) in begins for n in nodes]) for nodes in under]
        return all(begun) or not any(begun) and len(together(heads, sharing(heads, self.ends), self.ends)) == 1

    def refuse_overlap(self) -> None:
        memory = self.trace.data_memory
        if self.section is not None and memory:
            memory = memory & {t.storage_id for op in self.program for t in liveness.written(op)}
        if any([t.storage_id in memory and (t.requires_grad or self.leaf(t).requires_grad) for t in self.slots]):
            raise Reconsider(self.name, "writes through .data to an input with gradients", DATA)
        for t in self.rebased:
            if any(o is not t and o.storage_id == t.storage_id for o in self.slots):
                raise Untraceable(self.name, "writes with gradients to an input that shares memory with another input")

    def refuse_detached(self) -> None:
        """An output that was detached and then written with gradients: as a view of what it was detached from it would have none."""
        for t in liveness.tensors_of(self.outputs):
            while t.requires_grad and t.vid in self.steps and t.vid not in self.trace.own_leaves:
                step = self.steps[t.vid]
                if step.op.target is views.DETACH:
                    raise Reconsider(self.name, "a write with gradients to what was detached", REBASED)
                t = step.base

    def refuse_unread(self) -> None:
        """An output that is a view of what got gradients by a write since, and that nobody has read: PyTorch refuses writes to it."""
        for root in unread(self.program, self.outputs, self.steps):
            if not had_gradients(self.trace, self.program, root, self.slot_vids, self.rebased_vids):
                raise Reconsider(self.name, "a view of what got gradients since", REBASED)

    def run_time_symbols(self) -> list[Any]:
        """Symbols bound by the forward part that the outputs or the replayed views mention."""
        bound = {name for names in liveness.binders(self.program).values() for name in names}
        found: dict[str, Any] = {}
        for value in liveness.leaves([[op.args, op.kwargs] for op in self.replay] + self.outputs):
            e = liveness.number(value)
            if e is not None:
                found.update((s.name, s) for s in self.trace.scope.simplify(e).symbols() if s.name in bound)
        return list(found.values())

    def asserts(self) -> list[Any]:
        """The assertions of this region: of a section, without those of others."""
        found = self.trace.scope.asserts
        if self.section is None:
            return found
        added = [c for c in self.assumed if self.section.foreign.isdisjoint([s.name for s in c.expr.symbols()])]
        own = {id(c) for c in (*self.section.asserts, *added)}
        return [c for c in found if id(c) in own]

    # the backward part --------------------------------------------------------------
    def trace_backward(
        self, mask: tuple[bool, ...], only: Set[int] | None = None, arrives: Mapping[int, tuple] = MappingProxyType({})
    ) -> Backward:
        """Run the autograd engine on the tape of the capture, for the differentiable heads in `mask`. `only`: of the slots whose gradients
        are wanted, those (vids) for which this part is; the others get None. `arrives`: by the head, how the gradient of a distributed
        result is placed, if not as usual."""
        trace = self.trace
        start, assumed = len(trace.ops), len(trace.scope.asserts)
        wanted = [t for t in self.wanted if only is None or t.vid in only]
        heads = [h for h, used in zip(self.differentiable, mask, strict=True) if used]
        # eager's backward usually runs outside of autocast
        asked = nullcontext() if arrives else layout.framework()  # a sharding has to be decided: no way is right for all sizes
        with trace.recording(), trace.forgetting(), asked, torch._C._ExcludeDispatchKeyGuard(AUTOCAST), ending(self.crossing):
            try:
                given = [arriving.expected(trace, h, arrives[h.vid]) if h.vid in arrives else (trace.tangent(h),) * 2 for h in heads]
            except RuntimeError as e:  # no memory is as large as a result: its kernel says so
                raise NoBackward(e) from e
            tangents = [t for t, _ in given]
            with arriving.taken():
                grads = self.gradients(heads, [self.leaf(t) for t in wanted], [g for _, g in given])
        placed = {t.vid: distributed_tensors.kind_of(g.whole) for t, g in zip(wanted, grads, strict=True) if type(g) is arriving.Arrived}
        grads = self.of_plain_tensors([g.whole._local_tensor if type(g) is arriving.Arrived else g for g in grads])
        self.assumed += trace.scope.asserts[assumed:]
        self.made_later.update(name for names in liveness.binders(trace.ops[start:]).values() for name in names)
        if trace.n_forward is None:
            trace.n_forward = start
        self.refuse_writes(trace.ops[start:], tangents)
        same = self.same.copy()
        ops, stands = self.kept_views.on_aliases(trace.ops[start:])
        ops, grads = cse.without_repetition(ops, [], same), list(cse.swap(grads, stands))
        found = {t.vid: cse.swap(g, same.tensors) for t, g in zip(wanted, grads, strict=True)}
        grads = [found.get(t.vid) for t in self.wanted]
        return self.with_reads(Backward(liveness.live_ops(ops, grads, tangents, keep_effects=False), tangents, grads, [], [], placed))

    def refuse_writes(self, ops: list[Op], tangents: list[Any]) -> None:
        """A write of the backward part to memory from before it, which a function of the program has kept: each run would have to do it."""
        made = {t.storage_id for t in tangents}
        made |= {t.storage_id for op in ops for t in liveness.op_outputs(op) if not liveness.mutable(op.target)}
        if any([t.storage_id not in made for op in ops for t in liveness.written(op)]):
            raise Reconsider(self.name, "its backward part writes to memory from before", PYTHON_BACKWARD)

    def gradients(self, heads: list[Any], targets: list[Any], tangents: list[Any]) -> list[Any]:
        """The autograd engine's gradients. An operator whose derivative cannot be recorded is left to eager: `Reconsider`."""
        trace = self.trace
        start = len(trace.ops)
        trace.failed_node = None
        try:
            return list(recorded_gradients(trace, heads, targets, tangents))
        except DataDependent as e:
            theirs = of_the_program(e)  # a function or hook, which CPython runs here: no graph goes on along one side
            name = self.forward_of(e.node, start) if theirs is None else None
            raise Reconsider(self.name, str(e), NO_DERIVATIVE + name if name is not None else theirs or PYTHON_BACKWARD) from e
        except (RuntimeError, Untraceable) as e:
            if isinstance(e, Reconsider) and e.what == REPLAYED:
                raise
            found = WITHOUT_DERIVATIVE.search(str(e))  # eager says so if ever gradients arrive
            if trace.wrapping and not isinstance(e, Reconsider):  # code of a class that is taken apart, maybe: eager says what it says
                raise Reconsider(self.name, str(e), WRAPPED) from e
            said = found[found.lastindex].replace(".", "::") if found is not None else None
            of_theirs = said is None and of_an_operator(e) is None and (isinstance(e, Untraceable) or WRITTEN_SINCE not in str(e))
            if of_theirs and (refusal := of_the_program(e)) is not None:
                raise Reconsider(self.name, str(e), refusal) from e  # what it raises, eager raises once gradients arrive
            name = self.operator_named(said, start) if said is not None else self.forward_of(trace.failed_node, start)
            invalid = None if name else self.of_invalid(str(e), start)
            if isinstance(invalid, type) or NO_GRADIENT in str(e):
                raise Reconsider(self.name, str(e), PYTHON_BACKWARD + (qualified(invalid) if invalid else "")) from e
            name = name or invalid or of_an_operator(e)
            if name is None and isinstance(e, RuntimeError):
                if WRITTEN_SINCE in str(e) and any([t.requires_grad for op in self.program for t in liveness.written(op)]):
                    raise Reconsider(self.name, str(e), UNCUT) from e  # eager says so if ever gradients arrive
                raise NoBackward(e) from e
            if name is None:
                raise
            raise Reconsider(self.name, str(e), NO_DERIVATIVE + name) from e
        except Reconsider:
            raise
        except Exception as e:  # of shape functions in Python, maybe of what the run knows, or of a function that an operator was given
            name = of_an_operator(e)
            if name is None and isinstance(e, OF_SHAPES) and of_the_program(e) is None:
                name = self.forward_of(trace.failed_node, start)
            if name is None and (refusal := of_the_program(e)) is not None:
                raise Reconsider(self.name, str(e), refusal) from e
            if name is None:
                raise
            raise Reconsider(self.name, str(e), NO_DERIVATIVE + name) from e

    def of_plain_tensors(self, grads: list[Any]) -> list[Any]:
        """Gradients, none of which is a wrapper: of a plain tensor, where a class of the program makes it one."""
        if not all([g is None or type(g) is TracedTensor for g in grads]):
            raise Reconsider(self.name, "the gradient of a plain tensor is one of a subclass", WRAPPED)
        return grads

    def operator_named(self, said: str, end: int) -> str:
        """The operator of the forward part that autograd means by this name: of a family (`special_zeta`) it says the last part alone."""
        names = {op.target._schema.name.removeprefix("aten::") for op in self.trace.ops[:end]}
        if said.startswith(IN_PLACE):
            said = f"{said.removeprefix(IN_PLACE)}_"
        return said if said in names else min([n for n in names if n.endswith("_" + said)], default=said)

    def forward_of(self, node: Any, end: int) -> str | None:
        """The name of the operator that has this node of the autograd graph."""
        for op in self.trace.ops[:end] if node is not None else ():
            if any([type(o) is TracedTensor and node_of(o) is node for o in op.outs]):
                return op.target._schema.name.removeprefix("aten::")
        return None

    def of_invalid(self, words: str, end: int) -> Any:
        """The name of the operator of which the engine says that its gradient has another size; the class, of an `autograd.Function`."""
        found = INVALID_OF.search(words)
        for op in self.trace.ops[:end] if found is not None else ():
            for o in op.outs:
                node = node_of(o) if type(o) is TracedTensor else None
                if node is not None and node.name() == found[1]:
                    return getattr(type(node), "_forward_cls", op.target._schema.name.removeprefix("aten::"))
        return None

    def with_reads(self, b: Backward) -> Backward:
        """Fill in what the backward part reads. A view of something that is kept anyway is not kept, but made again."""
        made = {t.vid for op in b.ops for t in liveness.tensors_of(op.outs)} | {t.vid for t in b.tangents}
        used = [*(t for op in b.ops for t in liveness.op_inputs(op)), *liveness.tensors_of(b.grads)]
        reads = {t.vid: t for t in used if t.vid not in made}
        reads = {vid: t for vid, t in reads.items() if t.constant is None}
        b.ops = self.checkpointed(reads) + b.ops
        kept = {t.vid for t in (*self.heads, *self.slots)} | {vid for vid in reads if vid not in self.forward_steps}
        again = [t for t in reads.values() if t.vid not in kept and self.base_in(t, kept) is not None]
        for t in again:
            del reads[t.vid]
            base = self.base_in(t, kept)
            reads[base.vid] = base
        b.ops = views.chain(again, self.forward_steps, kept, self.forward_ops) + b.ops
        b.reads = list(reads.values())
        found: dict[str, Any] = {}
        own = {name for names in liveness.binders(b.ops).values() for name in names}
        shapes: list[Any] = [(t.sizes, t.strides) for t in b.tangents]
        shapes += [(b.placed[t.vid][2:4], t.sizes) for t in self.wanted if t.vid in b.placed]
        for value in liveness.leaves([[op.args, op.kwargs] for op in b.ops] + b.grads + shapes):
            e = liveness.number(value)
            if e is not None:
                found.update((s.name, s) for s in self.trace.scope.simplify(e).symbols() if s.name not in own)
        b.symbols = list(found.values())
        return b

    def checkpointed(self, reads: dict[int, TracedTensor]) -> list[Any]:
        """Operations of checkpointed functions that make what the backward part reads: it need not be kept then. Changes `reads`."""
        marked = [op for op in self.forward_ops if op.again]
        if not marked:
            return []
        dirty = liveness.dirty_memory(self.program)
        heads = {h.vid for h in self.heads} | self.slot_vids
        pure = [op for op in marked if not (op.binds or liveness.has_effect(op) or liveness.mutable(op.target))]
        makers = {t.vid: op for op in pure for t in liveness.op_outputs(op)}
        wanted, needed = list(reads.values()), set()
        while wanted:
            t = wanted.pop()
            op = makers.get(t.vid)
            if op is None or t.vid in heads or any(x.storage_id in dirty for x in (t, *liveness.op_inputs(op))):
                if t.constant is None:
                    reads[t.vid] = t
                continue
            reads.pop(t.vid, None)
            if id(op) not in needed:
                needed.add(id(op))
                wanted += liveness.op_inputs(op)
        return [op for op in marked if id(op) in needed]

    def base_in(self, t: TracedTensor, kept: set[int]) -> TracedTensor | None:
        """The nearest tensor below the view `t` that is in `kept`."""
        while t.vid in self.forward_steps:
            t = self.forward_steps[t.vid].base
            if t.vid in kept:
                return t
        return None


WRITTEN_SINCE = "has been modified by an inplace operation"  # the engine's words
INVALID_OF = re.compile(r"[Ff]unction (\w+) returned an (?:invalid gradient|incorrect number of gradients)")
NO_GRADIENT = "expected Variable or None"  # what it says of any other thing that an `autograd.Function` has given back
INVALID = "returned an invalid gradient"  # the engine's word for one that has to be summed first, too, where it may not ask


def recorded_gradients(trace: Any, heads: list[Any], targets: list[Any], tangents: list[Any], differentiable: bool = False) -> tuple:
    """The autograd engine's gradients. PyTorch's Python code stands in for C++ code that wants integers; what even that wants is pinned."""
    start = len(trace.ops)
    try:
        with layout.whole_gradients(), unchecked():
            return engine_gradients(heads, targets, tangents, differentiable)
    except RuntimeError as e:
        if not any(text in str(e) for text in (*SYMBOLIC_REFUSED, INVALID)):
            raise
    del trace.ops[start:]
    with shape_functions(), layout.framework(last_try=True), unchecked():
        return engine_gradients(heads, targets, tangents, differentiable)


@contextmanager
def unchecked() -> Iterator[None]:
    """Nobody looks for NaN among what is traced, where the program has anomalies detected: its run of the node is looked at."""
    on = torch.is_anomaly_enabled() and torch.is_anomaly_check_nan_enabled()
    if on:
        torch.set_anomaly_enabled(True, False)
    try:
        yield
    finally:
        if on:
            torch.set_anomaly_enabled(True, True)


OF_SHAPES = (ArithmeticError, AssertionError, IndexError, ValueError)


def of_an_operator(e: Exception) -> str | None:
    """The operator whose derivative (`torch.library.register_autograd`) has raised this, as eager does once gradients arrive."""
    tb = e.__traceback__
    while tb is not None and tb.tb_frame.f_globals is not of_operators.__dict__:
        tb = tb.tb_next
    op = tb.tb_frame.f_locals.get("op") if tb is not None else None
    return op._schema.name.removeprefix("aten::") if isinstance(op, torch._ops.OpOverload) else None


def of_the_program(e: Exception) -> str | None:
    """The refusal of code of the program's that the engine ran and that raised this: an `autograd.Function`'s, or that of any hook."""
    tb = e.__traceback__
    while tb is not None and tb.tb_frame.f_code is not engine_gradients.__code__:
        tb = tb.tb_next
    frame = tb.tb_next.tb_frame if tb is not None and tb.tb_next is not None else None
    if frame is None:
        return None
    if frame.f_code is torch.autograd.function.BackwardCFunction.apply.__code__:
        if frame.f_locals["self"]._forward_cls.__module__.startswith("pliant."):
            return None
        return PYTHON_BACKWARD + qualified(frame.f_locals["self"]._forward_cls)
    return None if frame.f_globals.get("__name__", "").partition(".")[0] in ("torch", "pliant") else PYTHON_BACKWARD


def proxy(t: TracedTensor) -> TracedTensor:
    """A proxy with the metadata of `t`."""
    return make(t.trace, t.sizes, t.strides, t.dtype, t.offset, None, t.device, t.dense)


def copy_of(result: TracedTensor, source: TracedTensor) -> list[Op]:
    """Operations that make `result` a copy of `source` with the same strides."""
    options = {"dtype": source.dtype, "device": source.device}
    alloc = Op(aten.empty_strided.default, (result.sizes, result.strides), options, [result], None, None, -1)
    fill = Op(aten.copy_.default, (result, source), {}, [result], None, None, -1)
    return [alloc, fill]
