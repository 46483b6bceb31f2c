"""`id()` of an object that the program made: a number for now, and `id()` of the object that is made again where it leaves the capture."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pliant.graph.originals import operator
from pliant.interpret.gate import ORDERLESS, STORES, name_of
from pliant.interpret.same_objects import identical
from pliant.interpret.state import Break
from pliant.interpret.types.row import row


class OwnId(int):
    """Equal, ordered and hashed as the number that it is; it remembers whose it is."""

    owner: Any

    def __new__(cls, owner: Any) -> Any:
        made = int.__new__(cls, id(owner))
        made.owner = owner
        return made


class PassingId(int):
    """`id()` of a tensor from outside, which is another one on each call: only whether it is that of another such tensor is known."""

    owner: Any
    __new__ = OwnId.__new__  # type: ignore[assignment]


def seen_type(o: OwnId) -> type:
    return int


def getattr_(o: OwnId, name: str) -> Any:
    return int if name == "__class__" else getattr(int(o), name)


def compare(fn: Callable, a: Any, b: Any) -> Any:
    if fn is not operator.eq and fn is not operator.ne:
        computed()
    plain = [int(x) if type(x) is OwnId else x for x in (a, b)]
    return fn(*plain) if all(isinstance(x, (int, float)) for x in plain) else NotImplemented


def computed(*_: Any) -> Any:
    """A number made of it would be that of an object which nobody else will see."""
    raise Break("PL0035", "a number that is made of the id() of an object that is made here", clean=True)


def kept(fn: Any, o: OwnId) -> Any:
    """C code may hold and compare it."""
    return o if name_of(fn) in STORES or name_of(fn) in ORDERLESS else computed()


def passing(fn: Callable, a: Any, b: Any) -> Any:
    """Equal to that of the same tensor alone; any other number may be it by chance, or have been kept from another call."""
    if fn not in (operator.eq, operator.ne) or not {type(a), type(b)} <= {OwnId, PassingId}:
        unknown()
    return fn(identical(a.owner, b.owner), True)


def unknown(*_: Any) -> Any:
    raise Break("PL0012", "the id() of a tensor that is another one on each call", clean=True)


def looked_up(o: OwnId, d: Any) -> Any:
    raise Break("PL0035", "the id() of an object that is made here, or of a number, as a key of what is from outside", clean=True)


row(
    name="id of an object made here", stands=(OwnId,), type=seen_type, getattr=getattr_, truth=bool, compare=compare, binary=computed,
    unary=computed, index=computed, number=computed, text=computed, format=computed, to_c=kept, to_graph=computed,
    outside_key=looked_up, rank=5,
)  # fmt: skip
row(
    name="id of a tensor that changes", stands=(PassingId,), type=seen_type, getattr=getattr_, truth=lambda o: True, compare=passing,
    binary=unknown, unary=unknown, index=unknown, number=unknown, text=unknown, format=unknown, to_c=unknown, to_graph=unknown,
    hashed=unknown, outside_key=unknown, rank=6,
)  # fmt: skip
