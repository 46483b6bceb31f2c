"""Lists whose length comes and goes: when a graph for each length is better than a loop that stays in Python.

A loop over a list of the program's is unrolled into the graph, which then rests on the list's length. Where that is another one in
each call, the graph is split at the loop, and each round is a call of a compiled body: right for all lengths, but as slow as calls of
small graphs are. Boxes of a picture, experts of a token, features of a row come in a few lengths, again and again, and these may as
well have a graph each. So may dicts that come with a few lists of keys.

| lengths that captures have met, in order | from then on                                             |
|------------------------------------------|----------------------------------------------------------|
| each by the same number longer, or less  | the loop stays in Python: there is no end to it          |
| by others, none beyond LONGEST           | a graph for each (of dicts: for each list of keys, MOST) |
| so, but of one there was a graph already | the loop stays in Python: something else multiplies them |
| so, but a graph has grown LARGE          | the loop stays in Python: a few of them cost too much    |
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

from pliant.guards.guard import Site
from pliant.jit.weak_ids import WeakIdDict

LONGEST = 8
MOST = 8
LARGE = 512  # operations of a graph


@dataclass(slots=True)
class Walk:
    """What is known of the list that an instruction walks: its lengths (of a dict its keys), in the order in which captures met them."""

    met: list[Any]
    large: bool = False

    @property
    def lengths(self) -> list[int]:
        return [len(m) if type(m) is tuple else m for m in self.met]


class ShortLists:
    """Which lengths the captures of a region have met, by the instruction that rests on them."""

    def __init__(self) -> None:
        self.walks: WeakIdDict[dict[int, Walk]] = WeakIdDict()  # by the offset

    def change(self, site: Site, before: Any, now: Any, operations: int) -> None:
        """The newest entry was made for a list of one length, and has so many operations; this call has the other length (keys)."""
        if site.code is None:
            return
        walks = self.walks.get(site.code)
        if walks is None:
            walks = self.walks[site.code] = {}
        walk = walks.setdefault(site.offset, Walk([before]))
        walk.met.append(now)
        walk.large |= operations > LARGE

    def many(self, site: Site) -> bool:
        """Whether the instruction at `site` has met more than two lengths, or a long list."""
        walk = (self.walks.get(site.code) or {}).get(site.offset)
        return walk is not None and (len(walk.met) > 2 or max(walk.lengths) > LONGEST)

    def come_and_go(self, site: Site) -> bool:
        """Whether each length that the instruction at `site` meets is to have a graph of its own."""
        walk = (self.walks.get(site.code) or {}).get(site.offset)
        if walk is None or walk.large or len(walk.met) > min(len(set(walk.met)), MOST) or max(walk.lengths) > LONGEST:
            return False
        return len({now - before for before, now in itertools.pairwise(walk.lengths)}) > 1
