"""Attribute slots: reading, writing and deleting attributes as CPython does, over shadows.

Python-level descriptors, `__getattr__`, `__getattribute__`, `__setattr__` are interpreted; C-level ones are run by CPython
on real objects. Class look-ups are guarded (`TYPE_ATTRS`), instance look-ups are guards on the instance's `__dict__`.
"""

from __future__ import annotations

import _thread
import builtins
import enum
import functools
import logging
import sys
import types
import weakref
from inspect import getattr_static
from typing import Any

import torch

from pliant.graph.read_later import of_class
from pliant.graph.traced import TracedTensor
from pliant.guards import source as S
from pliant.interpret import class_writes, globalstate, namespaces, shadows, tracebacks
from pliant.interpret.capture import UNSET
from pliant.interpret.immutable import CLASS_OF_OBJECTS, HEAPTYPE, IMMUTABLE, NO_DICT, TYPE_PARAMETERS, hides_its_dict
from pliant.interpret.module_parts import nn_module_getattr
from pliant.interpret.opaque import Opaque
from pliant.interpret.shadows import WRITTEN
from pliant.interpret.state import Break, vm, writes
from pliant.interpret.type_names import type_name
from pliant.interpret.types.holders import known
from pliant.interpret.types.row import ROWS
from pliant.native import generic_attributes, made_in_python

FunctionType, MethodType, ModuleType = types.FunctionType, types.MethodType, types.ModuleType
MODULE_GETATTR, MODULE_SETATTR = torch.nn.Module.__getattr__, torch.nn.Module.__setattr__
MISSING = object()
DATA = {str, int, float, bool, bytes, tuple, list, dict, set, frozenset}
CACHED = vars(functools.cached_property(len))  # what one has, all of which it asks for


def lookup(cls: type, name: str) -> Any:
    """The class attribute (unbound) that the MRO gives, or UNSET; guarded once per capture."""
    world = vm.world
    key = (cls, name)
    if vm.heard is not None:
        vm.heard.append((of_class, cls, name))
    r = world.lookups.get(key, MISSING)
    if r is not MISSING:
        return r
    r = class_writes.written(cls, name)
    if r is not UNSET:
        return r
    for b in cls.__mro__:
        d = b.__dict__
        if name in d:
            r = d[name]
            break
    world.lookups[key] = r
    # plain data on a class is guarded by value where it is read (`class_value`); what the interpreter itself looks up, is guarded here
    if r is UNSET or hasattr(type(r), "__get__") or (name.startswith("__") and type(r) not in DATA):
        if id(cls) in world.own_functions:
            guard_bases(cls, name)
        elif cls.__flags__ & HEAPTYPE:
            world.type_attr(cls, name, r)
    return r


def guard_bases(cls: type, name: str) -> None:
    """What a class that the program made inherits: for each class of the outside, up to where `name` is found, what it gives."""
    for b in cls.__mro__:
        if id(b) not in vm.world.own_functions:
            lookup(b, name)
        if name in b.__dict__:
            return


def forget_lookups(name: str | None) -> None:
    """A class that the program made has changed: attribute `name` (None: any) of it and its subclasses is looked up anew."""
    world = vm.world
    world.ordinary.clear()
    for c in world.own_classes:
        for key in [name] if name is not None else [n for k, n in world.lookups if k is c]:
            world.lookups.pop((c, key), None)
            world.reads.pop((id(c), key), None)


def guard_order(cls: type) -> None:
    """The program relied on the bases of a class."""
    if cls.__flags__ & HEAPTYPE and id(cls) not in vm.world.own_functions:
        vm.world.type_attr(cls, "<mro>", cls.__mro__[1:])  # no name: `__mro__` may be looked up, too


def guard_metaclass(cls: type) -> None:
    """The program relied on the class of a class: `C.__class__ = Other` may be written where both are classes of Python code."""
    meta: Any = type(cls)
    if meta.__flags__ & HEAPTYPE and id(cls) not in vm.world.own_functions:
        vm.world.guard(S.const(cls), "TYPE_MATCH", meta)


def descriptor(raw: Any, cls: type, name: str) -> Any:
    """A descriptor found on a class, to be given to code of Python: if the class is of the outside, so is the descriptor."""
    world = vm.world
    owner = next((b for b in cls.__mro__ if name in b.__dict__), cls)
    if id(owner) in world.own_functions or id(raw) in world.by_copy:
        return raw
    return world.locate(raw, S.const(raw))


def gets(kind: type) -> bool:
    """Whether a class of descriptors has a `__get__` of the program's, function or not."""
    return bool(kind.__flags__ & HEAPTYPE) and type(lookup(kind, "__get__")) not in (types.WrapperDescriptorType, type(UNSET))


def got(kind: type, found: Any, obj: Any, cls: Any) -> Any:
    """What a descriptor gives: its `__get__` is called with it as it lies in the class, bound to nothing."""
    g = lookup(kind, "__get__")
    if type(g) is FunctionType:
        return vm.interp(g, (found, obj, cls), {})
    not_yet()
    return vm.call(descriptor(g, kind, "__get__"), (found, obj, cls), {})


def under(raw: Any, part: str, cls: type, name: str) -> Any:
    """What a property, static or class method holds: mostly a function, else what may change and is read as any other value is."""
    held = getattr(raw, part)
    return held if known(held) else getattr_(descriptor(raw, cls, name), part)


CONTENTS = types.CellType.__dict__["cell_contents"]


class Empty:
    """Guard predicate: the slot of an instance, or a cell, has no value."""

    __slots__ = ("slot",)

    def __init__(self, slot: Any) -> None:
        self.slot = slot

    def __call__(self, o: Any) -> bool:
        try:
            self.slot.__get__(o, type(o))
        except (AttributeError, ValueError):
            return True
        return False


def dict_of(obj: Any, outside: bool) -> dict | None:
    """The dict that the program sees as `obj.__dict__`, or None."""
    if outside:
        h = shadows.instance_dict(vm.world, obj)
        return h.copy if h is not None else None
    try:
        return shadows.GENERIC_GETATTR(obj, "__dict__")  # the class's own `__getattribute__` is the program's
    except AttributeError:
        return shadows.no_dict(obj, False)


def own_dict(obj: Any, outside: bool) -> tuple[dict | None, Any]:
    """`dict_of(obj)`, and the shadow behind it if it has one."""
    if outside:
        h = shadows.instance_dict(vm.world, obj)
        return (h.copy, h) if h is not None else (None, None)
    d = dict_of(obj, False)
    return d, vm.world.by_copy.get(id(d))


def own_item(obj: Any, name: str, outside: bool) -> Any:
    """What `obj.__dict__` has under `name`, guarded where it is from outside. UNSET: nothing."""
    if type(obj) not in vm.world.ordinary and issubclass(type(obj), ModuleType):
        return namespaces.item(obj, name)
    d, h = own_dict(obj, outside)
    if d is not None and name in d:
        return shadows.item(vm.world, h, name) if h is not None else d[name]
    if h is not None:
        shadows.absent(vm.world, h, name)
    return UNSET


def from_outside(obj: Any) -> bool:
    return id(obj) in vm.world.outside or issubclass(type(obj), ModuleType) or vm.world.adopt_member(obj)


def place_of(obj: Any) -> Any:
    """The source of an object from outside; modules are guarded by what they are."""
    return S.const(obj) if issubclass(type(obj), ModuleType) else vm.world.sources[id(obj)]


def class_value(raw: Any, cls: type, name: str) -> Any:
    """A plain object found on a class: it belongs to the outside, unless the program has set it."""
    if name in vm.world.class_writes and class_writes.written(cls, name) is raw:
        return raw
    if id(cls) in vm.world.own_functions:
        owner = next((b for b in cls.__mro__ if name in b.__dict__), cls)
        return raw if id(owner) in vm.world.own_functions else class_value(raw, owner, name)
    meta = type(cls)
    if meta.__getattribute__ is type.__getattribute__ and not hasattr(meta, "__getattr__") and not hasattr(meta, name):
        return vm.world.locate(raw, S.const(cls).attr(name))
    vm.world.type_attr(cls, name, raw)  # its metaclass has a say in it (`__name__`, too): the guards look where it lies
    owner = next((b for b in cls.__mro__ if name in b.__dict__), cls)
    return vm.world.locate(raw, S.const(owner).dict().key(name))


def getattr_(obj: Any, name: str, generic: bool = False) -> Any:
    """`getattr(obj, name)`; `generic=True` is `object.__getattribute__`."""
    value = attribute(obj, name, generic)
    if vm.hashing:
        shadows.hashed_by(value, obj, name)
    return value


def attribute(obj: Any, name: str, generic: bool) -> Any:
    t = type(obj)
    world = vm.world
    if t in world.ordinary:
        return instance_getattr(obj, t, name, id(obj) in world.outside, generic)
    row = ROWS.get(t)
    if row is not None and row.getattr is not None:
        return row.getattr(obj, name)
    if t is ModuleType:
        return namespaces.attribute(obj, name)
    if t is FunctionType:
        return function_getattr(obj, name)
    if t is MethodType:
        return method_getattr(obj, name)
    if issubclass(t, type):
        return type_getattr(obj, name)
    if t is super:
        return super_getattr(obj, name)
    if name == "__dict__" and issubclass(t, ModuleType):
        raise Break("PL0007", f"the __dict__ of a {t.__name__}, a module")
    if not generic:
        ga = lookup(t, "__getattribute__")
        if type(ga) is FunctionType:
            hook = lookup(t, "__getattr__")
            if type(hook) is FunctionType:
                not_yet()
            try:
                return vm.interp(ga, (obj, name), {})
            except AttributeError:
                if type(hook) is not FunctionType:
                    raise
                return vm.interp(hook, (obj, name), {})
        if type(ga) not in (types.WrapperDescriptorType, FunctionType):
            raise Break("PL0007", f"attribute {name!r} of a {t.__name__}, whose __getattribute__ is no plain function", clean=True)
        if not issubclass(type(obj), (ModuleType, type)) and not generic_attributes(getattr(ga, "__objclass__", t)):
            # C code has its own way to them (`threading.local`)
            if id(obj) in world.outside:
                raise Break("PL0007", f"attribute {name!r} of a {t.__module__}.{t.__qualname__}", clean=True)
            return vm.native(getattr, (obj, name), {})
        if not issubclass(t, ModuleType):
            world.ordinary.add(t)
    return instance_getattr(obj, t, name, from_outside(obj), generic)


def not_yet() -> None:
    """What is called next is not the whole of the instruction: it cannot be resumed behind a break in there."""
    if vm.frame is not None:
        vm.frame.tail = False


OWN_WAYS = (weakref.ProxyType, weakref.CallableProxyType, _thread._local)
"""Types of C whose attributes are those of something else."""


def say_whose(e: AttributeError, obj: Any, name: str) -> None:
    """An AttributeError that comes out of the reading of an attribute says of what, unless it says so already."""
    if type(e) is AttributeError and e.name is None and e.obj is None:
        e.name, e.obj = name, obj


def instance_getattr(obj: Any, t: type, name: str, outside: bool, generic: bool) -> Any:
    """What `object.__getattribute__` finds, and, unless `generic`, the class's `__getattr__` after it."""
    raw = lookup(t, name)
    if raw is UNSET:
        held = own_item(obj, name, outside)
        return nowhere(obj, t, name, outside, generic) if held is UNSET else held
    hook = UNSET if generic else lookup(t, "__getattr__")
    if hook is not UNSET and hook is not MODULE_GETATTR:
        not_yet()
    try:
        return class_getattr(obj, t, name, raw, outside)
    except AttributeError:
        if generic or lookup(t, "__getattr__") is UNSET:
            raise
    return nowhere(obj, t, name, outside, False)


def nowhere(obj: Any, t: type, name: str, outside: bool, generic: bool) -> Any:
    """An attribute that neither the instance nor its class has."""
    hook = UNSET if generic else lookup(t, "__getattr__")
    if hook is MODULE_GETATTR:
        return nn_module_getattr(obj, t, name, *own_dict(obj, outside))  # type: ignore[arg-type]
    if issubclass(t, ModuleType):
        try:
            return namespaces.missing(obj, name)
        except AttributeError:
            if hook is UNSET:
                raise
    if hook is UNSET:
        raise AttributeError(f"{type_name(t)!r} object has no attribute {name!r}", name=name, obj=obj)
    if type(hook) is FunctionType:
        return vm.interp(hook, (obj, name), {})
    raise Break("PL0007", f"attribute {name!r} of a {t.__name__}, whose __getattr__ is no plain function", clean=True)


def has(cls: type, name: str) -> bool:
    """Whether a class has a special method: one that a class statement made may get it later, or lose it."""
    return lookup(cls, name) is not UNSET if cls.__flags__ & HEAPTYPE else hasattr(cls, name)


def is_data(tr: type) -> bool:
    """Whether descriptors of this type come before what an object holds itself."""
    return has(tr, "__set__") or has(tr, "__delete__")


def is_property(tr: type, slot: str) -> bool:
    """Whether a type of descriptors does this as properties do."""
    return tr is property or (issubclass(tr, property) and lookup(tr, slot) is getattr(property, slot))


def of_property(raw: Any, obj: Any, t: type, at: type, name: str) -> Any:
    if raw.fget is None:
        property.__get__(raw, obj, t)  # AttributeError: the property knows under which name it was made
    return vm.call(under(raw, "fget", at, name), (obj,), {})


def class_getattr(obj: Any, t: type, name: str, raw: Any, outside: bool, behind: type | None = None) -> Any:
    """An attribute whose class has `raw` under its name: the descriptor protocol.

    `behind`: the class that `super` has found it in; no attribute of the instance hides it."""
    tr = type(raw)
    at = behind or t
    if is_property(tr, "__get__"):
        return of_property(raw, obj, t, at, name)
    if tr is not FunctionType and tr is not functools.cached_property and has(tr, "__get__"):
        if is_data(tr):
            return data_descriptor(obj, t, raw, tr, name, outside, at)
    if behind is None or tr is functools.cached_property:
        held = own_item(obj, name, outside)
        if held is not UNSET:
            return held
    if tr is FunctionType:
        return MethodType(raw, obj)
    if tr is functools.cached_property:
        if issubclass(t, ModuleType):
            raise Break("PL0007", f"the cached property {name!r} of a module", clean=True)
        d, h = own_dict(obj, outside)
        not_yet()
        cached = descriptor(raw, at, name)
        under_it = vars(raw).get("attrname")
        if type(under_it) is not str or under_it != name or not vars(raw).keys() >= CACHED.keys():  # (a key of a class stays one)
            raise Break("PL0007", f"the cached property {name!r}, which keeps its value elsewhere", clean=True)
        parts = {part: getattr_(cached, part) for part in CACHED}
        v = vm.call(parts["func"], (obj,), {})
        if h is not None:
            h.located[name] = WRITTEN
        d[name] = v  # type: ignore[index]
        return v
    if outside and tr not in BINDING and tr not in (classmethod, staticmethod) and has(tr, "__get__"):
        if type(lookup(tr, "__get__")) is not FunctionType:
            raise Break("PL0007", f"attribute {name!r} of a {t.__module__}.{t.__qualname__}, which a {tr.__qualname__} makes", clean=True)
    return bound(raw, obj, t, at, name)


def bound(raw: Any, obj: Any, t: type, at: type, name: str) -> Any:
    """What `raw`, found on class `at`, gives to an instance of `t`, or to `t` itself if `obj` is None."""
    tr = type(raw)
    if tr is classmethod:
        return bind_class(under(raw, "__func__", at, name), t)
    if tr is staticmethod:
        return under(raw, "__func__", at, name)
    if has(tr, "__get__"):
        if gets(tr):
            return got(tr, descriptor(raw, at, name), obj, t)
        r = raw.__get__(obj, t)
        return descriptor(raw, at, name) if r is raw else r
    return class_value(raw, at, name)


BINDING = {
    types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType, types.BuiltinFunctionType,
    functools._lru_cache_wrapper,
}  # fmt: skip
"""Descriptors of C that bind a function to the object, and read nothing of it."""
STORED = {types.GetSetDescriptorType, types.MemberDescriptorType}
"""Descriptors of C that give what an object holds: a guard may read them again."""


def bind_class(func: Any, cls: type) -> Any:
    if type(func) is FunctionType:
        return MethodType(func, cls)
    if type(func) is property and func.fget is not None and sys.version_info < (3, 13):
        return vm.call(func.fget, (cls,), {})
    return classmethod(func).__get__(None, cls)  # up to 3.12 it asks a descriptor


def data_descriptor(obj: Any, t: type, raw: Any, tr: type, name: str, outside: bool, at: type) -> Any:
    if name == "__dict__":
        if not outside:
            d = raw.__get__(obj, t)
            if type(d) is dict:
                vm.world.dict_owners[id(d)] = (d, obj)
            return d
        h = shadows.instance_dict(vm.world, obj)
        if h is None:
            raise Break("PL0007", f"__dict__ of {t.__name__}")
        shadows.read_all(vm.world, h.copy)
        return h.copy
    if gets(tr):
        return got(tr, descriptor(raw, at, name), obj, t)
    if name == "__class__":
        return vm.type_of(obj)
    if issubclass(type(obj), torch.Tensor):
        if getattr_static(t, "__torch_function__") not in PLAIN_TENSOR_FUNCTION:
            raise Break("PL0012", f"attribute {name!r} of a {t.__name__}, whose __torch_function__ has a say in it", clean=True)
        if globalstate.heard():
            raise Break("PL0012", f"attribute {name!r} of a {t.__name__}, of which a mode is told", clean=True)
    if outside and (tr not in STORED or at is not t and lookup(t, name) is not raw):  # the guards read what the class gives
        raise Break("PL0007", f"attribute {name!r} of a {t.__module__}.{t.__qualname__}, which a {tr.__qualname__} makes", clean=True)
    if t in TYPE_PARAMETERS:
        vm.ask_parameter(obj, name)
    if name == "__context__" and isinstance(obj, BaseException):
        tracebacks.context_asked(obj)
    if outside:
        vm.world.unusual()
        written = vm.world.tensor_writes.get((id(obj), name))
        if written is not None:
            return written[1]
    try:
        v = raw.__get__(obj, t)
    except (AttributeError, ValueError):
        if outside and (tr is types.MemberDescriptorType or raw is CONTENTS):
            vm.world.guard(place_of(obj), "PREDICATE", Empty(raw), name)
        raise
    if t is functools.partial and id(obj) in vm.world.standing:
        _, real, source = vm.world.standing[id(obj)]
        return vm.world.locate(getattr(real, name), source.attr(name))
    if outside:
        if id(obj) in vm.world.raised_outside and tracebacks.changed(obj, name):
            return v
        return vm.world.locate(v, place_of(obj).attr(name))
    return v


PLAIN_VALUES = (torch.SymInt, torch.SymFloat, torch.SymBool, torch.dtype, torch.device, type(None))


def plain_in_module(obj: Any, name: str, value: Any) -> bool:
    """Whether `nn.Module.__setattr__` does what that of an object does, without its look at the whole `__dict__`: neither is the value
    a parameter, a buffer or a module, nor does the module have one of that name."""
    made = type(value) is TracedTensor and value.source is None and value.pytype is torch.Tensor and not vm.world.marked(value)
    if not made and type(value) not in DATA and type(value) not in PLAIN_VALUES:
        return False
    world = vm.world
    d, h = own_dict(obj, id(obj) in world.outside and id(obj) not in world.by_copy)
    for kind in ("_parameters", "_modules", "_buffers"):
        if d is None or kind not in d:
            return False
        if h is not None and shadows.is_empty(world, h, kind):
            continue
        sub = shadows.item(world, h, kind) if h is not None else d[kind]
        if type(sub) is not dict or name in sub:
            return False
        inner = world.by_copy.get(id(sub))
        if inner is not None:
            shadows.absent(world, inner, name)
    return True


def is_module_already(obj: Any, name: str, value: Any) -> bool:
    """Whether `nn.Module.__setattr__` is given the module that `obj` has under that name: then it changes nothing (`m.a = m.a.to(...)`)."""
    world = vm.world
    if not issubclass(type(value), torch.nn.Module) or id(obj) not in world.outside or id(obj) in world.by_copy:
        return False
    d, h = own_dict(obj, True)
    if d is None or h is None or name in d or any([kind not in d for kind in ("_parameters", "_modules", "_buffers")]):
        return False
    sub = {kind: shadows.item(world, h, kind) for kind in ("_parameters", "_modules", "_buffers", "_non_persistent_buffers_set")}
    inner = {kind: world.by_copy.get(id(s)) for kind, s in sub.items()}
    if any([i is None for i in inner.values()]) or any([name in sub[kind] for kind in ("_parameters", "_buffers")]):
        return False
    if name not in sub["_modules"] or shadows.item(world, inner["_modules"], name) is not value:  # type: ignore[arg-type]
        return False
    if vm.truth(getattr_(torch.nn.modules.module, "_global_module_registration_hooks")):
        return False
    shadows.absent(world, h, name)
    for kind in ("_parameters", "_buffers"):
        shadows.absent(world, inner[kind], name)  # type: ignore[arg-type]
    return True


def function_getattr(fn: Any, name: str) -> Any:
    if id(fn) in vm.world.own_functions:
        return getattr(fn, name)
    if name in ("__get__", "__call__"):
        return getattr(fn, name)
    if name == "__globals__":
        return vm.names_of(fn.__globals__)
    if name == "__closure__" and fn.__closure__ is not None:
        raise Break("PL0007", "the closure cells of a function")
    source = vm.world.function_sources.get(id(fn)) or S.const(fn)
    try:
        v = getattr(fn, name)
    except AttributeError:
        vm.world.guard(source.dict(), "DICT_CONTAINS", (name, False), name)
        raise
    return vm.world.locate(v, source.attr(name))


def method_getattr(m: Any, name: str) -> Any:
    """An attribute of a bound method: what its type has, else what its function has."""
    if name in ("__func__", "__self__", "__class__", "__call__", "__get__", "__eq__", "__ne__"):
        return getattr(m, name)
    if name != "__doc__" and lookup(MethodType, name) is not UNSET:
        raise Break("PL0007", f"{name} of a method", clean=True)
    return getattr_(m.__func__, name)


def type_getattr(cls: type, name: str) -> Any:
    """An attribute of a class."""
    world = vm.world
    key = (id(cls), name)
    r = world.reads.get(key, UNSET)
    if r is not UNSET and vm.heard is None:
        return r
    guard_metaclass(cls)
    meta = type(cls)
    m = lookup(meta, name)
    if type(m) is property:
        return vm.call(under(m, "fget", meta, name), (cls,), {})
    raw = lookup(cls, name)
    # a data descriptor of the metaclass comes first; what `type` tells from the class's own dict (`__doc__`) may be read there
    told = type(m) in STORED and m.__objclass__ is type
    ahead = m is not UNSET and (m is CLASS_OF_OBJECTS or (m is raw if told else is_data(type(m))))
    if raw is not UNSET and name not in OF_CLASSES and not ahead:
        if meta is not type and m is not UNSET:
            hidden(meta, name, m)
        if type(raw) is FunctionType:
            return raw
        if name == "__weakref__":
            return getattr(cls, name)
        if has(type(raw), "__get__"):
            return bound(raw, None, cls, cls, name)
        if not cls.__flags__ & HEAPTYPE:
            return raw
        r = world.reads[key] = class_value(raw, cls, name)
        return r
    return of_metaclass(cls, meta, name, m)


OF_CLASSES = {"__name__", "__qualname__", "__bases__", "__base__", "__mro__", "__dict__", "__annotations__", "mro", "__abstractmethods__"}
"""What `type` itself tells of a class."""


def of_metaclass(cls: type, meta: type, name: str, m: Any) -> Any:
    """An attribute that a class has of its metaclass, which has `m` under its name."""
    world = vm.world
    if type(m) is FunctionType:
        return MethodType(m, cls)
    if meta is not type and m is not UNSET and not has(type(m), "__get__"):
        return class_value(m, meta, name)
    if meta is not type and type(m) is not UNSET and gets(type(m)):
        return got(type(m), descriptor(m, meta, name), cls, meta)
    if m is UNSET and meta is not type and not hasattr(type, name):
        hook = lookup(meta, "__getattr__")
        if type(hook) is FunctionType:
            return vm.interp(hook, (cls, name), {})
    if cls.__flags__ & HEAPTYPE and id(cls) not in world.own_functions:
        if name in ("__mro__", "__bases__", "__base__", "mro"):
            guard_order(cls)
        elif name in OF_CLASSES:
            plain = type(cls).__getattribute__ is type.__getattribute__ and not hasattr(type(cls), "__getattr__")  # a guard may read it
            if name == "__dict__" and class_writes.any_of(cls):
                raise Break("PL0007", f"the __dict__ of class {cls.__qualname__}, of which an attribute was set", clean=True)
            if name == "__dict__" and plain:
                return world.adopt(cls.__dict__, S.const(cls).attr(name))
            if not plain and name not in NAMES_OF_FUNCTIONS:
                raise Break("PL0007", f"{name} of class {cls.__qualname__}", clean=True)
            source = S.const(cls).attr(name) if plain else S.const(cls).apply("class" + name.rstrip("_"))
            return world.locate(getattr(cls, name), source)
    return getattr(cls, name)


def super_getattr(sup: Any, name: str) -> Any:
    """Attribute look-up on a `super` object: the MRO of the object after the class."""
    obj, start, cls = sup.__self__, sup.__thisclass__, sup.__self_class__
    if obj is None or name == "__class__":
        return getattr(sup, name)
    mro = cls.__mro__
    if cls.__flags__ & HEAPTYPE and id(cls) not in vm.world.own_functions:
        guard_order(cls)
    for b in mro[mro.index(start) + 1 :]:
        if name in vm.world.class_writes and (id(b), name) in vm.world.tensor_writes:
            return vm.world.tensor_writes[(id(b), name)][1]
        if name not in b.__dict__:
            if b.__flags__ & HEAPTYPE and id(b) not in vm.world.own_functions:
                lookup(b, name)  # passed over: it may be given one
            continue
        raw = b.__dict__[name]
        if b.__flags__ & HEAPTYPE and id(b) not in vm.world.own_functions:
            vm.world.type_attr(b, name, raw)
        if obj is not cls:
            return class_getattr(obj, cls, name, raw, from_outside(obj), b)
        return raw if type(raw) is FunctionType else bound(raw, None, cls, b, name)
    return getattr(sup, name)


PLAIN_TENSOR_FUNCTION = (torch.Tensor.__dict__["__torch_function__"], torch._C._disabled_torch_function_impl)
REPORTED = (type(sys), logging.Logger, logging.Handler)  # output is made after the graph, by what these are then
NAMES_OF_FUNCTIONS = ("__name__", "__qualname__")  # taken not to change


def setattr_(obj: Any, name: str, value: Any, generic: bool = False) -> None:
    """`setattr(obj, name, value)`; `generic=True` is `object.__setattr__`."""
    if vm.asking or vm.world.hashed_by:
        writes(obj, name)
    t = type(obj)
    world = vm.world
    row = ROWS.get(t)
    if row is not None and row.setattr is not None:
        row.setattr(obj, name, value)
        return
    if id(obj) in world.by_copy and type(lookup(t, name)) in (types.MemberDescriptorType, types.GetSetDescriptorType):
        raise Break("PL0006", f"attribute {name!r} of a {t.__name__}", clean=True)
    if issubclass(type(obj), REPORTED) and world.calls:
        raise Break("PL0005", f"attribute {name!r}, which what was printed or logged before depends on", clean=True)
    if t is ModuleType:
        if obj is builtins:  # what the interpreter itself goes by
            raise Break("PL0006", f"builtins.{name}", clean=True)
        namespaces.store(obj, name, value)
        return
    if t is FunctionType:
        if id(obj) in world.own_functions:
            setattr(obj, name, value)
            return
        if name in NAMES_OF_FUNCTIONS and getattr(obj, name) == value:
            return
        raise Break("PL0006", f"attribute {name!r} of function {obj.__qualname__}", clean=True)
    if issubclass(t, type):
        if type(value) is Opaque:
            raise Break("PL0017", f"{value.source.name} becomes the attribute {name!r} of a class, which may bind it", clean=True)
        if id(obj) in world.own_functions:
            set_class_attribute(obj, name, value, generic)
            return
        if not class_writes.may_write(obj, name, value):
            raise Break("PL0006", f"attribute {name!r} of class {obj.__qualname__}", clean=True)
        class_writes.write(obj, name, value)
        return
    if issubclass(t, enum.Enum) and obj.__dict__.get("_name_") is not None and id(t) in world.own_functions:
        raise Break("PL0006", f"attribute {name!r} of a member of an enumeration made here", clean=True)
    if not generic:
        sa = lookup(t, "__setattr__")
        if type(sa) is FunctionType:
            if sa is MODULE_SETATTR and is_module_already(obj, name, value):
                return
            if sa is not MODULE_SETATTR or not plain_in_module(obj, name, value):
                vm.interp(sa, (obj, name, value), {})
                return
            sa = vars(object)["__setattr__"]
        if type(sa) is not types.WrapperDescriptorType:
            raise Break("PL0006", f"attribute {name!r} of a {t.__name__}, whose __setattr__ is no plain function", clean=True)
        if issubclass(t, OWN_WAYS):
            if id(obj) in world.outside:
                raise Break("PL0006", f"attribute {name!r} of a {t.__module__}.{t.__qualname__}", clean=True)
            vm.native(setattr, (obj, name, value), {})
            return
    if id(obj) in world.standing or t in IMMUTABLE and hides_its_dict(t):  # one that is like it stands for the latter
        raise Break("PL0006", f"attribute {name!r} of a {t.__name__}", clean=True)
    instance_setattr(obj, t, name, value)


def instance_setattr(obj: Any, t: type, name: str, value: Any) -> None:
    world = vm.world
    raw = lookup(t, name)
    outside = from_outside(obj) and id(obj) not in world.by_copy
    if raw is not UNSET:
        tr = type(raw)
        if is_property(tr, "__set__"):
            if raw.fset is None:
                property.__set__(raw, obj, None)  # AttributeError
            vm.call(under(raw, "fset", t, name), (obj, value), {})
            return
        if tr is not FunctionType and has(tr, "__set__"):
            if type(s := lookup(tr, "__set__")) is FunctionType:
                hidden(t, name, raw)
                vm.interp(s, (descriptor(raw, t, name), obj, value), {})
                return
            if outside:
                if name == "__dict__" or tr is not types.MemberDescriptorType or not made_in_python(raw.__objclass__):
                    raise Break("PL0006", f"attribute {name!r} of a {t.__name__}")  # what C has made may refuse a value
                world.tensor_writes[(id(obj), name)] = (obj, value)
                return
            raw.__set__(obj, value)
            return
        hidden(t, name, raw, "__set__", "__delete__")
    if issubclass(t, ModuleType):
        namespaces.store(obj, name, value)
    elif outside:
        h = shadows.instance_dict(world, obj)
        if h is None:
            raise AttributeError(without_dict(t, name, raw))
        shadows.stored_again(world, h, name)
        was = h.located.pop(name, UNSET) if h.located.get(name) is not WRITTEN else WRITTEN  # in the order of the writes
        shadows.writes_to(h, name, was)
        h.copy[name] = value
    else:
        object.__setattr__(obj, name, value)


def without_dict(t: type, name: str, raw: Any) -> str:
    """What CPython says where an instance without a `__dict__` is to get, or to lose, an attribute that is no slot."""
    if raw is not UNSET:
        return f"{type_name(t)!r} object attribute {name!r} is read-only"
    plain = lookup(t, "__setattr__") is object.__setattr__ and lookup(t, "__delattr__") is object.__delattr__
    return f"{type_name(t)!r} object has no attribute {name!r}" + (NO_DICT if plain else "")


def hidden(t: type, name: str, raw: Any, asked: str = "", beside: str = "") -> None:
    """An attribute of a class has no say in what becomes of an instance's (or refuses it): another one in its place may have."""
    if asked and made_in_python(type(raw)) and type(raw) is not FunctionType and has(type(raw), beside) and not has(type(raw), asked):
        raise AttributeError(asked)
    ours = id(t) in vm.world.own_functions or class_writes.written(t, name) is not UNSET
    if t.__flags__ & HEAPTYPE and not ours:
        vm.world.type_attr(t, name, raw)


def set_class_attribute(cls: type, name: str, value: Any, generic: bool) -> None:
    """An attribute of a class that the program made; its metaclass may have a word in it."""
    if issubclass(cls, type) and hasattr(type(value), "__set__"):
        raise Break("PL0006", f"a descriptor {name!r} for the classes of a metaclass made here", clean=True)
    if not generic:
        hook = lookup(type(cls), "__setattr__")
        if type(hook) is FunctionType:
            vm.interp(hook, (cls, name, value), {})
            return
    type.__setattr__(cls, name, value)
    forget_lookups(name)


def delattr_(obj: Any, name: str, generic: bool = False) -> None:
    """`delattr(obj, name)`."""
    if vm.asking or vm.world.hashed_by:
        writes(obj, name)
    t = type(obj)
    world = vm.world
    row = ROWS.get(t)
    if row is not None and row.delattr is not None:
        row.delattr(obj, name)
        return
    if issubclass(type(obj), type) and id(obj) in world.own_functions:
        type.__delattr__(obj, name)
        forget_lookups(name)
        return
    if issubclass(type(obj), (ModuleType, type)) or (t is FunctionType and id(obj) not in world.own_functions):
        raise Break("PL0006", f"deleting attribute {name!r} of {obj!r}", clean=True)
    if not generic:
        da = lookup(t, "__delattr__")
        if type(da) is FunctionType:
            vm.interp(da, (obj, name), {})
            return
        if type(da) is not types.WrapperDescriptorType:
            raise Break("PL0006", f"deleting attribute {name!r} of a {t.__name__}, whose __delattr__ is no plain function", clean=True)
    raw = lookup(t, name)
    if raw is not UNSET:
        tr = type(raw)
        if is_property(tr, "__delete__"):
            if raw.fdel is None:
                property.__delete__(raw, obj)  # AttributeError
            vm.call(under(raw, "fdel", t, name), (obj,), {})
            return
        hidden(t, name, raw, "__delete__", "__set__")
        d = lookup(tr, "__delete__")
        if type(d) is FunctionType:
            vm.interp(d, (descriptor(raw, t, name), obj), {})
            return
    if id(obj) in world.by_copy and raw is not UNSET and has(type(raw), "__delete__"):
        raise Break("PL0006", f"deleting attribute {name!r} of a {t.__name__}", clean=True)
    if id(obj) in world.outside and id(obj) not in world.by_copy:
        if type(raw) is types.MemberDescriptorType:
            raise Break("PL0006", f"deleting slot {name!r} of a {t.__name__}")
        h = shadows.instance_dict(world, obj)
        if h is None or name not in h.copy:
            if h is None:
                raise AttributeError(without_dict(t, name, raw))
            shadows.absent(world, h, name)
            raise AttributeError(f"{type_name(t)!r} object has no attribute {name!r}")
        (shadows.present if name in h.orig else shadows.absent)(world, h, name)  # stored here, it leaves nothing where nothing was
        h.located[name] = WRITTEN
        del h.copy[name]
    else:
        object.__delattr__(obj, name)


vm.getattr = getattr_
vm.setattr = setattr_
vm.delattr = delattr_
