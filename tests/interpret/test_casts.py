"""Casts of weights that autocast keeps, and what of the trace is taken back beside them."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.helpers import compiled, pliant


def in_steps(cell, x):
    h = cell(x)
    for _ in range(3):
        h = cell(x, h)
    return h[0] if isinstance(h, tuple) else h


def differentiated(f, x, cell):
    x = x.clone().requires_grad_()
    cell.zero_grad()
    out = f(x)
    (out.float() * torch.linspace(0.5, 1.5, out.numel()).reshape(out.shape)).sum().backward()
    return [out.detach(), x.grad, *(p.grad.clone() for p in cell.parameters())]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("cls", [nn.LSTMCell, nn.GRUCell, nn.RNNCell])
@pytest.mark.parametrize("around", [True, False])
def test_weights_are_cast_once(cls, dtype, around):
    """What C++ refuses on symbolic sizes is tried in another way: the casts of the weights, of which autocast makes one each, stay."""
    torch.manual_seed(0)
    cell = cls(8, 8)

    def program(x):
        if around:
            return in_steps(cell, x)
        with torch.autocast("cpu", dtype=dtype):
            return in_steps(cell, x)

    c = compiled(program, backend="aten")
    for n in (5, 3):
        x = torch.randn(n, 8)
        with torch.autocast("cpu", dtype=dtype, enabled=around):
            want, got = (differentiated(f, x, cell) for f in (program, c))
        torch.testing.assert_close(got, want, rtol=0, atol=0)


def test_casts_of_a_side_of_a_branch():
    """Of a side that was tried and taken back nothing may be left in autocast's keeping."""
    torch.manual_seed(0)
    layer = nn.Linear(4, 4)

    def program(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = torch.cond(x.sum() > 0, lambda x: F.linear(x, layer.weight), lambda x: F.linear(x, layer.weight) * 2, (x,))
            return layer(y)

    def plain(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = F.linear(x, layer.weight)
            return layer(y if x.sum() > 0 else y * 2)

    c = compiled(program, backend="aten")
    for sign in (1, -1):
        x = torch.rand(3, 4) * sign
        want, got = (differentiated(f, x, layer) for f in (plain, c))  # PyTorch's `cond` loses gradients of the weight there
        torch.testing.assert_close(got, want, rtol=1e-2, atol=1e-2)


@torch.library.custom_op("tests_casts::product", mutates_args=())
def product(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return (x @ w).float() + torch.is_autocast_enabled("cpu")


@product.register_fake
def _(x, w):
    return x.new_empty(x.shape[0], w.shape[1], dtype=torch.float32)


@torch.library.custom_op("tests_casts::told", mutates_args=())
def told(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return x @ w


@told.register_fake
def _(x, w):
    return x.new_empty(x.shape[0], w.shape[1])


told.register_autocast("cpu", torch.bfloat16)

layer = torch.nn.TransformerEncoderLayer(4, 2, 8, batch_first=True).eval()


@torch.no_grad()
def transformed(x):
    """By the operator that does all of a layer."""
    return layer(x[None])


INSIDE = {
    "operators of others": (lambda x: product(x, x.T), True),
    "operators that say what autocast is to do": (lambda x: told(x, x.T), False),
    "pinv": (torch.linalg.pinv, True),
    "bilinear": (lambda x: F.bilinear(x, x, torch.linspace(-1, 1, 2 * x.shape[1] ** 2).reshape(2, x.shape[1], x.shape[1])), True),
    "grids": (lambda x: F.affine_grid(x[None, :2, :3], (1, 1, 2, 3)), True),
    "grids in three dims": (lambda x: F.affine_grid(x[None, :3, :4], (1, 1, 2, 3, 2)), True),
    "layers of transformers": (lambda x: transformed(x), True),
    "inv": (lambda x: torch.linalg.inv(x @ x.T + torch.eye(x.shape[0])), False),
}


@pytest.mark.parametrize("name", INSIDE)
def test_operators_that_obey_autocast_inside(name):
    fn, breaks = INSIDE[name]

    def program(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return fn(x) * 2

    c = compiled(program, backend="aten")
    before = pliant.stats()["graph_breaks"]
    for n in (3, 4):
        x = torch.linspace(-1, 1, n * 4).sin().reshape(n, 4)
        torch.testing.assert_close(c(x), program(x), rtol=0, atol=0)
    assert (pliant.stats()["graph_breaks"] > before) is breaks
    plain = compiled(lambda x: fn(x) * 2, backend="aten")
    before = pliant.stats()["graph_breaks"]
    torch.testing.assert_close(plain(x), fn(x) * 2)
    assert pliant.stats()["graph_breaks"] == before
