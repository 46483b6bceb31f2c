"""Operators that write their results to tensors they are given, where the one that makes new tensors has a rule: it is asked for them, too.

Where what is given to `out` has the sizes and the dtype of the result, that says all. (PyTorch's own shape functions for these overloads
are Python code of which the first call imports TorchDynamo, which takes seconds.) Of others the rule says what the kernel alone would
refuse, which would be too late where a handler waits or nobody reads the result.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from pliant.graph.operands import op_inputs
from pliant.graph.originals import torch
from pliant.graph.rules.misfits import misfit
from pliant.graph.rules.table import RULES
from pliant.graph.traced import TracedTensor, Untraceable, tensors_of


def with_out(trace: Any, func: Any, args: tuple, kwargs: dict) -> Any:
    """The result of an overload with one `out`, which is that tensor; NotImplemented if it would be resized or refused, and for what
    writes in place. Raises what the operator that makes new tensors refuses, or makes of other sizes than what is written to."""
    other, outs = makes_new(func)
    rule = RULES.get(other)
    if rule is None:
        return NotImplemented
    r = rule(trace, *args, **{k: v for k, v in kwargs.items() if k not in outs})
    if len(outs) > 1 or type(r) is not TracedTensor:
        return NotImplemented
    out = kwargs[outs[0]] if outs else args[0]
    if type(out) is not TracedTensor:
        return NotImplemented
    fit = len(r.sizes) == len(out.sizes) and all([a is b or bool(a == b) for a, b in zip(r.sizes, out.sizes, strict=True)])  # guarded
    if not outs:
        return NotImplemented if fit else misfit(trace, func, *args, **kwargs)
    return out if fit and r.dtype is out.dtype and r.device == out.device else NotImplemented


def check_written(ops: list[Any], out: Any) -> None:
    """Raises Untraceable if none of these operations has to do with the `out` of the call that recorded them: PyTorch's C++ code for
    tensors whose class is one of Python's leaves it as it was (`linalg.matrix_rank`)."""
    for t in tensors_of([out]):
        if not any([t.storage_id == r.storage_id for op in ops for r in op_inputs(op)]):
            raise Untraceable(ops[-1].target if ops else "out=", "its C++ code does not write to `out`")


@cache
def makes_new(func: Any) -> tuple[Any, tuple[str, ...]]:
    """The overload with these arguments that returns new memory, or None; and what the results are given as, if not in place."""
    schema = func._schema
    outs = tuple([a.name for a in schema.arguments if a.is_out])
    given = [(a.name, str(a.type)) for a in schema.arguments if not a.is_out]
    name = func.overloadpacket.__name__
    if not outs and not (name.endswith("_") and len(schema.returns) == 1 and schema.arguments[0].is_write):
        return None, ()
    packet = func.overloadpacket if outs else getattr(getattr(torch.ops, func.namespace), name[:-1], None)
    for found in [getattr(packet, n) for n in packet.overloads()] if packet is not None else ():
        own = found._schema
        new = not own.is_mutable and all([r.alias_info is None for r in own.returns])
        if new and [(a.name, str(a.type)) for a in own.arguments] == given:
            return found, outs
    return None, outs
