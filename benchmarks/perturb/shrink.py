"""`python -m benchmarks.perturb.shrink PROGRAM --seed N`: which of the changes before a stale answer it takes.

A stale answer may come behind dozens of changes, each of which left an entry behind. They are left out by halves, then by ones (the `ddmin`
of Zeller and Hildebrandt, 2002), as long as the answer stays stale; what is left is printed."""

from __future__ import annotations

import argparse
import logging
import random
import time
import warnings
from collections.abc import Callable

import torch

import pliant
from benchmarks.perturb.changes import Change
from benchmarks.perturb.subjects import subjects
from benchmarks.perturb.trial import Found, Trial

BAD = ("stale", "back", "translation")


def tried(program: str, seed: int, backend: str, keep: set[int] | None, most: int) -> tuple[Found | None, list[Change]]:
    """The first wrong answer where only the changes with these numbers are made (None: all), and the changes."""
    pliant.reset()
    trial = Trial(subjects([program])[program], backend, random.Random(f"{seed} {program}"), frozenset())
    changes = list(trial.candidates(most * 2))
    numbers = [i for i in range(len(changes)) if keep is None or i in keep]
    trial.candidates = lambda n: iter([changes[i] for i in numbers])  # type: ignore[method-assign]
    for found in trial.run(most, 120, 0, lambda i, c: None):
        if found.verdict in BAD:
            found.index = numbers[found.index]
            return found, changes
    return None, changes


def smallest(numbers: list[int], last: int, wrong: Callable[[set[int]], bool], end: float) -> list[int]:
    """As few of the numbers, `last` among them, as are still wrong together."""
    parts = 2
    while len(numbers) > 1 and time.monotonic() < end:
        size = max(1, len(numbers) // parts)
        for begin in range(0, len(numbers), size):
            rest = numbers[:begin] + numbers[begin + size :]
            if last in rest and wrong(set(rest)):
                numbers, parts = rest, max(parts - 1, 2)
                break
        else:
            if size == 1:
                break
            parts = min(len(numbers), parts * 2)
    return numbers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("program")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--backend", default="aten")
    parser.add_argument("--most", type=int, default=300)
    parser.add_argument("--seconds", type=float, default=300)
    args = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.getLogger("pliant").setLevel(logging.CRITICAL)
    found, changes = tried(args.program, args.seed, args.backend, None, args.most)
    if found is None:
        print("nothing is wrong")
        return
    print(f"{found.verdict} at change {found.index}: {found.what}")

    def wrong(keep: set[int]) -> bool:
        again, _ = tried(args.program, args.seed, args.backend, keep, args.most)
        return again is not None and again.index == found.index

    for i in smallest(list(range(found.index + 1)), found.index, wrong, time.monotonic() + args.seconds):
        print(f"{i:4d} {changes[i].kind}: {changes[i].name} at {changes[i].path}")


if __name__ == "__main__":
    main()
