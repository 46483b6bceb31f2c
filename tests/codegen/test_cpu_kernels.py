"""Random kernels, compiled for every kind of vector unit, against their meaning in numpy; bounds-checked builds too."""

from __future__ import annotations

import os

import numpy as np
import pytest

from pliant.codegen.cpu import compile as cpu
from pliant.lower.loops import DTYPES, Buffer, Kernel, Node, Store
from tests.codegen.loop_reference import TARGETS, call, from_bf16, reference
from tests.codegen.random_kernels import RandomKernel

FUZZ = int(os.environ.get("PLIANT_FUZZ", "0"))
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


def load(buffer: int, strides: tuple, dtype: str = "f32") -> Node:
    return Node("load", (), dtype, (buffer, strides, 0, ()))


def edge_kernels() -> list[tuple[Kernel, list[np.ndarray], dict[str, int]]]:
    """No dims, no elements, nothing to load, rows of infinities and NaN."""
    f32, ones, nines = Buffer("f32", False), np.ones, lambda n: np.full(n, 9, np.float32)
    out = Buffer("f32", True)
    point = Kernel("point", (), 0, [f32, out], [Store(1, (), 0, Node("exp", (load(0, ()),), "f32"))])
    cases: list = [(point, [ones(1, np.float32), nines(1)], {})]
    total = Node("reduce", (load(0, (1,)),), "f32", ("sum",))
    whole = Kernel("whole", ("n",), 1, [f32, out], [Store(1, (), 0, total)], ("n",))
    cases += [(whole, [ones(n, np.float32), nines(1)], {"n": n}) for n in (0, 1, 15, 16, 17, 100_000)]
    empty = Node("reduce", (load(0, (0, 1)),), "f32", ("sum",))
    cases.append((Kernel("empty_rows", (5, 0), 1, [f32, out], [Store(1, (1,), 0, empty)]), [ones(0, np.float32), nines(5)], {}))
    cases.append((Kernel("nothing", (0, 5), 0, [f32, out], [Store(1, (5, 1), 0, load(0, (5, 1)))]), [ones(0, np.float32), nines(5)], {}))
    made = [Store(0, (1,), 0, Node("index", (), "i64", (0,))), Store(1, (1,), 0, Node("const", (), "bool", (True,)))]
    fresh = [Buffer("i64", True), Buffer("bool", True)]
    cases.append((Kernel("made", ("n",), 0, fresh, made, ("n",)), [np.zeros(37, np.int64), np.zeros(37, bool)], {"n": 37}))
    rows = np.full((4, 37), -np.inf, np.float32)
    rows[1, [5, 9]], rows[2, [20, 30]] = np.nan, 3
    for kind in ("argmax", "argmin"):
        for strides in (("n", 1), (1, "m")):
            place = Node("reduce", (load(0, strides),), "i64", (kind,))
            kernel = Kernel(kind, ("m", "n"), 1, [f32, Buffer("i64", True)], [Store(1, (1,), 0, place)], ("m", "n"))
            flat = rows.ravel() if strides[1] == 1 else rows.T.copy().ravel()
            cases.append((kernel, [flat, np.zeros(4, np.int64)], {"m": 4, "n": 37}))
    return cases


@pytest.mark.parametrize("to", TARGETS)
def test_edges(to, monkeypatch, tmp_path):
    monkeypatch.setenv("PLIANT_CPU", to)
    monkeypatch.setenv("PLIANT_CACHE_DIR", str(tmp_path))
    cases = edge_kernels()
    for (kernel, memory, sizes), address in zip(cases, cpu.compile_kernels([k for k, _, _ in cases])):
        code, got = call(address, kernel, memory, sizes)
        assert code == 0
        for g, w, b in zip(got, reference(kernel, memory, sizes), kernel.buffers):
            assert not differs(b.dtype, g, w), kernel.name
