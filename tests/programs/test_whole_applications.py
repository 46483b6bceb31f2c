"""The applications of `benchmarks/applications`: training steps with their data, samplers and decoders, compiled as one function.

With ATen's own kernels: what Adam makes of gradients that are zero but for their rounding (a bias in front of a batch norm) is noise.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any

import pytest
import torch

import pliant
from benchmarks.applications.__main__ import NAMES, held, seed
from benchmarks.compare import difference

CALLS = 4
NEEDS = {"detector": "scipy", "lora": "peft", "trainer": "accelerate"}
SLOW = {"trainer"}  # it makes a model in each call, and has `torch.compile` replaced by `pliant.compile` as it is


def played(name: str, compile_: Any) -> list[Any]:
    seed(0)
    step = importlib.import_module(f"benchmarks.applications.{name}").program(compile_)
    answers = []
    for i in range(2 if name in SLOW else CALLS):
        seed(1000 + i)
        answers.append(held(step(i)))
    return answers


@pytest.mark.parametrize("name", NAMES)
def test_answers(name: str) -> None:
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    compile_ = pliant.compile if name in SLOW else functools.partial(pliant.compile, backend="aten")
    try:
        want, got = played(name, lambda fn: fn), played(name, compile_)
    finally:
        torch.set_num_threads(threads)
    for a, b in zip(want, got, strict=True):
        assert difference(b, a) < (1e-4 if name in SLOW else 1e-5)
    assert pliant.stats()["fallbacks"] == 0
