"""Serving: a module on every worker, requests put together by length, one batch for each worker in turn.

`Server` is an object of the controller: `submit` returns a future. A thread of its own forms batches, so requests of like length share one;
where too many wait, `submit` blocks (backpressure). A batch is one call of the compiled module on one worker.
"""

from __future__ import annotations

import collections
import copy
import itertools
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import torch

from pliant.export import Program
from pliant.jit.compile import compile
from pliant.remote.deployed import Deployed
from pliant.remote.placements import RemoteError

if TYPE_CHECKING:
    from pliant.remote.mesh import Mesh

MOST_OUT = 2
"""Batches that are out for each worker."""


class Server:
    """`model`: a module, of which each worker gets a copy, an exported program, or a function that makes a module.

    Requests are tensors `[length, ...]`; a batch is them padded to the longest.
    `module(batch, lengths)` returns a tensor with a row for each request. A request that is cancelled before its batch leaves is not run.
    `counts`: batches, requests, elements that are padding, how often `submit` blocked, requests that were cancelled.
    `batch`: the most of a batch; `waste`: the share of padding that a batch may have; `wait`: seconds that a request waits for company;
    `queue`: requests that may wait.
    """

    def __init__(
        self,
        mesh: Mesh,
        model: torch.nn.Module | Program | Callable[[], torch.nn.Module],
        *,
        batch: int = 16,
        waste: float = 0.25,
        wait: float = 0.002,
        queue: int = 1024,
    ) -> None:
        self.mesh, self.batch, self.waste, self.wait = mesh, batch, waste, wait
        self.replicas = [worker.put(replica_of(model)) for worker in mesh]
        self.calls = [call_of(m, mesh) for m in self.replicas]
        self.room = threading.Semaphore(queue)
        self.waiting: list[tuple[float, torch.Tensor, Future]] = []
        self.out: collections.deque[tuple[Any, list[Future]]] = collections.deque()
        self.changed = threading.Condition()
        self.closed = False
        self.counts: collections.Counter[str] = collections.Counter()
        self.turn = itertools.cycle(range(len(mesh)))
        self.thread = threading.Thread(target=self.run, daemon=True, name="pliant-server")
        self.thread.start()

    def submit(self, request: torch.Tensor) -> Future:
        """The answer to a request, when it is there. Blocks while too many wait."""
        if not isinstance(request, torch.Tensor) or not request.dim():
            raise TypeError("a request is a tensor with at least one dim, of which the first is its length")
        if not self.room.acquire(blocking=False):
            self.counts["blocked"] += 1
            self.room.acquire()
        answer: Future = Future()
        with self.changed:
            if self.closed:
                self.room.release()
                raise RemoteError("this server is closed")
            self.waiting.append((time.monotonic(), request, answer))
            self.changed.notify()
        return answer

    def __call__(self, request: torch.Tensor) -> torch.Tensor:
        return self.submit(request).result()

    def close(self) -> None:
        """Answer what waits, and end."""
        with self.changed:
            self.closed = True
            self.changed.notify()
        self.thread.join()

    # -- the thread -----------------------------------------------------------------------------------------------------------------
    def run(self) -> None:
        try:
            self.serve()
        except BaseException as e:  # nobody waits for a thread that is no more
            with self.changed:
                self.closed = True
                left = [w[2] for w in self.waiting] + [a for _, answers in self.out for a in answers]
            self.refuse(left, RemoteError(f"the server ended: {type(e).__name__}: {e}"))
            raise

    def serve(self) -> None:
        while True:
            with self.changed:
                while not self.waiting and not self.out and not self.closed:
                    self.changed.wait()
                if self.closed and not self.waiting and not self.out:
                    return
                some = self.chosen()
            if some:
                self.start(some)
            if self.out and (not some or len(self.out) >= MOST_OUT * len(self.mesh)):
                self.finish()
            elif not some:
                time.sleep(self.wait / 4)

    def chosen(self) -> list[tuple[float, torch.Tensor, Future]]:
        """The oldest request and those of its dtype and like sizes, if there are enough of them or it has waited long enough."""
        if not self.waiting:
            return []
        first = self.waiting[0]
        like = lambda t: (t.dtype, t.shape[1:])
        near = sorted((w for w in self.waiting if like(w[1]) == like(first[1])), key=lambda w: abs(w[1].shape[0] - first[1].shape[0]))
        some: list[Any] = []
        for w in near:
            lengths = [x[1].shape[0] for x in (*some, w)]
            if len(some) < self.batch and (not some or 1 - sum(lengths) / max(1, max(lengths) * len(lengths)) <= self.waste):
                some.append(w)
        if len(some) < self.batch and not self.closed and time.monotonic() - first[0] < self.wait:
            return []
        taken = {id(w) for w in some}
        self.waiting = [w for w in self.waiting if id(w) not in taken]
        return some

    def start(self, some: list[tuple[float, torch.Tensor, Future]]) -> None:
        if gone := [w[2] for w in some if not w[2].set_running_or_notify_cancel()]:  # nobody wants these any more
            self.counts["cancelled"] += len(gone)
            self.room.release(len(gone))
            some = [w for w in some if not w[2].cancelled()]
        answers = [w[2] for w in some]
        if not answers:
            return
        try:
            rank = next(self.turn)
            x = torch.nn.utils.rnn.pad_sequence([w[1] for w in some], batch_first=True)
            lengths = torch.tensor([w[1].shape[0] for w in some])
            with torch.no_grad():
                y = self.calls[rank](self.mesh[rank].put(x), self.mesh[rank].put(lengths))
            with self.mesh.lock:
                self.mesh.flush()
            self.out.append((y, answers))
            self.counts["batches"] += 1
            self.counts["requests"] += len(some)
            self.counts["padding"] += int(x.shape[0] * x.shape[1] - lengths.sum())
        except Exception as e:
            self.refuse(answers, e)

    def finish(self) -> None:
        y, answers = self.out.popleft()
        try:
            rows = y.fetched("an answer")
            for row, answer in zip(rows, answers, strict=True):
                answer.set_result(row)
                self.room.release()
        except Exception as e:
            self.refuse(answers, e)

    def refuse(self, answers: list[Future], e: Exception) -> None:
        for answer in answers:
            if not answer.done():
                answer.set_exception(e)
                self.room.release()


def replica_of(model: Any) -> Any:
    if isinstance(model, Program):
        return model
    return (copy.deepcopy(model) if isinstance(model, torch.nn.Module) else model()).eval()


def call_of(module: Any, mesh: Mesh) -> Callable:
    if isinstance(module, Deployed):
        return module

    def call(batch: Any, lengths: Any) -> Any:
        return module(batch, lengths)

    return compile(call, on=mesh, isolate_recompiles=True)
