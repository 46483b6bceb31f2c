"""What the control flow of a code object looks like: which locals live where, loops, and where the sides of a branch meet."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from types import CellType
from typing import Any

from pliant.bytecode import kinds as K
from pliant.bytecode.flow import live_locals, meeting_point, natural_loop, successors
from pliant.bytecode.natural_loops import loop_around
from pliant.interpret.decode import Decoded
from pliant.interpret.state import LoopBackSignal

NAMESPACES = {"locals", "vars", "eval", "exec", "dir"}
"""Functions that look at the variables of their caller."""


class Stopped(LoopBackSignal):
    """A way has come to an instruction at which it ends."""


class Key:
    """A decoded code object, by identity."""

    __slots__ = ("decoded",)

    def __init__(self, decoded: Decoded) -> None:
        self.decoded = decoded

    def __hash__(self) -> int:
        return id(self.decoded)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Key) and other.decoded is self.decoded


@dataclass(slots=True)
class Shape:
    """A loop of a code object: its instructions, where its ways out meet (nowhere: they return), and which locals live where."""

    header: int
    inside: frozenset[int]
    ends: tuple[int, ...]
    live: list[int]

    @property
    def behind(self) -> int | None:
        return self.ends[0] if self.ends else None


def is_cell(v: Any) -> bool:
    return type(v) is CellType


@functools.lru_cache(maxsize=256)
def live_of(d: Key) -> list[int]:
    return live_locals(d.decoded.kinds, [a for _, a in d.decoded.ins], d.decoded.table)


@functools.lru_cache(maxsize=256)
def live_where_nothing_raises(d: Key) -> list[int]:
    return live_locals(d.decoded.kinds, [a for _, a in d.decoded.ins], ())


@functools.lru_cache(maxsize=256)
def loop_of(d: Key, header: int) -> frozenset[int]:
    """The instructions of the loop with this header."""
    return natural_loop(d.decoded.kinds, [a for _, a in d.decoded.ins], header)


@functools.lru_cache(maxsize=256)
def shape_of(d: Key, header: int) -> Shape | None:
    """The loop with this header. None for one that has no way out, or in code that looks at its own variables."""
    decoded = d.decoded
    operands = [a for _, a in decoded.ins]
    if decoded.is_generator or NAMESPACES & {*decoded.code.co_names}:
        return None
    inside = loop_of(d, header)
    out = {j for i in inside for j in successors(decoded.kinds, operands, i) if j not in inside and decoded.kinds[j] is not K.RERAISE}
    if not out:
        return None
    return Shape(header, inside, meeting_point(decoded.kinds, operands, inside, out), live_of(d))


TESTS = K.BRANCHES - {K.FOR_ITER} | {
    K.JUMP, K.NOP, K.LOAD_LOCAL, K.LOAD_CONST, K.LOAD_GLOBAL, K.LOAD_DEREF, K.LOAD_ATTR, K.LOAD_METHOD, K.LOAD_ITEM, K.LOAD_SLICE,
    K.PUSH_NULL, K.CALL, K.CALL_KW, K.KEYWORDS, K.COMPARE, K.BINARY, K.UNARY, K.NOT, K.TO_BOOL, K.IS, K.CONTAINS, K.COPY, K.SWAP, K.POP,
    K.BUILD_TUPLE, K.BUILD_LIST, K.BUILD_SLICE,
}  # fmt: skip
"""What the test of a loop is made of."""


def begins(d: Decoded, i: int) -> int | None:
    """The header of the `while` loop of whose first test the branch at `i` is a part."""
    header = min([h for h in d.loop_headers if h > i], default=None)
    if header is None or d.kinds[header] is K.FOR_ITER or any([kind not in TESTS for kind in d.kinds[i + 1 : header]]):
        return None
    ways = {d.ins[k][1] for k in range(i, header) if d.kinds[k] in K.JUMPS}
    inside = loop_of(Key(d), header)
    return header if len(inside) > 1 and all([w not in inside or w == header for w in ways]) else None


def of_while(d: Decoded, at: int) -> bool:
    """Whether an instruction tests if a `while` loop begins, or the innermost loop around it is one: each round would be another exit."""
    header = loop_around(d.code, d.offsets[at])
    return (header is not None and d.kinds[d.index(header)] is not K.FOR_ITER) or begins(d, at) is not None


@dataclass(slots=True)
class Sides:
    """The sides of a branch: their instructions, where they meet (nowhere: they return), and which locals live where."""

    inside: frozenset[int]
    ends: tuple[int, ...]
    live: list[int]

    @property
    def meet(self) -> int | None:
        return self.ends[0] if self.ends else None


ENDS = frozenset((
    K.YIELD, K.SEND, K.GET_YIELD_FROM_ITER, K.IMPORT_NAME, K.IMPORT_FROM, K.IMPORT_STAR, K.STORE_GLOBAL, K.DELETE_GLOBAL, K.STORE_NAME,
    K.DELETE_NAME, K.STORE_DEREF, K.DELETE_DEREF, K.DELETE_ATTR, K.DELETE_ITEM, K.ENTER, K.LOAD_SPECIAL, K.RAISE,
    K.RERAISE,
))  # fmt: skip
"""Instructions that have an effect, or raise: a branch with one of them on a side is not tried."""


@functools.lru_cache(maxsize=1024)
def sides_of(d: Key, branch: int) -> Sides | None:
    """The sides of the branch at an instruction. None where they do not end, or have effects that can be told from the instructions."""
    decoded = d.decoded
    operands = [a for _, a in decoded.ins]
    if NAMESPACES & {*decoded.code.co_names}:
        return None
    starts = successors(decoded.kinds, operands, branch)
    ends = meeting_point(decoded.kinds, operands, frozenset((branch,)), starts)
    inside: set[int] = set()
    todo = [i for i in starts if i not in ends]
    while todo:
        i = todo.pop()
        if i not in inside:
            inside.add(i)
            todo += [j for j in successors(decoded.kinds, operands, i) if j not in ends]
    if branch in inside or not ends and decoded.is_generator or any([decoded.kinds[i] in ENDS for i in inside]):
        return None
    return Sides(frozenset(inside), ends, live_of(d))
