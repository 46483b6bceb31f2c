"""Objects in messages: words for them that run no code of the program, whatever class they are of."""

from __future__ import annotations

import types
from typing import Any

import torch

ATOMS = (int, float, complex, bytes, bool, type(None))
SHOWN = frozenset({*ATOMS, str, torch.dtype, torch.device, torch.Size, torch.layout, torch.memory_format, range})
"""Types that print themselves."""
BRACKETS: dict[type, tuple[str, str]] = {list: ("[", "]"), tuple: ("(", ")"), set: ("{", "}"), frozenset: ("{", "}"), dict: ("{", "}")}
NAMED = (types.FunctionType, types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType)
LONG = 1024  # bits
MOST = 20  # items of a container, of which a message shows the first few


def value_text(v: Any, depth: int = 3) -> str:
    t = type(v)
    if t is int and v.bit_length() > LONG:
        return f"an int of {v.bit_length()} bits"  # which Python may refuse to write in decimals
    if t in SHOWN:
        return repr(v)
    if t not in BRACKETS or depth == 0:
        return object_text(v)
    shown = [value_text(x, depth - 1) for _, x in zip(range(MOST), v, strict=False)]
    if t is dict:
        shown = [f"{k}: {value_text(x, depth - 1)}" for k, x in zip(shown, v.values(), strict=False)]
    opening, closing = BRACKETS[t]
    return f"{opening}{', '.join(shown)}{',' if t is tuple and len(v) == 1 else ''}{closing}"


def object_text(v: Any) -> str:
    return f"{name_of(v) or type_text(type(v)) + ' object'} at {id(v):#x}"


def name_of(v: Any) -> str:
    """The name that a class, a function or a bound method of Python has; "" for what has none, or would be asked for it."""
    if issubclass(type(v), type):
        return type.__dict__["__qualname__"].__get__(v)
    if type(v) is types.MethodType:
        v = v.__func__
    return v.__qualname__ if type(v) in NAMED else ""


def type_text(t: type) -> str:
    name, module = name_of(t), type.__getattribute__(t, "__module__")
    return f"{module}.{name}" if module != "builtins" and type(module) is str else name


def clip(text: str, width: int = 120) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"
