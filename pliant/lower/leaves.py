"""Leaves that a captured region makes and that are there behind it: returned, stored, or all that a result has gradients from.

To autograd such a tensor is nothing that a node has made: it is a leaf, of the class that the program gave it. So the region is cut
(`lower/sections.py`) in front of the first operation that gradients flow back to the leaf from. What makes its data is on this side of
the cut and has no gradients; the program around the sections makes a leaf of that, and to those behind it is an input like any parameter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set
from typing import Any

import torch

from pliant.graph.operands import node_of, views_without
from pliant.graph.originals import ORIGINAL, new_leaf, new_leaf_of_data, new_parameter, new_parameter_of_data
from pliant.graph.traced import LEAF, LEAF_VIEWS, Reconsider, TracedTensor
from pliant.lower import liveness
from pliant.lower.views import DETACH, without_history


def shown(trace: Any, inputs: list[Any], outputs: list[Any]) -> dict[int, TracedTensor]:
    """These leaves by vid. Raises Reconsider for one that cannot be made behind what makes its data."""
    given = {t.vid for t in liveness.tensors_of(inputs)}
    begins = {trace.leaves.get(vid, t).vid for vid, t in ((t.vid, t) for t in liveness.tensors_of(inputs))}
    found: dict[int, TracedTensor] = {}
    for t in liveness.tensors_of(outputs):
        if not t.requires_grad or t.vid in given or t.source is not None:
            continue
        if without_history(t):
            found[t.vid] = t
            continue
        own = variables_under(t, trace.freed)
        if begins.isdisjoint(own):
            found |= own
    for t in found.values():
        refuse(trace, t)
    return found


def rooted(trace: Any, shown: dict[int, TracedTensor], outputs: list[Any]) -> dict[int, TracedTensor]:
    """Those that a result has gradients from."""
    seen = [t for t in liveness.tensors_of(outputs) if t.requires_grad and t.source is None and t.vid not in shown]
    under = set().union(*[variables_under(t, trace.freed) for t in seen])
    return {vid: t for vid, t in shown.items() if vid in under}


def variables_under(t: TracedTensor, freed: Set[Any], ends: Set[Any] = frozenset()) -> dict[int, TracedTensor]:
    """The leaves that the history of a tensor begins at, not beyond the nodes `ends`; none if `backward()` has `freed` it."""
    node = node_of(t)
    if node is None or node in freed or node in ends:
        return {}
    under = nodes_under([node], ends)
    if not freed.isdisjoint(under):
        return {}
    return {n.variable.vid: n.variable for n in under if n not in ends and n.name() == ACCUMULATES}


ACCUMULATES = "torch::autograd::AccumulateGrad"


def nodes_under(nodes: Iterable[Any], ends: Set[Any] = frozenset()) -> set[Any]:
    """The nodes of the autograd graph that can be reached from these, not through one of `ends`. (A leaf has none: None is left out.)"""
    todo = [n for n in nodes if n is not None]
    seen = set(todo)
    while todo:
        for below, _ in todo.pop().next_functions:
            if below is not None and below not in seen:
                seen.add(below)
                if below not in ends:
                    todo.append(below)
    return seen


def refuse(trace: Any, t: TracedTensor) -> None:
    with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunctionSubclass():
        hooks = ORIGINAL._backward_hooks.__get__(t) or ORIGINAL._post_accumulate_grad_hooks.__get__(t)
    plain = t.pytype in MAKERS and t.vid in trace.own_leaves and t.requires_grad and t.constant is None
    if not plain or hooks or t.storage_id in trace.of_inference:
        word = LEAF_VIEWS if t.vid in views_without(trace.ops) else LEAF
        raise Reconsider("a leaf", "a leaf that is made here, and not by plain means, outlives the graph", word)


MAKERS: dict[type, Callable[[torch.Tensor], torch.Tensor]] = {torch.Tensor: new_leaf, torch.nn.Parameter: new_parameter}
"""By the class that the program sees: what makes the leaf of its data."""
OF_DATA: dict[type, Callable[[torch.Tensor], torch.Tensor]] = {torch.Tensor: new_leaf_of_data, torch.nn.Parameter: new_parameter_of_data}
"""The same of a leaf over memory that is another's, as `.data` and an assignment to it make."""


def maker_of(t: TracedTensor) -> Callable[[torch.Tensor], torch.Tensor]:
    return (OF_DATA if t.vid in t.trace.rebound_leaves else MAKERS)[t.pytype]


def reads(t: TracedTensor, op: Any) -> bool:
    """Whether an operation makes something of a leaf, and does not just write to it. Gradients may flow back from that, or from what comes
    of it: an `autograd.Function` says so only of its results."""
    if op.target is DETACH and not op.outs[0].requires_grad:
        return False
    return any([u.vid == t.vid for u in liveness.op_inputs(op)]) and any([u.vid != t.vid for u in liveness.op_outputs(op)])


def growing(trace: Any, outputs: list[Any]) -> Callable[[TracedTensor, Any], bool]:
    """Whether an operation makes something of a leaf that one of these results comes from: not what `backward()` has gone through."""
    seen = nodes_under([node_of(t) for t in liveness.tensors_of(outputs) if t.requires_grad]) - trace.freed

    def grows(t: TracedTensor, op: Any) -> bool:
        return reads(t, op) and any([u.requires_grad and node_of(u) in seen for u in liveness.op_outputs(op)])

    return grows


def reached(section: Any, freed: Set[Any], crossing: dict[int, TracedTensor]) -> bool:
    """Whether the leaves under what a section makes are inputs of it, as far as they are these."""
    given = {t.vid for t in liveness.tensors_of(section.inputs)}
    ends = {t.grad_fn for t in section.crossing}
    made = [t for t in liveness.tensors_of(section.made) if t.requires_grad and t.vid not in crossing and t.vid not in given]
    return all([given.issuperset(variables_under(t, freed, ends).keys() & crossing.keys()) for t in made])
