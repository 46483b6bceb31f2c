"""How values of types that never change are made again: constants, unless they hold what the capture has made.

`itemgetter(n)`, `Fraction(n, 3)`, `list[n]`: with an `n` that varies, the one that was made in the capture is of that call alone.
"""

from __future__ import annotations

import datetime
import operator
import types
from typing import Any

from pliant.interpret.immutable import HEAPTYPE, IMMUTABLE, PARTS, getter_arguments
from pliant.jit.reconstruct import CONSTANT, INSTANCE, Builder, CannotReconstruct, Row

PLAIN = {int, float, complex, bool, str, bytes, type(None), type(...), type(NotImplemented)}


def holds_made(b: Builder, v: Any) -> bool:
    """Whether a value is, or holds, what emitted code must make or find: a number that varies, a tensor, an object of the program."""
    t = type(v)
    if t in PLAIN:
        return False
    if t in b.table.special:
        return True
    if b.world.source_of(v) is not None:
        return True  # its source says which one it is
    parts = PARTS.get(t)
    if parts is not None:
        return any([holds_made(b, x) for x in parts(v)])
    return b.table.row_of(b, v) is not CONSTANT


def getter_literal(b: Builder, v: Any) -> str:
    given, by_name = getter_arguments(v)
    return f"{b.constant(type(v))}({b.refs(given)}, **{{{b.pairs(by_name)}}})"


def alias_literal(b: Builder, v: Any) -> str:
    if type(v) is types.UnionType:
        return " | ".join([b.ref(x) for x in v.__args__])
    if type(v.__unpacked__) is bool and v.__unpacked__:
        raise CannotReconstruct("an unpacked alias of a class that is made here", type(v))
    return f"{b.constant(types.GenericAlias)}({b.ref(v.__origin__)}, {b.ref(v.__args__)})"


def refused(b: Builder, v: Any) -> str:
    raise CannotReconstruct(f"a {type(v).__qualname__} of a zone that is made here", type(v))


ROWS: dict[type, Row] = {
    **{t: INSTANCE for t in IMMUTABLE if t.__flags__ & HEAPTYPE},
    **dict.fromkeys((types.GenericAlias, types.UnionType), Row(alias_literal)),
    **dict.fromkeys((operator.itemgetter, operator.methodcaller), Row(getter_literal)),
    **dict.fromkeys((datetime.datetime, datetime.time), Row(refused)),
}
"""By type, how one is made again that holds what is made anew."""


def immutable_row(b: Builder, v: Any) -> Row:
    return ROWS[type(v)] if any([holds_made(b, x) for x in PARTS[type(v)](v)]) else CONSTANT
