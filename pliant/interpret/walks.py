"""Where a `for` loop over a range or rows may be one operation, and what walks these in a round of it.

An export pins no size, so `for i in range(x.shape[0])` and `for row in x` are loops that the run counts (`data_loops.py`), if the range is
walked where it is made: nobody else sees a range with symbolic ends. Where the loop is left to Python, the number of rounds is pinned as
for any other range. Ranges that data ends stand for themselves wherever they are made (`data_ranges.py`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from pliant.bytecode import kinds as K
from pliant.graph.originals import ORIGINAL, torch
from pliant.graph.symnode import concrete, expr_of
from pliant.graph.traced import TracedTensor
from pliant.interpret import globalstate
from pliant.interpret.calls import graph_call
from pliant.interpret.data_ranges import DataIterator, DataRange, of_data, rows_of
from pliant.interpret.decode import given_on
from pliant.interpret.state import LEAVE, TRY, Frame, Restart, counts_rounds, current_site, vm
from pliant.interpret.types.row import row
from pliant.symbolic import ops

RESTART = -2  # the serial of no frame: capture again, knowing more of a loop


class Counter:
    """The iterator of a `for` loop over a range, in a round: it stands at a number that only the run knows."""

    __slots__ = ("begins", "now", "over")

    def __init__(self, now: Any, over: Any, begins: Callable[[], None]) -> None:
        self.now = now
        self.over = over
        self.begins = begins  # called when it is known that there is another round


def advance(it: Counter) -> Any:
    """The next number, or item of the tensor whose rows the loop walks."""
    now, over = it.now, it.over
    if not vm.truth(now < over.stop if over.step > 0 else now > over.stop):
        raise StopIteration
    it.begins()
    it.now = now + over.step
    of = over.of if type(over) is DataRange else None
    return now if of is None else graph_call(ORIGINAL.select, (of, 0, now), {}, "select")


row(name="counter of a loop", stands=(Counter,), next=advance)


def counted(f: Frame | None, at: int) -> bool:
    """Whether the `for` loop of `f` with the header `at` may be one operation. The capture starts again to do it."""
    if f is None or not counts_rounds() or vm.asking or globalstate.user_modes():
        return False
    if f.decoded.kinds[at] is not K.FOR_ITER or at not in f.decoded.loop_headers or f.decoded.is_generator or f.held:
        return False
    key = (id(f.code), at)
    known = vm.loops.get(key)
    if known is LEAVE or key in vm.exploring:
        return False
    if known is None:
        vm.loops[key] = TRY
        vm.loop_codes.append(f.code)
        raise Restart(RESTART, len(vm.loop_codes), "PL0002", "a loop on data")
    vm.history.counted = True
    return True


def over_range(bounds: list[Any]) -> Any:
    """`range(*bounds)`, just called: what stands for it, or None for one that is made as it is."""
    f = vm.frame
    start, stop, step = (0, *bounds, 1) if len(bounds) == 1 else (*bounds, 1, 1, 1)[:3]
    symbolic = 0 < len(bounds) < 4 and type(step) is int and step and not all([type(n) is int for n in (start, stop)])
    if symbolic and f is not None and f.stack and f.decoded.kinds[f.pc - 1] is K.CALL:
        if f.decoded.kinds[f.pc] is K.GET_ITER and counted(f, f.pc + 1):
            return DataRange(start, stop, step)
        if f.decoded.kinds[f.pc] is K.GET_ITER and f.decoded.kinds[f.pc + 1] is K.FOR_ITER and counts_rounds():
            return [start + k * step for k in range(rounds_of(ceil_of(start, stop, step), f, f.pc + 1))]
        if listed(f) and all([type(n) is int or n.node.expr.backed for n in (start, stop)]):
            return DataRange(start, stop, step)
    return of_data(bounds)


def list_key(f: Frame, at: int) -> tuple[int, int]:
    """The key among the loops of a capture of a call of `list`: LEAVE says that it makes an ordinary one (`late_lists.py`)."""
    return id(f.code), ~at


def listed(f: Frame) -> bool:
    """Whether the range that is being made is for `list`, which may make a late list of it."""
    if not counts_rounds() or vm.asking or globalstate.user_modes():
        return False
    at, outer = given_on(f)
    return any([v is list for v in outer]) and vm.loops.get(list_key(f, at)) is not LEAVE


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


def over_rows(t: TracedTensor) -> DataIterator | None:
    """`iter(t)`: what stands for it, if a loop is about to walk it."""
    f = vm.frame
    if f is not None and t.sizes and type(t.sizes[0]) is not int and f.decoded.kinds[f.pc - 1] is K.GET_ITER and counted(f, f.pc):
        return DataIterator(DataRange(0, t.sizes[0], 1, t))
    return rows_of(t)


def place(over: DataRange) -> Any:
    """Where a round of the walk stands: a number that is not before the start."""
    u = vm.trace.unbacked(int, lo=over.start if type(over.start) is int and over.step > 0 else None)
    start = expr_of(over.start, vm.scope)
    vm.scope.learn(ops.ge(u, start) if over.step > 0 else ops.le(u, start))
    return u
