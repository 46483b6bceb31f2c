"""The loops of a code object: which instructions, told by their byte offsets, belong to the target of a backward jump."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from types import CodeType

from pliant.bytecode import kinds as K
from pliant.bytecode.decode import Instruction, instructions
from pliant.bytecode.flow import reached, successors
from pliant.bytecode.version import exception_table

BACK = K.JUMPS - {K.FOR_ITER, K.SEND}


@functools.lru_cache(maxsize=256)
def loops(code: CodeType) -> dict[int, frozenset[int]]:
    """The offset of each loop's header (that of FOR_ITER, or of a `while` loop's body) -> those of its instructions.

    These are the ones that come back to the header, and what stands between it and the last jump back: ways out of the loop. Since 3.12
    handlers stand behind everything else. One that goes on with the loop belongs to it; the code that its jump goes back over does not.
    """
    ins = instructions(code)
    index = {i.offset: n for n, i in enumerate(ins)}
    kinds, operands = [i.kind for i in ins], [index[i.operand] if i.kind in K.JUMPS else i.operand for i in ins]
    plainly = [[*successors(kinds, operands, n)] for n in range(len(ins))]
    after = [[*to] for to in plainly]
    before: list[list[int]] = [[] for _ in ins]
    for start, stop, target, _, _ in exception_table(code):
        for n, i in enumerate(ins):
            if start <= i.offset < stop:
                after[n].append(index[target])
    for n, to in enumerate(after):
        for m in to:
            before[m].append(n)
    jumps: dict[int, list[int]] = {}
    for n, i in enumerate(ins):
        if i.kind in BACK and operands[n] <= n:
            jumps.setdefault(operands[n], []).append(n)
    found, in_order = {}, reached(plainly, [0], -1)
    for header, sources in jumps.items():
        others = reached(after, [0], header)  # a jump from there is into the middle of a loop that is entered elsewhere
        sources = [n for n in sources if n not in others]
        if sources:
            last = max([n for n in sources if n in in_order], default=header)
            found[ins[header].offset] = frozenset([ins[n].offset for n in (*range(header, last + 1), *reached(before, sources, header))])
    return found


def ways(ins: Sequence[Instruction], n: int) -> tuple[int, int]:
    """Where the branch `ins[n]` jumps, and where it goes on. Since 3.12 no branch jumps back: it jumps over a jump that does, and is
    read as the branch that it stands for. Since 3.14 an instruction that does nothing marks the way that does not jump."""
    i = ins[n]
    at = n + 2 if n + 1 < len(ins) and ins[n + 1].kind is K.NOP else n + 1
    if i.kind is not K.FOR_ITER and at + 1 < len(ins) and i.operand == ins[at + 1].offset:
        jump = ins[at]
        if jump.kind is K.JUMP and jump.operand <= jump.offset:
            return jump.operand, i.operand
    return i.operand, i.following


def loop_around(code: CodeType, offset: int) -> int | None:
    """The header of the innermost loop that the instruction at `offset` is in, or begins: a branch in front of it is its first test."""
    found = loops(code)
    ins = instructions(code)
    around = min((h for h, inside in found.items() if offset in inside), key=lambda h: len(found[h]), default=None)
    n = next((n for n, i in enumerate(ins) if i.offset == offset and i.kind in K.BRANCHES), None)
    following = ways(ins, n)[1] if n is not None else None
    return following if following in found and (around is None or following in found[around]) else around
