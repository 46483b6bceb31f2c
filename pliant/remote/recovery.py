"""When a worker is lost: all go back to what was last saved, and the messages since are sent again.

`save` has every worker keep copies of what it has. Pieces that only one worker has (shards, tensors on one worker) are also put into the
cluster's object store, where they outlive the process; what is replicated is taken from a peer. Programs draw random numbers from seeds
that travel in the messages, so what is computed again is the same to the last bit.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from pliant import events
from pliant.remote.placements import RemoteError, Replicate
from pliant.remote.transport import Dead

if TYPE_CHECKING:
    from pliant.remote.mesh import Mesh

TRIES = 5
"""How often in a row a mesh may lose workers before it gives up."""


def save(mesh: Mesh) -> None:
    """What the workers have now is what a recovery starts from. Until all of them have copies, the last ones count."""
    mesh.saving = True
    try:
        mesh.flush()
        n = mesh.generation + 1
        mesh.issue(["save", n])
        mesh.flush()
        while mesh.flying:
            mesh.collect()
        handles = list(mesh.live)
        kinds = dict(mesh.placements)
        own = [h for h in handles if h not in mesh.failed and not isinstance(kinds.get(h), Replicate)]
        saved = [mesh.transport.exported(r, n, own) for r in range(mesh.workers)] if own else None
    finally:
        mesh.saving = False
    mesh.generation, mesh.saved, mesh.saved_handles, mesh.kinds, mesh.log = n, saved, handles, kinds, []
    mesh.issue(["forget", n])  # with the next message
    mesh.counts["saves"] += 1


def recover(mesh: Mesh, dead: Dead) -> None:
    """Make the mesh whole again. RemoteError where that fails."""
    began = time.time()
    lost = {dead.rank: dead.hung} if dead.rank >= 0 else {}
    for _ in range(TRIES):
        mesh.counts["lost_workers"] += len(lost)
        events.emit("remote", what="a worker is lost", worker=dead.rank, text=str(dead))
        try:
            attempt(mesh, lost)
            mesh.counts["recoveries"] += 1
            events.emit("remote", what="the mesh is whole again", worker=dead.rank, text=f"after {time.time() - began:.2f} s")
            return
        except Dead as e:
            dead = e
            lost = {e.rank: e.hung} if e.rank >= 0 else {}
    raise RemoteError(f"the mesh could not be made whole again: {dead}")


def attempt(mesh: Mesh, lost: dict[int, bool]) -> None:
    transport = mesh.transport
    for rank, hung in lost.items():
        transport.restart(rank, hung)
    mesh.epoch += 1
    pids = transport.join(mesh.epoch, mesh.timeout)
    new = [r for r in range(mesh.workers) if pids[r] != mesh.pids[r] or r in lost]
    if mesh.generation:
        refill(mesh, new)
    mesh.pids = pids
    programs = list(mesh.sent.values())  # a new worker has none
    restored = mesh.transport.send_all(mesh.encoded([*programs, ["restore", mesh.generation]]))
    transport.replies(restored, mesh.timeout)
    for message in mesh.log:
        message.refs = transport.send_all(message.data, message.parts)
        mesh.counts["messages"] += mesh.workers
        mesh.counts["bytes"] += len(message.data) * mesh.workers
        if message.replies is not None:
            message.again = True
    mesh.flying.clear()
    mesh.flying.extend(mesh.log)


def refill(mesh: Mesh, new: list[int]) -> None:
    """Give workers that begin anew what had been saved."""
    whole = [h for h in mesh.saved_handles if isinstance(mesh.kinds.get(h), Replicate)]
    peers = [r for r in range(mesh.workers) if r not in new]
    if whole and not peers:
        raise RemoteError("all workers are lost, and with them what was replicated: go on from a checkpoint")
    parts: list[Any] = []
    if whole:
        parts.append(mesh.transport.exported(peers[0], mesh.generation, whole))
    done = []
    for rank in new:
        own = [mesh.saved[rank]] if mesh.saved is not None else []
        done.append((rank, mesh.transport.refill(rank, mesh.generation, [*parts, *own])))
    for rank, ref in done:
        mesh.transport.get(rank, ref, mesh.timeout)
