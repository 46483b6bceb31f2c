"""Calls of modules: without hooks they are calls of `forward`; with hooks, or with a way of their own, they are interpreted."""

from __future__ import annotations

import gc
import traceback

import pytest
import torch

import pliant
from pliant.graph.trace import Trace


class Picky(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.dim() == 3:
            raise ValueError("three dims")
        return x * 2


class Outer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = Picky(), Picky()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(self.a(x)) + 1


def same(fn, compiled, *args) -> None:
    torch.testing.assert_close(compiled(*args), fn(*args))


def test_a_hook_registered_after_a_capture_runs() -> None:
    m = Outer()
    fn = pliant.compile(m, strict=True)
    x = torch.ones(3)
    same(m, fn, x)
    handle = m.b.register_forward_hook(lambda module, args, out: out + 10)
    same(m, fn, x)
    handle.remove()
    same(m, fn, x)
    m.b._forward_pre_hooks = {}  # another dict, as empty
    same(m, fn, x)
    handle = torch.nn.modules.module.register_module_forward_hook(lambda module, args, out: out - 5)
    same(m, fn, x)
    handle.remove()


def test_a_hook_registered_by_the_program() -> None:
    m = Outer()

    def f(x):
        y = m(x)
        handle = m.a.register_forward_hook(lambda module, args, out: out + 10)
        z = m(x)
        handle.remove()
        return y, z, m(x)

    compiled = pliant.compile(f, strict=True)
    for n in (3, 4):
        for got, expected in zip(compiled(torch.ones(n)), f(torch.ones(n)), strict=True):
            torch.testing.assert_close(got, expected)
    assert not m.a._forward_hooks


def test_hooks_that_modules_come_to_share() -> None:
    m = Outer()

    def f(x):
        m.a._forward_hooks[7] = lambda module, args, out: out + 10
        y = m.b(x)
        del m.a._forward_hooks[7]
        return y

    compiled = pliant.compile(f, strict=True)
    same(f, compiled, torch.ones(3))
    m.b._forward_hooks = m.a._forward_hooks
    same(f, compiled, torch.ones(3))


def test_a_way_of_its_own_is_gone() -> None:
    m = Outer()
    compiled = pliant.compile(lambda x: m(x), strict=True)
    same(m, compiled, torch.ones(3))
    m.b._call_impl = lambda x: x - 1
    same(m, compiled, torch.ones(3))
    del m.b._call_impl
    m.a.forward = lambda x: x * 5
    same(m, compiled, torch.ones(3))


def test_the_traceback_shows_the_frames_of_the_call() -> None:
    m = Outer()

    def f(x):
        try:
            return m(x)
        except ValueError as e:
            return [(s.name, s.lineno) for s in traceback.extract_tb(e.__traceback__)], x + 1

    (got, y), (expected, z) = pliant.compile(f, strict=True)(torch.ones(1, 2, 3)), f(torch.ones(1, 2, 3))
    assert got == expected
    torch.testing.assert_close(y, z)


@pytest.mark.usefixtures("young_heap")
def test_a_capture_leaves_no_trace_to_the_collector() -> None:
    x, i = torch.ones(4, 4), torch.tensor([0, 2])
    for _ in range(2):  # what the first one ever loads may hold on to it
        gc.collect()
        gc.disable()
        try:
            before = sum(type(o) is Trace for o in gc.get_objects())
            pliant.compile(lambda x, i: torch.cummax(x, 0)[0][i, i], strict=True)(x, i)  # PyTorch's own shape functions
            left = sum(type(o) is Trace for o in gc.get_objects()) - before
        finally:
            gc.enable()
    assert left == 0


@pytest.mark.parametrize("name", ["double", "float", "half"])
def test_a_conversion_changes_gradients_that_are_of_another_dtype(name) -> None:
    """What a `backward()` has left for parameters that were given data of another dtype since: the parameters are as they shall be."""
    dtype = {"double": torch.float64, "float": torch.float32, "half": torch.float16}[name]

    def f(m, x):
        return getattr(m, name)(), x + 1

    fn = pliant.compile(f, backend="aten", strict=True)
    for _ in range(3):
        m = torch.nn.Linear(2, 2).bfloat16()
        m(torch.ones(1, 2, dtype=torch.bfloat16)).sum().backward()
        for p in m.parameters():
            p.data = p.data.to(dtype)
        assert m.weight.grad.dtype is torch.bfloat16
        assert fn(m, torch.ones(1))[0] is m
        assert [(p.dtype, p.grad.dtype) for p in m.parameters()] == [(dtype, dtype)] * 2
