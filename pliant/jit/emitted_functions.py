"""Which Python functions pliant has printed, or read from the disk: they have the names and the module of the program's."""

from __future__ import annotations

from types import FunctionType
from typing import Any

from pliant.jit.other_compilers import not_for_others
from pliant.jit.weak_ids import WeakIdDict

_emitted: WeakIdDict[bool] = WeakIdDict()


def note_emitted(fn: FunctionType) -> FunctionType:
    """Note that `fn` is one of them."""
    _emitted[fn] = True
    return not_for_others(fn)


def is_emitted(fn: Any) -> bool:
    return _emitted.get(fn) is not None
