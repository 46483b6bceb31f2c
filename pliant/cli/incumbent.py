"""torch.compile as one of the compared systems. Measuring it is the only reason that this file knows its internals."""

from __future__ import annotations

import functools

import torch
from torch._dynamo.utils import counters, get_compilation_metrics, set_compilation_metrics_limit

from pliant.cli.systems import Counts, System

OPTIONS = {"torch": {}, "torch-dynamic": {"dynamic": True}}


def counts() -> Counts:
    """Its own counters. A frame is dropped when compiling it was tried and given up: a break in a loop, the recompile limit."""
    done = [m for m in get_compilation_metrics() if m.fail_type is None]
    frames = counters["frames"]
    return Counts(
        captures=frames["ok"],
        recompiles=sum(not str(m.compile_id).endswith("/0") for m in done),
        graph_breaks=sum(counters["graph_break"].values()),
        dropped=frames["total"] - frames["ok"],
    )


def system(name: str) -> System:
    set_compilation_metrics_limit(4096)
    return System(name, functools.partial(torch.compile, **OPTIONS[name]), counts, torch.compiler.reset)
