"""Memory that control flow was given or gave back, and which results may be in it.

Results of one flow are operands of the next: who may be in whose memory is a chain, kept as its links alone and followed where somebody
writes. What a way through a sub-program adds is taken back behind it, and costs no copy of what was there before.
"""

from __future__ import annotations


class Frozen:
    """By storage id: what nobody may write to, with links to the results that may be in it. A result is linked to itself."""

    __slots__ = ("links", "log")

    def __init__(self) -> None:
        self.links: dict[int, set[int]] = {}
        self.log: list[tuple[int, int | None]] = []

    def __contains__(self, storage: int) -> bool:
        return storage in self.links

    def add(self, storage: int, result: int | None = None) -> None:
        """It is frozen, and this result may be in it."""
        if storage not in self.links:
            self.links[storage] = set()
            self.log.append((storage, None))
        if result is not None and result not in self.links[storage]:
            self.links[storage].add(result)
            self.log.append((storage, result))

    def shared(self, storage: int) -> set[int]:
        """The results that may be in memory which is frozen."""
        return reached(self.links[storage], self.links)

    def forget(self, n: int) -> None:
        """Take back all but the first `n` of what was added (`log`)."""
        while len(self.log) > n:
            storage, result = self.log.pop()
            if result is None:
                del self.links[storage]
            else:
                self.links[storage].remove(result)


def reached(begin: set[int], links: dict[int, set[int]]) -> set[int]:
    """What links lead to from any of these, and these themselves."""
    found, stack = set(begin), list(begin)
    while stack:
        new = links.get(stack.pop(), set()) - found
        found |= new
        stack += new
    return found


__all__ = ["Frozen", "reached"]
