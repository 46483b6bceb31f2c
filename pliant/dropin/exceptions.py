"""TorchDynamo's exceptions: while pliant stands in the place of PyTorch's compiler, its own errors are theirs as well.

A program that says `except torch._dynamo.exc.Unsupported` or `BackendCompilerFailed` hears of what pliant raises. `except` asks for the
bases that a class really has, so those of pliant's classes change when the module of these exceptions is there, and change back.
"""

from __future__ import annotations

import sys
import traceback
from typing import Any

from pliant import errors

MODULE = "torch._dynamo.exc"
PAIRS: dict[type[errors.PliantError], tuple[str, ...]] = {
    errors.GraphBreakError: ("Unsupported",),
    errors.RecompileError: ("RecompileError", "FailOnRecompileLimitHit"),
    errors.BackendError: ("BackendCompilerFailed",),
    errors.InternalError: ("InternalTorchDynamoError",),
}
_before: dict[type, tuple[type, ...]] = {}


class Fields:
    """What handlers read of TorchDynamo's exceptions: attributes that `__init__` sets there, which is not called here."""

    gb_type = ""
    category = "unimplemented"
    skip_frame = logged = False
    first_useful_frame = frame_exec_strategy = None
    msg = property(str)
    real_stack = property(lambda self: traceback.extract_tb(self.__traceback__))
    inner_exception = property(lambda self: self.__cause__)
    backend_name = property(lambda self: getattr(self, "backend", "?"))


def adopt() -> None:
    """Make pliant's errors TorchDynamo's, if those are there."""
    there: Any = sys.modules.get(MODULE)
    for own, names in PAIRS.items():
        theirs = tuple([c for c in [getattr(there, name, None) for name in names] if isinstance(c, type)])
        if theirs and own not in _before:
            _before[own] = own.__bases__
            own.__bases__ = (errors.PliantError, Fields, *theirs)


def give_back() -> None:
    """Put back the bases that were there."""
    while _before:
        own, bases = _before.popitem()
        own.__bases__ = bases


__all__ = ["MODULE", "adopt", "give_back"]
