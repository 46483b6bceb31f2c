"""`torch.compile(backend="pliant")`."""

from __future__ import annotations

import functools
import importlib.metadata

import pytest
import torch
import torch.nn.functional as F

import pliant
from pliant.jit.dynamo import backend


def test_captured_by_dynamo_compiled_by_pliant():
    linear = torch.nn.Linear(8, 8)

    def fn(x):
        return F.gelu(linear(x)) * x.shape[0]

    compiled = torch.compile(fn, backend=functools.partial(backend, strict=True), dynamic=True)
    try:
        for n in (3, 5, 9):
            x = torch.randn(n, 8, requires_grad=True)
            wanted = [x, *linear.parameters()]
            got, want = compiled(x), fn(x)
            torch.testing.assert_close(got, want)
            torch.testing.assert_close(torch.autograd.grad(got.sum(), wanted), torch.autograd.grad(want.sum(), wanted))
    finally:
        torch._dynamo.reset()
    stats = pliant.stats()
    assert stats["captures"] == 1 and stats["graph_breaks"] == stats["fallbacks"] == 0
    assert stats["calls"] == 3


def test_it_is_registered():
    if not list(importlib.metadata.Distribution.discover(name="pliant")):
        pytest.skip("pliant runs from its source folder, not installed")
    (found,) = importlib.metadata.entry_points(group="torch_dynamo_backends", name="pliant")
    assert found.load() is backend
