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
from pliant.native import decode_units

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
    loop_headers: set[int]  # targets of backward jumps, instruction indexes
    sites: dict[int, Site] = field(default_factory=dict, repr=False)
    spans: tuple[list[int], list[int]] | None = field(default=None, repr=False)  # where a line begins, and its number; made on demand

    def index(self, offset: int) -> int:
        """The instruction that begins at this byte offset, or whose EXTENDED_ARG prefix does; past the end, their number."""
        return bisect.bisect_left(self.offsets, offset)

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


GLOBAL, JUMP, BACK, ITSELF, NONE, PLAIN = -1, -2, -3, -4, -5, -6  # as native/decode.cpp has them; not negative: the number of a pool
WAYS = {"LOAD_CONST": 1, "KW_NAMES": 1, "LOAD_GLOBAL": GLOBAL, "BINARY_OP": 2, "COMPARE_OP": 3} | dict.fromkeys(NAMES, 0)


@functools.cache
def rows() -> tuple[tuple[Callable, str, int, int], ...]:
    """For each opcode number: its handler, its name, how its operand is resolved, and how many code units with its caches it takes."""
    out = []
    for number, name in enumerate(dis.opname):
        way = NONE if number < dis.HAVE_ARGUMENT else WAYS.get(name, PLAIN)
        if name in JUMPS:
            way = BACK if "BACKWARD" in name else JUMP
        if name not in HANDLERS:
            way = ITSELF
        out.append((HANDLERS.get(name, HANDLERS["<unknown>"]), name, way, 1 + CACHES[number]))
    return tuple(out)


def _decode(code: CodeType) -> Decoded:
    pools = (code.co_names, code.co_consts, BINARY, COMPARE)
    ins, names, offsets, loop_headers = decode_units(code.co_code, rows(), pools, dis.EXTENDED_ARG)
    cells_only = [c for c in code.co_cellvars if c not in code.co_varnames]
    n = code.co_nlocals + len(cells_only) + len(code.co_freevars)
    d = Decoded(
        code, ins, names, offsets, [], n, len(code.co_freevars),
        len(code.co_cellvars), [UNSET] * n, bool(code.co_flags & 0x20), loop_headers,
    )  # fmt: skip
    if code.co_exceptiontable:
        d.table = [(d.index(e.start), d.index(e.end), d.index(e.target), e.depth, e.lasti) for e in dis._parse_exception_table(code)]  # type: ignore[attr-defined]
    return d
