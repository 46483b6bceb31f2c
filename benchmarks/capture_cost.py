"""`python -m benchmarks.capture_cost`: what it costs to capture all-MiniLM-L6-v2 per ATen operation of its graph, in microseconds.

Capture only: pliant with backend "aten" (guards and emitted code included), torch.compile with backend "eager" (its front end alone: no
AOTAutograd, no Inductor). Each sample is a fresh process; in it the compiler is first warmed on a small function, so that imports and
one-time set-up are not counted, then the model is captured once. The number of ATen operations is counted on an eager call, for both alike.
"""

from __future__ import annotations

import argparse
import json
import statistics
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch.utils._python_dispatch import TorchDispatchMode

from pliant.cli import embedder, systems, workers
from pliant.cli.timing import timed
from pliant.cli.workers import report

OPTIONS = {"pliant": {"backend": "aten"}, "torch": {"backend": "eager"}, "torch-dynamic": {"backend": "eager"}}
TEXTS = ["A sentence to embed.", "Another one, somewhat longer than the first.", "A third."]


class Count(TorchDispatchMode):
    """Counts the ATen operations that a call dispatches."""

    def __init__(self) -> None:
        super().__init__()
        self.ops = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None) -> Any:
        self.ops += 1
        return func(*args, **(kwargs or {}))


def warm_up(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    for _ in range(3):
        x = torch.nn.functional.layer_norm(x @ y.transpose(0, 1), (x.shape[0],)) + 1
    return x.softmax(-1)


@torch.no_grad()
def work(name: str) -> None:
    """One sample. The cost of capturing is the first compiled call less a warm one."""
    system = systems.load(name)
    model, tokenizer = embedder.load()
    inputs = tokenizer(TEXTS)
    model(**inputs)
    with Count() as count:
        expected = model(**inputs)
    system.compile(warm_up, **OPTIONS[name])(torch.ones(4, 4), torch.ones(4, 4))
    before = system.counts()
    fn = system.compile(model, **OPTIONS[name])
    first, output = timed(lambda: fn(**inputs))
    captures = (system.counts() - before).captures
    torch.testing.assert_close(output, expected, atol=1e-5, rtol=1e-5)
    warm = statistics.median(timed(lambda: fn(**inputs))[0] for _ in range(9))
    report("sample", system=name, ops=count.ops, captures=captures, capture_s=first - warm, us_per_op=(first - warm) / count.ops * 1e6)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.capture_cost", description=__doc__.splitlines()[0])
    parser.add_argument("--systems", default="pliant,torch,torch-dynamic", help="names, separated by commas: " + ", ".join(OPTIONS))
    parser.add_argument("--samples", type=int, default=5, help="fresh processes for each (5)")
    parser.add_argument("--json", metavar="FILE", help="also write the figures there")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        work(args.worker)
        return
    console = Console(width=max(Console().width, 110))
    samples: dict[str, list[dict[str, Any]]] = {name: [] for name in args.systems.split(",")}
    for _ in range(args.samples):
        for name, rows in samples.items():  # in turn, so that a noisy minute touches all alike
            outcome = workers.run("benchmarks.capture_cost", ["--worker", name], limit_s=300)
            sample = outcome.last("sample")
            if sample is None:
                console.print(f"{name}: {outcome.status}\n{outcome.error}", markup=False)
            else:
                rows.append(sample)
    table = Table(title="capturing MiniLM once")
    for heading in ("system", "ATen ops", "captures", "capture, ms: median", "fastest", "µs an op: median", "fastest"):
        table.add_column(heading, justify="left" if heading == "system" else "right")
    for name, rows in samples.items():
        if rows:
            total, each = [r["capture_s"] * 1e3 for r in rows], [r["us_per_op"] for r in rows]
            figures = [f"{statistics.median(total):.0f}", f"{min(total):.0f}", f"{statistics.median(each):.0f}", f"{min(each):.0f}"]
            table.add_row(systems.TITLES[name], str(rows[0]["ops"]), str(rows[0]["captures"]), *figures)
    console.print(table)
    if args.json:
        with open(args.json, "w") as file:
            json.dump(samples, file, indent=1)


if __name__ == "__main__":
    main()
