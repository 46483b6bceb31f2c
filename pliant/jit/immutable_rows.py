"""How values of types that never change are made again: constants, unless they hold what the capture has made.

`itemgetter(n)`, `Fraction(n, 3)`, `list[n]`: with an `n` that varies, the one that was made in the capture is of that call alone.
"""

from __future__ import annotations

import datetime
import operator
import types
import typing
from typing import Any

from pliant.interpret.immutable import HEAPTYPE, IMMUTABLE, PARTS, TYPE_PARAMETERS, dict_of, getter_arguments
from pliant.jit.reconstruct import CONSTANT, INSTANCE, Builder, CannotReconstruct, Row

PLAIN = {int, float, complex, bool, str, bytes, type(None), type(...), type(NotImplemented)}


def holds_made(b: Builder, v: Any) -> bool:
    """Whether a value is, or holds, what emitted code must make or find: a number that varies, a tensor, an object of the program."""
    t = type(v)
    if t in PLAIN:
        return False
    if t in b.table.special or id(v) in b.world.remade:
        return True
    if b.world.source_of(v) is not None:
        return True  # its source says which one it is
    if id(v) in b.world.made_aliases:
        return True
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
    made = f"{b.constant(types.GenericAlias)}({b.ref(v.__origin__)}, {b.ref(v.__args__)})"
    return f"{b.constant(next)}({b.constant(iter)}({made}))" if type(v.__unpacked__) is bool and v.__unpacked__ else made


def refused(b: Builder, v: Any) -> str:
    raise CannotReconstruct(f"a {type(v).__qualname__} of a zone that is made here", type(v))


ROWS: dict[type, Row] = {
    **{t: INSTANCE for t in IMMUTABLE if t.__flags__ & HEAPTYPE},
    **dict.fromkeys((types.GenericAlias, types.UnionType), Row(alias_literal)),
    **dict.fromkeys((operator.itemgetter, operator.methodcaller), Row(getter_literal)),
    **dict.fromkeys((datetime.datetime, datetime.time), Row(refused)),
}
"""By type, how one is made again that holds what is made anew."""


def parameter_literal(b: Builder, v: Any) -> str:
    fn, args, kw, _ = b.world.remade[id(v)]
    return f"{b.constant(fn)}({b.refs(args)}{f', **{{{b.pairs(kw)}}}' if kw else ''})"


def parameter_after(b: Builder, v: Any, name: str) -> None:
    """What it has got since it was made, and the module of the program, which is not that of emitted code (`TypeVar` asks which it is)."""
    had, has = b.world.remade[id(v)][3], dict_of(v)
    for k, x in has.items():
        if k == "__module__" and type(v) in TYPE_PARAMETERS or had.get(k, had) is not x:
            b.emit(f"{b.constant(setattr)}({name}, {k!r}, {b.ref(x)})")
    for k in had.keys() - has.keys():
        b.emit(f"{b.constant(delattr)}({name}, {k!r})")


ANEW = Row(parameter_literal, after=parameter_after)
OF_PARAMETER = Row(lambda b, v: f"{b.constant(type(v))}({b.ref(v.__origin__)})")
OF_TYPING = (*TYPE_PARAMETERS, typing.ParamSpecArgs, typing.ParamSpecKwargs)


def typing_row(b: Builder, v: Any) -> Row:
    """Of a type parameter, of an alias, or of `P.args` and `P.kwargs`."""
    if id(v) in b.world.remade:
        return ANEW
    if type(v) not in TYPE_PARAMETERS:
        return OF_PARAMETER if holds_made(b, v.__origin__) else CONSTANT
    return immutable_row(b, v) if type(v) in ROWS else CONSTANT


def immutable_row(b: Builder, v: Any) -> Row:
    if id(v) in b.world.remade:
        return ANEW
    if id(v) in b.world.made_aliases:
        return ROWS[type(v)]  # another one in each call
    return ROWS[type(v)] if any([holds_made(b, x) for x in PARTS[type(v)](v)]) else CONSTANT
