"""Random kernels, compiled for every kind of vector unit, against their meaning in numpy; bounds-checked builds too."""

from __future__ import annotations

import os

import numpy as np
import pytest

from pliant.codegen.cpu import compile as cpu
from pliant.codegen.cpu import target
from pliant.lower.loops import DTYPES
from tests.codegen.loop_reference import call, from_bf16, reference
from tests.codegen.random_kernels import RandomKernel

FUZZ = int(os.environ.get("PLIANT_FUZZ", "0"))
TARGETS = [t for t in ("avx512", "avx2", "portable") if t == "portable" or target.has(getattr(target, t.upper()))]
BATCH = 12


def differs(dtype: str, got: np.ndarray, want: np.ndarray) -> str:
    if dtype == "bf16":
        got, want = from_bf16(got), from_bf16(want)
    if DTYPES[dtype].kind == "f":
        tolerance = {"f64": 1e-12, "f32": 1e-5}.get(dtype, 1e-2)
        same = np.isclose(got, want, rtol=tolerance, atol=tolerance, equal_nan=True)
    else:
        same = got == want
        if dtype == "i64":  # from floats beyond 2**24, which sums may round otherwise
            same |= (np.abs(want) > 1 << 24) & np.isclose(got, want, rtol=1e-5, atol=0)
    where = np.flatnonzero(~same)
    return "" if not where.size else f"{where.size} of {got.size} differ, first at {where[0]}: {got[where[0]]} for {want[where[0]]}"


def check(seeds: range, checked: bool) -> None:
    cases = [RandomKernel(seed) for seed in seeds]
    addresses = cpu.compile_kernels([c.kernel for c in cases], checked=checked)
    for case, address, seed in zip(cases, addresses, seeds):
        want = reference(case.kernel, case.memory, case.sizes)
        code, got = call(address, case.kernel, case.memory, case.sizes)
        assert code == 0, f"seed {seed}: check {code} failed"
        for k, (g, w) in enumerate(zip(got, want)):
            wrong = differs(case.kernel.buffers[k].dtype, g, w)
            assert not wrong, f"seed {seed}, buffer {k}: {wrong}"


@pytest.mark.parametrize("to", TARGETS)
@pytest.mark.parametrize("first", range(0, max(FUZZ, 3 * BATCH), BATCH))
def test_random_kernels(to, first, monkeypatch, tmp_path):
    monkeypatch.setenv("PLIANT_CPU", to)
    monkeypatch.setenv("PLIANT_CACHE_DIR", str(tmp_path))
    start = {"avx512": 0, "avx2": 1_000_000, "portable": 2_000_000}[to] + first
    check(range(start, start + BATCH), checked=False)


@pytest.mark.parametrize("first", range(0, max(FUZZ, BATCH), BATCH))
def test_random_kernels_with_bounds_checks(first, monkeypatch, tmp_path):
    monkeypatch.setenv("PLIANT_CACHE_DIR", str(tmp_path))
    check(range(first, first + BATCH), checked=True)
