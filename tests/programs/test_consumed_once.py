"""What goes through an iterator, with the graph broken behind it or within: an item is given once, and nothing is asked twice.

A break makes an instruction anew in emitted code. Where the instruction has been through an iterator by then, what it was given counts.
"""

from __future__ import annotations

import collections
import functools
import heapq
import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

from tests.helpers import check_world, pliant
from tests.programs.registry import t

LOG: list[Any] = []


@pliant.disable
def outside(v: Any, *more: Any, **kw: Any) -> Any:
    LOG.append((type(v).__name__, len(more), sorted(kw)))
    return v


@pliant.disable
def number(v: Any) -> float:
    LOG.append("number")
    return float(v)


@pliant.disable
def both(a: Any, b: Any) -> Any:
    LOG.append("both")
    return a + b


def item(x: torch.Tensor, i: int, breaks: bool) -> torch.Tensor:
    LOG.append(i)
    if breaks and i == 1:
        pliant.graph_break()
    return x[i] * (i + 1)


class Own:
    """An iterator of the program's."""

    def __init__(self, x: torch.Tensor, n: int, breaks: bool) -> None:
        self.x, self.n, self.i, self.breaks = x, n, 0, breaks

    def __iter__(self) -> Own:
        LOG.append("iter")
        return self

    def __next__(self) -> torch.Tensor:
        if self.i >= self.n:
            raise StopIteration
        self.i += 1
        return item(self.x, self.i - 1, self.breaks)


class Hinted(Own):
    def __length_hint__(self) -> int:
        LOG.append("hint")
        return self.n


class Sequence:
    """Iterable by its subscripts. C code asks for its length to make room."""

    def __init__(self, x: torch.Tensor, n: int, breaks: bool) -> None:
        self.x, self.n, self.breaks = x, n, breaks

    def __len__(self) -> int:
        LOG.append("len")
        return self.n

    def __getitem__(self, i: int) -> torch.Tensor:
        if i >= self.n:
            raise IndexError
        return item(self.x, i, self.breaks)


def generator(x: torch.Tensor, n: int, breaks: bool) -> Iterator:
    for i in range(n):
        yield item(x, i, breaks)
    LOG.append("end")


ITERABLES: dict[str, Callable[..., Iterable]] = {
    "own": Own,
    "hinted": Hinted,
    "sequence": Sequence,
    "generator": generator,
    "map": lambda x, n, breaks: map(lambda i: item(x, i, breaks), range(n)),
    "expression": lambda x, n, breaks: (a * b for a, b in zip(generator(x, n, breaks), itertools.count(1))),  # noqa: B905
}


def unpacked(it: Any) -> Any:
    a, b, c = it
    return outside(a + b + c)


def unpacked_rest(it: Any) -> Any:
    a, *rest = it
    return outside(a), rest


def looped(it: Any) -> Any:
    s = 0
    for v in it:
        s = s + outside(v)
    return s


def extended(it: Any) -> Any:
    made = [1]
    made.extend(it)
    return outside(made)


def added(it: Any) -> Any:
    made = [1]
    made += it
    return outside(made)


def sliced(it: Any) -> Any:
    made = [1, 2, 3]
    made[outside(1) : 2] = it
    return made


CONSUMERS: dict[str, Callable[[Any], Any]] = {
    "f(*it)": lambda it: outside(*it),
    "f(1, *it)": lambda it: outside(1, *it),
    "f(*it, a=1)": lambda it: outside(*it, a=1),
    "f(*it, **d)": lambda it: outside(*it, **{"b": 2}),
    "f(*map(f, it))": lambda it: outside(*map(outside, it)),
    "inlined(*it)": lambda it: (lambda *a: outside(a))(*it),
    "partial(f, *it)": lambda it: functools.partial(outside, *it)(),
    "list": lambda it: outside(list(it)),
    "tuple": lambda it: outside(tuple(it)),
    "[*it]": lambda it: outside([*it, 1]),
    "(*it,)": lambda it: outside((*it,)),
    "{*it}": lambda it: len(outside({*map(float, it)})),
    "set": lambda it: len(outside(set(map(float, it)))),
    "dict": lambda it: outside(dict(enumerate(it))),
    "unpacked": unpacked,
    "unpacked, rest": unpacked_rest,
    "for": looped,
    "extend": extended,
    "+=": added,
    "slice": sliced,
    "sum": lambda it: outside(sum(it)),
    "sorted": lambda it: sorted(it, key=number),
    "max": lambda it: max(it, key=number),
    "max(*it)": lambda it: max(*it, key=number),
    "reduce": lambda it: functools.reduce(both, it),
    "map": lambda it: list(map(outside, it)),
    "filter": lambda it: list(filter(number, it)),
    "any": lambda it: any(number(v) > 99 for v in it),
    "all": lambda it: all(map(number, it)),
    "next": lambda it: outside(next(iter(it))),
    "join": lambda it: outside(",".join(map(str, map(float, it)))),
    "format": lambda it: "{} {}".format(*map(float, it)),
    "print": lambda it: print(*map(float, it)),
    "zip": lambda it: outside(list(zip(it, it))),  # noqa: B905
    "enumerate": lambda it: outside(list(enumerate(it))),
    "deque": lambda it: outside(collections.deque(it, maxlen=2)),
    "Counter": lambda it: outside(collections.Counter(map(float, it))),
    "OrderedDict": lambda it: outside(collections.OrderedDict(enumerate(it))),
    "chain": lambda it: outside(list(itertools.chain(it, it))),
    "islice": lambda it: outside(list(itertools.islice(it, 2))),
    "accumulate": lambda it: list(itertools.accumulate(it, both)),
    "starmap": lambda it: list(itertools.starmap(both, zip(it, it))),  # noqa: B905
    "product": lambda it: outside(list(itertools.product(it, [1, 2]))),
    "takewhile": lambda it: list(itertools.takewhile(number, it)),
    "pairwise": lambda it: outside(list(itertools.pairwise(it))),
    "tee": lambda it: [outside(list(part)) for part in itertools.tee(it)],
    "groupby": lambda it: [(k, list(g)) for k, g in itertools.groupby(it, number)],
    "cycle": lambda it: outside(list(itertools.islice(itertools.cycle(it), 5))),
    "nsmallest": lambda it: heapq.nsmallest(2, map(float, it)),
    "fsum": lambda it: math.fsum(map(float, it)),
    "fromiter": lambda it: np.fromiter(map(float, it), float),
    "tensor": lambda it: torch.tensor(list(map(float, it))),
    "stack": lambda it: outside(torch.stack(list(it))),
    "block_diag(*it)": lambda it: torch.block_diag(*it),
    "Sequential(*it)": lambda it: torch.nn.Sequential(*map(outside, [torch.nn.ReLU() for _ in it])),
    "ParameterList": lambda it: torch.nn.ParameterList(map(torch.nn.Parameter, it)),
}


@pytest.mark.parametrize("name", CONSUMERS)
def test_an_item_is_given_once(name):
    consume = CONSUMERS[name]
    for make in ITERABLES.values():
        for breaks in (False, True):

            def factory() -> Callable:
                def f(x, n):
                    LOG.clear()
                    return consume(make(x, n, breaks)), x.sum() * 2, list(LOG)  # noqa: B023

                return f

            check_world(factory, (t(4), 3), (t(5), 2), must_compile=False, lines=False)
