"""The door: keep an entry that was just made, take up one that fits a call.

An entry is looked up by the code object and the environment (`environment.py`); of those found, the newest first, the objects are
resolved (`names.py`), files and answers compared (`dependencies.py`), and the guards run on the frame at hand. What holds is installed,
as if it had been captured. What has no portable form is not kept: counted, and told by an event with the reason.

`PLIANT_ENTRIES=0` turns all of it off. `PLIANT_TEST_ENTRIES=1`, for tests: every entry is written down, read again and replaced by what
was read; objects without a name are handed over inside the process.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import hashlib
import marshal
import time
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from pliant import events, native, turns
from pliant.bytecode.assemble import line_at
from pliant.codegen import cache
from pliant.config import env_flag
from pliant.graph import lstm
from pliant.graph.control_flow import FLOWS
from pliant.graph.growing import READERS
from pliant.graph.leaving import WAYS
from pliant.graph.quantized import DYNAMIC_LINEAR, INT8_MM
from pliant.graph.recurrent_gradients import BACKWARD, ONEDNN, PACKED_ROWS, UNPACKED_ROWS
from pliant.graph.seeding import OF_STATES
from pliant.guards.guard import Site
from pliant.guards.program import Compiler
from pliant.guards.source import Source
from pliant.interpret.called_apart import computing
from pliant.interpret.capture import Capture
from pliant.jit.emit import Emitted
from pliant.jit.history import History, Lesson, lesson
from pliant.jit.persist import dependencies, environment, programs
from pliant.jit.persist.frames import Frame, own_code
from pliant.jit.persist.guards import Explained, Paths, decode_program, encode_program, explanation
from pliant.jit.persist.lessons import Lessons, encode_lessons
from pliant.jit.persist.names import Missing, Writer, resolve
from pliant.jit.persist.prints import HEAPTYPE, code_print, resume_print
from pliant.jit.persist.values import NotPortable
from pliant.jit.plain_python import exit_name
from pliant.jit.resume import info_of

MOST = 64
"""Entries of one code object, or of one place where frames go on, on the disk."""
TRIES = 8
"""How often an entry is looked at that does not fit: reading one takes a millisecond or two."""

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
    history: History
    refused: frozenset[str]


@dataclass(slots=True)
class Taken:
    """An entry from the disk, ready to be installed."""

    guard: native.Guard
    emitted: Emitted
    explained: Explained
    exit: str
    operations: int  # calls of PyTorch with tensors that have dims


@dataclass(slots=True)
class Known:
    """What a process knows of the entries on the disk of one code object."""

    names: set[str] = field(default_factory=set)  # of those that are installed, or do not fit this process
    heard: set[str] = field(default_factory=set)  # of those whose lessons have been read
    lessons: list[Lessons] = field(default_factory=list)  # that have yet to be learned
    tries: collections.Counter[str] = field(default_factory=collections.Counter)  # how often guards of one did not hold

    def hear(self, name: str, lessons: Lessons) -> None:
        if name not in self.heard:
            self.heard.add(name)
            self.lessons.append(lessons)


class TakenInfo:
    """`region.Info` of an entry from the disk: guards and relations are read when somebody asks."""

    pinned: dict = {}  # noqa: RUF012 (what this process has not captured it learns from its own captures)
    operations = 0  # of its graph: not kept, for a graph from the disk costs no capture, however large

    def __init__(self, serial: int, frame_id: str, taken: Taken) -> None:
        self.serial = serial
        self.frame_id = frame_id
        self.emitted = taken.emitted
        self.exit = taken.exit
        self.branches = tuple(taken.emitted.branches)
        self._explained = taken.explained

    @functools.cached_property
    def guards(self) -> tuple[Lesson, ...]:
        return tuple(map(lesson, self._explained.content.guards))

    @property
    def relations(self) -> tuple[tuple[Any, Site | None], ...]:
        found: tuple[tuple[Any, Site | None], ...] = self._explained.content.with_sites
        return found


# -- writing down -----------------------------------------------------------------------------------------------------------------
RECURRENT = {BACKWARD, ONEDNN, PACKED_ROWS, UNPACKED_ROWS, lstm.LAYER, lstm.LAYER_BACKWARD}
OWN = FLOWS | READERS | RECURRENT | WAYS | {DYNAMIC_LINEAR, INT8_MM, *OF_STATES}
PORTABLE = ("aten::", "prims::", "pliant_numpy::", "pliant_collectives::", "pliant::python_", "pliant::numpy_", "pliant::number_")
"""What operators are called that other processes have, too."""


def refuse_unless_plain(found: Capture) -> None:
    """Raises NotPortable for captures that are never kept."""
    world = found.world
    if found.under_modes:
        raise NotPortable("modes are on")
    if world.bound_here:
        raise NotPortable(world.bound_here)
    if world.own_classes:
        raise NotPortable("it makes classes")
    for op in found.trace.ops:
        if op.target not in OWN and not op.target._schema.name.startswith(PORTABLE):
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
    """Where objects were seen, for those that have no name of their own. Returns code objects: id -> (function or code, way to it)."""
    codes: dict[int, tuple[Any, tuple]] = {}
    for code, path in inner_codes(table.own_code):
        codes[id(code)] = (table.own_code, path)
        if path:
            table.hint(code, "code", table.own_code, path)
    own = found.world.own_functions
    for fn, *_ in found.world.asked:
        if isinstance(fn, functools._lru_cache_wrapper):
            table.hint(getattr(fn, "__wrapped__", None), "func", fn, "__wrapped__")
    for fn in found.world.interpreted.values():
        if id(fn) in own:
            continue
        source = found.world.function_sources.get(id(fn))
        if source is not None:  # another one each time: its code is what counts
            at_source(table, fn.__code__, source, (("attr", "__code__"),))
        for code, path in inner_codes(fn.__code__):
            owner = fn if source is None else fn.__code__
            codes.setdefault(id(code), (owner, path))
            if owner is not code:
                table.hint(code, "code", owner, path)
        table.hint(fn.__globals__, "func", fn, "__globals__")
        inside(table, fn)
    for g in c.guards:
        if g.kind == "TYPE_ATTRS" and g.source.op == "const":
            for name, v in g.value.items():
                table.hint(v, "attr", g.source.arg.obj, name)
                while type(v) is types.FunctionType:  # under decorators
                    inside(table, v)
                    v = vars(v).get("__wrapped__")
        elif g.kind in ("ID_MATCH", "TYPE_MATCH", "EMPTY"):
            at_source(table, g.value, g.source, () if g.kind == "ID_MATCH" else (("type", None),))
            if issubclass(type(g.value), types.ModuleType):  # a class that it alone leads to, maybe (`torch._VF`)
                at_source(table, type(g.value), g.source, (("type", None),))
        elif g.kind == "FUNCTION":
            at_source(table, g.value[0], g.source, (("attr", "__code__"),))
        elif g.kind == "TENSOR_MATCH":
            at_source(table, g.value.pytype, g.source, (("type", None),))
    return codes


def inside(table: Writer, fn: types.FunctionType) -> None:
    """What a function holds: the one that it wraps, its cells and what is in them."""
    table.hint(getattr(fn, "__wrapped__", None), "func", fn, "__wrapped__")
    for i, cell in enumerate(fn.__closure__ or ()):
        table.hint(cell, "cell", fn, i)
        with contextlib.suppress(ValueError):
            table.hint(cell.cell_contents, "contents", cell, None)


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
        table.refer(made.frame.fn)
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
        lessons = encode_lessons(made.history, made.refused, Paths(table, codes))
        self.hand_over = hand_over
        self.home = made.frame.home
        self.frame_id = found.frame_id
        self.files = dependencies.files(table)
        self.about = told_about(made.frame, exit_name(found.exit))
        self.content = (table.rows, asked, program, target, told, lessons, computing(found.trace.torch_ops, found.trace.ops))

    def with_graph(self, executable: Any) -> bytes:
        """The whole entry, with this executable. Raises NotPortable."""
        table, linker = Writer(Frame(None, (), self.home), self.hand_over), programs.Linker()
        graph = None if executable is None else programs.encode_executable(executable, table, linker)
        files = [dependencies.file_row(path) for path in dict.fromkeys([*self.files, *dependencies.files(table)])]
        return marshal.dumps(((environment.always_print(), *self.about), files, *self.content, table.rows, linker.rows, graph))


def write(made: Made, hand_over: bool) -> bytes:
    """An entry as data. Raises NotPortable."""
    with torch._C.DisableTorchFunction():
        return Written(made, hand_over).with_graph(made.emitted.executable)


def read(data: bytes, frame: Frame, again: Any, hear: Callable[[Lessons], None] = lambda lessons: None) -> Taken | None:
    """The entry of what `write` made, for this frame; None if its guards do not hold there. Raises Missing."""
    about, files, rows, asked, program, target, told, lessons, operations, graph_rows, modules, graph = marshal.loads(data)
    dependencies.same_files(files)
    objects = resolve(rows, frame)
    dependencies.same_answers(asked, objects)
    hear(Lessons(lessons, objects))
    explained = Explained(told, objects)
    guard = decode_program(program, objects, explained)
    if guard.check(frame.args, frame.fn) is None:
        if testing:
            raise RuntimeError(f"a guard does not hold once it was written down and read again: {guard.explain(frame.args, frame.fn)}")
        return None
    linked = programs.link(modules)
    executable = None if graph is None else programs.decode_executable(graph, resolve(graph_rows, frame), linked)
    emitted = programs.decode_emitted(target, objects, executable, again, frame.fn.__code__)
    return Taken(guard, emitted, explained, about[4], operations)


# -- the disk ---------------------------------------------------------------------------------------------------------------------
def print_of_function(fn: Any, environment_key: bytes) -> bytes:
    """What a function is, and the environment that may change: with `environment.always_print` it is what entries are found by."""
    made = info_of(fn.__code__)
    if made is None:
        function = (fn.__globals__.get("__name__"), code_print(fn.__code__), len(fn.__closure__ or ()))
    else:
        function = resume_print(made, fn)
    return environment_key + repr(function).encode()


def prefix_of(function: bytes) -> str:
    """The common beginning of the names of a function's entries."""
    return hashlib.sha256(environment.always_print().encode() + function).hexdigest()[:40]


def key_of(config: Any) -> bytes | None:
    """`environment.key`; None, which is told once for each reason, where there is none."""
    key = environment.key(config) if enabled else "PLIANT_ENTRIES=0"
    if type(key) is not str:
        return key
    if key not in _told:
        _told.add(key)
        events.emit("disk", what=f"no entries are kept or looked up: {key}", where="")
    return None


_told: set[str] = set()
OTHER_EVENTS = {"disk", "warning", "verified", "mismatch", "unverifiable", "limit", "fallback"}
OF_CAPTURES = tuple(events.KINDS.keys() - OTHER_EVENTS)
"""Events of captures: whoever wants to hear them gets captures."""


def where(frame: Frame) -> str:
    name, file, line, *_ = told_about(frame, "")
    return f"{name} ({file}:{line})"


def candidates(prefix: str) -> list[str]:
    """Names of entries on the disk, the oldest first: the calls of the process that made them find the same ones again, and no capture."""
    return cache.beginning_with(prefix, "-")


def told_about(frame: Frame, exit_: str, why: str = "") -> tuple:
    """What people see of an entry: (function, file, line, how it ends, why it is not kept), behind `environment.always_print`."""
    code = own_code(frame.fn)
    made = info_of(frame.fn.__code__)
    line = code.co_firstlineno if made is None else line_at(code, made.layout.offset) or code.co_firstlineno
    return code.co_qualname + (" (resumed)" if made is not None else ""), code.co_filename, line, exit_, why


def keep(made: Made, config: Any, key: bytes | None) -> Keeper | None:
    """What writes a new entry to the disk, once its graph is compiled; None if it is not kept, and nothing is to be said of it there.
    `key`: of `key_of`, as it was when the capture began."""
    if key is None:
        return None
    keeper = Keeper(print_of_function(made.frame.fn, key), config)
    keeper.attempt(lambda: keeper.begin(made))
    return keeper if keeper.written is not None or keeper.refusal else None


class Keeper:
    """One entry on its way to the disk. `function`: of `print_of_function`. `refusal`: why it has no portable form."""

    def __init__(self, function: bytes, config: Any) -> None:
        self.function = function
        self.config = config
        self.written: Written | None = None
        self.refusal = ""

    def begin(self, made: Made) -> None:
        self.where = where(made.frame)
        self.about = told_about(made.frame, exit_name(made.found.exit))
        self.written = Written(made, False)

    def attempt(self, do: Callable[[], None]) -> None:
        """Do that; what becomes of errors."""
        try:
            with torch._C.DisableTorchFunction():  # looking at tensors runs no code of the program
                do()
        except NotPortable as e:
            self.refusal = str(e)
            self.tell_not_kept(self.refusal)
        except Exception as e:
            broken(e, self.config)

    def tell_not_kept(self, why: str) -> None:
        events.count("entries_not_kept")
        events.emit("disk", what=f"the entry is not kept: {why}", where=self.where)

    def finish(self, executable: Any, known: Known) -> None:
        """Write the entry with this graph, and its name joins those that are known; or a note why there is none."""

        def store() -> None:
            if self.written is not None:
                data = self.written.with_graph(executable)
                prefix = prefix_of(self.function)
                with turns.outside():
                    self.store(prefix, data, known)

        self.attempt(store)
        if self.refusal:
            prefix = prefix_of(self.function)
            note = marshal.dumps(((environment.always_print(), *self.about[:-1], self.refusal),))
            if cache.read(f"{prefix}+") != note:
                cache.write(f"{prefix}+", note)

    def store(self, prefix: str, data: bytes, known: Known) -> None:
        there = candidates(prefix)
        digest = hashlib.sha256(data).hexdigest()[:24]
        name = next((n for n in there if n.endswith(digest)), None)
        if name is None:
            name = f"{prefix}-{time.time_ns():016x}-{digest}"  # in the order in which they were made
            if not cache.write(name, data):
                self.tell_not_kept("it cannot be written")
                return
            events.count("entries_kept")
            events.emit("disk", what="the entry is kept", where=self.where)
            for old in there[: 1 - MOST]:
                cache.remove(old)
        known.names.add(name)


def broken(error: Exception, config: Any) -> None:
    """An error of pliant's own on the way to or from the disk: the entry is captured as if there were no disk."""
    if config.strict:
        raise error
    events.count("entries_broken")
    events.emit("warning", id="entries", text=f"an entry on disk: {type(error).__name__}: {error}. Please report this")


def find(frame: Frame, config: Any, again: Any, known: Known, key: bytes | None) -> Taken | None:
    """An entry from the disk whose guards hold for this call. What is in `known.names` is not looked at; what is found joins them."""
    if key is None or any(map(events.watched, OF_CAPTURES)) or not environment.looks_up():
        return None
    fn = frame.fn
    for name in candidates(prefix_of(print_of_function(fn, key))):
        if name in known.names or known.tries[name] >= TRIES:
            continue
        data = cache.read(name)
        if data is None:
            continue
        try:
            taken = read(data, frame, again, functools.partial(known.hear, name))
        except Missing as e:
            known.names.add(name)
            events.count("entries_stale")
            events.emit("disk", what=f"an entry is not used: {e}", where=where(frame))
            continue
        except Exception as e:
            known.names.add(name)
            broken(e, config)
            continue
        if taken is not None:
            known.names.add(name)
            events.emit("disk", what="an entry is found", where=where(frame))
            return taken
        known.tries[name] += 1
    return None


def forget(names: set[str]) -> None:
    """Take these entries off the disk."""
    for name in names:
        cache.remove(name)


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
    return read(data, made.frame, again)
