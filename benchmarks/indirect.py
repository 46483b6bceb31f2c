"""Loads and stores at computed positions, and attention, against eager: `python -m benchmarks.indirect [--threads 1] [--only rows,...]`.

Microseconds of CPU time a call, medians over interleaved rounds, and how many times faster pliant's native backend is, for small
and large sizes.
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


def loops(fn: Callable, args: tuple) -> int:
    n = 1
    while True:
        begun = time.process_time()
        for _ in range(n):
            fn(*args)
        if time.process_time() - begun > LEAST_SECONDS:
            return n
        n *= 2


def compare(fn: Callable, compiled: Callable, args: tuple) -> tuple[float, float]:
    """Microseconds of CPU time a call, eager and compiled."""
    for f in (fn, compiled):
        for _ in range(3):
            f(*args)
    counts = [loops(f, args) for f in (fn, compiled)]
    seconds: list[list[float]] = [[], []]
    for _ in range(ROUNDS):
        for f, n, out in zip((fn, compiled), counts, seconds, strict=True):
            begun = time.process_time()
            for _ in range(n):
                f(*args)
            out.append((time.process_time() - begun) / n)
    return statistics.median(seconds[0]) * 1e6, statistics.median(seconds[1]) * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", default="", help="names, separated by commas")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    chosen = set(filter(None, options.only.split(",")))
    suites: Any = ((ON_ROWS, ROWS, rows), (ON_HEADS, HEADS, heads))
    with torch.no_grad():
        for programs, sizes, make in suites:
            for name, fn in programs.items():
                if chosen and name not in chosen:
                    continue
                compiled = pliant.compile(fn, backend="native", strict=True)
                cells = []
                for size in sizes:
                    args = make(*size)
                    eager, ours = compare(fn, compiled, args)
                    cells.append(f"{'x'.join(map(str, size))}: {eager:.1f} / {ours:.1f} = {eager / ours:.2f}")
                print(f"{name:20}", "; ".join(cells), flush=True)


if __name__ == "__main__":
    main()
