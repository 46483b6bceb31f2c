"""`python -m benchmarks.memory`: the most bytes that a call holds at once, in eager and compiled with backend "native".

Counted are all allocations of PyTorch's CPU allocator from the beginning of a call on (results, gradients and what operators need inside
included; inputs and parameters were there before), as its profiler sees them, and for compiled programs the block that segments keep
intermediate results in, as large as the call needs it and as if it were held from the first to the last operation. The compression ratio
is eager's peak over ours, as on PyTorch's dashboard: of the call that holds most in eager, and of the worst call.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
import json
from collections.abc import Callable, Iterable
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch.profiler import ProfilerActivity, profile

import pliant
from benchmarks.programs import PROGRAMS
from benchmarks.programs.program import Program
from pliant import native
from pliant.cli import workers
from pliant.cli.workers import report

SMALL = 64 << 10
"""The least that a block is; calls whose peak in eager is less tell nothing."""


def highest(changes: Iterable[int]) -> int:
    """The largest sum of a beginning of `changes`, at least 0."""
    return max(0, max(itertools.accumulate(changes), default=0))


def peak(call: Callable[[], Any]) -> tuple[int, Any]:
    """The most bytes that PyTorch's allocator held for `call()`, beyond what it held before, and the result."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        out = call()
    found = [e for e in seen.profiler.kineto_results.events() if e.name() == "[memory]"]
    return highest(e.nbytes() for e in sorted(found, key=lambda e: e.start_ns())), out


def peak_with_arena(call: Callable[[], Any]) -> tuple[int, Any]:
    """The same of a compiled call, the block of its segments included."""
    limit = native.set_arena_limit(0)  # drops the block that is there
    native.set_arena_limit(1 << 40)
    try:
        most, out = peak(call)
        return most + native.arena_bytes()[2], out
    finally:
        native.set_arena_limit(limit)


def peaks(program: Program) -> tuple[list[int], list[int]]:
    """For each call, the most bytes in eager and compiled; every size was seen before."""
    eager, ours = program.make(), pliant.compile(program.make(), backend="native", strict=True, background=False)
    with contextlib.redirect_stdout(io.StringIO()):
        for fn in (eager, ours):
            for args in program.inputs():
                program.call(fn, args)
        theirs = [peak(lambda a=args: program.call(eager, a))[0] for args in program.inputs()]
        mine = [peak_with_arena(lambda a=args: program.call(ours, a))[0] for args in program.inputs()]
    return theirs, mine


def row(eager: list[int], ours: list[int]) -> tuple[str, ...]:
    """Cells: bytes of the call that holds most in eager, its ratio, the least ratio of all that are not small, and how many of those
    hold more than in eager."""
    at = max(range(len(eager)), key=eager.__getitem__)
    ratios = [a / b for a, b in zip(eager, ours, strict=True) if a >= SMALL and b]
    worst = f"{min(ratios):.2f}" if ratios else "-"
    more = str(sum(r < 1 for r in ratios))
    return megabytes(eager[at]), megabytes(ours[at]), f"{eager[at] / max(ours[at], 1):.2f}", worst, f"{more} of {len(ratios)}"


def megabytes(n: int) -> str:
    return f"{n / 1e6:.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory", description=__doc__.splitlines()[0])
    parser.add_argument("--programs", default=",".join(PROGRAMS), help="names, separated by commas: " + ", ".join(PROGRAMS))
    parser.add_argument("--json", metavar="FILE", help="also write the figures there")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        torch.set_num_threads(1)
        eager, ours = peaks(PROGRAMS[args.worker])
        report("peaks", program=args.worker, eager=eager, ours=ours)
        return
    console = Console(width=max(Console().width, 110))
    table = Table(title="most bytes held at once, in MB; compression ratio: eager over native")
    for heading in ("program", "eager", "native", "ratio", "least ratio", "calls with more"):
        table.add_column(heading, justify="left" if heading == "program" else "right")
    results = []
    for name in args.programs.split(","):
        outcome = workers.run("benchmarks.memory", ["--worker", name], limit_s=300)
        found = outcome.last("peaks")
        if found is None:
            console.print(f"{name}: {outcome.status}\n{outcome.error}", markup=False)
            continue
        results.append({key: found[key] for key in ("program", "eager", "ours")})
        table.add_row(PROGRAMS[name].title, *row(found["eager"], found["ours"]))
    console.print(table)
    if args.json:
        with open(args.json, "w") as file:
            json.dump(results, file, indent=1)


if __name__ == "__main__":
    main()
