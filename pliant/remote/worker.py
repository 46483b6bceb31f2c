"""A worker: tensors by handle, programs by name, messages in order.

It knows nothing of the controller's program. What it accepts is the text of a program (read as a file of an untrusted source is: operators
by name, everything recorded anew), tensors, and commands (docs/remote.md has their format). An error makes the results of its command
errors, too, and every command that reads one of these is left out.
"""

from __future__ import annotations

import functools
import os
import threading
import time
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from pliant import turns
from pliant.codegen import failures
from pliant.export.program import Program
from pliant.export.run import Runner, strides_of
from pliant.export.signature import SignatureError
from pliant.export.text import Reader
from pliant.graph.traced import TracedTensor
from pliant.guards.guard import Site
from pliant.lower import liveness
from pliant.remote import collectives as c
from pliant.remote import wire
from pliant.remote.placements import RemoteError, chunk, pieces
from pliant.symbolic.expr import Expr
from pliant.symbolic.parser import parse
from pliant.symbolic.scope import Scope


class Failure:
    """Stands for a tensor that could not be computed. `said`: whether the controller has been told by this worker."""

    __slots__ = ("seq", "text")

    def __init__(self, seq: int, text: str) -> None:
        self.seq, self.text = seq, text


class Pending:
    """Stands for a tensor that is on its way from another worker."""

    __slots__ = ("wait",)

    def __init__(self, wait: Callable[[], Any]) -> None:
        self.wait = wait


@functools.cache
def named(function: str) -> types.CodeType:
    """A code object of this name, for tracebacks."""
    return named.__wrapped__.__code__.replace(co_name=function, co_exceptiontable=b"")


def line_of(e: BaseException) -> str:
    """The user's line at which a program failed."""
    place, _, _ = failures.where(e)
    if place is None:
        return ""
    file, function, line = place.calls[-1]
    return f"{file}:{line} in {function}"


def same_elements(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether the strides of two tensors of the same sizes are the same, where they say anything."""
    return all(n == 1 or s == t for n, s, t in zip(a.shape, a.stride(), b.stride(), strict=True))


def lying_as(t: torch.Tensor, strides: list[Any]) -> torch.Tensor:
    """The same elements, with strides in the order and at the distances that a program was recorded with, where a dim has one element at
    most, so that its stride says nothing."""
    hints = [n if type(n) is int else n.hint for n in strides]
    if not t.numel():
        return t.as_strided(t.shape, hints)
    found = list(t.stride())
    inner, of_inner = 1, 1
    for d in sorted(range(t.dim()), key=lambda d: (hints[d], -d)):
        if t.shape[d] == 1:
            found[d] = inner * max(hints[d] // of_inner, 1)
        inner, of_inner = max(found[d], 1), max(hints[d], 1)
    return t.as_strided(t.shape, found)


class Exact(Runner):
    """Runs a program. `views`: inputs of which it gives views, which must therefore lie as the program says."""

    views: frozenset[str] = frozenset()

    def __init__(self, p: Program) -> None:
        super().__init__(p)
        taken = {s.name for r in (*p.relations, *p.asserts) for s in r.expr.symbols()}
        number = lambda n: n if type(n) is int else liveness.number(n)
        strides = {i.name: [number(n) for n in i.value.strides] for i in p.inputs if i.is_tensor}
        self.by_strides = {n: of for n, of in strides.items() if any(s.name in taken for e in of if type(e) is Expr for s in e.symbols())}

    def flat(self, values: dict[str, Any]) -> list[Any]:
        if self.by_strides:
            try:
                self.caller.check(values)
            except SignatureError:
                values = values | {n: lying_as(values[n], of) for n, of in self.by_strides.items()}
        return super().flat(values)

    def laid_out(self, i: Any, v: torch.Tensor, env: dict[str, Any], back: list) -> torch.Tensor:
        if v.stride() == strides_of(i.value, env) and not v.is_conj() and not v.is_neg():
            return v  # it may begin elsewhere in its memory, which no program counts on (`indexing_rules.as_strided`)
        found = super().laid_out(i, v, env, back)
        if found is not v and same_elements(found, v):  # strides of dims of size 1 say nothing
            back[:] = [pair for pair in back if pair[1] is not found]
            return v.as_strided(v.shape, found.stride())
        if found is not v and i.name in self.views:
            raise RemoteError("a tensor lies in memory otherwise than the program that views it was made for")
        return found


class Loaded:
    """A program, ready to run. `collectives`: its operations that are, with the sizes of their operands."""

    def __init__(self, text: str, numbers: list[str], cuts: list[list]) -> None:
        self.program: Program = Reader(c.PROGRAM_SPACES).program(text)
        for op in self.program.ops:  # so that an error has the user's line
            if op.site is not None:
                op.site = Site(op.site.filename, op.site.lineno, op.site.function, 0, named(op.site.function))
        self.runner = Exact(self.program)
        self.names = [i.name for i in self.program.inputs]
        tensors = [i for i in self.program.inputs if i.is_tensor]
        self.n_tensors = len([i for i in tensors if i.name != "token"])
        self.token = any(i.name == "token" for i in tensors)
        self.numbers = [i.name for i in self.program.inputs if not i.is_tensor]
        self.given = numbers
        scope = Scope()
        known = {n: scope.backed(n, hint=2) for n in (*numbers, *[f"{a}{i}" for i in range(len(cuts)) for a in "lb"])}
        self.cuts = [(int(axis), parse(str(base), known)) for axis, base in cuts]
        self.collectives = [op for op in self.program.ops if op.target in c.COLLECTIVES]
        memory = {i.value.storage_id: i.name for i in tensors}
        given = [o.value.storage_id for o in self.program.outputs if type(o.value) is TracedTensor]
        self.runner.views = frozenset(memory[sid] for sid in given if sid in memory)

    def inputs(self, tensors: list[torch.Tensor], numbers: list[Any], group: Any, token: torch.Tensor) -> dict[str, Any]:
        values: dict[str, Any] = dict(zip(self.names, tensors))
        if self.token:
            values["token"] = token
        env = dict(zip(self.given, numbers, strict=True))
        for i, (axis, base) in enumerate(self.cuts):
            part = group.along(axis)
            env[f"b{i}"], env[f"l{i}"] = chunk(int(base.evaluate(env)) if type(base) is Expr else base, part.size, part.rank)
        for name in self.numbers:
            values[name] = env[name]
        return values

    def run(self, values: dict[str, Any]) -> list[Any]:
        """The outputs. What another worker waits for is done even where this one cannot go on."""
        with c.using(c.current.group):
            try:
                return self.runner.flat(values)
            except c.Cancelled:
                raise
            except Exception:
                self.give_up(values, c.current.done)
                raise

    def give_up(self, values: dict[str, Any], done: int) -> None:
        """The collectives that are left."""
        env = {n: v for n, v in values.items() if not isinstance(v, torch.Tensor)}
        number = lambda v: v if (e := liveness.number(v)) is None else e.evaluate(env)
        for op in self.collectives[done:]:
            try:
                xs = [op.args[0]] if isinstance(op.args[0], TracedTensor) else list(op.args[0])
                sizes = [tuple(map(number, x.sizes)) for x in xs] if op.target is not c.AGREE else []
                dtype = xs[0].dtype if xs else torch.int64
                c.proxy(op.target, sizes, dtype, tuple(map(number, op.args[1:-1])))
            except c.Cancelled:
                return


_loaded: dict[str, Loaded] = {}
"""Programs of this process, by name: workers in threads share them."""


class Worker:
    """One worker. `step(message)` runs the commands of a message in order and returns the reply."""

    def __init__(self, rank: int, size: int, drawing: threading.Lock | None = None) -> None:
        """`drawing`: for workers that share a process, and with it one generator of random numbers."""
        self.rank, self.size, self.drawing = rank, size, drawing
        self.tensors: dict[int, Any] = {}
        self.programs: dict[str, Loaded] = {}
        self.texts: dict[str, list] = {}
        self.token = torch.zeros(1, dtype=torch.int64)
        self.group: Any = None
        self.times: list[tuple[str, float, float]] = []
        self.timed = False
        self.saved: dict[int, dict[int, Any]] = {}  # what was saved, by number
        self.counts = {"messages": 0, "calls": 0, "bytes": 0, "compiled": 0}
        torch.set_num_threads(1)

    # -- messages -----------------------------------------------------------------------------------------------------------------
    def step(self, message: bytes, *parts: Any) -> bytes:
        """Run the commands of a message. `parts`: large tensors that travelled by themselves."""
        seq, commands, tensors = wire.decode(message)
        self.counts["messages"] += 1
        self.counts["bytes"] += len(message)
        answers: list[Any] = []
        errors: list[Any] = []
        given: list[torch.Tensor] = []
        with c.using(self.group), torch.no_grad():
            for i, command in enumerate(commands):
                began, name = time.time(), ""
                try:
                    name = command[0]
                    COMMANDS[name](self, command, tensors, parts, answers, given, seq + i, errors)
                except RemoteError as e:
                    errors.append([seq + i, type(e).__name__, str(e), ""])
                except Exception as e:  # whatever a command raises is the controller's to raise
                    errors.append([seq + i, type(e).__name__, f"{e}", line_of(e)])
                if self.timed:
                    self.times.append((name if name != "call" else f"call {command[1][:8]}", began, time.time()))
        return wire.encode(seq, [answers, errors], given)

    def value(self, handle: int) -> Any:
        """The tensor of a handle, when it is there; a `Failure` in its place; None if there is none."""
        t = self.tensors.get(handle)
        if type(t) is Pending:
            t = self.tensors[handle] = t.wait()
        return t

    def put(self, command: list, tensors: list, parts: Any, *_: Any) -> None:
        """["put", handle, index of the tensor, rank or None, cuts]; a cut is [dim of the mesh, dim of the tensor, factor]."""
        _, handle, index, rank, cuts = command
        if rank is not None and rank != self.rank:
            return
        t = tensors[index] if index >= 0 else wire.decode(parts[-1 - index])[2][0]
        t = self.piece(t, cuts)
        self.tensors[handle] = t.clone(memory_format=torch.preserve_format if t.is_contiguous() else torch.contiguous_format)

    def along(self, axis: int) -> tuple[int, int]:
        part = self.group.along(axis)
        return part.size, part.rank

    def piece(self, t: torch.Tensor, cuts: list[list[int]]) -> torch.Tensor:
        """What this worker has of a tensor that is cut so."""
        for _, dim, _, _, begin, length in pieces(list(t.shape), cuts, self.along):
            t = t.narrow(dim, begin, length)
        return t

    def free(self, command: list, *_: Any) -> None:
        for handle in command[1]:
            self.tensors.pop(handle, None)

    def load(self, command: list, *_: Any) -> None:
        """["load", program, its text, names of the numbers of a call, cuts]; a cut is [dim of the mesh, what is cut]."""
        _, name, text, numbers, cuts = command
        self.texts[name] = [text, numbers, cuts]

    def program(self, name: str) -> Loaded:
        found = self.programs.get(name)
        if found is None:
            if name not in self.texts:
                raise RemoteError(f"worker {self.rank} has no program {name}")
            with turns.compiling:
                found = _loaded.get(name)
                if found is None:
                    found = _loaded[name] = Loaded(*self.texts[name])
                    self.counts["compiled"] += 1
            self.programs[name] = found
        return found

    def call(self, command: list, tensors: list, parts: Any, answers: list, given: list, seq: int, errors: list) -> None:
        """["call", program, inputs, outputs, numbers, seed or None, rank or None, whether numbers are wanted]."""
        _, name, inputs, outputs, numbers, seed, rank, wanted = command
        if rank is not None and rank != self.rank:
            return
        self.counts["calls"] += 1
        program = self.program(name)
        bad = next((t for h in inputs if type(t := self.value(h)) is Failure), None)
        group = c.current.group if rank is None else Alone()
        if bad is not None:
            for h in outputs:
                self.tensors[h] = bad
            if wanted:
                answers.append(None)
            with c.using(group):  # the others may not know, and wait for this worker
                program.give_up(program.inputs([], numbers, group, self.token), 0)
            return
        try:
            missing = [h for h in inputs if h not in self.tensors]
            if missing:
                raise RemoteError(f"worker {self.rank} has no tensor {missing[0]}")
            values = program.inputs([self.tensors[h] for h in inputs], numbers, group, self.token)
            with c.using(group), self.seeded(seed, bool(program.collectives) and rank is None):
                outs = program.run(values)
        except Exception as e:
            failure = Failure(seq, f"{type(e).__name__}: {e}")
            for h in outputs:
                self.tensors[h] = failure
            if wanted:
                answers.append(None)
            raise
        n = len(outputs)
        for h, t in zip(outputs, outs[:n], strict=True):
            self.tensors[h] = c.spelled_out(t)
        if wanted:
            answers.append(outs[n:])

    @contextmanager
    def seeded(self, seed: int | None, meets: bool) -> Iterator[None]:
        """The generator starts from `seed`. `meets`: the program waits for other workers."""
        if seed is None or self.drawing is None:
            if seed is not None:
                torch.default_generator.manual_seed(seed)
            yield
            return
        if meets:
            raise RemoteError("random numbers and collectives in one program: workers that are threads have one generator, use Ray")
        with self.drawing:
            before = torch.default_generator.get_state()
            torch.default_generator.manual_seed(seed)
            try:
                yield
            finally:
                torch.default_generator.set_state(before)

    def alias(self, command: list, *_: Any) -> None:
        _, new, old = command
        if old in self.tensors:
            self.tensors[new] = self.tensors[old]

    def fail(self, command: list, *_: Any) -> None:
        """["fail", handles, seq, text]: the controller knows that another worker could not compute these."""
        _, handles, seq, text = command
        for h in handles:
            self.tensors[h] = Failure(seq, text)

    def get(self, command: list, tensors: list, parts: Any, answers: list, given: list, *_: Any) -> None:
        """["get", handle, ranks or None]: its tensor, or what it failed of."""
        _, handle, ranks = command
        if ranks is not None and self.rank not in ranks:
            answers.append(None)
            return
        t = self.value(handle)
        if t is None:
            raise RemoteError(f"worker {self.rank} has no tensor {handle}")
        if type(t) is Failure:
            answers.append(["failed", t.seq, t.text])
            return
        given.append(t)
        answers.append(["tensor", len(given) - 1])

    def send(self, command: list, *_: Any) -> None:
        """["send", handle, new handle, from, to, sizes, dtype]: a tensor goes from worker to worker."""
        _, handle, new, source, to, sizes, dtype = command
        if self.rank == source:
            t = self.value(handle)
            if source == to:
                self.tensors[new] = t.clone() if type(t) is not Failure else t
                return
            bad = type(t) is Failure
            data = torch.zeros(sizes, dtype=wire.DTYPES[dtype]) if bad else t
            flat = torch.frombuffer(bytearray(wire.raw(data)), dtype=torch.uint8) if data.numel() else torch.empty(0, dtype=torch.uint8)
            self.group.post(torch.cat([torch.full((8,), int(bad), dtype=torch.uint8), flat]), to)
        elif self.rank == to:
            n = wire.DTYPES[dtype].itemsize
            for size in sizes:
                n *= size
            wait = self.group.expect(n + 8, source)
            self.tensors[new] = Pending(lambda: arrived(wait(), sizes, wire.DTYPES[dtype]))

    def move(self, command: list, *_: Any) -> None:
        """["move", handle, new handle, from rank, from cuts, to rank, to cuts, sizes, dtype]; a rank is None where there is none."""
        _, handle, new, source, cut, to, want, sizes, dtype = command
        t = self.value(handle)
        bad = t if type(t) is Failure else None
        if source is not None:
            message = wire.encode(bad.seq, ["failed", bad.text]) if bad else wire.encode(0, ["tensor"], [t]) if self.rank == source else b""
            if self.rank == source:
                for r in range(self.size):
                    if r != source and to in (None, r):
                        self.group.send(message, r)
            elif to in (None, self.rank):
                seq, what, found = wire.decode(self.group.receive(source))
                t, bad = (found[0], None) if what[0] == "tensor" else (None, Failure(seq, what[1]))
        elif cut:
            steps = pieces(sizes, cut, self.along)
            t = t if bad is None else torch.zeros(sizes, dtype=wire.DTYPES[dtype])
            for axis, dim, base, factor, *__ in reversed(steps):
                t = c.all_gather(t, dim, base, factor, axis, self.token)
        if to is not None and to != self.rank:
            return
        if bad is not None:
            self.tensors[new] = bad
            return
        t = self.piece(t, want)
        self.tensors[new] = t.clone(memory_format=torch.contiguous_format)

    def save(self, command: list, *_: Any) -> None:
        """["save", n]: what the worker has now is what ["restore", n] brings back. The one before is kept, until all have this one."""
        for handle in self.tensors:
            self.value(handle)
        self.saved = {n: saved for n, saved in self.saved.items() if n == command[1] - 1}
        self.saved[command[1]] = copied(self.tensors)

    def forget(self, command: list, *_: Any) -> None:
        """["forget", n]: all workers have saved `n`; what was saved before is not needed."""
        self.saved = {n: saved for n, saved in self.saved.items() if n >= command[1]}

    def restore(self, command: list, *_: Any) -> None:
        self.tensors = copied(self.saved[command[1]]) if command[1] else {}

    def count(self, command: list, tensors: list, parts: Any, answers: list, *_: Any) -> None:
        of_group = {"moved": 0, "waited": 0.0} if self.group is None else {"moved": self.group.moved, "waited": self.group.waited}
        answers.append({**self.counts, **of_group, "tensors": len(self.tensors), "programs": len(self.programs), "pid": os.getpid()})

    def trace(self, command: list, tensors: list, parts: Any, answers: list, *_: Any) -> None:
        """["trace", on]: begin or end to write down when commands ran; what was written so far."""
        answers.append(self.times)
        self.times, self.timed = [], command[1]
        if self.group is not None:
            self.group.timed(self.times if self.timed else None)

    def sleep(self, command: list, *_: Any) -> None:
        """["sleep", seconds, rank]: for tests of hung workers."""
        if command[2] == self.rank:
            time.sleep(command[1])

    # -- recovery -------------------------------------------------------------------------------------------------------------------
    def ready(self) -> int:
        """It has begun."""
        return os.getpid()

    def join(self, make_group: Callable, epoch: int) -> int:
        """Become one of a group of workers, the `epoch`-th that there is."""
        self.group = None
        self.group = make_group(self.rank, self.size, epoch)
        self.group.timed(self.times if self.timed else None)
        return os.getpid()

    def exported(self, n: int, handles: list[int]) -> bytes:
        """Saved tensors as a message, to refill another worker."""
        storages: dict[int, int] = {}
        memory: list[torch.Tensor] = []
        views = []
        for h in handles:
            t = self.saved[n].get(h)
            if type(t) is Failure:
                views.append([h, -1, t.seq, t.text])
            elif t is not None:
                s = t.untyped_storage()
                if s._cdata not in storages:
                    storages[s._cdata] = len(memory)
                    memory.append(torch.empty(0, dtype=torch.uint8).set_(s))
                views.append([h, storages[s._cdata], wire.NAMES[t.dtype], t.storage_offset(), list(t.shape), list(t.stride())])
        return wire.encode(0, views, memory)

    def stored(self, n: int, handles: list[int]) -> tuple[int, bytes]:
        """`exported`, and before it a number, by which the caller knows that it is there without fetching it."""
        data = self.exported(n, handles)
        return len(data), data

    def refill(self, n: int, *parts: bytes) -> None:
        """Take what other workers, or this one before it died, had saved."""
        found: dict[int, Any] = {}
        self.saved = {n: found}
        for part in parts:
            _, views, memory = wire.decode(part)
            for h, index, *rest in views:
                if index < 0:
                    found[h] = Failure(*rest)
                else:
                    name, offset, sizes, strides = rest
                    s = memory[index].untyped_storage()
                    found[h] = torch.empty(0, dtype=wire.DTYPES[name]).set_(s, offset, sizes, strides)


COMMANDS: dict[str, Callable] = {
    name: getattr(Worker, name)
    for name in (
        "put", "free", "load", "call", "alias", "fail", "get", "send", "move", "save", "forget", "restore", "count", "trace", "sleep",
    )  # fmt: skip
}
"""What a message may ask for."""


class Alone:
    """The group of a program that one worker runs alone."""

    rank, size = 0, 1

    def along(self, mesh_dim: int) -> Alone:
        return self

    def all_reduce(self, x: torch.Tensor, op: str, owned: bool = False) -> torch.Tensor:
        return x

    def all_gather(self, x: torch.Tensor) -> list[torch.Tensor]:
        return [x]

    def reduce_scatter(self, pieces: list[torch.Tensor]) -> torch.Tensor:
        return pieces[0]


def arrived(data: torch.Tensor, sizes: list[int], dtype: torch.dtype) -> Any:
    """What another worker has sent: eight bytes that say whether it could be computed, then the elements."""
    if data[0]:
        return Failure(-1, "it could not be computed on another worker")
    return data[8:].view(dtype).reshape(sizes)


def copied(tensors: dict[int, Any]) -> dict[int, Any]:
    """Copies of tensors, those that share memory sharing the copy of it."""
    memory: dict[int, torch.Tensor] = {}
    out: dict[int, Any] = {}
    for h, t in tensors.items():
        if not isinstance(t, torch.Tensor):
            out[h] = t
            continue
        s = t.untyped_storage()
        base = memory.get(s._cdata)
        if base is None:
            base = memory[s._cdata] = torch.empty(0, dtype=torch.uint8).set_(s.clone())
        out[h] = torch.empty(0, dtype=t.dtype).set_(base.untyped_storage(), t.storage_offset(), t.shape, t.stride())
    return out
