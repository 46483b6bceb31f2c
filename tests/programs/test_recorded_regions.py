"""Regions of which autograd records the operations: operators without a derivative (autograd says so once gradients arrive, and of that
alone), other layouts for tensors that are views, or have some, and what is written behind its back.
"""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import pliant
from tests.programs.registry import cases, each, program, programs

GRADS = each(3, 5, 2, tail=(4,), grad=True)


def step(x):
    return torch.heaviside(x, torch.ones(()))


def without_gradients(x):
    with torch.no_grad():
        a = step(x)
    return step(x) * a + x.sin()


def in_place(x):
    y = x * 2
    y.add_(1)
    return step(y), y


def written_by_a_view(x):
    y = x * 1
    v = y[0]
    v.mul_(3)
    return step(y) + y, v


def from_each_other(x):
    a = x.exp()
    b = step(a)
    return a, b, b * a


def of_data(x):
    return step(x).sum() + (x > 0.5).nonzero().shape[0], x[x > 0.5]


programs(__name__, *GRADS, grad=True, breaks=0)({
    "without_gradients": without_gradients,
    "in_place": in_place,
    "written_by_a_view": written_by_a_view,
    "from_each_other": from_each_other,
    "of_data": of_data,
    "detached": lambda x: (step(x.detach()) * x, step(x)),
    "beside_a_linear_map": lambda x: (F.linear(x, torch.ones(4, 4)) * step(x), F.relu(x)),
    "drawn": lambda x: F.dropout(step(x) + x, 0.5, True),
    "views_of_inputs": lambda x: (step(x), x[1:], x.view(-1)),
    "of_one_argument": lambda x: torch.igamma(x.abs() + 1, x.abs() + 1) + x,
    "batch_norm": lambda x: F.batch_norm(x, torch.zeros(4), torch.ones(4), training=True) + step(x),
    "lists": lambda x: torch._foreach_add([x, x * 2], [step(x), x]),
    "other_operators": lambda x: (torch.ops.aten.native_channel_shuffle(x.view(1, -1, 2, 2).repeat(1, 2, 1, 1), 2), x * 2),
})  # fmt: skip


def laid_out_anew(x):
    y = x * 1
    z = y[1:]
    z.mul_(2)
    y.unsqueeze_(0)
    return y, z, z.sum()


def written_behind(x):
    base = x * 1
    y = base[:]
    y.t_()
    y.mul_(3)
    return base, y


def told_behind(x):
    y = x * 1
    z = y[0]
    y.transpose_(0, 1)
    return y, tuple(y.shape), y.stride(), y._is_view(), z._is_view(), y._version


def multiplied_behind(x):
    y = x.exp()
    z = y[0]
    y.unsqueeze_(1)
    return y * y, y @ y.transpose(-1, -2), z


programs(__name__, *GRADS, grad=True, breaks=0)({f.__name__: f for f in (laid_out_anew, written_behind, told_behind, multiplied_behind)})


# -- histories that no node of ours can stand for: what was saved is written, results come from each other by way of writes -----
def saved_and_written(x):
    a = x.exp()
    b = a * a
    a.add_(1)
    return b, a


def written_over(x):
    return torch.relu(x).sub_(1)


def view_from_before(x):
    d = torch.zeros(x.shape)
    v = d[0]
    d.add_(x)
    return d, v


def features(x):
    f = x.tanh()
    f.mul_(2)
    other = f.clone()
    other[0] = 0
    return f, f.sum(1), (f * f).mean(), other


def summed_between_writes(x):
    y = x * 1
    y.mul_(2)
    s, squares = y.sum(), y * y
    y.add_(s)
    return y, s, squares


def filled(x):
    y = x * 2
    y.fill_diagonal_(1.0)
    z = y @ y.T
    y.zero_()
    return y, z


HISTORIES = (saved_and_written, written_over, view_from_before, features, summed_between_writes, filled)
programs(__name__, *GRADS, grad=True, breaks=0)({f.__name__: f for f in HISTORIES})


@program(*GRADS, grad=True)
def laid_out_beside_gradients(x):
    y = x * 1
    z = y[0]
    y.t_()
    (g,) = torch.autograd.grad(y.sum() + z.sum(), x)
    return g + 1


class Tripled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * 3


@program(*GRADS, grad=True)
def beside_a_function(x):
    return Tripled.apply(x) + step(x), Tripled.apply(x)


@program(*GRADS, grad=True)
def beside_a_hook(x):
    y = x * 2
    y.register_hook(lambda g: g * 2)
    return step(y) + y


@program(*GRADS, grad=True)
def beside_gradients(x):
    (g,) = torch.autograd.grad((x * x).sum(), x, create_graph=True)
    return step(x) + g


@program(*GRADS, grad=True)
def beside_a_leaf(x):
    return step(x) * torch.zeros(4, requires_grad=True)


@pytest.mark.parametrize("case", cases(__name__), ids=repr)
def test_recorded_regions(case):
    case.run()


@pytest.mark.parametrize("of", [0, 1])
def test_gradients_of_some_inputs_alone(of):
    """Autograd goes only where it is asked to: `w` has a gradient, although `x` goes through an operator without a derivative."""

    def fn(x, w):
        return step(x) * 2 + w * w

    for f in (fn, pliant.compile(fn, background=False)):
        x, w = torch.ones(3, requires_grad=True), torch.full((3,), 2.0, requires_grad=True)
        out = f(x, w).sum()
        if of:
            assert torch.autograd.grad(out, w)[0].tolist() == [4.0] * 3
        else:
            with pytest.raises(RuntimeError, match="derivative for aten::heaviside is not implemented"):
                torch.autograd.grad(out, x)


def test_nodes_stand_around_an_operator_without_a_derivative():
    """What comes before it, and beside it, is compiled as in any other region; autograd records that one operation, and what reads it."""

    def beside(x):
        a = x.sin() * 2
        return step(a), a.exp()

    def behind(x):
        a = x.sin() * 2
        return step(a) + a.exp()

    def kind(node):
        return type(node).__name__

    x = torch.ones(3, requires_grad=True)
    first, second = pliant.compile(beside, background=False)(x)
    assert kind(first.grad_fn) == "NotImplemented" and kind(first.grad_fn.next_functions[0][0]).startswith("Pliant_")
    assert kind(second.grad_fn).startswith("Pliant_")
    added = pliant.compile(behind, background=False)(x).grad_fn
    above = [n for n, _ in added.next_functions]
    assert [kind(n) for n in (added, *above)] == ["AddBackward0", "NotImplemented", "ExpBackward0"]
    assert kind(above[1].next_functions[0][0]).startswith("Pliant_")
