"""Code of the standard library that CPython runs while pliant captures: it may read what is guarded, and nothing else."""

from __future__ import annotations

import datetime
import inspect
import ipaddress
import re
import types
import unittest

import pytest

from tests.helpers import pliant
from tests.programs.registry import cases, program, t

CASE = unittest.TestCase()


class Plain:
    """Has no order."""


ADDRESSES = [(t(2), ipaddress.ip_address(s)) for s in ("1.2.3.4", "4.3.2.1", "1.2.3.4")]
NETWORKS = [(t(2), ipaddress.ip_network(s)) for s in ("10.0.0.0/8", "10.0.0.0/16", "10.0.0.0/8")]


@program(*ADDRESSES)
def text_of_an_address(x, ip):
    return x + 1, str(ip), f"{ip}", repr([ip])


@program(*ADDRESSES)
def order_of_addresses(x, ip):
    other = ipaddress.ip_address("2.0.0.0")
    return x + 1, ip < other, sorted([other, ip])[0] is ip, ip in [other], max([ip, other]) is ip


@program(*NETWORKS)
def size_of_a_network(x, net):
    return x + 1, net.num_addresses, str(net), ipaddress.ip_address("10.1.0.0") in net


@program(*[(t(2), d) for d in (datetime.date(2020, 1, 3), datetime.date(2021, 5, 6))])
def week_of_a_date(x, day):
    week = day.isocalendar()
    return x + 1, tuple(week), week.week, repr(week)


@program((t(2), Plain()), (t(2), object()), (t(2), Plain))
def without_order(x, o):
    seen = []
    for compare in (lambda: o < o, lambda: o >= o, lambda: o == o, lambda: o != o):
        try:
            seen.append(compare())
        except TypeError as e:
            seen.append(str(e))
    with CASE.assertRaises(TypeError):
        o < o  # noqa: B015
    return x + 1, seen


@program((t(2), "x is not None"), (t(2), "n"), (t(2), "missing"))
def names_of_the_frame(x, source):
    n = 3
    seen = []
    try:
        seen.append(eval(source, None))
        seen.append(eval(source, None, None))
    except NameError as e:
        seen.append(str(e))
    seen.append(eval(source, None, {"n": 4, "missing": 5, "x": 6}))
    return x + n, seen


class Bound:
    @classmethod
    @classmethod
    def twice(cls):
        return cls

    @classmethod
    @property
    def name_of_it(cls):
        return cls.__name__


@program((t(2),))
def class_methods_of_class_methods(x):
    return x + 1, Bound.twice(), Bound().twice(), Bound.name_of_it, Bound().name_of_it


FUTURELESS: dict = {"__name__": __name__}
exec(
    """
def annotated(x):
    names, read = {}, {}
    exec("n: int", names)
    exec(compile("def f(n: int): pass", "text", "exec"), read)
    return x + 1, names["__annotations__"], read["f"].__annotations__
""",
    FUTURELESS,
)
"""Written without `from __future__ import annotations`, which code that is made from text takes over from the code that makes it."""
program((t(2),))(FUTURELESS["annotated"])


@program(*[(t(2), s) for s in ("1", "x2", "3", "y4", "z5", "66", "q7")])
def text_of_containers_that_change(x, s):
    return x + 1, repr([s]), f"{(s, 1)!r}", "%r" % {s: s}, "{}".format([s])


@program(*[(t(2), n) for n in (3, 4, 5, 6, 7, 8, 2.5, 3.5, 4.5, 5.5)])
def methods_of_numbers(x, n):
    return x + 1, n.__format__("e"), n.__repr__(), n.__add__(1)


class Awaitable:
    def __await__(self):
        return self


@program((t(2),))
def function_made_by_the_library(x):
    held = Awaitable()

    @types.coroutine
    def made():
        return held

    pliant.graph_break()
    first = made() is held
    pliant.graph_break()
    return x + 1, first, made().__await__() is held


@program((t(2),))
def functions_given_to_the_library(x):
    k = 3

    def times(m):
        return str(int(m.group()) * k)

    def signed(a: int, b=2, *c): ...

    return x + 1, re.sub(r"\d+", times, "a1b22"), list(inspect.signature(signed).parameters)


@pytest.mark.parametrize("case", cases(__name__))
def test_program(case):
    case.run()
