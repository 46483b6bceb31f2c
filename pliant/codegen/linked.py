"""Which function of which module each address is, so that another process can find the same code on the disk and link it.

A module is known by its name on the disk (`identity.py`). It may call kernels of modules that were linked before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Place = tuple["Module", str]
"""A function: the module that it is in, and its name there."""


@dataclass(frozen=True, slots=True, eq=False)
class Module:
    """Functions that were linked at once. `known`: those of earlier modules that they call, by the name they call them by."""

    name: str
    names: tuple[str, ...]
    known: Mapping[str, Place]


_places: dict[int, Place] = {}


def remember(name: str | None, names: Sequence[str], addresses: Sequence[int], known: Mapping[str, int]) -> None:
    """A module was linked. One that has no name on the disk, or calls such a one, is not remembered."""
    callees = {symbol: found for symbol, address in known.items() if (found := _places.get(address)) is not None}
    if name is not None and len(callees) == len(known):
        module = Module(name, tuple(names), callees)
        _places.update((address, (module, symbol)) for symbol, address in zip(names, addresses, strict=True))


def place_of(address: int) -> Place | None:
    """Where a function came from; None where that is not known."""
    return _places.get(address)
