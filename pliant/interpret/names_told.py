"""Names of classes and functions in the words of an exception that a handler of the program sees.

C code, and rooms that raise in its place, put `__name__` or `__qualname__` of what did not fit into the words. Programs may give a class
or a function another name, so what was put there is guarded. Exceptions that leave the frame are raised by CPython, in its own words.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import FunctionType
from typing import Any

from pliant.guards import source as S
from pliant.guards.views import NAME, QUALNAME
from pliant.interpret.binding import guard_signature
from pliant.interpret.immutable import HEAPTYPE
from pliant.interpret.state import vm

ARGS = vars(BaseException)["args"].__get__  # a class of the program may have a property of that name


def relied_on() -> Iterator[Any]:
    """The classes and functions that the capture has met so far."""
    world = vm.world
    for g in world.guards.values():
        if g.kind in ("TYPE_MATCH", "ID_MATCH"):
            yield g.value
    for cls, found in world.type_attrs.items():
        yield cls
        yield from [getattr(v, "__func__", v) if type(v) in (staticmethod, classmethod) else v for v in found.values()]
    for key in world.lookups:
        if type(key) is tuple and key[1:] == ("fn",):  # `calls.guard_function`
            yield key[0]
    for i in world.function_sources:
        yield world.outside[i]


def guard_name(cls: type) -> None:
    """The program sees the name of a class, in a text that C makes."""
    if cls.__flags__ & HEAPTYPE and id(cls) not in vm.world.own_functions:
        vm.world.guard(S.const(cls).apply("class__name"), "EQ_MATCH", NAME(cls))


def guard_names(e: BaseException) -> None:
    """The program's handler sees `e`: names of classes and functions in its words have to be what they are now."""
    text = "\n".join([a for a in ARGS(e) if type(a) is str])
    if not text:
        return
    for thing in {id(v): v for v in relied_on()}.values():
        if isinstance(thing, type) and thing.__flags__ & HEAPTYPE and id(thing) not in vm.world.own_functions:
            for view, read in (("class__name", NAME), ("class__qualname", QUALNAME)):
                if read(thing) in text:
                    vm.world.guard(S.const(thing).apply(view), "EQ_MATCH", read(thing))
            if f".{NAME(thing)}" in text or f".{QUALNAME(thing)}" in text:  # as `repr` writes it
                vm.getattr(thing, "__module__")
        elif type(thing) is FunctionType and id(thing) not in vm.world.own_functions and thing.__qualname__ in text:
            vm.getattr(thing, "__qualname__")
            guard_signature(thing)  # C code has called it, perhaps with arguments that it does not take
