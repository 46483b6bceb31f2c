"""`python -m benchmarks.perturb [program ...]`: no change of the world may make a compiled program answer otherwise than eager.

python -m benchmarks.perturb --most 120 --json perturb.json          # all programs; a second run goes on where the first one stopped
python -m benchmarks.perturb tests/objects patterns --seed 3         # programs whose names begin so
python -m benchmarks.perturb --shuffle --seed 4                      # all, in an order by the seed, so that each group is reached soon
PLIANT_TEST_ENTRIES=1 python -m benchmarks.perturb                   # every entry through its form on disk

Programs run in worker processes (`--jobs`), eighty to a process; one that ends its process is reported as a crash.
"""

from __future__ import annotations

import argparse
import collections
import functools
import json
import os
import queue
import random
import sys
import threading
import time
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.perturb.subjects import subjects
from pliant.cli import workers

CHUNK = 80


class Run:
    """What all workers found, kept in a file."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.lock = threading.Lock()
        self.data: dict[str, Any] = {"programs": {}, "found": []}
        if args.json and os.path.exists(args.json):
            with open(args.json) as file:
                self.data = json.load(file)

    def key(self, name: str) -> str:
        return f"{name}#{self.args.seed}#{self.args.backend}"

    def save(self) -> None:
        if self.args.json:
            with open(self.args.json + ".new", "w") as file:
                json.dump(self.data, file, indent=1)
            os.replace(self.args.json + ".new", self.args.json)

    def hear(self, event: dict[str, Any], state: dict[str, Any]) -> None:
        if event["event"] == "try":
            state["last"] = event
        elif event["event"] == "side":
            state["last"]["side"] = event["side"]
        elif event["event"] == "begin":
            state["last"] = {"program": event["program"], "index": -1, "change": "nothing changed"}
        elif event["event"] == "found":
            with self.lock:
                self.data["found"].append({k: v for k, v in event.items() if k != "event"} | {"seed": self.args.seed})
                if event["verdict"] == "error" and not self.args.errors:
                    return
                print(f"{event['verdict']:12} {event['program']}: {event['kind']}: {event['name']} at {event['path']} "
                    f"[{event['old']} -> {event['new']}]\n             {event['what']}"[:600], flush=True)
        elif event["event"] == "program":
            with self.lock:
                had = self.data["programs"].get(self.key(event["program"]), {"counts": {}, "seconds": 0.0, "note": ""})
                counts = collections.Counter(had["counts"])
                counts.update({k: v for k, v in event["counts"].items() if k != "places"})
                counts["places"] = event["counts"].get("places", counts["places"])
                self.data["programs"][self.key(event["program"])] = {"counts": dict(counts), "note": event["note"] or had["note"],
                    "seconds": had["seconds"] + event["seconds"]}
                state["done"].append(event["program"])
                self.save()
                if event["note"]:
                    print(f"-- {event['program']}: {event['note'].strip().splitlines()[-1][:200]}", flush=True)

    def chunk(self, names: list[str]) -> None:
        """Work through some programs, with a new process after each that ends before its time."""
        skip, crashes = 0, 0
        while names:
            state: dict[str, Any] = {"last": None, "done": []}
            a = self.args
            options = {"backend": a.backend, "seed": a.seed, "most": a.most, "seconds": a.seconds, "skip": skip, "kinds": a.kinds}
            words = [*names, *[w for k, v in options.items() for w in (f"--{k}={v}",)]]
            outcome = workers.run("benchmarks.perturb.worker", words, functools.partial(self.hear, state=state),
                limit_s=60 + len(names) * (a.seconds + 40))
            names = [n for n in names if n not in state["done"]]
            if not names or outcome.status == "ok":
                return
            last = state["last"] or {"program": names[0], "index": -1, "change": "start"}
            crashes += 1
            empty = dict.fromkeys(("path", "old", "new"), "")
            self.hear({"event": "found", "program": last["program"], "kind": last["change"].split(":")[0], "name": last["change"], **empty,
                "what": f"{outcome.status}: {outcome.error[-400:]}",
                "verdict": "crash" if last.get("side") != "eager" else "eager crashes", "index": last["index"]}, state)
            skip = last["index"] + 1
            if last["index"] < 0 or crashes > 6:
                given_up = {"counts": {}, "seconds": 0.0, "note": "given up: crashes"}
                self.hear({"event": "program", "program": last["program"], **given_up}, state)
                names = [n for n in names if n != last["program"]]
                skip, crashes = 0, 0

    def go(self, names: list[str]) -> None:
        todo: queue.Queue = queue.Queue()
        if self.args.shuffle:
            random.Random(self.args.seed).shuffle(names)
        names = [n for n in names if self.key(n) not in self.data["programs"]]
        for i in range(0, len(names), CHUNK):
            todo.put(names[i : i + CHUNK])
        end = time.monotonic() + self.args.total if self.args.total else None

        def serve() -> None:
            while end is None or time.monotonic() < end:
                try:
                    chunk = todo.get_nowait()
                except queue.Empty:
                    return
                self.chunk(chunk)

        threads = [threading.Thread(target=serve) for _ in range(self.args.jobs)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()


def show(data: dict[str, Any], console: Console) -> None:
    total: collections.Counter = collections.Counter()
    for row in data["programs"].values():
        total.update(row["counts"])
    wrong = collections.Counter(f["verdict"] for f in data["found"])
    by_kind = collections.Counter(f["kind"] for f in data["found"] if f["verdict"] in ("stale", "back", "translation"))
    table = Table(title="Perturbations")
    for heading in ("what was changed", "perturbations", "wrong"):
        table.add_column(heading, justify="left" if heading == "what was changed" else "right")
    for key in sorted(k for k in total if k.startswith("kind: ")):
        table.add_row(key[6:], str(total[key]), str(by_kind[key[6:]]))
    table.add_section()
    ran = sum(1 for r in data["programs"].values() if r["counts"].get("perturbations"))
    table.add_row(f"all ({ran} programs, {total['places']} places)", str(total["perturbations"]), str(sum(by_kind.values())))
    console.print(table)
    console.print(f"captures {total['captures']}, of them recompiles {total['recompiles']}; graph breaks {total['graph_breaks']}; "
        f"fallbacks {total['fallbacks']}; differences within rounding {total['rounding']}; not steady in eager {total['unsteady']}; "
        f"found: {dict(wrong)}", markup=False)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.perturb", description=__doc__.splitlines()[0])
    parser.add_argument("programs", nargs="*", help="names or beginnings of names; none: all")
    parser.add_argument("--list", action="store_true", help="print the names of the programs")
    parser.add_argument("--backend", default="aten")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--most", type=int, default=120, help="perturbations of a program")
    parser.add_argument("--seconds", type=float, default=60, help="for a program")
    parser.add_argument("--shuffle", action="store_true", help="programs in an order that the seed decides, so that each group is reached")
    parser.add_argument("--kinds", default="", help="kinds of change, with commas between them; none: all")
    parser.add_argument("--total", type=float, help="start no more programs after so many seconds")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--errors", action="store_true", help="also print errors that only strict mode raises (else eager answers)")
    parser.add_argument("--json", metavar="FILE", help="keep what was found there, and go on from it")
    parser.add_argument("--show", action="store_true", help="only print the table of the file")
    args = parser.parse_args()
    run = Run(args)
    if not args.show:
        names = list(subjects(args.programs))
        if args.list:
            print("\n".join(names))
            return
        run.go(names)
    show(run.data, Console(width=max(Console().width, 110)))
    sys.exit(bool(any(f["verdict"] in ("stale", "back", "translation", "crash") for f in run.data["found"])))


if __name__ == "__main__":
    main()
