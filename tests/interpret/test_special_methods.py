"""Special methods that are no functions: callable objects, descriptors, static methods, partials, mocks. They run in every call."""

from __future__ import annotations

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


KINDS = {
    "callable": Callee,
    "descriptor": Descriptor,
    "static": lambda answer: staticmethod(function(answer)),
    "of the class": lambda answer: classmethod(function(answer)),
    "partial method": lambda answer: functools.partialmethod(function(answer)),
    "partial": lambda answer: functools.partial(function(answer)),
    "bound": lambda answer: Callee(answer).__call__,
    "property": lambda answer: property(lambda self: function(answer)),
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
