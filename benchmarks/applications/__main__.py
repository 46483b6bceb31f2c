"""`python -m benchmarks.applications`: whole training steps, samplers and decoders, compiled as one function with sizes that change.

Each application makes the same calls with the same seeds under every system, in a process of its own with nothing on disk, and its
answers are compared with eager's. "captures" are those up to the first, fifth, tenth and last call; "late" is eager's time over the
system's, medians of the last third of the calls, of "first" the sums of the first ten: processor time of the calling thread.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import json
import os
import pkgutil
import random
import statistics
import tempfile
import time
import warnings
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from benchmarks import applications
from benchmarks.compare import Mismatch, difference
from pliant.cli import systems, workers
from pliant.cli.workers import report
from pliant.codegen.background import background

NAMES = [m.name for m in pkgutil.iter_modules(applications.__path__) if m.name != "__main__"]
CALLS = 60
FIRST = 10


def seed(n: int) -> None:
    random.seed(n)
    np.random.seed(n)
    torch.manual_seed(n)


def played(name: str, system: systems.System, calls: int) -> tuple[list[Any], list[float], list[int]]:
    """What the calls answered, the seconds each took, and the captures up to each."""
    seed(0)
    step = importlib.import_module(f"benchmarks.applications.{name}").program(system.compile)
    answers, seconds, captures = [], [], []
    for i in range(calls):
        seed(1000 + i)
        began = time.thread_time()
        answers.append(held(step(i)))
        seconds.append(time.thread_time() - began)
        captures.append(system.counts().captures)
    return answers, seconds, captures


def held(answer: Any) -> Any:
    """As it is now: what it holds may be written to later. Numbers are compared as tensors are."""
    if isinstance(answer, torch.Tensor):
        return answer.detach().clone()
    if type(answer) is float:
        return torch.tensor(answer, dtype=torch.float64)
    if type(answer) is dict:
        return {key: held(value) for key, value in answer.items()}
    return type(answer)(map(held, answer)) if type(answer) in (list, tuple) else answer


def work(name: str, app: str, calls: int) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    want, plain, _ = played(app, systems.load("eager"), calls)
    system = systems.load(name)
    got, ours, captures = played(app, system, calls)
    largest, wrong = 0.0, ""
    for a, b in zip(want, got, strict=True):
        try:
            largest = max(largest, difference(b, a))
        except Mismatch as e:
            wrong = wrong or str(e)
    late = 2 * calls // 3
    report("application", app=app, system=name, captures=[captures[min(i, calls - 1)] for i in (0, 4, 9, calls - 1)],
           breaks=system.counts().graph_breaks, dropped=system.counts().dropped, difference=largest, wrong=wrong,
           late=statistics.median(plain[late:]) / statistics.median(ours[late:]), first=sum(plain[:FIRST]) / sum(ours[:FIRST]),
           eager_ms=statistics.median(plain[late:]) * 1e3)  # fmt: skip
    background.synchronize()  # all of it goes to the disk


def show(results: list[dict[str, Any]], console: Console) -> None:
    table = Table(title="whole applications")
    for heading in ("application", "system", "captures: 1, 5, 10, last", "breaks", "dropped", "diff.", "eager, ms", "first", "late", ""):
        table.add_column(heading)
    for r in sorted(results, key=lambda r: NAMES.index(r["app"])):
        cells = [" ".join(map(str, r["captures"])), str(r["breaks"]), str(r["dropped"]), f"{r['difference']:.0e}", f"{r['eager_ms']:.2f}"]
        table.add_row(r["app"], r["system"], *cells, f"{r['first']:.2f}", f"{r['late']:.2f}", r["wrong"])
    console.print(table)
    for system in dict.fromkeys(r["system"] for r in results):
        mine = [r for r in results if r["system"] == system]
        mean = statistics.geometric_mean([r["late"] for r in mine])
        console.print(f"{system}: {len(mine)} applications, {sum(bool(r['wrong']) for r in mine)} wrong, "
                      f"{sum(r['captures'][-1] for r in mine)} captures, {sum(r['breaks'] for r in mine)} breaks, late {mean:.2f} "
                      f"(geometric mean), {sum(r['late'] < 1 for r in mine)} below eager", markup=False)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.applications", description=__doc__.splitlines()[0])
    parser.add_argument("--systems", default="pliant", help="names, separated by commas: " + ", ".join(systems.TITLES))
    parser.add_argument("--only", default=",".join(NAMES), help="names, separated by commas")
    parser.add_argument("--calls", type=int, default=CALLS)
    parser.add_argument("--limit", type=float, default=300, metavar="S", help="seconds for one application under one system")
    parser.add_argument("--again", action="store_true", help="a second process, too, which finds what the first one left on the disk")
    parser.add_argument("--json", metavar="FILE", help="also write the figures there")
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        work(*args.worker, args.calls)
        return
    os.environ["PLIANT_ENTRIES"] = str(int(args.again))
    console = Console(width=max(Console().width, 140))
    results: list[dict[str, Any]] = []
    for app, system in itertools.product(args.only.split(","), args.systems.split(",")):
        with tempfile.TemporaryDirectory() as folder:
            for again in range(1 + args.again):
                words = ["--worker", system, app, "--calls", str(args.calls)]
                found = workers.told(f"{app} {system}", "benchmarks.applications", words, "application", args.limit, folder)
                results += [r | {"system": f"{system}, again" if again else system} for r in found]
        if args.json:
            with open(args.json, "w") as file:
                json.dump(results, file, indent=1)
    show(results, console)


if __name__ == "__main__":
    main()
