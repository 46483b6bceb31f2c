"""A dictionary keyed by the identity of objects that it does not keep alive (code objects compare by value)."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

V = TypeVar("V")


class WeakIdDict(Generic[V]):
    """Maps an object, by identity, to a value that goes away with it. A value must not refer to its key."""

    def __init__(self) -> None:
        self._items: dict[int, tuple[weakref.ref[Any], V]] = {}

    def get(self, key: Any) -> V | None:
        found = self._items.get(id(key))
        return found[1] if found is not None and found[0]() is key else None

    def __setitem__(self, key: Any, value: V) -> None:
        i, items = id(key), self._items

        def forget(ref: weakref.ref[Any]) -> None:
            found = items.get(i)
            if found is not None and found[0] is ref:
                del items[i]

        items[i] = (weakref.ref(key, forget), value)

    def pop(self, key: Any) -> None:
        self._items.pop(id(key), None)

    def clear(self) -> None:
        self._items.clear()

    def items(self) -> Iterator[tuple[Any, V]]:
        """Those whose key is alive."""
        return iter([(key, v) for ref, v in list(self._items.values()) if (key := ref()) is not None])

    def __len__(self) -> int:
        return len(self._items)

    def values(self) -> Iterator[V]:
        return iter([v for _, v in list(self._items.values())])
