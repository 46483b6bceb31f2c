"""Functions that are better called than interpreted: their decisions keep changing, and hardly anything in them is done with tensors.

What makes a batch of a list of rows walks lists of every length. Interpreted as a part of the frame that calls it, it makes a graph for
each, and then pieces of three instructions, each with guards and a frame: ten times what Python takes. So the graph breaks once, in front
of the call, and CPython makes it; what is given tensors in there is compiled as a region of its own, as below any graph break.

| what keeps changing                                             | from then on                                          |
|-----------------------------------------------------------------|-------------------------------------------------------|
| what a function without any operation walks (a list             | the outermost function around it that does FEW        |
| comprehension over numbers and texts), beyond short lists       | operations or less is called apart                    |
| what is walked by a loop in whose rounds there is none, in a    | the same                                              |
| function with FEW at most: long lists, or a third length        |                                                       |
| SOME decisions of a function                                    | it is split at each further one the first time        |
| MANY decisions of a function that does EACH operations for each | it is called apart, and CPython runs all of it        |
| of them at most                                                 |                                                       |
| a comprehension over plain values, in which the graph breaks    | it is called apart at once: that capture is dropped   |
| a decision of the frame itself, or of one that does more        | as `history` says                                     |
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from types import CodeType
from typing import NamedTuple

from pliant import events, native
from pliant.jit.resume import origin_of
from pliant.jit.weak_ids import WeakIdDict

FEW = 16
SOME, MANY = 2, 4
EACH = 5
COMPREHENSIONS = ("<listcomp>", "<setcomp>", "<dictcomp>")


class Call(NamedTuple):
    """How a function was last called in a capture: from where, and how many operations came of it at most."""

    caller: weakref.ref[CodeType]
    operations: int


class Calls:
    """The functions that captures of one code object have interpreted."""

    def __init__(self) -> None:
        self.known: WeakIdDict[Call] = WeakIdDict()
        self.walked: WeakIdDict[dict[int, int]] = WeakIdDict()  # operations in a loop at most, by where its iterator is made

    def met(self, calls: Iterable[tuple[CodeType, CodeType, int, bool]], walks: Iterable[tuple[CodeType, dict[int, int]]]) -> None:
        """A capture has made these calls (what of, who by, operations, whether to their end) and has walked so."""
        for code, walked in walks:
            most = self.walked.get(code)
            if most is None:
                most = self.walked[code] = {}
            for offset, operations in walked.items():
                most[offset] = max(most.get(offset, 0), operations)
        for code, caller, operations, whole in calls:
            if whole:
                before = self.known.get(code)
                self.known[code] = Call(weakref.ref(caller), max(operations, before.operations if before is not None else 0))

    def idle(self, code: CodeType, offset: int) -> bool:
        """Whether nothing is done with tensors in loops over what is walked from this instruction on."""
        return (self.walked.get(code) or {}).get(offset) == 0

    def around(self, code: CodeType, most: int) -> CodeType | None:
        """The outermost function around `code` (or itself) with FEW operations, if that one has `most`."""
        found, seen = None, set()
        while (call := self.known.get(code)) is not None and call.operations <= most and id(code) not in seen:
            found, most = code, FEW
            seen.add(id(code))
            caller = call.caller()
            if caller is None:
                break
            code = origin_of(caller)[0]
        return found


class Function:
    """What a region knows of a function of the program."""

    __slots__ = ("apart", "inlined", "operations", "splits")

    def __init__(self) -> None:
        self.apart = False  # it is called, not interpreted
        self.inlined = False  # it has been interpreted as a part of another
        self.operations = 0  # of it at most, or of a piece of it behind a graph break
        self.splits = 0  # decisions at which the graph is split


class Functions:
    """What a region knows of the functions of the program, by their code."""

    def __init__(self) -> None:
        self.known: WeakIdDict[Function] = WeakIdDict()
        self.some_apart = False

    def at(self, code: CodeType) -> Function:
        found = self.known.get(code)
        if found is None:
            found = self.known[code] = Function()
        return found

    def note(self, code: CodeType, operations: int, inlined: bool) -> None:
        """So many operations have come of this function, or of a piece of it."""
        found = self.at(code)
        found.operations = max(found.operations, operations)
        found.inlined |= inlined

    def apart(self, code: CodeType) -> bool:
        """Whether the graph breaks in front of calls of this function."""
        found = self.known.get(code) if self.some_apart else None
        return found is not None and found.apart

    def all_apart(self) -> list[CodeType]:
        return [code for code, found in self.known.items() if found.apart] if self.some_apart else []

    def impatient(self, code: CodeType) -> bool:
        """Whether it is known of this function that its decisions change."""
        found = self.known.get(code)
        return found is not None and found.splits >= SOME

    def call_apart(self, code: CodeType) -> None:
        found = self.at(code)
        if not found.apart:
            found.apart = self.some_apart = True
            where = f"{code.co_filename}:{code.co_qualname}"
            events.emit("policy", what="its decisions keep changing: it is called, not interpreted", where=where)

    def breaks_in(self, frames: list, inlined: dict[int, tuple]) -> bool:
        """The graph has broken in the last of these frames. Whether that one is called from now on: a comprehension in which nothing was
        done with tensors, each round of which would be a piece or two. `inlined`: what the capture says of the functions it has met."""
        code = frames[-1].code
        if len(frames) < 2 or code.co_name not in COMPREHENSIONS or self.apart(code) or inlined.get(id(code), (0, 0, 1))[2]:
            return False
        self.call_apart(code)
        return True

    def split(self, code: CodeType) -> bool:
        """The graph is split at one more decision of this function. Whether CPython runs all of it instead, from now on."""
        found = self.at(code)
        found.splits += 1
        if not found.inlined or found.splits < MANY or found.operations > EACH * found.splits:
            return False
        self.call_apart(code)
        native.set_flags(code, native.get_flags(code) | native.PASS)
        return True
