"""Gradients of gradients of a training region, from the tape of its capture, where its operations alone do not tell them.

Who differentiates a gradient usually gets the forward part run again under PyTorch's autograd (`codegen/double_backward.py`). That is no
way where a hook or an `autograd.Function` has its say in the gradients, or the region writes to what it is given, or draws random
numbers: the operations do not tell what the tape knows. So the engine runs twice over the tape, with traced gradients that require
gradients themselves: the second time, its operations are the program wanted, of what the forward part keeps, the gradients, and theirs.
Not where what hears of gradients is not linear in them (`linear.py`).
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

import torch

from pliant.graph import layout
from pliant.graph.originals import ORIGINAL, gradients
from pliant.graph.traced import TracedTensor
from pliant.lower import cse, liveness
from pliant.lower.autograd import AUTOCAST, Backward, Plan, recorded_gradients
from pliant.lower.linearity import linear
from pliant.lower.second_formulas import decomposed
from pliant.lower.sections import begun_at, ending, functions_under, history_of, nodes_under

ERROR = "torch::autograd::Error"
"""The node of `torch._C._functions.DelayedError`."""


@dataclass(frozen=True, slots=True)
class Second:
    """`program.tangents` are the gradients of the heads, then those of `grads` that have a history (the others are None in `begins`);
    `program.grads` are the results: for each of `wanted`, then for the gradients of the heads. `begins`: for each of `grads`, where
    its history begins: places among the results. `delayed`: a function that is differentiable once is below them, so PyTorch has put a node
    that raises there. `still`: gradients that arrive are taken for constants: a class of tensors does not know what comes of them."""

    program: Backward
    wanted: list[TracedTensor]
    heads: int
    begins: list[frozenset[int] | None]
    delayed: bool
    still: bool


def second_backward(plan: Plan, mask: tuple[bool, ...], only: Set[int] | None) -> Second | None:
    """The gradients of the gradients that `plan.trace_backward(mask, only)` gives. None: they cannot be recorded, or only with more than
    what is guarded. PyTorch's own derivatives are tried first."""
    scope = plan.trace.scope
    start, asserts, token = len(plan.trace.ops), len(scope.asserts), scope.snapshot()
    for still, by_formulas in ((False, False), (False, True), (True, False), (True, True))[: 4 if plan.trace.wrapping else 2]:
        try:
            found = trace(plan, mask, only, by_formulas, still)
        except Exception:  # a function or a hook that cannot be differentiated twice, or not without data: whoever asks is told
            found = None
        unguarded = not scope.guards_since(token) and len(scope.asserts) == asserts
        if found is not None and unguarded:
            return found
        del plan.trace.ops[start:]
        scope.rollback(token)  # the entry would rest on what nobody needs
        if unguarded and not plan.trace.wrapping:
            break
    return None


def trace(plan: Plan, mask: tuple[bool, ...], only: Set[int] | None, by_formulas: bool, still: bool) -> Second | None:
    recorded = plan.trace
    start = len(recorded.ops)
    wanted = [t for t in plan.wanted if only is None or t.vid in only]
    heads = [h for h, used in zip(plan.differentiable, mask, strict=True) if used]
    leaves = [plan.leaf(t) for t in wanted]
    without_autocast = torch._C._ExcludeDispatchKeyGuard(AUTOCAST)
    with recorded.recording(), recorded.forgetting(), layout.framework(), without_autocast, ending(plan.crossing):
        tangents = [recorded.tangent(h) for h in heads]
        with torch._C._DisableTorchDispatch():
            for t in () if still else tangents:
                ORIGINAL.requires_grad_(t)
        under = nodes_under([history_of(h) for h in heads]) if by_formulas else ()
        with gradients(True), decomposed(under):
            grads = recorded_gradients(recorded, heads, leaves, tangents, differentiable=True)
        plan.of_plain_tensors(list(grads))
        hears = recorded.hooked or functions_under([history_of(h) for h in heads])
        told = [g for g, t in zip(grads, wanted, strict=True) if t.vid not in recorded.mask_parts]
        if hears and not linear(recorded.ops[start:], tangents, told):
            return None
        moving = [g for g in grads if g is not None and g.requires_grad]
        seconds = [recorded.tangent(g) for g in moving]
        targets = leaves if still else [*leaves, *tangents]
        results = recorded_gradients(recorded, moving, targets, seconds) if moving else (None,) * len(targets)
        results += (None,) * len(tangents if still else ())
    plan.of_plain_tensors(list(results))
    ops = recorded.ops[start:]
    given = [*tangents, *seconds]
    plan.refuse_writes(ops, given)
    same = plan.same.copy()
    ops, stands = plan.kept_views.on_aliases(ops)
    ops = cse.without_repetition(ops, [], same)
    swapped = [cse.swap(cse.swap(r, stands), same.tensors) for r in results]
    program = Backward(liveness.live_ops(ops, swapped, given, keep_effects=False), given, swapped, [], [])
    if any([liveness.RANDOM in op.target.tags for op in program.ops]):
        return None  # a hook, which draws again each time
    begins = [begin(g, leaves, tangents) if g is not None and g.requires_grad else None for g in grads]
    delayed = any([n.name() == ERROR for n in nodes_under([g.grad_fn for g in moving])])
    return Second(plan.with_reads(program), wanted, len(heads), begins, delayed, still)


def begin(g: TracedTensor, leaves: list[TracedTensor], tangents: list[TracedTensor]) -> frozenset[int]:
    """Where the history of this gradient begins: places among `leaves` and `tangents`. (What crossed into a section: by its node.)"""
    under = nodes_under([g.grad_fn])
    vids = {g.vid, *map(begun_at, under)}
    edges = {edge for node in under for edge in node.next_functions}
    crossed = [t.vid for t in leaves if t.grad_fn is not None and (t.grad_fn, t.output_nr) in edges]
    return frozenset([i for i, t in enumerate([*leaves, *tangents]) if t.vid in vids or t.vid in crossed])
