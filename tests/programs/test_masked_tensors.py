"""PyTorch's masked tensors, made inside and outside: PyTorch's code for them is interpreted, in one graph where no gradients are."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch.masked import MaskedTensor, masked_tensor

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
