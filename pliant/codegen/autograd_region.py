"""Training regions: the captured graph as one differentiable node.

From the plan (`lower/autograd.py`) three straight-line programs are generated: forward, backward, and what is around the node. The
first two become the methods of a `torch.autograd.Function` made for this region. The third lets autograd see what it would
see in eager mode:

- outputs that are inputs are the inputs themselves; outputs that are views are made by replaying the view operations on the
  input, or on the node's result, that they are views of;
- an input that is written with gradients flowing is written by one `copy_` of its final value, on which autograd acts as usual;
- gradients that eager would leave None are None: for each set of outputs that received a gradient the engine is asked anew.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

from torch.utils._python_dispatch import _disable_current_modes

from pliant import native, turns
from pliant.codegen.aten import Executable, Lowering, Writer, build, tuple_text, ways_out
from pliant.codegen.batched_gradients import ASKED
from pliant.codegen.checkpointed import ON, draws, entered, why_not
from pliant.codegen.double_backward import Again, Twice
from pliant.codegen.failures import NEVER, Places, effects_of, remember
from pliant.codegen.flow import passes_views
from pliant.codegen.freed_results import Freed
from pliant.codegen.nodes import KEEP_GRAPH, Later, Part, held_late, late_of, node_of, refuse_spent, spend, spending, unspent, watching
from pliant.codegen.placed_gradients import Placed
from pliant.codegen.recipe_source import Repeated
from pliant.codegen.second_backward import SecondPart, Seconds, before_the_write
from pliant.codegen.version_counters import apart, written_slots
from pliant.errors import InternalError
from pliant.graph import arriving
from pliant.graph.growing import is_list
from pliant.graph.leaving import GRADIENTS
from pliant.graph.originals import ORIGINAL, gradients, is_grad_enabled, torch
from pliant.graph.read_later import CHANGED_SINCE
from pliant.graph.record import Op
from pliant.graph.traced import Reconsider, TracedTensor, Untraceable
from pliant.lower import liveness, pipeline, views
from pliant.lower.autograd import Backward, Plan, copy_of, needs_node, proxy
from pliant.lower.histories import Share, nodes, on_the_way, parted, reaching, sharing, together
from pliant.lower.kept_for_later import kept_for_later
from pliant.lower.leaves import nodes_under
from pliant.lower.program import Program
from pliant.lower.second_backward import Second, second_backward
from pliant.lower.sections import Section, begun_at

aten = torch.ops.aten


class Planned:
    """A captured region, or a section of it, whose plan is made. `outputs` are flat."""

    def __init__(self, trace: Any, inputs: list[Any], outputs: list[Any], name: str, section: Section | None = None) -> None:
        self.trace, self.inputs, self.name, self.section = trace, inputs, name, section
        self.flat = outputs
        plan = Plan(trace, inputs, self.flat, name, section) if needs_node(trace, inputs, self.flat) else None
        self.plan = plan if plan is not None and plan.differentiable else None
        if self.plan is not None and trace.exits:
            raise Reconsider(name, "gradients flow through the graph, which has a side exit", GRADIENTS)
        # gradients could flow although none does: what the capture saw was computed without autograd
        recording = trace.flags_changed or any([isinstance(t, TracedTensor) and t.requires_grad for t in inputs])
        self.hidden = is_grad_enabled() and recording
        # views of inputs that are made with gradients on, in a region that turns them on itself
        self.turned_on = not is_grad_enabled() and plan is not None and self.plan is None
        self.traced: Traced | None = None

    def build(self, lower: Lowering | None) -> Executable:
        if self.trace.stores and (self.plan is not None or self.section is not None):
            raise InternalError(f"{self.name}: a graph with gradients or in sections makes no effects itself")
        if self.plan is None:
            guard = True if self.hidden or self.turned_on else None
            ops, asserts = (None, None) if self.section is None else (self.section.ops, self.section.asserts)
            how = {"stores": self.trace.stores, "ops": ops, "asserts": asserts, "guard": guard, "lower": lower or pipeline.call_aten}
            made = build(self.trace, self.inputs, self.flat, name=self.name, **how)
            return replace(made, fn=with_grad(made.fn)) if self.turned_on else made
        region = AutogradRegion(self.plan, lower, self.traced)
        made = region.build()
        self.traced = region.traced
        return made


KEEP_SOMETHING = frozenset({"MulBackward0", "DivBackward0", "CopySlices"})
"""Nodes of eager's that keep something whatever they are of, for which no backward program asks: of `x * 2`, too, that number; of a write
to a part, the node that it stands for."""


@dataclass(slots=True)
class Node:
    """The programs of a differentiable region. `grad_on`: the grad mode that it is entered in; `heads`: how many results have
    gradients; `results`: of how many; `later`: what it becomes for inputs with a history or a hook; `shared`: the heads that have saved
    tensors in common, for each result; `kept`: how a checkpoint around it has it run (`checkpointed.entered`), None if it must not."""

    name: str
    forward: Executable
    parts: tuple[Part, ...]
    around: Executable
    twice: Twice
    grad_on: bool
    heads: int
    results: int
    later: Later
    shared: tuple[int | None, ...]
    kept: tuple[tuple[int, ...], bool] | None

    def executable(self) -> Executable:
        """The region, to be called."""
        fn = self.around.fn if self.grad_on else with_grad(self.around.fn)
        source = "\n".join((self.around.source, self.forward.source, *(p.backward.source for p in self.parts)))
        return Executable(fn, source, self.forward.n_ops + self.around.n_ops, self.around.globals, self)


@dataclass(frozen=True, slots=True)
class Traced:
    """The backward part for gradients of all heads, how the forward part is run again, which heads have saved tensors in common, and the
    nodes, each with its backward part: the same for every lowering. `watch`: the inputs that `later` nodes are for. `seconds`: for these
    nodes, gradients of gradients where the forward part cannot run again. `late`: what is kept besides for a backward part traced anew."""

    full: Backward
    again: Again
    shared: list[int]
    parts: list[tuple[Share, Backward]]
    watch: Set[int]
    later: list[Share]
    seconds: list[Second | None]
    late: list[TracedTensor]


class AutogradRegion:
    """Generates the programs of one plan and keeps what later calls of `backward` may need to generate more."""

    def __init__(self, plan: Plan, lower: Lowering | None = None, traced: Traced | None = None) -> None:
        self.plan = plan
        self.lower = lower
        self.traced = traced
        self.name = plan.name
        self.scope = plan.trace.scope
        self.partial: dict[tuple, Callable] = {}

    def build(self) -> Executable:
        """Trace the backward part, generate the three programs, make the node."""
        if self.plan.freed:
            return self.write_freed()
        if self.traced is None:
            self.traced = self.trace()
        self.shared, self.late = self.traced.shared, self.traced.late
        again, seconds = self.traced.again, [None if s is None else self.second_with_sizes(s) for s in self.traced.seconds]
        self.full = self.with_what_they_read(self.with_sizes(self.traced.full), seconds)
        bare = tuple([i for i, t in enumerate(self.plan.inputs) if isinstance(t, TracedTensor) and not self.plan.leaf(t).requires_grad])
        read = {t.vid for t in self.full.reads}
        self.direct = tuple([i for vid, i in self.place_of().items() if vid in read]) if self.lower is not None else ()
        repeated = Repeated("aten" if self.lower is None else "native")
        self.twice = Twice(again.refusal, lambda: again.recipe, self.gives(), repeated, bare, again.places, self.direct)
        with_gradients = [(i, t) for i, t in enumerate(self.plan.inputs) if isinstance(t, TracedTensor) and i not in bare]
        self.twice.dtypes = tuple([(i, t.dtype) for i, t in with_gradients])
        forward = self.write_forward()
        parts = tuple([self.write_part(share, self.with_sizes(b), s) for (share, b), s in zip(self.traced.parts, seconds, strict=True)])
        results = len(self.plan.heads) + len(self.plan.exports)
        apply = node_of(self.name, forward.fn, parts, results)
        watch = tuple([i for i, s in enumerate(self.plan.inputs) if isinstance(s, TracedTensor) and s.vid in self.traced.watch])
        if watch:
            apply = watching(watch, apply, functools.partial(self.build_later, forward.fn, results))
        kept = None if why_not(self.plan) else (self.without_gradients(), draws(self.plan))
        known = checkpoint_globals(kept, apply, forward.fn) if any(self.shared) else {}
        later = Later(watch, tuple([(self.results_of(s.mask), self.places_of(s.slots), s.through) for s in self.traced.later if watch]))
        of_nodes = [range(results) if p.heads is None else p.heads for p in parts] + [heads for heads, *_ in later.nodes]
        behind = {i for heads in of_nodes for i in heads[1:]}
        noted = effects_of(forward.fn) != NEVER
        around, heads = self.write_around({"_apply": apply, **known}, behind, noted), self.plan.differentiable
        if noted or self.plan.rebased:
            remember(around.fn, Places({}, ENTRANCE + noted + 1, (), ENTRANCE + 1 if noted else 0))
        shared = self.shared_by_result()
        return Node(self.name, forward, parts, around, self.twice, is_grad_enabled(), len(heads), results, later, shared, kept).executable()

    def without_gradients(self) -> tuple[int, ...]:
        """The places of the results that are tensors without a history."""
        return tuple([i for i, h in enumerate(self.plan.heads) if h.vid not in self.plan.differentiable_vids and not is_list(h)])

    def shared_by_result(self) -> tuple[int | None, ...]:
        """For each result, the heads that have saved tensors in common with it, as bits; None if it has no gradients."""
        by_head = dict(zip((h.vid for h in self.plan.differentiable), self.shared, strict=True))
        return tuple([by_head.get(h.vid) for h in self.plan.heads])

    def trace(self) -> Traced:
        """Trace the backward part, as a whole and by the parts that are nodes of their own."""
        plan, heads = self.plan, self.plan.differentiable
        full, shared = plan.trace_backward((True,) * len(heads)), sharing(heads, plan.ends)
        masks = together(heads, shared, plan.ends)
        leaves = {plan.leaf(t).vid: t.vid for t, g in zip(plan.wanted, full.grads, strict=True) if g is not None}
        found = reaching(heads, plan.crossing, plan.ends) if len(heads) > 1 else {}
        reached = {leaves[vid]: bits for vid, bits in found.items() if vid in leaves}
        apart = parted(masks, reached)
        own = [Share(mask, None, False) for mask in masks]
        finer = nodes(masks, reached) if apart else own
        known = not apart.isdisjoint({*plan.trace.leaves, *plan.trace.watched, *(t.vid for t in plan.crossing)})
        parts = [(share, self.traced_for(full, share)) for share in (finer if known else own)]
        again = Again(plan, full.reads)
        seconds = [second_backward(plan, share.mask, share.slots) if again.refusal else None for share, _ in parts]
        return Traced(full, again, shared, parts, frozenset() if known else apart, finer, seconds, kept_for_later(plan))

    def second_with_sizes(self, s: Second) -> Second:
        return replace(s, program=self.with_sizes(s.program))

    def with_what_they_read(self, full: Backward, seconds: list[Second | None]) -> Backward:
        """The backward part, with what programs for gradients of gradients read kept for them, too."""
        programs = [s.program for s in seconds if s is not None]
        reads = {t.vid: t for t in (*full.reads, *(t for p in programs for t in p.reads))}
        symbols = {s.name: s for s in (*full.symbols, *(s for p in programs for s in p.symbols))}
        if self.plan.trace.wholes or self.plan.trace.read_later.places:  # which of them another backward part needs is not known yet
            symbols |= {s.name: s for s in self.of_inputs()}
        return replace(full, reads=list(reads.values()), symbols=list(symbols.values()))

    def of_inputs(self) -> list[Any]:
        """The symbols that inputs of the region tell."""
        shapes = [(t.sizes, t.strides) if isinstance(t, TracedTensor) else t for t in self.plan.inputs]
        return [s for v in liveness.leaves(shapes) if (e := liveness.number(v)) is not None for s in e.symbols() if s.backed]

    def traced_for(self, full: Backward, share: Share) -> Backward:
        """The backward part of a node. If that needs more than was saved or guarded, others get gradients of zero."""
        if share.slots is None and all(share.mask):
            return full
        return self.trace_partial(full, share.mask, share.slots) or self.zeros(full, share.mask, share.slots)

    def build_later(self, forward: Callable, results: int) -> Callable:
        """The node, made of those for inputs with a history or hooks."""
        assert self.traced is not None
        with turns.compiling, _disable_current_modes():
            parts = [self.write_part(share, self.with_sizes(self.traced_for(self.full, share))) for share in self.traced.later]
            return node_of(self.name, forward, parts, results)

    def write_part(self, share: Share, b: Backward, second: Second | None = None) -> Part:
        """A node: its results, the inputs that it has edges to, its backward program."""
        twice = replace(self.twice)
        backward = self.write_backward(b, share, twice)
        twice.backward = backward.fn
        heads = self.results_of(share.mask)
        known = {(True,) * len(heads): self.write_second(share, second)} if second is not None else {}
        twice.placed = Placed(self, share) if self.plan.trace.wholes else None
        twice.second = Seconds(heads, known, functools.partial(self.build_second, share))
        reached = frozenset(t.vid for t, g in zip(self.plan.wanted, b.grads, strict=True) if g is not None)
        if share.slots is None and all(share.mask) and len(reached) in (len(self.plan.wanted), 0):
            return Part(None, None, False, backward, twice)
        return Part(self.results_of(share.mask), self.places_of(reached), share.through, backward, twice)

    def results_of(self, mask: tuple[bool, ...]) -> tuple[int, ...]:
        """The places of these heads among the results."""
        own = {h.vid for h, on in zip(self.plan.differentiable, mask, strict=True) if on}
        return tuple([i for i, h in enumerate(self.plan.heads) if h.vid in own])

    def places_of(self, vids: Set[int] | None) -> tuple[int, ...]:
        """The places of these inputs, once each; of all that have gradients, for None."""
        own = {t.vid for t, g in zip(self.plan.wanted, self.full.grads, strict=True) if g is not None} if vids is None else vids
        return tuple(sorted([i for vid, i in self.place_of().items() if vid in own]))

    def place_of(self) -> dict[int, int]:
        """The place of each slot (vid) among the inputs, its first."""
        return {t.vid: i for i, t in reversed([*enumerate(self.plan.inputs)]) if isinstance(t, TracedTensor)}

    def gives(self) -> tuple[int | None, ...]:
        """For each input, which of the wanted gradients is its own."""
        found = {t.vid: i for i, t in enumerate(self.plan.wanted)}
        return tuple([found.pop(s.vid, None) if isinstance(s, TracedTensor) else None for s in self.plan.inputs])

    def with_sizes(self, b: Backward) -> Backward:
        """The backward part with the sizes that kernels need, and ATen reads from its operands."""
        if self.lower is None:
            return b
        found = {s.name: s for s in b.symbols}
        own = {name for names in liveness.binders(b.ops).values() for name in names}
        shapes = [(t.sizes, t.strides, t.offset) for op in b.ops for t in (*liveness.op_inputs(op), *liveness.op_outputs(op))]
        for e in {liveness.number(value) for value in liveness.leaves(shapes) if type(value) is not int} - {None}:
            found.update((s.name, s) for s in self.scope.simplify(e).symbols() if s.name not in own)
        return replace(b, symbols=list(found.values()))

    def write_backward(self, b: Backward, share: Share, twice: Twice | None = None, relaid: bool = False, once: bool = False) -> Executable:
        """`backward(ctx, one gradient per result of the region) -> one gradient per slot`. `twice`: of a node's own, which the engine
        calls; the others are for gradients of some of its results. `relaid`: `backward(ctx, what was kept, gradients)`, of ATen's calls,
        for inputs whose data has another layout by now. `once`: it runs this time alone, as ATen's calls."""
        mask, used = share.mask, iter(b.tangents)
        arrives = {h.vid: next(used) for h, on in zip(self.plan.differentiable, mask, strict=True) if on}
        params = [f"g{i}" for i in range(len(self.plan.heads) + len(self.plan.exports))]
        sizes = [s.name for s in self.full.symbols]

        def preamble(w: Writer) -> list[str]:
            lines = []
            later = self.plan.trace.read_later
            if twice is not None and later.places:
                told = tuple_text(list(map(str, self.shared_by_result())))
                w.globals.update(_as_read=later, _read_anew=functools.partial(self.run_anew, share))
                lines.append(f"if not _as_read(): return _read_anew(ctx, {told}, {', '.join(params)})")
            if twice is not None:
                w.globals.update(_grad_on=is_grad_enabled, _twice=twice, _partial=functools.partial(self.run_partial, share))
                w.globals.update(ASKED)
                arriving = [f"g{i}" for i, h in enumerate(self.plan.heads) if h.vid in arrives]
                kinds = "(type({0}) is not _Tensor and _told({0}) or _wrapped({0}) or _batched({0}))"
                odd = " or ".join(f"({g} is not None and {kinds.format(g)})" for g in arriving)
                lines.append(f"if _grad_on() or {odd}: return _twice(ctx, {', '.join(params)})")
                missing = " or ".join(f"g{i} is None" for i, h in enumerate(self.plan.heads) if h.vid in arrives)
                told = tuple_text(list(map(str, self.shared_by_result())))
                lines.append(f"if {missing}: return _partial(ctx, {told}, {', '.join(params)})")
            own = {t.vid for t in b.reads}
            at = [i for i, t in enumerate(self.full.reads) if len(mask) == 1 or t.vid in own]
            names = [f"v{self.full.reads[i].vid}" for i in at]
            w.names.update((self.full.reads[i].vid, name) for i, name in zip(at, names, strict=True))
            read = f"{', '.join(names)}{',' if len(names) == 1 else ''} = " if names else ""
            watched = tuple_text([f"_slots[{i}]" for i in self.direct])[1:-1] if not relaid else ""
            if watched:
                lines.append("_slots = ctx.slots")
            late = [(i, t) for i, t in enumerate(self.late if once else ()) if t.vid in own and t.vid not in w.names]
            if late:
                w.globals["_late"] = late_of
                w.names.update((t.vid, f"v{t.vid}") for _, t in late)
                lines.append(f"{', '.join([f'v{t.vid}' for _, t in late])}, = _late(ctx, {tuple_text([str(i) for i, _ in late])})")
            lines += [f"{read}kept"] * bool(read) if relaid else self.taking(w, read, share, at)
            if watched:
                w.globals.update(_layouts=native.layouts, _relaid=Relaid(self, b, share))
                lines.append(f"if _layouts({watched}) != ctx.layouts: return _relaid(ctx, {tuple_text(names)}, {', '.join(params)})")
            if sizes:
                lines.append(f"{', '.join(sizes)}{',' if len(sizes) == 1 else ''} = ctx.sizes")
                w.learn(*sizes)
            for i, h in enumerate(self.plan.heads):
                if h.vid in arrives:
                    w.names[arrives[h.vid].vid] = f"g{i}"
                    lines.extend(self.laid_out(w, f"g{i}", arrives[h.vid]))
            return lines

        def closing(w: Writer, items: list[str]) -> list[str]:
            by_slot = dict(zip((t.vid for t in self.plan.wanted), items, strict=True))
            lines = self.given_placed(w, b, by_slot)
            seen: set[int] = set()
            out = []
            for slot in self.plan.inputs:
                vid = slot.vid if isinstance(slot, TracedTensor) else -1
                out.append("None" if vid in seen else by_slot.get(vid, "None"))
                seen.add(vid)
            return [*lines, f"return {tuple_text(out)}"]

        name, checks, ops = f"{self.name}_backward", self.checks_of(b), b.ops
        leading = ("ctx", *(["kept"] if relaid else []), *params)
        if self.lower is not None and not relaid and not once:
            given = [*self.full.reads, *b.tangents, *self.full.symbols]
            ops = self.lower(Program(name, self.scope, given, b.grads, ops, asserts=[c.expr for c in checks])).steps
        writer = Writer(name, self.scope, [], b.grads, ops, checks, leading=leading, preamble=preamble, closing=closing)
        return writer.finish(True)

    def build_second(self, share: Share, given: tuple[bool, ...]) -> SecondPart | None:
        """The program for gradients of gradients if only some heads of the node got one. None if it needs more than was kept."""
        on = iter(given)
        mask = tuple([used and next(on) for used in share.mask])
        with _disable_current_modes():
            made = second_backward(self.plan, mask, share.slots) if any(mask) else None
            if made is None:
                return None
            made, known = self.second_with_sizes(made), {s.name for s in self.full.symbols}
            kept = {t.vid for t in [*self.full.reads, *self.late]}
            enough = all([t.vid in kept for t in made.program.reads]) and all([s.name in known for s in made.program.symbols])
            return self.write_second(replace(share, mask=mask), made) if enough else None

    def write_second(self, share: Share, s: Second) -> SecondPart:
        """The program for gradients of the gradients of a node, and how it is called."""
        b, place_of = s.program, self.place_of()
        used, n = frozenset().union(*[found for found in s.begins if found is not None]), len(s.wanted)
        at = [i for i in range(len(b.grads)) if i in used or i >= n]  # of an input that no gradient depends on nobody asks
        results, order = [b.grads[i] for i in at], {i: k for k, i in enumerate(at)}
        own = {t.vid for t in b.reads}
        names = [f"v{t.vid}" if t.vid in own else f"_{i}" for i, t in enumerate(self.full.reads)]
        own -= {t.vid for t in self.full.reads}
        late = [(i, t) for i, t in enumerate(self.late) if t.vid in own]
        names += [f"v{t.vid}" for _, t in late]
        sizes = [e.name for e in self.full.symbols]
        params = [f"g{i}" for i in range(len(b.tangents))]

        def preamble(w: Writer) -> list[str]:
            lines = [f"{tuple_text(taken)} = {given}" for taken, given in ((names, "kept"), (sizes, "sizes")) if taken]
            w.names.update((t.vid, f"v{t.vid}") for t in b.reads)
            w.learn(*sizes)
            for name, tangent in zip(params, b.tangents, strict=True):
                w.names[tangent.vid] = name
                lines.extend(self.laid_out(w, name, tangent))
            return lines

        def closing(w: Writer, items: list[str]) -> list[str]:
            return [f"return {tuple_text(items)}"]

        name, checks, ops = f"{self.name}_second", self.checks_of(b), b.ops
        if self.lower is not None:
            given = [*self.full.reads, *[t for _, t in late], *b.tangents, *self.full.symbols]
            ops = self.lower(Program(name, self.scope, given, results, ops, asserts=[c.expr for c in checks])).steps
        leading = ("kept", "sizes", *params)
        program = Writer(name, self.scope, [], results, ops, checks, leading=leading, preamble=preamble, closing=closing).finish(True)
        moving = [(place_of[t.vid], found) for t, found in zip(s.wanted, s.begins, strict=True) if found is not None]
        begins = tuple([frozenset([order[i] for i in found]) for _, found in moving])
        sources = tuple([place_of[s.wanted[i].vid] for i in at if i < n])
        heads, kept = self.results_of(share.mask), (len(self.full.reads), tuple([i for i, _ in late]), bool(sizes))
        return SecondPart(program, heads, tuple([p for p, _ in moving]), sources, begins, *kept, s.delayed, s.still)

    def taking(self, w: Writer, read: str, share: Share, at: list[int]) -> list[str]:
        """Lines that take what was kept, `at` these places, refuse what was freed, and free; nothing is freed where eager keeps no tensors
        either."""
        mask = share.mask
        lines = [f"{read}ctx.saved_tensors"] if read else []
        if len(mask) == 1:
            w.globals["_keep"] = KEEP_GRAPH  # each is freed behind its last reader
            if not self.shared[0]:
                return lines
            under = on_the_way(self.plan.differentiable, self.plan.ends, {self.plan.leaf(t).vid for t in self.plan.wanted})
            if not read and any([type(n).__name__ in KEEP_SOMETHING for n in under]):
                w.globals["_refused"] = refuse_spent  # eager has kept it, and says that it is gone
                lines = ["if ctx.slots is None: _refused()"]
            late = "ctx.late = " * bool(self.late)
            return [*lines, f"if not _keep(): {late}ctx.slots = None; ctx.maybe_clear_saved_tensors()"]
        used, refused, whole = spending(self.shared, mask)
        places = tuple_text(list(map(str, at))) if self.full.reads else "None"
        if share.through:
            w.globals["_unspent"] = unspent
            return [f"{read}_unspent(ctx, {refused}, {places})"]
        w.globals["_spend"] = spend
        return [f"{read}_spend(ctx, {used}, {refused}, {whole}, {places})"]

    def checks_of(self, b: Backward) -> list[Any]:
        """The assertions over symbols that only the backward part makes known."""
        made = {name for names in liveness.binders(b.ops).values() for name in names}
        known = made | {s.name for s in self.full.symbols}
        found = [(c, {s.name for s in c.expr.symbols()}) for c in self.plan.asserts()]
        return [c for c, names in found if names & made and names <= known]

    def laid_out(self, w: Writer, name: str, tangent: TracedTensor) -> list[str]:
        """Lines that give an incoming gradient the strides it was traced with."""
        if tangent.dense:
            w.globals["_dense"] = row_major
            return [f"{name} = _dense({name})"]
        strides, sizes = w.text(tangent.strides, set()), w.text(tangent.sizes, set())
        w.globals["_restride"] = restride
        return [*w.take_pending(), f"{name} = _restride({name}, {sizes}, {strides})"]

    def given_placed(self, w: Writer, b: Backward, by_slot: dict[int, str]) -> list[str]:
        """Lines that have gradients of distributed inputs say how they are placed, where that is not as usual."""
        lines = []
        for i, t in enumerate(self.plan.wanted):
            if t.vid in b.placed and by_slot[t.vid] != "None":
                cls, form, sizes, strides, dtype = b.placed[t.vid]
                w.globals[f"_placed{i}"] = functools.partial(arriving.given, cls, form, dtype)
                shapes = ", ".join([w.text(tuple(x), set()) for x in (sizes, strides, t.sizes)])
                lines += [*w.take_pending(), f"p{i} = _placed{i}({by_slot[t.vid]}, {shapes})"]
                by_slot[t.vid] = f"p{i}"
        return lines

    def run_partial(self, share: Share, ctx: Any, shared: tuple, *grads: Any) -> tuple:
        """The backward program of a node for gradients of which some are None: eager leaves what only those reach at None."""
        mask = tuple(grads[i] is not None for i, h in enumerate(self.plan.heads) if h.vid in self.plan.differentiable_vids)
        if not any(mask):
            return (None,) * len(self.plan.inputs)
        key = mask, share.slots, share.through
        fn = self.partial.get(key)
        if fn is None:
            with turns.compiling:  # the background may be lowering this very region
                fn = self.partial.get(key) or self.partial.setdefault(key, self.build_partial(replace(share, mask=mask)))
        return fn(ctx, *grads)

    def run_anew(self, share: Share, ctx: Any, shared: tuple, *grads: Any) -> tuple:
        """The backward part where a function of the program's, or a hook, would read something else than where it was captured: traced
        anew, as CPython runs that code now. Nobody keeps it."""
        mask = tuple(grads[i] is not None for i, h in enumerate(self.plan.heads) if h.vid in self.plan.differentiable_vids)
        if not any(mask):
            return (None,) * len(self.plan.inputs)
        odd = any([g is not None and (ASKED["_wrapped"](g) or ASKED["_batched"](g)) for g in grads])
        with turns.compiling, _disable_current_modes():
            now = replace(share, mask=mask)
            try:
                b = None if odd else self.trace_partial(self.full, mask, share.slots, self.late)
            except Reconsider as e:
                raise theirs(e) from None
            if b is None:
                raise RuntimeError(CHANGED_SINCE)
            fn = self.write_backward(self.with_sizes(b), now, once=True).fn
        if not is_grad_enabled():
            found: tuple = fn(ctx, *grads)
            return found
        return self.twice.anew(ctx, fn, Seconds(self.results_of(mask), {}, functools.partial(self.build_second, now)), grads)

    def build_partial(self, share: Share) -> Callable:
        """Trace the backward part for some heads of a node."""
        with _disable_current_modes():
            return self.write_backward(self.with_sizes(self.traced_for(self.full, share)), share).fn

    def trace_partial(
        self, full: Backward, mask: tuple[bool, ...], only: Set[int] | None, late: Sequence[TracedTensor] = ()
    ) -> Backward | None:
        """The backward part for `mask`. None if that needs more than what `full` reads, which is saved, or `late`, or more than what
        is guarded."""
        scope = self.scope
        guards, asserts = len(scope.guards), len(scope.asserts)
        b = self.plan.trace_backward(mask, only)
        kept, known = {t.vid for t in [*full.reads, *late]}, {s.name for s in self.with_sizes(full).symbols}
        enough = all(t.vid in kept for t in b.reads) and all(s.name in known for s in self.with_sizes(b).symbols)
        return b if enough and len(scope.guards) == guards and len(scope.asserts) == asserts else None

    def zeros(self, full: Backward, mask: tuple[bool, ...], only: Set[int] | None) -> Backward:
        """The backward part for all heads, with gradients of zero for those that are not in `mask`."""
        zeros = [
            Op(aten.zeros.default, (t.sizes,), {"dtype": t.dtype, "device": t.device}, [t], None, None, -1)
            for t, used in zip(full.tangents, mask, strict=True)
            if not used
        ]
        tangents = [t for t, used in zip(full.tangents, mask, strict=True) if used]
        grads = [g if only is None or t.vid in only else None for t, g in zip(self.plan.wanted, full.grads, strict=True)]
        ops = zeros + full.ops
        if only is not None:
            ops = liveness.live_ops(ops, grads, tangents, keep_effects=False)
        return Backward(ops, tangents, grads, full.reads, full.symbols, full.placed)

    def write_freed(self) -> Executable:
        """`backward()` was captured with the rest: outputs that have a history say that it is gone."""
        plan = self.plan
        made = build(plan.trace, plan.inputs, plan.outputs, name=self.name, guard=True, lower=self.lower or pipeline.call_aten)
        heads = {h.vid for h in plan.differentiable}
        made_here = [(i, t) for i, t in enumerate(plan.outputs) if isinstance(t, TracedTensor) and t.requires_grad]
        at = [i for i, t in made_here if views.root(t, plan.steps).vid in heads]
        bare = [i for i in at if plan.outputs[i].is_leaf]
        begins = {begun_at(n) for n in nodes_under([h.grad_fn for h in plan.differentiable], plan.ends)}
        given = [(i, t) for i, t in enumerate(plan.inputs) if isinstance(t, TracedTensor) and t.requires_grad]
        through = [i for i, t in given if plan.leaf(t).vid in begins or not plan.leaf(t).is_leaf]
        return Freed(made, at, through, bare).executable()

    # the forward part ---------------------------------------------------------------
    def write_forward(self) -> Executable:
        """`forward(ctx, *slots) -> heads, then numbers that only this run knows`."""
        proxies = {t.vid: proxy(t) for t in self.plan.rebased}
        inputs = [proxies.get(t.vid, t) if isinstance(t, TracedTensor) else t for t in self.plan.inputs]
        copies = [op for t in self.plan.rebased for op in copy_of(t, proxies[t.vid])]
        noted, ops = ways_out(self.plan.trace, copies + self.plan.forward_ops, list(liveness.tensors_of(inputs)), f"{self.name}_forward")
        known = self.plan.kept_views
        under = {t.vid: known.slots[vid] for vid, t in known.aliases.items()}
        reads = [under.get(t.vid, t) for t in self.full.reads]
        late = [under.get(t.vid, t) for t in self.late]
        values = [*self.plan.heads, *self.plan.exports, *reads, *self.full.symbols, *late]
        checks = [c for c in self.plan.asserts() if self.plan.made_later.isdisjoint([s.name for s in c.expr.symbols()])]
        p = Program(f"{self.name}_forward", self.scope, inputs, [*values, *noted], ops, asserts=[c.expr for c in checks], closed=False)
        p = pipeline.run(p, (pipeline.DCE,))
        seen = bool(self.plan.trace.data_memory) or not passes_views(p.steps, views.output_steps(p.steps, self.plan.heads))
        written = written_slots(p.steps, liveness.tensors_of(inputs))
        p = (self.lower or pipeline.call_aten)(p)

        def closing(w: Writer, items: list[str]) -> list[str]:
            n, m = len(self.plan.heads) + len(self.plan.exports), len(self.plan.heads) + len(self.plan.exports) + len(self.full.reads)
            k = m + len(self.full.symbols)
            theirs = self.of_inference(w.params, inputs) + self.of_inference(items[n:m], reads) + self.of_inference(items[k:], late)
            copied = {name: f"_apart({name})" for name in theirs}
            if copied:
                w.globals["_apart"] = apart
            lines = [f"ctx.slots = {tuple_text([copied.get(p, p) for p in w.params])}"]
            own = [f"ctx.slots[{i}]" if p in copied else p for i, p in enumerate(w.params)]
            if not self.twice.refusal:
                read = [w.params[i] for i in self.twice.read]
                lines.append(f"ctx.versions = {tuple_text(['0' if p in copied else f'{p}._version' for p in read])}")
                w.globals["_places"] = native.places
                lines.append(f"ctx.places = _places({', '.join([own[i] for i in self.twice.read])})")
            if self.direct:
                w.globals["_layouts"] = native.layouts
                lines.append(f"ctx.layouts = _layouts({', '.join([own[i] for i in self.direct])})")
            if reads:
                w.globals["_memory"] = ORIGINAL.detach
                named = zip(items[n:m], self.full.reads, strict=True)
                kept = [copied.get(i) or (f"_memory({i})" if t.vid in under else i) for i, t in named]
                lines.append(f"ctx.save_for_backward({', '.join(kept)})")
            if self.full.symbols:
                lines.append(f"ctx.sizes = {tuple_text(items[m:k])}")
            if late:
                w.globals["_held_late"] = held_late
                lines.append(f"ctx.late = _held_late({', '.join([copied.get(i, i) for i in items[k:]])})")
            plain = self.without_gradients()
            if plain:
                lines.append(f"ctx.mark_non_differentiable({', '.join(items[i] for i in plain)})")
            if len(self.shared) > 1:
                lines.append("ctx.spent, ctx.kept, ctx.at = 0, None, None")
            lines.append("ctx.set_materialize_grads(False)")
            return [*lines, f"return {tuple_text(items[:n])}"]

        return Writer(p.name, self.scope, inputs, values, p.steps, checks, leading=("ctx",), closing=closing, written=written).finish(seen)

    def of_inference(self, names: Iterable[str], values: Iterable[Any]) -> list[str]:
        """Which of these are inference tensors, whose versions nobody counts: what the backward part reads of them lies apart.
        Autograd, which refuses to keep them, has let the capture pass."""
        known = self.plan.trace.of_inference
        return [name for name, t in zip(names, values, strict=True) if isinstance(t, TracedTensor) and t.storage_id in known]

    # around the node ------------------------------------------------------------------
    def write_around(self, known: dict[str, Any], behind: Set[int], noted: bool) -> Executable:
        """`region(*slots) -> outputs`: call the node, write rebased inputs back, replay the views. `behind`: results that are not the
        first of their node. `noted`: the forward part has effects; autograd, which may refuse the history of an input, is asked first."""

        def preamble(w: Writer) -> list[str]:
            w.globals.update(known)
            results = [f"r{i}" for i in range(len(self.plan.heads))] + [e.name for e in self.plan.exports]
            w.learn(*(e.name for e in self.plan.exports))
            given = w.params
            if self.twice.refusal and self.plan.rebased:  # gradients of gradients will want the history that it had before
                w.globals["_before"] = before_the_write
                rebased = [isinstance(t, TracedTensor) and t.vid in self.plan.rebased_vids for t in self.plan.inputs]
                given = [f"_before({p})" if on else p for p, on in zip(given, rebased, strict=True)]
            called = "(_kept if _on else _apply)" if "_kept" in known else "_apply"
            lines = [f"{tuple_text(results)[1:-1]} = {called}({', '.join(given)})"]
            if noted:
                wanted = [isinstance(t, TracedTensor) and t.requires_grad for t in self.plan.inputs]
                w.globals["_asked"] = asked
                lines.insert(0, f"_asked({', '.join([p for p, on in zip(w.params, wanted, strict=True) if on])})")
            read = {t.vid for t in self.full.reads}
            for i, h in enumerate(self.plan.heads):
                if h.vid in self.plan.rebased_vids:
                    lines.append(f"{w.names[h.vid]}.copy_(r{i})")
                    continue
                w.names[h.vid] = f"r{i}"
                if i in behind and h.vid in self.plan.differentiable_vids:
                    name, put = ("_first_read", first_of_read) if h.vid in read else ("_first", first)
                    if put is first and not h.dtype.is_complex:
                        name, put = "_first_plain", FIRST
                    w.globals[name] = put
                    lines.append(f"{name}(r{i})")
            return lines

        plan = self.plan
        return Writer(self.name, self.scope, plan.inputs, plan.outputs, [], [], preamble=preamble, replay=plan.replay).finish(False)


def theirs(e: BaseException) -> BaseException:
    """What the program's code raised, if that is why a backward part could not be traced."""
    while isinstance(e, Reconsider) and e.__cause__ is not None:
        e = e.__cause__
    return RuntimeError(CHANGED_SINCE) if isinstance(e, Untraceable) else e


class Relaid:
    """The backward program where the data of an input that it reads got another layout since (`w.data = w.data.half()`), as eager's
    operations are called with what is there now; compiled code knows the layout that was there."""

    def __init__(self, region: Any, b: Backward, share: Share) -> None:
        self.written = functools.partial(region.write_backward, b, share, relaid=True)

    @functools.cached_property
    def program(self) -> Executable:
        with turns.compiling, _disable_current_modes():
            made: Executable = self.written()
        return made

    def __call__(self, ctx: Any, kept: tuple, *grads: Any) -> tuple:
        return self.program.fn(ctx, kept, *grads)


ENTRANCE = 2
"""The line of what is around a node that calls it; the next one, where its inputs are asked for their histories first."""

FIRST = torch.ops.aten.lift.default
"""Puts a node of its own on top of a tensor's history; the tensor stays the object that it is. Of a node's results PyTorch moves what keeps
the gradient (`retain_grad`) right for the first alone, where the result is written then: for others it asserts, or reads past the end."""


class Unchanged(torch.autograd.Function):
    """What `FIRST` does, which PyTorch refuses for complex numbers."""

    @staticmethod
    def forward(ctx: Any, t: torch.Tensor) -> torch.Tensor:
        ctx.mark_dirty(t)
        return t

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return grad


def first(t: torch.Tensor) -> None:
    """`FIRST` of any dtype; nothing is written."""
    if not t.dtype.is_complex:
        FIRST(t)
        return
    version = t._version
    Unchanged.apply(t)
    torch._C._autograd._unsafe_set_version_counter((t,), (version,))  # type: ignore[attr-defined]


def first_of_read(t: torch.Tensor) -> None:
    """The same for a result that the backward program reads: its node knows the tensor, for gradients of gradients."""
    node: Any = t.grad_fn
    at = t.output_nr
    first(t)
    node.above = {**getattr(node, "above", {}), at: weakref.ref(t)}


def asked(*tensors: torch.Tensor) -> None:
    """Have autograd look at the histories of these: it refuses those of some views whose base was written."""
    with torch._C.DisableTorchFunction():
        for t in tensors:
            t.grad_fn  # noqa: B018


def checkpoint_globals(kept: tuple[tuple[int, ...], bool] | None, apply: Callable, forward: Callable) -> dict[str, Any]:
    """What the program around a node knows of checkpoints."""
    return {} if kept is None else {"_on": ON, "_kept": entered(apply, forward, *kept)}


def row_major(x: torch.Tensor) -> torch.Tensor:
    return x if ORIGINAL.is_contiguous(x) else ORIGINAL.contiguous(x)


def restride(x: torch.Tensor, sizes: tuple, strides: tuple) -> torch.Tensor:
    """`x`, or a copy of it with these strides."""
    if ORIGINAL.stride(x) == strides:
        return x
    return torch.empty_strided(sizes, strides, dtype=x.dtype, device=x.device).copy_(x)


def with_grad(fn: Callable) -> Callable:
    """The region turns gradients on itself, and is entered with them off."""

    def run(*slots: Any) -> tuple:
        with gradients(True):
            return fn(*slots)

    return run
