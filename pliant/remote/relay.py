"""A tree of controllers: actors that hand a message on to the workers, or actors, below them, and give back their replies as one.

The controller makes as many calls a step as the first level has actors, whatever the number of workers. Replies that are alike, as those of
workers that were asked nothing, travel up once, with the ranks whose replies they are. Messages of one epoch (`Mesh.epoch`) are handed on
in the order of their numbers: an actor that is asynchronous may begin calls in another.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import Any

LOST, HUNG = "lost", "hung"
Replies = list[tuple[Any, list[int]]]
"""Replies and the ranks that gave them. In place of one: `(LOST or HUNG, why)`."""


class Relay:
    """One actor between the controller and workers."""

    def __init__(self) -> None:
        self.epoch, self.next = -1, 0
        self.turn = asyncio.Condition()

    async def ready(self) -> int:
        """It has begun."""
        return os.getpid()

    async def join(self, epoch: int, children: list[Any], ranks: list[list[int]], last: bool, timeout: float) -> None:
        """What is below it from this epoch on. `ranks`: of the workers below each child; `last`: the children are workers."""
        async with self.turn:
            self.children, self.ranks, self.last, self.timeout = children, ranks, last, timeout
            self.epoch, self.next = epoch, 0
            self.turn.notify_all()

    async def step(self, epoch: int, number: int, message: Any, parts: list[Any]) -> Replies:
        """Hand a message on, when it is its turn; the replies. `message`: bytes, or a list with a reference to them."""
        async with self.turn:
            await self.turn.wait_for(lambda: epoch < self.epoch or (epoch, number) == (self.epoch, self.next))
            if epoch < self.epoch:
                return []  # nobody waits for it any more
            self.next = number + 1
            if self.last:
                data = message[0] if isinstance(message, list) else message
                refs = [c.step.remote(data, *parts) for c in self.children]
            else:
                refs = [c.step.remote(epoch, number, message, parts) for c in self.children]
            self.turn.notify_all()
        found = await asyncio.gather(*[self.reply(ref, ranks) for ref, ranks in zip(refs, self.ranks, strict=True)])
        return merged([pair for pairs in found for pair in pairs])

    async def reply(self, ref: Any, ranks: list[int]) -> Replies:
        try:
            reply = await asyncio.wait_for(asyncio.wrap_future(ref.future()), self.timeout)
        except TimeoutError:
            return [((HUNG, f"no answer for {self.timeout:g} s"), ranks if self.last else [])]
        except Exception as e:  # what Ray raises for an actor that has ended
            return [((LOST, str(e).splitlines()[0] if str(e) else type(e).__name__), ranks if self.last else [])]
        return [(reply, ranks)] if self.last else reply


def merged(found: Replies) -> Replies:
    """Those that are alike once."""
    out: dict[Any, list[int]] = {}
    for reply, ranks in found:
        out.setdefault(reply, []).extend(ranks)
    return list(out.items())


def split(things: Sequence[Any], fanout: int) -> list[list[Any]]:
    """Consecutive groups of at most `fanout`, of like sizes."""
    n = -(-len(things) // fanout)
    return [list(things[i * len(things) // n : (i + 1) * len(things) // n]) for i in range(n)]


def width_of(workers: int, most: int) -> int:
    """How many children each has, where all levels have as many, as few levels as there can be, and nobody more than `most`."""
    levels, width = 1, 1
    while most**levels < workers:
        levels += 1
    while width**levels < workers:
        width += 1
    return width


def tree(make: Any, workers: list[Any], fanout: int, timeout: float) -> tuple[list[Any], list[Any]]:
    """The actors that the controller calls, and those between: each with what `join` is told. `make()` starts one."""
    level = [(w, [rank]) for rank, w in enumerate(workers)]
    every: list[Any] = []
    last = True
    width = width_of(len(workers), fanout)
    while len(level) > fanout:
        groups = split(level, width)
        made = [make() for _ in groups]
        every += [(a, [c for c, _ in g], [ranks for _, ranks in g], last, timeout) for a, g in zip(made, groups, strict=True)]
        level = [(a, [r for _, ranks in g for r in ranks]) for a, g in zip(made, groups, strict=True)]
        last, timeout = False, timeout + MARGIN
    return [a for a, _ in level], every


MARGIN = 5.0
"""Seconds that each level waits longer than the one below it, which says who is missing."""
