"""What the stack of a frame holds before each instruction: values, saved exception states, instruction indexes."""

from __future__ import annotations

from types import CodeType

from pliant.bytecode import kinds as K
from pliant.bytecode.assemble import exception_table, handler_at
from pliant.bytecode.decode import Instruction, instructions

# What a stack position holds: an ordinary value, the exception state that the entry of a handler saved, an instruction index for RERAISE.
VALUE, PREVIOUS, LASTI = "v", "p", "i"


def stack_marks(code: CodeType) -> dict[int, str]:
    """What the stack holds before each reachable instruction: byte offset -> one character per item, bottom first."""
    by_offset = {i.offset: i for i in instructions(code)}
    todo: list[tuple[int, str]] = [(0, "")]
    seen: dict[int, str] = {}
    table = exception_table(code)
    while todo:
        offset, stack = todo.pop()
        if offset in seen:
            continue
        seen[offset] = stack
        i = by_offset[offset]
        entry = handler_at(table, offset)
        if entry is not None:
            _, _, target, depth, lasti = entry
            todo.append((target, stack[:depth] + (LASTI if lasti else "") + VALUE))
        if i.kind in K.JUMPS:
            todo.append((i.operand, _after(i, stack, jump=True)))
        if not i.kind.ends:
            todo.append((i.following, _after(i, stack, jump=False)))
    return seen


def _after(i: Instruction, stack: str, *, jump: bool) -> str:
    if i.kind is K.PUSH_EXC_INFO:
        return stack[:-1] + PREVIOUS + VALUE
    if i.kind is K.COPY:
        return stack + stack[-i.operand]
    if i.kind is K.SWAP:
        items = list(stack)
        items[-1], items[-i.operand] = items[-i.operand], items[-1]
        return "".join(items)
    pops, pushes = i.kind.stack_effect(i.operand, jump=jump)
    return stack[: len(stack) - pops] + VALUE * pushes
