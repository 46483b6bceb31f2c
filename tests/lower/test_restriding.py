"""Operators that change sizes or strides of a tensor in place: results are eager's, and the rest of the program is still fused."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

import pliant
from tests.codegen.tracing import watch_lowering


def pooled(x):
    return F.adaptive_avg_pool2d((x * 2).to(memory_format=torch.channels_last).relu(), 1)


def pooled_and_flat(x):
    return pooled(x).flatten(1) * 3


def pooled_twice(x):
    first = pooled(x)
    return pooled(x.tanh()) + first, first.flatten(1)


def pooled_alone(x):
    return F.adaptive_avg_pool2d(x.to(memory_format=torch.channels_last), 1)


def back_and_forth(x):
    y = x * 2
    a = y.sum(0)
    y.unsqueeze_(1)
    b = y.relu() + 1
    y.squeeze_(1)
    y.transpose_(0, 1)
    return a, b, y * 3


def written(x):
    y = x.exp()
    y.transpose_(0, 1)
    y.mul_(2)
    z = y[1:]
    y.unsqueeze_(0)
    return z + 1, y.sum(0), y + 1


def alias(x):
    y = x * 2
    part = y[1:]
    y.unsqueeze_(0)
    y.add_(1)
    return part * 2, y.square()


def returned(x):
    y = x * 2
    z = y + 1
    y.unsqueeze_(0)
    return y, z.tanh() * 2


PROGRAMS = [pooled, pooled_and_flat, pooled_twice, pooled_alone, back_and_forth, written, alias, returned]
FUSED = {pooled, pooled_and_flat, pooled_twice, back_and_forth, written, alias}


@pytest.fixture
def left(monkeypatch):
    return watch_lowering(monkeypatch)


@pytest.mark.parametrize("backend", ["native", "aten"])
@pytest.mark.parametrize("grad", [False, True], ids=["", "gradients"])
@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda f: f.__name__)
def test_equal_to_eager(fn, grad, backend, left):
    if grad and fn in (written, alias):
        pytest.skip("eager makes the history of a view anew when its base has changed, which a capture cannot")
    compiled = pliant.compile(fn, backend=backend, strict=True)
    for size in ((4, 3, 8, 9), (3, 4, 10, 7), (2, 5, 6, 6)):
        x = torch.randn(size if fn.__name__.startswith("pooled") else (size[0] + 2, size[2]))
        ours, theirs = x.clone().requires_grad_(grad), x.clone().requires_grad_(grad)
        got, want = ([v] if isinstance(v, torch.Tensor) else list(v) for v in (compiled(ours), fn(theirs)))
        for a, b in zip(got, want, strict=True):
            torch.testing.assert_close(a, b)
            assert a.shape == b.shape and a.stride() == b.stride()
        if grad:
            for results in (got, want):
                sum(v.square().sum() for v in results).backward()
            torch.testing.assert_close(ours.grad, theirs.grad)
    if backend == "native" and not grad and fn in FUSED:
        assert {name for name in left if name.startswith("aten.")} <= {"aten.empty.memory_format", "aten.empty_strided.default"}
