"""Containers whose class has its own way of saying what is in them: the program hears that, and pliant itself never asks."""

from __future__ import annotations

import collections
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
