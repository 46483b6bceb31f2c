"""What a search for a wrong pass or kernel (`report/bisect.py`) allows to happen."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any


class Search:
    """Of the things that ask, all are allowed; inside `first(most)` the first `most` of them."""

    def __init__(self) -> None:
        self.most: int | None = None
        self.asked: list[Any] | None = None  # only while a search is on

    def allows(self, thing: Any) -> bool:
        if self.asked is None:
            return True
        self.asked.append(thing)
        return self.most is None or len(self.asked) <= self.most

    @contextlib.contextmanager
    def first(self, most: int | None) -> Iterator[list[Any]]:
        """Inside, the first `most` are allowed (all, if None); gives those that have asked."""
        before = self.most, self.asked
        self.most, self.asked = most, []
        try:
            yield self.asked
        finally:
            self.most, self.asked = before


PASSES, KERNELS = Search(), Search()
"""Runs of optional passes, as (pass, program); operations that go into kernels."""


def searching() -> bool:
    return PASSES.asked is not None or KERNELS.asked is not None
