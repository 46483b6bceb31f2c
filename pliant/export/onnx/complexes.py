"""Complex numbers inside of a program: ONNX has none worth the name, so they are pairs of floats in a last dim, as DFT has them.

Tensors of the program are complex here only between the operators below; inputs, outputs and all other operators are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import onnx_ir as ir
import torch

from pliant.export.onnx.elementwise import out_dtype
from pliant.export.onnx.graph import Graph, Tensor
from pliant.export.onnx.reductions import of_number, reduced
from pliant.export.onnx.shapes import sizes_of
from pliant.symbolic.expr import Expr

Row = Callable[..., Any]
REAL = {torch.complex64: torch.float32, torch.complex128: torch.float64}
"""The dtype of the pairs."""


def paired(g: Graph, re: ir.Value, im: ir.Value) -> ir.Value:
    return g.op("Concat", g.op("Unsqueeze", re, g.ints(-1)), g.op("Unsqueeze", im, g.ints(-1)), axis=-1)


def part(g: Graph, v: ir.Value, i: int) -> ir.Value:
    return g.op("Gather", v, g.const(i), axis=-1)


def lifted(g: Graph, x: Any, real: torch.dtype) -> ir.Value:
    """Pairs, of a tensor or a number."""
    if isinstance(x, Tensor) and x.dtype in REAL:
        return g.cast(x.value, real)
    if isinstance(x, complex):
        return g.const([x.real, x.imag], real)
    v = g.operand(x, real)
    return paired(g, v, g.op("Mul", v, g.const(0.0, real)))


def to_copy(g: Graph, op: Any, x: Tensor, *args: Any, **_: Any) -> ir.Value:
    if out_dtype(op) not in REAL:
        return g.cast(part(g, x.value, 0), out_dtype(op))
    return lifted(g, x, REAL[out_dtype(op)])


def pairwise(name: str) -> Row:
    """Sums and differences."""

    def row(g: Graph, op: Any, a: Any, b: Any, alpha: Any = 1) -> ir.Value:
        real = REAL[out_dtype(op)]
        y = lifted(g, b, real)
        if isinstance(alpha, Expr) or alpha != 1:
            y = g.op("Mul", y, g.number(alpha, real))
        return g.op(name, lifted(g, a, real), y)

    return row


def multiply(g: Graph, op: Any, a: Any, b: Any) -> ir.Value:
    real = REAL[out_dtype(op)]
    for x, y in ((a, b), (b, a)):
        if isinstance(x, Tensor) and x.dtype in REAL and not (isinstance(y, complex) or (isinstance(y, Tensor) and y.dtype in REAL)):
            k = g.operand(y, real)
            return g.op("Mul", x.value, g.op("Unsqueeze", k, g.ints(-1)))
    x, y = lifted(g, a, real), lifted(g, b, real)
    (p, q), (r, s) = ((part(g, v, 0), part(g, v, 1)) for v in (x, y))
    return paired(g, g.op("Sub", g.op("Mul", p, r), g.op("Mul", q, s)), g.op("Add", g.op("Mul", p, s), g.op("Mul", q, r)))


def absolute(g: Graph, op: Any, x: Tensor) -> ir.Value:
    return g.op("ReduceL2", x.value, g.ints(-1), keepdims=0)


def conjugate(g: Graph, op: Any, x: Tensor) -> ir.Value:
    return g.op("Mul", x.value, g.const([1.0, -1.0], REAL[x.dtype]))


def as_is(g: Graph, op: Any, x: Tensor, *args: Any, **_: Any) -> ir.Value:
    return x.value


def reshape(g: Graph, op: Any, x: Tensor, *args: Any, **_: Any) -> ir.Value:
    return g.reshape(x.value, [*sizes_of(g, op.outs[0]), 2])


def permute(g: Graph, op: Any, x: Tensor, dims: Sequence[int]) -> ir.Value:
    return g.transpose(x.value, [*[d % x.rank for d in dims], x.rank])


# transforms ---------------------------------------------------------------------------------------------------------------------------
def normalized(g: Graph, v: ir.Value, n: Any, mode: int, real: torch.dtype) -> ir.Value:
    """`mode`: 0 nothing, 1 by the square root of n, 2 by n."""
    if not mode:
        return v
    by = of_number(g, n, real)
    return g.op("Div", v, g.op("Sqrt", by) if mode == 1 else by)


def transformed(g: Graph, v: ir.Value, axis: int, real: torch.dtype, inverse: bool, onesided: bool = False, length: Any = None) -> ir.Value:
    """ONNX's inverse divides by the length, PyTorch's transforms never do of their own."""
    n = g.sizes.scalar(length) if isinstance(length, Expr) else g.const(length) if length is not None else None
    out = g.op("DFT", v, n, g.const(axis), inverse=int(inverse), onesided=int(onesided))
    if not inverse:
        return out
    size = g.cast(g.op("Squeeze", g.op("Shape", out, start=axis, end=axis + 1), g.ints(0)), real)
    return g.op("Mul", out, size)


def c2c(g: Graph, op: Any, x: Tensor, dims: Sequence[int], mode: int, forward: bool) -> ir.Value:
    real = REAL[x.dtype]
    v = x.value
    for d in dims:
        v = transformed(g, v, d % x.rank, real, not forward)
    return normalized(g, v, reduced(g, x, [d % x.rank for d in dims]), mode, real)


def r2c(g: Graph, op: Any, x: Tensor, dims: Sequence[int], mode: int, onesided: bool) -> ir.Value:
    real = REAL[out_dtype(op)]
    *others, last = [d % x.rank for d in dims]
    v = g.op("Unsqueeze", g.cast(x.value, real), g.ints(x.rank))
    v = transformed(g, v, last, real, False, bool(onesided))
    for d in others:
        v = transformed(g, v, d, real, False)
    return normalized(g, v, reduced(g, x, [*others, last]), mode, real)


def c2r(g: Graph, op: Any, x: Tensor, dims: Sequence[int], mode: int, last_size: Any) -> ir.Value:
    """The missing half is the conjugate of the other, backwards; then it is a transform as any other."""
    real = REAL[x.dtype]
    *others, last = [d % x.rank for d in dims]
    v = x.value
    for d in others:
        v = transformed(g, v, d, real, True)
    tail = g.op("Slice", v, g.sizes.vector([(last_size - 1) // 2]), g.ints(0), g.ints(last), g.ints(-1))  # [(n - 1) // 2, ..., 1]
    mirrored = g.op("Mul", tail, g.const([1.0, -1.0], real))
    half = g.op("Slice", v, g.ints(0), g.sizes.vector([last_size // 2 + 1]), g.ints(last))
    whole = transformed(g, g.op("Concat", half, mirrored, axis=last), last, real, True)
    out = Tensor(part(g, whole, 0), real, tuple(sizes_of(g, op.outs[0])))
    return normalized(g, out.value, reduced(g, out, [*others, last]), mode, real)


def complex_of(g: Graph, op: Any, re: Tensor, im: Tensor) -> ir.Value:
    return paired(g, re.value, im.value)


def polar(g: Graph, op: Any, length: Tensor, angle: Tensor) -> ir.Value:
    return paired(g, g.op("Mul", length.value, g.op("Cos", angle.value)), g.op("Mul", length.value, g.op("Sin", angle.value)))


ROWS: dict[str, Row] = {
    "_to_copy": to_copy, "view_as_real": as_is, "view_as_complex": as_is, "clone": as_is, "alias": as_is, "detach": as_is,
    "real": lambda g, op, x: part(g, x.value, 0), "imag": lambda g, op, x: part(g, x.value, 1), "abs": absolute, "_conj": conjugate,
    "_conj_physical": conjugate, "resolve_conj": as_is, "add.Tensor": pairwise("Add"), "sub.Tensor": pairwise("Sub"),
    "mul.Tensor": multiply, "mul.Scalar": multiply, "view": reshape, "_unsafe_view": reshape, "reshape": reshape, "unsqueeze": reshape,
    "permute": permute, "_fft_c2c": c2c, "_fft_r2c": r2c, "_fft_c2r": c2r, "complex": complex_of, "polar": polar,
}  # fmt: skip
