"""Products of matrices inside segments: our own loops and PyTorch's BLAS, over every layout, cut between threads or not."""

from __future__ import annotations

import ctypes
import random

import pytest
import torch

from pliant import native
from pliant.codegen.cpu import runtime, segment

ROUTINES = runtime.products()
pytestmark = pytest.mark.skipif(ROUTINES is None, reason="PyTorch has another BLAS here")
TRANSPOSED_A, TRANSPOSED_B, BIAS = 1, 2, 4
FENCE = 32
BITS = (0, 256, 512)
EDGES = (1, 2, 3, 5, 6, 7, 8, 9, 15, 16, 17, 31, 33, 47, 48, 49, 64, 97, 100, 130)
DEPTHS = (0, 1, 2, 15, 16, 17, 33, 100, 191, 192, 255, 256, 257, 515)


def function(bits: int):
    """The product by loops of our own for vectors of so many bits, or by BLAS (0)."""
    if bits > native.own_products()[0]:
        pytest.skip(f"no vectors of {bits} bits here")
    segment.functions(runtime.own_bits())  # tells of the thread pool
    return ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)(native.gemm_function(*ROUTINES, bits))


class Case:
    """One product: operands in memory of their own, perhaps with rows further apart than they are long."""

    def __init__(self, rng: random.Random, batch: int, m: int, n: int, k: int, flags: int) -> None:
        def operand(rows: int, columns: int, transposed: int) -> tuple[torch.Tensor, torch.Tensor]:
            shape = (columns, rows) if transposed else (rows, columns)
            memory = torch.randn(batch, shape[0], shape[1] + rng.choice((0, 0, 3, 16)))
            return memory, memory[..., : shape[1]].mT if transposed else memory[..., : shape[1]]

        self.memory_a, a = operand(m, k, flags & TRANSPOSED_A)
        self.memory_b, b = operand(k, n, flags & TRANSPOSED_B)
        self.sizes, self.flags = (batch, m, n, k), flags
        self.bias = torch.randn(n)
        self.expected = a.double() @ b.double() + (self.bias.double() if flags & BIAS else 0)
        self.scale = a.abs().double() @ b.abs().double() + self.bias.abs().double()

    def run(self, fn) -> torch.Tensor:
        batch, m, n, k = self.sizes
        memory = torch.full((batch * m * n + 2 * FENCE,), 7.0)
        out = memory[FENCE : FENCE + batch * m * n].view(batch, m, n).fill_(float("nan"))
        a, b = self.memory_a, self.memory_b
        apart = (a.stride(1), b.stride(1), 0, 0, a.stride(0), 0, 0, b.stride(0))
        fields = (a.data_ptr(), b.data_ptr(), out.data_ptr(), 1, 1, *self.sizes, *apart, self.flags)
        fields = (*fields, self.bias.data_ptr())
        assert fn(ctypes.addressof((ctypes.c_int64 * len(fields))(*fields))) == 0
        assert (memory[:FENCE] == 7).all() and (memory[-FENCE:] == 7).all(), "written beyond the result"
        return out

    def check(self, out: torch.Tensor) -> None:
        error = (out.double() - self.expected).abs()
        assert (error <= 2e-6 * self.scale).all(), (self.sizes, self.flags, float(error.max()))


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("flags", range(8))
def test_every_layout(bits, flags):
    fn, rng = function(bits), random.Random(flags)
    for _ in range(60):
        case = Case(rng, rng.choice((0, 1, 1, 1, 2, 5)), rng.choice(EDGES), rng.choice(EDGES), rng.choice(DEPTHS), flags)
        case.check(case.run(fn))


@pytest.mark.parametrize("bits", BITS)
def test_many_small_ones(bits):
    for flags in range(8):
        case = Case(random.Random(flags), 200, 3, 4, 5, flags)
        case.check(case.run(function(bits)))


@pytest.mark.parametrize("bits", BITS[1:])
@pytest.mark.parametrize("flags", range(4))
def test_threads_change_no_bit(flags, bits):
    fn, rng = function(bits), random.Random(flags)
    for sizes in ((1, 300, 300, 250), (1, 5, 2000, 600), (1, 2000, 40, 260), (2, 130, 230, 400), (9, 100, 100, 120)):
        case = Case(rng, *sizes, flags)
        alone = case.run(fn)
        case.check(alone)
        threads = torch.get_num_threads()
        try:
            torch.set_num_threads(3)
            assert torch.equal(case.run(fn), alone), sizes
        finally:
            torch.set_num_threads(threads)


@pytest.mark.parametrize("sizes", [(1, 100, 2048, 64), (1, 40, 1024, 300)])
def test_rows_that_are_whole_pages_apart(sizes):
    case = Case(random.Random(0), *sizes, 0)
    for bits in (256, 512):
        case.check(case.run(function(bits)))


def test_what_cannot_be_a_number_spreads_as_in_pytorch():
    fn = function(256)
    case = Case(random.Random(1), 1, 20, 60, 40, TRANSPOSED_B)
    case.memory_a[0, 3, 5], case.memory_b[0, 7, 2] = float("inf"), float("nan")
    out = case.run(fn)[0]
    want = case.memory_a[0, :, :40].double() @ case.memory_b[0, :, :40].double().T
    assert torch.equal(out.isfinite(), want.isfinite()) and torch.equal(out.isnan(), want.isnan())


# -- halves ---------------------------------------------------------------------------------------------------------------
F16, BF16 = 8, 16
HALVES = {F16: (torch.float16, (256, 512)), BF16: (torch.bfloat16, (512,))}


class HalfCase:
    """A product of halves with a batch along dims of its own, an operand of which may be the same for several."""

    def __init__(self, rng: random.Random, kind: int, m: int, n: int, k: int, flags: int) -> None:
        self.dtype, self.kind = HALVES[kind][0], kind
        self.dims, self.sizes, self.flags = (2, 1, rng.choice((1, 3))), (m, n, k), flags
        g = torch.Generator().manual_seed(rng.randrange(1 << 30))
        self.a = torch.randn(2, 1, self.dims[2], *((k, m) if flags & TRANSPOSED_A else (m, k)), generator=g).to(self.dtype)
        self.b = torch.randn(2, 1, 1, *((n, k) if flags & TRANSPOSED_B else (k, n)), generator=g).to(self.dtype)
        self.bias = torch.randn(n, generator=g).to(self.dtype)

    def run(self, fn) -> torch.Tensor:
        m, n, k = self.sizes
        out = torch.full((*self.dims, m, n), float("nan"), dtype=self.dtype)
        a, b = self.a, self.b
        apart = (a.stride(-2), b.stride(-2), *a.stride()[:3], *b.stride()[:2], 0)
        fields = (a.data_ptr(), b.data_ptr(), out.data_ptr(), *self.dims, m, n, k, *apart, self.flags | self.kind, self.bias.data_ptr())
        assert fn(ctypes.addressof((ctypes.c_int64 * len(fields))(*fields))) == 0
        return out

    def check(self, out: torch.Tensor) -> None:
        a, b = (x.double().mT if self.flags & f else x.double() for x, f in ((self.a, TRANSPOSED_A), (self.b, TRANSPOSED_B)))
        bias = self.bias.double() if self.flags & BIAS else torch.zeros(())
        exact, scale = a @ b + bias, a.abs() @ b.abs() + bias.abs()
        step = torch.finfo(self.dtype).eps * exact.abs().clamp(torch.finfo(self.dtype).tiny)
        error = (out.double() - exact).abs()
        assert (error <= 0.51 * step + 2e-6 * scale).all(), (self.sizes, self.flags, float((error / step).max()))


@pytest.mark.parametrize("kind", HALVES)
@pytest.mark.parametrize("flags", range(8))
def test_halves_in_every_layout(kind, flags):
    """Summed in f32 and rounded once."""
    if kind == BF16 and not native.own_products()[2]:
        pytest.skip("no instruction for bf16 here")
    rng = random.Random(flags)
    for bits in HALVES[kind][1]:
        fn = function(bits)
        for _ in range(25):
            case = HalfCase(rng, kind, rng.choice(EDGES), rng.choice((*EDGES, 200)), rng.choice(DEPTHS[1:]), flags)
            case.check(case.run(fn))
        many = HalfCase(rng, kind, 300, 210, 700, flags)  # several blocks of everything
        many.check(many.run(fn))
        none = HalfCase(rng, kind, 3, 5, 0, flags)
        none.check(none.run(fn))


@pytest.mark.parametrize("kind", HALVES)
def test_threads_change_no_bit_of_halves(kind):
    if kind == BF16 and not native.own_products()[2]:
        pytest.skip("no instruction for bf16 here")
    fn, threads = function(512), torch.get_num_threads()
    for sizes in ((1, 3000, 800), (100, 700, 300), (900, 20, 600)):
        case = HalfCase(random.Random(1), kind, *sizes, TRANSPOSED_B)
        alone = case.run(fn)
        try:
            torch.set_num_threads(3)
            assert torch.equal(case.run(fn), alone)
        finally:
            torch.set_num_threads(threads)


@pytest.mark.parametrize("kind", HALVES)
def test_special_halves(kind):
    if kind == BF16 and not native.own_products()[2]:
        pytest.skip("no instruction for bf16 here")
    dtype, fn = HALVES[kind][0], function(512)
    for m in (2, 100):
        case = HalfCase(random.Random(2), kind, m, 50, 33, TRANSPOSED_B)
        case.a[0, 0, 0, 0, 3], case.b[0, 0, 0, 7, 2] = float("inf"), float("nan")
        case.a[1, 0, 0, 1, 4] = torch.finfo(dtype).max
        out, want = case.run(fn), (case.a.float() @ case.b.float().mT).to(dtype)
        assert torch.equal(out.isnan(), want.isnan()) and torch.equal(out.isinf(), want.isinf())
