"""What a backward part that is traced anew could read: all that eager's nodes would have kept.

A region whose functions or hooks read the outside (`trace.read_later`) may have to ask them once more when gradients arrive. What they do
then need not be what they did in the capture, and may need tensors that the backward part of the capture does not read.
"""

from __future__ import annotations

from typing import Any

from pliant.graph.traced import TracedTensor
from pliant.lower import cse, liveness
from pliant.lower.autograd import Plan
from pliant.lower.sections import history_of, nodes_under

SAVED = "_saved_"


def kept_for_later(plan: Plan) -> list[TracedTensor]:
    """These tensors, and what those that are views are views of; none where nobody is asked once more."""
    trace = plan.trace
    if not trace.read_later.places:
        return []
    start = len(trace.ops)
    with trace.recording(), trace.forgetting():
        nodes = nodes_under([history_of(h) for h in plan.differentiable], plan.ends)
        told = [saved_by(n) for n in nodes] + list(trace.behind.values())
    made = {t.vid: op for op in trace.ops[start:] for t in liveness.op_outputs(op)}  # a result that its own node keeps comes as a view
    del trace.ops[start:]
    known = {t.vid for op in plan.program for t in liveness.op_outputs(op)} | plan.slot_vids
    todo, found = list(liveness.tensors_of(told)), {}
    while todo:
        t = todo.pop()
        if t.vid in made:
            todo += liveness.op_inputs(made[t.vid])
            continue
        t = cse.swap(t, plan.same.tensors)
        if t.vid in known and t.vid not in found and t.constant is None:
            found[t.vid] = t
            todo += [plan.forward_steps[t.vid].base] if t.vid in plan.forward_steps else []
    views = plan.kept_views
    bases = {base.vid: views.alias_of(base) for t in found.values() if (base := views.below(t)) is not None}
    return [*found.values(), *bases.values()]


def saved_by(node: Any) -> list[Any]:
    """What a node has saved, and what the context of a function holds."""
    native = [getattr(node, name) for name in dir(type(node)) if name.startswith(SAVED) and name != "_saved_tensors"]
    return [*native, *getattr(node, "saved_tensors", ()), *vars(node).values()] if hasattr(node, "__dict__") else native
