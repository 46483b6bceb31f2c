"""What perturbations found in values of NumPy's and of C's own: numbers beyond a dtype, casts, fields of exceptions, tuples of C."""

from __future__ import annotations

import datetime

import numpy as np
import pytest
import torch

from tests.helpers import pliant


def said(fn, *args):
    try:
        return repr(fn(*args))
    except Exception as e:
        return type(e).__name__, str(e)


def compiled(fn):
    return pliant.compile(fn, strict=True, backend="aten")


@pliant.disable
def breaks():
    pass


def compare(program, *calls):
    run = compiled(program)
    for make in calls:
        assert said(run, *make()) == said(program, *make()), make()


# -- numbers beyond what a dtype holds ----------------------------------------------------------------------------------------
def written(a, v):
    a[0] = v
    return a


def masked(a, v):
    a[a > 1] = v
    return a


def filled(a, v):
    a.fill(v)
    return a


NUMBERS_IN = [
    written, masked, filled, lambda a, v: np.full(3, v, dtype=a.dtype), lambda a, v: np.array([v, 1.0], dtype=a.dtype), lambda a, v: a + v,
    lambda a, v: np.where(a > 1, a, v), lambda a, v: a.clip(0, v), lambda a, v: np.maximum(a, v), lambda a, v: np.full_like(a, v),
]  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("program", NUMBERS_IN)
def test_numbers_that_are_larger_than_the_dtype_become_infinite(program, dtype):
    numbers = (0.5, 1.5, 1e300, 2.5, -1e300, 3.4028235677973366e38, float("inf"), 1e39, float("nan"), 70000.0)
    compare(program, *[lambda v=v: (np.arange(3).astype(dtype), v) for v in numbers])


# -- floats as integers -------------------------------------------------------------------------------------------------------
FLOATS = [
    0.5, 300.7, 70000.2, 1e10, -1e10, 2.0**31, 2.0**32, 2.0**32 + 5, 1e300, -1e300, float("nan"), float("inf"), -3.5, 2.0**63, 2.0**64,
    -(2.0**31) - 1,
]  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", "int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool".split())
def test_floats_that_no_integer_is_are_cast_as_by_numpy(dtype):
    for source in ("float64", "float32"):
        calls = [lambda n=n: (np.array(FLOATS * n, dtype=source),) for n in (1, 2, 1)]  # noqa: B023
        compare(lambda a: (a.astype(dtype), np.abs(a).astype(dtype)), *calls)


# -- whose attribute is missing -----------------------------------------------------------------------------------------------
def missed(a):
    b = a + 1
    try:
        b.nothing  # noqa: B018
    except AttributeError as e:
        return b, str(e), e.name, e.obj is b


def missed_behind_a_break(a):
    try:
        a.nothing  # noqa: B018
    except AttributeError as e:
        breaks()
        return a + 1, str(e), e.name, e.obj is a


def of_the_class(a):
    return a + 1, [hasattr(a, n) for n in ("mro", "__name__", "__mro__", "__bases__", "__dict__", "item", "x")], str(getattr(a, "mro", 5))


@pytest.mark.parametrize("make", [np.ones, np.float64, np.float32, torch.ones], ids=["array", "float64", "float32", "tensor"])
@pytest.mark.parametrize("program", [missed, missed_behind_a_break, of_the_class])
def test_an_attribute_that_an_array_does_not_have(program, make):
    compare(program, *[lambda n=n: (make(n),) for n in (2, 3, 2)])


# -- tuples that only C makes -------------------------------------------------------------------------------------------------
class Ending(tuple):
    """No copy of it can be made: that would end, too."""

    def __del__(self):
        pass


TOLD = [
    lambda x, w: (x + 1, repr(w), str(w), f"{w}"),
    lambda x, w: (x + 1, hash(w), w == (2020, 1, 5), w < (2020, 1, 5), w in [(2020, 1, 5)]),
    lambda x, w: (x + 1, w[2], list(w), max(w), tuple(w)),
    lambda x, w: (x + 1, {w: 1}, "%s %s %s" % w, sum(w)),
]


@pytest.mark.parametrize("make", [lambda d: datetime.date(2020, 1, d).isocalendar(), lambda d: Ending((2020, 1, d))], ids=["C", "Python"])
@pytest.mark.parametrize("program", TOLD)
def test_a_tuple_of_which_no_copy_is_made_changes(program, make):
    compare(program, *[lambda d=d: (torch.ones(2), make(d)) for d in (3, 4, 5, 6, 3, 5, 7)])
