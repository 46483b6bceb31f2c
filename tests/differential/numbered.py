"""Programs by number: what runs a range of them from the command line, and the compiler that any such check has to find wrong."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any

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


def keeps_first_answer(f: Callable, **settings: Any) -> Callable:
    """In the place of `pliant.compile`: a compiler without guards."""
    answers: list[Any] = []

    def first(*args: Any) -> Any:
        if not answers:
            answers.append(f(*args))
        return answers[0]

    return first
