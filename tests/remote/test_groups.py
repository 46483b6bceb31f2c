"""Groups of workers over gloo, here in threads of one process: collectives, what they listen on, and what ends a wait for a lost one."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.distributed as dist

from pliant.remote import collectives as c
from pliant.remote.groups import LOOPBACK, OFF, Board, Gloo
from pliant.remote.placements import RemoteError


def in_group(size, fn):
    store = dist.HashStore()
    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(lambda rank: fn(Gloo(store, rank, size, 20)), range(size)))


@pytest.mark.parametrize("n", [0, 1, 3, 7])
def test_collectives(n):
    xs = [torch.arange(n * 2.0).reshape(n, 2) * (r + 1) for r in range(3)]
    found = in_group(3, lambda g: (g.all_reduce(xs[g.rank], "sum"), g.reduce_scatter(c.pieces_of(xs[g.rank], 0, n, 1, 3)), g.moved))
    total = sum(xs)
    assert all(torch.equal(whole, total) for whole, _, _ in found)
    assert torch.equal(torch.cat([piece for _, piece, _ in found]), total)
    assert all(moved == x.numel() * 4 + (x.numel() - piece.numel()) * 4 for x, (_, piece, moved) in zip(xs, found, strict=True))


def listeners() -> set[tuple[str, str]]:
    """(address in hexadecimal, inode) of the sockets on which this process listens."""
    mine = set()
    for fd in os.listdir("/proc/self/fd"):
        try:
            mine.add(os.readlink(f"/proc/self/fd/{fd}"))
        except OSError:
            continue
    out = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with open(table) as f:
            for line in f.readlines()[1:]:
                words = line.split()
                if words[3] == "0A" and f"socket:[{words[9]}]" in mine:
                    out.add((words[1].split(":")[0], words[9]))
    return out


def test_it_listens_on_one_interface():
    """Where all workers are on one machine, nobody else can reach them."""
    before = listeners()
    group = Gloo(dist.HashStore(), 0, 1, 5)
    new = listeners() - before
    assert new and {address for address, _ in new} == {"0100007F"} and LOOPBACK == "127.0.0.1"
    assert group.size == 1


def test_nobody_waits_for_a_worker_that_is_known_to_be_lost():
    table: dict[str, bytes] = {}
    board = Board(table.__setitem__, table.get, 60)
    threading.Timer(0.1, board.set, (OFF, b"")).start()
    with pytest.raises(RemoteError, match="lost"):
        board.get("1/1")
