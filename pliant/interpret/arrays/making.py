"""Arrays from nothing, from numbers, and from other arrays."""

from __future__ import annotations

from typing import Any

from pliant.graph.originals import ORIGINAL, math, torch
from pliant.graph.originals import numpy as np
from pliant.graph.symnode import concrete
from pliant.graph.traced import TracedTensor
from pliant.interpret.arrays.dtypes import BOOL, FLOAT64, INT64, SCALARS, TORCH, Unsure, dtype_of, fits, torch_dtype
from pliant.interpret.arrays.operands import WEAK, asarray, fresh, full, number_in, to
from pliant.interpret.arrays.proxies import TracedArray, TracedScalar, scalar, scalar_of, view_of, whole_array
from pliant.interpret.arrays.table import COPIED, asked, constant, function, warn
from pliant.interpret.arrays.ufuncs import t
from pliant.interpret.gate import index
from pliant.interpret.slots import unpack
from pliant.interpret.state import vm

SYMBOLIC = (torch.SymInt, torch.SymFloat)


def shape_of(shape: Any) -> tuple:
    """A shape as a tuple of ints, perhaps symbolic."""
    if type(shape) in (tuple, list, torch.Size):
        return tuple([size(n) for n in unpack(shape)])
    return (size(shape),)


def size(n: Any) -> Any:
    if type(n) is bool or type(n) in (TracedArray, TracedTensor):
        raise Unsure("a size")
    n = index(n)
    if type(n) is int and n < 0:
        raise Unsure("negative dimensions are not allowed")
    if type(n) is torch.SymInt and not vm.truth(n >= 0):
        raise Unsure("negative dimensions are not allowed")
    return n


def row_major(order: Any, *others: Any) -> None:
    if order not in ("C", "K") or any([o is not None for o in others]):
        raise Unsure("an order of memory")


def in_rows(a: Any, order: Any) -> None:
    if order == "C" and type(a) is TracedArray and not a.tensor.dense:
        raise Unsure("an order of memory")


def flag(subok: Any) -> None:
    if type(subok) is not bool:
        raise Unsure("a flag that is none")


@function(np.zeros)
def zeros(shape: Any, dtype: Any = float, order: str = "C", *, device: Any = None, like: Any = None) -> Any:
    row_major(order, device, like)
    return whole_array(t(torch.zeros, shape_of(shape), dtype=torch_dtype(dtype_of(dtype))))


@function(np.ones)
def ones(shape: Any, dtype: Any = None, order: str = "C", *, device: Any = None, like: Any = None) -> Any:
    row_major(order, device, like)
    return whole_array(t(torch.ones, shape_of(shape), dtype=torch_dtype(dtype_of(dtype or float))))


@function(np.full)
def full_(shape: Any, fill_value: Any, dtype: Any = None, order: str = "C", *, device: Any = None, like: Any = None) -> Any:
    row_major(order, device, like)
    shape = shape_of(shape)
    dt = asarray(fill_value).dtype if dtype is None else dtype_of(dtype)
    if type(fill_value) in WEAK or type(fill_value) is bool or type(fill_value) in SCALARS:
        if dt.kind in "iub" and type(fill_value) is float:
            raise Unsure("a float as an int")
        return whole_array(full(shape, number_in(fill_value, dt), dt))
    value = to(asarray(fill_value).tensor, dt)
    return whole_array(t(torch.clone, t(ORIGINAL.expand, value, shape)))


def like(made: Any) -> Any:
    def compute(a: Any, dtype: Any = None, order: str = "K", subok: bool = True, shape: Any = None, *, device: Any = None) -> Any:
        row_major(order, device)
        flag(subok)
        a = asarray(a)
        dt = a.dtype if dtype is None else dtype_of(dtype)
        if shape is not None or order == "C":
            return whole_array(t(made, a.sizes if shape is None else shape_of(shape), dtype=torch_dtype(dt)))
        return whole_array(t(LIKE[made], a.found, dtype=torch_dtype(dt)))

    return compute


LIKE = {torch.zeros: torch.zeros_like, torch.ones: torch.ones_like}
function(np.zeros_like)(like(torch.zeros))
function(np.ones_like)(like(torch.ones))


@function(np.full_like)
def full_like(
    a: Any, fill_value: Any, dtype: Any = None, order: str = "K", subok: bool = True, shape: Any = None, *, device: Any = None
) -> Any:
    row_major(order, device)
    flag(subok)
    a = asarray(a)
    return full_(a.sizes if shape is None else shape, fill_value, a.dtype if dtype is None else dtype)


@function(np.eye)
def eye(N: Any, M: Any = None, k: Any = 0, dtype: Any = float, order: str = "C", *, device: Any = None, like: Any = None) -> Any:
    row_major(order, device, like)
    n, m = size(N), size(N if M is None else M)
    rows, columns = t(torch.arange, n, dtype=torch.int64), t(torch.arange, m, dtype=torch.int64)
    if type(k) is not int:
        raise Unsure("a diagonal")
    on = t(torch.eq, t(torch.unsqueeze, t(torch.add, rows, k), 1), columns)
    return whole_array(to(on, dtype_of(dtype)))


@function(np.identity)
def identity(n: Any, dtype: Any = None, *, like: Any = None) -> Any:
    row_major("C", like)
    return eye(n, dtype=dtype or float)


@function(np.arange)
def arange(start: Any, stop: Any = None, step: Any = None, dtype: Any = None, *, device: Any = None, like: Any = None) -> Any:
    row_major("C", device, like)
    if stop is None:
        start, stop = 0, start
    step = 1 if step is None else step
    given = [index_or_number(x) for x in (start, stop, step)]
    kinds = {kind(x) for x in (start, stop, step)}
    if dtype is None and kinds <= {"i"}:
        dt = INT64
    elif dtype is not None:
        dt = dtype_of(dtype)
    else:
        if all([constant(x) for x in (start, stop, step)]):
            return whole_array(t(torch.tensor, np.arange(start, stop, step).tolist(), dtype=torch.float64))
        raise Unsure("a range of floats")
    if dt.kind not in "iuf" or not kinds <= {"i"} or any([type(x) not in (int, torch.SymInt) for x in given]):
        raise Unsure("a range of floats")
    if type(given[2]) is not int or given[2] == 0:
        raise Unsure("a step")
    if (given[2] > 0) is not vm.truth(given[1] >= given[0]) and not vm.truth(given[1] == given[0]):
        return whole_array(t(torch.zeros, (0,), dtype=torch_dtype(dt)))
    r = t(torch.arange, *given, dtype=torch.int64)
    return whole_array(to(r, dt))


def kind(x: Any) -> str:
    c = type(x)
    if c in (int, torch.SymInt):
        return "i"
    if c in SCALARS and SCALARS[c] == INT64:
        return "i"
    if c is TracedScalar and x.dtype == INT64:
        return "i"
    return "?"


def index_or_number(x: Any) -> Any:
    return x if type(x) in (int, float, torch.SymInt, torch.SymFloat) else index(x)


@function(np.linspace)
def linspace(
    start: Any, stop: Any, num: Any = 50, endpoint: bool = True, retstep: bool = False, dtype: Any = None, axis: int = 0, *,
    device: Any = None,
) -> Any:  # fmt: skip
    """`arange(num) * step + start`, and the end point itself, as NumPy computes it."""
    row_major("C", device)
    if retstep is not False or type(endpoint) is not bool or axis != 0:
        raise Unsure("keywords")
    if not all([type(x) in (int, float, torch.SymInt, torch.SymFloat, np.float64, np.int64) for x in (start, stop)]):
        raise Unsure("the ends of a range")
    n = size(num)
    a, b = [number_in(x, FLOAT64) for x in (start, stop)]
    if any([type(x) is not float for x in (a, b)]):
        a, b = torch.sym_float(a), torch.sym_float(b)
    if not vm.truth(n >= 2):
        if concrete(n) == 0:
            return whole_array(t(torch.zeros, (0,), dtype=torch_dtype(dtype_of(dtype or float))))
        r = full((1,), a, FLOAT64)
        return converted(r, dtype)
    div = n - 1 if endpoint else n
    delta = b - a
    step = delta / (float(div) if type(div) is int else torch.sym_float(div))
    y = t(torch.arange, 0, n, dtype=torch.float64)
    if type(step) is float and step == 0:
        raise Unsure("a range of no length")
    y = t(torch.add, t(torch.mul, y, step), a)
    if endpoint:
        y = t(torch.where, t(torch.eq, t(torch.arange, 0, n, dtype=torch.int64), n - 1), t(torch.full, (), b, dtype=torch.float64), y)
    return converted(y, dtype)


def converted(y: Any, dtype: Any) -> TracedArray:
    if dtype is None:
        return whole_array(y)
    dt = dtype_of(dtype)
    return whole_array(to(t(torch.floor, y) if dt.kind in "iu" else y, dt))


# -- from other arrays ---------------------------------------------------------------------------------------------------
@function(np.array)
def array(
    object: Any, dtype: Any = None, *, copy: Any = True, order: str = "K", subok: bool = False, ndmin: int = 0, ndmax: int = 0,
    like: Any = None,
) -> Any:  # fmt: skip
    row_major(order, like)
    in_rows(object, order)
    if ndmin not in (0, 1) or ndmax not in (0, 64):
        raise Unsure("ndmin=")
    if copy is not True:
        if copy is not False or type(object) is not TracedArray or dtype is not None and dtype_of(dtype) is not object.dtype:
            raise Unsure("copy=")
        return asarray(object, dtype)
    a = asarray(object, dtype)
    if type(object) is TracedTensor:
        warn(COPIED)
    if ndmin == 1 and not a.ndim:
        return whole_array(t(torch.reshape, t(torch.clone, a.tensor), (1,)))
    if type(object) is TracedArray and a is object or type(object) is TracedTensor:
        return whole_array(t(torch.clone, a.tensor))
    return a


@function(np.asarray)
def np_asarray(a: Any, dtype: Any = None, order: Any = None, *, device: Any = None, copy: Any = None, like: Any = None) -> Any:
    row_major(order or "K", device, like)
    in_rows(a, order)
    if copy is True:
        return array(a, dtype)
    if copy is not None:
        raise Unsure("copy=")
    return asarray(a, dtype)


@function(np.asanyarray)
def asanyarray(a: Any, dtype: Any = None, order: Any = None, *, device: Any = None, copy: Any = None, like: Any = None) -> Any:
    return np_asarray(a, dtype, order, device=device, copy=copy, like=like)


@function(np.ascontiguousarray)
def ascontiguousarray(a: Any, dtype: Any = None, *, like: Any = None) -> Any:
    row_major("C", like)
    a = asarray(a, dtype)
    if a.remake is not None and any([bool(n <= 1) for n in a.found.sizes]):
        raise Unsure("an array that may run backwards in a dim of 1: to NumPy, it is contiguous")
    if not a.ndim or a.remake is not None:
        x = t(torch.clone, a.tensor, memory_format=torch.contiguous_format)
        return whole_array(x if a.ndim else t(torch.reshape, x, (1,)))
    return a if ORIGINAL.is_contiguous(a.found) else whole_array(t(ORIGINAL.contiguous, a.found))


@function(np.copy)
def copy(a: Any, order: str = "K", subok: bool = False) -> Any:
    if order not in ("C", "K"):
        raise Unsure("an order of memory")
    flag(subok)
    kept = torch.preserve_format if order == "K" else torch.contiguous_format
    return whole_array(t(torch.clone, asarray(a).tensor, memory_format=kept))


@function(np.tri)
def tri(N: Any, M: Any = None, k: Any = 0, dtype: Any = float, *, like: Any = None) -> Any:
    row_major("C", like)
    if type(k) is not int:
        raise Unsure("a diagonal")
    n, m = size(N), size(N if M is None else M)
    rows, columns = t(torch.arange, n, dtype=torch.int64), t(torch.arange, m, dtype=torch.int64)
    return whole_array(to(t(torch.ge, t(torch.unsqueeze, t(torch.add, rows, k), 1), columns), dtype_of(dtype)))


def triangle(fn: Any) -> Any:
    def compute(m: Any, k: Any = 0) -> Any:
        m = asarray(m)
        if m.ndim < 2 or type(k) is not int:
            raise Unsure("a triangle")
        return whole_array(t(fn, m.tensor, k))

    return compute


function(np.tril)(triangle(torch.tril))
function(np.triu)(triangle(torch.triu))


@function(np.meshgrid)
def meshgrid(*xi: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> Any:
    if copy is not True or sparse is not False or indexing not in ("xy", "ij"):
        raise Unsure("keywords")
    arrays = [asarray(x) for x in xi]
    if any([a.ndim != 1 for a in arrays]):
        raise Unsure("arrays of several dims")
    order = [1, 0, *range(2, len(arrays))] if indexing == "xy" and len(arrays) > 1 else list(range(len(arrays)))
    shape = tuple([arrays[d].sizes[0] for d in order])
    made = []
    for i, a in enumerate(arrays):
        x = t(torch.reshape, a.tensor, tuple([-1 if d == i else 1 for d in order]))
        made.append(whole_array(t(torch.clone, t(ORIGINAL.expand, x, shape), memory_format=torch.contiguous_format)))
    return tuple(made)


# -- scalars ----------------------------------------------------------------------------------------------------------------
def scalar_class(cls: type) -> Any:
    dt = SCALARS[cls]

    def make(*args: Any, **kw: Any) -> Any:
        if len(args) > 1 or kw:
            raise Unsure("keywords")
        if not args:
            return cls()
        [x] = args
        if constant(x) and type(x) not in (list, tuple):
            return asked(cls, x)
        c = type(x)
        if c in SYMBOLIC or (c is TracedScalar and type(x.number) in SYMBOLIC and dt.kind in "iuf"):
            n = x if c in SYMBOLIC else x.number
            if dt.kind in "iu" and type(n) is torch.SymInt and fits(n, dt):
                return scalar_of(n, dt)
            if dt.kind in "iu" and c is torch.SymInt:
                raise Unsure(f"a number beyond {dt}, which NumPy refuses")
            if dt == FLOAT64:
                return scalar_of(torch.sym_float(n), dt)
        a = asarray(x)
        if a.dtype.kind == "f" and dt.kind in "iu":
            raise Unsure("floats as ints")
        r = to(a.tensor, dt)
        return scalar(fresh(r, a.tensor)) if not a.ndim else whole_array(fresh(r, a.tensor))

    return make


for _cls in SCALARS:
    function(_cls)(scalar_class(_cls))


@function(np.finfo)
def finfo(dtype: Any) -> Any:
    return np.finfo(of_type(dtype))


def of_type(x: Any) -> Any:
    """What a function that wants a dtype, or a number of it, is given."""
    if type(x) is not TracedScalar and not constant(x):
        raise Unsure("the limits of an array")
    return x.dtype if type(x) is TracedScalar else x


@function(np.iinfo)
def iinfo(type: Any) -> Any:  # noqa: A002  (NumPy's own name)
    return np.iinfo(of_type(type))


@function(np.dtype)
def dtype(dtype: Any, align: Any = False, copy: Any = False) -> Any:
    if not constant(dtype):
        raise Unsure("a dtype")
    return np.dtype(dtype)


@function(np.issubdtype)
def issubdtype(arg1: Any, arg2: Any) -> Any:
    if not (constant(arg1) and constant(arg2)):
        raise Unsure("a dtype")
    return np.issubdtype(arg1, arg2)


@function(np.promote_types)
def promote_types(type1: Any, type2: Any, /) -> Any:
    if not (constant(type1) and constant(type2)):
        raise Unsure("a dtype")
    return np.promote_types(type1, type2)


@function(np.result_type)
def result_type(*given: Any) -> Any:
    if any([type(x) is TracedTensor for x in given]):
        raise Unsure("a tensor")
    return np.result_type(*[x.dtype if type(x) in (TracedArray, TracedScalar) else weak(x) for x in given])


def weak(x: Any) -> Any:
    return WEAK[type(x)](1) if type(x) in SYMBOLIC else x


@function(np.frombuffer)
def frombuffer(buffer: Any, dtype: Any = float, count: int = -1, offset: int = 0, *, like: Any = None) -> Any:
    """Of bytes, which do not change."""
    row_major("C", like)
    if type(buffer) is not bytes:
        raise Unsure("a buffer that may change")
    raise Unsure("an array over the memory of bytes")


@function(np.isscalar)
def isscalar(element: Any) -> bool:
    c = type(element)
    return c in (TracedScalar, torch.SymInt, torch.SymFloat, torch.SymBool) or (constant(element) and np.isscalar(element))


_ = math, BOOL, TORCH, view_of
