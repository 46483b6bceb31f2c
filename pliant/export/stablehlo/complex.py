"""Complex numbers and Fourier transforms."""

from __future__ import annotations

import math
from typing import Any

import torch

from pliant.export.stablehlo.builder import Builder, Unsupported, Value
from pliant.export.stablehlo.pointwise import like
from pliant.export.stablehlo.table import lowering

PARTS = {torch.complex64: torch.float32, torch.complex128: torch.float64}
WHOLE = {real: whole for whole, real in PARTS.items()}


def part(b: Builder, name: str, z: Value) -> Value:
    return b.same(name, z, dtype=PARTS[z.dtype])


def joined(b: Builder, re: Value, im: Value) -> Value:
    return b.same("complex", re, im, dtype=WHOLE[re.dtype])


@lowering("view_as_real.default view_as_real_copy.default")
def view_as_real(b: Builder, self: Value) -> Value:
    return b.concat([b.reshape(part(b, name, self), [*self.sizes, 1]) for name in ("real", "imag")], self.rank)


@lowering("view_as_complex.default view_as_complex_copy.default")
def view_as_complex(b: Builder, self: Value) -> Value:
    d = self.rank - 1
    return joined(b, *[b.reshape(b.slice(self, d, k, k + 1, size=1), self.sizes[:-1]) for k in (0, 1)])


@lowering("complex.default")
def complex_(b: Builder, real: Value, imag: Value) -> Value:
    sizes = b.outs[0].sizes
    return joined(b, b.expand(real, sizes), b.expand(imag, sizes))


@lowering("polar.default")
def polar(b: Builder, abs: Value, angle: Value) -> Value:
    sizes = b.outs[0].sizes
    r, a = b.expand(abs, sizes), b.expand(angle, sizes)
    return joined(b, b.same("multiply", r, b.same("cosine", a)), b.same("multiply", r, b.same("sine", a)))


@lowering("real.default")
def real(b: Builder, self: Value) -> Value:
    return part(b, "real", self) if self.dtype in PARTS else self


@lowering("imag.default")
def imag(b: Builder, self: Value) -> Value:
    return part(b, "imag", self)


@lowering("_conj.default conj.default conj_physical.default _conj_physical.default _conj_copy.default")
def conj(b: Builder, self: Value) -> Value:
    return joined(b, part(b, "real", self), b.same("negate", part(b, "imag", self))) if self.dtype in PARTS else self


@lowering("resolve_conj.default resolve_neg.default")
def resolve(b: Builder, self: Value) -> Value:
    return self


def transformed(b: Builder, z: Value, dim: int, forward: bool, normalization: int) -> Value:
    """The discrete Fourier transform of one dim, of any size, as a product with its matrix; `stablehlo.fft` needs the size."""
    n = z.sizes[dim]
    grid = (n, n)
    turns = b.same("remainder", b.same("multiply", b.iota(grid, 0), b.iota(grid, 1)), b.full(n, grid, torch.int64))
    share = b.same("divide", b.convert(turns, torch.float64), b.full(n, grid, torch.float64))
    angle = b.same("multiply", share, like(b, -2 * math.pi if forward else 2 * math.pi, share))
    matrix = joined(b, b.same("cosine", angle), b.same("sine", angle))
    if normalization:
        count = b.full(n, grid, torch.float64)
        scale = b.same("divide", like(b, 1, count), b.same("sqrt", count) if normalization == 1 else count)
        matrix = b.same("multiply", matrix, b.convert(scale, torch.complex128))
    matrix = b.same("convert", matrix, dtype=z.dtype) if z.dtype != torch.complex128 else matrix
    y = b.dot(z, matrix, ([], []), ([dim], [0]))
    order = [*range(dim), z.rank - 1, *range(dim, z.rank - 1)]
    return b.transpose(y, order)


@lowering("_fft_c2c.default", composite=True)
def fft_c2c(b: Builder, self: Value, dim: Any, normalization: int, forward: bool) -> Value:
    z = self
    for d in dim:
        z = transformed(b, z, d % z.rank, forward, normalization)
    return z


@lowering("_fft_r2c.default", composite=True)
def fft_r2c(b: Builder, self: Value, dim: Any, normalization: int, onesided: bool) -> Value:
    z = b.convert(self, WHOLE[self.dtype])
    *rest, last = [d % self.rank for d in dim]
    z = transformed(b, z, last, True, normalization)
    if onesided:
        half = b.outs[0].sizes[last]
        z = b.slice(z, last, 0, half, size=half)
    for d in rest:
        z = transformed(b, z, d, True, normalization)
    return z


@lowering("_fft_c2r.default")
def fft_c2r(b: Builder, self: Value, dim: Any, normalization: int, last_dim_size: Any) -> Value:
    raise Unsupported("an inverse transform to real numbers")
