"""How messages reach workers: Ray actors, threads of this process, or nobody (a model of a large mesh).

A transport has `workers`, `send_all(message, parts)`, which returns what `replies` takes to give the reply of each worker, and what
recovery needs. Messages to one worker arrive in the order in which they were sent.
"""

from __future__ import annotations

import importlib
import math
import os
import queue
import threading
import time
import warnings
from typing import Any

from pliant import events
from pliant.remote import wire
from pliant.remote.groups import LOOPBACK, OFF, Board, Gloo, Shared, Threads, slices
from pliant.remote.placements import RemoteError
from pliant.remote.relay import MARGIN, Relay, tree
from pliant.remote.worker import Worker

START = 300.0
"""Seconds in which a process of a worker must have begun."""
LATE = 30.0
"""Seconds after which one that has not begun is spoken of."""
LEVELS = 4
"""The most levels that a tree has."""
OBJECT = 1 << 17
"""From this many bytes on a message lies in Ray's object store once, in place of travelling to each worker."""


class Dead(RemoteError):
    """A worker ended, or does not answer."""

    def __init__(self, rank: int, why: str) -> None:
        super().__init__(f"worker {rank}: {why}")
        self.rank, self.hung = rank, why.startswith("no answer")


def ray() -> Any:
    """The library, which is imported when a mesh is made."""
    try:
        return importlib.import_module("ray")
    except ImportError as e:
        raise RemoteError("pliant.remote runs on Ray, which is not installed: pip install 'pliant[remote]'") from e


class GlooMaker:
    """Makes the group of a worker that is a Ray actor; Ray's own table is where they find each other."""

    def __init__(self, mesh: str, timeout: float, shape: tuple[int, ...]) -> None:
        self.mesh, self.timeout, self.shape = mesh, timeout, shape

    def board(self, epoch: int) -> Board:
        kv = importlib.import_module("ray.experimental.internal_kv")
        space = f"{self.mesh}-{epoch}-"
        return Board(
            lambda key, value: kv._internal_kv_put(space + key, value, namespace="pliant"),
            lambda key: kv._internal_kv_get(space + key, namespace="pliant"),
            self.timeout,
        )

    def __call__(self, rank: int, size: int, epoch: int) -> Any:
        library, board = ray(), self.board(epoch)
        board.set(f"node-{rank}", library.get_runtime_context().get_node_id())
        nodes = {board.get(f"node-{r}") for r in range(size)}
        address = LOOPBACK if len(nodes) == 1 else library.util.get_node_ip_address()
        return Gloo(board, rank, size, self.timeout, address, self.shape)


class RayTransport:
    """Workers that are Ray actors."""

    def __init__(
        self, shape: tuple[int, ...], address: str | None, options: dict[str, Any], init: dict[str, Any], timeout: float,
        fanout: int = 256,
    ) -> None:  # fmt: skip
        self.ray = ray()
        self.workers = workers = math.prod(shape)
        self.started = not self.ray.is_initialized()
        if self.started:
            init = {"include_dashboard": False, "logging_level": "ERROR", **init}
            if address is None:
                init = {"num_cpus": max(workers, os.cpu_count() or 1), "_system_config": {"worker_niceness": 0}, **init}
            self.ray.init(address=address, **init)
        self.timeout = timeout
        self.begun = False
        self.maker = GlooMaker(os.urandom(8).hex(), timeout, shape)
        self.options = {"num_cpus": 1, **options}
        made = self.ray.remote(Worker).options(**{"max_restarts": -1, "max_task_retries": 0, **self.options})
        self.actors = [made.remote(rank, workers) for rank in range(workers)]
        between = self.ray.remote(Relay).options(num_cpus=0, max_restarts=-1, max_task_retries=0, max_concurrency=1000)
        self.first, self.relays = tree(between.remote, self.actors, fanout, timeout)
        self.epoch = self.number = 0

    def send_all(self, message: bytes, parts: tuple = ()) -> list[Any]:
        given = self.ray.put(message) if len(message) >= OBJECT else message
        if not self.relays:
            return [a.step.remote(given, *parts) for a in self.actors]
        self.number += 1
        held = given if isinstance(given, bytes) else [given]
        return [a.step.remote(self.epoch, self.number - 1, held, list(parts)) for a in self.first]

    def replies(self, refs: list[Any], timeout: float) -> list[bytes]:
        """Those of all workers, by rank. Dead names one that is lost or does not answer."""
        if not self.relays:
            return [self.get(rank, ref, timeout) for rank, ref in enumerate(refs)]
        out: list[Any] = [None] * self.workers
        for i, ref in enumerate(refs):
            try:
                found = self.get(-1, ref, timeout + LEVELS * MARGIN)
            except Dead as e:
                if e.hung:
                    self.ray.kill(self.first[i], no_restart=False)
                raise
            for reply, ranks in found:
                if isinstance(reply, tuple):
                    raise Dead(ranks[0] if ranks else -1, reply[1])
                for rank in ranks:
                    out[rank] = reply
        if None in out:
            raise Dead(-1, "an actor between controller and workers was lost")
        return out

    def keep(self, data: bytes) -> Any:
        """Data for all workers, which lie in one place."""
        return self.ray.put(data)

    def get(self, rank: int, reference: Any, timeout: float) -> Any:
        try:
            return self.ray.get(reference, timeout=timeout)
        except self.ray.exceptions.GetTimeoutError:
            raise Dead(rank, f"no answer for {timeout:g} s") from None
        except self.ray.exceptions.RayActorError as e:
            raise Dead(rank, str(e).splitlines()[0] if str(e) else type(e).__name__) from None

    def join(self, epoch: int, timeout: float) -> list[int]:
        """All workers make a group; their process ids. Dead names a worker that does not come."""
        self.await_start(max(START, timeout))
        self.epoch, self.number = epoch, 0
        for ref in [a.join.remote(epoch, *told) for a, *told in self.relays]:
            self.get(-1, ref, timeout)
        found = [a.join.remote(self.maker, epoch) for a in self.actors]
        end, pids, dead = time.monotonic() + self.timeout + 10, [0] * self.workers, None
        waiting = {ref: rank for rank, ref in enumerate(found)}
        while waiting:
            ready, _ = self.ray.wait(list(waiting), timeout=max(1.0, end - time.monotonic()))
            for ref in ready or list(waiting):
                rank = waiting.pop(ref)
                try:
                    pids[rank] = self.get(rank, ref, 1.0)
                except Dead as e:
                    dead = e
                except Exception as e:  # the others waited for one that is gone
                    dead = dead or Dead(rank, f"the group was not made: {e}")
            if dead is not None:
                self.maker.board(epoch).set(OFF, b"")  # nobody waits any longer
        if dead is not None:
            raise dead
        return pids

    def await_start(self, timeout: float) -> None:
        """Until all processes have begun: what is asked of one that Ray is starting again fails at once."""
        began = time.monotonic()
        end, told = began + timeout, self.begun
        for rank, actor in (*enumerate(self.actors), *((-1, a) for a, *_ in self.relays)):
            while True:
                try:
                    patience = self.timeout if told else min(LATE, self.timeout)
                    self.get(rank, actor.ready.remote(), min(patience, max(1.0, end - time.monotonic())))
                    break
                except Dead as e:
                    if not self.begun and time.monotonic() > end:
                        raise RemoteError(self.not_begun(rank, timeout)) from None
                    if time.monotonic() > end or e.hung and self.begun:
                        raise
                    if not told and time.monotonic() > began + LATE:
                        told, text = True, self.not_begun(rank, LATE)
                        events.emit("remote", what="a worker has not begun", worker=rank, text=text)
                        warnings.warn(f"pliant: {text}", UserWarning, stacklevel=2)
                    time.sleep(0.1)
        self.begun = True

    def not_begun(self, rank: int, seconds: float) -> str:
        """Why Ray may not have begun a worker."""
        whole, free = [r.get("CPU", 0.0) for r in (self.ray.cluster_resources(), self.ray.available_resources())]
        wanted = ", ".join(f"{k}={v!r}" for k, v in self.options.items())
        return (
            f"worker {rank} of {self.workers} has not begun for {seconds:g} s: each asks Ray for {wanted}, and of its {whole:g} CPUs "
            f"{free:g} are free. Ask for less with options={{'num_cpus': ...}}, or give the cluster more"
        )

    def restart(self, rank: int, hung: bool) -> None:
        """A worker begins anew, with nothing."""
        if hung:
            self.ray.kill(self.actors[rank], no_restart=False)

    def exported(self, rank: int, n: int, handles: list[int]) -> Any:
        """What a worker has saved, in the object store, where it outlives the worker's process."""
        done, data = self.actors[rank].stored.options(num_returns=2).remote(n, handles)
        self.get(rank, done, self.timeout)  # Dead if it is lost before it has put them there
        return data

    def refill(self, rank: int, n: int, parts: list[Any]) -> Any:
        return self.actors[rank].refill.remote(n, *parts)

    def close(self) -> None:
        if not self.ray.is_initialized():  # at the end of the process
            return
        for a in (*[a for a, *_ in self.relays], *self.actors):
            self.ray.kill(a)
        self.actors = self.first = self.relays = []
        if self.started:
            self.ray.shutdown()


class Reply:
    """The reply of a thread, once it is there."""

    def __init__(self) -> None:
        self.there = threading.Event()
        self.value: Any = None
        self.error: BaseException | None = None


class ThreadTransport:
    """Workers that are threads of this process: for tests, and to try a program without a cluster."""

    def __init__(self, shape: tuple[int, ...], timeout: float) -> None:
        self.shape = shape
        self.workers = workers = math.prod(shape)
        self.timeout = timeout
        self.drawing = threading.Lock()
        self.objects = [Worker(rank, workers, self.drawing) for rank in range(workers)]
        self.queues: list[queue.SimpleQueue] = [queue.SimpleQueue() for _ in range(workers)]
        self.threads = [threading.Thread(target=self.serve, args=(r,), daemon=True, name=f"pliant-worker-{r}") for r in range(workers)]
        for t in self.threads:
            t.start()

    def serve(self, rank: int) -> None:
        while True:
            task = self.queues[rank].get()
            if task is None:
                return
            fn, args, reply = task
            try:
                reply.value = fn(*args)
            except BaseException as e:
                reply.error = e
            reply.there.set()

    def ask(self, rank: int, fn: Any, *args: Any) -> Reply:
        reply = Reply()
        self.queues[rank].put((fn, args, reply))
        return reply

    def send_all(self, message: bytes, parts: tuple = ()) -> list[Reply]:
        return [self.ask(rank, w.step, message, *parts) for rank, w in enumerate(self.objects)]

    def replies(self, refs: list[Reply], timeout: float) -> list[bytes]:
        return [self.get(rank, ref, timeout) for rank, ref in enumerate(refs)]

    def keep(self, data: bytes) -> bytes:
        return data

    def get(self, rank: int, reference: Reply, timeout: float) -> Any:
        if not reference.there.wait(timeout):
            raise Dead(rank, f"no answer for {timeout:g} s")
        if reference.error is not None:
            raise reference.error
        return reference.value

    def join(self, epoch: int, timeout: float) -> list[int]:
        shared = Shared(self.workers, self.timeout)
        parts: dict[tuple[int, int], Shared] = {}

        def group(rank: int, size: int, epoch: int) -> Threads:
            return Threads(shared, rank, [Threads(parts[dim, first], at) for dim, (first, at, _) in enumerate(slices(self.shape, rank))])

        for rank in range(self.workers):
            for dim, (first, _, n) in enumerate(slices(self.shape, rank)):
                parts.setdefault((dim, first), Shared(n, self.timeout))
        found = [self.ask(r, w.join, group, epoch) for r, w in enumerate(self.objects)]
        return [int(self.get(r, f, timeout)) for r, f in enumerate(found)]

    def restart(self, rank: int, hung: bool) -> None:
        self.objects[rank] = Worker(rank, self.workers, self.drawing)

    def exported(self, rank: int, n: int, handles: list[int]) -> Any:
        return self.get(rank, self.ask(rank, self.objects[rank].exported, n, handles), self.timeout)

    def refill(self, rank: int, n: int, parts: list[Any]) -> Any:
        return self.ask(rank, self.objects[rank].refill, n, *parts)

    def close(self) -> None:
        for q in self.queues:
            q.put(None)
        for t in self.threads:
            t.join(5)
        self.objects = []


class ModelTransport:
    """Nobody: replies are empty. The controller does everything that it does for workers, so that its own cost can be measured."""

    def __init__(self, shape: tuple[int, ...], fanout: int = 256) -> None:
        self.workers = math.prod(shape)
        self.first, _ = tree(lambda: None, [None] * self.workers, fanout, 0.0)
        self.sent = self.bytes = 0

    def send(self, rank: int, message: bytes, parts: tuple = ()) -> bytes:
        self.sent += 1
        self.bytes += len(message)
        return message

    def send_all(self, message: bytes, parts: tuple = ()) -> list[bytes]:
        return [self.send(rank, message, parts) for rank in range(len(self.first))]

    def keep(self, data: bytes) -> bytes:
        return data

    def replies(self, refs: list[bytes], timeout: float) -> list[bytes]:
        return [EMPTY] * self.workers

    def join(self, epoch: int, timeout: float) -> list[int]:
        return [0] * self.workers

    def restart(self, rank: int, hung: bool) -> None:
        pass

    def close(self) -> None:
        pass


EMPTY = wire.encode(0, [[], []])
