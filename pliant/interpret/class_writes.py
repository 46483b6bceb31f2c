"""Attributes of classes from outside that the program sets: counters and caches which all instances share.

They are held back like other writes (`World.tensor_writes`), and every look-up in a class asks here first. Only plain data is taken: what
Python or C code finds in a class by itself (special methods, descriptors, what a metaclass has a say in) breaks the graph.
"""

from __future__ import annotations

import abc
from typing import Any

from pliant.guards import source as S
from pliant.interpret.capture import UNSET
from pliant.interpret.immutable import IMMUTABLETYPE
from pliant.interpret.state import vm
from pliant.native import made_in_python

METACLASSES = (type, abc.ABCMeta)


def may_write(cls: type, name: str, value: Any) -> bool:
    """Whether setting this attribute only changes what looking it up gives."""
    special = name.startswith("__") and name.endswith("__")
    plain = type(cls) in METACLASSES and made_in_python(cls) and not cls.__flags__ & IMMUTABLETYPE
    return plain and not special and not any([hasattr(type(value), slot) for slot in ("__get__", "__set__", "__delete__")])


def write(cls: type, name: str, value: Any) -> None:
    """`setattr(cls, name, value)`."""
    world = vm.world
    world.adopt(cls, S.const(cls))
    world.tensor_writes[(id(cls), name)] = (cls, value)
    world.class_writes.add(name)
    for found in (world.lookups, world.reads):  # what was found in a class is keyed by the class, or its id, and the name
        for key in [k for k in found if type(k) is tuple and k[1] == name and isinstance(k[0], (type, int))]:
            del found[key]


def written(cls: type, name: str) -> Any:
    """What the program has set this attribute of `cls`, or of a class that it inherits from, to; UNSET if another one hides it."""
    world = vm.world
    if name not in world.class_writes:
        return UNSET
    for i, b in enumerate(cls.__mro__):
        if (id(b), name) in world.tensor_writes:
            for before in cls.__mro__[:i]:
                if id(before) not in world.own_functions:
                    world.guard(S.const(before).dict(), "DICT_CONTAINS", (name, False), name)
            return world.tensor_writes[(id(b), name)][1]
        if name in b.__dict__:
            if id(b) not in world.own_functions and any([(id(c), name) in world.tensor_writes for c in cls.__mro__[i + 1 :]]):
                world.guard(S.const(b).dict(), "DICT_CONTAINS", (name, True), name)  # it hides what was set, whatever it holds
            return UNSET
    return UNSET


def any_of(cls: type) -> bool:
    """Whether some attribute of the class was set."""
    return any([k == id(cls) for k, _ in vm.world.tensor_writes]) if vm.world.class_writes else False
