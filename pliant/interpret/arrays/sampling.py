"""Functions over samples and signals: interpolation, histograms, covariances, integrals, factorizations."""

from __future__ import annotations

from typing import Any

from pliant.graph.originals import ORIGINAL, math, operator, torch
from pliant.graph.originals import numpy as np
from pliant.interpret.arrays import reductions
from pliant.interpret.arrays.dtypes import BOOL, FLOAT64, INT64, Unsure
from pliant.interpret.arrays.making import size
from pliant.interpret.arrays.numpy_operators import alike, operator_of_numpy, positions
from pliant.interpret.arrays.operands import asarray, fresh, operand, scalar_operand, tensor_in, to
from pliant.interpret.arrays.proxies import TracedArray, array, scalar, whole_array
from pliant.interpret.arrays.shaping import truth_of
from pliant.interpret.arrays.table import function
from pliant.interpret.arrays.ufuncs import t
from pliant.interpret.slots import unpack
from pliant.interpret.state import vm


def float64_like(x: Any, *args: Any) -> Any:
    return torch.empty(x.shape, dtype=torch.float64)


DIGITIZE = operator_of_numpy(
    "digitize(Tensor x, Tensor bins, bool right) -> Tensor", lambda x, b, r: np.digitize(x.numpy(), b.numpy(), r), positions
)
INTERP = operator_of_numpy(
    "interp(Tensor x, Tensor xp, Tensor fp) -> Tensor", lambda x, xp, fp: np.interp(x.numpy(), xp.numpy(), fp.numpy()), float64_like
)
MODES = ("valid", "same", "full")


def convolved(a: Any, v: Any, mode: int) -> Any:
    n, m = a.shape[0], v.shape[0]
    most, least = torch.sym_max(n, m), torch.sym_min(n, m)
    return torch.empty((most - least + 1, most, n + m - 1)[mode], dtype=a.dtype)


CONVOLVE = operator_of_numpy(
    "convolve(Tensor a, Tensor v, int mode) -> Tensor", lambda a, v, mode: np.convolve(a.numpy(), v.numpy(), MODES[mode]), convolved  # type: ignore[call-overload]
)


def counted(x: Any, bins: Any, lo: Any, hi: Any) -> tuple:
    edges = torch.float32 if x.dtype is torch.float32 else torch.float64
    return torch.empty((bins,), dtype=torch.int64), torch.empty((bins + 1,), dtype=edges)


HISTOGRAM = operator_of_numpy(
    "histogram(Tensor x, SymInt bins, float? lo, float? hi) -> (Tensor, Tensor)",
    lambda x, bins, lo, hi: np.histogram(x.numpy(), bins, None if lo is None else (lo, hi)),
    counted,
)
INV = operator_of_numpy("inv(Tensor x) -> Tensor", lambda x: np.linalg.inv(x.numpy()), alike)
DET = operator_of_numpy("det(Tensor x) -> Tensor", lambda x: np.linalg.det(x.numpy()), lambda x: torch.empty(x.shape[:-2], dtype=x.dtype))
SOLVE = operator_of_numpy("solve(Tensor a, Tensor b) -> Tensor", lambda a, b: np.linalg.solve(a.numpy(), b.numpy()), lambda a, b: alike(b))
PINV = operator_of_numpy(
    "pinv(Tensor x) -> Tensor", lambda x: np.linalg.pinv(x.numpy()), lambda x: torch.empty((x.shape[1], x.shape[0]), dtype=x.dtype)
)


@function(np.digitize)
def digitize(x: Any, bins: Any, right: bool = False) -> Any:
    rule, o = operand(x)
    b = asarray(bins)
    if type(right) is not bool or b.dtype.kind not in "iuf" or (isinstance(rule, np.dtype) and rule.kind not in "iuf"):
        raise Unsure("keywords")
    dt = rule if isinstance(rule, np.dtype) else INT64 if rule is int else FLOAT64
    r = t(DIGITIZE, tensor_in(o, dt), b.tensor, right)
    return scalar(r) if scalar_operand(o) else whole_array(r)


@function(np.interp)
def interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None) -> Any:
    rule, o = operand(x)
    a, b = asarray(xp), asarray(fp)
    if left is not None or right is not None or period is not None or "c" in a.dtype.kind + b.dtype.kind:
        raise Unsure("keywords")
    r = t(INTERP, tensor_in(o, FLOAT64), to(a.tensor, FLOAT64), to(b.tensor, FLOAT64))
    return scalar(r) if scalar_operand(o) else whole_array(r)


@function(np.convolve)
def convolve(a: Any, v: Any, mode: str = "full") -> Any:
    x, y = asarray(a), asarray(v)
    dt = np.result_type(x.dtype, y.dtype)
    if x.ndim != 1 or y.ndim != 1 or mode not in MODES or dt.kind not in "iuf" or dt.name in ("uint16", "uint32", "uint64"):
        raise Unsure("keywords")
    return whole_array(t(CONVOLVE, to(x.tensor, dt), to(y.tensor, dt), MODES.index(mode)))


@function(np.histogram)
def histogram(a: Any, bins: Any = 10, range: Any = None, density: Any = None, weights: Any = None) -> Any:
    x = asarray(a)
    if density is not None or weights is not None or x.dtype.name not in ("float32", "float64", "int64", "int32"):
        raise Unsure("keywords")
    if type(bins) in (str, list, tuple, TracedArray):
        raise Unsure("bins")
    ends = (None, None) if range is None else tuple(unpack(range))
    if not all([e is None or type(e) in (int, float) for e in ends]):
        raise Unsure("a range")
    lo, hi = [None if e is None else float(e) for e in ends]
    if range is not None and x.dtype.name == "float32":
        raise Unsure("a range")
    return tuple([whole_array(r) for r in t(HISTOGRAM, x.tensor, size(bins), lo, hi)])


# -- samples ----------------------------------------------------------------------------------------------------------------
@function(np.cov)
def cov(
    m: Any, y: Any = None, rowvar: Any = True, bias: Any = False, ddof: Any = None, fweights: Any = None, aweights: Any = None, *,
    dtype: Any = None,
) -> Any:  # fmt: skip
    x = asarray(m)
    if any([k is not None for k in (y, fweights, aweights, dtype)]) or x.ndim > 2 or not x.ndim or x.dtype.kind not in "iuf":
        raise Unsure("keywords")
    if type(rowvar) is not bool or type(bias) is not bool or type(ddof) not in (int, type(None)):
        raise Unsure("keywords")
    z = to(x.tensor, FLOAT64)
    z = t(torch.unsqueeze, z, 0) if x.ndim == 1 else z
    if not rowvar and not (type(z.sizes[0]) is int and z.sizes[0] == 1):
        z = t(torch.transpose, z, 0, 1)
    n = z.sizes[1]
    ddof = (0 if bias else 1) if ddof is None else ddof
    z = t(torch.sub, z, t(torch.div, t(torch.sum, z, 1, True), reductions.real(n)))
    c = t(torch.div, t(torch.matmul, z, t(torch.transpose, z, 0, 1)), reductions.real(torch.sym_max(n - ddof, 0)))
    return whole_array(t(torch.reshape, c, ()) if x.ndim == 1 or vm.truth(z.sizes[0] == 1) else c)


@function(np.corrcoef)
def corrcoef(x: Any, y: Any = None, rowvar: Any = True) -> Any:
    if y is not None or asarray(x).ndim != 2:
        raise Unsure("keywords")
    c = cov(x, None, rowvar).tensor
    d = t(torch.sqrt, t(torch.diagonal, c))
    c = t(torch.div, t(torch.div, c, t(torch.unsqueeze, d, 1)), t(torch.unsqueeze, d, 0))
    return whole_array(t(torch.clamp, c, -1.0, 1.0))


def trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: Any = -1) -> Any:
    a = asarray(y)
    if a.dtype.kind not in "iuf" or axis not in (-1,) or type(dx) is not float:
        raise Unsure("keywords")
    d: Any = dx
    if x is not None:
        b = asarray(x)
        if b.ndim != 1 or b.dtype.kind not in "iuf":
            raise Unsure("places of several dims")
        z = to(b.tensor, FLOAT64) if b.dtype.kind in "iu" and a.dtype.kind == "f" and a.dtype != FLOAT64 else b.tensor
        d = t(torch.sub, t(operator.getitem, z, slice(1, None)), t(operator.getitem, z, slice(None, -1)))
        d = to(d, np.result_type(b.dtype, a.dtype, 1.0))
    z = to(a.tensor, np.result_type(a.dtype, 1.0) if x is None else np.result_type(a.dtype, asarray(x).dtype, 1.0))
    both = t(torch.add, t(operator.getitem, z, (..., slice(1, None))), t(operator.getitem, z, (..., slice(None, -1))))
    return array(t(torch.sum, t(torch.div, t(torch.mul, both, d), 2.0), -1))


for _name in ("trapezoid", "trapz"):
    if hasattr(np, _name) and callable(getattr(np, _name)):
        function(getattr(np, _name))(trapezoid)


@function(np.select)
def select(condlist: Any, choicelist: Any, default: Any = 0) -> Any:
    conditions, choices = unpack(condlist), unpack(choicelist)
    if len(conditions) != len(choices) or not conditions:
        raise Unsure("conditions")
    pairs = [operand(c) for c in (*choices, default)]
    dt = np.result_type(*[r(1) if isinstance(r, type) else r for r, _ in pairs])
    *values, r = [tensor_in(o, dt) for _, o in pairs]
    for c, v in reversed(list(zip(conditions, values, strict=True))):
        if asarray(c).dtype != BOOL:
            raise Unsure("conditions")
        r = t(torch.where, truth_of(c), v, r)
    return whole_array(fresh(r, *values))


@function(np.unravel_index)
def unravel_index(indices: Any, shape: Any, order: str = "C") -> Any:
    rule, o = operand(indices)
    sizes = tuple([size(n) for n in unpack(shape)])
    if order != "C" or (isinstance(rule, np.dtype) and rule.kind not in "iu") or rule is float or not sizes:
        raise Unsure("keywords")
    left, out = tensor_in(o, INT64), []
    reductions.holds(t(torch.logical_and, t(torch.ge, left, 0), t(torch.lt, left, math.prod(sizes))))
    for n in reversed(sizes):
        out.append(t(torch.remainder, left, n))
        left = t(torch.div, left, n, rounding_mode="floor")
    return tuple([scalar(x) if scalar_operand(o) else whole_array(x) for x in reversed(out)])


# -- factorizations -----------------------------------------------------------------------------------------------------------
def square(a: Any) -> Any:
    x = asarray(a)
    if x.ndim < 2 or x.dtype.name not in ("float32", "float64", "int64", "int32"):
        raise Unsure(f"a matrix of {x.dtype}")
    return x.tensor if x.dtype.kind == "f" else to(x.tensor, FLOAT64)


@function(np.linalg.inv)
def inv(a: Any) -> Any:
    return whole_array(t(INV, square(a)))


@function(np.linalg.det)
def det(a: Any) -> Any:
    return array(t(DET, square(a)))


@function(np.linalg.solve)
def solve(a: Any, b: Any) -> Any:
    x, y = square(a), asarray(b)
    dt = np.result_type(asarray(a).dtype, y.dtype, np.float32)
    if y.ndim not in (1, 2) or dt.name not in ("float32", "float64") or y.dtype.kind not in "iuf" or ORIGINAL.dim(x) != 2:
        raise Unsure("what is to be solved")
    return whole_array(t(SOLVE, to(x, dt), to(y.tensor, dt)))


@function(np.linalg.pinv)
def pinv(a: Any) -> Any:
    x = square(a)
    if ORIGINAL.dim(x) != 2:
        raise Unsure("several matrices")
    return whole_array(t(PINV, x))


