"""What a call can reach, and so may write: a walk from its arguments and its function through objects, code and the names it mentions.

The walk is *near* while it goes through what the caller hands over: arguments, the function's closure and defaults, and everything in
there. An object that is near must be one that can be put back, or the call is not verified: a generator would be consumed by the first
run, a lock held. It is *far* behind names of globals, attributes of modules and methods of classes; what is opaque there is left out.
Of namespaces only the names that reached code mentions are followed; the bindings of all names are kept.
"""

from __future__ import annotations

import array
import builtins
import collections
import contextvars
import datetime
import decimal
import enum
import functools
import gc
import io
import logging
import operator
import random
import re
import sys
import types
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from pliant import native
from pliant.graph.originals import torch
from pliant.graph.traced import held_in
from pliant.interpret.immutable import HEAPTYPE, IMMUTABLETYPE
from pliant.jit.verify import contents
from pliant.jit.verify.contents import Row, save_cell
from pliant.jit.weak_ids import WeakIdDict

MOST_OBJECTS = 300_000
LEFT_ALONE = sys.stdlib_module_names | {"torch", "pliant", "numpy", "_pytest", "pytest"}
"""Libraries whose functions, classes and modules are taken to keep no state of the program's; so are all that were installed."""

_installed: dict[str, bool] = {}


class Unverifiable(Exception):
    """Why a call cannot be run twice from one state."""


ATOMS: tuple[type, ...] = (
    type(None), bool, int, float, complex, str, bytes, type(Ellipsis), type(NotImplemented), range, types.CodeType,
    types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, types.MethodWrapperType,
    types.GetSetDescriptorType, types.MemberDescriptorType, types.ClassMethodDescriptorType, types.GenericAlias, types.UnionType,
    types.FrameType, types.TracebackType, types.MappingProxyType, contextvars.ContextVar, contextvars.Token, re.Pattern,
    weakref.ref, weakref.ProxyType, weakref.CallableProxyType,
    operator.itemgetter, operator.attrgetter, operator.methodcaller, functools._lru_cache_wrapper, decimal.Decimal, decimal.Context,
    datetime.date, datetime.time, datetime.timedelta, datetime.tzinfo, np.generic, np.dtype, np.ufunc,
    torch.Size, torch.dtype, torch.device, torch.layout, torch.memory_format, torch.finfo, torch.iinfo,
    torch._ops.OpOverload, torch._ops.OpOverloadPacket, torch._ops._OpNamespace,
)  # fmt: skip
"""Nothing in them changes, or nothing that a program would see."""

UNSEEN = (enum.Enum, logging.Filterer, logging.Manager, torch._ops.OpOverload, torch._ops.OpOverloadPacket, torch._ops._OpNamespace)
"""So with these and with their subclasses."""

DIFFERENTIATING = frozenset(("backward", "autograd", "grad"))
CONSUMED = (types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType)


# -- what code mentions -------------------------------------------------------------------------------------------------------------
_names: WeakIdDict[frozenset[str]] = WeakIdDict()


def names_in(code: types.CodeType) -> frozenset[str]:
    """The names of globals and attributes in this code and in the functions that it makes."""
    found = _names.get(code)
    if found is None:
        inner = [names_in(c) for c in code.co_consts if type(c) is types.CodeType]
        found = _names[code] = frozenset(code.co_names).union(*inner)
    return found


def left_alone(module: Any) -> bool:
    """Is this module a library's?"""
    if type(module) is not str:
        return False
    top = module.partition(".")[0]
    found = _installed.get(top)
    if found is None:
        file = getattr(sys.modules.get(top), "__file__", None) or ""
        found = _installed[top] = top in LEFT_ALONE or "site-packages" in file or "dist-packages" in file
    return found


# -- classes of instances -----------------------------------------------------------------------------------------------------------
class Plan:
    """How instances of one class are looked into. `refused`: they cannot be."""

    __slots__ = ("base", "has_dict", "refused", "slots")

    def __init__(self, base: Callable | None, has_dict: bool, slots: Row | None, refused: bool) -> None:
        self.base = base
        self.has_dict = has_dict
        self.slots = slots
        self.refused = refused


_plans: WeakIdDict[Plan] = WeakIdDict()


def plan_of(t: type) -> Plan:
    found = _plans.get(t)
    if found is None:
        found = _plans[t] = make_plan(t)
    return found


def make_plan(t: type) -> Plan:
    """Is everything that an instance holds in its `__dict__`, its slots, and what a builtin base keeps?"""
    made = [c for c in t.__mro__ if c.__flags__ & HEAPTYPE]
    base = next(c for c in t.__mro__ if not c.__flags__ & HEAPTYPE)
    slots = [d for c in made for d in vars(c).values() if type(d) is types.MemberDescriptorType]
    room = base.__basicsize__ + 8 * len(slots) + (8 if t.__weakrefoffset__ and not base.__weakrefoffset__ else 0)
    if t.__dictoffset__ > 0 and not base.__dictoffset__:
        room += 8
    known = base is object or base is types.SimpleNamespace or base in HANDLERS or issubclass(base, (*ATOMS, BaseException, type))
    fits = t.__basicsize__ <= room or t.__itemsize__ != 0 or issubclass(t, torch.Tensor)
    if not known or not fits or issubclass(t, (io.IOBase, *CONSUMED)):
        return Plan(None, False, None, True)
    handler = HANDLERS.get(base) if base is not object else None
    if handler is None and issubclass(base, BaseException):
        handler = of_error
    return Plan(handler, t.__dictoffset__ != 0, contents.slots_row(tuple(slots)) if slots else None, False)


# -- the walk -----------------------------------------------------------------------------------------------------------------------
class Reach:
    """`records`: (row, object, content) of everything that can be reached. `before`: ids of all objects met, with the object before it.

    Raises Unverifiable.
    """

    def __init__(self, root: types.FunctionType, args: tuple, kwargs: dict) -> None:
        self.root = root
        self.records: list[tuple[Row, Any, tuple]] = []
        self.before: dict[int, Any] = {}
        self.kept: list[Any] = []  # ids must not be reused meanwhile
        self.globals: set[int] = set()  # ids of the dictionaries of globals
        self.tensors: list[torch.Tensor] = []
        self.grads: set[int] = set()  # ids of those that are gradients
        self.histories = False  # tensors that were computed before the call, of others that require gradients
        self.hooks = False  # tensors that run Python when they are differentiated
        self.names: set[str] = {"forward"}
        self.waiting: dict[str, list[Any]] = {}  # of namespaces: what is reached once its name is mentioned
        self.far: list[tuple[Any, Any]] = []
        self.near: list[tuple[Any, Any]] = [(kwargs, None), (args, None), (root, None)]
        self.is_near = True
        self.drain(self.near)
        self.is_near = False
        self.near = self.far
        self.drain(self.far)
        if self.histories and not DIFFERENTIATING.isdisjoint(self.names):
            raise Unverifiable("it may differentiate what was computed before the call, which can be done once")

    def drain(self, stack: list[tuple[Any, Any]]) -> None:
        before, handlers = self.before, HANDLERS
        while stack:
            obj, via = stack.pop()
            t = type(obj)
            if t in PLAIN_ATOMS or id(obj) in before:
                continue
            before[id(obj)] = via
            self.kept.append(obj)
            if len(self.kept) > MOST_OBJECTS:
                raise Unverifiable(f"it reaches more than {MOST_OBJECTS} objects")
            handler = handlers.get(t)
            if handler is not None:
                handler(self, obj)
            else:
                of_other(self, obj)

    def add(self, row: Row, obj: Any) -> tuple:
        content = row.save(obj)
        self.records.append((row, obj, content))
        return content

    def push(self, parts: Iterable[Any], via: Any) -> None:
        self.near.extend([(p, via) for p in parts if type(p) not in PLAIN_ATOMS])

    def push_far(self, parts: Iterable[Any], via: Any) -> None:
        self.far.extend([(p, via) for p in parts])

    def mention(self, names: Iterable[str]) -> None:
        """These names are in code that may run."""
        for name in names:
            if name not in self.names:
                self.names.add(name)
                found = self.waiting.pop(name, None)
                if found is not None:
                    self.push_far(found, name)

    def open(self, names: Iterable[str], values: Iterable[Any], via: Any) -> None:
        """The content of a namespace: what is mentioned is reached."""
        for name, value in zip(names, values, strict=True):
            if type(value) in PLAIN_ATOMS:
                continue
            if name in self.names or name.startswith("__"):
                self.far.append((value, via))
            else:
                self.waiting.setdefault(name, []).append(value)

    def refuse(self, obj: Any, always: bool = False) -> None:
        """This object cannot be put back. Behind the names of others, it is left out."""
        if always or self.is_near:
            raise Unverifiable(f"it reaches {an(type(obj))}{self.path(obj)}")

    def path(self, obj: Any) -> str:
        steps: list[str] = []
        here, via = obj, self.before.get(id(obj))
        while via is not None and len(steps) < 6:
            steps.append(step(via, here))
            here, via = via, self.before.get(id(via))
        return f" at {''.join(reversed(steps)).lstrip('.')}" if steps else ""


def an(t: type) -> str:
    return f"a {t.__qualname__}" if t.__module__ == "builtins" else f"a {t.__module__}.{t.__qualname__}"


def step(via: Any, obj: Any) -> str:
    """How `obj` is read off `via`, for the reason that people read."""
    if isinstance(via, dict):
        name = next((k for k, v in dict.items(via) if v is obj), "?")
        return f".{name}" if isinstance(name, str) else f"[{name!r}]"
    if isinstance(via, (list, tuple)):
        return f"[{next((i for i, v in enumerate(held_in(via)) if v is obj), '?')}]"
    return ""


# -- handlers: (walk, object) -> None ---------------------------------------------------------------------------------------------
def holds(row: Row) -> Callable[[Reach, Any], None]:
    """An object with content that refers to others."""

    def handle(reach: Reach, obj: Any) -> None:
        for part in reach.add(row, obj):
            reach.push(part, obj)

    return handle


def leaf(row: Row) -> Callable[[Reach, Any], None]:
    def handle(reach: Reach, obj: Any) -> None:
        reach.add(row, obj)

    return handle


def parts(of: Callable[[Any], Iterable[Any]]) -> Callable[[Reach, Any], None]:
    """An object that refers to others and cannot change itself."""
    return lambda reach, obj: reach.push(of(obj), obj)


def of_dict(reach: Reach, d: dict) -> None:
    keys, values = reach.add(contents.DICT, d)
    near = reach.near
    near.extend([(k, d) for k in keys if type(k) not in PLAIN_ATOMS])
    near.extend([(v, d) for v in values if type(v) not in PLAIN_ATOMS])


def of_ordered(reach: Reach, d: collections.OrderedDict) -> None:
    keys, values = reach.add(contents.ORDERED, d)
    reach.push((*keys, *values, d.__dict__), d)


def of_function(reach: Reach, f: types.FunctionType) -> None:
    if "_torchdynamo_orig_callable" in f.__dict__ and not f.__dict__.get("_torchdynamo_disable"):
        if reach.is_near:
            raise Unverifiable("it calls what another compiler made")
        return
    g = f.__globals__
    reach.add(contents.FUNCTION, f)
    if left_alone(g.get("__name__")) and f is not reach.root:
        _, attributes = reach.add(contents.DICT, f.__dict__)
        reach.push(filter(of_program, [save_cell(c)[0][0] for c in f.__closure__ or ()]), f)
        reach.push([v for v in attributes if type(v) is not types.MethodType or of_program(v)], f)
        return
    reach.push((f.__dict__, f.__defaults__, f.__kwdefaults__, *(f.__closure__ or ())), f)
    names = names_in(f.__code__)
    if id(g) not in reach.before:
        reach.before[id(g)] = None
        reach.globals.add(id(g))
        reach.kept.append(g)
        reach.add(contents.NAMESPACE, g)
    reach.mention(names)
    for name in names:
        v = g.get(name)
        if v is not None and type(v) not in PLAIN_ATOMS:
            reach.far.append((v, g))


def of_program(held: Any) -> bool:
    """Of what a library's function holds (a decorator, a dispatcher): is it the program's, no cache of the library's own?"""
    if type(held) is types.MethodType:
        held = held.__self__
    return type(held) is types.FunctionType or not left_alone(type(held).__module__)


def of_module(reach: Reach, m: types.ModuleType) -> None:
    if left_alone(m.__name__) or m is builtins:
        return
    keys, values = reach.add(contents.NAMESPACE, m.__dict__)
    reach.before.setdefault(id(m.__dict__), m)
    reach.open(keys, values, m)


def of_cached(reach: Reach, cached: Any) -> None:
    reach.add(contents.CACHE, cached)
    reach.push(tuple(vars(cached).values()), cached)


def of_class(reach: Reach, cls: type) -> None:
    if left_alone(cls.__module__) or not cls.__flags__ & HEAPTYPE:
        return
    if issubclass(cls, torch.autograd.Function):
        reach.hooks = True
    keys, values = reach.add(contents.CLASS, cls)
    reach.open(keys, values, cls)
    reach.push_far(cls.__mro__[1:], cls)


def of_method(reach: Reach, m: types.MethodType) -> None:
    reach.push((m.__func__, m.__self__), m)


def of_entry_point(reach: Reach, e: Any) -> None:
    reach.push((e._origin or e._fn,), e)


def of_tensor(reach: Reach, t: torch.Tensor) -> None:
    with torch._C.DisableTorchFunction():
        if unreadable(t):
            reach.refuse(t)
            return
        face = reach.add(contents.TENSOR, t)
        reach.tensors.append(t)
        if t._backward_hooks or getattr(t, "_post_accumulate_grad_hooks", None):
            reach.hooks = True
            reach.push((t._backward_hooks, getattr(t, "_post_accumulate_grad_hooks", None)), t)
        if face[4] is not None:
            reach.histories = True
        if face[3] is not None:
            reach.grads.add(id(face[3]))
            reach.push((face[3],), t)
        reach.push((t.__dict__,), t)


def unreadable(t: torch.Tensor) -> bool:
    keys = torch._C._dispatch_keys(t)
    return t.layout is not torch.strided or t.is_quantized or t.is_nested or any(keys.has(k) for k in ODD_KEYS)


_key = torch._C.DispatchKey
ODD_KEYS = (_key.Python, _key.PythonTLSSnapshot, _key.Functionalize, _key.FuncTorchBatched, _key.FuncTorchGradWrapper)


def of_ndarray(reach: Reach, a: np.ndarray) -> None:
    if a.dtype.hasobject:
        reach.refuse(a)
        return
    reach.add(contents.NDARRAY, a)
    if a.base is not None:
        reach.push((a.base,), a)


def of_error(reach: Reach, e: BaseException) -> None:
    held, args = reach.add(contents.ERROR, e)
    reach.push((*held, *args), e)
    reach.push((e.__dict__,), e)


def of_other(reach: Reach, obj: Any) -> None:
    """A class, or an instance of one that Python code made."""
    t = type(obj)
    if issubclass(t, type):
        if reach.is_near:
            reach.far.append((obj, reach.before.pop(id(obj))))  # what classes hold is far
        else:
            of_class(reach, obj)
        return
    if issubclass(t, CONSUMED) or (t.__flags__ & (HEAPTYPE | IMMUTABLETYPE) != HEAPTYPE and hasattr(t, "__next__")):
        reach.refuse(obj, always=id(reach.before[id(obj)]) in reach.globals)  # the code names it
        return
    if not t.__flags__ & HEAPTYPE:
        if issubclass(t, BaseException):
            of_error(reach, obj)
        elif not issubclass(t, ATOMS) and t.__module__ not in ("typing", "torch._C"):
            reach.refuse(obj)
        return
    if issubclass(t, UNSEEN) or t.__module__ == "typing":
        return
    plan = plan_of(t)
    if plan.refused:
        reach.refuse(obj)
    else:
        of_instance(reach, obj, plan)


def of_instance(reach: Reach, obj: Any, plan: Plan) -> None:
    if plan.base is not None:
        plan.base(reach, obj)
    if plan.has_dict:
        own = object.__getattribute__(obj, "__dict__")
        if type(own) is dict:
            reach.near.append((own, obj))
    if plan.slots is not None:
        (values,) = reach.add(plan.slots, obj)
        reach.push(values, obj)
    reach.add(contents.CLASS_OF, obj)
    reach.far.append((type(obj), None))


def numpy_bits(reach: Reach, g: Any) -> None:
    reach.add(contents.NUMPY_BITS, g.bit_generator)


PLAIN_ATOMS = frozenset(ATOMS) | {datetime.datetime}

HANDLERS: dict[type, Callable[[Reach, Any], None]] = {
    dict: of_dict,
    list: holds(contents.LIST),
    set: holds(contents.SET),
    collections.deque: holds(contents.DEQUE),
    collections.OrderedDict: of_ordered,
    collections.defaultdict: holds(contents.DEFAULTDICT),
    tuple: parts(tuple.__iter__),
    frozenset: parts(frozenset.__iter__),
    slice: parts(lambda s: (s.start, s.stop, s.step)),
    types.CellType: holds(contents.CELL),
    types.FunctionType: of_function,
    types.MethodType: of_method,
    types.ModuleType: of_module,
    type: lambda reach, cls: of_other(reach, cls),
    native.EntryPoint: of_entry_point,
    functools.partial: parts(lambda p: (p.func, p.args, p.keywords, p.__dict__)),
    functools._lru_cache_wrapper: of_cached,
    property: parts(lambda p: (p.fget, p.fset, p.fdel)),
    staticmethod: parts(lambda p: (p.__func__,)),
    classmethod: parts(lambda p: (p.__func__,)),
    types.SimpleNamespace: parts(lambda n: (n.__dict__,)),
    torch.Tensor: of_tensor,
    torch.nn.Parameter: of_tensor,
    torch._C.TensorBase: of_tensor,
    torch.Generator: leaf(contents.GENERATOR),
    np.ndarray: of_ndarray,
    np.random.Generator: numpy_bits,
    np.random.RandomState: leaf(contents.NUMPY_RANDOM),
    random.Random: leaf(contents.RANDOM),
    bytearray: leaf(contents.BYTES),
    array.array: leaf(contents.BYTES),
    object: lambda reach, obj: None,
    **dict.fromkeys((type({}.keys()), type({}.values()), type({}.items())), parts(gc.get_referents)),
}
PLAIN_ATOMS -= HANDLERS.keys()
