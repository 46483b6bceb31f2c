"""A capture leaves no cycles: they would keep the program's objects, and a generator that the program has dropped would not be closed.

Without the cyclic collector, no frame of pliant's is left after a call, whatever was raised and caught in it.
"""

from __future__ import annotations

import gc
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch

import pliant
from pliant.interpret.tracebacks import PLIANT

CLOSED: list[int] = []


class Rows:
    def __init__(self, t: Any, n: int) -> None:
        self.t, self.n = t, n

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        if self.n == 0:
            raise StopIteration
        self.n -= 1
        return self.t * self.n


def watched(t: Any) -> Any:
    try:
        yield t
        yield t + 1
    finally:
        CLOSED.append(1)


def ends_by_exception(x: Any, n: int) -> Any:
    return sum(list(Rows(x, n % 3))) + torch.stack([r for r in Rows(x, 2)]).sum()


def caught(x: Any, n: int) -> Any:
    try:
        raise ValueError(n)
    except ValueError as e:
        y = x * len(e.args)
    try:
        try:
            {}[n]
        except KeyError as e:
            raise RuntimeError("again") from e
    except RuntimeError:
        pass
    return y


def bare(x: Any, n: int) -> Any:
    try:
        try:
            raise KeyError(1)
        except KeyError:
            raise
    except LookupError:
        return x + n


def thrown(x: Any, n: int) -> Any:
    g = watched(x)
    y = next(g)
    try:
        g.throw(ValueError("no"))
    except ValueError:
        y = y * 2
    h = watched(x)
    next(h)
    h.close()
    return y


def broken(x: Any, n: int) -> Any:
    for t in watched(x):
        for _ in range(n % 5):
            n += 1
        pliant.graph_break()
        x = x + t
    return x, n


def decided_by_data(x: Any, n: int) -> Any:
    y = x * 2
    if y.sum() > n:
        y = y + 1
    return [y for _ in range(int(y.sum().item()) % 4)]


def grown_by_data(x: Any, n: int) -> Any:
    y, kept = x * 2, []
    for _ in range(int(y.sum().item()) % 4):
        kept.append(y + n)
    return kept


def written_by_data(x: Any, n: int) -> Any:
    y = x * 2
    views = [y[:1]]
    while y.sum() < n * 9:
        y.add_(1)
        views[0] = y[:1]
    return views


def refused(x: Any, n: int) -> Any:
    print(end="")
    try:
        x.view(1000)
    except RuntimeError:
        x = x + 1
    return x, getattr(x, "missing", None), hasattr(x, "missing")


def raises(x: Any, n: int) -> Any:
    for t in watched(x):
        for _ in range(n % 3):
            pliant.graph_break()
        t.view(1000 + n)


def raises_in_python(x: Any, n: int) -> Any:
    for t in watched(x):
        for u in Rows(t, 2):
            n += u.numel() % 5
            for _ in range(n % 5):
                pass
            pliant.graph_break()
        t.missing(x)


PROGRAMS = [ends_by_exception, caught, bare, thrown, broken, decided_by_data, grown_by_data, written_by_data, refused, raises,
            raises_in_python]  # fmt: skip


def frames() -> list[str]:
    found = [f for f in gc.get_objects() if type(f) is types.FrameType and f.f_code.co_filename.startswith(PLIANT)]
    return [f"{f.f_code.co_name}, line {f.f_lineno}" for f in found]


def outcome(fn: Callable, i: int) -> Any:
    del CLOSED[:]
    try:
        fn(torch.arange(6.0) + i, i)
    except Exception as e:
        return type(e), len(CLOSED)
    return None, len(CLOSED)


@pytest.mark.usefixtures("young_heap")
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_no_frame_is_left(program):
    compiled = pliant.compile(program, backend="aten", strict=True)
    gc.collect()
    was = gc.isenabled()
    gc.disable()
    try:
        for i in (3, 4, 7, 2, 9, 12):
            assert outcome(compiled, i) == outcome(program, i)
            assert frames() == []
    finally:
        if was:
            gc.enable()
