"""Elementwise operators.

Both operands are brought to one dtype and one shape first. Halves are computed in float32 and rounded once, as PyTorch's kernels do it.
Integer division and modulo by zero raise in PyTorch; here the result is XLA's (-1, the dividend).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from pliant.export.stablehlo.builder import HALF, Builder, Unsupported, Value, is_float
from pliant.export.stablehlo.table import lowering
from pliant.symbolic.expr import Expr

Operand = Any  # a Value, a Python number or an expression
KINDS = {int: torch.int64, float: torch.float32, bool: torch.bool}


def wide(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which PyTorch's kernels compute."""
    return torch.float32 if dtype in HALF else dtype


def category(dtype: torch.dtype) -> int:
    return 3 if dtype.is_complex else 2 if dtype.is_floating_point else 0 if dtype == torch.bool else 1


def common(*operands: Operand) -> torch.dtype:
    """PyTorch's promotion: tensors with dims decide, then 0-d tensors, then numbers, each only by a higher category."""
    groups: list[torch.dtype | None] = [None, None, None]
    for x in operands:
        place = 2 if type(x) is not Value else 0 if x.rank else 1
        dtype = x.dtype if type(x) is Value else KINDS[x.kind if type(x) is Expr else type(x)]
        have = groups[place]
        groups[place] = dtype if have is None else torch.promote_types(have, dtype)
    result = groups[2]
    for higher in (groups[1], groups[0]):
        if higher is not None:
            result = higher if result is None or category(higher) >= category(result) else torch.promote_types(higher, result)
    assert result is not None
    return result


def to(b: Builder, x: Operand, sizes: Any, dtype: torch.dtype) -> Value:
    """An operand of this dtype and these sizes."""
    return b.expand(b.convert(x, dtype), sizes) if type(x) is Value else b.full(x, sizes, dtype)


def pointwise(b: Builder, fn: Callable[..., Value], *operands: Operand, compute: torch.dtype | None = None) -> Value:
    """`fn` of the operands in the dtype of the result (or `compute`), converted to that of the result."""
    out = b.outs[0]
    dtype = wide(compute or out.dtype)
    return b.convert(fn(*[to(b, x, out.sizes, dtype) for x in operands]), out.dtype)


def like(b: Builder, value: Any, x: Value) -> Value:
    return b.full(value, x.sizes, x.dtype)


# -- unary ---------------------------------------------------------------------------------------------------------------------
def unary(names: str, make: Callable[[Builder, Value], Value]) -> None:
    @lowering(names)
    def lower(b: Builder, self: Value, **_: Any) -> Value:
        return pointwise(b, lambda x: make(b, x), self)


def op(name: str) -> Callable[[Builder, Value], Value]:
    return lambda b, x: b.same(name, x)


def truncated(b: Builder, x: Value) -> Value:
    return x if not is_float(x.dtype) else b.select(b.compare("LT", x, like(b, 0, x)), b.same("ceil", x), b.same("floor", x))


def whole(name: str) -> Callable[[Builder, Value], Value]:
    """A rounding: integers stay as they are."""
    return lambda b, x: b.same(name, x) if is_float(x.dtype) else x


def scaled_log(factor: float) -> Callable[[Builder, Value], Value]:
    return lambda b, x: b.same("divide", b.same("log", x), like(b, factor, x))


def sign(b: Builder, x: Value) -> Value:
    if x.dtype == torch.bool:
        return x
    if x.dtype == torch.uint8:
        return b.same("minimum", x, like(b, 1, x))
    zero, one = like(b, 0, x), like(b, 1, x)  # sign(nan) is 0, that of -0.0 is 0.0
    return b.same("subtract", b.convert(b.compare("GT", x, zero), x.dtype), b.select(b.compare("LT", x, zero), one, zero))


def relu(b: Builder, x: Value) -> Value:
    return b.same("maximum", x, like(b, 0, x))


def sigmoid(b: Builder, x: Value) -> Value:
    return b.same("logistic", x)


def softplus(b: Builder, x: Value) -> Value:
    """log(1 + exp(x)) without overflow."""
    small = b.same("log_plus_one", b.same("exponential", b.same("negate", b.same("abs", x))))
    return b.same("add", b.same("maximum", x, like(b, 0, x)), small)


for _names, _make in {
    "abs.default": lambda b, x: x if x.dtype in (torch.bool, torch.uint8) else b.same("abs", x),
    "neg.default": op("negate"), "exp.default": op("exponential"), "expm1.default": op("exponential_minus_one"),
    "log.default": op("log"), "log1p.default": op("log_plus_one"), "sin.default": op("sine"), "cos.default": op("cosine"),
    "tan.default": op("chlo.tan"), "tanh.default": op("tanh"), "sqrt.default": op("sqrt"), "rsqrt.default": op("rsqrt"),
    "ceil.default": whole("ceil"), "floor.default": whole("floor"), "round.default": whole("round_nearest_even"),
    "trunc.default": truncated, "fix.default": truncated, "sign.default": sign, "sgn.default": sign,
    "erf.default special_erf.default": op("chlo.erf"), "erfc.default": op("chlo.erfc"), "erfinv.default": op("chlo.erf_inv"),
    "lgamma.default": op("chlo.lgamma"), "digamma.default": op("chlo.digamma"),
    "asin.default": op("chlo.asin"), "acos.default": op("chlo.acos"), "atan.default": op("chlo.atan"),
    "sinh.default": op("chlo.sinh"), "cosh.default": op("chlo.cosh"), "asinh.default": op("chlo.asinh"),
    "acosh.default": op("chlo.acosh"), "atanh.default": op("chlo.atanh"),
    "log2.default": scaled_log(math.log(2)), "log10.default": scaled_log(math.log(10)),
    "exp2.default": lambda b, x: b.same("power", like(b, 2, x), x),
    "reciprocal.default": lambda b, x: b.same("divide", like(b, 1, x), x),
    "square.default": lambda b, x: b.same("multiply", x, x),
    "sigmoid.default special_expit.default": sigmoid, "relu.default": relu,
    "relu6.default": lambda b, x: b.same("minimum", relu(b, x), like(b, 6, x)),
    "silu.default": lambda b, x: b.same("multiply", x, sigmoid(b, x)),
    "mish.default": lambda b, x: b.same("multiply", x, b.same("tanh", softplus(b, x))),
    "hardsigmoid.default": lambda b, x: hard_sigmoid(b, x), "hardswish.default": lambda b, x: b.same("multiply", x, hard_sigmoid(b, x)),
    "log_sigmoid.default": lambda b, x: b.same("negate", softplus(b, b.same("negate", x))),
    "frac.default": lambda b, x: b.same("subtract", x, truncated(b, x)),
    "positive.default": lambda b, x: x,
    "deg2rad.default": lambda b, x: b.same("multiply", x, like(b, math.pi / 180, x)),
    "rad2deg.default": lambda b, x: b.same("multiply", x, like(b, 180 / math.pi, x)),
    "selu.default": lambda b, x: elu_of(b, x, 1.6732632423543772, 1.0507009873554805, 1.0),
}.items():  # fmt: skip
    unary(_names, _make)


def hard_sigmoid(b: Builder, x: Value) -> Value:
    up = b.same("minimum", relu(b, b.same("add", x, like(b, 3, x))), like(b, 6, x))
    return b.same("divide", up, like(b, 6, x))


def predicate(names: str, make: Callable[[Builder, Value], Value]) -> None:
    @lowering(names)
    def lower(b: Builder, self: Value) -> Value:
        return make(b, self)


def is_nan(b: Builder, x: Value) -> Value:
    return b.compare("NE", x, x) if is_float(x.dtype) else b.full(False, x.sizes, torch.bool)


def is_inf(b: Builder, x: Value) -> Value:
    if not is_float(x.dtype):
        return b.full(False, x.sizes, torch.bool)
    return b.compare("EQ", b.same("abs", x), like(b, math.inf, x))


def is_finite(b: Builder, x: Value) -> Value:
    return b.same("is_finite", x, dtype=torch.bool) if is_float(x.dtype) else b.full(True, x.sizes, torch.bool)


predicate("isnan.default", is_nan)
predicate("isinf.default", is_inf)
predicate("isfinite.default", is_finite)
predicate("isneginf.default", lambda b, x: b.compare("EQ", x, like(b, -math.inf, x)))
predicate("isposinf.default", lambda b, x: b.compare("EQ", x, like(b, math.inf, x)))
predicate("logical_not.default", lambda b, x: b.compare("EQ", x, like(b, 0, x)))
predicate("bitwise_not.default", lambda b, x: b.same("not", x))
predicate("signbit.default", lambda b, x: negative_bit(b, x))


def negative_bit(b: Builder, x: Value) -> Value:
    if not is_float(x.dtype):
        return b.compare("LT", x, like(b, 0, x))
    x = b.convert(x, wide(x.dtype))
    bits = b.same("bitcast_convert", x, dtype=torch.int64 if x.dtype == torch.float64 else torch.int32)
    return b.compare("LT", bits, like(b, 0, bits))


# -- binary --------------------------------------------------------------------------------------------------------------------
def binary(names: str, make: Callable[[Builder, Value, Value], Value]) -> None:
    @lowering(names)
    def lower(b: Builder, self: Operand, other: Operand) -> Value:
        return pointwise(b, lambda x, y: make(b, x, y), self, other)


def op2(name: str) -> Callable[[Builder, Value, Value], Value]:
    return lambda b, x, y: b.same(name, x, y)


def added(b: Builder, x: Operand, y: Operand, alpha: Any, name: str) -> Value:
    def make(p: Value, q: Value) -> Value:
        scaled = q if type(alpha) is not Expr and alpha == 1 else b.same("multiply", q, like(b, alpha, q))
        if p.dtype == torch.bool:
            return b.same("or", p, scaled)
        return b.same(name, p, scaled)

    return pointwise(b, make, x, y)


@lowering("add.Tensor add.Scalar")
def add(b: Builder, self: Operand, other: Operand, alpha: Any = 1) -> Value:
    return added(b, self, other, alpha, "add")


@lowering("sub.Tensor sub.Scalar")
def sub(b: Builder, self: Operand, other: Operand, alpha: Any = 1) -> Value:
    return added(b, self, other, alpha, "subtract")


@lowering("rsub.Tensor rsub.Scalar")
def rsub(b: Builder, self: Operand, other: Operand, alpha: Any = 1) -> Value:
    return added(b, other, self, alpha, "subtract")


def floor_of_integers(b: Builder, x: Value, y: Value) -> Value:
    if x.dtype == torch.uint8:
        return b.same("divide", x, y)
    m = b.same("remainder", x, y)
    q = b.same("divide", x, y)
    return b.select(off_by_one(b, m, y), b.same("subtract", q, like(b, 1, q)), q)


def off_by_one(b: Builder, m: Value, y: Value) -> Value:
    """Whether a truncated remainder has another sign than the divisor."""
    zero = like(b, 0, m)
    differs = b.same("xor", b.compare("LT", m, zero), b.compare("LT", y, zero))
    return b.same("and", b.compare("NE", m, zero), differs)


def remainder(b: Builder, x: Value, y: Value) -> Value:
    m = b.same("remainder", x, y)
    return m if x.dtype == torch.uint8 else b.select(off_by_one(b, m, y), b.same("add", m, y), m)


def floor_division(b: Builder, x: Value, y: Value) -> Value:
    """PyTorch's `div_floor_floating`, which is CPython's divmod: exact where a quotient would be rounded up."""
    if not is_float(x.dtype):
        return floor_of_integers(b, x, y)
    one, zero = like(b, 1, x), like(b, 0, x)
    m = b.same("remainder", x, y)
    d = b.same("divide", b.same("subtract", x, m), y)
    d = b.select(off_by_one(b, m, y), b.same("subtract", d, one), d)
    f = b.same("floor", d)
    f = b.select(b.compare("GT", b.same("subtract", d, f), like(b, 0.5, x)), b.same("add", f, one), f)
    q = b.same("divide", x, y)
    f = b.select(b.compare("EQ", d, zero), b.same("multiply", zero, q), f)
    return b.select(b.compare("EQ", y, zero), q, f)


def truncated_division(b: Builder, x: Value, y: Value) -> Value:
    return truncated(b, b.same("divide", x, y))


@lowering("div.Tensor div.Scalar true_divide.Tensor divide.Tensor")
def div(b: Builder, self: Operand, other: Operand) -> Value:
    return pointwise(b, lambda x, y: b.same("divide", x, y), self, other)


@lowering("div.Tensor_mode div.Scalar_mode")
def div_mode(b: Builder, self: Operand, other: Operand, rounding_mode: str | None = None) -> Value:
    make = {None: op2("divide"), "floor": floor_division, "trunc": truncated_division}[rounding_mode]
    return pointwise(b, lambda x, y: make(b, x, y), self, other)


@lowering("pow.Tensor_Tensor pow.Tensor_Scalar pow.Scalar")
def power(b: Builder, self: Operand, exponent: Operand) -> Value:
    def make(x: Value, y: Value) -> Value:
        special: dict[float, Callable[[], Value]] = {
            1: lambda: x, 2: lambda: b.same("multiply", x, x), 3: lambda: b.same("multiply", b.same("multiply", x, x), x),
        }  # fmt: skip
        if is_float(x.dtype):
            special |= {0.5: lambda: b.same("sqrt", x), -0.5: lambda: b.same("rsqrt", x), -1: lambda: b.same("divide", like(b, 1, x), x)}
        if type(exponent) in (int, float) and exponent in special:
            return special[exponent]()
        return b.same("power", x, y)

    return pointwise(b, make, self, exponent)


def first_number(name: str) -> Callable[[Builder, Value, Value], Value]:
    """fmax, fmin: a number rather than a nan."""
    return lambda b, x, y: b.select(is_nan(b, x), y, b.select(is_nan(b, y), x, b.same(name, x, y)))


def copysign(b: Builder, x: Value, y: Value) -> Value:
    size = b.same("abs", x)
    return b.select(negative_bit(b, y), b.same("negate", size), size)


def hypot(b: Builder, x: Value, y: Value) -> Value:
    x, y = b.same("abs", x), b.same("abs", y)
    large, small = b.same("maximum", x, y), b.same("minimum", x, y)
    ratio = b.same("divide", small, large)
    root = b.same("multiply", large, b.same("sqrt", b.same("add", like(b, 1, x), b.same("multiply", ratio, ratio))))
    root = b.select(b.compare("EQ", large, like(b, 0, x)), large, root)
    return b.select(b.same("or", is_inf(b, x), is_inf(b, y)), like(b, math.inf, x), root)


def xlogy(b: Builder, x: Value, y: Value) -> Value:
    product = b.same("multiply", x, b.same("log", y))
    zero = like(b, 0, x)
    return b.select(is_nan(b, y), y, b.select(b.compare("EQ", x, zero), zero, product))


def logaddexp(b: Builder, x: Value, y: Value) -> Value:
    large = b.same("maximum", x, y)
    gap = b.same("abs", b.same("subtract", x, y))
    total = b.same("add", large, b.same("log_plus_one", b.same("exponential", b.same("negate", gap))))
    return b.select(b.same("and", is_inf(b, x), b.compare("EQ", x, y)), x, total)


def heaviside(b: Builder, x: Value, values: Value) -> Value:
    zero = like(b, 0, x)
    return b.select(b.compare("EQ", x, zero), values, b.convert(b.compare("GT", x, zero), x.dtype))


for _names, _two in {
    "mul.Tensor mul.Scalar multiply.Tensor": lambda b, x, y: b.same("and" if x.dtype == torch.bool else "multiply", x, y),
    "remainder.Tensor remainder.Scalar remainder.Scalar_Tensor": remainder, "fmod.Tensor fmod.Scalar": op2("remainder"),
    "floor_divide.default floor_divide.Scalar": floor_division,
    "maximum.default max.other": op2("maximum"), "minimum.default min.other": op2("minimum"),
    "fmax.default": first_number("maximum"), "fmin.default": first_number("minimum"), "atan2.default arctan2.default": op2("atan2"),
    "bitwise_and.Tensor bitwise_and.Scalar bitwise_and.Scalar_Tensor __and__.Tensor __and__.Scalar": op2("and"),
    "bitwise_or.Tensor bitwise_or.Scalar bitwise_or.Scalar_Tensor __or__.Tensor __or__.Scalar": op2("or"),
    "bitwise_xor.Tensor bitwise_xor.Scalar bitwise_xor.Scalar_Tensor __xor__.Tensor __xor__.Scalar": op2("xor"),
    "bitwise_left_shift.Tensor bitwise_left_shift.Tensor_Scalar __lshift__.Tensor __lshift__.Scalar": op2("shift_left"),
    "bitwise_right_shift.Tensor bitwise_right_shift.Tensor_Scalar __rshift__.Tensor __rshift__.Scalar":
        lambda b, x, y: b.same("shift_right_logical" if x.dtype == torch.uint8 else "shift_right_arithmetic", x, y),
    "copysign.Tensor copysign.Scalar": copysign, "hypot.default": hypot, "nextafter.default": op2("chlo.next_after"),
    "xlogy.Tensor xlogy.Scalar_Other xlogy.Scalar_Self": xlogy, "logaddexp.default": logaddexp, "heaviside.default": heaviside,
}.items():  # fmt: skip
    binary(_names, _two)


def comparison(names: str, direction: str) -> None:
    @lowering(names)
    def lower(b: Builder, self: Operand, other: Operand) -> Value:
        sizes, dtype = b.outs[0].sizes, common(self, other)
        return b.compare(direction, to(b, self, sizes, dtype), to(b, other, sizes, dtype))


for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    comparison(f"{_name}.Tensor {_name}.Scalar", _name.upper())


def logical(names: str, name: str) -> None:
    @lowering(names)
    def lower(b: Builder, self: Value, other: Value) -> Value:
        sizes = b.outs[0].sizes
        return b.same(name, *[b.expand(b.convert(x, torch.bool), sizes) for x in (self, other)])


for _name in ("and", "or", "xor"):
    logical(f"logical_{_name}.default", _name)


# -- more operands ---------------------------------------------------------------------------------------------------------------
@lowering("where.self where.ScalarSelf where.ScalarOther where.Scalar")
def where(b: Builder, condition: Value, self: Operand, other: Operand) -> Value:
    out = b.outs[0]
    p = b.expand(b.convert(condition, torch.bool), out.sizes)
    return b.select(p, to(b, self, out.sizes, out.dtype), to(b, other, out.sizes, out.dtype))


@lowering("masked_fill.Scalar masked_fill.Tensor")
def masked_fill(b: Builder, self: Value, mask: Value, value: Operand) -> Value:
    out = b.outs[0]
    return b.select(b.expand(mask, out.sizes), to(b, value, out.sizes, out.dtype), to(b, self, out.sizes, out.dtype))


@lowering("clamp.default clamp.Tensor hardtanh.default clip.default clip.Tensor")
def clamp(b: Builder, self: Value, min: Operand = None, max: Operand = None) -> Value:
    def make(x: Value, *ends: Value) -> Value:
        rest = list(ends)
        if min is not None:
            x = b.same("maximum", x, rest.pop(0))
        return b.same("minimum", x, rest.pop(0)) if max is not None else x

    return pointwise(b, make, self, *[v for v in (min, max) if v is not None])


@lowering("clamp_min.default clamp_min.Tensor")
def clamp_min(b: Builder, self: Value, min: Operand) -> Value:
    return clamp(b, self, min, None)


@lowering("clamp_max.default clamp_max.Tensor")
def clamp_max(b: Builder, self: Value, max: Operand) -> Value:
    return clamp(b, self, None, max)


@lowering("addcmul.default")
def addcmul(b: Builder, self: Value, tensor1: Value, tensor2: Value, value: Any = 1) -> Value:
    return pointwise(
        b, lambda x, p, q: b.same("add", x, b.same("multiply", b.same("multiply", like(b, value, x), p), q)), self, tensor1, tensor2
    )


@lowering("addcdiv.default")
def addcdiv(b: Builder, self: Value, tensor1: Value, tensor2: Value, value: Any = 1) -> Value:
    return pointwise(
        b, lambda x, p, q: b.same("add", x, b.same("multiply", like(b, value, x), b.same("divide", p, q))), self, tensor1, tensor2
    )


@lowering("lerp.Scalar lerp.Tensor")
def lerp(b: Builder, self: Value, end: Value, weight: Operand) -> Value:
    def make(x: Value, y: Value, w: Value) -> Value:
        gap = b.same("subtract", y, x)
        near = b.same("add", x, b.same("multiply", w, gap))
        far = b.same("subtract", y, b.same("multiply", gap, b.same("subtract", like(b, 1, w), w)))
        return b.select(b.compare("LT", b.same("abs", w), like(b, 0.5, w)), near, far)

    return pointwise(b, make, self, end, weight)


@lowering("gelu.default", composite=True)
def gelu(b: Builder, self: Value, approximate: str = "none") -> Value:
    def make(x: Value) -> Value:
        half = b.same("multiply", x, like(b, 0.5, x))
        if approximate == "tanh":
            cube = b.same("multiply", b.same("multiply", x, x), x)
            inner = b.same("add", x, b.same("multiply", cube, like(b, 0.044715, x)))
            bent = b.same("tanh", b.same("multiply", inner, like(b, math.sqrt(2 / math.pi), x)))
        else:
            bent = b.same("chlo.erf", b.same("multiply", x, like(b, math.sqrt(0.5), x)))
        return b.same("multiply", half, b.same("add", bent, like(b, 1, x)))

    return pointwise(b, make, self)


@lowering("leaky_relu.default")
def leaky_relu(b: Builder, self: Value, negative_slope: Any = 0.01) -> Value:
    def make(x: Value) -> Value:
        return b.select(b.compare("GT", x, like(b, 0, x)), x, b.same("multiply", x, like(b, negative_slope, x)))

    return pointwise(b, make, self)


@lowering("_prelu_kernel.default prelu.default")
def prelu(b: Builder, self: Value, weight: Value) -> Value:
    if weight.rank == 1 and self.rank > 1:
        weight = b.reshape(weight, (weight.sizes[0], *[1] * (self.rank - 2)))
    return pointwise(b, lambda x, w: b.select(b.compare("GT", x, like(b, 0, x)), x, b.same("multiply", x, w)), self, weight)


def elu_of(b: Builder, x: Value, alpha: Any, scale: Any, input_scale: Any) -> Value:
    grown = b.same("exponential_minus_one", b.same("multiply", x, like(b, input_scale, x)))
    below = b.same("multiply", grown, like(b, alpha * scale, x))
    return b.select(b.compare("GT", x, like(b, 0, x)), b.same("multiply", x, like(b, scale, x)), below)


@lowering("elu.default")
def elu(b: Builder, self: Value, alpha: Any = 1, scale: Any = 1, input_scale: Any = 1) -> Value:
    return pointwise(b, lambda x: elu_of(b, x, alpha, scale, input_scale), self)


@lowering("celu.default")
def celu(b: Builder, self: Value, alpha: Any = 1.0) -> Value:
    return pointwise(b, lambda x: elu_of(b, x, alpha, 1, 1 / alpha), self)


@lowering("softplus.default")
def softplus_row(b: Builder, self: Value, beta: Any = 1, threshold: Any = 20) -> Value:
    def make(x: Value) -> Value:
        scaled = b.same("multiply", x, like(b, beta, x))
        soft = b.same("divide", b.same("log_plus_one", b.same("exponential", scaled)), like(b, beta, x))
        return b.select(b.compare("GT", scaled, like(b, threshold, x)), x, soft)

    return pointwise(b, make, self)


@lowering("log_sigmoid_forward.default")
def log_sigmoid_forward(b: Builder, self: Value) -> list[Value | None]:
    y = pointwise(b, lambda x: b.same("negate", softplus(b, b.same("negate", x))), self)
    kept = b.same("exponential", b.same("negate", b.same("abs", b.convert(self, wide(self.dtype)))))  # what the derivative reuses
    return [y, b.reshape(b.convert(kept, self.dtype), b.outs[1].sizes) if b.used[1] else None]


@lowering("threshold.default")
def threshold(b: Builder, self: Value, threshold: Any, value: Any) -> Value:
    return pointwise(b, lambda x: b.select(b.compare("LE", x, like(b, threshold, x)), like(b, value, x), x), self)


@lowering("softshrink.default")
def softshrink(b: Builder, self: Value, lambd: Any = 0.5) -> Value:
    def make(x: Value) -> Value:
        k = like(b, lambd, x)
        low = b.select(b.compare("LT", x, b.same("negate", k)), b.same("add", x, k), b.same("multiply", x, like(b, 0, x)))
        return b.select(b.compare("GT", x, k), b.same("subtract", x, k), low)

    return pointwise(b, make, self)


@lowering("hardshrink.default")
def hardshrink(b: Builder, self: Value, lambd: Any = 0.5) -> Value:
    return pointwise(b, lambda x: b.select(b.compare("LE", b.same("abs", x), like(b, lambd, x)), like(b, 0, x), x), self)


@lowering("glu.default")
def glu(b: Builder, self: Value, dim: int = -1) -> Value:
    dim %= self.rank
    half = b.simple(self.sizes[dim] // 2)
    x, gate = b.slice(self, dim, 0, half, size=half), b.slice(self, dim, half, self.sizes[dim], size=half)
    return pointwise(b, lambda p, q: b.same("multiply", p, sigmoid(b, q)), x, gate)


@lowering("round.decimals")
def round_decimals(b: Builder, self: Value, decimals: int = 0) -> Value:
    if not is_float(self.dtype):
        raise Unsupported("rounding integers to decimals")
    factor = 10.0 ** abs(decimals)
    there, back = ("multiply", "divide") if decimals >= 0 else ("divide", "multiply")

    def make(x: Value) -> Value:
        return b.same(back, b.same("round_nearest_even", b.same(there, x, like(b, factor, x))), like(b, factor, x))

    return pointwise(b, make, self)


@lowering("logit.default")
def logit(b: Builder, self: Value, eps: Any = None) -> Value:
    def make(x: Value) -> Value:
        if eps is not None:
            x = b.same("minimum", b.same("maximum", x, like(b, eps, x)), like(b, 1 - eps, x))
        return b.same("log", b.same("divide", x, b.same("subtract", like(b, 1, x), x)))

    return pointwise(b, make, self)


# -- the backward parts of these ---------------------------------------------------------------------------------------------------
@lowering("threshold_backward.default")
def threshold_backward(b: Builder, grad_output: Value, self: Value, threshold: Any) -> Value:
    return pointwise(b, lambda g, x: b.select(b.compare("LE", x, like(b, threshold, x)), like(b, 0, g), g), grad_output, self)


@lowering("sigmoid_backward.default")
def sigmoid_backward(b: Builder, grad_output: Value, output: Value) -> Value:
    def make(g: Value, y: Value) -> Value:
        return b.same("multiply", g, b.same("multiply", b.same("subtract", like(b, 1, y), y), y))

    return pointwise(b, make, grad_output, output)


@lowering("tanh_backward.default")
def tanh_backward(b: Builder, grad_output: Value, output: Value) -> Value:
    return pointwise(
        b, lambda g, y: b.same("multiply", g, b.same("subtract", like(b, 1, y), b.same("multiply", y, y))), grad_output, output
    )


@lowering("silu_backward.default")
def silu_backward(b: Builder, grad_output: Value, self: Value) -> Value:
    def make(g: Value, x: Value) -> Value:
        s, one = sigmoid(b, x), like(b, 1, x)
        slope = b.same("add", one, b.same("multiply", x, b.same("subtract", one, s)))
        return b.same("multiply", g, b.same("multiply", s, slope))

    return pointwise(b, make, grad_output, self)


@lowering("gelu_backward.default")
def gelu_backward(b: Builder, grad_output: Value, self: Value, approximate: str = "none") -> Value:
    def make(g: Value, x: Value) -> Value:
        one, half = like(b, 1, x), like(b, 0.5, x)
        square = b.same("multiply", x, x)
        if approximate == "tanh":
            k, c = like(b, math.sqrt(2 / math.pi), x), like(b, 0.044715, x)
            inner = b.same("multiply", k, b.same("add", x, b.same("multiply", c, b.same("multiply", square, x))))
            t = b.same("tanh", inner)
            left = b.same("multiply", half, b.same("add", one, t))
            bend = b.same("subtract", one, b.same("multiply", t, t))
            slope = b.same("multiply", k, b.same("add", one, b.same("multiply", like(b, 3 * 0.044715, x), square)))
            right = b.same("multiply", b.same("multiply", half, x), b.same("multiply", bend, slope))
            return b.same("multiply", g, b.same("add", left, right))
        spread = b.same("add", one, b.same("chlo.erf", b.same("multiply", x, like(b, math.sqrt(0.5), x))))
        density = b.same("exponential", b.same("multiply", square, like(b, -0.5, x)))
        right = b.same("multiply", x, b.same("multiply", density, like(b, 1 / math.sqrt(2 * math.pi), x)))
        return b.same("multiply", g, b.same("add", b.same("multiply", half, spread), right))

    return pointwise(b, make, grad_output, self)
