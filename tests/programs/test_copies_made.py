"""Copies of modules and tensors made inside of a compiled function, and generators of random numbers that it seeds and sets."""

from __future__ import annotations

import copy
import random
from collections import OrderedDict

import pytest
import torch
from torch import nn

import pliant
from tests.programs.registry import cases, each, program

ROWS = each(3, 5, 2, tail=(4,))
WHOLE = {"breaks": 0, "options": {"fullgraph": True}}


def lin():
    m = nn.Linear(4, 3)
    with torch.no_grad():
        m.weight.fill_(0.5)
        m.bias.zero_()
    return m


@program(*ROWS, world=True, **WHOLE)
def dc_module():
    m = lin()

    def f(x):
        n = copy.deepcopy(m)
        return n(x) + m(x)

    return f, m


@program(*ROWS, world=True, **WHOLE)
def dc_module_ret():
    m = nn.Sequential(lin(), nn.ReLU(), nn.BatchNorm1d(3))

    def f(x):
        n = copy.deepcopy(m)
        y = n(x)
        return n, y

    return f, m


@program(*ROWS, world=True, **WHOLE)
def dc_param():
    w = nn.Parameter(torch.ones(4))

    def f(x):
        v = copy.deepcopy(w)
        return v, x * v, w * x

    return f, w


@program(*ROWS, world=True, **WHOLE)
def dc_param_grad():
    w = nn.Parameter(torch.ones(4))
    w.grad = torch.ones(4)

    def f(x):
        v = copy.deepcopy(w)
        return v, x * v, v.grad

    return f, w


@program(*ROWS, world=True, **WHOLE)
def dc_leaf():
    w = torch.ones(4, requires_grad=True)

    def f(x):
        v = copy.deepcopy(w)
        return v, x * v

    return f, w


@program(*ROWS, world=True, **WHOLE)
def dc_module_sub():
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.l = lin()
            self.k = 3
            self.d = {"a": torch.ones(3)}
            self.register_buffer("b", torch.ones(3))

        def forward(self, x):
            return self.l(x) * self.k + self.d["a"] + self.b

    m = M()

    def f(x):
        n = copy.deepcopy(m)
        n.k = 4
        return n(x) + m(x)

    return f, m


@program(*ROWS, world=True, **WHOLE)
def dc_tied():
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = lin()
            self.b = self.a

        def forward(self, x):
            return self.a(x) + self.b(x)

    m = M()

    def f(x):
        n = copy.deepcopy(m)
        return n(x), n.a is n.b, n.a.weight is n.b.weight

    return f, m


@program(*ROWS, world=True, **WHOLE)
def c_module():
    m = lin()

    def f(x):
        n = copy.copy(m)
        return n(x) + m(x), n.weight is m.weight

    return f, m


@program(*ROWS, world=True, **WHOLE)
def dc_ema():
    m = lin()

    def f(x):
        ema = copy.deepcopy(m)
        with torch.no_grad():
            for a, b in zip(ema.parameters(), m.parameters()):
                a.mul_(0.9).add_(b, alpha=0.1)
        for q in ema.parameters():
            q.requires_grad_(False)
        return ema(x), m(x)

    return f, m


@program(*ROWS, world=True, **WHOLE)
def dc_stored():
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = lin()

        def forward(self, x):
            if not hasattr(self, "t"):
                self.t = copy.deepcopy(self.a)
            return self.a(x) + self.t(x)

    return M()


@program(*ROWS, world=True, **WHOLE)
def dc_list():
    l = [nn.Parameter(torch.ones(4)), torch.zeros(4)]

    def f(x):
        m = copy.deepcopy(l)
        return m, x * m[0] + m[1]

    return f, l


@program(*ROWS, **WHOLE)
def dc_tensor(x):
    y = copy.deepcopy(x.detach())
    y += 1
    return y, x


@program(*ROWS, world=True, **WHOLE)
def dc_od():
    o = OrderedDict(a=torch.ones(4), b=[1, 2])

    def f(x):
        m = copy.deepcopy(o)
        m["b"].append(x.shape[0])
        return m, x * m["a"]

    return f, o


@program(*ROWS, world=True, **WHOLE)
def dc_hooked():
    m = lin()
    m.register_forward_hook(lambda m, i, o: o * 2)

    def f(x):
        n = copy.deepcopy(m)
        return n(x) + m(x)

    return f, m


@program(*ROWS, world=True, **WHOLE)
def dc_transformer():
    torch.manual_seed(0)
    m = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True, dropout=0.0)

    def f(x):
        n = copy.deepcopy(m)
        return n(x[None])

    return f, m


@program(*ROWS, world=True, **WHOLE)
def dc_encoder():
    torch.manual_seed(0)
    m = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True, dropout=0.0)

    def f(x):
        n = nn.TransformerEncoder(m, 2, enable_nested_tensor=False)
        return n(x[None])

    return f, m


@program(*ROWS, world=True, **WHOLE)
def dc_rnn():
    torch.manual_seed(0)
    m = nn.LSTM(4, 3)

    def f(x):
        n = copy.deepcopy(m)
        return n(x)[0]

    return f, m


@program(*ROWS, **WHOLE)
def buffer_made(x):
    b = nn.Buffer(torch.ones(4))
    return b * x


@program(*ROWS, **WHOLE)
def buffer_module(x):
    m = nn.Module()
    m.b = nn.Buffer(torch.ones(4))
    return m.b * x, list(dict(m.named_buffers()))


@program(*ROWS, **WHOLE)
def seed(x):
    torch.manual_seed(3)
    return torch.rand(3) + x.sum(), torch.randn(2)


@program(*ROWS, **WHOLE)
def state(x):
    torch.manual_seed(1)
    s = torch.get_rng_state()
    a = torch.rand(3)
    torch.set_rng_state(s)
    return a, torch.rand(3), x * a[0]


@program(*ROWS, **WHOLE)
def fork(x):
    torch.manual_seed(1)
    with torch.random.fork_rng():
        torch.manual_seed(2)
        a = torch.rand(3)
    return a, torch.rand(3) + x.sum()


@program(*ROWS, **WHOLE)
def py(x):
    random.seed(3)
    return x * random.random(), random.randint(0, 5)


@program(*ROWS, **WHOLE)
def gen(x):
    g = torch.Generator()
    g.manual_seed(3)
    return torch.rand(3, generator=g) + x.sum()


@program(*ROWS, **WHOLE)
def gen2(x):
    g = torch.Generator().manual_seed(3)
    return torch.rand(x.shape[0], generator=g), g.initial_seed()


@program(*ROWS, world=True, **WHOLE)
def gen_out():
    g = torch.Generator()
    g.manual_seed(3)

    def f(x):
        return torch.rand(3, generator=g) + x.sum()

    return f


@pytest.mark.parametrize("case", cases(__name__), ids=repr)
def test_program(case):
    case.run()


@pytest.mark.parametrize("case", cases(__name__), ids=repr)
def test_with_a_backend_that_runs_the_graph(case):
    case.run_through("eager")


def test_versions_of_copies():
    """`copy.deepcopy` gives a new tensor its memory in place, which counts as a write."""

    def fn(x):
        y = x * 2
        y.add_(1)
        z, twice = copy.deepcopy(y), copy.deepcopy(copy.deepcopy(x))
        z.mul_(3)
        asked = z._version, twice._version, x.clone()._version
        with torch.no_grad():
            return asked, [x, y, z, twice, copy.deepcopy(y.sum()), copy.deepcopy(nn.Parameter(x)), copy.copy(x), *copy.deepcopy([x, y])]

    compiled = pliant.compile(fn)
    for n in (2, 3, 4):
        (asked, wanted), (told, got) = fn(torch.ones(n)), compiled(torch.ones(n))
        assert told == asked == (2, 1, 0)
        assert [t._version for t in got] == [t._version for t in wanted]


@pytest.mark.parametrize("requires", [False, True])
def test_the_gradient_of_a_copy(requires):
    """A tensor without gradients may have been given one, which goes along."""

    def fn(x):
        y = copy.deepcopy(x)
        return y, y.grad, y.grad is x.grad

    compiled = pliant.compile(fn, strict=True)
    for n, given in ((3, True), (4, False), (5, True), (2, False)):
        x = torch.ones(n).requires_grad_(requires)
        x.grad = torch.arange(float(n)) if given else None
        y, g, same = compiled(x)
        assert torch.equal(y, x) and y.requires_grad is requires and same is not given
        assert torch.equal(g, x.grad) if given else g is None
