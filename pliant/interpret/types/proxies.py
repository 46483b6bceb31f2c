"""Proxies for what the graph is not to know yet: opaque values, texts made late, and generators that are interpreted."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

from pliant.interpret.gate import UNLIKE, holds_only, item_for_c, name_of
from pliant.interpret.generators import Generator
from pliant.interpret.late_text import LateText, added, needed
from pliant.interpret.opaque import Opaque
from pliant.interpret.state import Break, vm
from pliant.interpret.types.row import row

KEEPS = {"append", "appendleft", "insert", "callable", "setitem", "__setitem__"}  # what may be given a text that is not made yet


# -- opaque values ------------------------------------------------------------------------------------------------
def used(o: Any, what: str) -> Break:
    return Break("PL0017", what.format(o.source.name), clean=True)


UNLIKE |= {Opaque, LateText}


def to_code(fn: Any, o: Any) -> Any:
    raise used(o, "{} is passed to " + name_of(fn))


def getattr_opaque(o: Any, name: str) -> Any:
    raise Break("PL0017", f"attribute {name!r} of {o.source.name}, which changes on every call")


def setattr_opaque(o: Any, name: str, value: Any = None) -> None:
    raise used(o, f"attribute {name!r} of {{}}")


def is_instance_opaque(o: Any, cls: Any) -> bool:
    raise Break("PL0017", f"the type of {o.source.name}")


def type_opaque(o: Any) -> type:
    raise used(o, "the type of {}")


def call_opaque(o: Any, args: tuple, kw: dict) -> Any:
    raise used(o, "call of {}")


row(
    name="opaque", stands=(Opaque,), type=type_opaque, getattr=getattr_opaque, setattr=setattr_opaque, delattr=setattr_opaque,
    isinstance=is_instance_opaque, call=call_opaque, to_c=to_code, to_graph=to_code,
)  # fmt: skip


# -- texts made late --------------------------------------------------------------------------------------------------
def text_for_c(fn: Any, o: Any) -> Any:
    if name_of(fn) not in KEEPS:
        needed(o)
    return o


def text_type(o: Any) -> type:
    return str


def getattr_text(o: Any, name: str) -> Any:
    return needed(o)


def text_for_graph(fn: Any, o: Any) -> Any:
    return needed(o)


row(
    name="text made late", stands=(LateText,), type=text_type, getattr=getattr_text, binary=added, to_c=text_for_c, to_graph=text_for_graph
)


# -- generators -----------------------------------------------------------------------------------------------------------
def generator_type(g: Any) -> type:
    return types.GeneratorType


def itself(g: Any) -> Any:
    return g


def next_item(g: Any) -> Any:
    return g.send(None)


def driven(fn: Any, g: Any) -> Any:
    """C code may drive it: each item is interpreted."""
    g.reader = None if holds_only(fn, g) else functools.partial(item_for_c, fn)
    return g


def attribute_of_generator(g: Any, name: str) -> Any:
    if name in OF_GENERATORS:
        return OF_GENERATORS[name](g)
    if hasattr(types.GeneratorType, name) and name not in OWN_METHODS:
        raise Break("PL0008", f"attribute {name!r} of a generator that is made here", clean=True)
    return getattr(g, name)


OWN_METHODS = {"send", "throw", "close", "__next__", "__iter__"}
OF_GENERATORS: dict[str, Callable[[Any], Any]] = {
    "__class__": generator_type,
    "__name__": lambda g: vm.getattr(g.frame.func, "__name__"),
    "__qualname__": lambda g: vm.getattr(g.frame.func, "__qualname__"),
    "gi_code": lambda g: g.frame.code,
    "gi_running": lambda g: g.running,
    "gi_suspended": lambda g: g.started and not g.done and not g.running,
    "gi_yieldfrom": lambda g: None if g.running else g.delegate(),
}


def attribute_set(g: Any, name: str, value: Any = None) -> None:
    raise Break("PL0008", f"attribute {name!r} of a generator that is made here is set", clean=True)


def text_of_generator(g: Any, fn: Any) -> str:
    raise Break("PL0008", "the text of a generator that is made here", clean=True)


row(
    name="generator", stands=(Generator,), type=generator_type, getattr=attribute_of_generator, setattr=attribute_set,
    delattr=attribute_set, iter=itself, next=next_item, text=text_of_generator, to_c=driven,
)  # fmt: skip
