"""Attributes of outside objects: what is asked of whom, and that nothing else runs."""

from __future__ import annotations

import dataclasses
import functools
import gc
import types
import weakref

import pytest
import torch

import pliant
from pliant.interpret import engine
from tests.helpers import check, compiled


class Counted:
    """Its own Python code sees every attribute that is read."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.scale = 2.0

    def __getattribute__(self, name: str):
        if name != "seen":
            object.__getattribute__(self, "seen").append(name)
        return object.__getattribute__(self, name)


def test_a_getattribute_of_the_program_runs_only_where_the_program_reads() -> None:
    def f(x, o):
        return x * o.scale

    fn, o = compiled(f), Counted()
    for rows in (3, 4, 5):
        o.seen.clear()
        assert torch.equal(fn(torch.ones(rows), o), torch.full((rows,), 2.0))
        assert o.seen == ["scale"]


@dataclasses.dataclass
class Point:
    x: float
    y: float = 1.0
    note: dataclasses.InitVar[int] = 0

    def names(self) -> list[str]:
        return [f.name for f in dataclasses.fields(self)]


@dataclasses.dataclass
class Point3(Point):
    z: float = 2.0


def test_fields_of_dataclasses() -> None:
    def f(t, a, b):
        class_names = [f.name for f in dataclasses.fields(Point3)]
        first, again = a.names(), a.names()
        try:
            dataclasses.fields(t.shape)
        except TypeError as e:
            class_names.append(str(e))
        return t + len(first) + len(b.names()), first == again, class_names, dataclasses.fields(a) == dataclasses.fields(Point)

    check(f, (torch.ones(2), Point(1.0), Point3(1.0)), (torch.ones(3), Point(2.0), Point3(1.0)), breaks=0, captures=1)


def test_fields_of_a_table_that_the_program_changes() -> None:
    def f(t, a):
        before = a.names()
        a.__dataclass_fields__.pop("y")
        after = a.names()
        return t + len(before) - len(after), before, after

    def made():
        return dataclasses.make_dataclass("Made", [("x", int), ("y", int)], namespace={"names": Point.names})(1, 2)

    eager, real = made(), made()
    assert f(torch.ones(2), eager)[1:] == compiled(f)(torch.ones(2), real)[1:] == (["x", "y"], ["x"])
    assert list(real.__dataclass_fields__) == ["x"]


def test_frozen_objects_of_the_user_stay_frozen_and_are_not_counted_each_time(monkeypatch) -> None:
    gc.collect()
    gc.freeze()
    count, asked = gc.get_freeze_count, []
    try:
        frozen = count()
        monkeypatch.setattr(engine.gc, "get_freeze_count", lambda: asked.append(1) or count())
        for i in range(5):
            compiled(lambda x, i=i: x + i)(torch.ones(2))
        assert gc.isenabled() and count() >= frozen - 5000 > 0 and len(asked) <= 1
    finally:
        gc.unfreeze()


def test_frozen_objects_are_not_counted_at_every_capture(monkeypatch) -> None:
    count, asked = gc.get_freeze_count, []
    monkeypatch.setattr(engine.gc, "get_freeze_count", lambda: asked.append(1) or count())
    monkeypatch.setattr(engine, "unasked", [0])
    gc.freeze()
    try:
        frozen = count()
        for n in range(5):
            compiled(lambda x, n=n: x + n)(torch.ones(2))
        assert len(asked) == 1 and count() >= frozen - 1000 > 0
        engine.unasked[0] = 0
        compiled(lambda x: x + 7)(torch.ones(2))
        assert len(asked) == 2
    finally:
        gc.unfreeze()
    engine.unasked[0] = 0
    compiled(lambda x: x + 8)(torch.ones(2))
    assert len(asked) == 3 and not engine.unasked[0] and not count()


def test_a_capture_leaves_no_garbage_behind() -> None:
    class Big(torch.nn.Module):
        def forward(self, x):
            return [y * 2 for y in x.split(1)]

    m = Big()
    alive = weakref.ref(m)
    fn = compiled(m)
    fn(torch.ones(3))
    del m, fn
    gc.collect()
    assert alive() is None


def weighted(x):
    return x


SPACE = types.ModuleType("space")
LATE = {  # what is looked for, and where
    "module": (SPACE, lambda x: x * getattr(SPACE, "late", 1.0)),
    "module, asked": (SPACE, lambda x: x * (2 if hasattr(SPACE, "late") else 1)),
    "namespace of PyTorch": (torch.nn.functional, lambda x: x * getattr(torch.nn.functional, "late", 1.0)),
    "function": (weighted, lambda x: weighted(x) * getattr(weighted, "late", 1.0)),
    "function, asked": (weighted, lambda x: x + (5 if hasattr(weighted, "late") else 1)),
}


@pytest.mark.parametrize("kind", LATE)
def test_an_attribute_that_was_missing_at_first(kind):
    place, fn = LATE[kind]
    compiled, x = pliant.compile(fn, strict=True), torch.ones(3)
    assert torch.equal(compiled(x), fn(x))
    try:
        place.late = 4.0
        assert torch.equal(compiled(x), fn(x))
    finally:
        del place.late
    assert torch.equal(compiled(x), fn(x))


class Told:
    """Says what it is asked by."""

    def __get__(self, obj, owner=None):
        return obj is None


class Upper:
    __slots__ = ("__dict__", "slot")
    told = Told()
    unread = property(None)

    def plain(self):
        return self * 7

    @property
    def read(self):
        return self.kept * 2

    @functools.cached_property
    def cached(self):
        return self.kept * 3


class Lower(Upper):
    """Hides what the upper class has: `super` finds it."""

    __slots__ = ("slot",)
    read = told = cached = plain = None

    def of_instance(self, name):
        try:
            return getattr(super(), name)
        except AttributeError:
            return "none"

    @classmethod
    def of_class(cls, name):
        return getattr(super(), name)


@pytest.mark.parametrize("name", ["slot", "read", "cached", "told", "unread", "__dict__", "__class__"])
def test_super_asks_as_eager_does(name) -> None:
    def f(x, o):
        value = o.of_instance(name)
        return (x * value if type(value) is int else x), value["kept"] if name == "__dict__" else value

    fn = compiled(f)
    for n in (3, 4, 5):
        o = Lower()
        o.kept, o.slot = n, -n
        Upper.slot.__set__(o, n)
        want = f(torch.ones(2), o)
        vars(o).pop("cached", None)
        got = fn(torch.ones(2), o)
        assert torch.equal(got[0], want[0]) and got[1] == want[1]


@pytest.mark.parametrize("name", ["slot", "read", "cached", "told", "unread", "plain"])
def test_super_of_a_class_gives_what_is_not_bound(name) -> None:
    def f(x):
        value = Lower.of_class(name)
        return (Lower.of_class("plain")(x), value is True or type(value) is type(vars(Upper)[name]))

    for got, want in ((compiled(f)(torch.ones(2)), f(torch.ones(2))),) * 2:
        assert torch.equal(got[0], want[0]) and got[1] is want[1] is True


class Property(property):
    """Does what properties do."""


class Logged:
    """Writes go through it, and deletions."""

    def __set__(self, obj, value):
        obj.log.append("set")
        vars(obj)["logged"] = value * 3

    def __delete__(self, obj):
        obj.log.append("deleted")
        del vars(obj)["logged"]


class Watched:
    def __init__(self) -> None:
        self.log: list[str] = []

    def read(self):
        return self.kept

    def write(self, value) -> None:
        self.kept = value * 2

    def delete(self) -> None:
        self.log.append("gone")
        del self.kept

    value = Property(read, write, delete)
    fixed = Property(read)
    logged = Logged()


@pytest.mark.parametrize("own", [False, True])
def test_descriptors_are_written_and_deleted_as_eager_does(own: bool) -> None:
    def f(x, o):
        o = Watched() if own else o
        o.value = o.logged = x
        y = o.value + o.logged
        del o.value, o.logged
        try:
            o.fixed = 3
        except AttributeError as e:
            o.log.append(str(e))
        try:
            del o.fixed
        except AttributeError as e:
            o.log.append(str(e))
        return y, o.log, sorted(vars(o))

    fn = compiled(f)
    for n in (2, 3, 4):
        got, want = fn(torch.ones(n), Watched()), f(torch.ones(n), Watched())
        assert torch.equal(got[0], want[0]) and got[1:] == want[1:]


class Parts:
    @property
    def read(self):
        return 1

    @staticmethod
    def plain():
        return 2

    @classmethod
    def of_class(cls):
        return cls


def test_descriptors_of_classes_are_themselves() -> None:
    def f(x):
        found = vars(Parts)
        return x + 1, Parts.read, found["read"], found["plain"], found["of_class"], found["read"].fget(None), found["plain"].__func__()

    fn = compiled(f)
    for n in (2, 3):
        got, want = fn(torch.ones(n)), f(torch.ones(n))
        assert torch.equal(got[0], want[0]) and all(a is b for a, b in zip(got[1:], want[1:], strict=True))
