"""Attribute slots: reading, writing and deleting attributes as CPython does, over shadows.

Python-level descriptors, `__getattr__`, `__getattribute__`, `__setattr__` are interpreted; C-level ones are run by CPython
on real objects. Class look-ups are guarded (`TYPE_ATTRS`), instance look-ups are guards on the instance's `__dict__`.
"""

from __future__ import annotations

import enum
import functools
import math
import types
from typing import Any

import torch

from pliant.guards import source as S
from pliant.interpret import datafield, tracebacks
from pliant.interpret.capture import UNSET
from pliant.interpret.state import Break, vm
from pliant.interpret.texts import LateText, needed
from pliant.interpret.world import WRITTEN, Opaque

FunctionType, MethodType, ModuleType = types.FunctionType, types.MethodType, types.ModuleType
MODULE_GETATTR = torch.nn.Module.__getattr__
HEAPTYPE = 1 << 9
IMMUTABLETYPE = 1 << 8

# Types whose attributes CPython reads on the real object: constants, things of the interpreter, program-made containers.
PLAIN = {
    torch.SymInt, torch.SymBool, torch.SymFloat, str, int, float, bool, bytes, complex, list, dict, tuple, set, frozenset,
    type(None), torch.dtype, torch.device, torch.Size, types.BuiltinFunctionType, property, range, slice, types.CodeType,
    types.MethodDescriptorType, types.WrapperDescriptorType, types.GetSetDescriptorType, types.MethodWrapperType,
    torch._ops.OpOverload, torch._ops.OpOverloadPacket, torch._ops._OpNamespace, type(torch.ops), types.GenericAlias,
}  # fmt: skip


SYM_METHODS = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}


def lookup(cls: type, name: str) -> Any:
    """The class attribute (unbound) that the MRO gives, or UNSET; guarded once per capture."""
    world = vm.world
    key = (cls, name)
    r = world.lookups.get(key, None)
    if r is not None:
        return r
    for b in cls.__mro__:
        d = b.__dict__
        if name in d:
            r = d[name]
            break
    else:
        r = UNSET
    if r is None:
        return None
    world.lookups[key] = r
    # plain data on a class is guarded by value where it is read (`class_value`)
    if r is UNSET or hasattr(type(r), "__get__"):
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


def dict_of(obj: Any, outside: bool) -> dict | None:
    """The dict that the program sees as `obj.__dict__`, or None."""
    if outside:
        h = vm.world.instance_dict(obj)
        return h.copy if h is not None else None
    try:
        return obj.__dict__
    except AttributeError:
        return None


def own_dict(obj: Any, outside: bool) -> tuple[dict | None, Any]:
    """`dict_of(obj)`, and the shadow behind it if it has one."""
    if outside:
        h = vm.world.instance_dict(obj)
        return (h.copy, h) if h is not None else (None, None)
    d = dict_of(obj, False)
    return d, vm.world.by_copy.get(id(d))


def dict_read(d: dict, name: str) -> Any:
    h = vm.world.by_copy.get(id(d))
    return vm.world.item(h, name) if h is not None else d[name]


def class_value(raw: Any, cls: type, name: str) -> Any:
    """A plain object found on a class: it belongs to the outside."""
    if id(cls) in vm.world.own_functions:
        owner = next((b for b in cls.__mro__ if name in b.__dict__), cls)
        return raw if id(owner) in vm.world.own_functions else class_value(raw, owner, name)
    return vm.world.locate(raw, S.const(cls).attr(name))


def getattr_(obj: Any, name: str, generic: bool = False) -> Any:
    """`getattr(obj, name)`; `generic=True` is `object.__getattribute__`."""
    t = type(obj)
    world = vm.world
    if t in world.ordinary:
        return instance_getattr(obj, t, name, id(obj) in world.outside, generic)
    if t is vm.traced_type:
        return tensor_getattr(obj, name)
    if t in PLAIN:
        if name == "__class__":
            return vm.type_of(obj)
        if t in SYM_METHODS and not name.startswith("__") and hasattr(SYM_METHODS[t], name):
            return getattr(vm.specialize(obj), name)  # PyTorch's symbolic numbers lack them, or answer otherwise than Python's
        return getattr(obj, name)
    if t is ModuleType:
        return module_getattr(obj, name)
    if t is FunctionType:
        return function_getattr(obj, name)
    if t is MethodType:
        if name in ("__func__", "__self__"):
            return getattr(obj, name)
        return getattr_(obj.__func__, name)
    if issubclass(t, type):
        return type_getattr(obj, name)
    if t is super:
        return super_getattr(obj, name)
    if t is LateText:
        needed(obj)
    if t is Opaque:
        raise Break("PL0017", f"attribute {name!r} of {obj.source.name}, which changes on every call")
    if issubclass(t, ModuleType) and (name in obj.__dict__ or (id(obj.__dict__), name) in vm.world.global_writes):
        return module_getattr(obj, name)
    if not generic:
        ga = lookup(t, "__getattribute__")
        if type(ga) is FunctionType:
            try:
                return vm.interp(ga, (obj, name), {})
            except AttributeError:
                hook = lookup(t, "__getattr__")
                if type(hook) is not FunctionType:
                    raise
                return vm.interp(hook, (obj, name), {})
        if not isinstance(obj, ModuleType):
            world.ordinary.add(t)
    return instance_getattr(obj, t, name, id(obj) in world.outside, generic)


def instance_getattr(obj: Any, t: type, name: str, outside: bool, generic: bool) -> Any:
    """What `object.__getattribute__` finds, and, unless `generic`, the class's `__getattr__` after it."""
    raw = lookup(t, name)
    if raw is UNSET:
        d, h = own_dict(obj, outside)
        if d is not None and name in d:
            return vm.world.item(h, name) if h is not None else d[name]
        if h is not None:
            vm.world.absent(h, name)
        return nowhere(obj, t, name, d, h, generic)
    try:
        return class_getattr(obj, t, name, raw, outside)
    except AttributeError:
        if generic or lookup(t, "__getattr__") is UNSET:
            raise
    d, h = own_dict(obj, outside)
    return nowhere(obj, t, name, d, h, False)


def nowhere(obj: Any, t: type, name: str, d: dict | None, h: Any, generic: bool) -> Any:
    """An attribute that neither the instance nor its class has."""
    hook = UNSET if generic else lookup(t, "__getattr__")
    if hook is MODULE_GETATTR:
        return nn_module_getattr(obj, t, name, d, h)
    if hook is UNSET:
        raise AttributeError(f"{t.__name__!r} object has no attribute {name!r}", name=name, obj=obj)
    if type(hook) is FunctionType:
        return vm.interp(hook, (obj, name), {})
    if id(obj) in vm.world.outside:
        return vm.world.locate(getattr(obj, name), vm.world.sources[id(obj)].attr(name))
    return getattr(obj, name)


def class_getattr(obj: Any, t: type, name: str, raw: Any, outside: bool) -> Any:
    """An attribute whose class has `raw` under its name: the descriptor protocol."""
    tr = type(raw)
    if tr is property:
        if raw.fget is None:
            raise AttributeError(f"property {name!r} of {t.__name__!r} object has no getter")
        return vm.call(raw.fget, (obj,), {})
    if tr is not FunctionType and tr is not functools.cached_property and hasattr(tr, "__get__"):
        if hasattr(tr, "__set__") or hasattr(tr, "__delete__"):
            return data_descriptor(obj, t, raw, tr, name, outside)
    d, h = own_dict(obj, outside)
    if d is not None and name in d:
        return vm.world.item(h, name) if h is not None else d[name]
    if h is not None:
        vm.world.absent(h, name)
    if tr is FunctionType:
        return MethodType(raw, obj)
    if tr is functools.cached_property:
        v = vm.call(raw.func, (obj,), {})
        if h is not None:
            h.located[name] = WRITTEN
        d[name] = v
        return v
    if tr is classmethod:
        return bind_class(raw.__func__, t)
    if tr is staticmethod:
        return raw.__func__
    if hasattr(tr, "__get__"):
        g = lookup(tr, "__get__")
        if type(g) is FunctionType:
            return vm.interp(g, (raw, obj, t), {})
        return raw.__get__(obj, t)
    return class_value(raw, t, name)


def bind_class(func: Any, cls: type) -> Any:
    if type(func) is FunctionType:
        return MethodType(func, cls)
    return func.__get__(cls, type(cls)) if hasattr(type(func), "__get__") else MethodType(func, cls)


def data_descriptor(obj: Any, t: type, raw: Any, tr: type, name: str, outside: bool) -> Any:
    if name == "__dict__":
        if not outside:
            return obj.__dict__
        h = vm.world.instance_dict(obj)
        if h is None:
            raise Break("PL0007", f"__dict__ of {t.__name__}")
        vm.world.all(h.copy)
        return h.copy
    g = lookup(tr, "__get__")
    if type(g) is FunctionType:
        return vm.interp(g, (raw, obj, t), {})
    if name == "__class__":
        return t
    v = raw.__get__(obj, t)
    if outside:
        h = vm.world.tensor_writes.get((id(obj), name))
        if h is not None:
            return h[1]
        if id(obj) in vm.world.raised_outside and tracebacks.changed(obj, name):
            return v
        return vm.world.locate(v, vm.world.sources[id(obj)].attr(name))
    return v


def nn_module_getattr(obj: Any, t: type, name: str, d: dict, h: Any) -> Any:
    """`nn.Module.__getattr__` without interpreting it: parameters, buffers, submodules."""
    world = vm.world
    for kind in ("_parameters", "_buffers", "_modules"):
        if kind not in d or (h is not None and world.is_empty(h, kind)):
            continue
        sub = world.item(h, kind) if h is not None else d[kind]
        inner = world.by_copy.get(id(sub))
        if name in sub:
            return world.item(inner, name) if inner is not None else sub[name]
        if inner is not None:
            world.absent(inner, name)
    raise AttributeError(f"{t.__name__!r} object has no attribute {name!r}", name=name, obj=obj)


def module_getattr(mod: Any, name: str) -> Any:
    """An attribute of a Python module: a guarded read of its dict."""
    world = vm.world
    d = mod.__dict__
    key = (id(d), name)
    if key in world.global_writes:
        v = world.global_writes[key][2]
        if v is UNSET:
            raise AttributeError(f"module {mod.__name__!r} has no attribute {name!r}")
        return v
    r = world.reads.get(key, UNSET)
    if r is UNSET:
        if name in d:
            r = world.locate(d[name], S.const(mod).dict().key(name))
        else:
            try:
                v = getattr(mod, name)  # a lazy module's __getattr__, or an attribute of the type
            except AttributeError:
                for missing in (name, "__getattr__"):
                    if missing not in d:
                        world.guard(S.const(mod).dict(), "DICT_CONTAINS", (missing, False), missing)
                raise
            if name in d:
                r = world.locate(d[name], S.const(mod).dict().key(name))
            elif name == "__dict__":
                raise Break("PL0007", f"the __dict__ of module {mod.__name__}")
            else:
                r = world.locate(v, S.const(mod).attr(name))
        world.reads[key] = r
    return r


def function_getattr(fn: Any, name: str) -> Any:
    if id(fn) in vm.world.own_functions:
        return getattr(fn, name)
    if name in ("__name__", "__qualname__", "__module__", "__doc__", "__code__", "__get__", "__call__"):
        return getattr(fn, name)
    if name == "__globals__":
        raise Break("PL0007", "the globals of a function as a dict")
    if name == "__closure__" and fn.__closure__ is not None:
        raise Break("PL0007", "the closure cells of a function")
    source = vm.world.function_sources.get(id(fn)) or S.const(fn)
    try:
        v = getattr(fn, name)
    except AttributeError:
        vm.world.guard(source.dict(), "DICT_CONTAINS", (name, False), name)
        raise
    return vm.world.locate(v, source.attr(name))


def type_getattr(cls: type, name: str) -> Any:
    """An attribute of a class."""
    world = vm.world
    if isinstance(cls, enum.EnumMeta) and name not in ("__members__",):
        meta = lookup(type(cls), name)
        raw = lookup(cls, name)
        if type(raw) is FunctionType:
            return raw
        if type(raw) is classmethod:
            return bind_class(raw.__func__, cls)
        if raw is UNSET and type(meta) is FunctionType:
            return MethodType(meta, cls)
        return getattr(cls, name)
    key = (id(cls), name)
    r = world.reads.get(key, UNSET)
    if r is not UNSET:
        return r
    meta = type(cls)
    if meta is not type:
        m = lookup(meta, name)
        if type(m) is property:
            return vm.call(m.fget, (cls,), {})
    raw = lookup(cls, name)
    if raw is not UNSET:
        tr = type(raw)
        if tr is FunctionType:
            return raw
        if tr is staticmethod:
            return raw.__func__
        if tr is classmethod:
            return bind_class(raw.__func__, cls)
        if name in ("__dict__", "__weakref__"):
            return getattr(cls, name)
        if hasattr(tr, "__get__"):
            g = lookup(tr, "__get__")
            if type(g) is FunctionType:
                return vm.interp(g, (raw, None, cls), {})
            return getattr(cls, name)
        if not cls.__flags__ & HEAPTYPE:
            return raw
        r = world.reads[key] = class_value(raw, cls, name)
        return r
    if meta is not type:
        m = lookup(meta, name)
        if type(m) is FunctionType:
            return MethodType(m, cls)
    return getattr(cls, name)


def super_getattr(sup: Any, name: str) -> Any:
    """Attribute look-up on a `super` object: the MRO of the object after the class."""
    obj, start, cls = sup.__self__, sup.__thisclass__, sup.__self_class__
    if obj is None:
        return getattr(sup, name)
    mro = cls.__mro__
    for b in mro[mro.index(start) + 1 :]:
        if name not in b.__dict__:
            continue
        raw = b.__dict__[name]
        if b.__flags__ & HEAPTYPE and id(b) not in vm.world.own_functions:
            vm.world.type_attr(b, name, raw)
        tr = type(raw)
        if tr is FunctionType:
            return raw if obj is cls and isinstance(obj, type) and name == "__new__" else MethodType(raw, obj)
        if tr is property:
            return vm.call(raw.fget, (obj,), {})
        if tr is classmethod:
            return bind_class(raw.__func__, cls)
        if tr is staticmethod:
            return raw.__func__
        if hasattr(tr, "__get__"):
            g = lookup(tr, "__get__")
            if type(g) is FunctionType:
                return vm.interp(g, (raw, obj, cls), {})
            return raw.__get__(None if obj is cls else obj, cls)
        return class_value(raw, b, name)
    return getattr(sup, name)


TENSOR_CONSTANT = {"__class__"}
TENSOR_BREAKS = {
    "grad_fn", "_backward_hooks", "__array_interface__", "__cuda_array_interface__", "_version", "data_ptr", "_cdata",
    "retain_grad", "register_hook", "register_post_accumulate_grad_hook", "numpy", "untyped_storage", "storage", "_base",
}  # fmt: skip


def tensor_getattr(t: Any, name: str) -> Any:
    """An attribute of a traced tensor."""
    if name == "__class__":
        return t.pytype
    if name == "dtype" or name == "device":
        return getattr(t, name)
    world = vm.world
    w = world.tensor_writes.get((id(t), name))
    if w is not None:
        if w[1] is UNSET:
            raise AttributeError(f"'Tensor' object has no attribute {name!r}")
        return w[1]
    real = world.real.get(id(t))
    if name == "__dict__":
        raise Break("PL0007", "the __dict__ of a tensor")
    if name in TENSOR_BREAKS:
        raise Break("PL0012", f"tensor attribute {name!r}", clean=True)
    if name == "nbytes":
        return math.prod(t.sizes) * t.itemsize
    if name == "is_leaf":
        return not t.requires_grad or (real is not None and real.is_leaf)
    if name == "data":
        return datafield.read(t)
    if name == "grad":
        if real is None:
            return None
        if not real.is_leaf and real.requires_grad:
            raise Break("PL0012", "the .grad of a tensor that is not a leaf", clean=True)
        return world.locate(real.grad, t.source.attr("grad"))
    if name in OWN_TENSOR_SLOTS:
        raise AttributeError(f"'Tensor' object has no attribute {name!r}")
    cls_has = hasattr(torch.Tensor, name)
    if real is not None and not cls_has:
        d = real.__dict__
        src = t.source
        if name in d:
            return world.locate(d[name], src.dict().key(name))
        if d or t.pytype is not torch.Tensor:
            if hasattr(t.pytype, name):
                return getattr(t.pytype, name).__get__(t) if callable(getattr(t.pytype, name)) else getattr(real, name)
        world.guard(src.dict(), "DICT_CONTAINS", (name, False), name)
        raise AttributeError(f"{t.pytype.__name__!r} object has no attribute {name!r}")
    raw = TENSOR_LOOKUP.get(name, UNSET)
    if raw is UNSET:
        raw = TENSOR_LOOKUP[name] = next((b.__dict__[name] for b in torch.Tensor.__mro__ if name in b.__dict__), None)
    if type(raw) is FunctionType:
        return MethodType(raw, t)
    return getattr(t, name)


def takes_grad(t: Any, value: Any) -> bool:
    """Whether `t.grad = value` is an ordinary write: to a leaf of the outside, of nothing or of a gradient like the tensor."""
    real = vm.world.real.get(id(t))
    if real is None or not (real.is_leaf and real.requires_grad):
        return False
    if value is None:
        return True
    return type(value) is vm.traced_type and value.dtype is t.dtype and value.device == t.device and same_sizes(value.sizes, t.sizes)


def same_sizes(a: tuple, b: tuple) -> bool:
    return len(a) == len(b) and all(type(x) is int and x == y for x, y in zip(a, b, strict=True))


TENSOR_LOOKUP: dict[str, Any] = {}
OWN_TENSOR_SLOTS = {"vid", "trace", "pytype", "source", "sizes", "strides", "offset", "storage_id"}


NAMES_OF_FUNCTIONS = ("__name__", "__qualname__")  # taken not to change


def setattr_(obj: Any, name: str, value: Any, generic: bool = False) -> None:
    """`setattr(obj, name, value)`; `generic=True` is `object.__setattr__`."""
    t = type(obj)
    world = vm.world
    if t is vm.traced_type:
        if name == "grad" and takes_grad(obj, value):
            world.tensor_writes[(id(obj), name)] = (obj, value)
            return
        if name in ("data", "grad", "requires_grad", "names", "real", "imag", "_backward_hooks"):
            raise Break("PL0012", f"assignment to tensor attribute {name!r}", clean=True)
        world.tensor_writes[(id(obj), name)] = (obj, value)
        return
    if isinstance(obj, ModuleType):
        world.reads.pop((id(obj.__dict__), name), None)
        world.global_writes[(id(obj.__dict__), name)] = (obj.__dict__, name, value)
        return
    if t is FunctionType:
        if id(obj) in world.own_functions:
            setattr(obj, name, value)
            return
        if name in NAMES_OF_FUNCTIONS and getattr(obj, name) == value:
            return
        raise Break("PL0006", f"attribute {name!r} of function {obj.__qualname__}", clean=True)
    if isinstance(obj, type):
        if id(obj) in world.own_functions:
            set_class_attribute(obj, name, value, generic)
            return
        raise Break("PL0006", f"attribute {name!r} of class {obj.__qualname__}", clean=True)
    if t is Opaque:
        raise Break("PL0017", f"attribute {name!r} of {obj.source.name}", clean=True)
    if isinstance(obj, enum.Enum) and obj.__dict__.get("_name_") is not None and id(t) in world.own_functions:
        raise Break("PL0006", f"attribute {name!r} of a member of an enumeration made here", clean=True)
    if not generic:
        sa = lookup(t, "__setattr__")
        if type(sa) is FunctionType:
            vm.interp(sa, (obj, name, value), {})
            return
    raw = lookup(t, name)
    outside = id(obj) in world.outside and id(obj) not in world.by_copy
    if raw is not UNSET:
        tr = type(raw)
        if tr is property:
            if raw.fset is None:
                raise AttributeError(f"property {name!r} of {t.__name__!r} object has no setter")
            vm.call(raw.fset, (obj, value), {})
            return
        if tr is not FunctionType and hasattr(tr, "__set__"):
            s = lookup(tr, "__set__")
            if type(s) is FunctionType:
                vm.interp(s, (raw, obj, value), {})
                return
            if outside:
                if name == "__dict__" or tr is not types.MemberDescriptorType:
                    raise Break("PL0006", f"attribute {name!r} of a {t.__name__}")
                world.tensor_writes[(id(obj), name)] = (obj, value)
                return
            raw.__set__(obj, value)
            return
    if outside:
        h = world.instance_dict(obj)
        if h is None:
            raise AttributeError(f"{t.__name__!r} object has no attribute {name!r}")
        h.located[name] = WRITTEN
        h.copy[name] = value
    else:
        object.__setattr__(obj, name, value)


def set_class_attribute(cls: type, name: str, value: Any, generic: bool) -> None:
    """An attribute of a class that the program made; its metaclass may have a word in it."""
    if not generic:
        hook = lookup(type(cls), "__setattr__")
        if type(hook) is FunctionType:
            vm.interp(hook, (cls, name, value), {})
            return
    type.__setattr__(cls, name, value)
    forget_lookups(name)


def delattr_(obj: Any, name: str, generic: bool = False) -> None:
    """`delattr(obj, name)`."""
    t = type(obj)
    world = vm.world
    if t is vm.traced_type:
        raise Break("PL0012", f"deleting tensor attribute {name!r}", clean=True)
    if isinstance(obj, type) and id(obj) in world.own_functions:
        type.__delattr__(obj, name)
        forget_lookups(name)
        return
    if isinstance(obj, (ModuleType, type)) or (t is FunctionType and id(obj) not in world.own_functions):
        raise Break("PL0006", f"deleting attribute {name!r} of {obj!r}", clean=True)
    if not generic:
        da = lookup(t, "__delattr__")
        if type(da) is FunctionType:
            vm.interp(da, (obj, name), {})
            return
    raw = lookup(t, name)
    if type(raw) is property:
        if raw.fdel is None:
            raise AttributeError(f"property {name!r} of {t.__name__!r} object has no deleter")
        vm.call(raw.fdel, (obj,), {})
        return
    if id(obj) in world.outside and id(obj) not in world.by_copy:
        if type(raw) is types.MemberDescriptorType:
            raise Break("PL0006", f"deleting slot {name!r} of a {t.__name__}")
        h = world.instance_dict(obj)
        if h is None or name not in h.copy:
            if h is not None:
                world.absent(h, name)
            raise AttributeError(name)
        world.present(h, name)
        h.located[name] = WRITTEN
        del h.copy[name]
    else:
        object.__delattr__(obj, name)


vm.getattr = getattr_
vm.setattr = setattr_
vm.delattr = delattr_
