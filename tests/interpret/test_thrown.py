"""What `throw` and its kin of generators make of their arguments: words, contexts, tracebacks, what is thrown in their place."""

from __future__ import annotations

import traceback

import pytest
import torch

from tests.helpers import pliant


class Two(Exception):
    def __init__(self, a, b):
        super().__init__(a, b)


class Refuses(Exception):
    def __init__(self, *args):
        raise KeyError("inside")


class Another(Exception):
    def __new__(cls, *args):
        return 5


class Passes:
    def __iter__(self):
        return self

    def __next__(self):
        return 1

    def throw(self, *args):
        return len(args), [type(a).__name__ for a in args]


def chain(e):
    out = []
    while e is not None:
        out.append(repr(e))
        e = e.__context__
    return out


def lines(e):
    return [(f.name, f.lineno) for f in traceback.extract_tb(e.__traceback__)]


def plain():
    try:
        yield 1
        yield 2
    except ValueError as e:
        yield chain(e), lines(e)
    yield 3


def handed_on():
    yield (yield from plain())


def to_an_iterator():
    yield from Passes()


def a_traceback():
    try:
        raise KeyError(1)
    except KeyError as e:
        return e.__traceback__


def in_a_handler(it, e):
    try:
        raise IndexError(9)
    except IndexError:
        return it.throw(e)


CALLS = {
    "a number": lambda it: it.throw(5),
    "a class": lambda it: it.throw(int),
    "None": lambda it: it.throw(None),
    "nothing": lambda it: it.throw(),
    "an object": lambda it: it.throw(Passes()),
    "many": lambda it: it.throw(1, 2, 3, 4),
    "by keyword": lambda it: it.throw(typ=ValueError),
    "a value": lambda it: it.throw(ValueError, 1),
    "a tuple": lambda it: it.throw(ValueError, (1, 2)),
    "None for a value": lambda it: it.throw(ValueError, None, None),
    "an instance": lambda it: it.throw(ValueError(1)),
    "two instances": lambda it: it.throw(ValueError(1), 1),
    "an instance as value": lambda it: it.throw(ValueError, ValueError(3)),
    "of another class": lambda it: it.throw(ValueError, Exception(2)),
    "of a subclass": lambda it: it.throw(Exception, ValueError(2)),
    "no traceback": lambda it: it.throw(ValueError, None, 5),
    "with a traceback": lambda it: it.throw(ValueError, ValueError("q"), a_traceback()),
    "too few": lambda it: it.throw(Two),
    "one too few": lambda it: it.throw(Two, 1),
    "two": lambda it: it.throw(Two, (1, 2)),
    "refused": lambda it: it.throw(Refuses, 1),
    "made otherwise": lambda it: it.throw(Another, 1),
    "the end": lambda it: it.throw(StopIteration(4)),
    "exit": lambda it: it.throw(GeneratorExit),
    "an interrupt": lambda it: it.throw(KeyboardInterrupt),
    "in a handler": lambda it: in_a_handler(it, ValueError("a")),
    "a class in a handler": lambda it: in_a_handler(it, ValueError),
    "send nothing": lambda it: it.send(),
    "send by keyword": lambda it: it.send(value=1),
    "close with one": lambda it: it.close(1),
    "next with one": lambda it: it.__next__(1),
    "iter with one": lambda it: it.__iter__(1),
}


@pytest.mark.parametrize("call", list(CALLS))
@pytest.mark.parametrize("make, steps", [(plain, 0), (plain, 1), (plain, 9), (handed_on, 0), (handed_on, 1), (to_an_iterator, 1)])
def test_what_is_thrown(make, steps, call):
    thrown = CALLS[call]

    def program(x):
        it = make()
        for _ in range(steps):
            next(it, None)
        try:
            said = thrown(it)
        except BaseException as e:
            said = type(e).__name__, str(e), chain(e), lines(e)
        return x + 1, said, [repr(next(it, None)) for _ in range(3)]

    x = torch.ones(2)
    assert repr(pliant.compile(program, strict=True, backend="aten")(x)) == repr(program(x))
