"""Subclasses of types that have rows: an outside value is located by the first base that fits. The general protocol does the rest."""

from __future__ import annotations

import collections
import enum
import types
from typing import Any

import torch

from pliant.guards.source import Source, const
from pliant.guards.views import held_by_set
from pliant.interpret import shadows
from pliant.interpret.immutable import HEAPTYPE, IMMUTABLETYPE
from pliant.interpret.opaque import Opaque
from pliant.interpret.types.containers import told_by_guard
from pliant.interpret.types.functions import by_identity, locate_namespace
from pliant.interpret.types.row import KIN
from pliant.interpret.types.tensors import locate_subclass
from pliant.interpret.world import World
from pliant.native import EntryPoint


def member(world: World, v: Any, source: Source) -> Any:
    """A member of an enumeration: itself for ever, but what hangs on it may change."""
    world.guard(source, "ID_MATCH", v)
    if id(v) not in world.outside:
        world.adopt(v, const(v))
    return v




def made_by_c(t: type) -> bool:
    """Whether a kind of tuple has a constructor of its own in C, of which nothing is known (`datetime.IsoCalendarDate`)."""
    return (not t.__flags__ & HEAPTYPE or bool(t.__flags__ & IMMUTABLETYPE)) and not hasattr(t, "n_sequence_fields")


def has_del(t: type) -> bool:
    """Whether code of the program runs when an instance ends: a copy of one would end, too."""
    return any(["__del__" in b.__dict__ for b in t.__mro__])


def locate_tuple_subclass(world: World, v: Any, source: Source) -> Any:
    t = type(v)
    if getattr(t, "n_fields", 0) > getattr(t, "n_sequence_fields", 0):  # a structseq with fields that are no items
        return world.identity(v, source)
    if made_by_c(t) or has_del(t):
        world.guard(source, "TYPE_MATCH", t)
        return world.adopt(v, source)
    world.guard(source, "TYPE_MATCH", t)
    held = tuple.__getitem__(v, slice(None))  # what it holds, whatever its class makes of its length, items and iteration
    world.guard(source, "LENGTH", len(held))
    items = [world.locate(x, source.index(i)) for i, x in enumerate(held)]
    if hasattr(t, "n_sequence_fields") and all([x is y for x, y in zip(items, held, strict=True)]):
        return v
    try:
        r = tuple.__new__(t, items)
    except TypeError:  # structseq: a C type that makes itself from a sequence
        r = t(items)
    if getattr(v, "__dict__", None):
        d = source.dict()
        for k, x in v.__dict__.items():
            r.__dict__[k] = world.locate(x, d.key(k))
    return world.stands_for(r, v, source)


def container(world: World, v: Any, source: Source) -> Any:
    h = world.shadows.get(id(v))
    if h is not None:
        if h.source is not source:
            world.guard(source, "ALIAS", h.source)
        return h.copy
    if isinstance(v, collections.OrderedDict) and not shadows.in_order(v):
        return Opaque(v, source)
    if shadowable_subclass(type(v)) and not (isinstance(v, set) and not all(map(told_by_guard, held_by_set(v)))):
        return shadows.shadow_subclass(world, v, source).copy
    world.guard(source, "TYPE_MATCH", type(v))
    return world.adopt(v, source)


def shadowable_subclass(t: type) -> bool:
    """Subclasses of dict, list and set made in Python, without slots, whose memory no other C class has made."""
    if t.__flags__ & HEAPTYPE == 0 or has_del(t) or shadows.says_its_own_dict(t):
        return False
    if shadows.made_plainly(t) not in (dict.__new__, list.__new__, set.__new__, collections.OrderedDict.__new__):
        return False
    return not any(b.__dict__.get("__slots__") for b in t.__mro__ if b.__flags__ & (1 << 9))


KIN += [
    ((torch.Tensor,), locate_subclass),
    ((enum.Enum,), member),
    ((type, types.ModuleType), locate_namespace),
    ((tuple,), locate_tuple_subclass),
    ((int, float, complex, str, bytes, EntryPoint), by_identity),
    ((dict, list, set), container),
]
