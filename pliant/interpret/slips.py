"""Slips: exceptions that pliant's own code has raised where no instruction of the program did, and none of its handlers is to see.

While the program is interpreted, its exceptions and the interpreter's travel through the same frames, and a program's `except` would take
a mistake of ours for what it waits for. They are told apart by the instruction that raised, the innermost of the traceback. What is
raised by a statement was meant. What the program does with C (an item, an attribute, a call) is done for it by functions of a few files.
Any other instruction of these rooms that misses a name, an attribute or an item has met what whoever wrote it did not think of, and so has
an operator, a loop or a subscript there that refuses its operands by TypeError or ValueError, and a call of a function of these rooms
that its arguments do not fit: its caller is the innermost frame. The capture ends then, and CPython runs the frame.
"""

from __future__ import annotations

import functools
import inspect
import os
from types import CodeType, FunctionType, ModuleType, TracebackType
from typing import Any

from pliant.bytecode import instructions, kind_at
from pliant.bytecode import kinds as K
from pliant.interpret.tracebacks import PLIANT, place

ROOMS = ("bytecode", "graph", "guards", "interpret", "symbolic")
"""Where code runs while a program is interpreted."""
NAMES = frozenset((
    K.LOAD_GLOBAL, K.LOAD_LOCAL, K.LOAD_DEREF, K.LOAD_ATTR, K.LOAD_METHOD, K.STORE_ATTR, K.DELETE_ATTR, K.UNPACK_SEQUENCE, K.UNPACK_EX,
))  # fmt: skip
"""Instructions with which nothing here does what the program's own do: it has functions and tables for them."""
MISSED = (AttributeError, LookupError, NameError)
"""What is raised about something that is not there. Other exceptions of calls and operators are about the program's values."""
ITEMS = {"interpret/slots.py": {"getitem"}}
"""Functions in which an item is one of the program's."""
CALLERS = {f"interpret/{name}.py" for name in (
    "attributes", "calls", "contextvars_", "engine", "gate", "instances", "lookasides", "namespaces", "runtime", "shadows",
    "slots", "tensor_subclasses", "transforms",
)}  # fmt: skip
ARITHMETIC = ("symbolic/", "graph/symnode.py", "interpret/sums.py")
"""Files that compute with the program's numbers."""
TABLES = ("interpret/arrays/", "interpret/types/")
"""Files, and folders of them, whose functions call C for the program, which may miss something."""
REFUSED = (TypeError, ValueError)
"""What is raised about operands that do not go together: of the program's, in the files above."""
CALLS = frozenset((K.NOP, K.CALL, K.CALL_KW))
"""Calls of what was written down with its arguments (3.11 has a step in front of each that does nothing)."""
BESIDE = frozenset((K.NOP, K.PUSH_NULL, K.KEYWORDS, K.LOAD_CONST))
"""What may stand between the loading of a function and its call, at the place of the call."""
ANYWHERE = (RecursionError, MemoryError)
"""Of what the program has too little the interpreter has, too."""


def slipped(e: BaseException) -> bool:
    """Whether this exception, which is nobody's from outside (`tracebacks.from_outside`), is a mistake of pliant's own."""
    where = place(e)
    if where is None or isinstance(e, ANYWHERE):
        return False
    code, file = where.tb_frame.f_code, room(where.tb_frame.f_code.co_filename)
    if not file:
        return False
    kind = kind_at(code, where.tb_lasti)
    if kind is K.RAISE or kind is K.RERAISE:
        return type(e) is AssertionError and asserts(code)
    if kind in NAMES:
        return True
    elsewhere = file not in CALLERS and not file.startswith(TABLES)
    if not isinstance(e, MISSED):
        if kind in CALLS or kind is K.CALL_EX:
            return type(e) is TypeError and kind in CALLS and is_own(called(where))
        return elsewhere and isinstance(e, REFUSED) and not file.startswith(ARITHMETIC)
    if kind is K.LOAD_ITEM:
        return code.co_qualname not in ITEMS.get(file, ())
    return elsewhere


def called(where: TracebackType) -> Any:
    """What the call at this place of a traceback calls, where it is a name or an attribute of one; else None."""
    frame, code = where.tb_frame, where.tb_frame.f_code
    names = (*code.co_varnames, *[n for n in code.co_cellvars if n not in code.co_varnames], *code.co_freevars)
    positions = list(code.co_positions())
    line, _, column, _ = positions[where.tb_lasti // 2]
    found: Any = None
    for i in instructions(code):
        if i.offset >= where.tb_lasti:
            break
        at = positions[i.offset // 2]
        if (at[0], at[2]) != (line, column) or i.kind in BESIDE:
            continue
        if i.kind is K.LOAD_GLOBAL:
            found = frame.f_globals.get(i.operand[0])
        elif i.kind is K.LOAD_LOCAL or i.kind is K.LOAD_DEREF:
            found = frame.f_locals.get(names[i.operand])
        elif i.kind in (K.LOAD_ATTR, K.LOAD_METHOD) and type(found) is ModuleType:
            found = vars(found).get(i.operand)
        elif i.kind in (K.LOAD_ATTR, K.LOAD_METHOD) and type(found).__module__.startswith("pliant."):
            found = inspect.getattr_static(found, i.operand, None)
        else:
            return None  # of what a call gave, say
    return found


def is_own(fn: Any) -> bool:
    """Whether this is a function of these rooms, or a class of theirs with a constructor."""
    if isinstance(fn, type):
        return fn.__module__.startswith("pliant.") and type(fn.__init__) is FunctionType  # type: ignore[misc]
    return type(fn) is FunctionType and bool(room(fn.__code__.co_filename))


def told(e: BaseException) -> str:
    """What and where, for whoever mends it."""
    where = place(e)
    assert where is not None, "of an exception that has slipped"
    return f"{type(e).__name__} in {room(where.tb_frame.f_code.co_filename)}:{where.tb_lineno}, which is no part of the program: {e}"


@functools.lru_cache(maxsize=1024)
def room(file: str) -> str:
    """The file's path in the package if it lies in one of these rooms, else ''."""
    path = file[len(PLIANT) :].replace(os.sep, "/") if file.startswith(PLIANT) else ""
    return path if path.split("/", 1)[0] in ROOMS else ""


@functools.lru_cache(maxsize=256)
def asserts(code: CodeType) -> bool:
    """Whether this code has an `assert`: it raises no AssertionError otherwise."""
    return any(i.kind is K.LOAD_ASSERTION_ERROR for i in instructions(code))
