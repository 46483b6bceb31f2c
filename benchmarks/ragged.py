"""`python -m benchmarks.ragged`: n ragged lengths from one `tolist()`: what capturing costs as n grows, and how often it happens.

python -m benchmarks.ragged --sizes 10,100,500,2000 --torch 10,30

The program knows that the lengths add up to the rows, splits by them, pools each piece, walks the prefix sums and slices by them, and
puts the slices back together. Each n runs in a fresh process: 30 random batches, zeros and ones among the lengths, answers compared with
eager's. "engine" is the symbolic engine alone, on the questions of such a program. Times are CPU seconds of the process, so that a busy
machine matters less; exponents are slopes of a straight line through the logarithms (1 is linear).
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import statistics
import time
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from pliant.cli import systems, workers
from pliant.symbolic import Expr, Scope, ops

BATCHES = 30
WIDTH = 8


def ragged(values: torch.Tensor, lengths: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Pool the pieces; scale the slices and join them again."""
    sizes = lengths.tolist()
    torch._check(sum(sizes) == values.shape[0])
    pooled = [piece.sum(0) / max(piece.shape[0], 1) for piece in values.split(sizes)]
    start, slices = 0, []
    for n in sizes:
        slices.append(values[start : start + n] * 2)
        start += n
    return torch.stack(pooled), torch.cat(slices)


def batches(n: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    g = torch.Generator().manual_seed(n)
    out = []
    for _ in range(BATCHES):
        lengths = torch.randint(0, 7, (n,), generator=g)
        out.append((torch.randn(int(lengths.sum()), WIDTH, generator=g), lengths))
    return out


def questions(n: int) -> tuple[int, int]:
    """What such a program asks the engine: (questions that must be proven, questions proven)."""
    scope = Scope(record=False)
    size = scope.backed("s0", hint=3 * n, size_like=True)
    lengths = [scope.unbacked(f"u{i}", size_like=True) for i in range(n)]
    scope.assume(ops.sum_(lengths) == size)
    offset: Expr | int = 0
    proven = 0
    for u in lengths:
        end = offset + u
        proven += scope.known_true(ops.ge(offset, 0)) + scope.known_true(ops.le(end, size)) + scope.known_true(u <= size)
        proven += scope.known_true(ops.eq(end - offset, u))
        scope.decide_or_false(u == 0)
        scope.decide_or_false(u == 1)
        offset = end
    proven += scope.known_true(ops.eq(offset, size))
    return 4 * n + 1, proven


def engine_seconds(n: int) -> float:
    """The least of three, with the garbage collector at rest as in a capture."""
    times = []
    for _ in range(3):
        gc.collect()
        gc.disable()
        begin = time.process_time()
        asked, proven = questions(n)
        times.append(time.process_time() - begin)
        gc.enable()
        assert asked == proven, f"{asked - proven} of {asked} not proven"
    return min(times)


def work(name: str, n: int) -> None:
    """One system, one n, in this process."""
    system = systems.load(name)
    system.compile(lambda x: x * 2)(torch.ones(3))  # what the first capture of a process costs is not the question
    before = system.counts()
    compiled = system.compile(ragged)
    cpu, wall = [], []
    for values, lengths in batches(n):
        begin, clock = time.process_time(), time.perf_counter()
        got = compiled(values, lengths)
        cpu.append(time.process_time() - begin)
        wall.append(time.perf_counter() - clock)
        workers.report("batch", cpu_s=cpu[-1], wall_s=wall[-1])
        torch.testing.assert_close(got, ragged(values, lengths))
    counts = system.counts() - before
    workers.report(
        "result",
        first_cpu_s=cpu[0],
        first_wall_s=wall[0],
        all_cpu_s=sum(cpu),
        steady_ms=statistics.median(wall[1:]) * 1e3,
        captures=counts.captures,
        breaks=counts.graph_breaks,
        dropped=counts.dropped,
        engine_cpu_s=engine_seconds(n) if name == "pliant" else None,
    )


def measure(name: str, n: int, limit_s: float) -> dict[str, Any]:
    outcome = workers.run("benchmarks.ragged", ["--work", name, str(n)], limit_s=limit_s)
    done = [r["wall_s"] for r in outcome.reports if r["event"] == "batch"]
    return {"system": name, "n": n, "status": outcome.status, "error": outcome.error, "batches": len(done)} | (outcome.last("result") or {})


def exponent(points: list[tuple[int, float]]) -> float:
    """The slope of log(seconds) over log(n), least squares."""
    xs, ys = [math.log(n) for n, _ in points], [math.log(s) for _, s in points]
    return statistics.linear_regression(xs, ys).slope


def show(results: list[dict[str, Any]], limit_s: float, console: Console) -> None:
    table = Table(title=f"{BATCHES} batches of n ragged lengths; CPU seconds")
    for heading in ("system", "lengths", "first call", "all calls", "captures", "breaks", "dropped", "later call, ms", "engine alone"):
        table.add_column(heading, justify="left" if heading == "system" else "right")
    for r in results:
        if "first_cpu_s" not in r:
            last = (r["error"].splitlines() or [""])[-1][:70]
            note = f"{r['batches']} of {BATCHES} calls in {limit_s:.0f} s" if r["status"] == "not finished" else last
            table.add_row(systems.TITLES[r["system"]], str(r["n"]), f"{r['status']}: {note}")
            continue
        engine = f"{r['engine_cpu_s']:.3f}" if r["engine_cpu_s"] is not None else ""
        cells = [f"{r['first_cpu_s']:.2f}", f"{r['all_cpu_s']:.2f}", *(str(r[k]) for k in ("captures", "breaks", "dropped"))]
        table.add_row(systems.TITLES[r["system"]], str(r["n"]), *cells, f"{r['steady_ms']:.2f}", engine)
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ragged", description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default="10,100,500,2000", help="numbers of lengths for pliant (%(default)s)")
    parser.add_argument("--torch", default="10,30", help="numbers of lengths for torch.compile; empty for none (%(default)s)")
    parser.add_argument("--limit", type=float, default=120, help="seconds that a process may take (%(default)s)")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--work", nargs=2, metavar=("SYSTEM", "N"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.work:
        work(args.work[0], int(args.work[1]))
        return
    console = Console(width=max(Console().width, 140))
    results = [measure("pliant", int(n), args.limit) for n in args.sizes.split(",")]
    results += [measure("torch-dynamic", int(n), args.limit) for n in args.torch.split(",") if n]
    show(results, args.limit, console)
    done = [r for r in results if r["system"] == "pliant" and "first_cpu_s" in r]
    growth: dict[str, float] = {}
    if len(done) > 1:
        growth = {
            "first call": exponent([(r["n"], r["first_cpu_s"]) for r in done]),
            "engine": exponent([(r["n"], r["engine_cpu_s"]) for r in done]),
        }
        console.print("exponents: " + ", ".join(f"{name} {value:.2f}" for name, value in growth.items()))
    if args.json:
        with open(args.json, "w") as file:
            json.dump({"results": results, "exponents": growth}, file, indent=1)


if __name__ == "__main__":
    main()
