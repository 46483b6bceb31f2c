"""Special methods that are no functions: callable objects, descriptors, static methods, partials, mocks. They run in every call."""

from __future__ import annotations

import collections
import functools
import itertools
import operator
from unittest import mock

import pytest
import torch

import pliant

told: list[str] = []
now = [1]


class Callee:
    """Is not given the object."""

    def __init__(self, answer):
        self.answer = answer

    def __call__(self, *args):
        told.append("called")
        return self.answer()


class Descriptor(Callee):
    def __get__(self, obj, owner=None):
        told.append("got")
        return self


def function(answer):
    def f(*args):
        told.append("called")
        return answer()

    return f


def computed(answer):
    def get(self):
        told.append("asked")
        return function(answer)

    return property(get)


KINDS = {
    "callable": Callee,
    "descriptor": Descriptor,
    "static": lambda answer: staticmethod(function(answer)),
    "of the class": lambda answer: classmethod(function(answer)),
    "partial method": lambda answer: functools.partialmethod(function(answer)),
    "partial": lambda answer: functools.partial(function(answer)),
    "bound": lambda answer: Callee(answer).__call__,
    "property": computed,
}
USES = {
    "__len__": ((lambda: now[0]), (len, lambda o: torch.zeros(9)[: len(o)].shape[0], bool, lambda o: 1 if o else 2)),
    "__iter__": ((lambda: iter([now[0]])), (list, lambda o: [*o], lambda o: [v for v in o], sum, lambda o: 3 in o)),
    "__bool__": ((lambda: now[0] % 2 == 0), (bool, lambda o: not o)),
    "__getitem__": ((lambda: now[0]), (lambda o: o[0], lambda o: o[1:2])),
    "__contains__": ((lambda: now[0] % 2 == 0), (lambda o: 1 in o,)),
    "__eq__": ((lambda: now[0] % 2 == 0), (lambda o: o == 1, lambda o: 1 != o)),
    "__add__": ((lambda: now[0]), (lambda o: o + 1,)),
    "__call__": ((lambda: now[0]), (lambda o: o(), lambda o: list(map(o, [1])))),
    "__setitem__": ((lambda: None), (lambda o: operator.setitem(o, 1, 2),)),
    "__delitem__": ((lambda: None), (lambda o: operator.delitem(o, 1),)),
    "__round__": ((lambda: now[0]), (round, lambda o: round(o, 2))),
    "__index__": ((lambda: len("a" * now[0])), (operator.index, lambda o: list(range(o)))),
    "__str__": ((lambda: f"s{now[0]}"), (str, lambda o: f"{o!s}")),
    "__getattr__": ((lambda: now[0]), (lambda o: o.missing, lambda o: hasattr(o, "missing"))),
}


def run(fn, *args):
    told.clear()
    try:
        return fn(torch.ones(2), *args)[1], list(told)
    except Exception as e:
        return repr(e), list(told)


@pytest.mark.parametrize("name, kind", [*itertools.product(USES, KINDS)])
def test_they_run_in_every_call(name, kind):
    answer, uses = USES[name]
    o = type("Made", (), {name: KINDS[kind](answer)})()
    for use in uses:

        def f(x, o, use=use):
            return x + 1, use(o)

        compiled = pliant.compile(f, backend="aten")
        for i in range(1, 5):
            now[0] = i
            assert run(compiled, o) == run(f, o)


INSIDE = {
    "item set": ("__setitem__", lambda: None, lambda o: o.__class__ and operator.setitem(o, 1, 2)),
    "item deleted": ("__delitem__", lambda: None, lambda o: operator.delitem(o, 1)),
    "item": ("__getitem__", lambda: now[0], lambda o: o[1]),
    "contained": ("__contains__", lambda: now[0] % 2 == 0, lambda o: 7 in o),
    "length": ("__len__", lambda: now[0], len),
    "truth": ("__bool__", lambda: now[0] % 2 == 0, bool),
}


def enters(o):
    with o as entered:
        told.append(entered)
        raise KeyError
    return entered


@pytest.mark.parametrize("base", [object, dict, list, set, collections.OrderedDict, collections.defaultdict])
@pytest.mark.parametrize("kind", ["callable", "descriptor", "static", "property"])
def test_they_run_on_what_is_made_inside(base, kind):
    for name, answer, use in INSIDE.values():
        cls = type("Made", (base,), {name: KINDS[kind](answer)})

        def f(x, cls=cls, use=use):
            return x + 1, use(cls())

        compiled = pliant.compile(f, backend="aten")
        for i in range(1, 4):
            now[0] = i
            assert run(compiled) == run(f), name


@pytest.mark.parametrize("kind", KINDS)
def test_they_run_where_a_context_begins_and_ends(kind):
    made = KINDS[kind]
    cls = type("Manager", (), {"__enter__": made(lambda: "in"), "__exit__": made(lambda: now[0] < 4)})

    def f(x):
        return x + 1, enters(cls())

    compiled = pliant.compile(f, backend="aten")
    for i in range(1, 5):
        now[0] = i
        assert run(compiled) == run(f)


class Factory(collections.defaultdict):
    def __setattr__(self, name, value):
        told.append(name)
        super().__setattr__(name, value)


class Watched(Exception):
    def __setattr__(self, name, value):
        told.append(name)
        super().__setattr__(name, value)


class Asked(Exception):
    def __getattribute__(self, name):
        told.append(name)
        return super().__getattribute__(name)


def asked(self, name):
    told.append(name)
    return object.__getattribute__(self, name)


AskedDict, AskedList, AskedQueue = (type("Asked", (base,), {"__getattribute__": asked}) for base in (dict, list, collections.deque))


def carried(cls, *args):
    def f(x):
        o = cls(*args)
        pliant.graph_break()
        return [*o], len(o), 2 in o

    return f


def factory(x):
    d = Factory(int)
    d["k"] += 1
    d.mine = 4
    return dict(d)


def raised(cls):
    def f(x):
        try:
            try:
                raise KeyError(1)
            except KeyError as e:
                raise cls(2) from e
        except cls as e:
            return type(e)

    return f


def kept(cls, *args):
    def f(x):
        global made
        made = cls(*args)
        return 1

    return f


@pytest.mark.parametrize(
    "fn", [factory, raised(Watched), raised(Asked), kept(Watched, 1), kept(Asked, 1), kept(AskedDict, {1: 2}), kept(Factory, int, {1: 2}),
           kept(AskedQueue, [1], 3), carried(AskedDict, {1: 2}), carried(AskedList, [1, 2]), carried(AskedQueue, [3], 3)],
)  # fmt: skip
def test_the_interpreter_sets_and_asks_for_nothing_by_them(fn):
    """What it does with exceptions and containers went by the program's own `__setattr__` and `__getattribute__`."""
    compiled = pliant.compile(lambda x: (x + 1, fn(x)), backend="aten")
    for _ in range(3):
        assert run(compiled) == run(lambda x: (x + 1, fn(x)))


MOCKED = {
    "length": lambda o: len(o),
    "items": lambda o: list(o),
    "walked": lambda o: [v for v in o],
    "item": lambda o: repr(o[0])[:5],
    "called": lambda o: o.method(1, k=2) is o.method.return_value,
    "counted": lambda o: (o(1), o(2), o.call_count)[2],
    "truth": lambda o: 1 if o else 2,
}


@pytest.mark.parametrize("configured", [False, True], ids=["bare", "configured"])
@pytest.mark.parametrize("use", MOCKED)
def test_mocks_keep_count(use, configured):
    given = {"__len__.return_value": 3, "__iter__.return_value": [1, 2]} if configured else {}

    def f(x, o):
        return x + 1, MOCKED[use](o)

    a, b = mock.MagicMock(**given), mock.MagicMock(**given)
    compiled = pliant.compile(f, backend="aten")
    for i in range(4):
        assert compiled(torch.ones(2 + i), b)[1] == f(torch.ones(2 + i), a)[1]
        assert b.mock_calls == a.mock_calls


@pytest.mark.parametrize("name, method", [
    ("__setattr__", lambda self, name, value: object.__setattr__(self, name, 7)),
    ("__getattribute__", lambda self, name: 9 if name == "added" else object.__getattribute__(self, name)),
])  # fmt: skip
def test_a_class_is_given_them_later(name, method):
    class Error(Exception):
        pass

    class Pairs(dict):
        pass

    held = Pairs(k=2)
    held.added = 5

    def f(x):
        try:
            raise Error("a")
        except Error as e:
            e.added = 4
            return x * e.added, (e.added, held["k"], held.added)

    compiled = pliant.compile(f, backend="aten")
    for _ in range(2):
        for given in (False, True, False):
            for cls in (Error, Pairs):
                if given:
                    setattr(cls, name, method)
                elif name in vars(cls):
                    delattr(cls, name)
            for _ in range(2):
                assert run(compiled) == run(f)
