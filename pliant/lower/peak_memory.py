"""Cutting runs of native code where that lowers the most memory that a program holds at once.

A segment's results are allocated before it begins, and what it was given is freed when it ends: whatever it makes and reads lives at once.
With a cut in between, the first half's dead make room for the second half's results. What both know then crosses from one to the other
instead of lying in the arena. Bytes are typical ones; they decide what is worth a cut, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

SHORTEST = 2
"""Items of a run that may be cut."""
SMALL = 1 << 16
"""Bytes. Programs that hold less are left alone."""
WORTH = 0.0025
"""Of the most that the program holds: by how much a cut must lower what its run does. (A call of a segment takes a microsecond.)"""


@dataclass(slots=True)
class Block:
    """Some bytes that are held from the item (by position) that makes them, -1 for before, to the last that reads them."""

    bytes: int
    made: int
    last: int

    def held(self, low: int, high: int) -> bool:
        """By the run of items [low, high), and not in its arena?"""
        return self.made < high and self.last >= low and not low <= self.made <= self.last < high


@dataclass(slots=True)
class Run:
    """Items [low, high), and whether they are one segment."""

    low: int
    high: int
    native: bool


def blocks_of(items: Sequence[Any], storage: Callable[[Any], int], size: Mapping[int, int], kept: Container[int]) -> list[Block]:
    """`size`: bytes by storage, of those that count; `kept`: the storages that the program does not free."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for i, item in enumerate(items):
        for t in item.made:
            first.setdefault(storage(t), i)
        for t in (*item.reads, *item.made, *item.written):
            last[storage(t)] = i
    return [Block(size[s], first.get(s, -1), len(items) if s in kept else end) for s, end in last.items() if s in size]


def peak(run: Run, blocks: list[Block]) -> int:
    """Bytes that are held while the run goes on; of calls one by one, at the worst of them."""
    if run.native:
        return sum(b.bytes for b in blocks if b.held(run.low, run.high))
    changes = [0] * (run.high - run.low + 1)  # of what is held, from a call to the next
    for b in blocks:
        if b.made < run.high and b.last >= run.low:
            changes[max(b.made - run.low, 0)] += b.bytes
            changes[min(b.last + 1, run.high) - run.low] -= b.bytes
    return max(accumulate(changes[:-1]))


def best_cut(run: Run, blocks: list[Block]) -> tuple[int, int]:
    """(the larger peak of both halves, where to cut): sums over where each block begins and ceases to count for a half."""
    low, size = run.low, run.high - run.low
    left, right = [0] * (size + 1), [0] * (size + 1)  # changes of what the halves hold, from a cut to the next
    for b in blocks:
        made, last = max(b.made - low, -1), min(b.last - low, size)
        if made >= size or last < 0:
            continue
        left[made + 1] += b.bytes  # held by the first half if made there,
        if made >= 0 and last < size:
            left[last + 1] -= b.bytes  # until it is all of its life
            right[made + 1] += b.bytes  # and by the second half unless that is,
        else:
            right[0] += b.bytes
        if last < size:
            right[last + 1] -= b.bytes  # as long as it is read there
    halves = zip(accumulate(left), accumulate(right), range(low, run.high))
    return min((max(a, b), at) for a, b, at in halves if at > low)


def cut_at_peaks(lengths: list[tuple[int, bool]], blocks: list[Block]) -> list[int]:
    """Where to cut runs of these lengths (and whether each is native) further: positions of items.

    Not only the run that holds most: at other sizes it is another one.
    """
    runs, low = [], 0
    for length, native in lengths:
        runs.append(Run(low, low + length, native))
        low += length
    most = max((peak(r, blocks) for r in runs), default=0)
    if most < SMALL:
        return []
    cuts: list[int] = []
    todo = [r for r in runs if r.native]
    while todo:
        run = todo.pop()
        if run.high - run.low < SHORTEST:
            continue
        lowered, at = best_cut(run, blocks)
        if peak(run, blocks) - lowered >= most * WORTH:
            cuts.append(at)
            todo += [Run(run.low, at, True), Run(at, run.high, True)]
    return sorted(cuts)
