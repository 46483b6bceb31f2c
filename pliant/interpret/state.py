"""The session of a capture, and the operations of the interpreter.

A capture's state is its session's: frame, world, trace, scope, settings. `session()` opens one and puts back what was there before, so
nothing of a capture is left behind. Captures are serialized by `jit` (one lock), hence one session at a time is enough: `vm` is it.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

from pliant.guards.guard import Site
from pliant.interpret.capture import UNSET


class Break(BaseException):
    """The current instruction must be run by CPython. BaseException, so user `except Exception` never sees it.

    `clean` says that what raises it has done nothing yet, and nothing has that the same instruction did before (`Frame.moved`);
    otherwise the capture restarts and stops before it.
    """

    def __init__(self, code: str, reason: str, *, clean: bool = False, action: tuple = ("none",)) -> None:
        super().__init__(code, reason)
        self.code = code
        self.reason = reason
        self.clean = clean
        self.frames: list = []
        self.action = action
        self.pushes = 0
        self.site: Site | None = None
        self.tail = False


class Restart(BaseException):
    """Interpret again from the start and break before instruction number `count` of frame number `serial`, if that is at `place`: what an
    attempt has found (a size that is open now) may have the next one call more."""

    def __init__(self, serial: int, count: int, code: str, reason: str, place: tuple = ()) -> None:
        super().__init__(serial, count, reason)
        self.place = place  # (code object, index of the instruction)
        self.serial = serial
        self.count = count
        self.code = code
        self.reason = reason


class ReplayFailed(Restart):
    """A replay does not come to what its template says, and has begun to record, or nothing may be replayed: capture again without."""

    def __init__(self) -> None:
        super().__init__(-1, -1, "", "a repeated block that did not come out as it did before")


class LoopBackSignal(BaseException):
    """The body of a region loop reached its header again."""


class Frame:
    """An interpreted frame. `fast` is `localsplus`; `pc` the next instruction index; `count` how many were executed."""

    __slots__ = (
        "decoded", "ins", "pc", "stack", "fast", "globals", "builtins", "code", "kw", "func", "ret", "yielded", "serial", "outer",
        "tail", "is_tail", "handling", "count", "moved", "parent", "loop_header", "watched", "held", "top", "names", "site", "outer_site",
        "caught", "stops", "shown", "calls_module",
    )  # fmt: skip

    def __init__(self, decoded: Any, func: Any, fast: list, globals_: dict) -> None:
        self.decoded = decoded
        self.ins = decoded.ins
        self.code = decoded.code
        self.func = func
        self.fast = fast
        self.globals = globals_
        self.pc = 0
        self.stack: list = []
        self.kw: tuple = ()
        self.ret: Any = None
        self.yielded = False
        self.outer = True
        self.tail = False
        self.is_tail = False
        self.handling: list = []
        self.count = 0
        self.moved = -1  # what `pc` was when an instruction had an effect before its end: an iterator moved, code of the program ran
        self.parent: Frame | None = None
        self.loop_header = -1
        self.watched = False
        self.held: list | tuple = ()  # what its state brought along that may run code when it ends: see `lifetimes.py`
        self.top = False
        self.names: dict | None = None
        self.shown: dict | None = None  # what `locals()` has given last
        self.calls_module = False  # what it calls is `forward` of a module, without the two frames between (`modules.py`)
        self.caught = False  # a handler of this frame was entered
        self.stops: tuple[int, ...] = ()  # instructions before which a way through a loop ends (`data_loops.py`)
        self.site: Site | None = None  # the last one made for this frame
        self.outer_site: Any = UNSET  # the caller's, which stands still while this frame runs
        vm.frames_made += 1
        self.serial = vm.frames_made

    def ends(self) -> None:
        """Let go of the locals, the first one first, as CPython's frames do; a list would begin with its last item."""
        for i in range(len(self.fast)):
            self.fast[i] = UNSET
        self.fast, self.stack = [], []


@dataclass(slots=True, kw_only=True)
class Session:
    """What one capture owns. `vm` holds that of the capture that is going on; `session` opens and closes one."""

    active: bool = False  # the program is being interpreted just now
    # the model of the program and the world, made anew for each attempt
    world: Any = None
    trace: Any = None
    scope: Any = None
    top_globals: Any = None  # the globals of the frame that is captured
    # what the capture was given
    history: Any = None
    config: Any = None
    make_exit: Any = None  # what jit makes of a branch's other side, as things are (`exits.py`); None: each branch on data ends the graph
    make_behind: Any = None  # what jit makes of the effects so far, should the graph raise (`late_errors.py`); None: nothing is noted
    undoes: bool = False  # what the graph has written is put back where it raises: somebody else runs it, who knows no marks
    told: int = 0  # how many calls waited for the end of the graph before the side of a branch that is being tried
    refused: frozenset[str] | set[str] = frozenset()  # what an earlier capture of this code found out to be too much
    # where the interpreter stands
    frame: Any = None
    exc: BaseException | None = None  # the exception that the program handles just now
    reader: Any = None  # the C code that runs, which Python code that it calls back gives its answers
    pending: BaseException | None = None  # a break inside Python code that C code has started, on its way out through that
    depth: int = 0
    frames_made: int = 0
    frames_most: int = 1 << 60  # more than so many are too many
    asking: int = 0  # how many `__hash__` and `__eq__`, which C code calls for a container, are running
    hashing: int = 0  # how many of these are `__hash__`
    rehearsing: int = 0  # how many backward functions are being interpreted for their guards alone
    heard: list | None = None  # what such a one reads of the outside (`late_reads.py`)
    # what earlier attempts have found: where to break
    break_serial: int = -1
    break_count: int = -1
    break_place: tuple = ()
    break_code: str = ""
    break_reason: str = ""
    break_at_data: bool = False  # a write through `x.data` was met: break where it is read
    loops: dict = dataclasses.field(default_factory=dict)  # (id of a code, header) -> whether its loop on data is done whole
    loop_codes: list = dataclasses.field(default_factory=list)  # these code objects, so that nobody else gets their numbers
    exploring: list = dataclasses.field(default_factory=list)  # those that are being tried just now
    joins: dict = dataclasses.field(default_factory=dict)  # (id of a code, instruction) -> LEAVE: both sides cannot be one operation
    joins_inside: bool = False  # branches inside of what is explored are operations of their own: there are too many ways
    joining: list = dataclasses.field(default_factory=list)  # branches of which both sides are being tried just now
    ways_run: int = 0  # runs of ways since the outermost of these began
    journal: list | None = None  # (shadow, key, value before, what was located there) of each store on a side of a branch
    differentiates: bool = False  # a branch is explored that gradients may flow through
    written: set[int] = dataclasses.field(default_factory=set)  # storage ids of tensors that a loop writes to in place
    replays: bool = True  # repeated blocks are replayed (`blocks.py`)
    unchanged: list = dataclasses.field(default_factory=list)  # what sees to it that they change nothing
    late_texts: list | None = None  # weak references to the late texts of this attempt; None: text is made at once


class Interpreter(Session):
    """The session of the running capture, and the operations that the rooms of the interpreter ask each other for.

    Calling reads attributes, and reading attributes calls: the rooms know each other in circles. So each operation is declared here, and
    set by the module that has it; `tests/test_architecture.py` sees to it that there are no others.
    """

    call: Callable  # (fn, args: tuple, kwargs: dict) -> value
    interp: Callable  # (function, args, kwargs) -> value, interpreting its bytecode
    run: Callable  # (Frame) -> value
    unwind: Callable  # (Frame, exception) -> whether a handler of that frame takes it
    native: Callable  # (fn, args, kwargs) -> value, run by CPython with frames handed back
    record_torch: Callable  # (fn, args, kwargs, method) -> value: a torch function, on proxies
    getattr: Callable
    setattr: Callable
    delattr: Callable
    truth: Callable
    iter: Callable
    next: Callable
    getitem: Callable
    setitem: Callable
    write_item: Callable
    delitem: Callable
    contains: Callable
    length: Callable
    hashable: Callable
    note_equality: Callable  # (values that C code compares)
    known_group: Callable  # (a group of exceptions that C code splits)
    outside_key: Callable  # (key, dict) -> what it is in a dict of the outside
    names_of: Callable  # (dict of global names) -> what stands for it
    stood_for_as_key: Callable  # (key) -> what of the outside it stands for
    holds_key: Callable  # (dict, key) -> whether it is there
    callback_key: Callable  # (key function) -> what C code is given for it
    mapping_for_c: Callable  # (object) -> what C code that merges it is given for it
    same_object: Callable  # `a is b`
    specialize: Callable  # a symbolic number, pinned
    type_of: Callable
    new_tensor_of_class: Callable  # (class, args, kwargs) -> tensor
    locate_distributed: Callable  # (world, tensor, source) -> its proxy
    call_distributed: Callable  # (function, args, kwargs) -> value
    subclass_method: Callable  # (tensor, function, name, args, kwargs) -> value, or UNSET
    isinstance: Callable
    locals: Callable  # (Frame) -> the dict that `locals()` shows
    make_class: Callable  # (metaclass, args, kwargs) -> class
    ask_parameter: Callable  # (type parameter or alias, name of an attribute): raises Break if it is worked out when it is read
    unjoined: Callable  # (branch on data) -> the restart without both of its sides in one graph
    truth_of_tensor: Callable  # (tensor) -> its truth, which may be symbolic
    got_of_data: Callable  # (dict, (key, default)) -> what `get` gives for a number from data, or UNSET
    place_of_key: Callable  # (keys, integer from data) -> which of them it is, or None: the graph may not ask
    next_of_data: Callable  # (the iterator of a range over data) -> raises: the loop is to be done whole
    at_branch: Callable  # (Frame, condition) -> whether it began a loop on data, which is done
    side_on_data: Callable  # (tensor that a branch asks) -> the side behind which the graph goes on, or None
    needed: Callable  # (Frame, condition, side) -> whether a branch is an assertion of the program's own
    globals_source: Callable  # (namespace) -> where it is found
    global_source: Callable  # (namespace, name) -> where what the name means is found
    internal_error: Callable  # (exception) -> whether it is pliant's own
    capture_failed: type[Exception]
    first_call: type[Exception]
    left_to_python: type[Exception]
    late_types: set[type]  # whose text is made late


SESSION = tuple(f.name for f in dataclasses.fields(Session))
vm = Interpreter()


@contextlib.contextmanager
def session(**given: Any) -> Iterator[Interpreter]:
    """A new session for one capture; the one before, if a capture is going on, comes back when it is closed."""
    before = [getattr(vm, name) for name in SESSION]
    fresh = Session(**given)
    for name in SESSION:
        setattr(vm, name, getattr(fresh, name))
    try:
        yield vm
    finally:
        for name, value in zip(SESSION, before, strict=True):
            setattr(vm, name, value)


UNDECIDED = "PL0002"  # the code of a break where only the run can decide
TRY, LEAVE = "try", "leave"  # of a loop on data (`Session.loops`)


def tries_loop(code: Any) -> bool:
    """Whether a loop of `code` is to be done whole when a frame comes to its header."""
    return any([what is not LEAVE and key[0] == id(code) for key, what in vm.loops.items()])


def taken() -> BaseException:
    """The exception that is pending, to be raised now. Who raises one from a variable makes a cycle of it, its traceback and the frame."""
    e, vm.pending = vm.pending, None
    assert e is not None
    return e


def writes(what: Any = None, name: str = "") -> None:
    """Something of the world is about to be changed: attribute `name` of an object, or a container, a cell, a global.

    What hashing and comparing keys changes, making their dict again would change, too. And a dict that is made again behind the change of
    what its keys were hashed by finds them where they were not.
    """
    if vm.asking:
        unfit("changes something")
    if (id(what), name) in vm.world.hashed_by:
        raise Break("PL0006", "what a key here was hashed by, while its container is not made yet", clean=True)


def changed() -> None:
    """Something is read that the program has changed: emitted code makes containers before it makes changes."""
    unfit("reads what was changed here")


def unfit(what: str) -> NoReturn:
    """The instruction to break at is the one that asks, in a frame further out."""
    raise Break("PL0006", f"a __hash__ or __eq__ that {what} while a container asks it", clean=True, action=("stand",))


def title(fn: Any) -> str:
    """What messages call a callable; few have every name."""
    return str(getattr(fn, "__qualname__", None) or getattr(fn, "__name__", None) or type(fn).__name__)


def kept_out(t: type) -> str:
    """The word in `vm.refused` for values of a type that emitted code could not make again."""
    return f"{t.__module__}.{t.__qualname__}"


def carried(v: Any) -> Any:
    """`v`, which C code has made. Where an earlier capture could not carry such a value over a break, CPython makes it before one."""
    if vm.refused:
        for x in v if type(v) is tuple else (v,):
            if kept_out(type(x)) in vm.refused:
                raise Break("PL0035", f"a {kept_out(type(x))} that is needed behind a graph break")
    return v


def site_of(frame: Frame | None) -> Site | None:
    """The user's position in this frame and its callers."""
    if frame is None:
        return None
    d = frame.decoded
    i = max(frame.pc - 1, 0)
    outer = frame.outer_site
    if outer is UNSET:
        outer = frame.outer_site = site_of(frame.parent)
    s = frame.site
    if s is None or s.offset != d.offsets[i] or s.outer is not outer:
        s = frame.site = Site(frame.code.co_filename, d.site(i).lineno, frame.code.co_qualname, d.offsets[i], frame.code, outer)
    return s


def current_site() -> Site | None:
    """Where the user's program is now."""
    return site_of(vm.frame)


# -- what the policy memory of this capture allows of loops --------------------------------------------------------------
def whole_loops() -> bool:
    """Whether the graph may have loops and branches as operations: it is compiled, or exported, by pliant's own code."""
    return getattr(vm.history, "whole_loops", False)


def counts_rounds() -> bool:
    """Whether loops over ranges and rows of symbolic length are counted by the run (export)."""
    return getattr(vm.history, "counts_rounds", False)


def by_value() -> bool:
    """Whether loops carry and give values (export): row-major copies of tensors, whose strides may change, and no lists of Python's."""
    return getattr(vm.history, "loops_by_value", False)


__all__ = [
    "LEAVE", "TRY", "UNSET", "Break", "Frame", "Interpreter", "LoopBackSignal", "ReplayFailed", "Restart", "Session", "by_value", "carried",
    "counts_rounds", "current_site", "kept_out", "session", "site_of", "taken", "tries_loop", "vm", "whole_loops", "writes",
]  # fmt: skip
