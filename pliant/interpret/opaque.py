"""Opaque values: outside constants that changed too often to be worth a guard. Every use of one breaks the graph."""

from __future__ import annotations

import collections
from collections.abc import Container
from types import WrapperDescriptorType
from typing import Any, NamedTuple

from pliant.guards.source import Source
from pliant.interpret.immutable import HEAPTYPE
from pliant.interpret.state import Break, vm


class Opaque:
    """Stands for an outside constant that changed too often to be worth a guard: every use of its value breaks the graph."""

    __slots__ = ("source", "value")

    def __init__(self, value: Any, source: Source) -> None:
        self.value = value
        self.source = source

    def __repr__(self) -> str:
        if vm.active:  # C code writes it, or what it is in
            opaque_use(self)
        return f"<opaque {self.source.name}>"


def opaque_use(self: Any, *_: Any) -> Any:
    raise Break("PL0017", f"the value of {self.source.name} changes on every call, so it is kept out of the graph")


for _name in (
    "eq ne lt le gt ge add radd sub rsub mul rmul truediv rtruediv floordiv rfloordiv mod rmod pow rpow neg pos abs bool int float "
    "index hash str format len iter next getitem setitem delitem contains call and or xor invert lshift rshift round matmul"
).split():
    setattr(Opaque, f"__{_name}__", opaque_use)
Opaque.__getattr__ = opaque_use  # type: ignore[attr-defined]  # the interpreter itself asks for what the value has


class ClassName(NamedTuple):
    """What stays of a class that each call makes anew."""

    module: str
    name: str


MODULE, QUALNAME = (vars(type)[name].__get__ for name in ("__module__", "__qualname__"))  # past what a metaclass may make of these names


def class_name(cls: type) -> ClassName:
    module = MODULE(cls)
    return ClassName(module if type(module) is str else "", QUALNAME(cls))


def made_again(v: Any, source: Source, names: Container[ClassName]) -> bool:
    """Whether an earlier part of the frame hands on a class of one of these names, or an instance of one."""
    if source.root.op != "local" or source.root.arg[1] != "state":
        return False
    return class_name(v if issubclass(type(v), type) else type(v)) in names


HELD_BY_C = (dict, list, set, frozenset, tuple, collections.deque, BaseException)
"""Their attributes and content the interpreter reads itself, and those of exceptions it sets."""


def answers_for_itself(t: type) -> bool:
    """Whether code of the program would run where it does so. Instances stay with CPython."""
    found = [next(b.__dict__[name] for b in t.__mro__ if name in b.__dict__) for name in ways_to_attributes(t)]
    return any([type(m) is not WrapperDescriptorType for m in found])


def ways_to_attributes(t: type) -> tuple[str, ...]:
    """The special methods of this class that would run then."""
    if not issubclass(t, HELD_BY_C) or not t.__flags__ & HEAPTYPE:
        return ()
    return ("__getattribute__", "__setattr__") if issubclass(t, BaseException) else ("__getattribute__",)


def opaque(world: Any, v: Any, source: Source) -> Opaque:
    return Opaque(v, source)
