"""Forward derivatives in levels of the program's own (`torch.autograd.forward_ad.dual_level`): tangents that C++ alone knows of, and graphs
that would end inside of a level."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.autograd import forward_ad
from torch.func import jvp

import pliant
from tests.helpers import compiled

torch.manual_seed(0)
LAYERS = nn.Sequential(*[nn.Sequential(nn.Linear(3, 3), nn.Tanh()) for _ in range(4)]).requires_grad_(False)
SEEN: list = []


@pliant.disable
def opaque(t):
    SEEN.append(tuple(t.shape))
    return t * 2


def on_data(d):
    return d * 2 if d.sum() > 3 else d * 3


USES = {
    "product": lambda d: d.sin() * d,
    "sum": lambda d: d + d,
    "number": lambda d: (d + 1) / 2 - d,
    "reshape": lambda d: d.reshape(-1),
    "linear": lambda d: nn.functional.linear(d, torch.ones(2, 3), torch.ones(2)),
    "normed": lambda d: nn.functional.layer_norm(d, (3,)),
    "gelu": lambda d: nn.functional.gelu(d),
    "layers": lambda d: LAYERS(d),
    "layers after others": lambda d: LAYERS(torch.ones(2, 3)) + LAYERS(d),
    "a break": lambda d: opaque(d) * d,
    "on data": on_data,
}


@pytest.mark.parametrize("name", USES)
def test_tangents(name):
    def fn(x, y):
        with forward_ad.dual_level():
            return forward_ad.unpack_dual(USES[name](forward_ad.make_dual(x, y)))

    c = compiled(fn)
    for i in range(3):
        x, y = torch.rand(2, 3) + i, torch.rand(2, 3)
        for eager, ours in zip(fn(x, y), c(x, y), strict=True):
            torch.testing.assert_close(ours, eager)
        assert forward_ad._current_level == -1


def test_a_level_that_a_call_leaves_open():
    def fn(x, y):
        forward_ad.enter_dual_level()
        return forward_ad.make_dual(x, y) * 2

    c = compiled(fn)
    for _ in range(2):
        x, y = torch.rand(2, 3), torch.rand(2, 3)
        try:
            torch.testing.assert_close(forward_ad.unpack_dual(c(x, y)).tangent, y * 2)
        finally:
            forward_ad.exit_dual_level()


def test_a_level_that_an_exception_leaves():
    def fn(x, y):
        try:
            with forward_ad.dual_level():
                raise KeyError
        except KeyError:
            with forward_ad.dual_level():
                return forward_ad.unpack_dual(forward_ad.make_dual(x, y) ** 2).tangent

    c = compiled(fn)
    for _ in range(2):
        x, y = torch.rand(2, 3), torch.rand(2, 3)
        torch.testing.assert_close(c(x, y), 2 * x * y)


@pytest.mark.parametrize("first", [True, False])
def test_primals_that_begin_elsewhere_in_their_memory(first):
    """What tangents are written to is laid out as the primal is, from its first place on."""

    def fn(x, y):
        return jvp(lambda a: jvp(torch.sin, (a,), (y,))[1], (x,), (y,))

    c = compiled(fn)
    for n in (2, 5):
        x, y = torch.rand(3 * n + 1)[1:].view(n, 3), torch.rand(n, 3)
        given = (x, y) if first else (y, x)
        for eager, ours in zip(fn(*given), c(*given), strict=True):
            torch.testing.assert_close(ours, eager)
