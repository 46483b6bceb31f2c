"""The backend `"native"`: programs against eager, with compiled kernels and with the reference in their place; what gets fused."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

import pliant
from pliant.codegen import native, target
from pliant.codegen.cpu.backend import CPU

TIGHT = {"rtol": 1e-5, "atol": 1e-5}


@pytest.fixture(params=["segments", "compiled", "reference"])
def kernels(request, monkeypatch):
    """The kernels that a test's programs were turned into: in segments, called one by one, and with the reference in their place."""
    seen: list = []
    compile_all = native.compile_all

    def record(launches, segments=()):
        seen.extend([*launches, *(launch for call in segments for launch in call.segment.launches)])
        compile_all(launches, segments)

    if request.param == "compiled":
        monkeypatch.setattr(CPU, "has_segments", lambda self: False)
    monkeypatch.setattr(native, "compile_all", record)
    with target.using("reference" if request.param == "reference" else "cpu"):
        yield seen


def normal(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape) + len(shape))).to(dtype)


def compare(fn: Callable, *arg_sets: tuple) -> None:
    """One compiled function over all argument sets: results, their strides, and what it did to its arguments."""
    compiled = pliant.compile(fn, backend="native", strict=True)
    with torch.no_grad():
        for args in arg_sets:
            ours, theirs = copy.deepcopy(args), copy.deepcopy(args)
            got, want = compiled(*ours), fn(*theirs)
            torch.testing.assert_close(got, want, **TIGHT, equal_nan=True)
            torch.testing.assert_close(ours, theirs, **TIGHT, equal_nan=True)
            for g, w in zip(*(torch.utils._pytree.tree_leaves(v) for v in (got, want)), strict=True):
                assert g.stride() == w.stride()


SHAPES = ((5, 7), (1, 7), (64, 3), (33, 65))


def shaped(*widths: int) -> list[tuple]:
    return [tuple(normal(n, m) for _ in range(widths[0])) for n, m in SHAPES]


NORM = torch.nn.LayerNorm(16)


def rotate(q: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    half = q.shape[-1] // 2
    return q * cos + torch.cat((-q[..., half:], q[..., :half]), -1) * sin


def heads(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    n, s = a.shape[:2]
    return (a.view(n, s, 4, 4).transpose(1, 2) * 2 + b).transpose(1, 2).reshape(n, s, 16) + a


def in_place(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    a.add_(b)
    a.mul_(2)
    return a + 1


def through_view(a: torch.Tensor) -> tuple:
    a[:, 1:].mul_(2)
    return a + 1, a.sum(0)


def overlapping(a: torch.Tensor) -> torch.Tensor:
    a[:, 1:].copy_(a[:, :-1].clone())
    return a + 1


def read_before_write(a: torch.Tensor, b: torch.Tensor) -> tuple:
    before = a * 2
    a.copy_(b)
    return before + 1, a * 3, before.sum()


PROGRAMS: dict[str, tuple[Callable, list[tuple], int]] = {
    "pointwise": (lambda a, b: F.gelu(a * b + 1) * torch.sigmoid(b), shaped(2), 1),
    "softmax": (lambda a, b: torch.softmax(a * 0.5 + b, -1), shaped(2), 1),
    "layer norm": (lambda a, b: NORM(a + b).relu(), [(normal(n, 9, 16), normal(n, 9, 16)) for n in (2, 5, 1)], 1),
    "rms norm": (
        lambda a, w: a * torch.rsqrt(a.pow(2).mean(-1, keepdim=True) + 1e-6) * w,
        [(normal(n, 16), normal(16)) for n in (2, 7, 1)],
        1,
    ),
    "rotary": (rotate, [(normal(2, 4, n, 16), normal(n, 16), normal(n, 16)) for n in (9, 4)], 1),
    "heads": (heads, [(normal(n, 9, 16), normal(n, 4, 9, 4)) for n in (5, 2)], 1),
    "lengths": (
        lambda a, n: torch.where(torch.arange(a.shape[1])[None, :] < n[:, None], a, -1.0).sum(1),
        [(normal(5, m), torch.tensor([0, 1, 3, 4, 2])) for m in (7, 20)],
        1,
    ),
    "in place": (in_place, shaped(2), 1),
    "through a view": (through_view, shaped(1), 0),
    "overlapping": (overlapping, shaped(1), 0),
    "read before write": (read_before_write, shaped(2), 0),
    "views": (lambda a: (a[:, 1:] * 2, a[:, :-1] + a[:, 1:], a.t() + 1, a.sum(0)), shaped(1), 0),
    "cat": (lambda a, b: torch.cat((a, b * 2, a + 1), 1) * 2, shaped(2), 0),
    "stack": (lambda a, b: torch.stack((a, b * 2), 1).relu() + 1, shaped(2), 1),
    "pad": (lambda a: F.pad(a, (1, 2, 3, 0)) * 2 + 1, shaped(1), 1),
    "moments": (lambda a: (a.var(-1), a.std(0), torch.var_mean(a, 1)), shaped(1), 0),
    "extremes": (lambda a: (a.amax(1), a.max(), a.min(), a.logsumexp(1), (a > 0).any(1)), shaped(1), 0),
    "integers": (
        lambda a, b: (a + b * 2, (a > b).sum(), a.float() / b, (a & b) | 1),
        [(torch.arange(1, n + 1), torch.arange(n, 0, -1)) for n in (7, 40)],
        0,
    ),
    "doubles": (lambda a, b: (a.double() * b + a).sum(-1), shaped(2), 1),
    "special values": (
        lambda a: (a.relu() * 2, a.clamp(-1, 1) + 1, torch.maximum(a, a.flip(0)) + 0, (a == a) & (a < 1), a.isinf() | a.isnan()),
        [(torch.tensor([float("nan"), float("inf"), -float("inf"), -0.0, 0.0, 1e-40, 3.0] * n),) for n in (1, 3)],
        0,
    ),
    "mean loss": (lambda a, b: F.mse_loss(a * 2, b), shaped(2), 1),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name, kernels):
    fn, arg_sets, expected = PROGRAMS[name]
    compare(fn, *arg_sets)
    assert len({launch.key for launch in kernels}) >= expected
    if expected == 1:
        most = 3 if target.current().has_segments() else 2  # a size of 1 may have its own program, and segments take in ATen calls
        assert len({launch.key for launch in kernels}) <= most


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_halves_round_where_eager_rounds(dtype, kernels):
    """Not close: equal. Every operator rounds once, as PyTorch's do."""
    fn = pliant.compile(lambda a, b: ((a * b + a) * 3 - b) / 7, backend="native", strict=True)
    a, b = normal(50, 21, dtype=dtype), normal(50, 21, dtype=dtype)
    assert torch.equal(fn(a, b), ((a * b + a) * 3 - b) / 7)
    assert len(kernels) == 1


def test_training(kernels):
    linear, norm = torch.nn.Linear(16, 16), torch.nn.LayerNorm(16)

    def loss(x):
        y = F.gelu(norm(linear(x)))
        return torch.log_softmax(y * 2, -1).pow(2).mean() + (x[1:] * x[:-1]).sum()

    compiled = pliant.compile(loss, backend="native", strict=True)
    for n in (5, 12, 2):
        x = normal(n, 16).requires_grad_()
        wanted = [x, *norm.parameters(), *linear.parameters()]
        torch.testing.assert_close(torch.autograd.grad(compiled(x), wanted), torch.autograd.grad(loss(x), wanted), rtol=1e-4, atol=1e-5)
    assert kernels


def test_layers_share_their_kernels(kernels):
    layers = torch.nn.ModuleList(torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.GELU(), torch.nn.LayerNorm(16)) for _ in range(4))

    def fn(x):
        for layer in layers:
            x = layer(x) + x
        return x

    compare(fn, (normal(5, 16),), (normal(9, 16),))
    assert len({launch.key for launch in kernels}) <= 3
    assert len(kernels) >= 4


def test_no_kernel_twice_for_other_sizes(kernels):
    fn = pliant.compile(lambda a, b: (a * b).softmax(-1), backend="native", strict=True)
    for n, m in ((3, 5), (8, 100), (17, 2)):
        a, b = normal(n, m), normal(n, m)
        torch.testing.assert_close(fn(a, b), (a * b).softmax(-1), **TIGHT)
    assert len(kernels) == 1
