"""The ring of events and the counters.

`emit` costs about a microsecond: it appends a tuple to a bounded deque and calls the subscribers (the log printers). Readers get
`Event` objects. Counters are separate, so that they never fall out of the ring. Kinds in `LARGE` carry whole graphs or guards: they
reach the subscribers but are not kept, so that the log never holds a user's tensors or code alive.
"""

from __future__ import annotations

import collections
import threading
import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

CAPACITY = 4096

KINDS = {
    "capture_start": "a frame is about to be interpreted: frame_id, name, filename, lineno",
    "capture_end": "a capture is over: frame_id, seconds, ops, guards, exit",
    "recompile": "no entry fitted: frame_id, reasons (the guards that failed, with what was seen)",
    "graph_break": "the graph ended early: frame_id, code, reason, site",
    "exit_point": "a graph goes on behind a branch on data: frame_id, where, side, takes (of each side so far)",
    "specialization": "a size or number became constant: frame_id, expr, value, site",
    "entry_added": "a compiled entry was installed: frame_id, name, seconds",
    "short_lived": "entries went with objects they need, made anew in each call; captures wait: name, died, skipped (misses)",
    "limit": "no more entries for this code object: name, limit",
    "fallback": "a frame is given up to eager PyTorch after an internal failure: id, name, error",
    "backend_compile": "a backend compiled a graph: frame_id, backend, seconds",
    "exchanged": "machine code took the place of ATen calls: frame_id, name, seconds (since the capture), work_seconds (in the background)",
    "background_error": "the background failed, and ATen calls stay in use: frame_id, name, error",
    "verified": "a call ran in eager too, and came to the same: name, entries, seconds",
    "mismatch": "a call came to something else than eager: id, name, entries, what, file (which reproduces it)",
    "unverifiable": "a call that was to be verified could not be: name, reason",
    "policy": "a source or site changed its treatment: what, where",
    "loop_open": "a loop on data is no operation of the graph: where, why",
    "branch_open": "the sides of a branch on data are no operation of the graph: where, why",
    "disk": "what became of an entry on the disk: what (found, kept, not kept or not used, and why), where (its function)",
    "warning": "something worth telling the user once: id, text",
    "fetch": "the value of a remote tensor came to the controller: why, sizes, dtype, placement",
    "gathered": "an operator on sharded tensors ran on whole ones: what (operator and line)",
    "remote": "a mesh lost a worker, or is whole again, or a program failed there: what, worker, text",
    "graph": "a captured graph: frame_id, graph (a trace or an fx.Graph); optional: name, outputs",
    "guards": "the guards of an entry: frame_id, guards",
    "bytecode": "code before and after: frame_id, original, modified",
    "pass": "a pass over a graph is done: name, program, level (if it is another one), before and after (as text)",
    "kernel": "a kernel of loops is about to be compiled: kernel, checked",
}
LARGE = frozenset(("graph", "guards", "bytecode", "pass", "kernel"))


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened. `at` is `time.perf_counter()` seconds."""

    kind: str
    at: float
    thread: int
    fields: dict[str, Any]


Subscriber = Callable[[Event], None]

_ring: collections.deque[tuple] = collections.deque(maxlen=CAPACITY)
_counters: collections.Counter[str] = collections.Counter()
_subscribers: tuple[tuple[Subscriber, frozenset[str]], ...] = ()
"""Each with the kinds that it wants (none: all). Replaced as a whole, so that `emit` reads it without a lock."""
_passive: list[Subscriber] = []
"""Those for whose sake nothing is done that would not be done else."""
_lock = threading.Lock()


def emit(kind: str, **fields: Any) -> None:
    """Record an event of a kind in `KINDS` and tell the subscribers. KeyError for an unknown kind."""
    KINDS[kind]
    entry = (kind, time.perf_counter(), threading.get_ident(), fields)
    if kind not in LARGE:
        _ring.append(entry)
    if _subscribers:
        publish(Event(*entry))


def publish(event: Event) -> None:
    """Call the subscribers. One that raises is dropped with a warning: a printer must never break a compilation."""
    for fn, kinds in _subscribers:
        if kinds and event.kind not in kinds:
            continue
        try:
            fn(event)
        except Exception as e:
            unsubscribe(fn)
            warnings.warn(f"a subscriber of pliant's events was dropped: {type(e).__name__}: {e}", RuntimeWarning, stacklevel=3)


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
    return [Event(*e) for e in _ring.copy() if kind is None or e[0] == kind]


def reset() -> None:
    """Forget events and counters; subscribers stay."""
    _ring.clear()
    with _lock:
        _counters.clear()


def subscribe(fn: Subscriber, kinds: Iterable[str] = (), passive: bool = False) -> Callable[[], None]:
    """Call `fn(event)` for each event of these kinds (none: of all) from now on. Returns the function that ends it.

    `passive`: it takes what is told anyway. For others what is costly to tell is made, and programs are captured though the disk has them.
    """
    global _subscribers
    with _lock:
        if passive:
            _passive.append(fn)
        _subscribers = (*_subscribers, (fn, frozenset(kinds)))
    return lambda: unsubscribe(fn)


def unsubscribe(fn: Subscriber) -> None:
    """End what `subscribe(fn)` began; nothing happens if it has ended already."""
    global _subscribers
    with _lock:
        _subscribers = tuple(s for s in _subscribers if s[0] is not fn)
        _passive[:] = [f for f in _passive if f is not fn]


def watched(kind: str = "") -> bool:
    """Whether anybody waits for events (of this kind): what is costly to tell need not be made otherwise."""
    return any([fn not in _passive and (not kind or not kinds or kind in kinds) for fn, kinds in _subscribers])
