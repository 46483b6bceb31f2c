"""Torch functions decomposed into the operators that PyTorch's C++ code comes to, where nothing else can happen.

C++ asks Python about every symbolic size that it meets: a `linear` of three dims takes 240 such steps to find out that it is a view, a
product and a view. The decompositions below hold where no gradient is recorded and no autocast, transform or mode is on; whatever they
are not sure of they leave to PyTorch. `tests/graph/test_decompositions.py` holds the operators of each against those that PyTorch records.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

from pliant.graph.dispatch import record
from pliant.graph.originals import ORIGINAL, as_it_was, get_default_dtype, in_place_of, is_grad_enabled, math, torch
from pliant.graph.rules import RULES
from pliant.graph.rules.shape import count, holds, key, same, sym
from pliant.graph.rules.views import unchanged
from pliant.graph.traced import TracedTensor, Untraceable
from pliant.symbolic import ops

aten = torch.ops.aten
NUMBERS = frozenset({int, float, torch.SymInt, torch.SymFloat})
SIZES = frozenset({int, torch.SymInt})
REALS = frozenset({float, torch.SymFloat})
FUSED = frozenset({torch.float32, torch.float64, torch.bfloat16, torch.float16})


class NotDecomposed(Exception):
    """A rule does not know its answer."""


def undisturbed(*tensors: Any) -> Any:
    """The trace of these proxies, or None if something could come between a function and its operators."""
    trace = None
    grad = is_grad_enabled()
    for x in tensors:
        if type(x) is not TracedTensor or (grad and x.requires_grad):
            return None
        if trace is None:
            trace = x.owner()
        elif x.owner() is not trace:
            return None
    return trace if trace is not None and free(trace) else None


def free(trace: Any) -> bool:
    """Whether nothing comes between a function and its operators, whatever it is given."""
    if trace.lazy_bits or trace.dual_levels or torch._C._is_any_autocast_enabled() or torch._C._len_torch_dispatch_stack() != 1:
        return False
    return torch._C._functorch.maybe_current_level() is None


def apply(trace: Any, func: Any, *args: Any, **kwargs: Any) -> Any:
    out = RULES[func](trace, *args, **kwargs)
    if out is NotImplemented:
        raise NotDecomposed
    record(trace, func, args, kwargs, out)
    return out


def check_bias(x: Any, weight: Any, bias: Any) -> None:
    """PyTorch adds the bias in place, but out of place where it sees a class: that has more sizes, and another dtype."""
    if len(x.sizes) == 2 or len(weight.sizes) != 2:
        return
    n = bias.sizes[0] if len(bias.sizes) == 1 else None
    fits = n is not None and (same(n, weight.sizes[0]) or bool(n == weight.sizes[0]) or bool(n == 1))
    if not fits or bias.dtype is not x.dtype and not torch._C._is_any_autocast_enabled():
        raise Untraceable(aten.linear.default, "a bias that PyTorch may refuse")


def linear(x: Any, weight: Any, bias: Any) -> Any:
    if all([type(t) is TracedTensor for t in (x, weight, bias)]):
        check_bias(x, weight, bias)
    trace = undisturbed(x, weight, bias)
    if trace is None or len(x.sizes) not in (2, 3) or len(weight.sizes) != 2 or len(bias.sizes) != 1:
        return NotImplemented
    if len(x.sizes) == 2:
        return apply(trace, aten.addmm.default, bias, x, apply(trace, aten.t.default, weight))
    if not x.dense or not (x.dtype is weight.dtype is bias.dtype) or not same(x.sizes[2], weight.sizes[1]):
        return NotImplemented
    rows = sym(trace, count(trace, x.sizes[:2]))
    flat = apply(trace, aten.view.default, x, [rows, x.sizes[2]])
    product = apply(trace, aten.addmm.default, bias, flat, apply(trace, aten.t.default, weight))
    return ORIGINAL.view(product, (x.sizes[0], x.sizes[1], weight.sizes[0]))  # the program sees this one: a view of what PyTorch says


def layer_norm(x: Any, shape: Any, weight: Any, bias: Any, eps: float) -> Any:
    trace = undisturbed(x, *[p for p in (weight, bias) if p is not None])
    if trace is None or not isinstance(shape, (tuple, list)) or not {type(n) for n in shape} <= SIZES or type(eps) not in REALS:
        return NotImplemented  # PyTorch's parser has other words for some, and takes others for numbers
    return apply(trace, aten.native_layer_norm.default, x, list(shape), weight, bias, eps)[0]


def reshape(x: Any, *shape: Any) -> Any:
    """A reshape that does not move data is a view. (at::reshape)"""
    if undisturbed(x) is None:
        return NotImplemented
    sizes = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
    if not all([type(s) is int or type(s) is torch.SymInt for s in sizes]):
        return NotImplemented  # tensors of one number stand for it
    if x.dense:
        return ORIGINAL.view(x, sizes)
    return ORIGINAL.view(x, x.sizes) if unchanged(x, sizes) else NotImplemented


def contiguous(x: Any) -> Any:
    return x if type(x) is TracedTensor and x.dense else NotImplemented


def dropout(x: Any, p: float, training: bool, inplace: bool) -> Any:
    return x if training is False and type(x) is TracedTensor and type(p) is float and 0 <= p <= 1 else NotImplemented


def fill_diagonal_(x: Any, value: Any, wrap: Any = False) -> Any:
    """The diagonal of a matrix is a view (C++ takes its sizes for plain numbers)."""
    if type(x) is not TracedTensor or len(x.sizes) != 2 or type(value) not in (*NUMBERS, bool) or wrap is not False:
        return NotImplemented
    (height, width), (down, right) = x.sizes, x.strides
    n = height if same(height, width) else torch.sym_min(height, width)
    ORIGINAL.fill_(ORIGINAL.as_strided(x, (n,), (down + right,), x.offset), value)
    return x


def attention(
    q: Any, k: Any, v: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False, scale: Any = None, **others: Any
) -> Any:
    """What `sdp_utils_cpp.cpp` lets the fused kernel have: four dims, equal heads, no size that may be 0, a mask that broadcasts."""
    tensors = (q, k, v) if attn_mask is None else (q, k, v, attn_mask)
    trace = undisturbed(*tensors)
    if trace is None or dropout_p != 0 or is_causal is not False or others or not torch._C._get_flash_sdp_enabled():
        return NotImplemented
    if any([len(x.sizes) != 4 or x.device.type != "cpu" for x in tensors]) or not (q.dtype is k.dtype is v.dtype) or q.dtype not in FUSED:
        return NotImplemented
    n, heads, rows, width = q.sizes
    columns, range_ = k.sizes[2], trace.scope.range
    if not all([type(x.strides[3]) is int and x.strides[3] == 1 for x in (q, k, v)]):
        return NotImplemented
    agree = all([same(x.sizes[0], n) and same(x.sizes[1], heads) and same(x.sizes[3], width) and same(x.sizes[2], columns) for x in (k, v)])
    if not agree or not all([s > 0 if type(s) is int else range_(s.node.expr)[0] > 0 for s in (*q.sizes, columns)]):
        return NotImplemented
    given: dict[str, Any] = {}
    if attn_mask is not None:
        fit = zip(attn_mask.sizes, (n, heads, rows, columns))
        if not all([(type(a) is int and a == 1) or same(a, b) or known_equal(trace, a, b) for a, b in fit]):
            return NotImplemented
        if attn_mask.dtype is torch.bool:
            never = apply(trace, aten.scalar_tensor.default, -math.inf, dtype=q.dtype, device=q.device)
            zero = apply(trace, aten.scalar_tensor.default, 0.0, dtype=q.dtype, layout=torch.strided, device=q.device)
            attn_mask = apply(trace, aten.where.self, attn_mask, zero, never)
        elif attn_mask.dtype is not q.dtype:
            return NotImplemented
        given["attn_mask"] = attn_mask
    if scale is not None:
        given["scale"] = scale
    return apply(trace, aten._scaled_dot_product_flash_attention_for_cpu.default, q, k, v, **given)[0]


def known_equal(trace: Any, a: Any, b: Any) -> bool:
    """Whether two sizes are equal by what is known already."""
    return not (type(a) is type(b) is int) and trace.scope.known_true(ops.eq(key(a), key(b)))


def pointwise(func: Any, operands: int = 2) -> Callable[..., Any]:
    def decomposed(*args: Any) -> Any:
        trace = undisturbed(*args) if len(args) == operands else None
        return NotImplemented if trace is None else apply(trace, func, *args)

    return decomposed


def default_device(device: Any) -> torch.device:
    """Where a factory puts its result: modes that would say so are not asked about an operator."""
    return torch.get_default_device() if device is None else torch.device(device)


def linspace(
    trace: Any, start: Any, end: Any, steps: Any, *, dtype: Any = None, layout: Any = None, device: Any = None,
    requires_grad: bool = False,
) -> Any:  # fmt: skip
    """PyTorch's operator wants a plain number of steps, in its schema alone."""
    if type(steps) is not torch.SymInt or not free(trace) or not plain(dtype, requires_grad) or not {type(start), type(end)} <= NUMBERS:
        return NotImplemented
    if layout not in (None, torch.strided) or not may_be_steps(trace, steps):
        return NotImplemented
    return apply(trace, aten.linspace.default, start, end, steps, dtype=dtype, device=default_device(device))


def may_be_steps(trace: Any, n: Any) -> bool:
    """Whether there are none or more of these. Of a number that only the run knows it is asserted, as eager checks it."""
    return holds(trace, ops.ge(n.node.expr, 0), "number of steps must be non-negative")


def plain(dtype: Any, requires_grad: Any) -> bool:
    """Whether these settings of a factory are what the operator takes, and nothing is differentiated: a Python type may be a dtype, too."""
    return (dtype is None or type(dtype) is torch.dtype) and requires_grad is False


def open_number(trace: Any, dtype: Any, requires_grad: Any, *numbers: Any) -> bool:
    """Whether a factory is given a number that PyTorch's schema would pin, and may be recorded with it."""
    kinds = {type(n) for n in numbers}
    return torch.SymInt in kinds and kinds <= SIZES and free(trace) and plain(dtype, requires_grad)


def logspace(
    trace: Any, start: Any, end: Any, steps: Any, base: Any = 10.0, *, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Any:
    if not open_number(trace, dtype, requires_grad, steps) or not {type(start), type(end)} <= NUMBERS or type(base) not in (int, float):
        return NotImplemented
    if not may_be_steps(trace, steps):
        return NotImplemented
    return apply(trace, aten.logspace.default, start, end, steps, float(base), dtype=dtype, device=default_device(device))


def triangle(func: Any) -> Callable[..., Any]:
    """The indices of a triangle of a matrix with so many rows and columns."""

    def decomposed(
        trace: Any, row: Any, col: Any, offset: Any = 0, *, dtype: Any = torch.int64, device: Any = None, requires_grad: bool = False
    ) -> Any:
        if not open_number(trace, dtype, requires_grad, row, col) or type(offset) is not int or not bool(row >= 0) or not bool(col >= 0):
            return NotImplemented
        return apply(trace, func, row, col, offset, dtype=dtype, device=default_device(device))

    return decomposed


def window(finish: Callable[..., Any]) -> Callable[..., Any]:
    """A window function of so many points: `finish` is given their positions, and over how many steps they go."""

    def decomposed(
        trace: Any, window_length: Any, periodic: Any = True, *, dtype: Any = None, device: Any = None, requires_grad: bool = False,
        **numbers: Any,
    ) -> Any:  # fmt: skip
        n = window_length
        if not open_number(trace, dtype, requires_grad, n) or type(periodic) is not bool or not bool(n > 1):
            return NotImplemented
        dtype = get_default_dtype() if dtype is None else dtype
        if not dtype.is_floating_point:
            return NotImplemented
        points = n + 1 if periodic else n
        x = finish(torch.arange(points, dtype=dtype, device=device), points - 1, **numbers)
        return ORIGINAL.narrow(x, 0, 0, n) if periodic else x

    return decomposed


def raised_cosine(x: Any, steps: Any, alpha: float = 0.54, beta: float = 0.46) -> Any:
    return ORIGINAL.add_(ORIGINAL.mul_(ORIGINAL.cos_(ORIGINAL.mul_(x, math.pi * 2.0 / steps)), -beta), alpha)


def blackman(x: Any, steps: Any) -> Any:
    ORIGINAL.mul_(x, math.pi / steps)
    return ORIGINAL.mul_(ORIGINAL.cos_(ORIGINAL.mul(x, 4)), 0.08) - ORIGINAL.mul_(ORIGINAL.cos_(ORIGINAL.mul(x, 2)), 0.5) + 0.42


def kaiser(
    trace: Any, window_length: Any, periodic: Any = True, beta: Any = 12.0, *, dtype: Any = None, device: Any = None,
    requires_grad: bool = False,
) -> Any:  # fmt: skip
    n = window_length
    if not open_number(trace, dtype, requires_grad, n) or type(periodic) is not bool or type(beta) is not float or not bool(n > 1):
        return NotImplemented
    x = apply(trace, aten.kaiser_window.beta, n + 1 if periodic else n, False, beta, dtype=dtype, device=default_device(device))
    return ORIGINAL.narrow(x, 0, 0, n) if periodic else x


#: Functions of no tensor that take numbers, by function: called with the trace and their arguments. May raise `NotDecomposed`.
FACTORIES: dict[Any, Callable[..., Any]] = {
    torch.linspace: linspace,
    torch.logspace: logspace,
    torch.tril_indices: triangle(aten.tril_indices.default),
    torch.triu_indices: triangle(aten.triu_indices.default),
    torch.hann_window: window(functools.partial(raised_cosine, alpha=0.5, beta=0.5)),
    torch.hamming_window: window(raised_cosine),
    torch.blackman_window: window(blackman),
    torch.kaiser_window: kaiser,
}

#: Operators that are recorded with symbolic numbers which their schema does not take: called through PyTorch they would pin them.
PAST_SCHEMAS = frozenset(
    (aten.linspace.default, aten.logspace.default, aten.tril_indices.default, aten.triu_indices.default, aten.kaiser_window.beta)
)


#: By function: called with its arguments. May raise `NotDecomposed`.
def of_lengths(loss: Callable[..., Any]) -> Callable[..., Any]:
    """`ctc_loss` of lengths in lists, which wants to look at memory: they are made tensors, of which PyTorch makes such lists."""

    def decomposed(log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any, *options: Any, **named: Any) -> Any:
        lengths = input_lengths, target_lengths
        if type(log_probs) is not TracedTensor or type(targets) is not TracedTensor or not free(trace := log_probs.owner()):
            return NotImplemented
        if not all([type(n) in (list, tuple) and n and {type(i) for i in n} <= {int, torch.SymInt} for n in lengths]):
            return NotImplemented
        how = {"dtype": torch.int64, "device": torch.device("cpu")}
        made = [torch.stack([apply(trace, aten.scalar_tensor.default, i, **how) for i in n]) for n in lengths]
        return loss(log_probs, targets, *made, *options, **named)

    return decomposed


DECOMPOSITIONS: dict[Any, Callable[..., Any]] = in_place_of({
    torch.ctc_loss: of_lengths(torch.ctc_loss),
    torch.nn.functional.ctc_loss: of_lengths(torch.nn.functional.ctc_loss),
    torch.nn.functional.linear: linear,
    torch.nn.functional.layer_norm: layer_norm,
    torch.nn.functional.dropout: dropout,
    torch.nn.functional.scaled_dot_product_attention: attention,
    torch.Tensor.reshape: reshape,
    torch.Tensor.contiguous: contiguous,
    torch.Tensor.fill_diagonal_: fill_diagonal_,
    operator.add: pointwise(aten.add.Tensor),
    operator.sub: pointwise(aten.sub.Tensor),
    operator.mul: pointwise(aten.mul.Tensor),
    operator.truediv: pointwise(aten.div.Tensor),
    torch.nn.functional.gelu: pointwise(aten.gelu.default, 1),
})  # fmt: skip


def decompose(fn: Any, args: tuple, kwargs: dict, trace: Any) -> Any:
    """The result of `fn(*args, **kwargs)`, its operators recorded; NotImplemented, and nothing recorded, where PyTorch must say."""
    decomposed = DECOMPOSITIONS.get(fn)
    if decomposed is None:
        if fn not in FACTORIES:
            return NotImplemented
        decomposed = functools.partial(FACTORIES[fn], trace)
    elif not as_it_was(fn):
        return NotImplemented
    return tried(trace, decomposed, args, kwargs)


def tried(
    trace: Any, own: Callable[..., Any], args: tuple, kwargs: dict, refusals: tuple = (NotDecomposed, TypeError, RuntimeError)
) -> Any:
    """What a decomposition gives; NotImplemented, and nothing recorded, where it does not know."""
    n = len(trace.ops)
    try:
        out = own(*args, **kwargs)
    except refusals:  # a wrong program: PyTorch's own error is the one to see
        out = NotImplemented
    if out is NotImplemented:
        trace.take_back(n)
    return out
