"""Functions of PyTorch's Python code that are answered by pliant for a while: those that ask what a traced tensor cannot say."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def answering(asked: Iterable[tuple[Any, str, Callable[[Any], Any]]]) -> Iterator[None]:
    """While inside, attribute `name` of each module or class is what `make` makes of the original. `asked`: (module, name, make)."""
    before = [(space, name, getattr(space, name), make) for space, name, make in asked]
    for space, name, original, make in before:
        setattr(space, name, make(original))
    try:
        yield
    finally:
        for space, name, original, _ in before:
            setattr(space, name, original)
