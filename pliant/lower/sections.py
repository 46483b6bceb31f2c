"""A training region cut where autograd must see one result come from another.

A region is one node of the autograd graph, or some next to each other (`codegen/nodes.py`). For gradients of its inputs that is all one
can see. But if the program returns features and what a head makes of them, it may ask for gradients of the features, hang a hook on them,
or keep theirs (`retain_grad`): then the history of the second result has to lead through the first. So the program is cut behind each
result that a later result comes from, and the sections become nodes one behind the other. What crosses a cut is an input of the later
section like any other; its gradients are asked of the tape of the capture, whose history ends there (`ending`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import torch

from pliant.graph import layout
from pliant.graph.control_flow import Block, Leave, needs
from pliant.graph.growing import is_list
from pliant.graph.leaving import MARKS
from pliant.graph.operands import node_of
from pliant.graph.originals import ORIGINAL
from pliant.graph.trace import has_hooks, rebased
from pliant.graph.traced import DATA, HOOKS, LEAF, READS, REBASED, UNCUT, Reconsider, TracedTensor, Untraceable
from pliant.lower import leaves, liveness, views
from pliant.lower.leaves import nodes_under
from pliant.symbolic.expr import Expr

PYTHONS = torch.autograd.function.BackwardCFunction
"""The nodes of an `autograd.Function`."""
MOST = 100
"""Of so many results that others come from, each with a section of its own, regions are cut by need."""
CARRY = "CarryBackward"
"""Those of `graph.trace.Carry`, to which no gradient is none."""


@dataclass(slots=True)
class Section:
    """A stretch of the program. Its inputs are tensors, then symbols; it makes tensors and symbols that are used behind it, or seen."""

    ops: list[Any]
    asserts: list[Any]
    inputs: list[Any]
    made: list[Any]
    numbers: list[Any]  # of the last: those that the region returns
    crossing: list[TracedTensor]  # inputs with a history, which an earlier section has made
    leaves: set[int]  # vids of leaves that it makes, or that cross, and of what comes from such alone: nobody sees their gradients
    turned: list[TracedTensor]  # among `made`: what is made a leaf of behind it (`lower/leaves.py`)
    foreign: frozenset[str]  # symbols that other sections make known
    whole: bool  # whether it is the only one

    @property
    def outputs(self) -> list[Any]:
        return self.made + self.numbers


def sections(trace: Any, inputs: list[Any], outputs: list[Any], idle: bool = True) -> list[Section]:
    """The sections of a captured region, whose outputs are flat. None at all: it need not be cut. `Uncut`: it must be, and cannot.
    `idle`: with the operations that make what nobody has."""
    slots = {t.vid for t in liveness.tensors_of(inputs)}
    written = {t.vid: t for t in liveness.tensors_of(inputs) if rebased(trace, t)}
    seen = written | {t.vid: t for t in liveness.tensors_of(outputs) if t.requires_grad and t.vid not in slots}
    try:
        shown = leaves.shown(trace, inputs, outputs)
    except Reconsider as e:  # one plan does for such a leaf, but not for results that come from each other beside it
        if parents_among(list(seen.values()), trace.ops, slots - written.keys()):
            raise Uncut("a leaf", e.reason, e.what, e.code) from e
        raise
    if trace.hooked and any([has_hooks(t) for t in seen.values() if t.vid not in shown]):
        raise Uncut("a result", "a hook is set on it, which gradients of it that are asked for pass by", HOOKS)
    data_memory = trace.data_memory & memory_of([t for op in trace.ops for t in liveness.written(op)]) if trace.data_memory else set()
    unheard = data_memory & memory_of([t for t in liveness.tensors_of(inputs) if trace.leaves.get(t.vid, t).requires_grad])
    if not shown and (not seen or not unheard and len(seen) < 2):
        return []
    parents = parents_among([t for t in seen.values() if t.vid not in shown], trace.ops, slots - written.keys() | shown.keys())
    if not parents and not shown and not unheard:
        return []
    if not may_cut(trace) or data_memory and not shown and not unheard:
        raise uncut(trace, parents, shown)
    ops = can_run(trace, inputs)
    live = liveness.live_ops(trace.ops, [*outputs, *(c.expr for c in trace.scope.asserts)], trace.inputs)
    needed = {id(op) for op in live}
    if not needed <= {id(op) for op in ops}:
        raise uncut(trace, parents, shown)
    ops = ops if idle else without_idle(ops, needed)
    crossing = leaves.rooted(trace, shown, outputs)
    own = list(crossing.values())
    spans = places(trace, ops, parents) + last_writes(ops, unheard)
    first, later = spans + births(ops, own, leaves.reads), spans + births(ops, own, leaves.growing(trace, outputs))
    for parts in ways_to_cut(ops, first, later, inputs, not shown) if first or shown else ():
        with suppress(Untraceable, RuntimeError):  # autograd would make the history of a view that crosses anew, or refuses to
            found = divided(trace, inputs, outputs, parts, shown)
            heard = not written_unheard(found[1:], data_memory)
            if found and heard and all([leaves.reached(s, trace.freed, crossing) for s in found]):
                return found
    raise uncut(trace, parents, shown)


class Uncut(Reconsider):
    """A result comes from another one, and the region cannot be cut between them: capture again without what is in the way."""


def uncut(trace: Any, parents: Sequence[TracedTensor], shown: Iterable[int]) -> Uncut:
    """What is in the way of a cut behind one of `parents`, from which others come: an effect in front of what may raise, hooks, the
    engine's calls, writes with gradients; else, whatever it is, the capture ends in front of what first reads one."""
    if shown and not parents:
        return Uncut("a leaf", "a leaf that is made here is seen, and its data cannot be made first", LEAF)
    if trace.data_memory:
        return Uncut("a result", "another one comes from it, or history is kept of memory, that is written through .data", DATA)
    if trace.marks:
        return Uncut("a result", "another one comes from it, behind an effect and in front of what may raise", MARKS)
    if trace.hooked:
        return Uncut("a result", "another one comes from it, by way of hooks", HOOKS)
    if trace.differentiated:
        return Uncut("a result", "another one comes from it, by way of gradients that are differentiated", "backward")
    if any([t.requires_grad for op in trace.ops for t in liveness.written(op)]):
        return Uncut("a result", "another one comes from it, by way of a write with gradients", UNCUT)
    first = min(parents, key=lambda t: t.vid)
    return Uncut("a result", "another one comes from it, and a region that is cut between them cannot be made", READS + str(first.vid))


def settle(trace: Any, outputs: list[Any]) -> list[Any]:
    """Let autograd make the histories of those views among the results anew whose memory was written since, as it does when it is asked:
    they begin at what their bases are by now, so what comes from these can be cut from them. The results, where views of views of which
    that is so are views of their base: no other view is in their history."""
    if not any([liveness.written(op) for op in trace.ops]) or not may_cut(trace):
        return outputs
    steps = views.view_steps(trace.ops)
    given, changed = {t.vid for t in trace.inputs}, {t.vid for t in trace.inputs if rebased(trace, t)}
    if any([not had_gradients(trace, trace.ops, root, given, changed) for root in unread(trace.ops, outputs, steps)]):
        raise Reconsider("region", "a view of what got gradients since", REBASED)
    made: dict[int, TracedTensor] = {}
    with trace.recording(), layout.framework():
        for t in liveness.tensors_of(outputs):
            if t.requires_grad and t.source is None and ORIGINAL._is_view(t):
                with suppress(Untraceable, RuntimeError):  # one of many that an operator has made, or one made without gradients
                    before = len(trace.ops)
                    node = t.grad_fn
                    last = trace.ops[-1].outs[0] if len(trace.ops) > before else None
                    if last is not None and steps[t.vid].base.vid in steps and last.grad_fn is node and not has_hooks(t):
                        last.pytype, made[t.vid] = t.pytype, last
    return [made.get(v.vid, v) if isinstance(v, TracedTensor) else v for v in outputs]


def unread(ops: list[Any], outputs: list[Any], steps: dict[int, views.ViewStep]) -> Iterator[TracedTensor]:
    """What is under each output that is a view of what was written with gradients since, and that nobody has read behind it. If it had
    no gradients before, PyTorch refuses writes to the view until somebody asks for its history."""
    writes: dict[int, list[int]] = {}
    for i, op in enumerate(ops):
        for t in liveness.written(op):
            if t.requires_grad:
                writes.setdefault(t.storage_id, []).append(i)
    late = [t for t in liveness.tensors_of(outputs) if t.requires_grad and t.vid in steps and t.storage_id in writes] if writes else []
    for t in late:
        made = next(i for i, op in enumerate(ops) if any(o.vid == t.vid for o in liveness.op_outputs(op)))
        used = [i for i, op in enumerate(ops) if any(x.vid == t.vid for x in liveness.op_inputs(op))]
        if writes[t.storage_id][0] > made and writes[t.storage_id][-1] > max(used, default=made):
            yield views.root(t, steps)


def had_gradients(trace: Any, ops: list[Any], root: TracedTensor, given: Set[int], changed: Set[int]) -> bool:
    """Whether a tensor had gradients when it was made, or given. `changed`: what was given, and written with gradients."""
    if root.vid in given:
        return root.vid in trace.leaves or root.vid not in changed
    made = next((op for op in ops if any(o.vid == root.vid for o in liveness.op_outputs(op))), None)
    return made is None or made.target is not views.DETACH and made.grad and any(t.requires_grad for t in liveness.op_inputs(made))


def ways_to_cut(
    ops: list[Any], first: list[tuple[int, int]], later: list[tuple[int, int]], inputs: list[Any], by_needs: bool
) -> Iterator[list[list[Any]]]:
    """The operations in parts, for the results that others come from: at the `first` places, or at those that are `later`; or in
    another order (`by_needs`)."""
    for cuts in dict.fromkeys((late(first), early(first), late(later))):
        bounds = [0, *cuts, len(ops)]
        yield [ops[i:j] for i, j in zip(bounds, bounds[1:])]
    if by_needs and len(first) < MOST:
        yield by_need(ops, [made for made, _ in first], inputs)


def memory_of(values: list[Any]) -> set[int]:
    return {t.storage_id for t in liveness.tensors_of(values)}


def written_unheard(later: list[Section], data_memory: set[int]) -> bool:
    """Whether one of these sections writes through a `.data`, of which no version tells, to what was there before it."""
    written = [({t.storage_id for op in s.ops for t in liveness.written(op)} & memory_of(s.inputs)) for s in later] if data_memory else []
    return any([not data_memory.isdisjoint(w) for w in written])


def last_writes(ops: list[Any], memory: Set[int]) -> list[tuple[int, int]]:
    """Where to cut behind the last write to this memory."""
    found = [i for i, op in enumerate(ops) if any([t.storage_id in memory for t in liveness.written(op)])] if memory else []
    return [(found[-1], found[-1] + 1)] if found and found[-1] + 1 < len(ops) else []


def may_cut(trace: Any) -> bool:
    """Not where a run may leave in the middle, or what an object from outside is changes on the way."""
    if trace.exits or trace.marks or trace.wrapping:
        return False
    given = {t.vid for t in trace.inputs}
    turned = any([op.args[0].vid in given for op in trace.ops if liveness.restrides(op)])
    return not turned and not any([any(map(is_list, liveness.op_outputs(op))) for op in trace.ops])


def can_run(trace: Any, inputs: list[Any]) -> list[Any]:
    """The operations without those that read what the region is not given, because nobody needs their results."""
    made, known, simplify = {t.vid for t in liveness.tensors_of(inputs)}, symbols_of_inputs(inputs), trace.scope.simplify
    out = []
    for op in trace.ops:
        read = [t for t in liveness.op_inputs(op) if t.vid not in made and t.constant is None]
        if read or not known.issuperset([s.name for e in liveness.op_numbers(op) for s in simplify(e).symbols()]):
            continue
        out.append(op)
        made.update(t.vid for t in liveness.op_outputs(op))
        known.update(liveness.number(b.symbol).name for b in op.binds)
    return out


def without_idle(ops: list[Any], needed: Set[int]) -> list[Any]:
    """The operations without those that make what nobody has, gradients of which may be such that autograd refuses them. (What an
    operation has made is detached for its gradients; where these want a copy, it cannot be done without.)"""
    kept: list[Any] = []
    idle: set[int] = set()
    for op in ops:
        told = liveness.restrides(op) or op.target is views.DETACH
        if id(op) in needed or told and idle.isdisjoint([t.vid for t in liveness.op_inputs(op)]):
            kept.append(op)
        else:
            idle.update([t.vid for t in liveness.op_outputs(op)])
    return kept


def parents_among(seen: list[TracedTensor], ops: list[Any], slots: set[int]) -> list[TracedTensor]:
    """Those of these results that others come from, by more than a view of them."""
    steps = views.output_steps(ops, seen)
    under = [r for r in {r.vid: r for r in (views.root(t, steps) for t in seen)}.values() if r.vid not in slots]
    edges = {edge for node in nodes_under([node_of(r) for r in under]) for edge in node.next_functions}
    return [t for t in seen if (node := node_of(t)) is not None and (node, t.output_nr) in edges]


def behind_functions(trace: Any, op: Any) -> list[Any]:
    """The nodes of `autograd.Function`s that this operation has made results of."""
    return [n for t in liveness.op_outputs(op) if t.requires_grad and (n := history_of(t)) in trace.behind] if trace.behind else []


def places(trace: Any, ops: list[Any], parents: list[TracedTensor]) -> list[tuple[int, int]]:
    """Where to cut: of each of `parents`, (behind which operation at the earliest, before which one at the latest)."""
    vids = {t.vid for t in parents}
    given = {(t.grad_fn, t.output_nr): t.vid for t in parents} if trace.behind else {}  # gradients, whether it is read or not
    made: dict[int, int] = {}
    used: dict[int, int] = {}
    for i, op in enumerate(ops):
        for t in liveness.op_inputs(op):
            if t.vid in vids and t.vid not in used:
                # nodes keep their results as `detach` gives them: that is no use of them, and belongs to who has made them
                (made if op.target is views.DETACH else used)[t.vid] = i
        for node in behind_functions(trace, op):
            to = {given[edge] for edge in node.next_functions if edge in given} | vids.intersection([t.vid for t in trace.behind[node]])
            used.update((vid, i) for vid in to if vid not in used)
        memory = {t.storage_id for t in liveness.written(op) if t.requires_grad}
        outs = {t.vid for t in liveness.op_outputs(op)}
        for t in parents if memory or not vids.isdisjoint(outs) else ():
            if t.vid in outs or t.storage_id in memory:
                made[t.vid] = i
                used.pop(t.vid, None)
    return [(made[vid], i) for vid, i in used.items() if vid in made]


def births(ops: list[Any], shown: list[TracedTensor], uses: Callable[[TracedTensor, Any], bool]) -> list[tuple[int, int]]:
    """The same of leaves that are made here: (the operation that makes its data, the first one that `uses` it)."""
    made: dict[int, int] = {}
    used: dict[int, int] = {}
    for i, op in enumerate(ops) if shown else ():
        outs = {t.vid for t in liveness.op_outputs(op)}
        for t in shown:
            if t.vid in outs:
                made.setdefault(t.vid, i)
            if uses(t, op):
                used.setdefault(t.vid, i)
    return [(made[vid], i) for vid, i in used.items() if vid in made]


def late(spans: list[tuple[int, int]]) -> tuple[int, ...]:
    """As few places as will do, each as late as it can be."""
    cuts: list[int] = []
    for first, last in sorted(spans, key=lambda span: span[1]):
        if not (cuts and cuts[-1] > first):
            cuts.append(last)
    return tuple(cuts)


def early(spans: list[tuple[int, int]]) -> tuple[int, ...]:
    """The same, each as early as it can be."""
    cuts: list[int] = []
    for first, last in sorted(spans, reverse=True):
        if not (cuts and cuts[-1] <= last):
            cuts.append(first + 1)
    return tuple(reversed(cuts))


def by_need(ops: list[Any], made: list[int], inputs: list[Any]) -> list[list[Any]]:
    """The operations in another order, which no result can tell: those that each of `made` (indices) needs first, the others in the end.
    So what is written to bit by bit (`out[i] = h`) need not cross a cut."""
    given = {t.storage_id for t in liveness.tensors_of(inputs)}
    parts, taken = [], set()
    for end in sorted(set(made)):
        needed = needs_of(ops, end, given) - taken
        if needed:
            made_here = {t.vid for i in needed for t in liveness.op_outputs(ops[i])}
            kept = [i for i, op in enumerate(ops) if op.target is views.DETACH and op.args[0].vid in made_here]  # by nodes, of results
            needed.update(i for i in kept if i not in taken)
            parts.append([ops[i] for i in sorted(needed)])
            taken |= needed
    return [*parts, [op for i, op in enumerate(ops) if i not in taken]]


def needs_of(ops: list[Any], end: int, given: set[int]) -> set[int]:
    """The operations (indices) that have to run before the one at `end`, and this: what they read is made and written by then, nothing that
    they write is read later by one that came before, and draws, effects and writes to memory in `given` keep their order."""
    found, vids, symbols = set(), set(), set()
    read: set[int] = set()
    written: set[int] = set()
    draws = False
    for i in range(end, -1, -1):
        op = ops[i]
        reads, writes = {t.storage_id for t in liveness.op_inputs(op)}, {t.storage_id for t in liveness.written(op)}
        random = liveness.RANDOM in op.target.tags
        outer = liveness.has_effect(op) or not writes.isdisjoint(given)
        wanted = i == end or not vids.isdisjoint([t.vid for t in liveness.op_outputs(op)]) or not writes.isdisjoint(read | written)
        wanted = wanted or not reads.isdisjoint(written) or outer or random and draws
        if not (wanted or not symbols.isdisjoint([liveness.number(b.symbol).name for b in op.binds])):
            continue
        found.add(i)
        vids.update(t.vid for t in liveness.op_inputs(op))
        read |= reads
        written |= writes
        draws = draws or random
        symbols.update(s.name for e in liveness.op_numbers(op) for s in e.symbols())
    return found


def divided(
    trace: Any, inputs: list[Any], outputs: list[Any], parts: list[list[Any]], shown: dict[int, TracedTensor]
) -> list[Section]:
    """The sections of which these are the operations. None at all where a value or a symbol does not get from one to the other."""
    known = symbols_of_inputs(inputs)
    binder: dict[str, int] = dict.fromkeys(known, 0)
    maker: dict[int, int] = {}
    for k, ops in enumerate(parts):
        for op in ops:
            for b in op.binds:
                binder.setdefault(liveness.number(b.symbol).name, k)
            for t in liveness.op_outputs(op):
                maker.setdefault(t.vid, k)
    if any([maker.get(op.args[0].vid) != k for k, ops in enumerate(parts) for op in ops if liveness.restrides(op)]):
        return []  # it would have another layout on the one side of a cut than on the other
    maker |= dict.fromkeys([t.vid for t in liveness.tensors_of(inputs)], -1)
    asserts: list[list[Any]] = [[] for _ in parts]
    for c in trace.scope.asserts:
        at = [binder.get(s.name, -1) for s in c.expr.symbols()]
        if -1 in at:
            return []
        asserts[max(at, default=0)].append(c)
    told = [v for v in outputs if not isinstance(v, TracedTensor)]  # numbers: by then all are known
    lasts = [Leave(False, told if k == len(parts) - 1 else []) for k in range(len(parts))]
    wants = [needs(Block(*block), trace.scope.simplify) for block in zip(parts, asserts, lasts, strict=True)]
    wants = [(tensors, {n: e for n, e in symbols.items() if n in binder}) for tensors, symbols in wants]  # the others are equal to some
    if trace.behind:
        for (tensors, _), more in zip(wants, read_behind(trace, parts, inputs), strict=True):
            tensors.update(more)
    finals = {t.vid: t for t in liveness.tensors_of(outputs)}
    begins = {trace.leaves.get(t.vid, t).vid for t in liveness.tensors_of(inputs)} | shown.keys()
    writers = written_inputs(trace, inputs, parts)
    if writers is None:
        return []
    rewritten = [{t.storage_id for op in ops for t in liveness.written(op) if t.requires_grad} for ops in parts]  # it has another history
    made: list[Section] = []
    if any([vid not in maker for tensors, _ in wants for vid in tensors]) or not shown.keys() <= maker.keys():
        return []
    for k, (tensors, symbols) in enumerate(wants):
        if any([binder[name] > k for name in symbols]) or any([maker[vid] > k for vid in tensors]):
            return []
        moving = [t for t in tensors.values() if t.requires_grad and t.grad_fn is not None]
        crossing = [t for t in moving if maker[t.vid] >= 0 or writers.get(t.vid, k) < k]
        if len({(t.grad_fn, t.output_nr) for t in crossing}) < len(crossing):
            return []  # what a node has made, and that as it has kept it: each would be given the gradients of both
        memory = {t.storage_id for t in crossing}
        if not all(map(memory.isdisjoint, rewritten[k:])):
            return []
        later_t = {vid: t for w, _ in wants[k + 1 :] for vid, t in w.items() if maker[vid] == k}
        later_s = {name: s for _, w in wants[k + 1 :] for name, s in w.items() if name not in known and binder[name] == k}
        out: list[Any] = list((later_t | {vid: t for vid, t in finals.items() if maker.get(vid) == k}).values())
        foreign = frozenset(name for name, at in binder.items() if at != k) - symbols.keys()
        numbers = list(filter(is_number, told)) if k == len(parts) - 1 else []
        given = [*tensors.values(), *symbols.values()]
        own = [t for t in (*tensors.values(), *later_t.values()) if maker[t.vid] >= 0 and t.vid not in finals]
        turned = [t for t in shown.values() if maker[t.vid] == k]
        alone = [t for t in own if t.requires_grad and t.vid not in shown]
        unseen = {t.vid for t in alone if views.without_history(t) or begins.isdisjoint(begins_at(t))} | {t.vid for t in turned}
        if not {t.vid for t in turned} <= {t.vid for t in out}:
            return []
        results = [*out, *later_s.values()]
        made.append(Section(parts[k], asserts[k], given, results, numbers, crossing, unseen, turned, foreign, len(parts) == 1))
    return made


def read_behind(trace: Any, parts: list[list[Any]], inputs: list[Any]) -> list[dict[int, TracedTensor]]:
    """What the backward parts of the `autograd.Function`s in each part read, or give gradients to, and what is made in it is not."""
    leaf = {trace.leaves.get(t.vid, t).vid: t for t in liveness.tensors_of(inputs)}
    made = {(history_of(t), t.output_nr): t for ops in parts for op in ops for t in liveness.op_outputs(op) if t.requires_grad}
    hooks = [t for key, read in trace.behind.items() if type(key) is int for t in read]  # called wherever gradients come by
    found = []
    for ops in parts:
        nodes = dict.fromkeys([n for op in ops for n in behind_functions(trace, op)])
        own = {t.vid for op in ops for t in liveness.op_outputs(op)}
        edges = [edge for n in nodes for edge in n.next_functions if edge[0] is not None]
        to = [made.get(edge, leaf.get(begun_at(edge[0]))) for edge in edges]
        found.append({t.vid: t for t in [*to, *hooks, *[t for n in nodes for t in trace.behind[n]]] if t is not None and t.vid not in own})
    return found


def written_inputs(trace: Any, inputs: list[Any], parts: list[list[Any]]) -> dict[int, int] | None:
    """By their vids, the inputs that are written with gradients flowing, and the part that does. None if one of them is written in several
    parts, or read before: it has another history there."""
    found: dict[int, int] = {}
    memory = [{t.storage_id for op in ops for t in liveness.op_inputs(op)} for ops in parts]
    changed = [{t.storage_id for op in ops for t in liveness.written(op)} for ops in parts]
    for t in liveness.tensors_of(inputs):
        if rebased(trace, t):
            at = [k for k, there in enumerate(changed) if t.storage_id in there]
            if len(at) != 1 or any([t.storage_id in there for there in memory[: at[0]]]):
                return None
            found[t.vid] = at[0]
    return found


def begun_at(node: Any) -> int | None:
    """The vid of the leaf that this node accumulates gradients of; None if it is another node."""
    return node.variable.vid if node.name() == "torch::autograd::AccumulateGrad" else None


def begins_at(t: TracedTensor) -> set[int | None]:
    """The vids of the leaves that the history of this tensor begins at (and None)."""
    return set(map(begun_at, nodes_under([t.grad_fn])))


def functions_under(nodes: Iterable[Any]) -> set[Any]:
    """The nodes that call code of the program's: of the `autograd.Function`s that can be reached from these."""
    return {n for n in nodes_under(nodes) if isinstance(n, PYTHONS) and n.name() != CARRY}


def history_of(t: TracedTensor) -> Any:
    """The node that made a tensor; of a view whose memory was written since, that of its base: autograd would make its own anew."""
    try:
        return t.grad_fn
    except (Untraceable, RuntimeError):
        return None if t._base is None else t._base.grad_fn


def leaves_of_functions(heads: Sequence[TracedTensor]) -> set[int | None]:
    """The vids of the leaves under these results, if `autograd.Function`s are there: their backward parts may give gradients to what
    their forward parts have not read."""
    under = nodes_under([history_of(t) for t in heads])
    return set(map(begun_at, under)) if any([isinstance(n, PYTHONS) and n.name() != CARRY for n in under]) else set()


def is_number(v: Any) -> bool:
    """Whether this output is a symbolic number."""
    return not isinstance(v, TracedTensor) and liveness.number(v) is not None


def symbols_of_inputs(inputs: list[Any]) -> set[str]:
    """The symbols that are inputs, or read off the metadata of one."""
    names = {e if isinstance(e, str) else e.name for e in inputs if isinstance(e, (str, Expr))}
    for t in liveness.tensors_of(inputs):
        found = [liveness.number(n) for n in (*t.sizes, *t.strides, t.offset)]
        names.update(e.name for e in found if e is not None and e.op == "sym")
    return names


@contextmanager
def ending(crossing: Sequence[TracedTensor]) -> Iterator[None]:
    """While inside, gradients go no further than to these tensors: nothing arrives at the nodes that have made them.

    An `autograd.Function` below would be given zeros for that: none of these is called. Hooks on what crossed are the earlier section's.
    """
    found = ends(crossing)
    with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunctionSubclass():
        set_on = [(held, dict(held)) for t in crossing if (held := t._backward_hooks)]
    functions = functions_under(found)
    hooks = [node.register_prehook(nothing) for node in found]
    for node in functions:
        node.apply = nothing_of_many
    for held, _ in set_on:
        held.clear()
    try:
        yield
    finally:
        for held, kept in set_on:
            held.update(kept)
        for node in functions:
            del node.apply
        for hook in hooks:
            hook.remove()


def ends(crossing: Sequence[TracedTensor]) -> set[Any]:
    """The nodes that have made these."""
    return {t.grad_fn for t in crossing}


def nothing(grads: tuple) -> tuple:
    return (None,) * len(grads)


def nothing_of_many(*grads: Any) -> tuple:
    """No gradient for any of a function's arguments: the engine takes more than there are, if these are None."""
    return (None,) * 1000
