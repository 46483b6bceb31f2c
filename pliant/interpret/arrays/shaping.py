"""Shapes: views of arrays, joins, repetitions, padding, choices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pliant.graph.originals import ORIGINAL, math, operator, torch
from pliant.graph.originals import numpy as np
from pliant.graph.rules.shape import key
from pliant.graph.symnode import concrete
from pliant.graph.traced import TracedTensor
from pliant.interpret.arrays import reductions
from pliant.interpret.arrays.dtypes import BOOL, INT64, SCALARS, SCARCE, TORCH, Unsure, dtype_of
from pliant.interpret.arrays.making import shape_of, size
from pliant.interpret.arrays.operands import asarray, fresh, is_proxy, number_in, operand, tensor_in, to
from pliant.interpret.arrays.proxies import TracedArray, TracedScalar, array, derived, may_be_empty, view_of, whole_array
from pliant.interpret.arrays.reductions import one_axis
from pliant.interpret.arrays.table import function
from pliant.interpret.arrays.ufuncs import t
from pliant.interpret.gate import index
from pliant.interpret.slots import unpack
from pliant.interpret.state import vm
from pliant.symbolic import ops


def viewed(a: TracedArray, make: Callable[[Any], Any], method: str | None = None, *args: Any) -> TracedArray:
    """The array over the memory of `a` that `make` makes of its tensor, or `a.method(*args)`; of a derived array, derived again."""
    if a.remake is None:
        return view_of(a, make(a.found), method, *args)
    raise Unsure("a view of a view that torch does not have")


def view_or_copy(a: TracedArray, make: Callable[[Any], Any], method: str, *args: Any) -> TracedArray:
    """`make` gives a view of the tensor where there is one, else a copy."""
    if a.remake is not None:
        raise Unsure("a view, or a copy, of a view that torch does not have")
    x = a.tensor
    r = make(x)
    if r.storage_id == x.storage_id:
        return view_of(a, r, method, *args)
    if may_be_empty(r):
        raise Unsure("the strides of no elements")
    return whole_array(r)


def is_scalar(a: Any) -> bool:
    return type(a) is TracedScalar or type(a) in SCALARS


def another(a: Any) -> Any:
    """A scalar of the same value, which is what the methods of scalars return."""
    return TracedScalar(a.dtype, a.number, a.found) if type(a) is TracedScalar else type(a)(a)


def new_shape(shape: tuple) -> tuple:
    """A shape with at most one -1."""
    out = tuple([index(n) for n in shape])
    if any([type(n) is bool for n in shape]) or len([n for n in out if type(n) is int and n < 0]) > 1:
        raise Unsure("a shape")
    return out


@function(np.reshape)
def reshape(a: Any, /, shape: Any = None, order: str = "C", *, newshape: Any = None, copy: Any = None) -> Any:
    if order != "C" or copy is not None or newshape is not None:
        raise Unsure("keywords")
    one, a = a, asarray(a)
    if type(shape) in (TracedArray, TracedTensor):
        raise Unsure("a shape")
    shape = tuple(unpack(shape)) if type(shape) in (tuple, list, torch.Size) else (shape,)
    shape = new_shape(shape)
    if not shape and is_scalar(one):
        return another(one)
    return view_or_copy(a, lambda x: t(torch.reshape, x, shape), "reshape", shape)


@function(np.ravel)
def ravel(a: Any, order: str = "C") -> Any:
    if order != "C":
        raise Unsure("an order of memory")
    a = asarray(a)
    if a.remake is None and ORIGINAL.is_contiguous(a.found):
        return viewed(a, lambda x: t(torch.reshape, x, (-1,)), "ravel")
    if may_be_empty(a.found):
        raise Unsure("the strides of no elements")
    x = a.tensor
    r = t(torch.reshape, x, (-1,))
    return whole_array(fresh(r, x, a.found))


@function(np.transpose)
def transpose(a: Any, axes: Any = None) -> Any:
    if is_scalar(a) and axes is None:
        return another(a)
    a = asarray(a)
    if axes is None:
        order = tuple(range(a.ndim))[::-1]
    else:
        order = tuple([one_axis(x, a.ndim) for x in unpack(axes)])
        if sorted(order) != list(range(a.ndim)):
            raise Unsure("the order of axes")
    return rearranged(a, lambda x: t(torch.permute, x, order), "transpose", *order)


def rearranged(a: TracedArray, make: Callable[[Any], Any], method: str, *args: Any) -> TracedArray:
    """A view by another order of dims: `a.method(*args)`."""
    if a.remake is None:
        return view_of(a, make(a.found), method, *args)
    return derived(a, method, args, lambda: make(a.tensor))


@function(np.swapaxes)
def swapaxes(a: Any, axis1: Any, axis2: Any) -> Any:
    a = asarray(a)
    i, j = one_axis(axis1, a.ndim), one_axis(axis2, a.ndim)
    return rearranged(a, lambda x: t(torch.transpose, x, i, j), "swapaxes", i, j)


@function(np.moveaxis)
def moveaxis(a: Any, source: Any, destination: Any) -> Any:
    a = asarray(a)
    src, dst = [tuple([one_axis(x, a.ndim) for x in (unpack(v) if type(v) in (tuple, list) else [v])]) for v in (source, destination)]
    if len(src) != len(dst) or len(set(src)) != len(src):
        raise Unsure("axes")
    order = [d for d in range(a.ndim) if d not in src]
    for d, s in sorted(zip(dst, src, strict=True)):
        order.insert(d, s)
    return transpose(a, tuple(order))


@function(np.expand_dims)
def expand_dims(a: Any, axis: Any) -> Any:
    a = asarray(a)
    given = axis if type(axis) is tuple else tuple(unpack(axis)) if type(axis) is list else (axis,)
    ndim = a.ndim + len(given)
    axes = sorted([one_axis(x, ndim) for x in given])
    if len(set(axes)) != len(axes):
        raise Unsure("an axis twice")
    made = vm.getitem(a, tuple([None if d in axes else slice(None) for d in range(ndim)]))
    made.how = None  # it is a reshape: no stride of 0
    return made


@function(np.squeeze)
def squeeze(a: Any, axis: Any = None) -> Any:
    if is_scalar(a) and axis is None:
        return another(a)
    a = asarray(a)
    if axis is None:
        axes = [d for d, n in enumerate(a.sizes) if vm.truth(n == 1)]
    else:
        axes = sorted([one_axis(x, a.ndim) for x in (axis if type(axis) is tuple else (axis,))])
        if any([not vm.truth(a.sizes[d] == 1) for d in axes]):
            raise Unsure("an axis of several elements")
    if not axes:
        return a

    def make(x: Any) -> Any:
        for d in reversed(axes):
            x = t(torch.squeeze, x, d)
        return x

    return rearranged(a, make, "squeeze", tuple(axes))


def at_least(n: int) -> Callable[..., Any]:
    def compute(*arys: Any) -> Any:
        out = tuple([widened(asarray(x), n) for x in arys])
        return out[0] if len(out) == 1 else out

    return compute


def widened(a: TracedArray, n: int) -> TracedArray:
    if a.ndim >= n:
        return a
    if n == 3:
        raise Unsure("atleast_3d")
    return vm.getitem(a, (*[None] * (n - a.ndim), ...))


function(np.atleast_1d)(at_least(1))
function(np.atleast_2d)(at_least(2))


@function(np.broadcast_to)
def broadcast_to(array: Any, shape: Any, subok: bool = False) -> Any:
    a = asarray(array)
    r = viewed(a, lambda x: t(ORIGINAL.expand, x, shape_of(shape)))
    if may_be_empty(r.found):
        raise Unsure("the strides of no elements")
    r.writeable = False
    return r


@function(np.broadcast_arrays)
def broadcast_arrays(*args: Any, subok: bool = False) -> Any:
    raise Unsure("views that warn when they are written to")


# -- joining and splitting --------------------------------------------------------------------------------------------------
def joined(arrays: Any, dtype: Any, casting: str) -> list[Any]:
    """Tensors of a common dtype."""
    if type(arrays) is TracedArray:
        items = list(vm.iter(arrays))
    elif type(arrays) in (tuple, list):
        items = unpack(arrays)
    else:
        raise Unsure("what is to be joined")
    made = [asarray(x) for x in items]
    if not made or casting != "same_kind":
        raise Unsure("nothing to join")
    if dtype is not None:
        dt = dtype_of(dtype)
        if not all([np.can_cast(a.dtype, dt, "same_kind") for a in made]):
            raise Unsure("casting")
    else:
        dt = np.result_type(*[a.dtype for a in made])
    return [to(a.tensor, dt) for a in made]


@function(np.concatenate)
def concatenate(arrays: Any, /, axis: Any = 0, out: Any = None, *, dtype: Any = None, casting: str = "same_kind") -> Any:
    if out is not None:
        raise Unsure("out=")
    parts = joined(arrays, dtype, casting)
    if axis is None:
        return whole_array(cat([t(torch.reshape, p, (-1,)) for p in parts], 0))
    ndim = ORIGINAL.dim(parts[0])
    if not ndim or any([ORIGINAL.dim(p) != ndim for p in parts]):
        raise Unsure("arrays of different dims")
    return whole_array(cat(parts, one_axis(axis, ndim)))


def cat(parts: list[Any], d: int) -> Any:
    return fresh(t(torch.cat, parts, d), *parts)


@function(np.stack)
def stack(arrays: Any, axis: Any = 0, out: Any = None, *, dtype: Any = None, casting: str = "same_kind") -> Any:
    if out is not None:
        raise Unsure("out=")
    parts = joined(arrays, dtype, casting)
    return whole_array(t(torch.stack, parts, one_axis(axis, ORIGINAL.dim(parts[0]) + 1)))


def stacked(least: int, d: Callable[[int], int]) -> Callable[..., Any]:
    def compute(tup: Any, *, dtype: Any = None, casting: str = "same_kind") -> Any:
        parts = joined(tup, dtype, casting)
        parts = [t(torch.reshape, p, (1,) * (least - ORIGINAL.dim(p)) + tuple(p.sizes)) if ORIGINAL.dim(p) < least else p for p in parts]
        if any([ORIGINAL.dim(p) != ORIGINAL.dim(parts[0]) for p in parts]):
            raise Unsure("arrays of different dims")
        return whole_array(cat(parts, d(ORIGINAL.dim(parts[0]))))

    return compute


function(np.vstack)(stacked(2, lambda n: 0))
function(np.hstack)(stacked(1, lambda n: 0 if n == 1 else 1))


@function(np.column_stack)
def column_stack(tup: Any) -> Any:
    parts = joined(tup, None, "same_kind")
    parts = [t(torch.reshape, p, (-1, 1)) if ORIGINAL.dim(p) < 2 else p for p in parts]
    return whole_array(cat(parts, 1))


@function(np.append)
def append(arr: Any, values: Any, axis: Any = None) -> Any:
    a, v = asarray(arr), asarray(values)
    return concatenate((a, v), axis)


@function(np.split, np.array_split)
def split(ary: Any, indices_or_sections: Any, axis: Any = 0) -> Any:
    a = asarray(ary)
    d = one_axis(axis, a.ndim)
    if type(indices_or_sections) not in (list, tuple):
        k = concrete(index(indices_or_sections))
        n = concrete(a.sizes[d])
        if k <= 0 or n % k:
            raise Unsure("unequal parts")
        ends = [n // k * i for i in range(1, k)]  # type: ignore[arg-type]
    else:
        ends = [concrete(index(i)) for i in unpack(indices_or_sections)]
        if any([e < 0 for e in ends]):
            raise Unsure("places from the end")
    places = [0, *ends, None]
    parts = [(*[slice(None)] * d, slice(p, q)) for p, q in zip(places, places[1:])]
    return [viewed(a, lambda x, k=k: t(operator.getitem, x, k), "__getitem__", k) for k in parts]  # type: ignore[misc]


# -- repeating ----------------------------------------------------------------------------------------------------------------
@function(np.tile)
def tile(A: Any, reps: Any) -> Any:
    a = asarray(A)
    counts = shape_of(reps)
    return whole_array(fresh(t(torch.tile, a.tensor, counts), a.found))


@function(np.repeat)
def repeat(a: Any, repeats: Any, axis: Any = None) -> Any:
    a = asarray(a)
    x = a.tensor if axis is not None else t(torch.reshape, a.tensor, (-1,))
    d = 0 if axis is None else one_axis(axis, a.ndim)
    if type(repeats) is TracedArray or type(repeats) in (list, tuple):
        counts = asarray(repeats)
        if counts.ndim != 1 or counts.dtype.kind not in "iu":
            raise Unsure("repetitions")
        return whole_array(t(torch.repeat_interleave, x, to(counts.tensor, INT64), d))
    n = size(repeats)
    wide = t(torch.unsqueeze, x, d + 1)
    wide = t(ORIGINAL.expand, wide, (*x.sizes[: d + 1], n, *x.sizes[d + 1 :]))
    return whole_array(fresh(t(torch.reshape, wide, (*x.sizes[:d], x.sizes[d] * n, *x.sizes[d + 1 :])), x))


@function(np.flip)
def flip(m: Any, axis: Any = None) -> Any:
    """A view in NumPy: the subscript that it stands for."""
    from_end = slice(None, None, -1)
    a = asarray(m)
    axes = range(a.ndim) if axis is None else [one_axis(x, a.ndim) for x in (axis if type(axis) is tuple else (axis,))]
    return vm.getitem(a, tuple([from_end if d in axes else slice(None) for d in range(a.ndim)]))


@function(np.flipud)
def flipud(m: Any) -> Any:
    return flip(m, 0)


@function(np.fliplr)
def fliplr(m: Any) -> Any:
    return flip(m, 1)


@function(np.roll)
def roll(a: Any, shift: Any, axis: Any = None) -> Any:
    a = asarray(a)
    if type(shift) is tuple or type(axis) is tuple:
        raise Unsure("several shifts")
    n = index(shift)
    x = a.tensor
    if axis is None:
        r = t(torch.reshape, t(torch.roll, t(torch.reshape, x, (-1,)), n, 0), a.sizes)
    else:
        r = t(torch.roll, x, n, one_axis(axis, a.ndim))
    return whole_array(fresh(r, x))


@function(np.pad)
def pad(array: Any, pad_width: Any, mode: Any = "constant", *, constant_values: Any = 0) -> Any:
    a = asarray(array)
    widths = pairs(pad_width, a.ndim)
    if mode == "constant":
        value = number_in(constant_values, a.dtype)
        if not a.ndim:
            raise Unsure("no dims")
        flat = tuple([w for pair in reversed(widths) for w in pair])
        return whole_array(fresh(t(torch.nn.functional.pad, a.tensor, flat, "constant", value), a.found))
    if mode == "edge":
        x = a.tensor
        for d, (p, q) in enumerate(widths):
            n = x.sizes[d]
            places = t(torch.clamp, t(torch.arange, -p, n + q, dtype=torch.int64), 0, n - 1)
            x = t(torch.index_select, x, d, places)
        return whole_array(fresh(x, a.found))
    if mode == "reflect":
        x = a.tensor
        for d, (p, q) in enumerate(widths):
            n = x.sizes[d]
            if not vm.truth(p < n) or not vm.truth(q < n):
                raise Unsure("reflected more than once")
            places = t(torch.abs, t(torch.arange, -p, n + q, dtype=torch.int64))
            places = t(torch.sub, n - 1, t(torch.abs, t(torch.sub, places, n - 1)))
            x = t(torch.index_select, x, d, places)
        return whole_array(fresh(x, a.found))
    raise Unsure(f"mode {mode!r}")


def pairs(width: Any, ndim: int) -> list[tuple[Any, Any]]:
    """((before, after), ...) for each dim."""
    if type(width) not in (tuple, list):
        n = size(width)
        return [(n, n)] * ndim
    items = unpack(width)
    if all([type(w) in (tuple, list) for w in items]):
        both = [tuple([size(n) for n in unpack(w)]) for w in items]
        both = [w * 2 if len(w) == 1 else w for w in both]
        if any([len(w) != 2 for w in both]) or len(both) not in (1, ndim):
            raise Unsure("widths")
        return both * ndim if len(both) == 1 else both  # type: ignore[return-value]
    if any([type(w) in (tuple, list) for w in items]) or len(items) not in (1, 2):
        raise Unsure("widths")
    ends = [size(n) for n in items]
    return [(ends[0], ends[-1])] * ndim


# -- choosing -------------------------------------------------------------------------------------------------------------------
@function(np.where)
def where(condition: Any, x: Any = None, y: Any = None, /) -> Any:
    if x is None and y is None:
        return nonzero(condition)
    if x is None or y is None:
        raise Unsure("one choice")
    c = truth_of(condition)
    (rx, ox), (ry, oy) = operand(x), operand(y)
    dt = np.result_type(*[r(1) if isinstance(r, type) else r for r in (rx, ry)])
    p, q = tensor_in(ox, dt), tensor_in(oy, dt)
    return whole_array(fresh(t(torch.where, c, p, q), p, q))


def truth_of(x: Any) -> Any:
    a = asarray(x)
    return a.tensor if a.dtype == BOOL else t(torch.ne, a.tensor, 0)


@function(np.nonzero)
def nonzero(a: Any) -> Any:
    a = asarray(a)
    if not a.ndim:
        raise Unsure("no dims")
    if a.ndim == 1:
        return (whole_array(t(torch.nonzero, a.tensor, as_tuple=True)[0]),)
    places = t(ORIGINAL.contiguous, t(torch.nonzero, a.tensor))  # columns of one array
    return tuple([whole_array(x) for x in t(torch.unbind, places, 1)])


@function(np.flatnonzero)
def flatnonzero(a: Any) -> Any:
    a = asarray(a)
    return whole_array(t(torch.nonzero, t(torch.reshape, a.tensor, (-1,)), as_tuple=True)[0])


@function(np.argwhere)
def argwhere(a: Any) -> Any:
    a = asarray(a)
    if not a.ndim:
        raise Unsure("no dims")
    return whole_array(t(torch.nonzero, a.tensor))


@function(np.clip)
def clip(
    a: Any, a_min: Any = np._NoValue, a_max: Any = np._NoValue, out: Any = None, *, min: Any = np._NoValue, max: Any = np._NoValue
) -> Any:
    if (a_min is np._NoValue) != (a_max is np._NoValue) or not (a_min is np._NoValue or min is max is np._NoValue):
        raise Unsure("one bound alone, or bounds in both ways")
    lo, hi = [None if v is np._NoValue else v for v in ((min, max) if a_min is np._NoValue else (a_min, a_max))]
    if out is not None:
        raise Unsure("out=")
    given = [x for x in (a, lo, hi) if x is not None]
    pairs_ = [operand(x) for x in given]
    dt = np.result_type(*[r(1) if isinstance(r, type) else r for r, _ in pairs_])
    if dt.kind not in "iuf" or (isinstance(pairs_[0][0], type)) or TORCH.get(dt) in SCARCE:
        raise Unsure(f"clip of {dt}")
    x, *_ = [tensor_in(o, dt) for _, o in pairs_[:1]]
    bounds = iter([o for _, o in pairs_[1:]])
    if lo is not None:
        x = t(torch.maximum, x, tensor_in(next(bounds), dt))
    if hi is not None:
        x = t(torch.minimum, x, tensor_in(next(bounds), dt))
    if lo is None and hi is None:
        x = t(torch.clone, x)
    return array(fresh(x, *[o.found for _, o in pairs_ if is_proxy(o) and o.found is not None]))


@function(np.take)
def take(a: Any, indices: Any, axis: Any = None, out: Any = None, mode: str = "raise") -> Any:
    if out is not None or mode != "raise":
        raise Unsure("keywords")
    a = asarray(a)
    d = 0 if axis is None else one_axis(axis, a.ndim)
    flat = whole_array(t(torch.reshape, a.tensor, (-1,)) if axis is None else a.tensor)
    r = vm.getitem(flat, (*[slice(None)] * d, as_subscript(indices)))
    return whole_array(fresh(r.tensor, flat.found)) if type(r) is TracedArray else r


def as_subscript(indices: Any) -> Any:
    if type(indices) in (list, tuple):
        a = asarray(indices)
        if a.dtype.kind not in "iu":
            raise Unsure("positions")
        return a
    if type(indices) in (TracedArray, TracedScalar) and indices.dtype.kind not in "iu":
        raise Unsure("positions")
    return indices if type(indices) in (TracedArray, TracedScalar) else index(indices)


@function(np.take_along_axis)
def take_along_axis(arr: Any, indices: Any, axis: Any = -1) -> Any:
    a, i = asarray(arr), asarray(indices)
    if axis is None or i.dtype.kind not in "iu" or a.ndim != i.ndim:
        raise Unsure("positions")
    d = one_axis(axis, a.ndim)
    x, k = a.tensor, to(i.tensor, INT64)
    k = t(torch.where, t(torch.lt, k, 0), t(torch.add, k, a.sizes[d]), k)
    alike = all([p is q or vm.scope.known_true(ops.eq(key(p), key(q))) for i, (p, q) in enumerate(zip(x.sizes, k.sizes)) if i != d])
    return whole_array(t(torch.gather, x, d, k) if alike else t(torch.take_along_dim, x, k, d))


@function(np.diagonal)
def diagonal(a: Any, offset: Any = 0, axis1: Any = 0, axis2: Any = 1) -> Any:
    a = asarray(a)
    where = concrete(index(offset)), one_axis(axis1, a.ndim), one_axis(axis2, a.ndim)
    r = viewed(a, lambda x: t(torch.diagonal, x, *where), "diagonal", *where)
    r.writeable = False
    return r


@function(np.diag)
def diag(v: Any, k: Any = 0) -> Any:
    a = asarray(v)
    if a.ndim == 2:
        return diagonal(a, k)
    if a.ndim != 1:
        raise Unsure("a diagonal")
    return whole_array(t(torch.diag, a.tensor, concrete(index(k))))


@function(np.trace)
def trace(a: Any, offset: Any = 0, axis1: Any = 0, axis2: Any = 1, dtype: Any = None, out: Any = None) -> Any:
    a = asarray(a)
    if out is not None or dtype is not None or a.ndim != 2:
        raise Unsure("keywords")
    return reductions.sum(diagonal(a, offset, axis1, axis2))


@function(np.shape)
def shape(a: Any) -> Any:
    if type(a) is TracedTensor:
        raise Unsure("a tensor")
    return asarray(a).sizes


@function(np.ndim)
def ndim(a: Any) -> Any:
    if type(a) is TracedTensor:
        raise Unsure("a tensor")
    return asarray(a).ndim


@function(np.size)
def np_size(a: Any, axis: Any = None) -> Any:
    if type(a) is TracedTensor:
        raise Unsure("a tensor")
    a = asarray(a)
    return math.prod(a.sizes) if axis is None else a.sizes[one_axis(axis, a.ndim)]


