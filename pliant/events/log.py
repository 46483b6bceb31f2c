"""The ring of events and the counters.

`emit` costs about a microsecond: it appends a tuple to a bounded deque and calls the subscribers (the log printers). Readers get
`Event` objects. Counters are separate, so that they never fall out of the ring.
"""

from __future__ import annotations

import collections
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

CAPACITY = 4096

KINDS = {
    "capture_start": "a frame is about to be interpreted: frame_id, name, filename, lineno",
    "capture_end": "a capture is over: frame_id, seconds, ops, guards, exit",
    "recompile": "no entry fitted: frame_id, reasons (the guards that failed, with what was seen)",
    "graph_break": "the graph ended early: frame_id, code, reason, site",
    "specialization": "a size or number became constant: frame_id, expr, value, site",
    "entry_added": "a compiled entry was installed: frame_id, name, seconds",
    "limit": "no more entries for this code object: name, limit",
    "fallback": "a frame is given up to eager PyTorch after an internal failure: id, name, error",
    "backend_compile": "a backend compiled a graph: frame_id, backend, seconds",
    "policy": "a source or site changed its treatment: what, where",
    "warning": "something worth telling the user once: id, text",
    "graph": "a captured graph: frame_id, graph (printable)",
    "guards": "the guards of an entry: frame_id, guards",
    "bytecode": "code before and after: frame_id, original, modified",
}


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened. `at` is `time.perf_counter()` seconds."""

    kind: str
    at: float
    thread: int
    fields: dict[str, Any]


_ring: collections.deque[tuple] = collections.deque(maxlen=CAPACITY)
_counters: collections.Counter[str] = collections.Counter()
_subscribers: list[Callable[[Event], None]] = []
_lock = threading.Lock()


def emit(kind: str, **fields: Any) -> None:
    """Record an event of a kind in `KINDS` and tell the subscribers. KeyError for an unknown kind."""
    KINDS[kind]
    entry = (kind, time.perf_counter(), threading.get_ident(), fields)
    _ring.append(entry)
    for s in list(_subscribers):
        s(Event(*entry))


def count(name: str, n: int = 1) -> None:
    """Add to a process-wide counter."""
    with _lock:
        _counters[name] += n


def counters() -> dict[str, int]:
    """All counters, by name."""
    with _lock:
        return dict(_counters)


def events(kind: str | None = None) -> list[Event]:
    """The events still in the ring, oldest first."""
    return [Event(*e) for e in list(_ring) if kind is None or e[0] == kind]


def reset() -> None:
    """Forget events and counters; subscribers stay."""
    _ring.clear()
    with _lock:
        _counters.clear()


def subscribe(fn: Callable[[Event], None]) -> Callable[[], None]:
    """Call `fn(event)` for each event from now on. Returns the function that ends it."""
    _subscribers.append(fn)

    def cancel() -> None:
        if fn in _subscribers:
            _subscribers.remove(fn)

    return cancel
