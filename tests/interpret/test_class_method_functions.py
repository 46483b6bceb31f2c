"""`torch.autograd.Function`s whose `forward` and `backward` are class methods: PyTorch asks the class for them, whatever they are."""

from __future__ import annotations

import pytest
import torch

import pliant
from tests import helpers


class Scaled(torch.autograd.Function):
    scale = 3

    @classmethod
    def forward(cls, ctx, x, k):
        ctx.k = k
        y = x * k * cls.scale
        ctx.save_for_backward(y)
        return y

    @classmethod
    def backward(cls, ctx, g):
        (y,) = ctx.saved_tensors
        return g * ctx.k * cls.scale + y, None


class More(Scaled):
    scale = 5


@pytest.fixture
def scale_put_back():
    yield
    Scaled.scale = 3


def test_class_methods(scale_put_back):
    def fn(x, k, function):
        return function.apply(x, k).sin().sum()

    compiled = helpers.compiled(fn)
    for n, k, function, scale in ((3, 2.0, Scaled, 3), (4, 2.0, More, 3), (5, 3.0, Scaled, 3), (6, 4.0, More, 3), (5, 3.0, Scaled, 7)):
        Scaled.scale = scale
        x = torch.randn(n, requires_grad=True)
        got, want = compiled(x, k, function), fn(x, k, function)
        torch.testing.assert_close(got, want)
        torch.testing.assert_close(torch.autograd.grad(got, x), torch.autograd.grad(want, x))
    assert pliant.stats()["graph_breaks"] == 0
