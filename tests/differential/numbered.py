"""Programs by number: what runs a range of them from the command line, and the compiler that any such check has to find wrong."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import torch

import pliant
from pliant.errors import InternalError

Examine = Callable[[int], str | None]  # a number -> what its program does wrong, in words


def main(examine: Examine, calls: int) -> None:
    """`python -m ... FIRST COUNT`: each wrong program as it is found, then how many there are. A program has `calls` calls."""
    first, count = map(int, sys.argv[1:3])
    wrong = 0
    for found in quietly(examine, range(first, first + count)):
        wrong += 1
        print(found, flush=True)
    print(f"{count} programs, {count * calls} calls, {wrong} wrong")


def quietly(examine: Examine, numbers: range) -> Any:
    """What is wrong among these, one by one, with warnings ignored."""
    for number in numbers:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = examine(number)
        if found:
            yield found


def compared(said: str, program: Callable, objects: Iterable[tuple[Any, Any]]) -> str | None:
    """What a compiled program of a tensor and an object does otherwise, called with these in turn: one for eager, one alike for it."""
    pliant.reset()
    compiled = pliant.compile(program, strict=True)
    x = torch.arange(6.0).reshape(2, 3)
    for i, (a, b) in enumerate(objects):
        want = outcome(program, x, a)
        try:
            got = outcome(compiled, x, b)
        except InternalError as e:
            got = f"an internal error: {e}"
        if want != got:
            return f"{said}, call {i}: want {want[-160:]}, got {got[-200:]}"
    return None


def outcome(f: Callable, *args: Any) -> str:
    try:
        return re.sub("0x[0-9a-f]+", "0x", repr(f(*args)))
    except InternalError:
        raise
    except Exception as e:
        return f"{type(e).__name__}: {str(e)[:200]}"


def keeps_first_answer(f: Callable, **settings: Any) -> Callable:
    """In the place of `pliant.compile`: a compiler without guards."""
    answers: list[Any] = []

    def first(*args: Any) -> Any:
        if not answers:
            answers.append(f(*args))
        return answers[0]

    return first
