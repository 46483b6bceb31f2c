"""Iterators over containers, made again by emitted code: those of C, whatever the class of the container makes of its methods."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

from pliant.jit.support import advance

C_CLASSES = (list, tuple, set, frozenset, collections.OrderedDict, dict, collections.deque, str, bytes, bytearray)


def walker(over: Any) -> Callable:
    """What makes the iterator of C over this: `iter`, but for a class with a method of its own."""
    t = type(over)
    if t in C_CLASSES:
        return iter
    return next((c.__iter__ for c in C_CLASSES if issubclass(t, c)), iter)


def dict_of(d: dict) -> Any:
    """The class of C that knows the order of a dict."""
    return collections.OrderedDict if isinstance(d, collections.OrderedDict) else dict


def iter_keys(d: dict) -> Any:
    return dict_of(d).__iter__(d)


def iter_values(d: dict) -> Any:
    return iter(dict_of(d).values(d))


def iter_items(d: dict) -> Any:
    return iter(dict_of(d).items(d))


def reversed_keys(d: dict) -> Any:
    return dict_of(d).__reversed__(d)


def reversed_values(d: dict) -> Any:
    return reversed(dict_of(d).values(d))


def reversed_items(d: dict) -> Any:
    return reversed(dict_of(d).items(d))


_d: dict = {}
OF_DICTS: dict[type, Callable] = {
    type(iter(_d)): iter_keys,
    type(iter(_d.values())): iter_values,
    type(iter(_d.items())): iter_items,
    type(reversed(_d)): reversed_keys,
    type(reversed(_d.values())): reversed_values,
    type(reversed(_d.items())): reversed_items,
}


def rest_of_set(s: Any, left: list) -> Any:
    """An iterator over `s` that has `left` yet to come; over a list of them if this set keeps its members in another order."""
    base: Any = set if isinstance(s, set) else frozenset
    it = advance(base.__iter__(s), base.__len__(s) - len(left))
    return it if set(it.__reduce__()[1][0]) == set(left) else iter(left)
