"""The gate: code that is not interpreted reads nothing that nobody guarded. Every reader meets every kind of value, eight of each.

A reader is a small function of a tensor and a foreign value; a kind makes a value of a number. Compiled and eager must agree in result,
type, dtype and exception for each of the numbers, in an order that comes back to earlier ones.
"""

from __future__ import annotations

import array
import collections
import ctypes
import dataclasses
import datetime
import decimal
import enum
import fractions
import math
import operator
import random
import types

import pytest
import torch

import pliant
from tests.helpers import Comparer, Mismatch

NUMBERS = (2, 3, 1, 4, 2, 0, 3, 1)


class HasIndex:
    def __init__(self, n):
        self.n = n

    def __repr__(self):
        return f"HasIndex({self.n})"

    def __index__(self):
        return self.n


class Everything:
    """A number in all ways that Python asks."""

    def __init__(self, n):
        self.n = n

    def __index__(self):
        return self.n

    __int__ = __index__

    def __float__(self):
        return float(self.n)

    def __bool__(self):
        return self.n > 2

    def __len__(self):
        return self.n

    def __iter__(self):
        return iter(range(self.n))

    def __eq__(self, other):
        return self.n == getattr(other, "n", other)

    def __lt__(self, other):
        return self.n < getattr(other, "n", other)

    def __hash__(self):
        return hash(self.n)

    def __contains__(self, x):
        return x == self.n

    def __getitem__(self, i):
        if i >= self.n:
            raise IndexError(i)
        return i * self.n

    def __call__(self, x):
        return x * self.n

    def __add__(self, other):
        return self.n + other

    __radd__ = __add__

    def __mul__(self, other):
        return self.n * other

    __rmul__ = __mul__

    def __format__(self, spec):
        return f"<{self.n}>"

    def __str__(self):
        return f"({self.n})"

    def __abs__(self):
        return self.n + 1

    def __neg__(self):
        return -self.n

    def __round__(self, digits=0):
        return self.n + 10

    def __divmod__(self, other):
        return self.n, other

    def __enter__(self):
        return self.n

    def __exit__(self, *exc):
        return False


class Slotted:
    __slots__ = ("n",)

    def __init__(self, n):
        self.n = n

    def __index__(self):
        return self.n


class IntSub(int):
    pass


class IntLying(int):
    """An int with another index, length and truth than its value."""

    def __index__(self):
        return int(self) + 1

    def __bool__(self):
        return int(self) > 2


class FloatSub(float):
    pass


class StrSub(str):
    pass


class ListSub(list):
    pass


class LyingList(list):
    def __len__(self):
        return 3

    def __getitem__(self, i):
        return 7


class DictSub(dict):
    def __missing__(self, k):
        return len(self)


class Color(enum.IntEnum):
    A = 0
    B = 1
    C = 2
    D = 3
    E = 4


class Flag(enum.Flag):
    A = 1
    B = 2
    C = 4


@dataclasses.dataclass
class Data:
    n: int
    items: list

    def __index__(self):
        return self.n + len(self.items)


Named = collections.namedtuple("Named", "n m")


class CStruct(ctypes.Structure):
    _fields_ = [("n", ctypes.c_int)]


class Property:
    def __init__(self, n):
        self._n = n

    @property
    def n(self):
        return self._n

    def __index__(self):
        return self.n

    def __float__(self):
        return self.n / 2


class Metered:
    """Its answer depends on a list that it holds."""

    def __init__(self, n):
        self.xs = [1] * n

    def __len__(self):
        return len(self.xs)

    def __index__(self):
        return sum(self.xs)


KINDS = {
    "has_index": HasIndex,
    "everything": Everything,
    "slotted": Slotted,
    "int_sub": IntSub,
    "int_lying": IntLying,
    "float_sub": FloatSub,
    "str_sub": lambda n: StrSub("abcdef"[:n]),
    "list_sub": lambda n: ListSub(range(n)),
    "lying_list": lambda n: LyingList(range(n)),
    "dict_sub": lambda n: DictSub({i: i * 2 for i in range(n)}),
    "int_enum": Color,
    "flag": lambda n: (Flag.A, Flag.B, Flag.C, Flag.A | Flag.B, Flag.B | Flag.C)[n],
    "dataclass": lambda n: Data(n, [1] * (n % 2)),
    "namedtuple": lambda n: Named(n, n + 1),
    "property": Property,
    "metered": Metered,
    "array": lambda n: array.array("i", range(n)),
    "array_f": lambda n: array.array("d", [n, 0.5]),
    "bytearray": lambda n: bytearray(range(n)),
    "bytes": lambda n: bytes(range(n)),
    "memoryview": lambda n: memoryview(bytes(range(n + 1))),
    "fraction": lambda n: fractions.Fraction(n, 2),
    "decimal": lambda n: decimal.Decimal(n) / 2,
    "complex": lambda n: complex(n, 1),
    "range": lambda n: range(n),
    "slice": lambda n: slice(n),
    "slice_of_index": lambda n: slice(HasIndex(0), HasIndex(n)),
    "deque": lambda n: collections.deque(range(n)),
    "counter": lambda n: collections.Counter("a" * n),
    "defaultdict": lambda n: collections.defaultdict(lambda: n),
    "ordered": lambda n: collections.OrderedDict((i, n) for i in range(n)),
    "set": lambda n: set(range(n)),
    "frozenset": lambda n: frozenset(range(n)),
    "namespace": lambda n: types.SimpleNamespace(n=n),
    "proxy": lambda n: types.MappingProxyType({"n": n}),
    "timedelta": lambda n: datetime.timedelta(days=n),
    "c_int": ctypes.c_int,
    "c_array": lambda n: (ctypes.c_int * 3)(n, n + 1, n + 2),
    "c_struct": CStruct,
    "iterator": lambda n: iter(range(n)),
    "generator": lambda n: (i for i in range(n)),
    "map": lambda n: map(abs, range(n)),
    "enumerate": lambda n: enumerate(range(n)),
    "chain": lambda n: iter([n, n + 1]),
    "random": random.Random,
    "tuple_of_index": lambda n: (HasIndex(n), 1),
    "list_of_index": lambda n: [HasIndex(n), 1],
    "nested": lambda n: [[HasIndex(n)], {"n": HasIndex(n)}],
    "big": lambda n: 2**70 + n,
    "ellipsis_or_none": lambda n: (None, Ellipsis, NotImplemented, None, Ellipsis)[n],
    "str": lambda n: str(n),
    "size": lambda n: torch.Size([n, 2]),
    "dtype": lambda n: (torch.float32, torch.float64, torch.int32, torch.int64, torch.bool)[n],
    "tensor_0d": lambda n: torch.tensor(n),
    "tensor_1d": lambda n: torch.arange(n),
    "bool_tensor": lambda n: torch.arange(6) < n,
    "array_like": lambda n: types.SimpleNamespace(__array_interface__={}, n=n),
    "method": lambda n: HasIndex(n).__index__,
    "lambda": lambda n: lambda x: x * n,
    "partial_of_int": lambda n: __import__("functools").partial(operator.mul, n),
    "class_with_state": lambda n: type("C", (), {"n": n, "__index__": lambda self: type(self).n})(),
}

LIST = [10, 20, 30, 40, 50, 60]
TUPLE = tuple(range(0, 60, 10))
TABLE = {0: "a", 1: "b", 2: "c", 3: "d", 4: "e"}

READERS = {
    "list_item": lambda x, v: x + LIST[v],
    "tuple_item": lambda x, v: x + TUPLE[v],
    "str_item": lambda x, v: (x, "abcdef"[v]),
    "list_slice": lambda x, v: x + sum(LIST[:v]),
    "own_list_item": lambda x, v: x + [1, 2, 3, 4, 5][v],
    "range_item": lambda x, v: x + range(10)[v],
    "dict_item": lambda x, v: (x, TABLE.get(v)),
    "dict_key": lambda x, v: (x, v in TABLE),
    "own_dict": lambda x, v: (x, {0: 1, 2: 3}[v]),
    "tensor_item": lambda x, v: x[v],
    "tensor_slice": lambda x, v: x[:v],
    "tensor_slice_step": lambda x, v: x[1 : v : 1] + 1,
    "tensor_pair": lambda x, v: x[v, 0],
    "tensor_setitem": lambda x, v: operator.setitem(y := x.clone(), v, 5.0) or y,
    "reshape": lambda x, v: torch.zeros(12).reshape(v, -1) + x.sum(),
    "zeros": lambda x, v: torch.zeros(v) + x.sum(),
    "full": lambda x, v: torch.full((2,), v) * x.sum(),
    "tensor": lambda x, v: torch.tensor(v) * x.sum(),
    "as_tensor": lambda x, v: torch.as_tensor(v) + x.sum(),
    "tensor_of_list": lambda x, v: torch.tensor([v, v]) + 1,
    "arange": lambda x, v: torch.arange(v) + x.sum(),
    "add": lambda x, v: x + v,
    "radd": lambda x, v: v + x,
    "mul": lambda x, v: x * v,
    "pow": lambda x, v: x**v,
    "compare": lambda x, v: x > v,
    "torch_add": lambda x, v: torch.add(x, v),
    "torch_where": lambda x, v: torch.where(x > 0, x, v),
    "sum_dim": lambda x, v: x.sum(v),
    "repeat": lambda x, v: x.repeat(v, 1),
    "narrow": lambda x, v: x.narrow(0, 0, v),
    "roll": lambda x, v: x.roll(v),
    "clamp": lambda x, v: x.clamp(max=v),
    "branch": lambda x, v: x + 1 if v else x - 1,
    "not": lambda x, v: x + (not v),
    "bool": lambda x, v: x + bool(v),
    "and_or": lambda x, v: x + ((v and 5) == 5) + len([v or 7]),
    "greater": lambda x, v: x + 1 if v > 2 else x - 1,
    "equal": lambda x, v: x + (v == 2) - (v != 3),
    "int": lambda x, v: x + int(v),
    "float": lambda x, v: x * float(v),
    "complex": lambda x, v: x * complex(v),
    "len": lambda x, v: x + len(v),
    "iterate": lambda x, v: [x + i for i in v],
    "list": lambda x, v: (x, list(v)),
    "tuple": lambda x, v: (x, tuple(v)),
    "sum": lambda x, v: x + sum(v),
    "max": lambda x, v: x + max(v),
    "sorted": lambda x, v: (x, sorted(v)),
    "next": lambda x, v: x + next(iter(v), 9),
    "zip": lambda x, v: [x + a + b for a, b in zip(v, LIST)],
    "enumerate": lambda x, v: [x * i + 1 for i, _ in enumerate(v)],
    "unpack": lambda x, v: (lambda a, *rest: x + a + len(rest))(*v),
    "star": lambda x, v: [*v, x],
    "double_star": lambda x, v: dict(**v),
    "contains": lambda x, v: x + (2 in v),
    "in_list": lambda x, v: x + (v in LIST),
    "range": lambda x, v: [x + i for i in range(v)],
    "index": lambda x, v: x + operator.index(v),
    "hash": lambda x, v: x + (hash(v) == hash(v)),
    "as_key": lambda x, v: x + {v: 1}[v],
    "set_of": lambda x, v: (x, len({v, 2, 3})),
    "str": lambda x, v: (x, str(v)[:8]),
    "repr_of_list": lambda x, v: (x, repr([1, 2][: len([v])])),
    "format": lambda x, v: (x, f"{v}"[:8]),
    "percent": lambda x, v: (x, "%s" % (v,) if isinstance(v, (int, str, float)) else ""),
    "join": lambda x, v: (x, ",".join(map(str, v))),
    "abs": lambda x, v: x + abs(v),
    "neg": lambda x, v: x + -v,
    "round": lambda x, v: x + round(v),
    "divmod": lambda x, v: (x, divmod(v, 2)),
    "floor": lambda x, v: x + math.floor(v),
    "sqrt": lambda x, v: x * math.sqrt(v),
    "attr": lambda x, v: x + v.n,
    "getattr": lambda x, v: x + getattr(v, "n", 5),
    "real": lambda x, v: x + v.real,
    "item0": lambda x, v: x + v[0],
    "item_n": lambda x, v: x + v["n"],
    "call": lambda x, v: v(x),
    "isinstance": lambda x, v: x + isinstance(v, int),
    "type": lambda x, v: (x, type(v).__name__),
    "is_none": lambda x, v: x + (v is None),
    "bytes_of": lambda x, v: (x, bytes(v)),
    "shift": lambda x, v: x + (1 << v),
    "times_list": lambda x, v: (x, [1] * v),
    "insert": lambda x, v: (x, (y := [1, 2, 3]).insert(v, 9), y),
    "pop": lambda x, v: (x, (y := [1, 2, 3, 4, 5, 6]).pop(v), y),
    "islice": lambda x, v: (x, list(__import__("itertools").islice(LIST, v))),
    "linspace": lambda x, v: torch.linspace(0, 1, v) + x.sum(),
    "split": lambda x, v: x.split(v),
    "cast": lambda x, v: x.to(v),
    "interpolate": lambda x, v: torch.nn.functional.interpolate(x[None, None], scale_factor=v),
    "dropout_p": lambda x, v: torch.nn.functional.dropout(x, v, training=False),
    "eye": lambda x, v: torch.eye(v) + x.sum(),
    "new_full": lambda x, v: x.new_full((2, 2), v),
    "fill": lambda x, v: x.clone().fill_(v),
    "index_select": lambda x, v: x.index_select(0, v),
    "stack_items": lambda x, v: torch.stack([x * i for i in v]),
    "match": lambda x, v: matched(x, v),
    "with": lambda x, v: entered(x, v),
}


def matched(x, v):
    match v:
        case 2:
            return x + 1
        case [a, *_]:
            return x + a
        case {"n": n}:
            return x + n
        case str(s):
            return x + len(s)
        case _:
            return x


def entered(x, v):
    with v as n:
        return x + n


def outcome(fn, x, v):
    try:
        return fn(x, v)
    except Exception as e:
        return e


def mismatch(reader: str, kind: str) -> str | None:
    """What differs between eager and compiled over the numbers; None if nothing does."""
    pliant.reset()
    fn, make = READERS[reader], KINDS[kind]
    compiled = pliant.compile(fn, backend="aten", strict=True)
    x = torch.arange(12, dtype=torch.float32).reshape(6, 2) / 4 - 1
    for n in NUMBERS:
        want, got = outcome(fn, x, make(n)), outcome(compiled, x, make(n))
        where = f"{reader} of {kind}({n})"
        if isinstance(want, Exception) or isinstance(got, Exception):
            # PyTorch's shape functions raise other types than its kernels at times: strict mode says so, users get eager's
            if type(got) is not type(want) and not (isinstance(want, Exception) and f"CPython raised {type(want).__name__}:" in str(got)):
                return f"{where}: eager {want!r}, compiled {got!r}"
            continue
        try:
            Comparer()(want, got, where)
        except Mismatch as e:
            return str(e)
    return None


ENDLESS = {("range", "big")}  # in eager PyTorch


def pairs_of(reader: str) -> list[tuple[str, str]]:
    return [(reader, kind) for kind in KINDS if (reader, kind) not in ENDLESS]


@pytest.mark.parametrize("reader", READERS)
def test_readers_of_foreign_values(reader):
    wrong = [m for pair in pairs_of(reader) if (m := mismatch(*pair)) is not None]
    assert not wrong, "\n".join(wrong)


if __name__ == "__main__":
    pairs = [pair for reader in READERS for pair in pairs_of(reader)]
    wrong = [m for pair in pairs if (m := mismatch(*pair)) is not None]
    print(*wrong, f"{len(pairs)} pairs, {len(pairs) * len(NUMBERS)} calls, {len(wrong)} wrong", sep="\n")
