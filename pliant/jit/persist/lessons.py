"""What the policy memory knew when an entry was made, as data: a process that finds the entry goes on from there.

An entry is right whatever the memory says; without it, a process that captures something new beside entries from the disk would learn
again what they were made with (which sizes change, where the graph breaks, which loops stay in Python, what is called apart), one
capture for each lesson, and would capture what CPython ran for want of rations.
Sources and code objects that no name leads to are left out.
"""

from __future__ import annotations

import contextlib
import marshal
from collections.abc import Iterable
from typing import Any

from pliant.guards.source import Source
from pliant.jit.history import History
from pliant.jit.persist.guards import Paths, Weakly, inner_code, sources_of
from pliant.jit.persist.values import NotPortable
from pliant.jit.weak_ids import WeakIdDict

Offsets = WeakIdDict[set[int]]


def encode_sources(sources: Iterable[Source], paths: Paths) -> list[int]:
    found = []
    for s in sources:
        with contextlib.suppress(NotPortable):
            found.append(paths.source(s))
    return found


def encode_offsets(table: Offsets, paths: Paths) -> list[tuple]:
    rows = [(paths.code(code), sorted(offsets)) for code, offsets in table.items()]
    return [row for row in rows if row[0] is not None]


def tables_of(history: History) -> tuple[Offsets, ...]:
    """What is known of instructions."""
    return history.sites.breaks, history.sites.loops, history.sites.numbers.whole


def encode_lessons(history: History, refused: Iterable[str], paths: Paths) -> bytes:
    """`paths` is of its own: it numbers the sources of these lessons."""
    sources = [encode_sources(found, paths) for found in (history.dynamic, history.kin, history.opaque, history.keyed)]
    offsets = [encode_offsets(table, paths) for table in tables_of(history)]
    tables = history.places, history.sometimes
    listed = [encode_places([where for where, items in table.items() if items is None], paths) for table in tables]
    apart = [found for code in history.sites.functions.all_apart() if (found := paths.code(code)) is not None]
    return marshal.dumps((sources, offsets, listed, apart, sorted(refused), history.sites.ration.again, paths.rows))


def encode_places(places: Iterable[tuple], paths: Paths) -> list[tuple]:
    """Of `source.places`: those that names and numbers lead to."""
    found = []
    for base, *steps in places:
        if all([step is None or type(step[1]) in (str, int) for step in steps]):
            with contextlib.suppress(NotPortable):
                found.append((paths.source(base), *steps))
    return found


class Lessons:
    """Those of one entry, read when something is captured."""

    def __init__(self, data: bytes, objects: list[Any]) -> None:
        self.data = data
        self.objects = Weakly(objects)

    def teach(self, history: History, refused: set[str]) -> None:
        """Add them to what this process has learned."""
        sources, offsets, listed, apart, more, again, rows = marshal.loads(self.data)
        found = sources_of(rows, self.objects)
        for known, new in zip((history.dynamic, history.kin, history.opaque, history.keyed), sources, strict=True):
            known.update([found[i] for i in new])
        history.remember([found[i] for i in sources[0]])
        for table, new in zip(tables_of(history), offsets, strict=True):
            for (owner, way), at in new:
                code = inner_code(self.objects[owner], way)
                if code is not None:
                    history.sites.put(table, code, at)
        for known_places, new in zip((history.places, history.sometimes), listed, strict=True):
            for base, *steps in new:
                known_places[found[base], *steps] = None
        for owner, way in apart:
            code = inner_code(self.objects[owner], way)
            if code is not None:
                history.sites.functions.call_apart(code)
        refused.update(more)
        history.sites.ration.inherit(again)
