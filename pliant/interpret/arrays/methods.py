"""Attributes and methods of arrays and scalars."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from pliant.graph.originals import ORIGINAL, math, operator, torch
from pliant.graph.originals import numpy as np
from pliant.graph.symnode import concrete
from pliant.interpret import in_python
from pliant.interpret.arrays import linear, reductions, shaping, sorting
from pliant.interpret.arrays.dtypes import BOOL, SCALARS, Unsure, dtype_of
from pliant.interpret.arrays.operands import asarray, fresh, to
from pliant.interpret.arrays.operators import operate, store, value_for, writable
from pliant.interpret.arrays.proxies import ArrayMethod, TracedArray, TracedScalar, array, derived, scalar, view_of, whole_array
from pliant.interpret.arrays.table import CODE, asked, compute, constant, function, without_tensors
from pliant.interpret.arrays.ufuncs import apply, t
from pliant.interpret.gate import index
from pliant.interpret.slots import interp, unpack
from pliant.interpret.state import Break, vm

METHODS: dict[str, Callable[..., Any]] = {}
"""By name: called with the array or scalar, and the program's arguments."""


def method(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def register(fn: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            METHODS[name] = fn
        return fn

    return register


# -- attributes ---------------------------------------------------------------------------------------------------------
def steps(a: TracedArray) -> tuple:
    return tuple([n * a.dtype.itemsize for n in a.found.strides])


def transposed(a: TracedArray) -> TracedArray:
    return shaping.transpose(a)


def real_part(a: Any) -> Any:
    if a.dtype.kind == "c":
        raise Unsure("the parts of complex numbers")
    return a


ATTRIBUTES: dict[str, Callable[[TracedArray], Any]] = {
    "shape": lambda a: a.sizes,
    "ndim": lambda a: a.ndim,
    "size": lambda a: math.prod(a.sizes),
    "dtype": lambda a: a.dtype,
    "itemsize": lambda a: a.dtype.itemsize,
    "nbytes": lambda a: math.prod(a.sizes) * a.dtype.itemsize,
    "T": transposed,
    "mT": lambda a: shaping.swapaxes(a, -1, -2) if a.ndim > 1 else asarray(None),
    "real": real_part,
    "__class__": lambda a: np.ndarray,
}
SCALAR_ATTRIBUTES: dict[str, Callable[[TracedScalar], Any]] = {
    "dtype": lambda s: s.dtype,
    "shape": lambda s: (),
    "ndim": lambda s: 0,
    "size": lambda s: 1,
    "itemsize": lambda s: s.dtype.itemsize,
    "nbytes": lambda s: s.dtype.itemsize,
    "T": lambda s: s,
    "real": real_part,
    "__class__": lambda s: s.dtype.type,
}
EXAMPLE = np.zeros(1)


def missing(example: Any, name: str, o: Any) -> AttributeError:
    """What NumPy raises, in its words, where there is no such attribute of `o`."""
    try:
        getattr(example, name)
    except AttributeError as e:
        return AttributeError(*e.args, name=name, obj=o)
    raise Break(CODE, f"attribute {name!r} of an array", clean=True)


def array_getattr(a: TracedArray, name: str) -> Any:
    found = ATTRIBUTES.get(name)
    if found is not None:
        return compute(f"ndarray.{name}", found, (a,), {})
    if not hasattr(EXAMPLE, name):  # (the class has more: `mro`)
        raise missing(EXAMPLE, name, a)
    if callable(getattr(np.ndarray, name)):
        return ArrayMethod(a, name)
    raise Break(CODE, f"ndarray.{name}", clean=True)


def scalar_getattr(s: TracedScalar, name: str) -> Any:
    found = SCALAR_ATTRIBUTES.get(name)
    if found is not None:
        return compute(f"{s.dtype}.{name}", found, (s,), {})
    cls = s.dtype.type
    if not hasattr(cls(1), name):
        raise missing(cls(1), name, s)
    if callable(getattr(cls, name)):
        return ArrayMethod(s, name)
    raise Break(CODE, f"{cls.__name__}.{name}", clean=True)


def set_attribute(a: Any, name: str, value: Any = None) -> None:
    raise Break(CODE, f"attribute {name!r} of an array", clean=True)


def call(m: ArrayMethod, args: tuple, kw: dict) -> Any:
    """A bound method is called."""
    impl = METHODS.get(m.name)
    if impl is None:
        raise Break(CODE, f"ndarray.{m.name}", clean=True)
    without_tensors(f"ndarray.{m.name}", args, kw)
    return compute(f"ndarray.{m.name}", impl, (m.owner, *args), kw)


def call_on(o: Any, name: str, args: tuple, kw: dict) -> Any:
    """A descriptor of `np.ndarray` is called."""
    return call(ArrayMethod(o, name), args, kw)


# -- methods that are functions, too ------------------------------------------------------------------------------------
METHODS.update(
    sum=reductions.sum, prod=reductions.prod, mean=reductions.mean, std=reductions.std, var=reductions.var, max=reductions.amax,
    min=reductions.amin, argmax=reductions.argmax, argmin=reductions.argmin, any=reductions.any_, all=reductions.all_,
    cumsum=reductions.cumsum, cumprod=reductions.cumprod, argsort=sorting.argsort, searchsorted=sorting.searchsorted,
    argpartition=sorting.argpartition, ravel=shaping.ravel, squeeze=shaping.squeeze, nonzero=shaping.nonzero,
    clip=shaping.clip, take=shaping.take, repeat=shaping.repeat, diagonal=shaping.diagonal, trace=shaping.trace, dot=linear.dot,
    swapaxes=lambda a, i, j, /: shaping.swapaxes(a, i, j),
)  # fmt: skip


@method("reshape")
def reshape(a: Any, *shape: Any, order: str = "C", copy: Any = None) -> Any:
    if not shape:
        raise Unsure("no shape")
    return shaping.reshape(a, shape[0] if len(shape) == 1 else shape, order, copy=copy)


@method("transpose")
def transpose(a: Any, *axes: Any) -> Any:
    if not axes or (len(axes) == 1 and axes[0] is None):
        return shaping.transpose(a)
    return shaping.transpose(a, tuple(unpack(axes[0])) if len(axes) == 1 and type(axes[0]) in (tuple, list) else axes)


@method("flatten")
def flatten(a: Any, order: str = "C") -> Any:
    if order != "C":
        raise Unsure("an order of memory")
    a = asarray(a)
    return whole_array(fresh(t(torch.reshape, a.tensor, (-1,)), a.found))


@method("copy")
def copy(a: Any, order: Any = "C") -> Any:
    if order != "C":
        raise Unsure("an order of memory")
    if type(a) is TracedScalar:
        return a
    return whole_array(t(torch.clone, a.tensor, memory_format=torch.contiguous_format))


@method("__copy__")
def copied(a: Any) -> Any:
    """In the order that its memory has."""
    return a if type(a) is TracedScalar else whole_array(t(torch.clone, a.tensor))


@method("__deepcopy__")
def deeply_copied(a: Any, memo: Any, /) -> Any:
    return copied(a)


@method("astype")
def astype(a: Any, dtype: Any, order: str = "K", casting: str = "unsafe", subok: bool = True, copy: Any = True) -> Any:
    if order not in ("K", "C") or casting not in ("unsafe", "same_kind", "safe") or type(copy) is not bool or type(subok) is not bool:
        raise Unsure("keywords")
    dt = dtype_of(dtype)
    if casting != "unsafe" and not np.can_cast(a.dtype, dt, casting):  # type: ignore[arg-type]
        raise Unsure("casting")
    if type(a) is TracedScalar:
        return scalar_as(a, dt)
    if order == "C" and not ORIGINAL.is_contiguous(a.found):
        raise Unsure("an order of memory")
    if a.dtype is dt and not copy:
        return a
    return whole_array(fresh(to(a.tensor, dt), a.found))


def scalar_as(s: TracedScalar, dt: np.dtype) -> Any:
    made = vm.call(dt.type, (s,), {})
    if type(made) is TracedScalar and made.dtype is dt:
        return made
    raise Unsure("a scalar in another dtype")


@method("view")
def view(a: Any, dtype: Any = None) -> Any:
    if type(a) is not TracedArray or dtype is not None or a.remake is not None:
        raise Unsure("another view of memory")
    return view_of(a, t(ORIGINAL.detach, a.found), "view")


@method("item")
def item(a: Any, *where: Any) -> Any:
    """A Python number."""
    if where:
        if type(a) is not TracedArray:
            raise Unsure("an item of a scalar")
        key = where[0] if len(where) == 1 and type(where[0]) is tuple else where
        if len(key) != a.ndim:
            raise Unsure("a flat position")
        return item(vm.getitem(a, tuple(key)))
    if type(a) in SCALARS:
        return a.item()
    if type(a) is TracedScalar and a.number is not None:
        return a.number
    if a.dtype.name == "uint64":
        raise Unsure("a number of 64 bits without a sign")
    return t(ORIGINAL.item, a.tensor)


@method("tolist")
def tolist(a: Any) -> Any:
    if type(a) is TracedScalar or not a.ndim:
        return item(a)
    n = concrete(a.sizes[0])
    if a.ndim == 1:
        return [t(ORIGINAL.item, x) for x in t(torch.unbind, a.tensor, 0)] if n else []
    return [tolist(whole_array(x)) for x in t(torch.unbind, a.tensor, 0)] if n else []


@method("fill")
def fill(a: TracedArray, value: Any) -> None:
    if type(value) in (list, tuple, TracedArray):
        raise Unsure("another array")
    x = writable(a)
    store(x, value_for(a, value))


@method("sort")
def sort(a: TracedArray, axis: Any = -1, kind: Any = None, order: Any = None, *, stable: Any = None) -> None:
    x = writable(a)
    store(x, sorting.sort(a, axis, kind, order, stable=stable).tensor)


@method("round")
def round_(a: Any, decimals: Any = 0, out: Any = None) -> Any:
    """To nearest, halves to even; decimals by a power of ten, as NumPy does it."""
    n = concrete(index(decimals))
    if out is not None or (n < 0 and a.dtype.kind != "f"):
        raise Unsure("keywords")
    if a.dtype.kind in "iu":
        return array(t(torch.clone, a.tensor)) if type(a) is TracedArray else a
    if a.dtype.kind != "f":
        raise Unsure(f"round of {a.dtype}")
    if n == 0:
        return apply(np.rint, a)
    tens = 10.0 ** abs(n)
    up, down = (np.multiply, np.true_divide) if n > 0 else (np.true_divide, np.multiply)
    return apply(down, apply(np.rint, apply(up, a, tens)), tens)


function(np.round, np.around)(lambda a, decimals=0, out=None: round_(rounded(a), decimals, out))


def rounded(a: Any) -> Any:
    return a if type(a) in (TracedArray, TracedScalar) else asarray(a)


@method("conj", "conjugate")
def conj(a: Any) -> Any:
    if a.dtype.kind == "c":
        return apply(np.conjugate, a)
    return a


@method("ptp")
def ptp(a: Any) -> Any:
    raise Unsure("not in NumPy 2")


@method("is_integer")
def is_integer(a: Any) -> Any:
    raise Unsure("a bool of Python")


@method("__len__")
def length(a: Any) -> Any:
    return vm.length(a)


@method("__getitem__")
def getitem(a: Any, k: Any) -> Any:
    return vm.getitem(a, k)


@method("__setitem__")
def setitem(a: Any, k: Any, v: Any) -> None:
    vm.setitem(a, k, v)


def _operator(fn: Callable[..., Any], name: str) -> None:
    METHODS[f"__{name}__"] = lambda *operands: vm.call(fn, operands, {})
    METHODS[f"__r{name}__"] = lambda a, b: vm.call(fn, (b, a), {})
    METHODS[f"__i{name}__"] = lambda a, b: vm.call(getattr(operator, "i" + name), (a, b), {})


for _name in "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift".split():
    _operator(getattr(operator, _name + "_" if _name in ("and", "or") else _name), _name)
for _name in "lt le eq ne gt ge neg pos abs invert contains".split():
    METHODS[f"__{_name}__"] = functools.partial(lambda fn, *operands: vm.call(fn, operands, {}), getattr(operator, _name))


@method("__array__")
def as_array(a: Any, dtype: Any = None, copy: Any = None) -> Any:
    if copy is not None or type(a) is not TracedArray:
        raise Unsure("keywords")
    return asarray(a, dtype)


# -- the protocols --------------------------------------------------------------------------------------------------------
def length_of(a: TracedArray) -> Any:
    if not a.ndim:
        raise TypeError("len() of unsized object")
    return a.sizes[0]


def iterate(a: TracedArray) -> Any:
    """Rows, which are views, or scalars, each read when it is asked for; how many is pinned."""
    if not a.ndim:
        raise TypeError("iteration over a 0-d array")
    n = concrete(a.sizes[0])
    if a.ndim == 1:
        return interp(in_python.items_of, (a, n), {})
    return iter([vm.getitem(a, i) for i in range(n)])  # type: ignore[arg-type]


def contains(a: TracedArray, x: Any) -> bool:
    return vm.truth(compute("in", lambda: reductions.any_(operate(operator.eq, a, x)), (), {}))


def truth(a: TracedArray) -> bool:
    """Of one element, or none: the graph breaks for others too, so that NumPy raises."""
    raise Break("PL0001", "a branch on the value of an array", clean=True)


def scalar_truth(s: TracedScalar) -> bool:
    if s.number is not None:
        return bool(s.number)
    raise Break("PL0001", "a branch on the value of an array", clean=True)


def number_of(a: Any) -> Any:
    return compute("a number of Python", item, (a,), {})


def index_of(a: Any) -> Any:
    if a.dtype.kind not in "iu" or type(a) is TracedArray:
        raise Break(CODE, f"an index made of {a.dtype}", clean=True)
    return number_of(a)


def number(a: Any, kind: type) -> Any:
    if type(a) is TracedArray and a.ndim:
        raise Break(CODE, "an array as a number", clean=True)
    n = number_of(a)
    if kind is int:
        return n if type(n) in (int, torch.SymInt) else torch.sym_int(n) if type(n) in (torch.SymFloat, torch.SymBool) else int(n)
    if kind is float:
        return n if type(n) in (float, torch.SymFloat) else torch.sym_float(n) if type(n) is torch.SymInt else float(concrete(n))
    return kind(concrete(n))


def hashed(s: TracedScalar) -> Any:
    """As a key, it is its number."""
    if s.number is None:
        raise Break(CODE, "a scalar as a key", clean=True)
    return s.dtype.type(concrete(s.number))


def unhashable(a: TracedArray) -> Any:
    raise TypeError("unhashable type: 'numpy.ndarray'")


def text(a: Any, fn: Any) -> Any:
    if type(a) is TracedScalar and a.number is not None:
        return fn(a.dtype.type(concrete(a.number)))
    raise Break("PL0005", "the text of an array", clean=True)


def formatted(a: Any, spec: str) -> Any:
    if type(a) is TracedScalar and a.number is not None:
        return format(a.dtype.type(concrete(a.number)), spec)
    raise Break("PL0005", "formatting an array into a string", clean=True)


_ = BOOL, asked, constant, derived, scalar
