"""Bytecode to a list of `(handler, operand)` pairs, once per code object.

Operands are resolved here (names, constants, jump targets as instruction indexes, operator functions), so that
handlers do nothing but their work. CPython 3.11; another version is another module with the same face.
"""

from __future__ import annotations

import bisect
import dis
import functools
import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

from pliant.guards.guard import Site
from pliant.interpret.capture import UNSET

BINARY = (
    operator.add, operator.and_, operator.floordiv, operator.lshift, operator.matmul, operator.mul, operator.mod,
    operator.or_, operator.pow, operator.rshift, operator.sub, operator.truediv, operator.xor,
    operator.iadd, operator.iand, operator.ifloordiv, operator.ilshift, operator.imatmul, operator.imul, operator.imod,
    operator.ior, operator.ipow, operator.irshift, operator.isub, operator.itruediv, operator.ixor,
)  # fmt: skip
COMPARE = (operator.lt, operator.le, operator.eq, operator.ne, operator.gt, operator.ge)

NAMES = {
    "LOAD_METHOD", "LOAD_ATTR", "STORE_ATTR", "DELETE_ATTR", "LOAD_NAME", "STORE_NAME", "DELETE_NAME", "IMPORT_NAME",
    "IMPORT_FROM", "STORE_GLOBAL", "DELETE_GLOBAL",
}  # fmt: skip

JUMPS = frozenset(name for name in dis.opmap if "JUMP" in name) | {"FOR_ITER", "SEND"}
CACHES: list[int] = dis._inline_cache_entries  # type: ignore[attr-defined]
HANDLERS: dict[str, Callable[[Any, Any], Any]] = {}


def op(*names: str) -> Callable:
    """Register the handler of these opcodes."""

    def register(fn: Callable) -> Callable:
        for name in names:
            HANDLERS[name] = fn
        return fn

    return register


@dataclass(slots=True)
class Decoded:
    """`ins[i]` is `(handler, operand)`, `names[i]` its opcode, `offsets[i]` its byte offset; `table`, the exception table, has indexes."""

    code: CodeType
    ins: list[tuple[Callable, Any]]
    names: list[str]
    offsets: list[int]
    table: list[tuple[int, int, int, int, bool]]
    nlocalsplus: int
    nfree: int
    ncells: int
    template: list
    is_generator: bool
    index_at: dict[int, int]  # byte offset -> instruction index (EXTENDED_ARG prefixes included)
    loop_headers: set[int]  # targets of backward jumps, instruction indexes
    sites: dict[int, Site] = field(default_factory=dict, repr=False)
    spans: tuple[list[int], list[int]] | None = field(default=None, repr=False)  # where a line begins, and its number; made on demand

    def site(self, i: int) -> Site:
        """The place of instruction `i`, whoever called this code."""
        s = self.sites.get(i)
        if s is None:
            s = self.sites[i] = Site(self.code.co_filename, self.line(i), self.code.co_qualname, self.offsets[i], self.code)
        return s

    def line(self, i: int) -> int:
        """The line of instruction `i`; of one that has none, the line before."""
        if self.spans is None:
            starts, lines = [0], [self.code.co_firstlineno]
            for start, _, line in self.code.co_lines():
                if line is not None:
                    starts.append(start)
                    lines.append(line)
            self.spans = starts, lines
        starts, lines = self.spans
        return lines[bisect.bisect_right(starts, self.offsets[i]) - 1]


_decoded: dict[CodeType, Decoded] = {}


def decode(code: CodeType) -> Decoded:
    """The decoded form of `code`, cached."""
    d = _decoded.get(code)
    if d is None or d.code is not code:
        d = _decoded[code] = _decode(code)
    return d


@functools.cache
def rows() -> list[tuple[Callable, str, str, int]]:
    """For each opcode number: its handler, its name, how its operand is resolved, and how many code units with its caches it takes."""
    unknown = HANDLERS["<unknown>"]
    ways = {"LOAD_CONST": "const", "KW_NAMES": "const", "LOAD_GLOBAL": "global", "BINARY_OP": "binary", "COMPARE_OP": "compare"}
    out = []
    for number, name in enumerate(dis.opname):
        way = "none" if number < dis.HAVE_ARGUMENT else "name" if name in NAMES else ways.get(name, "plain")
        if name in JUMPS:
            way = "back" if "BACKWARD" in name else "jump"
        if name not in HANDLERS:
            way = "unknown"
        out.append((HANDLERS.get(name, unknown), name, way, 1 + CACHES[number]))
    return out


def _decode(code: CodeType) -> Decoded:
    consts, attributes, raw = code.co_consts, code.co_names, code.co_code
    index_at: dict[int, int] = {}
    offsets: list[int] = []
    names: list[str] = []
    ins: list[tuple[Callable, Any]] = []
    jumps: list[tuple[int, int]] = []  # (instruction, target's offset)
    loop_headers: set[int] = set()
    table_of = rows()
    end, at, high = len(raw), 0, 0
    while at < end:
        number = raw[at]
        index_at[at] = len(ins)
        operand: Any = raw[at + 1] | high
        if number == dis.EXTENDED_ARG:
            high = operand << 8
            at += 2
            continue
        high = 0
        handler, name, way, units = table_of[number]
        if way == "name":
            operand = attributes[operand]
        elif way == "const":
            operand = consts[operand]
        elif way == "global":
            operand = (attributes[operand >> 1], operand & 1)
        elif way == "jump" or way == "back":
            jumps.append((len(ins), at + 2 + 2 * operand if way == "jump" else at + 2 - 2 * operand))
        elif way == "none":
            operand = None
        elif way == "binary":
            operand = BINARY[operand]
        elif way == "compare":
            operand = COMPARE[operand]
        elif way == "unknown":
            operand = name
        offsets.append(at)
        names.append(name)
        ins.append((handler, operand))
        at += 2 * units
    for i, target in jumps:
        to = index_at[target]
        ins[i] = (ins[i][0], to)
        if table_of[raw[offsets[i]]][2] == "back":
            loop_headers.add(to)
    end = len(ins)
    table = []
    for e in dis._parse_exception_table(code):
        start = index_at[e.start]
        stop = index_at.get(e.end, end)
        table.append((start, stop, index_at[e.target], e.depth, e.lasti))
    cells_only = [c for c in code.co_cellvars if c not in code.co_varnames]
    n = code.co_nlocals + len(cells_only) + len(code.co_freevars)
    return Decoded(
        code, ins, names, offsets, table, n, len(code.co_freevars),
        len(code.co_cellvars), [UNSET] * n, bool(code.co_flags & 0x20), index_at, loop_headers,
    )  # fmt: skip
