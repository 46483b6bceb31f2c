"""Whole training steps, and what programs do about gradients inside compiled code."""

from __future__ import annotations

import copy
import weakref

import pytest
import torch
import torch.utils.checkpoint as checkpoints
from torch import nn

import pliant
from tests.helpers import compiled, own_backend
from tests.programs.registry import t

OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, foreach=False),
    "sgd_foreach": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.1, foreach=True),
    "adam": lambda p: torch.optim.Adam(p, lr=0.1, foreach=False),
    "adam_foreach": lambda p: torch.optim.Adam(p, lr=0.1, amsgrad=True, foreach=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.1, foreach=False),
    "adamw_foreach": lambda p: torch.optim.AdamW(p, lr=0.1, foreach=True),
}
SIZES = (8, 5, 8, 3, 6)


@pytest.fixture(autouse=True)
def fresh():
    pliant.reset()
    yield
    pliant.reset()


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.LayerNorm(8), nn.Linear(8, 1))


def run(make_step, compiler):
    """Parameters, gradients and what the step returned, after each of a few steps at changing sizes."""
    m = model()
    step = compiler(make_step(m))
    seen = []
    for i, n in enumerate(SIZES):
        out = step(t(n, 4, seed=i))
        seen.append([None if x is None else x.detach().clone() for p in m.parameters() for x in (p, p.grad)] + [out.detach().clone()])
    return seen


def same(make_step, captures=2, breaks=0):
    want = run(make_step, lambda f: f)
    pliant.reset()
    got = run(make_step, compiled)
    for a, b in zip(want, got, strict=True):
        for x, y in zip(a, b, strict=True):
            assert (x is None) is (y is None)
            assert x is None or torch.allclose(x, y, rtol=1e-4, atol=1e-5)
    stats = pliant.stats()
    why = [(e.fields["code"], e.fields["reason"]) for e in pliant.events.events("graph_break")]
    assert stats["captures"] <= captures and stats["graph_breaks"] == breaks, (stats, why)


@own_backend
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_whole_step_is_one_graph(name):
    def make(m):
        opt = OPTIMIZERS[name](m.parameters())

        def step(x):
            opt.zero_grad()
            loss = m(x).pow(2).mean()
            loss.backward()
            nn.utils.clip_grad_norm_(m.parameters(), 0.5)
            opt.step()
            return loss

        return step

    same(make)


def test_the_optimizer_alone():
    def make(update):
        def outer(m):
            opt = OPTIMIZERS["adam_foreach"](m.parameters())
            advance = update(lambda: opt.step())

            def step(x):
                loss = m(x).pow(2).mean()
                loss.backward()
                advance()
                opt.zero_grad(set_to_none=False)
                return loss

            return step

        return outer

    want, got = run(make(lambda f: f), lambda f: f), run(make(compiled), lambda f: f)
    for a, b in zip(want, got, strict=True):
        assert all(torch.allclose(x, y, rtol=1e-4, atol=1e-5) for x, y in zip(a, b, strict=True))
    assert pliant.stats()["graph_breaks"] == 0


@own_backend
def test_gradients_accumulate():
    def make(m):
        def step(x):
            for k in (1, 2, 3):
                (m(x) * k).sum().backward()
            return m[0].weight.grad

        return step

    same(make)


def test_gradients_do_not_share_memory():
    def step(a, b):
        (a + b).sum().backward()

    a, b = t(3, grad=True), t(3, grad=True)
    compiled(step)(a, b)
    a.grad.add_(1)
    assert torch.equal(b.grad, torch.ones(3)) and a.grad.stride() == (1,)


def test_a_loss_that_went_backward_cannot_again():
    w = t(3, grad=True)

    def step(x):
        loss = (w * x).pow(2).sum()
        loss.backward()
        return loss

    loss = compiled(step)(t(3))
    assert loss.requires_grad and not loss.is_leaf
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()


def test_outputs_with_and_without_their_history():
    w = t(3, grad=True)

    def step(x):
        loss = (w * x).pow(2).sum()
        other = (w * 2).sin()
        loss.backward()
        return loss.detach(), other

    loss, other = compiled(step)(t(3))
    before = w.grad.clone()
    other.sum().backward()
    assert torch.allclose(w.grad, before + 2 * (2 * w.detach()).cos(), atol=1e-6)


def test_hooks_are_called():
    called = []

    def step(w, x):
        (w * x).sum().backward()
        return w.grad

    fn = compiled(step)
    w = t(3, grad=True)
    fn(w, t(3))
    w.register_hook(lambda g: called.append(1) or g * 10)
    w.grad = None
    assert torch.equal(fn(w, t(3)), t(3) * 10) and called == [1]


def test_backward_into_an_earlier_history():
    leaf = t(3, grad=True)
    compiled(lambda y: (y * 3).sum().backward())(leaf * 2)
    assert torch.equal(leaf.grad, torch.full((3,), 6.0))


SCALE = 2.0


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, log):
        ctx.save_for_backward(x)
        ctx.log = log
        return x * SCALE

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        if ctx.log is not None:
            ctx.log.append(g.shape[0])
        return (g * SCALE if ctx.needs_input_grad[0] else None), None


def test_what_backward_reads_is_guarded(monkeypatch):
    fn = compiled(lambda x: Scaled.apply(x, None).sum())
    for scale in (2.0, 5.0):
        monkeypatch.setitem(globals(), "SCALE", scale)
        x = t(3, grad=True)
        fn(x).backward()
        assert torch.equal(x.grad, torch.full((3,), scale))


def test_what_backward_changes_is_changed_each_time():
    fn = compiled(lambda x, log: Scaled.apply(x, log).sum())
    log: list[int] = []
    for n in (3, 4, 3):
        fn(t(n, grad=True), log).backward()
    assert log == [3, 4, 3]


@own_backend
@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints_are_captured_and_computed_again(reentrant):
    lin = nn.Linear(4, 4)

    def inner(x, k):
        return torch.tanh(lin(x) * k).exp().sigmoid()

    def program(x):
        return checkpoints.checkpoint(inner, x * 2, 3, use_reentrant=reentrant).sum()

    def plain(x):
        return inner(x * 2, 3).sum()

    fn, without = compiled(program), compiled(plain)
    for n in (3, 5, 2):
        x, y = t(n, 4, grad=True), t(n, 4, grad=True)
        out = fn(x)
        out.backward()
        got, lin.weight.grad = lin.weight.grad, None
        plain(y).backward()
        assert torch.allclose(x.grad, y.grad, atol=1e-6) and torch.allclose(got, lin.weight.grad, atol=1e-6)
        lin.weight.grad = None
    assert pliant.stats()["graph_breaks"] == 0
    kept = [sum(s.numel() for s in f(t(6, 4, grad=True)).grad_fn.saved_tensors) for f in (fn, without)]
    assert kept[0] < kept[1]


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin, self.norm = nn.Linear(3, 3), nn.BatchNorm1d(3)
        self.register_buffer("seen", torch.zeros(()))
        self.calls, self.log = 0, []

    def statistics(self, x):
        return self.norm(self.lin(x)).sin()

    def buffer(self, x):
        self.seen += x.detach().sum()
        return self.lin(x).sin()

    def counter(self, x):
        self.calls += 1
        return self.lin(x).sin()

    def logged(self, x):
        self.log.append(len(x))
        return self.lin(x).sin()

    def pure(self, x):
        return self.lin(x).sin()


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("name", ["statistics", "buffer", "counter", "logged", "pure"])
def test_what_a_checkpointed_function_changes_it_changes_again_in_the_backward_part(name, reentrant):
    def step(module, x):
        return checkpoints.checkpoint(getattr(module, name), x * 2, use_reentrant=reentrant).sum()

    answers = []
    for fn in (step, pliant.compile(step, backend="aten", background=False)):
        torch.manual_seed(0)
        module, found = Counting(), []
        for n in (3, 5, 4):
            x = torch.randn(n, 3, requires_grad=True)
            loss = fn(module, x)
            loss.backward()
            state = [v.clone() for v in module.state_dict().values()]
            found += [loss.detach(), x.grad, module.lin.weight.grad.clone(), *state, torch.tensor([module.calls, *module.log])]
        answers.append(found)
    torch.testing.assert_close(*answers)
    if name == "pure":
        assert pliant.stats()["graph_breaks"] == 0


def test_dropout_in_a_checkpoint():
    def program(x):
        return checkpoints.checkpoint(lambda v: nn.functional.dropout(v * 2, 0.5).exp(), x, use_reentrant=False)

    grads = []
    for fn in (program, compiled(program)):
        torch.manual_seed(0)
        x = t(6, grad=True)
        fn(x).sum().backward()
        grads.append(x.grad)
    assert torch.allclose(*grads, atol=1e-6)


def test_profiler_marks_do_not_break():
    def program(x):
        with torch.autograd.profiler.record_function("a"):
            y = x * 2
        with torch.profiler.record_function("b") as mark:
            mark.name  # noqa: B018
            y = y.sin()
            pliant.graph_break()
            y = y + 1
        return y

    fn = compiled(program)
    for n in (3, 4):
        torch.testing.assert_close(fn(t(n)), program(t(n)))
    assert pliant.stats()["graph_breaks"] == 1


def test_a_tensor_as_a_key():
    w = [t(3, grad=True), t(3, seed=1, grad=True)]
    state = {w[0]: 2.0}

    def program(which):
        state[w[which]] = state.get(w[which], 0.0) + 1.0
        return w[which] * 2

    twin = copy.copy(state)
    fn = compiled(program)
    for which in (0, 1, 1, 0):
        fn(which)
        twin[w[which]] = twin.get(w[which], 0.0) + 1.0
    assert state == twin and len(state) == 2


def test_the_steps_tensors_are_let_go():
    def step(w, x):
        (w * x).sum().backward()

    w, x = t(3, grad=True), t(3)
    compiled(step)(w, x)
    watched = weakref.ref(x)
    del x
    assert watched() is None


class Odd(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, k):
        ctx.k = k
        return x * x * k

    @staticmethod
    def backward(ctx, g):
        return g * 100 + ctx.k, None


@pytest.mark.parametrize("backend", ["aten", "eager"])
def test_backends_that_differentiate_see_what_autograd_saw(backend):
    def program(x, w):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ w
        with torch.no_grad():
            z = (x * 2).sin()
        return y, z * x + Odd.apply(x, 3), torch.is_grad_enabled()

    fn = pliant.compile(program, backend=backend, strict=True)
    for n in (3, 5):
        results = []
        for f in (program, fn):
            x = t(n, 4, grad=True)
            out = f(x, t(4, 3))
            results.append([*out, *torch.autograd.grad(out[1].sum(), x)])
        for want, got in zip(*results, strict=True):
            assert torch.equal(want, got) and want.dtype is got.dtype if isinstance(want, torch.Tensor) else want is got
