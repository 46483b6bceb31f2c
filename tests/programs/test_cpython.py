"""What CPython's own tests, compiled (`benchmarks/cpython.py`), have found: order, identity, errors and hooks."""

from __future__ import annotations

import collections

import pytest

from tests.helpers import pliant
from tests.programs.registry import cases, program, t

OrderedDict = collections.OrderedDict


class Ordered(OrderedDict):
    pass


# -- the order of an OrderedDict ---------------------------------------------------------------------------------------
@program(*[(t(2), kind) for kind in (OrderedDict, Ordered, OrderedDict)])
def order_behind_a_break(x, kind):
    d = kind(a=1, b=2, c=x)
    d.move_to_end("a")
    keys = d.keys()
    walk = iter(d)
    next(walk)
    pliant.graph_break()
    e = kind(d)
    e.move_to_end("b")
    return x + 1, list(d), list(keys), list(walk), d, list(reversed(e)), e.popitem(last=False), e


@program(*[(t(2), kind) for kind in (OrderedDict, Ordered, OrderedDict)])
def order_of_what_is_returned(x, kind):
    d = kind(a=1, b=2, c=x + 1)
    d.move_to_end("b")
    d["a"] = 3
    return d, list(d)


@program(*[(t(2), kind) for kind in (OrderedDict, Ordered, OrderedDict)])
def changed_behind_its_back(x, kind):
    d = kind(a=1, b=2)
    dict.pop(d, "a")
    try:
        shown = repr(d)
    except KeyError:
        shown = "KeyError"
    e = kind(a=1)
    dict.__setitem__(e, "b", 2)
    return x + 1, shown, len(d), len(e), list(e), "b" in e


TORN = OrderedDict(a=1, b=2)
dict.__setitem__(TORN, "c", 3)
TORN_TOO = Ordered(a=1, b=2)
dict.pop(TORN_TOO, "a")


@program(*[(t(2), d) for d in ("TORN", "TORN_TOO", "TORN")])
def changed_behind_its_back_before(x, name):
    d = TORN if name == "TORN" else TORN_TOO
    return x + 1, len(d), "b" in d, d.get("c")


@pytest.mark.parametrize("case", cases(__name__))
def test_program(case):
    case.run()
