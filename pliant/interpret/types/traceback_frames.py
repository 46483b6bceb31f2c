"""Frames in tracebacks that a handler of the program looks at: the proxies have file and name. Where more is asked for, the frame
that handles and the one that raised are CPython's."""

from __future__ import annotations

from types import FrameType
from typing import Any

from pliant.interpret import callers_variables, tracebacks
from pliant.interpret.attributes import from_outside, instance_getattr
from pliant.interpret.state import vm
from pliant.interpret.types.row import row

MISSING = ("f_locals", "f_globals", "f_builtins", "f_back", "f_lineno", "f_lasti")
READS_FOR_LINES = ("traceback", "linecache")  # modules that ask the globals how to find the source, and take none for an answer


def read(f: FrameType, name: str) -> Any:
    code = tracebacks.code_shown(f) if name in MISSING else None
    if code is not None and not (name == "f_globals" and vm.frame.globals.get("__name__") in READS_FOR_LINES):
        callers_variables.looked_into(code, vm.frame)
    return instance_getattr(f, FrameType, name, from_outside(f), False)


row(name="frame", stands=(FrameType,), getattr=read)
