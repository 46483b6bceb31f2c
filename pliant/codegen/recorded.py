"""Training regions of which autograd itself records the operations, as in eager: where no backward part can be traced beforehand.

An operator may have no derivative, which eager says once gradients arrive, and of that alone which they arrive at; or one that asks for
what only the run knows. What was saved may be written since, which eager says likewise; results may come from each other by way of writes.
No node of ours stands for such a region. Its program calls ATen above autograd, each operation in the grad mode
that the program was in, and the history that results have is the one that eager gives them: the same nodes, which raise the same errors.
Operators without a derivative are sections of their own, between nodes, where the region can be cut there (`lower/sections.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from pliant.codegen.aten import RECORDED, Executable, Lowering, Writer
from pliant.graph.control_flow import FLOWS
from pliant.graph.operands import node_of
from pliant.graph.originals import is_grad_enabled
from pliant.graph.record import TorchOp
from pliant.graph.trace import engine_gradients
from pliant.graph.traced import (
    LAYOUTS,
    LEAF_VIEWS,
    NO_DERIVATIVE,
    READS,
    REBASED,
    UNCUT,
    NoBackward,
    Reconsider,
    TracedTensor,
    Untraceable,
)
from pliant.lower import liveness, pipeline
from pliant.lower.autograd import WITHOUT_DERIVATIVE, WRITTEN_SINCE
from pliant.lower.program import Program
from pliant.lower.sections import Section, may_cut
from pliant.symbolic.scope import DataDependent

LIBRARY = "torch._library.autograd"
NOT_IMPLEMENTED = frozenset({"torch::autograd::NotImplemented", "torch::autograd::WarnNotImplemented"})
HISTORIES = frozenset({LAYOUTS, LEAF_VIEWS, REBASED, UNCUT})
STATE = (
    "exits", "marks", "stores", "assumed", "hooked", "modules_hooked", "differentiated", "freed", "behind", "own_leaves", "rebound_leaves",
    "data_memory", "parts", "wrapping", "wholes", "of_inference", "frozen", "zeros", "in_transform", "dual_levels", "reentered", "undone",
)  # fmt: skip
"""What a trace notes of programs that do more than call operators: they are not left to autograd."""


def instead(trace: Any, inputs: list[Any], ops: list[Any], outputs: list[Any], name: str, why: Exception) -> Executable | None:
    """The region of these operations, recorded by autograd, where it can be that for this reason."""
    if not of_history(why) or not is_grad_enabled() or not can_be(trace, ops):
        return None
    return printed(trace, inputs, ops, outputs, name, list(trace.scope.asserts))


def printed(trace: Any, inputs: list[Any], ops: list[Any], outputs: list[Any], name: str, checks: list[Any]) -> Executable:
    """The program of these operations, above autograd."""
    ops = [replace(op, grad=True) if through_python(op) else op for op in ops]
    p = Program(name, trace.scope, inputs, outputs, ops, asserts=[c.expr for c in checks], closed=False)
    p = pipeline.call_aten(pipeline.run(p, (pipeline.DCE,)))
    return Writer(name, trace.scope, inputs, outputs, p.steps, checks).finish(RECORDED)


@dataclass(slots=True)
class Apart:
    """A section that autograd records, in the place of one with a plan (`autograd_region.Planned`)."""

    trace: Any
    section: Section
    name: str
    plan: None = None

    def build(self, lower: Lowering | None) -> Executable:
        s = self.section
        return printed(self.trace, s.inputs, s.ops, s.outputs, self.name, s.asserts)


def parts_of(trace: Any, ops: list[Any], names: set[str]) -> Iterator[list[list[Any]]]:
    """Ways to part the operations: those of these names, of what has gradients, on their own; or with all that comes behind the first of
    them, where what they make is differentiated: autograd's engine goes through their nodes, which raise even if nothing arrives."""
    if not is_grad_enabled() or not may_cut(trace) or not can_be(trace, ops):
        return
    found = [[*group] for _, group in groupby(ops, lambda op: lacking(op, names))]
    if len(found) > 1:
        yield found
        if not lacking(found[0][0], names):
            yield [found[0], ops[len(found[0]) :]]


def lacking(op: Any, names: set[str]) -> bool:
    """Whether an operation is one of these, as `NO_DERIVATIVE` names them, of what has gradients."""
    return op.target._schema.name.removeprefix("aten::") in names and any([t.requires_grad for t in liveness.op_outputs(op)])


def of_history(why: Exception) -> bool:
    """Whether nothing but the histories of tensors is in the way of a region of nodes."""
    if isinstance(why, NoBackward):  # eager says so when gradients arrive, and of those that come by there
        return WRITTEN_SINCE in str(why.error)
    return isinstance(why, Reconsider) and (why.what in HISTORIES or why.what.startswith((NO_DERIVATIVE, READS)))


def can_be(trace: Any, ops: list[Any]) -> bool:
    """Whether autograd records of these operations what it records of the program's."""
    if any([getattr(trace, state) for state in STATE]):
        return False
    for op in ops:
        target = op.target
        theirs = target in FLOWS or target._schema.name.startswith("pliant") or op.again or op.unheard
        if theirs or not (op.grad or through_python(op)) and any([t.requires_grad for t in liveness.op_outputs(op)]):
            return False
    return all([not lacks_derivative(trace, op) for op in ops if stands_for_another(trace, op)])


def through_python(op: Any) -> bool:
    """Whether an operator's derivative is one that was registered in Python, or that there is none: an `autograd.Function` of PyTorch's own
    calls it, with gradients off."""
    nodes = [node_of(t) for t in liveness.op_outputs(op) if t.requires_grad] if not op.grad else []
    made = [getattr(node, "_forward_cls", None) for node in nodes]
    name = f"GeneratedBackwardFor_{op.target.namespace}_{op.target._opname}_{op.target._overloadname}"
    return bool(made) and all([cls is not None and (cls.__module__, cls.__name__) == (LIBRARY, name) for cls in made])


def stands_for_another(trace: Any, op: Any) -> bool:
    """Whether the program may have called something else, which this operator is a part of, or is recorded in the place of."""
    call: TorchOp | None = trace.torch_ops[op.torch_index] if op.torch_index >= 0 else None
    own = op.target._schema.name.partition("::")[2]
    called = getattr(call.fn, "__name__", "").partition(".")[0] if call is not None else ""
    return own.rstrip("_") != called.rstrip("_")


def lacks_derivative(trace: Any, op: Any) -> bool:
    """Whether autograd refuses a gradient of what this operation has made, which it might give of what the program has called."""
    made = [t for t in liveness.op_outputs(op) if t.requires_grad]
    for t, given in [(t, given) for t in made for given in liveness.op_inputs(op) if given.requires_grad]:
        if any([said in NOT_IMPLEMENTED for said in named(t)]):
            return True
        start, guards = len(trace.ops), trace.scope.snapshot()
        try:
            with trace.recording(), trace.forgetting():
                engine_gradients([t], [given], [trace.tangent(t)])
        except DataDependent:
            return True  # nobody knows
        except (RuntimeError, Untraceable) as e:
            if WITHOUT_DERIVATIVE.search(str(e)):
                return True
        finally:
            del trace.ops[start:]
            trace.scope.rollback(guards)
    return False


def named(t: TracedTensor) -> Iterator[str]:
    with suppress(RuntimeError, AttributeError):
        yield node_of(t).name()
