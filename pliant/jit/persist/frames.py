"""What emitted code goes on with behind a graph break, as data: a code object, where to go on, and the shape of the state there.

Resume functions, the drivers of region loops, branches on data, rebuilt generators and the frames in tracebacks are made from the program's
code objects, one for each layout (`jit/resume.py`), so another process makes its own. Each kind is a place of `names.py`: arguments that
say what it is made of, and a function that makes it, or finds the one that has been made. They belong to a region: `Frame.home`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from types import CodeType, FrameType, FunctionType
from typing import Any, NamedTuple

from pliant import native
from pliant.interpret import tracebacks
from pliant.jit import region_loops, resume, support
from pliant.jit.branches import Branch
from pliant.jit.emit import Context
from pliant.jit.nested_frames import Below
from pliant.jit.resume import Layout, ResumeCode

LAYOUT = tuple([f.name for f in dataclasses.fields(Layout)])


class Frame(NamedTuple):
    """A call for which an entry is made or looked up."""

    fn: Any
    args: tuple
    home: Context  # of the region whose entry it is


def layout_row(layout: Layout) -> tuple:
    return tuple([getattr(layout, name) for name in LAYOUT])


def own_code(fn: Any) -> CodeType:
    """The program's code object that `fn` runs: of a resume function, the one that it goes on with."""
    return resume.origin_of(fn.__code__)[0]


# -- where they are: made from the code, the row of the layout, and the namespace ------------------------------------------------------
def code_at(frame: Frame, code: CodeType, layout: tuple) -> ResumeCode:
    return resume.resume_code(code, Layout(*layout), frame.home.cache)


def entry_at(frame: Frame, code: CodeType, layout: tuple, namespace: dict) -> Any:
    return region_loops.entry_point(code_at(frame, code, layout), namespace, frame.home.miss)


def loop_at(frame: Frame, code: CodeType, layout: tuple, namespace: dict) -> Any:
    home = frame.home
    return region_loops.loop_at(code_at(frame, code, layout), namespace, home.cache, home.miss, home.below)


def generator_at(frame: Frame, code: CodeType, layout: tuple, namespace: dict, *names: str) -> Any:
    return resume.generator_function(code_at(frame, code, layout), namespace, names)


def branch_at(frame: Frame, code: CodeType, path: tuple, lineno: int) -> Any:
    branches = frame.home.branches
    return None if branches is None else branches.known(code, path, lineno)


PLACES: dict[str, Callable[..., Any]] = {
    "branch": branch_at,
    "own code": lambda frame: own_code(frame.fn),
    "entry": entry_at,
    "loop": loop_at,
    "generator": generator_at,
    "below": lambda frame: frame.home.below,
    "hop": lambda frame, *words: support.hop_like(words),
    "shown": lambda frame, code: tracebacks.frame_of(code),
}
"""Functions of the frame and of earlier rows."""


# -- what they are -------------------------------------------------------------------------------------------------------------------
def place_of(value: Any, refer: Callable[[Any], int]) -> tuple[str, tuple] | None:
    """The place of such a thing; None for all others. Raises NotPortable."""
    t = type(value)
    if t is native.EntryPoint:
        made = resume.info_of(value._fn.__code__)
        return None if made is None else ("entry", made_from(made.origin(), made.layout, value._fn, refer))
    if t is region_loops.Loop:
        return "loop", made_from(value.code(), value.layout, value.body._fn, refer)
    if t is Branch:
        return "branch", (("@", refer(value.code())), plain(value.path), value.lineno)
    if t is Below:
        return "below", ()
    if t is FrameType:
        code = tracebacks.code_shown(value)
        return None if code is None else ("shown", (("@", refer(code)),))
    if t is FunctionType:
        made = resume.info_of(value.__code__)
        if made is not None and made.layout.mode != resume.CALL:
            return "generator", (*made_from(made.origin(), made.layout, value, refer), value.__name__, value.__qualname__)
        words = support.words_of_hop(value)
        return None if words is None else ("hop", words)
    return None


def made_from(code: Any, layout: Layout, fn: Any, refer: Callable[[Any], int]) -> tuple:
    return ("@", refer(code)), ("(", *map(plain, layout_row(layout))), ("@", refer(fn.__globals__))


def plain(value: Any) -> Any:
    """Part of a layout in the form that `values.decode` reads."""
    return ("(", *map(plain, value)) if type(value) is tuple else value


def is_made(value: Any) -> bool:
    """Whether this is one of them: what its row says is all that it is."""
    t = type(value)
    if t not in MADE:
        return False
    if t is FunctionType:
        made = resume.info_of(value.__code__)
        return support.words_of_hop(value) is not None or (made is not None and made.layout.mode != resume.CALL)
    if t is FrameType:
        return tracebacks.code_shown(value) is not None
    return t is not native.EntryPoint or resume.info_of(value._fn.__code__) is not None


MADE = frozenset((FunctionType, FrameType, region_loops.Loop, Below, Branch, native.EntryPoint))
"""Types of such things; a function, a frame or an entry point may also be the program's."""
