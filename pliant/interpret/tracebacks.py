"""Exceptions of the program while it is captured: the traceback that it sees is its own, never the interpreter's.

An exception that the program raises travels through frames of the interpreter, which leave their marks on it. When a handler of the
program catches it, it gets the traceback that CPython would have given: one entry for each frame of the program that it passed, RERAISE
and a bare `raise` adding none. The frames in it are empty proxies with the user's code (file, name and positions are right; who asks
for locals is run by CPython: `types/traceback_frames.py`).
An exception that existed before the capture gets its fields back when the capture ends; what changed becomes effects.
What is raised where the program handles nothing has for its context what its caller handles: that is looked up by the emitted code.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import traceback
import types
from types import CodeType, FrameType, TracebackType
from typing import cast

from pliant.bytecode import kinds as K
from pliant.bytecode.assemble import never_started
from pliant.graph.originals import torch
from pliant.interpret import interrupts, process_state, runtime
from pliant.interpret.capture import Effect
from pliant.interpret.decode import decode
from pliant.interpret.runtime import chain
from pliant.interpret.state import Break, Frame, vm

FIELDS = ("__traceback__", "__context__", "__cause__", "__suppress_context__")
GENERATOR_KINDS = 0x80 | 0x100 | 0x200  # coroutine, iterable coroutine, asynchronous generator
INTERPRETER = os.path.dirname(__file__) + os.sep
PLIANT = os.path.dirname(os.path.dirname(__file__)) + os.sep
VARIADIC = 0x04 | 0x08
_frames: dict[CodeType, FrameType] = {}
_made: dict[FrameType, CodeType] = {}


def frame_of(code: CodeType) -> FrameType:
    """An empty frame that shows `code`'s file, name and lines. It belongs to a generator that was never started, so it holds nobody."""
    found = _frames.get(code)
    if found is None or found.f_code.co_filename != code.co_filename:
        empty = code.replace(
            co_code=never_started(len(code.co_code)),
            co_flags=code.co_flags & ~(GENERATOR_KINDS | VARIADIC) | 0x20, co_argcount=0, co_posonlyargcount=0,
            co_kwonlyargcount=0, co_cellvars=(), co_freevars=(), co_exceptiontable=b"", co_stacksize=code.co_stacksize + 1,
        )  # fmt: skip
        found = _frames[code] = cast(FrameType, types.FunctionType(empty, {})().gi_frame)
        _made[found] = code
    return found


def code_shown(frame: FrameType) -> CodeType | None:
    """What `frame_of` made this frame of; None if it did not."""
    return _made.get(frame)


def is_users(tb: TracebackType) -> bool:
    """Whether this entry was made by `caught`."""
    return tb.tb_frame in _made


def handled() -> bool:
    """Whether some exception is being handled."""
    return sys.exc_info()[0] is not None


def at_hand(asks: str) -> BaseException | None:
    """The exception that the program handles. Where it handles none, it would be told what its caller does.

    Exit stacks want to know where a chain of contexts ends: at what this frame handles."""
    if vm.exc is None and vm.frame.globals is not contextlib.__dict__:
        none_at_hand(asks)
    return vm.exc


def none_at_hand(asks: str) -> None:
    """The program asks what is handled, and handles nothing itself: that its callers do not is guarded. Raises Break if they do."""
    if vm.world.resumed:
        raise Break("PL0033", asks, clean=True)
    none_outside(asks)


def none_outside(asks: str) -> None:
    """The caller handles no exception: a guard. Raises Break if it does."""
    if handled():
        raise Break("PL0033", asks, clean=True)
    process_state.question(handled, (), {}, False)


def context_asked(e: BaseException) -> None:
    """The program reads the context of `e`."""
    if id(e) in vm.world.unchained and e.__context__ is None and vm.frame.globals is not contextlib.__dict__:
        none_outside("the context of an exception")


def keep(e: BaseException) -> None:
    """The fields of an exception from outside are about to change: they come back when the capture ends."""
    world = vm.world
    if id(e) in world.outside and id(e) not in world.raised_outside:
        world.raised_outside[id(e)] = (e, *(getattr(e, name) for name in FIELDS))


def about_to_raise(e: BaseException, again: bool = False) -> None:
    """The program raises `e`, or raises it `again`: what it carries now is where its traceback goes on."""
    world = vm.world
    keep(e)
    world.passing[id(e)] = (e, e.__traceback__, [])
    context = e.__context__
    world.contexts[id(e)] = (e, context if again or vm.exc is None or vm.exc is e else vm.exc, e.__suppress_context__)
    if context is not vm.exc and not again:
        unchain(e)
    if vm.exc is None and not again and id(e) in world.outside:
        world.unchained[id(e)] = e


def goes_on(e: BaseException, tb: TracebackType | None) -> None:
    """The traceback of `e`, which the program is about to raise, goes on with this one."""
    vm.world.passing[id(e)] = (e, tb, [])


def from_outside(e: BaseException) -> bool:
    """Whether somebody has interrupted the process, at a moment of their own: that is no part of the program, and none of its handlers'."""
    return id(e) not in vm.world.passing and interrupts.is_one(e)


def suppressed(e: BaseException) -> None:
    """The program raises `e` from a cause, or from None."""
    vm.world.contexts[id(e)] = (*vm.world.contexts[id(e)][:2], True)


def unchain(e: BaseException) -> None:
    """What is handled becomes the context of `e`: it must not lead back to it."""
    seen: set[int] = set()
    o = vm.exc
    while o is not None and o is not e and id(o) not in seen:
        seen.add(id(o))
        if o.__context__ is e:
            keep(o)
            o.__context__ = None
            return
        o = o.__context__


def arrived(e: BaseException) -> None:
    """`e` was raised by the instruction at hand: its context is what the program handles, not what the interpreter did meanwhile."""
    known = vm.world.contexts.pop(id(e), None)
    if known is not None:
        _, context, suppressed = known
        if e.__context__ is not context:
            e.__context__ = context
        if e.__suppress_context__ is not suppressed:
            e.__suppress_context__ = suppressed
        return
    if id(e) in vm.world.passing:
        return  # on its way through more than one frame
    if e.__context__ is not None and e.__cause__ is None and made_here(e):
        e.__context__ = None
        e.__suppress_context__ = False
    if vm.exc is not None and e.__context__ is None and e is not vm.exc:
        unchain(e)
        e.__context__ = vm.exc


def made_here(e: BaseException) -> bool:
    """Whether code of pliant, or C code that it called, has raised `e`."""
    tb = place(e)
    return tb is None or tb.tb_frame.f_code.co_filename.startswith(PLIANT)


def place(e: BaseException) -> TracebackType | None:
    """Where `e` was raised: the innermost entry of its traceback."""
    tb = e.__traceback__
    while tb is not None and tb.tb_next is not None:
        tb = tb.tb_next
    return tb


RAISED_AGAIN = {K.RERAISE, K.CLEANUP_THROW}
"""Instructions that leave no entry in a traceback."""


def passes(e: BaseException, f: Frame) -> None:
    """`e` was raised by the current instruction of `f`, or came out of it."""
    i = f.pc - 1
    kind = f.decoded.kinds[i]
    if kind not in RAISED_AGAIN and not (kind is K.RAISE and f.decoded.ins[i][1] == 0 and e is vm.exc):
        passes_at(e, f.code, i)


CALL = cast(types.FunctionType, torch.nn.Module._wrapped_call_impl)
CALL_IMPL = cast(types.FunctionType, torch.nn.Module._call_impl)


@functools.cache
def around_forward() -> tuple[tuple[types.FunctionType, int], ...]:
    """The functions between a call of a module and its `forward`, from the inside, each with the instruction that calls."""
    inner, outer = decode(CALL_IMPL.__code__).kinds, decode(CALL.__code__).kinds
    return (CALL_IMPL, inner.index(K.CALL_EX)), (CALL, len(outer) - 1 - outer[::-1].index(K.CALL_EX))


def passes_at(e: BaseException, code: CodeType, i: int) -> None:
    """`e` came out of instruction `i` of `code`."""
    found = vm.world.passing.get(id(e))
    if found is None:
        found = vm.world.passing[id(e)] = (e, None, [])
    d = decode(code)
    found[2].append((code, d.offsets[i], d.line(i)))


def caught(e: BaseException) -> None:
    """A handler of the program sees `e`: give it the traceback of the program."""
    vm.world.contexts.pop(id(e), None)
    found = vm.world.passing.pop(id(e), None)
    if found is None:
        return
    _, tb, sites = found
    for code, offset, line in sites:
        tb = TracebackType(tb, frame_of(code), offset, line)
        vm.world.shown.append(code)
    e.__traceback__ = tb
    if e.__context__ is None and id(e) not in vm.world.outside:
        vm.world.unchained[id(e)] = e


def changed(e: BaseException, name: str) -> bool:
    """Whether field `name` of `e`, which is from outside, is no longer what it was before the capture."""
    saved = vm.world.raised_outside.get(id(e))
    return saved is not None and name in FIELDS and getattr(e, name) is not saved[1 + FIELDS.index(name)]


def effects() -> list[Effect]:
    """What the program did to exceptions from outside by raising them."""
    out = []
    for e, *_ in vm.world.raised_outside.values():
        out += [Effect("setattr", e, (name, getattr(e, name))) for name in FIELDS if changed(e, name)]
        if id(e) in vm.world.unchained:
            out.append(Effect("call", chain, ((e,), {})))
    return out


def is_interpreters(filename: str) -> bool:
    """Whether frames of this file run while a frame is interpreted: not those of what emitted code calls."""
    return filename.startswith(INTERPRETER) and filename != runtime.__file__


def release(e: BaseException) -> None:
    """The interpreter's frames, in the tracebacks of what the captured program raised, let go of the program's objects.

    Those that still run cannot be cleared, and live on as callers of those that do not: such a traceback goes as a whole. One without a
    frame of the interpreter's is of an exception from outside, which the program is about to raise again: it stays, with what emitted
    code has called on its way.
    """
    seen: set[int] = set()
    todo: list[BaseException | None] = [e]
    while todo:
        e_ = todo.pop()
        if e_ is None or id(e_) in seen:
            continue
        seen.add(id(e_))
        todo += [e_.__cause__, e_.__context__]
        frames = [frame for frame, _ in traceback.walk_tb(e_.__traceback__)]
        if any(is_interpreters(frame.f_code.co_filename) for frame in frames):
            e_.__traceback__ = None
            for frame in frames:
                if frame.f_code.co_filename.startswith(PLIANT):
                    with contextlib.suppress(RuntimeError):  # a frame that still runs
                        frame.clear()


def restore(raised_outside: dict[int, tuple]) -> None:
    """Give exceptions from outside their fields back."""
    for e, *saved in raised_outside.values():
        for name, value in zip(FIELDS, saved, strict=True):
            if getattr(e, name) is not value:
                setattr(e, name, value)
