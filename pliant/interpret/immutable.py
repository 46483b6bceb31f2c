"""Types whose instances never change: an outside one is guarded by identity and, unless it holds what may change, given to native code."""

from __future__ import annotations

import contextlib
import contextvars
import datetime
import decimal
import fractions
import functools
import operator
import pathlib
import re
import struct
import types
import typing
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

HEAPTYPE = 1 << 9  # a class made by a class statement (Py_TPFLAGS_HEAPTYPE; some C classes have it too)
CLASS_OF_OBJECTS = object.__dict__["__class__"]
IMMUTABLETYPE = 1 << 8  # a class of C that has the form of those of Python
IMMUTABLE: set[type] = {
    re.Pattern, re.Match, decimal.Decimal, fractions.Fraction, datetime.date, datetime.datetime, datetime.time,
    datetime.timedelta, datetime.timezone, uuid.UUID, pathlib.PurePath, pathlib.Path, pathlib.PosixPath,
    operator.attrgetter, operator.itemgetter, operator.methodcaller, struct.Struct, types.GenericAlias, types.UnionType,
    torch.finfo, torch.iinfo, contextvars.ContextVar, torch._C._SDPBackend,
}  # fmt: skip
IMMUTABLE.update(
    t for t in (getattr(typing, name, None) for name in (
        "_GenericAlias", "_UnionGenericAlias", "_CallableGenericAlias", "_LiteralGenericAlias", "_AnnotatedAlias", "_SpecialForm",
        "_SpecialGenericAlias", "_CallableType", "_TupleType", "_UnpackGenericAlias", "_ConcatenateGenericAlias", "TypeVar", "ForwardRef",
        "_AnyMeta",
    )) if isinstance(t, type)
)  # fmt: skip
TYPE_PARAMETERS: tuple[type, ...] = tuple(
    t for t in (getattr(typing, name, None) for name in ("TypeVar", "ParamSpec", "TypeVarTuple", "TypeAliasType")) if t is not None
)
"""Of which emitted code makes others, where the capture has made them (`interpret/type_parameters.py`)."""


def hashes_itself(cls: type) -> bool:
    """Whether code of the program says what the hash of a class is: pliant's own tables, which have classes as keys, would run it."""
    return type.__getattribute__(type(cls), "__hash__") is not type.__hash__


def dict_of(value: Any) -> dict:
    try:
        return object.__getattribute__(value, "__dict__")  # the class's own `__getattribute__` is the program's
    except AttributeError:
        return object.__getstate__(value) or {} if hides_its_dict(type(value)) else {}  # type: ignore[attr-defined,return-value]


def hides_its_dict(t: type) -> bool:
    """Whether instances have attributes of their own and show no `__dict__`: futures, and type variables since 3.12."""
    return type.__getattribute__(t, "__dictoffset__") != 0 and not any(["__dict__" in b.__dict__ for b in t.__mro__])


def slots_of(value: Any) -> Iterator[tuple[type, str, Any, Any]]:
    """The slots of an instance of a Python class that are filled: (class, name in `__slots__`, descriptor, value)."""
    for cls in type(value).__mro__:
        slots = cls.__dict__.get("__slots__", ())
        for attr in (slots,) if isinstance(slots, str) else slots:
            mangled = f"_{cls.__name__.lstrip('_')}{attr}" if attr.startswith("__") and not attr.endswith("__") else attr
            member = cls.__dict__.get(mangled)
            if attr not in ("__dict__", "__weakref__") and type(member) is types.MemberDescriptorType:
                with contextlib.suppress(AttributeError):
                    yield cls, attr, member, member.__get__(value)


def getter_arguments(fn: Any) -> tuple[tuple, dict[str, Any]]:
    """What an `attrgetter`, `itemgetter` or `methodcaller` was made of: positional arguments, and those by name."""
    make, parts = fn.__reduce__()
    return ((*make.args, *parts), make.keywords) if type(make) is functools.partial else (parts, {})


def getter_parts(fn: Any) -> tuple:
    given, by_name = getter_arguments(fn)
    return (*given, *by_name.values())


PARTS: dict[type, Callable[[Any], Iterable[Any]]] = {
    **{t: lambda v: (*dict_of(v).values(), *[held for *_, held in slots_of(v)]) for t in IMMUTABLE if t.__flags__ & HEAPTYPE},
    **dict.fromkeys((types.GenericAlias, types.UnionType), lambda v: (v.__args__, getattr(v, "__origin__", None))),
    **dict.fromkeys((operator.itemgetter, operator.methodcaller, operator.attrgetter), getter_parts),
    **dict.fromkeys((datetime.datetime, datetime.time), lambda v: (v.tzinfo,)),
    **dict.fromkeys((staticmethod, classmethod), lambda v: (v.__func__, *v.__dict__.values())),
    **dict.fromkeys((tuple, frozenset, torch.Size), tuple),
    property: lambda v: (v.fget, v.fset, v.fdel),
    slice: lambda v: (v.start, v.stop, v.step),
}
"""What values that never change hold."""


def no_dict() -> str:
    """What CPython adds since 3.13 where an instance without a `__dict__` is to get an attribute."""
    try:
        object.__setattr__(object(), "x", None)
    except AttributeError as e:
        return str(e).removeprefix("'object' object has no attribute 'x'")
    return ""


NO_DICT = no_dict()
