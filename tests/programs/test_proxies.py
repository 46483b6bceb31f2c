"""What stands for a value while a program is captured is never seen by the program: in texts, in messages of exceptions, as keys."""

from __future__ import annotations

import functools
import inspect
from typing import Any

import numpy as np
import pytest
import torch

import pliant

EXPRESSIONS = """
len(s) | s() | [*s] | f(*s) | dict(**s) | dict(s=s)[s] | sorted(s) | sum(s) | max(s) | list(zip(s)) | list(map(abs, s)) | set(s)
getattr(s, s) | getattr(1, s) | super(s) | isinstance(3, s) | "".join([s]) | "a" + s | s @ "a" | s < "3" | [1, 2]["a":s] | {}[s]
setattr(s, "q", 1) | delattr(s, "q") | delete(s) | enter(s) | unpack(s) | walk(s) | write(s) | "%s" % s | "%s %d" % (s, 3) | "{}".format(s)
f"{s!r:>9}" | str(ValueError(s)) | repr([s]) | str(KeyError(s, 1)) | f"{ValueError((s, 1))}" | [1].index(s) | torch.zeros(s)
torch.zeros(3)[s] | [1, 2][:s] | [1, 2][s] | "abc"[s] | range(s) | [1] * s | chr(s) | raised(s)
"""
VALUES = ("x", "x.sum()", "x.shape[0]", "fl * 2", "x.shape", "n > 5", "a.sum()", "a.sum(dtype='i4')", "k", "k2", "np.int64(len(a))", "a")


def f(*args: Any) -> Any:
    return args


def delete(s: Any) -> None:
    del s[0]


def enter(s: Any) -> None:
    with s:
        pass


def unpack(s: Any) -> Any:
    a, b = s
    return a


def walk(s: Any) -> None:
    for _ in s:
        pass


def write(s: Any) -> None:
    s[0] = "a"


def raised(s: Any) -> Any:
    try:
        raise ValueError(s)
    except ValueError as e:
        return str(e)


@functools.cache
def program(expression: str, value: str) -> Any:
    text = f"""
def program(x, n, fl, a, k, k2):
    s = {value}
    try:
        return {expression}
    except BaseException as e:
        return type(e), str(e), [type(v) for v in e.args]
"""
    space = dict(globals())
    exec(text, space)
    return space["program"]


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("expression", [e.strip() for line in EXPRESSIONS.split("\n") for e in line.split("|") if e.strip()])
def test_nobody_sees_them(expression: str, value: str) -> None:
    def told(fn: Any, i: int) -> str:
        args = torch.full((3 + i,), 1.0 + i), 7 + i, 2.5 * i, np.ones(3) * i, np.float32(2 + i), np.int32(5 + i)
        r = fn(*args)
        return f"{type(r)} {r!r}"

    fn = program(expression, value)
    compiled = pliant.compile(fn, strict=True)
    for i in range(3):
        assert told(compiled, i) == told(fn, i)


@pytest.mark.parametrize("size", [3, 4])
def test_sizes_as_keys(size: int) -> None:
    def fn(x: torch.Tensor, n: int) -> Any:
        d = {x.shape: 1}
        d[(x.shape, n)] = 2  # type: ignore[index]
        return d, [type(k) for k in d], {x.shape}

    assert repr(pliant.compile(fn, strict=True)(torch.ones(size), size)) == repr(fn(torch.ones(size), size))


# -- a value of another type in each call: its type is not that of the first ------------------------------------------------------
class Plain:
    pass


def matched(x, v):
    match v:
        case None:
            return x
        case int(n) if n > 2:
            return x + n
        case {"a": 1}:
            return x * 2
        case [a]:
            return x * a
        case [a, b]:
            return x * b
        case {}:
            return x * 7
        case float():
            return x / v
        case str():
            return x + len(v)
        case _:
            return x * 3


def unpacked(x, v):
    a, *b = v
    return x, a, b


def walked(x, v):
    return x, [i for i in v]  # noqa: C416


def asked(x, v):
    return x, inspect.isclass(v), callable(v), hasattr(v, "keys"), type(v).__name__


def entered(x, v):
    with v:
        return x


CHANGING = [1, 2.0, "a", None, [1], (2,), {"a": 1}, slice(1), Plain, Plain(), [5], {"a": 2}, (3, 4), "abc", 7, range(3), b"ab", {1}]
CHANGING += [[], {}, {"b": 1}]


@pytest.mark.parametrize("fn", [matched, unpacked, walked, asked, entered, lambda x, v: v(x)])
def test_types_that_change(fn):
    compiled = pliant.compile(fn)
    for v in [*CHANGING, *reversed(CHANGING)]:
        outcomes = []
        for run in (fn, compiled):
            try:
                outcomes.append(repr(run(torch.ones(1), v)))
            except Exception as e:
                outcomes.append((type(e), str(e)))
        assert outcomes[0] == outcomes[1], v
