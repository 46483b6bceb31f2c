"""One process that tries changes on some programs, one after the other, and reports each event as a line of JSON.

A program that ends the process, or never comes back, is known by its last "try": `__main__` starts another worker behind it.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import gc
import logging
import random
import resource
import time
import traceback
import warnings

import torch

from benchmarks.perturb.changes import Change
from benchmarks.perturb.subjects import Subject, subjects
from benchmarks.perturb.trial import Trial, Unsteady
from pliant.cli.workers import report

MEMORY = 12 << 30


def work(subject: Subject, backend: str, seed: int, most: int, seconds: float, skip: int, kinds: frozenset[str]) -> None:
    report("begin", program=subject.name)
    started = time.monotonic()
    counts: collections.Counter = collections.Counter()
    note = ""
    trial = None

    def trying(index: int, change: Change) -> None:
        report("try", program=subject.name, index=index, change=f"{change.kind}: {change.name} at {change.path}")

    try:
        trial = Trial(subject, backend, random.Random(f"{seed} {subject.name}"), kinds)
        trial.begins = lambda side: report("side", side=side)
        for found in trial.run(most, seconds, skip, trying):
            report("found", **dataclasses.asdict(found))
    except Unsteady as e:
        note = f"unsteady: {e}"
    except Exception:  # the harness, or a program that cannot even be made
        note = traceback.format_exc()[-1500:]
    if trial is not None:
        counts = trial.counts
        counts["places"] = len(trial.places.places)
    report("program", program=subject.name, seconds=time.monotonic() - started, note=note[-1500:], counts=dict(counts))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("programs", nargs="+")
    parser.add_argument("--backend", default="aten")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--most", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--skip", type=int, default=0)
    parser.add_argument("--kinds", default="")
    args = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.getLogger("pliant").setLevel(logging.CRITICAL)
    gc.freeze()
    there = subjects(args.programs)
    if all(n in there for n in args.programs):
        there = {n: there[n] for n in args.programs}
    for i, subject in enumerate(there.values()):
        work(subject, args.backend, args.seed, args.most, args.seconds, args.skip if i == 0 else 0,
            frozenset(k for k in args.kinds.split(",") if k))
    report("end")


if __name__ == "__main__":
    main()
