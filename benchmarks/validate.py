"""`python -m benchmarks.validate`: translation validation over whole programs, every capture with every question it asked.

The benchmark programs, the programs of the tests and those with data-dependent sizes are captured with recording scopes; z3 then looks
for sizes that satisfy what each entry keeps and refute what the capture was told (`pliant/symbolic/validate.py`). A violation is a bug
of the symbolic engine: it is printed with the first wrong step, its stack and concrete sizes, and the exit status is 1.

Each program runs in a process of its own, with a time limit for each of its captures and one for all of it.
"""

from __future__ import annotations

import os

os.environ["PLIANT_VALIDATE"] = "1"  # read when the scopes' module is imported

import argparse
import contextlib
import importlib
import io
import multiprocessing
import pkgutil
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

import benchmarks.data_dependent.table
import benchmarks.programs
import pliant
from pliant import events
from pliant.symbolic.scope import Scope
from pliant.symbolic.validate import BLOCK, Validator, trivial

CALLS = 3  # calls of each program: the first capture, and what a change of size asks


@dataclass
class Outcome:
    """What became of one program. `claims` were shown, `undecided` ones neither shown nor refuted, `skipped` ones z3 cannot express."""

    name: str
    captures: int = 0
    claims: int = 0
    undecided: int = 0
    skipped: int = 0
    late: int = 0  # captures that were not finished in their time
    seconds: float = 0.0
    violations: list[str] = field(default_factory=list)
    problem: str = ""


def validate_for(scope: Scope, outcome: Outcome, seconds: float, timeout_ms: int) -> None:
    """Check the claims of one capture, block by block, for at most `seconds`."""
    validator = Validator(scope, timeout_ms)
    claims = [i for i, e in enumerate(scope.events or ()) if not trivial(e)]
    until = time.monotonic() + seconds
    for start in range(0, len(claims), BLOCK):
        if time.monotonic() > until:
            outcome.late += 1
            outcome.skipped += len(claims) - start
            break
        wrong = validator.first_wrong(claims[start : start + BLOCK])
        if wrong is not None:
            outcome.violations.append(str(wrong))
            break
    outcome.claims += validator.report.checked
    outcome.undecided += len(validator.report.undecided)
    outcome.skipped += validator.report.skipped


# -- the programs -------------------------------------------------------------------------------------------------------
def of_benchmarks() -> Iterator[tuple[str, Callable[[], Any]]]:
    for name, p in benchmarks.programs.PROGRAMS.items():

        def run(p: Any = p) -> None:
            fn = pliant.compile(p.make(), background=False)
            for args in p.inputs()[:CALLS]:
                p.call(fn, args)

        yield f"benchmarks/{name}", run


def of_data_dependent() -> Iterator[tuple[str, Callable[[], Any]]]:
    for name, p in benchmarks.data_dependent.table.PROGRAMS.items():

        def run(p: Any = p) -> None:
            fn = pliant.compile(p.fn, background=False)
            for n in p.sizes:
                out = fn(*p.args(n))
                if p.grad and isinstance(out, torch.Tensor):
                    out.sum().backward()

        yield f"data-dependent/{name}", run


def of_tests() -> Iterator[tuple[str, Callable[[], Any]]]:
    import tests.programs as package  # not at the top: the programs of the tests need pytest
    from tests.programs.registry import REGISTRY

    for module in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        importlib.import_module(module.name)
    for module_name, cases in REGISTRY.items():
        for case in cases:
            yield f"tests/{module_name.rpartition('.')[2].removeprefix('test_')}/{case.name}", case.run


GROUPS = {"benchmarks": of_benchmarks, "data-dependent": of_data_dependent, "tests": of_tests}


# -- one process for each -------------------------------------------------------------------------------------------------
def work(name: str, run: Callable[[], Any], pipe: Any, seconds: float, timeout_ms: int) -> None:
    """Run the program, then look at every capture that it made."""
    outcome, began = Outcome(name), time.monotonic()
    scopes: list[Scope] = []

    def note(e: events.Event) -> None:
        if e.kind == "graph":
            scopes.append(e.fields["graph"].scope)

    stop = events.subscribe(note)
    try:
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            run()
    except BaseException as e:  # whether a program gives the right answer is asked elsewhere
        outcome.problem = f"{type(e).__name__}: {e}".splitlines()[0][:120]
    stop()
    outcome.captures = len(scopes)
    for scope in scopes:
        validate_for(scope, outcome, seconds, timeout_ms)
    outcome.seconds = time.monotonic() - began
    pipe.send(outcome)


def judge(name: str, run: Callable[[], Any], seconds: float, timeout_ms: int, limit: float) -> Outcome:
    """The outcome of one program, from a process forked for it."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=work, args=(name, run, sender, seconds, timeout_ms))
    child.start()
    sender.close()
    try:
        if receiver.poll(limit):
            return receiver.recv()
        return Outcome(name, problem=f"not finished after {limit:.0f} s")
    except EOFError:
        return Outcome(name, problem="the process died")
    finally:
        child.kill()
        child.join()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=f"some of: {', '.join(GROUPS)} (default: all)")
    parser.add_argument("--only", default="", help="programs whose name contains this")
    parser.add_argument("--capture-seconds", type=float, default=20.0, help="time for the claims of one capture")
    parser.add_argument("--timeout-ms", type=int, default=250, help="z3's time for one query")
    parser.add_argument("--limit", type=float, default=240.0, help="time for one program, in seconds")
    options = parser.parse_args()
    unknown = set(options.groups) - set(GROUPS)
    if unknown:
        parser.error(f"no such group: {', '.join(sorted(unknown))}")
    torch.set_num_threads(1)
    outcomes = []
    for group in options.groups or GROUPS:
        for name, run in GROUPS[group]():
            if options.only in name:
                outcomes.append(judge(name, run, options.capture_seconds, options.timeout_ms, options.limit))
                show(outcomes[-1])
    print(summary(outcomes))
    return any(o.violations for o in outcomes)


def show(o: Outcome) -> None:
    """Say at once what went wrong."""
    for text in o.violations:
        print(f"VIOLATION in {o.name}: {text}", file=sys.stderr, flush=True)
    if o.problem:
        print(f"{o.name}: {o.problem}", file=sys.stderr, flush=True)


def summary(outcomes: list[Outcome]) -> str:
    """A table of the groups."""
    table = Table(title="Translation validation")
    for heading in ("group", "programs", "captures", "claims shown", "undecided", "not asked", "late", "violations", "problems", "s"):
        table.add_column(heading, justify="left" if heading == "group" else "right")
    for group in GROUPS:
        some = [o for o in outcomes if o.name.startswith(f"{group}/")]
        if some:
            sums = [sum(getattr(o, f) for o in some) for f in ("captures", "claims", "undecided", "skipped", "late")]
            counts = [len(some), *sums, sum(len(o.violations) for o in some), sum(bool(o.problem) for o in some)]
            table.add_row(group, *map(str, counts), f"{sum(o.seconds for o in some):.0f}")
    console = Console(file=io.StringIO(), width=140)
    console.print(table)
    return console.file.getvalue()  # type: ignore[attr-defined]


if __name__ == "__main__":
    sys.exit(main())
