"""Iterators over lists, tuples and ranges from outside that are at their end: `next(it, None)`, and the end of loops behind a break."""

from __future__ import annotations

from typing import Any

from pliant.guards.views import items_left
from pliant.interpret.state import vm, writes

ENDING = frozenset(map(type, (iter([]), iter(()), iter(range(0)))))


def end_of(it: Any) -> None:
    """Raises StopIteration where such an iterator has nothing left, which is guarded. Asked once, it stays at its end: so is the object,
    behind the graph, as its list may grow."""
    world = vm.world
    if items_left(it) != 0:
        return
    walked = it.__reduce__()[1][0]
    if type(walked) is list and id(walked) in world.outside:  # the program knows it by another name, and may have added to it
        return
    grows = type(walked) is list
    del walked
    if vm.asking:
        writes()
    world.unusual()
    left = world.locate(0, world.sources[id(it)].apply(items_left.__name__))
    if type(left) is not int:
        return
    if grows and not any([fn is next and args[0] is it for fn, args, _ in world.calls]):
        world.calls.append((next, (it, None), {}))
    raise StopIteration


__all__ = ["ENDING", "end_of"]
