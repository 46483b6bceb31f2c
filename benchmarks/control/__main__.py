"""`python -m benchmarks.control`: Python control flow on data, as it is (no `fullgraph`): captures, breaks, exits, and the steady speed.

Each program makes 24 calls, six times over; then it is timed beside eager. "captures by pass" shows whether it settles, "breaks" are
those of all captures so far.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import io
import json
import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.compare import Mismatch, difference
from benchmarks.control import structures  # noqa: F401  (its programs are in the table, too)
from benchmarks.control.programs import CALLS, PROGRAMS, Program
from pliant.cli import systems, workers
from pliant.cli.workers import report

PASSES, ROUNDS = 6, 7


def inputs(p: Program) -> list[tuple]:
    g = torch.Generator().manual_seed(5)
    return [p.args(i, g) for i in range(CALLS)]


def call(p: Program, fn: Callable[..., Any], args: tuple) -> Any:
    with contextlib.redirect_stdout(io.StringIO()) as printed, torch.set_grad_enabled(p.grad):
        out = fn(*args)
        if p.grad:
            out.backward()
    return out, printed.getvalue()


def seconds(p: Program, fn: Callable[..., Any], calls: list[tuple]) -> list[float]:
    times = []
    for args in calls:
        began = time.process_time()
        call(p, fn, args)
        times.append(time.process_time() - began)
    return times


def measure(p: Program, system: systems.System) -> dict[str, Any]:
    torch.manual_seed(0)
    model = p.make()
    eager = copy.deepcopy(model) if isinstance(model, torch.nn.Module) else model
    start = system.counts()
    fn = system.compile(model)
    wrong, largest, by_pass, calls = "", 0.0, [], inputs(p)
    for _ in range(PASSES):
        before = system.counts()
        for args in calls:
            try:
                largest = max(largest, difference(call(p, fn, copy.deepcopy(args)), call(p, eager, args)))
            except Mismatch as e:
                wrong = wrong or str(e)
            if p.grad:
                for a, b in zip(model.parameters(), eager.parameters()):
                    largest = max(largest, difference(a.grad, b.grad))
                    a.grad = b.grad = None
        by_pass.append((system.counts() - before).captures)
        system.settle()
    ours, theirs = [], []
    for _ in range(ROUNDS):
        theirs.append(seconds(p, eager, calls))
        ours.append(seconds(p, fn, calls))
    steady, plain = (list(map(statistics.median, zip(*times))) for times in (ours, theirs))
    counts = system.counts() - start
    return {
        "program": p.name, "wrong": wrong or (f"off by {largest:.1e}" if largest > 1e-4 else ""), "by_pass": by_pass,
        "captures": counts.captures, "recompiles": counts.recompiles, "breaks": counts.graph_breaks, "dropped": counts.dropped,
        "speedup": sum(plain) / sum(steady), "least": min(a / b for a, b in zip(plain, steady)), "us": sum(steady) / CALLS * 1e6,
    }  # fmt: skip


def work(name: str, names: list[str]) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    system = systems.load(name)
    for n in names:
        system.reset()
        report("control", system=name, **measure(PROGRAMS[n], system))


def show(results: list[dict[str, Any]], console: Console) -> None:
    table = Table(title=f"{CALLS} calls a pass")
    for heading in ("program", "system", "captures by pass", "breaks", "dropped", "speed-up", "least", "us", ""):
        table.add_column(heading)
    for r in sorted(results, key=lambda r: list(PROGRAMS).index(r["program"])):
        cells = [" ".join(map(str, r["by_pass"])), str(r["breaks"]), str(r["dropped"])]
        table.add_row(r["program"], r["system"], *cells, f"{r['speedup']:.2f}", f"{r['least']:.2f}", f"{r['us']:.0f}", r["wrong"])
    console.print(table)
    for system in dict.fromkeys(r["system"] for r in results):
        mine = [r for r in results if r["system"] == system]
        mean = statistics.geometric_mean([r["speedup"] for r in mine])
        sums = {k: sum(r[k] for r in mine) for k in ("captures", "breaks", "dropped")}
        late = sum(r["by_pass"][-1] > 0 for r in mine)
        console.print(f"{system}: {len(mine)} programs, {sum(bool(r['wrong']) for r in mine)} wrong, {sums}, "
                      f"{sum(r['breaks'] == 0 for r in mine)} without a break, {late} still capturing, speed-up {mean:.2f} "
                      f"(geometric mean), {sum(r['speedup'] < 1 for r in mine)} below eager", markup=False)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.control", description=__doc__.splitlines()[0])
    parser.add_argument("--systems", default="pliant", help="names, separated by commas: " + ", ".join(systems.TITLES))
    parser.add_argument("--programs", default="", help="names, separated by commas; all by default")
    parser.add_argument("--limit", type=float, default=1200, metavar="S", help="seconds for one system")
    parser.add_argument("--json", metavar="FILE", help="also write the figures there")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    args = parser.parse_args()
    names = [n for n in args.programs.split(",") if n] or list(PROGRAMS)
    if args.worker:
        work(args.worker, names)
        return
    console = Console(width=max(Console().width, 140))
    results: list[dict[str, Any]] = []
    for system in args.systems.split(","):
        results += workers.told(system, "benchmarks.control", ["--worker", system, "--programs", ",".join(names)], "control", args.limit)
        if args.json:
            with open(args.json, "w") as file:
                json.dump(results, file, indent=1)
    show(results, console)


if __name__ == "__main__":
    main()
