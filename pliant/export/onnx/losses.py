"""Losses, histograms, and products of rows that are sorted by their group (mixtures of experts)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx_ir as ir
import torch

from pliant.export.onnx.elementwise import out_dtype
from pliant.export.onnx.graph import Graph, NotExpressible, Tensor, torch_dtype
from pliant.export.onnx.networks import working_values
from pliant.symbolic.expr import Expr

Row = Callable[..., Any]
I64 = torch.int64


def nll_loss(g: Graph, op: Any, x: Tensor, target: Tensor, weight: Tensor | None, reduction: int, ignore_index: Any) -> tuple:
    """Of each row the value at its target, by the target's weight; none where the target is `ignore_index`."""
    at = 1 if x.rank > 1 else 0
    dtype = torch.float64 if x.dtype is torch.float64 else torch.float32
    rows = g.op("Unsqueeze", g.cast(target.value, I64), g.ints(at))
    skip = g.op("Equal", rows, g.number(ignore_index, I64))
    safe = g.op("Where", skip, g.const(0), rows)
    picked = g.op("GatherElements", g.cast(x.value, dtype), safe, axis=at)
    zero = g.const(0.0, dtype)
    mass = g.op("Where", skip, zero, g.const(1.0, dtype) if weight is None else g.op("Gather", g.cast(weight.value, dtype), safe, axis=0))
    loss = g.op("Where", skip, zero, g.op("Neg", g.op("Mul", picked, mass)))
    if reduction == 0:
        return g.cast(g.op("Squeeze", loss, g.ints(at)), out_dtype(op)), g.const(0.0, out_dtype(op))
    total, whole = g.op("ReduceSum", loss, keepdims=0), g.op("ReduceSum", mass, keepdims=0)
    return g.cast(g.op("Div", total, whole) if reduction == 1 else total, out_dtype(op)), g.cast(whole, out_dtype(op))


def histc(g: Graph, op: Any, x: Tensor, bins: int = 100, low: Any = 0, high: Any = 0) -> ir.Value:
    """How many values fall into each of `bins` equal ranges; the last one takes its upper end, too."""
    if isinstance(low, Expr) or isinstance(high, Expr) or low == high or isinstance(bins, Expr):
        raise NotExpressible("a histogram whose ranges only data tell")
    v = g.reshape(x.value, [-1])
    least, most = g.const(float(low), x.dtype), g.const(float(high), x.dtype)
    part = g.op("Div", g.op("Mul", g.op("Sub", v, least), g.const(float(bins), x.dtype)), g.const(float(high - low), x.dtype))
    inside = g.op("And", g.op("GreaterOrEqual", v, least), g.op("LessOrEqual", v, most))
    at = g.op("Min", g.cast(g.op("Floor", g.op("Where", inside, part, g.const(0.0, x.dtype))), I64), g.const(bins - 1))
    hit = g.op("And", g.op("Equal", g.op("Unsqueeze", at, g.ints(1)), g.const(list(range(bins)))), g.op("Unsqueeze", inside, g.ints(1)))
    return g.cast(g.op("ReduceSum", g.cast(hit, I64), g.ints(0), keepdims=0), out_dtype(op))


def grouped_product(g: Graph, op: Any, x: Tensor, w: Tensor, offsets: Tensor | None = None, bias: Any = None, *_: Any) -> ir.Value:
    """Rows up to offsets[0] by w[0], those up to offsets[1] by w[1], and so on; zeros behind the last."""
    groups = w.sizes[0] if w.rank == 3 else None
    if x.rank != 2 or type(groups) is not int or offsets is None or bias is not None:
        raise NotExpressible("grouped products but of rows that are sorted by their group")
    v, m = working_values(g, op, x, w)
    ends = g.cast(offsets.value, I64)
    start, parts = g.ints(0), []
    for k in range(groups):
        end = g.op("Slice", ends, g.ints(k), g.ints(k + 1), g.ints(0))
        parts.append(g.op("MatMul", g.op("Slice", v, start, end, g.ints(0)), g.op("Gather", m, g.const(k), axis=0)))
        start = end
    left = g.op("Sub", g.op("Shape", v, start=0, end=1), start)
    zeros = g.op("Expand", g.const(0.0, torch_dtype(v)), g.op("Concat", left, g.op("Shape", m, start=2, end=3), axis=0))
    return g.cast(g.op("Concat", *parts, zeros, axis=0), out_dtype(op))


ROWS: dict[str, Row] = {
    "nll_loss_forward": nll_loss, "nll_loss2d_forward": nll_loss, "histc": histc, "_grouped_mm": grouped_product,
    "transformers::grouped_mm_fallback": grouped_product,
}  # fmt: skip
