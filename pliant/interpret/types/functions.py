"""Functions, methods, descriptors, modules and classes: known by identity, or by what they are made of."""

from __future__ import annotations

import functools
import re
import types
from typing import Any

import torch

from pliant.graph.originals import operator
from pliant.guards import source as S
from pliant.guards.source import Source
from pliant.interpret import policy, shadows
from pliant.interpret.capture import UNSET
from pliant.interpret.immutable import HEAPTYPE, hashes_itself
from pliant.interpret.library_internals import guard_rules
from pliant.interpret.opaque import Opaque
from pliant.interpret.state import vm
from pliant.interpret.types.row import read, row
from pliant.interpret.world import SOURCED, World

DESCRIPTORS = (
    types.MethodDescriptorType, types.WrapperDescriptorType, types.GetSetDescriptorType, torch._ops.OpOverload,
)  # fmt: skip
OPERATORS = (torch._ops.OpOverloadPacket, torch._ops._OpNamespace)
REGISTRY = torch.ops
KNOWN = (types.MemberDescriptorType, types.ClassMethodDescriptorType)
BUILTIN = (types.BuiltinFunctionType, type(re.compile("").match), types.MethodWrapperType)  # the second: `builtin_method`, of a heap type
C_METHODS = {types.MethodDescriptorType, types.WrapperDescriptorType}


def is_namespace(t: type) -> bool:
    """Is `t` the type of what a C function of a module has as `__self__`: pybind11 puts a record there, each of its ABIs its own."""
    return t is types.ModuleType or t.__name__.startswith("pybind11_detail_function_record")


def locate_function(world: World, v: Any, source: Source) -> Any:
    anew = (source.root.op == "local" and source.root.arg[1] == "state") or (world.history is not None and world.history.is_dynamic(source))
    if anew and not policy.stands_alone(v) and id(v) not in world.known_functions:
        # made anew for each call: its code, defaults and globals count, not its identity
        for mark in policy.TORCH_MARKS:
            world.guard(source.dict(), "DICT_CONTAINS", (mark, mark in v.__dict__), mark)
        guard_made_anew(world, v, source)
        world.guard(source.attr("__globals__"), "ID_MATCH", v.__globals__)
        world.function_sources.setdefault(id(v), source)
        return world.adopt(v, source)
    world.pin(v)  # it may be known by its code alone elsewhere
    world.known_functions[id(v)] = v
    world.guard(source, "ID_MATCH", v)
    return v


def locate_namespace(world: World, v: Any, source: Source) -> Any:
    """A module or a class: the very object, and of which class it is, where that may change (`module.__class__ = ...`)."""
    if isinstance(v, type) and type(v) is not type and hashes_itself(v):
        return Opaque(v, source)
    world.guard(source, "ID_MATCH", v)
    if isinstance(v, types.ModuleType) or type(v).__flags__ & HEAPTYPE:
        world.guard(source, "TYPE_MATCH", type(v))
    return v


def guard_made_anew(world: World, v: types.FunctionType, source: Source) -> None:
    """Its code, and how many defaults it has: these are read where they are used (`binding.default`), and are others in each call."""
    given, by_name = v.__defaults__, v.__kwdefaults__
    if given is None and by_name is None:
        world.guard(source, "FUNCTION", (v.__code__, None, None))
        return
    world.guard(source, "TYPE_MATCH", types.FunctionType)
    world.guard(source.attr("__code__"), "ID_MATCH", v.__code__)
    for name, held, kind, wanted in (("__defaults__", given, "LENGTH", len), ("__kwdefaults__", by_name, "DICT_KEYS", list)):
        world.guard(source.attr(name), *(("EQ_MATCH", None) if held is None else (kind, wanted(held))))


def locate_method(world: World, v: Any, source: Source) -> Any:
    world.guard(source, "TYPE_MATCH", types.MethodType)
    f = world.locate(v.__func__, source.attr("__func__"))
    o = world.locate(v.__self__, source.attr("__self__"))
    return world.stands_for(types.MethodType(f, o) if (f is not v.__func__ or o is not v.__self__) else v, v, source)


def locate_super(world: World, v: Any, source: Source) -> Any:
    """It is what its class and its object are. A class that hides these two names keeps it out."""
    own = object.__getattribute__
    cls, o = own(v, "__thisclass__"), own(v, "__self__")
    world.guard(source, "TYPE_MATCH", super)
    if v.__thisclass__ is not cls or v.__self__ is not o:
        return Opaque(v, source)
    found = world.locate(cls, source.attr("__thisclass__")), world.locate(o, source.attr("__self__"))
    if Opaque in map(type, found):
        return Opaque(v, source)
    if found[0] is cls and found[1] is o:
        return v
    return vm.call(super, found, {})


def locate_builtin(world: World, v: Any, source: Source) -> Any:
    owner = v.__self__
    if owner is None or is_namespace(type(owner)) or issubclass(type(owner), type):
        return world.identity(v, source)
    world.guard(source, "TYPE_MATCH", type(v))  # a bound C method: its object is outside state
    if issubclass(type(owner), torch.Tensor):
        return world.adopt(v, source)
    world.guard(source.attr("__name__"), "EQ_MATCH", v.__name__)
    o = world.locate(owner, source.attr("__self__"))
    if o is owner:
        return v
    own = bound_descriptor(v)
    if type(o) is Opaque:
        return Opaque(v, source)
    if type(o) in (torch.SymInt, torch.SymFloat, torch.SymBool) or type(o) in SOURCED:
        return vm.getattr(o, v.__name__)  # Python's method, not PyTorch's, or that of a proxy
    return world.stands_for(getattr(o, v.__name__) if own is None else own.__get__(o, type(o)), v, source)


def bound_descriptor(m: Any) -> Any:
    """The method of a C class that `m` is, bound to an object whose class has overridden it (asking that object gives another one), or
    which answers for attributes itself (asking it is heard)."""
    name, owner = m.__name__, m.__self__
    answers = next(c.__dict__["__getattribute__"] for c in type(owner).__mro__ if "__getattribute__" in c.__dict__)
    overridden = type(answers) is not types.WrapperDescriptorType
    for c in type(owner).__mro__:
        found = c.__dict__.get(name, UNSET)
        if type(found) in C_METHODS and found.__get__(owner, type(owner)) == m:  # CPython reads the class without a look
            return found if overridden else None
        overridden = overridden or found is not UNSET
    return None


def locate_partial(world: World, v: Any, source: Source) -> Any:
    world.guard(source, "TYPE_MATCH", functools.partial)
    f = world.locate(v.func, source.attr("func"))
    args = world.locate(v.args, source.attr("args"))
    kw = world.locate(v.keywords, source.attr("keywords"))
    if Opaque in (type(f), type(args), type(kw)):
        return Opaque(v, source)
    shadows.read_all(world, kw)
    r = functools.partial(f, *args, **kw)
    if v.__dict__:
        d = source.dict()
        world.guard(d, "DICT_KEYS", list(v.__dict__))
        r.__dict__.update({k: world.locate(x, d.key(k)) for k, x in v.__dict__.items()})
    for made, of, first in world.standing.values():
        if of is v and same_parts(made, r):
            if first is not source:
                world.guard(source, "ALIAS", first)
            return made
    return world.stands_for(r, v, source)


def same_parts(a: Any, b: Any) -> bool:
    """Whether two partials made for the same one of the outside hold the same: the program may have written to its keywords since."""
    if a.func is not b.func or len(a.args) != len(b.args) or not all(map(operator.is_, a.args, b.args)):
        return False
    pairs = ((a.keywords, b.keywords), (a.__dict__, b.__dict__))
    return all(p.keys() == q.keys() and all([p[k] is q[k] for k in p]) for p, q in pairs)


def by_identity(world: World, v: Any, source: Any) -> Any:
    """The object is guarded, and what it holds where it is read: an operator of the user's, a constant with state of its own."""
    world.guard(source, "ID_MATCH", v)
    return world.adopt(v, source)


def with_its_rules(fn: Any, o: Any) -> Any:
    guard_rules(o)
    return o


def of_operators(o: Any, name: str) -> Any:
    """A namespace of `torch.ops`, an operator of it, or an overload: found once and kept as an attribute, which a program may replace."""
    v = getattr(o, name)
    space = o.__dict__
    if space.get(name) is not v:
        return v
    source, path = S.const(torch), [o.name] if type(o) is torch._ops._OpNamespace else []
    lost = torch.__dict__.get("ops") is not REGISTRY or path and REGISTRY.__dict__.get(path[0]) is not o
    if lost or type(o) is torch._ops.OpOverloadPacket:
        source = S.const(o)
    else:
        for part in ("ops", *path):  # (another process finds them so)
            source = source.dict().key(part)
    return vm.world.locate(v, source.dict().key(name))


OPERATOR = (torch._library.custom_ops.CustomOpDef,)
row(name="custom operator", located=OPERATOR, stands=OPERATOR, locate=by_identity, to_graph=with_its_rules)
row(name="C descriptor", located=DESCRIPTORS, stands=DESCRIPTORS, locate=World.identity, getattr=read)
row(name="operators", located=OPERATORS, stands=OPERATORS, locate=World.identity, getattr=of_operators)
row(name="descriptor", located=KNOWN, locate=World.identity)
row(name="module, class", located=(types.ModuleType, type), locate=locate_namespace)
row(name="function", located=(types.FunctionType,), locate=locate_function)
row(name="function with a cache", located=(functools._lru_cache_wrapper,), locate=by_identity)
row(name="C function", located=BUILTIN, stands=BUILTIN, locate=locate_builtin, getattr=read)
row(name="method", located=(types.MethodType,), locate=locate_method)
row(name="super", located=(super,), locate=locate_super)
row(name="partial", located=(functools.partial,), locate=locate_partial)
row(name="namespace of operators", stands=(type(torch.ops),), getattr=of_operators)
