"""Every exact scalar operator and every conversion, on every dtype it is defined on, lane for lane, against numpy."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pliant.codegen.cpu import compile as cpu
from pliant.lower.loops import DTYPES, SCALARS, Buffer, Kernel, Node, Store
from tests.codegen.loop_reference import NUMPY, OPS, call, convert, from_bf16, to_bf16
from tests.codegen.test_cpu_math import BINARY, TARGETS, UNARY

EXACT = [op for op in SCALARS if op not in UNARY and op not in BINARY]
COUNT = 1003
EDGES = [0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 1e-45, 1e-40, 3e38, -3e38, 0.5, 1.5, 2.5, -0.5, -2.5, 65504.0, 65520.0, 6e-8]


def numbers(dtype: str, seed: int, convertible: bool = False) -> np.ndarray:
    """A memory array with edges; `convertible`: finite and within every integer's range."""
    r = np.random.default_rng(seed)
    kind, bits = DTYPES[dtype].kind, DTYPES[dtype].bits
    if kind == "b":
        return r.integers(0, 2, COUNT).astype(bool)
    if kind in "iu":
        low, high = (0, 256) if kind == "u" else (-(1 << bits - 1), (1 << bits - 1))
        out = r.integers(low, high - 1, COUNT, endpoint=True, dtype=np.int64)
        out[::3] = r.integers(max(low, -9), 10, len(out[::3]))
        out[:4] = [low, high - 1, 0, 1]
        return r.permutation(out.astype(NUMPY[dtype]))
    out = np.round(r.normal(0, 50, COUNT), 2) if convertible else r.normal(0, 3, COUNT) * 10.0 ** r.integers(-3, 4, COUNT)
    out[::3] = np.round(out[::3])
    if not convertible:
        out[: len(EDGES)] = EDGES
    else:
        out = np.abs(out)
    with np.errstate(over="ignore"):
        out = r.permutation(out).astype(np.float32)
        return to_bf16(out) if dtype == "bf16" else out.astype(NUMPY[dtype])


def grouped(nodes: list[Node], loads: list[Node], name: str) -> Kernel:
    """All nodes in one kernel, each with a buffer of its own."""
    buffers = [*(Buffer(n.dtype, False) for n in loads), *(Buffer(n.dtype, True) for n in nodes)]
    stores = [Store(len(loads) + k, (1,), 0, n) for k, n in enumerate(nodes)]
    return Kernel(name, ("n",), 0, buffers, stores, ("n",))


def load(k: int, dtype: str) -> Node:
    return Node("load", (), dtype, (k, (1,), 0, ()))


def operators(dtype: str) -> tuple[Kernel, list[str]]:
    loads = [load(0, dtype), load(1, dtype), load(2, dtype), load(3, "bool")]
    nodes, names = [], []
    for op in EXACT:
        row = SCALARS[op]
        if DTYPES[dtype].kind not in row.kinds or (DTYPES[dtype].kind == "f" and dtype not in ("f32", "f64")):
            continue
        args = (loads[3], loads[0], loads[1]) if op == "where" else tuple(loads[: row.arity])
        nodes.append(Node(op, args, "bool" if row.result == "bool" else dtype))
        names.append(op)
    return grouped(nodes, loads, f"ops_{dtype}"), names


def same(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    return (got == want) | (np.isnan(got) & np.isnan(want)) if got.dtype.kind == "f" else got == want


@pytest.mark.parametrize("to", TARGETS)
def test_operators(to, monkeypatch, tmp_path):
    monkeypatch.setenv("PLIANT_CPU", to)
    monkeypatch.setenv("PLIANT_CACHE_DIR", str(tmp_path))
    dtypes = ["f32", "f64", "i64", "i32", "i16", "i8", "u8", "bool"]
    built = [operators(d) for d in dtypes]
    wrong = []
    for dtype, (kernel, names), address in zip(dtypes, built, cpu.compile_kernels([k for k, _ in built])):
        inputs = [numbers(dtype, seed) for seed in range(3)] + [numbers("bool", 9)]
        if "shl" in names:
            inputs[1][::2] = np.abs(inputs[1][::2].astype(np.int64)) % (DTYPES[dtype].bits + 2)
        outputs = [np.zeros(COUNT, NUMPY[s.node.dtype]) for s in kernel.stores]
        code, memory = call(address, kernel, inputs + outputs, {"n": COUNT})
        assert code == 0
        for k, op in enumerate(names):
            with np.errstate(all="ignore"):
                args = [inputs[3], inputs[0], inputs[1]] if op == "where" else inputs[: SCALARS[op].arity]
                want = OPS[op](*args)
            ok = same(memory[4 + k], want)
            if op in ("floordiv", "truncdiv", "remainder", "fmod") and DTYPES[dtype].kind in "iu":
                ok |= inputs[1] == 0  # eager raises
            if op in ("shl", "shr") and DTYPES[dtype].kind == "i":
                ok |= inputs[1] < 0
            if not ok.all():
                at = int((~ok).argmin() if ok.all() else np.flatnonzero(~ok)[0])
                wrong.append((dtype, op, inputs[0][at], inputs[1][at], memory[4 + k][at], want[at]))
    assert not wrong


@pytest.mark.parametrize("to", TARGETS)
def test_conversions(to, monkeypatch, tmp_path):
    monkeypatch.setenv("PLIANT_CPU", to)
    monkeypatch.setenv("PLIANT_CACHE_DIR", str(tmp_path))
    cases = []
    for source in DTYPES:
        for convertible in (False, True) if DTYPES[source].kind == "f" else (False,):
            wanted = [d for d in DTYPES if d != source and (convertible or DTYPES[source].kind != "f" or DTYPES[d].kind in "fb")]
            origin = load(0, source)
            kernel = grouped([Node("cast", (origin,), d) for d in wanted], [origin], f"casts_{source}")
            cases.append((source, convertible, wanted, kernel))
    wrong = []
    for (source, convertible, wanted, kernel), address in zip(cases, cpu.compile_kernels([c[3] for c in cases])):
        x = numbers(source, 5, convertible)
        _, memory = call(address, kernel, [x, *(np.zeros(COUNT, NUMPY[d]) for d in wanted)], {"n": COUNT})
        values = from_bf16(x) if source == "bf16" else x.astype(np.float32) if source == "f16" else x
        for d, got in zip(wanted, memory[1:]):
            with np.errstate(all="ignore"):
                middle = values.astype(np.float32) if d in ("bf16", "f16") else values
                want = convert(middle, source, d)
            ok = same(from_bf16(got) if d == "bf16" else got, want.astype(np.float32) if d == "bf16" else want)
            if not ok.all():
                at = int(np.flatnonzero(~ok)[0])
                wrong.append((source, d, values[at], got[at], want[at]))
    assert not wrong
