"""What may be done to classes, to what is reached through them, and to objects that hold others: more rows of the table `made.MADE`.

`MADE`: rows (kind, name, types, object -> undo, or `SKIP`).
"""

from __future__ import annotations

import array
import enum
import functools
import random
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from benchmarks.perturb.places import is_library
from benchmarks.perturb.values import SKIP, Marked, altered, wrapped

IMMUTABLE = 1 << 8  # Py_TPFLAGS_IMMUTABLETYPE


def instance_space(obj: Any) -> dict | None:
    """The attributes of an object that may be given others."""
    if isinstance(obj, type | types.FunctionType | types.ModuleType | torch.Tensor | enum.Enum | functools.partial):
        return None
    try:
        space = object.__getattribute__(obj, "__dict__")
    except AttributeError:
        return None
    return space if isinstance(space, dict) else None


def closed(cls: type) -> bool:
    """Whether nobody may write to the class."""
    return is_library(cls.__module__) or bool(cls.__flags__ & IMMUTABLE)


def class_given(name: str, method: Any) -> Callable[[type], Any]:
    """The class gets a method that it did not have."""

    def row(cls: type) -> Any:
        if closed(cls) or any(name in vars(c) for c in cls.__mro__[:-1]) or issubclass(cls, enum.Enum):
            return SKIP
        type.__setattr__(cls, name, method)
        return lambda: type.__delattr__(cls, name)

    return row


def class_told(name: str, other: Callable[[Any], Any]) -> Callable[[type], Any]:
    """What the class says of itself is something else."""

    def row(cls: type) -> Any:
        if closed(cls) or (name not in vars(cls) and name not in ("__name__", "__qualname__")):
            return SKIP
        old = getattr(cls, name)
        new = other(old)
        if new is SKIP:
            return SKIP
        type.__setattr__(cls, name, new)
        return lambda: type.__setattr__(cls, name, old)

    return row


def getattribute(self: Any, name: str) -> Any:
    value = object.__getattribute__(self, name)
    return altered(value) if not name.startswith("_") and type(value) in (int, float) else value


def other_bases(cls: type) -> Any:
    """Between the class and its first base there is another whose methods and values are others."""
    if closed(cls) or issubclass(cls, enum.Enum | tuple) or type(cls) is not type or not cls.__bases__:
        return SKIP
    first, *rest = old = cls.__bases__
    own = {n: v for c in first.__mro__[:-1] if not is_library(c.__module__) for n, v in vars(c).items()}
    named = {n: wrapped(v) if isinstance(v, types.FunctionType) else altered(v) for n, v in own.items()
        if (isinstance(v, types.FunctionType) and not n.startswith("__")) or type(v) in (int, float)}
    if not named or first is object:
        return SKIP
    cls.__bases__ = (type(first.__name__, (first,), {"__module__": first.__module__, **named}), *rest)
    return lambda: setattr(cls, "__bases__", old)


def one_base_more(cls: type) -> Any:
    """A last base with a name of its own."""
    if closed(cls) or issubclass(cls, enum.Enum) or type(cls) is not type or cls.__bases__ == (object,):
        return SKIP
    old = cls.__bases__
    cls.__bases__ = (*old, type("More", (), {"note": 5, "__module__": cls.__module__}))
    return lambda: setattr(cls, "__bases__", old)


def class_copied(obj: Any) -> Any:
    """`__class__` becomes an equal class that is no relative."""
    cls = type(obj)
    if instance_space(obj) is None or closed(cls) or type(cls) is not type or any(
            isinstance(v, types.MemberDescriptorType) for v in vars(cls).values()):
        return SKIP
    space = {n: v for n, v in vars(cls).items() if n not in ("__dict__", "__weakref__")}
    object.__setattr__(obj, "__class__", type(cls.__name__, cls.__bases__, space))
    return lambda: object.__setattr__(obj, "__class__", cls)


def first_number(space: dict) -> str | None:
    return next((n for n, v in space.items() if type(v) in (int, float, bool) and isinstance(n, str)), None)


def property_in_front(obj: Any) -> Any:
    """A property of the class hides an attribute of the instance."""
    space, cls = instance_space(obj), type(obj)
    name = first_number(space) if space is not None else None
    if name is None or closed(cls) or name in vars(cls):
        return SKIP
    type.__setattr__(cls, name, property(lambda self: altered(self.__dict__[name]), lambda self, v: self.__dict__.__setitem__(name, v)))
    return lambda: type.__delattr__(cls, name)


def to_the_class(obj: Any) -> Any:
    """An attribute of the instance becomes one of its class, with another value."""
    space, cls = instance_space(obj), type(obj)
    name = first_number(space) if space is not None else None
    if name is None or closed(cls) or name in vars(cls):
        return SKIP
    before = dict(space)
    type.__setattr__(cls, name, altered(space.pop(name)))
    return lambda: (type.__delattr__(cls, name), space.clear(), space.update(before))


def other_space(change: bool) -> Callable[[Any], Any]:
    """`__dict__` becomes another dict, as another object of attributes."""

    def row(obj: Any) -> Any:
        space = instance_space(obj)
        if space is None or is_library(type(obj).__module__) and not isinstance(obj, torch.nn.Module):
            return SKIP
        new = dict(space)
        name = first_number(space)
        if change and name is None:
            return SKIP
        if change:
            new[name] = altered(space[name])
        obj.__dict__ = new
        return lambda: object.__setattr__(obj, "__dict__", space)

    return row


def replaced(read: Callable[[Any], Any], write: Callable[[Any, Any], Any], other: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A value that is read and written through functions."""

    def row(obj: Any) -> Any:
        old = read(obj)
        new = other(old)
        if new is SKIP:
            return SKIP
        write(obj, new)
        return lambda: write(obj, old)

    return row


def of_function(name: str, other: Callable[[Any], Any]) -> Callable[[Any], Any]:
    change = replaced(lambda fn: getattr(fn, name), lambda fn, v: setattr(fn, name, v), other)
    return lambda fn: SKIP if is_library(fn.__module__) else change(fn)


def other_text_in(code: types.CodeType) -> Any:
    """The code with its first text or tuple another."""
    consts = list(code.co_consts)
    for i, c in enumerate(consts[1:], 1):
        if isinstance(c, str) or (isinstance(c, tuple) and c and all(type(v) in (int, str) for v in c)):
            consts[i] = c + "x" if isinstance(c, str) else c[::-1]
            return code.replace(co_consts=tuple(consts))
    return SKIP


def added_default(fn: types.FunctionType) -> Any:
    """The last parameter without a default gets one."""
    had = fn.__defaults__ or ()
    if is_library(fn.__module__) or len(had) >= fn.__code__.co_argcount:
        return SKIP
    old = fn.__defaults__
    fn.__defaults__ = (2, *had)
    return lambda: setattr(fn, "__defaults__", old)


def set_state(change: Callable[[functools.partial], tuple]) -> Callable[[functools.partial], Any]:
    def row(p: functools.partial) -> Any:
        if is_library(type(p).__module__) and type(p) is not functools.partial:
            return SKIP
        old = (p.func, p.args, p.keywords, dict(p.__dict__))
        new = change(p)
        if new is SKIP:
            return SKIP
        p.__setstate__(new)
        return lambda: p.__setstate__(old)

    return row


def element(box: Any) -> Any:
    if not len(box):
        return SKIP
    old = box[0]
    box[0] = old ^ 1 if isinstance(old, int) else old + 1
    return lambda: box.__setitem__(0, old)


def generator_state(g: torch.Generator) -> Any:
    if g is torch.default_generator:
        return SKIP
    old = g.get_state()
    g.manual_seed(77)
    return lambda: g.set_state(old)


def random_state(r: random.Random) -> Any:
    old = r.getstate()
    r.seed(77)
    return lambda: r.setstate(old)


def numpy_state(r: np.random.Generator) -> Any:
    old = r.bit_generator.state
    r.random()
    return lambda: setattr(r.bit_generator, "state", old)


def tensor_class(t: torch.Tensor) -> Any:
    if type(t) is not torch.Tensor:
        return SKIP
    t.__class__ = Marked
    return lambda: setattr(t, "__class__", torch.Tensor)


def tensor_hook(t: torch.Tensor) -> Any:
    return t.register_hook(lambda g: g * 3).remove if t.requires_grad and t.is_leaf else SKIP


def accumulated_hook(t: torch.Tensor) -> Any:
    if not t.requires_grad or not t.is_leaf:
        return SKIP
    return t.register_post_accumulate_grad_hook(lambda p: (p.grad.mul_(2), None)[1]).remove


def named_dims(t: torch.Tensor) -> Any:
    if type(t) is not torch.Tensor or not 0 < t.dim() < 5 or t.layout is not torch.strided:
        return SKIP
    t.rename_(*"ABCD"[: t.dim()])
    return lambda: t.rename_(None)


def plus_one(value: Any) -> Any:
    return value + 1 if isinstance(value, torch.Tensor) and value.dtype is not torch.bool else value


class Shifted(torch.nn.Module):
    """A parametrization."""

    def forward(self, w: torch.Tensor) -> torch.Tensor:
        return w + 0.5


def parametrized(m: torch.nn.Module) -> Any:
    from torch.nn.utils import parametrize

    name = next((n for n, p in m._parameters.items() if p is not None and p.is_floating_point()), None)
    if name is None:
        return SKIP
    order, cls, p = list(m._parameters.items()), type(m), m._parameters[name]
    parametrize.register_parametrization(m, name, Shifted())

    def undo() -> None:
        del m._modules["parametrizations"]
        object.__setattr__(m, "__class__", cls)
        m._parameters.clear()
        m._parameters.update(order)
        assert m._parameters[name] is p

    return undo


def parameter_gone(value: Any) -> Callable[[torch.nn.Module], Any]:
    def row(m: torch.nn.Module) -> Any:
        if not m._parameters:
            return SKIP
        before = list(m._parameters.items())
        if value is SKIP:
            m._parameters.popitem()
        else:
            m._parameters[before[-1][0]] = value
        return lambda: (m._parameters.clear(), m._parameters.update(before))

    return row


def called_otherwise(m: torch.nn.Module) -> Any:
    """As `Module.compile` has it."""
    old = m._compiled_call_impl
    m._compiled_call_impl = lambda *a, **k: plus_one(m._call_impl(*a, **k))
    return lambda: setattr(m, "_compiled_call_impl", old)


def hook(name: str, fn: Callable, **options: Any) -> Callable[[torch.nn.Module], Any]:
    return lambda m: getattr(m, name)(fn, **options).remove


def fewer_fields(fields: dict) -> dict:
    return dict(list(fields.items())[:-1])


GIVEN: dict[str, Any] = {  # (not `__new__`: CPython keeps its slot when it is taken away)
    "__bool__": lambda self: False,
    "__len__": lambda self: 0,
    "__getattr__": lambda self, name: 5 if not name.startswith("_") else object.__getattribute__(self, name),
    "__getattribute__": getattribute,
    "__eq__": lambda self, other: False,
    "__ne__": lambda self, other: True,
    "__lt__": lambda self, other: True,
    "__hash__": lambda self: 7,
    "__call__": lambda self, *a, **k: 7,
    "__iter__": lambda self: iter((1, 2)),
    "__contains__": lambda self, v: True,
    "__getitem__": lambda self, i: 3 if isinstance(i, int) and i < 2 else [][1],
    "__index__": lambda self: 1,
    "__int__": lambda self: 2,
    "__float__": lambda self: 2.5,
    "__add__": lambda self, other: 4,
    "__radd__": lambda self, other: 4,
    "__rmul__": lambda self, other: 4,
    "__iadd__": lambda self, other: self,
    "__neg__": lambda self: 4,
    "__enter__": lambda self: 6,
    "__exit__": lambda self, *a: True,
    "__get__": lambda self, obj, cls=None: 8,
    "__set__": lambda self, obj, value: None,
    "__repr__": lambda self: "note",
    "__str__": lambda self: "note",
    "__format__": lambda self, spec: "note",
    "__setattr__": lambda self, name, value: object.__setattr__(self, name, value),
    "__delattr__": lambda self, name: object.__delattr__(self, name),
    "__class__": property(lambda self: int),
    "__dir__": lambda self: ["note"],
    "__reduce__": lambda self: (int, (3,)),
    "__copy__": lambda self: 3,
    "__deepcopy__": lambda self, memo: 3,
    "__sizeof__": lambda self: 99,
    "__missing__": lambda self, key: 11,
    "__length_hint__": lambda self: 2,
    "__reversed__": lambda self: iter((3, 4)),
    "__round__": lambda self, n=0: 3,
    "__abs__": lambda self: 3,
    "__array__": lambda self, dtype=None, copy=None: np.ones(2),
    "__torch_function__": classmethod(lambda cls, fn, kinds, args=(), kwargs=None: 12),
    "__instancecheck__": lambda cls, obj: True,
    "__subclasscheck__": lambda cls, other: True,
    "__init_subclass__": classmethod(lambda cls, **k: setattr(cls, "noted", 1)),
    "__class_getitem__": classmethod(lambda cls, item: 13),
    "__post_init__": lambda self: None,
    "__fspath__": lambda self: "note",
    "note": 5,
}

MADE: tuple[tuple[str, str, tuple, Callable[[Any], Any]], ...] = (
    *[("class", f"gets {name}", (type,), class_given(name, method)) for name, method in GIVEN.items()],
    ("class", "has no __hash__", (type,), class_given("__hash__", None)),
    ("class", "another __name__", (type,), class_told("__name__", lambda n: n + "x")),
    ("class", "another __qualname__", (type,), class_told("__qualname__", lambda n: n + "x")),
    ("class", "another __module__", (type,), class_told("__module__", lambda n: n + "x")),
    ("class", "another __doc__", (type,), class_told("__doc__", lambda n: "note")),
    ("class", "other __match_args__", (type,), class_told("__match_args__", lambda names: names[::-1] if len(names) > 1 else ())),
    ("class", "fewer fields", (type,), class_told("__dataclass_fields__", fewer_fields)),
    ("class", "one annotation more", (type,), class_told("__annotations__", lambda a: {**a, "note": int})),
    ("class", "another first base", (type,), other_bases),
    ("class", "one base more", (type,), one_base_more),
    ("class", "__class__ an equal class", (object,), class_copied),
    ("attribute", "a property in front", (object,), property_in_front),
    ("attribute", "to the class", (object,), to_the_class),
    ("attribute", "an equal __dict__", (object,), other_space(False)),
    ("attribute", "another __dict__", (object,), other_space(True)),
    ("function", "another __name__", (types.FunctionType,), of_function("__name__", lambda n: n + "x")),
    ("function", "another __qualname__", (types.FunctionType,), of_function("__qualname__", lambda n: n + "x")),
    ("function", "another __doc__", (types.FunctionType,), of_function("__doc__", lambda n: "note")),
    ("function", "other annotations", (types.FunctionType,), of_function("__annotations__", lambda a: {**a, "note": int})),
    ("function", "no keyword defaults", (types.FunctionType,), of_function("__kwdefaults__", lambda d: None if d else SKIP)),
    ("function", "keyword defaults in another dict", (types.FunctionType,), of_function("__kwdefaults__", lambda d: {
        k: altered(v) for k, v in d.items()} if d else SKIP)),
    ("function", "other text in its code", (types.FunctionType,), of_function("__code__", other_text_in)),
    ("function", "equal code", (types.FunctionType,), of_function("__code__", lambda c: c.replace(co_name=c.co_name + "x"))),
    ("function", "one default more", (types.FunctionType,), added_default),
    ("holder", "partial of another function", (functools.partial,), set_state(lambda p: (wrapped(p.func), p.args, p.keywords, {}))),
    ("holder", "partial with other arguments", (functools.partial,), set_state(lambda p: (p.func, tuple(map(altered, p.args)), {
        k: altered(v) for k, v in p.keywords.items()}, {}))),
    ("holder", "partial with fewer arguments", (functools.partial,), set_state(lambda p: (p.func, p.args[:-1], p.keywords, {})
        if p.args else SKIP)),
    ("holder", "bytes of an array", (bytearray, array.array), element),
    ("random", "another state", (torch.Generator,), generator_state),
    ("random", "another state", (random.Random,), random_state),
    ("random", "another state", (np.random.Generator,), numpy_state),
    ("tensor type", "__class__ a subclass", (torch.Tensor,), tensor_class),
    ("tensor type", "named dims", (torch.Tensor,), named_dims),
    ("hook", "on a leaf", (torch.Tensor,), tensor_hook),
    ("hook", "after a gradient is there", (torch.Tensor,), accumulated_hook),
    ("hook", "forward hook with keywords", (torch.nn.Module,), hook("register_forward_hook", lambda m, a, k, out: plus_one(out),
        with_kwargs=True, always_call=True)),
    ("hook", "forward pre-hook with keywords", (torch.nn.Module,), hook("register_forward_pre_hook", lambda m, a, k: (
        tuple(map(plus_one, a)), k), with_kwargs=True)),
    ("hook", "backward pre-hook", (torch.nn.Module,), hook("register_full_backward_pre_hook", lambda m, g: tuple(
        None if v is None else v * 2 for v in g))),
    ("module", "a parametrization", (torch.nn.Module,), parametrized),
    ("module", "last parameter gone", (torch.nn.Module,), parameter_gone(SKIP)),
    ("module", "last parameter None", (torch.nn.Module,), parameter_gone(None)),
    ("module", "called otherwise", (torch.nn.Module,), called_otherwise),
)
