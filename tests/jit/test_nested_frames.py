"""Frames below a graph break are compiled as regions of their own, where that is worth something."""

from __future__ import annotations

import contextvars
import functools
import os
import random

import pytest
import torch

import pliant
from pliant import events, native
from tests.helpers import compiled


def captured() -> list[str]:
    return [e.fields["name"].rpartition(".")[2] for e in events.events("capture_start")]


@pytest.fixture(autouse=True)
def fresh():
    pliant.reset()
    yield
    pliant.reset()


def tail_of(x):
    """Computes, and breaks the graph half way."""
    y = (x * 2).sin()
    pliant.graph_break()
    return float(y.sum())


def test_functions_that_c_code_calls():
    def program(xs):
        first, *_ = sorted(xs, key=tail_of)
        return functools.reduce(lambda a, x: a + tail_of(x), xs, 0.0), first * 2, max(xs, key=tail_of)

    fn = compiled(program)
    for n in (3, 5, 4):
        xs = [torch.arange(float(n)) + i for i in range(3)]
        want, got = program(xs), fn(xs)
        assert got[0] == pytest.approx(want[0], rel=1e-5, abs=1e-6) and torch.equal(want[1], got[1]) and want[2] is got[2]
    assert captured().count("tail_of") == 1


def test_callbacks_of_excluded_python_code(monkeypatch):
    def shuffled(xs):
        random.shuffle(xs)
        return [tail_of(x) for x in xs]

    def program(xs):
        picked = random.sample(xs, 2)  # a function of the standard library that the table excludes
        return sum(map(tail_of, picked)), shuffled(xs)

    random.seed(3)
    want = program([torch.arange(4.0) + i for i in range(3)])
    random.seed(3)
    total, each = compiled(program)([torch.arange(4.0) + i for i in range(3)])
    assert [total, *each] == pytest.approx([want[0], *want[1]], rel=1e-5, abs=1e-6)


def test_items_that_a_loader_makes():
    class Items(torch.utils.data.Dataset):
        def __len__(self):
            return 6

        def __getitem__(self, i):
            return self.transform(torch.full((4,), float(i)))

        def transform(self, x):
            return (x * 2).cos()

    loader = torch.utils.data.DataLoader(Items(), batch_size=2)

    def epoch(loader):
        total = torch.zeros(())
        for batch in loader:
            total = total + batch.sum()
        return total

    fn = compiled(epoch)
    for _ in range(2):
        assert torch.allclose(fn(loader), epoch(loader), atol=1e-6)
    assert "transform" in captured()


def test_what_the_user_disabled_stays_off():
    def inner(x):
        return x * 2 + 1

    @pliant.disable
    def off(f, x):
        return f(x)

    @pliant.skip
    def skipped(f, x):
        return f(x)

    fn = compiled(lambda x: off(inner, x) + skipped(inner, x))
    for n in (3, 4):
        assert torch.equal(fn(torch.ones(n)), torch.full((n,), 6.0))
    assert "inner" not in captured() and native.get_mode() == native.OFF


def test_code_without_tensors_or_operations_is_let_be():
    def plain(n):
        return -n

    def looks(x):
        return len(x.shape)

    def program(x, xs):
        order = sorted(xs, key=lambda n: plain(n) + len(os.urandom(1)))
        return x + order[0], contextvars.copy_context().run(looks, x)

    fn = compiled(program)
    for n in (3, 4, 5):
        got, dims = fn(torch.ones(n), [1, 5, 2])
        assert torch.equal(got, torch.full((n,), 6.0)) and dims == 1
    assert native.get_flags(plain.__code__) & native.PASS and not native.entries(plain.__code__)
    assert native.get_flags(looks.__code__) & native.PASS and not native.entries(looks.__code__)
    assert compiled(plain)(3) == -3  # passed over by the hook only


def test_exceptions_and_frames_pass_through():
    import sys

    seen = []

    def key(x):
        seen.append(sys._getframe(1).f_code.co_name)
        pliant.graph_break()
        if x.sum() > 2:
            raise ValueError("too large")
        return float(x.sum())

    fn = compiled(lambda xs: sorted(xs, key=key))
    assert len(fn([torch.ones(1), torch.zeros(1)])) == 2
    with pytest.raises(ValueError, match="too large"):
        fn([torch.ones(1), torch.ones(3)])
    assert set(seen) == {"<lambda>"} and native.get_mode() == native.OFF


def test_an_exception_that_cpython_does_not_raise_is_internal(monkeypatch):
    from pliant.interpret import lookasides

    def program(x):
        calls.append(1)
        return x * math_like(x.shape[0])

    def math_like(n):
        return n + 1

    def broken(args, kw):
        raise TypeError("pliant's own mistake")

    calls: list[int] = []
    monkeypatch.setitem(lookasides.LOOKASIDES, math_like, broken)
    fn = pliant.compile(program, strict=False)
    with pytest.warns(RuntimeWarning, match="pliant's own mistake"):
        assert torch.equal(fn(torch.ones(3)), torch.full((3,), 4.0))
    assert len(calls) == 1 and pliant.stats()["fallbacks"] == 1 and pliant.stats()["user_errors"] == 0
    with pytest.raises(pliant.errors.InternalError, match="CPython raised nothing") as error:
        compiled(program)(torch.ones(3))
    assert isinstance(error.value.__cause__, TypeError) and len(calls) == 2


def test_the_programs_own_exceptions_are_counted():
    def program(x):
        if x.shape[0] > 3:
            raise KeyError("mine")
        return x + 1

    fn = compiled(program)
    for _ in range(3):
        with pytest.raises(KeyError, match="mine"):
            fn(torch.ones(4))
    assert pliant.stats()["user_errors"] >= 1 and pliant.stats()["fallbacks"] == 0
    assert torch.equal(fn(torch.ones(3)), torch.full((3,), 2.0))
