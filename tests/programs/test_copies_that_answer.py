"""Copies of objects whose class answers for names itself (`__getattribute__`, `__getattr__`), as configurations of models do.

The library asks such an object for `__deepcopy__` and `__reduce_ex__`, and C code for `__reduce__` and `__getstate__`, in eager's order.
"""

from __future__ import annotations

import copy
import copyreg
import enum

import pytest
import torch

import pliant
from tests import helpers

ASKED: list[str] = []


class Asked:
    """It notes what it is asked, under the name that is meant."""

    names = {"hidden": "d_model"}

    def __init__(self, **attributes):
        self.__dict__.update(attributes)

    def __getattribute__(self, name):
        ASKED.append(name)
        names = super().__getattribute__("names")
        return super().__getattribute__(names.get(name, name))


class Lacking:
    def __init__(self, **attributes):
        self.__dict__.update(attributes)

    def __getattr__(self, name):
        ASKED.append(name)
        raise AttributeError(name)


class WithState(Asked):
    def __getstate__(self):
        return {"a": self.a + 1, "d": self.d}

    def __setstate__(self, state):
        self.__dict__.update(state, set=True)


class Hidden(Lacking):
    """`__getstate__` is answered for, not found."""

    def __getattribute__(self, name):
        return (lambda: {"a": 7, "d": {}}) if name == "__getstate__" else super().__getattribute__(name)


class Reducing(Asked):
    def __reduce__(self):
        return Lacking, (), {"a": self.a}


class Slotted(Asked):
    __slots__ = ("s",)


class Mapping(dict):
    def __getattribute__(self, name):
        ASKED.append(name)
        return super().__getattribute__(name)


class Color(enum.Enum):
    RED = 1


def made(kind):
    attributes = {"d_model": 3, "a": 1, "n": None, "l": [1, 2], "d": {"q": [1, {"z": (1, [2])}]}, "t": torch.float32, "c": Color.RED}
    o = kind(**attributes)
    if kind is Mapping:
        o.__dict__.update(attributes)
    if kind is Slotted:
        o.s = [4]
    o.__dict__["own"] = o
    return o


def shown(o):
    """What is there of an object, without asking it."""
    inside = object.__getattribute__(o, "__dict__")
    rest = {k: v for k, v in inside.items() if k != "own"}
    more = object.__getattribute__(o, "s") if type(o) is Slotted else dict(o) if type(o) is Mapping else None
    return type(o), rest, inside.get("own") is o, more


def deep(x, o):
    ASKED.clear()
    made = copy.deepcopy(o)
    return x * o.a, shown(made), list(ASKED), made.d is o.d


def shallow(x, o):
    ASKED.clear()
    made = copy.copy(o)
    return x * o.a, shown(made), list(ASKED), made.d is o.d


def written(x, o):
    made = copy.deepcopy(o)
    made.a = 10
    made.d["q"].append(x)
    o.d["n"] = len(made.d["q"])
    return x * made.a + o.a, made, made.l


def reduced(x, o):
    ASKED.clear()
    fn, args, state, *more = o.__reduce_ex__(4)
    state = sorted(state) if isinstance(state, dict) else type(state)
    return x + 1, fn is copyreg.__newobj__, args, state, list(map(type, more)), list(ASKED)


def old(x, o):
    return x + 1, len(o.__reduce_ex__(2)), type(o.__reduce_ex__(0)), type(o.__reduce__())


KINDS = [Asked, Lacking, WithState, Hidden, Reducing, Slotted, Mapping]
WHOLE = {Asked, Lacking, WithState, Hidden}


def outcome(fn, x, o):
    try:
        return fn(x, o)
    except Exception as e:
        return type(e), str(e)


@pytest.mark.parametrize("fn", [deep, shallow, written, reduced, old], ids=lambda f: f.__name__)
@pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.__name__)
def test_copies(kind, fn):
    run, mine, theirs = helpers.compiled(fn), made(kind), made(kind)
    for i in range(5):
        for o in (mine, theirs):
            object.__getattribute__(o, "__dict__")["a"] = i if i < 3 else float(i)
        x = torch.full((3 + i,), 2.0)
        got, want = outcome(run, x, mine), outcome(fn, x, theirs)
        if fn is written and type(want[0]) is not type:
            got, want = ((v[0], *shown(v[1])[:1], v[1].a, len(v[1].d["q"]), v[2] is v[1].l) for v in (got, want))
        assert repr(got) == repr(want)
        assert shown(mine)[1:] == shown(theirs)[1:] or fn is written
    assert pliant.stats()["graph_breaks"] == 0 or kind not in WHOLE or fn is old


def test_a_class_that_gets_a_copy_of_its_own():
    """Between calls: what the class answers then counts."""
    run, mine, theirs = helpers.compiled(deep), made(Asked), made(Asked)
    for i in range(6):
        if i in (2, 4):
            for name, put in (("__deepcopy__", lambda self, memo: self), ("__getstate__", lambda self: {"a": 1, "d": 2})):
                setattr(Asked, name, put) if i == 2 else delattr(Asked, name)
        assert repr(run(torch.ones(3), mine)) == repr(deep(torch.ones(3), theirs))
