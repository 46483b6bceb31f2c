"""Derivatives of products up to each element, and of grids, for sizes that change."""

from __future__ import annotations

import pytest
import torch

from tests.helpers import check, compiled

F = torch.nn.functional


def rows(n, m, *zeros):
    x = (torch.arange(n * m * 1.0) * 7).sin().view(n, m) + 0.3
    for place in zeros:
        x[place] = 0.0
    return x.requires_grad_()


SETS = [
    (rows(4, 5),),
    (rows(6, 4, (1, 2)),),
    (rows(5, 7, (0, 0), (2, 3), (2, 5), (3, 3)),),
    (rows(8, 6, (7, 5)),),
    (rows(3, 9, (0, 1), (0, 2), (1, 1)),),
]


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_products_up_to_each_element(dim):
    check(lambda x: x.cumprod(dim) * 2, *SETS, grad=True, captures=(1, 2))
    check(lambda x: torch.cumprod(x * 2, dim=dim), *SETS, grad=True, captures=(1, 2))


def test_differentiated_twice():
    def program(x):
        (g,) = torch.autograd.grad(x.cumprod(1).sin().sum(), x, create_graph=True)
        return (g * torch.linspace(1, 2, g.numel()).view(g.shape)).sum()

    check(program, *SETS, grad=True)
    y = SETS[2][0].detach().clone()

    def outside(fn):
        for _ in range(4):
            x = y.clone().requires_grad_()
            (g,) = torch.autograd.grad(fn(x).sum(), x, create_graph=True)
            (h,) = torch.autograd.grad((g * torch.linspace(1, 2, g.numel()).view(g.shape)).sum(), x)
        return h

    fn = lambda x: x.cumprod(0) * 2  # noqa: E731
    assert torch.allclose(outside(fn), outside(compiled(fn)), atol=1e-5)


def test_light_that_comes_through():
    """The weights of a ray (NeRF)."""

    def weights(density):
        alpha = 1 - (-density.relu()).exp()
        through = torch.cumprod(torch.cat([torch.ones_like(alpha[:, :1]), 1 - alpha + 1e-6], 1), 1)[:, :-1]
        return alpha * through

    check(weights, *SETS, grad=True, captures=(1, 2))


@pytest.mark.parametrize("aligned", [True, False])
def test_grids(aligned):
    def transformed(theta, x):
        return F.grid_sample(x, F.affine_grid(theta, x.shape, align_corners=aligned), align_corners=aligned)

    sets = [(rows(2, 6).detach().view(2, 2, 3).requires_grad_(), rows(6 * n, n + 1).detach().view(2, 3, n, n + 1)) for n in (3, 5, 4, 7)]
    check(transformed, *sets, grad=True, captures=(1, 2))
    solid = [(rows(2, 12).detach().view(2, 3, 4).requires_grad_(), [2, 1, n, 3, n + 1]) for n in (3, 5, 4)]
    check(lambda theta, size: F.affine_grid(theta, size, align_corners=aligned), *solid, grad=True, captures=(1, 2))
