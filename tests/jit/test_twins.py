"""A function that is compiled in two ways has a twin for the second, which does what the function does, whatever becomes of that."""

from __future__ import annotations

import types

import pytest
import torch

import pliant

X = torch.arange(3.0)


def made():
    """A function of the test's own, and another one that does something else."""

    def f(x, k=2, *, j=1):
        return x * 2 + k + j

    def g(x, k=5, *, j=7):
        return x * 3 - k + j

    return types.FunctionType(f.__code__.replace(), f.__globals__, "f", (2,), None), g, f


WAYS = [
    {"backend": "aten"}, {"backend": "native"}, {"backend": "eager"}, {"backend": "aten", "verify": 1.0},
    {"backend": "aten", "dynamic": False},
]  # fmt: skip


@pytest.mark.parametrize("calls_before", [0, 1, 3])
def test_a_twin_follows_code_and_defaults(calls_before):
    f, g, f0 = made()
    f.__kwdefaults__ = {"j": 1}
    own = f.__code__
    compiled = [pliant.compile(f, strict=True, **way) for way in WAYS]
    changes = [
        lambda: setattr(f, "__code__", g.__code__), lambda: setattr(f, "__code__", own), lambda: setattr(f, "__defaults__", (9,)),
        lambda: setattr(f, "__kwdefaults__", {"j": 3}), lambda: f.__kwdefaults__.__setitem__("j", 4),
        lambda: setattr(f, "__code__", g.__code__.replace()), lambda: setattr(f, "__defaults__", (1,)),
    ]  # fmt: skip
    for change in [lambda: None, *changes]:
        for c in compiled[: None if calls_before else 1]:
            for _ in range(calls_before):
                assert torch.equal(c(X), f(X))
        change()
        for c in compiled:
            for _ in range(2):
                assert torch.equal(c(X), f(X))
        for c in compiled:
            assert c.__wrapped__ is f and c.__code__ is f.__code__ and c.__defaults__ is f.__defaults__


def test_code_that_comes_back_is_not_captured_again():
    f, g, _ = made()
    own, f.__kwdefaults__ = f.__code__, {"j": 1}
    _, twin = pliant.compile(f, backend="native", strict=True), pliant.compile(f, backend="aten", strict=True)
    for code in (own, g.__code__):
        f.__code__ = code
        twin(X)
    before = pliant.stats()["captures"]
    for code in (own, g.__code__, own):
        f.__code__ = code
        assert torch.equal(twin(X), f(X))
    assert pliant.stats()["captures"] == before


def test_a_twin_compiled_in_a_third_way_is_one_of_the_function():
    f, g, _ = made()
    f.__kwdefaults__ = {"j": 1}
    first = pliant.compile(f, backend="aten", strict=True)
    second = pliant.compile(f, backend="eager", strict=True)
    third = pliant.compile(second, backend="native", strict=True)
    for fn in (first, second, third):
        assert torch.equal(fn(X), f(X))
    assert pliant.stats()["captures"] == 3, "none of the three runs what another one captured"
    assert third.__wrapped__ is f and repr(second) == f"<compiled {f!r}>"
    f.__code__ = g.__code__
    for fn in (first, second, third):
        assert torch.equal(fn(X), f(X))


def test_a_twin_inside_of_what_is_compiled():
    f, g, _ = made()
    f.__kwdefaults__ = {"j": 1}
    pliant.compile(f, backend="native", strict=True)
    twin = pliant.compile(f, backend="aten", strict=True)
    outer = pliant.compile(lambda x: twin(x) + 1, backend="aten", strict=True)
    assert torch.equal(outer(X), f(X) + 1)
    f.__code__ = g.__code__
    assert torch.equal(outer(X), f(X) + 1)
    f.__defaults__ = (11,)
    assert torch.equal(outer(X), f(X) + 1)
