"""Containers: outside ones are copied on first touch (`shadows.py`) and read item by item; C code that is given one may read it all."""

from __future__ import annotations

import collections
import sys
import types
from typing import Any

import numpy as np
import torch

from pliant.guards import views
from pliant.guards.source import Source
from pliant.interpret import class_writes, shadows
from pliant.interpret.gate import ORDERLESS, UNLIKE, name_of, ordered, unreadable, walk
from pliant.interpret.opaque import Opaque
from pliant.interpret.shadows import CONSTANT_TYPES
from pliant.interpret.state import Break, vm
from pliant.interpret.types.holders import known
from pliant.interpret.types.row import read, row
from pliant.interpret.world import World


# -- where they come from ---------------------------------------------------------------------------------------------
def is_namespace(d: dict) -> bool:
    """Whether a dict holds the global names of a module, or of the code that is captured."""
    name = d.get("__name__")
    return d is vm.top_globals or (type(name) is str and getattr(sys.modules.get(name), "__dict__", None) is d)


def locate_container(world: World, v: Any, source: Source) -> Any:
    h = world.shadows.get(id(v))
    if h is None:
        if id(v) in world.by_copy:
            return v
        if id(v) in world.kept:
            return Opaque(v, source)  # and where the graph breaks, what is to be told is told
        if type(v) is dict and (is_namespace(v) or id(v) in world.namespaces):
            return Opaque(v, source)  # names are read and written one by one, past any shadow
        if type(v) is collections.OrderedDict and not shadows.in_order(v):
            return Opaque(v, source)
        h = shadows.shadow(world, v, source)
    elif h.source is not source:
        world.guard(source, "ALIAS", h.source)
    return h.copy


def told_by_guard(x: Any) -> bool:
    """Whether a member of a set is known once it is guarded which it is."""
    t = type(x)
    return t in CONSTANT_TYPES or shadows.plain_key(x.__self__ if t is types.MethodWrapperType else x)


def locate_set(world: World, v: Any, source: Source) -> Any:
    if id(v) in world.shadows or id(v) in world.by_copy:
        return locate_container(world, v, source)
    if not all(map(told_by_guard, v)):
        world.guard(source, "TYPE_MATCH", type(v))
        return world.adopt(v, source)  # members with state: only identity is known of it
    h = shadows.shadow(world, v, source)
    world.guard(source, "SET_EQUALS", frozenset(v))
    h.all = True
    return h.copy


def locate_frozenset(world: World, v: Any, source: Source) -> Any:
    if not all([known(x) or told_by_guard(x) for x in v]):
        world.guard(source, "TYPE_MATCH", type(v))
        return world.adopt(v, source)
    world.guard(source, "SET_EQUALS", v)
    return world.stands_for(v, v, source)


def locate_tuple(world: World, v: tuple, source: Source) -> tuple:
    world.guard(source, "TYPE_MATCH", type(v))
    world.guard(source, "LENGTH", len(v))
    items = [world.locate(x, source.index(i)) for i, x in enumerate(v)]
    for a, b in zip(items, v, strict=True):
        if a is not b:
            return world.stands_for(tuple(items), v, source)
    return world.stands_for(v, v, source) if v else v


def locate_proxy(world: World, v: Any, source: Source) -> Any:
    """A read-only view of an outside dict: one of a copy, all of which is read. That of a class shows more than a dict can tell."""
    made = next((r for r, of, _ in world.standing.values() if of is v), None)
    if made is not None:
        return made
    under = views.proxied(v)
    if type(under) not in (dict, collections.OrderedDict) or "__doc__" in under:
        return Opaque(v, source)
    world.guard(source, "TYPE_MATCH", type(v))
    copy = world.locate(under, source.apply("proxied"))
    if type(copy) is not type(under):
        return Opaque(v, source)
    shadows.read_deep(world, copy)
    return world.stands_for(types.MappingProxyType(copy), v, source)


def locate_size(world: World, v: Any, source: Source) -> Any:
    items = locate_tuple(world, v, source)
    if type(items) is Opaque:
        return items
    if not all([isinstance(a, (int, torch.SymInt, np.integer)) for a in items]):  # an integer of NumPy's that is not known yet
        return Opaque(v, source)
    made = torch.Size(items)
    if any([type(a) is not type(b) for a, b in zip(made, items, strict=True)]):  # numbers of NumPy's, which it keeps
        return Opaque(v, source)
    return world.stands_for(made, v, source)


def locate_slice(world: World, v: slice, source: Source) -> slice:
    """By value; bounds that are numbers, which may change, or objects are located like any others."""
    if all([type(b) in CONSTANT_TYPES and type(b) is not int for b in (v.start, v.stop, v.step)]):
        return world.constant(v, source)
    world.guard(source, "TYPE_MATCH", slice)
    found = slice(*[world.locate(getattr(v, name), source.attr(name)) for name in ("start", "stop", "step")])
    return world.stands_for(found, v, source)


# -- what C code is given -----------------------------------------------------------------------------------------------
def whole(fn: Any, o: Any) -> Any:
    walk(fn, o)
    return o


KEEPS_IT = {"append", "appendleft", "insert", "setdefault", "__setitem__"}  # what may be given a set of which nothing is known


def whole_set(fn: Any, o: Any) -> Any:
    adopted = id(o) in vm.world.outside and (type(o) is set or not all(map(known, o)))
    if adopted and name_of(fn) not in KEEPS_IT:
        raise unreadable(fn, o)  # one whose members no shadow holds: it is the set itself
    walk(fn, o)
    if name_of(fn) not in ORDERLESS:
        ordered(o)
    return o


UNLIKE |= {set, frozenset}  # nothing of what one of the program's holds is known, unless all of it is constants
SHADOWED = (collections.OrderedDict, collections.deque, collections.defaultdict, collections.Counter)

for _type in (list, dict):
    row(name=_type.__name__, located=(_type,), stands=(_type,), locate=locate_container, getattr=read, to_c=whole)
row(name="containers of collections", located=SHADOWED, stands=SHADOWED, locate=locate_container, to_c=whole)
row(name="set", located=(set,), stands=(set,), locate=locate_set, getattr=read, to_c=whole_set)
row(name="frozenset", located=(frozenset,), stands=(frozenset,), locate=locate_frozenset, getattr=read, to_c=whole_set)
row(name="tuple", located=(tuple,), stands=(tuple,), locate=locate_tuple, getattr=read, to_c=whole)
row(name="Size", located=(torch.Size,), stands=(torch.Size,), locate=locate_size, getattr=read, to_c=whole)


# -- read-only views of dicts -----------------------------------------------------------------------------------------------
def of_class(o: Any, what: str) -> Source | None:
    """The source of the dict of an outside class that `o` shows; None where it shows a dict that the interpreter has."""
    if id(o) not in vm.world.outside:
        return None
    source = vm.world.sources[id(o)]
    if source.op != "attr" or source.base.op != "const" or class_writes.any_of(source.base.arg):
        raise Break("PL0007", f"{what} a builtins.mappingproxy", clean=True)
    return source.base.dict()


def in_proxy(o: Any, k: Any) -> bool:
    source = of_class(o, "membership in")
    if source is None:
        return vm.contains(views.proxied(o), k)
    if type(k) is not str:
        raise Break("PL0007", "membership of an object in a builtins.mappingproxy", clean=True)
    vm.world.guard(source, "DICT_CONTAINS", (k, k in o), k)
    return k in o


def item_of_proxy(o: Any, k: Any) -> Any:
    source = of_class(o, "an item of")
    if source is None:
        return vm.getitem(views.proxied(o), k)
    if not in_proxy(o, k):
        raise KeyError(k)
    return vm.world.locate(o[k], source.key(k))


def proxy_for_c(fn: Any, o: Any) -> Any:
    if id(o) not in vm.world.outside:
        walk(fn, views.proxied(o))
    return o


row(
    name="mappingproxy", located=(types.MappingProxyType,), stands=(types.MappingProxyType,), locate=locate_proxy, getattr=read,
    contains=in_proxy, getitem=item_of_proxy, to_c=proxy_for_c,
)  # fmt: skip
row(name="slice", located=(slice,), stands=(slice,), locate=locate_slice, getattr=read, to_c=whole)
