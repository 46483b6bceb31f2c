"""Lists of numbers from outside that become tensors, arrays and indices: one input of the graph each, whatever their length.

Every program is called with lists of other lengths, kinds and values, and compared with eager. `captures` bounds how often it is compiled.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import pliant
from tests.helpers import check, check_world


def ints(*lengths: int) -> list:
    return [list(range(3, 3 + n)) for n in lengths]


def floats(*lengths: int) -> list:
    return [[i / 3 - 1 for i in range(n)] for n in lengths]


X = torch.arange(60.0)
LONG = (12, 13, 40, 9, 30)


def of_ints(rows: list) -> Any:
    return torch.tensor(rows) * 2 + 1


def as_tensor(rows: list) -> Any:
    return torch.as_tensor(rows, dtype=torch.float32).cumsum(0)


def counted(rows: list) -> Any:
    x = torch.tensor(rows)
    return x.sum() / len(rows), torch.arange(len(rows)) + x


def emptied(rows: list) -> Any:
    return torch.tensor(rows) + 1 if rows else torch.zeros(3)


def index(rows: list) -> Any:
    return X[rows], X.view(6, 10)[:, [n % 10 for n in rows]] + len(rows)


def stored(rows: list) -> Any:
    x = X.clone()
    x[rows] = 0
    return x


def array(rows: list) -> Any:
    a = np.asarray(rows)
    a[0] = 100
    return a, np.array(rows, dtype=np.float64) / 2


def rows_of_two(rows: list) -> Any:
    return torch.tensor(rows).sum(1)


def twice(rows: list) -> Any:
    a, b = torch.tensor(rows), torch.tensor(rows)
    a.add_(1)
    return a, b, torch.tensor(rows, dtype=torch.float64)


def new_of(rows: list) -> Any:
    return X.new_tensor(rows), X[:3].double().new_tensor(data=rows, dtype=torch.float32) + X.new_tensor(rows)[0]


def asked(rows: list) -> Any:
    return X * sum(rows) + max(rows) - min(rows), sum(rows), max(rows), min(rows)


def decided(rows: list) -> Any:
    y = X + max(rows) if sum(rows) > 60 else X - min(rows)
    return y * len(rows), max(rows) - 1


PROGRAMS: list[tuple[Callable, list, int]] = [
    (of_ints, ints(*LONG), 1),
    (of_ints, floats(*LONG), 1),
    (of_ints, [[bool(i % 3) for i in range(n)] for n in LONG], 1),
    (of_ints, ints(3, 4, 5, 8, 2, 6), 2),
    (of_ints, floats(3, 4, 5, 8, 2, 6), 2),
    (of_ints, [[1.5, -0.0, -math.inf, math.inf] * 3, [1e300, -1e-300] * 8, [5e-324] * 9], 1),
    (of_ints, [*ints(12, 14), *floats(12, 14), [True] * 12, [False] * 14, [1, 2.5] * 6, [True, 2] * 7, [True, 0.5] * 7], 3),
    (as_tensor, [*ints(*LONG), [2**53 + 1, 2**62 + 1, -(2**63), 2**63 - 1] * 4, *floats(*LONG)], 3),
    (counted, [*ints(*LONG), *floats(*LONG)], 4),
    (emptied, [*ints(12, 0, 13, 1, 9), [], *ints(14, 1, 0, 20)], 5),
    (index, [*ints(*LONG)], 8),
    (stored, [*ints(*LONG), [-1] * 12], 1),
    (array, [*ints(*LONG), *floats(*LONG)], 3),
    (rows_of_two, [[[i, i + 1] for i in range(n)] for n in LONG], 1),
    (rows_of_two, [[(i / 2, i) for i in range(n)] for n in LONG], 1),
    (twice, [*ints(*LONG)], 1),
    (new_of, [*ints(*LONG)], 1),
    (new_of, [*floats(*LONG)], 1),
    (asked, [*ints(*LONG)], 1),
    (asked, [*floats(*LONG), [-0.0, 0.0] * 6, [0.1] * 10, [1e300, -1e300, 1.5] * 4], 2),
    (decided, [*ints(*LONG), [1] * 9, [0, 1] * 6], 4),
]


@pytest.mark.parametrize("fn, lists, captures", PROGRAMS, ids=lambda v: getattr(v, "__name__", ""))
def test_one_input(fn: Callable, lists: list, captures: int) -> None:
    check(fn, *[(rows,) for rows in lists], exact=True, captures=(1, captures))


class Odd(list):
    def __iter__(self) -> Any:
        return iter((1, 2))


class Number(int):
    pass


ODD = [
    [2**63] * 12, [*range(12), -(2**63) - 1], [np.float64(1.5)] * 12, [*range(11), np.int32(3)], [1.5, np.float32(2)] * 6, [Number(3)] * 12,
    [1 + 2j] * 12, [1, None] * 6, ["1"] * 12, [[1, 2], [3]] * 6, [[1, 2], 3] * 6, [[]] * 12, [[[1.0]], [[2.0]]] * 6, Odd(range(12)),
    (*range(12),), [torch.tensor(1.0)] * 12, [float("nan")] * 12, [(1, 2), [3, 4]] * 6,
]  # fmt: skip


@pytest.mark.parametrize("odd", ODD, ids=lambda v: f"{type(v).__name__} {v!r}"[:30])
def test_what_is_no_list_of_numbers(odd: Any) -> None:
    """Before and after one that is: the answer, or the error, is eager's."""
    check(of_ints, (ints(12)[0],), (odd,), (ints(14)[0],), (odd,), must_compile=False)
    check(of_ints, (odd,), (ints(14)[0],), must_compile=False)


MORE_ODD = [
    *ODD, [2**62] * 12, [2**63 - 1, *range(9)], [-(2**63), *range(9)], [float("inf"), *[1.0] * 11], [float("inf"), -float("inf")] * 6,
    [float("nan"), *[1.0] * 11], [1.0, float("nan"), 2.0] * 4, [True] * 12, [1, 2.0] * 6, [2.0, 2] * 6, [True, 1] * 6, [], [0] * 12, [5],
]  # fmt: skip


@pytest.mark.parametrize("odd", MORE_ODD, ids=lambda v: f"{type(v).__name__} {v!r}"[:30])
def test_what_is_asked_of_odd_lists(odd: Any) -> None:
    """Before and after one of numbers of one type: the answer and its type, or the error, are eager's."""
    def program(rows: Any) -> Any:
        found = sum(rows), max(rows), min(rows)
        return *found, *map(type, found), str(found)

    check(program, (ints(12)[0],), (odd,), (ints(14)[0],), (odd,), (floats(12)[0],), (odd,), (floats(15)[0],), must_compile=False)
    check(program, (odd,), (ints(14)[0],), (floats(15)[0],), must_compile=False)


DTYPES = [torch.float16, torch.bfloat16, torch.float64, torch.int32, torch.int8, torch.uint8, torch.bool, torch.complex64]


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes(dtype: torch.dtype) -> None:
    def program(rows: list) -> Any:
        return torch.tensor(rows, dtype=dtype), torch.as_tensor(rows, dtype=dtype, device="cpu")

    lists = [*ints(12, 14), *floats(12), [True, False] * 6, [300, -5] * 6, [65504, 65520, 2**40 + 1] * 4, [1e5, 3.3e38, 1e300, 0.1] * 4]
    check(program, *[(rows,) for rows in lists], must_compile=False, exact=True)


def test_default_dtype() -> None:
    def program(rows: list) -> Any:
        return torch.tensor(rows) / 3

    torch.set_default_dtype(torch.float64)
    try:
        check(program, *[(rows,) for rows in [*floats(12, 20), *ints(12, 13)]], exact=True, captures=(1, 2))
    finally:
        torch.set_default_dtype(torch.float32)
    check(program, *[(rows,) for rows in [*floats(12, 20), *ints(12, 13)]], exact=True, captures=(1, 2))


def written_before(rows: list, more: list) -> Any:
    rows.append(7)
    rows[0] = 5
    return torch.tensor(rows), torch.tensor(more)


def written_behind(rows: list, more: list) -> Any:
    x = torch.tensor(rows)
    rows[1] = 50
    rows.append(int(len(more)))
    more.clear()
    return x, torch.tensor(rows)


def sorted_before(rows: list, more: list) -> Any:
    more.sort(reverse=True)
    more.reverse()
    rows.reverse()
    return torch.tensor(rows), torch.tensor(more)


def held(rows: list, more: list) -> Any:
    return torch.tensor(rows) + torch.tensor(more)[0], rows, [*more, rows]


def put_back(rows: list, more: list) -> Any:
    first = rows[0]
    rows[0] = 100
    y = torch.tensor(more)
    rows[0] = first
    return torch.tensor(rows), y


def asked_before(rows: list, more: list) -> Any:
    top = max(more)
    rows.append(100)
    rows[0] = -5
    return torch.ones(3) * top, max(more), sum(rows), min(rows), min(more)


def asked_behind(rows: list, more: list) -> Any:
    rows[2] += 7
    y = torch.ones(2) * sum(more) + max(rows)
    more.append(sum(more))
    return y, sum(more), max(more)


@pytest.mark.parametrize("fn", [written_before, written_behind, sorted_before, held, put_back, asked_before, asked_behind])
def test_lists_that_are_written(fn: Callable) -> None:
    """Also where both are one list."""
    def world() -> Any:
        return (lambda a, b, same: fn(a, a if same else b)), ()

    lists = ints(12, 13, 14, 15, 12, 20)
    check_world(world, *[(a, b, same) for same in (False, True, False) for a, b in zip(lists, reversed(lists))])


def test_rows_that_are_written() -> None:
    """A row of a list of rows may be the list that was written before."""
    def program(rows: list, row: list) -> Any:
        row[0] = 9
        return torch.tensor(rows)

    def aliased(n: int) -> tuple:
        rows = [[i, i + 1] for i in range(n)]
        return rows, rows[3]

    apart = [([[i, i + 1] for i in range(n)], [1, 2]) for n in (12, 13, 14)]
    check(program, *apart, aliased(12), apart[0], aliased(14))


def test_a_list_that_holds_itself() -> None:
    def program(rows: list, x: torch.Tensor) -> Any:
        return x + len(rows), torch.tensor(rows).sum() if rows[0] is not rows else 0

    def round_about(n: int) -> list:
        rows: list = []
        rows += [rows] * n
        return rows

    def raises(rows: list) -> Any:
        return torch.tensor(rows)

    check(program, *[(rows, X) for rows in (ints(12)[0], round_about(12), ints(13)[0], round_about(9))])
    deep = [[[[[[i]]]]] for i in range(12)]
    check(raises, (ints(12)[0],), (deep,), (ints(13)[0],), must_compile=False)
    with pytest.raises(ValueError, match="too many dim"):
        pliant.compile(raises)(round_about(12))


class Batch:
    def __init__(self, labels: list) -> None:
        self.labels = labels
        self.seen = 0


def test_lists_of_objects() -> None:
    """A list that an object holds is taken whole once another one was there."""
    def program(batch: Batch) -> Any:
        batch.seen += len(batch.labels)
        return torch.tensor(batch.labels) + 1

    check(program, *[(Batch(rows),) for rows in [*ints(3, 5, 4, 20, 7), *ints(6, 9)]], captures=(1, 4))


def test_behind_a_graph_break() -> None:
    def program(rows: list) -> Any:
        kept = [n for n in rows if n % 2]
        pliant.graph_break()
        return torch.tensor(kept) * 2, torch.tensor([n + 1 for n in rows]).sum()

    report = check(program, *[(rows,) for rows in ints(20, 22, 24, 30, 28, 26, 34)])
    assert report.history[-1]["captures"] == report.history[4]["captures"]


def test_what_is_asked_of_lists_of_objects_and_behind_breaks() -> None:
    def program(batch: Batch) -> Any:
        batch.seen += sum(batch.labels)
        kept = [n for n in batch.labels if n % 2]
        pliant.graph_break()
        return torch.ones(2) * max(batch.labels) + sum(kept), min(kept)

    report = check(program, *[(Batch(rows),) for rows in [*ints(20, 22, 24, 30, 28), *ints(26, 34, 23)]])
    assert report.history[-1]["captures"] == report.history[4]["captures"]


def test_modes() -> None:
    def program(rows: list) -> Any:
        with torch.inference_mode():
            x = torch.tensor(rows)
        with torch.no_grad():
            return x.is_inference(), torch.tensor(rows).is_inference(), torch.tensor(rows, requires_grad=True).requires_grad

    check(program, *[(rows,) for rows in floats(12, 14, 20)])
    with torch.inference_mode():
        check(program, *[(rows,) for rows in floats(12, 14, 20)])
    with torch.device("cpu"):
        check(program, *[(rows,) for rows in floats(12, 14, 20)], must_compile=False)


def test_of_a_constant_length() -> None:
    """With `dynamic=False` all is a constant; an export has an input for each item."""
    check(of_ints, *[(rows,) for rows in ints(12, 12, 13)], options={"dynamic": False})
    program = pliant.export(of_ints, (list(range(12)),))
    assert torch.equal(program(list(range(1, 13))), of_ints(list(range(1, 13))))


@pytest.mark.parametrize("many", [1, 9])
def test_ints_among_floats_that_64_bits_do_not_hold(many: int) -> None:
    """PyTorch makes floats of them, NumPy objects."""
    lists = [[0.5] * many + [n] for n in (3, 10**20, 2**63, -(2**63), -(2**63) - 1, float("inf"))]
    for fn in (lambda rows: torch.tensor(rows), lambda rows: np.asarray(rows).dtype.kind):
        check(fn, *[(rows,) for rows in lists], must_compile=False)


@pytest.mark.parametrize("dtype", [None, torch.bool, torch.uint8, torch.int32, torch.int64, torch.float16, torch.float32])
def test_scalars_of_numpy_among_numbers(dtype: torch.dtype | None) -> None:
    """PyTorch refuses kinds of scalars for some dtypes, and what does not fit."""
    scalars = [np.float32(1.5), np.float64(2.5), np.int64(3), np.bool_(True), np.int8(4), np.float16(0.5), np.int64(300), np.float64("nan")]
    lists = [[first, v] for v in scalars for first in (1, 0.5)] + [[v] * 2 for v in scalars]
    check(lambda rows: torch.tensor(rows, dtype=dtype), *[(rows,) for rows in lists], must_compile=False)


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64, torch.float32])
@pytest.mark.parametrize("of", ["float64", "float32", "int64"])
def test_scalars_that_the_run_makes(dtype: torch.dtype, of: str) -> None:
    def program(a: np.ndarray) -> Any:
        return torch.tensor([a.sum(), 1], dtype=dtype), torch.tensor(a.max(), dtype=dtype)

    arrays = [[1, 2], [3, 4.5], [300, 1], [2**53 + 1, 0], [2**25 + 1, 1]] + [[np.nan, 1], [np.inf, 0]] * (of[0] == "f")
    check(program, *[(np.array(a).astype(of),) for a in arrays], must_compile=False)


class Rows(list):
    pass


@pytest.mark.parametrize("kind", [list, Rows])
def test_numbers_that_a_symbolic_integer_of_torch_has_no_bits_for(kind: type) -> None:
    lists = [kind(rows) for rows in ([1, 2], [3, 4], [-(2**63), 5], [-(2**62) - 1, 5], [-(2**62), 5], [-(2**63), 6], [2**63 - 1, 1])]
    for fn in (lambda rows: torch.tensor(rows), lambda rows: torch.arange(40)[rows], lambda rows: torch.zeros(2) + (rows[0] - 1)):
        check(fn, *[(rows,) for rows in lists], must_compile=False)


OF_LISTS = {
    "index": lambda n: torch.arange(40)[[n, 0.5]],
    "rows": lambda n: torch.ones(40, 40)[[n, 0.5], 1],
    "assigned": lambda n: torch.arange(9).__setitem__([n, 0.5], 1),
    "new": lambda n: torch.ones(2, dtype=torch.float64).new([n, 0.5]),
    "legacy": lambda n: torch.Tensor([[n, 0.5]]),
    "asarray": lambda n: torch.asarray([n, 0.5], dtype=torch.float64),
}


@pytest.mark.parametrize("use", OF_LISTS)
def test_large_integers_in_lists_that_pytorch_reads(use: str) -> None:
    """It takes 32 bits of a symbolic integer there."""
    check(OF_LISTS[use], *[(n,) for n in (1, 2, 2**53 + 1, 2**32 + 3, 2**31, -(2**31) - 1, 2**62, 3)], must_compile=False)


def test_arrays_of_integers_beyond_63_bits() -> None:
    """Their dtype is `ulonglong`, which equals `uint64` and is another one to PyTorch."""
    def program(rows: list) -> Any:
        a = np.array(rows) * 1
        return a.dtype.char, torch.from_numpy(a)

    check(program, *[(rows,) for rows in ([1, 2], [2**63, 2**63 + 1], [3, 4], [True, 2**63], [2**63, 2**63])], must_compile=False)
    check(lambda x: torch.from_numpy(x.numpy().astype("Q")), *[(torch.arange(n),) for n in (2, 3)], must_compile=False)
    check(lambda x: x.numpy().astype(np.longlong).dtype.char, *[(torch.arange(n),) for n in (2, 3)], must_compile=False)
