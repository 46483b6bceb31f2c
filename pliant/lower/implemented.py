"""Which dtypes and numbers ATen has code for: what it refuses stays an ATen call, so that it refuses.

PyTorch's shape functions pass what a kernel then refuses for its dtype (`relu` of bools, `hardswish` of integers, `|` of floats), or a
number that does not fit (300 in an `int8`). A kernel of pliant's would give an answer there. So a pointwise operation on other dtypes
than float and double is tried once on small tensors; others, which ask more of their operands than a dtype, refuse in their lowering.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from pliant.graph.traced import TracedTensor
from pliant.lower import liveness

ALL = (torch.float32, torch.float64)
"""Dtypes that everything which has a lowering is there for, but for operators of bits."""
STAND = {torch.SymInt: 1, torch.SymFloat: 0.5, torch.SymBool: True}
_known: dict[tuple, bool] = {}


def implemented(op: Any) -> bool:
    """Whether ATen has code for this operation and the dtypes of its operands, as far as is told before it runs."""
    tensors = liveness.op_inputs(op)
    if not fits(op, tensors):
        return False
    if all([t.dtype in ALL for t in tensors]) and "bitwise" not in op.target._schema.name:
        return True
    tags = op.target.tags
    if torch.Tag.pointwise not in tags and op.target._schema.name not in POINTWISE:
        return True
    if torch.Tag.nondeterministic_seeded in tags or any([t.layout is not torch.strided for t in tensors]):
        return True
    key = (op.target, shape_of(op.args), shape_of(op.kwargs))
    found = _known.get(key)
    if found is None:
        found = _known[key] = tried(op)
    return found


MOST = {t: torch.finfo(t).max for t in (torch.float16, torch.bfloat16, torch.float32)} | {
    t: torch.iinfo(t).max for t in (torch.int8, torch.uint8, torch.int16, torch.int32)
}
WIDE = {torch.bfloat16, torch.float32}


POINTWISE = frozenset(f"aten::{name}" for name in "hardswish hardswish_ rsub log_sigmoid_forward".split())
"""Pointwise, too, although no tag tells."""
CHECKED = frozenset(f"aten::{name}{end}" for name in "masked_fill where clamp clamp_min clamp_max fill".split() for end in ("", "_"))
"""Operators that convert a number with a check; others compute with it as it is."""


def fits(op: Any, tensors: Sequence[TracedTensor]) -> bool:
    """Whether each plain number among the arguments is one of the dtypes of the tensors beside it; those that vary may not be."""
    narrow = {t.dtype for t in tensors if t.dtype in MOST}
    if not narrow:
        return True
    given = (*op.args, *op.kwargs.values())
    if op.target._schema.name in CHECKED and any([type(v) in (torch.SymInt, torch.SymFloat) for v in given]):
        return narrow <= WIDE
    numbers = [v for v in given if type(v) in (int, float) and not -128 < v < 127 and math.isfinite(v)]
    return not any([not -MOST[t] - 1 <= v <= MOST[t] for v in numbers for t in narrow])


def shape_of(v: Any) -> Any:
    """What an argument is, without its values."""
    t = type(v)
    if t is TracedTensor:
        return (v.dtype, len(v.sizes), v.device)
    if t in (list, tuple):
        return (t, *map(shape_of, v))
    if t is dict:
        return tuple([(k, shape_of(x)) for k, x in v.items()])
    return v if t in (torch.dtype, str) else t


def small(v: Any) -> Any:
    t = type(v)
    if t is TracedTensor:
        return torch.ones((2,) * len(v.sizes), dtype=v.dtype, device=v.device)
    if t in (list, tuple):
        return t([small(x) for x in v])
    if t is dict:
        return {k: small(x) for k, x in v.items()}
    return STAND.get(t, v)


def tried(op: Any) -> bool:
    with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction(), torch.no_grad():
        try:
            op.target(*small(op.args), **small(op.kwargs))
        except NotImplementedError:
            return False
        except Exception as e:  # what it says of the made-up sizes and values does not count
            return not any([words in str(e) for words in ("not supported", "not implemented", "argument alpha must")])
    return True


__all__ = ["implemented"]
