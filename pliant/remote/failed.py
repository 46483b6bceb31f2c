"""What failed on a worker, as it is raised on the controller: a `Failed`, which is also of the class that PyTorch raises in one process.

Workers tell the name of the class and the words. Of names that are not in the table nothing is believed: they are a `Failed`.
"""

from __future__ import annotations

import functools
import sys
from typing import Any, NamedTuple

import torch

from pliant.remote.placements import RemoteError

KINDS: dict[str, type[Exception]] = {
    kind.__name__: kind
    for kind in (
        RuntimeError, IndexError, ValueError, TypeError, NotImplementedError, AssertionError, KeyError, LookupError, ArithmeticError,
        ZeroDivisionError, OverflowError, FloatingPointError, MemoryError, RecursionError, torch.linalg.LinAlgError, torch.OutOfMemoryError,
    )
}  # fmt: skip


class Failed(RemoteError):
    """A program failed on a worker. The message has the error and the user's line.

    What is raised is of a subclass that is an `IndexError` as well, if that is what the worker met, and so with the others in `KINDS`.
    """

    kind = ""
    begun = False
    """Whether the program that raises it may have written."""
    pending: Any = None
    """Of an error that a later program tells: `pending(True)` has it told by the next one, `pending(False)` takes that back."""

    def __reduce__(self) -> Any:
        return failed, (self.kind, *self.args)

    __str__ = Exception.__str__  # in place of that of KeyError


@functools.cache
def class_of(kind: str) -> type[Failed]:
    """`Failed`, for what a worker calls `kind`."""
    known = KINDS.get(kind)
    if known is None:
        return Failed
    told = {"kind": kind, "__module__": Failed.__module__, "__qualname__": Failed.__qualname__, "__doc__": Failed.__doc__}
    return type(Failed.__name__, (Failed, known), told)


def failed(kind: str, words: str) -> Failed:
    """The exception for a failure of this kind."""
    return class_of(kind)(words)


class Why(NamedTuple):
    """Why a tensor has no value."""

    kind: str
    words: str

    def error(self, what: str) -> Failed:
        return failed(self.kind, f"{what}: {self.words}")


class Line(NamedTuple):
    """A line of the user's program."""

    file: str
    function: str
    number: int

    def __str__(self) -> str:
        return f"{self.file}:{self.number} in {self.function}"


LIBRARIES = tuple([f"{sys.modules[name].__path__[0]}/" for name in ("torch", "pliant")])


def line_here() -> Line | None:
    """The line of the user's program that is running, outside of these libraries and of generated code."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if not code.co_filename.startswith((*LIBRARIES, "<pliant")):
            return Line(code.co_filename, code.co_name, frame.f_lineno)
        frame = frame.f_back
    return None
