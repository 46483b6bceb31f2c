"""Operations that raise on what only the run can tell: divisions of integers by 0, and memory of a size that may be less than 0."""

from __future__ import annotations

from typing import Any

from pliant.graph.operands import number, op_inputs
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


def sized_by_data(op: Any) -> bool:
    """Whether the operation is the first that makes a tensor of a size that only the run knows, which may be less than 0."""
    if not op.outs or type(op.outs[0]) is not TracedTensor:
        return False
    made = op.outs[0]
    sizes = [n.node for n in made.sizes if type(n) is not int and not n.node.expr.backed]
    sizes = [n for n in sizes if not n.scope.known_true(numbers.ge(n.expr, 0))]
    if not sizes:
        return False
    read = op_inputs(op)
    known = {n.node.expr for t in read for n in t.sizes if type(n) is not int}
    return not any([t.storage_id == made.storage_id for t in read]) and any([n.expr not in known for n in sizes])
