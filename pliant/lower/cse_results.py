"""Computed twice, once for a result: `f(x + y), x + y` is one addition, whose value `f` reads.

What `views.without_repetition` leaves: it never drops an operation whose result the caller gets, for results are told apart by identity.
Here the earlier of two equal operations takes over the result of the later one, if nobody outside gets its own.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pliant.graph.traced import TracedTensor
from pliant.lower import liveness, views


def without_repeated_results(ops: list[Any], kept: list[Any]) -> list[Any]:
    """`ops` without operations that compute again, for one of `kept`, what an earlier one computed for readers in here alone.

    Only where nobody can tell: no effects, and neither what is read nor what is made is written by anybody.
    """
    results = {t.vid for t in liveness.tensors(kept)}
    steps = views.view_steps(ops)
    outside = {views.root(t, steps).vid for t in liveness.tensors(kept)}
    dirty = liveness.dirty_memory(ops)
    table: dict[tuple, int] = {}
    same: dict[int, TracedTensor] = {}
    earlier: dict[int, TracedTensor] = {}  # the other way round: for the keys of what was met before the later one
    gone: set[int] = set()
    out = list(ops)
    for i, op in enumerate(ops):
        made = single_result(op, dirty)
        if made is None or made.vid in steps:
            continue
        key = (op.target, views.key_of(views.swap(op.args, earlier)), views.key_of(views.swap(op.kwargs, earlier)))
        first = table.setdefault(key, i)
        if first == i or made.vid not in results:
            continue
        twin = ops[first].outs[0]
        if twin.vid in outside or twin.vid in same or not views.same_layout(twin, made):
            continue
        same[twin.vid], earlier[made.vid] = made, twin
        out[first] = replace(ops[first], outs=[made])
        gone.add(i)
    if not gone:
        return ops
    return [views.substitute(op, same) for i, op in enumerate(out) if i not in gone]


def single_result(op: Any, dirty: set[int]) -> TracedTensor | None:
    """The one tensor that `op` makes, if computing it is all that it does, from and into memory that nobody writes."""
    if len(op.outs) != 1 or op.out_spec is not None or type(op.outs[0]) is not TracedTensor:
        return None
    if op.binds or liveness.has_effect(op) or liveness.mutable(op.target):
        return None
    made = op.outs[0]
    reads = liveness.op_inputs(op)
    if not reads or made.storage_id in dirty or any(t is made or t.storage_id in dirty for t in reads):
        return None
    return made
