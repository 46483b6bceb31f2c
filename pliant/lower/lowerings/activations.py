"""More elementwise operators: activations, losses, shifts, and gradients. A row says what one element of the result is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from pliant.graph.originals import math
from pliant.lower.lowerings.builder import Builder, Refuse, arguments, lowering
from pliant.lower.lowerings.pointwise import brought, common, named, over_result, overloads, up_name
from pliant.lower.lowerings.scalars import FLOATS, V, call, cast, const, exp, log, maximum, op, reduce, rounded, sigmoid, tanh, up, where

aten = torch.ops.aten
log1p, absolute = call("log1p"), call("abs")
SIXTH = 0.1666666716337204
"""PyTorch's sixth is a `float`, in gradients of doubles too."""


def elu_gradient(g: V, y: V, alpha: float, scale: float, input_scale: float, is_result: bool) -> V:
    slope = (y + alpha * scale) * input_scale if is_result else exp(y * input_scale) * (input_scale * alpha * scale)
    return where(y <= 0, g * slope, g * scale)


def softplus_gradient(g: V, x: V, beta: float, threshold: float) -> V:
    z = exp(x * beta)
    return where(x * beta > threshold, g, g * z / (z + 1.0))


def mish_gradient(g: V, x: V) -> V:
    t = tanh(log1p(exp(x)))
    return g * (t + x * sigmoid(x) * (1.0 - t * t))


@lowering(*overloads("xlogy.Tensor"), aten.special_xlog1py.default)
def _xlogy(b: Builder, o: Any) -> None:
    """Eager rounds the logarithm."""
    s, out, computed = over_result(b, o)
    if computed not in FLOATS:
        raise Refuse
    x, y = (brought(s, t, named(out.dtype)) for t in o.args)
    of_y = rounded((log if o.target._schema.name.startswith("aten::xlogy") else log1p)(y), out.dtype)
    s.store(out, where(op("isnan", y), y, where(op("eq", x, 0.0), 0.0, x * of_y)))


@lowering(*overloads("special_entr"))
def _entr(b: Builder, o: Any) -> None:
    """The same."""
    s, out, computed = over_result(b, o)
    if computed not in FLOATS:
        raise Refuse
    x = brought(s, o.args[0], named(out.dtype))
    s.store(out, where(x > 0, -x * rounded(log(x), out.dtype), where(op("eq", x, 0.0), 0.0, where(op("isnan", x), x, -math.inf))))


def logaddexp(x: V, y: V) -> V:
    same = op("eq", x, y) & op("ge", absolute(x), math.inf)
    return where(same, x, maximum(x, y) + log1p(exp(-absolute(x - y))))


ROWS: dict[str, tuple[str, str, Callable[..., V]]] = {
    "hardtanh_backward": ("grad_output self", "min_val max_val", lambda g, x, low, high: where((x <= low) | (x >= high), 0, g)),
    "leaky_relu_backward": ("grad_output self", "negative_slope self_is_result", lambda g, x, slope, _: where(x > 0, g, g * slope)),
    "elu_backward": ("grad_output self_or_result", "alpha scale input_scale is_result", elu_gradient),
    "softplus_backward": ("grad_output self", "beta threshold", softplus_gradient),
    "hardsigmoid_backward": ("grad_output self", "", lambda g, x: where((x > -3.0) & (x < 3.0), g * SIXTH, 0)),
    "hardswish_backward": ("grad_output self", "", lambda g, x: where(x <= -3.0, 0, where(x < 3.0, g * (x / 3.0 + 0.5), g))),
    "mish_backward": ("grad_output self", "", mish_gradient),
    "softshrink": ("self", "lambd", lambda x, a: where(x > a, x - a, where(x < -a, x + a, x * 0.0))),
    "hardshrink": ("self", "lambd", lambda x, a: where((x >= -a) & (x <= a), 0, x)),
    "softshrink_backward": ("grad_output self", "lambd", lambda g, x, a: where((x >= -a) & (x <= a), 0, g)),
    "hardshrink_backward": ("grad_out self", "lambd", lambda g, x, a: where((x >= -a) & (x <= a), 0, g)),
    "threshold": ("self", "threshold value", lambda x, a, value: where(x <= a, value, x)),
    "_prelu_kernel": ("self weight", "", lambda x, w: where(x > 0, x, w * x)),
    "logaddexp": ("self other", "", logaddexp),
    "frac": ("self", "", lambda x: x - op("trunc", x)),
}
"""Operator -> (its tensors, its numbers, one element of the result)."""
AT_BOUND = frozenset(ROWS[name][2] for name in ("hardshrink", "hardshrink_backward"))
"""Those that compare with their number in the dtype of the operand."""


def elementwise(tensors: str, numbers: str, fn: Callable[..., V]) -> Callable[[Builder, Any], None]:
    def rule(b: Builder, o: Any) -> None:
        s, out, computed = over_result(b, o)
        values = arguments(o, *numbers.split())
        if computed not in FLOATS or not all(isinstance(v, (int, float)) for v in values):
            raise Refuse
        if fn in AT_BOUND:
            values = [const(v, named(out.dtype)).node.attrs[0] for v in values]
        s.store(out, fn(*(s.value(t, computed) for t in arguments(o, *tensors.split())), *values))

    return rule


for _name, (_tensors, _numbers, _fn) in ROWS.items():
    lowering(*overloads(_name))(elementwise(_tensors, _numbers, _fn))


@lowering(aten._prelu_kernel_backward.default)
def _prelu_backward(b: Builder, o: Any) -> None:
    """Two results of the operand's sizes."""
    g, x, w = o.args
    s, out, computed = over_result(b, o)
    g, x, w = (s.value(t, computed) for t in (g, x, w))
    s.store(out, where(x > 0, g, w * g))
    s.store(o.outs[1], where(x > 0, 0, x * g))


@lowering(aten.log_sigmoid_forward.default)
def _log_sigmoid(b: Builder, o: Any) -> None:
    """The second result is `exp(-|x|)`, which the gradient starts from."""
    s, out, computed = over_result(b, o)
    x = s.value(o.args[0], computed)
    z = exp(-absolute(x))
    s.store(out, op("minimum", x, 0.0) - log1p(z))
    if b.needed(o.outs[1]):
        if len(o.outs[1].sizes) != len(out.sizes):
            raise Refuse
        s.store(o.outs[1], z)


@lowering(aten.log_sigmoid_backward.default)
def _log_sigmoid_backward(b: Builder, o: Any) -> None:
    s, out, computed = over_result(b, o)
    g, x, z = (s.value(t, computed) for t in o.args)
    share = z / (z + 1.0)
    s.store(out, g * where(x < 0, 1.0 - share, share))


# -- special values, signs and bits -------------------------------------------------------------------------------------
@lowering(*overloads("nan_to_num"))
def _nan_to_num(b: Builder, o: Any) -> None:
    nan, top, low = arguments(o, "nan", "posinf", "neginf")
    s, out, computed = over_result(b, o)
    x = s.value(o.args[0], computed)
    if computed in FLOATS:
        limits = torch.finfo(out.dtype)
        x = where(op("isnan", x), 0.0 if nan is None else float(nan), x)
        x = where(op("eq", x, math.inf), limits.max if top is None else float(top), x)
        x = where(op("eq", x, -math.inf), limits.min if low is None else float(low), x)
    s.store(out, x)


@lowering(aten.isposinf.default, aten.isneginf.default)
def _signed_infinity(b: Builder, o: Any) -> None:
    s = b.space(o.outs[0].sizes)
    x = s.load(o.args[0])
    bound = math.inf if o.target is aten.isposinf.default else -math.inf
    s.store(o.outs[0], op("eq", up(x), bound) if x.dtype in FLOATS else const(False, "bool"))


INTEGERS = frozenset(("i8", "i16", "i32", "i64", "u8"))
SHIFTS = {"left": "shl", "right": "shr"}


def shift(direction: str) -> Callable[[Builder, Any], None]:
    """Amounts outside of the type's width shift everything out, as in PyTorch; the hardware's answer to those is another."""

    def rule(b: Builder, o: Any) -> None:
        s, out, computed = over_result(b, o)
        if computed not in INTEGERS or common(*o.args) != computed:
            raise Refuse
        x, y = (s.value(v, computed) for v in o.args)
        bits = int(computed[1:])
        # a signed right shift by too much leaves the sign
        far = y >= bits if computed[0] == "u" else (y < 0) | (y >= bits)
        sign = op("shr", x, bits - 1) if direction == "right" and computed[0] == "i" else const(0, computed)
        s.store(out, where(far, sign, op(SHIFTS[direction], x, where(far, 0, y))))

    return rule


for _name, _letter in (("left", "l"), ("right", "r")):
    _long, _short = f"bitwise_{_name}_shift", f"__{_letter}shift__"
    lowering(*overloads(f"{_long}.Tensor", f"{_long}.Tensor_Scalar", f"{_short}.Tensor", f"{_short}.Scalar"))(shift(_name))


@lowering(*overloads("div.Tensor_mode", "div.Scalar_mode", "floor_divide"))
def _rounded_division(b: Builder, o: Any) -> None:
    """Of floats; integers may divide by zero, which is an error. Of halves eager rounds the quotient first."""
    mode = "floor" if "floor_divide" in o.target._schema.name else arguments(o, "rounding_mode")[0]
    s, out, computed = over_result(b, o)
    if computed not in FLOATS or mode is not None and (common(*o.args[:2]) != computed or named(out.dtype) != computed):
        raise Refuse
    x, y = (s.value(v, computed) for v in o.args[:2])
    s.store(out, x / y if mode is None else op("floordiv" if mode == "floor" else "truncdiv", x, y))


# -- losses -----------------------------------------------------------------------------------------------------------------
def smooth_l1(x: V, y: V, beta: float) -> V:
    d = absolute(x - y)
    return where(d < beta, d * 0.5 * d / beta, d - 0.5 * beta) if beta else d


def huber(x: V, y: V, delta: float) -> V:
    d = absolute(x - y)
    return where(d < delta, d * 0.5 * d, (d - 0.5 * delta) * delta)


def smooth_l1_gradient(x: V, y: V, beta: float) -> V:
    d = x - y
    return where(d <= -beta, -1.0, where(d >= beta, const(1.0, d.dtype), d / beta)) if beta else op("sign", d)


def huber_gradient(x: V, y: V, delta: float) -> V:
    d = x - y
    return where(d <= -delta, -delta, where(d >= delta, const(delta, d.dtype), d))


LOSSES: dict[str, tuple[str, Callable[[V, V, float], V]]] = {"smooth_l1_loss": ("beta", smooth_l1), "huber_loss": ("delta", huber)}
LOSS_GRADIENTS = {"smooth_l1_loss_backward": ("beta", smooth_l1_gradient), "huber_loss_backward": ("delta", huber_gradient)}


def loss(number: str, fn: Callable[[V, V, float], V]) -> Callable[[Builder, Any], None]:
    """Not reduced, or the sum or mean over all elements, operands of one size."""

    def rule(b: Builder, o: Any) -> None:
        x, y, reduction, parameter = arguments(o, "self", "target", "reduction", number)
        out = o.outs[0]
        computed = up_name(named(out.dtype))
        if computed not in FLOATS or named(out.dtype) != computed or x.dtype != y.dtype or len(x.sizes) != len(y.sizes):
            raise Refuse  # of halves eager rounds each step
        s = b.space(x.sizes if reduction else out.sizes, len(x.sizes) if reduction else 0)
        value = fn(s.value(x, computed), s.value(y, computed), float(parameter))
        if not reduction:
            s.store(out, value)
            return
        total = reduce("sum", value)
        s.store(out, total / s.size(b.facts.product(s.sizes), computed) if reduction == 1 else total, [], full=False)

    return rule


def loss_gradient(number: str, fn: Callable[[V, V, float], V]) -> Callable[[Builder, Any], None]:
    def rule(b: Builder, o: Any) -> None:
        g, x, y, reduction, parameter = arguments(o, "grad_output", "self", "target", "reduction", number)
        s, out, computed = over_result(b, o)
        if named(out.dtype) != computed or computed not in FLOATS:
            raise Refuse
        slope = fn(s.value(x, computed), s.value(y, computed), float(parameter)) * s.value(g, computed)
        s.store(out, slope / s.size(b.facts.product(s.sizes), computed) if reduction == 1 else slope)

    return rule


for _name, (_number, _loss) in LOSSES.items():
    lowering(*overloads(_name))(loss(_number, _loss))
for _name, (_number, _loss) in LOSS_GRADIENTS.items():
    lowering(*overloads(_name))(loss_gradient(_number, _loss))


@lowering(aten.binary_cross_entropy_with_logits.default)
def _cross_entropy_with_logits(b: Builder, o: Any) -> None:
    x, y, weight, positive, reduction = arguments(o, "self", "target", "weight", "pos_weight", "reduction")
    out = o.outs[0]
    computed = named(out.dtype)
    if computed not in ("f32", "f64") or any(t is not None and t.dtype != out.dtype for t in (x, y, weight, positive)):
        raise Refuse
    s = b.space(x.sizes, len(x.sizes) if reduction else 0)
    v, t = s.load(x), s.load(y)
    log_sigmoid = op("minimum", v, 0.0) - log1p(exp(-absolute(v)))
    share = log_sigmoid if positive is None else ((s.load(positive) - 1.0) * t + 1.0) * log_sigmoid
    value = (1.0 - t) * v - share
    if weight is not None:
        value = value * s.load(weight)
    if reduction:
        total = reduce("sum", value)
        s.store(out, total / s.size(b.facts.product(s.sizes), computed) if reduction == 1 else total, [], full=False)
    else:
        s.store(out, value)


@lowering(aten.nll_loss_backward.default)
def _nll_loss_backward(b: Builder, o: Any) -> None:
    """Only the target's column of each row has a gradient."""
    g, x, target, weight, reduction, ignored, total = arguments(
        o, "grad_output", "self", "target", "weight", "reduction", "ignore_index", "total_weight"
    )
    s, out, computed = over_result(b, o)
    if len(x.sizes) != 2 or named(out.dtype) != computed or computed not in FLOATS:
        raise Refuse
    row = s.load(target, [0])
    at = cast(row, "i64")
    slope = -s.load(g, [0] if reduction == 0 else [])
    if weight is not None:
        slope = slope * s.load(weight, [1])
    if reduction == 1:
        slope = slope / s.load(total, [])
    s.store(out, where(op("eq", at, s.index(1)) & op("ne", at, s.value(ignored, "i64")), slope, 0))
