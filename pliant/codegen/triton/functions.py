"""What kernels call: operators with PyTorch's meaning, and the ways in which the lanes of a tile meet.

Functions of one name with a row of `lower/loops.py: SCALARS`. Elementary functions are those of CUDA's libdevice, which PyTorch's own
kernels call; Triton's interpreter has none of them, there NumPy's stand in.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton import knobs

INTERPRETED = bool(knobs.runtime.interpret)

if INTERPRETED:
    from pliant.codegen.triton import interpreted as lib
else:
    from triton.language.extra.cuda import libdevice as lib

if INTERPRETED:
    end = lib.end
else:

    @triton.jit
    def end(n):
        """Where a loop ends."""
        return n


@triton.jit
def maximum(a, b):
    return tl.where((a > b) | (a != a), a, b)


@triton.jit
def minimum(a, b):
    return tl.where((a < b) | (a != a), a, b)


@triton.jit
def fmax(a, b):
    return tl.where((a > b) | (b != b), a, b)


@triton.jit
def fmin(a, b):
    return tl.where((a < b) | (b != b), a, b)


@triton.jit
def sign(a):
    return (a > 0).to(a.dtype) - (a < 0).to(a.dtype)


@triton.jit
def sigmoid(a):
    e = lib.exp(a * -1.0) + 1.0
    if a.dtype == tl.float32:
        return tl.div_rn(1.0, e)
    else:
        return 1.0 / e


@triton.jit
def floordiv_i(a, b):
    q = a // b
    return q - (((q * b) != a) & ((a < 0) != (b < 0))).to(a.dtype)


@triton.jit
def truncdiv_i(a, b):
    return a // b


@triton.jit
def fmod_i(a, b):
    return a % b


@triton.jit
def remainder_i(a, b):
    r = a % b
    return tl.where((r != 0) & ((r < 0) != (b < 0)), r + b, r)


@triton.jit
def divided(a, b):
    if a.dtype == tl.float32:
        return tl.div_rn(a, b)
    else:
        return a / b


@triton.jit
def truncdiv_f(a, b):
    return lib.trunc(divided(a, b))


@triton.jit
def fmod_f(a, b):
    return lib.fmod(a, b)


@triton.jit
def remainder_f(a, b):
    r = lib.fmod(a, b)
    return tl.where((r != 0) & ((b < 0) != (r < 0)), r + b, r)


@triton.jit
def floordiv_f(a, b):
    r = lib.fmod(a, b)
    q = divided(a - r, b)
    q = tl.where((r != 0) & ((b < 0) != (r < 0)), q - 1.0, q)
    down = tl.floor(q)
    down = tl.where(q - down > 0.5, down + 1.0, down)
    plain = divided(a, b)
    return tl.where(b == 0, plain, tl.where(q != 0, down, lib.copysign(plain * 0.0, plain)))


@triton.jit
def shl(a, b):
    beyond = (b < 0) | (b >= a.dtype.primitive_bitwidth)
    return tl.where(beyond, tl.zeros_like(a), a << tl.where(beyond, tl.zeros_like(b), b))


@triton.jit
def shr(a, b):
    last: tl.constexpr = a.dtype.primitive_bitwidth - 1
    beyond = (b < 0) | (b > last)
    if a.dtype.is_int_unsigned():
        return tl.where(beyond, tl.zeros_like(a), a >> tl.where(beyond, tl.zeros_like(b), b))
    else:
        return a >> tl.where(beyond, tl.full(b.shape, last, b.dtype), b)


# -- how lanes meet ---------------------------------------------------------------------------------------------------------
@triton.jit
def plus(a, b):
    return a + b


@triton.jit
def times(a, b):
    return a * b


@triton.jit
def later(v, i, w, j):
    """Of two places of a largest element, is the second the one? The first NaN is, else the first of the largest."""
    more = (w > v) | ((w != w) & (v == v))
    same = (w == v) | ((w != w) & (v != v))
    return more | (same & (j < i))


@triton.jit
def argmax(v, i, w, j):
    take = later(v, i, w, j)
    return tl.where(take, w, v), tl.where(take, j, i)


@triton.jit
def argmin(v, i, w, j):
    less = (w < v) | ((w != w) & (v == v))
    same = (w == v) | ((w != w) & (v != v))
    take = less | (same & (j < i))
    return tl.where(take, w, v), tl.where(take, j, i)


# -- functions of libdevice ---------------------------------------------------------------------------------------------------
@triton.jit
def exp(a):
    return lib.exp(a)


@triton.jit
def exp2(a):
    return lib.exp2(a)


@triton.jit
def expm1(a):
    return lib.expm1(a)


@triton.jit
def log(a):
    return lib.log(a)


@triton.jit
def log2(a):
    return lib.log2(a)


@triton.jit
def log10(a):
    return lib.log10(a)


@triton.jit
def log1p(a):
    return lib.log1p(a)


@triton.jit
def sin(a):
    return lib.sin(a)


@triton.jit
def cos(a):
    return lib.cos(a)


@triton.jit
def tan(a):
    return lib.tan(a)


@triton.jit
def asin(a):
    return lib.asin(a)


@triton.jit
def acos(a):
    return lib.acos(a)


@triton.jit
def atan(a):
    return lib.atan(a)


@triton.jit
def atan2(a, b):
    return lib.atan2(a, b)


@triton.jit
def sinh(a):
    return lib.sinh(a)


@triton.jit
def cosh(a):
    return lib.cosh(a)


@triton.jit
def tanh(a):
    return lib.tanh(a)


@triton.jit
def erf(a):
    return lib.erf(a)


@triton.jit
def erfc(a):
    return lib.erfc(a)


@triton.jit
def pow(a, b):
    return lib.pow(a, b)


@triton.jit
def rsqrt(a):
    return lib.rsqrt(a)


@triton.jit
def trunc(a):
    return lib.trunc(a)


@triton.jit
def round(a):
    return lib.rint(a)
