"""`python -m benchmarks.tiers`: how soon each program answers while its machine code is made in the background, and how steadily.

In a fresh process with nothing on disk: the first answer (compiling included) beside eager's first, and by how much it took longer, on the
clock and in processor time of the calling thread, which a busy machine changes less; by how much the slowest later call missed its own
steady time, in two passes over the program's shapes right after it ("late"; 95 of 100 missed it by no more than the second figure); the
time until the last machine code was in use; the steady speed over eager, for which it is waited, of processor time where there is one
thread. `--foreground` makes the machine code before the first answer.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import statistics
import time
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

import pliant
from benchmarks.cold_start import STARTED
from pliant import events
from pliant.cli import workers
from pliant.cli.timing import interleaved, timed
from pliant.cli.workers import report

PASSES, ROUNDS = 2, 5


def work(name: str, threads: int, foreground: bool) -> None:
    """One program, in this process."""
    torch.set_num_threads(threads)
    program = STARTED[name]
    eager, model = program.make(), program.make()
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        inputs = program.inputs()
        eager_first, eager_busy = timed(lambda: timed(lambda: program.call(eager, inputs[0]), time.thread_time)[0])
        inputs = program.inputs()
        begun, busy = time.perf_counter(), time.thread_time()
        fn = pliant.compile(model, background=not foreground)
        program.call(fn, inputs[0])
        first, busy = time.perf_counter() - begun, time.thread_time() - busy
        calls = [timed(lambda given=given: program.call(fn, given))[0] for given in inputs[1:]]
        for _ in range(PASSES - 1):
            calls += [timed(lambda given=given: program.call(fn, given))[0] for given in program.inputs()]
        pliant.synchronize()
        took = [e.at - begun for e in events.events("exchanged")]
        sides: dict[str, list] = {}

        def begin() -> None:
            sides.update(eager=program.inputs(), ours=program.inputs())

        ours, theirs = (lambda i: program.call(fn, sides["ours"][i])), (lambda i: program.call(eager, sides["eager"][i]))
        steady = interleaved(len(inputs), ROUNDS, (ours,), begin=begin)[0]
        clock = time.process_time if threads == 1 else time.perf_counter
        busy_ours, busy_eager = interleaved(len(inputs), ROUNDS, (ours, theirs), begin=begin, clock=clock)
    later = [seconds - steady[(i + 1) % len(inputs)] for i, seconds in enumerate(calls)] or [0.0]
    stats = pliant.stats()
    report(
        "tiers", name=name, eager_s=eager_first, first_s=first, over_cpu_s=busy - eager_busy, late_s=max(later),
        late95_s=sorted(later)[int(0.95 * (len(later) - 1))],
        until_s=max(took, default=0.0), exchanged=stats["exchanged"], errors=stats["background_errors"], captures=stats["captures"],
        speed=sum(busy_eager) / sum(busy_ours), least=min(a / b for a, b in zip(busy_eager, busy_ours, strict=True)),
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tiers", description=__doc__.splitlines()[0])
    parser.add_argument("--programs", default=",".join(STARTED), help="names, separated by commas: " + ", ".join(STARTED))
    parser.add_argument("--samples", type=int, default=3, help="fresh processes of each (3)")
    parser.add_argument("--threads", type=int, default=1, help="torch's threads (1)")
    parser.add_argument("--foreground", action="store_true", help="machine code before the first answer")
    parser.add_argument("--json", metavar="FILE", help="also write the figures there")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        work(args.worker, args.threads, args.foreground)
        return
    words = ["--threads", str(args.threads), *(["--foreground"] if args.foreground else [])]
    table = Table(title="medians over processes; milliseconds")
    for heading in ("program", "eager", "first", "over", "CPU", "late", "95%", "until", "exchanged", "captures", "speed-up", "least"):
        table.add_column(heading, justify="left" if heading == "program" else "right")
    rows: dict[str, list[dict[str, Any]]] = {}
    for name in args.programs.split(","):
        found = [workers.run("benchmarks.tiers", ["--worker", name, *words], limit_s=300) for _ in range(args.samples)]
        reports = rows[name] = [r for run in found if (r := run.last("tiers")) is not None]
        if len(reports) < args.samples:
            print(name, *{run.status + run.error for run in found})
            continue
        of = {key: statistics.median(r[key] for r in reports) for key in reports[0] if key not in ("event", "name")}
        of["over_s"] = of["first_s"] - of["eager_s"]
        ms = [f"{1e3 * of[key]:.0f}" for key in ("eager_s", "first_s", "over_s", "over_cpu_s", "late_s", "late95_s", "until_s")]
        counts = [f"{of['exchanged']:.0f}" + (f" ({of['errors']:.0f} errors)" if of["errors"] else ""), f"{of['captures']:.0f}"]
        table.add_row(name, *ms, *counts, f"{of['speed']:.2f}", f"{of['least']:.2f}")
    Console(width=130).print(table)
    if args.json:
        with open(args.json, "w") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
