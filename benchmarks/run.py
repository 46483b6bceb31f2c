"""`python -m benchmarks.run`: every program under every system, each pair in a fresh process with empty caches.

python -m benchmarks.run --programs bert,llama --systems pliant,torch --json benchmarks/results/today.json
"""

from __future__ import annotations

import argparse
import json
import platform
import tempfile
from collections.abc import Callable
from typing import Any

import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks.programs import PROGRAMS
from pliant.cli import workers
from pliant.cli.systems import TITLES

Result = dict[str, Any]


def seconds(value: float) -> str:
    return f"{value:.1f} s" if value >= 10 else f"{value:.2f} s" if value >= 0.1 else f"{value * 1e3:.1f} ms"


# heading, how a row's cell is made from a result; an unfinished run has only the first two and `status`
COLUMNS: tuple[tuple[str, Callable[[Result], str]], ...] = (
    ("first", lambda r: seconds(r["first_s"])),
    ("again", lambda r: seconds(r["again_s"]) if "again_s" in r else ""),
    ("all", lambda r: seconds(r["total_s"])),
    ("speed-up", lambda r: f"{r['speedup']:.2f}"),
    ("least", lambda r: f"{min(r['speedups']):.2f}"),
    ("capt.", lambda r: str(r["captures"])),
    ("rec.", lambda r: str(r["recompiles"])),
    ("breaks", lambda r: str(r["graph_breaks"])),
    ("dropped", lambda r: str(r["dropped"])),
    ("diff.", lambda r: f"{r['difference']:.0e}"),
    ("", lambda r: f"[red]WRONG: {r['wrong']}[/red]" if r["wrong"] else "ok"),
)


KEEPS_CODE = ("pliant",)
"""Systems that write compiled code to the disk: their first answer is measured once more, in a process that finds it there."""


def measure(program: str, system: str, words: list[str], limit_s: float) -> Result:
    """One fresh process. `status` is "ok", "not finished" (what its time allowed is kept) or "failed" (with `error`)."""
    with tempfile.TemporaryDirectory(prefix="pliant-caches-") as caches:
        outcome = workers.run("benchmarks.worker", [program, system, *words], limit_s=limit_s, caches=caches)
        again = outcome.last("result") and system in KEEPS_CODE
        warm = workers.run("benchmarks.worker", [program, system, *words, "--first"], limit_s=limit_s, caches=caches) if again else None
    begin = outcome.last("begin") or {"calls": 0}
    steps = [r["seconds"] for r in outcome.reports if r["event"] == "step"]
    result = {
        "program": program,
        "system": system,
        "status": outcome.status,
        "calls": begin["calls"],
        "cold_s": steps,
        "error": outcome.error,
    }
    found = warm.last("first") if warm is not None else None
    return result | (outcome.last("result") or {}) | ({"again_s": found["first_s"]} if found else {})


def row(result: Result) -> list[str]:
    if "total_s" in result:
        return [cell(result) for _, cell in COLUMNS]
    done = result["cold_s"]
    cells = [seconds(done[0]) if done else "-"] + ["-"] * (len(COLUMNS) - 2)
    last_line = (result["error"].splitlines() or [""])[-1]
    note = f"{len(done)} of {result['calls']} calls" if result["status"] == "not finished" else last_line[:60]
    return [*cells, f"[red]{result['status']}: {note}[/red]"]


def show(results: list[Result], console: Console) -> None:
    title = (
        "cold: first answer (again: in a process that finds compiled code on disk) and all calls\n"
        "steady, medians, in turn, in one process: speed-up over eager, and that of the slowest shape"
    )
    table = Table(title=title)
    table.add_column("program")
    table.add_column("system")
    for heading, _ in COLUMNS:
        table.add_column(heading, justify="right" if heading else "left")
    for i, result in enumerate(results):
        program = PROGRAMS[result["program"]]
        again = i > 0 and results[i - 1]["program"] == program.name
        last = i + 1 == len(results) or results[i + 1]["program"] != program.name
        table.add_row("" if again else program.title, TITLES[result["system"]], *row(result), end_section=last)
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description=__doc__.splitlines()[0])
    parser.add_argument("--programs", default=",".join(PROGRAMS), help="names, separated by commas: " + ", ".join(PROGRAMS))
    parser.add_argument("--systems", default="eager,pliant,torch", help="names, separated by commas: " + ", ".join(TITLES))
    parser.add_argument("--rounds", type=int, default=5, help="steady passes (5)")
    parser.add_argument("--limit", type=float, default=120, help="seconds a process may take (120)")
    parser.add_argument("--threads", type=int, help="torch's threads (torch's default)")
    parser.add_argument("--cpu-time", action="store_true", help="processor time instead of the clock's, for busy machines")
    parser.add_argument("--json", metavar="FILE", help="also write the figures there")
    args = parser.parse_args()
    programs, names = args.programs.split(","), args.systems.split(",")
    for word, known in [(p, PROGRAMS) for p in programs] + [(s, TITLES) for s in names]:
        if word not in known:
            parser.error(f"there is no {word!r}: choose from {', '.join(known)}")
    words = ["--rounds", str(args.rounds), *(["--threads", str(args.threads)] if args.threads else [])]
    words += ["--cpu-time"] if args.cpu_time else []
    console = Console(width=max(Console().width, 140))
    results = []
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("", total=len(programs) * len(names))
        for program in programs:
            for name in names:
                progress.update(task, description=f"{program}: {TITLES[name]}")
                results.append(measure(program, name, words, args.limit))
                progress.advance(task)
    show(results, console)
    for result in results:
        if result["status"] == "failed":
            console.print(f"\n{result['program']} under {result['system']}:\n{result['error']}", markup=False)
    if args.json:
        machine = {"python": platform.python_version(), "torch": torch.__version__, "threads": args.threads or torch.get_num_threads()}
        with open(args.json, "w") as file:
            json.dump({"machine": machine, "results": results}, file, indent=1)


if __name__ == "__main__":
    main()
