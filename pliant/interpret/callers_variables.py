"""Functions of libraries that look at the variables of whoever calls them (`frame.query("a > @t")` of pandas, `numexpr.evaluate("a * b")`).

The code that stands for a compiled frame has other variables, and so have the frames that stand for inlined ones: what calls such a
function is left to CPython as a whole. It is known by its code from then on.

So is, up to 3.12, a frame that is asked for its names on both sides of a graph break (`exec("b = 3")`, then `locals()["b"]`): it has one
dict for them, which the code behind the break has not."""

from __future__ import annotations

import sys
from types import CodeType
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

_left: dict[int, CodeType] = {}
_new: list[CodeType] = []


def read_by(fn: Any) -> bool:
    return (getattr(fn, "__module__", None), getattr(fn, "__qualname__", None)) in READERS


def left(code: CodeType) -> bool:
    """Whether frames of this code are left to CPython."""
    return id(code) in _left


def leave(code: CodeType, fn: Any) -> None:
    """A frame of `code` calls `fn`, one of these. Raises Break; the capture that this ends begins again without the frame."""
    _left[id(code)] = code
    _new.append(code)
    raise Break("PL0033", f"{fn.__qualname__} looks at the variables of whoever calls it", clean=True)


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
