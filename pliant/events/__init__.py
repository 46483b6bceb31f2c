"""One bounded, always-on event log. Every stage reports to it; it knows nobody."""

from pliant.events.log import KINDS, Event, count, counters, emit, events, reset, subscribe, watched

__all__ = ["KINDS", "Event", "count", "counters", "emit", "events", "reset", "subscribe", "watched"]
