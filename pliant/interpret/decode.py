"""Bytecode to a list of `(handler, operand)` pairs, once per code object.

Operands are resolved here (names, constants, jump targets as instruction indexes, operator functions), so that
handlers do nothing but their work. CPython 3.11; another version is another module with the same face.
"""

from __future__ import annotations

import dis
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
    lines: list[int]
    nlocalsplus: int
    nfree: int
    ncells: int
    template: list
    is_generator: bool
    index_at: dict[int, int]  # byte offset -> instruction index (EXTENDED_ARG prefixes included)
    loop_headers: set[int]  # targets of backward jumps, instruction indexes
    sites: dict[int, Site] = field(default_factory=dict, repr=False)

    def site(self, i: int) -> Site:
        """The place of instruction `i`, whoever called this code."""
        s = self.sites.get(i)
        if s is None:
            s = self.sites[i] = Site(self.code.co_filename, self.lines[i], self.code.co_qualname, self.offsets[i], self.code)
        return s


_decoded: dict[CodeType, Decoded] = {}


def decode(code: CodeType) -> Decoded:
    """The decoded form of `code`, cached."""
    d = _decoded.get(code)
    if d is None or d.code is not code:
        d = _decoded[code] = _decode(code)
    return d


def instructions(code: CodeType) -> tuple[dict[int, int], list[tuple[int, str, int | None]]]:
    """The indexes of instructions by byte offset, and the instructions: (offset, name, operand). `dis` makes more of them, slowly."""
    raw = code.co_code
    index_at: dict[int, int] = {}
    kept: list[tuple[int, str, int | None]] = []
    at = high = 0
    while at < len(raw):
        number = raw[at]
        operand = raw[at + 1] | high
        index_at[at] = len(kept)
        if number == dis.EXTENDED_ARG:
            high = operand << 8
            at += 2
            continue
        high = 0
        kept.append((at, dis.opname[number], operand if number >= dis.HAVE_ARGUMENT else None))
        at += 2 + 2 * CACHES[number]
    return index_at, kept


def _decode(code: CodeType) -> Decoded:
    names = code.co_names
    consts = code.co_consts
    index_at, kept = instructions(code)
    end = len(kept)
    ins: list[tuple[Callable, Any]] = []
    loop_headers: set[int] = set()
    arg: Any
    unknown = HANDLERS["<unknown>"]
    for offset, name, arg in kept:
        if name in NAMES:
            arg = names[arg]
        elif name in ("LOAD_CONST", "KW_NAMES"):
            arg = consts[arg]
        elif name == "LOAD_GLOBAL":
            arg = (names[arg >> 1], arg & 1)
        elif name in JUMPS:
            backward = "BACKWARD" in name
            arg = index_at[offset + 2 + (-2 if backward else 2) * arg]
            if backward:
                loop_headers.add(arg)
        elif name == "BINARY_OP":
            arg = BINARY[arg]
        elif name == "COMPARE_OP":
            arg = COMPARE[arg]
        handler = HANDLERS.get(name)
        ins.append((unknown, name) if handler is None else (handler, arg))
    table = []
    for e in dis._parse_exception_table(code):
        start = index_at[e.start]
        stop = index_at.get(e.end, end)
        table.append((start, stop, index_at[e.target], e.depth, e.lasti))
    lines = []
    line, end_of_line = code.co_firstlineno, 0
    spans = code.co_lines()
    for offset, _, _ in kept:
        while offset >= end_of_line:
            _, end_of_line, found = next(spans, (0, len(code.co_code), None))
            line = found if found is not None else line
        lines.append(line)
    cells_only = [c for c in code.co_cellvars if c not in code.co_varnames]
    n = code.co_nlocals + len(cells_only) + len(code.co_freevars)
    return Decoded(
        code, ins, [name for _, name, _ in kept], [offset for offset, _, _ in kept], table, lines, n, len(code.co_freevars),
        len(code.co_cellvars), [UNSET] * n, bool(code.co_flags & 0x20), index_at, loop_headers,
    )  # fmt: skip
