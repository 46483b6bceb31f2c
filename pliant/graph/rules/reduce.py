"""Reductions, scans, sorting and softmax. On the CPU their results are row-major whatever the input's strides are."""

from __future__ import annotations

from typing import Any

import torch

from pliant.graph.rules.misfits import misfit, one_size
from pliant.graph.rules.shape import category, in_range, new, preserved_strides, same, strided, wrap
from pliant.graph.rules.table import add, aten, rule
from pliant.graph.traced import TracedTensor


def reduced(x: TracedTensor, dims: Any, keepdim: bool) -> tuple | None:
    """Sizes after reducing `dims` (None or empty: all); None if a dim is out of range or named twice."""
    n = len(x.sizes)
    if isinstance(dims, int):
        dims = [dims]
    gone = {wrap(d, n) for d in dims} if dims else set(range(n))
    if None in gone or (dims and len(gone) != len(dims)):
        return None
    if keepdim:
        return tuple([1 if d in gone else s for d, s in enumerate(x.sizes)])
    return tuple([s for d, s in enumerate(x.sizes) if d not in gone])


def is_empty(x: TracedTensor) -> bool:
    """Reductions without a neutral element raise on empty inputs: left to PyTorch."""
    return any([type(s) is int and s == 0 for s in x.sizes])


def widened(dtype: torch.dtype) -> torch.dtype:
    return torch.int64 if category(dtype) < 2 else dtype


@rule("sum", "prod")
def total(trace: Any, x: TracedTensor, *, dtype: Any = None) -> Any:
    return new(trace, (), dtype or widened(x.dtype), x.device)


@rule("sum.dim_IntList", "prod.dim_int", "nansum")
def sum_dims(trace: Any, x: TracedTensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    sizes = reduced(x, dim, keepdim)
    return new(trace, sizes, dtype or widened(x.dtype), x.device) if sizes is not None else NotImplemented


@rule("mean.dim")
def mean_dims(trace: Any, x: TracedTensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    sizes, dtype = reduced(x, dim, keepdim), dtype or x.dtype
    return new(trace, sizes, dtype, x.device) if sizes is not None and category(dtype) >= 2 else NotImplemented


@rule("mean")
def mean(trace: Any, x: TracedTensor, *, dtype: Any = None) -> Any:
    return mean_dims(trace, x, None, False, dtype=dtype)


@rule("amax", "amin")
def extremum(trace: Any, x: TracedTensor, dim: Any = (), keepdim: bool = False) -> Any:
    sizes = reduced(x, dim, keepdim)
    if len(x.sizes) > MOST_REDUCED:
        raise RuntimeError(f"only tensors with up to {MOST_REDUCED} dims are supported")
    if sizes is None or is_empty(x) or category(x.dtype) == 3:
        return NotImplemented
    return new(trace, sizes, x.dtype, x.device)


MOST_REDUCED = 64
"""Dims of a tensor that kernels reduce."""


@rule("max", "min")
def extremum_all(trace: Any, x: TracedTensor) -> Any:
    return extremum(trace, x)


@rule("any", "all", "any.dim", "all.dim", "any.dims", "all.dims")
def truth(trace: Any, x: TracedTensor, dim: Any = None, keepdim: bool = False) -> Any:
    sizes = reduced(x, dim, keepdim) if dim is None or isinstance(dim, int) or dim else None
    dtype = torch.uint8 if x.dtype is torch.uint8 else torch.bool
    return new(trace, sizes, dtype, x.device) if sizes is not None else NotImplemented


def position(name: str) -> Any:
    def rule(trace: Any, x: TracedTensor, dim: Any = None, keepdim: bool = False) -> Any:
        sizes = reduced(x, dim, keepdim)
        if dim is None and is_empty(x):  # PyTorch's meta kernel raises another exception than the kernels do
            raise IndexError(f"{name}(): Expected reduction dim to be specified for input.numel() == 0.")
        if sizes is None or is_empty(x) or category(x.dtype) not in (1, 2):
            return NotImplemented
        return new(trace, sizes, torch.int64, x.device)

    return rule


add(position("argmax"), "argmax")
add(position("argmin"), "argmin")


@rule("max.dim", "min.dim", "median.dim", "mode")
def extremum_with_index(trace: Any, x: TracedTensor, dim: int = -1, keepdim: bool = False) -> Any:
    sizes = reduced(x, dim, keepdim)
    if sizes is None or is_empty(x) or category(x.dtype) == 3:
        return NotImplemented
    return new(trace, sizes, x.dtype, x.device), new(trace, sizes, torch.int64, x.device)


def spread(count: int) -> Any:
    def rule(trace: Any, x: TracedTensor, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
        sizes = reduced(x, dim, keepdim)
        if sizes is None or category(x.dtype) != 2:
            return NotImplemented
        out = tuple(new(trace, sizes, x.dtype, x.device) for _ in range(count))
        return out if count > 1 else out[0]

    return rule


add(spread(1), "var.correction", "std.correction")
add(spread(2), "var_mean.correction", "std_mean.correction")


@rule("logsumexp")
def logsumexp(trace: Any, x: TracedTensor, dim: Any, keepdim: bool = False) -> Any:
    sizes = reduced(x, dim, keepdim)
    return new(trace, sizes, x.dtype, x.device) if sizes is not None and category(x.dtype) == 2 else NotImplemented


@rule("linalg_vector_norm")
def vector_norm(trace: Any, x: TracedTensor, ord: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    sizes = reduced(x, dim, keepdim)
    if sizes is None or category(x.dtype) != 2 or is_empty(x):
        return NotImplemented
    if dtype is not None and category(dtype) != 2:
        return misfit(trace, aten.linalg_vector_norm.default, x, ord, dim, keepdim, dtype=dtype)
    return new(trace, sizes, dtype or x.dtype, x.device)


@rule("cumsum", "cumprod")
def scan(trace: Any, x: TracedTensor, dim: int, *, dtype: Any = None) -> Any:
    ok = wrap(dim, len(x.sizes)) is not None
    return new(trace, x.sizes, dtype or widened(x.dtype), x.device) if ok else NotImplemented


@rule("_softmax", "_log_softmax")
def softmax(trace: Any, x: TracedTensor, dim: int, half_to_float: bool) -> Any:
    ok = in_range(len(x.sizes), dim) and category(x.dtype) == 2 and not half_to_float
    return new(trace, x.sizes, x.dtype, x.device) if ok else NotImplemented


@rule("_safe_softmax")
def safe_softmax(trace: Any, x: TracedTensor, dim: int, dtype: Any = None) -> Any:
    ok = in_range(len(x.sizes), dim) and dtype in (None, x.dtype) and category(x.dtype) == 2
    return new(trace, x.sizes, x.dtype, x.device) if ok else NotImplemented


def softmax_backward(func: Any) -> Any:
    def rule_of(trace: Any, grad: TracedTensor, out: TracedTensor, dim: int, input_dtype: torch.dtype) -> Any:
        in_range(len(grad.sizes), dim)
        if not one_size(trace, grad.sizes, out.sizes):
            return misfit(trace, func, grad, out, dim, input_dtype)
        return new(trace, grad.sizes, input_dtype, grad.device) if grad.dtype is input_dtype else NotImplemented

    return rule_of


add(softmax_backward(aten._softmax_backward_data.default), "_softmax_backward_data")
add(softmax_backward(aten._log_softmax_backward_data.default), "_log_softmax_backward_data")


@rule("sort", "sort.stable")
def sort(trace: Any, x: TracedTensor, *args: Any, **kwargs: Any) -> Any:
    in_range(len(x.sizes), kwargs.get("dim", args[0] if args else -1))
    strides = preserved_strides(trace, x)
    return strided(trace, x.sizes, strides, x.dtype, x.device), strided(trace, x.sizes, strides, torch.int64, x.device)


@rule("topk")
def topk(trace: Any, x: TracedTensor, k: Any, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    d = wrap(dim, len(x.sizes))
    if d is None or not x.sizes or not (type(k) is type(x.sizes[d]) is int and 0 <= k <= x.sizes[d] or same(k, x.sizes[d])):
        return NotImplemented
    sizes = (*x.sizes[:d], k, *x.sizes[d + 1 :])
    return new(trace, sizes, x.dtype, x.device), new(trace, sizes, torch.int64, x.device)
