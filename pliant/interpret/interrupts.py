"""Exceptions that come from outside of the program, at a moment of their own: Ctrl-C, and what a handler of a signal raises (a time limit).

One may come while the program is interpreted, lowered or compiled. It says nothing about either, and goes on to whoever called.
"""

from __future__ import annotations

import functools
import types
from _signal import NSIG, getsignal  # type: ignore[import-not-found]  # that of `signal` makes an enum of each answer
from typing import Any


def codes() -> set[types.CodeType]:
    """The code of the handlers of signals that are written in Python."""
    return {f.__code__ for f in map(function_of, map(getsignal, range(1, NSIG))) if f is not None}


def function_of(handler: Any) -> types.FunctionType | None:
    t = type(handler)
    if t is types.FunctionType or t is int or handler is None:
        return handler if t is types.FunctionType else None
    if t is functools.partial:
        return function_of(handler.func)
    if t is types.MethodType:
        return function_of(handler.__func__)
    call = next((c.__dict__["__call__"] for c in t.__mro__ if "__call__" in c.__dict__), None)
    return call if type(call) is types.FunctionType else None


def is_one(e: BaseException) -> bool:
    """Whether this exception is such a one."""
    if isinstance(e, KeyboardInterrupt):
        return True
    tb = e.__traceback__
    if tb is None:
        return False
    handlers = codes()
    while tb is not None and handlers:
        if tb.tb_frame.f_code in handlers:
            return True
        tb = tb.tb_next
    return False


__all__ = ["is_one"]
