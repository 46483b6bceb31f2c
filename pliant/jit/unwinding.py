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
from pliant.bytecode.assemble import encode_exception_table, exception_table, handler_at, ins, line_step

F = TypeVar("F", bound=FunctionType)
Zone = tuple[str, Iterable[str]]  # the name whose first mention begins it, and the variables that are kept when it raises


def forgetting(fn: F, zones: Sequence[Zone] = (("", ()),), state: tuple[str, int] | None = None) -> F:
    """Make the frames of `fn` drop their variables when an exception leaves them, but for those that the zone it comes from keeps.

    The first zone begins with the function, the others at the first instruction that mentions their name. Handlers, which CPython puts
    behind everything else from 3.12 on, are in the zone of what they catch. `state` names a parameter
    that holds a tuple, and how many of its items are the user's locals: where it is kept, the others are dropped.
    """
    code = fn.__code__
    starts = _starts(code, [name for name, _ in zones])
    raw, table = code.co_code, exception_table(code)
    entries, tail = list(table), b""
    bare = _uncovered(code, table, starts)
    for i, (_, keeps) in enumerate(zones):
        if starts[i] is None:
            continue
        target = len(raw) + len(tail)
        tail += _handler(code, set(keeps), state)
        entries += [(a, b, target, 0, True) for a, b, zone in bare if zone == i]
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
    if len(names) == 1:
        return [0]
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


def _uncovered(code: CodeType, table: list, starts: list[int | None]) -> list[tuple[int, int, int]]:
    """The parts of `code` that have no handler, in order: where they begin and end, and the number of their zone."""
    if len(starts) == 1:
        return _gaps(table, len(code.co_code))
    plain = _without_raising(code)
    zones: dict[int, int] = {}
    out: list[tuple[int, int, int]] = []
    for i in instructions(code):
        zone = max(n for n, start in enumerate(starts) if start is not None and start <= i.offset)
        if i.offset not in plain:  # in the handler that begins last before it: that of the first instruction that leads there
            before = [(target, -start, zones[start]) for start, _, target, *_ in table if target <= i.offset and start in zones]
            zone = max(before)[2] if before else zone
        zones[i.offset] = zone
        if handler_at(table, i.offset) is not None:
            continue
        if out and out[-1][1:] == (i.offset, zone):
            out[-1] = (out[-1][0], i.following, zone)
        else:
            out.append((i.offset, i.following, zone))
    return out


def _gaps(table: list, size: int) -> list[tuple[int, int, int]]:
    """`_uncovered` where there is one zone: what lies between the parts that have handlers."""
    out: list[tuple[int, int, int]] = []
    at = 0
    for start, end in [*sorted([(e[0], e[1]) for e in table]), (size, size)]:
        if start > at:
            out.append((at, start, 0))
        at = max(at, end)
    return out


def _without_raising(code: CodeType) -> set[int]:
    """The offsets of the instructions that are reached while nothing raises."""
    by_offset = {i.offset: i for i in instructions(code)}
    seen: set[int] = set()
    todo = [0]
    while todo:
        at = todo.pop()
        if at in seen or at not in by_offset:
            continue
        seen.add(at)
        i = by_offset[at]
        if i.kind in K.JUMPS:
            todo.append(i.operand)
        if not i.kind.ends:
            todo.append(i.following)
    return seen


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
