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


def _decode(code: CodeType) -> Decoded:
    names = code.co_names
    consts = code.co_consts
    raw = [i for i in dis.get_instructions(code)]
    index_at: dict[int, int] = {}
    kept = []
    pending: list[int] = []
    for i in raw:
        if i.opname == "EXTENDED_ARG":
            pending.append(i.offset)
            continue
        for off in pending:
            index_at[off] = len(kept)
        pending.clear()
        index_at[i.offset] = len(kept)
        kept.append(i)
    end = len(kept)
    ins: list[tuple[Callable, Any]] = []
    loop_headers: set[int] = set()
    for i in kept:
        name, arg = i.opname, i.arg
        if name in NAMES:
            arg = names[arg]
        elif name in ("LOAD_CONST", "KW_NAMES"):
            arg = consts[arg]
        elif name == "LOAD_GLOBAL":
            arg = (names[arg >> 1], arg & 1)
        elif "JUMP" in name or name in ("FOR_ITER", "SEND"):
            arg = index_at[i.argval]
            if "BACKWARD" in name:
                loop_headers.add(arg)
        elif name == "BINARY_OP":
            arg = BINARY[arg]
        elif name == "COMPARE_OP":
            arg = COMPARE[arg]
        ins.append((HANDLERS.get(name) or HANDLERS["<unknown>"], arg if name in HANDLERS else name))
    table = []
    for e in dis._parse_exception_table(code):
        start = index_at[e.start]
        stop = index_at.get(e.end, end)
        table.append((start, stop, index_at[e.target], e.depth, e.lasti))
    lines = []
    line = code.co_firstlineno
    for i in kept:
        pos = i.positions.lineno if i.positions is not None else None
        line = pos if pos is not None else line
        lines.append(line)
    cells_only = [c for c in code.co_cellvars if c not in code.co_varnames]
    n = code.co_nlocals + len(cells_only) + len(code.co_freevars)
    return Decoded(
        code, ins, [i.opname for i in kept], [i.offset for i in kept], table, lines, n, len(code.co_freevars),
        len(code.co_cellvars), [UNSET] * n, bool(code.co_flags & 0x20), index_at, loop_headers,
    )  # fmt: skip
