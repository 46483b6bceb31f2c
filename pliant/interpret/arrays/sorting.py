"""Sorting, searching, sets, quantiles.

NumPy's default sort leaves open in which order equal keys come, and another version of it would be another answer: `argsort` and the
partitions without `kind="stable"` are NumPy's own, called by the graph as operators (`pliant_numpy::…`).
"""

from __future__ import annotations

from typing import Any

from pliant.graph.originals import ORIGINAL, operator, torch
from pliant.graph.originals import numpy as np
from pliant.graph.symnode import concrete
from pliant.interpret.arrays import reductions
from pliant.interpret.arrays.dtypes import BOOL, FLOAT64, INT64, Unsure
from pliant.interpret.arrays.numpy_operators import operator_of_numpy, positions
from pliant.interpret.arrays.operands import fresh, number_in, operand, scalar_operand, tensor_in, to
from pliant.interpret.arrays.proxies import TracedArray, array, scalar, whole_array
from pliant.interpret.arrays.reductions import (
    averaged,
    axes_of,
    float_of,
    holds,
    is_zero,
    kept,
    none,
    one_axis,
    ordered,
    plain,
    question,
    source_of,
)
from pliant.interpret.arrays.reductions import finish as finished
from pliant.interpret.arrays.table import function
from pliant.interpret.arrays.ufuncs import t
from pliant.interpret.gate import index
from pliant.interpret.slots import unpack
from pliant.interpret.state import vm

ARGSORT = operator_of_numpy("argsort(Tensor x, int dim) -> Tensor", lambda x, dim: np.argsort(x.numpy(), axis=dim), positions)
ARGPARTITION = operator_of_numpy(
    "argpartition(Tensor x, SymInt kth, int dim) -> Tensor", lambda x, kth, dim: np.argpartition(x.numpy(), kth, axis=dim), positions
)


def stable(kind: Any, given: Any, order: Any) -> bool:
    if order is not None or kind not in (None, "quicksort", "stable", "mergesort", "heapsort") or type(given) not in (type(None), bool):
        raise Unsure("keywords")
    if kind is not None and given is not None:
        raise Unsure("both ways to ask for a stable order")
    return kind in ("stable", "mergesort") or given is True


def flat_or(a: TracedArray, axis: Any) -> tuple[Any, int]:
    x = ordered(a)
    if axis is None:
        return t(torch.reshape, x, (-1,)), 0
    return x, one_axis(axis, a.ndim)


@function(np.sort)
def sort(a: Any, axis: Any = -1, kind: Any = None, order: Any = None, *, stable: Any = None) -> Any:
    a = source_of(a)
    x, d = flat_or(a, axis)
    is_stable(kind, stable, order)
    if not a.ndim:
        raise Unsure("no dims")
    return whole_array(to(t(torch.sort, x, dim=d, stable=True)[0], a.dtype))


@function(np.argsort)
def argsort(a: Any, axis: Any = -1, kind: Any = None, order: Any = None, *, stable: Any = None) -> Any:
    a = source_of(a)
    if not a.ndim:
        raise Unsure("no dims")
    if is_stable(kind, stable, order):
        x, d = flat_or(a, axis)
        return whole_array(t(torch.sort, x, dim=d, stable=True)[1])
    x = t(torch.reshape, a.tensor, (-1,)) if axis is None else a.tensor
    ordered(a)
    return whole_array(t(ARGSORT, x, 0 if axis is None else one_axis(axis, a.ndim)))


is_stable = stable


@function(np.argpartition)
def argpartition(a: Any, kth: Any, axis: Any = -1, kind: str = "introselect", order: Any = None) -> Any:
    a = source_of(a)
    if kind != "introselect" or order is not None or axis is None or type(kth) in (tuple, list, TracedArray):
        raise Unsure("keywords")
    ordered(a)
    return whole_array(t(ARGPARTITION, a.tensor, index(kth), one_axis(axis, a.ndim)))


@function(np.partition)
def partition(a: Any, kth: Any, axis: Any = -1, kind: str = "introselect", order: Any = None) -> Any:
    raise Unsure("the order around a partition")


@function(np.lexsort)
def lexsort(keys: Any, axis: Any = -1) -> Any:
    """The last key counts most."""
    made = [source_of(k) for k in (unpack(keys) if type(keys) in (tuple, list) else list(vm.iter(keys)))]
    if not made or any([k.ndim != 1 for k in made]) or axis not in (-1, 0):
        raise Unsure("keys")
    if any([k.tensor.shape[0] != made[0].tensor.shape[0] for k in made[1:]]):
        raise Unsure("keys of other lengths")
    order = t(torch.sort, ordered(made[0]), dim=0, stable=True)[1]
    for k in made[1:]:
        by = t(torch.sort, t(torch.index_select, ordered(k), 0, order), dim=0, stable=True)[1]
        order = t(torch.index_select, order, 0, by)
    return whole_array(order)


@function(np.searchsorted)
def searchsorted(a: Any, v: Any, side: str = "left", sorter: Any = None) -> Any:
    if sorter is not None or side not in ("left", "right"):
        raise Unsure("keywords")
    a = source_of(a)
    rule, o = operand(v)
    dt = np.result_type(a.dtype, rule(1) if isinstance(rule, type) else rule)
    if a.ndim != 1 or dt.kind not in "iuf" or dt.itemsize < 4 and dt.kind == "f":
        raise Unsure(f"a search in {dt}")
    x = t(ORIGINAL.contiguous, to(a.tensor, dt))
    y = tensor_in(o, dt)
    r = t(torch.searchsorted, x, t(ORIGINAL.contiguous, y), right=side == "right")
    return scalar(r) if scalar_operand(o) else whole_array(r)


@function(np.bincount)
def bincount(x: Any, /, weights: Any = None, minlength: Any = 0) -> Any:
    a = source_of(x)
    if a.ndim != 1 or a.dtype.kind not in "iu" or not np.can_cast(a.dtype, INT64):
        raise Unsure("what is counted")
    w = None if weights is None else to(source_of(weights).tensor, FLOAT64)
    return whole_array(t(torch.bincount, to(a.tensor, INT64), w, index(minlength)))


# -- sets --------------------------------------------------------------------------------------------------------------------
@function(np.unique)
def unique(
    ar: Any, return_index: bool = False, return_inverse: bool = False, return_counts: bool = False, axis: Any = None, *,
    equal_nan: bool = True, sorted: bool = True,
) -> Any:  # fmt: skip
    """As NumPy does it: sort, and look where a new value begins."""
    a = source_of(ar)
    if axis is not None or sorted is not True or equal_nan is not True or not a.ndim:
        raise Unsure("keywords")
    x = t(torch.reshape, ordered(a), (-1,))
    values, order = t(torch.sort, x, dim=0, stable=True)
    before, after = t(operator.getitem, values, slice(None, -1)), t(operator.getitem, values, slice(1, None))
    new = t(torch.ne, after, before)
    if a.dtype.kind == "f":
        new = t(torch.logical_and, new, t(torch.logical_not, t(torch.logical_and, t(torch.isnan, after), t(torch.isnan, before))))
    head = t(operator.getitem, t(torch.ones_like, values, dtype=torch.bool), slice(None, 1))
    mask = t(torch.cat, [head, new], 0)
    places = t(torch.nonzero, mask, as_tuple=True)[0]
    out = [whole_array(to(t(torch.index_select, values, 0, places), a.dtype))]
    if return_index:
        out.append(whole_array(t(torch.index_select, order, 0, places)))
    if return_inverse:
        ranks = t(torch.sub, t(torch.cumsum, mask, 0), 1)
        inverse = t(torch.scatter, t(torch.zeros_like, ranks), 0, order, ranks)
        out.append(whole_array(t(torch.reshape, inverse, a.sizes)))
    if return_counts:
        n = t(torch.full, (1,), x.sizes[0], dtype=torch.int64)
        ends = t(torch.cat, [t(operator.getitem, places, slice(1, None)), n], 0)
        out.append(whole_array(t(torch.sub, ends, places)))
    return out[0] if len(out) == 1 else tuple(out)


@function(np.isin)
def isin(element: Any, test_elements: Any, assume_unique: bool = False, invert: bool = False, *, kind: Any = None) -> Any:
    a, b = source_of(element), source_of(test_elements)
    dt = np.result_type(a.dtype, b.dtype)
    if kind is not None or dt.kind not in "iuf" or type(invert) is not bool or type(assume_unique) is not bool or not a.ndim:
        raise Unsure("keywords")
    return whole_array(t(torch.isin, to(a.tensor, dt), to(b.tensor, dt), invert=invert))


@function(np.union1d)
def union1d(ar1: Any, ar2: Any) -> Any:
    a, b = source_of(ar1), source_of(ar2)
    if not (type(ar1) is type(ar2) is TracedArray):
        raise Unsure("numbers, which have no dtype")
    dt = np.result_type(a.dtype, b.dtype)
    parts = [t(torch.reshape, to(x.tensor, dt), (-1,)) for x in (a, b)]
    return unique(whole_array(t(torch.cat, parts, 0)))


@function(np.setdiff1d)
def setdiff1d(ar1: Any, ar2: Any, assume_unique: bool = False) -> Any:
    if assume_unique is not False:
        raise Unsure("keywords")
    a, b = unique(ar1), source_of(ar2)
    return vm.getitem(a, isin(a, b, invert=True))


@function(np.intersect1d)
def intersect1d(ar1: Any, ar2: Any, assume_unique: bool = False, return_indices: bool = False) -> Any:
    if assume_unique is not False or return_indices is not False:
        raise Unsure("keywords")
    a, b = unique(ar1), source_of(ar2)
    if np.result_type(a.dtype, b.dtype) != a.dtype:
        raise Unsure("two dtypes")
    return vm.getitem(a, isin(a, b))


# -- differences, quantiles ----------------------------------------------------------------------------------------------------
@function(np.diff)
def diff(a: Any, n: Any = 1, axis: Any = -1, prepend: Any = np._NoValue, append: Any = np._NoValue) -> Any:
    a = source_of(a)
    if type(n) is not int or n < 0 or prepend is not np._NoValue or append is not np._NoValue or not a.ndim:
        raise Unsure("keywords")
    d = one_axis(axis, a.ndim)
    x = a.tensor
    if a.dtype.kind not in "biufc" or a.dtype.name in ("uint16", "uint32", "uint64"):
        raise Unsure(f"differences of {a.dtype}")
    for _ in range(n):
        hi, lo = [t(operator.getitem, x, (*[slice(None)] * d, s)) for s in (slice(1, None), slice(None, -1))]
        x = t(torch.ne, hi, lo) if a.dtype == BOOL else t(torch.sub, hi, lo)
    return whole_array(fresh(x, a.found)) if n else a


def quantiles(a: Any, q: Any, axis: Any, out: Any, overwrite: Any, method: str, keepdims: Any, scale: float, omit: bool = False) -> Any:
    """Between the two nearest elements in order, with NumPy's own interpolation."""
    none(out)
    a, keep = source_of(a), plain(keepdims)
    if overwrite is not False or method != "linear" or a.dtype.kind not in "iuf" or a.dtype.kind == "f" and a.dtype.itemsize < 4:
        raise Unsure("keywords")
    rule, o = operand(q)
    if not (scalar_operand(o) or o.ndim == 1):
        raise Unsure("quantiles")
    axes = axes_of(axis, a.ndim)
    if scale == 1 and a.dtype.kind in "iu" and (rule.kind if isinstance(rule, np.dtype) else np.dtype(rule).kind) != "f":
        raise Unsure("quantiles that are integers, of integers")
    dt = FLOAT64 if a.dtype.kind in "iu" else a.dtype
    if isinstance(rule, np.dtype):
        dt = np.result_type(dt, rule if rule.kind == "f" else FLOAT64)
    if dt != FLOAT64 and isinstance(rule, np.dtype) or len(axes) not in (1, a.ndim) or not axes:
        raise Unsure("quantiles")
    x = ordered(a)
    x = t(torch.reshape, x, (-1,)) if len(axes) == a.ndim else x
    d = 0 if len(axes) == a.ndim else axes[0]
    x = t(torch.movedim, t(torch.sort, x, dim=d, stable=True)[0], d, 0)
    n = x.sizes[0]
    if is_zero(n):
        raise Unsure("quantiles of nothing")
    share = t(torch.div, tensor_in(o, FLOAT64), scale) if scale != 1 else tensor_in(o, FLOAT64)
    if type(o) in (int, float, bool):
        if not 0 <= o <= scale:
            raise Unsure("what is no share")
    else:
        holds(t(torch.logical_and, t(torch.ge, share, 0), t(torch.le, share, 1)))
    at = t(torch.mul, share, n - 1)
    low = t(torch.floor, at)
    gamma = t(torch.sub, at, low)
    i = t(ORIGINAL.to, low, torch.int64)
    j = t(torch.clamp, t(torch.add, i, 1), max=n - 1)
    flat_i, flat_j = t(torch.reshape, i, (-1,)), t(torch.reshape, j, (-1,))
    lo, hi = t(torch.index_select, x, 0, flat_i), t(torch.index_select, x, 0, flat_j)
    lo, hi = to(lo, dt), to(hi, dt)
    weight = t(torch.reshape, to(gamma, dt), (-1, *[1] * (ORIGINAL.dim(x) - 1)))
    step = t(torch.sub, hi, lo)
    r = t(torch.add, lo, t(torch.mul, step, weight))
    r = t(torch.where, t(torch.ge, weight, 0.5), t(torch.sub, hi, t(torch.mul, step, t(torch.rsub, weight, 1))), r)
    r = t(torch.where, t(torch.eq, lo, hi), lo, r)
    if a.dtype.kind == "f":
        last = to(t(torch.select, x, 0, n - 1), dt)
        r = t(torch.where, t(torch.isnan, last), last, r)
    r = t(torch.select, r, 0, 0) if not ORIGINAL.dim(i) else r
    if keep:
        if ORIGINAL.dim(i):
            raise Unsure("keepdims")
        r = kept(r, a, axes, True)
    return array(r)


@function(np.percentile)
def percentile(
    a: Any, q: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False, method: str = "linear", keepdims: Any = False
) -> Any:
    return quantiles(a, q, axis, out, overwrite_input, method, keepdims, 100.0)


@function(np.quantile)
def quantile(
    a: Any, q: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False, method: str = "linear", keepdims: Any = False
) -> Any:
    return quantiles(a, q, axis, out, overwrite_input, method, keepdims, 1.0)


@function(np.median)
def median(a: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False, keepdims: Any = False) -> Any:
    """The mean of the one or two elements in the middle."""
    none(out)
    a, keep = source_of(a), plain(keepdims)
    axes = axes_of(axis, a.ndim)
    if overwrite_input is not False or a.dtype.kind not in "iuf" or len(axes) not in (1, a.ndim) or not axes:
        raise Unsure("keywords")
    x = ordered(a)
    whole = len(axes) == a.ndim
    x = t(torch.reshape, x, (-1,)) if whole else x
    d = 0 if whole else axes[0]
    x = t(torch.sort, x, dim=d, stable=True)[0]
    n = x.sizes[d]
    if is_zero(n):
        raise Unsure("the middle of nothing")
    inner, dt = float_of(whole_array(x), None)
    lo, hi = t(torch.select, inner, d, (n - 1) // 2), t(torch.select, inner, d, n // 2)
    r = t(torch.div, t(torch.add, lo, hi), 2.0)
    r = t(torch.where, t(torch.eq, lo, hi), lo, r)
    if a.dtype.kind == "f":
        last = t(torch.select, inner, d, n - 1)
        r = t(torch.where, t(torch.isnan, last), last, r)
    return finished(kept(r, a, axes, keep), dt)


# -- without NaN -----------------------------------------------------------------------------------------------------------------
def without_nan(a: TracedArray, value: float) -> Any:
    return t(torch.where, t(torch.isnan, a.tensor), value, a.tensor)


@function(np.nansum)
def nansum(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = np._NoValue) -> Any:
    none(out, dtype)
    a, keep = source_of(a), plain(keepdims)
    if a.dtype.kind in "biu":
        return reductions.sum(a, axis, None, None, keep)
    if a.dtype.kind != "f":
        raise Unsure("no floats")
    return array(t(torch.sum, without_nan(a, 0.0), axes_of(axis, a.ndim), keep))


@function(np.nanmean)
def nanmean(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = np._NoValue) -> Any:
    none(out, dtype)
    a, keep = source_of(a), plain(keepdims)
    if a.dtype.kind in "biu":
        return reductions.mean(a, axis, None, None, keep)
    if a.dtype.kind != "f" or a.dtype.itemsize < 4:
        raise Unsure("no floats")
    axes = axes_of(axis, a.ndim)
    n = t(torch.sum, t(torch.logical_not, t(torch.isnan, a.tensor)), axes, keep)
    return array(t(torch.div, t(torch.sum, without_nan(a, 0.0), axes, keep), to(n, a.dtype)))


def nan_extreme(fn: Any, neutral: float, without: Any) -> Any:
    def compute(a: Any, axis: Any = None, out: Any = None, keepdims: Any = np._NoValue) -> Any:
        none(out)
        a, keep = source_of(a), plain(keepdims)
        if a.dtype.kind in "biu":
            return without(a, axis, None, keep)
        if a.dtype.kind != "f":
            raise Unsure("no floats")
        axes = axes_of(axis, a.ndim)
        r = t(fn, without_nan(a, neutral), axes, keep)
        empty = all_of(t(torch.isnan, a.tensor), axes, keep)
        return array(t(torch.where, empty, float("nan"), r))

    return compute


def all_of(x: Any, axes: tuple[int, ...], keep: bool) -> Any:
    for d in sorted(axes, reverse=True):
        x = t(torch.all, x, d, keep)
    return x


function(np.nanmax)(nan_extreme(torch.amax, float("-inf"), reductions.amax))
function(np.nanmin)(nan_extreme(torch.amin, float("inf"), reductions.amin))


@function(np.nan_to_num)
def nan_to_num(x: Any, copy: bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None) -> Any:
    rule, o = operand(x)
    a = source_of(x)
    if copy is not True or a.dtype.kind != "f" or not all([v is None or type(v) in (int, float) for v in (nan, posinf, neginf)]):
        raise Unsure("keywords")
    return array(t(torch.nan_to_num, a.tensor, float(nan), posinf, neginf))


# -- about equality ----------------------------------------------------------------------------------------------------------------
@function(np.isclose)
def isclose(a: Any, b: Any, rtol: Any = 1e-05, atol: Any = 1e-08, equal_nan: bool = False) -> Any:
    x, y = source_of(a), source_of(b)
    dt = np.result_type(x.dtype, y.dtype, 1.0)
    if dt.kind != "f" or dt.itemsize < 4 or type(rtol) is not float or type(atol) is not float or equal_nan is not False:
        raise Unsure("keywords")
    p, q = to(x.tensor, dt), to(y.tensor, dt)
    most = t(torch.add, t(torch.mul, t(torch.abs, q), number_in(rtol, dt)), number_in(atol, dt))
    near = t(torch.le, t(torch.abs, t(torch.sub, p, q)), most)
    return array(t(torch.logical_or, t(torch.logical_and, near, t(torch.isfinite, q)), t(torch.eq, p, q)))


@function(np.allclose)
def allclose(a: Any, b: Any, rtol: Any = 1e-05, atol: Any = 1e-08, equal_nan: bool = False) -> Any:
    """A bool of Python."""
    r = isclose(a, b, rtol, atol, equal_nan)
    return t(ORIGINAL.item, t(torch.all, r.tensor))


@function(np.array_equal)
def array_equal(a1: Any, a2: Any, equal_nan: bool = False) -> Any:
    """A bool of Python."""
    x, y = source_of(a1), source_of(a2)
    if equal_nan is not False:
        raise Unsure("keywords")
    if x.ndim != y.ndim or not all([vm.truth(p == q) for p, q in zip(x.sizes, y.sizes, strict=True)]):
        return False
    dt = np.result_type(x.dtype, y.dtype)
    return t(ORIGINAL.item, t(torch.all, t(torch.eq, to(x.tensor, dt), to(y.tensor, dt))))


_ = averaged, concrete, question
