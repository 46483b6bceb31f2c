"""Branches on data behind `backward()`: the step that is skipped is a way out of the graph, in which no gradients flow any more."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from tests.helpers import compiled, pliant


def is_small(model):
    return torch.isfinite(nn.utils.clip_grad_norm_(model.parameters(), 1.0))


def skipped(model, opt, x, told):
    loss = model(x).square().sum()
    loss.backward()
    if is_small(model):
        opt.step()
    else:
        told.append("skipped")
    opt.zero_grad()
    return loss.item()


def returned(model, opt, x, told):
    opt.zero_grad()
    loss = model(x).square().sum()
    loss.backward()
    if is_small(model):
        opt.step()
        return 1
    told.append((loss.requires_grad, loss.is_leaf, loss.grad_fn is not None, loss._is_view()))
    return loss


def once_more(model, opt, x, told):
    opt.zero_grad()
    loss = model(x).square().sum()
    loss.backward()
    if not is_small(model):
        for tensor in (loss, loss * 2):
            try:
                tensor.backward()
            except RuntimeError as e:
                told.append(str(e))
        return None
    opt.step()
    return loss.item()


def two_results(model, opt, x, told):
    opt.zero_grad()
    y = model(x)
    loss = y.square().sum()
    loss.backward()
    if is_small(model):
        opt.step()
    else:
        told.append((y.requires_grad, torch.autograd.grad(y.sum() * 1, y)[0]))
    return loss.item()


def kept_history(model, opt, x, told):
    opt.zero_grad()
    loss = model(x).square().sum()
    loss.backward(retain_graph=True)
    if is_small(model):
        opt.step()
    else:
        loss.backward()
        told.append("once more")
    return [p.grad.clone() for p in model.parameters()]


def scaled(model, opt, x, told):
    scaler = model.scaler
    scaler.scale(model(x).square().mean()).backward()
    scaler.unscale_(opt)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(opt)
    scaler.update()
    opt.zero_grad()
    return scaler.get_scale()


def state(model, out):
    return [out, *model.parameters(), *[p.grad for p in model.parameters()]]


@pytest.mark.parametrize("program", [skipped, returned, once_more, two_results, kept_history, scaled], ids=lambda f: f.__name__)
def test_a_step_that_is_skipped(program):
    torch.manual_seed(0)
    first = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2)).double()
    first.scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
    second = copy.deepcopy(first)
    run = compiled(program)
    made = [(f, m, torch.optim.SGD(m.parameters(), 0.01, momentum=0.9), []) for f, m in ((program, first), (run, second))]
    for n in range(12):
        torch.manual_seed(n)
        x = torch.randn(3, 4).double() * (float("inf") if n in (6, 9, 10) else 1)
        found = [state(m, f(m, opt, x, told)) for f, m, opt, told in made]
        torch.testing.assert_close(*found, equal_nan=True)
        assert str(made[0][3]) == str(made[1][3])
    assert made[0][3] or program is scaled
    if program in (skipped, scaled):
        assert pliant.stats()["side_exits"] == 3
