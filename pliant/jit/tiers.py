"""Tiers: the first calls of an entry run ATen, and machine code takes their place when the background has made it.

The emitted function of an entry reads its graph from a global of its own. The exchange is one assignment to it: the next call runs the
machine code, calls that are under way end as they began, and a call's backward pass belongs to the tier of its forward pass.
"""

from __future__ import annotations

import collections
import contextlib
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

MOST_KEPT = 8
"""For how many entries that are gone machine code is made nevertheless, since the disk keeps them, of one function: models come and go, and
the next one is found there. `reset()` counts anew."""
MOST_TRIES = 3
"""How often machine code is begun anew where the program changes PyTorch's settings meanwhile."""


_gone: collections.Counter[bytes] = collections.Counter()


def forget_gone() -> None:
    """Count anew for which entries that are gone machine code is made."""
    _gone.clear()


class Exchange:
    """A job of the background: machine code for one entry. `ready` hears of it. It keeps no entry alive.

    `kept`: the function whose entry the disk is to have, and its code even if the entry is gone by then; None if it is not kept.
    """

    stores = False

    def __init__(
        self, emitted: Emitted, frame_id: str, strict: bool, ready: Callable[[Executable], None], kept: bytes | None = None
    ) -> None:
        first = emitted.executable
        self.places = places_of(emitted)
        self.fn = weakref.ref(emitted.fn)
        self.emitted = weakref.ref(emitted)
        self.later, first.later = first.later, None
        self.size = first.n_ops
        self.frame_id, self.name = frame_id, emitted.fn.__code__.co_name
        self.strict = strict
        self.ready = ready
        self.kept = kept
        self.since = time.perf_counter()
        self.tries = 0
        self.done = False

    def wanted(self) -> bool:
        return self.emitted() is not None or self.kept is not None and _gone[self.kept] < MOST_KEPT

    def run(self) -> None:
        begun = time.perf_counter()
        self.tries += 1
        try:
            with pipeline.checked(self.strict):
                made = self.later()
        except Changed:
            if self.tries >= MOST_TRIES:
                raise
            self.wait_for_call()  # in which they are as they were: guards see to that
            return
        emitted = self.emitted()
        if emitted is None:
            if self.kept is not None:
                _gone[self.kept] += 1
                self.ready(made)
            return
        for name in self.places:
            emitted.fn.__globals__[name] = made.fn
        emitted.executable = made
        self.done = True
        now = time.perf_counter()
        events.count("exchanged")
        events.emit("exchanged", frame_id=self.frame_id, name=self.name, seconds=now - self.since, work_seconds=now - begun)
        self.ready(made)

    def wait_for_call(self) -> None:
        """Submit the job when the entry's graph has run once: until then it would only hold up the first answer."""
        emitted = self.emitted()
        if emitted is None:
            return
        fn, space, waiting = emitted.executable.fn, emitted.fn.__globals__, [self]

        def graph(*slots: Any) -> Any:
            try:
                return fn(*slots)
            finally:
                with contextlib.suppress(IndexError):  # of several threads that come here at once, one does it
                    job = waiting.pop()
                    for name in job.places:
                        space[name] = fn
                    background.submit(job)

        for name in self.places:
            space[name] = graph


class Storing:
    """A job of the background: something goes to the disk. The child of a fork leaves it to its parent."""

    stores = True
    size = 1
    frame_id = ""
    done = False

    def __init__(self, name: str, store: Callable[[], None]) -> None:
        self.name = name
        self.run = store

    def wanted(self) -> bool:
        return True

    def wait_for_call(self) -> None:
        pass


def places_of(emitted: Emitted) -> list[str]:
    """The globals of the emitted function that hold its graph."""
    return [name for name, value in emitted.fn.__globals__.items() if value is emitted.executable.fn]
