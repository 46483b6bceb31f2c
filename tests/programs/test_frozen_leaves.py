"""Parameters that take no gradients for a while, as adapters do that are disabled: the flag is what the program is told meanwhile."""

from __future__ import annotations

import contextlib
import copy

import pytest
import torch
from torch import nn

from tests.helpers import compiled, pliant


class Adapted(nn.Module):
    def __init__(self):
        super().__init__()
        self.base = nn.Linear(4, 3).requires_grad_(False)
        self.adapter = nn.Sequential(nn.Linear(4, 2, bias=False), nn.Linear(2, 3, bias=False))
        self.on, self.told = True, []

    def forward(self, x):
        y = self.base(x)
        return y + self.adapter(x) if self.on else y

    def flags(self):
        return [p.requires_grad for p in self.parameters()]

    @contextlib.contextmanager
    def disabled(self):
        self.adapter.requires_grad_(False)
        self.on = False
        yield
        self.adapter.requires_grad_(True)
        self.on = True


def preferences(m, x):
    y = m(x)
    with torch.no_grad(), m.disabled():
        z = m(x)
        m.told.append(m.flags())
    (y - z).square().sum().backward()
    return m.flags()


def one_flag(m, x):
    w, y = m.adapter[0].weight, m(x)
    with torch.no_grad():
        w.requires_grad_(False)
        z = m(x)
        w.requires_grad_(True)
    (y * z).sum().backward()
    return y.detach()


def with_gradients_on(m, x):
    y = m(x)
    with torch.no_grad(), m.disabled():
        with torch.enable_grad():
            z = m.adapter(x)
        m.told.append(z.requires_grad)
    (y - z).square().sum().backward()
    return y.detach()


def backward_inside(m, x):
    y = m(x).sum()
    with torch.no_grad(), m.disabled():
        y.backward()
    return y.detach()


def broken_inside(m, x):
    y = m(x)
    with torch.no_grad(), m.disabled():
        z = m(x)
        pliant.graph_break()
        z = z + m(x)
    (y - z).square().sum().backward()
    return y.detach()


def left_off(m, x):
    on = m.adapter[0].weight.requires_grad
    with torch.no_grad():
        m.adapter.requires_grad_(not on)
    return m(x).detach()


def raises_inside(m, x):
    y = m(x)
    try:
        with torch.no_grad(), m.disabled():
            m.base.bias.add_(1)
            y = m(x)[torch.arange(3) + (x[0, 0] > 0).long() * 9]
    except IndexError:
        m.told.append(m.flags())
        m.adapter.requires_grad_(True)
        m.on = True
    return y.detach()


def returns_inside(m, x):
    with torch.no_grad(), m.disabled():
        z = m(x)
        if z.sum() > 0:
            m.told.append(m.flags())
            return z
        z = z * 2
    return z + 1


@pytest.mark.parametrize(
    "program",
    [preferences, one_flag, with_gradients_on, backward_inside, broken_inside, left_off, raises_inside, returns_inside],
    ids=lambda f: f.__name__,
)
def test_flags_for_a_while(program):
    torch.manual_seed(0)
    first = Adapted().double()
    second, run = copy.deepcopy(first), compiled(program)
    for n in range(8):
        torch.manual_seed(n)
        x = torch.randn(3, 4).double()
        found = []
        for fn, m in ((program, first), (run, second)):
            found.append([fn(m, x), *[(p.detach(), p.grad) for p in m.parameters()]])
            assert m.told == first.told and m.flags() == first.flags()
        torch.testing.assert_close(*found)
    if program in (preferences, one_flag):
        assert pliant.stats()["graph_breaks"] == 0


def test_a_parameter_that_is_there_twice():
    def program(w, v, x, told):
        with torch.no_grad():
            w.requires_grad_(False)
            told.append(v.requires_grad)
            w.requires_grad_(True)
        return x @ v

    run, w, v, told = compiled(program), *[nn.Parameter(torch.ones(4, 2)) for _ in range(2)], []
    for other in (v, v, w, v):
        assert torch.equal(run(w, other, torch.ones(3, 4), told), torch.ones(3, 4) @ other)
    assert told == [True, True, False, True]
