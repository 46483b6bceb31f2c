"""What a program can see: every object reachable from its arguments and its code, and the place each of them is read from.

A *place* is a position that holds a value and can be given another one: an item, an attribute, a global, a cell, a default. A walk goes
breadth first from named roots; whose code it is decides how far: functions and classes of the program and of model libraries are entered,
those of Python, torch and NumPy are only positions (a name that stands for `torch.relu` may be made to stand for something else).
"""

from __future__ import annotations

import builtins
import collections
import contextvars
import enum
import functools
import gc
import logging
import operator
import sys
import types
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

LIBRARIES = frozenset({*sys.stdlib_module_names, "torch", "numpy", "pliant", "pytest", "_pytest", "hypothesis", "builtins"})
OF_THE_COMPILER = ("_registered_model_output_types", "_active_collector")  # transformers reads them by whether it is being compiled
HARNESS = ("tests.helpers", "tests.conftest", "tests.programs.registry", "benchmarks.perturb.values", "benchmarks.compare")
ATOMS = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis), torch.dtype, torch.device, torch.layout, torch.memory_format,
    range, slice, types.CodeType, torch._ops.OpOverload, torch._ops.OpOverloadPacket,
    logging.Logger, logging.Manager)
CLASS_NOISE = frozenset({"__dict__", "__weakref__", "__module__", "__doc__", "__qualname__", "__annotations__", "__dataclass_params__",
    "__abstractmethods__", "_abc_impl", "__orig_bases__", "__parameters__", "__static_attributes__", "__firstlineno__", "__slots__",
    "__slotnames__", "__match_args__", "__dataclass_fields__", "_member_map_", "_member_names_", "_value2member_map_", "__new__",
    "__hash__"})
# What holds objects that may change, and cannot be given others: only what is inside is looked at.
HOLDERS = (frozenset, set, types.MappingProxyType, type({}.keys()), type({}.values()), type({}.items()), weakref.ref, operator.itemgetter,
    operator.attrgetter, operator.methodcaller, types.GenericAlias, super, memoryview)
MOST = 6000  # objects of one walk

Undo = Callable[[], None]


@dataclass
class Place:
    """A position: where it is, what it holds, and `put(value)`, which gives it another and returns how to undo that."""

    path: str
    value: Any
    put: Callable[[Any], Undo] | None
    drop: Callable[[], Undo] | None = None  # take the position away, where it can be


@functools.lru_cache(maxsize=4096)
def is_library(module: str | None) -> bool:
    """Whether code of that module is not walked into."""
    return not isinstance(module, str) or module.split(".")[0] in LIBRARIES or module.startswith(HARNESS)


@dataclass
class Walk:
    """The objects found (in order, once each, with the path of the first sight), and the places."""

    objects: list[tuple[str, Any]] = field(default_factory=list)
    places: list[Place] = field(default_factory=list)
    seen: set[int] = field(default_factory=set)

    def go(self, roots: list[Place]) -> Walk:
        queue = collections.deque(roots)
        while queue and len(self.objects) < MOST:
            place = queue.popleft()
            self.places.append(place)
            obj = place.value
            if isinstance(obj, ATOMS) or id(obj) in self.seen:
                continue
            self.seen.add(id(obj))
            self.objects.append((place.path, obj))
            queue.extend(parts(place))
        return self


# ------------------------------------------------------------------------------------------------------------- kinds of places
def item(path: str, box: Any, key: Any, holder: type) -> Place:
    """`box[key]` of a list, deque or dict, past what a subclass overrides."""
    value = holder.__getitem__(box, key)

    def put(new: Any) -> Undo:
        old = holder.__getitem__(box, key)
        holder.__setitem__(box, key, new)
        return lambda: holder.__setitem__(box, key, old)

    def drop() -> Undo:
        before = list(dict.items(box))
        holder.__delitem__(box, key)
        return lambda: refill(box, before)

    return Place(f"{path}[{short(key)}]", value, put, drop if issubclass(holder, dict) else None)


def refill(box: dict, items: list[tuple]) -> None:
    """Give a dict these items in this order again."""
    base = collections.OrderedDict if isinstance(box, collections.OrderedDict) else dict
    base.clear(box)
    for k, v in items:
        base.__setitem__(box, k, v)


def named(path: str, space: dict, name: str) -> Place:
    """A name of a namespace that must not be emptied (a module's globals, an instance's attributes)."""

    def put(new: Any) -> Undo:
        missing = name not in space
        old = space.get(name)
        space[name] = new
        return lambda: space.pop(name, None) if missing else space.__setitem__(name, old)

    def drop() -> Undo:
        before = list(space.items())
        del space[name]
        return lambda: (space.clear(), space.update(before)) if "__builtins__" not in space else space.update(before)

    return Place(f"{path}.{name}", space[name], put, drop)


def attribute(path: str, obj: Any, name: str, value: Any) -> Place:
    """An attribute written with the object's own rules (functions, slots, tensors)."""

    def put(new: Any) -> Undo:
        old = getattr(obj, name)
        object.__setattr__(obj, name, new)
        return lambda: object.__setattr__(obj, name, old)

    return Place(f"{path}.{name}", value, put)


def slot_of(path: str, obj: Any, name: str, slot: Any) -> Place:
    value = slot.__get__(obj)

    def put(new: Any) -> Undo:
        slot.__set__(obj, new)
        return lambda: slot.__set__(obj, value)

    def drop() -> Undo:
        slot.__delete__(obj)
        return lambda: slot.__set__(obj, value)

    return Place(f"{path}.{name}", value, put, drop)


def class_attribute(path: str, cls: type, name: str) -> Place:
    def put(new: Any) -> Undo:
        old = vars(cls)[name]
        type.__setattr__(cls, name, new)
        return lambda: type.__setattr__(cls, name, old)

    def drop() -> Undo:
        old = vars(cls)[name]
        type.__delattr__(cls, name)
        return lambda: type.__setattr__(cls, name, old)

    return Place(f"{path}.{name}", vars(cls)[name], put, drop)


def cell(path: str, name: str, box: types.CellType) -> Place | None:
    try:
        value = box.cell_contents
    except ValueError:
        return None

    def put(new: Any) -> Undo:
        box.cell_contents = new
        return lambda: setattr(box, "cell_contents", value)

    def drop() -> Undo:
        del box.cell_contents
        return lambda: setattr(box, "cell_contents", value)

    return Place(f"{path}<{name}>", value, put, drop)


def rebuilt(parent: Place, step: str, value: Any, make: Callable[[Any], Any]) -> Place:
    """A part of something immutable: the whole is made anew with another part."""
    return Place(parent.path + step, value, None if parent.put is None else lambda new: parent.put(make(new)))  # type: ignore[misc]


def with_item(values: tuple, i: int, new: Any) -> tuple:
    items = [*values[:i], new, *values[i + 1 :]]
    cls = type(values)
    if cls is tuple:
        return tuple(items)
    return cls._make(items) if hasattr(cls, "_make") else cls(items)


# ---------------------------------------------------------------------------------------------------------------- whose parts
def parts(place: Place) -> Iterator[Place]:
    """The places directly inside the object that is at `place`."""
    obj, path = place.value, place.path
    if isinstance(obj, torch.Tensor):
        yield from of_dict(path, getattr(obj, "__dict__", {}))
        return
    if isinstance(obj, np.ndarray | np.generic):
        return
    if isinstance(obj, tuple):
        for i, v in enumerate(tuple.__iter__(obj)):
            yield rebuilt(place, f"[{i}]", v, lambda new, i=i: with_item(obj, i, new))
    elif isinstance(obj, list):
        for i in range(list.__len__(obj)):
            yield item(path, obj, i, list)
    elif isinstance(obj, collections.deque):
        for i in range(len(obj)):
            yield item(path, obj, i, collections.deque)
    elif isinstance(obj, dict):
        holder = collections.OrderedDict if isinstance(obj, collections.OrderedDict) else dict
        for k in list(dict.keys(obj)):
            yield item(path, obj, k, holder)
    if isinstance(obj, types.FunctionType):
        yield from of_function(place)
    elif isinstance(obj, types.MethodType):
        yield rebuilt(place, ".__func__", obj.__func__, lambda new: types.MethodType(new, obj.__self__))
        yield rebuilt(place, ".__self__", obj.__self__, lambda new: types.MethodType(obj.__func__, new))
    elif isinstance(obj, functools.partial):
        yield rebuilt(place, ".func", obj.func, lambda new: functools.partial(new, *obj.args, **obj.keywords))
        yield rebuilt(place, ".args", obj.args, lambda new: functools.partial(obj.func, *new, **obj.keywords))
        yield rebuilt(place, ".keywords", obj.keywords, lambda new: functools.partial(obj.func, *obj.args, **new))
    elif isinstance(obj, type):
        yield from of_class(path, obj)
    elif isinstance(obj, property):
        for name in ("fget", "fset", "fdel"):
            fn = getattr(obj, name)
            if fn is not None:
                yield rebuilt(place, f".{name}", fn, lambda new, name=name: property(**{
                    k: new if k == name else getattr(obj, k) for k in ("fget", "fset", "fdel")}))
    elif isinstance(obj, staticmethod | classmethod):
        yield rebuilt(place, ".__func__", obj.__func__, type(obj))
    elif isinstance(obj, contextvars.ContextVar):
        yield from of_variable(path, obj)
    elif isinstance(obj, HOLDERS):
        yield from (Place(f"{path}->{i}", v, None) for i, v in enumerate(gc.get_referents(obj)) if not isinstance(v, types.CellType | type))
    elif isinstance(obj, types.BuiltinFunctionType | types.MethodWrapperType):
        if obj.__self__ is not None and not isinstance(obj.__self__, types.ModuleType | type):
            yield rebuilt(place, ".__self__", obj.__self__, lambda new: getattr(new, obj.__name__))
    elif not isinstance(obj, types.ModuleType | torch._ops.OperatorBase):  # (operators keep caches)
        yield from of_instance(path, obj)


def of_dict(path: str, space: dict, whole: dict | None = None) -> Iterator[Place]:
    for name in list(space):
        if isinstance(name, str):
            yield named(path, space if whole is None else whole, name)


def of_variable(path: str, variable: contextvars.ContextVar) -> Iterator[Place]:
    """The value of a context variable, if it has one."""

    def put(new: Any) -> Undo:
        token = variable.set(new)
        return lambda: variable.reset(token)

    try:
        yield Place(f"{path}.get()", variable.get(), put)
    except LookupError:
        return


def of_instance(path: str, obj: Any) -> Iterator[Place]:
    cls = type(obj)
    try:
        space = object.__getattribute__(obj, "__dict__")
    except AttributeError:
        space = None
    if isinstance(space, dict):
        yield from of_dict(path, space if not isinstance(obj, enum.Enum) else {n: space[n] for n in space if n == "_value_" or n[0] != "_"},
            space)
    if not is_library(cls.__module__):
        for name, slot in slots(cls):
            try:
                yield slot_of(path, obj, name, slot)
            except AttributeError:
                continue
    yield Place(f"type({path})", cls, None)


@functools.lru_cache(maxsize=4096)
def slots(cls: type) -> tuple[tuple[str, Any], ...]:
    """The slots of the program's own classes, with the descriptors that read them."""
    return tuple((name, value) for base in cls.__mro__ if not is_library(base.__module__) for name, value in vars(base).items()
        if isinstance(value, types.MemberDescriptorType))


def of_class(path: str, cls: type) -> Iterator[Place]:
    if is_library(cls.__module__) or cls.__flags__ & (1 << 8):  # (immutable)
        return
    for name in list(vars(cls)):
        if name not in CLASS_NOISE and not isinstance(vars(cls)[name], types.MemberDescriptorType | types.GetSetDescriptorType):
            if not (issubclass(cls, enum.Enum) and name.startswith("_")):
                yield class_attribute(path, cls, name)
    for base in cls.__bases__:
        yield Place(f"{path}.__bases__:{base.__name__}", base, None)
    yield Place(f"type({path})", type(cls), None)


def of_function(place: Place) -> Iterator[Place]:
    """Defaults, cells, attributes, and the globals that the code names, with the attributes of modules and library classes it names."""
    fn, path = place.value, place.path
    if hasattr(fn, "registry") and hasattr(fn, "_clear_cache"):  # of `functools.singledispatch`
        yield from (Place(f"{path}.registry[{cls.__name__}]", known, None) for cls, known in fn.registry.items())
    if is_library(fn.__module__) or is_library(fn.__globals__.get("__name__")):
        return
    if fn.__defaults__:
        at = attribute(path, fn, "__defaults__", fn.__defaults__)
        for i, v in enumerate(fn.__defaults__):
            yield rebuilt(at, f"[{i}]", v, lambda new, i=i: with_item(fn.__defaults__, i, new))
    if fn.__kwdefaults__:
        for k in fn.__kwdefaults__:
            yield item(f"{path}.__kwdefaults__", fn.__kwdefaults__, k, dict)
    for name, box in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=False):
        found = cell(path, name, box)
        if found is not None:
            yield found
    yield from of_dict(path, fn.__dict__)
    codes = list(code_objects(fn.__code__))
    names = {name for code in codes for name in code.co_names}
    where = f"globals({fn.__globals__.get('__name__')})"
    for name in sorted(names & fn.__globals__.keys() - {"__name__", "__builtins__", *OF_THE_COMPILER}):
        yield named(where, fn.__globals__, name)
        value = fn.__globals__[name]
        if isinstance(value, types.ModuleType) and value.__name__.split(".")[0] != "pliant":
            yield from of_module(f"{where}.{name}", value, names, 2)


def of_module(path: str, module: types.ModuleType, names: set[str], depth: int) -> Iterator[Place]:
    """The attributes of a module that some code names."""
    for name in sorted(names & vars(module).keys() - {"__name__", "__builtins__"}):
        value = vars(module)[name]
        if value is sys.modules:
            continue
        if isinstance(value, types.ModuleType):
            if depth and value is not module and value.__name__.split(".")[0] != "pliant":
                yield from of_module(f"{path}.{name}", value, names, depth - 1)
        else:
            yield named(path, vars(module), name)


def builtin_names(fn: types.FunctionType) -> list[str]:
    """Builtins that the code names and its module does not hide."""
    names = {name for code in code_objects(fn.__code__) for name in code.co_names}
    return sorted(n for n in names if hasattr(builtins, n) and n not in fn.__globals__)


def code_objects(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            yield from code_objects(const)


def short(key: Any) -> str:
    text = repr(key)
    return text if len(text) < 40 else text[:37] + "..."
