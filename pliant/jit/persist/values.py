"""Constants as data that `marshal` takes, and back.

What `marshal` knows stands for itself; everything else is a tuple whose first item says what it is. Objects that are known by what
they are called are references into a table (`names.py`). What has no row here has no portable form: `NotPortable`, never a guess.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import torch

from pliant.graph import distributed_tensors


class NotPortable(Exception):
    """This entry cannot be told to another process; the text says why."""


ATOMS = frozenset((type(None), bool, int, float, complex, str, bytes, type(Ellipsis)))

Refer = Callable[[Any], int]
Resolve = Callable[[int], Any]


def items(values: Any, refer: Refer) -> list:
    return [encode(v, refer) for v in values]


ENCODERS: dict[type, Callable[[Any, Refer], tuple]] = {
    tuple: lambda v, refer: ("(", *items(v, refer)),
    list: lambda v, refer: ("[", *items(v, refer)),
    dict: lambda v, refer: ("{", *items((x for pair in v.items() for x in pair), refer)),
    torch.Size: lambda v, refer: ("size", *items(v, refer)),
    slice: lambda v, refer: ("slice", *items((v.start, v.stop, v.step), refer)),
    range: lambda v, refer: ("range", v.start, v.stop, v.step),
    frozenset: lambda v, refer: ("frozenset", *items(sorted(ordered(v)), refer)),
    set: lambda v, refer: ("set", *items(sorted(ordered(v)), refer)),
    torch.dtype: lambda v, refer: ("torch", str(v).removeprefix("torch.")),
    torch.layout: lambda v, refer: ("torch", str(v).removeprefix("torch.")),
    torch.memory_format: lambda v, refer: ("torch", str(v).removeprefix("torch.")),
    torch.device: lambda v, refer: ("device", v.type, v.index),
    types.MethodWrapperType: lambda v, refer: ("wrapper", ("@", refer(plainly_read(v.__self__))), v.__name__),
    torch._C._TorchFunctionState: lambda v, refer: ("function state", v.name),
    type(NotImplemented): lambda v, refer: ("not implemented",),
}


def plainly_read(o: Any) -> Any:
    """An object whose attributes no code of the program's answers for."""
    if type(o).__module__ != "builtins":
        raise NotPortable(f"a method of a {type(o).__qualname__}")
    return o


def ordered(v: Any) -> Any:
    """A set in whose order nothing depends on the process: of ints. Others are walked in another order there, and programs see it."""
    if any(type(x) is not int for x in v):
        raise NotPortable("a set of what is not int: another process walks it in another order")
    return v


def encode(v: Any, refer: Refer) -> Any:
    """`v` as data. Raises NotPortable."""
    t = type(v)
    if t in ATOMS:
        return v
    encoder = ENCODERS.get(t)
    if encoder is not None:
        return encoder(v, refer)
    parts = distributed_tensors.parts_of_value(v)
    return ("@", refer(v)) if parts is None else ("made", ("@", refer(t)), *items(parts, refer))


def encode_held(v: Any, refer: Refer) -> Any:
    """`encode` of what is known by identity: containers that change are not their content."""
    return ("@", refer(v)) if type(v) in (dict, list, set) else encode(v, refer)


def encode_members(v: Any, refer: Refer) -> Any:
    """A set that others are compared with: in which order it is walked is nobody's matter."""
    return ("frozenset", *[encode(x, refer) for x in sorted(v, key=repr)])


def pairs(parts: list) -> dict:
    return dict(zip(parts[::2], parts[1::2], strict=True))


DECODERS: dict[str, Callable[..., Any]] = {
    "(": lambda *v: v,
    "[": lambda *v: list(v),
    "{": lambda *v: pairs(list(v)),
    "size": lambda *v: torch.Size(v),
    "slice": slice,
    "range": range,
    "frozenset": lambda *v: frozenset(v),
    "set": lambda *v: set(v),
    "torch": lambda name: getattr(torch, name),
    "device": lambda kind, index: torch.device(kind) if index is None else torch.device(kind, index),
    "wrapper": getattr,
    "function state": lambda name: getattr(torch._C._TorchFunctionState, name),
    "not implemented": lambda: NotImplemented,
    "made": lambda cls, *parts: cls(*parts),
}


def decode(v: Any, resolve: Resolve) -> Any:
    """The value of what `encode` made."""
    if type(v) is not tuple:
        return v
    if v[0] == "@":
        return resolve(v[1])
    return DECODERS[v[0]](*[x if type(x) is not tuple else decode(x, resolve) for x in v[1:]])
