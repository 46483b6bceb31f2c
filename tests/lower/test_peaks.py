"""Where runs of native code are cut so that less is held at once."""

from __future__ import annotations

import random

import pytest

from pliant.lower.peak_memory import Block, Run, best_cut, cut_at_peaks, peak

MB = 1 << 20


def test_a_cut_where_the_dead_make_room():
    # an input of 4 MB dies at item 1, a result of 4 MB is made at item 2, which reads 1 MB that item 1 made
    blocks = [Block(4 * MB, -1, 1), Block(MB, 1, 2), Block(4 * MB, 2, 3)]
    run = Run(0, 3, True)
    assert peak(run, blocks) == 8 * MB  # what only the run knows is in the arena
    assert best_cut(run, blocks) == (5 * MB, 2)
    assert cut_at_peaks([(3, True)], blocks) == [2]


def test_what_does_not_pay_stays_whole():
    assert cut_at_peaks([(3, True)], [Block(8 * MB, 0, 3)]) == []  # the result counts either way
    assert cut_at_peaks([(3, True)], [Block(4000, -1, 1), Block(4000, 2, 3)]) == []  # too small
    assert cut_at_peaks([(1, True), (2, False)], [Block(4 * MB, -1, 0), Block(9 * MB, 1, 2)]) == []  # calls are cut as it is
    assert cut_at_peaks([], []) == []


def test_calls_one_by_one_free_after_each():
    blocks = [Block(4 * MB, 0, 1), Block(4 * MB, 1, 2), Block(4 * MB, 2, 3)]
    assert peak(Run(0, 3, False), blocks) == 8 * MB
    assert peak(Run(0, 3, True), blocks) == 4 * MB


@pytest.mark.parametrize("seed", range(8))
def test_no_run_holds_more_than_before(seed):
    rng = random.Random(seed)
    n = 40
    blocks = []
    for _ in range(60):
        made = rng.randint(-1, n - 1)
        blocks.append(Block(rng.randint(1, 9) * MB, made, rng.randint(max(made, 0), n)))
    lengths, native = [], True
    while sum(length for length, _ in lengths) < n:
        lengths.append((min(rng.randint(1, 12), n - sum(length for length, _ in lengths)), native))
        native = not native
    cuts = cut_at_peaks(lengths, blocks)
    assert len(cuts) == len(set(cuts))
    runs, whole, low = [], [], 0
    for length, kind in lengths:
        ends = [low, *sorted(c for c in cuts if low < c < low + length), low + length]
        runs += [Run(a, b, kind) for a, b in zip(ends, ends[1:])]
        whole.append(Run(low, low + length, kind))
        low += length
    assert max(peak(r, blocks) for r in runs) <= max(peak(r, blocks) for r in whole)
