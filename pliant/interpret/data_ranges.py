"""Ranges and rows whose number only the run tells: `range(n)` where `n` was read from a tensor; under export also `range(x.shape[0])`.

A `for` loop over one is tried as a whole (`data_loops.py`; `walks.py` says where). Where it is none that can be, the capture starts again
and the graph breaks where the range is made, or pins its length.
"""

from __future__ import annotations

from typing import Any, NoReturn

import torch

from pliant.interpret.state import LEAVE, Break, vm, whole_loops
from pliant.interpret.types.row import row

RANGES = (0, -1)
"""The key among the loops of a capture under which it says that such ranges are not to be made."""
PARTS = ("start", "stop", "step")


class DataRange:
    """Stands for a range. `step` is known. `of`: the tensor whose rows are walked, if it is no range that the program has made."""

    __slots__ = ("of", *PARTS)

    def __init__(self, start: Any, stop: Any, step: int, of: Any = None) -> None:
        self.start = start
        self.stop = stop
        self.step = step
        self.of = of


class DataIterator:
    """Its iterator, at the beginning."""

    __slots__ = ("over",)

    def __init__(self, over: DataRange) -> None:
        self.over = over


def refused(o: Any, *_: Any, **__: Any) -> NoReturn:
    raise Break("PL0002", "a range whose length only the run knows", clean=True)


for _name in "eq ne bool hash str repr format len iter next getitem contains reversed reduce_ex".split():  # C code that finds one
    for _class in (DataRange, DataIterator):
        setattr(_class, f"__{_name}__", refused)


def refused_by(fn: Any, o: Any) -> NoReturn:
    refused(o)


def part(o: DataRange, name: str) -> Any:
    return getattr(o, name) if name in PARTS else refused(o)


OTHERS = dict.fromkeys(
    "setattr delattr getitem setitem delitem contains length truth index number hashed text format unary binary compare call".split(),
    refused,
)
row(name="range over data", stands=(DataRange,), type=lambda o: range, getattr=part, iter=DataIterator, next=refused, to_c=refused_by,
    to_graph=refused_by, **OTHERS)  # fmt: skip
row(name="iterator over such a range", stands=(DataIterator,), type=lambda o: type(iter(range(0))), getattr=refused,
    iter=lambda o: o, next=lambda o: vm.next_of_data(o), to_c=refused_by, to_graph=refused_by, **OTHERS)  # fmt: skip


def of_data(args: list[Any]) -> DataRange | None:
    """The range with these bounds, if some are known only to the run and loops over it may be tried."""
    if not 0 < len(args) < 4 or not any(map(unknown, args)) or not tried():
        return None
    start, stop, step = (0, args[0], 1) if len(args) == 1 else (*args, 1)[:3]
    return DataRange(start, stop, step) if type(step) is int and step else None


def unknown(n: Any) -> bool:
    return type(n) is torch.SymInt and not n.node.expr.backed and n.node.expr.const is None


def tried() -> bool:
    return whole_loops() and not vm.asking and vm.loops.get(RANGES) is not LEAVE


def rows_of(t: Any) -> DataIterator | None:
    """The iterator over a tensor whose number of rows only the run knows, if loops over one may be tried."""
    return DataIterator(DataRange(0, t.sizes[0], 1, t)) if t.sizes and unknown(t.sizes[0]) and tried() else None
