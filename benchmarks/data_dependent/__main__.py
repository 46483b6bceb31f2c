"""`python -m benchmarks.data_dependent`: programs with data-dependent and derived sizes, made after public issues, under each system.

Each program runs in a fresh process with a time limit, whole graph or nothing, at several sizes, 0 and 1 among them where eager takes them.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import warnings
from collections import Counter
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.data_dependent.judge import SYSTEMS, Verdict, prepare
from benchmarks.data_dependent.table import PROGRAMS
from pliant.cli import workers


def work(system: str, names: list[str], limit_s: float) -> None:
    """Each program in a process of its own, forked from this one once the system is imported."""
    warnings.simplefilter("ignore")
    prepare(system)
    for name in names:
        p = PROGRAMS[name]
        child = multiprocessing.get_context("fork").Process(target=one, args=(system, name))
        child.start()
        child.join(limit_s)
        if child.is_alive() or child.exitcode:
            problem = f"the process died ({child.exitcode})" if child.exitcode else f"not finished after {limit_s:.0f} s"
            child.kill()
            child.join()
            workers.report("verdict", **Verdict(name, p.issue, system, len(p.sizes), problem=problem).as_dict())


def one(system: str, name: str) -> None:
    workers.report("verdict", **SYSTEMS[system](PROGRAMS[name]).as_dict())


def measure(system: str, names: list[str], limit_s: float, console: Console) -> list[dict[str, Any]]:
    """The verdicts of one system, told as they come."""
    out: list[dict[str, Any]] = []

    def heard(r: dict[str, Any]) -> None:
        out.append(r | {"system": system})
        console.print(f"{system:10} {r['program']:32} {cell(r)}", markup=False, highlight=False)

    words = ["--worker", system, "--programs", ",".join(names), "--limit", str(limit_s)]
    run = workers.run("benchmarks.data_dependent", words, on_report=heard)
    if run.status != "ok":
        console.print(f"{system}: {run.status}\n{run.error}", markup=False)
    return out


def cell(r: dict[str, Any]) -> str:
    """One line for one verdict."""
    if r["fine"]:
        return f"{r['right']}/{r['sizes']} in {r['captures']}"
    text = "WRONG " if r["wrong"] else ""
    return f"{text}{r['right']}/{r['sizes']} in {r['captures']} {(r['wrong'] or [r['problem']])[0][:70]}"


def show(results: list[dict[str, Any]], systems: list[str], console: Console) -> None:
    table = Table(title="right answers / sizes, in how many graphs")
    for heading in ("program", "after", *systems):
        table.add_column(heading, overflow="fold")
    by = {(r["program"], r["system"]): r for r in results}
    for name in dict.fromkeys(r["program"] for r in results):
        row = [by.get((name, s)) for s in systems]
        table.add_row(name, PROGRAMS[name].issue, *["" if r is None else cell(r) for r in row])
    console.print(table)
    for s in systems:
        mine = [r for r in results if r["system"] == s]
        kinds = Counter("fine" if r["fine"] else "wrong" if r["wrong"] else "not captured" if not r["right"] else "some sizes fail"
                        if r["problem"] else "recompiles" for r in mine)
        console.print(f"{s}: {len(mine)} programs, " + ", ".join(f"{n} {kind}" for kind, n in kinds.most_common()))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.data_dependent", description=__doc__.splitlines()[0])
    parser.add_argument("--systems", default="pliant", help="names, separated by commas: " + ", ".join(SYSTEMS))
    parser.add_argument("--programs", default="", help="names, separated by commas; all by default")
    parser.add_argument("--limit", type=float, default=120, metavar="S", help="seconds for one program")
    parser.add_argument("--json", metavar="FILE", help="also write the verdicts there")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    args = parser.parse_args()
    names = [n for n in args.programs.split(",") if n] or list(PROGRAMS)
    if args.worker:
        work(args.worker, names, args.limit)
        return
    console = Console(width=max(Console().width, 140))
    systems = args.systems.split(",")
    results: list[dict[str, Any]] = []
    for system in systems:
        results += measure(system, names, args.limit, console)
        if args.json:
            with open(args.json, "w") as file:
                json.dump(results, file, indent=1)
    show(results, systems, console)


if __name__ == "__main__":
    main()
