"""Products of int8 and dynamic linear layers inside segments: the native functions of every kind of instructions, against eager."""

from __future__ import annotations

import ctypes
import functools
import random

import pytest
import torch

import pliant
from pliant import native
from pliant.codegen import target
from pliant.codegen.cpu import runtime, segment
from pliant.lower import emit

FENCE = 64
SIDES = (1, 2, 3, 4, 5, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100)
KINDS = {"portable": (0, False), "avx2": (256, False), "avx512": (512, False), "tiles": (512, True)}
NO_RANGE = native.FAILURES["NO_RANGE"][0]


@pytest.fixture(params=KINDS)
def kind(request):
    """The functions for one kind of instructions: what a machine does not have, the next lower kind stands in for."""
    segment.functions(runtime.own_bits())  # tells of the thread pool
    return [ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)(f) for f in native.int8_functions(*KINDS[request.param])]


def part(rng: random.Random, rows: int, columns: int) -> torch.Tensor:
    """Bytes that lie in larger memory."""
    return torch.randint(-128, 128, (rows, columns + rng.choice((0, 0, 3))), dtype=torch.int8)[:, :columns]


def results(m: int, n: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    memory = torch.full((m * n + 2 * FENCE,), 7, dtype=dtype)
    return memory, memory[FENCE : FENCE + m * n].view(m, n)


def call(fn, *fields: int) -> int:
    box = (ctypes.c_int64 * len(fields))(*fields)
    return fn(ctypes.addressof(box))


def untouched(memory: torch.Tensor) -> bool:
    return bool((memory[:FENCE] == 7).all() and (memory[-FENCE:] == 7).all())


@pytest.mark.parametrize("seed", range(3))
def test_products(kind, seed):
    rng = random.Random(seed)
    torch.manual_seed(seed)
    for _ in range(60):
        m, n, k = (rng.choice((*SIDES, rng.randint(1, 300))) for _ in range(3))
        a, b = part(rng, m, k), part(rng, n, k)
        memory, out = results(m, n, torch.int32)
        assert call(kind[0], a.data_ptr(), b.data_ptr(), out.data_ptr(), m, n, k, a.stride(0), b.stride(0)) == 0
        assert torch.equal(out, (a.double() @ b.double().t()).int()), (m, n, k)
        assert untouched(memory)


def test_extremes(kind):
    """The largest products there are; no instruction may saturate."""
    for x, y in ((-128, -128), (-128, 127), (127, 127)):
        a, b = torch.full((5, 1000), x, dtype=torch.int8), torch.full((7, 1000), y, dtype=torch.int8)
        memory, out = results(5, 7, torch.int32)
        assert call(kind[0], a.data_ptr(), b.data_ptr(), out.data_ptr(), 5, 7, 1000, 1000, 1000) == 0
        assert (out == 1000 * x * y).all()
        assert untouched(memory)


def test_threads(kind):
    """Cut between threads, results are the same to the bit."""
    before = torch.get_num_threads()
    a, b = torch.randint(-128, 128, (130, 500), dtype=torch.int8), torch.randint(-128, 128, (700, 500), dtype=torch.int8)
    x, scale, bias = torch.randn(130, 500), torch.rand(700), torch.randn(700)
    sums, found = b.sum(1, dtype=torch.int32), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            outs = [torch.empty(130, 700, dtype=dtype) for dtype in (torch.int32, torch.float32, torch.float32)]
            assert call(kind[0], a.data_ptr(), b.data_ptr(), outs[0].data_ptr(), 130, 700, 500, 500, 500) == 0
            data = [t.data_ptr() for t in (x, b, scale, sums, bias, outs[1])]
            assert call(kind[1], *data, 130, 700, 500, 500, 500, 127, 1) == 0
            assert call(kind[2], x.data_ptr(), b.data_ptr(), outs[2].data_ptr(), 130, 700, 500, 500, 500) == 0
            found.append(outs)
    finally:
        torch.set_num_threads(before)
    assert torch.equal(found[0][0], (a.double() @ b.double().t()).int())
    for outs in found[1:]:
        assert all(map(torch.equal, outs, found[0]))


def packed(n: int, k: int, per_channel: bool, bias: torch.Tensor | None):
    w = torch.randn(n, k)
    if per_channel:
        q = torch.quantize_per_channel(w, torch.rand(n) * 0.1 + 0.01, torch.zeros(n, dtype=torch.int64), 0, torch.qint8)
        scale = q.q_per_channel_scales().float()
    else:
        q = torch.quantize_per_tensor(w, 0.021, 0, torch.qint8)
        scale = torch.full((n,), q.q_scale())
    return torch.ops.quantized.linear_prepack(q, bias), q.int_repr(), scale


@functools.cache
def whole_range() -> bool:
    """Whether PyTorch's engine computes sums of products of whole bytes on this processor; without VNNI it cuts them to 16 bits."""
    q = torch.quantize_per_tensor(torch.full((4, 8), 12.7), 0.1, 0, torch.qint8)
    x = torch.linspace(-1.0, 1.3, 32).reshape(4, 8)
    x[1] = 1.3
    got = torch.ops.quantized.linear_dynamic(x, torch.ops.quantized.linear_prepack(q, None), False)
    return torch.allclose(got, x @ torch.full((8, 4), 12.7), atol=2.0)


def inputs(rng: random.Random, m: int, k: int) -> torch.Tensor:
    x = torch.randn(m, k + rng.choice((0, 0, 2)))[:, :k] * 10 ** rng.uniform(-7, 3)
    style = rng.choice(("plain", "plain", "positive", "negative", "halves", "nothing", "odd", "odd"))
    if style == "positive":
        x = x.abs()
    if style == "negative":
        x = -x.abs()
    if style == "halves":
        x = (x / x.abs().max() * 60).round() / 64 + 0.5 / 64
    if style == "nothing":
        x = x * 0
    if style == "odd":
        x = x.clone()
        x.view(-1)[rng.randrange(m * k)] = rng.choice((float("nan"), float("inf"), -float("inf")))
    return x


@pytest.mark.skipif(torch.backends.quantized.engine not in ("x86", "fbgemm"), reason="the roundings are FBGEMM's")
@pytest.mark.filterwarnings("ignore:.*quantized tensor creation functions")
@pytest.mark.parametrize("seed", range(3))
def test_dynamic_linear(kind, seed):
    """Equal to the bit, NaNs and infinities included."""
    rng = random.Random(seed)
    torch.manual_seed(seed)
    for i in range(40):
        m, n, k = (rng.choice((*SIDES, rng.randint(1, 200))) for _ in range(3))
        bias = torch.randn(n) if i % 3 else None
        weights, weight, scale = packed(n, k, bool(i % 2), bias)
        sums, x = weight.sum(1, dtype=torch.int32), inputs(rng, m, k)
        if x.isnan().any() and not whole_range():
            continue  # a NaN becomes a byte beyond the reduced range
        for reduced in (True, False) if whole_range() else (True,):
            memory, out = results(m, n, torch.float32)
            data = [t.data_ptr() if t is not None else 0 for t in (x, weight, scale, sums, bias, out)]
            status = call(kind[1], *data, m, n, k, x.stride(0), k, 127 if reduced else 255, 1)
            try:
                want = torch.ops.quantized.linear_dynamic(x, weights, reduced)
            except RuntimeError as e:
                assert "min should be less than or equal to max" in str(e)
                assert status == NO_RANGE
                continue
            assert status == 0
            assert torch.equal(out.nan_to_num(3.5), want.nan_to_num(3.5)), (i, m, n, k, reduced)
            assert untouched(memory)


@pytest.mark.parametrize("seed", range(2))
def test_products_of_floats(kind, seed):
    """As right as those of floats, over all magnitudes."""
    rng = random.Random(seed)
    torch.manual_seed(seed)
    for _ in range(40):
        m, n, k = (rng.choice((*SIDES, rng.randint(1, 300))) for _ in range(3))
        x, w = torch.randn(m, k + rng.choice((0, 3)))[:, :k] * 10 ** rng.uniform(-25, 25), part(rng, n, k)
        memory, out = results(m, n, torch.float32)
        assert call(kind[2], x.data_ptr(), w.data_ptr(), out.data_ptr(), m, n, k, x.stride(0), w.stride(0)) == 0
        scale = x.double().abs() @ w.double().abs().t()
        assert ((out.double() - x.double() @ w.double().t()).abs() <= 5e-7 * scale).all(), (m, n, k)
        assert untouched(memory)


@pytest.mark.parametrize("value", [float("inf"), -float("inf"), float("nan"), 3.4e38, -3.4e38])
def test_products_of_odd_floats(kind, value):
    x, w = torch.randn(20, 64), torch.randint(-128, 128, (40, 64), dtype=torch.int8)
    x[4, 3], w[7, 3] = value, 0
    memory, out = results(20, 40, torch.float32)
    assert call(kind[2], x.data_ptr(), w.data_ptr(), out.data_ptr(), 20, 40, 64, 64, 64) == 0
    torch.testing.assert_close(out, x @ w.t().float(), equal_nan=True, rtol=1e-5, atol=1e-2)
    assert untouched(memory)


# -- which operations become one --


def native_steps(monkeypatch) -> list[str]:
    """The kinds of library calls in segments that are printed from now on."""
    seen: list[str] = []
    make = emit.make_segment

    def watch(name, items, *others):
        seen.extend(type(s).__name__ for item in items for s in item.steps)
        return make(name, items, *others)

    monkeypatch.setattr(emit, "make_segment", watch)
    return seen


needs_vectors = pytest.mark.skipif(not target.current().has_int8() or runtime.products() is None, reason="needs vectors")


@needs_vectors
def test_products_in_a_program(monkeypatch):
    seen = native_steps(monkeypatch)
    w = torch.randint(-128, 128, (48, 64), dtype=torch.int8)

    def fn(x, y):
        a = (x * 20).round().clamp(-128, 127).to(torch.int8)
        return torch._int_mm(a, w.t()) + 1, torch._int_mm(a[1:, 16:48], y) * 2

    compiled = pliant.compile(fn)
    for n in (3, 17, 40):
        x, y = torch.randn(n, 64), torch.randint(-128, 128, (32, 8), dtype=torch.int8)
        assert all(map(torch.equal, compiled(x, y), fn(x, y)))
    assert seen.count("Int8Product") >= 1


@needs_vectors
@pytest.mark.filterwarnings("ignore:.*quantized tensor creation functions")
def test_dynamic_linear_in_a_program(monkeypatch):
    seen = native_steps(monkeypatch)
    weights, _, _ = packed(24, 16, False, torch.randn(24))

    def fn(x):
        y = x.transpose(0, 1)
        return torch.ops.quantized.linear_dynamic(x * 2, weights, True) + 1, torch.ops.quantized.linear_dynamic(y, weights, not whole) * 2

    whole = whole_range()
    compiled = pliant.compile(fn, fullgraph=True)
    for n in (3, 9):
        x = torch.randn(n, 17, 16)
        assert all(map(torch.equal, compiled(x), fn(x)))
    assert seen.count("DynamicLinear") >= 1


@needs_vectors
def test_weights_that_become_floats(monkeypatch):
    seen = native_steps(monkeypatch)
    w, scale = torch.randint(-128, 128, (48, 64), dtype=torch.int8), torch.rand(48)

    def fn(x):
        wide = w.to(x.dtype)
        return torch.nn.functional.linear(x, w.to(x.dtype)) * scale + 1, x[0] @ w.t().to(x.dtype), (x[1] @ wide.t(), wide + 1)

    compiled = pliant.compile(fn, fullgraph=True)
    for n in (2, 17, 40):
        x = torch.randn(2, n, 64)
        torch.testing.assert_close(compiled(x), fn(x), rtol=1e-5, atol=1e-3)
    assert seen.count("FloatProduct") >= 3


def test_weights_that_are_written():
    """The product reads them where they were made floats."""

    def fn(x, w):
        wide = w.t().to(x.dtype)
        w.add_(1)
        return x @ wide, w * 2

    compiled = pliant.compile(fn)
    for n in (2, 9, 17):
        x, w = torch.randn(n, 16), torch.randint(-100, 100, (8, 16), dtype=torch.int8)
        want, got = fn(x, w.clone()), compiled(x, w)
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-3)


def test_products_of_wrong_operands():
    def fn(x, y):
        return torch._int_mm(x, y)

    compiled = pliant.compile(fn)
    good = torch.ones(17, 8, dtype=torch.int8)
    assert torch.equal(compiled(good, good.t()), fn(good, good.t()))
    for x, y in ((good, good), (good.float(), good.t().float()), (good[0], good.t())):
        with pytest.raises(Exception) as want:  # noqa: PT011
            fn(x, y)
        with pytest.raises(type(want.value)):
            compiled(x, y)


@pytest.mark.filterwarnings("ignore:.*quantized tensor creation functions")
def test_a_range_that_is_none():
    """What eager raises for a NaN in the first place is raised, at any tier, and the next call is right."""
    layer = torch.ao.nn.quantized.dynamic.Linear(8, 8)
    compiled = pliant.compile(lambda x: layer(x.relu()) + 1)
    good, bad = torch.randn(4, 8), torch.randn(4, 8)
    bad[0, 0] = float("nan")
    for x in (good, bad, good, bad):
        if x is good:
            assert torch.equal(compiled(x), layer(x.relu()) + 1)
            continue
        with pytest.raises(RuntimeError, match="min should be less than or equal to max"):
            compiled(x)
