"""TorchDynamo's counters, told what pliant does: libraries and tests ask `torch._dynamo.utils.counters` for graphs and breaks.

TorchDynamo is not imported for it: what happened before the program imports it is added then.
"""

from __future__ import annotations

import collections
import sys

from pliant.events import Event

MODULE = "torch._dynamo.utils"
_waiting: collections.Counter[tuple[str, str]] = collections.Counter()


def told(event: Event) -> None:
    """Count an event under the names that TorchDynamo gives such things."""
    fields = event.fields
    if event.kind == "capture_end" and fields["ops"]:
        _waiting["stats", "unique_graphs"] += 1
        _waiting["stats", "calls_captured"] += fields["ops"]
    elif event.kind == "capture_start":
        _waiting["frames", "total"] += 1
    elif event.kind == "entry_added":
        _waiting["frames", "ok"] += 1
        if fields.get("from_disk"):
            _waiting["frames", "total"] += 1
            _waiting["stats", "unique_graphs"] += 1
            if fields["breaks"]:
                _waiting["graph_break", "an entry from the disk ends at a graph break"] += 1
    elif event.kind == "graph_break":
        _waiting["graph_break", f"{fields['code']}: {fields['reason']}"] += 1
    hand_over()


def hand_over() -> None:
    """Add what is waiting to TorchDynamo's counters, if they exist by now."""
    counters = getattr(sys.modules.get(MODULE), "counters", None)
    if counters is not None:
        for (group, name), n in _waiting.items():
            counters[group][name] += n
        _waiting.clear()


KINDS = ("capture_start", "capture_end", "entry_added", "graph_break")
