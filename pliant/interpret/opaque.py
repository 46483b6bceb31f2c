"""Opaque values: outside constants that changed too often to be worth a guard. Every use of one breaks the graph."""

from __future__ import annotations

from typing import Any

from pliant.guards.source import Source
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
