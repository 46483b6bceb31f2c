"""Universal functions: NumPy itself says which loop it would run on these dtypes (`resolve_dtypes`); a row computes that loop with torch.

A row is given its operands in the dtypes of the loop, as tensors or Python numbers (at least one is a tensor), and returns a tensor. Rows
are for kinds of dtypes: `b` bool, `i` signed, `u` uint8, `f` float, `c` complex. What NumPy defines where C does not (division by zero of
ints, shifts beyond the width) is written out.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pliant.graph.originals import ORIGINAL, operator, torch
from pliant.graph.originals import numpy as np
from pliant.graph.symnode import to_sym
from pliant.graph.traced import TracedTensor
from pliant.interpret.arrays.dtypes import SCARCE, TORCH, Unsure, fits, torch_dtype
from pliant.interpret.arrays.memory_order import in_order
from pliant.interpret.arrays.operands import fresh, full, in_loop, operand, tensor_in, to
from pliant.interpret.arrays.proxies import TracedArray, TracedScalar, array, scalar_of, whole_array
from pliant.interpret.arrays.table import asked, constant, enter
from pliant.interpret.calls import graph_call
from pliant.interpret.state import vm
from pliant.symbolic import ops


@dataclass(slots=True)
class Loop:
    """A row: `compute` for the kinds of dtypes in `kinds`; with `tensors`, no operand is a Python number."""

    compute: Callable[..., Any]
    kinds: str
    tensors: bool = False


LOOPS: dict[np.ufunc, list[Loop]] = {}


def t(fn: Any, *args: Any, **kw: Any) -> Any:
    """A torch operation of the graph."""
    if fn not in OF_SCARCE:
        for a in args:
            if type(a) is TracedTensor and a.dtype in SCARCE:
                raise Unsure(f"{fn.__name__} of {a.dtype}, which PyTorch has no kernel for")
    return graph_call(fn, args, kw)


OF_SCARCE = {
    *(torch.cat, torch.clone, torch.cumsum, torch.diag, torch.diagonal, torch.div, torch.eq, torch.full_like, torch.index_select),
    *(torch.movedim, torch.mul, torch.ne, torch.ones_like, torch.permute, torch.prod, torch.repeat_interleave, torch.reshape),
    *(torch.resolve_conj, torch.roll, torch.select, torch.sort, torch.squeeze, torch.stack, torch.sum, torch.tile, torch.transpose),
    *(torch.unbind, torch.unsqueeze, torch.where, torch.zeros_like, operator.getitem),
    *(ORIGINAL.to, ORIGINAL.item, ORIGINAL.expand, ORIGINAL.contiguous, ORIGINAL.detach, ORIGINAL.view, ORIGINAL.unfold),
}
"""What PyTorch's kernels take of unsigned integers of 16, 32 and 64 bits."""


def loop(names: str, kinds: str, tensors: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def register(fn: Callable[..., Any]) -> Callable[..., Any]:
        for name in names.split():
            uf = getattr(np, name, None)
            if uf is not None:
                LOOPS.setdefault(uf, []).append(Loop(fn, kinds, tensors))
        return fn

    return register


def torch_loops(kinds: str, tensors: bool = False, **names: Any) -> None:
    for name, fn in names.items():
        loop(name, kinds, tensors)(functools.partial(t, fn))


# -- arithmetic ---------------------------------------------------------------------------------------------------------
torch_loops("iufc", add=torch.add, subtract=torch.sub, multiply=torch.mul)
torch_loops("b", tensors=True, add=torch.logical_or, multiply=torch.logical_and, maximum=torch.logical_or, minimum=torch.logical_and)
torch_loops("fc", divide=torch.div)


def least(dtype: torch.dtype) -> int:
    return torch.iinfo(dtype).min


def divisible(a: Any, b: Any) -> tuple[Any, Any]:
    """(b without what no processor divides by, where it is zero): the least int by -1 wraps around to itself."""
    zero = t(torch.eq, b, 0)
    bad = zero
    if a.dtype.is_signed:
        bad = t(torch.logical_or, zero, t(torch.logical_and, t(torch.eq, a, least(a.dtype)), t(torch.eq, b, -1)))
    return t(torch.where, bad, t(torch.ones_like, b), b), zero


@loop("floor_divide", "iu", True)
def int_floor_divide(a: Any, b: Any) -> Any:
    by, zero = divisible(a, b)
    return t(torch.where, zero, 0, t(torch.div, a, by, rounding_mode="floor"))


@loop("remainder", "iu", True)
def int_remainder(a: Any, b: Any) -> Any:
    by, zero = divisible(a, b)
    return t(torch.where, zero, 0, t(torch.remainder, a, by))


@loop("fmod", "iu", True)
def int_fmod(a: Any, b: Any) -> Any:
    by, zero = divisible(a, b)
    return t(torch.where, zero, 0, t(torch.fmod, a, by))


@loop("floor_divide", "f", True)
def float_floor_divide(a: Any, b: Any) -> Any:
    """As NumPy does it: from the remainder, snapped to the nearest whole number."""
    mod = t(torch.fmod, a, b)
    div = t(torch.div, t(torch.sub, a, mod), b)
    other = t(torch.logical_and, t(torch.ne, mod, 0), t(torch.ne, t(torch.lt, b, 0), t(torch.lt, mod, 0)))
    div = t(torch.where, other, t(torch.sub, div, 1), div)
    floor = t(torch.floor, div)
    floor = t(torch.where, t(torch.gt, t(torch.sub, div, floor), 0.5), t(torch.add, floor, 1), floor)
    quotient = t(torch.div, a, b)
    floor = t(torch.where, t(torch.eq, div, 0), t(torch.copysign, t(torch.zeros_like, quotient), quotient), floor)
    return t(torch.where, t(torch.eq, b, 0), quotient, floor)


@loop("remainder", "f", True)
def float_remainder(a: Any, b: Any) -> Any:
    mod = t(torch.fmod, a, b)
    other = t(torch.logical_and, t(torch.ne, mod, 0), t(torch.ne, t(torch.lt, b, 0), t(torch.lt, mod, 0)))
    mod = t(torch.where, t(torch.eq, mod, 0), t(torch.copysign, mod, b), mod)
    return t(torch.where, other, t(torch.add, mod, b), mod)


@loop("fmod", "f", True)
def float_fmod(a: Any, b: Any) -> Any:
    return t(torch.fmod, a, b)


@loop("power", "fc")
def float_power(a: Any, b: Any) -> Any:
    return t(torch.pow, a, b)


@loop("float_power", "f")
def always_float_power(a: Any, b: Any) -> Any:
    return t(torch.pow, a, b)


@loop("power", "iu")
def int_power(a: Any, b: Any) -> Any:
    if type(b) is not int or b < 0:
        raise Unsure("integers to powers that may be negative")
    return t(torch.pow, a, b)


torch_loops("iufc", negative=torch.neg, positive=torch.clone, square=torch.square, conjugate=torch.clone)
LOOPS[np.conjugate] = [Loop(functools.partial(t, torch.clone), "iuf"), Loop(lambda a: t(torch.conj_physical, a), "c")]
torch_loops("iufc", absolute=torch.abs)
torch_loops("b", absolute=torch.clone)
torch_loops("f", fabs=torch.abs)
torch_loops("fc", reciprocal=torch.reciprocal)
torch_loops("iu", sign=torch.sign)


@loop("sign", "f")
def float_sign(a: Any) -> Any:
    return t(torch.where, t(torch.isnan, a), a, t(torch.sign, a))


# -- elementary functions -----------------------------------------------------------------------------------------------
torch_loops(
    "fc", exp=torch.exp, log=torch.log, sqrt=torch.sqrt, sin=torch.sin, cos=torch.cos, tan=torch.tan, sinh=torch.sinh, cosh=torch.cosh,
    tanh=torch.tanh,
)  # fmt: skip
torch_loops(
    "f", exp2=torch.exp2, expm1=torch.expm1, log2=torch.log2, log10=torch.log10, log1p=torch.log1p, arcsin=torch.asin, arccos=torch.acos,
    arctan=torch.atan, arcsinh=torch.asinh, arccosh=torch.acosh, arctanh=torch.atanh, floor=torch.floor, ceil=torch.ceil, trunc=torch.trunc,
    rint=torch.round, deg2rad=torch.deg2rad, radians=torch.deg2rad, rad2deg=torch.rad2deg, degrees=torch.rad2deg,
)  # fmt: skip
torch_loops("biu", floor=torch.clone, ceil=torch.clone, trunc=torch.clone)
torch_loops("f", tensors=True, arctan2=torch.atan2, hypot=torch.hypot, logaddexp=torch.logaddexp, logaddexp2=torch.logaddexp2,
    copysign=torch.copysign)  # fmt: skip
torch_loops("iuf", tensors=True, maximum=torch.maximum, minimum=torch.minimum, fmax=torch.fmax, fmin=torch.fmin)
torch_loops("b", tensors=True, fmax=torch.logical_or, fmin=torch.logical_and)


@loop("gcd", "iu", True)
def gcd(a: Any, b: Any) -> Any:
    r = t(torch.gcd, a, b)
    return t(torch.abs, r) if a.dtype.is_signed else r



# -- questions --------------------------------------------------------------------------------------------------------------
torch_loops("biufc", equal=torch.eq, not_equal=torch.ne)
torch_loops("biuf", less=torch.lt, less_equal=torch.le, greater=torch.gt, greater_equal=torch.ge)
torch_loops("fc", isnan=torch.isnan, isinf=torch.isinf, isfinite=torch.isfinite)
loop("isnan isinf", "biu")(lambda a: t(torch.zeros_like, a, dtype=torch.bool))
loop("isfinite", "biu")(lambda a: t(torch.ones_like, a, dtype=torch.bool))
torch_loops("f", signbit=torch.signbit)
torch_loops("biufc", tensors=True, logical_and=torch.logical_and, logical_or=torch.logical_or, logical_xor=torch.logical_xor)
torch_loops("biufc", logical_not=torch.logical_not)

# -- bits ---------------------------------------------------------------------------------------------------------------------
torch_loops("biu", tensors=True, bitwise_and=torch.bitwise_and, bitwise_or=torch.bitwise_or, bitwise_xor=torch.bitwise_xor)
torch_loops("biu", invert=torch.bitwise_not)


def shift(fn: Any, beyond: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    def compute(a: Any, b: Any) -> Any:
        width = 8 * a.dtype.itemsize
        within = t(torch.logical_and, t(torch.ge, b, 0), t(torch.lt, b, width))
        return t(torch.where, within, t(fn, a, t(torch.where, within, b, t(torch.zeros_like, b))), beyond(a))

    return compute


def sign_bits(a: Any) -> Any:
    if a.dtype.is_signed:
        return t(torch.bitwise_right_shift, a, t(torch.full_like, a, 8 * a.dtype.itemsize - 1))
    return t(torch.zeros_like, a)


loop("left_shift", "iu", True)(shift(torch.bitwise_left_shift, lambda a: t(torch.zeros_like, a)))
loop("right_shift", "iu", True)(shift(torch.bitwise_right_shift, sign_bits))


# -- picking and running a loop -----------------------------------------------------------------------------------------------
def kind_of(dt: np.dtype) -> str:
    return dt.kind


def row_for(uf: np.ufunc, dtypes: tuple) -> Loop:
    """The row for a loop over inputs of these dtypes."""
    kinds = {kind_of(dt) for dt in dtypes}
    for found in LOOPS.get(uf, ()):
        if kinds <= set(found.kinds) and len(kinds) == 1:
            return found
    raise Unsure(f"{uf.__name__} of {', '.join(map(str, dtypes))}")


def through(dt: np.dtype) -> np.dtype:
    """In what dtype torch computes a loop: what it lacks operators for is computed wider, and wraps when it is made narrow again."""
    if TORCH.get(dt) in SCARCE:
        if dt.itemsize == 8:
            raise Unsure(f"arithmetic in {dt}")
        return np.dtype("int64")
    return dt


WIDENED = set(
    "add subtract multiply equal not_equal less less_equal greater greater_equal bitwise_and bitwise_or bitwise_xor maximum minimum"
    " floor_divide remainder".split()
)
"""What comes to the same in a wider dtype."""


def compute_loop(uf: np.ufunc, given: list[Any], rules: list[Any]) -> Any:
    """The tensor of one output."""
    *ins, out = uf.resolve_dtypes((*rules, None))
    found = row_for(uf, tuple(ins))
    inner = [through(dt) for dt in ins]
    if inner != list(ins) and uf.__name__ not in WIDENED:
        raise Unsure(f"{uf.__name__} of {ins[0]}")
    convert = tensor_in if found.tensors else in_loop
    made = [convert(x, dt) if a is dt or a == dt else to(tensor_in(x, a), dt) for x, a, dt in zip(given, ins, inner, strict=True)]
    if not any([type(m) is TracedTensor for m in made]):
        made[0] = full((), made[0], inner[0])
    if type(made[0]) is not TracedTensor and uf not in SCALAR_FIRST:
        made[0] = full((), made[0], inner[0])
    result = found.compute(*made)
    want = through(out) if torch_dtype(out) in SCARCE else out
    if result.dtype is not TORCH[want]:
        result = to(result, want)
    if want is not out and want != out:
        result = to(result, out)
    return in_order(fresh(result, *made), made)


SCALAR_FIRST = {np.add, np.multiply, np.power}
"""Whose torch operators take a Python number first."""


def apply(uf: np.ufunc, *given: Any) -> Any:
    """`uf(*given)`: an array or a scalar."""
    if all([constant(x) for x in given]) and not any([type(x) in (list, tuple) for x in given]):
        return asked(uf, *given)
    number = rounded(uf, given) if uf in ROUNDINGS else None
    if number is not None:
        return number
    pairs = [operand(x) for x in given]
    if uf in COMPARISONS and len(pairs) == 2:
        pairs = [as_wide(pairs[0], pairs[1]), as_wide(pairs[1], pairs[0])]
    return array(compute_loop(uf, [x for _, x in pairs], [rule for rule, _ in pairs]))


ROUNDINGS: dict[Any, Callable[..., Any]] = {np.ceil: ops.ceil, np.floor: ops.floor, np.trunc: ops.trunc}


def rounded(uf: np.ufunc, given: tuple) -> Any:
    """`np.ceil(n / 4)` of a size: what guards know they know rounded, too, where it is not below zero (a zero has a sign there)."""
    x = given[0]
    n = x.number if type(x) is TracedScalar and x.dtype == DOUBLE else x
    e = n.node.expr if type(n) is torch.SymFloat else None
    if e is None or not e.backed or any([s.kind is not int for s in e.symbols()]):
        return None
    low = vm.scope.range(e)[0]
    return scalar_of(to_sym(vm.scope, ops.to_float(ROUNDINGS[uf](e))), DOUBLE) if low is not None and low >= 0 else None


DOUBLE = np.dtype("float64")
COMPARISONS = {np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal}


def as_wide(pair: tuple[Any, Any], other: tuple[Any, Any]) -> tuple[Any, Any]:
    """An array of ints beside an int of Python that its dtype does not hold: NumPy compares values, as 64 bits do."""
    rule, x = pair
    weak, n = other
    if weak is int and isinstance(rule, np.dtype) and rule.kind in "iu" and rule.name != "uint64" and type(x) is TracedArray:
        if type(n) is int and not fits(n, rule) and fits(n, np.dtype("int64")):
            return np.dtype("int64"), whole_array(to(x.tensor, np.dtype("int64")))
    return pair


def entry(uf: np.ufunc) -> Callable[..., Any]:
    def call(*args: Any, dtype: Any = None, casting: str = "same_kind", out: Any = None) -> Any:
        if dtype is not None or casting != "same_kind" or len(args) != uf.nin:
            raise Unsure("keywords")
        if out is not None:
            return OUT[0](uf, args, out)
        return apply(uf, *args)

    return call


OUT: list[Any] = []
"""Set by `operators.py`: how results are written into an array."""

for _uf in list(LOOPS):
    enter(_uf, entry(_uf))
