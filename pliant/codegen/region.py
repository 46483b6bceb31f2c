"""Captured regions, made executable: as a whole, or in sections, where autograd must see that one result comes from another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from pliant.codegen import recorded
from pliant.codegen.aten import Executable, Lowering, Writer, tuple_text
from pliant.codegen.autograd_region import Planned
from pliant.codegen.double_backward import freed_above
from pliant.codegen.effects import cannot_repeat, draws
from pliant.codegen.failures import DRAWN, NEVER, Places, drawn_from, remember, states
from pliant.codegen.version_counters import times_written
from pliant.errors import InternalError
from pliant.graph.originals import torch
from pliant.graph.traced import FLAGS, LAYOUTS, NO_DERIVATIVE, PYTHON_BACKWARD, NoBackward, Reconsider, TracedTensor, Untraceable
from pliant.lower import liveness
from pliant.lower.autograd import needs_node
from pliant.lower.leaves import maker_of, nodes_under
from pliant.lower.restriding import as_views
from pliant.lower.sections import Section, Uncut, begins_at, divided, is_number, sections, settle, uncut
from pliant.lower.views import refuse_parts


def compile_region(
    trace: Any, inputs: list[Any], outputs: Any, *, name: str = "region", lower: Lowering | None = None, by_autograd: bool = True
) -> Executable:
    """The executable of a captured region, `fn(*slots) -> tuple` of the flattened `outputs`; differentiable where eager's would be.

    `inputs` and `outputs` as for `codegen.aten.build`. Call it in the grad mode in which the executable will be entered, and before
    the guards of `trace.scope` are compiled: the backward part may add to them. `lower` replaces operations by others with the
    same results, forward and backward. Raises `Untraceable` where the region cannot be differentiable nodes, and what eager's
    `backward` would raise (a saved tensor was modified in place). `by_autograd`: it may be one of which autograd records the operations.
    """
    return PlannedRegion(trace, inputs, outputs, name, by_autograd).build(lower)


class PlannedRegion:
    """A captured region whose plan is made: `build` may be called for several lowerings, one after the other. Arguments as above."""

    def __init__(self, trace: Any, inputs: list[Any], outputs: Any, name: str, by_autograd: bool = True) -> None:
        self.trace, self.inputs, self.name = trace, inputs, name
        self.flat = list(liveness.leaves(outputs))
        self.plain = (list(trace.ops), self.flat) if by_autograd else None  # as the program has it
        self.recorded: Executable | None = None
        self.refused: Exception | None = None  # why a section could not be made
        self.start = trace.scope.snapshot()
        if trace.flags_changed and needs_node(trace, inputs, self.flat):
            raise Reconsider(name, "gradients flow through the graph, and a parameter has none for a while", FLAGS)
        self.built, self.tries, self.idle = False, 3, True
        try:
            if trace.relaid:
                raise Reconsider(name, "another layout for a tensor with gradients that is a view, or of which there are views", LAYOUTS)
            self.plan()
        except (Reconsider, NoBackward) as e:
            self.record(e, e)

    def plan(self) -> None:
        """Plans of nodes, of the whole region or of its sections."""
        trace = self.trace
        if trace.parts:
            refuse_parts(trace, self.flat)
        trace.ops[:] = as_views(trace, trace.ops, self.flat)
        self.flat = settle(trace, self.flat)
        self.n_forward, self.token = len(trace.ops), trace.scope.snapshot()
        self.seen = {t.vid for t in liveness.tensors_of(self.flat)}
        self.between: list[TracedTensor] = []  # results that others come from
        self.sections: list[Section] = []
        self.planned: list[Any] = []
        self.cut()
        if self.sections and trace.modules_hooked:  # the hook in front is of another section than the one behind, which it hears of
            raise Reconsider(self.name, "a backward hook of a module, and a result that comes from another one", PYTHON_BACKWARD)
        if not self.sections:
            self.whole()

    def cut(self) -> None:
        """Plans of its sections, of what is known of sizes by now."""
        self.sections, self.known = [], self.trace.scope.snapshot()
        try:
            found = sections(self.trace, self.inputs, self.flat, self.idle)
            self.between = self.between or [t for s in found[1:] for t in s.crossing if t.vid in self.seen]
            self.planned = [Planned(self.trace, s.inputs, s.outputs, f"{self.name}_part{k}", s) for k, s in enumerate(found)]
            self.sections = found
        except Uncut:
            raise
        except (Untraceable, NoBackward):
            pass

    def whole(self) -> None:
        """One plan, without sections, and without what these have assumed. `Uncut` if results come from each other."""
        self.anew()
        self.planned = [Planned(self.trace, self.inputs, self.flat, self.name)]
        if self.between:
            raise uncut(self.trace, self.between, ())

    def build(self, lower: Lowering | None) -> Executable:
        if self.recorded is not None:
            return self.recorded
        try:
            made = self.as_nodes(lower)
        except (Reconsider, NoBackward) as e:
            if self.built:
                raise
            why = self.refused or e
            return self.apart(why, lower) or self.record(why, e)
        self.built = True
        return made

    def apart(self, why: Exception, lower: Lowering | None) -> Executable | None:
        """The region in sections, of which autograd records those that lack a derivative; None where it cannot be cut there."""
        names = set[str]()
        while self.plain is not None and isinstance(why, Reconsider) and why.what.startswith(NO_DERIVATIVE):
            if (name := why.what.removeprefix(NO_DERIVATIVE)) in names:
                break
            names.add(name)
            self.anew()
            for parts in recorded.parts_of(self.trace, list(self.trace.ops), names):
                self.anew()
                try:
                    return self.chained(parts, names, lower)
                except Reconsider as e:
                    why = e
                except (Untraceable, NoBackward, InternalError, RuntimeError):
                    continue
        self.sections = []
        return None

    def anew(self) -> None:
        """As the program has it, without what plans have added and assumed."""
        del self.trace.ops[self.n_forward :]
        self.trace.scope.rollback(self.token)
        self.trace.n_forward, self.sections = None, []

    def chained(self, parts: list[list[Any]], names: set[str], lower: Lowering | None) -> Executable:
        """The sections of these parts, one after the other. Raises Untraceable where they cannot be cut so."""
        self.sections = divided(self.trace, self.inputs, self.flat, parts, {})
        planned: list[Planned | recorded.Apart] = []
        for k, s in enumerate(self.sections):
            name, alone = f"{self.name}_part{k}", recorded.lacking(s.ops[0], names)
            planned.append(recorded.Apart(self.trace, s, name) if alone else Planned(self.trace, s.inputs, s.outputs, name, s))
        self.planned = planned
        made = [p.build(lower) for p in planned]
        if not made or not self.claims_all():
            raise Untraceable(self.name, "its sections do not claim all assertions")
        self.built = True
        return Chain(tuple(made), self.write_around(made)).executable()

    def record(self, why: Exception, whole: Exception) -> Executable:
        """The region, recorded by autograd for this reason. Raises `whole`, why it cannot be one node, where it cannot be that, either."""
        if self.plain is None:
            raise whole
        self.trace.ops[:], self.trace.n_forward = self.plain[0], None
        self.trace.scope.rollback(self.start)
        made = recorded.instead(self.trace, self.inputs, *self.plain, self.name, why)
        if made is None:
            raise whole
        self.recorded = made
        return made

    def as_nodes(self, lower: Lowering | None) -> Executable:
        while self.sections:
            try:
                made = [p.build(lower) for p in self.planned]
                if self.claims_all():
                    chain = Chain(tuple(made), self.write_around(made)).executable()
                    self.built = True
                    return chain
            except (Untraceable, NoBackward, InternalError) as e:
                if self.built:
                    raise
                self.refused = e if isinstance(e, (Reconsider, NoBackward)) and not isinstance(e, Uncut) else self.refused
            self.cut_again()
        return self.planned[0].build(lower)

    def cut_again(self) -> None:
        """Sections once more, if a backward part has found more about sizes (two are equal, and the one that a section is given does not
        stand for the other any longer), or without what nobody has; else one plan."""
        known, self.tries, self.sections = self.known, self.tries - 1, []
        same = self.trace.scope.snapshot() == known
        if self.tries and (self.idle or not same):
            self.idle = self.idle and not same
            del self.trace.ops[self.n_forward :]
            self.trace.n_forward = None
            self.cut()
        if not self.sections:
            self.whole()

    def claims_all(self) -> bool:
        """Whether each assertion, also one that a backward part has added, is checked by some section."""
        checked = {id(c) for s in self.sections for c in s.asserts}
        checked |= {id(c) for p in self.planned if p.plan is not None for c in p.plan.asserts()}
        return all([id(c) in checked for c in self.trace.scope.asserts])

    def write_around(self, made: list[Executable]) -> Executable:
        """`region(*slots) -> outputs`: one section after the other."""
        given = [v for s in self.sections for v in s.inputs if not isinstance(v, TracedTensor)]
        own = {name for s in self.sections for names in liveness.binders(s.ops).values() for name in names}
        wanted = [v for v in given if v.name not in own]
        lines: list[str] = []
        starts: list[int] = []

        def preamble(w: Writer) -> list[str]:
            w.globals.update(Chain.calling(made))
            for s in self.sections:
                for t in liveness.tensors_of(s.made):
                    w.names.setdefault(t.vid, f"v{t.vid}")
            return []

        def closing(w: Writer, items: list[str]) -> list[str]:
            last_use = {v.vid: k for k, s in enumerate(self.sections) for v in liveness.tensors_of(s.inputs)}
            kept = {t.vid for t in liveness.tensors_of(self.flat)} | {t.vid for t in liveness.tensors_of(self.inputs)}
            for k, s in enumerate(self.sections):
                numbers = [v.name if v.name in own else w.number(v) for v in s.inputs if not isinstance(v, TracedTensor)]
                args = ", ".join([*(w.names[t.vid] for t in liveness.tensors_of(s.inputs)), *numbers])
                results = [w.names[v.vid] if isinstance(v, TracedTensor) else v.name for v in s.made]
                results += [f"m{i}" for i in range(len(s.numbers))]
                starts.append(len(lines))
                lines.append(f"{tuple_text(results)[1:-1]} = _part{k}({args})" if results else f"_part{k}({args})")
                lines.extend(self.turning(w, k))
                gone = [w.names[vid] for vid, last in last_use.items() if last == k and vid not in kept]
                lines.extend([f"del {', '.join(gone)}"] if gone else [])
            told = count()
            out = [f"m{next(told)}" if is_number(v) else w.text(v, set()) for v in self.flat]
            return [*self.noting(w), *lines, f"return {tuple_text(out)}"]

        w = Writer(self.name, self.trace.scope, self.inputs, wanted, [], [], preamble=preamble, closing=closing)
        around = w.finish(False)
        self.remember(around, starts, lines)
        return around

    def turning(self, w: Writer, k: int) -> list[str]:
        """Makes leaves of what section `k` has made for that. They count writes to them: each later section those to its inputs."""
        later = {t.storage_id for s in self.sections[k + 1 :] for op in s.ops for t in liveness.written(op)}
        lines, counts = [], {}
        for t in self.sections[k].turned:
            make, name = maker_of(t), w.names[t.vid]
            w.globals[make.__name__] = make
            lines.append(f"{name} = {make.__name__}({name})")
            if times_written(t):
                counts[name] = "0" if t.storage_id in later else str(times_written(t))
        if counts:
            w.globals["_versions"] = torch._C._autograd._unsafe_set_version_counter  # type: ignore[attr-defined]
            lines.append(f"_versions({tuple_text([*counts])}, {tuple_text([*counts.values()])})")
        for t, under in self.freed(k):
            w.globals["_freed_above"] = freed_above
            lines.append(f"{w.names[t.vid]} = _freed_above({', '.join([w.names[vid] for vid in (t.vid, *under)])})")
        return lines

    def freed(self, k: int) -> list[tuple[TracedTensor, list[int]]]:
        """Results of section `k` whose history `backward()` has gone through and freed, with the leaves made of what it makes (by vid) that
        this begins at."""
        section, freed = self.sections[k], self.trace.freed
        turned = {t.vid for t in section.turned}
        heads = {t.vid: t for t in liveness.tensors_of(section.made) if t.requires_grad and not t.is_leaf} if freed and turned else {}
        under = [(t, begins_at(t)) for t in heads.values() if freed & nodes_under([t.grad_fn])]
        return [(t, vids) for t, found in under if (vids := [vid for vid in sorted(turned) if vid in found])]

    def noting(self, w: Writer) -> list[str]:
        """What the generators' state is, before anything but the last section draws."""
        if not any([draws(op) for s in self.sections[:-1] for op in s.ops]):
            return []
        w.globals["_states"] = states
        return [f"{DRAWN} = _states{drawn_from([op for s in self.sections for op in s.ops])}"]

    def remember(self, around: Executable, starts: list[int], lines: list[str]) -> None:
        """From which line on the frame may not run again: behind the first section that does what running again would do twice."""
        memory = {t.storage_id for t in liveness.tensors_of(self.inputs)}
        first = next((k for k, s in enumerate(self.sections) if any([cannot_repeat(op, memory) for op in s.ops])), len(self.sections))
        before = around.source.count("\n") - 1 - len(lines)  # of the text: all but these and the `return`
        at = NEVER if first + 1 >= len(self.sections) else before + starts[first + 1] + 1
        remember(around.fn, Places({}, at))


@dataclass(frozen=True, slots=True)
class Chain:
    """The programs of a region in sections: those of the sections, and what calls them."""

    parts: tuple[Executable, ...]
    around: Executable

    @staticmethod
    def calling(parts: Sequence[Executable]) -> dict[str, Any]:
        """The sections by the names that `around` calls them."""
        return {f"_part{k}": p.fn for k, p in enumerate(parts)}

    def executable(self) -> Executable:
        """The region, to be called."""
        source = "\n".join((self.around.source, *(p.source for p in self.parts)))
        return Executable(self.around.fn, source, sum([p.n_ops for p in self.parts]), self.around.globals, self)
