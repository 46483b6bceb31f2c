"""Pointwise operators: TensorIterator's result shape and strides, and a rule for the dtype."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pliant.graph.originals import torch
from pliant.graph.rules.misfits import misfit, one_size
from pliant.graph.rules.shape import broadcast, category, expandable, float_type, iterated, new, result_device, result_type, row_major
from pliant.graph.rules.table import add, aten
from pliant.graph.traced import TracedTensor, make

Dtype = Callable[..., Any]


def lay_out(trace: Any, tensors: list[TracedTensor], numbers: bool, dtype: torch.dtype, common: torch.dtype | None = None) -> Any:
    found = iterated(trace, tensors, numbers, common)
    if found is None:
        return NotImplemented
    sizes, strides, dense = found
    return make(trace, sizes, strides, dtype, 0, None, result_device(tensors), dense)


def unary(dtype_of: Dtype) -> Callable[..., Any]:
    """One tensor, and options that change neither shape nor dtype."""

    def rule(trace: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
        dtype = dtype_of(x.dtype)
        return lay_out(trace, [x], False, dtype) if dtype is not None else NotImplemented

    return rule


def pointwise(arity: int, dtype_of: Dtype) -> Callable[..., Any]:
    """The first `arity` arguments are tensors or numbers; what follows are options."""

    def rule(trace: Any, *args: Any, **kwargs: Any) -> Any:
        operands = args[:arity]
        tensors = [o for o in operands if type(o) is TracedTensor]
        if len(operands) < arity or not tensors:
            return NotImplemented
        common = result_type(*operands)
        dtype = dtype_of(common)
        if dtype is None:
            return NotImplemented
        return lay_out(trace, tensors, len(tensors) < arity, dtype, dtype if dtype_of is to_float else common)

    return rule


def in_place(arity: int, dtype_of: Dtype) -> Callable[..., Any]:
    """The same, written into the first argument."""

    def rule(trace: Any, *args: Any, **kwargs: Any) -> Any:
        x = args[0]
        operands = args[:arity]
        dtype = dtype_of(result_type(*operands))
        if dtype is None:
            return NotImplemented
        fits(dtype, x.dtype)
        for o in operands[1:]:
            if type(o) is TracedTensor and o.sizes is not x.sizes and not expandable(trace, o.sizes, x.sizes):
                return NotImplemented
        return x

    return rule


def fits(dtype: torch.dtype, written: torch.dtype) -> None:
    """Raises what PyTorch raises where a result of `dtype` is written to a tensor of a lesser kind. (Its shape functions do not ask.)"""
    if category(dtype) > category(written):
        a, b = (torch.empty(0, dtype=d, device="meta").type().rpartition(".")[2].removesuffix("Tensor") for d in (dtype, written))
        raise RuntimeError(f"result type {a} can't be cast to the desired output type {b}")


def no_bools(rule: Callable[..., Any]) -> Callable[..., Any]:
    """Where kernels refuse a bool, also one that the other operand's type would make a number (`sub_check`)."""

    def checked(trace: Any, *args: Any, **kwargs: Any) -> Any:
        if any([type(o) is bool or type(o) is TracedTensor and o.dtype is torch.bool for o in args[:2]]):
            raise RuntimeError("Subtraction, the `-` operator, with a bool tensor is not supported")
        return rule(trace, *args, **kwargs)

    return checked


# dtypes of results; None leaves the case (mostly an error) to PyTorch -----------------------------------
def same_number(dtype: torch.dtype) -> Any:
    return dtype if 1 <= category(dtype) <= 2 else None


def same_float(dtype: torch.dtype) -> Any:
    return dtype if category(dtype) == 2 else None


def same_integral(dtype: torch.dtype) -> Any:
    return dtype if category(dtype) < 2 else None


def any_type(dtype: torch.dtype) -> Any:
    return dtype


def no_complex(dtype: torch.dtype) -> Any:
    return dtype if category(dtype) < 3 else None


def to_float(dtype: torch.dtype) -> Any:
    return float_type(dtype)


def truth(dtype: torch.dtype) -> Any:
    return torch.bool


UNARY: dict[Dtype, str] = {
    same_number: "abs neg relu sign floor ceil round trunc",
    same_float: "silu gelu hardtanh hardswish hardsigmoid leaky_relu elu celu mish softplus frac hardshrink softshrink",
    same_integral: "bitwise_not",
    to_float: (
        "exp exp2 expm1 log log2 log10 log1p sqrt rsqrt sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh"
        " erf erfc erfinv sigmoid reciprocal lgamma digamma deg2rad rad2deg sinc logit special_entr special_log_ndtr"
    ),
    truth: "logical_not isinf isnan isposinf isneginf signbit",
}

BINARY: dict[Dtype, str] = {
    any_type: "add.Tensor mul.Tensor add.Scalar mul.Scalar",
    same_number: "remainder.Tensor fmod.Tensor floor_divide remainder.Scalar fmod.Scalar floor_divide.Scalar",
    no_complex: "maximum minimum fmax fmin",
    same_integral: " ".join(
        f"bitwise_{n}.{o}" for n in ("and", "or", "xor", "left_shift", "right_shift") for o in ("Tensor", "Tensor_Scalar", "Scalar")
    ),
    to_float: "div.Tensor div.Scalar copysign.Tensor copysign.Scalar atan2 xlogy.Tensor special_xlog1py true_divide.Tensor",
    truth: " ".join(
        [*(f"{n}.{o}" for n in ("eq", "ne", "lt", "le", "gt", "ge") for o in ("Tensor", "Scalar")), "logical_and logical_or logical_xor"]
    ),
    same_float: (
        "gelu_backward silu_backward sigmoid_backward tanh_backward hardtanh_backward hardswish_backward"
        " hardsigmoid_backward softplus_backward mish_backward logaddexp logaddexp2 hypot"
        " hardshrink_backward softshrink_backward _prelu_kernel"
    ),
}

TERNARY: dict[Dtype, str] = {
    any_type: "addcmul addcdiv",
    same_float: "lerp.Tensor",
}

#: In-place forms, by the number of operands.
IN_PLACE: dict[tuple[int, Dtype], str] = {
    (1, same_number): "abs_ neg_ relu_ sign_ floor_ ceil_ round_ trunc_",
    (1, same_float): (
        "silu_ gelu_ hardtanh_ hardswish_ hardsigmoid_ leaky_relu_ elu_ exp_ log_ sqrt_ rsqrt_ sin_ cos_ tanh_ sigmoid_ reciprocal_ erf_"
    ),
    (1, any_type): "zero_ fill_.Scalar bernoulli_.float normal_ random_ random_.from random_.to",
    (2, any_type): "add_.Tensor mul_.Tensor add_.Scalar mul_.Scalar",
    (2, same_number): "remainder_.Tensor remainder_.Scalar fmod_.Tensor floor_divide_.Tensor",
    (2, to_float): "div_.Tensor div_.Scalar",
    (2, same_integral): "bitwise_and_.Tensor bitwise_or_.Tensor bitwise_xor_.Tensor",
    (3, any_type): "addcmul_ addcdiv_",
}

for _dtype, _names in UNARY.items():
    add(unary(_dtype), *_names.split())
for _dtype, _names in BINARY.items():
    add(pointwise(2, _dtype), *_names.split())
add(no_bools(pointwise(2, same_number)), "sub.Tensor", "sub.Scalar")
add(no_bools(in_place(2, same_number)), "sub_.Tensor", "sub_.Scalar")
for _dtype, _names in TERNARY.items():
    add(pointwise(3, _dtype), *_names.split())
for (_arity, _dtype), _names in IN_PLACE.items():
    add(in_place(_arity, _dtype), *_names.split())


# those with a turn of their own ------------------------------------------------------------------------
def where(trace: Any, cond: Any, a: Any, b: Any) -> Any:
    tensors = [cond, a, b]
    known = cond.dtype in (torch.bool, torch.uint8)  # bytes: PyTorch's shape function refuses what its kernels take, with a warning
    return lay_out(trace, tensors, False, result_type(a, b)) if known else NotImplemented


def threshold_backward(trace: Any, grad: Any, x: Any, threshold: Any) -> Any:
    return lay_out(trace, [x, grad], False, result_type(grad, x)) if category(x.dtype) == 2 else NotImplemented


def clamp(trace: Any, x: Any, lo: Any = None, hi: Any = None) -> Any:
    """Limits are numbers, or tensors (then they broadcast)."""
    bounds = [b for b in (lo, hi) if b is not None]
    if not bounds or category(x.dtype) == 3:
        return NotImplemented
    dtype = result_type(x, *bounds)
    return lay_out(trace, [x, *(b for b in bounds if type(b) is TracedTensor)], False, dtype)


def heaviside(trace: Any, x: Any, values: Any) -> Any:
    return lay_out(trace, [x, values], False, x.dtype) if x.dtype is values.dtype and category(x.dtype) < 3 else NotImplemented


def ldexp(trace: Any, x: Any, exponent: Any) -> Any:
    """Of floats by integers a kernel; else `x * 2.0 ** exponent`, where a power of a number is row-major."""
    kinds = category(x.dtype), category(exponent.dtype)
    if kinds == (2, 1):
        return lay_out(trace, [x, exponent], False, x.dtype, x.dtype)
    if kinds[1] == 3 or (kinds[0] >= 2 and (x.dtype is not torch.float32 or kinds[1] != 2)):
        return NotImplemented
    power_of_two = new(trace, exponent.sizes, float_type(exponent.dtype), exponent.device)
    dtype = result_type(x, power_of_two)
    return lay_out(trace, [x, power_of_two], False, dtype, dtype)


def div_mode(trace: Any, a: Any, b: Any, *, rounding_mode: Any) -> Any:
    return DIV_TRUE(trace, a, b) if rounding_mode is None else DIV_ROUND(trace, a, b)


DIV_TRUE = pointwise(2, to_float)
DIV_ROUND = pointwise(2, same_number)


def power(trace: Any, a: Any, b: Any) -> Any:
    dtype = result_type(a, b)
    if category(dtype) and type(a) is not TracedTensor:
        return new(trace, b.sizes, dtype, b.device)
    if category(dtype) not in (1, 2):
        return NotImplemented
    tensors = [o for o in (a, b) if type(o) is TracedTensor]
    return lay_out(trace, tensors, False, dtype)


def angle(trace: Any, x: Any) -> Any:
    """Of complex numbers it is row-major."""
    return new(trace, x.sizes, x.dtype.to_real(), x.device) if category(x.dtype) == 3 else NotImplemented


def lerp_scalar(trace: Any, a: Any, b: Any, weight: Any) -> Any:
    return lay_out(trace, [a, b], False, a.dtype) if a.dtype is b.dtype and category(a.dtype) == 2 else NotImplemented


def rsub(trace: Any, x: Any, other: Any, alpha: Any = 1) -> Any:
    return SUB(trace, other, x)


SUB = pointwise(2, same_number)


def masked_fill(trace: Any, x: Any, mask: Any, value: Any) -> Any:
    """A row-major copy of the broadcast, filled."""
    found = iterated(trace, [x, mask])
    if found is None or mask.dtype is not torch.bool:
        return NotImplemented
    return masked_copy(trace, x, found[0])


def masked_copy(trace: Any, x: Any, sizes: tuple) -> Any:
    return make(trace, sizes, x.strides if x.dense and sizes is x.sizes else row_major(trace, sizes), x.dtype, 0, None, x.device, True)


def clamp_in_place(trace: Any, x: Any, *limits: Any, **named: Any) -> Any:
    dtype = result_type(x, *limits, *named.values())
    return into_first(trace, x, *limits, *named.values()) if category(dtype) <= category(x.dtype) else NotImplemented


def into_first(trace: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
    """In-place operators whose other tensors broadcast to the first."""
    for o in args:
        if type(o) is TracedTensor and not expandable(trace, o.sizes, x.sizes):
            return NotImplemented
    return x


def filled(rule: Callable[..., Any], refusal: str) -> Callable[..., Any]:
    """A rule of operators whose last argument is what they fill in: a number, or a tensor without dims."""

    def checked(trace: Any, x: Any, *args: Any) -> Any:
        out, value = rule(trace, x, *args), args[-1]
        if out is not NotImplemented and type(value) is TracedTensor and value.sizes:
            raise RuntimeError(refusal.format(len(value.sizes)))
        return out

    return checked


FILL = "fill_ only supports 0-dimension value tensor but got tensor with {} dimensions."
MASKED_FILL = "masked_fill_ only supports a 0-dimensional value tensor, but got tensor with {} dimension(s)."


def loss(arity: int) -> Callable[..., Any]:
    """Pointwise over `arity` tensors, some perhaps None, then reduced to one number unless `reduction` is 0."""

    def rule(trace: Any, *args: Any) -> Any:
        tensors = [o for o in args[:arity] if o is not None]
        reduction = args[arity] if len(args) > arity else 1
        dtypes = {t.dtype for t in tensors}
        if len(dtypes) != 1 or category(tensors[0].dtype) != 2:
            return NotImplemented
        out = lay_out(trace, tensors, False, tensors[0].dtype)
        return out if out is NotImplemented or reduction == 0 else new(trace, (), out.dtype, out.device)

    return rule


def soft_margin_loss(trace: Any, x: Any, target: Any, *args: Any) -> Any:
    """It is worked out in place, in what is made of the first operand: that must be as large as both are together."""
    whole = broadcast(trace, x.sizes, target.sizes)
    if whole is not None and not one_size(trace, x.sizes, whole):
        return misfit(trace, aten.soft_margin_loss.default, x, target, *args)
    return SOFT_MARGIN(trace, x, target, *args)


SOFT_MARGIN = loss(2)


def loss_of_logits(trace: Any, x: Any, target: Any, *args: Any) -> Any:
    """It is worked out in place, in what is made of the target."""
    return LOGITS(trace, target, x, *args)


LOGITS = loss(4)


def leaky_relu_backward(trace: Any, grad: Any, x: Any, slope: Any, is_result: bool) -> Any:
    return lay_out(trace, [x, grad], False, x.dtype) if grad.dtype is x.dtype and category(x.dtype) == 2 else NotImplemented


def logit_backward(trace: Any, grad: Any, x: Any, eps: Any = None) -> Any:
    return lay_out(trace, [grad, x], False, x.dtype) if grad.dtype is x.dtype and category(x.dtype) == 2 else NotImplemented


def native_dropout_backward(trace: Any, grad: Any, mask: Any, scale: Any) -> Any:
    return lay_out(trace, [grad, mask], False, grad.dtype) if mask.dtype is torch.bool and category(grad.dtype) == 2 else NotImplemented


def elu_backward(trace: Any, grad: Any, alpha: Any, scale: Any, input_scale: Any, is_result: bool, x: Any) -> Any:
    return lay_out(trace, [grad, x], False, x.dtype) if grad.dtype is x.dtype and category(x.dtype) == 2 else NotImplemented


add(loss(2), "mse_loss", "smooth_l1_loss", "huber_loss")
add(soft_margin_loss, "soft_margin_loss")
add(loss_of_logits, "binary_cross_entropy_with_logits")
add(elu_backward, "elu_backward")
add(leaky_relu_backward, "leaky_relu_backward")
add(logit_backward, "logit_backward")
add(native_dropout_backward, "native_dropout_backward")
add(angle, "angle")
add(where, "where.self")
add(threshold_backward, "threshold_backward")
add(heaviside, "heaviside")
add(ldexp, "ldexp.Tensor")
add(clamp, "clamp", "clamp.Tensor", "clamp_max.Tensor", "clamp_min", "clamp_min.Tensor")
add(lambda trace, x, hi: clamp(trace, x, None, hi), "clamp_max")
add(div_mode, "div.Tensor_mode", "div.Scalar_mode")
add(power, "pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar")
add(lerp_scalar, "lerp.Scalar")
add(no_bools(rsub), "rsub.Scalar", "rsub.Tensor")
add(clamp_in_place, *"clamp_ clamp_min_ clamp_max_ clamp_.Tensor clamp_min_.Tensor clamp_max_.Tensor".split())
add(filled(masked_fill, MASKED_FILL), "masked_fill.Scalar", "masked_fill.Tensor")
add(filled(into_first, MASKED_FILL), "masked_fill_.Scalar", "masked_fill_.Tensor")
add(filled(into_first, FILL), "fill_.Tensor")
add(into_first, "copy_")


def nothing_new(trace: Any, *args: Any, **kwargs: Any) -> None:
    """Operators that write to what they are given and return nothing."""


# an optimizer's step: PyTorch's shape function wants the scalars, which it would read, on a real device
add(nothing_new, "_foreach_addcdiv_.Tensor", "_foreach_addcmul_.Tensor")
FUSED_STEPS = ("_fused_sgd_", "_fused_adagrad_", "_fused_adam_", "_fused_adamw_")
add(nothing_new, *FUSED_STEPS, *(f"{name}.tensor_lr" for name in FUSED_STEPS))
