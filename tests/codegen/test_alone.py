"""Which single operations become kernels; their answers are eager's at sizes on both sides of the choice, from one compilation."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import pliant
from pliant.codegen import native

CASES = {
    "mean": (lambda a, b: a.mean(-1), {"f32", "bf16", "small f32"}),
    "softmax": (lambda a, b: a.softmax(-1), {"f32", "bf16", "small f32"}),
    "exp": (lambda a, b: a.exp(), {"f32", "bf16", "small f32"}),
    "compare": (lambda a, b: a > 0.31, {"f32", "bf16", "small f32"}),
    "compare two": (lambda a, b: a > b, {"f32", "bf16", "small f32"}),
    "a number": (lambda a, b: a + 1.7, {"f32", "bf16", "small f32"}),
    "two tensors": (lambda a, b: a * b, {"bf16"}),
    "every other": (lambda a, b: a[:, ::2] * b[:, ::2], {"f32", "bf16", "small f32"}),
    "interleaved": (lambda a, b: torch.stack((a, b), -1), {"f32", "bf16", "small f32"}),
    "stacked rows": (lambda a, b: torch.stack((a, b)), set()),
    "concatenated": (lambda a, b: torch.cat((a, b), 1), set()),
    "padded": (lambda a, b: F.pad(a, (1, 2)), {"f32", "bf16", "small f32"}),
    "relu": (lambda a, b: F.relu(a), {"bf16"}),
    "a copy": (lambda a, b: a.t().contiguous(), set()),
    "in place": (lambda a, b: a.exp_(), set()),
}


@pytest.mark.parametrize("kind", ["f32", "bf16", "small f32", "i64"])
@pytest.mark.parametrize("name", CASES)
def test_single_operations(name, kind, monkeypatch):
    fn, kernels = CASES[name]
    if kind == "i64" and name not in ("compare", "compare two", "two tensors", "a copy"):
        return  # not of integers, or nothing to tell
    made: list = []
    compile_all = native.compile_all
    monkeypatch.setattr(native, "compile_all", lambda launches, *more: (made.extend(launches), compile_all(launches, *more)))
    dtype = {"bf16": torch.bfloat16, "i64": torch.int64}.get(kind, torch.float32)
    sizes = ((5, 7), (64, 96), (33, 1)) if kind == "small f32" else ((64, 96), (5, 7), (1, 160))

    def call(a, b):  # code of its own for each case
        return fn(a, b)

    compiled = pliant.compile(call, backend="native", strict=True)
    numbers = torch.Generator().manual_seed(0)
    for size in sizes:
        a, b = ((torch.randn(size, generator=numbers) * 3).to(dtype) for _ in range(2))
        got, want = compiled(a.clone(), b), fn(a.clone(), b)
        assert got.dtype == want.dtype and got.stride() == want.stride()
        torch.testing.assert_close(got, want)
    assert bool(made) == (kind in kernels)
