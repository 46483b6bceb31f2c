"""Sizes that are 0 or 1 in some calls: when a graph for each case is too many, and they are left open.

A size that is 0, 1 or more may want a graph for each of the three: what is empty, or broadcasts, is computed otherwise, and a batch of
one is common. But the cases of several sizes multiply. What decides is what the captures of a frame have seen:

| seen                                                                 | from then on                                    |
|----------------------------------------------------------------------|-------------------------------------------------|
| a size that is of another kind (0, 1, more) than in a capture before | a graph for each kind                           |
| MANY of them that do not go together                                 | those are open: one graph is right for all      |
| one of them in a list or dict with MANY tensors                      | so is that dim of its other tensors, unless it  |
|                                                                      | has never been more than 1                      |
"""

from __future__ import annotations

import collections
from collections.abc import Iterable

from pliant.guards.source import Source

MANY = 3


class SmallSizes:
    """Of the tensors that the captures of one code object read: which kind (0, 1, 2 for more) each size was of, by capture."""

    def __init__(self) -> None:
        self.capture = 0
        self.kinds: dict[Source, dict[int, int]] = {}
        self.groups: collections.defaultdict[tuple[Source, int], dict[Source, None]] = collections.defaultdict(dict)
        self.changing: set[Source] = set()

    def observe(self, source: Source, shape: Iterable[int]) -> list[Source]:
        """The tensor at `source` has this shape in the call that is being captured. The sizes that are to be open by now."""
        found: list[Source] = []
        for d, n in enumerate(shape):
            size = source.size(d)
            kinds = self.kinds.setdefault(size, {})
            kinds[self.capture] = min(n, 2)
            changes = len(set(kinds.values())) > 1
            if changes:
                self.changing.add(size)
            group = self.group(source, d)
            if group is not None:
                group[size] = None
                if len(group) >= MANY and not self.changing.isdisjoint(group):
                    found += [s for s in group if 2 in self.kinds[s].values()]
            if changes and self.cases() >= MANY:
                found += self.changing
        return found

    def group(self, source: Source, d: int) -> dict[Source, None] | None:
        """The same dim of all tensors of a list or dict of the program's."""
        base = source.base
        if source.op not in ("index", "key", "item") or base is None or base.op == "dict" or base.op == "local" and base.arg[1] == "state":
            return None
        return self.groups[base, d]

    def cases(self) -> int:
        """How many of the sizes that change do so each in its own way: a batch is one, however many tensors have it."""
        return len({tuple(self.kinds[s].items()) for s in self.changing})
