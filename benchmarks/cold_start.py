"""`python -m benchmarks.cold_start`: what a process pays for the first answer of each program, with its default backend.

Each figure is the first call in a fresh process (imports and the making of the model before it are not counted): eager's, pliant's with
nothing on disk ("cold"), and pliant's in another process that finds there what that one left ("disk-warm"). Seconds on the clock, and of
processor time beside them, since machines are busy and LLVM may run on a second core. Each is the median over `--samples` rounds, and in a
round the three follow each other. All calls of the program follow, twice: "captures" are those of the disk-warm process in all of them, and
"lost" is the processor time that its first pass took beyond its second, as a share of what the cold one's did.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import json
import math
import statistics
import tempfile
import time
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.capture_cost import TEXTS
from benchmarks.programs import PROGRAMS
from benchmarks.programs.program import Program
from pliant import events
from pliant.cli import embedder, systems, workers
from pliant.cli.workers import report

KINDS = ("eager", "cold", "warm")
LIMIT_S = 1.5
"""Seconds that a cold first call may take."""


def embed(fn: Any, args: tuple) -> Any:
    """One call of the sentence encoder."""
    with torch.no_grad():
        return fn(**args[0])


MINILM = Program("minilm", "all-MiniLM-L6-v2", lambda: embedder.load()[0], lambda: [(embedder.load()[1](TEXTS),)], embed)
STARTED: dict[str, Program] = {MINILM.name: MINILM, **PROGRAMS}
"""The programs of `benchmarks.programs`, and the real sentence encoder, from its package."""


def work(name: str, system: str, threads: int | None) -> None:
    """The first call of one program in this process, and then all of them, twice."""
    if threads:
        torch.set_num_threads(threads)
    program = STARTED[name]
    model, (arguments, *others) = program.make(), program.inputs()
    chosen = systems.load(system)
    with contextlib.redirect_stdout(io.StringIO()):
        wall, busy = time.perf_counter(), time.process_time()
        compiled = chosen.compile(model)
        program.call(compiled, arguments)
        wall, busy = time.perf_counter() - wall, time.process_time() - busy
        passes = [] if system == "eager" else [others, program.inputs()]
        first, second = [seconds(program, compiled, inputs) for inputs in passes] or [0.0, 0.0]
    chosen.settle()  # the next process finds what this one's background made
    t = importlib.import_module("pliant.codegen.cpu.compile").times  # not before: importing it is part of a first call
    report(
        "first", wall_s=wall, cpu_s=busy, lost_s=max(busy + first - second, 0.0), captures=events.counters().get("captures", 0),
        llvm_s=t.parse + t.emit, text_s=t.text, link_s=t.link, kernels=t.kernels, from_disk=t.from_disk,
    )  # fmt: skip


def seconds(program: Program, fn: Any, inputs: list[tuple]) -> float:
    """Of processor time: what these calls take."""
    begun = time.process_time()
    for arguments in inputs:
        program.call(fn, arguments)
    return time.process_time() - begun


def sample(name: str, words: list[str], limit_s: float) -> dict[str, dict[str, Any]]:
    """One round: kind -> what its process reported; kinds whose process failed are left out."""
    found = {}
    with tempfile.TemporaryDirectory(prefix="pliant-caches-") as caches:
        for kind in KINDS:
            system = "eager" if kind == "eager" else "pliant"
            outcome = workers.run("benchmarks.cold_start", ["--worker", name, system, *words], limit_s=limit_s, caches=caches)
            first = outcome.last("first")
            if first is not None:
                found[kind] = first
            else:
                print(f"{name}, {kind}: {outcome.status}\n{outcome.error}")
    return found


def middle(rounds: list[dict[str, dict[str, Any]]], kind: str, key: str) -> float:
    """The median over the rounds; NaN where a process failed."""
    values = [r[kind][key] for r in rounds if kind in r]
    return statistics.median(values) if len(values) == len(rounds) else math.nan


def milliseconds(value: float) -> str:
    return "failed" if math.isnan(value) else f"{value * 1e3:.0f}" if value >= 0.0095 else f"{value * 1e3:.1f}"


def row(title: str, rounds: list[dict[str, dict[str, Any]]], most_s: float) -> list[str]:
    """The cells of one program."""
    cells = [title, milliseconds(middle(rounds, "eager", "wall_s"))]
    for kind in ("cold", "warm"):
        cells += [milliseconds(middle(rounds, kind, key)) for key in ("wall_s", "cpu_s")]
    cold, warm = middle(rounds, "cold", "wall_s"), middle(rounds, "warm", "wall_s")
    eager, lost = middle(rounds, "eager", "wall_s"), [middle(rounds, kind, "lost_s") for kind in ("warm", "cold")]
    captures = middle(rounds, "warm", "captures")
    cells += ["-" if math.isnan(share) else text.format(share) for share, text in ((warm / cold, "{:.0%}"), (warm / eager, "{:.1f}"))]
    cells += ["-" if math.isnan(captures) else f"{captures:.0f}", "-" if math.isnan(sum(lost)) else f"{lost[0] / max(lost[1], 1e-9):.0%}"]
    if math.isnan(cold):
        return [*cells, "-", "-", "failed"]
    kernels, llvm_s = middle(rounds, "cold", "kernels"), middle(rounds, "cold", "llvm_s")
    each = f"{llvm_s / kernels * 1e3:.1f}" if kernels else "-"
    return [*cells, f"{kernels:.0f}", each, "ok" if cold <= most_s else f"> {most_s} s"]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cold_start", description=__doc__.splitlines()[0])
    parser.add_argument("--programs", default=",".join(STARTED), help="names, separated by commas: " + ", ".join(STARTED))
    parser.add_argument("--samples", type=int, default=3, help="rounds of fresh processes (3)")
    parser.add_argument("--limit", type=float, default=120, help="seconds a process may take (120)")
    parser.add_argument("--threads", type=int, help="torch's threads (torch's default)")
    parser.add_argument("--json", metavar="FILE", help="also write the figures there")
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        work(*args.worker, args.threads)
        return
    names = args.programs.split(",")
    for name in names:
        if name not in STARTED:
            parser.error(f"there is no {name!r}: choose from {', '.join(STARTED)}")
    words = ["--threads", str(args.threads)] if args.threads else []
    rounds: dict[str, list[dict[str, dict[str, Any]]]] = {name: [] for name in names}
    for _ in range(args.samples):
        for name in names:
            rounds[name].append(sample(name, words, args.limit))
    console = Console(width=max(Console().width, 120))
    table = Table(title="first call in a fresh process, ms (medians)")
    headings = (
        "program", "eager", "cold", "CPU", "disk-warm", "CPU", "warm/cold", "warm/eager", "captures", "lost",
        "kernels", "LLVM a kernel", "",
    )  # fmt: skip
    for heading in headings:
        table.add_column(heading, justify="left" if heading in ("program", "") else "right")
    for name in names:
        table.add_row(*row(STARTED[name].title, rounds[name], LIMIT_S))
    console.print(table)
    if args.json:
        with open(args.json, "w") as file:
            json.dump(rounds, file, indent=1)


if __name__ == "__main__":
    main()
