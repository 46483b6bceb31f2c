"""One program that drives many machines: a mesh of workers, tensors on it, captured graphs sent there (docs/remote.md).

    from pliant import remote
    mesh = remote.mesh(workers=4)
    model = mesh.replicate(model)
    step = pliant.compile(step, on=mesh)
    loss = step(mesh.shard(x), mesh.shard(y))

Nothing here imports Ray until a mesh is made.
"""

from __future__ import annotations

import math
from typing import Any

from pliant.remote import eager
from pliant.remote.failed import Failed
from pliant.remote.mesh import Mesh
from pliant.remote.partition import Refused
from pliant.remote.pipeline_parallel import Pipeline
from pliant.remote.placements import OnWorker, Placement, Placements, RemoteError, Replicate, Shard
from pliant.remote.serve import Server
from pliant.remote.tensor import RemoteTensor
from pliant.remote.timeline import timeline
from pliant.remote.transport import ModelTransport, RayTransport, ThreadTransport

TRANSPORTS = ("ray", "threads", "model")


def mesh(
    workers: int | None = None,
    *,
    shape: tuple[int, ...] | None = None,
    names: tuple[str, ...] | None = None,
    address: str | None = None,
    transport: str = "ray",
    options: dict[str, Any] | None = None,
    init: dict[str, Any] | None = None,
    window: int = 32,
    timeout: float = 300.0,
    lineage: int = 512,
    recover: bool = True,
    fanout: int = 256,
) -> Mesh:
    """A mesh of `workers`; or of several dims, `shape=(2, 4), names=("data", "tensor")`, workers numbered row by row.

    Each is a Ray actor. Ray is started on this machine unless it runs in this process or `address` names a cluster. `options`: of the
    actors, as Ray takes them (`num_cpus`, `resources`, `scheduling_strategy`); `init`: of `ray.init`. `window`: how many messages the
    controller may be ahead. `timeout`: seconds after which a worker that does not answer is lost. `lineage`: messages that are kept for
    recovery, before the workers copy what they have; `recover=False`: none are, and a lost worker is an error. `fanout`: from more
    workers than that on, messages go through a tree of actors, none of which calls more.
    `transport`: "ray"; "threads", workers in this process; "model", nobody (for measurements of the controller).
    """
    if shape is None:
        if type(workers) is not int or workers < 1:
            raise ValueError(f"workers= is a number from 1 up, not {workers!r}")
        shape = (workers,)
    if not shape or any(type(n) is not int or n < 1 for n in shape) or workers not in (None, math.prod(shape)):
        raise ValueError(f"shape= has a number from 1 up for each dim, whose product is workers= if both are told, not {shape!r}")
    dims = tuple(names) if names is not None else tuple(f"dim{i}" for i in range(len(shape)))
    if len(dims) != len(shape) or len(set(dims)) != len(dims) or not all(type(n) is str and n for n in dims):
        raise ValueError(f"names= has a name for each dim of the mesh, not {names!r}")
    if type(fanout) is not int or fanout < 2:
        raise ValueError(f"fanout= is a number from 2 up, not {fanout!r}")
    if transport not in TRANSPORTS:
        raise ValueError(f"transport= is one of {', '.join(TRANSPORTS)}, not {transport!r}")
    if (options or {}).get("num_gpus"):
        raise RemoteError("workers compute on processors: GPUs, and NCCL between them, are not wired up")
    made: Any
    if transport == "ray":
        made = RayTransport(tuple(shape), address, dict(options or {}), dict(init or {}), timeout, fanout)
    elif transport == "threads":
        made = ThreadTransport(tuple(shape), timeout)
    else:
        made = ModelTransport(tuple(shape), fanout)
    return Mesh(made, window=window, timeout=timeout, lineage=lineage, recover=recover, shape=tuple(shape), names=dims)


__all__ = [
    "Failed", "Mesh", "OnWorker", "Pipeline", "Placement", "Placements", "Refused", "RemoteError", "RemoteTensor", "Replicate",
    "Server", "Shard", "eager", "mesh", "timeline",
]  # fmt: skip
