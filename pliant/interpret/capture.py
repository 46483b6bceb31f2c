"""What interpreting a frame produces: data that flows from `interpret` to `jit`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pliant.errors import PliantError
from pliant.guards.guard import Guard, Site


class Unset:
    """The value of a local that is not bound; never visible to user code."""

    def __repr__(self) -> str:
        return "UNSET"


class Null:
    """The NULL that CPython pushes beside a callable; never visible to user code."""

    def __repr__(self) -> str:
        return "NULL"


UNSET = Unset()
NULL = Null()
AND_NULL = 2  # of `BreakExit.pushes`


@dataclass(slots=True)
class FrameState:
    """A suspended frame. `fast` is CPython's `localsplus` (locals, cells, frees; cells hold cell objects), `stack` bottom first.

    `offset` is the byte offset in `code` (`co_code`) of the instruction to go on with. For the frames outside the innermost one
    it is the instruction after the CALL, and the callee's result has yet to be pushed.
    """

    code: Any
    globals: dict
    function: Any  # the function object (real, perhaps made in the capture)
    fast: list
    stack: list
    offset: int
    exc_info: Any = None  # the exception being handled in this frame (innermost PUSH_EXC_INFO), or None
    handler: tuple[int, int, bool] | None = None  # (target offset, stack depth, push lasti) of the `try` around the instruction
    lasti: int = -1  # instruction index (co_code offset // 2) of the current instruction, for `push lasti`
    loop: Any = None  # (header offset) when this frame is the body of a region loop


@dataclass(slots=True)
class Return:
    """The frame ran to its end. `value` holds proxies."""

    value: Any


@dataclass(slots=True)
class LoopBack:
    """The body of a region loop came back to its header: return the state to the loop driver."""

    frame: FrameState


@dataclass(slots=True)
class BreakExit:
    """The graph ends before an instruction that CPython must run.

    `action` says what to run, in normalized form:
    - `("call", fn, args, kwargs)`: call it; its result is pushed `pushes` times (0 or 1; `AND_NULL`: below a NULL) on the innermost stack;
    - `("branch", value, offset_if_true, offset_if_false, stack_if_true, stack_if_false)`: `bool(value)`, then go on there;
    - `("branch_none", ...)`: the same of `value is None`;
    - `("unpack_call", fn, args, n)`: call it, then unpack;
    - `("enter", manager)`: enter a context manager: push its `__exit__`, bound, and what `__enter__` returns;
    - `("unpack", value, n)`: unpack into exactly n items, pushed so that the first is on top;
    - `("loop", header_offset)`: a region loop starts here: hand the frame to the loop driver;
    - `("stand",)`: nothing to run: the graph ends before this instruction because something is let go of;
    - `("none",)`: nothing to run (`pliant.graph_break()`).
    `frames[0]` is the outermost (the compiled frame), `frames[-1]` the innermost; its `stack` is what remains without the operands,
    and its `offset` where to go on after the action.
    """

    frames: list[FrameState]
    action: tuple
    code: str  # row of the graph-break registry, e.g. "PL0003"
    reason: str
    site: Site
    pushes: int = 1


@dataclass(slots=True)
class Effect:
    """A write to the outside world, replayed after the graph ran. `kind` and operands:

    setattr(obj, name, value) | delattr(obj, name) | dict_set(obj, key, value) | dict_del(obj, key) | dict_replace(obj, pairs)
    | list_splice(obj, start, stop, items) | list_extend(obj, items) | set_replace(obj, items, table) | deque_replace(obj, items)
    | global_set(dict, name, value) | global_del(dict, name) | cell_set(cell, value) | cell_del(cell) | call(fn, args, kwargs)
    | global_state(setter, args)        (torch global state, e.g. grad mode)
    Objects are originals of the outside world; values hold proxies.
    """

    kind: str
    target: Any
    args: tuple


@dataclass(slots=True)
class Capture:
    """Everything that one interpretation of a frame learned."""

    code: Any
    trace: Any
    world: Any
    guards: list[Guard]
    effects: list[Effect]
    exit: Return | BreakExit | LoopBack
    frame_id: str = ""
    under_modes: bool = False  # torch-function modes of the user are on where it begins: the graph has gone through them already
    stats: dict = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Start:
    """Where a capture begins when it is not at a function's first instruction (resume functions).

    The values come from the frame's single argument, a tuple: `slots[i]` is the `localsplus` index that item i fills, and the
    `stack` follows: each entry is the index of an item, NULL, or a `LastI`. `offset` is in the original `code`.
    """

    code: Any
    offset: int
    slots: tuple[tuple[int, int], ...]  # (localsplus index, item index)
    stack: tuple[Any, ...]  # item index (int) | NULL | LastI(instruction index)
    loops: tuple[int, ...] = ()  # byte offsets of the headers of region loops; reaching the last one ends the capture with LoopBack
    handling: int | None = None  # item index of the exception being handled
    held: tuple[int, ...] = ()  # items at whose end code may run


@dataclass(frozen=True, slots=True)
class LastI:
    """The `lasti` integer that CPython pushes before an exception in a cleanup handler, as a byte offset // 2 of the original code."""

    value: int


class CaptureFailed(PliantError):
    """This frame cannot be captured (not the user's fault); it runs in eager PyTorch."""


class FirstCall(CaptureFailed):
    """An object from outside becomes what it is at its first call, once and for all: eager PyTorch does that, graphs come after it."""


class LeftToPython(CaptureFailed):
    """CPython alone can answer what this frame asks from its first instruction on (behind a graph break: from where it goes on). It runs
    the frame, and no mistake of pliant's is the reason."""


class UserError(Exception):
    """The program raised an exception that nothing in the frame caught; running it eagerly raises it for real.

    `of_torch`: PyTorch refused a call of proxies. Its shape functions often say so by another type of exception than its kernels.
    """

    def __init__(self, error: BaseException, of_torch: bool = False) -> None:
        super().__init__(type(error).__name__)
        self.error = error
        self.of_torch = of_torch
