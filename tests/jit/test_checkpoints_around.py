"""Checkpoints that are set around compiled functions: these stay compiled, and save as many tensors in both runs, whatever entry is due."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils import checkpoint as checkpoints
from torch.utils.checkpoint import checkpoint

import pliant


def layer(x, w):
    return torch.tanh(x @ w).sin() * x


def dropped(x, w):
    return nn.functional.dropout(layer(x, w), 0.5) + x


def on_sizes(x, w):
    if x.shape[0] > 3:
        x = x * 2
    return layer(x, w)


def saves_nothing(x, w):
    return x + w.sum()


def alone(c):
    return c


def twice_between(c):
    def run(x, w):
        CALLS.append(1)
        y = c(x * 2, w).cos()
        return c(y, w).sin() + y

    return run


def nested(c):
    return lambda x, w: checkpoint(c, c(x, w), w, use_reentrant=False)


CALLS: list[int] = []


def calls_of(fn, around, differentiate, **how):
    """Results, gradients, random numbers behind, and how often the function ran, for several sizes."""
    found = []
    for n in (2, 3, 5, 2, 0, 1):
        x = torch.linspace(-1, 1, 4 * n).double().reshape(n, 4).requires_grad_()
        w = torch.linspace(-1.5, 2, 16).double().reshape(4, 4).requires_grad_()
        torch.manual_seed(1)
        CALLS.clear()
        out = checkpoint(around(fn), x, w, use_reentrant=False, **how)
        differentiate(out, x, w)
        found += [out.detach(), x.grad, w.grad, torch.rand(1), torch.tensor(len(CALLS))]
    return found


def once(out, x, w):
    out.sum().backward()


def retained(out, x, w):
    out.sum().backward(retain_graph=True)
    out.sum().backward()


def of_gradients(out, x, w):
    a, b = torch.autograd.grad(out.sum(), (x, w), create_graph=True)
    ((a**2).sum() + (b**2).sum()).backward()


@pytest.mark.parametrize("fn", [layer, dropped, on_sizes])
@pytest.mark.parametrize("around", [alone, twice_between, nested])
@pytest.mark.parametrize(
    "differentiate, how", [(once, {}), (retained, {"early_stop": False}), (of_gradients, {"determinism_check": "none"})]
)
def test_values_gradients_and_runs(fn, around, differentiate, how):
    compiled = pliant.compile(fn)
    compiled(torch.ones(2, 4), torch.ones(4, 4))  # an entry of another dtype
    expected = calls_of(fn, around, differentiate, **how)
    before = pliant.stats()
    torch.testing.assert_close(calls_of(compiled, around, differentiate, **how), expected)
    torch.testing.assert_close(calls_of(compiled, around, differentiate, **how), expected)
    assert pliant.stats()["captures"] > before["captures"]
    assert pliant.stats()["fallbacks"] == before["fallbacks"]


@pytest.mark.parametrize("around", [alone, twice_between])
def test_what_saves_nothing_is_not_run_again(around):
    torch.testing.assert_close(calls_of(pliant.compile(saves_nothing), around, once), calls_of(saves_nothing, around, once))


def nodes_of(out):
    """The names of the nodes under a result."""
    names, todo = [], [out.grad_fn]
    while todo:
        node = todo.pop()
        if node is not None:
            names.append(type(node).__name__)
            todo += [n for n, _ in node.next_functions]
    return sorted(names)


def test_the_region_is_one_node():
    x, w = torch.ones(3, 4, requires_grad=True), torch.ones(4, 4, requires_grad=True)
    out = checkpoint(pliant.compile(layer), x, w, use_reentrant=False)
    assert nodes_of(out) == ["AccumulateGrad", "AccumulateGrad", "CheckpointedBackward"]


def test_two_entries_that_take_turns():
    """Whichever entry holds first when the function is run again, it takes the one of the forward part."""

    def flipping(x, w):
        return (x @ w).exp().sin() if x.shape[0] > 2 else (x @ w).sin().exp().cos() * x

    compiled = pliant.compile(flipping)
    args = [
        [torch.ones(n, 4, dtype=torch.double).requires_grad_(), torch.ones(4, 4, dtype=torch.double).requires_grad_()] for n in (2, 4, 2, 4)
    ]
    outs = [checkpoint(compiled, *a, use_reentrant=False) for a in args]
    for out in (outs[1], outs[0], outs[3], outs[2]):
        out.sum().backward()
    for x, w in args:
        a, b = x.detach().requires_grad_(), w.detach().requires_grad_()
        flipping(a, b).sum().backward()
        torch.testing.assert_close([x.grad, w.grad], [a.grad, b.grad])


class Counted(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.count = nn.Linear(4, 4), 0
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        self.count += 1
        self.seen += 1
        return self.layer(x).tanh() * self.count


class Broken(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        y = self.layer(x).tanh()
        pliant.graph_break()
        return self.layer(y).sin()


MODULES = {
    "block": lambda: nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.3), nn.LayerNorm(8), nn.Linear(8, 4)),
    "statistics": lambda: nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Sigmoid()),
    "frozen": lambda: nn.Sequential(nn.Linear(4, 4).requires_grad_(False), nn.Tanh(), nn.Linear(4, 4)),
    "counted": Counted,
    "broken": Broken,
}
HOWS = {
    "plain": {},
    "drawn anew": {"preserve_rng_state": False},
    "selective": {"context_fn": lambda: checkpoints.create_selective_checkpoint_contexts([torch.ops.aten.addmm.default])},
    "debugged": {"debug": True},
}


@pytest.mark.parametrize("make", MODULES.values(), ids=MODULES)
@pytest.mark.parametrize("how", HOWS.values(), ids=HOWS)
def test_modules(make, how):
    results = []
    for wrap in (lambda m: m, pliant.compile):
        torch.manual_seed(0)
        m = make()
        run, found = wrap(m), []
        for n in (2, 3, 5, 2):
            x = torch.linspace(-1, 1, 4 * n).reshape(n, 4).requires_grad_()
            torch.manual_seed(3)
            out = checkpoint(run, x, use_reentrant=False, **how)
            out.sum().backward()
            found += [out.detach(), x.grad, *[p.grad.clone() for p in m.parameters() if p.grad is not None]]
            found += [*[b.clone() for b in m.buffers()], torch.rand(1)]
        results.append((found, getattr(m, "count", 0)))
    torch.testing.assert_close(results[1], results[0])


def test_a_second_backward_is_refused():
    out = checkpoint(pliant.compile(layer), torch.ones(3, 4, requires_grad=True), torch.ones(4, 4), use_reentrant=False).sum()
    out.backward()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        out.backward()
