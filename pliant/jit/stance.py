"""Stances: what becomes of a call that no compiled version serves, for the whole process (`torch.compiler.set_stance`'s words).

Read at a miss; calls that an entry serves do not ask. What the program told PyTorch's own compiler is honoured as well: its stance and
those of its settings that mean something here. TorchDynamo is never imported for it: what was not imported was told nothing.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import CodeType
from typing import Any

from pliant import native
from pliant.config import ENTRY_LIMIT
from pliant.errors import RecompileError

MEANINGS = {
    "default": "capture and compile",
    "force_eager": "every compiled function runs in eager PyTorch",
    "eager_on_recompile": "it runs in eager PyTorch; what is compiled stays in use",
    "fail_on_recompile": "an error",
    "eager_then_compile": "the first call of each function runs in eager PyTorch",
    "aot_eager_then_compile": "the first call of each function runs in eager PyTorch",
}
TORCH_LIMIT = 8  # `torch._dynamo.config.recompile_limit`, unless the program sets it

_stance = "default"


def take(stance: str) -> str:
    """Take up a stance; returns the one before."""
    global _stance
    before, _stance = _stance, stance
    native.set_enabled(stance != "force_eager")
    return before


class set_stance:  # noqa: N801 (as `torch.compiler.set_stance`)
    """Take up a stance from now on; as a context manager for a block, as a decorator for the calls of a function. See `MEANINGS`.

    `skip_guard_eval_unsafe` and `force_backend` are refused: guards are what makes answers right, and a backend belongs to a compilation.
    """

    _dynamo_forbidden = True

    def __init__(self, stance: str = "default", *, skip_guard_eval_unsafe: bool = False, force_backend: Any = None) -> None:
        if stance not in MEANINGS:
            raise RuntimeError(f"invalid stance {stance!r}: one of {', '.join(MEANINGS)}")
        for name, given in {"skip_guard_eval_unsafe": skip_guard_eval_unsafe, "force_backend": force_backend}.items():
            if given:
                raise RuntimeError(f"set_stance({name}=...) means nothing to pliant")
        self.stance = stance
        self.before = take(stance)

    def __enter__(self) -> None:
        take(self.stance)

    def __exit__(self, *_: Any) -> None:
        take(self.before)

    def __call__(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        take(self.before)

        @functools.wraps(fn)
        def under_stance(*args: Any, **kwargs: Any) -> Any:
            before = take(self.stance)
            try:
                return fn(*args, **kwargs)
            finally:
                take(before)

        under_stance._dynamo_forbidden = True  # type: ignore[attr-defined]
        return under_stance


def said_to_torch(module: str, name: str, default: Any) -> Any:
    """What the program told TorchDynamo, if it has imported it."""
    return getattr(sys.modules.get(f"torch._dynamo.{module}"), name, default)


def current() -> str:
    """The stance that holds."""
    told = getattr(said_to_torch("eval_frame", "_stance", None), "stance", "default")
    return _stance if _stance != "default" or told not in MEANINGS else told


def runs_eager(code: CodeType, met: bool) -> bool:
    """Whether a call that no entry of `code` serves is to run in eager PyTorch. Raises RecompileError where it may not happen at all.

    `met`: whether this code object has had a call before.
    """
    stance = current()
    if stance == "force_eager" or stance == "eager_on_recompile" or said_to_torch("config", "disable", False) is True:
        return True
    if stance == "fail_on_recompile":
        raise RecompileError(f"Detected recompile when the stance is 'fail_on_recompile': {where(code)}")
    if said_to_torch("config", "error_on_recompile", False) is True and native.entries(code):
        raise RecompileError(f"torch._dynamo.config.error_on_recompile is set, and no compiled version fits a call of {where(code)}")
    return stance.endswith("eager_then_compile") and not met


def limit(own: int) -> int:
    """How many compiled versions a code object may have: `own`, unless the program has told TorchDynamo another number.

    PyTorch's default is far below ours, because its versions are; a number below it is meant as a limit, one above ours as more room.
    """
    told = said_to_torch("config", "recompile_limit", TORCH_LIMIT)
    return told if own == ENTRY_LIMIT and type(told) is int and not TORCH_LIMIT <= told <= own else own


def where(code: CodeType) -> str:
    """What messages call a code object, and where it stands."""
    return f"{code.co_qualname} ({code.co_filename}:{code.co_firstlineno})"
