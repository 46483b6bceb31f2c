"""Products with weights of int8 that segments compute themselves (native/int8*.cpp): which operations are one, over which memory.

`_int_mm` of int8 whose second operand is a weight seen transposed, summed in int32; the operators of `graph/quantized.py`.
"""

from __future__ import annotations

from typing import Any

import torch

from pliant.graph.data_errors import CHECKS_DATA
from pliant.graph.quantized import DYNAMIC_LINEAR, INT8_MM
from pliant.graph.traced import TracedTensor, is_lazy
from pliant.lower.gemm import LIBRARY, Products, Routine, reduced_precision_is_off
from pliant.lower.lowerings.builder import arguments

INT_MM = torch.ops.aten._int_mm.default


class Int8Product(Routine):
    """`out = a @ b^T` with b of int8, in int32, a being of int8 (`IntProduct` in native/int8.h)."""

    __slots__ = ()


class FloatProduct(Int8Product):
    """The one in f32, a being of f32."""

    __slots__ = ()


class DynamicLinear(Routine):
    """`out = linear(x, weight * scale, bias)`, x quantized by its own range (native/int8_linear.cpp). Operands: x, weight, scale, sums and,
    where there is one, bias."""

    __slots__ = ()


def readable(p: Products, t: TracedTensor, dtype: torch.dtype) -> bool:
    r = p.root(t)
    dense = t.layout is torch.strided and r.layout is torch.strided and not is_lazy(t)
    return dense and t.dtype is dtype and r.dtype is dtype and p.target.supports(t.device) and p.target.supports(r.device)


def int_mm(p: Products, op: Any, read: set[int]) -> list[Int8Product] | None:
    """What to run in place of an `_int_mm`; None if it is not one of these."""
    a, b, out = op.args[0], op.args[1], op.outs[0]
    if not p.target.has_int8() or op.kwargs or p.root(out) is not out or not out.dense:
        return None
    if not readable(p, a, torch.int8) or not readable(p, b, torch.int8):
        return None
    x, w = p.matrix(a), p.matrix(b, swapped=True)
    if x is None or w is None or x.transposed or w.transposed:
        return None
    fields = [x.rows, w.rows, x.columns, x.distance, w.distance]
    return [Int8Product([x.root, w.root], out, [*fields, x.offset, w.offset])]


def int8_mm(p: Products, op: Any, read: set[int]) -> list[FloatProduct] | None:
    """What to run in place of a `pliant::int8_mm`; None if its operands lie otherwise."""
    (a, b), out = op.args, op.outs[0]
    if not p.target.has_int8() or p.root(out) is not out or not out.dense or not reduced_precision_is_off():
        return None
    if not readable(p, a, torch.float32) or not readable(p, b, torch.int8):
        return None
    x, w = p.matrix(a), p.matrix(b)
    if x is None or w is None or x.transposed or w.transposed:
        return None
    fields = [x.rows, w.rows, x.columns, x.distance, w.distance]
    return [FloatProduct([x.root, w.root], out, [*fields, x.offset, w.offset])]


def dynamic_linear(p: Products, op: Any, read: set[int]) -> list[DynamicLinear] | None:
    """What to run in place of a `pliant::dynamic_linear`; None if x lies otherwise."""
    x, weight, scale, sums, bias, most, fused = arguments(op, "x", "weight", "scale", "sums", "bias", "most", "fused")
    out, tensors = op.outs[0], [weight, scale, sums, *([] if bias is None else [bias])]
    if not p.target.has_int8() or p.root(out) is not out or not out.dense or not readable(p, x, torch.float32):
        return None
    dtypes = (torch.int8, torch.float32, torch.int32, torch.float32)
    if not all(t.dense and readable(p, t, dtype) for t, dtype in zip(tensors, dtypes, strict=False)):
        return None
    left = p.rows(x)
    if left is None or left.transposed:
        return None
    n, k = map(p.facts.size, weight.sizes)
    if not p.facts.equal(left.columns, k) or not all(p.facts.equal(p.facts.size(t.sizes[0]), n) for t in tensors[1:]):
        return None
    fields = [left.rows, n, k, left.distance, k, most, int(fused)]
    operands = [x, *tensors]
    return [DynamicLinear([p.root(t) for t in operands], out, [*fields, *(p.offset(t) for t in operands)])]


CHECKS_DATA.add(DYNAMIC_LINEAR)
LIBRARY.update({INT_MM: int_mm, INT8_MM: int8_mm, DYNAMIC_LINEAR: dynamic_linear})
