"""Containers whose class has its own way of saying what is in them: the program hears that, and pliant itself never asks."""

from __future__ import annotations

import collections
import enum
import unittest.mock
from typing import Any

import pytest
import torch

from pliant.graph.traced import held_in
from tests.helpers import compiled


class Refuses(Exception):
    pass


def refuse(*_: Any) -> Any:
    raise Refuses


MUTE = dict.fromkeys(("__len__", "__iter__", "__getitem__", "keys", "items", "values", "__eq__", "__repr__"), refuse)
TALL = {
    "__len__": lambda self: 99,
    "__iter__": lambda self: iter((7, 8)),
    "__getitem__": lambda self, i: 40,
    "__bool__": lambda self: False,
    "__contains__": lambda self, x: x == 5,
}
OTHER = TALL | {"__iter__": lambda self: iter("xy"), "keys": lambda self: ["q"], "get": lambda self, k, d=None: 3}
NT = collections.namedtuple("NT", "a b")


def of(base: type, ways: dict) -> type:
    return type(f"{base.__name__.capitalize()}{len(ways)}", (base,), dict(ways))


SEQUENCES = [of(base, ways) for base in (tuple, list, NT) for ways in (MUTE, TALL)] + [of(collections.deque, TALL)]
SETS = [of(base, TALL) for base in (set, frozenset)]
DICTS = [of(base, ways) for base in (dict, collections.OrderedDict) for ways in (MUTE, OTHER)]


def handed_on(v, x):
    return x + 1, v


def length(v, x):
    return x + len(v)


def walked(v, x):
    return x + sum(i for i in v)


def item(v, x):
    return x * v[0]


def holds(v, x):
    return x + (5 in v)


def truth(v, x):
    return x + 1 if v else x - 1


def unpacked(v, x):
    a, b = v
    return x * a + b


def spread(v, x):
    return torch.stack([x * 1.0, *[x * i for i in v]])


def copied(v, x):
    return x, tuple(v), list(v)


def key(v, x):
    return x * v["a"], "zz" in v, v.get("a")


def keywords(v, x):
    def held(**given):
        return given

    return x + 1, held(**v)


def keys(v, x):
    return x, list(v.keys()), list(v)


def base_ways(v, x):
    for base in (tuple, list, dict):
        if isinstance(v, base):
            return x * base.__len__(v), base.__getitem__(v, "a" if base is dict else 0)
    return x


def look(v: Any) -> Any:
    if isinstance(v, torch.Tensor):
        return v.tolist()
    if isinstance(v, dict):
        return [type(v).__name__, *((k, look(x)) for k, x in dict.items(v))]
    if isinstance(v, (list, tuple, set, frozenset, collections.deque)):
        return [type(v).__name__, *map(look, held_in(v))]
    return v


def outcome(fn, v, x):
    try:
        answer = fn(v, x)
    except Exception as e:
        return type(e), str(e)
    return look(answer), isinstance(answer, tuple) and answer[1] is v


CASES = [(c, fn) for c in SEQUENCES for fn in (handed_on, length, walked, item, holds, truth, unpacked, spread, copied, base_ways)]
CASES += [(c, fn) for c in SETS for fn in (handed_on, length, walked, holds, truth, copied)]
CASES += [(c, fn) for c in DICTS for fn in (handed_on, length, truth, key, keys, base_ways)]
CASES += [(c, keywords) for c in DICTS if not issubclass(c, collections.OrderedDict) and "get" not in vars(c)]


@pytest.mark.parametrize(("cls", "fn"), CASES)
def test_containers_of_a_class(cls, fn):
    run = compiled(fn, backend="aten")
    for i in (0, 3, 1, 0):
        a, b = i + 1, i + 5
        v = cls({"a": a, "b": b}) if issubclass(cls, dict) else cls(a, b) if issubclass(cls, NT) else cls([a, b])
        assert outcome(run, v, torch.ones(2 + i)) == outcome(fn, v, torch.ones(2 + i))


# -- keys whose hash is made of a number that changes ------------------------------------------------------------------------
class Own:
    def __init__(self, n):
        self.n = n

    def __eq__(self, other):
        return isinstance(other, Own) and self.n == other.n

    def __repr__(self):
        return f"Own({self.n})"


def of_number(self):
    return self.n


HASHES = {
    "the number": of_number, "more": lambda self: self.n * 3 + 1, "text": lambda self: hash(str(self.n)),
    "comparison": lambda self: self.n > 2,
    "tuple": lambda self: hash((self.n, "a")), "largest": lambda self: max(self.n, 1), "quotient": lambda self: int(self.n / 2),
    "unread": lambda self: 1,
}  # fmt: skip


class Slotted:
    __slots__ = ("pair",)

    def __init__(self, n):
        self.pair = n, n + 1

    def __eq__(self, other):
        return isinstance(other, Slotted) and self.pair == other.pair

    def __hash__(self):
        return self.pair[1]

    def __repr__(self):
        return f"Slotted{self.pair}"


class EqualToAll(Own):
    def __eq__(self, other):
        return True

    __hash__ = of_number


class Level(enum.Enum):
    LOW, MIDDLE, HIGH = 1, 2, 4


KEYED: dict = {name: type("Hashed", (Own,), {"__hash__": h}) for name, h in HASHES.items()} | {"slots": Slotted, "equal": EqualToAll}
KNOWN: dict = {}
ALSO: set = set()
NUMBERED = {1: "one", 2: "two"}


def remembered(x, n, cls):
    k = cls(n)
    if k not in KNOWN:
        KNOWN[k] = x * n
    return KNOWN[k], len(KNOWN), k in ALSO


def by_default(x, n, cls):
    d = collections.defaultdict(list)
    d[cls(n)].append(n)
    d[cls(2)].append(x)
    return list(d.values()), collections.Counter([cls(n), cls(2)]).most_common(1)[0][1]


def pairs_as_keys(x, n, cls):
    d = {(cls(n), 1): x}
    return d.get((cls(2), 1)), (cls(n), 1) in d, len({cls(i) for i in range(n)})


def beside_numbers(x, n, cls):
    return NUMBERED.get(cls(n)), cls(n) in NUMBERED, x + 1


def member(x, n, cls):
    return Level(cls(n)), x + 1


def hashes(x, n, cls):
    return x + hash(cls(n)) % 7 if cls is not KEYED["text"] else x


@pytest.mark.parametrize("name", KEYED)
def test_keys_that_are_hashed_by_a_number_that_changes(name):
    cls = KEYED[name]
    for f in (remembered, by_default, pairs_as_keys, beside_numbers, member, hashes):
        said: list = [[], []]
        for g, told in zip((f, compiled(f, backend="aten")), said):
            KNOWN.clear(), ALSO.clear()
            KNOWN[cls(2)] = torch.zeros(1)
            ALSO.add(cls(3))
            for n in (2, 3, 1, 4, 2, 5, 3):
                try:
                    told.append(str(g(torch.ones(1), n, cls)))
                except Exception as e:
                    told.append((type(e), str(e)))
            told.append(str(KNOWN))
        assert said[0] == said[1], f


ASKED_FOR = {
    "stored": lambda d, k: d.update({k: 1}) or d[k],
    "looked up": lambda d, k: 1 if k in d else 2,
    "displayed": lambda d, k: {k: 3}[k],
    "popped": lambda d, k: d.setdefault(k, 3) + d.pop(k),
    "a set": lambda d, k: len({k} | {k}),
    "hashed": lambda d, k: hash(k) % 7,
}


@pytest.mark.parametrize("name", ASKED_FOR)
def test_keys_that_an_object_hashes_are_asked_as_often(name):
    """A mock counts its calls."""

    def fn(d, k, x):
        return x + ASKED_FOR[name](d, k)

    def told(f):
        out = []
        for n in (2, 3, 4):
            k = unittest.mock.MagicMock()
            k.__hash__.return_value = n
            out.append((f({}, k, torch.ones(n)).tolist(), f({}, k, torch.ones(n)).tolist(), k.__hash__.call_count))
        return out

    assert told(compiled(fn)) == told(fn)
