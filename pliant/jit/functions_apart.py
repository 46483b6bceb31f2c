"""Functions that are better called than interpreted: their decisions keep changing, and hardly anything in them is done with tensors.

What makes a batch of a list of rows walks lists of every length. Interpreted as a part of the frame that calls it, it makes a graph for
each, and then pieces of three instructions, each with guards and a frame: ten times what Python takes. So the graph breaks once, in front
of the call, and CPython makes it; what is given tensors in there is compiled as a region of its own, as below any graph break.

| what keeps changing                                             | from then on                                          |
|-----------------------------------------------------------------|-------------------------------------------------------|
| what a function without any operation walks (a list             | at once: the outermost function around it that does   |
| comprehension over numbers and texts)                           | FEW operations or less is called apart                |
| a decision of a function that does FEW operations or less, when | the same                                              |
| the graph would be split there                                  |                                                       |
| a decision of the frame itself, or of one that does more        | as `history` says                                     |
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from types import CodeType
from typing import NamedTuple

from pliant.jit.resume import origin_of
from pliant.jit.weak_ids import WeakIdDict

FEW = 32


class Call(NamedTuple):
    """How a function was last called in a capture: from where, and how many operations came of it at most."""

    caller: weakref.ref[CodeType]
    operations: int


class Calls:
    """The functions that captures of one code object have interpreted."""

    def __init__(self) -> None:
        self.known: WeakIdDict[Call] = WeakIdDict()

    def met(self, calls: Iterable[tuple[CodeType, CodeType, int]]) -> None:
        """A capture has made these calls: what of, who by, operations."""
        for code, caller, operations in calls:
            self.known[code] = Call(weakref.ref(caller), operations)

    def around(self, code: CodeType, most: int) -> CodeType | None:
        """The outermost function around `code` (or itself) with FEW operations, if that one has no more than `most`."""
        found, seen = None, set()
        while (call := self.known.get(code)) is not None and call.operations <= most and id(code) not in seen:
            found, most = code, FEW
            seen.add(id(code))
            caller = call.caller()
            if caller is None:
                break
            code = origin_of(caller)[0]
        return found
