"""What sequences join and repeat: the other operand's reflected operator is asked first, as a number would be."""

from __future__ import annotations

import collections
import operator

import pytest
import torch

from tests.helpers import compiled


class Answers:
    def __radd__(self, other):
        return 5

    def __rmul__(self, other):
        return 6


class Declines:
    def __radd__(self, other):
        return NotImplemented

    def __iter__(self):
        return iter((7,))


class Static:
    @staticmethod
    def __radd__(other):
        return ("static", other)

    __rmul__ = __radd__


class Misfit:
    @staticmethod
    def __radd__(other, more):
        return other


class Object:
    class Answer:
        def __call__(self, *args):
            return len(args)

    __radd__ = Answer()


class Property:
    @property
    def __radd__(self):
        return lambda other: ("property", other)


class Integer(int):
    def __radd__(self, other):
        return "integer"


class PlainInteger(int):
    pass


OPERATORS = (operator.iadd, operator.add, operator.imul, operator.mul)
CLASSES = (Answers, Declines, Static, Misfit, Object, Property, Integer, PlainInteger)
MADE = (lambda: [1], lambda: (1,), lambda: "a", lambda: collections.deque([1]), lambda: {1: 2}, lambda: {1}, lambda: 3)


def outcome(f):
    try:
        return f()
    except TypeError as e:
        return str(e)


@pytest.mark.parametrize("cls", CLASSES)
def test_every_sequence(cls):
    def program(x):
        return x + 1, [outcome(lambda make=make, op=op: op(make(), cls())) for make in MADE for op in OPERATORS]

    assert compiled(program)(torch.ones(2))[1] == program(torch.ones(2))[1]


def test_the_list_itself():
    def program(x, other):
        joined = had = [x]
        joined += other
        return joined is had, len(had), joined if type(joined) is not list else None

    c = compiled(program)
    for other in (Answers(), Declines(), [x for x in torch.ones(3)], Answers(), (1, 2)):
        assert c(torch.ones(2), other) == program(torch.ones(2), other)
