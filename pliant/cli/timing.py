"""Timing on a machine that is not quiet: two callables in turn, medians per call, differences of whole passes."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any


def timed(fn: Callable[[], Any], clock: Callable[[], float] = time.perf_counter) -> tuple[float, Any]:
    """Seconds that `fn()` took by that clock, and its result."""
    start = clock()
    result = fn()
    return clock() - start, result


def medians(rounds: list[list[float]]) -> list[float]:
    """`rounds[r][i]` is call i of round r; returns the median over the rounds of each call."""
    return [statistics.median(times) for times in zip(*rounds, strict=True)]


def interleaved(
    count: int,
    rounds: int,
    calls: tuple[Callable[[int], Any], ...],
    begin: Callable[[], None] = lambda: None,
    tick: Callable[[], None] = lambda: None,
    clock: Callable[[], float] = time.perf_counter,
) -> list[list[float]]:
    """Run `calls[k](i)` for i in range(count), the callables in turn and in changing order, `rounds` times.

    Returns, for each callable, the median seconds of each of its calls. `begin` runs before each round, `tick` after each i.
    """
    times: list[list[list[float]]] = [[[] for _ in range(rounds)] for _ in calls]
    order = list(range(len(calls)))
    for r in range(rounds):
        begin()
        for i in range(count):
            for k in order if (i + r) % 2 else reversed(order):
                seconds, _ = timed(lambda k=k, i=i: calls[k](i), clock)
                times[k][r].append(seconds)
            tick()
    return [medians(rows) for rows in times]
