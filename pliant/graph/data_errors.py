"""Operators that raise on what is in their operands, which only the run can tell: divisions of integers."""

from __future__ import annotations

from typing import Any

from pliant.graph.operands import number
from pliant.graph.schema import of_operator
from pliant.graph.traced import TracedTensor
from pliant.symbolic import ops as numbers

DIVISIONS = frozenset(f"aten::{name}{end}" for name in ("div", "divide", "floor_divide", "remainder", "fmod", "pow") for end in ("", "_"))
"""Operators of which integers raise on a divisor of 0, or on a negative exponent."""


@of_operator
def divides(target: Any) -> bool:
    """Does the operator raise on some integers?"""
    return target._schema.name in DIVISIONS


def raises_on_integers(op: Any) -> bool:
    """Do integers divide by what may be 0, or have an exponent that may be negative?"""
    made = op.outs[0]
    if type(made) is not TracedTensor or made.dtype.is_floating_point or made.dtype.is_complex or len(op.args) < 2:
        return False
    second, power = op.args[1], "pow" in op.target._schema.name
    if type(second) is TracedTensor:
        return not power
    if type(second) in (int, bool):
        return second < 0 if power else not second
    e = number(second)
    return e is not None and not second.node.scope.known_true(numbers.ge(e, 0) if power else numbers.ne(e, 0))
