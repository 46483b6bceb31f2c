"""Loads and stores at computed positions, and attention, against eager: `python -m benchmarks.indirect [--threads 1] [--only rows,...]`.

Microseconds of CPU time a call, medians over interleaved rounds, and how many times faster pliant's native backend is, for small
and large sizes. With more than one thread, of the clock. `--torch`: and how many times faster than `torch.compile(dynamic=True)`.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

import pliant

ROUNDS = 15
LEAST_SECONDS = 2e-3  # of one measurement


def rows(n: int, d: int) -> tuple:
    """A matrix, twice as many rows for it, which rows these are, and for each of their elements."""
    m = max(n // 2, 4)
    return torch.randn(m, d), torch.randn(n, d), torch.randint(0, m, (n,)), torch.randint(0, m, (n, d))


def heads(b: int, h: int, q: int, k: int, d: int) -> tuple:
    return torch.randn(b, h, q, d), torch.randn(b, h, k, d), torch.randn(b, h, k, d)


def table_gradient(x: torch.Tensor, s: torch.Tensor, i: torch.Tensor, e: torch.Tensor) -> torch.Tensor:
    with torch.enable_grad():
        w = x.detach().requires_grad_()
        return torch.autograd.grad(F.embedding(i, w).square().sum(), w)[0]


ROWS = ((8, 16), (300, 64), (20000, 64))
HEADS = ((1, 4, 1, 16, 64), (1, 12, 1, 512, 64), (8, 12, 48, 48, 32), (1, 12, 16, 16, 64), (2, 8, 128, 128, 64), (1, 12, 512, 512, 64))
SHARED = ((1, 32, 8, 1, 128, 128), (1, 32, 8, 1, 1024, 128), (1, 32, 8, 1, 8192, 128), (4, 8, 1, 1, 512, 64), (1, 8, 2, 256, 256, 64))
ON_ROWS: dict[str, Callable] = {
    "rows": lambda x, s, i, e: x[i] * 2,
    "mean of rows": lambda x, s, i, e: x[i].mean(0),
    "table and norm": lambda x, s, i, e: F.layer_norm(F.embedding(i, x) + s, (x.shape[1],)),
    "rows of both": lambda x, s, i, e: torch.relu(x[i] + x[e[:, 0]]),
    "gather": lambda x, s, i, e: x.gather(0, e[: x.shape[0]]) * 2,
    "cross entropy": lambda x, s, i, e: F.cross_entropy(s, e[:, 0] % s.shape[1]),
    "index_add": lambda x, s, i, e: x.index_add(0, i, s),
    "zeros, index_add": lambda x, s, i, e: torch.zeros_like(x).index_add(0, i, s.relu() * 2) + 1,
    "scatter_add of rows": lambda x, s, i, e: x.scatter_add(0, i[:, None].expand_as(s), s),
    "scatter_add": lambda x, s, i, e: x.scatter_add(0, e, s),
    "scatter_add along": lambda x, s, i, e: s.scatter_add(1, e % s.shape[1], s),
    "largest of rows": lambda x, s, i, e: x.scatter_reduce(0, i[:, None].expand_as(s), s, reduce="amax"),
    "largest": lambda x, s, i, e: x.scatter_reduce(0, e, s, reduce="amax"),
    "one hot": lambda x, s, i, e: torch.zeros_like(s).scatter(1, i[:, None] % 4, 1.0),
    "put": lambda x, s, i, e: x.index_put((i,), s),
    "put and add": lambda x, s, i, e: x.index_put((i,), s, accumulate=True),
    "put pairs": lambda x, s, i, e: x.index_put((i, e[:, 0] % 16), s[:, 0], accumulate=True),
    "put by mask": lambda x, s, i, e: x.clone().index_put_((x > 0,), torch.tensor(3.0)),
    "table gradient": table_gradient,
}
ON_HEADS: dict[str, Callable] = {
    "attention": lambda q, k, v: F.scaled_dot_product_attention(q.relu(), k, v).relu(),
    "causal": lambda q, k, v: F.scaled_dot_product_attention(q.relu(), k, v, is_causal=True).relu(),
}


def shared_heads(b: int, h: int, g: int, q: int, k: int, d: int) -> tuple:
    """Queries of h heads as a projection leaves them, keys and values of g heads in one tensor."""
    return torch.randn(b, q, h * d), torch.randn(2, b, g, k, d)


def repeat(x: torch.Tensor, times: int) -> torch.Tensor:
    b, h, n, d = x.shape
    return x[:, :, None].expand(b, h, times, n, d).reshape(b, h * times, n, d)


def queries(x: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    return x.view(x.shape[0], x.shape[1], -1, k.shape[3]).transpose(1, 2)


def by_aten(x: torch.Tensor, kv: torch.Tensor) -> torch.Tensor:
    k, v = kv
    return F.scaled_dot_product_attention(queries(x, k), k, v, enable_gqa=True).relu()


def repeated(x: torch.Tensor, kv: torch.Tensor) -> torch.Tensor:
    k, v = kv
    q = queries(x, k)
    times = q.shape[1] // k.shape[1]
    return F.scaled_dot_product_attention(q, repeat(k, times), repeat(v, times)).relu()


def by_hand(x: torch.Tensor, kv: torch.Tensor) -> torch.Tensor:
    k, v = kv
    q = queries(x, k)
    times = q.shape[1] // k.shape[1]
    scores = torch.matmul(q, repeat(k, times).transpose(2, 3)) * 0.1
    return torch.matmul(scores.softmax(-1), repeat(v, times)).relu()


ON_SHARED: dict[str, Callable] = {"heads share keys": by_aten, "repeated keys": repeated, "by products": by_hand}


def loops(fn: Callable, args: tuple, clock: Callable[[], float]) -> int:
    n = 1
    while True:
        begun = clock()
        for _ in range(n):
            fn(*args)
        if clock() - begun > LEAST_SECONDS:
            return n
        n *= 2


def compare(fns: list[Callable], args: tuple) -> list[float]:
    """Microseconds a call."""
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    for f in fns:
        for _ in range(3):
            f(*args)
    counts = [loops(f, args, clock) for f in fns]
    seconds: list[list[float]] = [[] for _ in fns]
    for _ in range(ROUNDS):
        for f, n, out in zip(fns, counts, seconds, strict=True):
            begun = clock()
            for _ in range(n):
                f(*args)
            out.append((clock() - begun) / n)
    return [statistics.median(s) * 1e6 for s in seconds]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", default="", help="names, separated by commas")
    parser.add_argument("--torch", action="store_true", help="torch.compile too")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    chosen = set(filter(None, options.only.split(",")))
    suites: Any = ((ON_ROWS, ROWS, rows), (ON_HEADS, HEADS, heads), (ON_SHARED, SHARED, shared_heads))
    with torch.no_grad():
        for programs, sizes, make in suites:
            for name, fn in programs.items():
                if chosen and name not in chosen:
                    continue
                compiled = pliant.compile(fn, backend="native", strict=True, background=False)
                systems = [compiled, fn, *([torch.compile(fn, dynamic=True)] if options.torch else [])]
                cells = []
                for size in sizes:
                    ours, *others = compare(systems, make(*size))
                    ratios = ", ".join(f"{t:.1f} / {ours:.1f} = {t / ours:.2f}" for t in others)
                    cells.append(f"{'x'.join(map(str, size))}: {ratios}")
                print(f"{name:20}", "; ".join(cells), flush=True)


if __name__ == "__main__":
    main()
