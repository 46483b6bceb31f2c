"""What a capture may have known of an object besides its identity, as data that two processes can compare."""

from __future__ import annotations

import _abc
import abc
import collections
import contextvars
import enum
import functools
import logging
import re
import types
import typing
import zlib
from types import CodeType, FunctionType, ModuleType
from typing import Any

import torch
from torch.distributions import constraints
from torch.distributions.utils import lazy_property

from pliant.graph.distributed_tensors import is_mesh
from pliant.graph.python_random import NUMPYS
from pliant.interpret.immutable import HEAPTYPE
from pliant.jit.persist.frames import is_made, layout_row
from pliant.jit.persist.values import NotPortable
from pliant.jit.resume import ResumeCode, info_of
from pliant.jit.weak_ids import WeakIdDict

PLAIN_DEFAULTS = (type(None), bool, int, float, complex, str, bytes)
TUPLE_GETTER = type(vars(collections.namedtuple("_Pair", "a"))["a"])  # what a field of a namedtuple is in its class
PROXY = torch.empty(0)
"""For a question about a traced tensor, one like any other."""

_code_prints: WeakIdDict[tuple] = WeakIdDict()


def code_print(code: CodeType) -> tuple:
    """What a code object does and where it is written, as data that is the same in every process."""
    found = _code_prints.get(code)
    if found is None:
        found = _code_prints[code] = print_code(code)
    return found


def print_code(code: CodeType) -> tuple:
    consts = [code_print(c) if type(c) is CodeType else sorted(map(repr, c)) if type(c) is frozenset else c for c in code.co_consts]
    kinds = [type(c).__name__ for c in consts]
    names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    text = repr((consts, kinds, names, code.co_flags, code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount))
    parts = (zlib.crc32(code.co_code), zlib.crc32(code.co_exceptiontable), zlib.crc32(code.co_linetable), zlib.crc32(text.encode()))
    return (code.co_filename, code.co_firstlineno, code.co_qualname, *parts)


def plain(value: Any) -> Any:
    """A default value, as far as a program may know it without a guard. What is equal and not alike, as `2` and `2.0` or the two zeros are,
    has other prints."""
    t = type(value)
    if t is tuple:
        return ("(", *map(plain, value))
    return (t.__name__, repr(value)) if t in PLAIN_DEFAULTS else ("of", t.__module__, t.__qualname__)


def resume_print(made: ResumeCode, fn: FunctionType) -> tuple:
    """Of a resume function: the code that it goes on with, and where."""
    code = made.origin()
    assert code is not None
    return "resume", code_print(code), layout_row(made.layout), fn.__globals__.get("__name__")


def function_print(fn: FunctionType) -> tuple:
    made = info_of(fn.__code__)
    if made is not None:
        return resume_print(made, fn)
    defaults = tuple(map(plain, fn.__defaults__)) if fn.__defaults__ is not None else None
    keywords = tuple((k, plain(v)) for k, v in fn.__kwdefaults__.items()) if fn.__kwdefaults__ is not None else None
    names = (fn.__module__, fn.__qualname__, fn.__name__, fn.__globals__.get("__name__"))
    return (*names, code_print(fn.__code__), defaults, keywords, len(fn.__closure__ or ()))


def special_methods(cls: type) -> tuple:
    """What a class body says about its instances' behaviour towards C code."""
    out = []
    for name, v in vars(cls).items():
        if name[:2] == "__" and type(v) is FunctionType:
            c = v.__code__
            made = c.co_filename[:1] == "<"  # from text: its place in a file tells nothing
            out.append((name, *code_print(c)) if made else (name, c.co_filename, c.co_firstlineno, zlib.crc32(c.co_code)))
        elif name in ("__slots__", "__hash__", "__eq__", "__getattr__", "__bool__", "__len__"):
            out.append((name, type(v).__name__))
    return tuple(out)


def module_of(cls: type) -> str:
    """The module that a class says it is from; some of Cython's say it by a descriptor."""
    found = cls.__module__
    return found if type(found) is str else ""


def class_print(cls: type) -> tuple:
    names = tuple([(module_of(b), b.__qualname__) for b in cls.__mro__])
    kind, python = type(cls), bool(cls.__flags__ & HEAPTYPE)
    members = tuple([(m, repr(plain(v._value_))) for m, v in cls.__members__.items()]) if isinstance(cls, enum.EnumMeta) else ()
    virtual = sorted(repr(ref()) for ref in _abc._get_dump(cls)[0]) if isinstance(cls, abc.ABCMeta) else []
    return (names, module_of(kind), kind.__qualname__, python, special_methods(cls) if python else (), members, virtual)


def named_print(value: Any) -> tuple:
    """Of what is known by its name: the name that it has itself, wherever it was found."""
    t = type(value)
    return (module_of(t), t.__qualname__, *[str(getattr(value, name, "")) for name in OWN_NAMES.get(t, ("__name__",))])


OWN_NAMES: dict[type, tuple[str, ...]] = {
    dict: (),
    types.CellType: (),
    types.BuiltinFunctionType: ("__module__", "__qualname__"),
    torch._ops.OpOverload: ("_name", "_overloadname"),
    torch._ops.OpOverloadPacket: ("_qualified_op_name",),
    torch._ops._OpNamespace: ("name",),
    contextvars.ContextVar: ("name",),
    **dict.fromkeys((typing.TypeVar, typing.ParamSpec), ("__module__", "__name__", "__bound__", "__constraints__")),
    **dict.fromkeys(
        (types.MethodDescriptorType, types.WrapperDescriptorType, types.GetSetDescriptorType, types.MemberDescriptorType,
         types.ClassMethodDescriptorType),
        ("__objclass__", "__name__"),
    ),
}  # fmt: skip


try:
    import numpy
except ImportError:
    numpy = None  # type: ignore[assignment]

OF_NUMPY: tuple[type, ...] = () if numpy is None else (numpy.ufunc, type(numpy.sum), numpy.dtype)
"""Functions and dtypes of NumPy, whose version is part of every entry's name."""


def print_of(value: Any) -> Any:
    """What the capture may have known of `value` besides its identity. Raises NotPortable."""
    t = type(value)
    if t in OWN_NAMES:  # most are
        return named_print(value)
    if t is FunctionType and not is_made(value):
        return function_print(value)
    if issubclass(type(value), type):
        return class_print(value)
    if t is CodeType:
        return code_print(value)
    if issubclass(type(value), enum.Enum):
        if t._member_map_.get(vars(value).get("_name_")) is not value:
            raise NotPortable(f"a {t.__qualname__} that was made by a call")
        return (t.__module__, t.__qualname__, value._name_, repr(plain(value._value_)))
    if t is re.Pattern:
        return ("re", value.pattern, value.flags)
    if numpy is not None and issubclass(type(value), OF_NUMPY):
        return ("numpy", getattr(value, "__name__", None) or str(value))
    if t.__name__ == "cython_function_or_method" and str(getattr(value, "__module__", "")).startswith("numpy."):
        return ("numpy", value.__module__, value.__qualname__)
    if t in (torch.finfo, torch.iinfo):
        return (t.__name__, str(value.dtype))
    if t is functools._lru_cache_wrapper and type(getattr(value, "__wrapped__", None)) is FunctionType:
        return ("cached", *function_print(value.__wrapped__))
    if t is TUPLE_GETTER:
        return ("getter", value.__reduce__()[1][0])
    if is_mesh(t):
        return mesh_print(value)
    if t in KEYS:
        return (t.__qualname__, str(value.dtype), str(value.device), str(value.layout))
    if t in WRAPPERS:
        return tuple([None if f is None else print_of(f) for f in wrapped(value).values()])
    if is_made(value) or value is PROXY or value is NUMPYS:
        return ()
    if issubclass(type(value), ModuleType):
        return named_print(value)
    if issubclass(type(value), logging.Logger):
        return (*named_print(value), value.name)
    raise NotPortable(f"a {t.__module__}.{t.__qualname__}")


def mesh_print(mesh: Any) -> tuple:
    """What a mesh says: its processes in order, the names of its dims and of their groups, and which of the processes this one is."""
    ranks = repr(mesh.mesh.tolist())
    names = mesh.mesh_dim_names, tuple(mesh._dim_group_names)
    return ("mesh", mesh.device_type, ranks, *names, getattr(mesh, "_rank", None), mesh.get_coordinate())


KEYS = (torch.Tensor, torch.nn.Parameter)
"""Tensors may be keys, as parameters are of an optimizer's state: which one it is counts, not what it holds, and that is guarded apart."""

WRAPPERS: dict[type, tuple[str, ...]] = {
    property: ("fget", "fset", "fdel"), enum.property: ("fget", "fset", "fdel"),
    staticmethod: ("__func__",), classmethod: ("__func__",), functools.cached_property: ("func",), lazy_property: ("wrapped",),
    constraints._DependentProperty: ("fget", "fset", "fdel"),
}  # fmt: skip


def wrapped(value: Any) -> dict[str, Any]:
    """What a descriptor is made of."""
    return {name: getattr(value, name) for name in WRAPPERS.get(type(value), ())}


def links_of(value: Any) -> tuple:
    """Other objects that the identity of this one stands for."""
    if issubclass(type(value), type):
        return tuple([b for b in (*value.__mro__[1:], type(value)) if not built_in(module_of(b))])
    return ()


def built_in(module: str) -> bool:
    """Whether classes that say they are from there are the same in every process of these versions; not all of them have a name. (Cython's
    say its version, or nothing.)"""
    return module in ("", "builtins", "pybind11_builtins") or module.startswith("_cython_")
