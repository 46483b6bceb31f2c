"""Running interpreted frames: the dispatch loop, exception unwinding, and how a break is turned into suspended frames."""

from __future__ import annotations

import re
from typing import Any

from pliant.bytecode import kinds as K
from pliant.bytecode.kinds import Kind
from pliant.errors import Tripwire
from pliant.graph.symnode import SYMS
from pliant.graph.traced import Untraceable, is_limit
from pliant.interpret import callers_variables, checks, lifetimes, names_told, shadows, slips, tracebacks
from pliant.interpret.actions import ACTIONS, native_action
from pliant.interpret.capture import FrameState, LeftToPython
from pliant.interpret.data_loops import CHANGING, at_header
from pliant.interpret.late_items import may_be_late
from pliant.interpret.late_text import TextNeeded, writable
from pliant.interpret.opcodes_build import call_operands
from pliant.interpret.state import UNDECIDED, Break, Frame, LoopBackSignal, Restart, site_of, taken, vm, whole_loops
from pliant.symbolic import DataDependent

OPAQUE_REFUSED = re.compile(r"\b(Opaque|LateText)\b")
PROXIES = re.compile(r"\b(Traced(Scalar|Array|Tensor)|ArrayMethod|Sym(Int|Float|Bool))\b")


def run(f: Frame) -> Any:
    """Run `f` until it returns, yields, raises or breaks; the value it returns or yields."""
    caller, vm.frame = vm.frame, f
    ins = f.ins
    n = f.count
    step = watched if f.serial == vm.break_serial or f.watched or f.held else None
    try:
        while True:
            try:
                if step is None:
                    while True:
                        handler, a = ins[f.pc]
                        f.pc += 1
                        n += 1
                        if handler(f, a):
                            f.count = n
                            r, f.ret = f.ret, None  # of a generator: itself
                            return r
                else:
                    while True:
                        f.count = n
                        step(f)
                        handler, a = ins[f.pc]
                        f.pc += 1
                        n += 1
                        if handler(f, a):
                            f.count = n
                            r, f.ret = f.ret, None  # of a generator: itself
                            return r
            except Break as b:
                f.count = n
                vm.pending = None
                leave(f, b, n)
                raise
            except (Restart, LoopBackSignal):
                vm.pending = None
                raise
            except (DataDependent, Untraceable, Tripwire) as e:
                raise left(f, Break(*break_of_error(e)), n) from e
            except BaseException as e:
                f.tail = False
                if vm.pending is not None:
                    raise left(f, taken(), n) from None  # C code has made another exception of it
                if vm.internal_error(e) or tracebacks.from_outside(e):
                    raise
                if type(e) is TypeError and "LateText" in str(e) and vm.late_texts is not None:  # C code met the proxy itself
                    raise TextNeeded from None
                if type(e) is TypeError and OPAQUE_REFUSED.search(str(e)):  # C code met the proxy itself
                    raise left(f, Break("PL0017", "a value that changes on every call is given to C code"), n) from None
                if type(e) is RuntimeError and is_limit(e):  # C code met the proxy itself
                    raise left(f, Break("PL0011", "C code wants the data of a tensor"), n) from None
                if id(e) != vm.world.torch_error and slips.slipped(e):
                    raise vm.capture_failed(slips.told(e)) from e
                if type(e) in TOLD and any([type(a) is str and PROXIES.search(a) for a in e.args]) and checks.handled(f):
                    raise left(f, Break("PL0041", "an exception that names the type of a value, inside a try block"), n) from None
                tracebacks.arrived(e)
                tracebacks.passes(e, f)
                at = f.pc
                if not unwind(f, e):
                    raise
                tracebacks.caught(e)
                names_told.guard_names(e)
                if vm.pending is not None:  # what was on the stack has ended, and that broke the graph
                    f.moved = f.pc = at  # what raised has left the stack: from the start again, to there
                    raise left(f, taken(), n) from None
    finally:
        vm.frame = caller
        if caller is not None:
            caller.moved = caller.pc


TOLD = (TypeError, ValueError, AttributeError)


def break_of_error(e: BaseException) -> tuple[str, str]:
    if isinstance(e, DataDependent):
        return UNDECIDED, str(e)
    if isinstance(e, Tripwire):
        return "PL0018", str(e)
    return "PL0011", str(e)


def watched(f: Frame) -> None:
    """Before each instruction of a frame that is to break somewhere."""
    f.moved = -1
    if f.stops or vm.loops:
        at_header(f)
    if f.held and lifetimes.let_go(f):
        f.pc += 1
        raise Break(lifetimes.CODE, "the last reference to what may run code when it ends", clean=True, action=lifetimes.STAND)
    if f.serial == vm.break_serial and f.count == vm.break_count and (f.code, f.pc) == vm.break_place:
        stand = vm.break_code == lifetimes.CODE and f.decoded.kinds[f.pc] not in ACTIONS
        f.pc += 1
        f.kw = f.kw or ()
        raise Break(vm.break_code, vm.break_reason, clean=True, action=lifetimes.STAND if stand else ("none",))
    if f.watched:
        h = vm.history
        i = f.pc
        if i in f.decoded.loop_headers and i != f.loop_header and h.is_loop(f.code, f.decoded.offsets[i]):
            f.pc += 1
            raise Break("PL0016", "a loop whose trip count keeps changing", clean=True, action=("loop", f.decoded.offsets[i]))
        if f.decoded.kinds[i] in ACTIONS and h.breaks_at(f.code, f.decoded.offsets[i]) and not goes_on(f, i):
            f.pc += 1
            raise Break("PL0015", CHANGING, clean=True)


ON_NUMBERS = (K.JUMP_IF_TRUE, K.JUMP_IF_FALSE, K.JUMP_IF_TRUE_OR_POP, K.JUMP_IF_FALSE_OR_POP)
"""Branches of which both sides may be one operation of the graph."""


def goes_on(f: Frame, i: int) -> bool:
    """Whether instruction `i` has a result that stands for all that it may be: a text, a length, or
    that it may be one, a branch on a number. No reason to break."""
    kind, arg = f.decoded.kinds[i], f.decoded.ins[i][1]
    if kind is K.FORMAT:
        spec = f.stack[-1] if arg & 4 else ""
        return type(spec) is str and writable(f.stack[-2] if arg & 4 else f.stack[-1], arg & 3, spec)
    if kind is K.CALL and arg == 1:
        fn, args, kw = call_operands(f, arg)
        h = vm.world.by_copy.get(id(args[0])) if fn is len and not kw and len(args) == 1 else None
        return h is not None and shadows.countable(h)
    if kind is K.LOAD_ITEM and type(f.stack[-1]) in SYMS:
        return may_be_late(vm.world.by_copy.get(id(f.stack[-2])), f.stack[-1])
    if kind in ON_NUMBERS:
        return type(f.stack[-1]) in SYMS and whole_loops()  # see `data_loops.at_branch`
    return False


def unwind(f: Frame, e: BaseException) -> bool:
    """Jump to the handler that covers the current instruction, if there is one."""
    i = f.pc - 1
    f.kw = ()  # of the call that raised
    for start, stop, target, depth, lasti in f.decoded.table:
        if start <= i < stop:
            del f.stack[depth:]
            if lasti:
                f.stack.append(i)
            f.stack.append(e)
            f.pc = target
            f.caught = True
            return True
    f.stack.clear()  # a generator in there ends now, as in CPython
    return False


def left(f: Frame, e: BaseException, n: int) -> BaseException:
    """`e`, which leaves frame `f`: a break suspends it. The caller raises it without a name, or its frame and it would be a cycle."""
    if type(e) is Break:
        f.count = n
        leave(f, e, n)
    return e


def leave(f: Frame, b: Break, n: int) -> None:
    """`b` leaves frame `f`: suspend the frame, or ask for a restart that breaks cleanly before this instruction.

    A generator's frame cannot be left half way: the instruction that drives it is the one to break at.
    """
    if f.decoded.is_generator:
        b.clean = b.tail = False
        b.frames.clear()
        return
    if not b.frames:
        if not b.clean or f.moved == f.pc:
            raise Restart(f.serial, n - 1, b.code, b.reason, (f.code, f.pc - 1))
        b.site = site_of(f)
        if b.action[0] == "none" and f.decoded.kinds[f.pc - 1] not in ACTIONS:
            if f.top and n <= 1:  # (0: before it was fetched)
                raise LeftToPython(f"{b.code}: {b.reason}")
            b.action = lifetimes.STAND
        if b.action[0] == "none":
            b.action, operands, b.pushes, offset = native_action(f)
        else:  # the frame stands still: at the header of a region loop, where something is let go of, or where CPython goes on alone
            operands, offset = 0, f.decoded.offsets[f.pc - 1]
        b.frames.append(suspend(f, operands, offset))
    else:
        operands = TAIL_OPERANDS.get(f.decoded.kinds[f.pc - 1])  # type: ignore[assignment]
        if not b.tail or operands is None:
            raise Restart(f.serial, n - 1, b.code, b.reason, (f.code, f.pc - 1))
        if callable(operands):
            operands = operands(f)
        b.frames.append(suspend(f, operands, f.decoded.offsets[f.pc]))
    b.tail = f.is_tail


TAIL_OPERANDS: dict[Kind, Any] = {
    K.CALL: lambda f: f.decoded.ins[f.pc - 1][1] + 2,
    K.CALL_KW: lambda f: f.decoded.ins[f.pc - 1][1] + 3,
    K.CALL_EX: lambda f: 4 if f.decoded.ins[f.pc - 1][1] & 1 else 3,
    K.LOAD_ATTR: 1,
    K.LOAD_ITEM: 2,
    K.EXIT: 0,
    K.EXIT_METHOD: 0,
}


def suspend(f: Frame, operands: int, offset: int) -> FrameState:
    """The frame with the current instruction's operands removed, to go on at `offset`."""
    callers_variables.asked_again(f, offset)
    i = f.pc - 1
    handler = None
    for start, stop, target, depth, lasti in f.decoded.table:
        if start <= i < stop:
            handler = (f.decoded.offsets[target], depth, lasti)
            break
    stack = f.stack[: len(f.stack) - operands] if operands else list(f.stack)
    loop = f.decoded.offsets[f.loop_header] if f.loop_header >= 0 else None
    handled = f.handling[-1] if f.handling else None
    return FrameState(f.code, f.globals, f.func, list(f.fast), stack, offset, handled, handler, f.decoded.offsets[i] // 2, loop)


vm.run = run
vm.unwind = unwind
