"""A region: one compiled function with everything that was compiled because of it. What happens on a miss is here."""

from __future__ import annotations

import contextlib
import functools
import itertools
import pkgutil
import sys
import time
import warnings
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any, NamedTuple

from torch import is_anomaly_enabled

from pliant import events, native, turns
from pliant.codegen import backends
from pliant.codegen.aten import Executable
from pliant.codegen.background import background
from pliant.config import Config
from pliant.errors import BackendError, ConstraintViolation, GraphBreakError, InternalError, PliantError, RecompileError
from pliant.graph.leaving import GRADIENTS, MARKS, SIDE_EXITS
from pliant.graph.originals import is_grad_enabled, torch
from pliant.graph.traced import CALLS_REFUSED, FLAGS, PYTHON_BACKWARD, READ_BEFORE, REPLAYED, UNBACKED, NoBackward, Reconsider, Untraceable
from pliant.guards.guard import Site
from pliant.guards.program import compiled
from pliant.interpret import (
    CaptureFailed,
    FirstCall,
    LeftToPython,
    UserError,
    callers_variables,
    capture,
    collection_paused,
    frozen_leaves,
    given_memory,
    interrupts,
    late_errors,
)
from pliant.interpret.called_apart import computing
from pliant.interpret.capture import BreakExit, Capture
from pliant.interpret.classes import REFUSED
from pliant.interpret.opaque import class_name
from pliant.interpret.state import kept_out, session, vm
from pliant.interpret.tracebacks import release
from pliant.jit import changes, checkpoints, dims, modes, resume, side_exits, stance, tracers, trials
from pliant.jit.emit import Context, Emitted, emit
from pliant.jit.history import LEARNED, History, Lesson, Sites, changed_arguments, lesson, pinned_numbers
from pliant.jit.nested_frames import Below
from pliant.jit.other_compilers import not_for_others
from pliant.jit.persist import entries
from pliant.jit.plain_python import DECISION, exit_name
from pliant.jit.reconstruct import CannotReconstruct
from pliant.jit.stance import where
from pliant.jit.tiers import Exchange, Storing, forget_gone, places_of
from pliant.jit.weak_ids import WeakIdDict
from pliant.lower import pipeline
from pliant.symbolic.scope import UNFIT

LOCAL = ("aten", "native")
"""Backends whose graphs are programs of `codegen.aten`, run here."""
RETRY, EAGER = ("retry",), ("eager",)
REST = ("rest",)  # CPython runs this frame, and others that no entry fits: what a call takes that comes here says what the next ones take
GIVE_UP = 3  # internal failures of one code object before it is left alone
SHORT_LIVED = 8  # entries that went with an object they need, before captures wait for twice as many misses each time
MOST_FIRSTS = 16  # calls of one code object left to eager PyTorch because lazy modules take their shapes in them
MOST_SKIPPED = 10  # a program that keeps raising is captured anew after at most 2 ** 10 calls
PATIENCE_S = 10.0  # a call waits so long for captures of other threads; whoever captures may wait for what this thread holds
EXPLAINED = 8  # entries whose failure is worth explaining
VERIFIER = "pliant.jit.verify.verifier:Verifier"  # imported where calls are verified

_ids = itertools.count()
_frames = itertools.count()
_called: weakref.WeakSet[Region] = weakref.WeakSet()  # since the last `reset_all`


MODIFIED = "modified by an inplace operation"


@dataclass(frozen=True, slots=True, eq=False)
class Info:
    """What is known about an entry: `entry.info`."""

    serial: int
    frame_id: str
    guards: tuple[Lesson, ...]
    relations: tuple[tuple[Any, Site | None], ...]
    emitted: Emitted
    exit: str
    pinned: dict[int, tuple[Lesson, ...]]  # numbers that relations without a site are about
    branches: tuple[Any, ...] = ()  # on data, at which it ends or may be left
    operations: int = 0  # of its graph


class Past(NamedTuple):
    """What an entry teaches when it is gone."""

    guards: tuple[Lesson, ...]
    relations: tuple[tuple[Any, Site | None], ...]
    pinned: dict[int, tuple[Lesson, ...]]
    operations: int


class Record:
    """What is known about one code object with entries."""

    __slots__ = (
        "captures", "died", "failures", "firsts", "history", "met", "newest", "number", "on_disk", "refused", "skip", "user_errors",
    )  # fmt: skip

    def __init__(self, history: History) -> None:
        self.history = history
        self.number = next(_frames)
        self.captures = 0
        self.newest: tuple[Any, Past] | None = None  # the guard of the latest entry, and what it teaches
        self.died = 0  # latest entries whose guards needed an object that is gone
        self.failures = 0
        self.met = False
        self.user_errors = 0
        self.firsts = 0  # calls in which objects from outside became what they are
        self.refused: set[str] = set()
        self.skip = 0
        self.on_disk = entries.Known()

    def learn_from_disk(self) -> None:
        """What was known when the entries were made that this process found on the disk."""
        while self.on_disk.lessons:
            self.on_disk.lessons.pop().teach(self.history, self.refused)


class Region:
    """`miss` is what entry points call when no entry holds."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.cache: resume.Cache = resume.Cache()
        self.sites = Sites()
        self.records: WeakIdDict[Record] = WeakIdDict()
        self.codes: list[weakref.ref[CodeType]] = []
        # a backend that gets the program before autograd does not see what autograd did to it
        self.refused = frozenset()
        below = Below(self.miss) if config.below else None
        self.context = Context(
            self.cache, self.miss, self.build, self.again, below, config.backend != "aten", backends.OWN.get(config.backend) is None
        )
        self.own = backends.OWN.get(config.backend) is not None and config.backend != backends.REMOTE
        self.context.stores = config.backend in LOCAL
        self.context.branches = self.sites.branches if self.own and not config.fullgraph else None
        self.verifier = pkgutil.resolve_name(VERIFIER)(self, config.verify) if config.verify else None
        self.tried: weakref.WeakKeyDictionary[Any, trials.Trial] = weakref.WeakKeyDictionary()  # entry points

    def entry_point(self, fn: FunctionType, **twin: Any) -> Any:
        """A callable around `fn`. `twin`: `origin` and `follow`, if it is another function's (`compile.twin_of`)."""
        if self.verifier is not None:
            return self.verifier.entry_point(fn, **twin)
        if not trials.wanted(self.config):
            return native.EntryPoint(fn, self.miss, **twin)
        trial = trials.Trial(self)
        point = native.EntryPoint(fn, self.miss, None, trial, **twin)
        self.tried[point] = trial
        return point

    def record(self, code: CodeType) -> Record:
        found = self.records.get(code)
        if found is None:
            info = resume.info_of(code)
            history = History(self.sites, info is not None and bool(info.layout.loops))
            history.whole_loops = history.joins = history.gives_memory = self.own
            history.on_mesh = self.config.backend == backends.REMOTE
            found = self.records[code] = Record(history)
            self.codes.append(weakref.ref(code))
            _called.add(self)
        return found

    def close(self) -> None:
        """Drop every entry: nothing compiled for this region is used again."""
        for ref in self.codes:
            code = ref()
            if code is not None:
                native.clear(code)

    def reset(self) -> None:
        """Forget everything, as if never called."""
        self.close()
        self.sites = Sites()
        if self.context.branches is not None:
            self.context.branches = self.sites.branches
        self.records.clear()
        self.codes.clear()
        for point, trial in list(self.tried.items()):
            trial.begin()
            point._untried()

    # -- a miss -------------------------------------------------------------------------------------------------------------
    @not_for_others
    def miss(self, entry_point: Any, fn: FunctionType, args: tuple) -> tuple:
        """No entry of `fn.__code__` holds for these frame arguments: capture, compile, install. Tells the caller what to do."""
        here = checkpoints.place() if self.own and self.verifier is None and not vm.active else None
        try:
            if here is None:
                return self.answer(fn, args)
            return checkpoints.serve(here, fn, args, functools.partial(self.answer, fn, args))
        except RecursionError:
            if deep():
                return EAGER
            raise

    def answer(self, fn: FunctionType, args: tuple) -> tuple:
        """What a miss is answered."""
        with turns.waiting(PATIENCE_S) as mine, collection_paused():
            if not mine:
                return EAGER
            if vm.active or tracers.one_is_on():  # a call made by the program that is being captured, or by one that another tracer follows
                return EAGER
            code = fn.__code__
            if any(e.guard.check(args, fn) is not None for e in native.entries(code)):
                return RETRY  # another thread was faster
            if is_anomaly_enabled() and is_grad_enabled():  # a region would be one node, whose inside nobody could tell
                return EAGER
            if callers_variables.left(resume.origin_of(code)[0]):
                return self.left_whole(code)
            if self.sites.plain.leaves(code) and not checkpoints.awaited(code):
                native.set_flags(code, native.get_flags(code) | native.RUN_ONLY)
                return EAGER
            record = self.record(code)
            met, record.met = record.met, True
            if stance.runs_eager(code, met):
                return EAGER
            if record.skip > 0:
                record.skip -= 1
                return REST
            if self.sites.ration.waits() and self.rationed(record, code):
                return REST
            if len(native.entries(code)) >= stance.limit(self.config.entry_limit):
                return self.limit(code)
            with session(history=record.history, config=self.config, refused=record.refused | self.refused):
                return self.serve(fn, args, record)

    def serve(self, fn: FunctionType, args: tuple, record: Record) -> tuple:
        """An entry from the disk, or a capture, in a session of its own; what becomes of errors."""
        code = fn.__code__
        try:
            key = entries.key_of(self.config) if entries.enabled and not entries.testing else None
            return RETRY if self.take(fn, args, record, key) else self.compile(fn, args, record, key)
        except Reconsider as e:
            within = e.what == GRADIENTS and not is_grad_enabled()  # the frame begins inside of a `no_grad` that it leaves
            what = SIDE_EXITS if within else e.what
            if what in record.refused and what.startswith(PYTHON_BACKWARD):
                what = PYTHON_BACKWARD  # it is not the program that applies this one, but the backward part of another
            if what in record.refused and what == PYTHON_BACKWARD:
                what = REPLAYED
            if what in record.refused and MODIFIED in str(e):
                return self.modified(code, record, e)
            if what in record.refused:
                raise InternalError(f"{where(code)}: {e}") from e
            record.refused.add(what)
            return RETRY
        except FirstCall as e:
            record.firsts += 1
            return EAGER if record.firsts <= MOST_FIRSTS else self.fall_back(code, record, e)
        except LeftToPython as e:
            return RETRY if without_exits(record) else self.leave(code, record, e)
        except UserError as e:
            behind = vm.trace.assumed[-1:] or [e.way.branch for e in vm.trace.exits[-1:]]
            if behind:
                behind[0].refuse("the side behind which the graph went on raises")
                return RETRY
            return "eager", self.judge(code, record, e.error, e.of_torch, late_errors.possible(vm.trace))
        except NoBackward as e:
            if without_exits(record):
                return RETRY
            if MODIFIED in str(e.error):
                return self.modified(code, record, e.error)
            return "eager", self.judge(code, record, e.error, True)
        except ConstraintViolation:
            raise  # a promise of the user's own: never hidden
        except (GraphBreakError, BackendError) as e:
            if self.config.strict or self.config.fullgraph:
                raise
            return self.fall_back(code, record, e)
        except (CaptureFailed, CannotReconstruct, resume.CannotResume, Untraceable) as e:
            if without_exits(record):
                return RETRY
            if isinstance(e, CannotReconstruct) and (more := too_much(e, record.refused)):
                record.refused.add(more)
                return RETRY
            if self.config.strict:
                raise InternalError(f"{where(code)}: {e}") from e
            return self.fall_back(code, record, e)
        except Exception as e:
            if interrupts.is_one(e):
                raise
            if isinstance(e, RecursionError) and deep():
                return "eager", self.judge(code, record, e, False)
            if self.config.strict:
                raise InternalError(f"{where(code)}: {type(e).__name__}: {e}") from e
            return self.fall_back(code, record, e)
        finally:
            if vm.world is not None:
                vm.world.release()  # it holds the user's tensors

    def modified(self, code: CodeType, record: Record, e: Exception) -> tuple:
        """What was saved is written since: eager says so when gradients arrive, and only of those that come by there."""
        if READ_BEFORE in record.refused or self.config.fullgraph:
            return self.fall_back(code, record, e)
        record.refused.add(READ_BEFORE)
        return RETRY

    def judge(
        self, code: CodeType, record: Record, expected: BaseException, of_torch: bool, late: bool = False
    ) -> Callable[[BaseException | None], None]:
        """What hears how the eager run went after a capture that ended with the exception `expected`, perhaps one of PyTorch's. `late`:
        what was captured before may raise, too, once it runs.

        The program's own exceptions come again; one that does not was pliant's. Either way the frame ran once, in CPython. The exception
        holds nothing meanwhile: its traceback keeps the interpreter's frames, and these what the program would have dropped by then.
        """
        release(expected)
        short = isinstance(expected, RecursionError) and deep()

        def hear(actual: BaseException | None) -> None:
            refused = (of_torch or late) and isinstance(actual, Exception) or (late and actual is None)  # (it was raised, and handled)
            refused = refused or short or isinstance(expected, RecursionError) and actual is not None  # its end is somewhere else then
            if refused or type(actual) is type(expected) or made_anew(type(actual), type(expected)):
                events.count("user_errors")
                record.user_errors += 1
                record.skip = (1 << min(record.user_errors, MOST_SKIPPED)) - 2
                return
            if of_torch and actual is None and CALLS_REFUSED not in record.refused:
                record.refused.add(CALLS_REFUSED)  # its kernels may take them: the next capture ends before that call
                return
            got = "nothing" if actual is None else f"{type(actual).__name__}: {actual}"
            text = f"the capture raised {type(expected).__name__}: {expected}; CPython raised {got}"
            if self.config.strict:
                raise InternalError(f"{where(code)}: {text}") from expected
            self.fall_back(code, record, InternalError(text))

        return hear

    def again(self, error: BaseException, handled: bool, code: CodeType | None, calls: tuple = ()) -> None:
        """A graph raised before it did anything that shows: CPython runs the frame. Where nothing handles it, that must raise, too.
        `calls`: at which line (`Site.calls`)."""
        error.__traceback__ = None  # it holds the emitted frame, and this the values of the call

        def hear(actual: BaseException | None) -> None:
            if actual is not None and UNFIT in str(error) and str(error) not in getattr(actual, "__notes__", ()):
                actual.add_note(str(error))  # eager's own error, and what the compiled graph knows about it
            if calls and code is not None and (actual is not None or handled) and self.sites.raising.raised(calls, code, actual is None):
                self.end_before(code)
            if actual is not None or handled or code is None:
                return
            if (UNFIT in str(error) or type(error) is ZeroDivisionError) and self.unfit(code, error):
                return
            text = f"the compiled graph raised {type(error).__name__}: {error}; CPython raised nothing"
            if self.config.strict:
                raise InternalError(f"{where(code)}: {text}") from error
            with turns.compiling:
                self.fall_back(code, self.record(code), InternalError(text))

        raise native.Again(hear)

    def end_before(self, code: CodeType) -> None:
        """A line raises again and again: what was compiled of it with a graph goes, and is captured anew, with an end in front of it."""
        with turns.compiling:
            if self.config.fullgraph or checkpoints.awaited(code):
                return
            for entry in native.entries(code):
                if entry.info.emitted.executable is not None:
                    native.remove_entry(code, entry)

    def unfit(self, code: CodeType, error: BaseException) -> bool:
        """What the graph took for granted of sizes that only the run knows (that rows which are added to others are as many, where eager
        repeats a single one) did not hold, and eager went on: from here on, such a size ends the graph. False where that is so already."""
        with turns.compiling:
            record = self.record(code)
            if UNBACKED in record.refused:
                return False
            events.emit("policy", what=str(error), where=self.config.label(code))
            if not self.config.fullgraph:
                record.refused.add(UNBACKED)
                for entry in native.entries(code):
                    native.remove_entry(code, entry)
        return True

    def limit(self, code: CodeType) -> tuple:
        limit = len(native.entries(code))
        if checkpoints.awaited(code):
            return EAGER
        if self.config.fullgraph or stance.said_to_torch("config", "fail_on_recompile_limit_hit", False) is True:
            raise RecompileError(f"{where(code)} needs more than {limit} compiled versions")
        native.set_flags(code, native.get_flags(code) | native.RUN_ONLY)
        events.emit("limit", name=self.config.label(code), limit=limit)
        return EAGER

    def left_whole(self, code: CodeType) -> tuple:
        """Frames of this code run in CPython from here on, whatever was compiled of them before."""
        if self.config.fullgraph:
            raise GraphBreakError(f"{where(code)} runs in CPython: what it calls looks at its variables")
        for one in {code, resume.origin_of(code)[0]}:
            native.clear(one)
            native.set_flags(one, native.get_flags(one) | native.RUN_ONLY)
        events.emit("policy", what="what it calls looks at its variables: CPython runs it", where=where(code))
        return EAGER

    def fall_back(self, code: CodeType, record: Record, error: BaseException | None = None) -> tuple:
        """This call runs in eager PyTorch; after `GIVE_UP` failures, so do all that no entry fits."""
        number = next(_ids)
        name = where(code)
        events.count("fallbacks")
        events.emit("fallback", id=number, name=name, error=repr(error))
        if record.failures == 0:
            with contextlib.suppress(RuntimeWarning):  # where warnings are errors: none of the program's own raises here
                text = f"{name} runs in eager PyTorch: {type(error).__name__}: {error}"
                warnings.warn(f"pliant W{number}: {text}", RuntimeWarning, stacklevel=3)
        record.failures += 1
        if record.failures >= GIVE_UP and not checkpoints.awaited(code):
            native.set_flags(code, native.get_flags(code) | native.RUN_ONLY)
        return EAGER

    def leave(self, code: CodeType, record: Record, why: LeftToPython) -> tuple:
        """What this frame asks CPython alone can answer, from its first instruction on: it runs there, and that is no failure."""
        if self.config.fullgraph:
            raise GraphBreakError(f"{where(code)} runs in CPython: {why}")
        whole = resume.info_of(code) is None
        if whole:
            events.count("fallbacks")
        events.emit("policy", what=str(why), where=self.config.label(code))
        record.failures += 1
        if (record.failures >= GIVE_UP or not whole) and not checkpoints.awaited(code):
            native.set_flags(code, native.get_flags(code) | native.RUN_ONLY)
        return EAGER

    def rationed(self, record: Record, code: CodeType) -> bool:
        """Whether captures of this code are others of what was captured before, in a region in which the graph breaks."""
        before = record.captures > 0 or bool(record.on_disk.heard)  # in this process, or in one that has left entries that do not fit
        tried = before and len(self.codes) > 1 and self.verifier is None and trials.wanted(self.config)
        return tried and not trials.in_group() and not checkpoints.awaited(code)

    def compile(self, fn: FunctionType, args: tuple, record: Record, key: bytes | None) -> tuple:
        code = fn.__code__
        frame_id = f"{record.number}/{record.captures}"
        worked = time.thread_time()
        refused = len(record.refused)
        for known in list(self.records.values()):
            known.learn_from_disk()
        if len(record.refused) > refused:
            return RETRY  # in a session that knows it
        self.learn(fn, args, record, frame_id)
        info = resume.info_of(code)
        start = resume.start_of(info) if info is not None else None
        name = self.config.label(code)
        events.emit("capture_start", frame_id=frame_id, name=name, filename=code.co_filename, lineno=code.co_firstlineno)
        began = time.perf_counter()
        if self.context.branches is not None and not (SIDE_EXITS in record.refused or GRADIENTS in record.refused and is_grad_enabled()):
            vm.make_exit = functools.partial(side_exits.made, fn=fn, context=self.context, start=start)
        if self.own:  # a remote graph is left by nobody
            found_behind = functools.partial(side_exits.behind, fn=fn, context=self.context, start=start)
            vm.make_behind = side_exits.not_behind if MARKS in record.refused else found_behind
        vm.undoes = self.context.torch_level
        record.history.joined.clear()
        record.history.small.capture = record.captures
        self.sites.left_loops.tell(code)
        found = self.captured(fn, args, start, record)
        self.sites.left_loops.note(code)
        found.frame_id = frame_id
        ends, whole = found.exit, self.config.fullgraph or found.world.error_on_break
        if isinstance(ends, BreakExit) and not whole and self.sites.functions.breaks_in(ends.frames, found.world.inlined):
            return RETRY
        record.history.calls.met(found.world.inlined.values(), found.world.walked.values())
        for inlined, _, operations, _ in found.world.inlined.values():
            self.sites.functions.note(inlined, operations, True)
        if not frozen_leaves.whole(found.world):
            if self.context.torch_level:  # whose compiler differentiates by itself
                raise Reconsider(where(code), "a parameter has no gradients for a while", FLAGS)
            found.trace.flags_changed = True
        if found.trace.scope.mixed:
            raise Reconsider(where(code), "behind a side exit something is assumed of a value from before it", SIDE_EXITS)
        dims.check(found.trace.scope)
        if isinstance(found.exit, BreakExit):
            if not found.exit.frames:
                raise CaptureFailed(f"{found.exit.code}: {found.exit.reason}")
            self.note_break(found, found.exit)
        with torch._C.DisableTorchFunction():  # what looks at traced tensors is no matter of the program's classes and modes
            emitted = emit(found, fn, self.context, start=start)
        entry = self.install(entries.Frame(fn, args, self.context), found, emitted, record, key)
        if self.rationed(record, code):
            self.sites.ration.captured(worked)
        record.captures += 1
        if record.died > SHORT_LIVED and not self.config.fullgraph:
            record.skip = 1 << min(record.died - SHORT_LIVED, MOST_SKIPPED)
            events.emit("short_lived", name=name, died=record.died, skipped=record.skip)
        events.count("captures")
        if self.tried:
            trials.hurry(list(self.tried), trials.captures(self))
        operations = computing(found.trace.torch_ops, found.trace.ops)
        self.sites.functions.note(resume.origin_of(code)[0], operations, False)
        self.sites.plain.note(code, operations, exit_name(found.exit))
        for branch in [*[way.branch for way in emitted.exits], *found.trace.assumed]:
            events.count("exit_points")
            events.emit("exit_point", frame_id=frame_id, where=branch.where, side=branch.hot, takes=branch.taken)
        report(found, fn, emitted, began, name)
        if entry.guard.check(args, fn) is None:
            why = entry.guard.explain(args, fn)
            native.remove_entry(code, entry)
            raise InternalError(f"the guards of a new entry do not hold for the call that made it: {why.text if why else 'unknown'}")
        return RETRY

    def captured(self, fn: FunctionType, args: tuple, start: Any, record: Record) -> Capture:
        """The capture of this call; of one that may not break, without the breaks that were learned."""
        try:
            found = capture(fn, list(args), start=start, history=record.history, config=self.config)
        except Reconsider as e:
            if not self.config.fullgraph or e.code not in LEARNED:
                raise
            found = None  # and the exception goes, with what of the capture it holds
        if found is None:
            return self.capture_unbroken(fn, args, start, record)
        whole = self.config.fullgraph or found.world.error_on_break
        if whole and isinstance(found.exit, BreakExit) and found.exit.code in LEARNED:
            return self.capture_unbroken(fn, args, start, record)
        return found

    def capture_unbroken(self, fn: FunctionType, args: tuple, start: Any, record: Record) -> Capture:
        """Once more, for the values of this call alone, where what was learned of those before would break the graph."""
        record.history.unbroken = True
        try:
            return capture(fn, list(args), start=start, history=record.history, config=self.config)
        finally:
            record.history.unbroken = False

    def install(self, frame: entries.Frame, found: Capture, emitted: Emitted, record: Record, key: bytes | None) -> Any:
        fn = frame[0]
        world, scope = found.world, found.trace.scope
        relations = [(g.expr, g.site) for g in scope.guards] + [(e, None) for e in world.relations]
        guard, program = compiled(found.guards, world.symbols, [r for r, _ in relations], emitted.slots)
        info: Any = Info(next(_ids), found.frame_id, tuple(map(lesson, found.guards)), tuple(relations), emitted, type(found.exit).__name__,
                         pinned_numbers(relations, world.symbols), tuple(emitted.branches), len(found.trace.ops))  # fmt: skip
        for branch in emitted.branches:
            branch.found_in(fn.__code__)
        self.sites.made.update(map(class_name, world.own_classes))
        keeper = None
        if entries.testing or entries.enabled:
            made = entries.Made(frame, found, emitted, program, relations, record.history, frozenset(record.refused))
            if entries.testing:
                taken = entries.exchanged(made, self.again)
                if taken is not None:
                    guard, emitted, info = taken.guard, taken.emitted, entries.TakenInfo(info.serial, info.frame_id, taken)
            else:
                keeper = entries.keep(made, self.config, key)
        entry = native.add_entry(fn.__code__, guard, emitted.fn, True, info)
        record.newest = guard, Past(info.guards, info.relations, info.pinned, info.operations)
        events.count("entries")
        for old in native.entries(fn.__code__) if record.history.joined else ():
            if old is not entry and record.history.one_side(old.info.relations):
                native.remove_entry(fn.__code__, old)
        if self.verifier is not None:
            self.verifier.noticed()
        self.submit(emitted, found.frame_id, keeper, record)
        return entry

    def submit(self, emitted: Emitted, frame_id: str, keeper: entries.Keeper | None, record: Record) -> None:
        """Have the machine code of a new entry made, if that is still to be done; then, or now, the entry goes to the disk."""

        def ready(executable: Any) -> None:
            if self.verifier is not None:
                self.verifier.noticed()
            if keeper is not None:
                keeper.finish(executable, record.on_disk)

        if emitted.executable is None or emitted.executable.later is None or not places_of(emitted):
            if keeper is not None:
                store = functools.partial(keeper.finish, emitted.executable, record.on_disk)
                if self.config.background and background.has_room(Storing.size):
                    background.leave(Storing(emitted.fn.__code__.co_name, store))  # behind the first answer
                else:
                    store()
            return
        kept = keeper.function if keeper is not None and not keeper.refusal else None
        Exchange(emitted, frame_id, self.config.strict, ready, kept).wait_for_call()

    def take(self, fn: FunctionType, args: tuple, record: Record, key: bytes | None) -> bool:
        """Install an entry from the disk, if one fits this call. `key`: of `entries.key_of`; None where none is looked up or kept."""
        code = fn.__code__
        if key is None:
            return False
        began = time.perf_counter()
        taken = entries.find(entries.Frame(fn, args, self.context), self.config, self.again, record.on_disk, key)
        if taken is None:
            return False
        frame_id = f"{record.number}/{record.captures}"
        native.add_entry(code, taken.guard, taken.emitted.fn, True, entries.TakenInfo(next(_ids), frame_id, taken))
        for branch, side in zip(taken.emitted.branches, taken.emitted.sides, strict=True):
            branch.adopt(code, side)
        record.captures += 1
        self.sites.functions.note(resume.origin_of(code)[0], taken.operations, False)
        self.sites.plain.note(code, taken.operations, taken.exit)
        events.count("entries")
        events.count("entries_from_disk")
        breaks = taken.exit in (BreakExit.__name__, DECISION)
        if breaks:
            events.count("graph_breaks")
        if self.verifier is not None:
            self.verifier.noticed()
        seconds, name = time.perf_counter() - began, self.config.label(code)
        events.emit("entry_added", frame_id=frame_id, name=name, seconds=seconds, from_disk=True, breaks=breaks)
        return True

    def note_break(self, found: Capture, exit_: BreakExit) -> None:
        events.count("graph_breaks")
        events.emit("graph_break", frame_id=found.frame_id, code=exit_.code, reason=exit_.reason, site=exit_.site)
        if self.config.fullgraph or found.world.error_on_break:
            raise GraphBreakError(f"{exit_.code}: {exit_.reason}\n  at {exit_.site}")
        if found.world.listed and exit_.code in LEARNED and len(exit_.frames) > 1:
            found.world.history.leaves_apart(exit_.site)
        for frame in exit_.frames:
            if frame.lasti >= 0:
                found.world.history.breaks_in_loop(frame.code, frame.lasti * 2)

    def learn(self, fn: FunctionType, args: tuple, record: Record, frame_id: str) -> None:
        """Why no entry holds, for the policy memory and for the log."""
        code = fn.__code__
        reasons, guards, sites = [], [], []
        entries = sorted(native.entries(code), key=lambda e: e.info.serial, reverse=True)
        tried = [(e.guard, e.info) for e in entries[:EXPLAINED]]
        if record.newest is not None and record.newest[0].dead:  # it is no entry any more
            tried.insert(0, record.newest)
            guards += [(g, True) for found in record.newest[1].guards if found.gone and (g := found.guard()) is not None]
            record.newest = None
            record.died += 1
        told = [(info, why) for native_guard, info in tried if (why := native_guard.explain(args, fn)) is not None]
        of_this_state = [row for row in told if not of_another_state(*row)]  # those of `no_grad()` say nothing of what changes without
        latest = (of_this_state or told or [None])[0]
        for row in told:
            info, why = row
            reasons.append(why.text)
            newest = row is latest
            learnt = info.guards[why.guard].guard() if why.guard is not None else None
            found = changes.changed(info.guards, fn, args, learnt) if newest else []
            if newest:
                record.history.learn_places(changes.listed(info.guards, fn, args, learnt))
            others = [g for g in found if not record.history.is_dynamic(g.source)]  # which are learned by it
            guards += [(g, True) for g in others]
            if learnt is not None:
                guards.append((learnt, newest))
                if newest and why.walked is not None and learnt.site is not None:
                    self.sites.lists.change(learnt.site, *why.walked, info.operations)
            elif why.relation is not None and newest and not others:
                site = info.relations[why.relation][1]
                if site is not None:
                    sites.append(site)
                else:
                    record.history.learn_pinned(info.pinned.get(why.relation, ()))
            if newest and why.unread is not None:
                record.history.learn_unread(why.unread)
                guards += [(g, True) for g in changed_arguments(info.guards, args)]
        if reasons:
            record.history.learn(guards, sites)
            events.count("recompiles")
            events.emit("recompile", frame_id=frame_id, reasons=reasons)

    # -- graphs -------------------------------------------------------------------------------------------------------------
    def build(self, found: Capture, inputs: list, outputs: list, name: str) -> Any:
        """The executable of a captured graph, by the backend of this region."""
        given_memory.check(found.world, outputs)
        began = time.perf_counter()
        extra = modes.for_backend(self.config)
        later = self.config.background and not found.under_modes and not entries.testing and background.has_room(len(found.trace.ops))
        with pipeline.checked(self.config.strict):
            made: Executable = backends.compile_graph(
                found.trace, inputs, outputs, name=name, backend=self.config.backend, extra=extra, later=later
            )
        events.emit("backend_compile", frame_id=found.frame_id, backend=self.config.backend, seconds=time.perf_counter() - began)
        return made


def report(found: Capture, fn: FunctionType, emitted: Emitted, began: float, name: str) -> None:
    """Tell the event log what a capture came to."""
    i, n_ops, n_guards, kind = found.frame_id, len(found.trace.ops), len(found.guards), type(found.exit).__name__
    events.emit("capture_end", frame_id=i, seconds=time.perf_counter() - began, ops=n_ops, guards=n_guards, exit=kind)
    if events.watched():  # these three are only told, never kept
        events.emit("graph", frame_id=i, graph=found.trace, outputs=emitted.outputs, name=name)
        events.emit("guards", frame_id=i, guards=(*found.guards, *found.trace.scope.guards))
        events.emit("bytecode", frame_id=i, original=found.code, modified=emitted.fn.__code__)
    emitted.outputs = []  # they hold the whole trace
    events.emit("entry_added", frame_id=i, name=name, seconds=time.perf_counter() - began)


def without_exits(record: Record) -> bool:
    """Whether what failed was a capture with side exits: the next one has none."""
    if vm.trace is None or not (vm.trace.exits or vm.trace.assumed) or SIDE_EXITS in record.refused:
        return False
    record.refused.add(SIDE_EXITS)
    return True


def of_another_state(info: Any, why: Any) -> bool:
    """Whether an entry was not for this call since torch's global state is another (both ways are called, perhaps in turn)."""
    return why.guard is not None and info.guards[why.guard].kind == "GLOBAL_STATE"


def too_much(e: CannotReconstruct, refused: set[str]) -> str:
    """What the next capture of this code is to leave to CPython, so that the value comes from outside; empty if nothing is known."""
    if e.kind is not None and kept_out(e.kind) not in refused:
        return kept_out(e.kind)
    return REFUSED if vm.world.own_classes and REFUSED not in refused else ""  # perhaps because of a class that the capture made


def deep() -> bool:
    """Whether the program has gone more than half way to the end of the stack: a capture, which needs more of it, may be cut short."""
    frame, depth = sys._getframe(), 0
    while frame is not None:
        frame, depth = frame.f_back, depth + 1  # type: ignore[assignment]
    return 2 * depth > sys.getrecursionlimit()


def made_anew(a: type, b: type) -> bool:
    """Whether two classes come from the same statement inside a function."""
    return "<locals>" in a.__qualname__ and (a.__module__, a.__qualname__) == (b.__module__, b.__qualname__)


def called_regions() -> list[Region]:
    """Those that were called since `reset_all`."""
    return list(_called)


def reset_all() -> None:
    """`Region.reset` of every region that has anything to forget."""
    for region in called_regions():
        region.reset()
    _called.clear()
    forget_gone()


__all__ = ["Info", "PliantError", "Region", "called_regions", "reset_all"]
