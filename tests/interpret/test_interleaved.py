"""What C code does with one item of an iterable, and who makes the items, in which order code of the program hears of it."""

from __future__ import annotations

import bisect
import collections
import functools
import heapq
import itertools
import math
import operator
import statistics
from typing import Any

import pytest
import torch

import pliant

HEARD: list[Any] = []


class V:
    """A number that tells what it is asked."""

    def __init__(self, k: int) -> None:
        self.k = k

    def __repr__(self) -> str:
        return f"V{self.k}"

    def __add__(self, o: Any) -> V:
        HEARD.append(("add", self.k))
        return V(self.k + (o.k if isinstance(o, V) else o))

    def __radd__(self, o: Any) -> V:
        HEARD.append(("radd", self.k))
        return V(self.k + o)

    def __mul__(self, o: Any) -> V:
        HEARD.append(("mul", self.k))
        return V(self.k * (o.k if isinstance(o, V) else o))

    def __rmul__(self, o: Any) -> V:
        HEARD.append(("rmul", self.k))
        return V(self.k * o)

    def __lt__(self, o: Any) -> bool:
        HEARD.append(("lt", self.k))
        return self.k < o.k

    def __gt__(self, o: Any) -> bool:
        HEARD.append(("gt", self.k))
        return self.k > o.k

    def __eq__(self, o: object) -> bool:
        HEARD.append(("eq", self.k))
        return isinstance(o, V) and self.k == o.k

    def __hash__(self) -> int:
        HEARD.append(("hash", self.k))
        return 7

    def __bool__(self) -> bool:
        HEARD.append(("bool", self.k))
        return self.k > 0

    def __float__(self) -> float:
        HEARD.append(("float", self.k))
        return float(self.k)

    def __index__(self) -> int:
        HEARD.append(("index", self.k))
        return self.k

    def __iter__(self) -> Any:
        HEARD.append(("iter", self.k))
        return iter((self.k, self.k + 1))

    def __len__(self) -> int:
        HEARD.append(("len", self.k))
        return 2


class Told(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        HEARD.append(getattr(func, "__name__", "?"))
        return super().__torch_function__(func, types, args, kwargs or {})


def g(n: int, neg: int = 0) -> Any:
    for i in range(n):
        HEARD.append(("next", i))
        yield V(i - neg)
    HEARD.append("end")


def pairs(n: int) -> Any:
    for i in range(n):
        HEARD.append(("pair", i))
        yield (V(i), i)


def noted(k: int) -> int:
    HEARD.append("key")
    return k


USES: dict[str, Any] = {
    "sum": lambda n: sum(g(n)),
    "sum2": lambda n: sum(g(n), V(3)),
    "max": lambda n: max(g(n)),
    "min": lambda n: min(g(n)),
    "maxk": lambda n: max(g(n), key=lambda v: noted(-v.k)),
    "any": lambda n: any(g(n, 1)),
    "all": lambda n: all(g(n, -1)),
    "sorted": lambda n: sorted(g(n)),
    "sortedk": lambda n: sorted(g(n), key=lambda v: noted(-v.k)),
    "set": lambda n: len(set(g(n))),
    "frozenset": lambda n: len(frozenset(g(n))),
    "dict": lambda n: len(dict(pairs(n))),
    "fromkeys": lambda n: len(dict.fromkeys(g(n))),
    "in": lambda n: V(1) in g(n),
    "notin": lambda n: V(9) not in g(n),
    "reduce": lambda n: functools.reduce(operator.add, g(n)).k,
    "reducef": lambda n: functools.reduce(lambda a, b: a + b, g(n)).k,
    "accum": lambda n: [v.k for v in itertools.accumulate(g(n))],
    "prod": lambda n: math.prod(g(n)).k,
    "fsum": lambda n: math.fsum(g(n)),
    "setupd": lambda n: len(set().union(g(n))),
    "dictupd": lambda n: (lambda d: (d.update(pairs(n)), len(d)))({}),
    "contains": lambda n: operator.contains(g(n), V(1)),
    "indexOf": lambda n: operator.indexOf(g(n), V(1)),
    "countOf": lambda n: operator.countOf(g(n), V(1)),
    "bytes": lambda n: bytes(g(n)),
    "bytearray": lambda n: bytearray(g(n)),
    "setinter": lambda n: len({V(1)} & set(g(n))),
    "isdisj": lambda n: {V(5)}.isdisjoint(g(n)),
    "diff": lambda n: len({V(1), V(2)}.difference(g(n))),
    "issup": lambda n: {V(0), V(1)}.issuperset(g(n)),
    "zipl": lambda n: [(a.k, b.k) for a, b in zip(g(n), g(n - 1))],
    "mapadd": lambda n: [v.k for v in map(operator.add, g(n), g(n))],
    "filter": lambda n: [v.k for v in filter(None, g(n))],
    "filterf": lambda n: [v.k for v in itertools.filterfalse(None, g(n))],
    "takew": lambda n: [v.k for v in itertools.takewhile(lambda v: v.k < 1, g(n))],
    "groupby": lambda n: [(k.k, len(list(v))) for k, v in itertools.groupby(g(n))],
    "merge": lambda n: [v.k for v in heapq.merge(g(n), g(n))],
    "nlargest": lambda n: [v.k for v in heapq.nlargest(2, g(n))],
    "nsmallest": lambda n: [v.k for v in heapq.nsmallest(1, g(n))],
    "starmap": lambda n: [v.k if isinstance(v, V) else v for v in itertools.starmap(operator.add, ((a, 1) for a in g(n)))],
    "mean": lambda n: statistics.fmean(g(n)) if n else 0,
    "extend": lambda n: (lambda l: (l.extend(g(n)), len(l)))([]),
    "slice": lambda n: (lambda l: (l.__setitem__(slice(0, 1), g(n)), len(l)))([1, 2]),
    "unpack": lambda n: (lambda *a: len(a))(*g(n)),
    "flat": lambda n: list(itertools.chain.from_iterable(g(n))),
    "unpack2": lambda n: [a + b for a, b in g(n)],
    "star": lambda n: (lambda a, *b: (a.k, len(b)))(*g(n)),
    "deque": lambda n: len(collections.deque(g(n), maxlen=1)),
    "enumerate": lambda n: [(i, v.k) for i, v in enumerate(g(n))],
    "islice": lambda n: [v.k for v in itertools.islice(g(n), 1)],
    "compress": lambda n: [v.k for v in itertools.compress(g(n), g(n))],
    "zipstrict": lambda n: [1 for a, b in zip(g(n), g(n - 1), strict=True)],
    "join": lambda n: ','.join(str(v.k) for v in g(n)),
    "symd": lambda n: len({V(1)}.symmetric_difference(g(n))),
    "ior": lambda n: (lambda s: (s.update(g(n)), len(s)))(set()),
    "maxd": lambda n: max(g(n), default=0),
    "listeq": lambda n: list(g(n)) == list(g(n)),
    "index": lambda n: [*g(n)].index(V(1)),
    "tensor": lambda n: torch.tensor([float(v) for v in g(n)]).sum().item(),
    "count": lambda n: [*g(n)].count(V(1)),
    "remove": lambda n: (lambda l: (l.remove(V(1)), len(l)))([*g(n)]),
    "bis": lambda n: bisect.bisect([*g(n)], V(1)),
}


def told(program: Any, n: int) -> tuple:
    HEARD.clear()
    _, r = program(torch.ones(n + 1), n)
    return repr(r), list(HEARD)


@pytest.mark.parametrize("name", USES)
def test_in_turn(name: str) -> None:
    use = USES[name]

    def program(x: Any, n: int) -> tuple:
        y = x * 2
        try:
            r = use(n)
        except Exception as e:
            r = (type(e).__name__, str(e))
        return y, r

    compiled = pliant.compile(program)
    for n in (3, 2, 1, 0, 4):
        assert told(compiled, n) == told(program, n), n


def rows(x: Any) -> Any:
    for k, row in enumerate(x):
        HEARD.append(k)
        yield row.sum()


TENSORS: dict[str, Any] = {
    "sum": lambda x: sum(rows(x)),
    "sum from one": lambda x: sum(rows(x), x.sum()),
    "max": lambda x: max(rows(x)),
    "min": lambda x: min(t.sum() for t in x),
    "sum of a generator": lambda x: x + sum(t.sum() for t in [x[:1], x]),
    "reduce": lambda x: functools.reduce(operator.mul, rows(x)),
    "last is a number": lambda x: sum(itertools.chain(rows(x), [1, 2])),
    "first are numbers": lambda x: sum(itertools.chain([1, 2], rows(x))),
}


@pytest.mark.parametrize("name", TENSORS)
@pytest.mark.parametrize("cls", [torch.Tensor, Told])
def test_tensors_of_a_class(name: str, cls: type) -> None:
    program = TENSORS[name]
    compiled = pliant.compile(program)
    for n in (2, 3, 4):
        heard = []
        for fn in (program, compiled):
            x = torch.arange(n * 2.0).reshape(n, 2).as_subclass(cls)
            HEARD.clear()
            r = fn(x)
            heard.append(list(HEARD))
            with torch._C.DisableTorchFunctionSubclass():
                heard.append((type(r), r.tolist()))
        assert heard[:2] == heard[2:], n
