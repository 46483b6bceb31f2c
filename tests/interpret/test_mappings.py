"""What C takes for a mapping, and for what it looks like: keys that only an instance has, objects whose `__class__` is another's."""

from __future__ import annotations

import collections
import itertools
import sys
import types

import pytest
import torch

import pliant


class Delegate:
    """Answers as what it holds, if asked by name."""

    def __init__(self, held):
        self._held = held

    def __getattr__(self, name):
        return getattr(self._held, name)

    def __getitem__(self, key):
        return self._held[key]

    def __iter__(self):
        return iter(self._held)

    def __repr__(self):
        return f"<{self._held!r}>"


class Guise(Delegate):
    @property
    def __class__(self):
        return type(self._held)


class Plain:
    def __repr__(self):
        return type(self).__name__


class OfKeys(Plain):
    def __getitem__(self, key):
        return key * 2


def with_keys(*keys):
    made = OfKeys()
    made.keys = lambda: keys
    return made


class Slotted(OfKeys):
    __slots__ = ("keys",)


class Refusing(OfKeys):
    @property
    def keys(self):
        raise AttributeError("none")


class Raising(OfKeys):
    def keys(self):
        raise ValueError("no keys")


class KeysAlone(Plain):
    def keys(self):
        return ["a"]


class KeysOf(OfKeys):
    def __init__(self, held):
        self.held = held

    def keys(self):
        return self.held


class Missing(KeysOf):
    """Raises by an instruction, or by `raise`: CPython 3.11 takes that for two things where keywords are merged."""

    def __init__(self, error, key, by_hand):
        super().__init__([key])
        self.error, self.by_hand = error, by_hand

    def __getitem__(self, key):
        if self.by_hand:
            raise self.error(key)
        return {}[key]


def handling(run):
    try:
        raise ValueError
    except ValueError:
        return run()


def told(**given):
    return given


USES = {
    "dict": lambda m: dict(m),
    "dict with more": lambda m: dict(m, z=1),
    "display": lambda m: {"a": 3, **m, "q": 1},
    "call": lambda m: told(**m),
    "call with more": lambda m: told(z=1, **m),
    "call twice": lambda m: told(**m, **m),
    "call while one is handled": lambda m: handling(lambda: told(a=1, **m)),
    "call behind a break": lambda m: (torch._dynamo.graph_break(), told(z=1, **m))[1],
    "update": lambda m: [d := {"z": 1}, d.update(m)],
    "merge in place": lambda m: {"z": 1}.__ior__(m),
    "text": lambda m: f"{m} {m!r}",
}
MAPPINGS = {
    "delegate": lambda i: Delegate({"a": i, "b": 2}),
    "guise of a dict": lambda i: Guise({"a": i}),
    "guise of a list": lambda i: Guise(["ab", i]),
    "guise of a tuple": lambda i: Guise(("ab", i)),
    "instance's keys": lambda i: with_keys("a", "b" * i),
    "keys that are no texts": lambda i: with_keys(i),
    "empty slot": lambda i: Slotted(),
    "property that refuses": lambda i: Refusing(),
    "keys that raise": lambda i: Raising(),
    "keys alone": lambda i: KeysAlone(),
    "items alone": lambda i: OfKeys(),
    "namespace": lambda i: types.SimpleNamespace(keys=i),
    "user dict": lambda i: collections.UserDict(a=i),
    "pairs": lambda i: [("a", i)],
    "a key twice": lambda i: with_keys("b", "b"),
    "a key that is missing": lambda i: Missing(KeyError, "b", False),
    "a key that is missing, said by hand": lambda i: Missing(KeyError, "b", True),
    "an attribute that is missing": lambda i: Missing(AttributeError, "b", True),
    "keys that are no items": lambda i: with_keys("a") if i == 1 else KeysOf(i),
    "keys one by one": lambda i: KeysOf(c for c in "abc"[:i]),
    "quoted": lambda i: {"a'b": i, 'z"': 2, "z": 1},
    "number": lambda i: i,
}


@pytest.mark.parametrize("use, of", [*itertools.product(USES, MAPPINGS)])
def test_what_is_taken_for_a_mapping(use, of):
    def f(x, m):
        return x + 1, USES[use](m)

    def run(fn, i):
        try:
            return repr(fn(torch.ones(1), MAPPINGS[of](i))[1])
        except Exception as e:
            return repr(e)

    compiled = pliant.compile(f, backend="aten")
    for i in (1, 2, 3):
        assert run(compiled, i) == run(f, i)


heard: list = []


class Watched(Guise):
    """Whoever asks for its class runs code of the program."""

    def __getattribute__(self, name):
        heard.append(name)
        return object.__getattribute__(self, name)


KEPT = types.SimpleNamespace()
HELD = {
    "list": lambda i: [1, i],
    "dict": lambda i: {"a": i},
    "tuple": lambda i: (1, i),
    "int": lambda i: i,
    "str": lambda i: f"t{i}",
    "type": lambda i: int,
}
ASKED = {
    "compared": lambda p: p == 3,
    "told": lambda p: (f"{p}", str(p), repr(p)),
    "item": lambda p: (p,)[0] is p,
    "in a list": lambda p: p in [p],
    "raised": lambda p: (_ for _ in ()).throw(p),
    "tensor": lambda p: torch.zeros(2) + len([p]),
    "called": lambda p: p(),
    "given back": lambda p: (p, [p], {"a": p}),
    "over a break": lambda p: (p, torch._dynamo.graph_break(), [p]),
    "stored": lambda p: (setattr(KEPT, "held", p), KEPT.held is p),
}


@pytest.mark.parametrize("how, of", [*itertools.product(ASKED, HELD)])
def test_nobody_but_the_program_asks_for_a_class(how, of):
    def f(x, p):
        return x + 1, ASKED[how](p)

    def run(fn, i):
        heard.clear()
        try:
            return repr(fn(torch.ones(1), Watched(HELD[of](i)))[1]), list(heard)
        except Exception as e:
            return repr(e), list(heard)

    compiled = pliant.compile(f, backend="aten")
    for i in (1, 2, 3):
        assert run(compiled, i) == run(f, i)


class Name(str):
    """A key of which only its own methods say what it is equal to."""

    def __hash__(self):
        return str.__hash__(self)

    def __eq__(self, other):
        return str.__eq__(self, other)


@pliant.disable
def opaque(t):
    return t


def keywords(x, d):
    def inner(**given):
        opaque(x)
        return given

    return inner(**d)


def keywords_of_an_instance(x, d):
    class Made:
        def __init__(self, a, **given):
            vars(self).update(given, a=a)

    made = Made(**d)
    return vars(opaque(made)), x * made.a


def keywords_beside_frames(x, d):
    return (lambda **given: (x + 1, sys._getframe(1).f_code.co_name))(**d)


@pytest.mark.parametrize("fn", [keywords, keywords_of_an_instance, keywords_beside_frames])
def test_keywords_whose_names_are_of_a_class(fn):
    c = pliant.compile(fn, backend="aten", strict=True)
    for n in (1, 2, 3):
        d = {Name("a"): n, "b": 2} | ({Name("c"): 5} if n % 2 else {})
        eager, ours = fn(torch.ones(n), d), c(torch.ones(n), d)
        assert repr(eager) == repr(ours)
        if type(eager) is dict:
            assert [*map(type, eager)] == [*map(type, ours)]
