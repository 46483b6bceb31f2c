"""Going on behind a graph break without a call, as far as nothing happens: from the break to the next instruction that does something.

What follows a breaking instruction is a resume function: guards, a frame, a state tuple. Where it would only move values about (store
the result, end a handler, jump, return it, come back to the header of a loop), the emitted function does so by naming them elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import BuiltinFunctionType, CellType, FunctionType
from typing import Any

from pliant.bytecode import kinds as K
from pliant.bytecode.kinds import Kind
from pliant.interpret.capture import UNSET, FrameState
from pliant.interpret.decode import decode
from pliant.jit import rows

MOST = 64  # instructions to go; items of a container to look at
DEEPEST = 3  # containers in containers
IDLE = {*rows.SIMPLE, *rows.special}
RESUME, RETURN, HEADER = "resume", "return", "header"


@dataclass(slots=True)
class Place:
    """Where a frame stands: to go on there (`RESUME`), with `value` to `RETURN`, or at the header of a loop that is a region.

    `gone`: what it has let go of on the way, in that order.
    """

    kind: str
    frame: FrameState
    value: Any = None
    gone: tuple = ()


class Moves:
    """The locals and the stack of a frame that moves on."""

    __slots__ = ("exc_info", "fast", "gone", "stack", "world")

    def __init__(self, frame: FrameState, stack: list, world: Any) -> None:
        self.world = world
        self.fast = list(frame.fast)
        self.stack = list(stack)
        self.exc_info = frame.exc_info
        self.gone: list[Any] = []

    def let_go(self, value: Any) -> bool:
        """The frame lets go of this: see `idle`."""
        self.gone.append(value)
        return self.idle(value)

    def idle(self, value: Any, depth: int = 0) -> bool:
        """Whether nothing happens when the frame lets go of this: others hold it, or it is a value, or a container of such.

        Of what the program has made, a generator half way through would run its `finally`, an object of its own its `__del__`.
        """
        t = type(value)
        world = self.world
        if t in IDLE or world.source_of(value) is not None or id(value) in world.by_copy:
            return True
        if depth > DEEPEST:
            return False
        if t is CellType:
            inside = () if id(value) in world.cells else contents(value)
        elif t is FunctionType:
            inside = value.__closure__ or ()
        elif t is dict:
            inside = (*value, *value.values())
        elif t is tuple or t is list:
            inside = value
        else:
            return False
        return len(inside) <= MOST and all([self.idle(v, depth + 1) for v in inside])


def contents(cell: CellType) -> tuple:
    try:
        return (cell.cell_contents,)
    except ValueError:
        return ()


def inside(v: Any, depth: int = 3) -> Iterator[Any]:
    """A value, and what is in it if it is a container that the program has made."""
    yield v
    if depth and (type(v) is list or type(v) is tuple or type(v) is dict):
        for x in (*v, *v.values()) if type(v) is dict else v:
            yield from inside(x, depth - 1)


def thread_jump(frame: FrameState, offset: int, stack: list, header: Callable[[int], bool | None], world: Any) -> Place:
    """Where `frame` comes to from byte `offset` with `stack`, by instructions that cannot fail and touch nothing but the frame.

    `header(offset)`, of an instruction that is the target of a backward jump: a region loop begins or goes round there; None: no further.
    """
    d = decode(frame.code)
    m = Moves(frame, stack, world)
    i = d.index(offset)
    kept, gone = snapshot(frame, m, offset), 0
    for _ in range(MOST):
        if i >= len(d.kinds):
            break
        kind, arg = d.kinds[i], d.ins[i][1]
        if i in d.loop_headers:
            loops = header(d.offsets[i])
            if loops is None:
                break
            if loops:
                return Place(HEADER, snapshot(frame, m, d.offsets[i]), gone=tuple(m.gone))
        if kind is K.RETURN:
            if not all(map(m.idle, (*m.fast, *m.stack[:-1]))):
                break
            return Place(RETURN, kept, m.stack[-1], (*m.gone, *m.fast, *m.stack[:-1]))
        if kind is K.JUMP:
            i = arg
        else:
            move = MOVES.get(kind)
            if move is None or not move(m, arg):
                break
            i += 1
        if i < len(d.kinds) and len(m.stack) <= len(kept.stack):  # not between the operands of what comes next
            kept, gone = snapshot(frame, m, d.offsets[i]), len(m.gone)
    return Place(RESUME, kept, gone=tuple(m.gone[:gone]))


ITERATORS = frozenset((enumerate, zip, map, filter))
COLLECTIONS = frozenset((sorted, list, tuple, range, set, frozenset))


def iterated(frame: FrameState, fn: Any) -> tuple[int | None, bool]:
    """Where `frame` goes on behind a call of `fn` whose result is walked at once: its type is known by what was called, and to be asked for
    an iterator, it neither fails nor runs anything. (None: not so.) And whether it is another object than the iterator."""
    if type(fn) not in (type, BuiltinFunctionType) or fn not in ITERATORS and fn not in COLLECTIONS:
        return None, False
    d = decode(frame.code)
    i = d.index(frame.offset)
    if d.kinds[i] is not K.GET_ITER or i in d.loop_headers:
        return None, False
    return d.offsets[i + 1], fn in COLLECTIONS


def snapshot(frame: FrameState, m: Moves, offset: int) -> FrameState:
    return FrameState(
        frame.code, frame.globals, frame.function, list(m.fast), list(m.stack), offset, m.exc_info, frame.handler, frame.lasti, frame.loop
    )


def nothing(m: Moves, arg: Any) -> bool:
    return True


def load_fast(m: Moves, slot: int) -> bool:
    m.stack.append(m.fast[slot])
    return m.fast[slot] is not UNSET


def store_fast(m: Moves, slot: int) -> bool:
    old, m.fast[slot] = m.fast[slot], m.stack.pop()
    return m.let_go(old)


def delete_fast(m: Moves, slot: int) -> bool:
    old, m.fast[slot] = m.fast[slot], UNSET
    return old is not UNSET and m.let_go(old)


def load_const(m: Moves, value: Any) -> bool:
    m.stack.append(value)
    return True


def pop_top(m: Moves, arg: Any) -> bool:
    return m.let_go(m.stack.pop())


def copy(m: Moves, n: int) -> bool:
    m.stack.append(m.stack[-n])
    return True


def swap(m: Moves, n: int) -> bool:
    m.stack[-1], m.stack[-n] = m.stack[-n], m.stack[-1]
    return True


def pop_except(m: Moves, arg: Any) -> bool:
    """The end of a handler that is in no other one."""
    if m.exc_info is None or m.stack.pop() is not None:
        return False
    m.exc_info = None
    return True


MOVES: dict[Kind, Callable[[Moves, Any], bool]] = {
    K.NOP: nothing,
    K.LOAD_LOCAL: load_fast,
    K.STORE_LOCAL: store_fast,
    K.DELETE_LOCAL: delete_fast,
    K.LOAD_CONST: load_const,
    K.POP: pop_top,
    K.COPY: copy,
    K.SWAP: swap,
    K.POP_EXCEPT: pop_except,
}
