"""`__prepare__` of a metaclass, whatever it is: CPython takes the attribute and calls it."""

from __future__ import annotations

import collections
import contextlib
import types

import pytest
import torch

from tests.helpers import compiled


class Base(type):
    def __new__(cls, name, bases, space, **kw):
        made = super().__new__(cls, name, bases, dict(space))
        made.told = [k for k in space if not k.startswith("__")], kw
        return made


def plain(name, bases, **kw):
    return {"plain": len(bases)}


def ordered(name, bases, **kw):
    return collections.OrderedDict(z=1)


def generator(name, bases, **kw):
    yield 1


def raising(name, bases, **kw):
    raise ValueError("note")


def a_list(name, bases, **kw):
    return [1]


def a_number(name, bases, **kw):
    return 3


PREPARES = {
    "a function": plain,
    "a static method": staticmethod(plain),
    "a class method": classmethod(lambda cls, name, bases, **kw: {cls.__name__: 1}),
    "a subclass of dict": ordered,
    "a generator": generator,
    "an error": raising,
    "no mapping": a_list,
    "a number": a_number,
    "none": None,
    "a property": property(lambda self: 5),
    "a class": types.SimpleNamespace,
    "dict": dict,
}


def of_metaclass(meta):
    def program(x):
        try:

            class Made(metaclass=meta, k=1):
                a = 1

                def f(self):
                    return self.a

        except (TypeError, ValueError) as e:
            return x + 1, type(e), str(e)
        return x + 1, Made.told

    return program


@pytest.mark.parametrize("name", PREPARES)
def test_as_cpython(name):
    program = of_metaclass(types.new_class("Meta", (Base,), exec_body=lambda ns: ns.update(__prepare__=PREPARES[name])))
    assert compiled(program)(torch.ones(2))[1:] == program(torch.ones(2))[1:]


def test_another_one():
    class Meta(Base):
        __prepare__ = plain

    program = of_metaclass(Meta)
    c = compiled(program)
    assert c(torch.ones(2))[1:] == program(torch.ones(2))[1:]
    for other in (raising, staticmethod(ordered), a_number, plain):
        Meta.__prepare__ = other
        assert c(torch.ones(2))[1:] == program(torch.ones(2))[1:]
    with contextlib.suppress(AttributeError):
        del Meta.__prepare__
    assert c(torch.ones(2))[1:] == program(torch.ones(2))[1:]
