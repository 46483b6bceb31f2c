"""The event log: bounded, safe between threads, deaf to broken subscribers."""

from __future__ import annotations

import gc
import threading
import weakref

import pytest

from pliant import events
from pliant.events import log


@pytest.fixture(autouse=True)
def clean():
    """The log is one per process: give the counts of other tests back."""
    ring, counts = list(log._ring), log._counters.copy()
    events.reset()
    yield
    events.reset()
    log._ring.extend(ring)
    log._counters.update(counts)


def test_events_are_kept_in_order_and_by_kind():
    events.emit("capture_start", frame_id="0/0", name="f")
    events.emit("warning", id="x", text="t")
    assert [e.kind for e in events.events()] == ["capture_start", "warning"]
    (only,) = events.events("warning")
    assert only.fields == {"id": "x", "text": "t"} and only.thread == threading.get_ident()
    assert events.events()[0].at <= only.at
    events.reset()
    assert events.events() == []


def test_an_unknown_kind_is_an_error():
    with pytest.raises(KeyError):
        events.emit("capture_began")
    assert events.events() == []


def test_the_ring_is_bounded_and_keeps_the_newest():
    for i in range(log.CAPACITY + 10):
        events.emit("warning", id=i, text="")
    found = events.events()
    assert len(found) == log.CAPACITY and found[0].fields["id"] == 10 and found[-1].fields["id"] == log.CAPACITY + 9


@pytest.mark.parametrize("kind", sorted(log.LARGE))
def test_large_events_are_told_but_not_kept(kind):
    class Graph:
        pass

    seen = []
    cancel = events.subscribe(lambda e: seen.append(e.kind))
    graph = Graph()
    alive = weakref.ref(graph)
    events.emit(kind, frame_id="0/0", graph=graph)
    cancel()
    del graph
    gc.collect()
    assert seen == [kind] and alive() is None and events.events() == []


def test_subscribers_hear_until_they_cancel():
    first, second = [], []
    cancel = events.subscribe(first.append)
    events.subscribe(second.append)
    events.emit("warning", id=1, text="")
    cancel()
    cancel()
    events.emit("warning", id=2, text="")
    log.unsubscribe(second.append)  # another object than was subscribed: bound methods are made anew
    events.emit("warning", id=3, text="")
    for fn, _ in log._subscribers:
        if getattr(fn, "__self__", None) is second:
            log.unsubscribe(fn)
    assert [e.fields["id"] for e in first] == [1] and [e.fields["id"] for e in second] == [1, 2, 3]


def test_a_subscriber_that_raises_is_dropped_and_the_others_hear():
    heard = []

    def broken(event):
        raise ValueError("no paper")

    events.subscribe(broken)
    cancel = events.subscribe(heard.append)
    with pytest.warns(RuntimeWarning, match="dropped: ValueError: no paper"):
        events.emit("warning", id=1, text="")
    events.emit("warning", id=2, text="")
    cancel()
    assert len(heard) == 2 and broken not in log._subscribers


def test_counters():
    events.count("captures")
    events.count("captures", 2)
    assert events.counters() == {"captures": 3}
    events.counters()["captures"] = 9
    assert events.counters() == {"captures": 3}


def test_threads_lose_nothing():
    heard = []
    cancel = events.subscribe(lambda e: heard.append(e.fields["id"]))

    def work(n):
        for i in range(200):
            events.count("n")
            events.emit("warning", id=(n, i), text="")
            events.events()

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    cancel()
    assert events.counters()["n"] == 1600
    assert len(events.events()) == len(heard) == 1600
    for n in range(8):
        assert [i for m, i in heard if m == n] == list(range(200))
