"""Loops whose number of rounds depends on data: microseconds a round, eager and compiled, and how many graphs it took.

    python -m benchmarks.data_loops
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

import pliant
from benchmarks.programs.irregular import detections, nms

Counted = tuple[Any, int]


def fixed_point(x: Any, tol: float) -> Counted:
    err, n = torch.tensor(1.0), 0
    while err > tol:
        y = torch.cos(x)
        err = (y - x).abs().max()
        x = y
        n += 1
    return x, n


def newton(a: Any, tol: float) -> Counted:
    x, i = a, 0
    for i in range(50):  # noqa: B007
        y = x - (x * x - a) / (2 * x)
        if (y - x).abs().max() < tol:
            break
        x = y
    return x, i + 1


def bisection(lo: Any, hi: Any, tol: float) -> Counted:
    n = 0
    while hi - lo > tol:
        mid = (lo + hi) / 2
        if mid * mid > 2:
            hi = mid
        else:
            lo = mid
        n += 1
    return lo, n


def power_iteration(a: Any, v: Any, tol: float) -> Counted:
    n = 0
    while True:
        w = a @ v
        w = w / w.norm()
        n += 1
        if (w - v).norm() < tol:
            return w, n
        v = w


def greedy(w: Any, table: Any, ids: Any, end: int) -> Counted:
    n = 0
    while n < 40:
        h = torch.tanh(table[ids].mean(0) @ w)
        token = (table @ h).argmax()
        ids = torch.cat([ids, token[None]])
        n += 1
        if token == end:
            break
    return ids, n


def suppression(boxes: Any, scores: Any) -> Counted:
    kept = nms(boxes, scores)
    return kept, kept.shape[0]


def programs() -> dict[Callable[..., Counted], tuple]:
    g = torch.Generator().manual_seed(0)

    def rand(*shape: int) -> Any:
        return torch.rand(shape, generator=g)

    a = rand(32, 32)
    return {
        fixed_point: (rand(64), 1e-6), newton: (rand(64) + 0.1, 1e-5), bisection: (torch.tensor(0.0), torch.tensor(4.0), 1e-6),
        power_iteration: (a @ a.T + torch.eye(32), rand(32), 1e-5),
        greedy: (rand(32, 32) - 0.5, rand(50, 32) - 0.5, torch.tensor([3, 4]), 51),
        suppression: max(detections(), key=lambda pair: len(pair[1])),
    }  # fmt: skip


def seconds(fn: Callable, args: tuple) -> float:
    times = []
    for _ in range(15):
        began = time.process_time()
        for _ in range(10):
            fn(*args)
        times.append((time.process_time() - began) / 10)
    return statistics.median(times)


def main() -> None:
    torch.set_num_threads(1)
    print(f"{'':18}{'rounds':>7}{'eager':>10}{'compiled':>10}{'ratio':>7}{'captures':>10}{'breaks':>8}")
    for fn, args in programs().items():
        pliant.reset()
        compiled = pliant.compile(fn)
        with torch.no_grad():
            for _ in range(3):
                _, rounds = compiled(*args)
            assert rounds == fn(*args)[1]
            eager, ours = seconds(fn, args), seconds(compiled, args)
        stats = pliant.stats()
        first, second = (f"{t / rounds * 1e6:.1f} us" for t in (eager, ours))
        counts = f"{stats['captures']:10}{stats['graph_breaks']:8}"
        print(f"{fn.__name__:18}{rounds:7}{first:>10}{second:>10}{eager / ours:7.2f}{counts}")


if __name__ == "__main__":
    main()
