"""Look into a running CPython frame: its localsplus and value stack, as a `FrameState`.

Test-only. Reads `_PyInterpreterFrame` through ctypes while a trace of opcodes holds the frame still. CPython 3.11, 3.12 and 3.13 have the
locals and the stack at the same place of it. Where the stack of a running frame ends, 3.12 and 3.13 keep in a register: the bytecode tells.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
import threading
from collections.abc import Callable, Iterator
from types import CodeType, FrameType, FunctionType
from typing import Any

from pliant.bytecode import kind_at
from pliant.bytecode import kinds as K
from pliant.bytecode.stack import stack_marks
from pliant.interpret.capture import NULL, UNSET, FrameState

POINTER = ctypes.sizeof(ctypes.c_void_p)
FRAME_OF_OBJECT = 3 * POINTER  # PyFrameObject: refcnt, type, f_back, f_frame
STACKTOP = 8 * POINTER
LOCALSPLUS = 9 * POINTER


def _read(address: int) -> int:
    return ctypes.c_void_p.from_address(address).value or 0


def _object(address: int, absent: Any) -> Any:
    return ctypes.cast(address, ctypes.py_object).value if address else absent


def snapshot(frame: FrameType, function: Any, exc: BaseException | None) -> FrameState:
    """The state of `frame` before the instruction it is about to run; of a suspended generator, behind what suspended it."""
    code = frame.f_code
    inner = _read(id(frame) + FRAME_OF_OBJECT)
    n = code.co_nlocals + sum(c not in code.co_varnames for c in code.co_cellvars) + len(code.co_freevars)
    offset = frame.f_lasti
    top = ctypes.c_int.from_address(inner + STACKTOP).value
    if top < 0:
        top = n + len(stack_marks(code)[offset])
    elif kind_at(code, offset) in (K.YIELD, K.RETURN_GENERATOR):  # up to 3.12; in 3.13 it is behind that already
        offset += 2
    slots = [_read(inner + LOCALSPLUS + i * POINTER) for i in range(top)]
    fast = [_object(p, UNSET) for p in slots[:n]]
    stack = [_object(p, NULL) for p in slots[n:]]
    return FrameState(code, frame.f_globals, function, fast, stack, offset, exc)


class _Stop(BaseException):
    pass


def in_thread(fn: Callable[[], Any]) -> Any:
    """Run `fn` in a new thread: no exception is being handled there, and none that an abandoned frame left behind."""
    found: list[tuple[bool, Any]] = []

    def run() -> None:
        try:
            found.append((True, fn()))
        except BaseException as e:
            found.append((False, e))

    t = threading.Thread(target=run)
    t.start()
    t.join()
    fine, value = found[0]
    if not fine:
        raise value
    return value


def suspend(
    fn: Callable, args: tuple, when: int, action: Callable[[FrameState], Any], target: FunctionType | None = None
) -> tuple[bool, Any]:
    """Run `fn(*args)` to opcode number `when` of the first frame of `target` (default `fn`) and call `action(state)` there.

    Both run in threads of their own. Returns (reached, result of `action`); what `fn` does afterwards is of no interest.
    """
    code = (target or fn).__code__
    seen = 0
    first: FrameType | None = None
    found: list[tuple[bool, Any]] = []

    def about_to_run(frame: FrameType) -> None:
        nonlocal seen, first
        if first is None:
            first = frame
        if frame is not first or found:
            return
        if seen == when:
            state = snapshot(frame, target or fn, sys.exc_info()[1])
            try:
                found.append((True, in_thread(lambda: action(state))))
            except BaseException as e:
                found.append((False, e))
            raise _Stop
        seen += 1

    def run() -> None:
        with instructions_of(code, about_to_run):
            try:
                fn(*args)
            except BaseException:  # whatever the abandoned run did
                pass

    in_thread(run)
    if not found:
        return False, None
    fine, value = found[0]
    if not fine:
        raise value
    return True, value


@contextlib.contextmanager
def instructions_of(code: CodeType, about_to_run: Callable[[FrameType], None]) -> Iterator[None]:
    """Meanwhile `about_to_run(frame)` is called before each instruction of this code."""
    if sys.version_info >= (3, 12):  # traces of opcodes begin late there, at the next call or loop
        events, tool = sys.monitoring.events, sys.monitoring.DEBUGGER_ID
        sys.monitoring.use_tool_id(tool, "frames")
        sys.monitoring.register_callback(tool, events.INSTRUCTION, lambda code, offset: about_to_run(sys._getframe(1)))
        sys.monitoring.set_local_events(tool, code, events.INSTRUCTION)
        try:
            yield
        finally:
            sys.monitoring.set_local_events(tool, code, 0)
            sys.monitoring.register_callback(tool, events.INSTRUCTION, None)
            sys.monitoring.free_tool_id(tool)
        return

    def local(frame: FrameType, event: str, arg: Any) -> Any:
        if event == "opcode":
            about_to_run(frame)
        return local

    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        if frame.f_code is not code:
            return None
        frame.f_trace_opcodes = True
        return local

    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(None)


def follows_kw_names(code: CodeType, offset: int) -> bool:
    """Between KW_NAMES and its CALL the interpreter holds state outside the frame: no one resumes there."""
    from dis import get_instructions

    pending = False
    for i in get_instructions(code):
        if i.offset == offset:
            return pending
        if i.opname == "KW_NAMES":
            pending = True
        elif i.opname == "CALL":
            pending = False
    return False
