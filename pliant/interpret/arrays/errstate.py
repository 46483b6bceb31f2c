"""`np.errstate`: settings that let nothing raise change no value, so in the graph they are nothing; after a break they are real again."""

from __future__ import annotations

from typing import Any

from pliant.graph.originals import numpy as np
from pliant.interpret.arrays.dtypes import Unsure
from pliant.interpret.arrays.table import CODE, function
from pliant.interpret.state import Break

NAMES = {"all", "divide", "over", "under", "invalid"}


class Errors:
    """An `np.errstate` that was made here. `entered`: inside its `with`."""

    __slots__ = ("entered", "settings")

    def __init__(self, settings: dict[str, str]) -> None:
        self.settings = settings
        self.entered = False

    def __enter__(self) -> None:
        """The interpreter asks whether there is one, and calls `ErrorsMethod`."""

    def __exit__(self, *_: Any) -> None:
        """Likewise."""


class ErrorsMethod:
    """Its `__enter__` or `__exit__`, bound."""

    __slots__ = ("name", "owner")

    def __init__(self, owner: Errors, name: str) -> None:
        self.owner = owner
        self.name = name


@function(np.errstate)
def errstate(**settings: Any) -> Any:
    if not settings.keys() <= NAMES or not set(settings.values()) <= {"ignore", "warn"}:
        raise Unsure("errors that raise")
    return Errors(dict(settings))


def seen_type(e: Errors) -> type:
    return np.errstate


def getattr_(e: Errors, name: str) -> Any:
    if name in ("__enter__", "__exit__"):
        return ErrorsMethod(e, name)
    raise Break(CODE, f"np.errstate.{name}", clean=True)


def setattr_(e: Errors, name: str, value: Any) -> None:
    raise Break(CODE, f"np.errstate.{name}", clean=True)


def call(m: ErrorsMethod, args: tuple, kw: dict) -> Any:
    m.owner.entered = m.name == "__enter__"


def entered(**settings: str) -> Any:
    """Called by emitted code: what was entered in the graph is entered for the rest of the frame."""
    e = np.errstate(**settings)  # type: ignore[arg-type]
    e.__enter__()
    return e
