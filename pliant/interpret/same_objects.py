"""Whether two objects are one, and what C code relies on that compares objects: a guard where the outside has a say in it."""

from __future__ import annotations

import enum
import functools
import itertools
import types
from collections.abc import Iterable
from typing import Any

from pliant.graph.traced import TracedTensor
from pliant.guards import source as S
from pliant.interpret.attributes import lookup
from pliant.interpret.capture import UNSET
from pliant.interpret.immutable import HEAPTYPE
from pliant.interpret.opaque import Opaque
from pliant.interpret.state import Break, vm
from pliant.interpret.types.row import ROWS

FunctionType = types.FunctionType
DESCRIPTORS = (types.GetSetDescriptorType, types.MemberDescriptorType, types.MethodDescriptorType, types.WrapperDescriptorType)
"""Of classes of C (`Tensor.grad.__get__`): there is one of each."""
METHODS = (types.MethodType, types.BuiltinFunctionType, types.MethodWrapperType)


def stood_for(a: Any) -> Any:
    """What of the outside `a` stands for; UNSET if that is not told."""
    if type(a) is Opaque:
        return a.value
    return vm.world.standing[id(a)][1] if id(a) in vm.world.standing else UNSET


def of_outside(a: Any) -> bool:
    """Whether `a` is from outside, or stands for what is."""
    return id(a) in vm.world.outside or id(a) in vm.world.standing


def identical(a: Any, b: Any) -> bool:
    """`a is b`, guarding that two outside objects stay distinct (or the same)."""
    if a is b:
        return True
    if issubclass(type(a), enum.Enum):
        return False  # known by identity
    world = vm.world
    if type(a) is TracedTensor and type(b) is TracedTensor and not vm.trace.flow_results.isdisjoint((a.vid, b.vid)):
        raise Break("PL0012", "the identity of what a loop or branch on data gives back", clean=True)
    ha, hb = world.by_copy.get(id(a)), world.by_copy.get(id(b))
    sa = ha.source if ha is not None else a.source if type(a) is TracedTensor else world.source_of(a)
    sb = hb.source if hb is not None else b.source if type(b) is TracedTensor else world.source_of(b)
    if sa is not None and sb is not None and type(a) is type(b):
        world.unusual()
        real = stood_for(a)
        if real is not UNSET and real is stood_for(b):
            if sa is not sb:
                world.guard(sb, "ALIAS", sa)
            return True
        world.guard(sa, "NOT_ALIAS", (sb,), sb)
    elif type(a) is type(b) is FunctionType and a.__code__ is b.__code__:  # of another code it is another one, which is guarded
        for source, other in ((sa, b), (sb, a)):
            if source is not None and id(other) in world.known_functions:
                world.guard(source, "NOT_ALIAS", (S.const(other),), other)
    return False


def note_equality(*values: Any) -> None:
    """C code is about to compare these, or what they hold: what the classes have as `__eq__` is guarded, function or not; and which
    functions, and others that are compared by identity, are others."""
    functions: dict[int, Any] = {}
    owners: dict[int, Any] = {}
    note_classes(values, functions, owners, 4)
    world = vm.world
    if len(functions) > 1 and not (world.outside.keys().isdisjoint(functions) and world.standing.keys().isdisjoint(functions)):
        for f, g in itertools.combinations(functions.values(), 2):
            identical(f, g)
    for f, g in itertools.combinations(owners.values(), 2):
        identical(f, g)


def note_classes(values: Iterable[Any], functions: dict[int, Any], owners: dict[int, Any], depth: int) -> None:
    world = vm.world
    for v in values:
        t = type(v)
        if t in METHODS:  # equal are those of one object
            owners[id(v.__self__)] = v.__self__
            world.pin(v)
        if t is functools.partial:
            functions[id(v)] = v
        elif t is FunctionType or t is types.MethodType and type(v.__func__) is FunctionType:
            f = v if t is FunctionType else v.__func__
            functions[id(f)] = f
        elif issubclass(t, (list, tuple)) and depth:
            note_classes((list if isinstance(v, list) else tuple).__iter__(v), functions, owners, depth - 1)
        elif issubclass(t, dict) and depth:
            note_classes(dict.values(v), functions, owners, depth - 1)
        if t not in ROWS and of_outside(v) and lookup(t, "__eq__") is object.__eq__:
            world.known_by_identity(v)  # whether two of them are one object is what C will see
        elif t.__flags__ & HEAPTYPE and t not in ROWS:
            lookup(t, "__eq__")
        if issubclass(t, BaseExceptionGroup):  # it is split by what is in it
            vm.known_group(v)


def method_key(m: Any) -> bool:
    """A bound method becomes a key: it equals those that are bound to the same object. Whether that object is one that may be others."""
    o, world = m.__self__, vm.world
    if o is None or isinstance(o, (type, types.ModuleType)):
        return False
    world.known_by_identity(o)
    return True


def outside_method(m: Any) -> Any:
    """A bound method to look up in a dict of the outside: what it is there, whose object and function are guarded."""
    world = vm.world
    if id(m) in world.standing:
        _, real, source = world.standing[id(m)]
        world.guard(source.attr("__self__"), "ID_MATCH", real.__self__)
        if type(real) is types.MethodType:
            world.guard(source.attr("__func__"), "ID_MATCH", real.__func__)
        return real
    if type(m.__self__) in DESCRIPTORS:
        return m
    if id(m.__self__) in world.by_copy or type(m.__self__) in ROWS:
        raise Break("PL0007", f"a method of a {type(m.__self__).__name__} as the key of a dict", clean=True)
    world.pin(m.__self__)
    return m


vm.note_equality = note_equality
