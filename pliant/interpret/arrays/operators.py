"""Python's operators over arrays, scalars, and what they meet; writing into arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pliant.graph.originals import ORIGINAL, operator, torch
from pliant.graph.originals import numpy as np
from pliant.graph.symnode import concrete
from pliant.graph.traced import TracedTensor
from pliant.interpret.arrays import ufuncs
from pliant.interpret.arrays.dtypes import BOOL, FLOAT64, SCALARS, Unsure, fits
from pliant.interpret.arrays.operands import WEAK, asarray, constant_tensor, fresh, lent, number_in, operand, to
from pliant.interpret.arrays.proxies import TracedArray, TracedScalar, scalar_of, whole_array
from pliant.interpret.arrays.table import WRAPPED, asked, compute, constant, warn
from pliant.interpret.calls import graph_call
from pliant.interpret.state import Break, vm

UFUNCS: dict[Any, np.ufunc] = {
    operator.add: np.add, operator.sub: np.subtract, operator.mul: np.multiply, operator.truediv: np.true_divide,
    operator.floordiv: np.floor_divide, operator.mod: np.remainder, operator.pow: np.power, operator.and_: np.bitwise_and,
    operator.or_: np.bitwise_or, operator.xor: np.bitwise_xor, operator.lshift: np.left_shift, operator.rshift: np.right_shift,
    operator.eq: np.equal, operator.ne: np.not_equal, operator.lt: np.less, operator.le: np.less_equal, operator.gt: np.greater,
    operator.ge: np.greater_equal, operator.neg: np.negative, operator.pos: np.positive, operator.abs: np.absolute,
    operator.invert: np.invert,
}  # fmt: skip
INPLACE = {getattr(operator, "i" + fn.__name__.rstrip("_")): fn for fn in list(UFUNCS) if hasattr(operator, "i" + fn.__name__.rstrip("_"))}
INPLACE[operator.imatmul] = operator.matmul
INPLACE.pop(operator.inv, None)
EXACT = {operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod, operator.neg, operator.abs}
COMPARES = {operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge}
OPERANDS = {TracedArray, TracedScalar, bool, list, tuple, *WEAK, *SCALARS}
NUMBERS = {bool, *WEAK, *SCALARS}
SYMBOLIC = (torch.SymInt, torch.SymFloat)


# -- two operands ---------------------------------------------------------------------------------------------------------
def binary(fn: Callable, a: Any, b: Any) -> Any:
    """`fn(a, b)` where one is an array or a scalar; NotImplemented where the other's own methods are to be asked."""
    ta, tb = type(a), type(b)
    plain = INPLACE.get(fn, fn)
    if TracedTensor in (ta, tb):
        return with_tensor(fn, plain, a, b)
    if ta not in OPERANDS or tb not in OPERANDS:
        raise Break("PL0026", f"an operator on {ta.__name__} and {tb.__name__}", clean=True)
    if plain is not fn and ta is TracedArray:
        compute(fn.__name__, in_place, (plain, a, b), {})
        return a
    return compute(plain.__name__, operate, (plain, a, b), {})


def operate(fn: Callable, *given: Any) -> Any:
    """An operator whose result is a new array or scalar."""
    if all([type(x) in NUMBERS and constant(x) for x in given]):
        return asked(fn, *given)
    if TracedArray not in map(type, given):
        if any([type(x) in (list, tuple) for x in given]):
            raise Unsure("a scalar and a sequence")
        found = symbolic(fn, given)
        if found is not None:
            return found
    if fn is operator.matmul:
        return MATMUL[0](*given)
    return ufuncs.apply(UFUNCS[fn], *given)


MATMUL: list[Any] = []


def symbolic(fn: Callable, given: tuple) -> Any:
    """An operator on scalars whose numbers are symbolic: a symbolic number, if it is known to fit the dtype of the result; else None."""
    if any([type(x) is TracedScalar and type(x.number) not in SYMBOLIC for x in given]) or (fn not in EXACT and fn not in COMPARES):
        return None
    uf = UFUNCS[fn]
    *ins, out = uf.resolve_dtypes((*[operand(x)[0] for x in given], None))
    if any([dt != ins[0] for dt in ins]) or ins[0].kind not in "iuf":
        return None
    try:
        numbers = [number_of(x, ins[0]) for x in given]
    except Unsure:
        return None
    if ins[0].kind == "f" and fn not in COMPARES and (ins[0] != FLOAT64 or fn in (operator.floordiv, operator.mod)):
        return None
    if fn in (operator.floordiv, operator.mod) and not (type(numbers[1]) is int and numbers[1] > 0):
        return None
    if fn is operator.abs:
        return None
    r = fn(*numbers)
    if fn in COMPARES:
        return scalar_of(r, BOOL)
    return scalar_of(r, out) if out.kind == "f" or fits(r, out) else None


def number_of(x: Any, dt: np.dtype) -> Any:
    return number_in(x.number if type(x) is TracedScalar else x, dt)


def with_tensor(fn: Callable, plain: Callable, a: Any, b: Any) -> Any:
    """A tensor and an array or scalar: torch takes scalars for numbers; beside an array, a tensor is one, and the result is a tensor."""
    t, other = (a, b) if type(a) is TracedTensor else (b, a)
    if type(other) in SCALARS:  # C code makes of it what it makes of it in eager
        return graph_call(fn, (a, b), {})
    if type(other) is TracedScalar:
        n = torch_number(other)
        return graph_call(fn, (a, n) if t is a else (n, b), {})
    if type(other) is not TracedArray:
        return NotImplemented
    if t is not a and plain is not operator.truediv or plain not in UFUNCS or plain in COMPARES:
        raise Break("PL0026", f"{fn.__name__} of an array and a tensor", clean=True)
    if t is not a:  # the array leaves it to `Tensor.__rtruediv__`
        return compute(fn.__name__, tensor_with_array, (operator.mul, graph_call(ORIGINAL.reciprocal, (t,), {}), a), {})
    return compute(fn.__name__, tensor_with_array, (plain, a, b), {})


def tensor_with_array(fn: Callable, a: Any, b: Any) -> Any:
    """`Tensor.__array_wrap__` of what NumPy makes of both."""
    r = ufuncs.apply(UFUNCS[fn], *[lent(x) if type(x) is TracedTensor else x for x in (a, b)])
    if type(r) not in (TracedArray, TracedScalar) or r.dtype == BOOL:
        raise Unsure("a condition")
    warn(WRAPPED)
    return fresh(r.tensor)


def torch_number(s: TracedScalar) -> Any:
    """The Python number that torch takes a scalar for."""
    if s.dtype.kind not in "iuf":
        raise Break("PL0026", f"a scalar of {s.dtype} as a number of torch", clean=True)
    if s.number is not None:
        return s.number
    return graph_call(ORIGINAL.item, (s.tensor,), {}, "item")


def compare(fn: Callable, a: Any, b: Any) -> Any:
    ta, tb = type(a), type(b)
    if TracedTensor in (ta, tb):
        return with_tensor(fn, fn, a, b)
    if ta not in OPERANDS or tb not in OPERANDS:
        scalars = ta in SCALARS or tb in SCALARS
        if scalars and constant(a) and constant(b):
            return fn(a, b)
        raise Break("PL0026", f"comparing {ta.__name__} and {tb.__name__}", clean=True)
    if TracedArray not in (ta, tb) and TracedScalar not in (ta, tb) and list not in (ta, tb) and tuple not in (ta, tb):
        r = big_ints(fn, a, b)
        return fn(concrete(a), concrete(b)) if r is None else r
    return compute(fn.__name__, operate, (fn, a, b), {})


def big_ints(fn: Callable, a: Any, b: Any) -> Any:
    """A constant scalar beside a symbolic number of Python's: a symbolic answer where both are ints or floats."""
    for x, y in ((a, b), (b, a)):
        if type(x) in SYMBOLIC and type(y) in SCALARS and SCALARS[type(y)].kind in "iuf":
            return compute(fn.__name__, operate, (fn, a, b), {})
    return None


def unary(fn: Callable, a: Any) -> Any:
    if fn not in UFUNCS:
        raise Break("PL0026", f"{fn.__name__} of an array", clean=True)
    if type(a) in SCALARS:
        return compute(fn.__name__, asked, (fn, a), {})
    return compute(fn.__name__, operate, (fn, a), {})


# -- writing -----------------------------------------------------------------------------------------------------------------
def writable(a: TracedArray) -> Any:
    """The tensor to write into. Raises Unsure where NumPy would raise, or where the graph cannot write."""
    if not a.writeable:
        raise Unsure("the array is read-only")
    if a.lent:
        raise Unsure("it writes into the memory of a tensor")
    if a.remake is not None:
        raise Unsure("it writes through a view that torch does not have")
    return a.found


def value_for(a: TracedArray, v: Any) -> Any:
    """A value to store in `a`: a tensor of its dtype, or a Python number; C's conversions apply."""
    if type(v) is TracedArray or type(v) is TracedScalar:
        if v.dtype.kind == "f" and a.dtype.kind in "iub" and a.dtype.kind != "b":
            raise Unsure("floats stored as ints")
        return to(v.tensor, a.dtype)
    if type(v) is float and a.dtype.kind in "iu" or type(v) is complex and a.dtype.kind != "c":
        raise Unsure("floats stored as ints")
    if type(v) in (list, tuple):
        if constant(v):
            return to(constant_tensor(np.array(v)), a.dtype)
        return value_for(a, asarray(v))
    if type(v) not in NUMBERS:
        raise Unsure(f"a {type(v).__name__} stored in an array")
    if type(v) in SCALARS and SCALARS[type(v)].kind == "f" and a.dtype.kind in "iu":
        raise Unsure("floats stored as ints")
    return number_in(v, a.dtype)


def apart(t: Any, v: Any) -> Any:
    """A value in memory of its own, where it may lie in what is written."""
    if type(v) is not TracedTensor:
        return v
    inputs = {i.storage_id for i in vm.trace.inputs}
    return graph_call(torch.clone, (v,), {}) if v.storage_id == t.storage_id or (v.storage_id in inputs and t.storage_id in inputs) else v


def store(t: Any, v: Any) -> None:
    """All of tensor `t` becomes `v`."""
    v = apart(t, v)
    graph_call(ORIGINAL.copy_ if type(v) is TracedTensor else ORIGINAL.fill_, (t, v), {})


def in_place(fn: Callable, a: TracedArray, b: Any) -> None:
    """`a += b`: the loop is that of `a + b`, and what it gives must fit `a` (casting of the same kind)."""
    if fn is operator.matmul and a.ndim < 2:
        raise Unsure("a product of vectors in place")
    t = writable(a)
    r = operate(fn, a, b)
    r = r if type(r) is TracedArray else asarray(r)
    into(a, t, r)


def into(a: TracedArray, t: Any, r: TracedArray) -> None:
    if not np.can_cast(r.dtype, a.dtype, "same_kind") or r.ndim > a.ndim:
        raise Unsure("the result does not fit")
    if r.dtype.kind == "f" and a.dtype.kind in "iu":
        raise Unsure("the result does not fit")
    store(t, to(r.tensor, a.dtype))


def out_of(uf: np.ufunc, given: tuple, out: Any) -> Any:
    """`uf(*given, out=out)`."""
    if type(out) is tuple and len(out) == 1:
        out = out[0]
    if type(out) is not TracedArray:
        raise Unsure("out=")
    t = writable(out)
    r = ufuncs.apply(uf, *given)
    r = r if type(r) is TracedArray else asarray(r)
    if not same_shape(r, out):
        raise Unsure("the result is broadcast")
    into(out, t, r)
    return out


def same_shape(a: TracedArray, b: TracedArray) -> bool:
    return a.ndim == b.ndim and all([x is y or vm.truth(x == y) for x, y in zip(a.sizes, b.sizes, strict=True)])


ufuncs.OUT.append(out_of)
_ = whole_array
