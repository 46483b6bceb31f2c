"""What C code does with one item before it asks for the next: its operators, and who makes the items, may call code of the program's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pliant.graph.originals import torch
from pliant.graph.traced import TracedTensor
from pliant.interpret.slots import PLAIN_OPERANDS, QUIET_ITERATORS, get_iter, get_next, unpack
from pliant.interpret.types.row import ROWS
from pliant.interpret.world import TENSOR_TYPES

AT_HAND = (tuple, list, torch.Size)


def until_heard(v: Any) -> tuple[list, Any]:
    """(the items of an iterable up to the first one that may hear what is done to it, an iterator over the others). None for that where
    there is no such item, or nobody hears when the next one is asked for: all items, then."""
    it = None if type(v) in AT_HAND else get_iter(v)
    if it is None or type(it) in QUIET_ITERATORS:
        return unpack(v if it is None else it), None
    items: list = []
    while True:
        try:
            items.append(get_next(it))
        except StopIteration:
            return items, None
        if hears(items[-1]):
            return items, it


def hears(x: Any) -> bool:
    t = type(x)
    if t is TracedTensor:
        return x.pytype not in TENSOR_TYPES
    return t not in PLAIN_OPERANDS and t not in ROWS


def lazily(v: Any) -> Iterator[Any]:
    """The items of an iterable, each asked for when the one before it is done with."""
    if type(v) in AT_HAND:
        yield from unpack(v)
        return
    it = get_iter(v)
    while True:
        try:
            x = get_next(it)
        except StopIteration:
            return
        yield x
