"""Functions that are called where they might be interpreted: Python alone, whose decisions keep changing (`jit/functions_apart.py`).

A capture notes of each call that it interprets how many operations came of it. The graph breaks in front of calls of functions that were
found to be better off apart; CPython makes the call, and what is given tensors in there is compiled as below any break.
"""

from __future__ import annotations

import sys
from operator import length_hint
from typing import Any

from pliant.bytecode import kinds as K
from pliant.graph.control_flow import Flow, FlowOp
from pliant.graph.traced import TracedTensor
from pliant.interpret.state import Break, Frame, vm

APART = "decisions in this function keep changing, and hardly anything in it is done with tensors: it is called"
CALLS = (K.CALL, K.CALL_KW, K.CALL_EX)


def begins(f: Frame) -> int:
    """A call is about to be interpreted: the operations that there are. Breaks where it is to be made by CPython."""
    if f.watched and caller_of(f) is not None and vm.history.called_apart(f.code):
        raise Break("PL0015", APART, clean=True)
    return operations()


def ends(f: Frame, before: int) -> None:
    """It has been interpreted to its end, or to where the graph breaks."""
    caller = caller_of(f)
    if caller is not None:
        seen, here = vm.world.inlined, operations() - before
        whole = sys.exc_info()[0] is None
        found = seen.get(id(f.code))
        if found is None or found[2] < here or whole > found[3]:
            seen[id(f.code)] = f.code, caller.code, here, whole


def walk_begins(f: Frame, it: Any) -> None:
    """An iterator of C has been made by the instruction in front of which `f` stands."""
    if length_hint(it):  # a loop over nothing says nothing
        vm.world.walks[id(it)] = it, f.code, f.decoded.offsets[f.pc - 1], operations()


def walk_ends(it: Any) -> None:
    """A loop is over, since its iterator is: whether nothing was done with tensors in any of its rounds."""
    found = vm.world.walks.pop(id(it), None)
    if found is not None:
        _, code, offset, before = found
        walked = vm.world.walked.setdefault(id(code), (code, {}))[1]
        walked[offset] = max(walked.get(offset, 0), operations() - before)


def operations() -> int:
    """How many calls of PyTorch the capture has met that are given tensors with dims. (`torch.tensor` of a list is a few of scalars for
    each number, and saves nothing.)"""
    counted, n, found = vm.world.computes
    calls, ops = vm.trace.torch_ops, vm.trace.ops
    if counted != len(calls) or n != len(ops):
        found += computing(calls[counted:], ops[n:])
        vm.world.computes = len(calls), len(ops), found
    return found


def computing(calls: list, ops: list) -> int:
    """How many of these calls are given tensors with dims; with those of the ways through the branches and loops among `ops`, the
    operations of the graph, which are no calls of its own."""
    return sum([any(map(has_dims, op.args)) for op in calls]) + sum([inside(op.flow) for op in ops if type(op) is FlowOp])


def inside(flow: Flow) -> int:
    """The calls of a run through a branch, or of a round of a loop: ways have begun to count them at the same number."""
    ops = flow.ops()
    return len({op.torch_index for op in ops if any(map(has_dims, op.args))}) + sum([inside(op.flow) for op in ops if type(op) is FlowOp])


def has_dims(a: Any) -> bool:
    """Whether an argument is a tensor with dims, or begins with one."""
    if type(a) in (list, tuple) and a:
        a = a[0]
    return type(a) is TracedTensor and len(a.sizes) > 0


def caller_of(f: Frame) -> Frame | None:
    """The frame that calls this one, if the graph can break at the call: a plain one, in which an instruction calls, not C code."""
    caller = f.parent
    if caller is None or caller.decoded.is_generator or caller.decoded.kinds[caller.pc - 1] not in CALLS:
        return None
    return caller
