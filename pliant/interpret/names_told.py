"""Names of classes and functions in texts that C code makes, and in the words of an exception that a handler of the program sees.

C code, and rooms that raise in its place, put `__name__` or `__qualname__` of what did not fit into the words. Programs may give a class
or a function another name, so what was put there is guarded. Exceptions that leave the frame are raised by CPython, in its own words.
"""

from __future__ import annotations

import collections
import functools
import types
import typing
from collections.abc import Callable, Iterable, Iterator
from types import FunctionType
from typing import Any

from pliant.guards import source as S
from pliant.guards.views import NAME, QUALNAME
from pliant.interpret.attributes import lookup
from pliant.interpret.binding import guard_signature
from pliant.interpret.immutable import HEAPTYPE
from pliant.interpret.state import Break, vm

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


def named(thing: Any, text: str) -> None:
    """What `text` says of a class or function that is of the outside."""
    if id(thing) in vm.world.own_functions:
        return
    if isinstance(thing, type) and thing.__flags__ & HEAPTYPE:
        for view, read in (("class__name", NAME), ("class__qualname", QUALNAME)):
            if read(thing) in text:
                vm.world.guard(S.const(thing).apply(view), "EQ_MATCH", read(thing))
        if f".{NAME(thing)}" in text or f".{QUALNAME(thing)}" in text:  # as `repr` writes it
            vm.getattr(thing, "__module__")
    elif type(thing) is FunctionType and thing.__qualname__ in text:
        vm.getattr(thing, "__qualname__")


def guard_names(e: BaseException) -> None:
    """The program's handler sees `e`: names of classes and functions in its words have to be what they are now."""
    text = "\n".join([a for a in ARGS(e) if type(a) is str])
    if not text:
        return
    for thing in {id(v): v for v in relied_on()}.values():
        named(thing, text)
        if type(thing) is FunctionType and id(thing) not in vm.world.own_functions and thing.__qualname__ in text:
            guard_signature(thing)  # C code has called it, perhaps with arguments that it does not take


# -- texts ------------------------------------------------------------------------------------------------------------
ADDRESS = " at 0x"
"""In the default text of an object. It may be that of a proxy, or of one that will be made again."""
TEXTS = {str, bytes, bytearray}
ASKED = ("__str__", "__repr__", "__format__", "__bytes__")


def attributes(*names: str) -> Callable[[Any], Iterable[Any]]:
    return lambda v: [getattr(v, n, None) for n in names]


ALIAS = attributes("__origin__", "__args__")
SAYS: dict[type, Callable[[Any], Iterable[Any]]] = {
    **dict.fromkeys((list, tuple, set, frozenset, collections.deque, type({}.keys()), type({}.values()), type({}.items())), list),
    **dict.fromkeys((dict, collections.OrderedDict, collections.defaultdict, types.MappingProxyType), lambda v: [*v, *v.values()]),
    types.MethodType: attributes("__func__", "__self__"),
    functools.partial: attributes("func", "args", "keywords"),
    super: attributes("__thisclass__", "__self_class__"),
    types.SimpleNamespace: lambda v: vars(v).values(),
    slice: attributes("start", "stop", "step"),
    types.GenericAlias: ALIAS,
    types.UnionType: ALIAS,
}
"""What the text of an object holds of others."""


def guard_text(text: Any, *made_of: Any) -> None:
    """C code has made a text of these: names of classes and functions in there have to be what they are now. Raises Break for addresses."""
    text = text if type(text) is str else text.decode("latin1")
    if ADDRESS in text:
        raise Break("PL0035", "a text that tells the address of an object")
    todo, seen = list(made_of), set()
    while todo:
        v = todo.pop()
        t = type(v)
        if t in (str, int, float, bool) or v is None or id(v) in seen:
            continue
        seen.add(id(v))
        named(v if issubclass(type(v), type) or t is FunctionType else t, text)
        if t.__flags__ & HEAPTYPE:
            for name in ASKED:  # one that the class gets later would be asked in the place of what was
                lookup(t, name)
        says = SAYS.get(t)
        if says is not None:
            todo += says(v)
        elif t.__module__ == "typing" and issubclass(t, typing._Final):  # type: ignore[attr-defined]
            todo += ALIAS(v)
        elif issubclass(t, BaseException):
            todo += ARGS(v)
