"""`torch.autograd.Function` of wrappers (`TwoTensor`): of what they take, keep and give, one graph forward and backward."""

from __future__ import annotations

import pytest
import torch
from torch.testing._internal.two_tensor import TwoTensor

import pliant
from tests.helpers import compiled, own_backend


class Kept(torch.autograd.Function):
    @staticmethod
    def forward(ctx, t, k):
        ctx.save_for_backward(t)
        ctx.whole, ctx.k = t, k
        return t * k

    @staticmethod
    def backward(ctx, g):
        (t,) = ctx.saved_tensors
        return g * t.sin() * ctx.whole * ctx.k, None


class Several(torch.autograd.Function):
    @staticmethod
    def forward(ctx, t, u):
        positive = t > 0
        ctx.mark_non_differentiable(positive)
        ctx.save_for_backward(t, u)
        return t * u, t + u, positive

    @staticmethod
    def backward(ctx, g, h, _):
        t, u = ctx.saved_tensors
        return g * u + h, g * t + h


class GivenBack(torch.autograd.Function):
    @staticmethod
    def forward(ctx, t):
        return t

    @staticmethod
    def backward(ctx, g):
        return g * 3


class Made(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return TwoTensor(x.clone(), x * 2)

    @staticmethod
    def backward(ctx, g):
        return g.a + g.b


def around(t):
    class Around(torch.autograd.Function):
        @staticmethod
        def forward(ctx, u):
            return u * 2

        @staticmethod
        def backward(ctx, g):
            return g * t.cos()

    return Around.apply(t)


OF_WRAPPERS = {
    "kept": lambda t: Kept.apply(t, 3.0),
    "several": lambda t: sum(Several.apply(t, t * 2)[:2]),
    "given back": lambda t: GivenBack.apply(t) * 2,
    "around": around,
    "twice": lambda t: Kept.apply(Kept.apply(t, 2.0).exp(), 0.5),
}
OF_PLAIN = {"made": Made.apply, "made inside": lambda x: (Made.apply(x * 2) * 3).sum()}


def outcome(fn, n, whole, close):
    a, b = (torch.rand(n, 3, generator=torch.Generator().manual_seed(n + k)) for k in range(2))
    x = (TwoTensor(a, b) if whole else a).requires_grad_()
    out = fn(x)
    out.sum().backward()
    parts = [p for v in (out, x.grad) for p in ((v.a, v.b) if type(v) is TwoTensor else (v,))]
    return type(out), type(x.grad), [close(p.detach().flatten().tolist()) for p in parts]


def near(v):
    return pytest.approx(v, rel=1e-4)


@pytest.mark.parametrize("name", [*OF_WRAPPERS, *OF_PLAIN])
def test_functions(name):
    f, whole = {**OF_WRAPPERS, **OF_PLAIN}[name], name in OF_WRAPPERS
    c = compiled(f)
    for n in (3, 5, 2, 7):
        assert outcome(c, n, whole, list) == outcome(f, n, whole, near)
    if own_backend():
        assert (pliant.stats()["captures"], pliant.stats()["graph_breaks"]) == (1, 0)
