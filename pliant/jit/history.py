"""What failed guards taught: the memory that makes the number of compiled entries converge.

A capture is specialized where the program's own decisions made it so. When such a decision turns out differently on a later call,
its guard fails, and the guard says what to do differently next time:

| what changed                               | from then on                                                          |
|--------------------------------------------|-----------------------------------------------------------------------|
| an int read from an object                 | at once: symbolic                                                     |
| the static size of a parameter or buffer   | at once: dynamic                                                      |
| a relation over sizes that a loop rests on | after BACKOFF failures: the loop stays in Python, its body is compiled |
| a relation over sizes, elsewhere           | after BACKOFF failures: the graph breaks there, both sides compiled   |
| the length of something that a loop walks  | the same                                                              |
| another constant                           | after TOLERANCE failures: opaque, its value never enters the graph    |
"""

from __future__ import annotations

import collections
import dis
from types import CodeType
from typing import Any

from pliant import events
from pliant.config import BACKOFF
from pliant.guards.guard import Guard, Site
from pliant.guards.source import Source
from pliant.jit.identity import WeakIdDict
from pliant.jit.resume import origin_of

TOLERANCE = {float: 2, int: 2, bool: 8}
OTHERS = 6  # str, objects compared by identity, …
TO_LOOP = {"CALL", "PRECALL", "GET_ITER", "KW_NAMES", "EXTENDED_ARG", "CACHE", "LOAD_FAST", "LOAD_GLOBAL", "LOAD_CONST", "FOR_ITER", "LOAD_METHOD", "LOAD_ATTR"}
REACH = 16  # instructions


class Sites:
    """Instructions (by code object and byte offset) that are treated specially wherever they are interpreted in a region."""

    def __init__(self) -> None:
        self.breaks: WeakIdDict[set[int]] = WeakIdDict()
        self.loops: WeakIdDict[set[int]] = WeakIdDict()
        self.failures: WeakIdDict[collections.Counter[int]] = WeakIdDict()

    def fail(self, site: Site) -> int:
        counter = self.failures.get(site.code)
        if counter is None:
            counter = self.failures[site.code] = collections.Counter()
        counter[site.offset] += 1
        return counter[site.offset]


class History:
    """The memory of one code object that has entries: what the interpreter asks, and `learn`, which a miss feeds."""

    def __init__(self, sites: Sites) -> None:
        self.sites = sites
        self.dynamic: set[Source] = set()
        self.opaque: set[Source] = set()
        self.failures: collections.Counter[Source] = collections.Counter()

    # -- the interpreter's questions ----------------------------------------------------------------------------------------
    def is_dynamic(self, source: Source) -> bool:
        return source in self.dynamic

    def is_opaque(self, source: Source) -> bool:
        return source in self.opaque

    def watches(self, code: CodeType) -> bool:
        return self.sites.breaks.get(code) is not None or self.sites.loops.get(code) is not None

    def breaks_at(self, code: CodeType, offset: int) -> bool:
        return offset in (self.sites.breaks.get(code) or ())

    def is_loop(self, code: CodeType, header: int) -> bool:
        return header in (self.sites.loops.get(code) or ())

    # -- learning -----------------------------------------------------------------------------------------------------------
    def learn_guard(self, guard: Guard) -> None:
        """A guard failed on a miss."""
        source, kind, value = guard.source, guard.kind, guard.value
        if kind == "TENSOR_MATCH":
            self.learn_tensor(source, value)
        elif kind == "EQ_MATCH" and type(value) is int:
            if source not in self.dynamic:
                self.note(self.dynamic, source, "dynamic")
            elif self.count(source) >= TOLERANCE[int]:
                self.note(self.opaque, source, "opaque")
        elif kind in ("LENGTH", "DICT_KEYS", "SET_EQUALS") or (kind == "EQ_MATCH" and type(value) is range):
            if guard.site is not None:
                self.learn_site(guard.site)
        elif kind in ("EQ_MATCH", "ID_MATCH", "SET_EQUALS") and self.count(source) >= TOLERANCE.get(type(value), OTHERS):
            self.note(self.opaque, source, "opaque")

    def learn_tensor(self, source: Source, spec: Any) -> None:
        if any(n is not None for n in spec.sizes) and source not in self.dynamic and module_state(source):
            self.note(self.dynamic, source, "dynamic")

    def learn_site(self, site: Site) -> None:
        """A relation that the instruction at `site` rests on does not hold this time."""
        code = site.code
        if code is None or site.offset < 0:
            return
        n = self.sites.fail(site)
        if n < BACKOFF:
            return
        header = loop_from(code, site.offset)
        if header is not None and not self.is_loop(code, header):
            self.add(self.sites.loops, code, header, f"the loop at line {site.lineno} stays in Python")
        elif n > BACKOFF or header is None:
            self.add(self.sites.breaks, code, site.offset, f"the graph breaks at line {site.lineno}")

    def count(self, source: Source) -> int:
        self.failures[source] += 1
        return self.failures[source]

    def note(self, where: set[Source], source: Source, what: str) -> None:
        where.add(source)
        events.emit("policy", what=what, where=source.name)

    def add(self, table: WeakIdDict[set[int]], code: CodeType, offset: int, what: str) -> None:
        offsets = table.get(code)
        if offsets is None:
            offsets = table[code] = set()
        if offset not in offsets:
            offsets.add(offset)
            events.emit("policy", what=what, where=f"{code.co_filename}:{code.co_qualname}+{offset}")


def module_state(source: Source) -> bool:
    """A parameter or buffer: `….__dict__['_parameters' | '_buffers'][name]`."""
    b = source.base
    return source.op == "key" and b is not None and b.op == "key" and b.arg in ("_parameters", "_buffers")


def loop_from(code: CodeType, offset: int) -> int | None:
    """The header of the loop that the instruction at `offset` begins or repeats, if it does."""
    code, shift = origin_of(code)
    offset -= shift
    ahead = (i for i in dis.get_instructions(code) if i.offset >= offset)
    for n, i in enumerate(ahead):
        if n == 0 and "BACKWARD" in i.opname:
            return i.argval
        if i.opname == "FOR_ITER":
            return i.offset
        if n >= REACH or i.opname not in TO_LOOP:
            return None
    return None
