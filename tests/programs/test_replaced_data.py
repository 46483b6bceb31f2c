"""Inputs that are given other data between the forward and the backward part: what eager keeps as a view keeps the memory of then."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import pliant

FUNCTIONS = {
    "linear": lambda x, w, b: F.linear(x, w, b),
    "batched": lambda x, w, b: F.linear(x[None], w, b),
    "mm": lambda x, w, b: x @ w,
    "mul": lambda x, w, b: x * w[:3],
    "directly": lambda x, w, b: (x.sum() * w).sum(0),
    "both ways": lambda x, w, b: (x @ w.t()) + (w * w).sum(),
    "layer_norm": lambda x, w, b: F.layer_norm(x, (4,), b, b),
    "embedding": lambda x, w, b: F.embedding(torch.tensor([0, 1, 1]), w) * b,
    "conv": lambda x, w, b: F.conv1d(x[None].transpose(1, 2), w[:, :, None], b),
    "bmm": lambda x, w, b: torch.bmm(x[None], w[None]),
    "two layers": lambda x, w, b: torch.tanh(F.linear(torch.relu(F.linear(x, w, b)), w, b)),
    "chunks": lambda x, w, b: (lambda p, q: (x @ p) @ q.t())(*w.chunk(2, 1)),
    "power": lambda x, w, b: (x * x + 1) ** b,
    "equal view": lambda x, w, b: x @ w.view_as(w)[:],
}


def of_another_layout(t: torch.Tensor) -> torch.Tensor:
    return (t * 2).t().contiguous().t() if t.dim() == 2 else t * 2


DATA = {
    "values": lambda t: t * 3 + 1,
    "half": lambda t: t.half(),
    "double": lambda t: t.double(),
    "larger": lambda t: torch.ones(*[n + 1 for n in t.shape]),
    "smaller": lambda t: torch.ones(*[1 for _ in t.shape]),
    "layout": of_another_layout,
}


def gradients(f: Callable, new: Callable, which: int, leaves: bool) -> list:
    torch.manual_seed(1)
    made = [torch.randn(3, 4), torch.randn(4, 4), torch.rand(4) + 0.5]
    given = [t.requires_grad_() if leaves else t.requires_grad_() * 1 for t in made]
    y = f(*given)
    given[which].data = new(given[which].data)
    try:
        return list(torch.autograd.grad(y.pow(2).sum(), given, allow_unused=True))
    except RuntimeError as e:
        return [type(e)]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_data_of_inputs(name: str) -> None:
    compiled = pliant.compile(FUNCTIONS[name])
    for leaves in (True, False):
        for which in range(3):
            for kind, new in DATA.items():
                eager, ours = (gradients(f, new, which, leaves) for f in (FUNCTIONS[name], compiled))
                assert len(eager) == len(ours), (which, kind, eager, ours)
                for a, b in zip(eager, ours, strict=True):
                    if isinstance(a, torch.Tensor):
                        assert isinstance(b, torch.Tensor) and a.dtype == b.dtype, (which, kind)
                        assert torch.allclose(a, b, rtol=1e-4, atol=1e-4), (which, kind)
                    else:
                        assert a is b, (which, kind)


class Trained(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


@pytest.mark.parametrize("change", [
    lambda m: setattr(m.layers[0].weight, "data", torch.ones(8, 4)),
    lambda m: nn.utils.vector_to_parameters(torch.arange(76.0), m.parameters()),
    lambda m: [setattr(p, "data", p.data * 0) for p in m.parameters()],
])  # fmt: skip
def test_parameters_of_a_module(change: Callable) -> None:
    found = []
    for compiled in (False, True):
        torch.manual_seed(0)
        m = Trained()
        run = pliant.compile(m) if compiled else m
        for n in (2, 3, 5):
            y = run(torch.ones(n, 4) * n)
            change(m)
            y.sum().backward()
        found.append([p.grad for p in m.parameters()])
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("f", [lambda x, w: torch.sigmoid(x @ w), lambda x, w: x.exp() * w[:3]])
def test_gradients_of_gradients(f: Callable) -> None:
    found = []
    for run in (f, pliant.compile(f)):
        torch.manual_seed(0)
        x, w = torch.randn(3, 4, requires_grad=True), torch.randn(4, 4, requires_grad=True)
        run(x, w).sum().backward()
        y = run(x, w)
        w.data = w.data * 2
        (g,) = torch.autograd.grad(y.sum(), [x], create_graph=True)
        g.sum().backward()
        found.append((g, x.grad, w.grad))
    torch.testing.assert_close(*found)


def test_gradients_of_gradients_where_the_dtype_is_another() -> None:
    """Eager's go to the node of then, which takes another dtype: whoever asks is refused, and never given one of the new dtype."""

    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return x.exp() * w[:3]

    x, w = torch.randn(3, 4, requires_grad=True), torch.randn(4, 4, requires_grad=True)
    y = pliant.compile(f)(x, w)
    w.data = w.data.double()
    (g,) = torch.autograd.grad(y.sum(), [x], create_graph=True)
    assert torch.equal(g, x.exp() * w[:3].float())
    with pytest.raises(RuntimeError, match="given other data"):
        g.sum().backward()


DETACHED = {
    "detach": lambda x, w: w.detach() * x,
    "data": lambda x, w: (w.data * x, w * 2)[0],
    "a view of it": lambda x, w: x @ w.detach().t(),
    "twice": lambda x, w: w.detach().detach() * x,
    "beside itself": lambda x, w: w.detach() * x + w * x.sin(),
}


@pytest.mark.parametrize("name", DETACHED)
@pytest.mark.parametrize("leaf", [False, True])
def test_what_is_detached_keeps_the_memory_of_then(name: str, leaf: bool) -> None:
    fn, told = DETACHED[name], []
    for f in (fn, pliant.compile(fn, background=False)):
        for change in (lambda w: setattr(w, "data", w.data * 1.5), lambda w: w.data.mul_(1.5)):
            for rows in (2, 3):
                x, w = torch.ones(rows, 3, requires_grad=True), torch.full((3 if name == "a view of it" else 1, 3), 2.0, requires_grad=leaf)
                y = f(x, w)
                change(w)
                y.sum().backward()
                told.append((x.grad, w.grad))
    torch.testing.assert_close(told[4:], told[:4])
