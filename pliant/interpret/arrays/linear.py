"""Products of arrays, norms, and what signals are taken apart with."""

from __future__ import annotations

from typing import Any

from pliant.graph.originals import ORIGINAL, math, torch
from pliant.graph.originals import numpy as np
from pliant.interpret.arrays.dtypes import FLOAT64, Unsure
from pliant.interpret.arrays.operands import asarray, fresh, to
from pliant.interpret.arrays.operators import MATMUL
from pliant.interpret.arrays.proxies import TracedArray, array, may_be_empty, view_of, whole_array
from pliant.interpret.arrays.reductions import axes_of, one_axis, plain
from pliant.interpret.arrays.table import function
from pliant.interpret.arrays.ufuncs import t
from pliant.interpret.gate import index
from pliant.interpret.slots import unpack


def common(*arrays: TracedArray) -> list[Any]:
    """Tensors of a common dtype that torch has products for."""
    dt = np.result_type(*[a.dtype for a in arrays])
    if dt.kind not in "iufc" or dt.name in ("float16", "uint16", "uint32", "uint64"):
        raise Unsure(f"a product in {dt}")
    return [to(a.tensor, dt) for a in arrays]


@function(np.matmul)
def matmul(x1: Any, x2: Any, /) -> Any:
    a, b = asarray(x1), asarray(x2)
    if not a.ndim or not b.ndim:
        raise Unsure("a product of numbers")
    return array(t(torch.matmul, *common(a, b)))


MATMUL.append(matmul)


@function(np.dot)
def dot(a: Any, b: Any, out: Any = None) -> Any:
    if out is not None:
        raise Unsure("out=")
    a, b = asarray(a), asarray(b)
    x, y = common(a, b)
    if not a.ndim or not b.ndim:
        return array(t(torch.mul, x, y))
    if a.ndim <= 2 and b.ndim <= 2 or b.ndim == 1:
        return array(t(torch.matmul, x, y))
    return array(contracted(x, y, (a.ndim - 1,), (b.ndim - 2,)))


def contracted(x: Any, y: Any, of_x: tuple[int, ...], of_y: tuple[int, ...]) -> Any:
    """The sum of products over these dims. PyTorch repeats one of size 1, which NumPy refuses."""
    if len(of_x) != len(of_y) or not all([bool(x.shape[d] == y.shape[e]) for d, e in zip(of_x, of_y, strict=True)]):
        raise Unsure("a product of other sizes")
    return t(torch.tensordot, x, y, (of_x, of_y))


@function(np.vdot)
def vdot(a: Any, b: Any, /) -> Any:
    x, y = common(asarray(a), asarray(b))
    if x.dtype.is_complex:
        raise Unsure("complex numbers")
    return array(t(torch.matmul, t(torch.reshape, x, (-1,)), t(torch.reshape, y, (-1,))))


@function(np.inner)
def inner(a: Any, b: Any, /) -> Any:
    a, b = asarray(a), asarray(b)
    x, y = common(a, b)
    if not a.ndim or not b.ndim:
        return array(t(torch.mul, x, y))
    return array(contracted(x, y, (a.ndim - 1,), (b.ndim - 1,)))


@function(np.outer)
def outer(a: Any, b: Any, out: Any = None) -> Any:
    if out is not None:
        raise Unsure("out=")
    x, y = common(asarray(a), asarray(b))
    return whole_array(t(torch.mul, t(torch.reshape, x, (-1, 1)), t(torch.reshape, y, (1, -1))))


@function(np.tensordot)
def tensordot(a: Any, b: Any, axes: Any = 2) -> Any:
    a, b = asarray(a), asarray(b)
    x, y = common(a, b)
    if type(axes) is not int:
        p, q = [tuple(unpack(v)) if type(v) in (tuple, list) else (v,) for v in unpack(axes)]
        axes = tuple([one_axis(d, a.ndim) for d in p]), tuple([one_axis(d, b.ndim) for d in q])
    elif not 0 <= axes <= min(a.ndim, b.ndim):
        raise Unsure("axes")
    else:
        axes = tuple(range(a.ndim - axes, a.ndim)), tuple(range(axes))
    return whole_array(contracted(x, y, *axes))


@function(np.einsum)
def einsum(subscripts: Any, *operands: Any, optimize: Any = False) -> Any:
    if type(subscripts) is not str or not operands:
        raise Unsure("subscripts")
    made = common(*[asarray(o) for o in operands])
    return array(fresh(t(torch.einsum, subscripts, *made), *made))


@function(np.linalg.norm)
def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: Any = False) -> Any:
    """Of vectors, and of matrices as if they were."""
    a, keep = asarray(x), plain(keepdims)
    if a.dtype.kind not in "iuf" or a.dtype == np.float16:
        raise Unsure(f"a norm of {a.dtype}")
    dt = a.dtype if a.dtype.kind == "f" else FLOAT64
    y = to(a.tensor, dt)
    axes = axes_of(axis, a.ndim)
    if not axes or len(axes) > 2 and ord is not None or (ord is not None and len(axes) != 1):
        raise Unsure("a norm of matrices")
    if ord is None or ord == 2:
        return array(t(torch.sqrt, t(torch.sum, t(torch.mul, y, y), axes, keep)))
    if ord == 1:
        return array(t(torch.sum, t(torch.abs, y), axes, keep))
    if ord == math.inf:
        return array(t(torch.amax, t(torch.abs, y), axes, keep))
    raise Unsure("the order of a norm")


# -- signals ---------------------------------------------------------------------------------------------------------------------
def transform(fn: Any, real: bool) -> Any:
    def compute(a: Any, n: Any = None, axis: Any = -1, norm: Any = None, out: Any = None) -> Any:
        a = asarray(a)
        if out is not None or norm not in (None, "backward", "ortho", "forward") or not a.ndim:
            raise Unsure("keywords")
        if a.dtype.name not in ("float32", "float64", "complex64", "complex128") and a.dtype.kind not in "iu" or a.dtype.name == "uint64":
            raise Unsure(f"a transform of {a.dtype}")
        if real and a.dtype.kind == "c":
            raise Unsure("the imaginary part is discarded")
        x = to(a.tensor, FLOAT64) if a.dtype.kind in "iu" else a.tensor
        r = t(fn, x, None if n is None else index(n), one_axis(axis, a.ndim), norm)
        return whole_array(t(torch.resolve_conj, r) if ORIGINAL.is_conj(r) else r)

    return compute


function(np.fft.fft)(transform(torch.fft.fft, False))
function(np.fft.ifft)(transform(torch.fft.ifft, False))
function(np.fft.rfft)(transform(torch.fft.rfft, True))
function(np.fft.irfft)(transform(torch.fft.irfft, False))


def window(fn: Any, base: float, swing: float) -> Any:
    def compute(M: Any) -> Any:
        m = index(M)
        if type(m) is int:
            if m < 2:
                few = fn(m).tolist()
                return whole_array(t(torch.tensor, few, dtype=torch.float64) if few else t(torch.zeros, (0,), dtype=torch.float64))
        elif not bool(m >= 2):
            raise Unsure("a short window")
        n = t(torch.arange, 1 - m, m, 2, dtype=torch.float64)
        span = float(m - 1) if type(m) is int else torch.sym_float(m - 1)
        wave = t(torch.cos, t(torch.div, t(torch.mul, n, math.pi), span))
        return whole_array(t(torch.add, t(torch.mul, wave, swing), base))

    return compute


function(np.hanning)(window(np.hanning, 0.5, 0.5))
function(np.hamming)(window(np.hamming, 0.54, 0.46))


@function(np.lib.stride_tricks.sliding_window_view)
def sliding_window_view(x: Any, window_shape: Any, axis: Any = None, *, subok: bool = False, writeable: bool = False) -> Any:
    a = asarray(x)
    widths = tuple(unpack(window_shape)) if type(window_shape) in (tuple, list) else (window_shape,)
    if len(widths) != 1 or (axis is None and a.ndim != 1) or writeable is not False or a.remake is not None:
        raise Unsure("windows over several axes")
    d = 0 if axis is None else one_axis(axis[0] if type(axis) is tuple else axis, a.ndim)
    r = view_of(a, t(ORIGINAL.unfold, a.found, d, index(widths[0]), 1))
    if may_be_empty(r.found):
        raise Unsure("the strides of no elements")
    r.writeable = False
    return r
