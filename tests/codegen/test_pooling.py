"""Pooling as kernels: values, positions, dtypes and layouts are eager's, whatever the window."""

from __future__ import annotations

import random

import pytest
import torch
from torch.nn import functional as F

import pliant
from tests.codegen.tracing import watch_lowering

INFINITE = float("inf")


@pytest.fixture
def launched(monkeypatch):
    return watch_lowering(monkeypatch)


def compare(fn, sizes, dtype, make=lambda x: x, exact=True):
    compiled = pliant.compile(fn, backend="native")
    for size in sizes:
        x = make((torch.randn(size) * 8).to(dtype))
        got, want = compiled(x), fn(x)
        for a, b in zip(*((v,) if isinstance(v, torch.Tensor) else v for v in (got, want)), strict=True):
            assert a.dtype is b.dtype and a.stride() == b.stride()
            tolerance = 0 if exact else 2e-2 if dtype is torch.bfloat16 else 2e-6
            torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance, equal_nan=True)


SIZES = ((2, 3, 12, 15), (3, 2, 33, 40), (2, 2, 9, 8))
GEOMETRIES = [  # kernel, stride, padding, dilation, ceil_mode, dtype
    (2, None, 0, 1, False, torch.float32),
    (3, 2, 1, 1, False, torch.float32),
    (3, 2, 1, 1, True, torch.bfloat16),
    ((2, 5), (1, 3), (1, 2), 1, False, torch.float64),
    (3, 1, 1, 2, False, torch.int32),
    ((1, 3), 2, (0, 1), (1, 2), True, torch.uint8),
]


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_max(geometry, to, launched):
    kernel, stride, padding, dilation, ceil, dtype = geometry

    def values(x):
        return F.max_pool2d(x, kernel, stride, padding, dilation, ceil) * 1

    def positions(x):
        return F.max_pool2d(x, kernel, stride, padding, dilation, ceil, return_indices=True)

    compare(values, SIZES, dtype)
    compare(positions, SIZES, dtype)
    assert not any("pool" in name for name in launched)


@pytest.mark.parametrize("value", [float("nan"), -INFINITE, INFINITE])
def test_values_that_are_no_numbers(value):
    def spoilt(x):
        rng = random.Random(0)
        for _ in range(20):
            x[rng.randrange(x.shape[0]), 0, rng.randrange(x.shape[2]), rng.randrange(x.shape[3])] = value
        x[0, 0, :4] = value
        return x

    compare(lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True), SIZES, torch.float32, spoilt)
    compare(lambda x: F.max_pool2d(x, 3, 2, 1) + 1, SIZES, torch.float32, spoilt)


MEANS = [  # kernel, stride, padding, ceil_mode, count_include_pad, dtype
    (2, None, 0, False, True, torch.bfloat16),
    (3, 2, 1, False, True, torch.float32),
    (3, 2, 1, True, False, torch.float32),
    ((2, 5), (1, 3), (1, 2), True, True, torch.float64),
    (4, 3, 0, True, False, torch.float32),
]


@pytest.mark.parametrize("geometry", MEANS)
def test_mean(geometry, to, launched):
    kernel, stride, padding, ceil, counted, dtype = geometry
    compare(lambda x: F.avg_pool2d(x, kernel, stride, padding, ceil, counted), SIZES, dtype, exact=False)
    compare(lambda x: F.avg_pool2d(x.neg(), kernel, stride, padding, ceil, counted, divisor_override=3), SIZES, dtype, exact=False)
    assert not any("pool" in name for name in launched)


@pytest.mark.parametrize("layout", ["channels last", "part", "transposed", "plane"])
def test_layouts(layout):
    def make(x):
        if layout == "channels last":
            return x.to(memory_format=torch.channels_last)
        if layout == "part":
            return x[:, :, 1:, 2:-1]
        return x.transpose(2, 3) if layout == "transposed" else x[0]

    compare(lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True), SIZES, torch.float32, make)
    compare(lambda x: F.avg_pool2d(x, 3, 2, 1), SIZES, torch.float32, make, exact=False)


def test_large_windows_are_left_to_pytorch(launched):
    compare(lambda x: F.max_pool2d(x, 8, 1, 4), SIZES, torch.float32)
    assert any("max_pool2d" in name for name in launched)


def test_gradients():
    def step(fn, x):
        leaf = x.detach().clone().requires_grad_()
        out = fn(leaf)
        out.square().sum().backward()
        return out.detach(), leaf.grad

    def fn(x):
        return F.avg_pool2d(F.max_pool2d(x.tanh(), 3, 2, 1), 2)

    compiled = pliant.compile(fn, backend="native")
    for size in SIZES:
        x = torch.randn(size)
        for a, b in zip(step(compiled, x), step(fn, x), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)
