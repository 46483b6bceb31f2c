"""The candidates: every change that the tables (`values`, `made`) know of the places of a walk."""

from __future__ import annotations

import collections
import enum
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from benchmarks.perturb import leaves, structure, values
from benchmarks.perturb import made as made_rows
from benchmarks.perturb.places import Place, Walk, is_library
from benchmarks.perturb.protocols import instance_space
from benchmarks.perturb.values import SKIP, passed_on, shallow, wrapped

MADE = (*made_rows.MADE, *leaves.MADE, *structure.MADE)
REPLACED = (*values.REPLACED, *leaves.REPLACED)


@dataclass
class Change:
    """One change: where, of what kind, and how it is made. `tight`: only while the program itself runs, as it could disturb others."""

    kind: str
    name: str
    path: str
    make: Callable[[], Any]  # -> undo, or SKIP
    old: Any = ""
    tight: bool = False
    new: Any = None  # what the place holds now, for the report and for keeping it
    around: Callable[[Callable], Callable] | None = None  # how the program is called

    def apply(self) -> Any:
        return self.make()


def replacement(place: Place, kind: str, name: str, row: Callable[[Any], Any], tight: bool) -> Change:
    change = Change(kind, name, place.path, lambda: SKIP, tight=tight)

    def make() -> Any:
        new = row(place.value)
        if new is SKIP:
            return SKIP
        change.old = place.value
        change.new = new
        return place.put(new)  # type: ignore[misc]

    change.make = make
    return change


def fits(value: Any, types_: tuple) -> bool:
    if isinstance(value, bool) and bool not in types_:
        return types_ == (object,)
    if isinstance(value, enum.Enum):
        return types_ in ((enum.Enum,), (object,))
    if isinstance(value, np.generic):
        return any(issubclass(t, np.generic) for t in types_)
    return isinstance(value, types_)


def library_value(value: Any) -> bool:
    """Something of Python's, torch's or NumPy's: only what stands for it may change."""
    return isinstance(value, type | types.FunctionType | types.BuiltinFunctionType | types.ModuleType) and is_library(
        getattr(value, "__module__", None) or getattr(value, "__name__", None))


def changes(walk: Walk) -> Iterator[Change]:
    """Every change that the tables know of the places of a walk (some turn out to have nothing to do)."""
    made: set[int] = set()
    for place in walk.places:
        value = place.value
        if library_value(value):
            if place.put is not None and callable(value) and not isinstance(value, type):
                yield replacement(place, "library", "a function of a library answers otherwise", wrapped, tight=True)
                yield replacement(place, "library", "a function of a library goes through another", passed_on, tight=True)
            continue
        if place.put is not None:
            for kind, name, types_, row in REPLACED:
                if fits(value, types_):
                    yield replacement(place, kind, name, row, tight=False)
            if place.drop is not None:
                yield Change("name", "taken away", place.path, place.drop)
        if id(value) in made or isinstance(value, int | str | float | bytes | None):
            continue
        made.add(id(value))
        for kind, name, types_, make in MADE:
            if fits(value, types_):
                yield Change(kind, name, place.path, lambda make=make, value=value: make(value))
    yield from pairs(walk)


def pairs(walk: Walk) -> Iterator[Change]:
    """Two places that hold objects of one type: the second becomes the first's, or a view of it."""
    by_type: dict[type, list[Place]] = collections.defaultdict(list)
    for place in walk.places:
        if place.put is not None and isinstance(place.value, torch.Tensor | list | dict | torch.nn.Module) or (
                place.put is not None and instance_space(place.value) is not None):
            by_type[type(place.value)].append(place)
    for places in by_type.values():
        for a, b in zip(places[:12], places[1:13], strict=False):
            if a.value is b.value:
                yield replacement(b, "identity", "no longer the same object", lambda v: shallow(v) if not isinstance(v, torch.Tensor)
                    else v.detach().clone().requires_grad_(v.requires_grad), tight=False)
            else:
                yield replacement(b, "identity", f"the object of {a.path}", lambda v, a=a: a.value, tight=False)
                if isinstance(a.value, torch.Tensor):
                    yield replacement(b, "tensor aliasing", f"a view of {a.path}", lambda v, a=a: view(a.value), tight=False)
                    yield replacement(b, "tensor aliasing", f"overlaps {a.path}", lambda v, a=a: overlap(a.value), tight=False)


def view(t: torch.Tensor) -> Any:
    return SKIP if type(t) is not torch.Tensor or t.requires_grad or t.layout is not torch.strided else t.view(t.shape)


def overlap(t: torch.Tensor) -> Any:
    if type(t) is not torch.Tensor or t.requires_grad or t.layout is not torch.strided or not t.dim() or t.shape[0] < 2:
        return SKIP
    return t[1:]
