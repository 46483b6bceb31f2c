"""`type`, `isinstance`, `issubclass`, `callable` as the program sees them, and what the answers rest on.

A proxy has the type of what it stands for. `isinstance(o, cls)` is, in CPython: true if `type(o) is cls`; else what the
`__instancecheck__` of the class's own class says; else whether the type of `o`, or `o.__class__`, is a subclass.

- A plain class: on the bases of the object's class (its MRO is guarded), and on `__class__` where a class says something else there.
- A class whose metaclass has a say in Python: its `__instancecheck__` or `__subclasscheck__` is interpreted, and what it reads guarded.
  The library's own have a row in `CHECKS` that does the same in one step.
- An abstract class: on what is registered, see `process_state.is_subclass`. A protocol of `typing`: on the attributes of the object.
"""

from __future__ import annotations

import _abc
import abc
import functools
import sys
import types
import typing
from collections.abc import Callable
from typing import Any

import torch
from torch._opaque_base import OpaqueBase

from pliant.guards import source as S
from pliant.guards import views
from pliant.interpret import process_state, waiting
from pliant.interpret.attributes import getattr_, guard_order, lookup
from pliant.interpret.calls import LOOKASIDES, call, interp
from pliant.interpret.capture import UNSET
from pliant.interpret.gate import has_c_state
from pliant.interpret.namespaces import SLOTS
from pliant.interpret.opaque import Opaque
from pliant.interpret.slips import slipped
from pliant.interpret.slots import truth, unpack
from pliant.interpret.special_methods import bound_special
from pliant.interpret.state import Break, vm
from pliant.interpret.types.row import ROWS

FunctionType = types.FunctionType
ORDINARY_CLASS = object.__dict__["__class__"]
PROTOCOL = type(typing.Protocol)
TENSOR_KIND = type(torch.FloatTensor)  # the class of `torch.FloatTensor` and its kin, which look at the dtype
STATIC_PROTOCOLS = sys.version_info >= (3, 12)  # whether protocols look for attributes without asking the object (`inspect.getattr_static`)
BINDING = (
    types.FunctionType, staticmethod, classmethod, types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType,
)  # fmt: skip
NATIVE = ("torch", "enum", "typing")  # modules of metaclasses whose `__subclasscheck__` reads the classes alone


def type_of(o: Any) -> type:
    """The type that the program sees."""
    t = type(o)
    row = ROWS.get(t)
    return t if row is None or row.type is None else row.type(o)


def is_instance(o: Any, cls: Any) -> bool:
    """`isinstance` as the program sees it."""
    if isinstance(cls, tuple):
        return any(is_instance(o, c) for c in cls)
    if type(cls) is types.UnionType:
        return any(is_instance(o, c) for c in cls.__args__)
    if type(cls) is Opaque:
        raise Break("PL0017", f"isinstance() with {cls.source.name}", clean=True)
    row = ROWS.get(type(o))
    if row is not None and row.isinstance is not None:
        return row.isinstance(o, cls)
    if cls is not torch.Tensor and vm.world.waiting and cls is waiting.class_():
        waiting.refuse(o)
    if type_of(o) is cls:
        return True
    check = lookup(type(cls), "__instancecheck__")
    if type(check) is FunctionType:
        return truth(interp(check, (cls, o), {}))
    if check is UNSET or type(check) in SLOTS:
        return by_class(o, cls)
    return truth(call(bound_special(check, cls, type(cls), "__instancecheck__"), (o,), {}))


def by_class(o: Any, cls: Any) -> bool:
    """What `type.__instancecheck__` says: by the type of the object, or what it gives as its `__class__`."""
    seen = type_of(o)
    if type(cls) is TENSOR_KIND or not isinstance(cls, type):
        without_bases(cls)
        return isinstance(o, cls)  # or an error, in CPython's words
    if seen is not type(o):
        return issubclass(seen, cls)
    guard_order(seen)
    if cls in seen.__mro__:
        return True
    other = other_class(o, seen)
    if other is None:
        return False
    guard_order(other)
    return cls in other.__mro__


def without_bases(cls: Any) -> None:
    """C takes an object for a class that has `__bases__`: raises Break where an object of the program's has."""
    t: Any = type(cls)
    if issubclass(t, type) or id(cls) not in vm.world.outside or t.__module__ == "typing" or has_c_state(t):
        return
    try:
        getattr_(cls, "__bases__")
    except AttributeError as e:
        if slipped(e):
            raise
        return
    raise Break("PL0007", f"the bases of a {t.__qualname__}, which is no class", clean=True)


def other_class(o: Any, t: type) -> type | None:
    """The class that an object claims to be of (a proxy), if that is not its own."""
    if type(o) is not t or (lookup(t, "__class__") is ORDINARY_CLASS and type(lookup(t, "__getattribute__")) is not FunctionType):
        return None
    c = getattr_(o, "__class__")
    return c if isinstance(c, type) and c is not t else None


def by_abstract(o: Any, cls: Any) -> bool:
    """`ABCMeta.__instancecheck__`."""
    t = type_of(o)
    if is_subclass(t, cls):
        return True
    other = other_class(o, t)
    return other is not None and is_subclass(other, cls)


def flag(cls: Any, name: str) -> Any:
    try:
        return getattr_(cls, name)
    except AttributeError:
        return False


def by_protocol(o: Any, cls: Any) -> bool:
    """A runtime-checkable protocol: by the attributes of the object."""
    if not flag(cls, "_is_protocol"):
        return by_abstract(o, cls)
    if not flag(cls, "_is_runtime_protocol"):
        raise TypeError("Instance and class checks can only be used with @runtime_checkable protocols")
    if STATIC_PROTOCOLS:
        if process_state.is_subclass(type_of(o), cls):
            return True
        other = other_class(o, type_of(o))
        if other is not None and process_state.is_subclass(other, cls):
            return True
        return all(has_statically(o, cls, name) for name in sorted(unpack(getattr_(cls, "__protocol_attrs__"))))
    names = members_of(cls)
    if all(asks_for_method(cls, name) for name in names) and by_abstract(o, cls):
        return True
    if all(has_member(o, cls, name) for name in names):
        return True
    t = type_of(o)
    if _abc._get_dump(cls)[0]:
        raise Break("PL0004", f"classes are registered with the protocol {cls.__qualname__}", clean=True)
    process_state.question(abc.get_cache_token, (), {}, abc.get_cache_token())
    guard_order(t)
    return cls in t.__mro__


def members_of(cls: Any) -> list[str]:
    """The names that a protocol asks for, where classes do not keep them."""
    if vm.world.class_writes or id(cls) in vm.world.own_functions:  # which the class itself may not show yet
        return sorted(unpack(interp(typing._get_protocol_attrs, (cls,), {})))  # type: ignore[attr-defined]
    members = views.protocol_members(cls)
    vm.world.guard(S.const(cls).apply("protocol_members"), "EQ_MATCH", members)
    return members.split("\n") if members else []


def has_member(o: Any, cls: Any, name: str) -> bool:
    """Whether the object has what a protocol asks for; a method may be blocked by None."""
    try:
        value = getattr_(o, name)
    except AttributeError:
        return False
    return value is not None or not asks_for_method(cls, name)


def asks_for_method(cls: Any, name: str) -> bool:
    """Whether what the protocol itself has under a name can be called."""
    try:
        return is_callable(getattr_(cls, name))
    except AttributeError:
        return False


def has_statically(o: Any, cls: Any, name: str) -> bool:
    """`has_member` without descriptors, `__getattr__` and `__getattribute__`."""
    if isinstance(o, type):
        value = next((v for v in (lookup(o, name), lookup(type(o), name)) if v is not UNSET), UNSET)
    else:
        value = own_or_class(o, name)
    return value is not UNSET and (value is not None or not asks_for_method(cls, name))


def own_or_class(o: Any, name: str) -> Any:
    """What lies under a name in the instance, else in its class, else UNSET; what is no None may be given as it is bound."""
    raw = lookup(type_of(o), name)
    if raw is not UNSET and hasattr(type(raw), "__get__") and not isinstance(raw, BINDING):
        if hasattr(type(raw), "__set__") or hasattr(type(raw), "__delete__"):
            return raw
        raise Break("PL0004", f"a protocol looks for {name!r}, a descriptor that an attribute of the instance may hide", clean=True)
    if raw is UNSET and type(o) is types.MethodType:
        return UNSET  # what `getattr` gives then is the function's
    if raw is UNSET and isinstance(o, types.ModuleType) and "__getattr__" in vars(o):
        raise Break("PL0004", f"a protocol looks for {name!r} in a module that has a __getattr__", clean=True)
    try:
        return getattr_(o, name, generic=True)
    except AttributeError:
        return UNSET


def marked(name: str) -> Callable[[Any, Any], bool]:
    """`Parameter` and `Buffer`: a tensor of any class is one that bears the mark `name`."""

    def check(o: Any, cls: Any) -> bool:
        if cls in type_of(o).__mro__:
            return True
        if cls is not MARKED[name] or not issubclass(type_of(o), torch.Tensor):
            return False
        try:
            return truth(getattr_(o, name))
        except AttributeError:
            return False

    return check


def by_alias(o: Any, cls: Any) -> Any:
    """`typing.List`, `typing.Union[int, str]`: by the type of the object alone."""
    return cls.__subclasscheck__(type_of(o))


def natively(o: Any, cls: Any) -> bool:
    return isinstance(o, cls)


def is_subclass(a: Any, cls: Any) -> bool:
    """`issubclass` as the program sees it."""
    if isinstance(cls, tuple):
        return any(is_subclass(a, c) for c in cls)
    if isinstance(cls, types.UnionType):
        return any(is_subclass(a, c) for c in cls.__args__)
    for c in (a, cls):
        if type(c) is Opaque:
            raise Break("PL0017", f"issubclass() of {c.source.name}", clean=True)
    m = lookup(type(cls), "__subclasscheck__")
    if not isinstance(a, type) or not isinstance(cls, type):
        without_bases(a)
        without_bases(cls)
        return issubclass(a, cls)
    guard_order(a)
    if type(m) is FunctionType:
        if m is abc.ABCMeta.__subclasscheck__:
            return process_state.is_subclass(a, cls)
        if not m.__module__.startswith(NATIVE):
            return truth(interp(m, (cls, a), {}))
    elif type(m) not in SLOTS:
        return truth(call(bound_special(m, cls, type(cls), "__subclasscheck__"), (a,), {}))
    return issubclass(a, cls)


def is_callable(o: Any) -> bool:
    """`callable`: whether the class has a `__call__`."""
    if type(o) is Opaque:
        raise Break("PL0017", f"whether {o.source.name} can be called", clean=True)
    row = ROWS.get(type(o))
    if row is not None and row.type is None:
        return callable(o)
    return lookup(type_of(o), "__call__") is not UNSET


MARKED = {"_is_param": torch.nn.Parameter, "_is_buffer": torch.nn.Buffer}
CHECKS: dict[Any, Callable[[Any, Any], bool]] = {
    type.__instancecheck__: by_class,
    abc.ABCMeta.__instancecheck__: by_abstract,
    **{type(cls).__instancecheck__: marked(name) for name, cls in MARKED.items()},
    PROTOCOL.__instancecheck__: by_protocol,
    typing._BaseGenericAlias.__instancecheck__: by_alias,  # type: ignore[attr-defined]
    typing._UnionGenericAlias.__instancecheck__: by_alias,  # type: ignore[attr-defined]
    type(OpaqueBase).__instancecheck__: natively,  # it looks objects up in the library's own tables
}
"""How an `__instancecheck__` of Python's or PyTorch's own is answered: `(object, class)`."""


def asked(check: Any, row: Callable[[Any, Any], bool], args: tuple, kw: dict) -> bool:
    """A call of the check itself, `(class, object)`; a wrong call raises what it raises."""
    return row(args[1], args[0]) if len(args) == 2 and not kw else check(*args, **kw)


def called(fn: Any, answer: Callable, n: int) -> Callable[[tuple, dict], Any]:
    """A call of the builtin; a wrong call raises what it raises."""
    return lambda args, kw: answer(*args) if len(args) == n and not kw else fn(*args, **kw)


for _check, _row in CHECKS.items():
    LOOKASIDES[_check] = functools.partial(asked, _check, _row)
LOOKASIDES[abc.ABCMeta.__subclasscheck__] = functools.partial(asked, abc.ABCMeta.__subclasscheck__, process_state.is_subclass)
LOOKASIDES[isinstance] = called(isinstance, is_instance, 2)
LOOKASIDES[issubclass] = called(issubclass, is_subclass, 2)
LOOKASIDES[callable] = called(callable, is_callable, 1)

vm.type_of = type_of
vm.isinstance = is_instance
