"""Operators that work element by element: arithmetic, comparisons, activations, casts."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import onnx_ir as ir
import torch

from pliant.export.onnx.graph import Graph, Tensor, compute, torch_dtype
from pliant.symbolic.expr import Expr

Row = Callable[..., Any]
KIND = {int: 0, float: 0.0, bool: False}


def proxy(x: Any) -> Any:
    """What `torch.result_type` takes for an operand."""
    if isinstance(x, Tensor):
        return torch.empty((0,) if x.rank else (), dtype=x.dtype)
    return KIND[x.kind] if isinstance(x, Expr) else x


def promoted(a: Any, b: Any) -> torch.dtype:
    """The dtype in which two operands meet."""
    x, y = proxy(a), proxy(b)
    if not isinstance(x, torch.Tensor) and not isinstance(y, torch.Tensor):
        return torch.result_type(torch.tensor(x), torch.tensor(y))
    return torch.result_type(x, y)


def out_dtype(op: Any) -> torch.dtype:
    return op.outs[0].dtype


def working(op: Any) -> torch.dtype:
    return compute(out_dtype(op))


def is_one(x: Any) -> bool:
    return not isinstance(x, Expr) and x == 1


# arithmetic --------------------------------------------------------------------------------------------------------------------
def binary(name: str) -> Row:
    def row(g: Graph, op: Any, a: Any, b: Any) -> ir.Value:
        dtype = working(op)
        if dtype is torch.bool and name in ("Add", "Mul", "Max", "Min"):
            return g.op("Or" if name in ("Add", "Max") else "And", g.operand(a, dtype), g.operand(b, dtype))
        return g.cast(g.op(name, g.operand(a, dtype), g.operand(b, dtype)), out_dtype(op))

    return row


def plus(sign: str, flipped: bool = False) -> Row:
    def row(g: Graph, op: Any, a: Any, b: Any, alpha: Any = 1) -> ir.Value:
        dtype = working(op)
        a, b = (b, a) if flipped else (a, b)
        if dtype is torch.bool:
            return g.op("Or", g.operand(a, dtype), g.operand(b, dtype))
        x, y = g.operand(a, dtype), g.operand(b, dtype)
        if not is_one(alpha):
            y = g.op("Mul", y, g.number(alpha, dtype))
        return g.cast(g.op(sign, x, y), out_dtype(op))

    return row


def divide(g: Graph, op: Any, a: Any, b: Any, rounding_mode: str | None = None) -> ir.Value:
    dtype = working(op)
    x, y = g.operand(a, dtype), g.operand(b, dtype)
    if rounding_mode is None:
        return g.cast(g.op("Div", x, y), out_dtype(op))
    if not dtype.is_floating_point:
        out = g.op("Div", x, y) if rounding_mode == "trunc" else g.op("Div", g.op("Sub", x, g.op("Mod", x, y)), y)
    else:
        out = trunc(g, g.op("Div", x, y)) if rounding_mode == "trunc" else float_floor_divide(g, x, y, dtype)
    return g.cast(out, out_dtype(op))


def floor_divide(g: Graph, op: Any, a: Any, b: Any) -> ir.Value:
    return divide(g, op, a, b, "floor")


def float_floor_divide(g: Graph, x: ir.Value, y: ir.Value, dtype: torch.dtype) -> ir.Value:
    """c10's `div_floor_floating`: of the remainder, so that the quotient is right where division rounds up to a whole number."""
    zero, one = g.const(0.0, dtype), g.const(1.0, dtype)
    m = g.op("Mod", x, y, fmod=1)
    q = g.op("Div", g.op("Sub", x, m), y)
    other = g.op("And", g.op("Not", g.op("Equal", m, zero)), g.op("Xor", g.op("Less", y, zero), g.op("Less", m, zero)))
    q = g.op("Where", other, g.op("Sub", q, one), q)
    down = g.op("Floor", q)
    down = g.op("Where", g.op("Greater", g.op("Sub", q, down), g.const(0.5, dtype)), g.op("Add", down, one), down)
    whole = g.op("Div", x, y)
    out = g.op("Where", g.op("Equal", q, zero), g.op("Mul", whole, zero), down)
    return g.op("Where", g.op("Equal", y, zero), whole, out)


def remainder(g: Graph, op: Any, a: Any, b: Any) -> ir.Value:
    dtype = working(op)
    x, y = g.operand(a, dtype), g.operand(b, dtype)
    if not dtype.is_floating_point:
        return g.cast(g.op("Mod", x, y), out_dtype(op))
    zero = g.const(0.0, dtype)
    m = g.op("Mod", x, y, fmod=1)
    other = g.op("And", g.op("Not", g.op("Equal", m, zero)), g.op("Xor", g.op("Less", y, zero), g.op("Less", m, zero)))
    return g.cast(g.op("Where", other, g.op("Add", m, y), m), out_dtype(op))


def fmod(g: Graph, op: Any, a: Any, b: Any) -> ir.Value:
    dtype = working(op)
    return g.cast(g.op("Mod", g.operand(a, dtype), g.operand(b, dtype), fmod=1), out_dtype(op))


def power(g: Graph, op: Any, a: Any, b: Any) -> ir.Value:
    dtype = working(op)
    x = g.operand(a, dtype)
    if not isinstance(b, (Tensor, Expr)):
        quick = constant_power(g, x, float(b), dtype)
        if quick is not None:
            return g.cast(quick, out_dtype(op))
    return g.cast(g.op("Pow", x, g.operand(b, dtype)), out_dtype(op))


def constant_power(g: Graph, x: ir.Value, n: float, dtype: torch.dtype) -> ir.Value | None:
    """As PyTorch's kernels spell them; ints by squaring, since ONNX Runtime's Pow of ints goes through float64."""
    if n == 1:
        return x
    if n == 2:
        return g.op("Mul", x, x)
    if n == 3:
        return g.op("Mul", g.op("Mul", x, x), x)
    if not dtype.is_floating_point:
        if not (n == int(n) and 0 <= n <= 64):
            return None
        out, square, k = None, x, int(n)
        while k:
            if k & 1:
                out = square if out is None else g.op("Mul", out, square)
            square, k = (g.op("Mul", square, square), k >> 1) if k > 1 else (square, 0)
        return out if out is not None else g.op("Expand", g.const(1, dtype), g.op("Shape", x))
    if n == 0.5:
        return g.op("Sqrt", x)
    if n == -0.5:
        return g.op("Reciprocal", g.op("Sqrt", x))
    if n == -1:
        return g.op("Reciprocal", x)
    return g.op("Reciprocal", g.op("Mul", x, x)) if n == -2 else None


def lerp(g: Graph, op: Any, a: Tensor, b: Tensor, w: Any) -> ir.Value:
    dtype = working(op)
    x, y, k = g.operand(a, dtype), g.operand(b, dtype), g.operand(w, dtype)
    d, one = g.op("Sub", y, x), g.const(1.0, dtype)
    low = g.op("Less", g.op("Abs", k), g.const(0.5, dtype))
    high = g.op("Sub", y, g.op("Mul", d, g.op("Sub", one, k)))
    return g.cast(g.op("Where", low, g.op("Add", x, g.op("Mul", k, d)), high), out_dtype(op))


def add_product(name: str) -> Row:
    def row(g: Graph, op: Any, c: Tensor, a: Tensor, b: Tensor, value: Any = 1) -> ir.Value:
        dtype = working(op)
        x = g.operand(a, dtype)
        if not is_one(value):
            x = g.op("Mul", x, g.number(value, dtype))
        return g.cast(g.op("Add", g.operand(c, dtype), g.op(name, x, g.operand(b, dtype))), out_dtype(op))

    return row


# unary -----------------------------------------------------------------------------------------------------------------------------
def unary(make: str | Callable[..., ir.Value]) -> Row:
    """Ints become floats first where the result is one."""

    def row(g: Graph, op: Any, x: Tensor, *args: Any, **kwargs: Any) -> ir.Value:
        v = g.cast(x.value, working(op))
        made = g.op(make, v) if isinstance(make, str) else make(g, v, *args, **kwargs)
        return g.cast(made, out_dtype(op))

    return row


def whole_unary(make: str | Callable[..., ir.Value]) -> Row:
    """What leaves ints alone."""
    inner = unary(make)
    return lambda g, op, x, *args, **kwargs: inner(g, op, x, *args, **kwargs) if x.dtype.is_floating_point else x.value


def k(g: Graph, x: ir.Value, n: float) -> ir.Value:
    return g.const(n, torch_dtype(x))


def trunc(g: Graph, x: ir.Value) -> ir.Value:
    return g.op("Where", g.op("Less", x, k(g, x, 0)), g.op("Ceil", x), g.op("Floor", x))


def sign(g: Graph, x: ir.Value) -> ir.Value:
    """A nan's is 0 in eager, a nan in ONNX Runtime."""
    dtype, zero = torch_dtype(x), k(g, x, 0)
    return g.op("Sub", g.cast(g.op("Greater", x, zero), dtype), g.cast(g.op("Less", x, zero), dtype))


def frac(g: Graph, x: ir.Value) -> ir.Value:
    return g.op("Sub", x, trunc(g, x))


def round_to(g: Graph, x: ir.Value, decimals: int = 0) -> ir.Value:
    if not decimals:
        return g.op("Round", x)
    by = k(g, x, 10.0 ** abs(decimals))
    first, second = ("Mul", "Div") if decimals > 0 else ("Div", "Mul")
    return g.op(second, g.op("Round", g.op(first, x, by)), by)


def log1p(g: Graph, x: ir.Value) -> ir.Value:
    """Exact for small x (Kahan): log(u) * x / (u - 1) with u = 1 + x."""
    one = k(g, x, 1)
    u = g.op("Add", x, one)
    d = g.op("Sub", u, one)
    log = g.op("Log", u)
    exact = g.op("Div", g.op("Mul", log, x), d)
    out = g.op("Where", g.op("Equal", d, k(g, x, 0)), x, exact)
    return g.op("Where", g.op("Equal", u, k(g, x, math.inf)), u, out)


def expm1(g: Graph, x: ir.Value) -> ir.Value:
    """Exact for small x: (u - 1) * x / log(u) with u = exp(x)."""
    one = k(g, x, 1)
    u = g.op("Exp", x)
    d = g.op("Sub", u, one)
    exact = g.op("Div", g.op("Mul", d, x), g.op("Log", u))
    near = g.op("Less", g.op("Abs", x), k(g, x, 0.5))
    out = g.op("Where", g.op("And", near, g.op("Not", g.op("Equal", d, k(g, x, 0)))), exact, d)
    return g.op("Where", g.op("And", near, g.op("Equal", d, k(g, x, 0))), x, out)


def scaled(name: str, factor: float, before: bool = False) -> Callable[..., ir.Value]:
    def make(g: Graph, x: ir.Value) -> ir.Value:
        return g.op(name, g.op("Mul", x, k(g, x, factor))) if before else g.op("Mul", g.op(name, x), k(g, x, factor))

    return make


def two(outer: str, inner: str) -> Callable[..., ir.Value]:
    return lambda g, x: g.op(outer, g.op(inner, x))


def erfc(g: Graph, x: ir.Value) -> ir.Value:
    return g.op("Sub", k(g, x, 1), g.op("Erf", x))


def gelu(g: Graph, x: ir.Value, approximate: str = "none") -> ir.Value:
    return g.op("Gelu", x, approximate=approximate)


def silu(g: Graph, x: ir.Value) -> ir.Value:
    return g.op("Mul", x, g.op("Sigmoid", x))


def hardsigmoid(g: Graph, x: ir.Value) -> ir.Value:
    return g.op("Div", g.op("Clip", g.op("Add", x, k(g, x, 3)), k(g, x, 0), k(g, x, 6)), k(g, x, 6))


def hardswish(g: Graph, x: ir.Value) -> ir.Value:
    return g.op("Div", g.op("Mul", x, g.op("Clip", g.op("Add", x, k(g, x, 3)), k(g, x, 0), k(g, x, 6))), k(g, x, 6))


def hardtanh(g: Graph, x: ir.Value, lo: Any = -1, hi: Any = 1) -> ir.Value:
    dtype = torch_dtype(x)
    return g.op("Clip", x, g.number(lo, dtype), g.number(hi, dtype))


def softplus(g: Graph, x: ir.Value, beta: Any = 1, threshold: Any = 20) -> ir.Value:
    dtype = torch_dtype(x)
    b = g.number(beta, dtype)
    scaled_ = x if is_one(beta) else g.op("Mul", x, b)
    soft = log1p(g, g.op("Exp", scaled_))
    soft = soft if is_one(beta) else g.op("Div", soft, b)
    return g.op("Where", g.op("Greater", scaled_, g.number(threshold, dtype)), x, soft)


def mish(g: Graph, x: ir.Value) -> ir.Value:
    return g.op("Mul", x, g.op("Tanh", softplus(g, x)))


def log_sigmoid(g: Graph, x: ir.Value) -> ir.Value:
    """min(x, 0) - log1p(exp(-|x|))."""
    return g.op("Sub", g.op("Min", x, k(g, x, 0)), log1p(g, g.op("Exp", g.op("Neg", g.op("Abs", x)))))


def elu(g: Graph, x: ir.Value, alpha: Any = 1, scale: Any = 1, input_scale: Any = 1) -> ir.Value:
    dtype = torch_dtype(x)
    inner = x if is_one(input_scale) else g.op("Mul", x, g.number(input_scale, dtype))
    low = g.op("Mul", expm1(g, inner), g.number(alpha, dtype))
    out = g.op("Where", g.op("LessOrEqual", x, k(g, x, 0)), low, x)
    return out if is_one(scale) else g.op("Mul", out, g.number(scale, dtype))


def selu(g: Graph, x: ir.Value) -> ir.Value:
    return elu(g, x, 1.6732632423543772848170429916717, 1.0507009873554804934193349852946)


def celu(g: Graph, x: ir.Value, alpha: float = 1.0) -> ir.Value:
    return elu(g, x, alpha, 1, 1.0 / alpha)


def leaky_relu(g: Graph, x: ir.Value, slope: Any = 0.01) -> ir.Value:
    return g.op("Where", g.op("Greater", x, k(g, x, 0)), x, g.op("Mul", x, g.number(slope, torch_dtype(x))))


def logit(g: Graph, x: ir.Value, eps: float | None = None) -> ir.Value:
    if eps is not None:
        x = g.op("Clip", x, k(g, x, eps), k(g, x, 1 - eps))
    return g.op("Log", g.op("Div", x, g.op("Sub", k(g, x, 1), x)))


def threshold(g: Graph, x: ir.Value, limit: Any, value: Any) -> ir.Value:
    dtype = torch_dtype(x)
    return g.op("Where", g.op("LessOrEqual", x, g.number(limit, dtype)), g.number(value, dtype), x)


def nan_to_num(g: Graph, x: ir.Value, nan: Any = None, posinf: Any = None, neginf: Any = None) -> ir.Value:
    dtype = torch_dtype(x)
    info = torch.finfo(dtype)
    out = g.op("Where", g.op("IsNaN", x), g.number(nan or 0.0, dtype), x)
    high, low = info.max if posinf is None else posinf, info.min if neginf is None else neginf
    out = g.op("Where", g.op("Equal", x, k(g, x, math.inf)), g.number(high, dtype), out)
    return g.op("Where", g.op("Equal", x, k(g, x, -math.inf)), g.number(low, dtype), out)


def glu(g: Graph, op: Any, x: Tensor, dim: int = -1) -> ir.Value:
    d = dim % x.rank
    half = op.outs[0].sizes[d]
    a, b = g.ops("Split", 2, x.value, g.sizes.vector([g.size(half), g.size(half)]), dtypes=[x.dtype] * 2, axis=d)
    a, b = g.cast(a, working(op)), g.cast(b, working(op))
    return g.cast(g.op("Mul", a, g.op("Sigmoid", b)), x.dtype)


def prelu(g: Graph, op: Any, x: Tensor, w: Tensor) -> ir.Value:
    a, b = g.cast(x.value, working(op)), g.cast(w.value, working(op))
    return g.cast(g.op("Where", g.op("Greater", a, k(g, a, 0)), a, g.op("Mul", b, a)), x.dtype)


def atan2(g: Graph, op: Any, y: Any, x: Any) -> ir.Value:
    dtype = working(op)
    b, a = g.operand(y, dtype), g.operand(x, dtype)
    zero, pi = g.const(0.0, dtype), g.const(math.pi, dtype)
    inverse = g.op("Reciprocal", b)
    below = g.op("Or", g.op("Less", b, zero), g.op("And", g.op("Equal", b, zero), g.op("Less", inverse, zero)))
    left = g.op("Or", g.op("Less", a, zero), g.op("And", g.op("Equal", a, zero), g.op("Less", g.op("Reciprocal", a), zero)))
    ratio = g.op("Div", b, a)
    both = g.op("And", g.op("Equal", b, zero), g.op("Equal", a, zero))
    infinite = g.op("And", g.op("IsInf", b), g.op("IsInf", a))
    ratio = g.op("Where", both, b, ratio)  # a zero with the sign of y
    signs = g.op("Where", g.op("Xor", left, below), g.const(-1.0, dtype), g.const(1.0, dtype))
    ratio = g.op("Where", infinite, signs, ratio)
    base = g.op("Where", g.op("And", both, left), zero, g.op("Atan", ratio))
    return g.cast(g.op("Where", left, g.op("Where", below, g.op("Sub", base, pi), g.op("Add", base, pi)), base), out_dtype(op))


def negative(g: Graph, op: Any, x: Tensor) -> ir.Value:
    if x.dtype is torch.uint8:
        return g.op("Sub", g.const(0, x.dtype), x.value)
    return g.cast(g.op("Neg", g.cast(x.value, compute(x.dtype))), x.dtype)


# comparisons and logic -----------------------------------------------------------------------------------------------------------
def comparison(name: str, negated: bool = False) -> Row:
    def row(g: Graph, op: Any, a: Any, b: Any) -> ir.Value:
        dtype = compute(promoted(a, b))
        out = g.op(name, g.operand(a, dtype), g.operand(b, dtype))
        return g.cast(g.op("Not", out) if negated else out, out_dtype(op))

    return row


def truth(g: Graph, x: Any) -> ir.Value:
    return g.operand(x, torch.bool)


def logical(name: str) -> Row:
    return lambda g, op, a, b: g.op(name, truth(g, a), truth(g, b))


def bitwise(name: str, on_bool: str) -> Row:
    def row(g: Graph, op: Any, a: Any, b: Any) -> ir.Value:
        dtype = out_dtype(op)
        return g.op(on_bool if dtype is torch.bool else name, g.operand(a, dtype), g.operand(b, dtype))

    return row


def bitwise_not(g: Graph, op: Any, x: Tensor) -> ir.Value:
    return g.op("Not" if x.dtype is torch.bool else "BitwiseNot", x.value)


def shift(left: bool) -> Row:
    """ONNX shifts unsigned ints only: products and floor divisions by powers of two."""

    def row(g: Graph, op: Any, a: Any, b: Any) -> ir.Value:
        dtype = out_dtype(op)
        x, by = g.operand(a, torch.int64), g.cast(g.op("Pow", g.const(2), g.operand(b, torch.int64)), torch.int64)
        out = g.op("Mul", x, by) if left else g.op("Div", g.op("Sub", x, g.op("Mod", x, by)), by)
        return g.cast(out, dtype)

    return row


def where(g: Graph, op: Any, c: Tensor, a: Any, b: Any) -> ir.Value:
    dtype = out_dtype(op)
    return g.op("Where", truth(g, c), g.operand(a, dtype), g.operand(b, dtype))


def masked_fill(g: Graph, op: Any, x: Tensor, mask: Tensor, value: Any) -> ir.Value:
    return g.op("Where", truth(g, mask), g.operand(value, x.dtype), x.value)


def clamp(g: Graph, op: Any, x: Tensor, lo: Any = None, hi: Any = None) -> ir.Value:
    dtype = working(op)
    out = g.cast(x.value, dtype)
    if lo is not None:
        out = g.op("Max", out, g.operand(lo, dtype))
    if hi is not None:
        out = g.op("Min", out, g.operand(hi, dtype))
    return g.cast(out, out_dtype(op))


def to_copy(g: Graph, op: Any, x: Tensor, *args: Any, **_: Any) -> ir.Value:
    return g.cast(x.value, out_dtype(op))


def same(g: Graph, op: Any, x: Tensor, *args: Any, **_: Any) -> ir.Value:
    return x.value


def copied(g: Graph, op: Any, x: Tensor, src: Tensor, *args: Any) -> ir.Value:
    return g.op("Expand", g.cast(src.value, x.dtype), g.sizes.vector(x.sizes))


def predicate(name: str, of_int: bool = False) -> Row:
    def row(g: Graph, op: Any, x: Tensor) -> ir.Value:
        if not x.dtype.is_floating_point:
            return g.op("Expand", g.const(of_int, torch.bool), g.op("Shape", x.value))
        return g.op(name, x.value)

    return row


def isfinite(g: Graph, op: Any, x: Tensor) -> ir.Value:
    if not x.dtype.is_floating_point:
        return g.op("Expand", g.const(True, torch.bool), g.op("Shape", x.value))
    return g.op("Not", g.op("Or", g.op("IsNaN", x.value), g.op("IsInf", x.value)))


def xlogy(g: Graph, op: Any, a: Any, b: Any) -> ir.Value:
    dtype = working(op)
    x, y = g.operand(a, dtype), g.operand(b, dtype)
    zero = g.const(0.0, dtype)
    out = g.op("Where", g.op("Equal", x, zero), zero, g.op("Mul", x, g.op("Log", y)))
    return g.cast(g.op("Where", g.op("IsNaN", y), y, out), out_dtype(op))


def overlooking_nan(name: str) -> Row:
    """fmin, fmax: a nan loses."""

    def row(g: Graph, op: Any, a: Tensor, b: Tensor) -> ir.Value:
        dtype = working(op)
        x, y = g.operand(a, dtype), g.operand(b, dtype)
        if dtype.is_floating_point:
            x, y = g.op("Where", g.op("IsNaN", x), y, x), g.op("Where", g.op("IsNaN", y), x, y)
        return g.cast(g.op(name, x, y) if dtype is not torch.bool else g.op("And" if name == "Min" else "Or", x, y), out_dtype(op))

    return row


def hypot(g: Graph, op: Any, a: Tensor, b: Tensor) -> ir.Value:
    """Scaled by the larger one, so that squares do not overflow."""
    dtype = working(op)
    x, y = g.op("Abs", g.operand(a, dtype)), g.op("Abs", g.operand(b, dtype))
    high, low, zero = g.op("Max", x, y), g.op("Min", x, y), g.const(0.0, dtype)
    ratio = g.op("Where", g.op("Equal", high, zero), zero, g.op("Div", low, high))
    out = g.op("Mul", high, g.op("Sqrt", g.op("Add", g.const(1.0, dtype), g.op("Mul", ratio, ratio))))
    infinite = g.op("Or", g.op("IsInf", x), g.op("IsInf", y))
    return g.cast(g.op("Where", infinite, g.const(math.inf, dtype), out), out_dtype(op))


def logaddexp(g: Graph, op: Any, a: Tensor, b: Tensor) -> ir.Value:
    dtype = working(op)
    x, y = g.operand(a, dtype), g.operand(b, dtype)
    high = g.op("Max", x, y)
    soft = g.op("Add", high, log1p(g, g.op("Exp", g.op("Neg", g.op("Abs", g.op("Sub", x, y))))))
    alike = g.op("And", g.op("IsInf", x), g.op("Equal", x, y))
    return g.cast(g.op("Where", alike, x, soft), out_dtype(op))


def heaviside(g: Graph, op: Any, x: Tensor, v: Tensor) -> ir.Value:
    dtype = working(op)
    a, zero = g.cast(x.value, dtype), g.const(0, dtype)
    step = g.cast(g.op("Greater", a, zero), dtype)
    return g.cast(g.op("Where", g.op("Equal", a, zero), g.cast(v.value, dtype), step), out_dtype(op))


ROWS: dict[str, Row] = {
    "mul.Tensor": binary("Mul"), "mul.Scalar": binary("Mul"), "maximum": binary("Max"), "minimum": binary("Min"),
    "add.Tensor": plus("Add"), "add.Scalar": plus("Add"), "sub.Tensor": plus("Sub"), "sub.Scalar": plus("Sub"),
    "div.Tensor": divide, "div.Scalar": divide, "div.Tensor_mode": divide, "div.Scalar_mode": divide, "floor_divide": floor_divide,
    "true_divide.Tensor": divide, "remainder.Tensor": remainder, "remainder.Scalar": remainder, "remainder.Scalar_Tensor": remainder,
    "fmod.Tensor": fmod, "fmod.Scalar": fmod, "pow.Tensor_Tensor": power, "pow.Tensor_Scalar": power, "pow.Scalar": power,
    "lerp.Scalar": lerp, "lerp.Tensor": lerp, "addcmul": add_product("Mul"), "addcdiv": add_product("Div"), "atan2": atan2,
    "abs": unary("Abs"), "exp": unary("Exp"), "log": unary("Log"), "sqrt": unary("Sqrt"), "sin": unary("Sin"), "cos": unary("Cos"),
    "tan": unary("Tan"), "asin": unary("Asin"), "acos": unary("Acos"), "atan": unary("Atan"), "sinh": unary("Sinh"), "cosh": unary("Cosh"),
    "asinh": unary("Asinh"), "acosh": unary("Acosh"), "atanh": unary("Atanh"), "tanh": unary("Tanh"), "sigmoid": unary("Sigmoid"),
    "erf": unary("Erf"), "erfc": unary(erfc), "relu": unary("Relu"), "reciprocal": unary("Reciprocal"), "sign": unary(sign),
    "sgn": unary(sign), "rsqrt": unary(two("Reciprocal", "Sqrt")), "log2": unary(scaled("Log", 1 / math.log(2))),
    "log10": unary(scaled("Log", 1 / math.log(10))), "log1p": unary(log1p), "expm1": unary(expm1),
    "exp2": unary(scaled("Exp", math.log(2), before=True)), "square": unary(lambda g, x: g.op("Mul", x, x)),
    "relu6": unary(lambda g, x: hardtanh(g, x, 0, 6)),
    "gelu": unary(gelu), "silu": unary(silu), "hardsigmoid": unary(hardsigmoid), "hardswish": unary(hardswish), "hardtanh": unary(hardtanh),
    "softplus": unary(softplus), "mish": unary(mish), "elu": unary(elu), "selu": unary(selu), "celu": unary(celu),
    "leaky_relu": unary(leaky_relu), "log_sigmoid": unary(log_sigmoid), "logit": unary(logit), "threshold": unary(threshold),
    "nan_to_num": whole_unary(nan_to_num), "frac": unary(frac), "glu": glu, "prelu": prelu, "_prelu_kernel": prelu,
    "log_sigmoid_forward": lambda g, op, x: (unary(log_sigmoid)(g, op, x), None),
    "floor": whole_unary("Floor"), "ceil": whole_unary("Ceil"), "trunc": whole_unary(trunc), "round": whole_unary(round_to),
    "round.decimals": whole_unary(lambda g, x, decimals=0: round_to(g, x, decimals)), "neg": negative, "_neg_view": negative,
    "logical_and": logical("And"), "logical_or": logical("Or"), "logical_xor": logical("Xor"),
    "logical_not": lambda g, op, x: g.op("Not", truth(g, x)),
    "bitwise_not": bitwise_not, "where.self": where, "where.ScalarOther": where, "where.ScalarSelf": where, "where.Scalar": where,
    "masked_fill.Scalar": masked_fill, "masked_fill.Tensor": masked_fill, "clamp": clamp, "clamp.Tensor": clamp, "clip": clamp,
    "clamp_min": lambda g, op, x, lo: clamp(g, op, x, lo), "clamp_max": lambda g, op, x, hi: clamp(g, op, x, None, hi),
    "clamp_min.Tensor": lambda g, op, x, lo: clamp(g, op, x, lo), "clamp_max.Tensor": lambda g, op, x, hi: clamp(g, op, x, None, hi),
    "_to_copy": to_copy, "to.dtype": to_copy, "clone": same, "alias": same, "detach": same, "lift_fresh_copy": same, "lift_fresh": same,
    "contiguous": same, "lift": same, "positive": same, "copy": copied, "isnan": predicate("IsNaN"), "isinf": predicate("IsInf"),
    "isfinite": isfinite, "xlogy.Tensor": xlogy, "logaddexp": logaddexp, "heaviside": heaviside, "fmax": overlooking_nan("Max"),
    "fmin": overlooking_nan("Min"), "hypot": hypot,
    "rsub.Tensor": plus("Sub", flipped=True), "rsub.Scalar": plus("Sub", flipped=True),
    "deg2rad": unary(lambda g, x: g.op("Mul", x, k(g, x, math.pi / 180))),
}  # fmt: skip
for _name, _onnx, _not in (
    ("eq", "Equal", False), ("ne", "Equal", True), ("lt", "Less", False), ("le", "LessOrEqual", False), ("gt", "Greater", False),
    ("ge", "GreaterOrEqual", False),
):  # fmt: skip
    ROWS[f"{_name}.Tensor"] = ROWS[f"{_name}.Scalar"] = comparison(_onnx, _not)
for _name, _onnx, _bool in (("and", "BitwiseAnd", "And"), ("or", "BitwiseOr", "Or"), ("xor", "BitwiseXor", "Xor")):
    for _overload in ("Tensor", "Scalar", "Scalar_Tensor"):
        ROWS[f"bitwise_{_name}.{_overload}"] = ROWS[f"__{_name}__.{_overload}"] = bitwise(_onnx, _bool)
for _overload in ("Tensor", "Tensor_Scalar", "Scalar_Tensor"):
    ROWS[f"bitwise_left_shift.{_overload}"], ROWS[f"bitwise_right_shift.{_overload}"] = shift(True), shift(False)
ROWS["__lshift__.Scalar"] = ROWS["__lshift__.Tensor"] = shift(True)
ROWS["__rshift__.Scalar"] = ROWS["__rshift__.Tensor"] = shift(False)
