"""One program under one system, in this process, which was started for the two alone.

Reports "begin", "step" after each call of the cold pass, then "result". Prints of the program are part of its answer. With `--first` it
ends after the first call.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import io
import time
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.compare import Mismatch, difference
from benchmarks.programs import PROGRAMS
from benchmarks.programs.program import Program
from pliant.cli import systems
from pliant.cli.timing import interleaved, timed
from pliant.cli.workers import report


class Side:
    """A program on one side of a comparison: its function, the arguments of the current pass, the answers so far."""

    def __init__(self, program: Program, fn: Callable[..., Any]) -> None:
        self.program = program
        self.fn = fn
        self.begin()

    def begin(self) -> None:
        """A new pass: fresh arguments, no answers."""
        self.inputs = self.program.inputs()
        self.answers: list[Any] = [None] * len(self.inputs)

    def step(self, i: int) -> None:
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            value = self.program.call(self.fn, self.inputs[i])
        self.answers[i] = (value, printed.getvalue())


def work(program: Program, system: systems.System, rounds: int, only_first: bool, clock: Callable[[], float]) -> None:
    """Cold pass, check, steady rounds beside eager, check again."""
    eager = Side(program, program.make())
    report("begin", calls=len(eager.inputs))
    model = program.make()
    before = system.counts()
    first, fn = timed(lambda: system.compile(model), clock)
    side = Side(program, fn)
    cold = []
    for i in range(len(side.inputs)):
        seconds, _ = timed(lambda i=i: side.step(i), clock)
        cold.append(seconds)
        report("step", seconds=seconds)
        if only_first:
            report("first", first_s=first + seconds)
            return
    system.settle()
    eager_cold = [timed(lambda i=i: eager.step(i), clock)[0] for i in range(len(eager.inputs))]

    wrong = ""
    largest = 0.0
    try:
        largest = difference(side.answers, eager.answers)
    except Mismatch as mismatch:
        wrong = str(mismatch)

    def begin() -> None:
        side.begin()
        eager.begin()

    steady, steady_eager = interleaved(len(side.inputs), rounds, (side.step, eager.step), begin=begin, clock=clock)
    try:
        largest = max(largest, difference(side.answers, eager.answers))
    except Mismatch as mismatch:
        wrong = wrong or f"when warm: {mismatch}"
    if largest > program.tolerance:
        wrong = wrong or f"off by {largest:.1e}"
    report(
        "result",
        first_s=first + cold[0],
        total_s=first + sum(cold),
        eager_total_s=sum(eager_cold),
        steady_s=sum(steady),
        eager_steady_s=sum(steady_eager),
        speedup=sum(steady_eager) / sum(steady),
        speedups=[theirs / ours for ours, theirs in zip(steady, steady_eager, strict=True)],
        difference=largest,
        wrong=wrong,
        **dataclasses.asdict(system.counts() - before),
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("program", choices=list(PROGRAMS))
    parser.add_argument("system", choices=list(systems.TITLES))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--first", action="store_true")
    parser.add_argument("--cpu-time", action="store_true")
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)
    clock = time.process_time if args.cpu_time else time.perf_counter
    work(PROGRAMS[args.program], systems.load(args.system), args.rounds, args.first, clock)


if __name__ == "__main__":
    main()
