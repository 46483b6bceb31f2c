"""The loops of a code object: which instructions lie between the target of a backward jump and the last jump to it."""

from __future__ import annotations

from collections.abc import Sequence
from types import CodeType

from pliant.bytecode import kinds as K
from pliant.bytecode.decode import Instruction, instructions

BACK = K.JUMPS - {K.FOR_ITER, K.SEND}


def loops(code: CodeType) -> dict[int, int]:
    """The byte offset of each loop's header (that of FOR_ITER, or of a `while` loop's body) -> that of the last jump back to it."""
    return spans([(i.offset, i.operand) for i in instructions(code) if goes_back(i)])


def spans(jumps: Sequence[tuple[int, int]]) -> dict[int, int]:
    found: dict[int, int] = {}
    for at, to in jumps:
        found[to] = max(at, found.get(to, at))
    return found


def goes_back(i: Instruction) -> bool:
    return i.kind in BACK and i.operand <= i.offset


def loop_around(code: CodeType, offset: int) -> int | None:
    """The header of the innermost loop that the instruction at `offset` is in, or begins: a branch in front of it is its first test."""
    found = loops(code)
    following = next((i.following for i in instructions(code) if i.offset == offset and i.kind in K.BRANCHES), None)
    if following in found:
        return following
    return max((h for h, last in found.items() if h <= offset <= last), default=None)
