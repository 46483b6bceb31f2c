"""Resume functions: a user's code object entered in the middle.

A resume code is `preamble + original bytecode, unchanged` (CPython 3.11 jumps are relative). It takes one argument, a list
`state` in local slot 0; the preamble unpacks it into the locals, cells and value stack of the suspended frame and jumps to the
offset. Exception and line tables are shifted, so handlers, tracebacks and debuggers see the user's own code.

Whoever goes on with a state empties it: the callers hold the list as long as the call takes, and what was in it lives no longer
than the frame's own variables do.

The state holds, in order: the bound slots by ascending index, the exception being handled (if a handler is active),
and the stack, top first: exactly what one UNPACK_SEQUENCE leaves ready. What the state need not carry is made by the preamble:
NULLs, the instruction indexes of RERAISE, and the exception state that a handler restores when it ends (None in the state; it is
the one at *resume* time, so the caller's `except` block is left as it was).
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from types import CellType, CodeType, FunctionType
from typing import Any

from pliant.bytecode import assemble, instruction_at, instructions
from pliant.bytecode import kinds as K
from pliant.bytecode.assemble import ins
from pliant.bytecode.stack import LASTI, PREVIOUS, VALUE, stack_marks
from pliant.bytecode.version import THROW_LEAVES_BY_SEND
from pliant.interpret.capture import NULL, UNSET, FrameState, LastI, Start
from pliant.interpret.generators import Generator
from pliant.interpret.lifetimes import CONTAINERS, DEEPEST, held_by, may_end
from pliant.interpret.opaque import Opaque
from pliant.interpret.opcodes import Lazy
from pliant.jit.weak_ids import WeakIdDict

CALL, START, YIELD = "call", "start", "yield"  # a plain frame; a generator not started; one suspended at a yield
VARIADIC_FLAGS = 0x04 | 0x08
FUNCTION_FLAGS = 0x01 | 0x02  # CO_OPTIMIZED | CO_NEWLOCALS
NULL_ITEM, HELD = "n", "h"
LOOKED_UP = (Lazy, Opaque)  # they stand for an object of the outside


PRESENT = (VALUE, HELD, PREVIOUS)  # marks of what is an item of the state


class CannotResume(Exception):
    """No resume function can be made for this frame (a class body, an inconsistent state)."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Where to go on, and the shape of the state. `stack` has one item per position: a mark, or the int of a LASTI item.

    Code may run at the end of values in the slots `held`, and of those in the stack that are marked HELD.
    """

    offset: int
    slots: tuple[int, ...]
    stack: tuple[str | int, ...]
    mode: str = CALL
    loops: tuple[int, ...] = ()  # headers of the region loops this frame is in, outermost first
    held: tuple[int, ...] = ()

    @property
    def prefix(self) -> int:
        """How many items of the state come before those of the stack."""
        return len(self.slots) + (PREVIOUS in self.stack)


@dataclass(slots=True, weakref_slot=True, eq=False)
class ResumeCode:
    """A resume code object. `shift` is the preamble's length in bytes; `functions` its function for each globals dict."""

    code: CodeType
    layout: Layout
    shift: int
    origin: weakref.ref[CodeType]
    functions: dict[Any, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Plan:
    """A frame to resume: the code, and the values of its state in order."""

    resume: ResumeCode
    items: list[Any]

_counter = itertools.count()
Cache = WeakIdDict[dict[Layout, ResumeCode]]
_infos: WeakIdDict[weakref.ref] = WeakIdDict()  # resume code -> its ResumeCode
_marks: WeakIdDict[dict[int, str]] = WeakIdDict()


def ends(value: Any, depth: int = DEEPEST) -> bool:
    """Whether code of the program may run when the last reference to a value of a frame goes."""
    t = type(value)
    if t in CONTAINERS:
        return depth > 0 and any([ends(x, depth - 1) for x in held_by(value)])
    return t is Generator or may_end(value.value if t in LOOKED_UP else value)


def origin_of(code: CodeType) -> tuple[CodeType, int]:
    """The user's code behind `code` and how many bytes precede it (0 when `code` is not a resume code)."""
    info = info_of(code)
    if info is not None:
        origin = info.origin()
        if origin is not None:
            return origin, info.shift
    return code, 0


def info_of(code: CodeType) -> ResumeCode | None:
    """The `ResumeCode` whose code object this is."""
    ref = _infos.get(code)
    return ref() if ref is not None else None


def loop_headers(code: CodeType) -> tuple[int, ...]:
    """Byte offsets, in `code`, of the headers of the region loops in which it runs: reaching one is a `LoopBack`."""
    info = info_of(code)
    return tuple(h + info.shift for h in info.layout.loops) if info is not None else ()


def start_of(resume: ResumeCode) -> Start:
    """The same place, as the interpreter wants it."""
    layout = resume.layout
    n = len(layout.slots)
    handling = n if PREVIOUS in layout.stack else None
    item = n + (handling is not None) + sum(mark in PRESENT for mark in layout.stack)
    stack: list[Any] = []
    held = [i for i, slot in enumerate(layout.slots) if slot in layout.held]
    for mark in layout.stack:
        if type(mark) is int:
            stack.append(LastI(mark))
        elif mark == NULL_ITEM:
            stack.append(NULL)
        else:
            item -= 1
            stack.append(item)
            if mark == HELD:
                held.append(item)
    slots = tuple((slot, i) for i, slot in enumerate(layout.slots))
    return Start(resume.origin(), layout.offset, slots, tuple(stack), layout.loops, handling, tuple(held))


def plan(
    frame: FrameState,
    *,
    offset: int | None = None,
    stack: list | None = None,
    mode: str = CALL,
    loops: tuple[int, ...] | None = None,
    lasti: Callable[[Any], int] | None = None,
    cache: Cache | None = None,
    walks: bool = False,
) -> Plan:
    """How to go on with `frame` at byte `offset` (default: its own) with `stack` (default: its own).

    `loops` are loop headers in the offsets of the *original* code (default: those of the frame's own resume code). `lasti` turns
    what the stack holds for RERAISE into an instruction index (`offset // 2`) of `frame.code`. `cache` keeps the codes that were made.
    `walks`: at the header of a `for` loop, whose iterator counts as HELD: it is not known before the first round, and known in the others.
    Raises CannotResume.
    """
    code, shift = origin_of(frame.code)
    if code.co_flags & FUNCTION_FLAGS != FUNCTION_FLAGS:
        raise CannotResume(f"{code.co_qualname} is not a function body")
    at = (frame.offset if offset is None else offset) - shift
    values = frame.stack if stack is None else stack
    fast, at = _enter(frame, code, at, mode)
    at, values = _whole(code, at, fast, values)
    if loops is None:
        info = info_of(frame.code)
        loops = info.layout.loops if info is not None else ()
    marks = _marks_of(code).get(at)
    if mode == YIELD and marks is not None:
        marks = marks[:-1]  # the sent value is pushed when it goes on
    if marks is None or len(marks) != len(values):
        raise CannotResume(f"{code.co_qualname}: the stack at {at} is {marks!r}, the frame has {len(values)} items")
    slots, items = [], []
    cells = _cell_slots(code)
    for i, v in reversed([*enumerate(fast)]):  # a list lets go of its last item first, a frame of its first local
        if v is UNSET:
            if i not in cells:
                continue
            v = CellType()
        slots.append(i)
        items.append(v)
    shape: list[str | int] = []
    kept: list[Any] = []
    top = len(values) - 1 if walks else -1
    for depth, (mark, v) in enumerate(zip(marks, values, strict=True)):
        if v is NULL:
            shape.append(NULL_ITEM)
        elif mark == PREVIOUS and PREVIOUS not in shape and frame.exc_info is not None:  # else POP_EXCEPT has run: RERAISE drops it
            shape.append(PREVIOUS)
            kept.append(None)
        elif mark == LASTI:
            shape.append(v.value if type(v) is LastI else (int(v) if lasti is None else lasti(v)) - shift // 2)
        else:
            shape.append(HELD if depth == top or ends(v) else VALUE)
            kept.append(v)
    if PREVIOUS in shape:
        items.append(frame.exc_info)
    items.extend(reversed(kept))
    layout = Layout(at, tuple(slots), tuple(shape), mode, loops, tuple(slot for slot, v in zip(slots, items, strict=False) if ends(v)))
    return Plan(resume_code(code, layout, cache), items)


def _enter(frame: FrameState, code: CodeType, at: int, mode: str) -> tuple[list, int]:
    """The slots and the offset to enter at; a generator that never ran has yet to make its cells."""
    if mode != START:
        return frame.fast, at
    creation = next((i.offset for i in instructions(code) if i.kind is K.RETURN_GENERATOR), None)
    if creation is None or at > creation + 4:
        return frame.fast, at
    fast = list(frame.fast)
    if at == 0:
        first_free = len(fast) - len(code.co_freevars)
        for i in _cell_slots(code):
            if i >= first_free:
                fast[i] = frame.function.__closure__[i - first_free]
            elif fast[i] is UNSET:
                fast[i] = CellType()
            else:
                fast[i] = CellType(fast[i])
    return fast, creation + 4  # behind RETURN_GENERATOR and POP_TOP


def _whole(code: CodeType, at: int, fast: list, values: list) -> tuple[int, list]:
    """Where CPython can enter, and the stack there: an opcode that does two things is done again, and what it did is undone."""
    if at % 2 == 0:
        return at, values
    first = next(i for i in instructions(code) if i.offset == at - 1)
    if first.kind is K.STORE_LOCAL:
        return at - 1, [*values, fast[first.operand]]
    if first.kind in (K.LOAD_LOCAL, K.LOAD_CONST):
        return at - 1, values[:-1]
    raise CannotResume(f"{code.co_qualname}: {at} is in the middle of an instruction")


def _cell_slots(code: CodeType) -> frozenset[int]:
    names = list(code.co_varnames)
    out = {i for i, n in enumerate(names) if n in code.co_cellvars}
    n = len(names)
    own = sum(c not in names for c in code.co_cellvars)
    return frozenset(out | set(range(n, n + own + len(code.co_freevars))))


def _marks_of(code: CodeType) -> dict[int, str]:
    found = _marks.get(code)
    if found is None:
        found = _marks[code] = stack_marks(code)
    return found


def resume_code(code: CodeType, layout: Layout, cache: Cache | None = None) -> ResumeCode:
    """The resume code of `code` for `layout`, made once per `cache`."""
    made = cache.get(code) if cache is not None else {}
    if made is None:
        assert cache is not None
        made = cache[code] = {}
    found = made.get(layout)
    if found is None:
        found = made[layout] = _build(code, layout)
        _infos[found.code] = weakref.ref(found)
    return found


def make_function(resume: ResumeCode, globals_: dict, name: str | None = None) -> FunctionType:
    """A new function running `resume.code`. Its closure is a placeholder: the cells come in the state."""
    closure = tuple(CellType() for _ in resume.code.co_freevars) or None
    return FunctionType(resume.code, globals_, name or resume.code.co_name, None, closure)


def generator_function(resume: ResumeCode, globals_: dict, names: tuple[str, ...]) -> FunctionType:
    """What makes a generator of these names (`__name__`, `__qualname__`) that stands where `resume` goes on; one for each globals dict."""
    make = resume.functions.get((id(globals_), *names))
    if make is None:
        make = resume.functions[id(globals_), *names] = make_function(resume, globals_, names[0])
        make.__qualname__ = names[1]
    return make


# -- building ----------------------------------------------------------------------------------------------------------


def _build(origin: CodeType, layout: Layout) -> ResumeCode:
    moved = not origin.co_varnames
    code = _with_slot_zero(origin) if moved else origin
    restore = _restore(code, layout, moved)
    lastis = [n for n in layout.stack if type(n) is int]
    if layout.mode == YIELD:
        head, tail = restore, _suspend(code, layout.offset, len(code.co_consts) + len(lastis))
    else:
        head, tail = restore + ins(K.JUMP, layout.offset // 2), b""
    shift = len(head) + len(tail)
    table = [(s + shift, e + shift, t + shift, d, i) for s, e, t, d, i in assemble.exception_table(code)]
    lines = assemble.no_lines(len(head) // 2)
    if tail:
        entry = assemble.handler_at(table, layout.offset - 2 + shift)
        if entry is not None:
            table.insert(0, (len(head), shift, *entry[2:]))
        step = (assemble.line_at(code, layout.offset - 2) or code.co_firstlineno) - code.co_firstlineno
        lines += assemble.line_step(len(tail) // 2 - 1, step) + assemble.line_step(1, -step)
    name = f"__resume_at_{layout.offset}_{next(_counter)}" if layout.mode == CALL else code.co_name
    made = code.replace(
        co_code=head + tail + code.co_code,
        co_consts=code.co_consts + tuple(n + shift // 2 for n in lastis) + (None,),
        co_argcount=1,
        co_posonlyargcount=0,
        co_kwonlyargcount=0,
        co_flags=code.co_flags & ~VARIADIC_FLAGS,
        co_stacksize=max(code.co_stacksize, len(layout.slots) + len(layout.stack) + 1) + 3,
        co_exceptiontable=assemble.encode_exception_table(table),
        co_linetable=lines + code.co_linetable,
        co_name=name,
        co_qualname=name if layout.mode == CALL else code.co_qualname,
    )
    return ResumeCode(made, layout, shift, weakref.ref(origin))


def _restore(code: CodeType, layout: Layout, moved: int) -> bytes:
    """Instructions from entry to the restored frame. `moved`: by how much its slots are higher than the layout has them."""
    out = b""
    if code.co_freevars:
        out += ins(K.COPY_FREE_VARS, len(code.co_freevars))
    if layout.mode != CALL:
        out += ins(K.RETURN_GENERATOR) + ins(K.POP)
    out += ins(K.RESUME, 0)
    present = [mark in PRESENT for mark in layout.stack]
    handling = PREVIOUS in layout.stack
    n = len(layout.slots) + handling + sum(present)
    const = len(code.co_consts)
    none = const + sum(type(mark) is int for mark in layout.stack)
    if n:
        out += ins(K.LOAD_LOCAL, 0) + ins(K.UNPACK_SEQUENCE, n)
        out += ins(K.LOAD_LOCAL, 0) + ins(K.LOAD_CONST, none) + ins(K.LOAD_CONST, none) + ins(K.BUILD_SLICE, 2) + ins(K.DELETE_ITEM)
    if moved or 0 not in layout.slots:
        out += ins(K.DELETE_LOCAL, 0)
    for slot in layout.slots:
        out += ins(K.STORE_LOCAL, slot + moved)
    if handling:
        at = layout.stack.index(PREVIOUS)
        out += ins(K.PUSH_EXC_INFO) + ins(K.POP) + ins(K.SWAP, sum(present[at:]) + 1) + ins(K.POP)
    for at, mark in enumerate(layout.stack):
        if type(mark) is int:
            out += ins(K.LOAD_CONST, const)
            const += 1
        elif mark == NULL_ITEM:
            out += ins(K.PUSH_NULL)
        else:
            continue
        out += _sink(sum(present[at:]))
        present[at] = True
    return out


def _sink(depth: int) -> bytes:
    """Move the top of the stack below the `depth` items under it."""
    return b"".join(ins(K.SWAP, i) for i in range(depth + 1, 1, -1))


def _suspend(code: CodeType, offset: int, none: int) -> bytes:
    """Suspend at a yield of our own that stands for the one before `offset` (its RESUME), then go on behind that RESUME.

    A `yield from` is recognized by CPython by the RESUME after the YIELD_VALUE, and left, up to 3.11, through the SEND before it: then the
    preamble has both; its SEND is never executed, only jumped through when `throw()` ends the inner iterator.
    """
    operands = assemble.resumed_yield(code, offset)
    if operands is None:
        raise CannotResume(f"{code.co_qualname}: no yield ends at {offset}")
    depth, kind = operands
    by_send = THROW_LEAVES_BY_SEND and kind & 3 >= 2
    leave = b""
    if by_send:
        leave = ins(K.JUMP, instruction_at(code, offset - 4).operand // 2)
    resume = ins(K.RESUME, kind) + ins(K.JUMP, (offset + 2 + len(leave)) // 2)
    out = ins(K.LOAD_CONST, none)
    if by_send:
        out += ins(K.JUMP, 1) + ins(K.SEND, 1 + len(resume) // 2)
    return out + ins(K.YIELD, depth) + resume + leave


def _with_slot_zero(code: CodeType) -> CodeType:
    """`code` has no plain local: give it one, in slot 0. Its cells, all its slots, move up by one.

    (Free variables stay free: CPython names them in the error of one that is not bound.)
    """
    if "__class__" in code.co_freevars:
        raise CannotResume(f"{code.co_qualname} has no argument but a __class__ cell")
    raw = bytearray(code.co_code)
    for i in instructions(code):
        if i.kind in K.OF_CELLS:
            if raw[i.offset + 1] != i.operand or i.operand == 255:
                raise CannotResume(f"{code.co_qualname} has no local variable and {len(_cell_slots(code))} cells")
            raw[i.offset + 1] += 1
    return code.replace(co_varnames=(".state",), co_nlocals=1, co_code=bytes(raw))
