"""Look into a running CPython frame: its localsplus and value stack, as a `FrameState`.

Test-only. Reads `_PyInterpreterFrame` of CPython 3.11 through ctypes while an opcode trace holds the frame still.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable
from types import CodeType, FrameType, FunctionType
from typing import Any

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
    """The state of `frame` before the instruction it is about to run."""
    code = frame.f_code
    inner = _read(id(frame) + FRAME_OF_OBJECT)
    top = ctypes.c_int.from_address(inner + STACKTOP).value
    n = code.co_nlocals + sum(c not in code.co_varnames for c in code.co_cellvars) + len(code.co_freevars)
    slots = [_read(inner + LOCALSPLUS + i * POINTER) for i in range(top)]
    fast = [_object(p, UNSET) for p in slots[:n]]
    stack = [_object(p, NULL) for p in slots[n:]]
    return FrameState(code, frame.f_globals, function, fast, stack, frame.f_lasti, exc)


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
    entered = False
    found: list[tuple[bool, Any]] = []

    def local(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal seen
        if event == "opcode" and not found:
            if seen == when:
                state = snapshot(frame, target or fn, sys.exc_info()[1])
                try:
                    found.append((True, in_thread(lambda: action(state))))
                except BaseException as e:
                    found.append((False, e))
                raise _Stop
            seen += 1
        return local

    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal entered
        if frame.f_code is code and not entered:
            entered = True
            frame.f_trace_opcodes = True
            return local
        return None

    def run() -> None:
        sys.settrace(trace)
        try:
            fn(*args)
        except BaseException:  # whatever the abandoned run did
            pass
        finally:
            sys.settrace(None)

    in_thread(run)
    if not found:
        return False, None
    fine, value = found[0]
    if not fine:
        raise value
    return True, value


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
