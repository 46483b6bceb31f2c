"""Warnings of Python code of PyTorch that is run as it is: each call of the program says them."""

from __future__ import annotations

import contextlib
import sys
import warnings
from _thread import get_ident
from collections.abc import Callable, Iterator
from typing import Any

WARN = warnings.warn


@contextlib.contextmanager
def heard(lookasides: dict[Any, Callable]) -> Iterator[None]:
    """While such code runs: what it says is an effect of the call."""
    said: list[tuple] = []
    thread, before = get_ident(), warnings.warn

    def warn(*args: Any, **kwargs: Any) -> None:
        if get_ident() != thread:
            before(*args, **kwargs)
        elif (args, kwargs) not in said:  # the call may be tried in several ways
            said.append((args, kwargs))
            lookasides[WARN](args, kwargs, sys._getframe(1))

    warnings.warn = warn  # type: ignore[assignment]
    standing_in.append((warn, before))
    try:
        yield
    finally:
        standing_in.pop()
        warnings.warn = before


standing_in: list[tuple[Any, Any]] = []
"""Each function that stands for `warnings.warn` just now, and what it stands for."""


@contextlib.contextmanager
def as_it_was() -> Iterator[None]:
    """While code is interpreted that such code has called: it reads `warnings.warn`, and guards it, as the program does."""
    if not standing_in or warnings.warn is not standing_in[-1][0]:
        yield
        return
    ours = warnings.warn
    warnings.warn = standing_in[0][1]
    try:
        yield
    finally:
        warnings.warn = ours
