"""Groups of workers: collectives over gloo between processes, and over shared memory between threads (tests, and one-process meshes)."""

from __future__ import annotations

import datetime
import functools
import queue
import threading
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from pliant.remote.placements import RemoteError

REDUCE: dict[str, Any] = {"sum": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX, "min": dist.ReduceOp.MIN}
MOST_SENDS = 64
OFF = "off"
LOOK = 0.2
"""Seconds between two looks at `OFF`."""
LOOPBACK = "127.0.0.1"


class GroupBroken(RemoteError):
    """A collective could not be done: another worker ended, or did not come."""


def unbroken(fn: Callable) -> Callable:
    """What gloo raises is that the group is broken: from then on everything raises, where gloo might wait for its timeout again."""

    @functools.wraps(fn)
    def call(group: Any, *args: Any) -> Any:
        if group.broken:
            raise GroupBroken(group.broken)
        try:
            return fn(group, *args)
        except RuntimeError as e:
            group.broken = str(e).splitlines()[0]
            raise GroupBroken(group.broken) from e

    return call


def meets(fn: Callable) -> Callable:
    """Where a worker waits for others: how long, and if a timeline is wanted, when."""

    @functools.wraps(fn)
    def call(group: Any, *args: Any) -> Any:
        if group.meeting:  # within another one
            return fn(group, *args)
        group.meeting, began = True, time.time()
        try:
            return fn(group, *args)
        finally:
            group.meeting, ended = False, time.time()
            group.waiting += ended - began
            if group.spans is not None:
                group.spans.append((f"{fn.__name__} {args[0]}" if fn.__name__ == "receive" else fn.__name__, began, ended))

    return call


class Board(dist.Store):
    """Where the processes of a group find each other: a table that `put` writes and `read` reads, of the cluster's own.

    Whoever writes `OFF` there tells those who wait that one of them will not come.
    """

    def __init__(self, put: Callable[[str, bytes], None], read: Callable[[str], bytes | None], timeout: float) -> None:
        super().__init__()
        self.put_, self.read, self.seconds = put, read, timeout

    def set(self, key: str, value: Any) -> None:
        self.put_(key, value if isinstance(value, bytes) else value.encode())

    def get(self, key: str) -> bytes:
        self.wait([key], datetime.timedelta(seconds=self.seconds))
        found = self.read(key)
        assert found is not None
        return found

    def wait(self, keys: Any, timeout: Any = None) -> None:
        seconds = self.seconds if timeout is None else timeout.total_seconds()
        pause = threading.Event()
        for key in keys:
            began = looked = time.monotonic()
            while self.read(key) is None:
                now = time.monotonic()
                if now - began > seconds:
                    raise RemoteError(f"a worker did not come ({key} after {seconds:.0f} s)")
                if now - looked > LOOK:
                    looked = now
                    if self.read(OFF) is not None:
                        raise RemoteError("a worker is lost while the group is made")
                pause.wait(0.005)


def slices(shape: tuple[int, ...], rank: int) -> list[tuple[int, int, int]]:
    """(first worker, position, size) of a slice for each dim of a mesh: the workers that differ from `rank` along that dim only."""
    out, stride = [], 1
    for size in reversed(shape):
        at = rank // stride % size
        out.append((rank - at * stride, at, size))
        stride *= size
    return out[::-1]


class Whole:
    """A group of all workers. `parts`: those along each dim of a mesh that has several."""

    parts: list[Any]
    bytes = 0
    waiting = 0.0
    meeting = False
    spans: list[tuple[str, float, float]] | None = None

    def along(self, mesh_dim: int) -> Any:
        return self.parts[mesh_dim] if self.parts else self

    @property
    def moved(self) -> int:
        """Bytes that this worker has sent."""
        return self.bytes + sum(p.bytes for p in self.parts)

    @property
    def waited(self) -> float:
        """Seconds in which this worker was in collectives, or took what another one sends."""
        return self.waiting + sum(p.waiting for p in self.parts)

    def timed(self, spans: list[tuple[str, float, float]] | None) -> None:
        """From now on, when that was is written down."""
        for group in (self, *self.parts):
            group.spans = spans


class Gloo(Whole):
    """Collectives of `size` processes. `address`: of the interface on which it listens for the others, and no other."""

    def __init__(self, store: Any, rank: int, size: int, timeout: float, address: str = LOOPBACK, shape: tuple[int, ...] = ()) -> None:
        self.rank, self.size = rank, size
        self.parts = []
        self.broken = ""  # why, if it is
        self.sends: list[Any] = []
        gloo: Any = dist.ProcessGroupGloo
        options = gloo._Options()
        options._devices = [gloo.create_device(hostname=address)]
        options._timeout = datetime.timedelta(seconds=timeout)
        self.pg: Any = gloo(dist.PrefixStore("all", store) if len(shape) > 1 else store, rank, size, options)
        for dim, (first, at, n) in enumerate(slices(shape, rank) if len(shape) > 1 else ()):
            self.parts.append(Gloo(dist.PrefixStore(f"{dim}-{first}", store), at, n, timeout, address))

    @meets
    @unbroken
    def all_reduce(self, x: torch.Tensor, op: str, owned: bool = False) -> torch.Tensor:
        if not x.numel():
            return x.clone()
        if x.dtype is torch.bool:
            return self.all_reduce(x.to(torch.uint8), op).to(torch.bool)
        y = x if owned else x.clone()
        options = dist.AllreduceOptions()
        options.reduceOp = REDUCE[op]
        self.pg.allreduce([y], options).wait()
        self.bytes += y.numel() * y.element_size()
        return y

    @meets
    @unbroken
    def all_gather(self, x: torch.Tensor) -> list[torch.Tensor]:
        if x.dtype is torch.bool:
            return [t.to(torch.bool) for t in self.all_gather(x.to(torch.uint8))]
        out = [torch.empty_like(x) for _ in range(self.size)]
        if x.numel():
            self.pg.allgather([out], [x]).wait()
        self.bytes += x.numel() * x.element_size()
        return out

    @meets
    @unbroken
    def reduce_scatter(self, pieces: list[torch.Tensor]) -> torch.Tensor:
        own, sizes = pieces[self.rank], [p.numel() for p in pieces]
        if not any(sizes):
            return own.clone()
        parts = own.new_empty(self.size, own.numel())
        flat = torch.cat([p.reshape(-1) for p in pieces])
        self.pg.alltoall_base(parts.view(-1), flat, [own.numel()] * self.size, sizes, dist.AllToAllOptions()).wait()
        self.bytes += (flat.numel() - own.numel()) * flat.element_size()
        return added(list(parts)).reshape(own.shape)

    @unbroken
    def post(self, data: torch.Tensor, to: int) -> None:
        """Send bytes whose number the other worker knows; returns at once."""
        self.sends.append((self.pg.send([data], to, 3), data))
        self.bytes += data.numel()
        while len(self.sends) > MOST_SENDS:
            self.sends.pop(0)[0].wait()

    @unbroken
    def expect(self, n: int, source: int) -> Callable[[], torch.Tensor]:
        """Begin to take bytes that another worker posts; what waits for them."""
        data = torch.empty(n, dtype=torch.uint8)
        work = self.pg.recv([data], source, 3)

        @meets
        @unbroken
        def receive(group: Any, source: int) -> torch.Tensor:
            work.wait()
            return data

        return functools.partial(receive, self, source)

    @unbroken
    def send(self, data: bytes, to: int) -> None:
        """Returns at once; the data go when the other worker takes them."""
        t = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        n = torch.tensor([t.numel()])
        self.sends += [(self.pg.send([n], to, 1), n), (self.pg.send([t], to, 2), t)]
        self.bytes += len(data)
        while len(self.sends) > MOST_SENDS:
            self.sends.pop(0)[0].wait()

    @meets
    @unbroken
    def receive(self, source: int) -> bytes:
        n = torch.empty(1, dtype=torch.int64)
        self.pg.recv([n], source, 1).wait()
        t = torch.empty(int(n), dtype=torch.uint8)
        self.pg.recv([t], source, 2).wait()
        return t.numpy().tobytes()


def added(parts: list[torch.Tensor]) -> torch.Tensor:
    """Their sum, in the order of the ranks, in memory of its own."""
    total = parts[0].clone()
    for part in parts[1:]:
        total += part
    return total


class Shared:
    """What the threads of a group have in common."""

    def __init__(self, size: int, timeout: float) -> None:
        self.size, self.timeout = size, timeout
        self.slots: list[Any] = [None] * size
        self.barrier = threading.Barrier(size)
        self.boxes: dict[tuple[int, int], queue.Queue] = {(a, b): queue.Queue() for a in range(size) for b in range(size)}


class Threads(Whole):
    """Collectives of threads of one process."""

    def __init__(self, shared: Shared, rank: int, parts: list[Threads] | None = None) -> None:
        self.shared, self.rank, self.size = shared, rank, shared.size
        self.parts = parts or []

    def exchanged(self, x: torch.Tensor) -> list[torch.Tensor]:
        s = self.shared
        try:
            s.slots[self.rank] = x
            s.barrier.wait(s.timeout)
            found = [t.clone() for t in s.slots]
            s.barrier.wait(s.timeout)
        except threading.BrokenBarrierError:
            raise GroupBroken("a worker did not come to a collective") from None
        return found

    @meets
    def all_reduce(self, x: torch.Tensor, op: str, owned: bool = False) -> torch.Tensor:
        found = self.exchanged(x)
        if any(t.shape != x.shape or t.dtype is not x.dtype for t in found):
            raise RemoteError(f"an all-reduce of tensors of different sizes: {[tuple(t.shape) for t in found]}")
        out = found[0]
        for t in found[1:]:
            out = out + t if op == "sum" else torch.maximum(out, t) if op == "max" else torch.minimum(out, t)
        return out.to(x.dtype)

    @meets
    def all_gather(self, x: torch.Tensor) -> list[torch.Tensor]:
        found = self.exchanged(x)
        if any(t.shape != x.shape for t in found):
            raise RemoteError(f"an all-gather of tensors of different sizes: {[tuple(t.shape) for t in found]}")
        return found

    @meets
    def reduce_scatter(self, pieces: list[torch.Tensor]) -> torch.Tensor:
        s = self.shared
        try:
            s.slots[self.rank] = pieces
            s.barrier.wait(s.timeout)
            mine = [given[self.rank].clone() for given in s.slots]
            s.barrier.wait(s.timeout)
        except threading.BrokenBarrierError:
            raise GroupBroken("a worker did not come to a collective") from None
        if any(t.shape != pieces[self.rank].shape for t in mine):
            raise RemoteError(f"a reduce-scatter of tensors of different sizes: {[tuple(t.shape) for t in mine]}")
        return added(mine)

    def send(self, data: bytes, to: int) -> None:
        self.shared.boxes[self.rank, to].put(data)

    @meets
    def receive(self, source: int) -> bytes:
        return self.shared.boxes[source, self.rank].get(timeout=self.shared.timeout)

    def post(self, data: torch.Tensor, to: int) -> None:
        self.shared.boxes[self.rank, to].put(data)

    def expect(self, n: int, source: int) -> Callable[[], torch.Tensor]:
        return lambda: self.receive(source)
