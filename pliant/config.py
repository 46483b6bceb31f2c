"""The settings of one `pliant.compile(...)`. A setting exists only where two users would want it differently."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

ENTRY_LIMIT = 64
"""Compiled versions of one code object. The policy converges long before; beyond this the versions there are stay in use and
calls that fit none of them run in eager PyTorch."""

BACKOFF = 2
"""How often a decision may turn out differently before both sides are compiled."""


DEFAULT_BACKEND = "native"


FLAGS = {"": False, "0": False, "1": True} | dict.fromkeys(("true", "yes", "on"), True) | dict.fromkeys(("false", "no", "off"), False)


def env_flag(name: str, default: str = "") -> bool:
    """A switch of the environment, 0 or 1; ValueError for a word that is neither."""
    value = os.environ.get(name, default)
    found = FLAGS.get(value.strip().lower())
    if found is None:
        raise ValueError(f"the environment variable {name} is 0 or 1 (or true, false, yes, no, on, off), not {value!r}")
    return found


def env_share(name: str) -> float:
    """A number from 0 to 1; ValueError for anything else."""
    return as_share(os.environ.get(name, "") or 0.0, name)


def as_share(value: Any, name: str) -> float:
    try:
        share = float(value)
    except (TypeError, ValueError):
        share = -1.0
    if not 0.0 <= share <= 1.0:
        raise ValueError(f"{name} is a share of calls, a number from 0 to 1, not {value!r}")
    return share


@dataclass(frozen=True, slots=True)
class Config:
    """What `pliant.compile` was told.

    dynamic: None (sizes and ints are symbolic until the program specializes them), True (also ints held by objects), False (all static),
    or declared dims: a table made of what the user said of each parameter (`jit/dims.py`).
    fullgraph: a graph break is an error.
    backend: "native", "aten", another registered name, or a callable `(GraphModule, example_inputs) -> callable`.
    mode, options: for a backend that is not pliant's own, as `torch.compile` hands them over.
    entry_limit: compiled versions of one code object.
    name: what the user calls this compilation: events, explanations and logs say it before each function's own name.
    verify: the share of calls that run in eager PyTorch too and are compared (`jit/verify`). It changes nothing of what is compiled.
    isolated: a number of its own, for a compilation that shares no entries with equal ones; 0 for all others.
    below: functions that are called by what a graph break leaves to CPython are compiled, too.
    background: backend "native" answers the first calls with ATen, and its machine code takes their place when a thread in the background
    has made it (default: the environment variable PLIANT_BACKGROUND, else True). It changes nothing of what is kept on disk.
    strict: internal errors are raised instead of falling back to eager PyTorch (default: the environment variable PLIANT_STRICT).
    """

    backend: str | Callable = DEFAULT_BACKEND
    dynamic: bool | tuple | None = None
    fullgraph: bool = False
    strict: bool = False
    mode: str | None = None
    options: tuple[tuple[str, Any], ...] = ()
    entry_limit: int = ENTRY_LIMIT
    name: str = field(default="", repr=False)
    isolated: int = field(default=0, repr=False)
    below: bool = True
    verify: float = field(default=0.0, repr=False)
    background: bool = field(default=False, repr=False)

    def label(self, code: CodeType) -> str:
        """What a code object is called in events."""
        return f"{self.name}: {code.co_qualname}" if self.name else code.co_qualname
