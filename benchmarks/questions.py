"""`python -m benchmarks.questions`: what a decision on a size costs, and what is proven, in pliant's engine and in torch's ShapeEnv.

python -m benchmarks.questions --rounds 5 --json questions.json

Both are asked the same streams, in one process, in turn: those recorded from real captures, and shape logic written out. A question is
timed from ready operands to the answer, so building the comparison counts. The time of a question is the least of
its rounds, so that a busy machine does not speak in the means.
Then both go through each stream side by side, each told what the other is: who could answer without a guard?
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.questions_streams import RECORDED, WRITTEN, record
from benchmarks.questions_torch import OnShapeEnv
from pliant.symbolic import Expr, Scope, ops
from pliant.symbolic.stream import Engine, On, Step, replay

FACTS = ("learn", "require")  # told, not asked: not timed


def seconds(steps: list[Step], engine: Engine) -> tuple[list[float], int]:
    """The time of each question of a stream, and how many answers differ from the recorded ones."""
    times = []
    wrong = 0
    clock = time.perf_counter
    for step, _, ask in replay(steps, engine):
        begin = clock()
        answer = ask()
        end = clock()
        if step[1] not in FACTS:
            times.append(end - begin)
            wrong += step[1] in ("decide", "specialize") and answer != step[4]
    return times, wrong


def measure(streams: list[list[Step]], rounds: int) -> dict[str, Any]:
    """Both engines in turn; microseconds."""
    sides: dict[str, Callable[[], Engine]] = {"pliant": lambda: On(Scope(record=False)), "torch": OnShapeEnv}
    out: dict[str, Any] = {}
    runs: dict[str, list[list[float]]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, make in sides.items():
            gc.collect()
            gc.disable()  # a capture does the same
            parts = [seconds(steps, make()) for steps in streams]
            gc.enable()
            runs[name].append([t for times, _ in parts for t in times])
            out[name] = {"wrong": sum(wrong for _, wrong in parts)}
    for name, all_rounds in runs.items():
        times = [min(ts) * 1e6 for ts in zip(*all_rounds, strict=True)]
        out[name] |= {"median_us": statistics.median(times), "mean_us": statistics.fmean(times), "worst_us": max(times)}
        out["questions"] = len(times)
    for word in ("median", "mean"):
        out[f"ratio_{word}"] = out["torch"][f"{word}_us"] / out["pliant"][f"{word}_us"]
    return out


def known_here(scope: Scope, op: str, operands: list[Any]) -> Any:
    """What our engine would answer without a guard, None if it would have to look."""
    c = ops.DOORS[op](*operands) if op else operands[0]
    if c.__class__ is not Expr:
        return c
    if c.kind is bool:
        return True if scope.known_true(c) else False if scope.known_false(c) else None
    return scope.simplify(c).const


def compare(steps: list[Step]) -> Counter:
    """Side by side. Keys: "both", "neither", ("pliant" | "torch" | "contradiction", the question)."""
    scope, other = Scope(record=False), OnShapeEnv()
    found: Counter = Counter()
    here = replay(steps, On(scope))
    there = replay(steps, other)
    for (step, mine, ask), (_, theirs, ask_there) in zip(here, there, strict=True):
        _, verb, op, _, _ = step
        if verb not in FACTS:
            a, b = known_here(scope, op, mine), other.known(op, theirs)
            before = other.recorded()
            text = f"{verb}: {ops.DOORS[op](*mine) if op and a is None else f'{op}{tuple(map(str, mine))}'}"
        else:
            a = b = text = None
        ask()
        answer = ask_there()
        if text is None:
            continue
        if b is None and verb in ("decide", "assume", "specialize") and other.recorded() == before:
            b = answer
        if a is None or b is None:
            found[("pliant", text) if b is None and a is not None else ("torch", text) if b is not None else "neither"] += 1
        else:
            found["both" if a == b else ("contradiction", text)] += 1
    return found


def knowledge(streams: list[list[Step]]) -> dict[str, Any]:
    total: Counter = Counter()
    for steps in streams:
        total.update(compare(steps))
    out: dict[str, Any] = {"both": total["both"], "neither": total["neither"]}
    for side in ("pliant", "torch", "contradiction"):
        only = {key[1]: n for key, n in total.items() if isinstance(key, tuple) and key[0] == side}
        out[side] = {"count": sum(only.values()), "questions": only}
    return out


def show(results: list[dict[str, Any]], console: Console) -> None:
    table = Table(title="a question, ready operands to answer: median / mean µs; then how many each could answer without a guard")
    for heading in ("stream", "questions", "pliant", "ShapeEnv", "ratio", "both know", "only pliant", "only ShapeEnv", "neither"):
        table.add_column(heading, justify="left" if heading == "stream" else "right")
    for r in results:
        t, k = r["time"], r["knowledge"]
        cells = [f"{t[s]['median_us']:.2f} / {t[s]['mean_us']:.2f}" for s in ("pliant", "torch")]
        counts = [str(k["both"]), str(k["pliant"]["count"]), str(k["torch"]["count"]), str(k["neither"])]
        table.add_row(r["stream"], str(t["questions"]), *cells, f"{t['ratio_median']:.0f} / {t['ratio_mean']:.0f}", *counts)
    console.print(table)
    for r in results:
        for side, title in (("contradiction", "CONTRADICTION"), ("torch", "only ShapeEnv knows"), ("pliant", "only pliant knows")):
            for question, n in r["knowledge"][side]["questions"].items():
                console.print(f"{r['stream']}: {title} ({n}x) {question[:200]}", markup=False, highlight=False)
        for side in ("pliant", "torch"):
            if r["time"][side]["wrong"]:
                console.print(f"{r['stream']}: {r['time'][side]['wrong']} answers of {side} differ from the recorded ones")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.questions", description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--streams", help="names, separated by commas: " + ", ".join([*RECORDED, *(f"{n} (written)" for n in WRITTEN)]))
    parser.add_argument("--json", metavar="FILE", help="also write the figures and every question that only one side knows there")
    parser.add_argument("--save", metavar="FILE", help="write the streams there")
    args = parser.parse_args()
    makers: dict[str, Callable[[], list[list[Step]]]] = {n: lambda n=n: record(n) for n in RECORDED}  # type: ignore[misc]
    makers |= {f"{name} (written)": make for name, make in WRITTEN.items()}
    chosen = args.streams.split(",") if args.streams else list(makers)
    streams = {name: makers[name]() for name in chosen}
    if args.save:
        with open(args.save, "w") as file:
            json.dump(streams, file)
    results = [{"stream": n, "time": measure(s, args.rounds), "knowledge": knowledge(s)} for n, s in streams.items()]
    show(results, Console(width=max(Console().width, 140)))
    if args.json:
        with open(args.json, "w") as file:
            json.dump(results, file, indent=1)


if __name__ == "__main__":
    main()
