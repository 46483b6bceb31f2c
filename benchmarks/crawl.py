"""`python -m benchmarks.crawl [family ...]`: does other people's model just run?

Every model of `benchmarks.zoo` is called at changing shapes, eagerly and through `pliant.compile(strict=True)`, twice over, some of them
trained; answers, their types and structure, and gradients must be eager's. A family runs in a process of its own, started again after a
model that does not come back.

python -m benchmarks.crawl encoders vision --only Bert,Swin --json results.json
"""

from __future__ import annotations

import argparse
import collections
import copy
import json
import sys
import time
import traceback
import warnings
from collections.abc import Mapping
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

import pliant
from benchmarks import zoo
from benchmarks.zoo.model import Call, Model
from pliant import events
from pliant.cli import workers
from pliant.jit.region import called_regions

RELATIVE = 1e-5  # of the largest value of a tensor
LIMIT_S = 120.0  # for one model


class Mismatch(Exception):
    """Not eager's answer."""


# ------------------------------------------------------------------------------------------------------- is it eager's answer?
def same(got: Any, want: Any, where: str, seen: set[int] | None = None) -> float:
    """The largest relative difference of any tensor in two nested answers; raises Mismatch where they are not alike."""
    seen = set() if seen is None else seen
    if type(got) is not type(want):
        raise Mismatch(f"{where}: {type(got).__name__}, eager has {type(want).__name__}")
    if isinstance(want, torch.Tensor):
        return same_tensor(got, want, where)
    if id(want) in seen:
        return 0.0
    seen.add(id(want))
    parts: list[tuple[str, Any, Any]] = []
    if isinstance(want, Mapping):
        if list(got) != list(want):
            raise Mismatch(f"{where}: keys {list(got)}, eager has {list(want)}")
        parts = [(f"[{k!r}]", got[k], want[k]) for k in want]
    elif isinstance(want, list | tuple):
        if len(got) != len(want):
            raise Mismatch(f"{where}: {len(got)} items, eager has {len(want)}")
        parts = [(f"[{i}]", g, w) for i, (g, w) in enumerate(zip(got, want, strict=True))]
    elif hasattr(want, "__dict__") and not isinstance(want, type) and not callable(want) and type(want).__eq__ is object.__eq__:
        parts = [("", vars(got), vars(want))]
    elif got != want and not callable(want):
        raise Mismatch(f"{where}: {got!r}, eager has {want!r}")
    return max((same(g, w, where + name, seen) for name, g, w in parts), default=0.0)


def same_gradients(got: dict[str, torch.Tensor], want: dict[str, torch.Tensor], where: str) -> float:
    """As `same`; but what is below a thousandth of the largest gradient counts as a thousandth."""
    floor = max((float(g.abs().max()) for g in want.values() if g.numel()), default=0.0) / 1000
    if list(got) != list(want):
        raise Mismatch(f"{where}: gradients of {sorted(got)}, eager has {sorted(want)}")
    return max((same_tensor(got[n], want[n], f"{where}, gradient of {n}", floor) for n in want), default=0.0)


def same_tensor(got: torch.Tensor, want: torch.Tensor, where: str, floor: float = 1e-6) -> float:
    if got.shape != want.shape or got.dtype != want.dtype or got.requires_grad != want.requires_grad:
        form = [f"{t.dtype} {tuple(t.shape)}{' with gradient' if t.requires_grad else ''}" for t in (got, want)]
        raise Mismatch(f"{where}: {form[0]}, eager has {form[1]}")
    if want.layout == torch.strided and got.stride() != want.stride() and want.numel() > 1:
        raise Mismatch(f"{where}: strides {got.stride()}, eager has {want.stride()}")
    if torch.equal(got, want) or not want.numel():
        return 0.0
    if not want.dtype.is_floating_point and not want.dtype.is_complex:
        raise Mismatch(f"{where}: other {want.dtype} values than eager")
    g, w = got.detach(), want.detach()
    if not torch.equal(g.isnan(), w.isnan()):
        raise Mismatch(f"{where}: NaN in other places than eager")
    apart = torch.where(g == w, 0, (g - w).abs()).nan_to_num(0.0, posinf=float("inf")).max()
    off = float(apart / w.abs().nan_to_num(0.0, posinf=0.0).max().clamp_min(floor))
    if off > RELATIVE:
        raise Mismatch(f"{where}: off by {off:.1e} of the largest value")
    return off


# ----------------------------------------------------------------------------------------------------------------- one model
class Side:
    """A model on one side of the comparison."""

    def __init__(self, model: Any, row: Model, compiled: bool) -> None:
        self.model = model
        self.row = row
        self.fn = pliant.compile(model, strict=True, background=False) if compiled else model

    def step(self, call: Call, seed: int, train: bool) -> tuple[Any, float]:
        """The answer and the seconds that it took; with `train`, the gradients of a loss over all of it too."""
        args, kwargs = copy.deepcopy(call)
        torch.manual_seed(seed)
        began = time.perf_counter()
        if self.row.generate is not None:
            return self.fn.generate(*args, **kwargs, **self.row.generate), time.perf_counter() - began
        with torch.set_grad_enabled(train):
            value = self.fn(*args, **kwargs)
            if train:
                loss(value).backward()
                parameters = list(self.model.named_parameters())
                value = (value, {name: p.grad for name, p in parameters if p.grad is not None})
                for _, p in parameters:
                    p.grad = None
        return value, time.perf_counter() - began


def loss(value: Any) -> torch.Tensor:
    """A number that depends on every element of every output with a gradient, each in its own measure."""
    terms = [(t.float() * torch.arange(t.numel()).cos().reshape(t.shape)).mean() for t in tensors(value) if t.requires_grad]
    return torch.stack(terms).sum()


def tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, Mapping):
        return [t for v in value.values() for t in tensors(v)]
    if isinstance(value, list | tuple):
        return [t for v in value for t in tensors(v)]
    return []


def examine(row: Model) -> dict[str, Any]:
    """What became of one model, and what the compiler counted. `status`: "right", "wrong", "eager" (not compiled), "error", "no eager"."""
    out: dict[str, Any] = {"name": row.name, "status": "right", "note": "", "trained": row.train, "difference": 0.0}
    try:
        model = row.make()
        calls = row.calls(model)
        eager = Side(copy.deepcopy(model), row, compiled=False)
        modes = [False, True] if row.train else [False]
        wanted = {(train, i): eager.step(call, i, train) for train in modes for i, call in enumerate(calls)}
    except Exception as e:
        return out | {"status": "no eager", "note": f"{type(e).__name__}: {e}", "trace": traceback.format_exc()}
    pliant.reset()
    side = Side(model, row, compiled=True)
    spent, done = [], 0
    try:
        for again in range(2):
            for train, i in wanted:
                got, seconds = side.step(calls[i], i, train)
                if not again:
                    spent.append(seconds)
                where = f"call {i}{' of the second pass' if again else ''}{', training' if train else ''}"
                want = wanted[train, i][0]
                if train:  # gradients that are nothing but rounding (a bias before a softmax) are measured by the largest of all
                    (got, mine), (want, theirs) = got, want
                    out["difference"] = max(out["difference"], same_gradients(mine, theirs, where))
                out["difference"] = max(out["difference"], same(got, want, where))
            out["late"] = pliant.stats()["captures"] - done
            done = pliant.stats()["captures"]
    except Mismatch as e:
        out |= {"status": "wrong", "note": str(e)}
    except Exception as e:
        out |= {"status": "error", "note": f"{type(e).__name__}: {e}", "trace": traceback.format_exc()}
    stats = pliant.stats()
    if out["status"] == "right" and any(r.user_errors for region in called_regions() for r in region.records.values()):
        out |= {"status": "eager", "note": "an exception of the capture was taken for the model's own"}
    breaks = collections.Counter(
        f"{e.fields['code']} {e.fields['reason'].splitlines()[0]} @ {place(e)}" for e in events.events("graph_break")
    )
    reasons = collections.Counter(f"{e.fields['frame_id']}: {r}" for e in events.events("recompile") for r in e.fields["reasons"][:1])
    names = ("captures", "recompiles", "graph_breaks", "fallbacks", "entries")
    return (
        out
        | {k: stats[k] for k in names}
        | {
            "breaks": breaks,
            "reasons": reasons,
            "first_s": spent[0] if spent else None,
            "eager_first_s": next(iter(wanted.values()))[1],
        }
    )


def place(event: Any) -> str:
    site = event.fields["site"]
    return f"{'/'.join(site.filename.split('/')[-2:])}:{site.lineno}" if site is not None else "?"


# ------------------------------------------------------------------------------------------------------------------ families
def inside(family: str, names: list[str]) -> None:
    """In a worker: the models of that name, one after the other."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    models = {m.name: m for m in zoo.load(family)}
    for name in names:
        workers.report("begin", name=name)
        workers.report("model", **examine(models[name]))


def crawl(family: str, names: list[str]) -> list[dict[str, Any]]:
    """All models of a family; a worker that dies or hangs costs the model that it was at."""
    found: list[dict[str, Any]] = []
    while names:
        outcome = workers.run("benchmarks.crawl", ["--inside", family, *names], limit_s=LIMIT_S * len(names) ** 0.5)
        results = [{k: v for k, v in r.items() if k != "event"} for r in outcome.reports if r["event"] == "model"]
        found += results
        names = names[len(results) :]
        if names:  # the first of them did not come back
            note = (outcome.error.splitlines() or [outcome.status])[-1]
            found.append({"name": names[0], "status": "died", "note": note, "trace": outcome.error})
            names = names[1:]
    return found


def show(family: str, results: list[dict[str, Any]], console: Console) -> None:
    table = Table(title=f"{family}: {sum(r['status'] == 'right' for r in results)} of {len(results)} right")
    for heading in ("model", "", "diff.", "capt.", "rec.", "late", "breaks", "fall.", "first", "eager's"):
        table.add_column(heading, justify="left" if heading in ("model", "") else "right")
    for r in results:
        note = r["status"] if r["status"] == "right" else f"[red]{r['status']}[/red] {r['note'][:100]}"
        counts = [str(r.get(k, "-")) for k in ("captures", "recompiles", "late", "graph_breaks", "fallbacks")]
        seconds = [f"{r[k]:.2f} s" if r.get(k) is not None else "-" for k in ("first_s", "eager_first_s")]
        table.add_row(r["name"], note.replace("\n", " "), f"{r.get('difference', 0):.0e}", *counts, *seconds)
    console.print(table)
    for title, key in (("graph breaks", "breaks"), ("recompiles", "reasons")):
        total: collections.Counter[str] = collections.Counter()
        for r in results:
            for reason, n in r.get(key, {}).items():
                total[reason if key == "breaks" else reason.split(": ", 1)[-1]] += n
        for reason, n in total.most_common(12):
            console.print(f"  {n:3} {title}: {reason}", markup=False, soft_wrap=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("families", nargs="*", help=f"of {', '.join(zoo.FAMILIES)} (all)")
    parser.add_argument("--only", help="parts of names, comma separated")
    parser.add_argument("--here", action="store_true", help="in this process, with tracebacks")
    parser.add_argument("--json")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.inside:
        inside(args.inside, args.families)
        return
    console = Console(width=200)
    everything = {}
    for family in args.families or zoo.FAMILIES:
        models = zoo.load(family)
        if args.only:
            models = [m for m in models if any(part.lower() in m.name.lower() for part in args.only.split(","))]
        if args.here:
            torch.set_num_threads(1)
            results = [examine(m) for m in models]
        else:
            results = crawl(family, [m.name for m in models])
        everything[family] = results
        show(family, results, console)
        if args.here:
            for r in results:
                print(
                    r["name"],
                    r["status"],
                    r["note"],
                    r.get("trace", ""),
                    json.dumps(r.get("breaks"), indent=1),
                    json.dumps(r.get("reasons"), indent=1),
                    sep="\n",
                    file=sys.stderr,
                )
        if args.json:
            with open(args.json, "w") as f:
                json.dump(everything, f, indent=1)
    results = [r for rs in everything.values() for r in rs]
    console.print(
        f"{sum(r['status'] == 'right' for r in results)} of {len(results)} models right, "
        f"{sum(r.get('graph_breaks', 0) > 0 for r in results)} with graph breaks"
    )


if __name__ == "__main__":
    main()
