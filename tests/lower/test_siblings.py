"""Kernels that read the same memory: joined wherever they stand, without looking at all pairs."""

from __future__ import annotations

import pytest
import torch

import pliant
from pliant.codegen import native
from pliant.lower.fuse import NEAR, Fuser


@pytest.fixture
def looked(monkeypatch) -> list:
    """The pairs that were looked at."""
    seen: list = []
    try_join_sibling = Fuser.try_join_sibling
    monkeypatch.setattr(Fuser, "try_join_sibling", lambda self, *pair: (seen.append(pair), try_join_sibling(self, *pair))[1])
    return seen


def test_the_work_grows_with_the_number_of_readers(looked):
    """A long sum whose terms are all computed from `x` again."""

    def chain(count: int):
        def fn(x):
            y = x
            for k in range(count):
                y = y + k
            return y

        return fn

    counts = []
    for n in (40, 80, 160):
        looked.clear()
        x = torch.ones(3)
        assert torch.equal(pliant.compile(chain(n), backend="native", strict=True)(x), chain(n)(x))
        counts.append(len(looked))
        pliant.reset()
    assert counts[1] < 3 * counts[0] and counts[2] < 3 * counts[1], counts


def test_readers_far_apart_are_one_kernel(monkeypatch):
    made: list = []
    compile_all = native.compile_all
    monkeypatch.setattr(native, "compile_all", lambda launches, *more: (made.extend(launches), compile_all(launches, *more)))
    count = NEAR + 6

    def fn(x):
        return [torch.sqrt(x * (k + 2)) for k in range(count)]

    x = torch.rand(7, 5)
    torch.testing.assert_close(pliant.compile(fn, backend="native", strict=True)(x), fn(x))
    assert len(made) == 1 and len(made[0].kernel.stores) == count


@pytest.mark.parametrize("rounds", [5, 7, 9])
def test_a_kernel_that_reaches_over_others_makes_no_cycle(rounds):
    def fn(x, y):
        z = x * 0.5
        for _ in range(rounds):
            x, y = y, x
            x = x - x.sum() * 0.1
            y = (z + y[0]) / 2
        return x, y, (z > 0.1).sum()

    args = torch.rand(5), torch.rand(5)
    for got, want in zip(pliant.compile(fn, backend="native", strict=True)(*args), fn(*args), strict=True):
        torch.testing.assert_close(got, want)


def scalars(x, table, places):
    for k, at in enumerate(places):
        after = table[places[k + 1]] if k + 1 < len(places) else torch.ones(())
        x = x * table[at] + ((1 - after) / (1 - table[at])).sqrt() * torch.rand_like(x)
    return x


def columns(x, table, places):
    for at in places:
        x = x + (table[: int(at)] * 2).sum() * torch.rand_like(x)
    return x


@pytest.mark.parametrize("fn", [scalars, columns], ids=lambda f: f.__name__)
def test_a_kernel_waits_for_the_numbers_that_place_its_operands(fn):
    """Readers of one table at places that are read one after the other, with random numbers between them."""
    table, places = torch.linspace(0.9, 0.1, 20), torch.tensor([3, 7, 12])
    compiled = pliant.compile(fn, backend="native", strict=True)
    for n in (2, 3, 5):
        x = torch.rand(n, 4)
        torch.manual_seed(0)
        want = fn(x, table, places)
        torch.manual_seed(0)
        torch.testing.assert_close(compiled(x, table, places), want)
