"""Code objects read as lists of instructions, with operands resolved: names, constants, operator functions, where jumps go."""

from __future__ import annotations

import bisect
import dis
import functools
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any

from pliant.bytecode import kinds as K
from pliant.bytecode import version
from pliant.bytecode.kinds import Kind
from pliant.bytecode.operands import FIXED, Opcode, Part
from pliant.native import decode_units


@dataclass(slots=True)
class Instruction:
    """An instruction. `offset` is that of its first byte, EXTENDED_ARG prefixes included; the operand of a jump is such an offset, too."""

    kind: Kind
    operand: Any
    offset: int
    following: int  # offset of the instruction behind it


Handler = Callable[[Any, Any], Any]
Row = tuple  # (code units with caches, parts[, others for some operands]); see native/decode.cpp


def rows(
    handlers: dict[Kind, Handler] | None = None,
    otherwise: Handler | None = None,
    opcodes: dict[str, Opcode] = version.OPCODES,
    names: Sequence[str] = dis.opname,
    caches: Sequence[int] = version.CACHES,
) -> tuple[Row, ...]:
    """For each opcode number how it is read; kinds without a handler get `otherwise`, with the opcode's name as operand."""

    def part(p: Part, name: str) -> tuple:
        if handlers is None or p.kind in handlers:
            return (handlers and handlers[p.kind], p.kind, p.way, p.shift, p.fixed)
        return (otherwise, p.kind, FIXED, 0, name)

    out: list[Row] = []
    for number in range(256):
        name = names[number]
        opcode = opcodes.get(name)
        if opcode is None:
            out.append((1, ((otherwise, K.NOP, FIXED, 0, name),)))
            continue
        units = 1 + caches[number]
        parts = tuple(part(p, name) for p in opcode.parts)
        if isinstance(opcode.flagged, dict):
            out.append((units, parts, {n: tuple(part(p, name) for p in others) for n, others in opcode.flagged.items()}))
        elif opcode.flagged:
            out.append((units, parts, tuple(part(p, name) for p in opcode.flagged)))
        else:
            out.append((units, parts))
    return tuple(out)


def units(code: CodeType, table: tuple[Row, ...]) -> tuple[list[tuple[Any, Any]], list[Kind], list[int], set[int]]:
    """([(handler, operand)], kinds, offsets, indexes of the targets of backward jumps); the operand of a jump is an index."""
    return decode_units(code.co_code, table, version.pools(code), version.EXTENDED_ARG)


ROWS = rows()


def instructions(code: CodeType) -> list[Instruction]:
    """The instructions of `code`, in order."""
    pairs, found, offsets, _ = units(code, ROWS)
    ends = [*offsets[1:], len(code.co_code)]
    return [
        Instruction(kind, offsets[operand] if kind in K.JUMPS else operand, at, end)
        for (_, operand), kind, at, end in zip(pairs, found, offsets, ends, strict=True)
    ]


@functools.lru_cache(maxsize=256)
def _kinds(code: CodeType) -> tuple[list[Kind], list[int]]:
    _, found, offsets, _ = units(code, ROWS)
    return found, offsets


def kind_at(code: CodeType, offset: int) -> Kind:
    """The kind of the instruction that begins at, or has in it, byte `offset`."""
    found, offsets = _kinds(code)
    return found[bisect.bisect_right(offsets, offset) - 1]


def instruction_at(code: CodeType, offset: int) -> Instruction:
    """The instruction that begins at, or has in it, byte `offset`."""
    return next(i for i in instructions(code) if offset < i.following)


def disassembly(code: CodeType) -> str:
    """CPython's own listing of one code object, without those nested in it."""
    out = io.StringIO()
    dis.disco(code, file=out)
    return out.getvalue().strip("\n")
