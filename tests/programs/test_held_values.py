"""Values whose state only C code sees, inside of containers that the program has just made: C code that is given one looks into them, too.

Each reader is called with one value after the other, and with the first again; none may be remembered. So are mappings whose class has a
constructor, slots or a `__dict__` of its own."""

from __future__ import annotations

import array
import bisect
import collections
import copy
import functools
import hashlib
import heapq
import itertools
import math
import operator
import types

import ml_dtypes
import numpy as np
import pytest
import rpds
import torch

import pliant

KINDS = {
    "number": lambda k: ml_dtypes.bfloat16(k + 1),
    "buffer": lambda k: array.array("d", [k + 1, 2]),
    "sequence": lambda k: rpds.List([k + 1, 2]),
}
ORDER = (0, 1, 2, 0, 3, 1)


class L(list):
    pass


class Pair(collections.namedtuple("Pair", "a b")):
    pass


def changed(target, method, *args):
    getattr(target, method)(*args)
    return target


READERS = {
    "fsum": lambda v: math.fsum([v, 1]), "fsum_tuple": lambda v: math.fsum((v, 1)), "prod": lambda v: math.prod([v, 2]),
    "dist": lambda v: math.dist([v], [0]), "fsum_iterator": lambda v: math.fsum(iter([v, 1])),
    "fsum_generator": lambda v: math.fsum(q for q in [v, 1]),
    "fsum_chain": lambda v: math.fsum(itertools.chain([v], [1])), "fsum_reversed": lambda v: math.fsum(reversed([v, 1])),
    "fsum_values": lambda v: math.fsum({"a": v}.values()), "fsum_map": lambda v: math.fsum(map(abs, [v])),
    "percent": lambda v: "%s %s" % (v, 1), "percent_dict": lambda v: "%(a)s" % {"a": v}, "percent_d": lambda v: "%d" % (v,),
    "format_item": lambda v: "{[0]}".format([v]), "format_list": lambda v: f"{[v]}", "format_tuple": lambda v: f"{(v, 1)!r}",
    "format_map": lambda v: "{a}".format_map({"a": v}), "repr": lambda v: repr([v]), "str": lambda v: str((v,)),
    "repr_dict": lambda v: repr({"a": v}),
    "repr_deque": lambda v: repr(collections.deque([v])), "repr_ordered": lambda v: repr(collections.OrderedDict(a=v)),
    "repr_default": lambda v: repr(collections.defaultdict(int, a=v)), "repr_namespace": lambda v: repr(types.SimpleNamespace(a=v)),
    "repr_slice": lambda v: repr(slice(v, 1)), "repr_deep": lambda v: repr([[v], {"a": (v,)}]), "repr_named": lambda v: repr(Pair(v, 1)),
    "repr_own": lambda v: repr(L([v])), "repr_values": lambda v: repr({"a": v}.values()),
    "repr_proxy": lambda v: repr(types.MappingProxyType({"a": v})),
    "repr_error": lambda v: repr(ValueError([v])), "ascii": lambda v: ascii([v]),
    "equal": lambda v: [v] == [2], "equal_tuple": lambda v: (v, 1) == (2, 1), "less": lambda v: (v, 1) < (3, 0),
    "equal_dict": lambda v: {"a": v} == {"a": 2},
    "equal_deep": lambda v: [[v], {"a": (v,)}] == [[2], {"a": (2,)}],
    "equal_deque": lambda v: collections.deque([v]) == collections.deque([2]),
    "equal_slice": lambda v: slice(v, 3) == slice(2, 3), "equal_own": lambda v: L([v]) == [2],
    "equal_named": lambda v: Pair(v, 1) == (2, 1),
    "in_list": lambda v: 2 in [v, 5], "in_tuple": lambda v: 2 in (v, 5), "in_deque": lambda v: 2 in collections.deque([v]),
    "count": lambda v: [v, 2].count(2), "index": lambda v: [5, v, 1, 2, 3].index(2), "index_tuple": lambda v: (5, v, 1, 2, 3).index(2),
    "remove": lambda v: changed([v, 2, 2.0, v], "remove", 2), "sorted": lambda v: sorted([v, 3, 1]),
    "sort": lambda v: changed([v, 3, 1], "sort"),
    "max": lambda v: max([v, 3]), "sum": lambda v: sum([v, 3]), "bytes": lambda v: bytes([v]), "array": lambda v: array.array("d", [v, 1]),
    "fromkeys": lambda v: dict.fromkeys([v, 2]), "frozenset": lambda v: hash(frozenset([v])) == hash(frozenset([2])),
    "key": lambda v: {(v, 1): 1, (2, 1): 3},
    "largest": lambda v: heapq.nlargest(2, [v, 3, 1]), "bisect": lambda v: bisect.bisect([1, v, 9], 2),
    "reduce": lambda v: functools.reduce(operator.add, [v, 1]),
    "caller": lambda v: operator.methodcaller("index", 2)([v, 2]), "counter": lambda v: collections.Counter([v, 2]).most_common(),
    "translate": lambda v: "abc".translate({97: str(v)}), "digest": lambda v: hashlib.md5(str([v]).encode()).hexdigest(),
    "insert_at": lambda v: changed([1, 2, 3], "insert", v, 9), "pop_at": lambda v: [1, 2, 3, 4, 5, 6].pop(v),
    "set_at": lambda v: changed([1, 2, 3, 4, 5], "__setitem__", v, 9),
    "kept": lambda v: changed([1], "append", v)[1:] == [v], "copied": lambda v: copy.deepcopy([v]),
    "array_of": lambda v: np.array([v, 2]).tolist(),
}  # fmt: skip


def outcome(fn, *args):
    try:
        return repr(fn(*args))
    except (TypeError, ValueError, LookupError, AttributeError, OverflowError) as e:
        return type(e).__name__, str(e)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("reader", READERS)
def test_read_inside_of_a_container(reader, kind):
    read, make = READERS[reader], KINDS[kind]
    compiled = pliant.compile(lambda x, v: (x + 1, read(v)), background=False)
    x = torch.arange(3.0)
    for k in ORDER:
        assert outcome(compiled, x, make(k)) == outcome(lambda v: (x + 1, read(v)), make(k)), k


# -- mappings ------------------------------------------------------------------------------------------------------------
class Made(dict):
    def __new__(cls, *args, **kwargs):
        return super().__new__(cls, *args, **kwargs)


class MadeAndIterated(Made):
    def __iter__(self):
        yield from self.keys()


class MadeAndRead(Made):
    def __getitem__(self, key):
        return dict.__getitem__(self, key) * 10


class ReadOneByOne(MadeAndRead):
    def __iter__(self):
        return dict.__iter__(self)


class OtherKeys(dict):
    def keys(self):  # which C code does not ask
        return ["d"]


class Slotted(dict):
    __slots__ = ("other",)


class Described(dict):
    @property
    def __dict__(self):
        return {"described": True}

    def __getattr__(self, name):
        try:
            return object.__getattribute__(self, name)
        except AttributeError:
            return self[name]


class Attributes(dict):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.__dict__ = self


MAPPINGS = [Made, MadeAndIterated, MadeAndRead, ReadOneByOne, OtherKeys, Slotted, Described, Attributes]
MERGES = {
    "dict": lambda m: dict(m), "dict_and": lambda m: dict(m, z=3), "display": lambda m: {"q": 1, **m, "z": 3},
    "call": lambda m: (lambda **k: k)(**m),
    "update": lambda m: changed({}, "update", m), "copy": lambda m: dict(m.copy()), "or": lambda m: ({} | m, m | {"z": 3}),
    "ordered": lambda m: collections.OrderedDict(m),
    "items": lambda m: (list(m.items()), list(m.values()), list(m)), "items_of": lambda m: [m[k] for k in ("c",)],
    "get": lambda m: (m.get("c"), "c" in m, len(m)),
    "equal": lambda m: m == {"c": 1}, "repr": lambda m: repr(m), "again": lambda m: type(m)(m)["c"],
    "shallow": lambda m: dict(copy.copy(m)),
    "format": lambda m: "{c}".format(**m), "chain": lambda m: collections.ChainMap(m)["c"], "attribute": lambda m: getattr(m, "c", None),
    "vars": lambda m: dict(vars(m)) if hasattr(m, "__dict__") else 0,
}  # fmt: skip


@pytest.mark.parametrize("merge", MERGES)
@pytest.mark.parametrize("cls", MAPPINGS)
def test_what_is_taken_from_a_mapping(cls, merge):
    take, held = MERGES[merge], cls(c=0)
    compiled = pliant.compile(lambda x, m: (x + 1, take(m)), background=False)
    x = torch.arange(3.0)
    for k in ORDER:
        held["c"] = k
        assert outcome(compiled, x, held) == outcome(lambda m: (x + 1, take(m)), held), k
        fresh = cls(c=k + 1)
        assert outcome(compiled, x, fresh) == outcome(lambda m: (x + 1, take(m)), fresh), k
