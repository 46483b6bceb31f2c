"""PyTorch's masked tensors, made inside and outside: PyTorch's code for them is interpreted, in one graph, forward and backward."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch.masked import MaskedTensor, as_masked_tensor, masked_tensor

import pliant
from tests.helpers import compiled, own_backend

SIZES = (3, 5, 2, 7)


def made(n):
    g = torch.Generator().manual_seed(n)
    return torch.randn(n, 4, generator=g), torch.rand(n, 4, generator=g) > 0.4


def shown(value, close=lambda v: pytest.approx(v, rel=1e-5, abs=1e-6)):
    """What can be compared of an answer."""
    if isinstance(value, MaskedTensor):
        data = close(value.get_data().nan_to_num(7).flatten().tolist())
        return "masked", data, value.get_mask().tolist(), value.dtype, value.size(), value.stride()
    if isinstance(value, torch.Tensor):
        return "plain", close(value.nan_to_num(7).float().flatten().tolist()), value.dtype, value.stride()
    return [shown(v, close) for v in value]


INSIDE = {
    "sum": lambda x, m: masked_tensor(x, m).sum(0),
    "mean of all": lambda x, m: masked_tensor(x, m).mean(),
    "amax": lambda x, m: masked_tensor(x, m).amax(0),
    "prod": lambda x, m: masked_tensor(x, m).prod(0),
    "unary": lambda x, m: masked_tensor(x, m).sin() + masked_tensor(x, m).exp(),
    "binary": lambda x, m: masked_tensor(x, m) * masked_tensor(x, m) + 2.0,
    "to tensor": lambda x, m: masked_tensor(x, m).to_tensor(0.0),
    "softmax": lambda x, m: torch.softmax(masked_tensor(x, m), 1),
    "items": lambda x, m: (masked_tensor(x, m)[1:], masked_tensor(x, m)[0]),
    "parts": lambda x, m: (masked_tensor(x, m).get_data() + 1, masked_tensor(x, m).get_mask()),
    "transposed": lambda x, m: masked_tensor(x, m).t(),
    "pieces": lambda x, m: (*masked_tensor(x, m).split(2, 1), *masked_tensor(x, m).chunk(2, 1), *torch.split(masked_tensor(x, m), 2, 1)),
}
OUTSIDE = {
    "binary": lambda t: t * 2 + t,
    "sum": lambda t: t.sum(1).to_tensor(0.0),
    "part": lambda t: t.get_mask().sum() + t.size(0),
    "given back": lambda t: (t, t.cos()),
    "chosen": lambda t: torch.where(t.get_data() > 0, t, t * 2),
}


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.mark.parametrize("name", INSIDE)
def test_made_inside(name):
    f = INSIDE[name]
    c = compiled(f)
    for n in SIZES:
        assert shown(c(*made(n)), list) == shown(f(*made(n)))
    if own_backend():
        assert (pliant.stats()["captures"], pliant.stats()["graph_breaks"]) == (1, 0)


@pytest.mark.parametrize("name", OUTSIDE)
def test_made_outside(name):
    f = OUTSIDE[name]
    c = compiled(f)
    for n in SIZES:
        assert shown([c(masked_tensor(*made(n)))], list) == shown([f(masked_tensor(*made(n)))])
    if own_backend():
        assert (pliant.stats()["captures"], pliant.stats()["graph_breaks"]) == (1, 0)


def test_masks_that_do_not_match():
    """An error of eager's, on data."""

    def f(a, b):
        return (a + b).to_tensor(0.0)

    c = compiled(f)
    for n in (3, 5, 2):
        a, b = masked_tensor(*made(n)), masked_tensor(made(n)[0], ~made(n)[1])
        assert torch.equal(c(a, a), f(a, a))
        for fn in (f, c):
            with pytest.raises(ValueError, match="Input masks must match"):
                fn(a, b)


def test_sparse_ones_are_eagers():
    def f(t):
        return t.sin().to_dense().to_tensor(0.0)

    x = torch.tensor([[0.0, 2.0], [3.0, 0.0]])
    t = masked_tensor(x.to_sparse_coo(), (x != 0).to_sparse_coo())
    c = compiled(f)
    for _ in range(2):
        assert torch.equal(c(t), f(t))


# -- gradients ------------------------------------------------------------------------------------------------------------
OPERATORS = {
    "sin": lambda t: t.sin(),
    "sum": lambda t: t.sum(1),
    "mean of all": lambda t: t.mean(),
    "amax": lambda t: t.amax(0),
    "deviation": lambda t: torch.masked.std(t, 1),
    "softmax": lambda t: torch.softmax(t, 1),
    "two operands": lambda t: (t * t + 1).sqrt() / (t.exp() + 2),
    "with a plain one": lambda t: torch.mul(t, torch.full_like(t.get_data().detach(), 1.5)),
    "views": lambda t: t[:, 1:].t() * 2,
    "joined": lambda t: torch.cat([t, t * 2], 1),
    "joined in rows": lambda t: torch.cat([t, t.exp(), t]) * 2,
    "stacked": lambda t: torch.stack([t.sin(), t], 1),
    "joined side by side": lambda t: torch.hstack([t * 2, t]),
    "data": lambda t: t.get_data() * 2,
    "to tensor": lambda t: (t * 2).to_tensor(0.0).exp(),
}


def loss_of(v):
    return (v.sum().to_tensor(0.0) if isinstance(v, MaskedTensor) else v.sum()) * 2


def from_a_plain_leaf(f, n, *close):
    x, m = made(n)
    x = x.abs().add_(0.1).requires_grad_()
    v = f(x, m)
    loss_of(v).backward()
    return shown([v, x.grad], *close)


def from_a_masked_leaf(f, n, *close):
    x, m = made(n)
    t = masked_tensor(x.abs().add_(0.1), m, requires_grad=True)
    v = f(t)
    loss_of(v).backward()
    return shown([v, t.grad], *close)


@pytest.mark.parametrize("leaf", [from_a_plain_leaf, from_a_masked_leaf])
@pytest.mark.parametrize("name", OPERATORS)
def test_gradients(name, leaf):
    """They are masked themselves, of plain tensors that masked ones are made of, too."""
    op = OPERATORS[name]
    f = (lambda x, m: op(as_masked_tensor(x, m))) if leaf is from_a_plain_leaf else lambda t: op(t)
    c = compiled(f)
    for n in SIZES:
        assert leaf(c, n, list) == leaf(f, n)
    if own_backend():
        assert (pliant.stats()["captures"], pliant.stats()["graph_breaks"]) == (1, 0)


def test_a_plain_input_beside_its_masked_gradient():
    """The input is given back as it is, and has a gradient that is not masked, too, if that is asked for alone."""

    def f(x, m):
        return x, x * 2, as_masked_tensor(x, m).sin().to_tensor(0.0)

    c = compiled(f)
    for n in SIZES:
        for which in ((1,), (2,), (1, 2)):
            grads = []
            for fn in (f, c):
                x, m = made(n)
                x.requires_grad_()
                out = fn(x, m)
                assert out[0] is x
                sum([out[i].sum() for i in which]).backward()
                grads.append(shown(x.grad, *[list] * (fn is f)))
            assert grads[0] == grads[1]


@pytest.mark.parametrize("name", ["tanh", "relu", "sign"])
def test_gradients_that_the_class_does_not_know(name):
    """PyTorch raises in the backward part, or in the forward one: eager's words."""
    f = {"tanh": lambda t: t.tanh(), "relu": lambda t: t.relu(), "sign": lambda t: torch.cat([t, t.sign()])}[name]
    c = compiled(f)
    for n in (3, 5):
        outcomes = []
        for fn in (f, c):
            try:
                outcomes.append(from_a_masked_leaf(fn, n, list))
            except (TypeError, ValueError) as e:
                outcomes.append((type(e), str(e)[:60]))
        assert outcomes[0] == outcomes[1]


def test_a_gradient_with_another_mask():
    """A masked result's gradient has the result's mask in the compiled region; for others it is refused, never wrong."""

    def f(x, m):
        return as_masked_tensor(x, m).sin()

    c = compiled(f)
    for n in (3, 5):
        for fn in (f, c):
            x, m = made(n)
            out = fn(x.requires_grad_(), m)
            with pytest.raises((ValueError, RuntimeError), match="mask"):
                out.backward(masked_tensor(torch.ones(n, 4), ~m))


def test_plain_gradients():
    """Of a masked result: they stay plain where operators leave them so."""
    for f in (lambda x, m: as_masked_tensor(x, m).sin(), lambda x, m: as_masked_tensor(x, m).t()):
        c = compiled(f)
        for n in (3, 5):
            grads = []
            for fn in (f, c):
                x, m = made(n)
                out = fn(x.requires_grad_(), m)
                out.backward(torch.ones(out.size()))
                grads.append(shown(x.grad, *[list] * (fn is f)))
            assert grads[0] == grads[1]


TWICE = {
    "sum": lambda t: (t * t).sum(),
    "sum of rows": lambda t: (t.exp() * t).sum(1),
    "masked": lambda t: t.sin() * t,
    "to tensor": lambda t: (t * t).to_tensor(0.0),
    "two": lambda t: (t * t * t, t.exp().sum()),
}


def second(fn, x, how):
    out = fn(x)
    first = out[0] if isinstance(out, tuple) else out
    if how == "a gradient with a history":
        given = (first.detach() * 0 + 1.5).requires_grad_()
        (g,) = torch.autograd.grad(first, x, given, create_graph=True)
        return g, *torch.autograd.grad((g * g).sum(), (x, given))
    total = sum([y if y.dim() == 0 else y.sum() for y in (out if isinstance(out, tuple) else (out,))])
    (g,) = torch.autograd.grad(total, x, create_graph=True)
    loss = (g * g).sum() if how == "squares" else (g.get_data().sin().sum() if isinstance(g, MaskedTensor) else g.sin().sum())
    return g, *torch.autograd.grad(loss, x)


@pytest.mark.parametrize("how", ("squares", "data", "a gradient with a history"))
@pytest.mark.parametrize("name", TWICE)
def test_second_gradients(name, how):
    """Of a masked leaf, and of a plain one, through `create_graph=True`."""
    if how == "a gradient with a history" and name != "masked":
        pytest.skip("PyTorch does not know what comes of it, or what was kept does not tell: a clear error")
    for masked in (True, False):
        f = TWICE[name] if masked else lambda x: TWICE[name](as_masked_tensor(x, made(x.shape[0])[1]))
        c = compiled(f)
        for n in SIZES:
            found = []
            for fn in (f, c):
                x, m = made(n)
                leaf = masked_tensor(x, m, requires_grad=True) if masked else x.requires_grad_()
                found.append(shown(second(fn, leaf, how), *[list] * (fn is f)))
            assert found[0] == found[1]


def test_second_gradients_that_have_another_mask():
    """The gradient of a masked gradient has its mask in the compiled region; for others it is refused, never wrong."""
    c = compiled(TWICE["sum"])
    for n in (3, 5):
        x, m = made(n)
        leaf = masked_tensor(x, m, requires_grad=True)
        (g,) = torch.autograd.grad(c(leaf), leaf, create_graph=True)
        with pytest.raises((ValueError, RuntimeError), match="mask"):
            torch.autograd.grad(g, leaf, masked_tensor(torch.ones(n, 4), ~m))
