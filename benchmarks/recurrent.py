"""LSTM, GRU and plain recurrent networks, trained and not: `python -m benchmarks.recurrent [--kind LSTM] [--threads 1] [--torch]`.

Milliseconds of a call (in training: with its gradients, of input and weights), medians of rounds in which eager, pliant and, with
`--torch`, `torch.compile` follow each other in one process. One thread: of the processor; more: of the clock. The batch of a packed
row has lengths from the longest one down, evenly.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from rich.console import Console
from rich.table import Table
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

import pliant

ROUNDS = 9
SECONDS = 0.05  # that a system runs in a round, about


class Row(NamedTuple):
    batch: int
    width: int
    steps: int
    layers: int = 1
    both: bool = False


ROWS = (
    Row(1, 64, 5), Row(1, 64, 100), Row(1, 512, 20), Row(4, 128, 50), Row(8, 256, 50, 2, True), Row(16, 64, 100, 2),
    Row(16, 128, 20, 1, True), Row(64, 64, 5), Row(64, 256, 20), Row(32, 512, 50, 2),
)  # fmt: skip


def program(kind: str, row: Row, packed: bool) -> tuple[nn.Module, Callable[[torch.Tensor], torch.Tensor]]:
    torch.manual_seed(0)
    m = getattr(nn, kind)(row.width, row.width, num_layers=row.layers, bidirectional=row.both, batch_first=True)
    lengths = torch.linspace(row.steps, 1, row.batch).long()

    def run(x: torch.Tensor) -> Any:
        return m(pack_padded_sequence(x, lengths, batch_first=True))[0].data if packed else m(x)[0]

    return m, run


def step(fn: Callable[[torch.Tensor], torch.Tensor], m: nn.Module, x: torch.Tensor, train: bool) -> Callable[[], Any]:
    def trained() -> list[torch.Tensor]:
        out = fn(x)
        return [out, *torch.autograd.grad(out, [x, *m.parameters()], torch.ones_like(out))]

    def plain() -> list[torch.Tensor]:
        with torch.no_grad():
            return [fn(x)]

    return trained if train else plain


def times(kind: str, row: Row, packed: bool, train: bool, beside: bool, clock: Callable[[], float]) -> dict[str, float]:
    pliant.reset()  # each row is a program of its own
    torch._dynamo.reset()
    m, run = program(kind, row, packed)
    x = torch.randn(row.batch, row.steps, row.width, requires_grad=train)
    fns = {"eager": run, "pliant": pliant.compile(run, background=False)}
    if beside:
        fns["torch.compile"] = torch.compile(run)
    steps = {name: step(fn, m, x, train) for name, fn in fns.items()}
    want = steps["eager"]()
    for fn in steps.values():
        for _ in range(3):
            torch.testing.assert_close(fn(), want, rtol=1e-3, atol=1e-3)
    begun = clock()
    steps["eager"]()
    calls = max(1, int(SECONDS / max(clock() - begun, 1e-5)))
    found: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(ROUNDS):
        for name, fn in steps.items():
            begun = clock()
            for _ in range(calls):
                fn()
            found[name].append((clock() - begun) / calls)
    return {name: 1e3 * statistics.median(t) for name, t in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", choices=("LSTM", "GRU", "RNN"), default="LSTM")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--torch", action="store_true")
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(args.threads)
    clock = time.process_time if args.threads == 1 else time.perf_counter
    table = Table(title=f"{args.kind}, {args.threads} thread(s): milliseconds")
    systems = ["eager", "pliant", *(["torch.compile"] if args.torch else [])]
    heads = ["", *Row._fields[:4], "both ways", *systems, *[f"{name} / pliant" for name in systems if name != "pliant"]]
    for head in heads:
        table.add_column(head, justify="right")
    console = Console(width=150)
    for train in (True, False):
        for packed in (False, True):
            what, ratios = f"{'trained' if train else 'plain'}, {'packed' if packed else 'padded'}", []
            for row in ROWS:
                ms = times(args.kind, row, packed, train, args.torch, clock)
                ratios.append([ms[name] / ms["pliant"] for name in ms if name != "pliant"])
                figures = [f"{v:.3f}" for v in ms.values()] + [f"{r:.2f}" for r in ratios[-1]]
                table.add_row(what, *map(str, row[:4]), "yes" if row.both else "", *figures)
            for name, column in zip([name for name in ms if name != "pliant"], zip(*ratios, strict=True), strict=True):
                console.print(f"{what}, {name} / pliant: geometric mean {statistics.geometric_mean(column):.2f}, least {min(column):.2f}")
    console.print(table)


if __name__ == "__main__":
    main()
