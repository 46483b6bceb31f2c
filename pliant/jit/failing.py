"""What emitted code asks when its graph has raised: whether the frame runs anew, in CPython."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from types import CodeType
from typing import Any

from pliant.codegen.failures import Place, failed
from pliant.graph.leaving import Elsewhere
from pliant.interpret import interrupts

Again = Callable[[BaseException, bool, CodeType | None, tuple], Any]
"""`again(error, handled, code, calls)` leaves: a graph of `code` raised before it did anything that shows. `calls`: at which line
(`Site.calls`), or empty."""


class Failing:
    """What is told that the graph of `code` raised. It keeps nobody alive: entries live in code objects."""

    __slots__ = ("code", "lenient", "method")

    def __init__(self, code: CodeType, again: Again, lenient: bool = False) -> None:
        self.code = weakref.ref(code)
        self.method = weakref.WeakMethod(again)
        self.lenient = lenient  # CPython need not raise, too: the graph may have gone along the wrong side of a branch

    def __call__(self, e: BaseException) -> tuple[int, tuple] | None:
        return None if interrupts.is_one(e) else failed(e, self.again)

    def again(self, e: BaseException, place: Place | None) -> None:
        leave = self.method()
        if leave is not None:
            handled = place is None or place.handled or self.lenient
            leave(e, handled, self.code(), () if place is None or type(e) is Elsewhere else place.calls)
