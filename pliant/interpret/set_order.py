"""In which order a set is walked: that of its table, which its hashes, its size and how it came about decide.

So an equal set may be walked otherwise, and goes on otherwise where something is added. What stands for a set from outside has the
table of the original; what is made again behind a graph gets the table that it had there (`native/sets.cpp`), as long as its members
have the hashes that they had. Where the program looks at the order of one from outside, its table is guarded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pliant import native
from pliant.graph.symnode import SYMS
from pliant.guards.views import VALUES, held_by_set

Table = tuple[tuple, tuple]  # the places of members, and their hashes
OF_VALUES = {int, bool, float, complex, type(None)}  # their hashes are those of any process (but that of None)


def known(x: Any) -> Any:
    """A member as it is hashed: a number that changes was pinned when it became one."""
    return x.node.hint if type(x) in SYMS else x


def plain(x: Any) -> bool:
    """Whether hashing this again runs no code of the program, and gives the same."""
    t = type(x)
    return t in VALUES or t.__hash__ is object.__hash__ or t is tuple and all(map(plain, x))


def portable(x: Any) -> bool:
    """Whether this has the same hash in another process."""
    return type(x) in OF_VALUES and x is not None or type(x) is tuple and all(map(portable, x))


def members(s: Any) -> list:
    return list(held_by_set(s))


def table_of(s: Any) -> Table | None:
    """The table of a set, if one of its kind can be made."""
    items = [*map(known, members(s))]
    return (native.places_in_set(s), tuple(map(hash, items))) if all(map(plain, items)) else None


def by_itself(items: list, table: Table) -> bool:
    """Whether a new set of these has this table."""
    items = [*map(known, items)]
    s = set(items)
    return native.places_in_set(s) == table[0] and alike(members(s), items)


def alike(some: list, others: list) -> bool:
    return len(some) == len(others) and all([x is y for x, y in zip(some, others, strict=True)])


def made(items: list, table: Table) -> set:
    """A set with this table."""
    found = native.set_of(items, *table, False)
    return set(items) if found is None else found


def made_frozen(items: list, table: Table) -> frozenset:
    found = native.set_of(items, *table, True)
    return frozenset(items) if found is None else found


def become(s: set, items: Sequence, table: Table | None) -> None:
    """The set gets these members, and this table."""
    if table is None or not native.set_become(s, list(items), *table):
        set.clear(s)
        set.update(s, list(items))


def differ(a: set, b: set) -> bool:
    """Whether a set is another one than it was, or would be walked or go on otherwise."""
    return native.places_in_set(a) != native.places_in_set(b) or not alike(members(a), members(b))
