"""Modules: parameters, buffers, hooks, containers, sharing, modes, state that steps.

PYTEST_DONT_REWRITE: the programs keep their own asserts.
"""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

from tests.helpers import IDENTITY, check, check_world, compiled
from tests.programs.registry import cases, each, program, t

ROWS = each(3, 5, 2, tail=(4,))
GRAD_ROWS = each(3, 5, 2, tail=(4,), grad=True)


def world(make):
    """A factory of equal fresh modules, registered under the function's name."""

    def factory():
        torch.manual_seed(7)
        return make()

    factory.__name__, factory.__module__ = make.__name__, make.__module__
    return factory


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 8)
        self.b = nn.Linear(8, 4, bias=False)
        self.norm = nn.LayerNorm(4)

    def forward(self, x, scale=1.0):
        return self.norm(x + self.b(F.gelu(self.a(x)))) * scale


@program(*GRAD_ROWS, world=True, grad=True, captures=1, breaks=0)
@world
def mlp():
    return Net()


@program(*ROWS, world=True, grad=True, captures=1, breaks=0)
@world
def sequential():
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Sequential(nn.Linear(4, 2), nn.Tanh()))


@program(*ROWS, world=True, grad=True, breaks=0)
@world
def function_over_module():
    m = Net()
    return lambda x: m(x, scale=2.0) + sum(p.sum() for p in m.parameters()), m


class Lists(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
        self.named = nn.ModuleDict({"p": nn.Linear(4, 4), "q": nn.ReLU()})
        self.params = nn.ParameterList([nn.Parameter(torch.ones(4)), nn.Parameter(torch.zeros(4))])
        self.pdict = nn.ParameterDict({"w": nn.Parameter(torch.full((4,), 2.0))})

    def forward(self, x):
        for i, layer in enumerate(self.layers):
            x = layer(x) + i
        for k, m in self.named.items():
            x = m(x) * len(k)
        for p in self.params:
            x = x + p
        return x * self.pdict["w"] + len(self.layers), self.layers[-1](x), self.layers[0:2][1](x), "p" in self.named


@program(*ROWS, world=True, grad=True, breaks=0)
@world
def module_containers():
    return Lists()


class Shared(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 4)
        self.b = self.a
        self.c = nn.Linear(4, 4)
        self.c.weight = self.a.weight

    def forward(self, x):
        return self.c(self.b(self.a(x))), self.c.weight is self.a.weight


@program(*ROWS, world=True, grad=True, breaks=0)
@world
def shared_parameters():
    return Shared()


class Buffers(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("count", torch.tensor(0))
        self.register_buffer("cache", None, persistent=False)

    def forward(self, x):
        self.count += 1
        self.mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
        if self.cache is None:
            self.cache = x.sum(0)
        else:
            self.cache = self.cache + x.sum(0)
        return x - self.mean


@program(*ROWS, *ROWS, world=True)
@world
def buffers():
    return Buffers()


class Steps(nn.Module):
    def __init__(self):
        super().__init__()
        self.step = 0
        self.lin = nn.Linear(4, 4)
        self.history = []

    def forward(self, x):
        self.step += 1
        self.history.append(x.shape[0])
        if self.step % 3 == 0:
            x = x * 2
        return self.lin(x) * self.step


@program(*each(*range(2, 10), tail=(4,)), world=True)
@world
def step_counter():
    return Steps()


@program(*ROWS, world=True, grad=True)
@world
def batchnorm_train():
    return nn.Sequential(nn.BatchNorm1d(4), nn.ReLU(), nn.BatchNorm1d(4, momentum=None))


@program(*ROWS, world=True)
@world
def batchnorm_eval():
    return nn.BatchNorm1d(4).eval()


@program(*ROWS, world=True)
@world
def dropout_train():
    return nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Dropout(0.1))


@program(*ROWS, *ROWS, world=True, before=lambda i, m: m.train(i % 2 == 0))
@world
def train_and_eval():
    return nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.BatchNorm1d(4))


class Hooked(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)
        self.log = []
        self.lin.register_forward_pre_hook(lambda m, args: (args[0] + 1,))
        self.lin.register_forward_hook(lambda m, args, out: (self.log.append(tuple(out.shape)), out * 2)[1])
        self.lin.register_forward_hook(self.with_kwargs, with_kwargs=True)

    def with_kwargs(self, m, args, kwargs, out):
        self.log.append(len(kwargs))

    def forward(self, x):
        return self.lin(x)


@program(*ROWS, world=True)
@world
def forward_hooks():
    m = Hooked()
    return m, (m.log, m.lin.weight)


@program(*GRAD_ROWS, world=True, grad=True)
@world
def backward_hooks():
    m = nn.Linear(4, 4)
    log = []
    m.register_full_backward_hook(lambda mod, gi, go: log.append(tuple(go[0].shape)))
    m.weight.register_hook(lambda g: g * 2)
    return m, (log, m.weight)


@program(*GRAD_ROWS, grad=True, world=True)
@world
def tensor_hook_inside():
    log = []

    def fn(x):
        y = x * 2
        y.register_hook(lambda g: (log.append(tuple(g.shape)), g * 3)[1])
        return y + 1

    return fn, log


@program(*ROWS, world=True, before=lambda i, m: m[0].register_forward_hook(lambda mod, a, o: o + 1) if i == 1 else None)
@world
def hook_added_between_calls():
    return nn.Sequential(nn.Linear(4, 4))


def replace_weight(i, m):
    with torch.no_grad():
        if i == 1:
            m.a.weight.mul_(2)
        if i == 2:
            m.a.weight = nn.Parameter(torch.ones(8, 4))
        if i == 3:
            m.a = nn.Linear(4, 8, bias=False)
            m.a.weight.fill_(0.25)
        if i == 4:
            m.b.weight.data = torch.full((4, 8), 0.5)
        if i == 5:
            m.b.weight.requires_grad_(False)
        if i == 6:
            m.double()


@program(*ROWS, *ROWS, (t(3, 4, dtype=torch.float64),), world=True, grad=True, before=replace_weight)
@world
def parameters_changed_between_calls():
    return Net()


@program(*ROWS, world=True, before=lambda i, m: m.append(nn.Tanh()) if i else None)
@world
def layers_added_between_calls():
    return nn.Sequential(nn.Linear(4, 4))


class Introspective(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 4)
        self.b = nn.Sequential(nn.Linear(4, 4))

    def forward(self, x):
        n = [name for name, _ in self.named_parameters()]
        k = [type(m).__name__ for m in self.modules()]
        c = len(list(self.children()))
        total = sum(p.numel() for p in self.parameters())
        return (self.b(self.a(x)) * total, n, k, c, self.training, next(self.parameters()).dtype, "a" in dict(self.named_children()),
            self.get_submodule("b.0")(x),)


@program(*ROWS, world=True, breaks=0)
@world
def introspection():
    return Introspective()


class Calls(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)

    def helper(self, x):
        return self.lin(x) + 1

    def forward(self, x, *, mode="a", **kw):
        f = getattr(self, "helper")
        return {"out": f(x), "mode": mode, **kw}

    def __getattr__(self, name):
        if name == "magic":
            return 5
        return super().__getattr__(name)


@program(*ROWS, world=True, breaks=0)
@world
def methods_and_dict_results():
    return Calls()


@program(*ROWS, world=True)
@world
def module_made_inside():
    def fn(x):
        torch.manual_seed(0)
        lin = nn.Linear(4, 2)
        return lin(x), nn.ReLU()(x)

    return fn


@program(*[(torch.arange(n * 2).reshape(n, 2) % 5,) for n in (3, 4, 6)], world=True, grad=True)
@world
def embeddings():
    m = nn.ModuleDict({"e": nn.Embedding(5, 4, padding_idx=0), "b": nn.EmbeddingBag(5, 4)})
    return lambda ids: (m["e"](ids), m["b"](ids), F.one_hot(ids, 5)), m


@program(*[(t(2, 3, n, n + 2),) for n in (8, 9, 12)], world=True, grad=True)
@world
def convolutions():
    return nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 2, 1), nn.AdaptiveAvgPool2d(1),
        nn.Flatten())


@program(*[(t(2, n, 8),) for n in (3, 4, 7)], world=True, grad=True)
@world
def attention():
    return nn.TransformerEncoderLayer(8, 2, dim_feedforward=16, dropout=0.0, batch_first=True)


@program(*[(t(n, 2, 4),) for n in (3, 4, 6)], world=True, grad=True)
@world
def recurrent():
    return nn.GRU(4, 5)


@program(*ROWS, world=True, grad=True)
@world
def weight_norm():
    return nn.utils.parametrizations.weight_norm(nn.Linear(4, 3))


@program(*ROWS, world=True, breaks=0, must_compile=False)  # the first call is eager's
@world
def lazy_module():
    return nn.Sequential(nn.LazyLinear(3), nn.ReLU()), ()


@program(*ROWS, world=True, grad=True)
@world
def checkpointed():
    m = nn.Linear(4, 4)
    return lambda x: torch.utils.checkpoint.checkpoint(lambda v: m(v).relu(), x, use_reentrant=False), m


class Scaled(nn.Module):
    def __init__(self, k):
        super().__init__()
        self.k = k

    def forward(self, x):
        return x * self.k


@program(*ROWS, world=True, entries=(1, 4))
@world
def instances_that_differ():
    ms = nn.ModuleList(Scaled(k) for k in range(5))
    return lambda x: [m(x) for m in ms], ()


@pytest.mark.parametrize("case", cases(__name__), ids=repr)
def test_program(case):
    case.run()


def test_compiled_module_is_a_module():
    m = Net()
    c = compiled(m)
    assert isinstance(c, nn.Module)
    assert [p is q for p, q in zip(c.parameters(), m.parameters(), strict=True)] == [True] * 5
    assert c.a is m.a
    assert {k.split("_orig_mod.")[-1] for k in c.state_dict()} == set(m.state_dict())
    x = t(3, 4)
    assert torch.allclose(c(x), m(x), atol=1e-6)
    d = copy.deepcopy(c)
    with torch.no_grad():
        m.a.weight.zero_()
    assert not torch.allclose(d(x), m(x), atol=1e-6)
    assert torch.allclose(c(x), m(x), atol=1e-6)
    c.eval()
    assert not m.training


def test_decorator_and_methods():
    class Model:
        def __init__(self):
            self.k = 3

        @compiled
        def double(self, x):
            return x * 2 * self.k

    m = Model()
    assert torch.equal(m.double(t(3)), t(3) * 6)
    m.k = 4
    assert torch.equal(m.double(t(5)), t(5) * 8)
    net = Net()
    assert torch.allclose(compiled(net.forward)(t(2, 4)), net(t(2, 4)), atol=1e-6)


def test_two_instances_share_a_compilation_or_not_but_never_answers():
    a, b = Scaled(2), Scaled(3)
    ca, cb = compiled(a), compiled(b)
    for n in (2, 3, 4):
        assert torch.equal(ca(t(n)), t(n) * 2)
        assert torch.equal(cb(t(n)), t(n) * 3)


@pytest.mark.skipif(IDENTITY, reason="counts what the compiler does")
def test_many_instances_do_not_exhaust_anything():
    report = check_world(lambda: (lambda x, ms: sum(m(x) for m in ms), ()), *[(t(3), [Scaled(k), Scaled(k + 1)]) for k in range(20)])
    assert report.history[-1]["entries"] == report.history[10]["entries"]


def test_arguments_can_be_modules():
    check(lambda m, x: m(x), *[(Net(), t(n, 4)) for n in (2, 3, 4)], grad=True)


class Fails(nn.Module):
    def forward(self, x, fail):
        if fail:
            raise ValueError("forward")
        return x + 1


@pytest.mark.parametrize("everywhere", [False, True])
def test_hooks_that_are_always_called_hear_of_a_forward_that_raises(everywhere):
    """PyTorch's own code passes them by where it is told that a compiler looks on."""

    def caught(m, x, fail):
        try:
            return m(x, fail) * 2
        except ValueError as e:
            return str(e), x * 3

    def heard(fn, always, n, fail):
        m, log = Fails(), []
        hook = lambda m, a, out: log.append((len(a), out is None))  # noqa: E731
        register = nn.modules.module.register_module_forward_hook if everywhere else m.register_forward_hook
        handle = register(hook, always_call=always)
        try:
            return fn(m, t(n, 2), fail), log
        finally:
            handle.remove()

    c = compiled(caught)
    for always, fail, n in ((True, True, 3), (True, False, 4), (False, True, 3), (False, False, 4), (True, True, 5), (True, False, 6)):
        (got, told), (want, expected) = heard(c, always, n, fail), heard(caught, always, n, fail)
        assert told == expected, (always, fail)
        for g, w in zip((got,) if torch.is_tensor(got) else got, (want,) if torch.is_tensor(want) else want, strict=True):
            assert torch.equal(g, w) if torch.is_tensor(w) else g == w
