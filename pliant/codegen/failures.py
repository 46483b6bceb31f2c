"""A compiled graph that raises: which line of the user's program it was, and whether the frame may simply run again.

Every line of a generated program belongs to an operation, or to an assertion, of some line of the user's. Most exceptions that only
the run can tell (an index out of range, a mask of another length) come before the graph has done anything that can be noticed. Then
CPython runs the frame anew: it makes the effects that come before the exception, finds the handlers, and raises what eager raises.
Where that is too late, the traceback of the exception is told in the user's lines.
"""

from __future__ import annotations

import random
import types
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType, TracebackType
from typing import Any

from torch.utils import checkpoint as checkpoints

from pliant.bytecode.assemble import is_covered
from pliant.graph.originals import torch
from pliant.graph.python_random import NUMPYS, draws_from_numpy, draws_from_python

STOPS = (checkpoints._StopRecomputationError, checkpoints.CheckpointError)
"""What hooks of a checkpoint raise through a graph (`checkpointed.py`), which has not failed."""
NEVER = 1 << 30
DRAWN = "_drawn"
"""The variable of a generated program that holds the state of the generators from before its first draw."""
KEPT = "_kept"
"""That which holds the last mark that the run has passed (`graph/leaving.py`): its number, and what its effects need."""
GENERATORS: tuple[tuple[Callable[[Any], bool], Callable[[], Any], Callable[[Any], Any]], ...] = (
    (lambda op: True, torch.random.get_rng_state, torch.random.set_rng_state),
    (draws_from_python, random.getstate, random.setstate),
    (draws_from_numpy, lambda: NUMPYS.get_state(), lambda state: NUMPYS.set_state(state)),
)
"""Of each generator: whether an operation draws from it, what gives its state, and what puts a state back."""


def drawn_from(ops: list[Any]) -> tuple[int, ...]:
    """The rows of the generators that these operations draw from."""
    return tuple([i for i, (draws, _, _) in enumerate(GENERATORS) if any(map(draws, ops))])


def states(*rows: int) -> list[tuple[int, Any]]:
    """The states of these generators."""
    return [(i, GENERATORS[i][1]()) for i in rows]


@dataclass(frozen=True, slots=True)
class Place:
    """A position in the user's program, without its code object: programs live as long as their entries, and entries in code objects."""

    calls: tuple[tuple[str, str, int], ...]  # (file, function, line), the outermost first
    handled: bool  # an exception here may meet a handler in one of these frames


@dataclass(frozen=True, slots=True)
class Places:
    """Of one generated program: the place of each line, the first line that does what running again would do twice, and which variables
    have been written to from which line on, where the program bumps their versions at its end. `entrance`: the line that gives PyTorch a
    program to call which may do such things; that program tells where it was when it raised, and if it had returned, all is done."""

    lines: dict[int, Place]
    effects_from: int = NEVER
    writes: tuple[tuple[int, str], ...] = ()
    entrance: int = 0


PLACES: dict[str, Places] = {}  # by the file name of the generated program


def remember(fn: Any, places: Places) -> None:
    """Keep the places of a generated function as long as it lives."""
    filename = fn.__code__.co_filename
    PLACES[filename] = places
    weakref.finalize(fn, PLACES.pop, filename, None)


def effects_of(fn: Any) -> int:
    """The first line of a generated function that does what running again would do twice."""
    return PLACES[fn.__code__.co_filename].effects_from


def place_of(site: Any, known: dict[int, Place]) -> Place | None:
    """The place of a site (innermost frame first). `known`: those of the callers met so far, by the `id` of their site."""
    if site is None or site.code is None:
        return None
    place = known.get(id(site))
    if place is None:
        caller = place_of(site.outer, known)
        calls, handled = ((), False) if caller is None else (caller.calls, caller.handled)
        place = known[id(site)] = Place((*calls, site.here()), handled or is_covered(site.code, site.offset))
    return place


def where(e: BaseException) -> tuple[Place | None, bool, TracebackType | None]:
    """(the user's place, whether nothing had been done by then, the entries below the generated program)."""
    place, clean, below, known = None, True, None, False
    entering = False
    tb = e.__traceback__
    while tb is not None:
        found = PLACES.get(tb.tb_frame.f_code.co_filename)
        if found is not None:
            known = True
            clean = clean and tb.tb_lineno < found.effects_from
            entering = tb.tb_lineno == found.entrance
            at = found.lines.get(tb.tb_lineno)
            if at is not None:
                place, below = at, tb.tb_next
        tb = tb.tb_next
    return place, clean and known and not entering, below


def failed(e: BaseException, again: Callable[[BaseException, Place | None], None]) -> tuple[int, tuple] | None:
    """`e` came out of a graph, and is about to be raised again. `again(e, place)` leaves if the frame can run anew; else it stays.
    Calls to others (`ExternalCall`) say in what they raise whether they have `begun` to write; if it is of an earlier call, which nobody
    was told of, the frame raises it anew where it comes to one, once it is `pending` again.

    Returns the mark whose effects are to be done before that, if there is one."""
    if isinstance(e, STOPS):
        return None
    place, clean, below = where(e)
    clean = clean and not getattr(e, "begun", False)
    kept = kept_in(e.__traceback__)
    first = e.__context__
    if first is not None and first.__traceback__ is not None and first.__traceback__.tb_frame.f_code.co_filename in PLACES:
        e.__context__ = first.__context__  # native code had failed, and was asked in which check (`first_check.py`)
    if clean:
        pending = getattr(e, "pending", None)
        if pending is not None:
            pending(True)
        draw_anew(e.__traceback__)
        again(e, place)
        if pending is not None:
            pending(False)
    bump(e.__traceback__)
    if place is not None:
        for file, name, line in reversed(place.calls):
            below = TracebackType(below, shown(file, name), -1, line)
        e.__traceback__ = below
    return kept


def kept_in(tb: TracebackType | None) -> tuple[int, tuple] | None:
    """The last mark that the graph has passed."""
    found = None
    while tb is not None:
        if tb.tb_frame.f_code.co_filename in PLACES:
            found = tb.tb_frame.f_locals.get(KEPT, found)
        tb = tb.tb_next
    return found


def bump(tb: TracebackType | None) -> None:
    """Bump the versions of what the graph has written: it raised before it got there itself."""
    while tb is not None:
        found = PLACES.get(tb.tb_frame.f_code.co_filename)
        if found is not None and found.writes:
            torch._C._increment_version([tb.tb_frame.f_locals[name] for line, name in found.writes if line <= tb.tb_lineno])
        tb = tb.tb_next


def draw_anew(tb: TracebackType | None) -> None:
    """Give the generators the state that they had before the graph, if the graph has drawn."""
    while tb is not None:
        state = tb.tb_frame.f_locals.get(DRAWN) if tb.tb_frame.f_code.co_filename in PLACES else None
        if state is not None:
            for i, before in state:
                GENERATORS[i][2](before)
            return
        tb = tb.tb_next


def _stub() -> Any:
    yield


def shown(file: str, name: str) -> FrameType:
    """An empty frame that looks like one of function `name`. Without a table of lines, tracebacks show the line that they are given."""
    code = _stub.__code__.replace(co_filename=file, co_name=name, co_qualname=name, co_linetable=b"")
    frame: FrameType = types.FunctionType(code, {})().gi_frame
    return frame
