"""Views: which tensors are made from which without copying.

Autograd must see views as views: an output of a training region that is a view is made outside of the differentiable node, by
replaying the view operations that the program used. Then `_base`, in-place writes, version counters and gradients are those of
eager, because they *are* eager's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from pliant.graph.originals import CREATED, ORIGINAL
from pliant.graph.schema import UNDECLARED_VIEWS, argument, op_info
from pliant.graph.symnode import expr_of
from pliant.graph.traced import PARTS, Reconsider, TracedTensor, Untraceable
from pliant.lower import liveness
from pliant.symbolic.ops import eq

DETACH = torch.ops.aten.detach.default


@dataclass(frozen=True, slots=True)
class ViewStep:
    """`op` made a view of `base`."""

    op: Any
    base: TracedTensor


def view_base(op: Any, i: int = 0) -> TracedTensor | None:
    """The argument that result `i` is a view of, according to the operator's schema; None if it is no view.

    `detach` of what has no gradient is no view: autograd tells the two apart, and factories (`torch.zeros`) record one.
    """
    names = viewed(op.target)
    name = names[min(i, len(names) - 1)] if names else None
    if name is None:
        return None
    base = argument(op_info(op.target), op.args, op.kwargs or {}, name)
    if not isinstance(base, TracedTensor) or base is op.outs[i] or (op.target is DETACH and not base.requires_grad):
        return None
    return base


@liveness.of_operator
def viewed(target: Any) -> tuple[str | None, ...]:
    """For each result of an operator, the argument that it is a view of. Empty: there is no view among them."""
    if target in UNDECLARED_VIEWS:
        return ()
    listed = listed_views(target)
    returns = op_info(target).returns
    names = tuple([listed if alias is None else None if alias[1] else alias[0] for alias in returns])
    return names if any(names) else ()


@liveness.of_operator
def listed_views(target: Any) -> str | None:
    """The argument that an operator returns a list of views of (`split`, `unbind`): schemas write it as `Tensor(a -> *)`."""
    if len(target._schema.returns) != 1 or "List[Tensor]" not in str(target._schema.returns[0].type):
        return None
    found = (a.name for a in target._schema.arguments if a.alias_info is not None and "*" in a.alias_info.after_set)
    return next(found, None)


def view_steps(ops: Iterable[Any]) -> dict[int, ViewStep]:
    """For each traced tensor (by vid) that is a view, how it was made."""
    steps: dict[int, ViewStep] = {}
    for out, step in views_made(ops):
        steps.setdefault(out.vid, step)
    return steps


def views_made(ops: Iterable[Any]) -> Iterator[tuple[TracedTensor, ViewStep]]:
    """Each result that is a view, and how it was made."""
    for op in ops:
        if not viewed(op.target):
            continue
        for i, out in enumerate(op.outs):
            base = view_base(op, i) if isinstance(out, TracedTensor) else None
            if base is not None:
                yield out, ViewStep(op, base)


def output_steps(ops: list[Any], outputs: Iterable[Any]) -> dict[int, ViewStep]:
    """The same for `outputs`, which the program gets to see: `y.detach()` has the version counter of `y`, though neither has gradients.

    Where nothing else is made of `y`, nobody can tell.
    """
    first: dict[int, tuple[TracedTensor, ViewStep]] = {}
    for out, step in views_made(ops):
        first.setdefault(out.vid, (out, step))
    steps = {vid: step for vid, (out, step) in first.items() if not made_below(out, step)}
    detached = [op for op in ops if op.target is DETACH and op.outs[0].vid not in steps and not op.outs[0].requires_grad]
    if detached:
        uses = Counter(t.vid for op in ops for t in liveness.op_inputs(op)) + Counter(t.vid for t in liveness.tensors_of(list(outputs)))
        made = {t.vid for op in ops for t in liveness.op_outputs(op)}
        for op in detached:
            base = op.args[0]
            if not isinstance(base, TracedTensor) or base is op.outs[0]:
                continue
            if uses[base.vid] > 1 or base.vid not in made or base.vid in steps:
                steps[op.outs[0].vid] = ViewStep(op, base)
    return steps


def outlived(ops: list[Any], steps: dict[int, ViewStep], refused: bool) -> bool:
    """Whether an operation gives a tensor object another layout in place that is a view, or of which a view was made before: made again
    behind it, that view would be another one. Raises Untraceable, if that is `refused`."""
    at = {id(op): i for i, op in enumerate(ops)}
    for i, op in enumerate(ops):
        if not liveness.restrides(op):
            continue
        x = op.args[0]
        if x.vid in steps or any([s.base is x and at.get(id(s.op), i) < i for s in steps.values()]):
            if refused:
                raise Untraceable(op.target, "gives another layout to a tensor of which there are views")
            return True
    return False


def made_below(out: TracedTensor, step: ViewStep) -> bool:
    """Was it made below autograd, by code that takes an operator apart or by an `autograd.Function`, as a result with gradients? Then
    autograd sees no view, or one whose history is not that of its base."""
    if not out.requires_grad:
        return False
    if step.base.requires_grad:
        return step.op.target is DETACH or made_by_function(out)
    return not ORIGINAL._is_view(out) or made_by_function(out)


def made_by_function(t: TracedTensor) -> bool:
    """Whether its history is a node of the program's own, of `torch.autograd.Function`."""
    try:
        return isinstance(t.grad_fn, torch.autograd.function.BackwardCFunction)
    except (Untraceable, RuntimeError):  # a view that was written another way since: autograd makes its node anew, or refuses it
        return False


def root(t: TracedTensor, steps: dict[int, ViewStep]) -> TracedTensor:
    """The tensor at the bottom of a chain of views."""
    while t.vid in steps:
        t = steps[t.vid].base
    return t


def chain(tensors: Iterable[TracedTensor], steps: dict[int, ViewStep], stop: set[int], ops: list[Any]) -> list[Any]:
    """The view operations that make `tensors` out of their roots (or out of tensors whose vid is in `stop`), in program order."""
    needed: set[int] = set()
    for t in tensors:
        while t.vid in steps and t.vid not in stop:
            step = steps[t.vid]
            needed.add(id(step.op))
            t = step.base
    return [op for op in ops if id(op) in needed]


def refuse_parts(trace: Any, outputs: Iterable[Any]) -> None:
    """Raises Reconsider if one of these is a tensor over a part of an array, or a view of one: its storage would begin elsewhere."""
    steps = view_steps(trace.ops)
    for t in liveness.tensors_of(list(outputs)):
        while t.vid in steps and t.vid not in trace.parts:
            t = steps[t.vid].base
        if t.vid in trace.parts and not trace.scope.decide_or_false(eq(*[expr_of(n, trace.scope) for n in (t.offset, trace.parts[t.vid])])):
            raise Reconsider("from_numpy", "a tensor over a part of an array, whose storage begins there, outlives the graph", PARTS)


def hides_gradient(op: Any) -> bool:
    """Was this view made under `no_grad`? (Its base has gradients, the view has none, and it is not `detach`.)"""
    if op.target is DETACH:
        return False
    return any(t.requires_grad for t in liveness.op_inputs(op)) and all(without_history(t) for t in liveness.op_outputs(op))


def without_history(t: TracedTensor) -> bool:
    """Whether gradients end at this tensor, or never come there."""
    try:
        return t.grad_fn is None
    except Untraceable:  # autograd would make the history of a view anew, after its base was written: it has one
        return False
    except RuntimeError:  # it refuses to, of one that was made without gradients; and of one of many, which has one
        return CREATED(t) != torch._C._autograd.CreationMeta.MULTI_OUTPUT_NODE
