"""Functions of libraries that look at the variables of whoever calls them (`frame.query("a > @t")` of pandas, `numexpr.evaluate("a * b")`).

The code that stands for a compiled frame has other variables, and so have the frames that stand for inlined ones: what calls such a
function is left to CPython as a whole. It is known by its code from then on."""

from __future__ import annotations

from types import CodeType
from typing import Any

from pliant.graph.traced import Reconsider
from pliant.interpret.state import Break

READERS = {
    ("pandas.core.frame", "DataFrame.query"), ("pandas.core.frame", "DataFrame.eval"),
    ("pandas.core.computation.eval", "eval"), ("pandas", "eval"),
    ("numexpr.necompiler", "evaluate"), ("numexpr.necompiler", "re_evaluate"), ("numexpr.necompiler", "validate"),
}  # fmt: skip
"""Module and qualified name of each."""

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


def begin_again() -> None:
    """Raises Reconsider where this capture has met a frame that is left."""
    if _new:
        code = _new.pop()
        _new.clear()
        raise Reconsider("call", f"{code.co_qualname} is left to CPython", f"frame {id(code)}")
