"""Holders: values that never change and hold what may: `itemgetter(i)`, `property(method)`, `Annotated[int, i]`, a time of a zone.

They are guarded by identity, which is enough as long as all that they hold is known so, too. Else what is read of them is located
where it lies (`attributes.data_descriptor`), and what only C code reads keeps them out of the graph.
"""

from __future__ import annotations

import collections
import contextlib
import datetime
import functools
import itertools
import sys
import types
import typing
from decimal import Decimal
from typing import Any

from pliant.guards.question import is_value
from pliant.guards.source import Source
from pliant.interpret.immutable import HEAPTYPE, IMMUTABLE, PARTS
from pliant.interpret.opaque import Opaque
from pliant.interpret.state import Break, vm
from pliant.interpret.types.row import LOCATED, read, row
from pliant.interpret.world import World

DESCRIPTORS = (property, staticmethod, classmethod)
OF_TYPING = (typing.TypeVar, type(typing.Optional[int]), type(typing.List[int]))  # noqa: UP006, UP007, UP045
READ_BY_C = (datetime.datetime, datetime.time)


def locate_holder(world: World, v: Any, source: Source) -> Any:
    world.guard(source, "ID_MATCH", v)
    t = type(v)
    if t.__flags__ & HEAPTYPE and t.__dictoffset__:  # of a Python class, which forbids no other attributes: a type variable
        return world.adopt(v, source)
    if known(v) and t not in DESCRIPTORS:  # of these another one may be made that is like it
        return v
    return Opaque(v, source) if type(v) in READ_BY_C else world.adopt(v, source)


def known(v: Any) -> bool:
    """Whether a value that is the same object is worth the same: nothing that it holds can change."""
    t = type(v)
    if t in PARTS:
        return all(map(known, PARTS[t](v)))
    if t in IMMUTABLE or is_value(v) or isinstance(v, (type, types.FunctionType)):
        return True
    if t is types.BuiltinFunctionType:
        return v.__self__ is None or isinstance(v.__self__, (type, types.ModuleType))
    if issubclass(t, datetime.tzinfo):
        return t is getattr(sys.modules.get("zoneinfo"), "ZoneInfo", None)
    found = LOCATED.get(t)
    return found is not None and found.locate in (World.identity, World.constant)


def of_alias(v: Any, name: str) -> Any:
    if id(v) in vm.world.outside:
        raise Break("PL0007", f"attribute {name!r} of an annotation made outside, which holds what can change", clean=True)
    return read(v, name)


ALIASES = (types.GenericAlias, types.UnionType)
MAKES = {"__class_getitem__", "or_", "ior", "__or__", "__ror__", "GenericAlias", "getitem", "__getitem__", "next"}
"""Functions of C that make another alias each time (those of `typing` are kept by it)."""
UNPACKED = type(iter(list[int]))  # type: ignore[call-overload]  # what gives `*list[int]`


MADE_OF = (type, *ALIASES, types.NoneType, *OF_TYPING, UNPACKED)


def made_alias(fn: Any, args: tuple, alias: Any) -> None:
    """C code has given an alias: of a class or an alias, or to unpack one, it makes one; out of a container it takes one."""
    of = fn.__self__ if fn.__name__ == "__class_getitem__" else args[0]
    if fn.__name__ in MAKES and not any([alias is a for a in args]) and isinstance(of, MADE_OF):
        vm.world.made_aliases[id(alias)] = alias


def alias_to_c(fn: Any, a: Any) -> Any:
    """An iterator over an alias makes another one in each call, which C code that walks it does not tell."""
    if fn in WALKS or getattr(fn, "__name__", "") in WALKING or type(a) is UNPACKED and fn in (map, filter):
        raise Break("PL0007", f"{fn.__name__} of what an alias gives when it is unpacked", clean=True)
    return a


WALKS = {
    *(f for f in vars(itertools).values() if isinstance(f, type)), enumerate, zip, max, min, functools.reduce, collections.deque,
} - {itertools.repeat, itertools.starmap, itertools.filterfalse, itertools.takewhile, itertools.dropwhile}  # fmt: skip
WALKING = ("fromkeys", "extend", "extendleft", "update", "__iadd__", "__setitem__", "from_iterable")


def called(a: Any, args: tuple, kw: dict) -> Any:
    """`list[int](values)`: what the class makes, which is told what it was made as where it has room for it."""
    made = vm.call(a.__origin__, args, kw)
    with contextlib.suppress(AttributeError, TypeError):
        vm.setattr(made, "__orig_class__", a)
    return made


row(name="annotation", stands=(types.GenericAlias,), getattr=of_alias, to_c=alias_to_c, call=called)
row(name="unpacking", stands=(UNPACKED,), to_c=alias_to_c)
row(name="holder", located=(*(IMMUTABLE - {Decimal}), *DESCRIPTORS), locate=locate_holder)
