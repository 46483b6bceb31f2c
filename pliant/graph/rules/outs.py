"""`out=`: where the operator without it has a rule, and the tensor given has the sizes and the dtype of its result, that says all.

PyTorch's own shape functions for these overloads are Python code of which the first call imports TorchDynamo, which takes seconds.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from pliant.graph.operands import op_inputs
from pliant.graph.rules.table import RULES
from pliant.graph.traced import TracedTensor, Untraceable, tensors_of


def with_out(trace: Any, func: Any, args: tuple, kwargs: dict) -> Any:
    """The result of an overload with one `out`, which is that tensor; NotImplemented if it would be resized or refused."""
    out = kwargs.get("out")
    if type(out) is not TracedTensor:
        return NotImplemented
    rule = RULES.get(without_out(func))
    if rule is None:
        return NotImplemented
    r = rule(trace, *args, **{k: v for k, v in kwargs.items() if k != "out"})
    if type(r) is not TracedTensor or r.dtype is not out.dtype or r.device != out.device or len(r.sizes) != len(out.sizes):
        return NotImplemented
    return out if all([a is b or bool(a == b) for a, b in zip(r.sizes, out.sizes, strict=True)]) else NotImplemented  # this is guarded


def check_written(ops: list[Any], out: Any) -> None:
    """Raises Untraceable if none of these operations has to do with the `out` of the call that recorded them: PyTorch's C++ code for
    tensors whose class is one of Python's leaves it as it was (`linalg.matrix_rank`)."""
    for t in tensors_of([out]):
        if not any([t.storage_id == r.storage_id for op in ops for r in op_inputs(op)]):
            raise Untraceable(ops[-1].target if ops else "out=", "its C++ code does not write to `out`")


@cache
def without_out(func: Any) -> Any:
    """The overload of the same operator that returns new memory, or None."""
    schema = func._schema
    given = [(a.name, str(a.type)) for a in schema.arguments if a.name != "out"]
    if len(schema.returns) != 1 or len(given) != len(schema.arguments) - 1:
        return None
    packet = func.overloadpacket
    for name in packet.overloads():
        other = getattr(packet, name)
        if [(a.name, str(a.type)) for a in other._schema.arguments] == given:
            return other
    return None
