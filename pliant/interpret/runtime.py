"""Small functions that emitted code calls to do what one instruction does (no tensors, no capture state)."""

from __future__ import annotations

import abc
import operator
import sys
import types
import typing
from _abc import _abc_init
from typing import Any


def call_ex(fn: Any, args: Any, kwargs: Any) -> Any:
    return fn(*args, **kwargs)


def not_contains(container: Any, item: Any) -> bool:
    return not operator.contains(container, item)


def unpack_ex(value: Any, before: int, after: int) -> tuple:
    """The `before + 1 + after` values that `a, *b, c = value` binds."""
    r = list(value)
    if len(r) < before + after:
        raise ValueError(f"not enough values to unpack (expected at least {before + after}, got {len(r)})")
    return (*r[:before], r[before : len(r) - after], *(r[len(r) - after :] if after else ()))


def build_string(*parts: str) -> str:
    """BUILD_STRING."""
    return "".join(parts)


def format_value(value: Any, conversion: int, spec: str) -> str:
    if conversion:
        value = (str, repr, ascii)[conversion - 1](value)
    return format(value, spec)


def import_from(module: Any, name: str) -> Any:
    try:
        return getattr(module, name)
    except AttributeError:
        full = f"{module.__name__}.{name}"
        if full in sys.modules:
            return sys.modules[full]
        raise ImportError(f"cannot import name {name!r} from {module.__name__!r}") from None


def dict_update(target: dict, other: Any) -> None:
    target.update(other)


def dict_merge(target: dict, other: Any) -> None:
    for k in other.keys():
        if k in target:
            raise TypeError(f"got multiple values for keyword argument {k!r}")
        target[k] = other[k]


def build_set(*items: Any) -> set:
    return set(items)


def build_map(*items: Any) -> dict:
    return dict(zip(items[::2], items[1::2], strict=True))


def call_method(obj: Any, name: str, *args: Any, **kwargs: Any) -> Any:
    return getattr(obj, name)(*args, **kwargs)


def globals_of(fn: Any) -> dict:
    return fn.__globals__


def evaluate(fn: Any, source: Any, frame_function: Any, names: dict) -> Any:
    """`eval(source)` or `exec(source)` with the names of the frame that the program wrote it in."""
    return fn(source, frame_function.__globals__, names)


# -- classes ------------------------------------------------------------------------------------------------------


class _Quiet:
    """A first base whose `__init_subclass__` does nothing; one for each layout that the real bases may have."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        pass


class _QuietSlots:
    __slots__ = ()
    __init_subclass__ = _Quiet.__dict__["__init_subclass__"]


class _QuietGeneric(typing.Generic[typing.TypeVar("_T")]):
    __init_subclass__ = _Quiet.__dict__["__init_subclass__"]


class _QuietABC(abc.ABC):  # noqa: B024
    __init_subclass__ = _Quiet.__dict__["__init_subclass__"]


QUIET = (_QuietSlots, _Quiet, _QuietGeneric, _QuietABC)


def bare_class(meta: type, name: str, bases: tuple, ns: dict) -> Any:
    """A class, made without `__set_name__`, `__init_subclass__` and the metaclass's own code having run. None if that cannot be done."""
    late = {k: v for k, v in ns.items() if hasattr(type(v), "__set_name__")}
    ns = {k: None if k in late else v for k, v in ns.items()}
    cls = type.__new__(meta, name, bases, ns) if quiet(bases) else without_init_subclass(meta, name, bases, ns)
    if cls is not None:
        if issubclass(meta, abc.ABCMeta):
            _abc_init(cls)
        for k, v in late.items():
            type.__setattr__(cls, k, v)
    return cls


def quiet(bases: tuple) -> bool:
    """Whether making a subclass runs nobody's code."""
    for b in bases:
        for c in b.__mro__:
            if "__init_subclass__" in c.__dict__:
                if c is not object:
                    return False
                break
    return True


def without_init_subclass(meta: type, name: str, bases: tuple, ns: dict) -> Any:
    classcell = ns.get("__classcell__")
    for shim in QUIET:
        try:
            cls = type.__new__(meta, name, (shim, *bases), dict(ns))
            cls.__bases__ = bases
        except TypeError:
            if type(classcell) is types.CellType:
                classcell.__init__()  # type: ignore[misc]
            continue
        return cls
    return None


def make_enum(meta: Any, name: str, bases: tuple, pairs: tuple, kw: dict) -> type:
    ns = meta.__prepare__(name, bases, **kw)
    for k, v in pairs:
        ns[k] = v
    return meta(name, bases, ns, **kw)


OWN = ("__dict__", "__weakref__", "_abc_impl")  # made with the class


def class_content(cls: type) -> dict[str, Any]:
    """The attributes of a class that it was given, in order."""
    return {
        k: v for k, v in vars(cls).items()
        if k not in OWN and not (type(v) is types.MemberDescriptorType and v.__objclass__ is cls)
    }  # fmt: skip


def shell(meta: type, name: str, qualname: str, bases: tuple, names: tuple[str, ...], given: dict[str, Any]) -> type:
    """A class with all its attributes in order, the values of most yet to come (`fill_class`)."""
    cls = bare_class(meta, name, bases, {**dict.fromkeys(names), **given, "__qualname__": qualname})
    return cls


def fill_class(cls: type, content: dict[str, Any]) -> None:
    for k, v in content.items():
        type.__setattr__(cls, k, v)


def set_slot(obj: Any, cls: type, name: str, value: Any) -> None:
    """A slot of an instance, whatever its class says about attributes."""
    cls.__dict__[name].__set__(obj, value)
