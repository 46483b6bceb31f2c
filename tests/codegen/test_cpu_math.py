"""Accuracy of the inline functions: units in the last place against float64, over the whole range of float32, and special values.

PLIANT_SWEEP=1 takes every one of the 2**32 inputs (minutes a function); without it a stride that is coprime to everything.
"""

from __future__ import annotations

import itertools
import math
import os

import numpy as np
import pytest
import scipy.special  # type: ignore[import-untyped]

from pliant.codegen.cpu import compile as cpu
from pliant.lower.loops import Buffer, Kernel, Node, Store
from tests.codegen.loop_reference import TARGETS, call

STEP = 1 if os.environ.get("PLIANT_SWEEP") else 50_021
CHUNK = 1 << 22
UNARY = {
    "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log2": np.log2, "log10": np.log10, "log1p": np.log1p,
    "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "sinh": np.sinh,
    "cosh": np.cosh, "tanh": np.tanh, "erf": scipy.special.erf, "erfc": scipy.special.erfc, "sigmoid": scipy.special.expit,
    "rsqrt": lambda x: 1 / np.sqrt(x),
}  # fmt: skip
BINARY = {"pow": np.power, "atan2": np.arctan2}
SPECIAL = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 1.1754944e-38, 3.4028235e38, -3.4028235e38]
SPECIAL += [0.5, -0.5, 2.0, 3.0, -3.0]


def kernel(op: str, arity: int, dtype: str) -> Kernel:
    loads = tuple(Node("load", (), dtype, (k, (1,), 0, ())) for k in range(arity))
    buffers = [*(Buffer(dtype, False) for _ in range(arity)), Buffer(dtype, True)]
    return Kernel(op, ("n",), 0, buffers, [Store(arity, (1,), 0, Node(op, loads, dtype))], ("n",))


def compiled(ops: dict, arity: int, dtype: str) -> dict[str, tuple[int, Kernel]]:
    kernels = [kernel(op, arity, dtype) for op in ops]
    return {op: (a, k) for op, a, k in zip(ops, cpu.compile_kernels(kernels), kernels)}


def ulps(got: np.ndarray, exact: np.ndarray, dtype: type) -> np.ndarray:
    """Distance in units in the last place of the exact value; infinite where one is NaN or an infinity that the other is not."""
    with np.errstate(all="ignore"):
        right = exact.astype(dtype)
        unit = np.spacing(np.abs(right)).astype(np.float64)
        unit = np.where(np.isfinite(unit), unit, 1)
        error = np.abs(got.astype(np.float64) - exact) / unit
        same = (got == right) | (np.isnan(got) & np.isnan(right))
        # The largest number and infinity are neighbours.
        edge = np.isinf(got) & (np.abs(exact) > np.finfo(dtype).max * (1 - 1e-6)) | np.isinf(right) & (np.abs(got) == np.finfo(dtype).max)
    return np.where(same, 0, np.where(edge, 1, np.where(np.isnan(error), np.inf, error)))


def worst(op: str, address: int, k: Kernel, f) -> tuple[float, float]:
    found = (0.0, 0.0)
    for first in range(0, 1 << 32, CHUNK * STEP):
        bits = np.arange(first, min(first + CHUNK * STEP, 1 << 32), STEP, dtype=np.uint64).astype(np.uint32)
        x = bits.view(np.float32)
        code, out = call(address, k, [x, np.zeros_like(x)], {"n": x.size})
        assert code == 0
        with np.errstate(all="ignore"):
            error = ulps(out[1], f(x.astype(np.float64)), np.float32)
        at = int(error.argmax())
        if error[at] > found[0]:
            found = (float(error[at]), float(x[at]))
    return found


@pytest.mark.parametrize("to", TARGETS)
def test_f32_functions_are_within_two_units(to, monkeypatch, tmp_path):
    monkeypatch.setenv("PLIANT_CPU", to)
    monkeypatch.setenv("PLIANT_CACHE_DIR", str(tmp_path))
    off = {}
    for op, (address, k) in compiled(UNARY, 1, "f32").items():
        error, at = worst(op, address, k, UNARY[op])
        if error > 2.0:
            off[op] = (error, at)
    assert not off


@pytest.mark.parametrize("to", TARGETS)
def test_special_values_and_two_operands(to, monkeypatch, tmp_path):
    """Every pair of special values, and random pairs; unary functions at the special values in both precisions."""
    monkeypatch.setenv("PLIANT_CPU", to)
    monkeypatch.setenv("PLIANT_CACHE_DIR", str(tmp_path))
    numbers = np.random.default_rng(0)
    pairs = np.array(list(itertools.product(SPECIAL, SPECIAL)))
    more = np.stack([numbers.lognormal(0, 8, 20_000) * numbers.choice((1, 1, 1, -1), 20_000), numbers.normal(0, 6, 20_000)], -1)
    x, y = np.concatenate([pairs, more, more[:, ::-1], np.round(numbers.normal(0, 9, (2000, 2)))]).T
    off = {}
    for dtype, type_ in (("f32", np.float32), ("f64", np.float64))[: 2 if to == TARGETS[0] else 1]:
        a, b, s = x.astype(type_), y.astype(type_), np.array(SPECIAL).astype(type_)
        with np.errstate(all="ignore"):
            for op, (address, k) in compiled(BINARY, 2, dtype).items():
                _, out = call(address, k, [a, b, np.zeros_like(a)], {"n": a.size})
                error = ulps(out[2], BINARY[op](a.astype(np.float64), b.astype(np.float64)), type_)
                if error.max() > 2:
                    off[dtype, op] = (error.max(), a[error.argmax()], b[error.argmax()], out[2][error.argmax()])
            for op, (address, k) in compiled(UNARY, 1, dtype).items():
                _, out = call(address, k, [s, np.zeros_like(s)], {"n": s.size})
                error = ulps(out[1], UNARY[op](s.astype(np.float64)), type_)
                wrong_zero = (out[1] == 0) & (s == 0) & (np.signbit(out[1]) != np.signbit(UNARY[op](s)))
                if error.max() > 2 or wrong_zero.any():
                    off[dtype, op] = (error.max(), s[error.argmax()], out[1][error.argmax()], wrong_zero.any())
    assert not off


@pytest.mark.parametrize("to", TARGETS[:1])
def test_f64_functions(to, monkeypatch, tmp_path):
    """numpy's own are the measure, hence one unit more."""
    monkeypatch.setenv("PLIANT_CPU", to)
    monkeypatch.setenv("PLIANT_CACHE_DIR", str(tmp_path))
    numbers = np.random.default_rng(1)
    draws = (numbers.normal(0, 3, 5000), numbers.lognormal(0, 100, 5000), numbers.uniform(-1, 1, 5000), numbers.normal(0, 300, 5000))
    x = np.concatenate(draws)
    off = {}
    with np.errstate(all="ignore"):
        for op, (address, k) in compiled(UNARY, 1, "f64").items():
            _, out = call(address, k, [x, np.zeros_like(x)], {"n": x.size})
            exact = np.vectorize(math.erfc)(x) if op == "erfc" else UNARY[op](x)  # scipy's loses digits
            error = ulps(out[1], exact, np.float64)
            if op == "sigmoid":  # scipy gives up its denormals
                error = np.where(x < -700, 0, error)
            if error.max() > 3:
                off[op] = (error.max(), x[error.argmax()])
    assert not off


@pytest.mark.parametrize("to", TARGETS)
def test_sine_and_cosine_of_one_operand(to, monkeypatch, tmp_path):
    """Computed together they are, bit for bit, what each is alone: at any length, and with lanes that the C library computes."""
    monkeypatch.setenv("PLIANT_CPU", to)
    monkeypatch.setenv("PLIANT_CACHE_DIR", str(tmp_path))
    x = Node("load", (), "f32", (0, (1,), 0, ()))
    stores = [Store(1, (1,), 0, Node("cos", (x,), "f32")), Store(2, (1,), 0, Node("sin", (x,), "f32"))]
    buffers = [Buffer("f32", False), Buffer("f32", True), Buffer("f32", True)]
    both = Kernel("both", ("n",), 0, buffers, stores, ("n",))
    pair, cosine, sine = cpu.compile_kernels([both, kernel("cos", 1, "f32"), kernel("sin", 1, "f32")])
    numbers = np.random.default_rng(2)
    for n, scale in ((1, 1), (17, 5), (33, 1e3), (300, 50), (5000, 1e6)):
        values = np.concatenate([numbers.normal(0, scale, n), SPECIAL] if n > 100 else [numbers.normal(0, scale, n)]).astype(np.float32)
        zeros = np.zeros_like(values)
        _, out = call(pair, both, [values, zeros, zeros.copy()], {"n": values.size})
        for address, op, got in ((cosine, "cos", out[1]), (sine, "sin", out[2])):
            _, alone = call(address, kernel(op, 1, "f32"), [values, zeros.copy()], {"n": values.size})
            np.testing.assert_array_equal(got.view(np.int32), alone[1].view(np.int32))
