"""The door: keep an entry that was just made, take up one that fits a call.

An entry is looked up by the code object and the environment (`environment.py`); of those found, the newest first, the objects are
resolved (`names.py`), files and answers compared (`dependencies.py`), and the guards run on the frame at hand. What holds is installed,
as if it had been captured. What has no portable form is not kept: counted, and told by an event with the reason.

`PLIANT_ENTRIES=0` turns all of it off. `PLIANT_TEST_ENTRIES=1`, for tests: every entry is written down, read again and replaced by what
was read; objects without a name are handed over inside the process.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import marshal
import os
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pliant import events, native, turns
from pliant.codegen import cache
from pliant.config import env_flag
from pliant.guards.guard import Guard, Site
from pliant.guards.program import Compiler
from pliant.guards.source import Source
from pliant.interpret.capture import Capture, Return
from pliant.jit.emit import Emitted
from pliant.jit.history import lesson
from pliant.jit.persist import dependencies, environment, programs
from pliant.jit.persist.guards import Explained, decode_program, encode_program, explanation
from pliant.jit.persist.names import Missing, Writer, resolve
from pliant.jit.persist.prints import HEAPTYPE, code_print
from pliant.jit.persist.values import NotPortable

MOST = 16
"""Entries of one code object on the disk."""


Frame = tuple[Any, tuple]
"""The compiled function and the arguments of its frame."""


enabled = env_flag("PLIANT_ENTRIES", "1")
testing = env_flag("PLIANT_TEST_ENTRIES")


@dataclass(frozen=True, slots=True)
class Made:
    """An entry that was just captured: its frame, what was captured, emitted and compiled, and the relations with their sites."""

    frame: Frame
    found: Capture
    emitted: Emitted
    program: Compiler
    relations: Sequence[tuple[Any, Site | None]]


@dataclass(slots=True)
class Taken:
    """An entry from the disk, ready to be installed."""

    guard: native.Guard
    emitted: Emitted
    explained: Explained
    exit: str


class TakenInfo:
    """`region.Info` of an entry from the disk: guards and relations are read when somebody asks."""

    def __init__(self, serial: int, frame_id: str, taken: Taken) -> None:
        self.serial = serial
        self.frame_id = frame_id
        self.emitted = taken.emitted
        self.exit = taken.exit
        self._explained = taken.explained

    @functools.cached_property
    def guards(self) -> tuple[Guard, ...]:
        return tuple(map(lesson, self._explained.content.guards))

    @property
    def relations(self) -> tuple[tuple[Any, Site | None], ...]:
        found: tuple[tuple[Any, Site | None], ...] = self._explained.content.with_sites
        return found


# -- writing down -----------------------------------------------------------------------------------------------------------------
def refuse_unless_plain(found: Capture) -> None:
    """Raises NotPortable for captures that are never kept."""
    world = found.world
    if not isinstance(found.exit, Return):
        raise NotPortable("the graph breaks")
    if found.under_modes:
        raise NotPortable("modes are on")
    if world.bound_here:
        raise NotPortable(world.bound_here)
    if world.own_classes:
        raise NotPortable("it makes classes")
    for op in found.trace.ops:
        if not op.target._schema.name.startswith(("aten::", "prims::", "pliant_numpy::")):
            raise NotPortable(f"the operator {op.target._schema.name}")
    for call in found.trace.torch_ops:
        if type(call.fn) is types.FunctionType and not dependencies.versioned(call.fn.__code__.co_filename):
            raise NotPortable(f"{call.fn.__qualname__} runs as one operation")


def inner_codes(code: types.CodeType, path: tuple = ()) -> list[tuple[types.CodeType, tuple]]:
    """A code object and those inside of it, each with the way to it through `co_consts`."""
    out = [(code, path)]
    for i, c in enumerate(code.co_consts):
        if type(c) is types.CodeType:
            out += inner_codes(c, (*path, i))
    return out


def hints(table: Writer, found: Capture, c: Compiler) -> dict[int, tuple[Any, tuple]]:
    """Where objects were seen, for those that have no name of their own. Returns code objects: id -> (function, way to it)."""
    codes: dict[int, tuple[Any, tuple]] = {}
    own = found.world.own_functions
    for fn, *_ in found.world.asked:
        if isinstance(fn, functools._lru_cache_wrapper):
            table.hint(fn.__wrapped__, "func", fn, "__wrapped__")
    for fn in found.world.interpreted.values():
        if id(fn) in own:
            continue
        for code, path in inner_codes(fn.__code__):
            codes.setdefault(id(code), (fn, path))
            table.hint(code, "code", fn, path)
        table.hint(fn.__globals__, "func", fn, "__globals__")
        table.hint(getattr(fn, "__wrapped__", None), "func", fn, "__wrapped__")
        for i, cell in enumerate(fn.__closure__ or ()):
            table.hint(cell, "cell", fn, i)
            with contextlib.suppress(ValueError):
                table.hint(cell.cell_contents, "contents", cell, None)
    for g in c.guards:
        if g.kind == "TYPE_ATTRS" and g.source.op == "const":
            for name, v in g.value.items():
                table.hint(v, "attr", g.source.arg.obj, name)
        elif g.kind in ("ID_MATCH", "TYPE_MATCH", "EMPTY"):
            at_source(table, g.value, g.source, () if g.kind == "ID_MATCH" else (("type", None),))
        elif g.kind == "TENSOR_MATCH":
            at_source(table, g.value.pytype, g.source, (("type", None),))
    return codes


def at_source(table: Writer, value: Any, source: Source, more: tuple) -> None:
    """A guard saw `value` at this source, after `more` steps."""
    steps: list[tuple] = []
    while source.base is not None:
        steps.append((source.op, source.arg))
        source = source.base
    path = (*reversed(steps), *more)
    if source.op != "const":
        table.hint(value, "frame", None, (source.op, source.arg[0] if source.op == "local" else source.arg, path))
    elif path:
        table.hint(value, "walk", source.arg.obj, path)


class Written:
    """An entry as data, but for its graph, which may be compiled later. Raises NotPortable. It holds nothing of the frame."""

    def __init__(self, made: Made, hand_over: bool) -> None:
        found, emitted = made.found, made.emitted
        refuse_unless_plain(found)
        table = Writer(made.frame, hand_over)
        codes = hints(table, found, made.program)
        table.refer(made.frame[0])
        program = encode_program(made.program, table)
        target = programs.encode_emitted(emitted, table)
        own = found.world.own_functions
        for f in found.world.interpreted.values():
            if id(f) not in own and id(f) not in found.world.function_sources:
                table.refer(f)
        for cls, _ in [k for k in found.world.lookups if type(k) is tuple and isinstance(k[0], type)]:
            if id(cls) not in own and cls.__flags__ & HEAPTYPE:
                table.refer(cls)
        asked = [] if hand_over else dependencies.answers(found.world.asked, table)
        told = explanation(made.program, made.relations, table, codes)
        self.hand_over = hand_over
        self.frame_id = found.frame_id
        self.files = dependencies.files(table)
        self.content = (table.rows, asked, program, target, told, type(found.exit).__name__)

    def with_graph(self, executable: Any) -> bytes:
        """The whole entry, with this executable. Raises NotPortable."""
        table, linker = Writer((None, ()), self.hand_over), programs.Linker()
        graph = None if executable is None else programs.encode_executable(executable, table, linker)
        files = list(dict.fromkeys([*self.files, *dependencies.files(table)]))
        return marshal.dumps((files, *self.content, table.rows, linker.rows, graph))


def write(made: Made, hand_over: bool) -> bytes:
    """An entry as data. Raises NotPortable."""
    return Written(made, hand_over).with_graph(made.emitted.executable)


def read(data: bytes, frame: Frame, again: Any) -> Taken | None:
    """The entry of what `write` made, for this frame; None if its guards do not hold there. Raises Missing."""
    files, rows, asked, program, target, told, exit_, graph_rows, modules, graph = marshal.loads(data)
    dependencies.same_files(files)
    objects = resolve(rows, frame)
    dependencies.same_answers(asked, objects)
    explained = Explained(told, objects)
    guard = decode_program(program, objects, explained)
    if guard.check(frame[1], frame[0]) is None:
        return None
    linked = programs.link(modules)
    executable = None if graph is None else programs.decode_executable(graph, resolve(graph_rows, frame), linked)
    return Taken(guard, programs.decode_emitted(target, objects, executable, again, frame[0].__code__), explained, exit_)


# -- the disk ---------------------------------------------------------------------------------------------------------------------
def name_of(fn: Any, environment_key: bytes) -> str:
    """The common beginning of the names of a function's entries."""
    function = (fn.__globals__.get("__name__"), code_print(fn.__code__), len(fn.__closure__ or ()))
    return hashlib.sha256(environment_key + repr(function).encode()).hexdigest()[:40]


def candidates(prefix: str) -> list[str]:
    """Names of entries on the disk, the newest first."""
    found = []
    with contextlib.suppress(OSError), os.scandir(cache.directory() / prefix[:2]) as entries:
        for e in entries:
            if e.name.startswith(prefix):
                status = e.stat()
                if status.st_uid == os.geteuid() and not status.st_mode & 0o022:
                    found.append((status.st_mtime_ns, e.name))
    return [name for _, name in sorted(found, reverse=True)]


def keep(made: Made, config: Any) -> Keeper | None:
    """What writes a new entry to the disk, once its graph is compiled; None if it is not kept."""
    key = environment.key(config) if enabled else None
    if key is None:
        return None
    keeper = Keeper(name_of(made.frame[0], key), config)
    return keeper if keeper.attempt(lambda: keeper.begin(made)) else None


class Keeper:
    """One entry on its way to the disk. `prefix` is the common beginning of the names of its function's entries."""

    def __init__(self, prefix: str, config: Any) -> None:
        self.prefix = prefix
        self.config = config

    def begin(self, made: Made) -> None:
        self.frame_id = made.found.frame_id
        self.written = Written(made, False)

    def attempt(self, do: Callable[[], None]) -> bool:
        """Whether that could be done."""
        try:
            do()
        except NotPortable as e:
            events.count("entries_not_kept")
            events.emit("policy", what=f"the entry is not kept on disk: {e}", where=self.frame_id)
        except Exception as e:
            broken(e, self.config)
        else:
            return True
        return False

    def finish(self, executable: Any, on_disk: set[str]) -> None:
        """Write the entry with this graph; its name joins `on_disk`."""

        def store() -> None:
            data = self.written.with_graph(executable)
            with turns.outside():
                self.store(data, on_disk)

        self.attempt(store)

    def store(self, data: bytes, on_disk: set[str]) -> None:
        there = candidates(self.prefix)
        name = f"{self.prefix}-{hashlib.sha256(data).hexdigest()[:24]}"
        if name not in there:
            cache.write(name, data)
            events.count("entries_kept")
            for old in there[MOST - 1 :]:
                with contextlib.suppress(OSError):
                    (cache.directory() / old[:2] / old).unlink()
        on_disk.add(name)


def broken(error: Exception, config: Any) -> None:
    """An error of pliant's own on the way to or from the disk: the entry is captured as if there were no disk."""
    if config.strict:
        raise error
    events.count("entries_broken")
    events.emit("warning", id="entries", text=f"an entry on disk: {type(error).__name__}: {error}. Please report this")


def find(frame: Frame, config: Any, again: Any, known: set[str]) -> Taken | None:
    """An entry from the disk whose guards hold for this call. `known`: names that need not be looked at; what is found joins them."""
    key = environment.key(config) if enabled and not events.watched() else None
    if key is None:
        return None
    fn = frame[0]
    for name in candidates(name_of(fn, key))[:MOST]:
        if name in known:
            continue
        data = cache.read(name)
        if data is None:
            continue
        try:
            taken = read(data, frame, again)
        except Missing as e:
            known.add(name)
            events.count("entries_stale")
            events.emit("policy", what=f"an entry on disk does not fit: {e}", where=fn.__code__.co_qualname)
            continue
        except Exception as e:
            known.add(name)
            broken(e, config)
            continue
        if taken is not None:
            known.add(name)
            return taken
    return None


def forget(names: set[str]) -> None:
    """Take these entries off the disk."""
    for name in names:
        with contextlib.suppress(OSError):
            (cache.directory() / name[:2] / name).unlink()


def exchanged(made: Made, again: Any) -> Taken | None:
    """For tests: the entry, written down and read again; None if it has no portable form."""
    if environment.fixed() is None:
        raise RuntimeError("pliant's files were written after this process had begun: entries cannot be tested")
    try:
        data = write(made, True)
    except NotPortable:
        events.count("entries_not_kept")
        return None
    events.count("entries_exchanged")
    taken = read(data, made.frame, again)
    if taken is None:
        raise RuntimeError("the guards of an entry do not hold once they were written down and read again")
    return taken
