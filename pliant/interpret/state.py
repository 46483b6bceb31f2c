"""The interpreter's one mutable state. Captures are serialized by `jit`, so there is one.

Rooms inside `interpret` reach each other through `vm` (`vm.call`, `vm.getattr`, ...): the modules that implement
those slots register themselves here, which keeps imports one-way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pliant.guards.guard import Site
from pliant.interpret.capture import UNSET


class Break(BaseException):
    """The current instruction must be run by CPython. BaseException, so user `except Exception` never sees it.

    `clean` says that the instruction has done nothing yet; otherwise the capture restarts and stops before it.
    """

    def __init__(self, code: str, reason: str, *, clean: bool = False) -> None:
        super().__init__(code, reason)
        self.code = code
        self.reason = reason
        self.clean = clean
        self.frames: list = []
        self.action: tuple = ("none",)
        self.pushes = 0
        self.site: Site | None = None
        self.tail = False


class Restart(BaseException):
    """Interpret again from the start and break before instruction number `count` of frame number `serial`."""

    def __init__(self, serial: int, count: int, code: str, reason: str) -> None:
        super().__init__(serial, count, reason)
        self.serial = serial
        self.count = count
        self.code = code
        self.reason = reason


class LoopBackSignal(BaseException):
    """The body of a region loop reached its header again."""


class Frame:
    """An interpreted frame. `fast` is `localsplus`; `pc` the next instruction index; `count` how many were executed."""

    __slots__ = (
        "decoded", "ins", "pc", "stack", "fast", "globals", "builtins", "code", "kw", "func", "ret", "yielded", "serial", "outer",
        "tail", "is_tail", "handling", "count", "parent", "loop_header", "watched", "top", "names", "site", "outer_site",
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
        self.parent: Frame | None = None
        self.loop_header = -1
        self.watched = False
        self.top = False
        self.names: dict | None = None
        self.site: Site | None = None  # the last one made for this frame
        self.outer_site: Any = UNSET  # the caller's, which stands still while this frame runs
        vm.frames_made += 1
        self.serial = vm.frames_made


class VM:
    """Slots of the running capture. Behaviour lives in the modules that set the callables."""

    # set by modules at import
    call: Callable  # (fn, args: tuple, kwargs: dict) -> value
    interp: Callable  # (function, args, kwargs) -> value, interpreting its bytecode
    run: Callable  # (Frame) -> value
    native: Callable  # (fn, args, kwargs) -> value, run by CPython with frames handed back
    getattr: Callable
    setattr: Callable
    delattr: Callable
    truth: Callable
    iter: Callable
    next: Callable
    getitem: Callable
    setitem: Callable
    delitem: Callable
    contains: Callable
    length: Callable
    hashable: Callable
    type_of: Callable
    isinstance: Callable
    make_class: Callable  # (metaclass, args, kwargs) -> class
    needed: Callable

    def __init__(self) -> None:
        self.active = False
        self.frame: Any = None
        self.exc: BaseException | None = None
        self.depth = 0
        self.frames_made = 0
        self.break_serial = -1
        self.break_count = -1
        self.break_code = ""
        self.break_at_data = False  # a write through `x.data` was met: break where it is read
        self.break_reason = ""
        self.world: Any = None
        self.trace: Any = None
        self.scope: Any = None
        self.history: Any = None
        self.config: Any = None
        self.pending: BaseException | None = None
        self.print_log: list = []
        self.late_texts: list | None = None  # weak references to the late texts of this attempt; None: text is made at once
        self.late_types: set[type] = set()  # whose text is made late
        self.restartable = True
        self.refused: frozenset[str] | set[str] = frozenset()  # what an earlier capture of this code found out to be too much


vm = VM()


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
        s = frame.site = Site(frame.code.co_filename, d.line(i), frame.code.co_qualname, d.offsets[i], frame.code, outer)
    return s


def current_site() -> Site | None:
    """Where the user's program is now."""
    return site_of(vm.frame)


__all__ = ["UNSET", "VM", "Break", "Frame", "LoopBackSignal", "Restart", "current_site", "site_of", "vm"]
