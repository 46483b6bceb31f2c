"""Reductions: sums, products, extremes, moments, questions about all elements, and scans."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any

from pliant.graph.originals import ORIGINAL, math, torch
from pliant.graph.originals import numpy as np
from pliant.graph.symnode import concrete
from pliant.interpret.arrays.dtypes import BOOL, CANON, FLOAT64, INT64, SCARCE, TORCH, Unsure, dtype_of, fits
from pliant.interpret.arrays.operands import asarray, fresh, to
from pliant.interpret.arrays.proxies import TracedArray, array, scalar_of, whole_array
from pliant.interpret.arrays.table import function
from pliant.interpret.arrays.ufuncs import t
from pliant.interpret.gate import index
from pliant.interpret.slots import unpack


def axes_of(axis: Any, ndim: int) -> tuple[int, ...]:
    """The dims that `axis` names, all of them for None."""
    if axis is None:
        return tuple(range(ndim))
    given = axis if type(axis) is tuple else (axis,)
    out = tuple([one_axis(x, ndim) for x in given])
    if len(set(out)) != len(out):
        raise Unsure("an axis twice")
    return out


def is_zero(n: Any) -> bool:
    """Whether a size is 0, which is guarded; one that data choose is not asked."""
    return bool(n == 0) if type(n) is int or n.node.expr.backed else False


def one_axis(x: Any, ndim: int) -> int:
    if type(x) is bool or type(x) is list:
        raise Unsure("an axis")
    n = concrete(index(x))
    if not -ndim <= n < ndim:
        raise Unsure("an axis that is not there")
    return n % ndim  # type: ignore[return-value]


def source_of(a: Any) -> TracedArray:
    return asarray(a)


def plain(keepdims: Any) -> bool:
    if keepdims is np._NoValue:
        return False
    if type(keepdims) is not bool:
        raise Unsure("keepdims")
    return keepdims


def count_of(a: TracedArray, axes: tuple[int, ...]) -> Any:
    return math.prod([a.sizes[d] for d in axes])


def kept(r: Any, a: TracedArray, axes: tuple[int, ...], keepdims: bool) -> Any:
    """Give a result back the dims that it was reduced over."""
    if keepdims:
        for d in sorted(axes):
            r = t(torch.unsqueeze, r, d)
    return r


def summed_dtype(a: TracedArray, dtype: Any) -> np.dtype:
    """The dtype of a sum: ints and bools are added up in the widest of their sign."""
    if dtype is not None:
        return dtype_of(dtype)
    if a.dtype.kind in "bi":
        return INT64
    return CANON["uint64"] if a.dtype.kind == "u" else a.dtype


def within(dt: np.dtype) -> np.dtype:
    """In which dtype it is added up: uint64 wraps around as int64 does."""
    return INT64 if TORCH[dt] in SCARCE else dt


def of_numbers(fold: Callable[[list], Any], a: Any, *settings: Any) -> Any:
    """The sum or product of a shape, or of a sequence of ints that are known to fit: a number, and no array. None for anything else."""
    if type(a) not in (tuple, list, torch.Size) or any([s is not None and s is not np._NoValue for s in settings]):
        return None
    items = unpack(a)
    if not items or any([type(n) is not int and type(n) is not torch.SymInt for n in items]):
        return None
    r = fold(items)
    return scalar_of(r, INT64) if fits(r, INT64) else None


def finish(r: Any, dt: np.dtype) -> Any:
    return array(to(r, dt))


@function(np.sum)
def sum(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = np._NoValue) -> Any:
    none(out)
    if (number := of_numbers(builtins.sum, a, axis, dtype, keepdims)) is not None:
        return number
    a, keep = source_of(a), plain(keepdims)
    axes, dt = axes_of(axis, a.ndim), summed_dtype(a, dtype)
    if dt.kind == "b":
        raise Unsure("a sum of bools as a bool")
    x = to(a.tensor, within(dt))
    r = t(torch.sum, x, axes, keep) if axes else fresh(x, a.found)
    return finish(r if axes else t(torch.clone, r), dt)


@function(np.prod)
def prod(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = np._NoValue) -> Any:
    none(out)
    if (number := of_numbers(math.prod, a, axis, dtype, keepdims)) is not None:
        return number
    a, keep = source_of(a), plain(keepdims)
    axes, dt = axes_of(axis, a.ndim), summed_dtype(a, dtype)
    if dt.kind == "b":
        raise Unsure("a product of bools as a bool")
    x = to(a.tensor, within(dt))
    if len(axes) == a.ndim and a.ndim and not keep:
        return finish(t(torch.prod, t(torch.reshape, x, (-1,)), 0), dt)
    for d in sorted(axes, reverse=True):
        x = t(torch.prod, x, d)
    return finish(kept(fresh(x, a.found), a, axes, keep), dt)


def none(*keywords: Any) -> None:
    if any([k is not None for k in keywords]):
        raise Unsure("out=")


def float_of(a: TracedArray, dtype: Any) -> tuple[Any, np.dtype]:
    """(the tensor in which a mean is computed, the dtype of the mean)."""
    if dtype is not None:
        dt = dtype_of(dtype)
    else:
        dt = FLOAT64 if a.dtype.kind in "biu" else a.dtype
    if dt.kind not in "f":
        raise Unsure(f"a mean of {dt}")
    inner = CANON["float32"] if dt.itemsize == 2 else dt
    return to(a.tensor, inner), dt


def real(n: Any) -> Any:
    return float(n) if type(n) is int else torch.sym_float(n)


@function(np.mean)
def mean(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = np._NoValue) -> Any:
    none(out)
    a, keep = source_of(a), plain(keepdims)
    axes = axes_of(axis, a.ndim)
    x, dt = float_of(a, dtype)
    return finish(averaged(x, a, axes, keep), dt)


def averaged(x: Any, a: TracedArray, axes: tuple[int, ...], keep: bool) -> Any:
    return t(torch.div, t(torch.sum, x, axes, keep), real(count_of(a, axes))) if axes else t(torch.clone, x)


def spread(a: Any, axis: Any, dtype: Any, out: Any, ddof: Any, keepdims: Any, root: bool) -> Any:
    none(out)
    a, keep = source_of(a), plain(keepdims)
    axes = axes_of(axis, a.ndim)
    if type(ddof) not in (int, float):
        raise Unsure("ddof")
    x, dt = float_of(a, dtype)
    if not axes:
        raise Unsure("a variance over nothing")
    n = real(count_of(a, axes))
    d = t(torch.sub, x, t(torch.div, t(torch.sum, x, axes, True), n))
    left = torch.sym_max(n - ddof, 0.0) if type(n) is not float else max(n - ddof, 0.0)
    squares = t(torch.sum, t(torch.mul, d, d), axes, keep)
    r = t(torch.div, squares, left)
    return finish(t(torch.sqrt, r) if root else r, dt)


@function(np.var)
def var(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: Any = 0, keepdims: Any = np._NoValue) -> Any:
    return spread(a, axis, dtype, out, ddof, keepdims, False)


@function(np.std)
def std(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: Any = 0, keepdims: Any = np._NoValue) -> Any:
    return spread(a, axis, dtype, out, ddof, keepdims, True)


# -- extremes -----------------------------------------------------------------------------------------------------------------
def ordered(a: TracedArray) -> Any:
    """A tensor that torch can compare: bools as bytes."""
    if a.dtype.kind == "c" or TORCH[a.dtype] in SCARCE:
        raise Unsure(f"the order of {a.dtype}")
    return t(ORIGINAL.to, a.tensor, torch.uint8) if a.dtype == BOOL else a.tensor


def extreme(fn: Any) -> Callable[..., Any]:
    def compute(a: Any, axis: Any = None, out: Any = None, keepdims: Any = np._NoValue) -> Any:
        none(out)
        a, keep = source_of(a), plain(keepdims)
        axes = axes_of(axis, a.ndim)
        if not axes:
            return array(t(torch.clone, a.tensor))
        return finish(t(fn, ordered(a), axes, keep), a.dtype)

    return compute


amax, amin = extreme(torch.amax), extreme(torch.amin)
function(np.max, np.amax)(amax)
function(np.min, np.amin)(amin)


@function(np.ptp)
def ptp(a: Any, axis: Any = None, out: Any = None, keepdims: Any = np._NoValue) -> Any:
    none(out)
    a, keep = source_of(a), plain(keepdims)
    axes = axes_of(axis, a.ndim)
    if a.dtype == BOOL or not axes:
        raise Unsure("the range of bools")
    x = ordered(a)
    return finish(t(torch.sub, t(torch.amax, x, axes, keep), t(torch.amin, x, axes, keep)), a.dtype)


def position(fn: Any) -> Callable[..., Any]:
    def compute(a: Any, axis: Any = None, out: Any = None, *, keepdims: Any = np._NoValue) -> Any:
        none(out)
        a, keep = source_of(a), plain(keepdims)
        if axis is None and keep:
            raise Unsure("keepdims without an axis")
        if not a.ndim:
            raise Unsure("the position in an array without dims")
        x = ordered(a)
        if axis is None:
            return array(t(fn, t(torch.reshape, x, (-1,)), 0))
        return array(t(fn, x, one_axis(axis, a.ndim), keep))

    return compute


argmax, argmin = position(torch.argmax), position(torch.argmin)
function(np.argmax)(argmax)
function(np.argmin)(argmin)


# -- questions ----------------------------------------------------------------------------------------------------------------
def question(fn: Any) -> Callable[..., Any]:
    def compute(a: Any, axis: Any = None, out: Any = None, keepdims: Any = np._NoValue) -> Any:
        none(out)
        a, keep = source_of(a), plain(keepdims)
        axes = axes_of(axis, a.ndim)
        x = truths(a)
        if len(axes) == a.ndim and not keep:
            return array(t(fn, x))
        for d in sorted(axes, reverse=True):
            x = t(fn, x, d, keep)
        return array(fresh(x, a.found))

    return compute


def truths(a: TracedArray) -> Any:
    return a.tensor if a.dtype == BOOL else t(torch.ne, to(a.tensor, INT64) if TORCH[a.dtype] in SCARCE else a.tensor, 0)


any_, all_ = question(torch.any), question(torch.all)
function(np.any)(any_)
function(np.all)(all_)


COUNTS_IN_PYTHON = type(np.count_nonzero(np.zeros(1))) is int  # versions differ


@function(np.count_nonzero)
def count_nonzero(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    a = source_of(a)
    if axis is None and not keepdims and COUNTS_IN_PYTHON:
        return t(ORIGINAL.item, t(torch.sum, truths(a), dtype=torch.int64))
    axes = axes_of(axis, a.ndim)
    if not axes:
        raise Unsure("a count over no dims")  # to `sum` these are all
    return array(t(torch.sum, truths(a), axes, plain(keepdims), dtype=torch.int64))


# -- scans ----------------------------------------------------------------------------------------------------------------------
def scan(fn: Any) -> Callable[..., Any]:
    def compute(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
        none(out)
        a = source_of(a)
        dt = summed_dtype(a, dtype)
        if dt.kind not in "iuf":
            raise Unsure(f"a scan of {dt}")
        x = to(a.tensor, within(dt))
        if axis is None:
            x = t(torch.reshape, x, (-1,))
        r = t(fn, x, 0 if axis is None else one_axis(axis, a.ndim))
        return whole_array(to(r, dt))

    return compute


cumsum, cumprod = scan(torch.cumsum), scan(torch.cumprod)
function(np.cumsum)(cumsum)
function(np.cumprod)(cumprod)


@function(np.average)
def average(a: Any, axis: Any = None, weights: Any = None, returned: bool = False, *, keepdims: Any = np._NoValue) -> Any:
    if returned is not False:
        raise Unsure("returned=")
    if weights is None:
        a = source_of(a)
        axes = axes_of(axis, a.ndim)
        if any([is_zero(n) for d, n in enumerate(a.sizes) if d not in axes]):
            raise Unsure("an average without elements")
        return mean(a, axis, None, None, keepdims)
    a, w = source_of(a), source_of(weights)
    if plain(keepdims) or a.ndim != w.ndim or a.ndim == 0 or a.dtype.kind == "c" or w.dtype.kind == "c":
        raise Unsure("weights of another shape")
    dt = np.result_type(a.dtype, w.dtype, "f8") if a.dtype.kind in "biu" else np.result_type(a.dtype, w.dtype)
    if dt.itemsize < 4:
        raise Unsure(f"weights in {dt}")
    axes = axes_of(axis, a.ndim)
    x, y = to(a.tensor, dt), to(w.tensor, dt)
    if not all([bool(p == q) for p, q in zip(a.sizes, w.sizes, strict=True)]):
        raise Unsure("weights of another shape")
    total = t(torch.sum, y, axes)
    holds(t(torch.ne, total, 0))
    return finish(t(torch.div, t(torch.sum, t(torch.mul, x, y), axes), total), dt)


def holds(condition: Any) -> None:
    """What NumPy refuses where it is false somewhere: the graph raises there, and CPython tells what NumPy says."""
    t(torch._assert_async, t(torch.all, condition))
