"""The world that every random program lives in: fixed source text, executed afresh for each side of a comparison.

It offers a little of everything that user code is made of: classes of each flavour, functions to inline, decorators, generators, graph
breaks.
"""

import enum
from typing import Any


class Index:
    """No number, but one where an index is wanted. (These classes are those of arguments: there is one of each.)"""

    def __init__(self, n: int) -> None:
        self.n = n

    def __index__(self) -> int:
        return self.n

    def __mod__(self, other: int) -> int:
        return self.n % other

    def __add__(self, other: int) -> int:
        return self.n + other


class Level(enum.IntEnum):
    LOW = 1
    MIDDLE = 2
    HIGH = 3


class Thing:
    """Every protocol at once, each answer from its number and from a number of the class."""

    unit = 1

    def __init__(self, n: int) -> None:
        self.n = n

    def __int__(self) -> int:
        return self.n + self.unit

    def __float__(self) -> float:
        return self.n / 2

    def __bool__(self) -> bool:
        return self.n > self.unit

    def __len__(self) -> int:
        return self.n % 4

    def __iter__(self) -> Any:
        return iter(range(self.n % 4))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Thing) and self.n % 2 == other.n % 2

    def __hash__(self) -> int:
        return self.n % 2

    def __contains__(self, value: Any) -> bool:
        return value == self.n

    def __getitem__(self, i: Any) -> int:
        return self.n * 2 + self.unit

    def __call__(self, value: Any) -> Any:
        return value + self.unit

    def __lt__(self, other: Any) -> bool:
        return self.n < int(other)


PRELUDE = '''
import array, collections, contextlib, dataclasses, decimal, fractions, functools, itertools, logging, math, operator, os, time, zlib
import numpy as np
import torch
from tests.differential.prelude import Index, Level, Thing
from tests.helpers import pliant

log = logging.getLogger("program")
COUNT = 0
SEEN = []
TABLE = {"one": 1, "two": 2}
UNIT = 1
BYTES = b"abcdef"
Pair = collections.namedtuple("Pair", "a b")


class Box:
    """Attributes, a property with a setter, operators, a method that calls another."""
    made = 0

    def __init__(self, t, k):
        self.t = t
        self.k = k

    @property
    def twice(self):
        return self.t * 2

    @twice.setter
    def twice(self, value):
        self.t = value / 2

    def scale(self, by):
        return self.t * by + self.shift()

    def shift(self):
        return self.k

    def __add__(self, other):
        return Box(self.t + (other.t if isinstance(other, Box) else other), self.k)

    __radd__ = __add__

    def __call__(self, t, *rest, mul=1):
        self.k = (self.k + len(rest)) % 50
        return t * mul + self.k

    def __eq__(self, other):
        return isinstance(other, Box) and self.k == other.k

    def __hash__(self):
        return hash(self.k)

    def __len__(self):
        return self.k % 4

    def __getitem__(self, i):
        if i >= 3:
            raise IndexError(i)
        return self.t + i

    def __contains__(self, k):
        return k == self.k

    @classmethod
    def build(cls, t):
        return cls(t, 3)

    @staticmethod
    def half(t):
        return t * 0.5


class Child(Box):
    def __init__(self, t, k):
        super().__init__(t, k + 1)
        self.extra = [k]

    def shift(self):
        return super().shift() + len(self.extra)


class Number:
    """Numbers by three protocols, truth by a method that changes between calls."""

    def __init__(self, v):
        self.v = v

    def __int__(self):
        return int(self.v)

    def __float__(self):
        return float(self.v)

    def __bool__(self):
        return True


class Slotted:
    __slots__ = ("t", "k")

    def __init__(self, t, k):
        self.t, self.k = t, k


class Magic:
    """__getattr__ for what is missing."""

    def __init__(self, t):
        self.t = t

    def __getattr__(self, name):
        if name.startswith("plus"):
            return self.t + int(name[4:])
        raise AttributeError(name)


class Cell:
    """A data descriptor."""

    def __set_name__(self, owner, name):
        self.name = "_" + name

    def __get__(self, obj, owner=None):
        return self if obj is None else getattr(obj, self.name)

    def __set__(self, obj, value):
        setattr(obj, self.name, value)


class Described:
    t = Cell()

    def __init__(self, t):
        self.t = t


@dataclasses.dataclass
class Data:
    t: torch.Tensor
    k: int = 2
    parts: list = dataclasses.field(default_factory=list)

    def total(self):
        return self.t + self.k + len(self.parts)


class Scope:
    """A context manager that keeps a record and swallows ValueError."""

    def __init__(self, record, name):
        self.record, self.name = record, name

    def __enter__(self):
        self.record.append(("enter", self.name))
        return self

    def __exit__(self, kind, value, tb):
        self.record.append(("exit", self.name, kind.__name__ if kind else None))
        return kind is ValueError


@contextlib.contextmanager
def scaled(record, k):
    record.append(k)
    try:
        yield k + 1
    finally:
        record.append(-k)


class Rows:
    """An iterator class."""

    def __init__(self, t, n):
        self.t, self.n, self.i = t, n, 0

    def __iter__(self):
        return self

    def __next__(self):
        if self.i >= self.n:
            raise StopIteration
        self.i += 1
        return self.t + self.i


def helper(t, k=1, *rest, bias=0, **kw):
    out = t * k + bias
    for r in rest:
        out = out + r
    return out + len(kw)


def branchy(t, n):
    if n > 2:
        return t.relu()
    for i in range(n):
        t = t + i
        if i == 1:
            return t
    else:
        t = t - 1
    return t


def recur(t, n):
    return t if n <= 0 else recur(t + n, n - 1) * 0.5


def deep(t, n, act):
    """Calls itself `n` deep before `act`."""
    return act(t) if n <= 0 else deep(t + 1, n - 1, act) - 1


def gen(t, n):
    for i in range(n):
        got = yield t + i
        if got is not None:
            t = t * got


def chain(t, n):
    yield t
    yield from gen(t, n)
    return n


def noted(fn):
    @functools.wraps(fn)
    def inner(*args, **kwargs):
        SEEN.append(fn.__name__)
        return fn(*args, **kwargs)
    return inner


def times(k):
    def wrap(fn):
        def inner(*args):
            return fn(*args) * k
        return inner
    return wrap


@noted
def decorated(t, k=2):
    return t - k


def bump(k):
    global COUNT
    COUNT = (COUNT + k) % 1000
    return COUNT


def set_unit(n):
    global UNIT
    UNIT = n


@pliant.disable
def opaque(t):
    return t * 1.5 if isinstance(t, torch.Tensor) else t


def broken(t):
    pliant.graph_break()
    return t + 1


def shouting(t):
    print("shout", tuple(t.shape))
    return t - 0.5


def clock():
    return 1 if time.time() > 0 else 0


def crc(k):
    return zlib.crc32(b"x" * (k % 5)) % 7


def risky(t, n):
    if n % 3 == 0:
        raise ValueError("three", n)
    if n % 3 == 1:
        raise KeyError(n)
    return t


def make_counter(start):
    total = start

    def step(k=1):
        nonlocal total
        total = (total + k) % 100
        return total

    return step
'''
