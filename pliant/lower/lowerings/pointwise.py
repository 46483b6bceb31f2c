"""Elementwise operators. Each row says what one element of the result is; arithmetic and rounding are those of PyTorch's CPU kernels."""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable
from functools import cache
from typing import Any

from pliant.graph.originals import ORIGINAL, math, torch
from pliant.graph.traced import TracedTensor
from pliant.lower import liveness
from pliant.lower.lowerings.builder import Builder, Refuse, Space, arguments, lowering
from pliant.lower.lowerings.scalars import (
    COMPUTED,
    FLOATS,
    NAMES,
    V,
    call,
    cast,
    const,
    erf,
    exp,
    maximum,
    minimum,
    op,
    rounded,
    sigmoid,
    tanh,
    up,
    where,
)

aten = torch.ops.aten
LARGEST = 3.4e38  # of float32
SQRT_HALF = math.sqrt(0.5)
SQRT_2_OVER_PI = math.sqrt(2 / math.pi)


def overloads(*names: str) -> list[Any]:
    """`"add.Tensor"` and, where it exists, its in-place form `"add_.Tensor"`."""
    found = []
    for name in names:
        base, _, overload = name.partition(".")
        for spelled in (base, f"{base}_"):
            packet = getattr(aten, spelled, None)
            target = getattr(packet, overload or "default", None) if packet is not None else None
            if target is not None:
                found.append(target)
    return found


@cache
def promoted(*kinds: tuple[torch.dtype, bool] | type) -> torch.dtype:
    """PyTorch's common dtype of operands: (dtype, is it 0-dim) of tensors, classes of Python numbers."""
    items = [torch.empty((), dtype=k[0]) if isinstance(k, tuple) and k[1] else torch.empty(1, dtype=k[0]) if isinstance(k, tuple) else k(1)
             for k in kinds]  # fmt: skip
    out = items[0]
    for other in items[1:]:
        dtype = torch.result_type(out, other)
        zero_dim = all(not isinstance(x, torch.Tensor) or ORIGINAL.dim(x) == 0 for x in (out, other))
        out = torch.empty(() if zero_dim else 1, dtype=dtype)
    return out.dtype


def common(*operands: Any) -> str:
    """The dtype that operands are brought to before a comparison."""
    kinds: list[Any] = []
    for x in operands:
        if isinstance(x, TracedTensor):
            kinds.append((x.dtype, ORIGINAL.dim(x) == 0))
        elif isinstance(x, (bool, int, float)):
            kinds.append(type(x))
        elif isinstance(x, torch.SymInt):
            kinds.append(int)
        else:
            raise Refuse
    if not isinstance(operands[0], TracedTensor):
        kinds.sort(key=lambda k: not isinstance(k, tuple))
    dtype = promoted(*kinds)
    if dtype not in NAMES:
        raise Refuse
    return NAMES[dtype]


def named(dtype: torch.dtype) -> str:
    if dtype not in NAMES:
        raise Refuse
    return NAMES[dtype]


def over_result(b: Builder, o: Any) -> tuple[Space, Any, str]:
    """(a space over the result, the result, the dtype to compute in)."""
    out = o.outs[0]
    name = named(out.dtype)
    return b.space(out.sizes), out, COMPUTED.get(name, name)


# -- one operand --------------------------------------------------------------------------------------------------------
def gelu(x: V, approximate: str = "none") -> V:
    if approximate == "tanh":
        return x * 0.5 * (tanh((x + x * x * x * 0.044715) * SQRT_2_OVER_PI) + 1.0)
    return x * 0.5 * (erf(x * SQRT_HALF) + 1.0)


def log_sigmoid(x: V) -> V:
    return minimum(x, 0.0) - op("log1p", exp(-op("abs", x)))


def whole(name: str, x: V) -> V:
    """`floor` and its like: integers stay, and eager has none of truth values."""
    if x.dtype == "bool":
        raise Refuse
    return op(name, x) if x.dtype in FLOATS else x


FLOAT_UNARY: dict[str, Callable[[V], V]] = {
    **{
        n: call(n)
        for n in (
            "exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal sin cos tan asin acos atan sinh cosh tanh erf erfc sigmoid"
        ).split()
    },
    "silu": lambda x: x / (exp(-x) + 1.0),
    "mish": lambda x: x * tanh(op("log1p", exp(x))),
    "hardsigmoid": lambda x: minimum(maximum(x + 3.0, 0.0), 6.0) * (1 / 6),
    "hardswish": lambda x: x * minimum(maximum(x + 3.0, 0.0), 6.0) * (1 / 6),
    "deg2rad": lambda x: x * (math.pi / 180),
    "rad2deg": lambda x: x * (180 / math.pi),
}
"""Results are floats, whatever the operand is."""

SAME_UNARY: dict[str, Callable[[V], V]] = {
    "neg": lambda x: -x,
    "abs": lambda x: op("abs", x) if x.dtype != "u8" else x,
    "relu": lambda x: where(x <= 0, 0, x),
    "square": lambda x: x * x,
    "sign": lambda x: op("sign", x) if x.dtype != "bool" else x,
    "sgn": lambda x: op("sign", x) if x.dtype != "bool" else x,
    **{n: functools.partial(whole, n) for n in ("floor", "ceil", "trunc", "round")},
    "bitwise_not": lambda x: ~x,
    "clone": lambda x: x,
    "alias_copy": lambda x: x,
    "positive": lambda x: x,
}
"""Results have the dtype of the operand. `clone` is here: a copy is a nest whose value is its operand."""

BOOL_UNARY: dict[str, Callable[[V], V]] = {
    "logical_not": lambda x: ~cast(x, "bool"),
    "isnan": lambda x: op("isnan", x) if x.dtype in FLOATS else const(False, "bool"),
    "isinf": lambda x: op("abs", x).__ge__(math.inf) if x.dtype in FLOATS else const(False, "bool"),
    "isfinite": lambda x: op("lt", op("abs", x), math.inf) if x.dtype in FLOATS else const(True, "bool"),
}


def unary(fn: Callable[[V], V], kind: str) -> Callable[[Builder, Any], None]:
    def rule(b: Builder, o: Any) -> None:
        if len(o.args) != 1 or any(k != "memory_format" for k in o.kwargs):
            raise Refuse
        s, out, computed = over_result(b, o)
        x = s.load(o.args[0])
        s.store(out, fn(cast(x, computed) if kind == "float" else up(x)))

    return rule


for _table, _kind in ((FLOAT_UNARY, "float"), (SAME_UNARY, "same"), (BOOL_UNARY, "bool")):
    for _name, _fn in _table.items():
        lowering(*overloads(_name))(unary(_fn, _kind))


@lowering(*overloads("gelu"))
def _gelu(b: Builder, o: Any) -> None:
    x, approximate = arguments(o, "self", "approximate")
    s, out, computed = over_result(b, o)
    s.store(out, gelu(s.value(x, computed), approximate))


@lowering(aten._to_copy.default)
def _to_copy(b: Builder, o: Any) -> None:
    s, out, _ = over_result(b, o)
    if o.args[0].device != out.device:
        raise Refuse
    s.store(out, cast(s.load(o.args[0]), named(out.dtype)))


@lowering(aten.copy_.default)
def _copy_in_place(b: Builder, o: Any) -> None:
    target, source = o.args[:2]
    if source.device != target.device:
        raise Refuse
    s = b.space(target.sizes)
    s.store(target, cast(s.load(source), named(target.dtype)))


# -- two operands and more ------------------------------------------------------------------------------------------------
BINARY: dict[str, Callable[[V, V], V]] = {
    "mul": lambda x, y: x * y if x.dtype != "bool" else x & y,
    "maximum": maximum,
    "minimum": minimum,
    "fmax": lambda x, y: op("fmax", x, y) if x.dtype in FLOATS else maximum(x, y),
    "fmin": lambda x, y: op("fmin", x, y) if x.dtype in FLOATS else minimum(x, y),
    "atan2": call("atan2"),
    "bitwise_and": lambda x, y: x & y,
    "bitwise_or": lambda x, y: x | y,
    "bitwise_xor": lambda x, y: x ^ y,
    "remainder": call("remainder"),
    "fmod": call("fmod"),
}
INTEGERS_MAY_RAISE = ("remainder", "fmod", "floor_divide", "div")
COMPARE = ("eq", "ne", "lt", "le", "gt", "ge")


def brought(s: Space, x: Any, dtype: str) -> V:
    """An operand as eager brings it to the dtype of all operands before it computes: numbers and integers become halves, too."""
    return up(s.value(x, dtype))


def factor(s: Space, x: Any, dtype: str) -> V:
    """The second operand of a product or a quotient: one number keeps its digits."""
    return s.value(x, up_name(dtype)) if not isinstance(x, TracedTensor) or not len(x.sizes) else brought(s, x, dtype)


def binary(fn: Callable[[V, V], V], raises: bool, second: Callable[[Space, Any, str], V]) -> Callable[[Builder, Any], None]:
    def rule(b: Builder, o: Any) -> None:
        if len(o.args) != 2 or o.kwargs:
            raise Refuse
        s, out, _ = over_result(b, o)
        # if it is written to an operand, the result is cast to the dtype of that
        dtype = common(*o.args) if liveness.written(o) else named(out.dtype)
        if raises and dtype not in FLOATS:
            raise Refuse  # division by zero is an error in eager
        s.store(out, fn(brought(s, o.args[0], dtype), second(s, o.args[1], dtype)))

    return rule


def up_name(dtype: str) -> str:
    return COMPUTED.get(dtype, dtype)


for _name, _two in BINARY.items():
    lowering(*overloads(f"{_name}.Tensor", f"{_name}.Scalar", _name))(
        binary(_two, _name in INTEGERS_MAY_RAISE, factor if _name == "mul" else brought)
    )


def compare(name: str) -> Callable[[Builder, Any], None]:
    def rule(b: Builder, o: Any) -> None:
        s = b.space(o.outs[0].sizes)
        x, y = o.args[:2]
        if isinstance(y, float) and not isinstance(x, float) and isinstance(x, TracedTensor) and x.dtype not in NAMES:
            raise Refuse
        dtype = common(x, y)
        s.store(o.outs[0], op(name, brought(s, x, dtype), brought(s, y, dtype)))

    return rule


for _name in COMPARE:
    lowering(*overloads(f"{_name}.Tensor", f"{_name}.Scalar"))(compare(_name))

for _name, _sign in (("logical_and", "and"), ("logical_or", "or"), ("logical_xor", "xor")):

    def _logical(b: Builder, o: Any, _sign: str = _sign) -> None:
        s = b.space(o.outs[0].sizes)
        x, y = (cast(s.load(a), "bool") for a in o.args)
        s.store(o.outs[0], op(_sign, x, y))

    lowering(*overloads(_name))(_logical)


def scaled(b: Builder, o: Any, sign: str, swapped: bool = False) -> None:
    """add, sub, rsub: `self + alpha * other`."""
    x, y = o.args[:2]
    alpha = arguments(o, "alpha", alpha=1)[0]
    s, out, computed = over_result(b, o)
    if computed == "bool":
        raise Refuse
    dtype = common(x, y) if liveness.written(o) else named(out.dtype)
    x, y = brought(s, x, dtype), brought(s, y, dtype)
    if swapped:
        x, y = y, x
    if type(alpha) is not int or alpha != 1:
        y = y * brought(s, alpha, dtype)
    s.store(out, op(sign, x, y))


lowering(*overloads("add.Tensor", "add.Scalar"))(lambda b, o: scaled(b, o, "add"))
lowering(*overloads("sub.Tensor", "sub.Scalar"))(lambda b, o: scaled(b, o, "sub"))
lowering(*overloads("rsub.Tensor", "rsub.Scalar"))(lambda b, o: scaled(b, o, "sub", swapped=True))


@lowering(*overloads("div.Tensor", "div.Scalar"))
def _div(b: Builder, o: Any) -> None:
    s, out, computed = over_result(b, o)
    if computed not in FLOATS:
        raise Refuse
    x, y = o.args
    if isinstance(y, (int, float)) and not isinstance(y, bool) and computed == "f32" and named(out.dtype) == "f32":
        s.store(out, s.value(x, computed) / float(y))
        return
    dtype = named(out.dtype)
    s.store(out, brought(s, x, dtype) / factor(s, y, dtype))


def wholeness(e: float) -> float | None:
    """0 or 1 for an even or odd whole number, else None."""
    return e % 2 if e % 1 == 0 else None


def as_float32(e: float) -> float:
    return struct.unpack("f", struct.pack("f", e))[0] if abs(e) < LARGEST else float(e)


@lowering(*overloads("pow.Tensor_Scalar"))
def _pow_scalar(b: Builder, o: Any) -> None:
    x, e = o.args
    s, out, computed = over_result(b, o)
    if computed not in FLOATS or not isinstance(e, (int, float)):
        raise Refuse
    if computed == "f32" and wholeness(as_float32(e)) != wholeness(e):
        raise Refuse  # ATen's vectors take it as a float, what is left over as a double: powers of what is negative differ
    v = s.value(x, computed)

    def square(v: V) -> V:
        """Eager's vectors of bf16 are rounded after each product, those of f16 are f32."""
        return rounded(v * v, out.dtype) if out.dtype == torch.bfloat16 else v * v

    known: dict[float, Callable[[V], V]] = {
        0.5: lambda v: op("sqrt", v),
        1: lambda v: v,
        2: lambda v: v * v,
        3: lambda v: square(v) * v,
        -0.5: lambda v: op("rsqrt", v),
        -1: lambda v: op("reciprocal", v),
        -2: lambda v: op("reciprocal", square(v)),
    }
    fn = known.get(e)
    if abs(e) == 0.5 and out.dtype == torch.float16:
        fn = None  # eager does not take the square root there: that of -inf is NaN, this power of it is not
    s.store(out, fn(v) if fn is not None else op("pow", v, brought(s, float(e), named(out.dtype))))


@lowering(*overloads("pow.Tensor_Tensor"), aten.pow.Scalar)
def _pow(b: Builder, o: Any) -> None:
    s, out, computed = over_result(b, o)
    if computed not in FLOATS:
        raise Refuse
    s.store(out, op("pow", brought(s, o.args[0], named(out.dtype)), brought(s, o.args[1], named(out.dtype))))


@lowering(aten.where.self, aten.where.ScalarOther, aten.where.ScalarSelf, aten.where.Scalar)
def _where(b: Builder, o: Any) -> None:
    condition, x, y = o.args
    if condition.dtype is torch.uint8:
        raise Refuse  # PyTorch's own warns
    s, out, _ = over_result(b, o)
    name = named(out.dtype)
    s.store(out, where(cast(s.load(condition), "bool"), s.value(x, name), s.value(y, name)))


@lowering(*overloads("masked_fill.Scalar", "masked_fill.Tensor"))
def _masked_fill(b: Builder, o: Any) -> None:
    x, mask, value = o.args
    if isinstance(value, TracedTensor) and value.dtype != x.dtype and not x.dtype.is_floating_point:
        raise Refuse  # eager raises where the number in it does not fit
    s, out, _ = over_result(b, o)
    name = named(out.dtype)
    s.store(out, where(cast(s.load(mask), "bool"), s.value(value, name), s.value(x, name)))


@lowering(*overloads("clamp", "clamp_min", "clamp_max", "clamp.Tensor", "clamp_min.Tensor", "clamp_max.Tensor", "hardtanh"))
def _clamp(b: Builder, o: Any) -> None:
    base = o.target._schema.name.split("::")[1].rstrip("_")
    s, out, computed = over_result(b, o)
    if base == "hardtanh":
        low, high = arguments(o, "min_val", "max_val")
    else:
        low, high = arguments(o, "min", "max")
    x = s.value(o.args[0], computed)
    if low is not None:
        x = maximum(x, s.value(low, computed))
    if high is not None:
        x = minimum(x, s.value(high, computed))
    s.store(out, x)


@lowering(*overloads("leaky_relu"))
def _leaky_relu(b: Builder, o: Any) -> None:
    slope = arguments(o, "negative_slope")[0]
    s, out, computed = over_result(b, o)
    x = s.value(o.args[0], computed)
    s.store(out, where(x > 0, x, x * float(slope)))


@lowering(*overloads("elu"))
def _elu(b: Builder, o: Any) -> None:
    alpha, scale, input_scale = arguments(o, "alpha", "scale", "input_scale")
    s, out, computed = over_result(b, o)
    x = s.value(o.args[0], computed)
    s.store(out, where(x < 0, op("expm1", x * float(input_scale)) * float(alpha * scale), x * float(scale)))


@lowering(*overloads("softplus"))
def _softplus(b: Builder, o: Any) -> None:
    beta, threshold = arguments(o, "beta", "threshold")
    s, out, computed = over_result(b, o)
    x = s.value(o.args[0], computed)
    z = x * float(beta)
    s.store(out, where(z > float(threshold), x, op("log1p", exp(z)) / float(beta)))


@lowering(*overloads("addcmul", "addcdiv"))
def _addc(b: Builder, o: Any) -> None:
    x, y, z = o.args[:3]
    value = arguments(o, "value")[0]
    s, out, computed = over_result(b, o)
    if computed not in FLOATS:
        raise Refuse
    x, y, z = (brought(s, v, named(out.dtype)) for v in (x, y, z))
    scaled_y = y if type(value) is int and value == 1 else y * s.value(value, computed)
    s.store(out, x + (scaled_y * z if "addcmul" in o.target._schema.name else scaled_y / z))


@lowering(*overloads("lerp.Scalar", "lerp.Tensor"))
def _lerp(b: Builder, o: Any) -> None:
    s, out, computed = over_result(b, o)
    x, y, w = (s.value(v, computed) for v in o.args[:3])
    near = op("abs", w) < 0.5
    s.store(out, op("fma", where(near, w, w - 1.0), y - x, where(near, x, y)))


# -- moved elements -------------------------------------------------------------------------------------------------------
def within(i: V, low: V, high: V) -> V:
    return (i >= low) & (i < high)


@lowering(aten.cat.default, aten.stack.default)
def _cat(b: Builder, o: Any) -> None:
    """Each element comes from the piece that its position falls into; the others are not read."""
    pieces, dim = arguments(o, "tensors", "dim")
    out = o.outs[0]
    stacked = o.target is aten.stack.default
    pieces = [t for t in pieces if stacked or not (len(t.sizes) == 1 and b.facts.equal(b.facts.size(t.sizes[0]), 0))]
    if not 1 < len(pieces) <= 4 or any(t.dtype != out.dtype for t in pieces):
        raise Refuse
    s = b.space(out.sizes)
    dim %= len(out.sizes)
    i, start = s.index(dim), 0
    value: V | None = None
    for k, t in enumerate(pieces):
        n = 1 if stacked else b.facts.size(t.sizes[dim])
        end = b.facts.sum(start, n)
        keep = i < s.size(end, "i64") if k == 0 else i >= s.size(start, "i64") if t is pieces[-1] and k == len(pieces) - 1 else within(
            i, s.size(start, "i64"), s.size(end, "i64"))  # fmt: skip
        part = s.window(t, dim, start, keep, drop=stacked)
        value = part if value is None else where(keep, part, value)
        start = end
    s.store(out, value)


@lowering(aten.constant_pad_nd.default)
def _pad(b: Builder, o: Any) -> None:
    x, pads = o.args[:2]
    fill = arguments(o, "value")[0]
    out = o.outs[0]
    name = named(out.dtype)
    s = b.space(out.sizes)
    n = len(out.sizes)
    keep: V | None = None
    shifts: dict[int, Any] = {}
    for k in range(len(pads) // 2):
        d, low = n - 1 - k, b.facts.size(pads[2 * k])
        if b.facts.equal(low, 0) and b.facts.equal(b.facts.size(pads[2 * k + 1]), 0):
            continue
        shifts[d] = low
        inside = within(s.index(d), s.size(low, "i64"), s.size(b.facts.sum(low, b.facts.size(x.sizes[d])), "i64"))
        keep = inside if keep is None else keep & inside
    if keep is None:  # by nothing: a copy
        s.store(out, s.load(x))
        return
    s.store(out, where(keep, s.windows(x, shifts, keep), s.value(fill, name)))


@lowering(aten.slice_backward.default, aten.select_backward.default)
def _pad_gradient(b: Builder, o: Any) -> None:
    g, out = o.args[0], o.outs[0]
    s = b.space(out.sizes)
    if o.target is aten.select_backward.default:
        dim, at = (b.facts.size(v) for v in arguments(o, "dim", "index"))
        if type(at) is not int or at < 0:
            raise Refuse
        dim %= len(out.sizes)
        keep = op("eq", s.index(dim), s.size(at, "i64"))
        part = s.window(g, dim, at, keep, drop=True)
    else:
        dim, start, step = (b.facts.size(v) for v in arguments(o, "dim", "start", "step"))
        dim %= len(out.sizes)
        if not b.facts.equal(step, 1) or not b.facts.non_negative(start):
            raise Refuse
        keep = within(s.index(dim), s.size(start, "i64"), s.size(b.facts.sum(start, b.facts.size(g.sizes[dim])), "i64"))
        part = s.window(g, dim, start, keep)
    s.store(out, where(keep, part, 0))


# -- gradients ----------------------------------------------------------------------------------------------------------
def _d_gelu(g: V, x: V, approximate: str = "none") -> V:
    if approximate == "tanh":
        inner = (x + x * x * x * 0.044715) * SQRT_2_OVER_PI
        t = tanh(inner)
        left = (t + 1.0) * 0.5
        right = x * 0.5 * (1.0 - t * t) * ((x * x * (3 * 0.044715) + 1.0) * SQRT_2_OVER_PI)
        return g * (left + right)
    cdf = (erf(x * SQRT_HALF) + 1.0) * 0.5
    return g * (cdf + x * exp(x * x * -0.5) * (1 / math.sqrt(2 * math.pi)))


def _d_silu(g: V, x: V) -> V:
    y = sigmoid(x)
    return g * y * (x * (1.0 - y) + 1.0)


GRADIENTS: dict[str, tuple[tuple[str, ...], Callable[..., V]]] = {
    "gelu_backward": (("grad_output", "self"), _d_gelu),
    "silu_backward": (("grad_output", "self"), _d_silu),
    "tanh_backward": (("grad_output", "output"), lambda g, y: g * (1.0 - y * y)),
    "sigmoid_backward": (("grad_output", "output"), lambda g, y: g * (1.0 - y) * y),
}


def gradient(names: tuple[str, ...], fn: Callable[..., V]) -> Callable[[Builder, Any], None]:
    def rule(b: Builder, o: Any) -> None:
        s, out, computed = over_result(b, o)
        extra = arguments(o, "approximate")[:1] if fn is _d_gelu else []
        s.store(out, fn(*(s.value(v, computed) for v in arguments(o, *names)), *extra))

    return rule


for _name, (_names, _grad) in GRADIENTS.items():
    lowering(*overloads(_name))(gradient(_names, _grad))


@lowering(aten.mse_loss_backward.default)
def _mse_loss_backward(b: Builder, o: Any) -> None:
    g, x, y, reduction = o.args
    s, out, computed = over_result(b, o)
    norm = 2.0 / s.size(b.facts.product(s.sizes), computed) if reduction == 1 else 2.0
    s.store(out, (s.value(x, computed) - s.value(y, computed)) * s.value(g, computed) * norm)


@lowering(aten.threshold_backward.default)
def _threshold_backward(b: Builder, o: Any) -> None:
    g, x, threshold = arguments(o, "grad_output", "self", "threshold")
    s, out, computed = over_result(b, o)
    s.store(out, where(s.value(x, computed) <= float(threshold), 0, s.value(g, computed)))


@lowering(aten.native_dropout_backward.default)
def _dropout_backward(b: Builder, o: Any) -> None:
    g, mask, scale = arguments(o, "grad_output", "mask", "scale")
    s, out, computed = over_result(b, o)
    s.store(out, s.value(g, computed) * cast(s.load(mask), computed) * float(scale))


# -- made from nothing -----------------------------------------------------------------------------------------------------
@lowering(aten.full.default, aten.full_like.default, aten.scalar_tensor.default, aten.zeros.default, aten.zeros_like.default,
          aten.ones.default, aten.ones_like.default, aten.new_zeros.default, aten.new_ones.default, aten.new_full.default)  # fmt: skip
def _full(b: Builder, o: Any) -> None:
    name = o.target._schema.name
    value = arguments(o, "fill_value" if "full" in name else "s")[0] if "full" in name or "scalar" in name else float("ones" in name)
    s, out, _ = over_result(b, o)
    s.store(out, s.value(value, named(out.dtype)))


@lowering(aten.fill_.Scalar, aten.zero_.default)
def _fill_in_place(b: Builder, o: Any) -> None:
    value = o.args[1] if len(o.args) > 1 else 0
    s = b.space(o.args[0].sizes)
    s.store(o.args[0], s.value(value, named(o.args[0].dtype)))


@lowering(aten.arange.default, aten.arange.start, aten.arange.start_step)
def _arange(b: Builder, o: Any) -> None:
    start, step = arguments(o, "start", "step", start=0, step=1)
    s, out, _ = over_result(b, o)
    if named(out.dtype) != "i64" or isinstance(start, float) or isinstance(step, float):
        raise Refuse
    s.store(out, s.value(start, "i64") + s.index(0) * s.value(step, "i64"))


@lowering(*overloads("tril", "triu"))
def _triangle(b: Builder, o: Any) -> None:
    diagonal = arguments(o, "diagonal")[0]
    s, out, _ = over_result(b, o)
    if liveness.written(o):
        raise Refuse
    n = len(s.sizes)
    behind = s.index(n - 1) - s.index(n - 2)
    keep = behind <= s.value(diagonal, "i64") if "tril" in o.target._schema.name else behind >= s.value(diagonal, "i64")
    s.store(out, where(keep, s.value(o.args[0], named(out.dtype)), 0))
