"""`out=`: where the operator without it has a rule, and the tensor given has the sizes and the dtype of its result, that says all.

PyTorch's own shape functions for these overloads are Python code of which the first call imports TorchDynamo, which takes seconds.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from pliant.graph.rules.table import RULES
from pliant.graph.traced import TracedTensor


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
