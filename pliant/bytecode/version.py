"""The opcodes of the CPython that runs."""

from __future__ import annotations

import dis
import sys
from types import CodeType

from pliant.bytecode.kinds import Kind
from pliant.bytecode.operands import numbers, pools

if sys.version_info >= (3, 14):
    from pliant.bytecode import cpython314 as table
elif sys.version_info >= (3, 13):
    from pliant.bytecode import cpython313 as table
elif sys.version_info >= (3, 12):
    from pliant.bytecode import cpython312 as table
else:
    from pliant.bytecode import cpython311 as table

CACHES, CALLABLE_FIRST, CLOSE_GIVES_A_VALUE, JUMPS_ASK, LOCALS_ARE_SNAPSHOTS, OPCODES, THROW_LEAVES_BY_SEND = (
    table.CACHES, table.CALLABLE_FIRST, table.CLOSE_GIVES_A_VALUE, table.JUMPS_ASK, table.LOCALS_ARE_SNAPSHOTS, table.OPCODES,
    table.THROW_LEAVES_BY_SEND,
)  # fmt: skip
EXTENDED_ARG = dis.opmap["EXTENDED_ARG"]
CACHE = dis.opmap["CACHE"]
OPCODE: dict[Kind, int] = numbers(OPCODES, getattr(table, "WRITTEN_AS", {}))
"""The opcode of each kind that resume functions are written with."""
OPERANDS: dict[Kind, int] = getattr(table, "OPERANDS", {})
"""Their operands, where an opcode is of several kinds."""
INTRINSICS = {n: dis.opmap.get(f"CALL_INTRINSIC_{n}", -1) for n in (1, 2)}
"""The opcodes that call functions of the interpreter, by how many operands these take; since 3.12."""


def exception_table(code: CodeType) -> list[tuple[int, int, int, int, bool]]:
    """(start, end, target, depth of the stack, whether the index of the instruction is pushed), in bytes."""
    return [(e.start, e.end, e.target, e.depth, e.lasti) for e in dis._parse_exception_table(code)]  # type: ignore[attr-defined]


__all__ = [
    "CACHE", "CACHES", "CALLABLE_FIRST", "CLOSE_GIVES_A_VALUE", "EXTENDED_ARG", "INTRINSICS", "JUMPS_ASK", "LOCALS_ARE_SNAPSHOTS",
    "OPCODE", "OPCODES", "OPERANDS", "THROW_LEAVES_BY_SEND", "exception_table", "pools",
]  # fmt: skip
