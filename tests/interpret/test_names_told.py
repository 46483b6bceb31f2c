"""Names of classes and functions in the words of exceptions, and of generators: programs may change them."""

from __future__ import annotations

import collections
import contextlib
import datetime
import functools
import operator
import typing
import warnings

import numpy as np
import pytest
import torch

from tests.helpers import compiled


class Plain:
    def __init__(self, x):
        self.x = x

    def method(self, y):
        return y


class Meta(type):
    pass


class OfMeta(metaclass=Meta):
    pass


class Carrier(torch.Tensor):
    pass


class Box(typing.Generic[typing.TypeVar("T")]):
    pass


def count(n):
    yield n


def two(a, b):
    return a + b


@contextlib.contextmanager
def called(thing, attribute, name="Other"):
    """A class or function with another name, for a while."""
    old = getattr(thing, attribute)
    setattr(thing, attribute, name)
    try:
        yield
    finally:
        setattr(thing, attribute, old)


WRONG = {
    "called": lambda p: p(),
    "subscripted": lambda p: p[0],
    "length": lambda p: len(p),
    "added": lambda p: p + 1,
    "compared": lambda p: p < 1,
    "iterated": lambda p: iter(p),
    "attribute": lambda p: p.missing,
    "of its class": lambda p: type(p).missing,
    "arguments": lambda p: type(p)(),
    "method": lambda p: p.method(),
    "index": lambda p: [1][p],
    "range": lambda p: range(p),
    "within": lambda p: 3 in p,
    "negative": lambda p: -p,
    "text": lambda p: "".join([p]),
    "unpacked": lambda p: print(*p),
    "next": lambda p: next(p),
    "of a metaclass": lambda p: OfMeta() + 1,
    "function": lambda p: two(1),
}


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("attribute", ["__name__", "__qualname__"])
def test_names_in_words_of_errors(name, attribute):
    wrong = WRONG[name]

    def program(x, p):
        try:
            wrong(p)
        except (TypeError, AttributeError) as e:
            return x + 1, str(e)
        return x

    run = compiled(program)
    x, p = torch.ones(3), Plain(1)
    assert run(x, p)[1] == program(x, p)[1]
    for thing in (Plain, OfMeta, two):
        with called(thing, attribute):
            assert run(x, p)[1] == program(x, p)[1]
    assert run(x, p)[1] == program(x, p)[1]


def test_names_of_classes_of_tensors():
    def program(x):
        try:
            return x.missing
        except AttributeError as e:
            return str(e), x * 2

    run = compiled(program)
    x = torch.ones(3).as_subclass(Carrier)
    assert run(x)[0] == program(x)[0]
    with called(Carrier, "__name__"):
        assert run(x)[0] == program(x)[0]


def test_modules_of_classes():
    def program(x):
        try:
            Box.__class_getitem__((int, str))
        except TypeError as e:
            return str(e), x * 2

    run = compiled(program)
    x = torch.ones(3)
    assert run(x)[0] == program(x)[0]
    with called(Box, "__module__"):
        assert run(x)[0] == program(x)[0]


def test_names_of_generators():
    def program(x):
        g = count(x)
        return x + 1, g.__name__, g.__qualname__

    run = compiled(program)
    assert run(torch.ones(2))[1:] == program(torch.ones(2))[1:]
    for name in ("__name__", "__qualname__"):
        with called(count, name):
            assert run(torch.ones(2))[1:] == program(torch.ones(2))[1:]


@pytest.mark.parametrize("kind", [np.int32, np.uint8, np.int64])
def test_sizes_that_hold_numbers_of_numpy(kind):
    def program(x, size):
        return x * size[1], size[0] + 1, type(size[0]).__name__

    run = compiled(program)
    for size in (torch.Size([3, 2]), torch.Size([kind(3), 2]), torch.Size([4, 2])):
        got, want = run(torch.ones(2), size), program(torch.ones(2), size)
        assert type(got[1]) is type(want[1]) and got[1:] == want[1:]
        torch.testing.assert_close(got[0], want[0], rtol=0, atol=0)


class Scaled:
    @classmethod
    def named(cls, x):
        return x


ALIAS, EITHER = list[Scaled], Scaled | int
SAID = {
    "method by its slot": lambda: Scaled.named.__repr__(), "method": lambda: str(Scaled.named), "in a text": lambda: f"{Scaled.named}",
    "in a template": lambda: "%r" % (Scaled.named,), "class": lambda: repr(Scaled), "class by its slot": lambda: type.__repr__(Scaled),
    "formatted class": lambda: f"{Scaled}", "in a list": lambda: str([Scaled, (Scaled.named,)]), "in a dict": lambda: repr({1: Scaled}),
    "alias": lambda: repr(list[Scaled]), "alias of the outside": lambda: repr(ALIAS), "union": lambda: repr(EITHER),
    "optional": lambda: repr(typing.Optional[Scaled]), "bytes": lambda: b"%a" % (Scaled,), "super": lambda: repr(super(Scaled, Scaled())),  # noqa: UP045
    "mapped": lambda: list(map(repr, [Scaled, Scaled.named])), "exception": lambda: str(ValueError(Scaled)),
}  # fmt: skip


@pytest.mark.parametrize("made", list(SAID))
@pytest.mark.parametrize("thing, attribute", [(Scaled, "__name__"), (Scaled, "__qualname__"), (Scaled, "__module__"), (
    Scaled.named.__func__, "__qualname__")])
def test_texts_that_c_makes_of_classes_and_methods(made, thing, attribute):
    def program(x):
        return x + 1, SAID[made]()

    run, x = compiled(program), torch.ones(2)
    assert repr(run(x)) == repr(program(x))
    with called(thing, attribute):
        assert repr(run(x)) == repr(program(x))
    assert repr(run(x)) == repr(program(x))


def test_addresses_in_bytes():
    def program(x, o):
        return x + 1, b"%r" % (o,), b"%a" % [o]

    run, objects = compiled(program), [Plain(1), Plain(2), Plain(3)]
    for o in objects:
        assert repr(run(torch.ones(2), o)) == repr(program(torch.ones(2), o))


# -- types that C has made, in words of errors -------------------------------------------------------------------------------
class Gives:
    def __init__(self, v):
        self.v = v

    def __index__(self):
        return self.v

    __len__ = __bool__ = __length_hint__ = __index__

    def __iter__(self):
        return self.v


class Unreadable:
    def keys(self):
        return ["q"]

    def __getitem__(self, k):
        raise AttributeError(k)


def takes(**k):
    return k


def sliced(v, step):
    items = [1, 2, 3]
    items[::step] = Gives(v)
    return items


WORDS = {
    "index": lambda v: [1, 2][Gives(v)], "bound": lambda v: [1, 2][: Gives(v)],
    "range": lambda v: range(Gives(v)), "not": lambda v: not Gives(v),
    "hint": lambda v: operator.length_hint(Gives(v), 3), "keywords": lambda v: takes(**v), "items": lambda v: {**v},
    "unreadable keyword": lambda v: takes(**Unreadable()),
    "reduced": lambda v: functools.reduce(max, Gives(v)), "joined": lambda v: "-".join(Gives(v)),
    "assigned": lambda v: sliced(v, 1), "assigned apart": lambda v: sliced(v, 2), "entered": lambda v: v.__enter__ and 1,
}  # fmt: skip
OF_C = {
    "int64": lambda n: np.int64(n), "float64": lambda n: np.float64(n), "deque": lambda n: collections.deque([n]),
    "dtype": lambda n: torch.float32,
    "size": lambda n: torch.Size([n]), "date": lambda n: datetime.date(2020, 1, n), "partial": lambda n: functools.partial(max, n),
    "comparison": lambda n: n > 2, "int": lambda n: n, "alias": lambda n: list[int],
}  # fmt: skip


@pytest.mark.parametrize("name", WORDS)
def test_words_of_errors_about_types_of_c(name):
    ask = WORDS[name]
    for make in OF_C.values():

        def program(x, n, make=make):
            try:
                return x + 1, ask(make(n))
            except Exception as e:
                return x * 2, type(e), str(e)

        def given(x, v):
            try:
                return x + 1, ask(v)
            except Exception as e:
                return x * 2, type(e), str(e)

        run, also = compiled(program, backend="aten"), compiled(given, backend="aten")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for n in (3, 3, 2, 4, 1):
                assert repr(run(torch.ones(1), n)) == repr(program(torch.ones(1), n)), make(n)
                assert repr(also(torch.ones(1), make(n))) == repr(given(torch.ones(1), make(n))), make(n)
