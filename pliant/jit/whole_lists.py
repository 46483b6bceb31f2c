"""Instructions at which lists of numbers become tensors: which of them take the list as one input (`interpret/number_lists.py`).

A short list that stays as it is, is a constant of the graph or a few symbols. Once another one was there, longer or with other numbers, the
instruction takes all lists whole, wherever they come from.
"""

from __future__ import annotations

from pliant import events
from pliant.guards.guard import Site
from pliant.jit.resume import origin_of
from pliant.jit.weak_ids import WeakIdDict


class WholeLists:
    """What is known of these instructions, by code object and offset."""

    def __init__(self) -> None:
        self.met: WeakIdDict[set[int]] = WeakIdDict()  # a list was read there item by item
        self.whole: WeakIdDict[set[int]] = WeakIdDict()

    def takes(self, site: Site, likely: bool) -> bool:
        """Whether a list is taken whole here. `likely`: others will come."""
        if site.code is None:
            return False
        code, shift = origin_of(site.code)
        at = site.offset - shift
        if likely or at in (self.whole.get(code) or ()):
            return True
        add(self.met, code, at)
        return False

    def changed(self, site: Site | None) -> bool:
        """What was read at this instruction is another: whether it was a list that is taken whole from now on."""
        if site is None or site.code is None or not self.met:
            return False
        code, shift = origin_of(site.code)
        at = site.offset - shift
        if at not in (self.met.get(code) or ()) or at in (self.whole.get(code) or ()):
            return False
        add(self.whole, code, at)
        events.emit("policy", what="lists of numbers are inputs", where=f"{code.co_filename}:{code.co_qualname}+{at}")
        return True


def add(table: WeakIdDict[set[int]], code: object, at: int) -> None:
    found = table.get(code)  # type: ignore[arg-type]
    if found is None:
        found = table[code] = set()  # type: ignore[index]
    found.add(at)
