"""`python -m benchmarks.break_codes`: how many programs of each corpus meet a graph break, by its code.

Each program is compiled on its own and called two or three times with other sizes; a code counts once for a program, whatever the number
of its breaks. What is counted is what pliant does, not whether it is right: `benchmarks.crawl` and the tests compare answers.

python -m benchmarks.break_codes models --json benchmarks/break_codes.json     # one corpus anew; the others stay as they are in the file
python -m pliant.interpret.breaks docs/graph-breaks.md benchmarks/break_codes.json          # the page that shows it
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import copy
import io
import json
import os
import signal
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

import pliant
from benchmarks import zoo
from benchmarks.perturb import subjects
from pliant import events
from pliant.cli import workers

CHUNK = 60
PROGRAM_S = 60.0
Calls = list[tuple[tuple, dict]]
Made = tuple[Callable, Calls]

CORPORA: dict[str, tuple[str, ...]] = {
    "models": (*zoo.FAMILIES, "modules"),
    "programs": ("programs", "patterns", "numpy", "data-dependent", "control"),
    "tests": ("test-patterns", "tests", "worlds"),
    "random": ("random",),
}
"""Groups of each. The tests' programs and the random ones were written to ask for every kind of break, so many of them meet one."""


# ------------------------------------------------------------------------------------------------------------ the groups
def of_family(family: str) -> Iterator[tuple[str, Callable[[], Made]]]:
    """Models of the zoo; those that generate are asked to."""
    for m in zoo.load(family):

        def make(m: Any = m) -> Made:
            model = m.make()
            if m.generate is None:
                return model, m.calls(model)[:2]
            return lambda *args, **kwargs: model.generate(*args, **kwargs, **m.generate), m.calls(model)[:2]

        yield m.name, make


def of_subjects(group: str) -> Iterator[tuple[str, Callable[[], Made]]]:
    """What `benchmarks.perturb` perturbs."""
    for s in subjects.GROUPS[group]():

        def make(s: subjects.Subject = s) -> Made:
            fn, calls = s.make()
            return fn, [(tuple(c.args), c.kwargs) for c in calls]

        yield s.name, make


def data_dependent() -> Iterator[tuple[str, Callable[[], Made]]]:
    from benchmarks.data_dependent.table import PROGRAMS

    for p in PROGRAMS.values():
        yield p.name, lambda p=p: (p.fn, [(p.args(n), {}) for n in p.sizes[:3]])


def control() -> Iterator[tuple[str, Callable[[], Made]]]:
    from benchmarks.control.__main__ import PROGRAMS, inputs

    for p in PROGRAMS.values():
        yield p.name, lambda p=p: (p.make(), [(args, {}) for args in inputs(p)[:3]])


def group_of(name: str) -> Iterator[tuple[str, Callable[[], Made]]]:
    if name in zoo.FAMILIES:
        return of_family(name)
    return {"data-dependent": data_dependent, "control": control}[name]() if name not in subjects.GROUPS else of_subjects(name)


# ----------------------------------------------------------------------------------------------------------- one program
class Slow(Exception):
    """A program took too long."""


def stop(*_: Any) -> None:
    raise Slow


def met(make: Callable[[], Made]) -> tuple[list[str], str]:
    """The codes of the breaks that a program meets, and what ended it early."""
    codes: list[str] = []
    note = ""
    pliant.reset()
    unsubscribe = events.subscribe(lambda e: codes.append(e.fields["code"]), ("graph_break",))
    try:
        torch.manual_seed(0)
        fn, calls = make()
        compiled = pliant.compile(fn, background=False, backend="aten", strict=False)
        for args, kwargs in calls:
            args, kwargs = copy.deepcopy((args, kwargs))
            with contextlib.redirect_stdout(io.StringIO()), torch.no_grad():
                try:
                    compiled(*args, **kwargs)
                except Exception as e:  # many of the tests' programs raise
                    note = type(e).__name__
    except Exception as e:
        note = f"{type(e).__name__}: {str(e)[:200]}"
    finally:
        unsubscribe()
    return sorted(set(codes)), note


def work(group: str, first: int) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    signal.signal(signal.SIGALRM, stop)
    for number, (name, make) in enumerate(group_of(group)):
        if not first <= number < first + CHUNK:
            continue
        workers.report("begin", number=number)
        signal.setitimer(signal.ITIMER_REAL, PROGRAM_S)
        try:
            codes, note = met(make)
        except Slow:
            codes, note = [], "slow"
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        workers.report("program", name=name, codes=codes, note=note)
    workers.report("end", whole=number < first + CHUNK)


# ----------------------------------------------------------------------------------------------------------- all of them
def counted(group: str) -> list[dict[str, Any]]:
    """The programs of a group, one after the other. One that ends its process is left out, and the rest goes on behind it."""
    found: list[dict[str, Any]] = []
    first = 0
    while True:
        outcome = workers.run("benchmarks.break_codes", ["--work", group, "--first", str(first)], limit_s=CHUNK * PROGRAM_S)
        found += [r for r in outcome.reports if r["event"] == "program"]
        end = outcome.last("end")
        if end is not None and end["whole"]:
            return found
        begun = outcome.last("begin")
        if begun is None:
            print(f"{group}: {(outcome.error.splitlines() or [outcome.status])[-1]}")  # mostly: its library is not installed
            return found
        if end is None:
            print(f"{group}: a process ended with program {begun['number']}")
        first = begun["number"] + 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpora", nargs="*", help=f"of {', '.join(CORPORA)} (all)")
    parser.add_argument("--json", metavar="FILE", help="where the counts are kept; corpora that are not counted now stay as they are there")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    parser.add_argument("--first", type=int, default=0, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.work:
        work(args.work, args.first)
        return
    os.environ.setdefault("PLIANT_ENTRIES", "0")
    kept: dict[str, Any] = {}
    if args.json and os.path.exists(args.json):
        with open(args.json) as file:
            kept = json.load(file)
    console = Console(width=160)
    for corpus in args.corpora or CORPORA:
        rows = [row for group in CORPORA[corpus] for row in counted(group)]
        codes = collections.Counter(code for row in rows for code in row["codes"])
        kept[corpus] = {"programs": len(rows), "without": sum(not row["codes"] for row in rows), "met": dict(sorted(codes.items()))}
        table = Table(title=f"{corpus}: {len(rows)} programs, {kept[corpus]['without']} without a graph break")
        for heading in ("code", "programs", "some of them"):
            table.add_column(heading)
        for code, n in codes.most_common():
            table.add_row(code, str(n), ", ".join([row["name"] for row in rows if code in row["codes"]][:4]))
        console.print(table)
        if args.json:
            with open(args.json, "w") as file:
                json.dump({name: kept[name] for name in CORPORA if name in kept}, file, indent=1)
                file.write("\n")


if __name__ == "__main__":
    main()
