"""What methods and functions of the program answer to C code that has called them back: lists, dicts and other values that it looks into.

`python -m tests.differential.callbacks 0 700` runs 700 programs. A program is one use of an object whose methods give what it holds, a row
of `ROWS`; it is called with each state of that, twice, in another order for each number, as new objects or as one that is changed in place.
"""

from __future__ import annotations

import bisect
import collections
import copy
import functools
import heapq
import itertools
import json
import math
import operator
import random
import re
import string
import types
from typing import Any

import numpy as np
import torch

import pliant
from tests.differential import numbered


class Box:
    def __init__(self, v: Any) -> None:
        self.v = v


def ends_after_one(s: Any) -> Any:
    s.n = getattr(s, "n", 0) + 1
    if s.n % 2:
        return s.v
    raise StopIteration


def merged(o: Any) -> dict:
    d: dict = {}
    d |= o
    return d


ROWS: dict[str, tuple[dict, Any, list]] = {
    "update keys": (
        dict(keys=lambda s: s.v, __getitem__=lambda s, k: 1),
        lambda x, o: [d := {}, d.update(o)],
        [["a"], ["b"], ["a", "b"], []],
    ),
    "update getitem": (dict(keys=lambda s: ["a"], __getitem__=lambda s, k: s.v), lambda x, o: [d := {}, d.update(o)], [[1], [2], []]),
    "dict.fromkeys": (dict(__iter__=lambda s: iter(s.v)), lambda x, o: dict.fromkeys(o), [["a"], ["b"], ["a", "b"], []]),
    "iter list": (dict(__iter__=lambda s: iter(s.v)), lambda x, o: [d := [], d.extend(o)], [["a"], ["b"], ["a", "b"], []]),
    "iter set.update": (dict(__iter__=lambda s: iter(s.v)), lambda x, o: [d := set(), d.update(o)], [["a"], ["b"], []]),
    "iter deque": (dict(__iter__=lambda s: iter(s.v)), lambda x, o: collections.deque(o), [["a"], ["b"], []]),
    "iter Counter": (dict(__iter__=lambda s: iter(s.v)), lambda x, o: collections.Counter(o), [["a"], ["b"], []]),
    "iter join": (dict(__iter__=lambda s: iter(s.v)), lambda x, o: "".join(o), [["a"], ["b"], []]),
    "iter sum": (dict(__iter__=lambda s: iter(s.v)), lambda x, o: sum(o), [[1], [2], []]),
    "iter sorted": (dict(__iter__=lambda s: iter(s.v)), lambda x, o: sorted(o), [[1, 3], [2, 0], []]),
    "iter min": (dict(__iter__=lambda s: iter(s.v)), lambda x, o: min(o, default=3), [[1, 3], [2, 0], []]),
    "iter zip": (dict(__iter__=lambda s: iter(s.v)), lambda x, o: list(zip(o, o)), [[1, 3], [2, 0], []]),
    "iter chain": (dict(__iter__=lambda s: iter(s.v)), lambda x, o: list(itertools.chain(o, o)), [[1, 3], [2, 0], []]),
    "iter in": (dict(__iter__=lambda s: iter(s.v)), lambda x, o: 3 in o, [[1, 3], [2, 0], []]),
    "iter bytes": (dict(__iter__=lambda s: iter(s.v)), lambda x, o: bytes(o), [[1, 3], [2, 0], []]),
    "iter fsum": (dict(__iter__=lambda s: iter(s.v)), lambda x, o: math.fsum(o), [[1, 3], [2, 0], []]),
    "iter prod": (dict(__iter__=lambda s: iter(s.v)), lambda x, o: math.prod(o), [[1, 3], [2, 0], []]),
    "iter np": (dict(__iter__=lambda s: iter(s.v)), lambda x, o: np.array(list(o)).sum(), [[1, 3], [2, 0]]),
    "iter dist": (dict(__iter__=lambda s: iter(s.v)), lambda x, o: math.dist(tuple(o), (0, 0)), [[1, 3], [2, 0]]),
    "iter tuple-sub": (dict(__iter__=lambda s: iter(s.v)), lambda x, o: collections.namedtuple("P", "a b")._make(o), [[1, 3], [2, 0]]),
    "iter heap": (dict(__iter__=lambda s: iter(s.v)), lambda x, o: heapq.nsmallest(1, o), [[1, 3], [2, 0]]),
    "iter merge": (dict(__iter__=lambda s: iter(s.v)), lambda x, o: list(heapq.merge(o, [2])), [[1, 3], [2, 4]]),
    "iter pairs dict": (dict(__iter__=lambda s: iter(s.v)), lambda x, o: dict(o), [[["a", 1]], [["b", 2]], []]),
    "iter pairs update": (dict(__iter__=lambda s: iter(s.v)), lambda x, o: [d := {}, d.update(o)], [[["a", 1]], [["b", 2]], []]),
    "iter union": (dict(__iter__=lambda s: iter(s.v)), lambda x, o: sorted({7}.union(o)), [[1, 3], [2, 0]]),
    "iter isdisjoint": (dict(__iter__=lambda s: iter(s.v)), lambda x, o: {3}.isdisjoint(o), [[1, 3], [2, 0]]),
    "iter slice assign": (
        dict(__iter__=lambda s: iter(s.v)),
        lambda x, o: [d := [1, 2], d.__setitem__(slice(0, 1), o)],
        [[1, 3], [2, 0], []],
    ),
    "iter star": (dict(__iter__=lambda s: iter(s.v)), lambda x, o: max(*o, 1), [[1, 3], [2, 0], []]),
    "key lists sorted": (dict(k=lambda s, i: s.v[i]), lambda x, o: sorted([0, 1], key=o.k), [[[1], [2]], [[2], [1]]]),
    "key lists max": (dict(k=lambda s, i: s.v[i]), lambda x, o: max([0, 1], key=o.k), [[[1], [2]], [[2], [1]]]),
    "key lists list.sort": (dict(k=lambda s, i: s.v[i]), lambda x, o: [d := [0, 1], d.sort(key=o.k)], [[[1], [2]], [[2], [1]]]),
    "groupby": (
        dict(k=lambda s, i: s.v[i]),
        lambda x, o: [(k, list(g)) for k, g in itertools.groupby([0, 1], o.k)],
        [[[1], [2]], [[2], [2]]],
    ),
    "nsmallest": (dict(k=lambda s, i: s.v[i]), lambda x, o: heapq.nsmallest(1, [0, 1], key=o.k), [[[1], [2]], [[2], [1]]]),
    "bisect": (dict(k=lambda s, i: s.v[i]), lambda x, o: bisect.bisect([0, 1], [1], key=o.k), [[[1], [2]], [[0], [1]]]),
    "map join": (dict(k=lambda s, i: s.v[i]), lambda x, o: list(map("".join, map(o.k, [0, 1]))), [[["a"], ["b"]], [["c"], ["d"]]]),
    "map dict": (dict(k=lambda s, i: s.v[i]), lambda x, o: dict(map(o.k, [0, 1])), [[["a", 1], ["b", 1]], [["c", 2], ["d", 2]]]),
    "map update": (
        dict(k=lambda s, i: s.v[i]),
        lambda x, o: [d := {}, d.update(map(o.k, [0, 1]))],
        [[["a", 1], ["b", 1]], [["c", 2], ["d", 2]]],
    ),
    "map sum lists": (dict(k=lambda s, i: s.v[i]), lambda x, o: sum(map(o.k, [0, 1]), []), [[["a", 1], ["b", 1]], [["c", 2], ["d", 2]]]),
    "map any": (dict(k=lambda s, i: s.v[i]), lambda x, o: any(map(o.k, [0, 1])), [[[1], []], [[], []]]),
    "map all": (dict(k=lambda s, i: s.v[i]), lambda x, o: all(map(o.k, [0, 1])), [[[1], []], [[1], [1]]]),
    "map filter": (dict(k=lambda s, i: s.v[i]), lambda x, o: list(filter(o.k, [0, 1])), [[[1], []], [[1], [1]]]),
    "map max": (dict(k=lambda s, i: s.v[i]), lambda x, o: max(map(o.k, [0, 1])), [[[1], []], [[1], [2]]]),
    "map sorted": (dict(k=lambda s, i: s.v[i]), lambda x, o: sorted(map(o.k, [0, 1])), [[[1], []], [[1], [2]]]),
    "map in": (dict(k=lambda s, i: s.v[i]), lambda x, o: [1] in map(o.k, [0, 1]), [[[1], []], [[3], [2]]]),
    "map chain": (dict(k=lambda s, i: s.v[i]), lambda x, o: list(itertools.chain.from_iterable(map(o.k, [0, 1]))), [[[1], []], [[1], [2]]]),
    "map zip*": (dict(k=lambda s, i: s.v[i]), lambda x, o: list(zip(*map(o.k, [0, 1]))), [[[1], [3]], [[1], [2]]]),
    "map starmap": (
        dict(k=lambda s, i: s.v[i]),
        lambda x, o: list(itertools.starmap(max, map(o.k, [0, 1]))),
        [[[1, 2], [3, 0]], [[1, 0], [2, 1]]],
    ),
    "map deque": (dict(k=lambda s, i: s.v[i]), lambda x, o: str(collections.deque(map(o.k, [0, 1]))), [[[1, 2], [3, 0]], [[1, 0], [2, 1]]]),
    "map tuple eq": (
        dict(k=lambda s, i: s.v[i]),
        lambda x, o: tuple(map(o.k, [0, 1])) == ([1, 2], [3, 0]),
        [[[1, 2], [3, 0]], [[1, 0], [2, 1]]],
    ),
    "map list repr": (dict(k=lambda s, i: s.v[i]), lambda x, o: repr(list(map(o.k, [0, 1]))), [[[1, 2], [3, 0]], [[1, 0], [2, 1]]]),
    "map set": (dict(k=lambda s, i: s.v[i]), lambda x, o: sorted(set(map(tuple, map(o.k, [0, 1])))), [[[1, 2], [3, 0]], [[1, 0], [2, 1]]]),
    "map Counter": (
        dict(k=lambda s, i: s.v[i]),
        lambda x, o: collections.Counter(map(tuple, map(o.k, [0, 1]))),
        [[[1, 2], [3, 0]], [[1, 0], [2, 1]]],
    ),
    "map reduce": (
        dict(k=lambda s, i: s.v[i]),
        lambda x, o: functools.reduce(operator.add, map(o.k, [0, 1])),
        [[[1, 2], [3, 0]], [[1, 0], [2, 1]]],
    ),
    "map accumulate": (
        dict(k=lambda s, i: s.v[i]),
        lambda x, o: list(itertools.accumulate(map(o.k, [0, 1]))),
        [[[1, 2], [3, 0]], [[1, 0], [2, 1]]],
    ),
    "accumulate fn": (dict(k=lambda s, a, b: s.v), lambda x, o: list(itertools.accumulate([0, 1, 2], o.k)), [[1], [2]]),
    "product": (dict(k=lambda s, i: s.v[i]), lambda x, o: list(itertools.product(*map(o.k, [0, 1]))), [[[1], [2]], [[2], [1]]]),
    "json default": (dict(k=lambda s, i: s.v), lambda x, o: json.dumps({"a": Box(1)}, default=o.k), [[1], [2], {"q": 1}]),
    "json hook": (dict(k=lambda s, i: s.v), lambda x, o: json.loads('{"a": 1}', object_hook=o.k), [[1], [2], {"q": 1}]),
    "re.sub": (dict(k=lambda s, i: s.v[0]), lambda x, o: re.sub("a", o.k, "banana"), [["x"], ["y"]]),
    "__bool__": (dict(__bool__=lambda s: bool(s.v)), lambda x, o: 1 if o else 2, [[1], []]),
    "__len__": (dict(__len__=lambda s: len(s.v)), lambda x, o: len(o), [[1], []]),
    "__eq__ list truth": (dict(__eq__=lambda s, o: s.v, __hash__=object.__hash__), lambda x, o: o in [1, 2], [[1], []]),
    "__eq__ list count": (dict(__eq__=lambda s, o: s.v, __hash__=object.__hash__), lambda x, o: [1, 2].count(o), [[1], []]),
    "__eq__ index": (
        dict(__eq__=lambda s, o: s.v, __hash__=object.__hash__),
        lambda x, o: [1, 2].index(o) if o in [1, 2] else 9,
        [[1], []],
    ),
    "__lt__ sorted": (dict(__lt__=lambda s, o: s.v), lambda x, o: [a is o for a in sorted([type(o)(), o])], [[1], []]),
    "__lt__ min": (dict(__lt__=lambda s, o: s.v), lambda x, o: min(type(o)(), o) is o, [[1], []]),
    "__contains__ list": (dict(__contains__=lambda s, o: s.v), lambda x, o: 3 in o, [[1], []]),
    "tuple eq": (dict(__eq__=lambda s, o: s.v, __hash__=object.__hash__), lambda x, o: (1, o) == (1, 2), [[1], []]),
    "list eq": (dict(__eq__=lambda s, o: s.v, __hash__=object.__hash__), lambda x, o: [1, o] == [1, 2], [[1], []]),
    "list ne": (dict(__eq__=lambda s, o: s.v, __hash__=object.__hash__), lambda x, o: [1, o] != [1, 2], [[1], []]),
    "dict eq": (dict(__eq__=lambda s, o: s.v, __hash__=object.__hash__), lambda x, o: {1: o} == {1: 2}, [[1], []]),
    "list remove": (
        dict(__eq__=lambda s, o: s.v, __hash__=object.__hash__),
        lambda x, o: [d := [1, 2, o], d.remove(o), len(d)][1:],
        [[1], []],
    ),
    "dict lookup": (dict(__eq__=lambda s, o: s.v, __hash__=lambda s: 1), lambda x, o: {1: 5}.get(o), [[1], []]),
    "set in": (dict(__eq__=lambda s, o: s.v, __hash__=lambda s: 1), lambda x, o: o in {1}, [[1], []]),
    "set union": (dict(__eq__=lambda s, o: s.v, __hash__=lambda s: 1), lambda x, o: len({1} | {o}), [[1], []]),
    "__dir__": (dict(__dir__=lambda s: s.v), lambda x, o: dir(o), [["a"], ["c", "b"]]),
    "__missing__": (dict(k=lambda s: s.v), lambda x, o: [d := collections.defaultdict(o.k), d[0] + [1]][1:], [["a"], ["c", "b"]]),
    "defaultdict str": (dict(k=lambda s: s.v), lambda x, o: [d := collections.defaultdict(o.k), d[0], str(d)][2:], [["a"], ["c", "b"]]),
    "instancecheck": (dict(k=lambda s: s.v), lambda x, o: isinstance(3, type(type(o))("Q", (), {})), [["a"], ["c", "b"]]),
    "__format__": (dict(__format__=lambda s, f: s.v[0]), lambda x, o: f"{o}" + "{}".format(o) + format(o), [["a"], ["c", "b"]]),
    "__str__ %": (dict(__str__=lambda s: s.v[0]), lambda x, o: "%s" % o + str(o), [["a"], ["c", "b"]]),
    "__repr__ list": (dict(__repr__=lambda s: s.v[0]), lambda x, o: str([o]) + "%r" % (o,), [["a"], ["c", "b"]]),
    "__index__": (
        dict(__index__=lambda s: len(s.v)),
        lambda x, o: [[1, 2, 3][o], "abc"[o], bytes(o), hex(o), range(o), "%d" % 3 * 2],
        [["a"], ["c", "b"]],
    ),
    "__float__": (dict(__float__=lambda s: float(len(s.v))), lambda x, o: [math.sqrt(o), float(o), "%f" % o], [["a"], ["c", "b"]]),
    "__mro_entries__": (
        dict(__mro_entries__=lambda s, b: tuple(s.v)),
        lambda x, o: [c.__name__ for c in types.resolve_bases((o,))],
        [[int], [str, int]],
    ),
    "__getattr__": (dict(__getattr__=lambda s, n: s.v), lambda x, o: operator.attrgetter("q")(o) + [1], [["a"], ["c", "b"]]),
    "attrgetter list": (
        dict(p=property(lambda s: s.v)),
        lambda x, o: sorted([o], key=operator.attrgetter("p")) and operator.attrgetter("p")(o) == ["a"],
        [["a"], ["c", "b"]],
    ),
    "methodcaller": (dict(p=lambda s: s.v), lambda x, o: operator.methodcaller("p")(o) == ["a"], [["a"], ["c", "b"]]),
    "map methodcaller": (dict(p=lambda s: s.v), lambda x, o: sum(map(operator.methodcaller("p"), [o]), []), [["a"], ["c", "b"]]),
    "getitem proto": (dict(__getitem__=lambda s, i: s.v[i]), lambda x, o: list(o), [[1], [2, 3]]),
    "getitem reversed": (dict(__getitem__=lambda s, i: s.v[i], __len__=lambda s: len(s.v)), lambda x, o: list(reversed(o)), [[1], [2, 3]]),
    "getitem pairs": (dict(__getitem__=lambda s, i: s.v[i]), lambda x, o: dict(o), [[["a", 1]], [["b", 2], ["c", 3]]]),
    "operator.concat": (dict(__add__=lambda s, o: s.v), lambda x, o: (o + 1) + [1], [[1], [2]]),
    "sum radd": (dict(__radd__=lambda s, o: s.v), lambda x, o: sum([o, [3]]), [[1], [2]]),
    "str.format attr": (dict(p=property(lambda s: s.v)), lambda x, o: "{0.p} {0.p[0]}".format(o), [[1], [2]]),
    "format_map": (dict(__getitem__=lambda s, k: s.v), lambda x, o: "{a} {b[0]}".format_map(o), [[1], [2]]),
    "% mapping": (dict(__getitem__=lambda s, k: s.v), lambda x, o: "%(a)s" % o, [[1], [2]]),
    "translate": (dict(__getitem__=lambda s, k: s.v[0]), lambda x, o: "abc".translate(o), [["x"], ["y"]]),
    "Template": (dict(__getitem__=lambda s, k: s.v), lambda x, o: string.Template("$a").substitute(o), [[1], [2]]),
    "ChainMap": (
        dict(
            __getitem__=lambda s, k: s.v,
            __contains__=lambda s, k: True,
            keys=lambda s: ["a"],
            __iter__=lambda s: iter("a"),
            __len__=lambda s: 1,
        ),
        lambda x, o: dict(collections.ChainMap(o)),
        [[1], [2]],
    ),
    "itemgetter": (dict(__getitem__=lambda s, k: s.v), lambda x, o: operator.itemgetter(0)(o) == [1], [[1], [2]]),
    "copy": (dict(__copy__=lambda s: s.v), lambda x, o: copy.copy(o) + [1], [[1], [2]]),
    "deepcopy": (dict(__deepcopy__=lambda s, m: s.v), lambda x, o: copy.deepcopy([o]), [[1], [2]]),
    "reduce": (dict(__reduce__=lambda s: (list, (s.v,))), lambda x, o: copy.copy(o), [[1], [2]]),
    "length_hint": (dict(__length_hint__=lambda s: len(s.v)), lambda x, o: operator.length_hint(o), [[1], [2, 3]]),
    "divmod": (dict(__divmod__=lambda s, o: s.v), lambda x, o: [*divmod(o, 1)], [[1], [2, 3]]),
    "round": (dict(__round__=lambda s, n=None: s.v), lambda x, o: round(o) + [1], [[1], [2, 3]]),
    "iter(callable, sentinel)": (dict(k=lambda s: s.v), lambda x, o: list(itertools.islice(iter(o.k, [1]), 3)), [[1], [2, 3]]),
    "cmp_to_key": (dict(k=lambda s, a, b: s.v[0]), lambda x, o: sorted([1, 2], key=functools.cmp_to_key(o.k)), [[1], [-1]]),
    "np.vectorize": (dict(k=lambda s, a: s.v[0]), lambda x, o: np.vectorize(o.k)([1, 2]).tolist(), [[1], [-1]]),
    "np.apply": (dict(k=lambda s, a: s.v), lambda x, o: np.apply_along_axis(o.k, 0, np.ones((2, 2))).tolist(), [[1, 2], [-1, 3]]),
    "fromiter": (dict(__iter__=lambda s: iter(s.v)), lambda x, o: np.fromiter(o, dtype=float).tolist(), [[1, 2], [-1, 3]]),
    "torch.tensor seq": (
        dict(__getitem__=lambda s, i: s.v[i], __len__=lambda s: len(s.v)),
        lambda x, o: torch.tensor(o),
        [[1.0, 2.0], [-1.0, 3.0]],
    ),
    "x.view seq": (dict(__iter__=lambda s: iter(s.v)), lambda x, o: x.view(*o), [[6], [3, 2]]),
    "x index": (dict(__index__=lambda s: s.v[0]), lambda x, o: x[o], [[0], [1]]),
    "tree_map": (
        dict(k=lambda s, a: s.v),
        lambda x, o: torch.utils._pytree.tree_leaves(torch.utils._pytree.tree_map(o.k, [1, 2])),
        [[0], [1, 2]],
    ),
    "partial": (dict(k=lambda s, a: s.v), lambda x, o: functools.partial(o.k, 1)() + [1], [[0], [1, 2]]),
    "vars": (dict(), lambda x, o: sorted(vars(o)), [[0], [1, 2]]),
    "hash": (dict(__hash__=lambda s: s.v[0]), lambda x, o: [hash(o), hash((o,))], [[3], [4]]),
    "setdefault": (dict(__iter__=lambda s: iter(s.v)), lambda x, o: [d := {}, d.setdefault("a", o.v), d["a"] + [1]][2], [[3], [4]]),
    "enum": (dict(__iter__=lambda s: iter(s.v)), lambda x, o: list(enumerate(o)), [[3], [4]]),
    "mapping proxy": (
        dict(keys=lambda s: s.v, __getitem__=lambda s, k: 1),
        lambda x, o: types.MappingProxyType(o).keys() + [1],
        [["a"], ["b"]],
    ),
    "OrderedDict": (dict(keys=lambda s: s.v, __getitem__=lambda s, k: 1), lambda x, o: collections.OrderedDict(o), [["a"], ["b"]]),
    "defaultdict(o)": (dict(keys=lambda s: s.v, __getitem__=lambda s, k: 1), lambda x, o: collections.defaultdict(None, o), [["a"], ["b"]]),
    "dict sub": (
        dict(keys=lambda s: s.v, __getitem__=lambda s, k: 1),
        lambda x, o: [d := type("DD", (dict,), {})(), d.update(o)][0],
        [["a"], ["b"]],
    ),
    "dict sub ctor": (dict(keys=lambda s: s.v, __getitem__=lambda s, k: 1), lambda x, o: type("DD", (dict,), {})(o), [["a"], ["b"]]),
    "|=": (dict(keys=lambda s: s.v, __getitem__=lambda s, k: 1), lambda x, o: merged(o), [["a"], ["b"]]),
    "ns": (dict(keys=lambda s: s.v, __getitem__=lambda s, k: 1), lambda x, o: types.SimpleNamespace(**o), [["a"], ["b"]]),
    "iter of list subclass": (dict(__iter__=lambda s: s.v.__iter__()), lambda x, o: list(o), [["a"], ["b", "c"]]),
    "iter dict": (dict(__iter__=lambda s: iter(s.v)), lambda x, o: [d := [], d.extend(o)], [{"a": 1}, {"b": 1}, {"a": 1, "b": 2}]),
    "iter dict items": (
        dict(__iter__=lambda s: iter(s.v.items())),
        lambda x, o: [d := [], d.extend(o)],
        [{"a": 1}, {"a": 3}, {"a": 1, "b": 2}],
    ),
    "iter deque 2": (
        dict(__iter__=lambda s: iter(s.v)),
        lambda x, o: [d := [], d.extend(o)],
        [collections.deque("a"), collections.deque("b")],
    ),
    "iter reversed": (dict(__iter__=lambda s: reversed(s.v)), lambda x, o: [d := [], d.extend(o)], [[1], [2, 3]]),
    "iter zip 2": (dict(__iter__=lambda s: zip(s.v, s.v)), lambda x, o: [d := [], d.extend(o)], [[1], [2, 3]]),
    "iter map": (dict(__iter__=lambda s: map(str, s.v)), lambda x, o: [d := [], d.extend(o)], [[1], [2, 3]]),
    "iter gen": (dict(__iter__=lambda s: (i for i in s.v)), lambda x, o: [d := [], d.extend(o)], [[1], [2, 3]]),
    "iter gen lists": (dict(__iter__=lambda s: (i for i in s.v)), lambda x, o: [d := {}, d.update(o)], [[["a", 1]], [["b", 2]]]),
    "next lists": (
        dict(__iter__=lambda s: s, __next__=lambda s: ends_after_one(s)),
        lambda x, o: [d := {}, d.update(o)],
        [["a", 1], ["b", 2]],
    ),
    "next lists sum": (dict(__iter__=lambda s: s, __next__=ends_after_one), lambda x, o: sum(o, []), [["a", 1], ["b", 2]]),
    "next lists dict": (dict(__iter__=lambda s: s, __next__=ends_after_one), lambda x, o: dict(o), [["a", 1], ["b", 2]]),
    "next lists upd": (dict(__iter__=lambda s: s, __next__=ends_after_one), lambda x, o: [d := {}, d.update(o)], [["a", 1], ["b", 2]]),
    "next lists max": (
        dict(__iter__=lambda s: s, __next__=ends_after_one),
        lambda x, o: max(itertools.chain([[0, 1]], [["b"]][:0], [[0, 0]], [[5]], o) if False else o),
        [["a", 1], ["b", 2]],
    ),
    "next lists any": (dict(__iter__=lambda s: s, __next__=ends_after_one), lambda x, o: any(o), [["a", 1], []]),
    "next lists str": (
        dict(__iter__=lambda s: s, __next__=ends_after_one),
        lambda x, o: [d := collections.deque(), d.extend(o), str(d)][2],
        [["a", 1], []],
    ),
    "next pair set": (
        dict(__iter__=lambda s: s, __next__=lambda s: tuple(ends_after_one(s))),
        lambda x, o: [d := set(), d.update(o), sorted(d)][2],
        [["a", 1], ["b"]],
    ),
    "list.__eq__ reflected": (
        dict(__eq__=lambda s, o: s.v == o, __hash__=object.__hash__),
        lambda x, o: [[1], 2].index(o) if o in [[1], 2] else 9,
        [[1], [2]],
    ),
}
"""By name: the methods of a class, what a program does with an object of it, and the values that the object holds one after the other."""
FORMS = ("new", "in place")
CALLS = 2 * max(len(states) for _, _, states in ROWS.values())


def objects(cls: type, states: list, form: str) -> Any:
    """An object for each call."""
    if form == "new":
        for v in states:
            o: Any = cls()
            o.v = copy.deepcopy(v)
            yield o
        return
    o = cls()
    o.v = copy.deepcopy(states[0])
    for v in states:
        if type(v) is not type(o.v) or not isinstance(v, (list, dict, collections.deque)):
            o.v = copy.deepcopy(v)
        elif isinstance(v, list):
            o.v[:] = copy.deepcopy(v)
        else:
            o.v.clear()
            (o.v.update if isinstance(v, dict) else o.v.extend)(v)
        o.__dict__.pop("n", None)
        yield o


def examine(number: int) -> str | None:
    """What program `number` does wrong, in words."""
    r = random.Random(number)
    names = list(ROWS)
    name, form, broken = names[number % len(names)], r.choice(FORMS), r.random() < 0.5
    methods, use, states = ROWS[name]
    order = [*states, *states]
    r.shuffle(order)
    cls = type("C", (), methods)

    def program(x: torch.Tensor, o: Any) -> Any:
        if broken:
            pliant.graph_break()
        return x + 1, use(x, o)

    said = f"{number}: {name}, {form}{', behind a break' * broken}"
    return numbered.compared(said, program, zip(objects(cls, order, form), objects(cls, order, form)))


if __name__ == "__main__":
    numbered.main(examine, CALLS)
