"""When a worker is lost: all go back to what was last saved, and the messages since are sent again.

`save` has every worker keep copies of what it has. They are put into the cluster's object store, too, where they outlive the process:
pieces that only one worker has (shards, tensors on one worker), and once what is replicated, which is taken from a peer while there is one.
Programs draw random numbers from seeds that travel in the messages, so what is computed again is the same to the last bit.
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
        for _ in range(TRIES):
            while mesh.flying:
                mesh.collect()
            handles, kinds = list(mesh.live), dict(mesh.placements)
            try:
                saved, whole = stored(mesh, n, handles, kinds)
                break
            except Dead as e:  # it saves anew, as all do
                mesh.recover(e)
        else:  # workers are lost again and again: what was saved before still counts, and the next message tries again
            return
    finally:
        mesh.saving = False
    mesh.generation, mesh.saved, mesh.whole, mesh.saved_handles, mesh.kinds, mesh.log = n, saved, whole, handles, kinds, []
    mesh.issue(["forget", n])  # with the next message
    mesh.counts["saves"] += 1


def stored(mesh: Mesh, n: int, handles: list[int], kinds: dict[int, Any]) -> tuple[list[Any] | None, Any]:
    """What was saved, in the cluster's object store: the pieces of each worker, and once what all of them have, if all are lost."""
    own: list[int] = []
    whole: list[int] = []
    for h in handles:
        if h not in mesh.failed:
            (whole if isinstance(kinds.get(h), Replicate) else own).append(h)
    pieces = [mesh.transport.exported(r, n, own) for r in range(mesh.workers)] if own else None
    return pieces, mesh.transport.exported(0, n, whole) if whole else None


def recover(mesh: Mesh, dead: Dead) -> None:
    """Make the mesh whole again. RemoteError where that fails."""
    began = time.time()
    mesh.torn = dead  # some workers may have gone back, others not: until this is done, nothing else is
    lost = {dead.rank: dead.hung} if dead.rank >= 0 else {}
    for _ in range(TRIES):
        mesh.counts["lost_workers"] += len(lost)
        events.emit("remote", what="a worker is lost", worker=dead.rank, text=str(dead))
        try:
            attempt(mesh, lost)
            mesh.torn = None
            mesh.counts["recoveries"] += 1
            events.emit("remote", what="the mesh is whole again", worker=dead.rank, text=f"after {time.time() - began:.2f} s")
            return
        except Dead as e:
            mesh.torn = dead = e
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
    parts: list[Any] = []
    if whole and peers:
        parts.append(mesh.transport.exported(peers[0], mesh.generation, whole))
    elif mesh.whole is not None:
        parts.append(mesh.whole)
    done = []
    for rank in new:
        own = [mesh.saved[rank]] if mesh.saved is not None else []
        done.append((rank, mesh.transport.refill(rank, mesh.generation, [*parts, *own])))
    for rank, ref in done:
        mesh.transport.get(rank, ref, mesh.timeout)
