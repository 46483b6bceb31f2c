"""Which Python functions pliant has printed, or read from the disk: they have the names and the module of the program's, and its places."""

from __future__ import annotations

from types import CodeType, FunctionType
from typing import Any

from pliant.bytecode.assemble import Span, place_at
from pliant.interpret.capture import FrameState
from pliant.jit.other_compilers import not_for_others
from pliant.jit.weak_ids import WeakIdDict

_emitted: WeakIdDict[bool] = WeakIdDict()


def note_emitted(fn: FunctionType) -> FunctionType:
    """Note that `fn` is one of them."""
    _emitted[fn] = True
    return not_for_others(fn)


def is_emitted(fn: Any) -> bool:
    return _emitted.get(fn) is not None


def beginning(code: CodeType) -> Span:
    """Of a function that ends where no frame of the program's stands."""
    return code.co_firstlineno, None, None, None


def place_of(frame: FrameState) -> Span:
    """Where a suspended frame stands: there an exception of what it has called is shown to pass."""
    return (place_at(frame.code, frame.lasti * 2) if frame.lasti >= 0 else None) or beginning(frame.code)
