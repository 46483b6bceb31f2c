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


def held_critic(m, x):
    """The generator (`base`) learns through the critic, which takes no gradients meanwhile."""
    fake = m.adapter(x) + 1
    (m.adapter(x * 2) * fake.detach()).sum().backward()
    for p in m.adapter.parameters():
        p.requires_grad_(False)
    m.told.append(m.flags())
    v = x.clone().requires_grad_()
    score = m.adapter(v * v).square().sum()
    score.backward()
    for p in m.adapter.parameters():
        p.requires_grad_(True)
    return v.grad.clone(), score.item()


def assigned_each_time(m, x):
    """On at the beginning, off at the end: what the next call meets is off."""
    for p in m.adapter.parameters():
        p.requires_grad = True
    m.adapter(x).square().sum().backward()
    m.told.append(m.flags())
    for p in m.adapter.parameters():
        p.requires_grad = False
    v = x.clone().requires_grad_()
    g = torch.autograd.grad(m.adapter(v).exp().sum(), v)[0]
    m.told.append(m.flags())
    return g


def on_behind_operations(m, x):
    y = x * 2 + 1
    for p in m.adapter.parameters():
        p.requires_grad_(True)
    m.adapter(y).square().sum().backward()
    for p in m.adapter.parameters():
        p.requires_grad_(False)
    return y


def on_behind_what_raises(m, x):
    try:
        y = x[torch.arange(3) + (x[0, 0] > 0).long() * 9]
        m.adapter.requires_grad_(not m.adapter[0].weight.requires_grad)
        m.told.append(m.adapter(y).requires_grad)
    except IndexError:
        m.told.append(m.flags())
    m.adapter.requires_grad_(False)


def on_behind_readers(m, x):
    y = m.adapter(x)
    for p in m.adapter.parameters():
        p.requires_grad_(True)
    m.told.append(y.requires_grad)
    m.adapter(x).square().sum().backward()
    for p in m.adapter.parameters():
        p.requires_grad_(False)
    return y.detach()


def history_of_held(m, x):
    """What was computed before reaches parameters that take no gradients now, or take them again."""
    y = m(x).square().sum()
    m.adapter.requires_grad_(False)
    z = m.adapter(x).sum()
    m.told.append(z.requires_grad)
    m.adapter.requires_grad_(True)
    y.backward()
    return y.item(), z.item()


def result_with_gradients(m, x):
    m.adapter.requires_grad_(False)
    v = m.adapter(x)
    m.adapter.requires_grad_(True)
    y = m.adapter(x) * v
    m.told.append((v.requires_grad, y.requires_grad))
    return y


def engine_meets_held(m, x):
    y = m.adapter(x).sum()
    m.adapter[0].weight.requires_grad_(False)
    y.backward()
    m.adapter[0].weight.requires_grad_(True)
    return y.item()


def asked_of_held(m, x):
    w = m.adapter[0].weight
    y = m.adapter(x).sum()
    w.requires_grad_(False)
    try:
        torch.autograd.grad(y, w)
    except RuntimeError as e:
        m.told.append(str(e))
    w.requires_grad_(True)
    return y.item()


WHOLE = [preferences, one_flag, with_gradients_on, held_critic, assigned_each_time, on_behind_operations, history_of_held, left_off]
BROKEN = [
    backward_inside, broken_inside, raises_inside, returns_inside, on_behind_what_raises, on_behind_readers, result_with_gradients,
    engine_meets_held,
]  # fmt: skip


@pytest.mark.parametrize("program", [*WHOLE, *BROKEN, asked_of_held], ids=lambda f: f.__name__)
def test_flags_for_a_while(program):
    torch.manual_seed(0)
    first = Adapted().double()
    second, run = copy.deepcopy(first), compiled(program)
    for n in range(8):
        torch.manual_seed(n)
        x = torch.randn(3, 4).double()
        found = []
        for fn, m in ((program, first), (run, second)):
            result = fn(m, x)
            if type(result) is torch.Tensor and result.requires_grad:
                result.sum().backward()
                result = result.detach()
            found.append([result, *[(p.detach(), p.grad) for p in m.parameters()]])
            assert m.told == first.told and m.flags() == first.flags()
        torch.testing.assert_close(*found)
    if program in WHOLE:
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


def held_behind_few_operations(ps, x):
    h = (x * ps[0]).tanh()
    ps[0].requires_grad = False
    h = h.detach()
    return h.sum(), h


def on_and_off_again(ps, x):
    h = x * ps[0]
    for p in ps:
        p.requires_grad_(True)
    ps[2].requires_grad = False
    return h.sum(), h


def off_and_on_again(ps, x):
    ps[1].requires_grad_(True)
    ps[1].requires_grad_(False)
    return (x * ps[0]).sum(), ps[1] * 2


@pytest.mark.parametrize("backend", ["aten", "native"])
@pytest.mark.parametrize("program", [held_behind_few_operations, on_and_off_again, off_and_on_again], ids=lambda f: f.__name__)
def test_flags_of_results_and_parameters(program, backend):
    run, told = compiled(program, backend=backend), ([], [])
    lists = [[nn.Parameter(torch.ones(4) * (i + 1)) for i in range(3)] for _ in told]
    for n in range(4):
        for fn, ps, flags in zip((program, run), lists, told, strict=True):
            results = fn(ps, torch.ones(2 + n, 4))
            flags.append([t.requires_grad for t in (*results, *ps)])
            ps[1].requires_grad_(n % 2 == 0)
    assert told[0] == told[1]
