"""Region loops: a loop that stays in Python, its body compiled on its own. Also the entry points of resume functions."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import replace
from types import CodeType
from typing import Any

from pliant import native
from pliant.bytecode import instruction_at
from pliant.bytecode import kinds as K
from pliant.bytecode.assemble import exception_table, handler_at
from pliant.bytecode.natural_loops import loops
from pliant.bytecode.stack import VALUE
from pliant.graph.symnode import SYMS
from pliant.interpret.callers_variables import ASKS
from pliant.interpret.capture import UNSET, FrameState
from pliant.interpret.code_shapes import Key, live_of
from pliant.interpret.code_shapes import loop_of as of_loop
from pliant.interpret.decode import decode
from pliant.jit import resume
from pliant.jit.nested_frames import iterates_python
from pliant.jit.resume import LOOKED_UP, Layout, ResumeCode
from pliant.jit.rows import SIMPLE
from pliant.jit.support import handling
from pliant.jit.unwinding import forgetting

Miss = Callable[[Any, Any, tuple], tuple]
END = object()
PLAIN = frozenset((*SIMPLE, *SYMS))
SUSPENDED = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR | inspect.CO_ITERABLE_COROUTINE


def entry_point(code: ResumeCode, globals_: dict, miss: Miss) -> Any:
    """The entry point of a resume function; one for each globals dict."""
    found = code.functions.get(id(globals_))
    if found is None:
        fn = resume.make_function(code, globals_)
        found = code.functions[id(globals_)] = native.EntryPoint(fn, miss)
    return found


class LoopState:
    """What the body of a region loop returns when it is back at the header. Never seen by user code."""

    __slots__ = ("items", "loop")

    def __init__(self, loop: Loop, items: list) -> None:
        self.loop = loop
        self.items = items


class Loop:
    """A region loop entered with one layout of locals and stack (those at the header).

    `items` are the state: `prefix` slots, then the stack, top first (a `for` loop's iterator is `items[prefix]`).
    """

    __slots__ = (
        "after", "behind", "below", "body", "code", "handled", "handler", "handler_prefix", "header", "is_for", "keeps", "layout", "prefix",
        "result",
    )  # fmt: skip

    def __init__(self, at_header: ResumeCode, globals_: dict, cache: resume.Cache, miss: Miss, below: Any = None) -> None:
        layout = at_header.layout
        code = at_header.origin()
        assert code is not None
        self.layout = layout
        self.code = at_header.origin
        self.header = layout.offset
        self.prefix = layout.prefix
        self.handled = self.prefix - 1 if resume.PREVIOUS in layout.stack else None  # the exception that the frame handles
        self.below = below
        instruction = instruction_at(code, layout.offset)
        self.is_for = instruction.kind is K.FOR_ITER
        outer = layout.loops[:-1]

        def entry(to: Layout) -> Any:
            return entry_point(resume.resume_code(code, to, cache), globals_, miss)

        self.handler = self.after = self.behind = self.result = None
        self.keeps = self.handler_prefix = 0
        if not self.is_for:
            self.body = entry(layout)
            return
        self.body = entry(replace(layout, offset=instruction.following, stack=(*layout.stack, VALUE)))
        self.after = entry(replace(layout, offset=instruction.operand, stack=layout.stack[:-1], loops=outer))
        self.behind = self.after._fn.__code__
        self.result = returned(code, instruction.operand, layout)
        covering = handler_at(exception_table(code), layout.offset)
        if covering is not None:
            _, _, target, depth, lasti = covering
            mark = (layout.offset // 2,) if lasti else ()
            self.handler = entry(replace(layout, offset=target, stack=(*layout.stack[:depth], *mark, VALUE), loops=outer))
            self.keeps = sum(type(m) is str and m != resume.NULL_ITEM for m in layout.stack[:depth])
            self.handler_prefix = len(layout.slots) + (resume.PREVIOUS in layout.stack[:depth])

    def same_loop(self, other: Loop) -> bool:
        return self is other or (self.header == other.header and self.code() is other.code())


def returned(code: CodeType, offset: int, layout: Layout) -> int | None:
    """Which item of the state, once the iterator is gone, is returned as soon as a `for` loop ends. None: more is to be done."""
    stack = layout.stack[:-1]
    if code.co_flags & SUSPENDED or layout.held or any([mark != VALUE for mark in stack]):
        return None
    first = instruction_at(code, offset)
    if first.kind is K.RETURN and stack:
        return layout.prefix
    if first.kind is not K.LOAD_LOCAL or stack or first.operand not in layout.slots:
        return None
    return layout.slots.index(first.operand) if instruction_at(code, first.following).kind is K.RETURN else None


@forgetting
def advanced(loop: Loop, iterator: Any, python: bool) -> Any:
    """The next item, or END."""
    if python and loop.below is not None:
        return native.call_below(loop.below, next, iterator, END)
    return next(iterator, END)


@functools.partial(forgetting, zones=(("", ("items",)), ("after", ())))
def run_loop(loop: Loop, items: list) -> Any:
    """Drive a region loop: the iterator is advanced here, every turn of the body is a compiled call, which empties `items`.

    Returns what the function returns, or the `LoopState` of a loop further out.
    """
    kind, python = None, False  # of the iterator; whether it starts Python frames
    while True:
        if loop.is_for:
            p = loop.prefix
            item = error = None
            try:
                iterator = items[p]
                if type(iterator) is not kind:
                    kind, python = type(iterator), iterates_python(iterator)
                if loop.handled is not None:
                    item = handling(items[loop.handled], advanced, (loop, iterator, python), {})
                elif python and loop.below is not None:
                    item = native.call_below(loop.below, next, iterator, END)
                else:
                    item = next(iterator, END)
            except BaseException as e:
                if loop.handler is None:
                    del items[p:]  # a traceback holds the locals, and no more of the frame
                    raise
                error = e
            iterator = None
            if item is END:
                del items[p]
                if loop.result is None or not native.entries(loop.behind):  # it is compiled once, and counted (`plain_python.py`)
                    return loop.after(items)
                r = items[loop.result]
                items.clear()
                return r
            if error is not None:
                items[loop.handler_prefix : len(items) - loop.keeps] = [error]
                error = None
                return loop.handler(items)
            items.insert(p, item)
            item = None
        r = loop.body(items)
        if type(r) is not LoopState or (r.loop is not loop and not loop.same_loop(r.loop)):
            return r
        items.clear()  # whoever has begun the loop still has the first of these lists
        loop, items = r.loop, r.items


def around(start: Any, header: int | None) -> tuple[int, ...]:
    """Region loops that the frame which begins at `start` is in; at the header of a loop, none of those inside of it: they have been left,
    and would be other loops with every round. Who comes back to one that it is in goes on with its driver, and has left all that were
    entered since, also loops beside it: in `while p: (while q: …); (while r: …)`, `r` is entered behind `q`, whose driver still stands."""
    if header is None or not start.loops:
        return tuple(start.loops)
    if header in start.loops:
        return tuple(start.loops[: start.loops.index(header) + 1])
    inside = loops(start.code).get(header, ())
    return tuple([h for h in start.loops if h not in inside])


def unseen(v: Any) -> bool:
    """Whether nobody can tell when a frame lets go of this: a number, a text. (Of anything else there may be weak references.)"""
    return type(v.value if type(v) in LOOKED_UP else v) in PLAIN


def without_dead(frame: FrameState) -> FrameState:
    """The frame at the header with None in the locals that each round, and what is behind the loop, set before they read them: also where
    they are not bound yet, so that the state of the first round is that of the others and their body one code. Objects other than numbers
    and texts stay: they live as long as the frame has them, which a weak reference tells. Not where the function looks at its variables."""
    code = frame.code
    if code.co_flags & SUSPENDED or not ASKS.isdisjoint(code.co_names):
        return frame
    d = decode(code)
    header = d.index(frame.offset)
    live = live_of(Key(d))[header]
    stored = {d.ins[i][1] for i in of_loop(Key(d), header) if d.kinds[i] is K.STORE_LOCAL}
    fast = list(frame.fast)
    for i, name in enumerate(code.co_varnames):
        v = fast[i]
        if not live >> i & 1 and name not in code.co_cellvars and (i in stored if v is UNSET else unseen(v)):
            fast[i] = None
    return replace(frame, fast=fast)


def loop_of(frame: FrameState, loops: tuple[int, ...], cache: resume.Cache, miss: Miss, lasti: Any, below: Any = None) -> tuple[Loop, list]:
    """The loop whose header `frame` stands at (`frame.offset`), and its state."""
    d = decode(frame.code)
    walks = d.kinds[d.index(frame.offset)] is K.FOR_ITER
    at_header = resume.plan(without_dead(frame), loops=loops, lasti=lasti, cache=cache, walks=walks)
    return loop_at(at_header.resume, frame.globals, cache, miss, below), at_header.items


def loop_at(at_header: ResumeCode, globals_: dict, cache: resume.Cache, miss: Miss, below: Any = None) -> Loop:
    """The loop that is entered with the layout of `at_header`; one for each globals dict."""
    key = ~id(globals_)
    loop = at_header.functions.get(key)
    if loop is None:
        loop = at_header.functions[key] = Loop(at_header, globals_, cache, miss, below)
    return loop
