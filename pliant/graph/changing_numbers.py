"""Functions of PyTorch whose C++ code reads a parameter as a plain number, decomposed so that a symbolic one stays symbolic.

A slope, a margin, a temperature or a probability may be another in every call. PyTorch's argument parser takes a `float` of a schema as a
double, and many derivatives ask a `Scalar` for its value: both pin it, and each value is a capture. Given a symbolic number, the functions
below are put together from operators that take it as it is: products, comparisons, and tensors of one number. The formulas, masks and
the order of rounding are those of ATen (`derivatives.yaml`, `FunctionsManual.cpp`); low precisions are computed in float32, as ATen's
kernels do. What a decomposition is not sure of it leaves to PyTorch, which pins. `tests/graph/test_changing_numbers.py` holds each
against eager PyTorch, with gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pliant.graph import layout, symnode
from pliant.graph.decompositions import NotDecomposed, apply, tried
from pliant.graph.originals import (
    ORIGINAL,
    as_it_was,
    get_default_dtype,
    gradients,
    in_place_of,
    is_grad_enabled,
    math,
    operator,
    torch,
)
from pliant.graph.symnode import SYMS
from pliant.graph.traced import TracedTensor
from pliant.symbolic import ops

aten = torch.ops.aten
F = torch.nn.functional
HALVES = frozenset({torch.float16, torch.bfloat16})
REALS = frozenset({torch.float32, torch.float64, *HALVES})
NUMBERS = frozenset({int, float, torch.SymInt, torch.SymFloat})


def real(x: Any) -> Any:
    """`x`, a traced tensor of real numbers, in the precision that ATen's kernels compute in."""
    if type(x) is not TracedTensor or x.dtype not in REALS or torch._C._is_any_autocast_enabled():
        raise NotDecomposed
    return ORIGINAL.to(x, torch.float32) if x.dtype in HALVES else x


LARGEST = 3e38  # beyond it some kernels and derivatives refuse a number, for float32


def number(v: Any) -> Any:
    if type(v) not in NUMBERS or (type(v) is float or type(v) is torch.SymFloat and v.node.expr.backed) and not (
            -LARGEST <= v and v <= LARGEST):
        raise NotDecomposed
    return v


LARGEST_HALF = torch.finfo(torch.float16).max


def converted(v: Any, x: Any) -> Any:
    """A number that kernels convert to the dtype of `x`, and refuse if it is none."""
    if x.dtype is torch.float16 and (type(v) not in SYMS or v.node.expr.backed) and not (-LARGEST_HALF <= v and v <= LARGEST_HALF):
        raise NotDecomposed
    return number(v)


TINY = 1e-30
"""Numbers below are nothing in float32, or what divides by them is infinite, where double precision tells them from it."""


def apart_from_nothing(v: Any) -> None:
    """What divides by this number, or takes its logarithm, has derivatives other than NaN."""
    v = number(v)
    if type(v) in SYMS and not v.node.expr.backed:
        return  # only the run knows it
    if not (v >= TINY or v <= -TINY):
        raise NotDecomposed


def back(y: Any, x: Any) -> Any:
    return ORIGINAL.to(y, x.dtype) if y.dtype is not x.dtype else y


def tensor_of(v: Any, x: Any) -> Any:
    """A tensor of no dims with this number, of the dtype of `x`."""
    return torch.full((), v, dtype=x.dtype, device=x.device)


def refuse(*options: Any) -> None:
    """These options are not decomposed."""
    if any([o is not None for o in options]):
        raise NotDecomposed


def apart(inplace: Any) -> None:
    """Nothing is written in place, as the option says that Python code of PyTorch's asks whether it is true."""
    if inplace is not None and inplace is not False:
        raise NotDecomposed


def old_ways(*options: Any) -> None:
    """What old programs say in place of `reduction` is not decomposed: False is another word than None there."""
    if any([o is not None for o in options]):
        raise NotDecomposed


def flag(b: Any) -> bool:
    """An option that PyTorch's C++ code takes; of no other type than `bool`."""
    if type(b) is not bool:
        raise NotDecomposed
    return b


# -- activations ----------------------------------------------------------------------------------------------------------------
def leaky_relu(x: Any, negative_slope: Any = 0.01, inplace: Any = False) -> Any:
    apart(inplace)
    w = real(x)
    return back(torch.where(w > 0, w, w * number(negative_slope)), x)


def elu(x: Any, alpha: Any = 1.0, inplace: Any = False) -> Any:
    """The exponential sees no positive number: where the other branch counts, its derivative would be inf times zero."""
    apart(inplace)
    w = real(x)
    low = torch.where(w <= 0, w, torch.zeros_like(w))
    return back(torch.where(w <= 0, torch.expm1(low) * number(alpha), w), x)


def celu(x: Any, alpha: Any = 1.0, inplace: Any = False) -> Any:
    apart(inplace)
    w = real(x)
    apart_from_nothing(alpha)
    low = torch.where(w <= 0, w, torch.zeros_like(w))
    return back(torch.where(w <= 0, torch.expm1(low * (1 / alpha)) * alpha, w), x)


def softplus(x: Any, beta: Any = 1, threshold: Any = 20) -> Any:
    apart_from_nothing(beta)
    w = real(x)
    scaled = w * number(beta)
    above = scaled > number(threshold)
    low = torch.where(above, torch.zeros_like(scaled), scaled)
    return back(torch.where(above, w, torch.log1p(torch.exp(low)) / beta), x)


def threshold(x: Any, threshold: Any, value: Any, inplace: Any = False) -> Any:
    apart(inplace)
    w = real(x)
    return back(torch.where(w <= converted(threshold, x), tensor_of(converted(value, x), w), w), x)


def logit(x: Any, eps: Any = None) -> Any:
    w = real(x)
    if not converted(eps, x) >= TINY:
        raise NotDecomposed
    w = torch.clamp(w, eps, 1.0 - eps)
    return back(torch.log(w / (1.0 - w)), x)


def nan_to_num(x: Any, nan: Any = None, posinf: Any = None, neginf: Any = None) -> Any:
    w = real(x)
    if type(posinf) is torch.SymFloat or type(neginf) is torch.SymFloat:
        raise NotDecomposed
    return torch.where(torch.isnan(w), tensor_of(number(nan), w), torch.nan_to_num(w, 0.0, posinf, neginf)) if w is x else pinned()


def pinned() -> Any:
    raise NotDecomposed


# -- arithmetic -----------------------------------------------------------------------------------------------------------------
WHOLE = 1 << 24  # so far float32 holds each whole number
FAR, NEAR = 128, 1e-5  # a number below the one that is further from any whole number than the other is none in float32 either


def power(x: Any, exponent: Any) -> Any:
    """Of a tensor, or of a number, with the number as a tensor: the derivative for tensors asks nothing."""
    if type(x) is TracedTensor:
        w = real(x if type(exponent) is torch.SymInt else widened(x))
        e = converted(exponent, x)
        if w.dtype is torch.float32 and not as_whole_as_it_is(e):
            raise NotDecomposed
        return back(torch.pow(w, tensor_of(e, w)), x if x.dtype in REALS else w)
    if type(x) is torch.SymFloat and x.node.expr.backed:
        apart_from_nothing(x)
    w = real(exponent if type(x) is torch.SymInt else widened(exponent))
    return back(torch.pow(tensor_of(number(x), w), w), exponent if exponent.dtype in REALS else w)


def as_whole_as_it_is(e: Any) -> Any:
    """Whether this exponent is a whole number, odd or even, in float32 too, or is none there either, which decides powers of what is
    negative. For others ATen's kernel answers by where an element lies: a vector's exponent is a float, that of what is left over a double.
    """
    if type(e) not in (torch.SymInt, torch.SymFloat) or not e.node.expr.backed:
        return True
    if not (-WHOLE <= e and e <= WHOLE):
        return False
    if type(e) is torch.SymInt:
        return True
    over = ops.sub(e.node.expr, ops.to_float(ops.floor(e.node.expr)))
    size = ops.abs_(e.node.expr)
    between = ops.and_(ops.and_(ops.ge(over, NEAR), ops.le(over, 1 - NEAR)), ops.le(size, float(FAR)))
    return layout.ask(e.node.scope, ops.or_(ops.eq(over, 0.0), between), symnode.site_hook())


def power_of(exponent: Any, x: Any) -> Any:
    return power(x, exponent)


def widened(x: Any) -> Any:
    """Integers beside a float are of the default dtype."""
    integral = type(x) is TracedTensor and not x.dtype.is_floating_point and not x.dtype.is_complex
    return ORIGINAL.to(x, get_default_dtype()) if integral else x


def lerp(x: Any, end: Any, weight: Any) -> Any:
    w, e = real(x), real(end)
    if x.dtype is not end.dtype:
        raise NotDecomposed
    return back(torch.lerp(w, e, tensor_of(number(weight), w)), x)


def pad(x: Any, pad: Any, mode: Any = "constant", value: Any = None) -> Any:
    if mode != "constant" or type(x) is not TracedTensor:
        raise NotDecomposed
    return torch.constant_pad_nd(x, pad, number(value))


# -- norms ----------------------------------------------------------------------------------------------------------------------
def vector_norm(x: Any, ord: Any = 2, dim: Any = None, keepdim: Any = False, *, dtype: Any = None, out: Any = None) -> Any:  # noqa: A002
    """Where an element or the whole is zero, so is the derivative, whatever the order. 0, 1, 2 and infinity have ways of their own; for
    orders beyond these bounds powers overflow, here and there otherwise."""
    refuse(out, dtype)
    w, p = real(x), number(ord)
    if not (p >= 0.01 and p <= 100) or p == 1 or p == 2:
        raise NotDecomposed
    sizes = [w.sizes[d] for d in (range(len(w.sizes)) if dim is None else (dim,) if type(dim) is int else dim)]
    if any([type(n) is int and n == 0 for n in sizes]):
        raise NotDecomposed
    found = safe_power(torch.abs(w), p)
    total = torch.sum(found, dim, keepdim) if dim is not None and dim != () else whole(found, keepdim)
    return back(safe_power(total, 1.0 / p), x)


def whole(x: Any, keepdim: bool) -> Any:
    return torch.sum(x, tuple(range(len(x.sizes))), keepdim) if x.sizes else x


def safe_power(x: Any, p: Any) -> Any:
    """Of what is not negative: zero at zero, in the derivative too."""
    some = x != 0
    return torch.where(some, torch.pow(torch.where(some, x, torch.ones_like(x)), tensor_of(p, x)), torch.zeros_like(x))


def norm(x: Any, p: Any = "fro", dim: Any = None, keepdim: Any = False, out: Any = None, dtype: Any = None) -> Any:
    if type(p) is not torch.SymFloat:
        raise NotDecomposed
    return vector_norm(x, p, dim, keepdim, dtype=dtype, out=out)


def dist(x: Any, other: Any, p: Any = 2) -> Any:
    real(x), real(other)
    return vector_norm(x - other, p)


def normalize(x: Any, p: Any = 2.0, dim: Any = 1, eps: Any = 1e-12, out: Any = None) -> Any:
    refuse(out)
    size = vector_norm(x, p, dim, True) if type(p) is torch.SymFloat else torch.norm(x, p, dim, True)
    return x / ORIGINAL.expand_as(ORIGINAL.clamp_min(size, number(eps)), x)


def pairwise_distance(a: Any, b: Any, p: Any = 2.0, eps: Any = 1e-6, keepdim: Any = False) -> Any:
    real(a), real(b)
    apart = a - b + number(eps)
    return vector_norm(apart, p, -1, keepdim) if type(p) is torch.SymFloat else torch.norm(apart, p, -1, keepdim)


# -- losses ---------------------------------------------------------------------------------------------------------------------
def reduced(loss: Any, reduction: Any) -> Any:
    if reduction not in ("none", "mean", "sum"):
        raise NotDecomposed
    return loss if reduction == "none" else torch.mean(loss) if reduction == "mean" else torch.sum(loss)


def alike(*tensors: Any) -> None:
    """Tensors that need no warning about broadcasting, of one dtype."""
    for t in tensors:
        real(t)
    first = tensors[0]
    if any([len(t.sizes) != len(first.sizes) or t.dtype is not first.dtype for t in tensors]):
        raise NotDecomposed
    if not all([bool(a == b) for t in tensors for a, b in zip(t.sizes, first.sizes, strict=True)]):
        raise NotDecomposed


def smooth_l1_loss(
    x: Any, target: Any, size_average: Any = None, reduce: Any = None, reduction: Any = "mean", beta: Any = 1.0
) -> Any:
    old_ways(size_average, reduce)
    alike(x, target)
    if not number(beta) >= TINY:
        raise NotDecomposed
    apart = torch.abs(real(x) - real(target))
    return back(reduced(torch.where(apart < beta, apart * 0.5 * apart / beta, apart - 0.5 * beta), reduction), x)


def huber_loss(x: Any, target: Any, reduction: Any = "mean", delta: Any = 1.0, weight: Any = None) -> Any:
    refuse(weight)
    alike(x, target)
    if not number(delta) > 0:
        raise NotDecomposed
    apart = torch.abs(real(x) - real(target))
    return back(reduced(torch.where(apart < delta, 0.5 * apart * apart, delta * (apart - 0.5 * delta)), reduction), x)


def margin_ranking_loss(
    a: Any, b: Any, target: Any, margin: Any = 0.0, size_average: Any = None, reduce: Any = None, reduction: Any = "mean"
) -> Any:
    old_ways(size_average, reduce)
    alike(a, b, target)
    return reduced(torch.clamp_min(-target * (a - b) + number(margin), 0), reduction)


def hinge_embedding_loss(
    x: Any, target: Any, margin: Any = 1.0, size_average: Any = None, reduce: Any = None, reduction: Any = "mean"
) -> Any:
    old_ways(size_average, reduce)
    alike(x, target)
    zeros = torch.zeros_like(x)
    apart = torch.where(target != 1, torch.clamp_min(number(margin) - x, 0), zeros)
    return reduced(apart + torch.where(target != -1, x, zeros), reduction)


def cosine_embedding_loss(
    a: Any, b: Any, target: Any, margin: Any = 0, size_average: Any = None, reduce: Any = None, reduction: Any = "mean"
) -> Any:
    old_ways(size_average, reduce)
    alike(a, b)
    if len(target.sizes) != len(a.sizes) - 1 or not a.sizes or reduction not in ("none", "mean", "sum"):
        raise NotDecomposed
    epsilon = 1e-12
    sizes = (torch.sum(a * a, -1) + epsilon) * (torch.sum(b * b, -1) + epsilon)
    similar = torch.sum(a * b, -1) / torch.sqrt(sizes)
    zeros = torch.zeros_like(similar)
    loss = torch.where(target == 1, 1 - similar, zeros) + torch.where(target == -1, torch.clamp_min(similar - number(margin), 0), zeros)
    return reduced(loss, reduction)


def triplet_margin_loss(
    anchor: Any, positive: Any, negative: Any, margin: Any = 1.0, p: Any = 2, eps: Any = 1e-6, swap: Any = False,
    size_average: Any = None, reduce: Any = None, reduction: Any = "mean",
) -> Any:  # fmt: skip
    old_ways(size_average, reduce)
    alike(anchor, positive, negative)
    if not number(margin) > 0:
        raise NotDecomposed
    near, far = F.pairwise_distance(anchor, positive, p, eps), F.pairwise_distance(anchor, negative, p, eps)
    if flag(swap):
        far = torch.minimum(far, F.pairwise_distance(positive, negative, p, eps))
    return reduced(torch.clamp_min(margin + near - far, 0), reduction)


def poisson_nll_loss(
    x: Any, target: Any, log_input: Any = True, full: Any = False, size_average: Any = None, eps: Any = 1e-8, reduce: Any = None,
    reduction: Any = "mean",
) -> Any:  # fmt: skip
    old_ways(size_average, reduce)
    if flag(full):
        raise NotDecomposed
    alike(x, target)
    return reduced(torch.exp(x) - target * x if flag(log_input) else x - target * torch.log(x + number(eps)), reduction)


def cross_entropy(
    x: Any, target: Any, weight: Any = None, size_average: Any = None, ignore_index: Any = -100, reduce: Any = None,
    reduction: Any = "mean", label_smoothing: Any = 0.0,
) -> Any:  # fmt: skip
    """Of class indices: the smooth part is one more loss, of the sum over classes. (at::native::cross_entropy_loss_label_smoothing)"""
    old_ways(size_average, reduce)
    refuse(weight)
    w = real(x)
    if w is not x or type(target) is not TracedTensor or target.dtype is not torch.int64 or len(target.sizes) != len(x.sizes) - 1:
        raise NotDecomposed
    if not (number(label_smoothing) > 0 and label_smoothing <= 1) or reduction not in ("none", "mean", "sum"):
        raise NotDecomposed
    dim = 1 if len(x.sizes) > 1 else 0
    logs = torch.log_softmax(x, dim)
    hard = F.nll_loss(logs, target, None, None, ignore_index, None, reduction)
    ignored = target == ignore_index
    smooth = torch.where(ignored, tensor_of(0.0, x), -torch.sum(logs, dim))
    if reduction == "sum":
        smooth = torch.sum(smooth)
    elif reduction == "mean":
        smooth = torch.sum(smooth) / torch.sum(ORIGINAL.to(~ignored, x.dtype))
    return (1 - label_smoothing) * hard + smooth * (label_smoothing / x.sizes[dim])


# -- layers ---------------------------------------------------------------------------------------------------------------------
def attention(
    q: Any, k: Any, v: Any, attn_mask: Any = None, dropout_p: Any = 0.0, is_causal: Any = False, scale: Any = None, enable_gqa: Any = False
) -> Any:
    """The query carries the scale."""
    real(q)
    if q.dtype in HALVES or type(dropout_p) is torch.SymFloat:
        raise NotDecomposed
    width = q.sizes[-1]
    usual = math.sqrt(width) if type(width) is int else torch.sym_sqrt(width)
    return F.scaled_dot_product_attention(q * (number(scale) * usual), k, v, attn_mask, dropout_p, is_causal, enable_gqa=enable_gqa)


# -- random numbers -------------------------------------------------------------------------------------------------------------
def drawn(x: Any, keep: Any) -> Any:
    """Ones with this probability, else zeros, like `x`: in memory, too, where they are drawn one after the other."""
    with gradients(False):
        noise = torch.empty_like(x)
        apply(x.owner(), aten.bernoulli_.float, noise, keep)
    torch.autograd.graph.increment_version(noise)
    return noise


def drops(x: Any, p: Any, training: Any, inplace: Any) -> bool:
    """Whether anything is dropped: of no elements nothing is. Whatever is out of range is left to PyTorch."""
    apart(inplace)
    if type(x) is not TracedTensor or x.dtype not in REALS or not (number(p) > 0 and p < 1) or type(training) is not bool:
        raise NotDecomposed
    return training and all([bool(n != 0) for n in x.shape])


def dropping(noise_like: Callable[[Any], Any]) -> Callable[..., Any]:
    """Inverted dropout: what stays is divided by the probability of that. (at::native::_dropout_impl)"""

    def dropout(x: Any, p: Any = 0.5, training: Any = True, inplace: Any = False) -> Any:
        if not drops(x, p, training, inplace):
            return x
        return x * ORIGINAL.div_(drawn(noise_like(x), 1 - p), 1 - p)

    return dropout


def channels(x: Any) -> Any:
    """One number for each channel of each example. (make_feature_noise)"""
    if len(x.sizes) < 2:
        raise NotDecomposed
    return torch.empty((x.sizes[0], x.sizes[1], *(1 for _ in x.sizes[2:])), dtype=x.dtype, device=x.device)


def feature_dropout(dims: int) -> Callable[..., Any]:
    """`dropout1d` to `dropout3d` of a batch. One example without a batch, which C++ gives one, is left to it."""
    decomposed = dropping(channels)

    def dropout(x: Any, p: Any = 0.5, training: Any = True, inplace: Any = False) -> Any:
        if len(x.sizes) != dims + 2:
            raise NotDecomposed
        return decomposed(x, p, training, inplace)

    return dropout


def alpha_dropout(x: Any, p: Any = 0.5, training: Any = False, inplace: Any = False) -> Any:
    if not drops(x, p, training, inplace):
        return x
    alpha = 1.7580993408473766
    a = 1.0 / torch.sym_sqrt((alpha * alpha * p + 1) * (1 - p))
    noise = drawn(x, 1 - p)
    shift = ORIGINAL.add_(ORIGINAL.mul_(noise + (-1), alpha * a), alpha * a * p)
    return ORIGINAL.add(x * ORIGINAL.mul_(noise, a), shift)


def filled(func: Any, sound: Callable[..., Any]) -> Callable[..., Any]:
    """A method that fills a tensor with random numbers: in the graph as it is, `sound` being what PyTorch wants of its numbers."""

    def fill(x: Any, *numbers: Any, generator: Any = None, **named: Any) -> Any:
        given = [*numbers, *named.values()]
        if type(x) is not TracedTensor or x.dtype not in REALS or generator is not None or is_grad_enabled() and x.requires_grad:
            raise NotDecomposed
        names = [a.name for a in func._schema.arguments[1:-1]]
        order = dict(zip(names, numbers)) | named
        values = [order.get(a.name, a.default_value) for a in func._schema.arguments[1:-1]]
        if len(given) != len(order) or not order.keys() <= set(names) or not sound(*map(number, values)):
            raise NotDecomposed
        with gradients(False):
            apply(x.owner(), func, x, *values)
        torch.autograd.graph.increment_version(x)
        return x

    return fill


uniform_ = filled(aten.uniform_.default, lambda low, high: low <= high and high - low <= 3e38)
normal_ = filled(aten.normal_.default, lambda mean, std: std >= 0)
exponential_ = filled(aten.exponential_.default, lambda rate: rate > 0)
bernoulli_ = filled(aten.bernoulli_.float, lambda p: 0 <= p and p <= 1)  # noqa: SIM300


def bernoulli(x: Any, p: Any = None, *, generator: Any = None, out: Any = None) -> Any:
    refuse(generator, out)
    if type(x) is not TracedTensor or not (number(p) >= 0 and p <= 1) or is_grad_enabled() and x.requires_grad:
        raise NotDecomposed
    return drawn(x, p)


def normal(
    mean: Any, std: Any = 1.0, size: Any = None, *, dtype: Any = None, device: Any = None, generator: Any = None, **others: Any
) -> Any:
    refuse(generator, *others.values())
    if size is None:
        if type(mean) is not TracedTensor:
            raise NotDecomposed
        return ORIGINAL.add_(normal_(torch.empty_like(mean), 0.0, std), mean) if not mean.requires_grad else pinned()
    return normal_(torch.empty(size, dtype=dtype, device=device), number(mean), std)


def rows(table: dict[Callable[..., Any], Any]) -> dict[Any, Callable[..., Any]]:
    return {fn: own for own, fns in table.items() for fn in (fns if type(fns) is tuple else (fns,))}


DECOMPOSITIONS = in_place_of(rows({
    leaky_relu: (F.leaky_relu, torch._C._nn.leaky_relu), elu: (F.elu, torch._C._nn.elu), celu: (F.celu, torch.celu),
    softplus: (F.softplus, torch._C._nn.softplus), threshold: (F.threshold, torch.threshold), logit: (torch.logit, torch.Tensor.logit),
    nan_to_num: (torch.nan_to_num, torch.Tensor.nan_to_num), power: (operator.pow, torch.pow, torch.Tensor.pow, torch.Tensor.__pow__),
    power_of: torch.Tensor.__rpow__, lerp: (torch.lerp, torch.Tensor.lerp), pad: F.pad,
    vector_norm: torch.linalg.vector_norm, norm: (torch.norm, torch.Tensor.norm), dist: (torch.dist, torch.Tensor.dist),
    normalize: F.normalize, pairwise_distance: (F.pairwise_distance, torch.pairwise_distance),
    smooth_l1_loss: F.smooth_l1_loss, huber_loss: F.huber_loss, margin_ranking_loss: F.margin_ranking_loss,
    hinge_embedding_loss: F.hinge_embedding_loss, cosine_embedding_loss: F.cosine_embedding_loss,
    triplet_margin_loss: F.triplet_margin_loss, poisson_nll_loss: F.poisson_nll_loss, cross_entropy: F.cross_entropy,
    attention: F.scaled_dot_product_attention, dropping(lambda x: x): F.dropout,
    feature_dropout(1): F.dropout1d, feature_dropout(2): F.dropout2d, feature_dropout(3): F.dropout3d,
    alpha_dropout: F.alpha_dropout, uniform_: torch.Tensor.uniform_, normal_: torch.Tensor.normal_,
    exponential_: torch.Tensor.exponential_, bernoulli_: torch.Tensor.bernoulli_, bernoulli: (torch.bernoulli, torch.Tensor.bernoulli),
    normal: torch.normal,
}))  # fmt: skip


def decompose(fn: Any, args: tuple, kwargs: dict, trace: Any) -> Any:
    """The result of `fn(*args, **kwargs)`, given a symbolic number; NotImplemented, and nothing recorded, where PyTorch must say."""
    own = DECOMPOSITIONS.get(fn)
    if own is None:
        return NotImplemented
    symbols = (torch.SymFloat, torch.SymInt) if own in (power, power_of) else (torch.SymFloat,)
    if not any([type(a) in symbols for a in (*args, *kwargs.values())]) or not as_it_was(fn):
        return NotImplemented
    return tried(trace, own, args, kwargs)
