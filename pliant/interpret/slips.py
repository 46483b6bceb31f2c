"""Slips: exceptions that pliant's own code has raised where no instruction of the program did, and none of its handlers is to see.

While the program is interpreted, its exceptions and the interpreter's travel through the same frames, and a program's `except` would take
a mistake of ours for what it waits for. They are told apart by the instruction that raised, the innermost of the traceback. What is
raised by a statement was meant. What the program does with C (an item, an attribute, a call) is done for it by functions of a few files.
Any other instruction of these rooms that misses a name, an attribute or an item has met what whoever wrote it did not think of: the capture
ends, and CPython runs the frame.
"""

from __future__ import annotations

import functools
import os
from types import CodeType

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
TABLES = ("interpret/arrays/", "interpret/types/")
"""Files, and folders of them, whose functions call C for the program, which may miss something."""
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
    if not isinstance(e, MISSED):
        return False
    if kind is K.LOAD_ITEM:
        return code.co_qualname not in ITEMS.get(file, ())
    return file not in CALLERS and not file.startswith(TABLES)


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
