"""Writing code objects: instructions, exception tables and line tables, for the preamble that a resume function puts before a program's."""

from __future__ import annotations

import builtins
import functools
import itertools
from collections.abc import Iterable
from types import CodeType, FunctionType

from pliant.bytecode import kinds as K
from pliant.bytecode import version
from pliant.bytecode.kinds import Kind

TableEntry = tuple[int, int, int, int, bool]  # (start, end, target: byte offsets; stack depth; push lasti)
UNIT = 2  # bytes of a code unit


def ins(kind: Kind, operand: int = 0) -> bytes:
    """The bytes of one instruction with its EXTENDED_ARG prefixes and inline caches; jumps go forward by code units."""
    op, operand = version.OPCODE[kind], version.OPERANDS.get(kind, operand)
    out = bytearray()
    for shift in (24, 16, 8):
        if operand >> shift:
            out += bytes((version.EXTENDED_ARG, operand >> shift & 0xFF))
    out += bytes((op, operand & 0xFF))
    out += bytes((version.CACHE, 0)) * version.CACHES[op]
    return bytes(out)


def never_started(size: int) -> bytes:
    """Code of `size` bytes that makes a generator, which does nothing if it is started."""
    begin = ins(K.RETURN_GENERATOR) + ins(K.POP) + ins(K.RESUME) + ins(K.RETURN)
    return begin + ins(K.NOP) * ((size - len(begin)) // UNIT)


def resumed_yield(code: CodeType, offset: int) -> tuple[int, int] | None:
    """The operands of the yield before `offset` and of the RESUME there, if they are that."""
    raw = code.co_code
    if raw[offset] != version.OPCODE[K.RESUME] or raw[offset - UNIT] != version.OPCODE[K.YIELD]:
        return None
    return raw[offset - 1], raw[offset + 1]


@functools.cache
def intrinsic(number: int, operands: int) -> FunctionType:
    """A function that does what one of the interpreter's own does, on its operands: type parameters, and what has them, are made so."""
    code = (lambda a: a).__code__ if operands == 1 else (lambda a, b: b).__code__
    raw = ins(K.RESUME) + b"".join([ins(K.LOAD_LOCAL, i) for i in range(operands)])
    raw += bytes((version.INTRINSICS[operands], number)) + ins(K.RETURN)
    code = code.replace(co_code=raw, co_stacksize=2, co_linetable=no_lines(len(raw) // UNIT), co_name="intrinsic", co_qualname="intrinsic")
    return FunctionType(code, {"__builtins__": builtins})  # through which some import


@functools.cache
def keyword_merger(file: str) -> FunctionType:
    """A function, of this file, of a callable, a dict and what is merged into that as keywords: by the instruction, whose words name the
    callable."""
    below = [0] * (2 + version.CALLABLE_FIRST)  # the callable where CPython looks for it
    raw = ins(K.RESUME) + b"".join([ins(K.LOAD_LOCAL, i) for i in (*below, 1, 2)]) + ins(K.DICT_MERGE, 1)
    raw += ins(K.POP) * (len(below) + 1) + ins(K.LOAD_LOCAL, 1) + ins(K.RETURN)
    code = (lambda a, b, c: b).__code__
    code = code.replace(co_code=raw, co_stacksize=len(below) + 2, co_linetable=no_lines(len(raw) // UNIT), co_filename=file)
    return FunctionType(code, {})


exception_table = version.exception_table


def encode_exception_table(entries: Iterable[TableEntry]) -> bytes:
    """The inverse of `exception_table`: big-endian groups of 6 bits, the first byte of an entry marked 0x80."""
    out = bytearray()
    for start, end, target, depth, lasti in entries:
        first = 0x80
        for n in (start // UNIT, (end - start) // UNIT, target // UNIT, depth << 1 | lasti):
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


def is_covered(code: CodeType, offset: int) -> bool:
    """Whether a handler of `code` (an `except`, `finally` or `with`) covers the instruction at `offset`."""
    return handler_at(exception_table(code), offset) is not None


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
        out += varint((-delta << 1 | 1) if delta < 0 else delta << 1)
        units -= n
        delta = 0
    return bytes(out)


def varint(value: int) -> bytes:
    """A number of the line table: groups of 6 bits, all but the last marked 0x40."""
    out = bytearray()
    while value >= 0x40:
        out.append(value & 0x3F | 0x40)
        value >>= 6
    out.append(value)
    return bytes(out)


Span = tuple[int, int | None, int | None, int | None]
"""Line, last line, column, last column: what `co_positions` tells of an instruction."""


def place_at(code: CodeType, offset: int) -> Span | None:
    """Where the instruction at byte `offset` stands in the source."""
    line, end, column, end_column = next(itertools.islice(code.co_positions(), offset // UNIT, None), (None, None, None, None))
    return None if line is None else (line, end, column, end_column)


def one_place(units: int, end: int, column: int, end_column: int) -> bytes:
    """Line table entries for `units` code units that all stand at one place, which begins on the first line and ends `end` lines below."""
    entry = varint(0) + varint(end) + varint(column + 1) + varint(end_column + 1)
    return b"".join([bytes((0x80 | 14 << 3 | min(units - at, 8) - 1,)) + entry for at in range(0, units, 8)])


def on_line(code: CodeType, line: int, end: int | None = None, column: int | None = None, end_column: int | None = None) -> CodeType:
    """The code, and what it holds of other code, as if all of it stood on one line, or at one place of it: tracebacks mark that."""
    consts = tuple([on_line(c, line, end, column, end_column) if isinstance(c, CodeType) else c for c in code.co_consts])
    units = len(code.co_code) // UNIT
    known = end is not None and column is not None and end_column is not None
    table = one_place(units, end - line, column, end_column) if known else line_step(units, 0)  # type: ignore[operator,arg-type]
    return code.replace(co_consts=consts, co_firstlineno=line, co_linetable=table)


def line_at(code: CodeType, offset: int) -> int | None:
    """The source line of the instruction at byte `offset`."""
    for start, end, line in code.co_lines():
        if start <= offset < end:
            return line
    return None
