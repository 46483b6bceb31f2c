"""Keys whose `__hash__` or `__eq__` are methods of Python: interpreted once, then asked by CPython itself (`slots.holds_key`)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from types import FunctionType, MemberDescriptorType
from typing import Any

from pliant.graph.symnode import concrete
from pliant.interpret.attributes import lookup
from pliant.interpret.gate import SYM_TYPES, captured
from pliant.interpret.late_text import LateText, needed
from pliant.interpret.shadows import GENERIC_GETATTR
from pliant.interpret.state import Break, vm
from pliant.interpret.types.row import ROWS

HASHED = {str, int, bool, float, bytes, type(None), type}


def compares(k: Any) -> bool:
    """Whether looking a key up may run methods of Python: they are interpreted, once, before CPython asks them."""
    t = type(k)
    if t in HASHED:
        return False
    if t is tuple or issubclass(t, tuple):
        return any([compares(x) for x in k])
    if t in ROWS:
        return False
    return any([type(m) is FunctionType for m in (lookup(t, "__hash__"), lookup(t, "__eq__"))])


def settle(k: Any) -> None:
    """CPython asks a key that is made here for its hash, also where a guard looks it up: by then it holds numbers, and no symbols.

    What the hash or a comparison has pinned is what it is. Where that is not all that the hash is made of, the rest is pinned too.
    """
    if not any([type(v) in CHANGING for _, v in parts(k, set())]):
        return
    for put, v in parts(k, set()):
        if put is not None and type(v) in SYM_TYPES and known(v):
            put(concrete(v))
    if not any([type(v) in CHANGING for _, v in parts(k, set())]) or agreed(k):
        return
    for put, v in parts(k, set()):
        if type(v) in CHANGING:
            number = needed(v) if type(v) is LateText else concrete(v)
            if put is not None:
                put(number)
    if not agreed(k):
        raise Break("PL0007", f"a {type(k).__module__}.{type(k).__qualname__} as a key, whose hash is of what is not known yet", clean=True)


CHANGING = {*SYM_TYPES, LateText}


def known(v: Any) -> bool:
    """Whether a symbolic number is one number by now."""
    return vm.scope.simplify(v.node.expr).const is not None


def agreed(k: Any) -> bool:
    """Whether CPython gets the hash that the program's methods give."""
    try:
        found = hash(k)
    except TypeError:
        return False
    return found == captured(hash, k)


def parts(k: Any, seen: set) -> Iterator[tuple[Callable[[Any], None] | None, Any]]:
    """What a key that is made here is made of: (what puts another value there, if that can be, value)."""
    if id(k) in seen or type(k) in HASHED or id(k) in vm.world.outside:
        return
    seen.add(id(k))
    if issubclass(type(k), tuple):
        for x in tuple.__iter__(k):
            yield None, x
            yield from parts(x, seen)
    if type(k) not in ROWS:
        for put, v in list(attributes(k)):
            yield put, v
            yield from parts(v, seen)


def attributes(k: Any) -> Iterator[tuple[Callable[[Any], None], Any]]:
    try:
        d = GENERIC_GETATTR(k, "__dict__")
    except AttributeError:
        d = {}
    if type(d) is dict:
        for name, v in d.items():
            yield functools.partial(d.__setitem__, name), v
    for c in type(k).__mro__:
        for slot in c.__dict__.values():
            if type(slot) is MemberDescriptorType:
                try:
                    yield functools.partial(slot.__set__, k), slot.__get__(k)
                except AttributeError:
                    continue
