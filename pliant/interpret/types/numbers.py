"""Numbers: Python's own, guarded by value or lifted to symbols, and the symbolic ones that stand for them."""

from __future__ import annotations

from typing import Any

import torch

from pliant.graph.symnode import concrete
from pliant.interpret.types.row import read, row
from pliant.interpret.world import World

SEEN = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}


def symbolic_getattr(o: Any, name: str) -> Any:
    seen = SEEN[type(o)]
    if name == "__class__":
        return seen
    if hasattr(seen, name):
        return getattr(concrete(o), name)  # PyTorch's symbolic numbers lack them, or answer otherwise than Python's
    return getattr(o, name)


def seen_type(o: Any) -> type:
    return SEEN[type(o)]


def index(o: Any) -> Any:
    if type(o) is torch.SymFloat:
        raise TypeError("'float' object cannot be interpreted as an integer")
    return o if type(o) is torch.SymInt else concrete(o)


def number(o: Any, kind: type) -> Any:
    """`int(o)`, `float(o)` of a symbolic number stay symbolic."""
    t = type(o)
    if kind is int:
        return o if t is torch.SymInt else torch.sym_int(o)
    if kind is float:
        return o if t is torch.SymFloat else torch.sym_float(o) if t is torch.SymInt else float(concrete(o))
    return kind(concrete(o))


def pinned(o: Any) -> Any:
    """Its hash is its value."""
    return concrete(o)


def text(o: Any, fn: Any) -> Any:
    return fn(concrete(o))


def formatted(o: Any, spec: str) -> Any:
    return format(concrete(o), spec)


def as_it_is(fn: Any, o: Any) -> Any:
    return o


row(name="int", located=(int,), stands=(int,), plain=True, locate=World.integer, getattr=read)
row(name="float", located=(float,), stands=(float,), plain=True, locate=World.floating, getattr=read)
row(name="bool and complex", located=(bool, complex), stands=(bool, complex), plain=True, locate=World.constant, getattr=read)
row(
    name="symbolic number", stands=tuple(SEEN), type=seen_type, getattr=symbolic_getattr, truth=bool, index=index,
    number=number, hashed=pinned, text=text, format=formatted, to_graph=as_it_is,
)  # fmt: skip
