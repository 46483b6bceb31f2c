"""Who makes code now: captures, in the threads of the program, and the background take turns.

Everything that captures, lowers or prints holds `compiling`, as one capture after the other always did. The background thread holds it,
too, and gives it up every millisecond, at places where nothing is half done (`rest`): a capture waits that long for it, and a program that
computes meanwhile waits that long for the interpreter. What needs no turn, LLVM at work above all, runs `outside` of them.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator

SLICE_S, MOST_S = 0.001, 0.005
"""So long the background works before it rests; longer where others had the interpreter for longer, up to CPython's own interval."""
PAUSE_S = 0.001
"""So long it rests: the interpreter is the program's for at least half of the time."""

compiling = threading.RLock()
at_fork: list[tuple[Callable[[], None], Callable[[], None], Callable[[], None]]] = []
"""What others do before a fork, behind it in the parent, and in the child. `compiling` is held, so that nothing is half made."""


@contextlib.contextmanager
def waiting(seconds: float) -> Iterator[bool]:
    """A turn, if it comes in time: whether it did."""
    mine = compiling.acquire(timeout=seconds)
    try:
        yield mine
    finally:
        if mine:
            compiling.release()


class Pace:
    """How the background thread goes on. `stop` is asked at every rest, and raises to abandon the work. `hurry`: somebody waits for it."""

    def __init__(self, stop: Callable[[], None]) -> None:
        self.thread = threading.get_ident()
        self.stop = stop
        self.hurry = False
        self.until = 0.0

    def rest(self) -> None:
        if time.perf_counter() >= self.until:
            with self.away():
                time.sleep(0 if self.hurry else PAUSE_S)
            self.stop()

    @contextlib.contextmanager
    def away(self) -> Iterator[None]:
        began = time.perf_counter()
        compiling.release()
        try:
            yield
        finally:
            compiling.acquire()
            now = time.perf_counter()
            self.until = now + min(max(now - began, SLICE_S), MOST_S)


_pace: Pace | None = None


def rest() -> None:
    """Called where work can stand still for a while: between passes, between kernels. Only the background does."""
    pace = own()
    if pace is not None:
        pace.rest()


def own() -> Pace | None:
    """The pace of this thread, if it is the background's."""
    pace = _pace
    return pace if pace is not None and pace.thread == threading.get_ident() else None


def in_background() -> bool:
    """Is this the background thread?"""
    return own() is not None


@contextlib.contextmanager
def outside() -> Iterator[None]:
    """What runs inside touches nothing that captures use: the background lets them have their turn meanwhile."""
    pace = own()
    if pace is None:
        yield
        return
    with pace.away():
        yield
    pace.stop()


@contextlib.contextmanager
def taking(pace: Pace) -> Iterator[None]:
    """The background's turns, as long as it works on one thing."""
    global _pace
    with compiling:
        _pace = pace
        pace.until = time.perf_counter() + SLICE_S
        try:
            yield
        finally:
            _pace = None


def before_fork() -> None:
    compiling.acquire()
    for before, _, _ in at_fork:
        before()


def after_fork(in_child: bool) -> None:
    global _pace
    if in_child:
        _pace = None
    for _, parent, child in reversed(at_fork):
        (child if in_child else parent)()
    compiling.release()


os.register_at_fork(before=before_fork, after_in_parent=lambda: after_fork(False), after_in_child=lambda: after_fork(True))
