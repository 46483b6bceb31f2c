"""A training region cut where autograd must see one result come from another.

A region is one node of the autograd graph, or some next to each other (`codegen/nodes.py`). For gradients of its inputs that is all one
can see. But if the program returns features and what a head makes of them, it may ask for gradients of the features, hang a hook on them,
or keep theirs (`retain_grad`): then the history of the second result has to lead through the first. So the program is cut behind each
result that a later result comes from, and the sections become nodes one behind the other. What crosses a cut is an input of the later
section like any other; its gradients are asked of the tape of the capture, whose history ends there (`ending`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from pliant.graph.control_flow import Block, Leave, needs
from pliant.graph.growing import is_list
from pliant.graph.traced import TracedTensor, Untraceable
from pliant.lower import liveness, views
from pliant.symbolic.expr import Expr

PYTHONS = torch.autograd.function.BackwardCFunction
"""The nodes of an `autograd.Function`."""
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
    leaves: set[int]  # vids of leaves that cross, which nobody sees
    foreign: frozenset[str]  # symbols that other sections make known
    before: list[Any]  # all assertions of the region

    @property
    def outputs(self) -> list[Any]:
        return self.made + self.numbers


def sections(trace: Any, inputs: list[Any], outputs: list[Any]) -> list[Section]:
    """The sections of a captured region, whose outputs are flat. None at all: it need not be cut, or cannot be."""
    slots = {t.vid for t in liveness.tensors_of(inputs)}
    seen = {t.vid: t for t in liveness.tensors_of(outputs) if t.requires_grad and t.vid not in slots}
    if len(seen) < 2 or not may_cut(trace):
        return []
    ops = can_run(trace, inputs)
    spans = places(ops, slots, list(seen.values()))
    for cuts in dict.fromkeys((late(spans), early(spans))) if spans else ():
        bounds = [0, *cuts, len(ops)]
        found = divided(trace, inputs, outputs, [ops[i:j] for i, j in zip(bounds, bounds[1:])])
        if found:
            return found
    return []


def may_cut(trace: Any) -> bool:
    """Not where a run may leave in the middle, or what a tensor object is changes on the way."""
    if trace.exits or trace.marks or trace.freed or trace.data_memory or trace.wrapping:
        return False
    if any([t.requires_grad and t.grad_fn is not None and t.vid not in trace.leaves for t in trace.inputs]):
        return False  # an input that was written
    return not any([liveness.restrides(op) or any(map(is_list, liveness.op_outputs(op))) for op in trace.ops])


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


def places(ops: list[Any], slots: set[int], seen: list[TracedTensor]) -> list[tuple[int, int]]:
    """Where to cut: of each result that others come from, (behind which operation at the earliest, before which one at the latest)."""
    steps = views.output_steps(ops, seen)
    try:
        roots = {r.vid: r for r in (views.root(t, steps) for t in seen) if r.vid not in slots}
        if any([t.grad_fn is None for t in (*seen, *roots.values())]):
            return []  # a leaf that was made here
        edges = edges_under([r.grad_fn for r in roots.values()])
        parents = {t.vid for t in seen if (t.grad_fn, t.output_nr) in edges}
    except (Untraceable, RuntimeError):  # autograd would make the history of a view anew
        return []
    made: dict[int, int] = {}
    used: dict[int, int] = {}
    for i, op in enumerate(ops):
        kept = op.target is views.DETACH  # nodes keep their results so
        for t in liveness.op_inputs(op):
            if t.vid in parents and kept:
                made[t.vid] = max(made.get(t.vid, i), i) if t.vid not in used else made[t.vid]
            elif t.vid in parents:
                used.setdefault(t.vid, i)
        for t in liveness.op_outputs(op):
            if t.vid in parents:
                made[t.vid] = i
                used.pop(t.vid, None)
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


def edges_under(nodes: list[Any]) -> set[tuple[Any, int]]:
    """The edges of the autograd graph below these nodes, as (node, number of its result)."""
    edges: set[tuple[Any, int]] = set()
    seen, todo = set(nodes), list(nodes)
    while todo:
        for edge in todo.pop().next_functions:
            edges.add(edge)
            if edge[0] is not None and edge[0] not in seen:
                seen.add(edge[0])
                todo.append(edge[0])
    return edges


def divided(trace: Any, inputs: list[Any], outputs: list[Any], parts: list[list[Any]]) -> list[Section]:
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
    maker |= dict.fromkeys([t.vid for t in liveness.tensors_of(inputs)], -1)
    before, asserts = list(trace.scope.asserts), [[] for _ in parts]
    for c in before:
        at = [binder.get(s.name, -1) for s in c.expr.symbols()]
        if -1 in at:
            return []
        asserts[max(at, default=0)].append(c)
    told = [v for v in outputs if not isinstance(v, TracedTensor)]  # numbers: by then all are known
    lasts = [Leave(False, told if k == len(parts) - 1 else []) for k in range(len(parts))]
    wants = [needs(Block(*block), trace.scope.simplify) for block in zip(parts, asserts, lasts, strict=True)]
    finals = {t.vid: t for t in liveness.tensors_of(outputs)}
    made: list[Section] = []
    for k, (tensors, found) in enumerate(wants):
        symbols = {name: e for name, e in found.items() if name in binder or trace.scope.simplify(e) is e}
        if any([binder.get(name, k + 1) > k for name in symbols]) or any([maker.get(vid, k) > k for vid in tensors]):
            return []
        crossing = [t for t in tensors.values() if maker[t.vid] >= 0 and t.requires_grad and t.grad_fn is not None]
        if any([written_with_gradients(ops, crossing) for ops in parts[k:]]):
            return []
        later_t = {vid: t for w, _ in wants[k + 1 :] for vid, t in w.items() if maker.get(vid) == k}
        later_s = {name: s for _, w in wants[k + 1 :] for name, s in w.items() if name not in known and binder.get(name) == k}
        out: list[Any] = list((later_t | {vid: t for vid, t in finals.items() if maker.get(vid) == k}).values())
        foreign = frozenset(name for name, at in binder.items() if at != k) - symbols.keys()
        numbers = list(filter(is_number, told)) if k == len(parts) - 1 else []
        given = [*tensors.values(), *symbols.values()]
        own = [t for t in (*tensors.values(), *later_t.values()) if maker[t.vid] >= 0 and t.vid not in finals]
        leaves = {t.vid for t in own if t.requires_grad and t.is_leaf}
        made.append(Section(parts[k], asserts[k], given, [*out, *later_s.values()], numbers, crossing, leaves, foreign, before))
    return made


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


def written_with_gradients(ops: list[Any], crossing: Sequence[TracedTensor]) -> bool:
    """Whether one of these operations gives what has crossed another history."""
    memory = {t.storage_id for t in crossing}
    return any([t.requires_grad and t.storage_id in memory for op in ops for t in liveness.written(op)])


@contextmanager
def ending(crossing: Sequence[TracedTensor]) -> Iterator[None]:
    """While inside, gradients go no further than to these tensors: nothing arrives at the nodes that have made them.

    An `autograd.Function` below would be given zeros for that: none of these is called. Hooks on what crossed are the earlier section's.
    """
    found = ends(crossing)
    with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunctionSubclass():
        set_on = [(held, dict(held)) for t in crossing if (held := t._backward_hooks)]
    functions = {n for end in found for n in nodes_under(end) if isinstance(n, PYTHONS) and n.name() != CARRY}
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


def nodes_under(node: Any, ends: Set[Any] = frozenset()) -> set[Any]:
    """The nodes of the autograd graph that can be reached from `node`, not through one of `ends`; none from a leaf, which has no node."""
    if node is None:
        return set()
    seen, todo = {node}, [node]
    while todo:
        for below, _ in todo.pop().next_functions:
            if below is not None and below not in seen:
                seen.add(below)
                if below not in ends:
                    todo.append(below)
    return seen


def nothing(grads: tuple) -> tuple:
    return (None,) * len(grads)


def nothing_of_many(*grads: Any) -> tuple:
    """No gradient for any of a function's arguments: the engine takes more than there are, if these are None."""
    return (None,) * 1000
