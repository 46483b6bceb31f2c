"""Values of ever other kinds at one place: a program reads a value that was a number, is a list in the next call, then a function.

What fails too often is kept out of the graph (`jit/history.py`); each reader has to see that. `python -m tests.differential.mixed 1000 500`
runs 500 programs from number 1000 on: each is a reader, a place where it finds the value, and ten values; half of them come back.
"""

from __future__ import annotations

import collections
import dataclasses
import decimal
import enum
import fractions
import functools
import inspect
import operator
import random
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

import pliant
from tests.differential import numbered

CALLS = 10
LARGE = 1_000_000  # elements: of such results only the sizes are compared

# expressions over a tensor `x` of three numbers and the value `v`
EXPRESSIONS = """
v(x) | v(x) if callable(v) else x | x * v | v + x | x + 1 if v else x - 1 | x + 1 if v == 2 else x - 1 | x + 1 if v > 2 else x - 1
x + 1 if v is None else x * 2 | x[v] | x[v:], x[:v] | x[::v] | x[[v, 0]] | x * v[0] | x * v["a"] | x * len(v) | [x * i for i in v]
x + (2 in v) | x + (v in (1, 2, 3.0, "abc", None)) | x + (v in {1, 2, "abc", None}) | x + isinstance(v, (int, list, torch.Tensor))
x, type(v).__name__ | x + issubclass(type(v), (int, str)) | x + callable(v) | x + inspect.isclass(v) | x + hasattr(v, "n")
x * getattr(v, "a", 5) | x * {1: 2, 2: 3, "abc": 4, None: 5, 3.0: 6}.get(v, 7) | x * {v: 2}[v] | x * [1, 2, v].count(v)
x * (1 if id(v) in {id(v)} else 2) | not v, x | (v and x), (v or x) | x + (v <= 2 < 5) | x + all([v, 1]) | x * sum(v)
x * min(3, v)
x * max([1, v]) | x * sorted(v)[0] | x * round(v, 1) | x * abs(v) | x * -v | x * divmod(7, v)[1] | x * (1 << (v & 7)) | x * (v & 3)
x * int(v) | x * float(v) | [x + i for i in range(v)[:3]] | [x, *v] | torch.add(x, *v) | dict(x=x, **v) | {"x": x, **v} | {v: x}
[x * a for a in reversed(v)] | [x * a for a, b in zip([1, 2, 3], v)] | [x * a for a in map(float, v)] | x, "-".join(map(str, v))
x, "%s" % (v,) if isinstance(v, (int, float, str)) else 0 | x, f"{v!s:>4}" if type(v) in (int, float, str, list, tuple) else ""
torch.full((2,), v) | torch.zeros(v) | torch.arange(v) | torch.linspace(0, 1, v) | torch.tensor(v) | torch.tensor([v, 1])
torch.as_tensor(v)
x.expand(v, 3) | x.repeat(4).view(v) | x.reshape(*v) | x.sum(v) | x[None].sum(dim=v, keepdim=True) | x.expand(2, 3).transpose(v, 1)
x.roll(v) | x.to(v) | x.type(v) | torch.zeros(2, dtype=v) | torch.where(x > 0, x, v) | x.clamp(min=v) | x ** v | v ** x | x // v | x % v
x < v | x.clone().fill_(v) | x.masked_fill(x > 0, v) | x.new_full((2,), v) | torch.add(x, x, alpha=v) | F.leaky_relu(x, v)
torch.equal(x, v)
torch.cat([x, v]) | torch.stack([x, v]) | x.expand_as(v) | x.narrow(0, 0, v) | x.select(0, v) | x.topk(v)[0] | x.chunk(v) | x.split(v)
x + torch.from_numpy(np.asarray(v, dtype=np.float32))
"""


def unpacked(x, v):
    a, b = v
    return x * a + b


def starred(x, v):
    a, *b = v
    return x, a, b


def item_set(x, v):
    x = x.clone()
    x[0] = v
    return x


def key_set(x, v):
    x = x.clone()
    x[v] = 9
    return x


def added_in_place(x, v):
    x = x.clone()
    x += v
    return x


def copied(x, v):
    w = list(v)
    w.append(3)
    return x * len(w), w[-1]


def matched(x, v):
    match v:
        case None:
            return x
        case int(n) if n > 2:
            return x + n
        case [a, *_]:
            return x * a
        case {"a": a}:
            return x - a
        case float():
            return x / v
        case str():
            return x + len(v)
        case _:
            return x * 3


def reader(text: str) -> Callable:
    names: dict[str, Any] = {"torch": torch, "F": F, "np": np, "inspect": inspect}
    exec(f"def reads(x, v): return {text}", names)
    return names["reads"]


READERS = {text.strip(): reader(text.strip()) for line in EXPRESSIONS.strip().splitlines() for text in line.split(" | ")}
READERS |= {f.__name__: f for f in (unpacked, starred, item_set, key_set, added_in_place, copied, matched)}


class Speaking:
    """An object with an answer to everything."""

    def __init__(self, n):
        self.n = n

    def __index__(self):
        return self.n

    __len__ = __hash__ = __index__

    def __call__(self, x):
        return x * self.n

    __rmul__ = __mul__ = __call__

    def __eq__(self, other):
        return isinstance(other, Speaking) and self.n == other.n

    def __iter__(self):
        return iter(range(self.n))

    def __bool__(self):
        return self.n > 2

    def __contains__(self, i):
        return i == self.n


class Number(int):
    pass


class Row(list):
    pass


@dataclasses.dataclass
class Record:
    n: int


Pair = collections.namedtuple("Pair", "a b")
Counted = enum.IntEnum("Counted", {"A": 2, "B": 3})
Named = enum.Enum("Named", {"A": 2, "B": 3})

VALUES: list[Callable[[int], Any]] = [
    *[lambda n: n] * 3, float, lambda n: n + 0.5, lambda n: bool(n % 2), lambda n: None, str, lambda n: "abc"[: abs(n)],
    lambda n: Counted(2 + n % 2), lambda n: Named(2 + n % 2), lambda n: Speaking(abs(n)), Number, lambda n: [n, n + 1], lambda n: (n,),
    lambda n: (n, n + 1.5), lambda n: [], lambda n: (), lambda n: {}, lambda n: {"a": n}, lambda n: {n: 1}, lambda n: {n, 3},
    lambda n: frozenset([n]), lambda n: range(abs(n)), lambda n: slice(abs(n)), lambda n: slice(None, None, 1 + abs(n)), np.int64,
    np.float32, lambda n: np.bool_(n % 2), lambda n: np.arange(abs(n) + 1), np.array, torch.tensor, lambda n: torch.tensor(float(n)),
    lambda n: torch.full((3,), float(n)), lambda n: torch.arange(3), lambda n: torch.ones(3, 3) * n,
    lambda n: torch.tensor([True, False, True]), lambda n: torch.Size([abs(n) + 1]), lambda n: lambda x: x * n, lambda n: F.relu,
    lambda n: torch.sin,
    lambda n: functools.partial(torch.add, other=n), lambda n: operator.neg, lambda n: Speaking(n).__call__, lambda n: int,
    lambda n: torch.float64, lambda n: torch.int64, lambda n: torch.device("cpu"), lambda n: fractions.Fraction(n, 3), decimal.Decimal,
    lambda n: complex(n, 1), lambda n: b"ab"[: abs(n)], lambda n: bytearray(b"abc"), Record, lambda n: Pair(n, 2), lambda n: Row([n]),
    lambda n: collections.OrderedDict(a=n, b=2), lambda n: collections.deque([n, 1]), lambda n: collections.Counter("ab"),
    lambda n: iter([n, 2]), lambda n: (i for i in [n, 2]), lambda n: memoryview(b"abc"), lambda n: Ellipsis,
    lambda n: types.SimpleNamespace(a=n), lambda n: torch.nn.Parameter(torch.full((3,), float(n))), lambda n: [torch.full((3,), float(n))],
    lambda n: {"a": torch.ones(3) * n}, lambda n: float("nan"), lambda n: float("inf"), lambda n: 2**40 + n, lambda n: 2**70,
    lambda n: -0.0,
]  # fmt: skip


def value(seed: int) -> Any:
    r = random.Random(seed)
    return r.choice(VALUES)(r.choice([0, 1, 2, 3, 4, 5, 6, 7, -1, -2]))


# -- places: each gives the program and what puts a value there and answers the further arguments ---------------------------------
def argument(reads):
    return lambda x, v: reads(x, v), lambda v: (v,)


def nested(reads):
    return lambda x, t: reads(x, t[0]["v"]), lambda v: ([{"v": v}],)


def behind_a_break(reads):
    def program(x, v):
        pliant.graph_break()
        return reads(x + 1, v)

    return program, lambda v: (v,)


def inner(reads):
    def program(x, v):
        def look():
            return reads(x, v)

        return look()

    return program, lambda v: (v,)


def attribute(reads):
    holder = types.SimpleNamespace(v=None)
    return lambda x: reads(x, holder.v), lambda v: setattr(holder, "v", v) or ()


def of_a_class(reads):
    class Holder:
        v = None

    return lambda x: reads(x, Holder.v), lambda v: setattr(Holder, "v", v) or ()


def of_a_module(reads):
    class Holder(torch.nn.Module):
        def forward(self, x):
            return reads(x, self.v)

    module = Holder()
    return module, lambda v: module.__dict__.__setitem__("v", v) or ()


def item(reads):
    items = [None]
    return lambda x: reads(x, items[0]), lambda v: items.__setitem__(0, v) or ()


def entry(reads):
    entries = {"k": None}
    return lambda x: reads(x, entries["k"]), lambda v: entries.__setitem__("k", v) or ()


def of_the_globals(reads):
    names: dict[str, Any] = {"reads": reads, "V": None}
    exec("def program(x): return reads(x, V)", names)
    return names["program"], lambda v: names.__setitem__("V", v) or ()


def cell(reads):
    v = None

    def put(new):
        nonlocal v
        v = new
        return ()

    return lambda x: reads(x, v), put


def default(reads):
    def program(x, v=None):
        return reads(x, v)

    return program, lambda v: setattr(program, "__defaults__", (v,)) or ()


PLACES = (
    argument, nested, behind_a_break, inner, attribute, of_a_class, of_a_module, item, entry, of_the_globals, cell, default,
)  # fmt: skip


def same(a: Any, b: Any) -> bool:
    """Whether two results are one and the same to who may not know which object is which."""
    if isinstance(a, BaseException) or type(a) is not type(b):
        return type(a) is type(b)
    if isinstance(a, torch.Tensor):
        alike = a.dtype == b.dtype and a.shape == b.shape and a.requires_grad == b.requires_grad
        return alike and (a.numel() > LARGE or torch.allclose(a.detach(), b.detach(), rtol=1e-5, atol=1e-6, equal_nan=True))
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return same(list(a), list(b)) and same(list(a.values()), list(b.values()))
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and np.array_equal(a, b)
    return a == b or a != a or type(a).__eq__ is object.__eq__


def examine(number: int) -> str | None:
    """What program `number` does wrong, in words."""
    r = random.Random(number)
    name, place = r.choice(list(READERS)), r.choice(PLACES)
    program, put = place(READERS[name])
    pliant.reset()
    compiled, x = pliant.compile(program, strict=True), torch.tensor([1.0, -2.0, 3.0])
    seeds = [r.randrange(10**9) for _ in range(CALLS)]
    again = seeds[: CALLS // 2]
    for i in range(CALLS):
        seed, outcomes = r.choice(again) if r.random() < 0.4 else seeds[i], []
        for run in (program, compiled):
            given = put(value(seed))
            try:
                outcomes.append(run(x.clone(), *given))
            except Exception as e:
                outcomes.append(e)
        if not same(*outcomes):
            want, got = outcomes
            return f"{number}: {name} [{place.__name__}], call {i}, {value(seed)!r:.60}: want {want!r:.120}, got {got!r:.160}"
    return None


if __name__ == "__main__":
    numbered.main(examine, CALLS)
