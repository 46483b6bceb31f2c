"""`python -m benchmarks.calls`: what a warm call of a compiled function costs over the plain call, in microseconds.

One-tensor function, and modules whose many parameters must be guarded but little work done. Every system in a fresh process, plain and
compiled calls in turn; the figure is the difference of the medians over batches of calls.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import nn

from pliant.cli import systems, workers
from pliant.cli.workers import report


class Pair(nn.Module):
    """Two parameters of one element."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.zeros(1))
        self.b = nn.Parameter(torch.zeros(1))


class Read(nn.Module):
    """Reads the size of each of `count` parameters, so guards must hold them all; the graph is one addition."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.pairs = nn.ModuleList(Pair() for _ in range(count // 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        total = 0
        for pair in self.pairs:
            total += pair.a.shape[0] + pair.b.shape[0]
        return x + total


class Used(Read):
    """Hands all of them to the graph, which is one concatenation."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x, *(p for pair in self.pairs for p in (pair.a, pair.b))])


def one_tensor(x: torch.Tensor) -> torch.Tensor:
    return x + 1


Function = Callable[..., Any]


def read(count: int) -> tuple[Function, Function]:
    return Read(count), lambda x: x + count


def used(count: int) -> tuple[Function, Function]:
    model = Used(count)
    parameters = list(model.parameters())
    return model, lambda x: torch.cat([x, *parameters])


# name: what makes the function to compile, and the same ATen work as bare code
CASES: dict[str, Callable[[], tuple[Function, Function]]] = {
    "one tensor": lambda: (one_tensor, one_tensor),
    "10 parameters, read": lambda: read(10),
    "100 parameters, read": lambda: read(100),
    "500 parameters, read": lambda: read(500),
    "10 parameters, used": lambda: used(10),
    "100 parameters, used": lambda: used(100),
    "500 parameters, used": lambda: used(500),
}


def per_call(fn: Function, x: torch.Tensor, calls: int) -> float:
    """Microseconds of one call, over `calls` of them."""
    start = time.perf_counter_ns()
    for _ in range(calls):
        fn(x)
    return (time.perf_counter_ns() - start) / calls / 1e3


@torch.no_grad()
def work(name: str, batches: int, calls: int) -> None:
    """All cases in this process. Warm with sizes that change, so that what is measured is the dynamic entry."""
    system = systems.load(name)
    x = torch.zeros(16)
    for case, make in CASES.items():
        model, plain = make()
        fn = system.compile(model)
        for n in (16, 5, 7, 9, 16):
            torch.testing.assert_close(fn(torch.zeros(n)), plain(torch.zeros(n)))
        system.settle()
        times: tuple[list[float], list[float]] = ([], [])
        for _ in range(batches):
            times[0].append(per_call(fn, x, calls))
            times[1].append(per_call(plain, x, calls))
        compiled, bare = map(statistics.median, times)
        overhead = statistics.median(a - b for a, b in zip(*times))
        report("case", case=case, system=name, compiled_us=compiled, plain_us=bare, overhead_us=overhead)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.calls", description=__doc__.splitlines()[0])
    parser.add_argument("--systems", default="pliant", help="names, separated by commas: " + ", ".join(systems.TITLES))
    parser.add_argument("--batches", type=int, default=301, help="how many batches of calls (301)")
    parser.add_argument("--calls", type=int, default=100, help="calls a batch (100)")
    parser.add_argument("--json", metavar="FILE", help="also write the figures there")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        work(args.worker, args.batches, args.calls)
        return
    console = Console(width=max(Console().width, 110))
    results = []
    for name in args.systems.split(","):
        words = ["--worker", name, "--batches", str(args.batches), "--calls", str(args.calls)]
        results += workers.told(name, "benchmarks.calls", words, "case")
    table = Table(title="one warm call, µs: `plain` is the same arithmetic written bare")
    for heading in ("case", "system", "compiled", "plain", "overhead"):
        table.add_column(heading, justify="left" if heading in ("case", "system") else "right")
    for r in sorted(results, key=lambda r: list(CASES).index(r["case"])):
        figures = (f"{r[key]:.2f}" for key in ("compiled_us", "plain_us", "overhead_us"))
        table.add_row(r["case"], systems.TITLES[r["system"]], *figures)
    console.print(table)
    if args.json:
        with open(args.json, "w") as file:
            json.dump(results, file, indent=1)


if __name__ == "__main__":
    main()
