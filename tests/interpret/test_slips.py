"""Mistakes of pliant's own, planted where the program handles everything: none of its handlers sees them, and CPython runs the frame."""

from __future__ import annotations

import functools
import math
import textwrap

import pytest
import torch

import pliant
from pliant.errors import InternalError
from pliant.interpret import tracebacks
from pliant.interpret.lookasides import LOOKASIDES

SLIPS = {
    "attribute": "return args[0].nowhere",
    "method": "return args[0].nowhere()",
    "name": "return nowhere",
    "local": "if not args:\n    x = 1\nreturn x",
    "free": "def inner():\n    return y\nr = inner()\ny = 1\nreturn r",
    "unpack": "a, b, c = args\nreturn a",
    "unpack of one that is none": "a, b = None\nreturn a",
    "key": "return {}[args[0]]",
    "index": "return [][3]",
    "assert": "assert not args, 'words'",
    "set attribute": "x = 1\nx.nowhere = 1",
    "delete attribute": "x = 1\ndel x.nowhere",
    "pop": "return {}.pop('nowhere')",
    "getattr": "return getattr(args[0], 'nowhere')",
    "within": "return [x.nowhere for x in args]",
    "too few": "def inner(a, b):\n    return a\nreturn inner(1)",
    "too many": "return helper(1, 2, 3)",
    "keyword": "return helper(1, c=3)",
    "method of ours": "return THING.method(1, 2)",
    "constructor": "return Thing(1, 2)",
    "binary": "return 1 + None",
    "comparison": "return args < 1",
    "in": "return 1 in 2",
    "loop": "for x in 1:\n    return x",
    "lengths": "return [a for a, b in zip([1], [1, 2], strict=True)]",
    "unary": "return -None",
    "item of a number": "return (1)[args]",
    "caught once": "try:\n    return {}[1]\nexcept KeyError:\n    return args[0].nowhere",
}
MEANT = {
    "raise": "raise KeyError('k')",
    "from": "try:\n    return {}[1]\nexcept KeyError as e:\n    raise ValueError('v') from e",
    "call": "return int('x')",
    "call of C": "return len(1)",
    "what is given": "fn = len\nreturn fn(*args, *args)",
    "assertion": "raise AssertionError('words')",
}


def planted(body: str):
    """A function that looks as if it were one of the interpreter's."""
    source = "def handler(args, kw):\n" + textwrap.indent(body, "    ")
    scope: dict = {"__name__": "pliant.interpret.planted"}
    source = "def helper(a, b=2):\n    return a\nclass Thing:\n    def method(self, a):\n        return a\n    def __init__(self):\n" \
        "        pass\nTHING = Thing()\n" + source
    exec(compile(source, tracebacks.PLIANT + "interpret/planted.py", "exec"), scope)
    return scope["handler"]


def waits(x, n):
    try:
        return x + math.comb(n, 2)
    except Exception as e:
        return type(e).__name__


def waits_further_out(x, n):
    def inner(k):
        return math.comb(k, 2)

    try:
        with torch.no_grad():
            return x * inner(n)
    except BaseException as e:
        return type(e).__name__
    finally:
        x = x + 1


@pytest.mark.parametrize("fn", [waits, waits_further_out])
@pytest.mark.parametrize("name", SLIPS)
def test_no_handler_of_the_program_sees_a_slip(monkeypatch, name, fn):
    monkeypatch.setitem(LOOKASIDES, math.comb, planted(SLIPS[name]))
    x = torch.ones(3)
    with pytest.raises(InternalError, match=r"interpret/planted\.py:\d+, which is no part of the program"):
        pliant.compile(fn)(x, 4)
    pliant.reset()
    lenient = pliant.compile(fn, strict=False)
    for n in (4, 5, 4):
        assert torch.equal(lenient(x, n), fn(x, n))
    assert pliant.stats()["fallbacks"]


@pytest.mark.parametrize("name", MEANT)
def test_what_is_meant_is_handled(monkeypatch, name):
    monkeypatch.setitem(LOOKASIDES, math.comb, planted(MEANT[name]))
    of_c = {"call of C": "TypeError", "what is given": "TypeError"}
    expected = (of_c | {"from": "ValueError", "call": "ValueError", "assertion": "AssertionError"}).get(name, "KeyError")
    assert pliant.compile(waits)(torch.ones(3), 4) == expected


def outside(k, n=2):
    return k, n


without_names = functools.lru_cache(functools.partial(outside, n=3))


def test_a_cached_function_that_has_no_name():
    def fn(x, k):
        try:
            a = without_names(k=k)
        except AttributeError as e:
            return str(e)
        return x + a[0] * a[1]

    compiled = pliant.compile(fn)
    x = torch.ones(2)
    for k in (1, 2, 3, 2):
        assert torch.equal(compiled(x, k), fn(x, k))
