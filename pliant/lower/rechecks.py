"""Which of several checks of one native call comes first: operations of ATen that raise, in the order of the program, what eager raises.

A kernel looks at one element after another, and a segment is one call: what it returns tells that some check failed. The frame runs
anew then, as a rule. Behind a write it cannot; so these are done, after the native call has failed and on what it was given.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from pliant.graph.traced import TracedTensor
from pliant.lower import liveness
from pliant.lower.aliases import ANY_INPUT, Aliases


def rechecks(ops: list[Any], aliases: Aliases, given: list[TracedTensor], overwritten: list[TracedTensor]) -> list[Any]:
    """For native code that stands for `ops`, is given `given` and also writes over `overwritten`. Ends before a check that depends on
    what it has written; empty where it does not check more than once, or the frame can run anew."""
    if aliases.repeatable:
        return []
    checks = {liveness.op_outputs(op)[0].vid: op for op in ops if liveness.op_outputs(op) and liveness.has_effect(op)}
    if len(checks) < 2:
        return []
    again = Rechecks(ops, aliases, given, overwritten)
    for _, op in sorted(checks.items()):
        alone = without_writing(op)
        if not liveness.only_checks(op.target) or alone is None or not again.add(alone, len(liveness.op_inputs(op)) > 1):
            break
    return again.out


def without_writing(op: Any) -> Any:
    """The operation, or the one that makes a result of its own where this one writes."""
    if not liveness.mutable(op.target):
        return op
    packet = getattr(torch.ops.aten, op.target._schema.name.removeprefix("aten::").removesuffix("_"), None)
    target = getattr(packet, op.target._overloadname, None)
    return None if target is None or liveness.mutable(target) else replace(op, target=target, outs=[])


class Rechecks:
    """`out`: the operations so far. `stale`: those tensors (by vid) that are not what they were, or are made of such."""

    def __init__(self, ops: list[Any], aliases: Aliases, given: list[TracedTensor], overwritten: list[TracedTensor]) -> None:
        self.aliases = aliases
        self.slots = {t.vid for t in given}
        self.makers = {t.vid: op for op in ops if not liveness.mutable(op.target) for t in liveness.op_outputs(op)}
        self.written = {t.storage_id for op in ops for t in liveness.written(op)} | {t.storage_id for t in overwritten}
        self.dtypes: dict[bool, set[torch.dtype]] = {}  # of what was written of memory from outside: by this native call, by anybody
        self.known: dict[int, bool] = {}
        self.stale: set[int] = set()
        self.out: list[Any] = []

    def add(self, op: Any, has_data: bool) -> bool:
        """Add the operation and what makes its operands, if that tells what it told before. `has_data`: its first one is not looked at."""
        length = len(self.out)
        for i, t in enumerate(liveness.op_inputs(op)):
            if not self.has(t) or t.vid in self.stale and not (i == 0 and has_data):
                del self.out[length:]
                return False
        self.out.append(op)
        return True

    def has(self, t: TracedTensor) -> bool:
        """Whether there is this tensor, made again if native code keeps it to itself."""
        if t.vid not in self.known:
            self.known[t.vid] = self.makes(t)
        return self.known[t.vid]

    def makes(self, t: TracedTensor) -> bool:
        steps, here = self.aliases.steps, t.vid in self.makers
        op = self.makers.get(t.vid)
        if op is None and t.vid not in self.slots:
            op = steps[t.vid].op if t.vid in steps else self.aliases.makers.get(t.vid)
        if not here and self.is_written(t, op):
            self.stale.add(t.vid)
        if op is None:
            return True
        if liveness.RANDOM in op.target.tags or op.binds:
            return False
        if not all([self.has(x) for x in liveness.op_inputs(op)]):
            return False
        if any([x.vid in self.stale for x in liveness.op_inputs(op)]):
            self.stale.update(o.vid for o in liveness.op_outputs(op))
        if all([op is not other for other in self.out]):
            self.out.append(op)
        return True

    def is_written(self, t: TracedTensor, op: Any) -> bool:
        """Whether somebody has written to `t`: if `op` made it for native code before this, or if it is made from the same again, anybody;
        also to what, for all we know, may be the same memory from outside."""
        aliases = self.aliases
        own = op is None and t.vid in self.slots
        written = self.written if own else aliases.written
        if t.storage_id in written:
            return True
        if aliases.storage(t) != ANY_INPUT:
            return False
        if own not in self.dtypes:
            given = [x for x in aliases.tensors.values() if x.storage_id in aliases.inputs]
            self.dtypes[own] = {x.dtype for x in given if x.storage_id in written}
        return t.dtype in self.dtypes[own]
