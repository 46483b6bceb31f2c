"""Holders: values that never change and hold what may (`interpret/types/holders.py`), made outside, or inside of numbers that vary."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import datetime
import fractions
import functools
import itertools
import operator
import re
import reprlib
import string
import types
import typing
import uuid

import pytest
import torch

import pliant

NUMBERS = (4, 5, 6, 3, 7, 2, 4)
ITEMS = list(range(12))


class Held:
    """What changes between the calls."""

    def __init__(self, v):
        self.v = v

    def __index__(self):
        return self.v

    def __call__(self, *args):
        return self.v

    def __str__(self):
        return f"held {self.v}"

    def __eq__(self, other):
        return self.v == other

    def __hash__(self):
        return 1

    def method(self, *args):
        return self.v


class Zone(datetime.tzinfo):
    def utcoffset(self, d):
        return datetime.timedelta(hours=HELD.v)

    def dst(self, d):
        return None

    def tzname(self, d):
        return f"zone {HELD.v}"


HELD = Held(2)
TENSOR = torch.ones(3)
ITEM, CALL, ADD = operator.itemgetter(HELD), operator.methodcaller("__getitem__", HELD), operator.methodcaller("add", TENSOR)
UPTO = operator.itemgetter(slice(0, HELD))
NOTE, ALIAS = typing.Annotated[int, HELD], list[HELD]
PROPERTY, STATIC, MEMBERS = property(HELD.method), staticmethod(HELD.method), frozenset([HELD])
TIME, HOUR = datetime.datetime(2020, 1, 1, tzinfo=Zone()), datetime.time(1, tzinfo=Zone())
TEXT, PATTERN = string.Template("$a"), re.compile("a")
FIXED = operator.itemgetter(2), typing.Annotated[int, "a"], datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC), staticmethod(len)


class Owner:
    static = staticmethod(HELD)
    klass = classmethod(HELD)
    shown = property(HELD.method)
    bound = HELD.method


OUTSIDE = {
    "itemgetter": lambda x: ITEM(ITEMS),
    "itemgetter of a slice": lambda x: UPTO(ITEMS),
    "itemgetter in C": lambda x: list(map(ITEM, [ITEMS, ITEMS])),
    "methodcaller": lambda x: CALL(ITEMS),
    "methodcaller of a tensor": lambda x: ADD(x),
    "annotation": lambda x: NOTE.__metadata__[0].v,
    "annotation by its function": lambda x: typing.get_args(NOTE)[1].v,
    "alias": lambda x: ALIAS.__args__[0].v,
    "property": lambda x: PROPERTY.fget(),
    "static method": lambda x: (STATIC(), STATIC.__func__()),
    "frozenset": lambda x: ([m.v for m in MEMBERS], 5 in MEMBERS, len(MEMBERS)),
    "time": lambda x: (TIME.utcoffset(), str(TIME), TIME.tzname(), HOUR.isoformat(), f"{TIME:%z}"),
    "on a class": lambda x: (Owner.static(), Owner().static(), Owner.klass(), Owner().shown, Owner().bound()),
    "template": lambda x: TEXT.substitute(a=HELD),
    "method of a pattern": lambda x: (PATTERN.sub(lambda m: str(HELD.v), "aba"), list(map(PATTERN.sub, ["b"], ["aba"]))),
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_what_a_holder_of_the_outside_holds_is_guarded(name):
    program = OUTSIDE[name]

    def fn(x):
        return program(x), x + 1

    compiled = pliant.compile(fn)
    for number in NUMBERS:
        HELD.v = number
        TENSOR.fill_(number)
        expected, y = fn(torch.arange(3.0))
        given, z = compiled(torch.arange(3.0))
        assert torch.equal(y, z)
        assert torch.equal(expected, given) if isinstance(expected, torch.Tensor) else expected == given, number


def test_holders_of_constants_do_not_break_the_graph():
    item, note, time, static = FIXED

    def fn(x):
        return x * item(ITEMS) + len(note.__metadata__) + time.utcoffset().days + static("abc")

    x = torch.arange(3.0)
    assert torch.equal(pliant.compile(fn, fullgraph=True)(x), fn(x))


def dispatched(x, n):
    @functools.singledispatch
    def f(a):
        return n

    f.register(int)(lambda a: a + n)
    return f


def shown(x, n):
    class Loop:
        @reprlib.recursive_repr(fillvalue=f"<{n}>")
        def __repr__(self):
            return f"Loop({self.me!r})"

    r = Loop()
    r.me = r
    return r


MADE = {
    "itemgetter": (lambda x, n: operator.itemgetter(n), lambda o, x: o(ITEMS)),
    "itemgetter of two": (lambda x, n: operator.itemgetter(n, 0), lambda o, x: o(ITEMS)),
    "itemgetter of a slice": (lambda x, n: operator.itemgetter(slice(0, n)), lambda o, x: o(ITEMS)),
    "methodcaller": (lambda x, n: operator.methodcaller("mul", n), lambda o, x: o(x)),
    "methodcaller of a tensor": (lambda x, n: operator.methodcaller("add", x + n, alpha=n), lambda o, x: o(x)),
    "fraction": (lambda x, n: fractions.Fraction(n, 3), lambda o, x: (o + 1, x * float(o))),
    "days": (lambda x, n: datetime.timedelta(days=n), lambda o, x: o * 2),
    "uuid": (lambda x, n: uuid.UUID(int=n), lambda o, x: str(o)),
    "alias": (lambda x, n: list[n], lambda o, x: o.__args__),
    "literal": (lambda x, n: typing.Literal[n], lambda o, x: o.__args__),
    "annotation": (lambda x, n: typing.Annotated[int, n], lambda o, x: o.__metadata__),
    "dispatched": (dispatched, lambda o, x: (o("a"), o(1))),
    "text of itself": (shown, lambda o, x: repr(o)),
}


def at_once(make, use):
    return lambda x, n: use(make(x, n), x)


def behind_a_break(make, use):
    def fn(x, n):
        held = [make(x, n)]
        pliant.graph_break()
        return use(held[0], x)

    return fn


def behind_a_branch(make, use):
    def fn(x, n):
        o = make(x, n)
        return (use(o, x), 1) if float(x.sum()) > 9 else (use(o, x + 1), 2)

    return fn


@pytest.mark.parametrize("way", [at_once, behind_a_break, behind_a_branch])
@pytest.mark.parametrize("name", MADE)
def test_what_is_made_of_a_number_is_of_that_call(name, way):
    fn = way(*MADE[name])
    compiled = pliant.compile(fn)
    for number in NUMBERS:
        x = torch.arange(float(number))
        expected, given = fn(x, number), compiled(x, number)
        assert str(expected) == str(given), number


# -- functions made anew --------------------------------------------------------------------------------------------
def template(x):
    return x * FACTOR + shift(x)


FACTOR = 1


def shift(x):
    return x


def test_functions_of_one_code_and_other_globals():
    compiled = pliant.compile(lambda x, f: f(x))
    for number in NUMBERS:
        space = {"FACTOR": number, "shift": lambda x, n=number: x + n, "__builtins__": __builtins__}
        f = types.FunctionType(template.__code__, space)
        x = torch.arange(3.0)
        assert torch.equal(compiled(x, f), f(x))


def test_global_names_that_are_items_of_a_dict():
    def fn(x, n):
        space = {"FACTOR": n, "shift": shift}
        f = types.FunctionType(template.__code__, space)
        first = f(x)
        space["FACTOR"] = n + 1
        return first, f(x)

    compiled = pliant.compile(fn)
    for number in NUMBERS:
        x = torch.arange(3.0)
        assert [t.tolist() for t in compiled(x, number)] == [t.tolist() for t in fn(x, number)]


def classes(n):
    @dataclasses.dataclass
    class Record:
        a: int = n
        b: list = dataclasses.field(default_factory=lambda: [n])

    class Own:
        v = n

        def method(self, x):
            return x * n

        @property
        def shown(self):
            return n

    return Record, collections.namedtuple("Pair", "a b", defaults=[n]), Own()


@contextlib.contextmanager
def context(n):
    yield n


def test_classes_made_anew():
    def fn(x, made):
        record, pair, own = made
        with context(own.v) as v:
            return x * v, record().a, record().b, pair(1).b, own.method(x), own.shown, list(itertools.repeat(own.v, 2))

    compiled = pliant.compile(fn)
    for number in NUMBERS:
        x = torch.arange(3.0)
        assert str(compiled(x, classes(number))) == str(fn(x, classes(number)))


class Boxed:
    def __init__(self, *items):
        self.items = list(items)

    __class_getitem__ = classmethod(types.GenericAlias)


class Slotted:
    __slots__ = ("item",)

    def __init__(self, item):
        self.item = item

    __class_getitem__ = classmethod(types.GenericAlias)


class Refusing(Boxed):
    def __setattr__(self, name, value):
        if name != "items":
            raise ValueError(name)
        super().__setattr__(name, value)


def refused(x):
    try:
        return Refusing[int](x).items
    except ValueError as e:
        return str(e), x + 1


OF_INTS = Boxed[int]
CALLED = {
    "of the program": lambda x: (OF_INTS(x, 1).items[0] * 2, OF_INTS(x).__orig_class__ is OF_INTS),
    "made here": lambda x: (Boxed[torch.Tensor](x).items[0] * 3, Boxed[torch.Tensor](x).__orig_class__ == Boxed[torch.Tensor]),
    "of C": lambda x: (list[int](y * 2 for y in (x, x + 1)), dict[str, int](a=1), tuple[int, ...]([x])),
    "without room": lambda x: Slotted[int](x).item * 2,
    "that refuses": refused,
}


@pytest.mark.parametrize("name", CALLED)
def test_called_aliases(name):
    fn = CALLED[name]
    compiled = pliant.compile(fn, strict=True, fullgraph=True)
    for n in (3, 4, 5):
        x = torch.randn(n)
        assert str(compiled(x)) == str(fn(x))
