"""Encoding of CPython 3.11 code objects: instructions, exception tables, line tables, and what the stack holds where.

Only what `resume.py` needs to put a preamble in front of a user's bytecode. Another CPython version is another module
with the same face.
"""

from __future__ import annotations

import dis
from collections.abc import Iterable
from types import CodeType
from typing import Any

CACHES = dis._inline_cache_entries  # type: ignore[attr-defined]
EXTENDED_ARG = dis.opmap["EXTENDED_ARG"]
CACHE = dis.opmap["CACHE"]
GENERATOR_FLAGS = 0x20 | 0x80 | 0x200  # CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR
TERMINAL = {"RETURN_VALUE", "RAISE_VARARGS", "RERAISE", "JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT"}

# What a stack position holds, when it is not an ordinary value.
VALUE, PREVIOUS, LASTI = "v", "p", "i"

TableEntry = tuple[int, int, int, int, bool]  # (start, end, target: byte offsets; stack depth; push lasti)


def ins(name: str, arg: int = 0) -> bytes:
    """The bytes of one instruction with its EXTENDED_ARG prefixes and inline caches."""
    op = dis.opmap[name]
    out = bytearray()
    for shift in (24, 16, 8):
        if arg >> shift:
            out += bytes((EXTENDED_ARG, arg >> shift & 0xFF))
    out += bytes((op, arg & 0xFF))
    out += bytes((CACHE, 0)) * CACHES[op]
    return bytes(out)


def exception_table(code: CodeType) -> list[TableEntry]:
    """The exception table of `code`, in byte offsets, in order."""
    return [(e.start, e.end, e.target, e.depth, e.lasti) for e in dis._parse_exception_table(code)]  # type: ignore[attr-defined]


def encode_exception_table(entries: Iterable[TableEntry]) -> bytes:
    """The inverse of `exception_table`: big-endian groups of 6 bits, the first byte of an entry marked 0x80."""
    out = bytearray()
    for start, end, target, depth, lasti in entries:
        first = 0x80
        for n in (start // 2, (end - start) // 2, target // 2, depth << 1 | lasti):
            groups = [n & 0x3F]
            while n := n >> 6:
                groups.append(n & 0x3F)
            for g in reversed(groups[1:]):
                out.append(g | 0x40 | first)
                first = 0
            out.append(groups[0] | first)
            first = 0
    return bytes(out)


def handler_at(table: Iterable[TableEntry], offset: int) -> TableEntry | None:
    """The entry that catches what the instruction at `offset` raises."""
    for e in table:
        if e[0] <= offset < e[1]:
            return e
    return None


def no_lines(units: int) -> bytes:
    """Line table entries for `units` code units that belong to no line."""
    out = bytearray()
    while units > 0:
        n = min(units, 8)
        out.append(0x80 | 15 << 3 | n - 1)
        units -= n
    return bytes(out)


def line_step(units: int, delta: int) -> bytes:
    """Line table entries for `units` code units that are `delta` lines after the line before."""
    out = bytearray()
    while units > 0:
        n = min(units, 8)
        out.append(0x80 | 13 << 3 | n - 1)
        value = (-delta << 1 | 1) if delta < 0 else delta << 1
        while value >= 0x40:
            out.append(value & 0x3F | 0x40)
            value >>= 6
        out.append(value)
        units -= n
        delta = 0
    return bytes(out)


def line_at(code: CodeType, offset: int) -> int | None:
    """The source line of the instruction at byte `offset`."""
    for start, end, line in code.co_lines():
        if start <= offset < end:
            return line
    return None


def stack_marks(code: CodeType) -> dict[int, str]:
    """What the stack holds before each reachable instruction: byte offset -> one character per item, bottom first.

    `v` is a value, `p` the exception state that PUSH_EXC_INFO saved for POP_EXCEPT, `i` an instruction index for RERAISE.
    """
    todo: list[tuple[int, str]] = [(0, VALUE if code.co_flags & GENERATOR_FLAGS else "")]
    instructions = {i.offset: i for i in dis.get_instructions(code)}
    following = _following(code, instructions)
    seen: dict[int, str] = {}
    table = exception_table(code)
    while todo:
        offset, stack = todo.pop()
        if offset in seen:
            continue
        seen[offset] = stack
        i = instructions[offset]
        entry = handler_at(table, offset)
        if entry is not None:
            _, _, target, depth, lasti = entry
            todo.append((target, stack[:depth] + (LASTI if lasti else "") + VALUE))
        if i.opcode in dis.hasjrel or i.opcode in dis.hasjabs:
            todo.append((i.argval, _after(i, stack, jump=True)))
        if i.opname not in TERMINAL:
            todo.append((following[offset], _after(i, stack, jump=False)))
    return seen


def _following(code: CodeType, instructions: dict[int, Any]) -> dict[int, int]:
    return {o: o + 2 + 2 * CACHES[i.opcode] for o, i in instructions.items()}


def _after(i: Any, stack: str, *, jump: bool) -> str:
    if i.opname == "PUSH_EXC_INFO":
        return stack[:-1] + PREVIOUS + VALUE
    if i.opname == "COPY":
        return stack + stack[-i.arg]
    if i.opname == "SWAP":
        items = list(stack)
        items[-1], items[-i.arg] = items[-i.arg], items[-1]
        return "".join(items)
    if i.opname == "PRECALL":  # CALL takes the arguments, whatever `dis` says
        return stack
    if i.opname == "CALL":
        return stack[: -i.arg - 2] + VALUE
    arg = i.arg if i.opcode >= dis.HAVE_ARGUMENT else None
    depth = len(stack) + dis.stack_effect(i.opcode, arg, jump=jump)
    return stack[:depth] + VALUE * (depth - len(stack))
