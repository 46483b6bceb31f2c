"""`python -m benchmarks.patterns`: ten ordinary patterns that exhaust torch.compile's limit of 8 recompiles and run in eager from then on.

Each is called with 90 variations, every one new, in three passes of 30, then with all of them again, under each system in one fresh
process. A compiler that copes ends with few captures, needs none when they come again, gives up on nothing and answers as eager does.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import nn
from torch.nn import functional as F

from benchmarks.compare import Mismatch, difference
from pliant.cli import systems, workers
from pliant.cli.workers import report

COUNT = 30
PASSES = 3
X = torch.linspace(-1, 1, 64).reshape(8, 8)


def list_length(xs: list[torch.Tensor]) -> torch.Tensor:
    total = torch.zeros(8, 8)
    for x in xs:
        total = total + torch.relu(x)
    return total / len(xs)


def loop_over_shape(x: torch.Tensor) -> torch.Tensor:
    out = torch.zeros(x.shape[1])
    for i in range(x.shape[0]):
        out = out * 0.5 + x[i]
    return out


def loop_over_int(x: torch.Tensor, n: int) -> torch.Tensor:
    for _ in range(n):
        x = torch.sin(x) + 0.1
    return x


def bucketed(x: torch.Tensor) -> torch.Tensor:
    n = x.shape[0]
    for bucket in range(4, 128, 4):
        if n <= bucket:
            return F.pad(x, (0, 0, 0, bucket - n)).sum(0) / bucket
    return x.sum(0)


def split_by_eight(x: torch.Tensor) -> torch.Tensor:
    return torch.stack([chunk.mean(0) for chunk in x.split(8)]).cumsum(0)


def generator_chunks(x: torch.Tensor) -> torch.Tensor:
    def windows(size: int) -> Iterator[torch.Tensor]:
        for start in range(0, x.shape[0], size):
            yield x[start : start + size]

    return sum(w.square().sum(0) for w in windows(5))  # type: ignore[return-value]


class StepCounter(nn.Module):
    """Counts its calls and uses the count."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.step = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.step += 1
        return self.linear(x) / self.step


def changing_keys(features: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: torch.tanh(value) for name, value in features.items()}


class Scaled(nn.Module):
    """Instances differ by one int."""

    def __init__(self, power: int) -> None:
        super().__init__()
        self.power = power

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.power + self.power // 2


def apply(layer: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    return torch.relu(layer(x))


def interpolate(x: torch.Tensor, scale: float) -> torch.Tensor:
    return F.interpolate(x, scale_factor=scale, mode="bilinear") * 2


@dataclass(frozen=True, slots=True)
class Pattern:
    """`make()` gives the function or module to compile; `args(i)` the arguments of variation i."""

    name: str
    make: Callable[[], Callable[..., Any]]
    args: Callable[[int], tuple]


PATTERNS = (
    Pattern("list length", lambda: list_length, lambda i: ([X * k for k in range(1, i + 2)],)),
    Pattern("loop over a shape", lambda: loop_over_shape, lambda i: (X.repeat(4, 1).flatten()[: 2 * (i + 2)].reshape(i + 2, 2),)),
    Pattern("loop over an int", lambda: loop_over_int, lambda i: (X, i + 1)),
    Pattern("bucketed if-chain", lambda: bucketed, lambda i: (X.repeat(16, 1)[: 4 * (i % 30) + 3 - i // 30],)),
    Pattern("split into n/8 chunks", lambda: split_by_eight, lambda i: (X.repeat(100, 1)[: 8 * i + 5],)),
    Pattern("generator chunks", lambda: generator_chunks, lambda i: (X.repeat(100, 1)[: 5 * i + 3],)),
    Pattern("step counter", StepCounter, lambda i: (X,)),
    Pattern("dict with changing keys", lambda: changing_keys, lambda i: ({f"f{k}": X + k for k in range(i, i + 2 + i % 5)},)),
    Pattern("instances, an int apart", lambda: apply, lambda i: (Scaled(i), X)),
    Pattern("interpolate scale", lambda: interpolate, lambda i: (X[None, None], 1 + i / 16)),
)


def work(name: str) -> None:
    """Every pattern in this process; reports one "pattern" each. `by_pass` counts the captures that each pass needed."""
    system = systems.load(name)
    for pattern in PATTERNS:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            eager = pattern.make()
            torch.manual_seed(0)
            fn = system.compile(pattern.make())
        before = system.counts()
        by_pass, wrong, largest = [], "", 0.0
        with torch.no_grad():
            for turn in (*(range(t * COUNT, (t + 1) * COUNT) for t in range(PASSES)), range(PASSES * COUNT)):
                start = system.counts()
                for i in turn:
                    try:
                        largest = max(largest, difference(fn(*pattern.args(i)), eager(*pattern.args(i))))
                    except Mismatch as mismatch:
                        wrong = wrong or f"variation {i}: {mismatch}"
                by_pass.append((system.counts() - start).captures)
        wrong = wrong or (f"off by {largest:.1e}" if largest > 1e-4 else "")
        counts = dataclasses.asdict(system.counts() - before)
        report("pattern", pattern=pattern.name, system=name, by_pass=by_pass, wrong=wrong, difference=largest, **counts)


def verdict(result: dict[str, Any]) -> str:
    if result["wrong"]:
        return f"[red]WRONG: {result['wrong']}[/red]"
    if result["dropped"]:
        return "[red]gave up[/red]"
    return "[yellow]still capturing[/yellow]" if result["by_pass"][-1] else "converged"


def show(results: list[dict[str, Any]], console: Console) -> None:
    table = Table(title=f"{PASSES} passes of {COUNT} new variations, then all of them again")
    for heading in ("pattern", "system", "captures by pass", "breaks", "dropped", ""):
        table.add_column(heading)
    for r in sorted(results, key=lambda r: [p.name for p in PATTERNS].index(r["pattern"])):
        by_pass = " + ".join(map(str, r["by_pass"]))
        table.add_row(r["pattern"], systems.TITLES[r["system"]], by_pass, str(r["graph_breaks"]), str(r["dropped"]), verdict(r))
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.patterns", description=__doc__.splitlines()[0])
    parser.add_argument("--systems", default="pliant", help="names, separated by commas: " + ", ".join(systems.TITLES))
    parser.add_argument("--json", metavar="FILE", help="also write the figures there")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        work(args.worker)
        return
    console = Console(width=max(Console().width, 110))
    results = []
    for name in args.systems.split(","):
        results += workers.told(name, "benchmarks.patterns", ["--worker", name], "pattern", 1200)
    show(results, console)
    if args.json:
        with open(args.json, "w") as file:
            json.dump(results, file, indent=1)


if __name__ == "__main__":
    main()
