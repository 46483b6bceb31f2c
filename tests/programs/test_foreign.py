"""Objects that only C code can look into, and classes that C code asks through protocols: guarded by value, interpreted, or a graph break.

Each program is called with eight values and compared with eager; what lies in one object is changed between calls, too. Nothing is stale.
"""

from __future__ import annotations

import array
import collections
import ctypes
import datetime
import decimal
import fractions
import io
import itertools
import mmap
import struct
import uuid
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import pliant
from tests.helpers import check

X = torch.ones(2)


class Index:
    def __init__(self, i: int) -> None:
        self.i = i

    def __index__(self) -> int:
        return self.i

    def __len__(self) -> int:
        return self.i + 1

    def __float__(self) -> float:
        return self.i / 2


class HasArray:
    def __init__(self, a: Any) -> None:
        self.a = a

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self.a


class FloatOfNumpy(np.float64):
    pass


class ArrayOfMine(np.ndarray):
    pass


class Whole(int):
    pass


def ints(i: int) -> array.array:
    return array.array("i", [i, 2, 3])


def single(i: int) -> array.array:
    return array.array("f", [i, 2, 3])


def grown(n: int) -> Any:
    b = bytearray([n, 2])
    b.append(3)
    return b, bytes(b), len(b)


PROGRAMS: dict[str, tuple[Callable, Callable[[int], tuple]]] = {
    "array_tensor": (lambda a: torch.tensor(a) * 2, lambda i: (single(i),)),
    "array_as_tensor": (lambda a: torch.as_tensor(a) * 2, lambda i: (single(i),)),
    "array_item": (lambda x, a: x * a[0], lambda i: (X, ints(i))),
    "array_len": (lambda x, a: x * len(a), lambda i: (X, array.array("i", range(i)))),
    "array_iter": (lambda a: [v * 2 for v in a], lambda i: (array.array("i", range(i)),)),
    "array_sum": (lambda a: (sum(a), max(a), sorted(a)), lambda i: (ints(i),)),
    "array_in": (lambda a: 3 in a, lambda i: (array.array("i", range(i)),)),
    "array_list": (lambda a: (a.tolist(), list(a), tuple(a)), lambda i: (ints(i),)),
    "array_made": (lambda x, n: x + torch.tensor(array.array("f", [n, 2.0])), lambda i: (X, float(i))),
    "array_append": (lambda a: (a.append(3), a.tolist()), lambda i: (ints(i),)),
    "array_write": (lambda a: (a.__setitem__(0, 9), a[0]), lambda i: (ints(i),)),
    "array_numpy": (lambda a: np.asarray(a) + 1, lambda i: (array.array("d", [i, 2, 3]),)),
    "array_frombuffer": (lambda a: torch.frombuffer(a, dtype=torch.float32) * 2, lambda i: (single(i),)),
    "array_compare": (lambda x, a, b: x + 1 if a == b else x, lambda i: (X, ints(i % 2), ints(1))),
    "array_index": (lambda x, a: x[a[0] :], lambda i: (torch.arange(9.0), ints(i))),
    "bytearray_tensor": (lambda a: torch.tensor(list(a)) * 2, lambda i: (bytearray([i, 2]),)),
    "bytearray_frombuffer": (lambda a: torch.frombuffer(a, dtype=torch.uint8) * 2, lambda i: (bytearray([i, 2, 3]),)),
    "bytearray_item": (lambda x, a: x * a[0] + len(a), lambda i: (X, bytearray([i] * i + [1]))),
    "bytearray_made": (grown, lambda i: (i,)),
    "bytearray_decode": (lambda a: a.decode(), lambda i: (bytearray(b"abc" * i),)),
    "bytes": (lambda x, b: x * b[0] + len(b), lambda i: (X, bytes([i] * i + [1]))),
    "bytes_numpy": (lambda b: np.frombuffer(b, dtype=np.uint8) + 1, lambda i: (bytes([i, 2]),)),
    "struct": (lambda x, b: x * struct.unpack("<i", b)[0], lambda i: (X, struct.pack("<i", i))),
    "decimal": (lambda x, d: (x * float(d), d + 1, int(d)), lambda i: (X, decimal.Decimal(i) / 4)),
    "fraction": (lambda x, d: (x * float(d), d + 1, d.numerator), lambda i: (X, fractions.Fraction(i, 4))),
    "date": (lambda x, d: (x * d.day, d + datetime.timedelta(1)), lambda i: (X, datetime.date(2020, 1, i + 1))),
    "timedelta": (lambda x, d: x * d.total_seconds(), lambda i: (X, datetime.timedelta(seconds=i))),
    "datetime": (lambda d: (d.isoformat(), d.year, d.hour), lambda i: (datetime.datetime(2020, 1, 1, i),)),
    "uuid": (lambda x, d: (x * len(str(d)), d.int), lambda i: (X, uuid.UUID(int=i))),
    "deque": (lambda x, d: x * d[0], lambda i: (X, collections.deque([i, 2]))),
    "iterator": (lambda x, v: [x * k for k in iter(v)], lambda i: (X, list(range(i % 3)))),
    "index_list": (lambda items, i: items[i], lambda i: (list(range(10)), Index(i))),
    "index_slice": (lambda x, i: (x[:i], x[i], range(i)), lambda i: (torch.arange(9.0), Index(i))),
    "index_sizes": (lambda i: (torch.zeros(i), "ab" * i, [0] * i), lambda i: (Index(i),)),
    "float": (lambda x, o: x * float(o), lambda i: (X, Index(i))),
    "len": (lambda x, o: x * len(o), lambda i: (X, Index(i))),
    "array_protocol": (lambda o: np.asarray(o) + 1, lambda i: (HasArray(np.arange(i + 1)),)),
    "array_protocol_tensor": (lambda o: torch.tensor(np.asarray(o)), lambda i: (HasArray(np.arange(i + 1)),)),
    "subclass_of_int": (lambda x, o: (x * o, o + 1), lambda i: (X, Whole(i))),
    "subclass_of_float64": (lambda x, o: (x * o, o + 1), lambda i: (X, FloatOfNumpy(i))),
    "subclass_of_ndarray": (lambda a: (a + 1, type(a)), lambda i: (np.arange(3.0 + i).view(ArrayOfMine),)),
    "memmap": (lambda a: (a + 1, type(a), a.sum()), lambda i: (np.arange(3.0 + i).view(np.memmap),)),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.filterwarnings("ignore")
def test_program(name: str) -> None:
    fn, make = PROGRAMS[name]
    check(fn, *[make(i) for i in range(8)])


def changed_between_calls(fn: Callable, change: Callable[[int], Any]) -> None:
    """The object that `fn` sees stays the same; what is in it does not."""
    compiled = pliant.compile(fn, strict=True)
    for i in range(8):
        change(i)
        assert torch.equal(compiled(X), fn(X)), i


def test_a_memoryview() -> None:
    b = bytearray(b"abcd")
    m = memoryview(b)
    changed_between_calls(lambda x: x * m[0] + len(m), lambda i: b.__setitem__(0, i))


def test_an_array_of_ctypes() -> None:
    c = (ctypes.c_int * 3)(1, 2, 3)
    changed_between_calls(lambda x: x * c[0], lambda i: c.__setitem__(0, i))


def test_a_number_of_ctypes() -> None:
    c = ctypes.c_int(0)
    changed_between_calls(lambda x: x * c.value, lambda i: setattr(c, "value", i))


def test_a_mapped_file() -> None:
    m = mmap.mmap(-1, 16)
    changed_between_calls(lambda x: x * m[0], lambda i: m.__setitem__(0, i))


def test_an_array_module_array() -> None:
    a = array.array("i", [0, 1])
    changed_between_calls(lambda x: x * a[0] + sum(a), lambda i: a.__setitem__(0, i))


def test_a_file_in_memory() -> None:
    f = io.BytesIO(b"0123456789")
    changed_between_calls(lambda x: x * f.getvalue()[0], lambda i: (f.seek(0), f.write(bytes([i]))))


def test_a_counter_that_goes_on() -> None:
    ours, theirs = itertools.count(), itertools.count()
    compiled = pliant.compile(lambda x: x * next(ours), strict=True)
    for _ in range(5):
        assert torch.equal(compiled(X), X * next(theirs))


def test_an_array_of_objects() -> None:
    a = np.array([0, "b", None], dtype=object)
    changed_between_calls(lambda x: x * a[0], lambda i: a.__setitem__(0, i))


def test_an_array_that_is_turned_around() -> None:
    a = np.arange(4.0)
    back = a[::-1]
    changed_between_calls(lambda x: x * float(back[0]), lambda i: a.__setitem__(3, i))


def test_an_array_over_a_buffer() -> None:
    b = bytearray(16)
    a = np.frombuffer(b, dtype=np.float32)
    changed_between_calls(lambda x: x + torch.tensor(a[:2]), lambda i: b.__setitem__(slice(0, 4), struct.pack("f", i)))


def test_a_read_only_view_of_what_changes() -> None:
    a = np.zeros(2, dtype=np.float32)
    b = a.view()
    b.flags.writeable = False
    changed_between_calls(lambda x: x + torch.tensor(b), lambda i: a.fill(i))


def test_the_shape_of_an_array_changes_in_place() -> None:
    a = np.arange(12.0)
    shapes = [(12,), (3, 4), (4, 3), (2, 6), (2, 2, 3), (12, 1), (1, 12), (12,)]
    changed_between_calls(lambda x: x + a.shape[0] + a.sum(axis=0).size, lambda i: setattr(a, "shape", shapes[i]))
