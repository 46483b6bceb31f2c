"""Small objects that a program reads through, changed between calls: bases, metaclasses, methods of C, registries, getters, patterns."""

from __future__ import annotations

import abc
import collections
import decimal
import functools
import gc
import math
import operator
import re
import types

import pytest
from torch import Tensor

from tests.programs import worlds
from tests.programs.worlds import MISSING, attribute, values, world


class First(Exception):
    pass


class Second(Exception):
    pass


# -- classes -------------------------------------------------------------------------------------------------------------------
def bases_of_an_exception(handle):
    class Third(First):
        pass

    return lambda x: handle(x, Third), *values(lambda b: setattr(Third, "__bases__", b), (First,), (Second,), (Second, First))


@world
def bases_of_what_is_caught():
    def handle(x, kind):
        try:
            raise kind
        except Second:
            return x + 1
        except First:
            return x - 1

    return bases_of_an_exception(handle)


@world
def bases_of_what_is_caught_in_a_group():
    def handle(x, kind):
        try:
            raise ExceptionGroup("", [kind(), KeyError()])
        except* Second:
            x = x + 1
        except* (First, KeyError):
            x = x - 3
        return x

    return bases_of_an_exception(handle)


@world
def bases_of_what_a_group_is_split_by():
    def handle(x, kind):
        group = ExceptionGroup("", [kind(), Second()])
        return x, len(group.split(Second)[0].exceptions), group.subgroup(First) is None

    return bases_of_an_exception(handle)


@world
def class_of_a_module():
    class Module(types.ModuleType):
        @property
        def more(self):
            return 5

        def __getattr__(self, name):
            return 9

    m = types.ModuleType("m")
    m.v = 1
    return lambda x: (x + m.v + getattr(m, "more", 2), isinstance(m, Module)), *values(
        lambda c: setattr(m, "__class__", c), types.ModuleType, Module)


def metaclasses(read):
    class Plain(type):
        k = 1

    class Other(type):
        k = 2

        def __call__(cls, *args):
            return 5

        def __getattr__(cls, name):
            return 7

        def __instancecheck__(cls, o):
            return True

    class Made(metaclass=Plain):
        pass

    return lambda x: read(x, Made, Other), *values(lambda m: setattr(Made, "__class__", m), Plain, Other)


@world
def metaclass_that_is_read():
    return metaclasses(lambda x, made, other: (x + made.k + getattr(made, "more", 2), type(made) is other, isinstance(made, other)))


@world
def metaclass_that_is_asked():
    return metaclasses(lambda x, made, other: x + isinstance(3, made))


@world
def metaclass_that_is_called():
    return metaclasses(lambda x, made, other: x + (3 if type(made()) is int else 2))


@world
def attribute_that_hides_one_that_is_set():
    class Base:
        k = 1

    class Derived(Base):
        k = 1

    def f(x):
        Base.k = Base.k + 4
        y = x + Derived.k * 10 + Derived().k
        Base.k = 1
        return y

    return f, *attribute(Derived, "k", MISSING)


# -- bound methods -------------------------------------------------------------------------------------------------------------
class Owner:
    def method(self, x):
        return x + 1


def held(o, *options):
    o.m = options[0]
    return values(lambda v: setattr(o, "m", v), *options)


@world
def methods_of_c_that_are_compared():
    o = types.SimpleNamespace()
    a, b = [1], [1]
    return lambda x: (x, o.m == a.append, o.m != b.append, a.append == b.append), *held(o, a.append, b.append, a.pop)


@world
def slots_that_are_compared():
    o = types.SimpleNamespace()
    a, b = [1], [1]
    o.n = a.__len__
    return lambda x: (x + o.m(), o.m == o.n), *held(o, a.__len__, b.__len__)


@world
def methods_that_are_keys():
    o = types.SimpleNamespace()
    a, b = Owner(), Owner()
    d = {a.method: 1}
    return lambda x: x + d.get(o.m, 5) + len({o.m, b.method}), *held(o, a.method, b.method, len)


@world
def methods_of_c_that_are_keys():
    o = types.SimpleNamespace()
    a, b = [1], [1]
    d = {a.append: 1}
    return lambda x: x + d.get(o.m, 5) + len({o.m, b.append}), *held(o, a.append, b.append)


@world
def methods_of_c_made_anew_that_are_keys():
    a = [1]
    d = {a.append: 1}
    return lambda x: x + d[a.append], *values(lambda n: d.__setitem__(a.append, n), 1, 2)


@world
def methods_in_a_list():
    o = types.SimpleNamespace()
    a, b = Owner(), Owner()
    items = [a.method, {}.get, b.method]
    return lambda x: (x + items.index(o.m), (a.method, 1) == (o.m, 1)), *held(o, a.method, b.method)


@world
def objects_of_methods_of_c():
    o = types.SimpleNamespace()
    a, b = {"k": 1}, {"k": 2}
    return lambda x: (x + o.m("k"), len(o.m.__self__)), *held(o, a.get, b.get, {"k": 3}.__getitem__)


# -- functions with a cache ----------------------------------------------------------------------------------------------------
@world
def cache_under_another_name():
    def deco(fn):
        @functools.wraps(fn)
        @functools.lru_cache
        def inner(k):
            return k + 100

        return inner

    @deco
    def g(k):
        return k + 1

    return lambda x: x + g(x.shape[0]) + g(3), *values(lambda n: setattr(g, "note", n), 1, 2)


@world
def what_hangs_on_a_cache():
    @functools.lru_cache
    def g(k):
        return k

    return lambda x: x + g.note + g.__wrapped__(3), *attribute(g, "note", 1, 2)[1:], *attribute(g, "__wrapped__", lambda k: 9)


# -- factories, registries, getters, patterns, values ---------------------------------------------------------------------------
@world
def factories():
    d = collections.defaultdict(int)

    def f(x):
        v = d["k"]
        d.clear()
        return x + v, d.default_factory is int, (d | {"a": 1})["b"]

    return f, *values(lambda v: setattr(d, "default_factory", v), int, lambda: 2.0, lambda: 3)


@world
def registered_with_an_abstract_class():
    class Shape(abc.ABC):  # noqa: B024
        pass

    class Square:
        pass

    o = Square()
    done = []

    def put(c):
        if c is not None and c not in done:
            Shape.register(c)
            done.append(c)

    return lambda x: (x + isinstance(o, Shape), isinstance(x, Shape), issubclass(bool, Shape)), *values(put, None, int, Tensor, Square)


@world
def dispatched_by_a_class():
    @functools.singledispatch
    def g(n, x):
        return x - 1

    @g.register(int)
    def of_int(n, x):
        return x + n

    return lambda x: g(1, x) + g(2.5, x) * 2 + g("a", x) * 3, *values(
        lambda p: g.register(*p), (int, of_int), (float, lambda n, x: x * n), (int, lambda n, x: x * 7), (object, lambda n, x: x * 5))


@world
def getters():
    o = types.SimpleNamespace()
    p = types.SimpleNamespace(a=1, b=types.SimpleNamespace(a=2))
    options = operator.attrgetter("a"), operator.attrgetter("b.a"), operator.methodcaller("__getattribute__", "a")
    return lambda x: (x, o.m(p), sorted([p, p], key=o.m)[0] is p), *held(o, *options)


@world
def patterns():
    o = types.SimpleNamespace()
    options = re.compile("a+"), re.compile("b"), re.compile("a+", re.IGNORECASE)
    return lambda x: (x + len(o.m.findall("aabAaa")), o.m.pattern, o.m.sub("-", "aabA"), o.m == re.compile("a+")), *held(o, *options)


@world
def values_of_libraries():
    o = types.SimpleNamespace()
    options = map(decimal.Decimal, ("1.5", "1.50", "2.5"))
    return lambda x: (x + float(o.m), str(o.m), o.m == 2), *held(o, *options)


@world(back=True)
def collector_of_another_mind():
    real = gc.isenabled
    return lambda x: x + gc.isenabled() * math.gcd(4, 6), *attribute(gc, "isenabled", lambda: not real())


@world(back=True)
def divisors_that_are_others():
    real = math.gcd
    return lambda x: (x + math.gcd(x.shape[0], 12), x[: x.shape[0] // 2 * 2].view(-1, 2)), *attribute(
        math, "gcd", lambda *a: real(*a) + 1)


@pytest.mark.parametrize("name", worlds.of(__name__))
def test_leaves(name):
    worlds.check(name)
