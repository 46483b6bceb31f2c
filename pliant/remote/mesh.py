"""The controller's side of a mesh: commands in order, one message for each worker, replies later.

Commands are collected (`issue`) and leave together, when a graph is called, a value is fetched, or many have come together. The controller
runs ahead of the workers, at most `window` messages. Every message is kept until the mesh has saved itself again (`lineage`), so that lost
workers can be refilled: all go back to what was saved, and the messages since are sent again (`recovery.py`).
"""

from __future__ import annotations

import collections
import functools
import itertools
import threading
import time
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from pliant import events
from pliant.export import Program
from pliant.remote import checkpoint, recovery, wire
from pliant.remote.deployed import Deployed
from pliant.remote.failed import Failed, Line, Why, failed
from pliant.remote.placements import OnWorker, Placement, Placements, RemoteError, Replicate, Shard, cuts_of, each, pieces, together
from pliant.remote.serve import Server
from pliant.remote.tensor import Handle, Moved, RemoteTensor, Sent
from pliant.remote.transport import Dead

MANY = 256
"""Commands that wait for company."""
LARGE = 1 << 16
"""Tensors of more bytes travel beside the message, once."""
UNTOLD = Why("", "another worker could not go on")


@dataclass(slots=True, eq=False)
class Message:
    """Commands that left together. `answers`: by command number, for those that somebody waits for."""

    seq: int
    data: bytes
    parts: tuple
    refs: list[Any]
    writes: list[tuple[int, list[int], list[int], Line | None]]  # (number of a command, handles that it reads and makes, where it was)
    at: float
    replies: list[Any] | None = None
    again: bool = False  # sent again: what it said is known
    tags: list[str] = field(default_factory=list)


def become(t: torch.Tensor, x: RemoteTensor, mesh: Mesh, name: str) -> None:
    """The object `t` is `x` from now on, its gradient with it."""
    if t is x:
        return
    x.requires_grad_(t.requires_grad)
    grad = mesh.placed(t.grad, x.placement) if t.is_leaf and t.grad is not None else None
    if isinstance(t, RemoteTensor) and (t.stride(), t.storage_offset()) == (x.stride(), x.storage_offset()):
        t.handle, t.placement = x.handle, x.placement
        if grad is not None:
            t.grad = grad
        return
    if grad is not None:
        x.grad = grad
    try:
        torch.utils.swap_tensors(t, x)
    except RuntimeError as e:
        why = "something (a function compiled and run before, for one) knows this object" if "weakref" in str(e) else str(e)
        raise RemoteError(f"{name} cannot be put on a mesh in place: {why}. Put a copy there (copy.deepcopy), or do it before.") from e


class Worker:
    """`mesh[i]`: one worker, to put tensors and modules on."""

    def __init__(self, mesh: Mesh, rank: int) -> None:
        self.mesh, self.rank = mesh, rank

    def put(self, value: Any) -> Any:
        """A tensor, or a module in place, with all of its data on this worker. A remote tensor is moved."""
        if isinstance(value, RemoteTensor):
            return value.to_worker(self.rank)
        return self.mesh.placed(value, OnWorker(self.rank))


class Mesh:
    """Workers that one controller drives. Made by `pliant.remote.mesh`; closed by `close`, by `with`, or when it is garbage."""

    backend = "remote"

    def __init__(
        self, transport: Any, *, window: int = 32, timeout: float = 300.0, lineage: int = 512, recover: bool = True,
        shape: tuple[int, ...] = (), names: tuple[str, ...] = (),
    ) -> None:  # fmt: skip
        self.transport = transport
        self.workers = transport.workers
        self.shape = shape or (self.workers,)
        self.names = names
        self.window, self.timeout, self.lineage, self.recovers = window, timeout, lineage, recover
        self.ids = itertools.count(1)
        self.live: dict[int, None] = {}
        self.dead: collections.deque[int] = collections.deque()
        self.commands: list[Any] = []
        self.tensors: list[torch.Tensor] = []
        self.parts: list[Any] = []
        self.effects: list[tuple[int, list[int], list[int], Line | None]] = []
        self.tags: list[str] = []
        self.seq = 0
        self.flying: collections.deque[Message] = collections.deque()
        self.log: list[Message] = []
        self.failed: dict[int, Why] = {}  # handle -> why it has no value
        self.placements: dict[int, Placement] = {}
        self.error: tuple[int, str, str, str] | None = None  # (command, kind, words, line) of the first that nobody was told yet
        self.copied: collections.Counter[int] = collections.Counter()  # memory -> views of it that are copies: it may not be written
        self.sent: dict[str, list] = {}  # programs that the workers have, as they were sent
        self.plans: dict[Any, Any] = {}
        self.counts: collections.Counter[str] = collections.Counter()
        self.times: list[tuple[str, float, float]] = []
        self.timed = False
        self.lock = threading.RLock()
        self.epoch = 0
        self.closed = False
        self.generation = 0  # how often the workers have saved what they have
        self.saving = False
        self.saved: list[Any] | None = None  # what only one worker has, as it was saved last
        self.whole: Any = None  # and what all of them have
        self.torn: Dead | None = None  # why a recovery was begun that has not been done
        self.saved_handles: list[int] = []
        self.kinds: dict[int, Placement] = {}  # their placements
        self.pids = self.transport.join(self.epoch, timeout)
        self.finalizer = weakref.finalize(self, transport.close)

    # -- what users call ----------------------------------------------------------------------------------------------------------
    @property
    def ndim(self) -> int:
        """The number of its dims."""
        return len(self.shape)

    def __getitem__(self, rank: int | tuple[int, ...]) -> Worker:
        if isinstance(rank, tuple):
            if len(rank) != self.ndim or not all(0 <= i < n for i, n in zip(rank, self.shape, strict=True)):
                raise IndexError(f"this mesh has the shape {self.shape}")
            rank = self.rank(rank)
        if not -self.workers <= rank < self.workers:
            raise IndexError(f"this mesh has {self.workers} workers")
        return Worker(self, rank % self.workers)

    def __len__(self) -> int:
        return self.workers

    def __iter__(self) -> Iterator[Worker]:
        return (self[r] for r in range(self.workers))

    def __enter__(self) -> Mesh:
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        """What was issued is done before the workers end, and what failed is told."""
        try:
            if kind is None and not self.closed:
                self.synchronize()
        finally:
            self.close()

    def rank(self, at: tuple[int, ...]) -> int:
        """The number of the worker at these coordinates."""
        found = 0
        for i, n in zip(at, self.shape, strict=True):
            found = found * n + i
        return found

    def shard(self, tensor: torch.Tensor, dim: int = 0, along: str | int | None = None) -> RemoteTensor:
        """The tensor, cut along `dim`: each worker gets its piece, as `torch.chunk` cuts.

        `along`: the dim of the mesh over whose workers it is cut, where the mesh has several; along the others it is replicated.
        """
        if not isinstance(tensor, torch.Tensor) or not tensor.dim():
            raise TypeError("mesh.shard needs a tensor with at least one dim")
        if not -tensor.dim() <= dim < tensor.dim():
            raise IndexError(f"a tensor with {tensor.dim()} dims has no dim {dim}")
        if along is None and self.ndim > 1:
            raise TypeError(f"this mesh has the dims {', '.join(map(str, self.names))}: mesh.shard needs along= one of them")
        cut = Shard(dim % tensor.dim())
        return self.placed(tensor, cut if along is None else self.placement({along: cut}))

    def distribute(self, value: Any, placement: Any) -> Any:
        """A tensor, or a module in place, as `placement` says.

        That is a placement, or for a mesh of several dims one for each of them, in order or by name (those that are not named: replicated).
        """
        return self.placed(value, self.placement(placement))

    def placement(self, told: Any) -> Placement:
        """What a user says of a placement, as it is kept."""
        if isinstance(told, dict):
            names: dict[Any, int] = {n: i for table in (range(self.ndim), self.names) for i, n in enumerate(table)}
            if unknown := [n for n in told if n not in names]:
                raise KeyError(f"this mesh has no dim {unknown[0]!r}, but {', '.join(map(str, self.names or range(self.ndim)))}")
            by_dim = {names[n]: p for n, p in told.items()}
            told = [by_dim.get(i, Replicate()) for i in range(self.ndim)]
        if isinstance(told, Placements):
            told = told.of
        if isinstance(told, (list, tuple)):
            if len(told) != self.ndim or not all(isinstance(p, (Replicate, Shard)) for p in told):
                raise ValueError(f"a placement on this mesh is {self.ndim} of Replicate and Shard, not {told!r}")
            return together(tuple(told))
        if isinstance(told, (Replicate, OnWorker)) or (isinstance(told, Shard) and self.ndim == 1):
            return told
        if isinstance(told, Shard):
            raise ValueError(f"{told} on a mesh of {self.ndim} dims: say along which, as {{{(self.names or (0,))[0]!r}: {told}}}")
        raise TypeError(f"a placement is Replicate, Shard or OnWorker, or one for each dim of the mesh, not {told!r}")

    def replicate(self, value: Any) -> Any:
        """A tensor, all of it on every worker; or a module, whose parameters and buffers are put there, in place."""
        return self.placed(value, Replicate())

    def place(self, module: torch.nn.Module, plan: dict[str, Any], rest: Any = None) -> torch.nn.Module:
        """A module in place: each parameter and buffer as `plan` says, by the end of its name; others as `rest`, or replicated.

        Placements are told as to `distribute`.
        """
        unused = set(plan)

        def of(name: str) -> Placement:
            for end, placement in plan.items():
                if name == end or name.endswith("." + end):
                    unused.discard(end)
                    return self.placement(placement)
            return Replicate() if rest is None else self.placement(rest)

        self.module(module, of)
        if unused:
            raise KeyError(f"no parameter or buffer of {type(module).__name__} is called {', '.join(sorted(unused))}")
        return module

    def placed(self, value: Any, placement: Placement) -> Any:
        if isinstance(value, torch.nn.Module):
            return self.module(value, lambda name: placement)
        if isinstance(value, RemoteTensor):
            history = value.requires_grad and torch.is_grad_enabled()
            return Moved.apply(value, self, placement) if history else self.moved(value, placement)
        if isinstance(value, Program):
            return Deployed(value, lambda name, t: self.placed(t.detach(), placement))
        if not isinstance(value, torch.Tensor):
            raise TypeError(f"a tensor, a module or an exported program can be put on a mesh, not a {type(value).__name__}")
        if value.layout is not torch.strided or value.is_quantized or value.dtype not in wire.NAMES:
            raise RemoteError(f"a {value.layout} tensor of {value.dtype} cannot be put on a mesh")
        if value.device.type != "cpu":
            raise RemoteError(f"a tensor on {value.device} cannot be put on a mesh, whose workers compute on processors")
        if value.grad_fn is not None and torch.is_grad_enabled():  # (a leaf is a leaf there)
            return Sent.apply(value, self, placement)
        x = self.put(value.detach(), placement)
        if isinstance(value, torch.nn.Parameter):
            return torch.nn.Parameter(x, value.requires_grad)
        return x.requires_grad_(value.requires_grad) if value.is_floating_point() or value.is_complex() else x

    def module(self, module: torch.nn.Module, of: Any) -> torch.nn.Module:
        """Its parameters and buffers stay the objects that they are, for what else holds them (another module, an optimizer)."""
        done: dict[int, torch.Tensor] = {}
        recurrent = [m for m in module.modules() if isinstance(m, torch.nn.RNNBase) and hasattr(m, "_flat_weight_refs")]
        for m in recurrent:
            m._flat_weight_refs = []  # weak references of its own to the objects, which stay
        try:
            with torch.no_grad():
                self.become_remote(module, of, done)
        finally:
            for m in recurrent:
                m._flat_weight_refs = [None if w is None else weakref.ref(w) for w in m._flat_weights]
        return module

    def become_remote(self, module: torch.nn.Module, of: Any, done: dict[int, torch.Tensor]) -> None:
        for prefix, m in module.named_modules():
            for table in (m._parameters, m._buffers):
                for name, t in table.items():
                    if t is not None and id(t) not in done:
                        done[id(t)] = t
                        path = f"{prefix}.{name}" if prefix else name
                        become(t, self.placed(t, of(path)), self, path)

    def synchronize(self) -> None:
        """Wait until the workers have done everything. Raises what failed, if nobody was told yet."""
        with self.lock:
            self.flush()
            while self.flying:
                self.collect()
            self.tell()

    def stats(self) -> dict[str, Any]:
        """Counts of the controller, and a list with those of each worker. `leaked`: tensors that workers hold and nobody has handles of."""
        with self.lock:
            self.flush()  # what nobody holds any more
            self.issue(["count"])
            answers = self.answered(self.flush())
            workers = [a[-1] for a in answers]
            leaked = sum(w["tensors"] for w in workers) - sum(
                1 if isinstance(self.placements.get(h), OnWorker) else self.workers for h in self.live if h not in self.failed
            )
            return {
                **dict(self.counts), "handles": len(self.live), "in_flight": len(self.flying), "lineage": len(self.log),
                "plans": len(self.plans), "epoch": self.epoch, "leaked": max(leaked, 0), "workers": workers,
            }  # fmt: skip

    def checkpoint(self, path: Any, state: Any) -> None:
        """Write `state` to a file, for a mesh of any size: a nest of modules, optimizers, schedulers, pipelines, tensors, numbers."""
        checkpoint.write(path, state)

    def restore(self, path: Any, state: Any) -> None:
        """Put what `checkpoint` wrote into `state`. Optimizers may be new ones."""
        checkpoint.read(path, state)

    def serve(self, program: Any, **options: Any) -> Server:
        """A pool of replicas, one on each worker, behind one queue; `options` as for `remote.Server`.

        `program`: a module (each worker gets a copy), an exported program, or a function that makes a module.
        """
        return Server(self, program, **options)

    def close(self) -> None:
        """End the workers. Remote tensors of this mesh have no values any more."""
        if not self.closed:
            self.closed = True
            self.finalizer()

    # -- commands -------------------------------------------------------------------------------------------------------------------
    def issue(self, command: list, reads: list[int] | None = None, makes: list[int] | None = None, line: Line | None = None) -> int:
        """A command for all workers, behind those before it; its number. `line`: of the user's, where the workers do not know it."""
        if self.closed:
            raise RemoteError("this mesh is closed")
        seq = self.seq + len(self.commands)
        if makes or reads:
            self.effects.append((seq, reads or [], makes or [], line))
        self.commands.append(command)
        if len(self.commands) >= MANY:
            self.flush()
        return seq

    def flush(self) -> Message | None:
        """Send what was issued. One message for each worker."""
        self.whole_again()
        dead = []
        while self.dead:
            dead.append(self.dead.popleft())
        if dead:
            self.commands.append(["free", dead])
            for h in dead:
                self.placements.pop(h, None)
                self.failed.pop(h, None)
        if not self.commands:
            return self.flying[-1] if self.flying else None
        began = time.time()
        data = wire.encode(self.seq, self.commands, self.tensors)
        message = Message(self.seq, data, tuple(self.parts), [], self.effects, began)
        self.seq += len(self.commands)
        self.commands, self.tensors, self.parts, self.effects = [], [], [], []
        message.refs = self.transport.send_all(data, message.parts)
        self.counts["messages"] += self.workers
        self.counts["bytes"] += len(data) * self.workers
        self.flying.append(message)
        if self.recovers:
            self.log.append(message)
        if self.timed:
            self.times.append(("send", began, time.time()))
        while len(self.flying) > self.window:
            self.collect()
        if self.recovers and len(self.log) > self.lineage and not self.saving:
            self.save()
        return message

    def encoded(self, commands: list[Any]) -> bytes:
        """A message beside the order of commands."""
        return wire.encode(-1, commands)

    def collect(self) -> None:
        """Wait for the replies to the oldest message that is out."""
        self.whole_again()
        message = self.flying[0]
        began = time.time()
        try:
            found = self.transport.replies(message.refs, self.timeout)
            known = {reply: wire.decode(reply) for reply in set(found)}  # most are alike
            replies = [known[reply] for reply in found]
        except Dead as e:
            if not self.recovers:
                raise
            self.recover(e)
            return
        if any(kind == "GroupBroken" for _, (_, errors), _ in replies for _, kind, _, _ in errors):
            dead = Dead(-1, "a collective could not be done")
            if not self.recovers:
                raise dead
            self.recover(dead)
            return
        if self.timed:
            self.times.append(("wait", began, time.time()))
        self.flying.popleft()
        message.replies = replies
        if not message.again:
            errors: dict[int, list] = {}
            for rank, (_, (_, failures), _) in enumerate(replies):
                for seq, kind, text, more in failures:
                    first = errors.get(seq)
                    if first is None or (first[1] == "Cancelled" and kind != "Cancelled"):
                        errors[seq] = [rank, kind, text, more]
            if errors:
                self.failures(errors, [message, *self.flying])

    def failures(self, errors: dict[int, list], messages: list[Message]) -> None:
        """Commands failed: what they were to make, and what was made of that since, has no value."""
        lines = {seq: str(line) for m in messages for seq, _, _, line in m.writes if line is not None and seq in errors}
        for seq, (rank, kind, text, more) in sorted(errors.items()):
            if kind == "Cancelled" and self.error is not None:
                continue
            words = f"{kind} on worker {rank}: {text}"
            events.emit("remote", what="a program failed", worker=rank, text=words)
            if self.error is None and not any(seq in (w[0] for w in m.writes if any(h in self.failed for h in w[1])) for m in messages):
                self.error = seq, kind, words, more or lines.get(seq, "")
        said = next((Why(k, f"{k} on worker {r}: {t}") for r, k, t, _ in errors.values() if k != "Cancelled"), UNTOLD)
        for m in messages:
            for seq, reads, makes, _ in m.writes:
                if seq in errors or any(h in self.failed for h in reads):
                    for h in makes:
                        self.failed[h] = said
        for _, reads, makes, _ in self.effects:
            if any(h in self.failed for h in reads):
                for h in makes:
                    self.failed[h] = said

    def tell(self, seq: int = -1) -> None:
        """Raise the first error that nobody was told, once. `seq`: the number of the command that is being waited for."""
        if self.error is not None:
            raise self.told(seq)  # in no variable of this frame, which the traceback holds, and with it handles

    def told(self, seq: int) -> Failed:
        assert self.error is not None
        error, self.error = self.error, None
        number, kind, words, more = error
        e = failed(kind, words + (f"\n{more}" if more else ""))
        if number != seq:
            e.pending = functools.partial(self.pending, error)
        return e

    def pending(self, error: tuple[int, str, str, str], on: bool) -> None:
        """What was told is to be told by the next command; or not."""
        if on and self.error is None:
            self.error = error
        elif not on and self.error is error:
            self.error = None

    def answered(self, message: Message | None) -> list[Any]:
        """The answers of all workers to a message, everything before it being known."""
        assert message is not None
        while message.replies is None:
            self.collect()
        return [(answers) for _, (answers, _), _ in message.replies]

    def drop(self, handle: int) -> None:
        """Nobody holds it any more. Called by the collector, at any moment."""
        self.live.pop(handle, None)
        self.dead.append(handle)

    # -- tensors --------------------------------------------------------------------------------------------------------------------
    def handle(self, placement: Placement, memory: int | None = None, copy: bool = False, laid: bool = True) -> Handle:
        h = Handle(self, next(self.ids), memory, copy, laid)
        self.placements[h.id] = placement
        return h

    def put(self, t: torch.Tensor, placement: Placement) -> RemoteTensor:
        """A tensor of this process on the workers."""
        with self.lock:
            handle = self.handle(placement)
            rank = placement.rank if isinstance(placement, OnWorker) else None
            cut = self.cuts(t.shape, placement)
            if t.numel() * t.element_size() >= LARGE:
                index = -1 - len(self.parts)
                self.parts.append(self.transport.keep(wire.encode(0, [], [t])))
                self.counts["bytes"] += t.numel() * t.element_size()
            else:
                index = len(self.tensors)
                self.tensors.append(t.detach().clone())
            self.issue(["put", handle.id, index, rank, cut], [], [handle.id])
            if len(self.parts) > 64:
                self.flush()
            return RemoteTensor.make(handle, placement, t.shape, torch.empty(t.shape, device="meta").stride(), t.dtype)

    def fetch(self, x: RemoteTensor) -> torch.Tensor:
        """The value of a remote tensor, when everything before is done and nothing that it depends on has failed."""
        with self.lock:
            self.broken(x.handle)
            own = each(x.placement, self.ndim)
            cut = [isinstance(p, Shard) for p in own]
            if isinstance(x.placement, OnWorker):
                ranks = [x.placement.rank]
            else:
                of = [range(n) if c else range(1) for n, c in zip(self.shape, cut, strict=True)]
                ranks = [self.rank(at) for at in itertools.product(*of)]
            self.issue(["get", x.handle.id, ranks])
            message = self.flush()
            answers = self.answered(message)
            assert message is not None and message.replies is not None
            self.broken(x.handle)
            self.tell()  # of something else: what was read may be older than a write that failed
            parts = {}
            for worker in ranks:
                found = answers[worker]
                if not found or found[-1] is None or found[-1][0] != "tensor":
                    self.tell()
                    text = found[-1][2] if found and found[-1] else "it is not there"
                    raise failed(text.partition(":")[0], f"a tensor has no value: {text}")
                t = parts[worker] = message.replies[worker][2][found[-1][1]]
                if t.dtype is not x.dtype or not (any(cut) or t.shape == x.shape):
                    raise RemoteError(f"a worker has {t.dtype} {tuple(t.shape)} where {x.dtype} {tuple(x.shape)} should be")
            self.counts["fetched_bytes"] += sum(t.numel() * t.element_size() for t in parts.values())
            message.replies = [(s, a, []) for s, a, _ in message.replies]
            return parts[ranks[0]] if len(ranks) == 1 else self.joined(x, own, parts, ())

    def joined(self, x: RemoteTensor, own: tuple[Placement, ...], parts: dict[int, torch.Tensor], at: tuple[int, ...]) -> torch.Tensor:
        """A tensor out of its pieces: those of the workers whose coordinates begin with `at`."""
        d = len(at)
        if d == self.ndim:
            found, sizes = parts[self.rank(at)], list(x.shape)
            pieces(sizes, self.cuts(x.shape, x.placement), lambda i: (self.shape[i], at[i]))
            if list(found.shape) != sizes:
                raise RemoteError("a sharded tensor has pieces of other sizes than its placement says")
            return found
        p = own[d]
        if not isinstance(p, Shard):
            return self.joined(x, own, parts, (*at, 0))
        return torch.cat([self.joined(x, own, parts, (*at, i)) for i in range(self.shape[d])], p.dim)

    def cuts(self, sizes: Any, placement: Placement) -> list[list[int]]:
        """`cuts_of`, if tensors of these sizes can be cut so."""
        found = cuts_of(placement, self.ndim)
        if any(dim >= len(sizes) for _, dim, _ in found):
            raise RemoteError(f"a tensor with {len(sizes)} dims cannot be placed as {placement}")
        return found

    def broken(self, handle: Handle) -> None:
        """Raises if a tensor has no value."""
        why = self.failed.get(handle.id)
        if why is not None:
            if self.error is not None:
                self.tell()
            raise why.error("this tensor was not computed")

    def moved(self, x: RemoteTensor, placement: Placement) -> RemoteTensor:
        """The same values placed otherwise, in memory of their own."""
        if x.mesh is not self:
            return self.put(x.fetched("another mesh"), placement)
        source = x.placement
        if source == placement:
            return x
        with self.lock:
            if isinstance(source, OnWorker) and isinstance(placement, OnWorker):
                handle = self.handle(placement)
                told = [source.rank, placement.rank, list(x.shape), wire.NAMES[x.dtype]]
                self.issue(["send", x.handle.id, handle.id, *told], [x.handle.id], [handle.id])
                return RemoteTensor.make(handle, placement, x.shape, torch.empty(x.shape, device="meta").stride(), x.dtype)
            handle = self.handle(placement)
            cut = lambda p: self.cuts(x.shape, p)
            one = lambda p: p.rank if isinstance(p, OnWorker) else None
            places = [one(source), cut(source), one(placement), cut(placement)]
            self.issue(["move", x.handle.id, handle.id, *places, list(x.shape), wire.NAMES[x.dtype]], [x.handle.id], [handle.id])
            return RemoteTensor.make(handle, placement, x.shape, torch.empty(x.shape, device="meta").stride(), x.dtype)

    # -- going back -------------------------------------------------------------------------------------------------------------------
    def save(self) -> None:
        """The workers keep copies of what they have: what came before is not needed any more to refill one."""
        recovery.save(self)

    def whole_again(self) -> None:
        """A recovery that failed is tried again before anything else: workers would go on from different states."""
        if self.torn is not None:
            recovery.recover(self, self.torn)

    def recover(self, dead: Dead) -> None:
        recovery.recover(self, dead)
