"""Code objects as lists of `(handler, operand)` pairs, once each. Handlers do nothing but their work: operands are resolved here."""

from __future__ import annotations

import bisect
import functools
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

from pliant import bytecode
from pliant.bytecode import assemble
from pliant.bytecode import kinds as K
from pliant.bytecode.kinds import Kind
from pliant.guards.guard import Site
from pliant.interpret.capture import UNSET
from pliant.interpret.state import Break

HANDLERS: dict[Kind, Callable[[Any, Any], Any]] = {}


def op(*kinds: Kind) -> Callable:
    """Register the handler of instructions of these kinds."""

    def register(fn: Callable) -> Callable:
        for kind in kinds:
            HANDLERS[kind] = fn
        return fn

    return register


@dataclass(slots=True)
class Decoded:
    """`ins[i]` is `(handler, operand)`, `kinds[i]` its kind, `offsets[i]` its byte offset; `table`, the exception table, has indexes."""

    code_ref: weakref.ref[CodeType]  # whoever asks holds it
    ins: list[tuple[Callable, Any]]
    kinds: list[Kind]
    offsets: list[int]
    table: list[tuple[int, int, int, int, bool]]
    nlocalsplus: int
    template: list
    is_generator: bool
    loop_headers: set[int]  # targets of backward jumps, instruction indexes
    sites: weakref.WeakValueDictionary[int, Site] = field(default_factory=weakref.WeakValueDictionary, repr=False)
    spans: tuple[list[int], list[int]] | None = field(default=None, repr=False)  # where a line begins, and its number; made on demand

    @property
    def code(self) -> CodeType:
        code = self.code_ref()
        assert code is not None
        return code

    def index(self, offset: int) -> int:
        """The instruction that begins at this byte offset; past the end, their number."""
        return bisect.bisect_left(self.offsets, offset)

    def site(self, i: int) -> Site:
        """The place of instruction `i`, whoever called this code."""
        s = self.sites.get(i)
        if s is None:
            code = self.code
            s = self.sites[i] = Site(code.co_filename, self.line(i), code.co_qualname, self.offsets[i], code)
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


_decoded: dict[int, Decoded] = {}  # by identity: the hash of a code object is worked out anew each time


def decode(code: CodeType) -> Decoded:
    """The decoded form of `code`, kept as long as that lives."""
    d = _decoded.get(id(code))
    if d is None or d.code_ref() is not code:
        i = id(code)

        def forget(ref: weakref.ref[CodeType]) -> None:
            if (found := _decoded.get(i)) is not None and found.code_ref is ref:
                del _decoded[i]

        d = _decoded[i] = _decode(code, weakref.ref(code, forget))
    return d


@functools.cache
def rows() -> tuple[bytecode.Row, ...]:
    return bytecode.rows(HANDLERS, unknown)


def unknown(f: Any, name: str) -> None:
    raise Break("PL0009", f"the instruction {name}")


def _decode(code: CodeType, ref: weakref.ref[CodeType]) -> Decoded:
    ins, kinds, offsets, loop_headers = bytecode.units(code, rows())
    cells_only = [c for c in code.co_cellvars if c not in code.co_varnames]
    n = code.co_nlocals + len(cells_only) + len(code.co_freevars)
    d = Decoded(ref, ins, kinds, offsets, [], n, [UNSET] * n, bool(code.co_flags & 0x20), loop_headers)
    if code.co_exceptiontable:
        entries = assemble.exception_table(code)
        d.table = [(d.index(start), d.index(end), d.index(target), depth, lasti) for start, end, target, depth, lasti in entries]
    return d


def given_on(f: Any) -> tuple[int, list]:
    """Where the call is that takes alone what the call gives that frame `f` has begun, and the two items of the stack, one of which is its
    function; none where something else is done with that."""
    begin, kinds = f.pc - 1, f.decoded.kinds
    at = next((i for i in range(f.pc, len(kinds)) if kinds[i] is not K.NOP), begin)
    if kinds[at] is not K.CALL or f.decoded.ins[at][1] != 1:
        return at, []
    outer = f.stack[-4 - f.decoded.ins[begin][1] :][:2]
    return at, outer if len(outer) == 2 else []
