"""In which order a set is walked: that of its table, which its hashes, its size and how it came about decide.

So an equal set may be walked otherwise. What stands for a set from outside, and what is made again behind a graph, is built in a way that
gives the order of the original; where the program looks at the order of one from outside, it is guarded.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Sequence
from typing import Any

from pliant.guards.views import VALUES

MOST = 64  # members of a set for which a way is looked for
FEW, TRIES = 5, 400
EMPTY = sys.getsizeof(set())  # with room for eight
ENTRY = 16  # bytes


def plain(items: Sequence) -> bool:
    """Whether a way is looked for: hashing these again runs no code of the program, and gives the same."""
    return 1 < len(items) <= MOST and all([type(x) in VALUES or type(x) is tuple and plain([*x, 0, 0]) for x in items])


class Filler:
    """Takes a place for a while: a table that is made for more is larger."""


FILLERS = [Filler() for _ in range(256)]


def made(order: Sequence, size: int) -> set:
    """A set with a table of so many places, in which these have come in this order."""
    at_once = min(len(order), max(size // 2 - 1, 4))
    more = FILLERS[: max(0, max(size // 4, 5) - at_once)] if size > 8 else []
    s: set = set(dict.fromkeys([*order[:at_once], *more]))  # (of a dict it is known how many there will be, and they come one by one)
    s.difference_update(more)
    s.update(list(order[at_once:]))
    return s


def of_dict(order: Sequence, size: int) -> frozenset:
    return frozenset(dict.fromkeys(order))


def of_list(order: Sequence, size: int) -> frozenset:
    return frozenset(list(order))


def insertion(items: list, way: Callable[[Sequence, int], Any], size: int) -> list | None:
    """In which order these have to come to be walked in this one, if one is found: of two for one place, the first has it."""
    order = list(items)
    tries = itertools.permutations(items) if len(items) <= FEW else None
    for _ in range(TRIES):
        got = list(way(order, size))
        at = next((i for i, x in enumerate(got) if x is not items[i]), None)
        if at is None:
            return order
        if tries is not None:
            order = list(next(tries, ()))
            if not order:
                return None
            continue
        late = next(i for i, x in enumerate(order) if x is items[at])
        early = next(i for i, x in enumerate(order) if x is got[at])
        order.insert(min(late, early), order.pop(max(late, early)))
    return None


def to_make(s: Any) -> tuple[Sequence, Callable[[Sequence, int], Any], int] | None:
    """How a set is made that is walked as this one is: the members in the order in which they come, and what makes it of them."""
    items = list(frozenset.__iter__(s) if isinstance(s, frozenset) else set.__iter__(s))
    if not plain(items):
        return None
    size = max(8, (sys.getsizeof(s) - EMPTY) // ENTRY)
    ways = (of_list, of_dict) if isinstance(s, frozenset) else (made,)
    for way in ways:
        order = insertion(items, way, size)
        if order is not None:
            return order, way, size
    return None


def copy(s: set) -> tuple[set, bool]:
    """A copy, and whether it is walked as the set itself is."""
    same = s.copy()
    if all([x is y for x, y in zip(same, s, strict=True)]) and same_table(same, s):
        return same, True
    how = to_make(s)
    return (same, False) if how is None else (how[1](how[0], how[2]), True)


def same_table(a: set, b: set) -> bool:
    """Whether two sets go on alike: their tables are of one size."""
    return sys.getsizeof(a) == sys.getsizeof(b)
