"""Loops that graph breaks leave to Python, one beside the other in a loop around them: each has its driver, and ends."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import pliant

OUT: list[Any] = []


@pytest.fixture(autouse=True)
def ends() -> Iterator[None]:
    """A loop that does not end fails."""

    def stop(*_: Any) -> None:
        raise TimeoutError("the loop does not end")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(120)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def parts(t: Any, n: int) -> Any:
    for i in range(n):
        if i >= t.shape[0]:
            return i
        yield t[i : i + 1]
    return n


def until_it_stops(x: Any, n: int) -> Any:
    i, t = 0, x
    while i < n % 5:
        i += 1
        g = parts(x, n)
        t = x
        try:
            while True:
                t = t + next(g).sum(0)
                print(end="")
        except StopIteration as e:
            OUT.append(e.value)
        k = 0
        while True:
            k += 1
            if k > 3:
                break
            print(end="")
            t = t * 2
            OUT.append(k)
    return t


def two(x: Any, n: int) -> Any:
    i = 0
    while i < n:
        i += 1
        j = 0
        while j < 2:
            j += 1
            print(end="")
            x = x + j
        k = 0
        while k < 2:
            k += 1
            print(end="")
            x = x * k
        OUT.append(i)
    return x


def of_all_kinds(x: Any, n: int) -> Any:
    i = 0
    while i < n:
        i += 1
        for j in range(2):
            print(end="")
            x = x + j
            if float(x.sum()) > 40:
                break
        k = 0
        while True:
            k += 1
            if k > i:
                break
            print(end="")
            x = x - k
            for m in [1, 2]:
                if float(x.sum()) < m:
                    OUT.append(m)
                    break
        while k > 0:
            k -= 1
            print(end="")
        OUT.append((i, k))
    return x


def in_a_handler(x: Any, n: int) -> Any:
    for i in range(n):
        j = 0
        while j < i:
            j += 1
            try:
                if j % 2:
                    raise ValueError
                print(end="")
            except ValueError:
                m = 0
                while m < 2:
                    m += 1
                    print(end="")
                    x = x + m
                continue
            x = x * 1.5
        q = 0
        while q < 1:
            q += 1
            print(end="")
            OUT.append((i, j))
    return x


def told(fn: Callable, rows: int, n: int) -> tuple:
    OUT.clear()
    return fn(torch.arange(rows * 2.0).reshape(rows, 2) - 1, n).tolist(), list(OUT)


@pytest.mark.parametrize("program", [until_it_stops, two, of_all_kinds, in_a_handler], ids=lambda f: f.__name__)
def test_loops_beside_each_other(program: Callable) -> None:
    compiled = pliant.compile(program)
    for rows, n in ((3, 3), (1, 4), (5, 5), (2, 8), (4, 2), (2, 13), (1, 1), (3, 9)):
        assert told(compiled, rows, n) == told(program, rows, n), (rows, n)
