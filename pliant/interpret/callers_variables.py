"""Functions of libraries that look at the variables of whoever calls them (`frame.query("a > @t")` of pandas, `numexpr.evaluate("a * b")`).

The code that stands for a compiled frame has other variables, and so have the frames that stand for inlined ones: what calls such a
function is left to CPython as a whole. It is known by its code from then on.

So are frames that get at frames themselves, and speak of `f_locals`, with those between them and the one that is got; and those that
speak of it and hand on what they have caught, with the frames that its traceback shows.

So is, up to 3.12, a frame that is asked for its names on both sides of a graph break (`exec("b = 3")`, then `locals()["b"]`): it has one
dict for them, which the code behind the break has not."""

from __future__ import annotations

import functools
import inspect
import sys
import traceback
from types import BuiltinFunctionType, CodeType, FunctionType
from typing import Any

from pliant.bytecode.flow import reached, successors
from pliant.bytecode.version import LOCALS_ARE_SNAPSHOTS
from pliant.graph.traced import Reconsider
from pliant.interpret.state import Break

READERS = {
    ("pandas.core.frame", "DataFrame.query"), ("pandas.core.frame", "DataFrame.eval"),
    ("pandas.core.computation.eval", "eval"), ("pandas", "eval"),
    ("numexpr.necompiler", "evaluate"), ("numexpr.necompiler", "re_evaluate"), ("numexpr.necompiler", "validate"),
}  # fmt: skip
"""Module and qualified name of each."""

ALONE = 2
"""What `sys.getrefcount` says of the dict that nobody but the frame holds."""

ASKS = frozenset(("locals", "vars", "dir", "eval", "exec", "f_locals"))
"""What looks at the names of the frame that it is called from, or may."""

LOOKS = frozenset(("f_locals", "capture_locals", "show_locals", "getargvalues"))
"""Words of code that looks at the variables of frames, or has a library look at them."""

ALL = sys.maxsize - 1
GETTERS = {sys._getframe: 0, inspect.currentframe: 0, inspect.stack: ALL, sys._current_frames: ALL, traceback.walk_stack: ALL}
"""What gives frames: how many lie between the frame that calls it and the one that is got."""

_left: dict[int, CodeType] = {}
_new: list[CodeType] = []


def read_by(fn: Any) -> bool:
    return (getattr(fn, "__module__", None), getattr(fn, "__qualname__", None)) in READERS


def left(code: CodeType) -> bool:
    """Whether frames of this code are left to CPython."""
    return id(code) in _left


def looked_at(fn: Any, args: tuple, f: Any) -> None:
    """Frame `f` is about to make a call at which the graph breaks. Raises Break if frames are to be left because of it."""
    if f is None:
        return
    if read_by(fn) and not left(f.code):
        leave([f.code], f"{fn.__qualname__} looks at the variables of whoever calls it")
    depth = GETTERS.get(fn) if type(fn) in (FunctionType, BuiltinFunctionType) else None
    if depth is None:
        return
    chain = codes_from(f)
    names = set().union(*map(words, chain))
    if LOOKS.isdisjoint(names):
        return
    if fn is sys._getframe and args and type(args[0]) is int:
        depth = args[0]
    if "capture_locals" in names:
        depth = ALL  # `traceback.walk_stack(sys._getframe())`
    found = [code for code in (chain if "f_back" in names else chain[: depth + 1]) if not left(code)]
    if found:
        leave(found, "it gets at a frame, whose variables are looked at")


def looked_into(code: CodeType, f: Any) -> None:
    """Frame `f` asks a frame of `code` in a traceback for what only one of CPython has. Raises Break."""
    leave([code, *codes_from(f)], "it looks into frames of a traceback")


def handed_on(frames: list[Any], shown: list[CodeType]) -> None:
    """The graph breaks in these suspended frames; tracebacks show proxies for frames of the codes `shown`, or will show these frames,
    where what is called raises. Whoever gets one is not known: where the frames speak of variables, they and the shown ones are left."""
    codes = [state.code for state in frames]
    if LOOKS.isdisjoint(set().union(*map(words, codes))):
        return
    if shown or any([state.handler is not None or state.exc_info is not None for state in frames]):
        for code in {*codes, *shown}:
            _left[id(code)] = code
            _new.append(code)


@functools.cache
def words(code: CodeType) -> frozenset[str]:
    """The names and texts of this code, and of the code in it (functions and comprehensions)."""
    found = set(code.co_names)
    for const in code.co_consts:
        found.update(words(const) if type(const) is CodeType else names_of(const))
    return frozenset(word for word in found if type(word) is str)


def codes_from(f: Any) -> list[CodeType]:
    """Of a frame and of those that it was called from, outwards."""
    found = []
    while f is not None:
        found.append(f.code)
        f = f.parent
    return found


def leave(codes: list[CodeType], why: str) -> None:
    """Raises Break; the capture that this ends begins again without frames of these codes."""
    for code in codes:
        _left[id(code)] = code
        _new.append(code)
    raise Break("PL0033", why, clean=True)


def asked_again(f: Any, offset: int) -> None:
    """A frame is suspended, to go on at `offset`. One whose dict of names would be seen to be another there is left."""
    if f.shown is None or f.names is not None or LOCALS_ARE_SNAPSHOTS or not (sys.getrefcount(f.shown) > ALONE or foreign(f)):
        return
    if asks(f.decoded, f.decoded.index(offset)):
        _left[id(f.code)] = f.code
        _new.append(f.code)


def foreign(f: Any) -> bool:
    """Whether the frame's dict of names has others than those of its variables."""
    c = f.code
    return not f.shown.keys() <= {*c.co_varnames, *c.co_cellvars, *c.co_freevars}


def asks(d: Any, start: int) -> bool:
    """Whether the names of the frame may be asked for at an instruction from `start` on."""
    operands = [a for _, a in d.ins]
    after = [[*successors(d.kinds, operands, i)] for i in range(len(d.kinds))]
    for first, stop, target, _, _ in d.table:
        for i in range(first, stop):
            after[i].append(target)
    return any([not ASKS.isdisjoint(names_of(operands[i])) for i in reached(after, [start], -1)])


def names_of(operand: Any) -> tuple:
    return operand if type(operand) is tuple else (operand,) if type(operand) is str else ()


def begin_again() -> None:
    """Raises Reconsider where this capture has met a frame that is left."""
    if _new:
        code = _new.pop()
        _new.clear()
        raise Reconsider("call", f"{code.co_qualname} is left to CPython", f"frame {id(code)}")
