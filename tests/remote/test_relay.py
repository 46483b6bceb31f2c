"""Trees of controllers: how workers are divided, and that messages are handed on in order, with actors that are objects here."""

from __future__ import annotations

import asyncio
import random
from concurrent.futures import Future

import pytest

from pliant import remote
from pliant.remote.relay import HUNG, LOST, Relay, split, tree


class Ref:
    """What calling an actor gives."""

    def __init__(self, awaited, loop):
        self.task = asyncio.ensure_future(awaited) if loop else None
        self.done = awaited

    def future(self):
        found: Future = Future()
        if self.task is None:
            found.set_result(self.done) if not isinstance(self.done, Exception) else found.set_exception(self.done)
        else:
            tell = lambda t: found.set_exception(t.exception()) if t.exception() else found.set_result(t.result())
            self.task.add_done_callback(tell)
        return found


class Actor:
    """A handle of an object: `step.remote(...)`."""

    def __init__(self, target):
        self.target = target
        self.step = self

    def remote(self, *args):
        found = self.target(*args)
        return Ref(found, asyncio.iscoroutine(found))


class Leaf:
    def __init__(self, rank, odd=()):
        self.rank, self.odd, self.seen = rank, odd, []

    def __call__(self, message, *parts):
        self.seen.append((message, *parts))
        if self.rank in self.odd:
            return RuntimeError("it ended\nlong ago") if self.rank % 2 else asyncio.sleep(60)
        return message + (b"" if message != b"who" else b"%d" % (self.rank % 3))


@pytest.mark.parametrize("n, fanout", [(1, 2), (5, 2), (64, 64), (65, 64), (1000, 7)])
def test_division(n, fanout):
    first, every = tree(lambda: object(), list(range(n)), fanout, 1.0)
    assert len(first) <= fanout and all(len(children) <= fanout for _, children, *_ in every)
    told = {id(a): (children, ranks, last) for a, children, ranks, last, _ in every}

    def below(node):
        children, ranks, last = told[id(node)]
        found = [[c] if last else below(c) for c in children]
        assert found == ranks
        return [r for rs in found for r in rs]

    assert [r for a in first for r in ([a] if n <= fanout else below(a))] == list(range(n))
    assert [len(g) for g in split(range(10), 4)] == [3, 3, 4]


def made(n, fanout, odd=(), timeout=5.0):
    leaves = [Leaf(r, odd) for r in range(n)]
    relays = []

    def make():
        relays.append(Relay())
        return Actor(relays[-1].step)

    first, every = tree(make, [Actor(leaf) for leaf in leaves], fanout, timeout)
    return leaves, relays, first, every


def test_messages_are_handed_on_in_order():
    async def main():
        leaves, relays, (first, *_), every = made(9, 9 // 3)
        numbers = list(range(20))
        random.Random(0).shuffle(numbers)
        calls = [asyncio.wrap_future(a.remote(0, n, b"%d" % n, [n]).future()) for n in numbers for a in (first, *_)]
        await asyncio.sleep(0)
        for relay, (_, *told) in zip(relays, every, strict=True):
            await relay.join(0, *told)
        await asyncio.gather(*calls)
        assert all(leaf.seen == [(b"%d" % n, n) for n in range(20)] for leaf in leaves)
        late = asyncio.wrap_future(first.remote(1, 1, b"late", []).future())  # of the next epoch, whose first message is not there
        await asyncio.sleep(0.01)
        assert not late.done() and len(leaves[0].seen) == 20
        for relay, (_, *told) in zip(relays, every, strict=True):
            await relay.join(2, *told)
        assert await late == [] and len(leaves[0].seen) == 20, "nobody waits for a message of an epoch that is over"

    asyncio.run(main())


def test_replies_that_are_alike_travel_once():
    async def main():
        _, relays, first, every = made(12, 3)
        for relay, (_, *told) in zip(relays, every, strict=True):
            await relay.join(0, *told)
        for number, message, kinds in ((0, b"nothing", 1), (1, b"who", 3)):
            found = [await asyncio.wrap_future(a.remote(0, number, message, []).future()) for a in first]
            assert all(len(replies) <= kinds for replies in found)
            by_rank = {r: reply for replies in found for reply, ranks in replies for r in ranks}
            assert by_rank == {r: message + (b"%d" % (r % 3) if message == b"who" else b"") for r in range(12)}

    asyncio.run(main())


def test_who_is_lost_and_who_hangs_is_told():
    async def main():
        _, relays, first, every = made(8, 2, odd=(3, 6), timeout=0.05)
        for relay, (_, *told) in zip(relays, every, strict=True):
            await relay.join(0, *told)
        found = [pair for a in first for pair in await asyncio.wrap_future(a.remote(0, 0, b"x", []).future())]
        bad = {tuple(ranks): reply for reply, ranks in found if isinstance(reply, tuple)}
        assert bad == {(3,): (LOST, "it ended"), (6,): (HUNG, "no answer for 0.05 s")}
        assert sorted(r for reply, ranks in found if reply == b"x" for r in ranks) == [0, 1, 2, 4, 5, 7]

    asyncio.run(main())


def test_the_controller_calls_the_first_level_only():
    with remote.mesh(1000, transport="model", fanout=10, recover=False) as mesh:
        sent = mesh.transport.sent
        mesh.flush()
        mesh.issue(["count"])
        mesh.flush()
        assert mesh.transport.sent - sent == 10
    with pytest.raises(ValueError, match="fanout"):
        remote.mesh(2, transport="threads", fanout=1)
