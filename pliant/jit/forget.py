"""What emitted frames let go of when an exception leaves them.

A traceback keeps the frames that it names alive, and a frame its variables. CPython's frame would hold the user's locals there: its
value stack is gone by then, so an iterator of a loop, a generator half way through with a `finally` in it, has ended. An emitted
function holds what was on that stack in variables of its own, and so do the frames between it and the code that was resumed. A
handler in bytecode drops these; it catches and handles nothing, so what ends meanwhile sees the exceptions that it would see.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import CodeType, FunctionType
from typing import Any, TypeVar

from pliant.bytecode import instructions
from pliant.bytecode import kinds as K
from pliant.bytecode.assemble import encode_exception_table, exception_table, ins, line_step

F = TypeVar("F", bound=FunctionType)
Zone = tuple[str, Iterable[str]]  # the name whose first mention begins it, and the variables that are kept when it raises


def forgetting(fn: F, zones: Sequence[Zone] = (("", ()),), state: tuple[str, int] | None = None) -> F:
    """Make the frames of `fn` drop their variables when an exception leaves them, but for those that the zone it comes from keeps.

    The first zone begins with the function, the others at the first instruction that mentions their name. `state` names a parameter
    that holds a tuple, and how many of its items are the user's locals: where it is kept, the others are dropped.
    """
    code = fn.__code__
    starts = _starts(code, [name for name, _ in zones])
    raw, table = code.co_code, exception_table(code)
    entries, tail = list(table), b""
    for i, (start, (_, keeps)) in enumerate(zip(starts, zones, strict=True)):
        if start is None:
            continue
        end = next((s for s in starts[i + 1 :] if s is not None), len(raw))
        target = len(raw) + len(tail)
        tail += _handler(code, set(keeps), state)
        entries += [(a, b, target, 0, True) for a, b in _uncovered(table, start, end)]
    fn.__code__ = code.replace(
        co_code=raw + tail,
        co_consts=(*code.co_consts, None, state[1] if state is not None else None),
        co_stacksize=max(code.co_stacksize, 6),
        co_exceptiontable=encode_exception_table(sorted(entries)),
        co_linetable=code.co_linetable + line_step(len(tail) // 2, 0),
    )
    return fn


def _starts(code: CodeType, names: list[str]) -> list[int | None]:
    """Where each zone begins, ascending; None for one that is not there."""
    first: dict[Any, int] = {}
    for i in instructions(code):
        if i.kind in (K.LOAD_GLOBAL, K.LOAD_ATTR, K.LOAD_METHOD):
            first.setdefault(i.operand[0] if i.kind is K.LOAD_GLOBAL else i.operand, i.offset)
    found: list[int | None] = [0]
    last = 0
    for name in names[1:]:
        at = first.get(name)
        found.append(at if at is not None and at > last else None)
        last = max(last, at or 0)
    return found


def _uncovered(table: list, start: int, end: int) -> list[tuple[int, int]]:
    """The parts of `start:end` that have no handler, in order."""
    out = []
    at = start
    for first, stop, *_ in sorted(table):
        if at < first < end:
            out.append((at, first))
        at = max(at, min(stop, end))
    return [*out, (at, end)] if at < end else out


def _handler(code: CodeType, keeps: set[str], state: tuple[str, int] | None) -> bytes:
    """Instructions that drop the variables and raise again what is on the stack, from where it was raised."""
    none = len(code.co_consts)
    out = b""
    for slot, name in enumerate(code.co_varnames):
        if name in code.co_cellvars:
            continue
        if name not in keeps:
            out += ins(K.LOAD_CONST, none) + ins(K.STORE_LOCAL, slot) + ins(K.DELETE_LOCAL, slot)
        elif state is not None and name == state[0]:
            out += ins(K.LOAD_LOCAL, slot) + ins(K.LOAD_CONST, none) + ins(K.LOAD_CONST, none + 1) + ins(K.BUILD_SLICE, 2)
            out += ins(K.LOAD_ITEM) + ins(K.STORE_LOCAL, slot)
    return out + ins(K.RERAISE, 1)
