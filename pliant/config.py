"""The settings of one `pliant.compile(...)`. A setting exists only where two users would want it differently."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

ENTRY_LIMIT = 64
"""Compiled versions of one code object. The policy converges long before; beyond this the versions there are stay in use and
calls that fit none of them run in eager PyTorch."""

BACKOFF = 2
"""How often a decision may turn out differently before both sides are compiled."""


DEFAULT_BACKEND = "native"


def env_flag(name: str) -> bool:
    return os.environ.get(name, "") not in ("", "0")


@dataclass(frozen=True, slots=True)
class Config:
    """What `pliant.compile` was told.

    dynamic: None (sizes and ints are symbolic until the program specializes them), True (also ints held by objects), False (all static),
    or declared dims: a table made of what the user said of each parameter (`jit/dims.py`).
    fullgraph: a graph break is an error.
    backend: "native", "aten", another registered name, or a callable `(GraphModule, example_inputs) -> callable`.
    mode, options: for a backend that is not pliant's own, as `torch.compile` hands them over.
    entry_limit: compiled versions of one code object.
    below: functions that are called by what a graph break leaves to CPython are compiled, too.
    strict: internal errors are raised instead of falling back to eager PyTorch (default: the environment variable PLIANT_STRICT).
    """

    backend: str | Callable = DEFAULT_BACKEND
    dynamic: bool | tuple | None = None
    fullgraph: bool = False
    strict: bool = False
    mode: str | None = None
    options: tuple[tuple[str, Any], ...] = ()
    entry_limit: int = ENTRY_LIMIT
    below: bool = True
