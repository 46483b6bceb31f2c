"""Single kernels: time, bytes a second over the machine's copy bandwidth, and the ratio to eager PyTorch.

    python -m benchmarks.kernels [--threads 1] [--only softmax,sum] [--small]

Each row is one kernel in loop IR with the eager program that it stands for; each is checked against eager before it is timed. Times are
medians of interleaved runs on buffers that stay the same, so that page faults don't count.
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch

from pliant.codegen.cpu import compile as cpu
from pliant.lower.loops import Buffer, Kernel, Node, Store, sizes_of

TORCH = {"f32": torch.float32, "bf16": torch.bfloat16, "f64": torch.float64, "i64": torch.int64, "bool": torch.bool}
SMALL, LARGE = ((12, 40), (100, 300)), ((12, 40), (100, 300), (1000, 1000), (3000, 3000))


class Row(NamedTuple):
    """A kernel over an (m, n) nest. `shapes` of its buffers, as functions of (m, n); the last is the output."""

    name: str
    kernel: Kernel
    shapes: tuple[Callable[[int, int], tuple[int, ...]], ...]
    eager: Callable[..., torch.Tensor]


def load(k: int, strides: tuple, dtype: str) -> Node:
    """In f32, whatever is kept in memory."""
    n = Node("load", (), dtype, (k, strides, 0, ()))
    return Node("cast", (n,), "f32") if dtype == "bf16" else n


def op(name: str, *args: Node | float) -> Node:
    return Node(name, tuple(a if isinstance(a, Node) else Node("const", (), "f32", (a,)) for a in args), "f32")


def reduce(kind: str, n: Node, dtype: str = "f32") -> Node:
    return Node("reduce", (n,), dtype, (kind,))


def kernel(name: str, dims: tuple, reduced: int, dtypes: list[str], strides: tuple, out: Node) -> Kernel:
    buffers = [*(Buffer(d, False) for d in dtypes[:-1]), Buffer(dtypes[-1], True)]
    node = Node("cast", (out,), dtypes[-1]) if out.dtype != dtypes[-1] else out
    made = Kernel(name, dims, reduced, buffers, [Store(len(buffers) - 1, strides, 0, node)])
    made.sizes = sizes_of(made)
    return made


def full(m: int, n: int) -> tuple[int, ...]:
    return (m, n)


def gelu(x: Node) -> Node:
    return op("mul", op("mul", x, 0.5), op("add", op("erf", op("mul", x, 0.5**0.5)), 1.0))


def rows(dtype: str) -> Iterator[Row]:
    """The suite for one dtype of memory."""
    flat, row, column, every = ("n", 1), (0, 1), (1, 0), (0, 0)
    x, y, z, w = (load(k, flat, dtype) for k in range(4))
    same = torch.nn.functional

    def pointwise(name: str, out: Node, count: int, eager: Callable[..., torch.Tensor], strides: tuple = flat) -> Row:
        return Row(name, kernel(name, ("m", "n"), 0, [dtype] * (count + 1), strides, out), (full,) * (count + 1), eager)

    yield pointwise("add", op("add", x, y), 2, lambda a, b: a + b)
    yield pointwise("relu(2x+1)", op("maximum", op("add", op("mul", x, 2.0), 1.0), 0.0), 1, lambda a: torch.relu(2 * a + 1))
    gated = op("mul", gelu(op("add", op("mul", x, y), z)), op("sigmoid", w))
    yield pointwise("gelu(ab+c)*sigmoid(d)", gated, 4, lambda a, b, c, d: same.gelu(a * b + c) * torch.sigmoid(d))
    yield pointwise("tanh", op("tanh", x), 1, torch.tanh)
    yield pointwise("transpose", op("add", load(0, (1, "m"), dtype), 1.0), 1, lambda a: (a.reshape(a.shape[::-1]).t() + 1).contiguous())
    biased = op("add", op("mul", x, load(1, row, dtype)), load(2, column, dtype))
    shapes = (full, lambda m, n: (n,), lambda m, n: (m,), full)
    yield Row("x*row+column", kernel("broadcast", ("m", "n"), 0, [dtype] * 4, flat, biased), shapes, lambda a, b, c: a * b + c[:, None])

    def reduced(name: str, out: Node, count: int, eager: Callable[..., torch.Tensor]) -> Row:
        return Row(name, kernel(name, ("m", "n"), 1, [dtype] * (count + 1), flat, out), (full,) * (count + 1), eager)

    masked = op("add", x, y)
    e = op("exp", op("sub", masked, reduce("max", masked)))
    yield reduced("softmax(x+mask)", op("div", e, reduce("sum", e)), 2, lambda a, b: (a + b).softmax(-1))
    count = Node("cast", (Node("size", (), "i64", ("n",)),), "f32")
    d = op("sub", masked, op("div", reduce("sum", masked), count))
    scale = op("rsqrt", op("add", op("div", reduce("sum", op("mul", d, d)), count), 1e-5))
    yield reduced("layer_norm(x+residual)", op("mul", d, scale), 2, lambda a, b: same.layer_norm(a + b, a.shape[1:]))
    shapes = (full, lambda m, n: (m,))
    yield Row("sum(1)", kernel("sum1", ("m", "n"), 1, [dtype] * 2, (1,), reduce("sum", x)), shapes, lambda a: a.sum(1))
    yield Row("max(1)", kernel("max1", ("m", "n"), 1, [dtype] * 2, (1,), reduce("max", x)), shapes, lambda a: a.amax(1))
    places = kernel("argmax1", ("m", "n"), 1, [dtype, "i64"], (1,), reduce("argmax", x, "i64"))
    yield Row("argmax(1)", places, shapes, lambda a: a.argmax(1))
    down = load(0, (1, "n"), dtype)
    columns = kernel("sum0", ("n", "m"), 1, [dtype] * 2, (1,), reduce("sum", down))
    yield Row("sum(0)", columns, (full, lambda m, n: (n,)), lambda a: a.sum(0))
    whole = kernel("sum", ("m", "n"), 2, [dtype] * 2, every, reduce("sum", x))
    whole.stores[0].strides = ()
    yield Row("sum", whole, (full, lambda m, n: ()), lambda a: a.sum())


class Timed:
    """A compiled kernel on its buffers."""

    def __init__(self, row: Row, code: cpu.Code, index: int, m: int, n: int) -> None:
        maker = torch.Generator().manual_seed(0)
        self.code = code
        dtypes = [TORCH[b.dtype] for b in row.kernel.buffers]
        self.buffers = [torch.randn(s(m, n), generator=maker).to(d) for s, d in zip(row.shapes, dtypes)]
        slots = [t.data_ptr() for t in self.buffers] + [{"m": m, "n": n}[k] for k in row.kernel.sizes]
        self.context = (ctypes.c_int64 * len(slots))(*slots)
        self.function = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)(code.addresses[index])
        self.bytes = sum(t.numel() * t.element_size() for t in self.buffers)

    def __call__(self) -> None:
        assert self.function(ctypes.addressof(self.context)) == 0


def seconds(runs: list[Callable[[], object]], budget: float = 0.12) -> list[float]:
    """Median seconds of each, interleaved so that noise hits all alike."""
    counts = []
    for run in runs:
        run()
        begun = time.perf_counter()
        run()
        counts.append(max(1, int(budget / 9 / max(time.perf_counter() - begun, 1e-7))))
    samples: list[list[float]] = [[] for _ in runs]
    for _ in range(9):
        for run, count, into in zip(runs, counts, samples):
            begun = time.perf_counter()
            for _ in range(count):
                run()
            into.append((time.perf_counter() - begun) / count)
    return [statistics.median(s) for s in samples]


def copy_bandwidth(elements: int) -> float:
    """Bytes a second, read and written, of copying that many floats into a buffer that is already there."""
    a, b = torch.ones(elements), torch.ones(elements)
    return 8 * elements / seconds([lambda: b.copy_(a)])[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", default="", help="parts of names, comma-separated")
    parser.add_argument("--small", action="store_true", help="leave out what takes long")
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    print(f"{'kernel':<24}{'dtype':<6}{'shape':<14}{'us':>10}{'GB/s':>8}{'of copy':>9}{'x eager':>9}")
    for dtype in ("f32", "bf16"):
        suite = [r for r in rows(dtype) if not chosen.only or any(part in r.name for part in chosen.only.split(","))]
        code = cpu.load([r.kernel for r in suite])
        for index, row in enumerate(suite):
            for m, n in SMALL if chosen.small else LARGE:
                timed = Timed(row, code, index, m, n)
                timed()
                tolerance = {"rtol": 2e-2, "atol": 2e-2} if dtype == "bf16" else {"rtol": 1e-4, "atol": 1e-4}
                *inputs, out = timed.buffers
                want = row.eager(*inputs)
                torch.testing.assert_close(out.reshape(want.shape), want, **tolerance)
                ours, theirs = seconds([timed, lambda row=row, inputs=inputs: row.eager(*inputs)])
                rate = timed.bytes / ours
                copied = copy_bandwidth(max(timed.bytes // 8, 1))
                figures = f"{ours * 1e6:>10.2f}{rate / 1e9:>8.1f}{rate / copied:>9.2f}{theirs / ours:>9.2f}"
                print(f"{row.name:<24}{dtype:<6}{f'{m}x{n}':<14}{figures}", flush=True)


if __name__ == "__main__":
    main()
