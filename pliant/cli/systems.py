"""The systems that the demo and the benchmarks compare, behind one face: how to compile with each, and what it counted."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pliant
from pliant import events


@dataclass(frozen=True, slots=True)
class Counts:
    """What a system did so far in this process. `captures` includes the recompiles."""

    captures: int = 0
    recompiles: int = 0
    graph_breaks: int = 0
    dropped: int = 0  # frames that run in eager for good: given up after a failure or at a limit

    def __sub__(self, earlier: Counts) -> Counts:
        return Counts(
            self.captures - earlier.captures,
            self.recompiles - earlier.recompiles,
            self.graph_breaks - earlier.graph_breaks,
            self.dropped - earlier.dropped,
        )


@dataclass(frozen=True, slots=True)
class System:
    name: str
    compile: Callable[..., Any]  # (function or module, **options of that system) -> callable
    counts: Callable[[], Counts]
    reset: Callable[[], Any]  # forget all that was compiled
    settle: Callable[[], Any] = lambda: None  # wait until what is fastest is in use


def pliant_counts() -> Counts:
    """Frames at their limit of entries count as dropped, as they do for the incumbent: new shapes of theirs run in eager."""
    stats = pliant.stats()
    limits = {event.fields["name"] for event in events.events("limit")}
    return Counts(stats["captures"], stats["recompiles"], stats["graph_breaks"], stats["fallbacks"] + len(limits))


# name: how a table calls it
TITLES = {
    "eager": "eager",
    "pliant": "pliant.compile",
    "pliant-aten": "pliant.compile aten",
    "torch": "torch.compile",
    "torch-dynamic": "torch.compile dynamic=True",
}


def load(name: str) -> System:
    """The system of that name (a key of `TITLES`). The incumbent is imported only here: that alone takes a second."""
    if name == "eager":
        return System(name, lambda fn, **_: fn, Counts, lambda: None)
    if name == "pliant-aten":
        return System(name, functools.partial(pliant.compile, backend="aten"), pliant_counts, pliant.reset)
    if name == "pliant":
        return System(name, pliant.compile, pliant_counts, pliant.reset, pliant.synchronize)
    if name in TITLES:
        return importlib.import_module("pliant.cli.incumbent").system(name)
    raise ValueError(f"no system {name!r}: choose from {', '.join(TITLES)}")
