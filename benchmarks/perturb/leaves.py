"""Small objects that a program holds and reads through: factories, registries, abstract classes, getters, patterns, values of libraries.

`MADE`: rows (kind, name, types, object -> undo, or `SKIP`). `REPLACED`: rows (kind, name, types, value -> another value).
"""

from __future__ import annotations

import _abc
import abc
import collections
import datetime
import decimal
import fractions
import functools
import operator
import pathlib
import re
import types
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.perturb.places import is_library
from benchmarks.perturb.values import SKIP, altered, wrapped

FLAGGED = 3 << 5  # Py_TPFLAGS_SEQUENCE, Py_TPFLAGS_MAPPING: a class that is registered there gets them for good


# ---------------------------------------------------------------------------------------------------------------------- factories
def factory(other: Callable[[Any], Any]) -> Callable[[collections.defaultdict], Any]:
    def row(d: collections.defaultdict) -> Any:
        old = d.default_factory
        new = other(old)
        if new is old:
            return SKIP
        d.default_factory = new
        return lambda: setattr(d, "default_factory", old)

    return row


# --------------------------------------------------------------------------------------------------------------- abstract classes
def anew() -> None:
    """Something is registered somewhere: nobody's answers about abstract classes hold any longer."""
    type("Any", (abc.ABC,), {}).register(type("One", (), {}))  # type: ignore[attr-defined]


def registered(more: tuple) -> Callable[[type], Any]:
    """Other classes are registered with an abstract class, as none of its bases is."""

    def row(cls: type) -> Any:
        if not isinstance(cls, abc.ABCMeta) or is_library(cls.__module__) or cls.__flags__ & FLAGGED:
            return SKIP
        new = [c for c in more if not issubclass(c, cls)]
        if not new:
            return SKIP
        before = [c for r in _abc._get_dump(cls)[0] if (c := r()) is not None]
        for c in new:
            cls.register(c)

        def undo() -> None:
            _abc._reset_registry(cls)
            for c in cls.__mro__:
                if isinstance(c, abc.ABCMeta):
                    _abc._reset_caches(c)
            for c in before:
                cls.register(c)
            anew()

        return undo

    return row


# ---------------------------------------------------------------------------------------------------------------------- registries
def dispatched(change: Callable[[Any, dict], None]) -> Callable[[types.FunctionType], Any]:
    """What `functools.singledispatch` has made knows other functions."""

    def row(fn: types.FunctionType) -> Any:
        if not hasattr(fn, "registry") or not hasattr(fn, "_clear_cache"):
            return SKIP
        cells = dict(zip(fn.register.__code__.co_freevars, fn.register.__closure__ or (), strict=True))
        registry = cells["registry"].cell_contents
        before = dict(registry)
        change(fn, before)
        if registry == before:
            return SKIP

        def undo() -> None:
            registry.clear()
            registry.update(before)
            fn._clear_cache()

        return undo

    return row


def another(fn: Any, registry: dict) -> None:
    for cls, known in registry.items():
        fn.register(cls, wrapped(known))


def for_tensors(fn: Any, registry: dict) -> None:
    for cls in (torch.Tensor, int, float, list):
        if cls not in registry:
            fn.register(cls, wrapped(registry[object]))


# ------------------------------------------------------------------------------------------------------------------------- getters
def getter(change: Callable[[tuple], Any]) -> Callable[[Any], Any]:
    """An `itemgetter`, `attrgetter` or `methodcaller` with other arguments."""

    def row(g: Any) -> Any:
        cls, args = g.__reduce__()
        new = change(args)
        return SKIP if new is SKIP or type(cls) is not type else cls(*new)

    return row


def next_item(args: tuple) -> Any:
    first = args[0]
    return (first + 1 if type(first) is int else first + "x" if type(first) is str else first, *args[1:]) if args else SKIP


def bound_to(other: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A method of C bound to another object (`items.append`, `text.split`)."""

    def row(m: Any) -> Any:
        owner = m.__self__
        if owner is None or isinstance(owner, types.ModuleType | type):
            return SKIP
        new = other(owner)
        return SKIP if new is SKIP else getattr(new, m.__name__)

    return row


def another_object(o: Any) -> Any:
    return o.copy() if type(o) in (list, dict, set) else SKIP


def longer_object(o: Any) -> Any:
    if type(o) is list:
        return [*o, *o[-1:]]
    if type(o) is dict:
        return {k: altered(v) for k, v in o.items()}
    return o + "x" if type(o) is str else o + 1 if type(o) in (int, float, torch.Tensor) else SKIP


def pattern(text: Callable[[Any], Any], flags: int = 0) -> Callable[[re.Pattern], Any]:
    return lambda p: re.compile(text(p.pattern), p.flags & ~re.UNICODE ^ flags if isinstance(p.pattern, str) else p.flags ^ flags)


def equal_pattern(p: re.Pattern) -> Any:
    re.purge()
    return re.compile(p.pattern, p.flags)


def cached_otherwise(p: functools.cached_property) -> Any:
    old = p.func
    p.func = wrapped(old)
    return lambda: setattr(p, "func", old)


def module_class(m: types.ModuleType) -> Any:
    """The module's class becomes one that answers for names that it lacks."""
    if is_library(m.__name__) or type(m) is not types.ModuleType:
        return SKIP
    m.__class__ = type("Module", (types.ModuleType,), {"note": property(lambda self: 5)})
    return lambda: setattr(m, "__class__", types.ModuleType)


def other_metaclass(cls: type) -> Any:
    meta = type(cls)
    if meta is type or is_library(meta.__module__) or is_library(cls.__module__):
        return SKIP
    type.__setattr__(cls, "__class__", type(meta.__name__, (meta,), {"__call__": lambda c, *a, **k: 5, "__bool__": lambda c: False}))
    return lambda: type.__setattr__(cls, "__class__", meta)


MADE: tuple[tuple[str, str, tuple, Callable[[Any], Any]], ...] = (
    ("factory", "answers otherwise", (collections.defaultdict,), factory(lambda f: wrapped(f or int))),
    ("factory", "another", (collections.defaultdict,), factory(lambda f: int if f is not int else list)),
    ("factory", "None", (collections.defaultdict,), factory(lambda f: None)),
    ("registry", "classes registered", (type,), registered((torch.Tensor, int, float, list, dict, tuple, str))),
    ("registry", "object registered", (type,), registered((object,))),
    ("registry", "functions answer otherwise", (types.FunctionType,), dispatched(another)),
    ("registry", "more functions", (types.FunctionType,), dispatched(for_tensors)),
    ("holder", "cached property of another function", (functools.cached_property,), cached_otherwise),
    ("class", "of a module", (types.ModuleType,), module_class),
    ("class", "another metaclass", (type,), other_metaclass),
)

GETTERS = (operator.itemgetter, operator.attrgetter, operator.methodcaller)
METHODS = (types.BuiltinFunctionType, types.MethodWrapperType)
REPLACED: tuple[tuple[str, str, tuple, Callable[[Any], Any]], ...] = (
    ("getter", "of another item", GETTERS, getter(next_item)),
    ("getter", "of one more", GETTERS, getter(lambda args: (*args, args[-1]) if args else SKIP)),
    ("getter", "an equal one", GETTERS, getter(lambda args: args)),
    ("getter", "a function", GETTERS, lambda g: lambda o: g(o)),
    ("getter", "answers otherwise", GETTERS, lambda g: lambda o: altered(g(o))),
    ("method", "of C, of an equal object", METHODS, bound_to(another_object)),
    ("method", "of C, of another object", METHODS, bound_to(longer_object)),
    ("pattern", "another", (re.Pattern,), pattern(lambda p: p[:0] + p + (b"?" if isinstance(p, bytes) else "?"))),
    ("pattern", "of letters of any case", (re.Pattern,), pattern(lambda p: p, re.IGNORECASE)),
    ("pattern", "equal", (re.Pattern,), equal_pattern),
    ("pattern", "of bytes", (re.Pattern,), lambda p: re.compile(p.pattern.encode()) if isinstance(p.pattern, str) else SKIP),
    ("number", "Decimal", (decimal.Decimal,), lambda d: d + 1),
    ("number", "Decimal with more digits", (decimal.Decimal,), lambda d: decimal.Decimal(f"{d}0") if "." in str(d) else SKIP),
    ("number", "Fraction", (fractions.Fraction,), lambda q: q + 1),
    ("time", "a day later", (datetime.date,), lambda d: d + datetime.timedelta(1)),
    ("time", "twice as long", (datetime.timedelta,), lambda d: d * 2),
    ("text", "another path", (pathlib.PurePath,), lambda p: p / "x"),
    ("keys", "frozenset with one more", (frozenset,), lambda s: s | {"note"}),
    ("keys", "frozenset with one less", (frozenset,), lambda s: s - {next(iter(s))} if s else SKIP),
    ("keys", "frozenset to set", (frozenset,), set),
)
