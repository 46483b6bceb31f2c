"""Tiers: the first calls of an entry run ATen, and machine code takes their place when the background has made it.

The emitted function of an entry reads its graph from a global of its own. The exchange is one assignment to it: the next call runs the
machine code, calls that are under way end as they began, and a call's backward pass belongs to the tier of its forward pass.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from typing import Any

from pliant import events
from pliant.codegen.aten import Executable
from pliant.codegen.background import background
from pliant.codegen.native import Changed
from pliant.jit.emit import Emitted
from pliant.lower import pipeline

MOST_TRIES = 3
"""How often machine code is begun anew where the program changes PyTorch's settings meanwhile."""


class Exchange:
    """A job of the background: machine code for one entry. `ready` hears of it. It keeps no entry alive."""

    def __init__(self, emitted: Emitted, frame_id: str, strict: bool, ready: Callable[[Executable], None]) -> None:
        first = emitted.executable
        self.places = places_of(emitted)
        self.fn = weakref.ref(emitted.fn)
        self.emitted = weakref.ref(emitted)
        self.later, first.later = first.later, None
        self.size = first.n_ops
        self.frame_id, self.name = frame_id, emitted.fn.__code__.co_name
        self.strict = strict
        self.ready = ready
        self.since = time.perf_counter()
        self.tries = 0

    def wanted(self) -> bool:
        return self.emitted() is not None

    def run(self) -> None:
        begun = time.perf_counter()
        self.tries += 1
        try:
            with pipeline.checked(self.strict):
                made = self.later()
        except Changed:
            if self.tries >= MOST_TRIES:
                raise
            background.submit(self)
            return
        emitted = self.emitted()
        if emitted is None:
            return
        for name in self.places:
            emitted.fn.__globals__[name] = made.fn
        emitted.executable = made
        now = time.perf_counter()
        events.count("exchanged")
        events.emit("exchanged", frame_id=self.frame_id, name=self.name, seconds=now - self.since, work_seconds=now - begun)
        self.ready(made)

    def forked(self) -> None:
        """In a fork there is no background until it is asked for: the first call of the entry does."""
        emitted = self.emitted()
        if emitted is not None:
            waking(emitted, self.places)


def places_of(emitted: Emitted) -> list[str]:
    """The globals of the emitted function that hold its graph."""
    return [name for name, value in emitted.fn.__globals__.items() if value is emitted.executable.fn]


def waking(emitted: Emitted, places: list[str]) -> None:
    """Until the background is started, the entry's graph starts it."""
    fn, space = emitted.executable.fn, emitted.fn.__globals__

    def graph(*slots: Any) -> Any:
        for name in places:
            if space[name] is graph:
                space[name] = fn
        background.start()
        return fn(*slots)

    for name in places:
        space[name] = graph
