"""Attention inside segments: lengths, layouts, masks, threads, against eager."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

import pliant
from pliant.codegen import native
from pliant.codegen.cpu import runtime
from pliant.lower.attention import Attention

pytestmark = pytest.mark.skipif(runtime.products() is None or not runtime.own_bits(), reason="another BLAS, or no vectors that are known")
SHAPES = ((2, 3, 5, 7, 16), (1, 4, 1, 33, 64), (2, 4, 1, 1, 64), (2, 2, 40, 50, 24), (1, 2, 130, 300, 80), (3, 2, 2, 17, 5))
INF = float("inf")


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def attend(q, k, v, mask=None, **options):
    """Between two operations, so that there is a segment."""
    return F.scaled_dot_product_attention(q * 1.5, k, v, mask, **options).relu()


FORMS: dict[str, Callable] = {
    "plain": attend,
    "causal": lambda q, k, v: attend(q, k, v, is_causal=True),
    "scaled": lambda q, k, v: attend(q, k, v, scale=0.3),
    "lengths before heads": lambda q, k, v: attend(*(t.transpose(1, 2).contiguous().transpose(1, 2) for t in (q, k, v))),
    "parts of one tensor": lambda q, k, v: attend(q, *torch.cat([k, v, k], -1).split(k.shape[-1], -1)[:2]),
    "shared keys": lambda q, k, v: attend(q, k[:, :1].expand_as(k), v),
    "a cache that grew": lambda q, k, v: attend(q, torch.cat([k, k[:, :, :1]], 2), torch.cat([v, v[:, :, :1]], 2)),
}
MASKS: dict[str, Callable] = {
    "of each head": lambda b, h, m, n: normal(b, h, m, n),
    "of keys": lambda b, h, m, n: torch.where(torch.arange(n) < n // 2 + 1, 0.0, -INF).expand(b, 1, 1, n).contiguous(),
    "of rows": lambda b, h, m, n: normal(m, n),
    "of truth": lambda b, h, m, n: normal(b, 1, m, n) > 0.5,
    "turned": lambda b, h, m, n: normal(b, h, n, m).transpose(2, 3),
    "of nothing": lambda b, h, m, n: torch.full((m, n), -INF),
}


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list:
    """The attentions of the segments that were compiled."""
    made: list = []
    compile_all = native.compile_all

    def record(launches, segments=()):
        made.extend(s for call in segments for s in call.segment.steps if isinstance(s, Attention))
        compile_all(launches, segments)

    monkeypatch.setattr(native, "compile_all", record)
    return made


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list:
    """The segments that were compiled."""
    found: list = []
    compile_all = native.compile_all

    def record(launches, segments=()):
        found.extend(call.segment for call in segments)
        compile_all(launches, segments)

    monkeypatch.setattr(native, "compile_all", record)
    return found


def close(got: torch.Tensor, want: torch.Tensor) -> None:
    assert got.stride() == want.stride()
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize("name", FORMS)
def test_forms(name: str, steps: list) -> None:
    fn = FORMS[name]
    compiled = pliant.compile(fn, backend="native", strict=True)
    with torch.no_grad():
        for b, h, m, n, d in SHAPES:
            args = normal(b, h, m, d), normal(b, h, n, d), normal(b, h, n, d + 0)
            close(compiled(*args), fn(*args))
    assert steps


@pytest.mark.parametrize("name", MASKS)
def test_masks(name: str, steps: list) -> None:
    compiled = pliant.compile(attend, backend="native", strict=True)
    with torch.no_grad():
        for b, h, m, n, d in SHAPES:
            args = normal(b, h, m, d), normal(b, h, n, d), normal(b, h, n, d), MASKS[name](b, h, m, n)
            close(compiled(*args), attend(*args))
    assert steps


def test_special_values(steps: list) -> None:
    compiled = pliant.compile(attend, backend="native", strict=True)
    with torch.no_grad():
        for place, value in (("q", INF), ("k", float("nan")), ("q", 1e30), ("v", float("nan")), ("k", -200.0), ("mask", INF)):
            given = {"q": normal(2, 2, 9, 16), "k": normal(2, 2, 20, 16), "v": normal(2, 2, 20, 16), "mask": normal(9, 20)}
            given[place].view(-1)[5] = value
            close(compiled(*given.values()), attend(*given.values()))
    assert steps


@pytest.mark.parametrize("form", ["plain", "causal"])
def test_threads_change_no_bit(form: str, steps: list) -> None:
    before = torch.get_num_threads()
    compiled = pliant.compile(FORMS[form], backend="native", strict=True)
    try:
        with torch.no_grad():
            for b, h, m, n, d in ((1, 3, 400, 400, 64), (5, 3, 1, 2000, 64), (1, 2, 1, 5000, 72), (1, 1, 70, 2600, 16)):
                args = normal(b, h, m, d), normal(b, h, n, d), normal(b, h, n, d)
                torch.set_num_threads(1)
                alone = compiled(*args)
                close(alone, FORMS[form](*args))
                torch.set_num_threads(3)
                assert torch.equal(compiled(*args), alone)
    finally:
        torch.set_num_threads(before)
    assert steps


def test_vectors_of_256_bits(monkeypatch: pytest.MonkeyPatch, steps: list) -> None:
    monkeypatch.setenv("PLIANT_CPU", "avx2")
    for fn in (FORMS["plain"], FORMS["causal"]):
        compiled = pliant.compile(fn, backend="native", strict=True)
        with torch.no_grad():
            for b, h, m, n, d in (*SHAPES, (1, 2, 1, 3000, 64)):
                args = normal(b, h, m, d), normal(b, h, n, d), normal(b, h, n, d)
                close(compiled(*args), fn(*args))
    assert steps


# -- heads of keys that several heads of queries share --------------------------------------------------------------------
def spread(x: torch.Tensor, times: int) -> torch.Tensor:
    """As transformers' `repeat_kv`."""
    b, h, n, d = x.shape
    return x[:, :, None, :, :].expand(b, h, times, n, d).reshape(b, h * times, n, d)


def by_hand(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    weights = torch.matmul(q, spread(k, 3).transpose(2, 3)) * 0.25
    return torch.matmul(weights.softmax(-1, dtype=torch.float32), spread(v, 3)).relu()


SHARED: dict[str, Callable] = {
    "by ATen": lambda q, k, v: attend(q, k, v, enable_gqa=True),
    "causal": lambda q, k, v: attend(q, k, v, enable_gqa=True, is_causal=True),
    "scaled": lambda q, k, v: attend(q, k, v, enable_gqa=True, scale=-0.2),
    "repeated": lambda q, k, v: attend(q, spread(k, 3), spread(v, 3)),
    "interleaved": lambda q, k, v: attend(q, k.repeat_interleave(3, 1), v.repeat_interleave(3, dim=1)),
    "masked": lambda q, k, v: attend(q, spread(k, 3), spread(v, 3), torch.arange(k.shape[2])[None] < k.shape[2] // 2 + 1),
    "mask of heads": lambda q, k, v: attend(q, spread(k, 3), spread(v, 3), (q @ spread(k, 3).mT).cos()),
    "one operand repeated by others": lambda q, k, v: attend(q, spread(k, 3), v.repeat(1, 3, 1, 1)),
    "by hand": by_hand,
}
LENGTHS = ((2, 5, 7, 16), (1, 1, 33, 64), (2, 1, 1, 64), (1, 70, 130, 24), (2, 1, 2200, 8))


@pytest.mark.parametrize("name", SHARED)
def test_shared_heads(name: str, made: list) -> None:
    """Keys and values are not copied for each head that reads them."""
    fn = SHARED[name]

    def program(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """q [batch, rows, 6 heads], k and v [batch, keys, 2 heads], as projections leave them."""
        return fn(*(t.unflatten(-1, (h, t.shape[-1] // h)).transpose(1, 2) for t, h in ((q, 6), (k, 2), (v, 2))))

    compiled = pliant.compile(program, backend="native", strict=True)
    with torch.no_grad():
        for b, m, n, d in LENGTHS:
            args = normal(b, m, 6 * d), normal(b, n, 2 * d), normal(b, n + 1, 2 * d)[:, 1:]
            close(compiled(*args), program(*args))
    assert made
    attentions = [s for segment in made for s in segment.steps if isinstance(s, Attention)]
    assert all(s.sizes[1:3] == ([6, 2] if "repeated by others" not in name else [6, 6]) for s in attentions)
    if name == "by hand":  # two products, and kernels between and behind them alone: nothing that copies
        assert all([type(s).__name__ for s in segment.steps] == ["Gemm", "Launch", "Gemm", "Launch"] for segment in made)
    else:
        assert attentions


def test_shared_heads_whose_number_is_not_known(steps: list) -> None:
    compiled = pliant.compile(lambda q, k, v: attend(q, k, v, enable_gqa=True), backend="native", strict=True)
    with torch.no_grad():
        for h, g in ((6, 2), (8, 4), (9, 3), (4, 4)):
            args = normal(2, h, 5, 16), normal(2, g, 9, 16), normal(2, g, 9, 16)
            close(compiled(*args), attend(*args, enable_gqa=True))
    assert steps


def test_repeated_heads_that_others_read_or_write() -> None:
    def kept(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple:
        keys = spread(k, 3)
        return attend(q, keys, spread(v, 3)), keys

    def written(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        k, v = k + 1, v + 1
        keys, values = spread(k, 3), spread(v, 3)
        k.mul_(3)
        values[:, 1] = 0
        return attend(q, keys, values) + k.sum()

    for fn in (kept, written):
        for backend in ("native", "aten"):
            compiled = pliant.compile(fn, backend=backend, strict=True)
            with torch.no_grad():
                for b, m, n, d in LENGTHS[:3]:
                    args = normal(b, 6, m, d), normal(b, 2, n, d), normal(b, 2, n, d)
                    torch.testing.assert_close(compiled(*args), fn(*args), rtol=1e-5, atol=1e-5)


def test_gradients_of_repeated_heads() -> None:
    for fn in (SHARED["repeated"], SHARED["by hand"]):
        compiled = pliant.compile(fn, backend="native", strict=True)
        for m in (1, 5, 40):
            ours, theirs = ([normal(2, h, n, 16).requires_grad_() for h, n in ((6, m), (2, 9), (2, 9))] for _ in range(2))
            grads = [torch.autograd.grad(f(*args).square().sum(), args) for f, args in ((compiled, ours), (fn, theirs))]
            torch.testing.assert_close(*grads, rtol=1e-4, atol=1e-4)


def test_training_keeps_the_sums_that_its_gradient_needs(steps: list) -> None:
    compiled = pliant.compile(attend, backend="native", strict=True)
    ours, theirs = ([normal(2, 3, n, 16).requires_grad_() for n in (6, 9, 9)] for _ in range(2))
    got, want = compiled(*ours), attend(*theirs)
    close(got.detach(), want.detach())
    torch.testing.assert_close(torch.autograd.grad(got.sum(), ours), torch.autograd.grad(want.sum(), theirs))
    assert not steps


def test_dropout_and_other_dtypes_are_left_to_pytorch(steps: list) -> None:
    compiled = pliant.compile(attend, backend="native", strict=True)
    for dtype in (torch.float64, torch.bfloat16):
        args = [normal(2, 3, n, 16).to(dtype) for n in (6, 9, 9)]
        torch.testing.assert_close(compiled(*args), attend(*args))
    assert not steps


def test_a_decoder_of_one_row(steps: list) -> None:
    """Projections, a cache, attention and a residual: one native function."""
    w = [normal(32, 32) / math.sqrt(32) for _ in range(4)]

    def step(x: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> tuple:
        q, k, v = (F.linear(x, u).view(x.shape[0], 1, 4, 8).transpose(1, 2) for u in w[:3])
        keys, values = torch.cat([keys, k], 2), torch.cat([values, v], 2)
        out = F.scaled_dot_product_attention(q, keys, values)
        return x + F.linear(out.transpose(1, 2).reshape(x.shape[0], 1, 32), w[3]), keys, values

    compiled = pliant.compile(step, backend="native", strict=True)
    with torch.no_grad():
        ours = theirs = (normal(2, 1, 32), normal(2, 4, 3, 8), normal(2, 4, 3, 8))
        for _ in range(5):
            ours, theirs = compiled(*ours), step(*theirs)
            torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    assert steps
