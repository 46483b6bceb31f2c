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


# -- generators that hand themselves on -----------------------------------------------------------------------------------
def inner(seen, answer):
    try:
        got = yield 1
        seen.append(got)
    except BaseException as e:
        seen.append((type(e).__name__, type(e.__context__).__name__))
        if answer == "return":
            return 7
        if answer == "raise":
            raise KeyError("another") from None
        if answer == "yield":
            yield 5
        raise


class Inner:
    """An iterator of the program's own; `way`: what it makes of an exception."""

    def __init__(self, seen, way):
        self.seen, self.way, self.n = seen, way, 0

    def __iter__(self):
        return self

    def __next__(self):
        self.n += 1
        return self.n

    def close(self):
        self.seen.append("closed")
        if self.way == "raise":
            raise KeyError("closing")

    def throw(self, *given):
        self.seen.append([g if isinstance(g, type) else type(g).__name__ for g in given])
        if self.way == "return":
            raise StopIteration(8)
        if self.way == "raise":
            raise KeyError("thrown")
        return 9


def outer(seen, kind, way):
    try:
        r = yield from kind(seen, way)
        seen.append(r)
        yield r
    except BaseException as e:
        seen.append((type(e).__name__, type(e.__context__).__name__))
        raise


def of_list(seen, way):
    return iter([1, 2, 3])


KINDS = (inner, Inner, of_list)
THINGS = (GeneratorExit, ValueError, ValueError("x"), StopIteration, StopIteration(3))


@program(*[(t(2), kind, way, thing) for kind in KINDS for thing in THINGS for way in ("return", "raise", "yield", "again")])
def thrown(x, kind, way, thing):
    seen = []
    gen = outer(seen, kind, way)
    try:
        next(gen)
        seen.append(gen.throw(thing))
        seen.append(next(gen))
    except BaseException as e:
        seen.append((type(e).__name__, str(e), type(e.__context__).__name__))
    gen = outer(seen, kind, way)
    try:
        next(gen)
        gen.close()
    except BaseException as e:
        seen.append((type(e).__name__, str(e), type(e.__context__).__name__))
    return x + 1, seen


@program((t(2),), (t(3),))
def context_of_what_is_thrown(x):
    seen = []

    def gen():
        try:
            yield 1
        except BaseException as e:
            seen.append((type(e).__name__, type(e.__context__).__name__))

    def handling(inner):
        try:
            raise OSError
        except OSError:
            yield from inner

    for make in (gen, lambda: handling(gen()), lambda: handling(iter([1]))):
        for leave in (lambda g: g.throw(ValueError), lambda g: g.close()):
            g = make()
            next(g)
            try:
                try:
                    raise KeyError
                except KeyError:
                    leave(g)
            except BaseException as e:
                seen.append((type(e).__name__, type(e.__context__).__name__))
    return x + 1, seen


@program((t(2),), (t(3),))
def claims_to_run(x):
    def one():
        seen.append(me.gi_running)
        yield 0
        yield from two()
        yield 3

    def two():
        try:
            yield from me
        except ValueError as e:
            seen.append(str(e))
        yield 2

    seen = []
    me = one()
    seen += [me.gi_running, me.gi_suspended, me.__name__, me.gi_yieldfrom, next(me), me.gi_suspended, next(me), me.gi_yieldfrom.__name__]
    return x + 1, seen, list(me), me.gi_yieldfrom


# -- what speaks of a class that is made here ----------------------------------------------------------------------------------
@program((t(2),), (t(3),), (t(4),))
def parts_of_own_classes(x):
    class A(dict):
        def __init__(self, *args):
            if args:
                raise KeyError

    class B:
        __slots__ = ("__dict__", "b")

    make, slot, attributes, alias, union, call, order = A.fromkeys, B.b, B.__dict__["__dict__"], list[A], A | int, B.__call__, B.mro
    pliant.graph_break()
    b = call()
    slot.__set__(b, 5)
    return (
        x + 1, type(make("ab")) is A, make.__self__ is A, b.b, slot.__objclass__ is B, attributes.__objclass__ is B, alias.__args__ == (A,),
        union.__args__ == (A, int), isinstance(A(), union), type(b) is B, order()[0] is B,
    )  # fmt: skip


@pytest.mark.parametrize("case", cases(__name__))
def test_program(case):
    case.run()
