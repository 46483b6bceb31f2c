"""One program under one system, in this process, which was started for the two alone.

Reports "begin", "step" after each call of the cold pass, then "result". Prints of the program are part of its answer.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import io
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


def work(program: Program, system: systems.System, rounds: int) -> None:
    """Cold pass, check, steady rounds beside eager, check again."""
    eager = Side(program, program.make())
    report("begin", calls=len(eager.inputs))
    model = program.make()
    before = system.counts()
    first, fn = timed(lambda: system.compile(model))
    side = Side(program, fn)
    cold = []
    for i in range(len(side.inputs)):
        seconds, _ = timed(lambda i=i: side.step(i))
        cold.append(seconds)
        report("step", seconds=seconds)
    eager_cold = [timed(lambda i=i: eager.step(i))[0] for i in range(len(eager.inputs))]

    wrong = ""
    largest = 0.0
    try:
        largest = difference(side.answers, eager.answers)
    except Mismatch as mismatch:
        wrong = str(mismatch)

    def begin() -> None:
        side.begin()
        eager.begin()

    steady, steady_eager = interleaved(len(side.inputs), rounds, (side.step, eager.step), begin=begin)
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
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)
    work(PROGRAMS[args.program], systems.load(args.system), args.rounds)


if __name__ == "__main__":
    main()
