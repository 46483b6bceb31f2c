"""Reductions, softmax, normalization and scans.

Sums of halves are made in float32. `max`, `argmax` and their kin treat nan as the largest value, as PyTorch does; of equal elements the
first one wins. A scan of a dim whose size is unknown doubles its stride in a `while`: log2(n) steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from pliant.export.stablehlo.builder import Builder, Unsupported, Value, is_float
from pliant.export.stablehlo.pointwise import Operand, is_nan, like, pointwise, wide
from pliant.export.stablehlo.table import lowering
from pliant.export.stablehlo.views import product, take


def lowest(dtype: torch.dtype) -> Any:
    return -math.inf if is_float(dtype) else False if dtype == torch.bool else torch.iinfo(dtype).min


def highest(dtype: torch.dtype) -> Any:
    return math.inf if is_float(dtype) else True if dtype == torch.bool else torch.iinfo(dtype).max


def axes_of(x: Value, dim: Any) -> list[int]:
    """The dims that are meant: all, where none is named."""
    if dim is None or (isinstance(dim, (list, tuple)) and not dim):
        return list(range(x.rank))
    return sorted({d % x.rank for d in (dim if isinstance(dim, (list, tuple)) else [dim])}) if x.rank else []


def kept(sizes: Sequence[Any], dims: Sequence[int]) -> list[Any]:
    """Sizes after a reduction that keeps its dims, of size 1."""
    return [1 if d in dims else s for d, s in enumerate(sizes)]


def back(b: Builder, x: Value, like_: Value, dims: Sequence[int]) -> Value:
    """What a reduction over `dims` left, spread over the sizes it came from."""
    return b.broadcast(x, like_.sizes, [d for d in range(like_.rank) if d not in dims])


def finish(b: Builder, x: Value) -> Value:
    out = b.outs[0]
    return b.reshape(b.convert(x, out.dtype), out.sizes)


def total(b: Builder, x: Value, dims: Sequence[int]) -> Value:
    return b.fold("add", x, 0, dims)


def count(b: Builder, x: Value, dims: Sequence[int]) -> Any:
    return product(b, [x.sizes[d] for d in dims])


@lowering("sum.default sum.dim_IntList")
def sum_(b: Builder, self: Value, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Value:
    return finish(b, total(b, b.convert(self, wide(b.outs[0].dtype)), axes_of(self, dim)))


@lowering("nansum.default")
def nansum(b: Builder, self: Value, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Value:
    x = b.convert(self, wide(b.outs[0].dtype))
    return finish(b, total(b, b.select(is_nan(b, x), like(b, 0, x), x), axes_of(self, dim)))


@lowering("mean.default mean.dim")
def mean(b: Builder, self: Value, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Value:
    x = b.convert(self, wide(b.outs[0].dtype))
    return finish(b, mean_of(b, x, axes_of(self, dim)))


def mean_of(b: Builder, x: Value, dims: Sequence[int]) -> Value:
    s = total(b, x, dims)
    return b.same("divide", s, like(b, count(b, x, dims), s))


@lowering("prod.default prod.dim_int")
def prod(b: Builder, self: Value, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Value:
    return finish(b, b.fold("multiply", b.convert(self, wide(b.outs[0].dtype)), 1, axes_of(self, dim)))


@lowering("amax.default max.default")
def amax(b: Builder, self: Value, dim: Any = None, keepdim: bool = False) -> Value:
    return finish(b, b.fold("maximum", self, lowest(self.dtype), axes_of(self, dim)))


@lowering("amin.default min.default")
def amin(b: Builder, self: Value, dim: Any = None, keepdim: bool = False) -> Value:
    return finish(b, b.fold("minimum", self, highest(self.dtype), axes_of(self, dim)))


@lowering("aminmax.default")
def aminmax(b: Builder, self: Value, dim: Any = None, keepdim: bool = False) -> list[Value]:
    dims = axes_of(self, dim)
    found = b.fold("minimum", self, highest(self.dtype), dims), b.fold("maximum", self, lowest(self.dtype), dims)
    return [b.reshape(v, o.sizes) for v, o in zip(found, b.outs)]


@lowering("trace.default")
def trace(b: Builder, self: Value) -> Value:
    x = b.convert(self, wide(b.outs[0].dtype))
    return finish(b, total(b, b.select(b.compare("EQ", b.iota(x.sizes, 0), b.iota(x.sizes, 1)), x, like(b, 0, x)), [0, 1]))


@lowering("_is_all_true.default")
def is_all_true(b: Builder, self: Value) -> Value:
    return b.fold("and", self, True, axes_of(self, None))


@lowering("_is_any_true.default")
def is_any_true(b: Builder, self: Value) -> Value:
    return b.fold("or", self, False, axes_of(self, None))


@lowering("any.default any.dim any.dims")
def any_(b: Builder, self: Value, dim: Any = None, keepdim: bool = False) -> Value:
    return finish(b, b.fold("or", b.convert(self, torch.bool), False, axes_of(self, dim)))


@lowering("all.default all.dim all.dims")
def all_(b: Builder, self: Value, dim: Any = None, keepdim: bool = False) -> Value:
    return finish(b, b.fold("and", b.convert(self, torch.bool), True, axes_of(self, dim)))


# -- where the extreme is ------------------------------------------------------------------------------------------------------------
def extreme(b: Builder, x: Value, dim: int, largest: bool) -> list[Value]:
    """The extreme along a dim and where it stands first; nan is more extreme than anything."""
    direction = "GT" if largest else "LT"
    plain = x.dtype if x.dtype != torch.bool else torch.uint8
    x = b.convert(x, plain)

    def better(v: Value, i: Value, w: Value, j: Value) -> list[Value]:
        """Which of two candidates stays: `w` if it is beyond `v`, or equal and earlier."""
        beyond = b.compare(direction, w, v)
        equal = b.compare("EQ", w, v)
        if is_float(x.dtype):
            n, m = is_nan(b, v), is_nan(b, w)
            beyond = b.same("or", beyond, b.same("and", m, b.same("not", n)))
            equal = b.same("or", equal, b.same("and", n, m))
        second = b.same("or", beyond, b.same("and", equal, b.compare("LT", j, i)))
        return [b.select(second, w, v), b.select(second, j, i)]

    worst = lowest(x.dtype) if largest else highest(x.dtype)
    at = b.iota(x.sizes, dim)
    return b.reduce([x, at], [worst, torch.iinfo(torch.int64).max], [dim], better)


@lowering("argmax.default")
def argmax(b: Builder, self: Value, dim: Any = None, keepdim: bool = False) -> Value:
    return arg_extreme(b, self, dim, True)


@lowering("argmin.default")
def argmin(b: Builder, self: Value, dim: Any = None, keepdim: bool = False) -> Value:
    return arg_extreme(b, self, dim, False)


def arg_extreme(b: Builder, x: Value, dim: Any, largest: bool) -> Value:
    if dim is None or not x.rank:
        x, dim = b.reshape(x, (product(b, x.sizes),)), 0
    return finish(b, extreme(b, x, dim % x.rank, largest)[1])


@lowering("max.dim")
def max_dim(b: Builder, self: Value, dim: int, keepdim: bool = False) -> list[Value]:
    return dim_extreme(b, self, dim, True)


@lowering("min.dim")
def min_dim(b: Builder, self: Value, dim: int, keepdim: bool = False) -> list[Value]:
    return dim_extreme(b, self, dim, False)


def dim_extreme(b: Builder, x: Value, dim: int, largest: bool) -> list[Value]:
    if not x.rank:
        return [x, b.full(0, (), torch.int64)]
    found = extreme(b, x, dim % x.rank, largest)
    return [b.reshape(b.convert(v, o.dtype), o.sizes) for v, o in zip(found, b.outs)]


# -- spread and norms ------------------------------------------------------------------------------------------------------------------
def variance(b: Builder, x: Value, dims: Sequence[int], correction: Any) -> tuple[Value, Value]:
    mean = mean_of(b, x, dims)
    gap = b.same("subtract", x, back(b, mean, x, dims))
    squares = total(b, b.same("multiply", gap, gap), dims)
    n = like(b, count(b, x, dims), squares)
    left = b.same("maximum", b.same("subtract", n, like(b, correction, n)), like(b, 0, n))
    return b.same("divide", squares, left), mean


def correction_of(unbiased: Any, correction: Any) -> Any:
    return (1 if correction is None else correction) if unbiased is None else int(unbiased)


@lowering("var.correction")
def var(b: Builder, self: Value, dim: Any = None, correction: Any = None, keepdim: bool = False) -> Value:
    return finish(b, variance(b, b.convert(self, wide(self.dtype)), axes_of(self, dim), correction_of(None, correction))[0])


@lowering("var.dim var.default")
def var_dim(b: Builder, self: Value, dim: Any = None, unbiased: bool = True, keepdim: bool = False) -> Value:
    dim, unbiased = (None, dim) if isinstance(dim, bool) else (dim, unbiased)
    return finish(b, variance(b, b.convert(self, wide(self.dtype)), axes_of(self, dim), int(unbiased))[0])


@lowering("std.correction")
def std(b: Builder, self: Value, dim: Any = None, correction: Any = None, keepdim: bool = False) -> Value:
    return finish(
        b, b.same("sqrt", variance(b, b.convert(self, wide(self.dtype)), axes_of(self, dim), correction_of(None, correction))[0])
    )


@lowering("var_mean.correction")
def var_mean(b: Builder, self: Value, dim: Any = None, correction: Any = None, keepdim: bool = False) -> list[Value]:
    found = variance(b, b.convert(self, wide(self.dtype)), axes_of(self, dim), correction_of(None, correction))
    return [b.reshape(b.convert(v, o.dtype), o.sizes) for v, o in zip(found, b.outs)]


@lowering("std_mean.correction")
def std_mean(b: Builder, self: Value, dim: Any = None, correction: Any = None, keepdim: bool = False) -> list[Value]:
    v, m = variance(b, b.convert(self, wide(self.dtype)), axes_of(self, dim), correction_of(None, correction))
    return [b.reshape(b.convert(v, o.dtype), o.sizes) for v, o in zip((b.same("sqrt", v), m), b.outs)]


@lowering("linalg_vector_norm.default")
def vector_norm(b: Builder, self: Value, ord: Any = 2, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Value:
    return norm_of(b, self, ord, dim)


@lowering("norm.Scalar norm.ScalarOpt_dim")
def norm(b: Builder, self: Value, p: Any = 2, dim: Any = None, keepdim: bool = False) -> Value:
    return norm_of(b, self, 2 if p is None else p, dim)


def norm_of(b: Builder, self: Value, p: Any, dim: Any) -> Value:
    x = b.same("abs", b.convert(self, wide(b.outs[0].dtype)))
    dims = axes_of(x, dim)
    if p == math.inf:
        return finish(b, b.fold("maximum", x, 0, dims))
    if p == -math.inf:
        return finish(b, b.fold("minimum", x, math.inf, dims))
    if p == 0:
        return finish(b, total(b, b.convert(b.compare("NE", x, like(b, 0, x)), x.dtype), dims))
    if p == 1:
        return finish(b, total(b, x, dims))
    if p == 2:
        return finish(b, b.same("sqrt", total(b, b.same("multiply", x, x), dims)))
    s = total(b, b.same("power", x, like(b, p, x)), dims)
    return finish(b, b.same("power", s, like(b, 1 / p, s)))


# -- softmax ---------------------------------------------------------------------------------------------------------------------------
def shifted(b: Builder, x: Value, dim: int) -> Value:
    """Less the maximum of its row; a row of -inf becomes nan, as in PyTorch."""
    return b.same("subtract", x, back(b, b.fold("maximum", x, -math.inf, [dim]), x, [dim]))


def softmax_of(b: Builder, x: Value, dim: int) -> Value:
    e = b.same("exponential", shifted(b, x, dim))
    return b.same("divide", e, back(b, total(b, e, [dim]), e, [dim]))


@lowering("_softmax.default softmax.int _safe_softmax.default")
def softmax(b: Builder, self: Value, dim: int, half_to_float: Any = False, dtype: Any = None) -> Value:
    x = b.convert(self, wide(b.outs[0].dtype))
    if not x.rank:
        return b.convert(b.same("divide", like(b, 1, x), like(b, 1, x)), b.outs[0].dtype)
    y = softmax_of(b, x, dim % x.rank)
    if b.name == "aten::_safe_softmax.default":  # rows of -inf are zeros
        gone = b.fold("and", b.compare("EQ", x, like(b, -math.inf, x)), True, [dim % x.rank])
        y = b.select(back(b, gone, y, [dim % x.rank]), like(b, 0, y), y)
    return b.convert(y, b.outs[0].dtype)


@lowering("_log_softmax.default log_softmax.int")
def log_softmax(b: Builder, self: Value, dim: int, half_to_float: Any = False, dtype: Any = None) -> Value:
    x = b.convert(self, wide(b.outs[0].dtype))
    if not x.rank:
        return b.convert(like(b, 0, x), b.outs[0].dtype)
    dim %= x.rank
    low = shifted(b, x, dim)
    s = b.same("log", total(b, b.same("exponential", low), [dim]))
    return b.convert(b.same("subtract", low, back(b, s, x, [dim])), b.outs[0].dtype)


@lowering("_softmax_backward_data.default")
def softmax_backward(b: Builder, grad_output: Value, output: Value, dim: int, input_dtype: Any) -> Value:
    dim %= output.rank

    def make(g: Value, y: Value) -> Value:
        gy = b.same("multiply", g, y)
        return b.same("subtract", gy, b.same("multiply", y, back(b, total(b, gy, [dim]), y, [dim])))

    return pointwise(b, make, grad_output, output)


@lowering("_log_softmax_backward_data.default")
def log_softmax_backward(b: Builder, grad_output: Value, output: Value, dim: int, input_dtype: Any) -> Value:
    dim %= output.rank

    def make(g: Value, y: Value) -> Value:
        return b.same("subtract", g, b.same("multiply", b.same("exponential", y), back(b, total(b, g, [dim]), y, [dim])))

    return pointwise(b, make, grad_output, output)


@lowering("logsumexp.default")
def logsumexp(b: Builder, self: Value, dim: Any, keepdim: bool = False) -> Value:
    x = b.convert(self, wide(b.outs[0].dtype))
    dims = axes_of(x, dim)
    top = b.fold("maximum", x, -math.inf, dims)
    top = b.select(b.compare("EQ", b.same("abs", top), like(b, math.inf, top)), like(b, 0, top), top)
    s = total(b, b.same("exponential", b.same("subtract", x, back(b, top, x, dims))), dims)
    return finish(b, b.same("add", b.same("log", s), top))


# -- normalization ---------------------------------------------------------------------------------------------------------------------
def results(b: Builder, *values: Value) -> list[Value]:
    return [b.reshape(b.convert(v, o.dtype), o.sizes) for v, o in zip(values, b.outs)]


def scaled(b: Builder, x: Value, weight: Value | None, bias: Value | None, dims: Sequence[int]) -> Value:
    if weight is not None:
        x = b.same("multiply", x, b.broadcast(b.convert(weight, x.dtype), x.sizes, dims))
    return x if bias is None else b.same("add", x, b.broadcast(b.convert(bias, x.dtype), x.sizes, dims))


def normalized(b: Builder, x: Value, dims: Sequence[int], eps: Any) -> tuple[Value, Value, Value]:
    """x with mean 0 and variance 1 over `dims`; the mean; 1 over the deviation."""
    v, m = variance(b, x, dims, 0)
    r = b.same("rsqrt", b.same("add", v, like(b, eps, v)))
    return b.same("multiply", b.same("subtract", x, back(b, m, x, dims)), back(b, r, x, dims)), m, r


@lowering("native_layer_norm.default", composite=True)
def layer_norm(b: Builder, input: Value, normalized_shape: Any, weight: Any, bias: Any, eps: float) -> list[Value]:
    x = b.convert(input, wide(input.dtype))
    dims = list(range(x.rank - len(normalized_shape), x.rank))
    y, m, r = normalized(b, x, dims, eps)
    return results(b, scaled(b, y, weight, bias, dims), m, r)


@lowering("layer_norm.default")
def layer_norm_composite(b: Builder, input: Value, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5,
                         cudnn_enable: bool = True) -> Value:  # fmt: skip
    return layer_norm(b, input, normalized_shape, weight, bias, eps)[0]


@lowering("rms_norm.default _fused_rms_norm.default")
def rms_norm(b: Builder, input: Value, normalized_shape: Any, weight: Any = None, eps: Any = None) -> list[Value]:
    x = b.convert(input, wide(input.dtype))
    dims = list(range(x.rank - len(normalized_shape), x.rank))
    eps = torch.finfo(x.dtype).eps if eps is None else eps
    squares = mean_of(b, b.same("multiply", x, x), dims)
    r = b.same("rsqrt", b.same("add", squares, like(b, eps, squares)))
    y = scaled(b, b.same("multiply", x, back(b, r, x, dims)), weight, None, dims)
    return results(b, y, r)


@lowering("native_group_norm.default", composite=True)
def group_norm(b: Builder, input: Value, weight: Any, bias: Any, N: Any, C: Any, HxW: Any, group: int, eps: float) -> list[Value]:
    x = b.convert(input, wide(input.dtype))
    n, c = x.sizes[:2]
    rows = b.reshape(x, (n, group, b.simple(c // group), b.simple(HxW)))
    y, m, r = normalized(b, rows, [2, 3], eps)
    return results(b, scaled(b, b.reshape(y, x.sizes), weight, bias, [1]), m, r)


@lowering("_native_batch_norm_legit_no_training.default", composite=True)
def batch_norm(b: Builder, input: Value, weight: Any, bias: Any, running_mean: Value, running_var: Value, momentum: float,
               eps: float) -> list[Value | None]:  # fmt: skip
    x = b.convert(input, wide(input.dtype))
    m, v = b.convert(running_mean, x.dtype), b.convert(running_var, x.dtype)
    r = b.same("rsqrt", b.same("add", v, like(b, eps, v)))
    y = b.same("multiply", b.same("subtract", x, b.broadcast(m, x.sizes, [1])), b.broadcast(r, x.sizes, [1]))
    empty = b.full(0, (0,), b.outs[0].dtype)
    return [*results(b, scaled(b, y, weight, bias, [1])), empty, empty]


@lowering("native_batch_norm.default cudnn_batch_norm.default")
def native_batch_norm(b: Builder, input: Value, weight: Any, bias: Any, running_mean: Any, running_var: Any, training: bool,
                      momentum: float, eps: float) -> list[Value | None]:  # fmt: skip
    if training:
        if running_mean is not None:
            raise Unsupported("it writes the running statistics: export the functional form")
        x = b.convert(input, wide(input.dtype))
        y, m, r = normalized(b, x, [d for d in range(x.rank) if d != 1], eps)
        return [*results(b, scaled(b, y, weight, bias, [1]), m, r)]
    return [*batch_norm(b, input, weight, bias, running_mean, running_var, momentum, eps)]


@lowering("_native_batch_norm_legit_functional.default _native_batch_norm_legit.no_stats")
def batch_norm_functional(b: Builder, input: Value, weight: Any, bias: Any, *rest: Any) -> list[Value]:
    *statistics, training, momentum, eps = rest
    x = b.convert(input, wide(input.dtype))
    dims = [d for d in range(x.rank) if d != 1]
    if not training:
        y = batch_norm(b, input, weight, bias, *statistics, momentum, eps)
        return [*y, *statistics]
    y, m, r = normalized(b, x, dims, eps)
    found = [scaled(b, y, weight, bias, [1]), m, r]
    if statistics:
        v, _ = variance(b, x, dims, 1)
        for old, new in zip(statistics, (m, v)):
            old = b.convert(old, new.dtype)
            kept_ = b.same("multiply", old, like(b, 1 - momentum, old))
            found.append(b.same("add", kept_, b.same("multiply", new, like(b, momentum, new))))
    return results(b, *found)


# -- scans -----------------------------------------------------------------------------------------------------------------------------
def scan(b: Builder, xs: list[Value], dim: int, identities: Sequence[Any], combine: Callable[..., list[Value]]) -> list[Value]:
    """Each element combined with all before it: `combine(*earlier, *later)`, associative."""
    n = xs[0].sizes[dim]
    if type(n) is int:
        k = 1
        while k < n:
            low, high = [0] * xs[0].rank, [0] * xs[0].rank
            low[dim], high[dim] = k, -k
            xs = combine(*[b.pad(x, low, high, i) for x, i in zip(xs, identities)], *xs)
            k *= 2
        return xs
    fills = [b.full(i, x.sizes, x.dtype) for x, i in zip(xs, identities)]
    end = b.number(n)
    place = b.iota((n,), 0)

    def reach(i: Value) -> Value:  # not k + k from one round to the next: XLA's annotator of trip counts aborts on that
        return b.same("shift_left", b.full(1, (), torch.int64), i)

    def step(i: Value, *state: Value) -> list[Value]:
        k = reach(i)
        at = b.same("subtract", place, b.broadcast(k, place.sizes, ()))
        zero = b.full(0, at.sizes, torch.int64)
        have = b.compare("GE", at, zero)
        source = b.select(have, at, zero)
        have = b.broadcast(have, state[0].sizes, (dim,))
        earlier = [b.select(have, take(b, x, dim, source), f) for x, f in zip(state, fills)]
        return [b.same("add", i, b.full(1, (), torch.int64)), *combine(*earlier, *state)]

    return b.loop([b.full(0, (), torch.int64), *xs], lambda i, *_: b.compare("LT", reach(i), end), step)[1:]


def scanned(b: Builder, self: Value, dim: int, identity: Any, name: str) -> Value:
    x = b.convert(self, wide(b.outs[0].dtype))
    if not x.rank:
        return b.convert(x, b.outs[0].dtype)
    y = scan(b, [x], dim % x.rank, [identity], lambda p, q: [b.same(name, p, q)])[0]
    return b.convert(y, b.outs[0].dtype)


@lowering("cumsum.default")
def cumsum(b: Builder, self: Value, dim: int, dtype: Any = None) -> Value:
    return scanned(b, self, dim, 0, "add")


@lowering("cumprod.default")
def cumprod(b: Builder, self: Value, dim: int, dtype: Any = None) -> Value:
    return scanned(b, self, dim, 1, "multiply")


@lowering("logcumsumexp.default")
def logcumsumexp(b: Builder, self: Value, dim: int) -> Value:
    x = b.convert(self, wide(self.dtype))

    def combine(p: Value, q: Value) -> list[Value]:
        top = b.same("maximum", p, q)
        gap = b.same("abs", b.same("subtract", p, q))
        s = b.same("add", top, b.same("log_plus_one", b.same("exponential", b.same("negate", gap))))
        return [b.select(b.same("and", b.compare("EQ", p, q), b.compare("EQ", b.same("abs", p), like(b, math.inf, p))), p, s)]

    return b.convert(scan(b, [x], dim % x.rank, [-math.inf], combine)[0], b.outs[0].dtype) if x.rank else self


def extreme_scan(b: Builder, x: Value, dim: int, largest: bool) -> list[Value]:
    """The extreme so far and where it stands last; a nan stays."""
    if not x.rank:
        return [x, b.full(0, (), torch.int64)]
    dim %= x.rank
    data = b.convert(x, torch.uint8) if x.dtype == torch.bool else x

    def combine(v: Value, i: Value, w: Value, j: Value) -> list[Value]:
        later = b.compare("GE" if largest else "LE", w, v)
        if is_float(data.dtype):
            later = b.same("or", b.same("and", later, b.same("not", is_nan(b, v))), is_nan(b, w))
        return [b.select(later, w, v), b.select(later, j, i)]

    worst = lowest(data.dtype) if largest else highest(data.dtype)
    v, i = scan(b, [data, b.iota(x.sizes, dim)], dim, [worst, 0], combine)
    return [b.convert(v, x.dtype), i]


@lowering("cummax.default")
def cummax(b: Builder, self: Value, dim: int) -> list[Value]:
    return extreme_scan(b, self, dim, True)


@lowering("cummin.default")
def cummin(b: Builder, self: Value, dim: int) -> list[Value]:
    return extreme_scan(b, self, dim, False)


# -- losses ------------------------------------------------------------------------------------------------------------------------------
def reduced(b: Builder, x: Value, reduction: int) -> Value:
    dims = list(range(x.rank))
    return finish(b, x if reduction == 0 else mean_of(b, x, dims) if reduction == 1 else total(b, x, dims))


@lowering("mse_loss.default")
def mse_loss(b: Builder, self: Value, target: Value, reduction: int = 1) -> Value:
    gap = spread_pair(b, self, target)
    return reduced(b, b.same("multiply", gap, gap), reduction)


@lowering("l1_loss.default")
def l1_loss(b: Builder, self: Value, target: Value, reduction: int = 1) -> Value:
    return reduced(b, b.same("abs", spread_pair(b, self, target)), reduction)


def spread_pair(b: Builder, x: Operand, y: Value) -> Value:
    dtype = wide(b.outs[0].dtype)
    return b.same("subtract", b.convert(x, dtype), b.expand(b.convert(y, dtype), x.sizes))
