"""`for` loops over ranges and rows of which only a size tells how many there are: what walks them, where a loop may be one operation.

An export pins no size, so `for i in range(x.shape[0])` and `for row in x` are loops that the run counts (`data_loops.py`). What the
instruction before such a loop makes is a `Walk`; where the loop is left to Python, the number of rounds is pinned as for any other range.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import torch

from pliant.bytecode import kinds as K
from pliant.graph.originals import ORIGINAL
from pliant.graph.symnode import concrete, expr_of
from pliant.graph.traced import TracedTensor
from pliant.interpret import globalstate
from pliant.interpret.calls import graph_call
from pliant.interpret.data_ranges import DataRange
from pliant.interpret.state import LEAVE, TRY, Frame, Restart, current_site, vm
from pliant.interpret.types.row import row
from pliant.symbolic import ops

RESTART = -2  # the serial of no frame: capture again, knowing more of a loop


class Span(NamedTuple):
    """A range whose ends may be symbolic; with `rows`, what is walked are rows of that tensor."""

    start: Any
    stop: Any
    step: int
    rows: Any = None


class Walk:
    """The iterator of a `for` loop over a span that nobody has begun to walk."""

    __slots__ = ("over",)

    def __init__(self, over: Span) -> None:
        self.over = over


class Counter:
    """The iterator of a `for` loop over a range, in a round: it stands at a number that only the run knows."""

    __slots__ = ("now", "over")

    def __init__(self, now: Any, over: Any) -> None:
        self.now = now
        self.over = over


def advance(it: Counter) -> Any:
    now, over = it.now, it.over
    if not vm.truth(now < over.stop if over.step > 0 else now > over.stop):
        raise StopIteration
    it.now = now + over.step
    rows = over.rows if type(over) is Span else over.of if type(over) is DataRange else None
    return now if rows is None else graph_call(ORIGINAL.select, (rows, 0, now), {}, "select")


row(name="counter of a loop", stands=(Counter,), next=advance)


def walk(over: Span, f: Frame | None, at: int) -> Walk | None:
    """What walks `over` in the `for` loop of `f` with the header `at`, if that may be one operation. The capture starts again to do it."""
    if f is None or not getattr(vm.history, "counts_rounds", False) or vm.asking or globalstate.user_modes():
        return None
    if f.decoded.kinds[at] is not K.FOR_ITER or at not in f.decoded.loop_headers or f.decoded.is_generator or f.held:
        return None
    key = (id(f.code), at)
    known = vm.loops.get(key)
    if known is LEAVE or key in vm.exploring:
        return None
    if known is None:
        vm.loops[key] = TRY
        vm.loop_codes.append(f.code)
        raise Restart(RESTART, len(vm.loop_codes), "PL0002", "a loop on data")
    vm.history.counted = True
    return Walk(over)


def over_range(start: Any, stop: Any, step: Any) -> Any:
    """`range(start, stop, step)`, just called: what stands for it if a loop is about to walk it."""
    f = vm.frame
    if type(step) is not int or not step or all([type(n) is int for n in (start, stop)]) or f is None:
        return None
    i = f.pc
    if f.decoded.kinds[i - 1] is not K.CALL or f.decoded.kinds[i] is not K.GET_ITER or f.stack[-1:] == []:
        return None
    found = walk(Span(start, stop, step), f, i + 1)
    if found is None and f.decoded.kinds[i + 1] is K.FOR_ITER and getattr(vm.history, "counts_rounds", False):
        return [start + k * step for k in range(rounds_of(ceil_of(start, stop, step), f, i + 1))]
    return found


def rounds_of(n: Any, f: Frame, at: int) -> int:
    """How many rounds there are is pinned, rather than where the range ends. For steps of more than one it is a branch on a size."""
    e = expr_of(n, vm.scope)
    if type(n) is torch.SymInt and e.op != "sym" and e.hint is not None:
        site: Any = current_site()
        vm.scope.decide(ops.eq(e, e.hint), dataclasses.replace(site, offset=f.decoded.offsets[at]))
    return int(concrete(n))


def ceil_of(start: Any, stop: Any, step: int) -> Any:
    """The length of a range."""
    n = stop - start if step > 0 else start - stop
    return torch.sym_max((n + abs(step) - 1) // abs(step), 0)


def over_rows(t: TracedTensor) -> Any:
    """`iter(t)`, where a loop is about to walk it."""
    f = vm.frame
    if f is None or not t.sizes or type(t.sizes[0]) is int or f.decoded.kinds[f.pc - 1] is not K.GET_ITER:
        return None
    return walk(Span(0, t.sizes[0], 1, t), f, f.pc)


def unrolled(it: Walk) -> Any:
    """The first item, where each round is captured after all: how many there are is pinned."""
    f, over = vm.frame, it.over
    assert f is not None and f.stack[-1] is it
    if over.rows is not None:
        concrete(over.rows.sizes[0])
        f.stack[-1] = iter(graph_call(ORIGINAL.unbind, (over.rows, 0), {}, "unbind"))
    else:
        f.stack[-1] = iter(range(*[int(concrete(n)) for n in over[:3]]))
    rounds: Any = f.stack[-1]
    return next(rounds)


row(name="walk", stands=(Walk,), iter=lambda it: it, next=unrolled)


def place(over: Span) -> Any:
    """Where a round of the walk stands: a number that is not before the start."""
    u = vm.trace.unbacked(int, lo=over.start if type(over.start) is int and over.step > 0 else None)
    start = expr_of(over.start, vm.scope)
    vm.scope.learn(ops.ge(u, start) if over.step > 0 else ops.le(u, start))
    return u


__all__ = ["Counter", "Span", "Walk", "over_range", "over_rows", "place"]
