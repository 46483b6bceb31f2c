"""bf16 in kernels: rounded in place, moved two vectors at a time, every bit pattern; and lanes told apart by their place in a row."""

from __future__ import annotations

import numpy as np
import pytest

from pliant.codegen.cpu import compile as cpu
from pliant.codegen.cpu import machine
from pliant.codegen.cpu.schedule import plan
from pliant.lower.loops import Buffer, Kernel, Node, Store
from tests.codegen.loop_reference import call, from_bf16, reference, to_bf16

LENGTHS = (1, 7, 16, 33, 64, 127, 300)


def load(buffer: int, strides: tuple, dtype: str = "bf16") -> Node:
    return Node("load", (), dtype, (buffer, strides, 0, ()))


def cast(n: Node, dtype: str) -> Node:
    return Node("cast", (n,), dtype)


def op(name: str, *args: Node, dtype: str = "f32") -> Node:
    return Node(name, args, dtype)


def rounded(n: Node) -> Node:
    """What eager passes from one operator to the next."""
    return cast(cast(n, "bf16"), "f32")


def same(got: np.ndarray, want: np.ndarray) -> bool:
    return np.array_equal(from_bf16(got), from_bf16(want), equal_nan=True)


def every_bf16() -> np.ndarray:
    return np.arange(1 << 16, dtype=np.uint16)


def test_rounding_of_every_kind_of_number(to):
    """Ties, denormals, overflow, and NaNs whose only bits are those that bf16 does not have."""
    high = np.arange(0, 1 << 16, 7, dtype=np.uint32) << 16
    bits = np.concatenate([high | low for low in (0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF)]).astype(np.uint32)
    special = np.array([0x7F800001, 0x7FFFFFFF, 0xFF800001, 0xFFFFFFFF, 0x7F7FFFFF, 0x00000001, 0x80000001, 0x007FFFFF], np.uint32)
    x = np.concatenate([bits, special]).view(np.float32)
    kernel = Kernel("round", ("n",), 0, [Buffer("f32", False), Buffer("bf16", True)],
                    [Store(1, (1,), 0, cast(load(0, (1,), "f32"), "bf16"))], ("n",))  # fmt: skip
    (address,) = cpu.compile_kernels([kernel])
    code, (_, out) = call(address, kernel, [x, np.zeros(x.size, np.uint16)], {"n": x.size})
    assert code == 0 and same(out, to_bf16(x))


@pytest.mark.parametrize("factor", [2.0, -16.0, 0.5, 3.0])
def test_products_of_every_bit_pattern(to, factor):
    """Doubling needs no rounding; halving does, of the smallest numbers."""
    x = every_bf16()
    product = rounded(op("mul", cast(load(0, (1,)), "f32"), Node("const", (), "f32", (factor,))))
    kernel = Kernel("times", ("n",), 0, [Buffer("bf16", False), Buffer("bf16", True)],
                    [Store(1, (1,), 0, cast(op("neg", product), "bf16"))], ("n",))  # fmt: skip
    (address,) = cpu.compile_kernels([kernel])
    code, (_, got) = call(address, kernel, [x, np.zeros_like(x)], {"n": x.size})
    with np.errstate(all="ignore"):
        assert code == 0 and same(got, reference(kernel, [x, np.zeros_like(x)], {"n": x.size})[-1])


def test_every_bit_pattern_passes_through_arithmetic(to):
    x = every_bf16()
    y = np.random.default_rng(0).permutation(x)
    a, b = (cast(load(k, (1,)), "f32") for k in range(2))
    product = rounded(op("mul", a, b))
    out = op("sub", rounded(op("maximum", op("neg", product), b)), a)
    kernel = Kernel("chain", ("n",), 0, [Buffer("bf16", False), Buffer("bf16", False), Buffer("bf16", True)],
                    [Store(2, (1,), 0, cast(out, "bf16"))], ("n",))  # fmt: skip
    (address,) = cpu.compile_kernels([kernel])
    code, (*_, got) = call(address, kernel, [x, y, np.zeros_like(x)], {"n": x.size})
    with np.errstate(all="ignore"):
        want = reference(kernel, [x, y, np.zeros_like(x)], {"n": x.size})[-1]
    assert code == 0 and same(got, want)


def paired_kernels() -> dict[str, Kernel]:
    """Over (m, n): pointwise with broadcast operands, by row, by column, and a row written after it was reduced."""
    x, row, column = (cast(load(k, s), "f32") for k, s in enumerate((("n", 1), (0, 1), (1, 0))))
    inputs = [Buffer("bf16", False) for _ in range(3)]
    sizes = ("n", "m")

    def total(n: Node) -> Node:
        return Node("reduce", (n,), "f32", ("sum",))

    def heavy(n: Node) -> Node:
        """Much to compute: one body for whole vectors and for what is left."""
        return op("sin", op("tanh", op("cos", op("erf", n))))

    def made(name: str, dims: tuple, reduced: int, dtype: str, strides: tuple, node: Node) -> Kernel:
        kernel = Kernel(name, dims, reduced, [*inputs, Buffer(dtype, True)], [Store(3, strides, 0, node)], sizes)
        kernel.hints = {"m": 512, "n": 512}
        return kernel

    down = cast(load(0, (1, "n")), "f32")
    scaled = op("mul", x, row)
    wide = heavy(scaled)
    return {
        "pointwise": made("pointwise", ("m", "n"), 0, "bf16", ("n", 1), cast(op("add", scaled, column), "bf16")),
        "rows": made("rows", ("m", "n"), 1, "f32", (1,), total(scaled)),
        "columns": made("columns", ("n", "m"), 1, "bf16", (1,), cast(total(op("abs", down)), "bf16")),
        "normalized": made("normalized", ("m", "n"), 1, "bf16", ("n", 1), cast(op("sub", scaled, total(scaled)), "bf16")),
        "heavy": made("heavy", ("m", "n"), 0, "bf16", ("n", 1), cast(wide, "bf16")),
        "heavy rows": made("heavy_rows", ("m", "n"), 1, "f32", (1,), total(wide)),
        "heavy columns": made("heavy_columns", ("n", "m"), 1, "bf16", (1,), cast(total(heavy(down)), "bf16")),
        "heavy, kept": made("heavy_kept", ("m", "n"), 1, "bf16", ("n", 1), cast(op("sub", wide, total(wide)), "bf16")),
    }


def test_pairs_of_vectors(to):
    """Every length: whole pairs, one vector more, a few lanes more."""
    now = machine.current()
    kernels = paired_kernels()
    assert all(plan(k, now.vector_bits, now.masks).pairs for k in kernels.values())
    random = np.random.default_rng(1)
    for (name, kernel), address in zip(kernels.items(), cpu.compile_kernels(list(kernels.values())), strict=True):
        for m, n in [(3, length) for length in LENGTHS] + [(40, 97)]:
            x, row, column = (to_bf16(random.standard_normal(k).astype(np.float32)) for k in (m * n, n, m))
            out = np.zeros(m * n, np.float32 if kernel.buffers[3].dtype == "f32" else np.uint16)
            memory, known = [x, row, column, out], {"m": m, "n": n}
            want = reference(kernel, memory, known)[-1]
            code, (*_, got) = call(address, kernel, memory, known)
            assert code == 0
            got, want = (from_bf16(v) if v.dtype == np.uint16 else v for v in (got, want))
            np.testing.assert_allclose(got, want, rtol=1e-2, atol=2e-2, err_msg=f"{name} {m}x{n}")


@pytest.mark.parametrize("predicate", ["lt", "le", "gt", "ge", "eq", "ne"])
def test_lanes_on_one_side_of_a_bound(to, predicate):
    """Bounds inside a row, at its ends, and as far away as integers go."""
    bounds = [-(1 << 63), -(1 << 32) - 5, -1, 0, 1, 17, 31, 32, 62, 63, (1 << 32) + 40, (1 << 63) - 1]
    index = Node("index", (), "i64", (0,))
    stores = [
        Store(k, (1,), 0, op("where", op(predicate, index, Node("const", (), "i64", (bound,)), dtype="bool"),
                             load(len(bounds), (1,), "f32"), Node("const", (), "f32", (0.0,))))
        for k, bound in enumerate(bounds)
    ]  # fmt: skip
    kernel = Kernel("sides", ("n",), 0, [*(Buffer("f32", True) for _ in bounds), Buffer("f32", False)], stores, ("n",))
    (address,) = cpu.compile_kernels([kernel])
    memory = [*(np.zeros(63, np.float32) for _ in bounds), np.arange(1, 64, dtype=np.float32)]
    code, got = call(address, kernel, memory, {"n": 63})
    assert code == 0
    for one, two in zip(got, reference(kernel, memory, {"n": 63}), strict=True):
        np.testing.assert_array_equal(one, two)
