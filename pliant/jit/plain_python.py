"""Rests of frames that are Python alone: behind a graph break nothing is done with tensors, so CPython is left to run them.

A loop over the numbers of `tolist()` that branches on them is a resume function for each piece, and none has a graph: to guard and to
resume costs ten times what the pieces do. What decides is what was seen of the rest of a frame, over all its pieces:

| seen                                              | from then on                                       |
|---------------------------------------------------|----------------------------------------------------|
| a piece with operations                           | it is compiled as ever, but for the last row but   |
|                                                   | one                                                |
| FEW pieces without any, one of which returned,    | CPython runs the rest in one go, and `tolist` in   |
| and none that ended at a call                     | front of it                                        |
| SOME pieces without any, one of which returned    | the same; what they call is still compiled         |
| MANY pieces, WORTH_IT operations each at most,    | the same; what they call is still compiled         |
| whatever they ended at                            |                                                    |
| nothing in front of it, either                    | CPython runs the whole frame                       |
"""

from __future__ import annotations

from types import CodeType
from typing import Any

from pliant import events, native
from pliant.graph.traced import TracedTensor
from pliant.interpret.called_apart import APART
from pliant.interpret.capture import BreakExit, Return
from pliant.interpret.lookasides import PYTHON_ALONE
from pliant.jit import resume
from pliant.jit.nested_frames import calls_python
from pliant.jit.weak_ids import WeakIdDict

FEW = 4
SOME = 8
MANY = 16
WORTH_IT = 3
"""Calls of PyTorch that save what the guards and the frame of a piece cost."""
DECISION = "Decision"
DECISIONS = ("branch", "branch_none", "loop")


def exit_name(exit_: Any) -> str:
    """How a piece ends: DECISION where its own frame decides something of numbers, whatever else by the name of the exit's class."""
    if type(exit_) is BreakExit and len(exit_.frames) == 1:
        kind, *what = exit_.action
        if kind in DECISIONS or exit_.reason in (PYTHON_ALONE, APART) or kind == "call" and of_python_alone(*what):
            return DECISION
    return type(exit_).__name__


def of_python_alone(fn: Any, args: Any, kwargs: Any) -> bool:
    """Whether a call is an operator of Python on its own values."""
    return getattr(fn, "__module__", "") == "_operator" and not kwargs and not any([type(a) is TracedTensor for a in args]) and (
        not calls_python(fn, args, kwargs)
    )


class Seen:
    """What was seen of the pieces of one code object behind graph breaks."""

    __slots__ = ("alone", "calls", "operations", "pieces", "resumed", "returned")

    def __init__(self) -> None:
        self.pieces = 0
        self.returned = False
        self.calls = False
        self.operations = 0
        self.alone = False
        self.resumed: list[CodeType] = []


class PlainPython:
    """By code object of the program: whether the rest of its frames is Python alone."""

    def __init__(self) -> None:
        self.seen: WeakIdDict[Seen] = WeakIdDict()

    def leaves(self, code: CodeType) -> bool:
        """Whether CPython is to run this resume function."""
        if not len(self.seen):
            return False
        origin, shift = resume.origin_of(code)
        found = self.seen.get(origin) if shift else None
        return found is not None and found.alone

    def alone(self, code: CodeType) -> bool:
        """Whether the rest of the frames of this code of the program is left to CPython."""
        found = self.seen.get(code)
        return found is not None and found.alone

    def note(self, code: CodeType, operations: int, exit_: str) -> None:
        """An entry was made of `code`: with so many calls of PyTorch, ending as `exit_` says (`exit_name`)."""
        origin, shift = resume.origin_of(code)
        returned = exit_ == Return.__name__
        if not shift:
            if not operations and not returned and self.alone(code):
                native.clear(code)
                native.set_flags(code, native.get_flags(code) | native.RUN_ONLY)
            return
        found = self.seen.get(origin)
        if found is None:
            found = self.seen[origin] = Seen()
        if found.alone:
            return
        found.operations += operations
        found.calls |= exit_ == BreakExit.__name__
        found.pieces += 1
        found.returned |= returned
        found.resumed.append(code)
        if found.operations > WORTH_IT * max(found.pieces, MANY):
            found.resumed.clear()  # it will not come to that
        few = not found.operations and found.pieces >= (SOME if found.calls else FEW) and found.returned
        if few or found.pieces >= MANY and found.operations <= WORTH_IT * found.pieces:
            self.leave(origin)

    def leave(self, origin: CodeType) -> None:
        """Behind the graph breaks of this code CPython goes on."""
        found = self.seen.get(origin)
        if found is None:
            found = self.seen[origin] = Seen()
        found.alone = True
        for piece in (origin, *found.resumed):
            native.clear(piece)
        found.resumed.clear()
        where = f"{origin.co_filename}:{origin.co_qualname}"
        events.emit("policy", what="behind its graph breaks CPython goes on: hardly anything there is done with tensors", where=where)
