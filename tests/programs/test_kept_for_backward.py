"""`autograd.Function`s that are given what only their backward part reads (solvers that know their own gradients), or gradients for what
their forward part has not read: alone, and where the program returns what they come from, too."""

from __future__ import annotations

import pytest
import torch

from tests.helpers import compiled


class Told(torch.autograd.Function):
    """Gives back a value, with these gradients of it."""

    @staticmethod
    def forward(ctx, value, grads, *inputs):
        ctx.grads = grads
        return value

    @staticmethod
    def backward(ctx, g):
        return (None, None, *[k * g for k in ctx.grads])


class ToldCopy(Told):
    @staticmethod
    def forward(ctx, value, grads, *inputs):
        ctx.grads = grads
        return value.clone()


class Saved(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(y)
        ctx.x = x
        return torch.ones(3)

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return y * g.sum(), ctx.x * g.sum()


def of_what_has_gradients(u, p, q):
    return (Told.apply((p * q).sum(), (u - u.mean(),), p),)


def copied(u, p, q):
    return (ToldCopy.apply((p * q).sum(), (u - u.mean(),), p),)


def of_two(u, p, q):
    return (Told.apply((p.detach() * q.detach()).sum(), (u - torch.mean(u), u * 2), p, q),)


def of_an_input(u, p, q):
    return (Told.apply(u, (u - torch.mean(u), u * 2), p, q),)


def kept_in_a_dict(u, p, q):
    log = {"u": u}
    return Told.apply(q.sum().detach(), (log["u"] - torch.mean(log["u"]), u * 2), p, q), log["u"]


def beside_features(u, p, q):
    a = torch.tanh(p * q)
    return Told.apply(a.sum(), (u - u.mean(),), p), a


def through_features(u, p, q):
    a = torch.tanh(p * q)
    z = u - u.mean()
    return Told.apply(a.sum() * 1, (z * 2,), a), a


def one_after_another(u, p, q):
    z = u - u.mean()
    a = Told.apply(p * q, (z,), p)
    return ToldCopy.apply(a.sum(), (z * 2, a.detach() * 3), a, q), a, z


def of_unread_features(u, p, q):
    a = torch.tanh(p * q)
    return Told.apply(u.sum(), (u - u.mean(),), a), a


def kept_of_features(u, p, q):
    a = torch.tanh(p * q)
    z = a.detach() * 2
    return ToldCopy.apply(u.sum(), (z * 3,), a), a, z


def saved_features(u, p, q):
    a = torch.tanh(p * q)
    b = a * u
    return Saved.apply(a, b).sum(), b, a


def saved_of_an_input(u, p, q):
    a = torch.tanh(p * q)
    b = a * u
    return Saved.apply(p, b).sum(), b, a


def outcome(fn, n, gradients):
    torch.manual_seed(n)
    u, p, q = torch.randn(n), *[torch.randn(n).requires_grad_(gradients) for _ in range(2)]
    results = fn(u, p, q)
    heads = [r for r in results[1:] if r.requires_grad]
    found = [r.detach() for r in results]
    if gradients:
        found += torch.autograd.grad(results[0].sum(), heads, allow_unused=True, retain_graph=True) if heads else []
        results[0].sum().backward()
        found += [p.grad, q.grad]
    return found


PROGRAMS = [
    of_what_has_gradients, copied, of_two, of_an_input, kept_in_a_dict, beside_features, through_features, one_after_another,
    of_unread_features, kept_of_features, saved_features, saved_of_an_input,
]  # fmt: skip


@pytest.mark.parametrize("backend", ["native", "aten"])
@pytest.mark.parametrize("fn", PROGRAMS)
def test_gradients(fn, backend):
    run = compiled(fn, backend=backend)
    for n in (3, 4, 5, 3):
        for gradients in (True, False):
            for got, want in zip(outcome(run, n, gradients), outcome(fn, n, gradients), strict=True):
                assert (got is None) == (want is None)
                if want is not None:
                    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


def masked(x, mask, w):
    y = x * 2
    y.register_hook(lambda g: g * mask)
    return (y,)


def masked_by_what_is_made(x, mask, w):
    y = x * 2
    m = w * 3
    y.register_hook(lambda g: g * mask + m)
    return (y.sum(),)


def hooked_features(x, mask, w):
    y = x * 2
    m = w * 3
    y.register_hook(lambda g: g * mask + m)
    return y, y.exp().sum()


def hooked_results(x, mask, w):
    y = x * 2
    z = y.exp()
    m = w * 3
    z.register_hook(lambda g: g * mask + m)
    return y, z.sum(), z


def hook_on_what_was_used(x, mask, w):
    y = x * 2
    z = y * w
    handle = y.register_hook(lambda g: g * mask)
    return y, z.sum(), handle


def saved_masked(x, mask, w):
    h = torch.relu(x)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t * mask, lambda t: t / mask):
        y = h * h
    return y, h


def hooked_input(x, mask, w):
    x.register_hook(lambda g: g * mask)
    return ((x * 2).exp(),)


HOOKED = [masked, masked_by_what_is_made, hooked_features, hooked_results, hook_on_what_was_used, saved_masked, hooked_input]


def gradients(fn, n):
    torch.manual_seed(n)
    x, mask, w = torch.randn(n).requires_grad_(), torch.rand(n) + 1, torch.randn(n)
    results = [r for r in fn(x, mask, w) if isinstance(r, torch.Tensor)]
    found = [r.detach() for r in results]
    if len(results) > 1:
        found += torch.autograd.grad(results[1].sum(), results[:1], retain_graph=True, allow_unused=True)
    torch.stack([r.sum() for r in results]).sum().backward()
    return [*found, x.grad]


@pytest.mark.parametrize("backend", ["native", "aten"])
@pytest.mark.parametrize("fn", HOOKED)
def test_hooks_that_read_what_nothing_else_reads(fn, backend):
    run = compiled(fn, backend=backend)
    for n in (3, 4, 5, 3):
        for got, want in zip(gradients(run, n), gradients(fn, n), strict=True):
            assert (got is None) == (want is None)
            if want is not None:
                torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


# -- what autograd says of checkpoints beyond their derivatives -----------------------------------------------------------------
LAYER, LATER = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)


def dropped(x):
    return torch.nn.functional.dropout(LAYER(x), 0.5)


def through(fn, x, reenters=True):
    return torch.utils.checkpoint.checkpoint(fn, x, use_reentrant=reenters)


OF_SOME = {
    "parameters": lambda x: torch.autograd.grad(through(LAYER, x).sum(), list(LAYER.parameters()), allow_unused=True),
    "input": lambda x: torch.autograd.grad(through(LAYER, x).sum(), x),
    "later": lambda x: torch.autograd.grad(LATER(through(LAYER, x)).sum(), list(LATER.parameters())),
    "backward": lambda x: through(LAYER, x).sum().backward(inputs=[x]),
    "batch": lambda x: torch.autograd.grad(through(dropped, x, False), x, torch.ones(4, *x.shape), is_grads_batched=True),
    "batch without draws": lambda x: torch.autograd.grad(through(LAYER, x, False), x, torch.ones(4, *x.shape), is_grads_batched=True),
}


@pytest.mark.parametrize("name", OF_SOME)
def test_gradients_of_some_inputs_through_checkpoints(name):
    def asked(x):
        try:
            return OF_SOME[name](x)
        except RuntimeError as e:
            return str(e)

    f = compiled(asked)
    for rows in (2, 3, 2):
        want, got = (g(torch.ones(rows, 3, requires_grad=True)) for g in (asked, f))
        assert str(want) == str(got)
