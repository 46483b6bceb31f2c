"""Modules of a class of their own (`sys.modules[__name__].__class__ = ...`): what the class says of an attribute, and what the module
holds under it, which is what its functions know by that name."""

from __future__ import annotations

import sys
import types

import pytest
import torch

from tests.helpers import compiled

SOURCE = """
k = 3.0
hidden = 7.0
def f(x): return x * k
def g(x):
    global k
    k = k + 1
    return x * k
"""


class Plain(types.ModuleType):
    scale = 2.0

    @property
    def told(self):
        return self.hidden * 2

    @told.setter
    def told(self, value):
        self.hidden = value

    def method(self, x):
        return x * self.k + self.scale

    @staticmethod
    def static(x):
        return x + PLAIN.k

    @classmethod
    def of_class(cls, x):
        return x * cls.scale


class Late(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("late_"):
            return len(name)
        raise AttributeError(name)


class Asked(types.ModuleType):
    def __getattribute__(self, name):
        return 5 if name == "magic" else super().__getattribute__(name)


class Noted(types.ModuleType):
    def __setattr__(self, name, value):
        super().__setattr__(name, value * 10)


def made(cls: type) -> types.ModuleType:
    m = cls(f"tests_module_{cls.__name__}")
    exec(SOURCE, m.__dict__)
    return m


PLAIN, LATE, ASKED, NOTED = map(made, (Plain, Late, Asked, Noted))


def names_of_both(x):
    return PLAIN.f(x) + PLAIN.k + PLAIN.scale


def method(x):
    return PLAIN.method(PLAIN.f(x)) + PLAIN.told


def without_self(x):
    return PLAIN.f(PLAIN.static(x)) * PLAIN.of_class(x)


def getattr_(x):
    return LATE.f(x) + LATE.late_abc + LATE.k + getattr(LATE, "nope", 1)


def getattribute(x):
    return ASKED.f(x) + ASKED.magic + ASKED.k


def written(x):
    PLAIN.k = PLAIN.k + 1
    return PLAIN.f(x)


def setter(x):
    PLAIN.told = PLAIN.told + 1
    return x + PLAIN.told + PLAIN.hidden


def setattr_(x):
    NOTED.k = NOTED.k + 1
    return NOTED.f(x) + NOTED.k


def declared(x):
    return PLAIN.g(x) + PLAIN.k + PLAIN.scale


def given(x):
    return [m.f(x) + m.k for m in (PLAIN, LATE, PLAIN)]


def by_dict(x):
    return x + vars(PLAIN)["k"] + PLAIN.__dict__["hidden"]


def deleted(x):
    PLAIN.added = 3.0
    y = x + PLAIN.added
    del PLAIN.added
    return y


class Slotted(types.ModuleType):
    __slots__ = ("slot",)


SLOTTED = made(Slotted)


def of_the_type(x):
    told = [PLAIN.__class__.__name__, PLAIN.__annotations__, PLAIN.__name__, str(PLAIN.__spec__), hasattr(PLAIN, "__file__")]
    return [x + len(told), x + hasattr(SLOTTED, "slot"), x + len(told[1])]


def slots(x):
    SLOTTED.slot = 4
    return x + SLOTTED.slot + SLOTTED.k


def missing(x):
    return x + PLAIN.nowhere


CHANGES = [
    lambda: None,
    lambda: PLAIN.__dict__.update(k=10.0),
    lambda: setattr(Plain, "scale", 5.0),
    lambda: PLAIN.__dict__.update(scale=9.0),
    lambda: (PLAIN.__dict__.update(hidden=1.5), LATE.__dict__.update(k=-1.0)),
    lambda: PLAIN.__dict__.update(method=lambda x: x - 1000, nowhere=3),
    lambda: (LATE.__dict__.update(nope=8, late_abc=99), ASKED.__dict__.update(k=0.5)),
    lambda: PLAIN.__dict__.update(f=lambda x: x * 0),
]


def reset() -> None:
    for m in (PLAIN, LATE, ASKED, NOTED):
        for name in {*vars(m)} - {"__name__", "__doc__", "__package__", "__loader__", "__spec__", "__builtins__"}:
            del m.__dict__[name]
        exec(SOURCE, m.__dict__)
    Plain.scale = 2.0


def history(fn) -> list:
    found = []
    reset()
    for change in CHANGES:
        change()
        for n in (2, 3):
            try:
                answer = fn(torch.ones(n))
                answer = [a.tolist() for a in answer] if isinstance(answer, list) else answer.tolist()
            except AttributeError as e:
                answer = str(e)
            found.append((answer, PLAIN.k, PLAIN.hidden, NOTED.k, sorted({*vars(PLAIN)} - {"__builtins__"})))
    reset()
    return found


PROGRAMS = [
    names_of_both, method, without_self, getattr_, getattribute, written, setter, setattr_, declared, given, by_dict, deleted, missing,
    of_the_type, slots,
]  # fmt: skip


@pytest.mark.parametrize("fn", PROGRAMS)
def test_modules_of_a_class(fn):
    assert history(compiled(fn, backend="aten")) == history(fn)


def test_another_module_of_the_class():
    def fn(m, x):
        return m.f(x) + m.k + m.scale

    one, two = made(Plain), made(Plain)
    two.k = 11.0
    run = compiled(fn, backend="aten")
    for m in (one, two, one, two):
        assert torch.equal(run(m, torch.ones(3)), fn(m, torch.ones(3)))


def test_this_module_given_a_class():
    name = "tests_module_replaced"
    m = types.ModuleType(name)
    sys.modules[name] = m
    exec("def f(x): return x + here.offset\nimport sys\nhere = sys.modules[__name__]\n", m.__dict__)
    m.__class__ = type("Offset", (types.ModuleType,), {"offset": 2.0})
    try:
        run = compiled(m.f, backend="aten")
        assert run(torch.ones(2)).tolist() == [3.0, 3.0]
        type(m).offset = 4.0
        assert run(torch.ones(2)).tolist() == [5.0, 5.0]
        m.offset = 7.0
        assert run(torch.ones(2)).tolist() == [8.0, 8.0]
    finally:
        del sys.modules[name]
