"""Elements two to four apart, moved as whole vectors; dims of a few points written out; points cut into pieces at bounds."""

from __future__ import annotations

import numpy as np
import pytest

from pliant.codegen.cpu import compile as cpu
from pliant.codegen.cpu import machine
from pliant.codegen.cpu.index_set_splitting import pieces
from pliant.codegen.cpu.schedule import dependence, plan
from pliant.codegen.cpu.small_dims import written_out
from pliant.lower.loops import DTYPES, Buffer, Kernel, Node, Store
from tests.codegen.loop_reference import NUMPY, call, from_bf16, reference, to_bf16
from tests.codegen.test_cpu_bf16 import LENGTHS, cast, op


def load(buffer: int, strides: tuple, dtype: str, offset: int = 0, on: Node | None = None) -> Node:
    return Node("load", () if on is None else (on,), dtype, (buffer, strides, offset, (), *((True,) if on is not None else ())))


def index(d: int) -> Node:
    return Node("index", (), "i64", (d,))


def number(value: int) -> Node:
    return Node("const", (), "i64", (value,))


def plus_one(n: Node) -> Node:
    """Something computed, in the dtype of `n`."""
    one = Node("const", (), "f32", (1.0,))
    return cast(op("add", cast(n, "f32"), one), n.dtype) if DTYPES[n.dtype].kind == "f" else op("xor", n, n, dtype=n.dtype)


def woven_kernels(dtype: str) -> dict[str, Kernel]:
    """Over (n, c) or (m, n): stacked, taken apart, turned round, every other one."""
    out = {}
    for c in (2, 3, 4):
        parts = [load(k, (1, 0), dtype, 0, Node("eq", (index(1), number(k)), "bool")) for k in range(c)]
        stacked = parts[-1]
        for k in reversed(range(c - 1)):
            below = Node("lt", (index(1), number(k + 1)), "bool")
            stacked = Node("where", (below, load(k, (1, 0), dtype, 0, below), stacked), dtype)
        out[f"stack{c}"] = Kernel(f"stack{c}", ("n", c), 0, [*(Buffer(dtype, False) for _ in range(c)), Buffer(dtype, True)],
                                  [Store(c, (c, 1), 0, stacked)], ("n",))  # fmt: skip
        pair = [Buffer(dtype, False), Buffer(dtype, True)]
        out[f"same{c}"] = Kernel(f"same{c}", ("n", c), 0, pair, [Store(1, (c, 1), 0, plus_one(load(0, (c, 1), dtype)))], ("n",))
        back = [Store(1, (c,), k, load(0, (c,), dtype, c - 1 - k)) for k in range(c)]
        out[f"round{c}"] = Kernel(f"round{c}", ("n",), 0, pair, back, ("n",))
        apart = [Store(1, (1,), 0, plus_one(load(0, (c,), dtype, c - 1)))]
        out[f"apart{c}"] = Kernel(f"apart{c}", ("n",), 0, pair, apart, ("n",))
    return out


def check(kernels: dict[str, Kernel], dtype: str, checked: bool) -> None:
    random = np.random.default_rng(3)
    for (name, kernel), address in zip(kernels.items(), cpu.compile_kernels(list(kernels.values()), checked=checked), strict=True):
        for n in LENGTHS:
            wide = [4 * n if b.written or len(kernel.buffers) == 2 else n for b in kernel.buffers]
            if name.startswith("apart"):  # ends with the last element that is read
                wide[0] = int(name[-1]) * n
            values = [np.round(random.standard_normal(k) * 8) for k in wide]
            memory = [to_bf16(v.astype(np.float32)) if dtype == "bf16" else v.astype(NUMPY[dtype]) for v in values]
            want = reference(kernel, memory, {"n": n})[-1]
            code, (*_, got) = call(address, kernel, memory, {"n": n})
            assert code == 0, f"{name} {n}: check {code}"
            np.testing.assert_array_equal(got, want, err_msg=f"{name} of {n} {dtype}")


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f64", "i8", "i64"])
def test_woven(to, dtype):
    kernels = woven_kernels(dtype)
    assert all(written_out(kernels[f"{name}{c}"]).dims == ("n", 1) for name in ("stack", "same") for c in (2, 3, 4))
    check(kernels, dtype, False)


def test_woven_with_bounds_checks(monkeypatch, tmp_path):
    monkeypatch.setenv("PLIANT_CACHE_DIR", str(tmp_path))
    check(woven_kernels("f32"), "f32", True)


def heavy(n: Node) -> Node:
    return op("sin", op("tanh", op("cos", op("erf", n))))


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("body", ["light", "heavy"])
def test_pieces(to, dim, body):
    """Three parts of one dim, each computed in its own way, some of them empty or beyond the end."""
    first, second = Node("size", (), "i64", ("a",)), Node("size", (), "i64", ("b",))
    at = index(dim)
    low, high = Node("lt", (at, first), "bool"), Node("ge", (at, second), "bool")
    middle = op("and", Node("ge", (at, first), "bool"), Node("lt", (at, second), "bool"), dtype="bool")
    strides = ("n", 1)
    parts = [cast(load(k, strides, "bf16", 0, on), "f32") for k, on in enumerate((low, middle, high))]
    parts = [heavy(p) if body == "heavy" else op("add", p, cast(number(k), "f32")) for k, p in enumerate(parts)]
    node = cast(op("where", low, parts[0], op("where", middle, parts[1], parts[2])), "bf16")
    buffers = [*(Buffer("bf16", False) for _ in range(3)), Buffer("bf16", True)]
    kernel = Kernel("parts", ("m", "n"), 0, buffers, [Store(3, strides, 0, node)], ("m", "n", "a", "b"))
    kernel.hints = {"m": 100, "n": 100}
    now = machine.current()
    s = plan(kernel, now.vector_bits, now.masks)
    assert s.cut is not None and len(s.cut.parts()) == 3 and s.pairs
    (address,) = cpu.compile_kernels([kernel])
    random = np.random.default_rng(2)
    for m, n in ((5, 70), (70, 5), (33, 33)):
        size = (m, n)[dim]
        for a, b in ((0, size), (size // 3, size // 2), (size, size), (3, 3), (-4, size + 9), (size - 1, size)):
            memory = [to_bf16(random.standard_normal(m * n).astype(np.float32)) for _ in range(4)]
            known = {"m": m, "n": n, "a": a, "b": b}
            want = from_bf16(reference(kernel, memory, known)[-1])
            code, (*_, got) = call(address, kernel, memory, known)
            assert code == 0
            np.testing.assert_allclose(from_bf16(got), want, rtol=1e-2, atol=1e-6, err_msg=str(known))


def test_bodies_without_questions_stay_whole():
    """A comparison that no load asks, as in a mask, is cheaper answered lane by lane than by further loops."""
    x = load(0, ("n", 1), "f32")
    masked = Node("where", (Node("le", (index(1), index(0)), "bool"), x, Node("const", (), "f32", (0.0,))), "f32")
    kernel = Kernel("mask", ("m", "n"), 0, [Buffer("f32", False), Buffer("f32", True)], [Store(1, ("n", 1), 0, masked)], ("m", "n"))
    assert pieces(kernel, 1, dependence(kernel, kernel.nodes())) is None
