"""Loops on data that captures could not make operations of the graph, so that later captures of the region do not try in vain.

Each of these costs two beginnings of a capture: one to try the loop whole, one more to leave it to `region_loops.py`. What such a loop
fails on (memory from before, an effect, a type that changes) is in its code as a rule. So one that two captures have left is left at once.
"""

from __future__ import annotations

import collections
from types import CodeType

from pliant.interpret.data_ranges import RANGES
from pliant.interpret.state import LEAVE, vm
from pliant.jit.weak_ids import WeakIdDict

ENOUGH = 2
ALL_RANGES = None
"""In place of a header: a capture that begins with this code object does without ranges over data."""


class LeftLoops:
    """How many captures have left a loop, by its code object and header."""

    def __init__(self) -> None:
        self.counts: WeakIdDict[collections.Counter[int | None]] = WeakIdDict()

    def tell(self, root: CodeType) -> None:
        """A capture begins, of the code object `root`: its session knows them."""
        for code, counts in self.counts.items():
            for header, n in counts.items():
                if n >= ENOUGH and header is not ALL_RANGES:
                    vm.loops[id(code), header] = LEAVE
                    vm.loop_codes.append(code)
                elif n >= ENOUGH and code is root:
                    vm.loops[RANGES] = LEAVE

    def note(self, root: CodeType) -> None:
        """The capture has come to an end that is compiled: count what it has left."""
        codes = {id(code): code for code in vm.loop_codes}
        for key, what in vm.loops.items():
            if what is LEAVE:
                code, header = (root, ALL_RANGES) if key == RANGES else (codes[key[0]], key[1])
                counts = self.counts.get(code)
                if counts is None:
                    self.counts[code] = counts = collections.Counter()
                counts[header] += 1
