"""`itertools.count` objects from outside: numbers that count up. What comes next is read by the guards; the object itself is moved on
behind the graph, as often as the program has asked.
"""

from __future__ import annotations

import itertools
from typing import Any

from pliant.guards.views import count_next, count_step
from pliant.interpret.gate import UNLIKE
from pliant.interpret.state import Break, vm, writes
from pliant.interpret.types.row import row


def locate(world: Any, o: Any, source: Any) -> Any:
    world.guard(source, "TYPE_MATCH", itertools.count)
    return world.adopt(o, source)


def next_(o: Any) -> Any:
    world = vm.world
    if id(o) not in world.outside:
        return vm.native(next, (o,), {})
    if vm.asking:
        writes()
    world.unusual()
    start, step = [world.locate(part(o), world.sources[id(o)].apply(part.__name__)) for part in (count_next, count_step)]
    _, now, times = world.counters.get(id(o), (o, start, 0))
    world.counters[id(o)] = o, now + step, times + 1
    return now


def to_c(fn: Any, o: Any) -> Any:
    if id(o) in vm.world.outside:
        raise Break("PL0007", "an iterator made outside (count) is given to C code", clean=True)
    return o


UNLIKE.add(itertools.count)  # what it says in a text, within a container too, is what comes next


row(
    name="count", located=(itertools.count,), stands=(itertools.count,), locate=locate, iter=lambda o: o, next=next_, to_c=to_c
)
