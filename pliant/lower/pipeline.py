"""The pipeline: every pass over a graph, in order, by name. A pass is a function from `Program` to `Program`.

A pass that is not `required` may be left out, and the program is as right: so a wrong one is found by leaving them out one by one
(`report/bisect.py`). In strict mode a verifier (`lower/verify.py`) runs after each pass; `PLIANT_LOGS=passes` shows what each one changed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from pliant import events, turns
from pliant.config import env_flag
from pliant.errors import InternalError
from pliant.graph.originals import operator
from pliant.lower import cse, liveness, ordering, search, select
from pliant.lower.accumulate import accumulate
from pliant.lower.emit import Emitter
from pliant.lower.fuse import Fuser
from pliant.lower.pattern_fusion import fuse_patterns
from pliant.lower.program import CALLS, GRAPH, GROUPS, INSTRUCTIONS, RUNS, Program, Run
from pliant.lower.text import program_text
from pliant.lower.verify import promised, verify


@dataclass(frozen=True, slots=True)
class Pass:
    """A row of the pipeline. `makes`: the level that it lowers to, if it does. `keeps`: facts that stay true."""

    name: str
    run: Callable[[Program], list[Any]]
    at: str = GRAPH
    makes: str = ""
    required: bool = False
    keeps: tuple[str, ...] = ()


def eliminate_common_subexpressions(p: Program) -> list[Any]:
    return cse.without_repetition(p.steps, p.outputs, results=True)


def eliminate_dead_code(p: Program) -> list[Any]:
    p.closed = True
    return liveness.live_ops(p.steps, [*p.outputs, *p.asserts], p.inputs, p.keep_effects)


def defer_restrides(p: Program) -> list[Any]:
    """Only who gets their tensors sees what operations on tensor objects do: they go behind everything."""
    p.deferred += [op for op in p.steps if op.target._schema.name in liveness.METADATA_WRITERS]
    return [op for op in p.steps if op.target._schema.name not in liveness.METADATA_WRITERS] if p.deferred else p.steps


def form_groups(p: Program) -> list[Any]:
    p.facts["groups"] = f = Fuser(p)
    return list(f.groups)


def rematerialize(p: Program) -> list[Any]:
    return p.fact("groups").inline()


def fuse_producers(p: Program) -> list[Any]:
    return p.fact("groups").join_producers()


def fuse_siblings(p: Program) -> list[Any]:
    return p.fact("groups").join_siblings()


def select_instructions(p: Program) -> list[Any]:
    out = select.instructions(p)
    ordering.depend(out, p.fact("aliases"), p.sizes)
    return out


def form_runs(p: Program) -> list[Any]:
    return [Run([item]) for item in p.steps]


def join_runs(p: Program) -> list[Any]:
    return ordering.join_runs(p.steps, p.fact("aliases"))


def cut_runs(p: Program) -> list[Any]:
    return ordering.cut_runs(p.steps, p.fact("aliases"), p.sizes)


MEMORY = ("aliases", "groups")
CSE, DCE = Pass("cse", eliminate_common_subexpressions), Pass("dce", eliminate_dead_code, required=True)
PATTERN_FUSION, ACCUMULATE = Pass("pattern-fusion", fuse_patterns), Pass("accumulate", accumulate)
SIMPLIFY = (CSE, DCE)
"""What every graph goes through."""
REWRITE = (PATTERN_FUSION, ACCUMULATE)
"""What is done to graphs whose steps stay ATen calls because operations change the layout of tensor objects."""
COMPILE: tuple[Pass, ...] = (
    *REWRITE,
    Pass("defer-restrides", defer_restrides, required=True),
    Pass("form-groups", form_groups, makes=GROUPS, required=True, keeps=MEMORY),
    Pass("rematerialize", rematerialize, at=GROUPS, keeps=MEMORY),
    Pass("fuse-producers", fuse_producers, at=GROUPS, keeps=MEMORY),
    Pass("fuse-siblings", fuse_siblings, at=GROUPS, keeps=MEMORY),
    Pass("call-library", select.library_calls, at=GROUPS, keeps=MEMORY),
    Pass("select", select_instructions, at=GROUPS, makes=INSTRUCTIONS, required=True, keeps=MEMORY),
    Pass("arrange", lambda p: ordering.arrange(p.steps), at=INSTRUCTIONS, keeps=MEMORY),
    Pass("sink", lambda p: ordering.sink(p.steps), at=INSTRUCTIONS, keeps=MEMORY),
    Pass("form-runs", form_runs, at=INSTRUCTIONS, makes=RUNS, required=True, keeps=MEMORY),
    Pass("join-runs", join_runs, at=RUNS, keeps=MEMORY),
    Pass("cut-runs", cut_runs, at=RUNS, keeps=MEMORY),
    Pass("emit", lambda p: Emitter(p).emit(), at=RUNS, makes=CALLS, required=True, keeps=MEMORY),
)
"""To kernels and segments of a target, between ATen calls."""
PASSES = (*SIMPLIFY, *COMPILE)
"""All of them, in order."""

off: set[str] = set()
"""Passes that are left out, by name."""
verifying: ContextVar[bool | None] = ContextVar("verifying", default=None)
"""Whether the verifier runs after each pass; None: where the environment says so."""


@contextlib.contextmanager
def checked(on: bool) -> Iterator[None]:
    """Inside, the verifier runs if `on`, else where the environment says so."""
    token = verifying.set(on or None)
    try:
        yield
    finally:
        verifying.reset(token)


@contextlib.contextmanager
def without(*names: str) -> Iterator[None]:
    """Inside, these passes are left out. ValueError for a name that is no optional pass."""
    wrong = set(names) - {row.name for row in PASSES if not row.required}
    if wrong:
        raise ValueError(f"no pass that could be left out: {', '.join(sorted(wrong))}")
    added = set(names) - off
    off.update(added)
    try:
        yield
    finally:
        off.difference_update(added)


def call_aten(p: Program) -> Program:
    """The program as calls of ATen, no kernels in it."""
    return run(p, (PATTERN_FUSION,))


def run(p: Program, passes: tuple[Pass, ...]) -> Program:
    """The program after these passes. `InternalError` where the verifier finds a rule broken."""
    asked = verifying.get()
    check = env_flag("PLIANT_STRICT") if asked is None else asked
    known: dict[int, Any] = {}
    promise = None
    if check:
        verify(p, "given")
        promise = promised(p)
    for row in passes:
        turns.rest()
        if not row.required and (row.name in off or not search.PASSES.allows((row.name, p.name))):
            continue
        if row.at != p.level:
            raise InternalError(f"the pass {row.name} takes a program at level {row.at}, not {p.level}")
        told = events.watched("pass")  # groups are changed in place, so what was there is told before
        before = program_text(p) if told else ""
        steps = row.run(p)
        if not row.makes and p.level == GRAPH and len(steps) == len(p.steps) and all(map(operator.is_, steps, p.steps)):
            continue
        p = p.replaced(steps, row.makes, row.keeps)
        if check:
            promise = verify(p, row.name, promise, known)
        if told:
            events.emit("pass", name=row.name, program=p.name, level=row.makes, before=before, after=program_text(p))
    return p
