"""The table of types: what the interpreter knows of a type, one row each.

A row tells how a value of the type is found outside (`locate`), what stands for it on the interpreter's stack, how that is read
(attribute, item, iteration, length, truth, number), combined, called, written, and what C code and torch functions are given for it.
A column that is None means that the general protocol serves: CPython's own look-up of special methods over the interpreter's world
(`slots.py`, `attributes.py`, `calls.py`), which interprets methods written in Python. A type without a row is one of two things: a class
of Python, whose instances the general protocol serves, or a type of C that nobody has vouched for. The latter is *opaque*: it is known by
identity and type, and whatever would read it breaks the graph.

How values are made again after a break is in `jit/rows.py`, how they are written to disk in `jit/persist`: both are above this room.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any


@dataclass(slots=True, kw_only=True)
class TypeRow:
    """What is known of a type. `o` is what stands on the stack; functions raise `Break` for what they cannot do."""

    name: str
    located: tuple[type, ...] = ()  # exact types of outside values that `locate` takes
    stands: tuple[type, ...] = ()  # exact types that stand for them on the stack
    plain: bool = False  # guarded by value (or made here) and without state of its own: C code may read it as it is
    locate: Callable[[Any, Any, Any], Any] | None = None  # (world, value, source) -> what stands for it; records the guards
    type: Callable[[Any], Any] | None = None  # (o) -> `type(o)` as the program sees it
    isinstance: Callable[[Any, Any], bool] | None = None  # (o, cls), where `issubclass(type, cls)` is not the answer
    getattr: Callable[[Any, str], Any] | None = None
    setattr: Callable[[Any, str, Any], None] | None = None
    delattr: Callable[[Any, str], None] | None = None
    getitem: Callable[[Any, Any], Any] | None = None
    setitem: Callable[[Any, Any, Any], None] | None = None
    delitem: Callable[[Any, Any], None] | None = None
    contains: Callable[[Any, Any], bool] | None = None
    iter: Callable[[Any], Any] | None = None
    next: Callable[[Any], Any] | None = None
    length: Callable[[Any], Any] | None = None
    truth: Callable[[Any], bool] | None = None
    index: Callable[[Any], Any] | None = None  # `operator.index(o)`: an int, perhaps symbolic
    number: Callable[[Any, Any], Any] | None = None  # (o, int | float | complex): what these constructors make of it
    slot: Callable[[Any, str, Any], Any] | None = None  # (o, "__add__", other): its own method; NotImplemented passes on
    outside_key: Callable[[Any, Any], Any] | None = None  # what it is as a key of an outside dict, or of None, where not `hashed`
    hashed: Callable[[Any], Any] | None = None  # what is the key of a dict or a member of a set
    text: Callable[[Any, Any], Any] | None = None  # (o, str | repr | ascii)
    format: Callable[[Any, str], Any] | None = None
    unary: Callable[[Any, Any], Any] | None = None  # (operator function, o)
    binary: Callable[[Any, Any, Any], Any] | None = None  # (operator function, a, b): one of both is o; NotImplemented passes on
    compare: Callable[[Any, Any, Any], Any] | None = None  # likewise
    rank: int = 0  # of two operands with rows, the one of higher rank answers
    method: Callable[[Any, str, tuple, dict], Any] | None = None  # a C method bound to o is called
    call: Callable[[Any, tuple, dict], Any] | None = None
    to_c: Callable[[Any, Any], Any] | None = None  # (function, o) -> what C code is given; None: o itself
    to_graph: Callable[[Any, Any], Any] | None = None  # (function, o) -> what a torch function is given


ROWS: dict[type, TypeRow] = {}
"""By the exact type of what stands on the stack."""

LOCATED: dict[type, TypeRow] = {}
"""By the exact type of an outside value."""


KIN: list[tuple[tuple[type, ...], Callable[[Any, Any, Any], Any]]] = []
"""How outside values of subclasses are located: (bases, locate), the first that fits counts. Their own rows come before."""


def row(**columns: Any) -> TypeRow:
    """Enter a row. A type has one row: a second one is a mistake."""
    made = TypeRow(**columns)
    for table, types in ((ROWS, made.stands), (LOCATED, made.located)):
        for t in types:
            if t in table:
                raise ValueError(f"{t.__qualname__} has two rows: {table[t].name} and {made.name}")
            table[t] = made
    return made


def read(o: Any, name: str) -> Any:
    """An attribute of what does not change, or of a container, whose methods see to what they read: there is nothing to guard."""
    return getattr(o, name)


COLUMNS = tuple(f.name for f in fields(TypeRow))
