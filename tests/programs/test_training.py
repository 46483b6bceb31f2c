"""Gradients: the compiled region is differentiable exactly as the program is.

PYTEST_DONT_REWRITE: the programs keep their own asserts.
"""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import pliant
from tests.helpers import compiled, own_backend
from tests.programs.registry import cases, each, program, t

G = {"grad": True}
SHAPES = each(3, 5, 2, grad=True)
PAIRS = each(3, 5, 2, tail=(4,), n=2, grad=True)


@program(*PAIRS, grad=True, captures=1, breaks=0)
def pointwise(x, y):
    return (x * y + x.sin()).relu().exp() / (y.abs() + 1)


@program(*PAIRS, grad=True, breaks=0)
def many_outputs(x, y):
    a = x * 2
    return a, a.sum(), y.t() @ x, a.detach(), (x > 0), [y], x


@program(*[(t(n, 4, grad=True), t(n, 4)) for n in (3, 5, 2)], grad=True, breaks=0)
def only_one_requires_grad(x, y):
    z = y * 2
    return x @ y.t(), z, z.requires_grad


@program((t(3, grad=True), t(3)), (t(3), t(3, grad=True)), (t(3), t(3)), (t(3, grad=True), t(3, grad=True)), grad=True)
def requires_grad_changes(x, y):
    return x * y, (x * 2).requires_grad


@program(*SHAPES, grad=True, breaks=0)
def no_grad_inside(x):
    with torch.no_grad():
        y = x * 2
    z = x + y
    with torch.no_grad(), torch.enable_grad():
        w = x * 3
    return y, z, w, torch.is_grad_enabled()


@torch.no_grad()
def without(x):
    return x * 2


@torch.enable_grad()
def within(x):
    return x * 2


@program(*SHAPES, grad=True)
def grad_mode_decorators(x):
    return without(x), within(x), torch.no_grad()(lambda v: v + 1)(x)


@program(*SHAPES, grad=True)
def set_grad_enabled_context(x):
    with torch.set_grad_enabled(False):
        y = x * 2
    with torch.set_grad_enabled(x.dim() == 1):
        z = x * 3
    return y, z


@program(*each(3, 4))
def inference_mode_inside(x):
    with torch.inference_mode():
        y = x * 2
        a = torch.is_inference_mode_enabled()
    return a, x + 1, y


@program(*each(3, 4), before=lambda i, s: None)
def detach_and_requires_grad(x):
    y = (x * 2).detach().requires_grad_(True)
    z = y * 3
    return y, z, z.requires_grad, x.requires_grad


@program(*PAIRS, grad=True)
def inplace_on_intermediates(x, y):
    a = x * 2
    a.mul_(y)
    b = a[1:]
    b.add_(1)
    a[0] = y[0] * 3
    return a, b


@program(*[(t(n, 4, grad=True), t(n, 4)) for n in (3, 5)], grad=True)
def inplace_makes_input_require_grad(x, y):
    y.mul_(x)
    return y + 1


@program(*SHAPES)
def inplace_on_leaf_raises(x):
    x.add_(1)
    return x


@program(*[(t(n, 3, grad=True),) for n in (3, 5)])
def inplace_on_leaf_in_no_grad(x):
    with torch.no_grad():
        x.mul_(0.5)
    return (x * 2).sum()


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, k):
        ctx.save_for_backward(x)
        ctx.k = k
        return x * x * k

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * 2 * x * ctx.k + 100, None


@program(*SHAPES, grad=True)
def autograd_function(x):
    return Square.apply(x, 3) + Square.apply(x * 2, 1)


class Decides(torch.autograd.Function):
    """Its backward is run by CPython when the gradients are worked out: what it decides on data no graph can hold."""

    @staticmethod
    def forward(ctx, x, way):
        ctx.save_for_backward(x)
        ctx.way = way
        return x * 2

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        if ctx.way == "raises":
            if not torch.equal(x[0] * 1, x[:1].sum()):
                raise RuntimeError("they are the same")
        elif ctx.way == "says":
            if (x.abs() > 100).any():
                raise ValueError(f"too large: {x.max()}")
        elif ctx.way == "joins":
            g = g * 3 if x.sum() > 0 else g - 1
        elif ctx.way == "counts":
            n = 0
            while g.abs().sum() < 30:
                g, n = g * 2, n + 1
            g = g + n
        elif ctx.way == "asserts":
            assert (x.abs() < 100).all()
        return g * x, None


@pytest.mark.parametrize("way", ["raises", "says", "joins", "counts", "asserts"])
@pytest.mark.parametrize("backend", ["native", "aten"])
def test_a_backward_that_decides_on_data(way, backend):
    def fn(x):
        y = x.sin()
        return Decides.apply(y, way).cos() + 1

    made = pliant.compile(fn, backend=backend)
    for n in (3, 4, 6):
        for scale in (1.0, -1.0, 0.01):
            x, y = [(torch.arange(1.0, n + 1) * scale).requires_grad_() for _ in range(2)]
            made(x).sum().backward()
            fn(y).sum().backward()
            torch.testing.assert_close(x.grad, y.grad)


def test_a_hook_that_decides_on_data():
    def hook(g):
        return g * 3 if g.sum() > 0 else g - 1

    def fn(x):
        y = x.sin()
        y.register_hook(hook)
        return (y * y).cos() + 1

    made = pliant.compile(fn)
    for n in (3, 4, 6):
        for scale in (1.0, -1.0):
            x, y = [(torch.arange(1.0, n + 1) * scale).requires_grad_() for _ in range(2)]
            made(x).sum().backward()
            fn(y).sum().backward()
            torch.testing.assert_close(x.grad, y.grad)


class Rounds(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return x.round(), x * 2

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    def backward(ctx, g, _):
        return g


@program(*SHAPES, grad=True)
def autograd_function_setup_context(x):
    a, b = Rounds.apply(x)
    return a * 3, b, b.requires_grad


@program(*SHAPES, grad=True)
def grad_inside(x):
    y = (x**3).sum()
    (g,) = torch.autograd.grad(y, x, create_graph=True)
    return g * 2


@program(*SHAPES)
def backward_inside(x):
    y = (x * 3).sum()
    y.backward()
    return y.detach()


@program(*SHAPES)
def grad_attribute(x):
    before = x.grad
    (x * 3).sum().backward()
    g = x.grad
    x.grad = None
    return before, g


@program(*[(t(n, grad=True), torch.full((n,), 2.0)) for n in (3, 4)])
def training_step_inside(w, x):
    loss = (w * x).pow(2).sum()
    loss.backward()
    with torch.no_grad():
        w -= 0.1 * w.grad
    w.grad = None
    return loss.detach()


@program(*PAIRS, grad=True)
def views_of_leaves(x, y):
    a = x[1:]
    b = y.t()
    return a, b, a.sum() * b, x.view(-1)


@program(*SHAPES, grad=True)
def expand_and_sum(x):
    return x[None].expand(4, -1), x.sum(), x.mean(0, keepdim=True), x.cumsum(0), x.max(), x.sort()[0], x.logsumexp(0)


@program(*each(3, 5, tail=(4,), grad=True), grad=True)
def softmax_and_losses(x):
    target = torch.arange(x.shape[0]) % 4
    return (nn.functional.cross_entropy(x, target), x.softmax(-1), nn.functional.mse_loss(x, torch.zeros_like(x)),
        nn.functional.log_softmax(x, 1),)


@program(*each(3, 5, tail=(4,), grad=True), grad=True)
def indexing_gradients(x):
    i = torch.tensor([0, 2, 0])
    return (x[i], x[:, ::2], x.index_select(0, i), x.gather(1, torch.zeros(x.shape[0], 1, dtype=torch.long)), x[x > 0].sum(),
        torch.cat([x, x[1:]]), torch.stack([x, x]), x.masked_fill(x > 0, 0.0),)


@program(*each(3, 5, tail=(4,)))
def autocast_inside(x):
    w = torch.ones(4, 3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x @ w
        with torch.autocast("cpu", enabled=False):
            z = x @ w
        a = torch.is_autocast_enabled("cpu")
    return y, z, a, torch.is_autocast_enabled("cpu"), x @ w


@program(*each(3, 5, tail=(4,), dtype=torch.float64, grad=True), grad=True)
def doubles(x):
    return (x @ x.t()).tanh().float() * 0.1 + x.sum()


@program(*SHAPES, grad=True)
def data_dependent_branch_training(x):
    if x.sum() > 0:
        return x * 2
    return x.sin() * 3


@program(*SHAPES, grad=True)
def retains_grad(x):
    y = x * 2
    y.retain_grad()
    return y * 3, y.is_leaf


@program(*SHAPES, grad=True)
def functional_transforms(x):
    f = lambda v: (v**2).sum()  # noqa: E731
    return torch.func.grad(f)(x.detach()), torch.func.vmap(lambda r: r * 2)(x), torch.func.jvp(f, (x.detach(),), (torch.ones_like(x),))[1]


@program(*PAIRS, grad=True, breaks=0)
def derivatives_that_ask_for_integers(x, y):
    z = torch.complex(x, y)
    return torch.sgn(z), torch.masked_select(z, x > 0)


@program(*PAIRS, grad=True)
def derivatives_that_cannot_be_captured(x, y):
    z = x * 2
    return z.index_fill(0, torch.tensor([0, 1]), y.mean()) + y


@program(*PAIRS)
def operators_that_ask_for_integers(x, y):
    return torch.cov(x * 2) + 1, torch.combinations(y.sum(1), 2)


@pytest.mark.parametrize("case", cases(__name__), ids=repr)
def test_program(case):
    case.run()


def sgd(step, model, batches):
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for x in batches:
        opt.zero_grad()
        loss = step(model, x)
        loss.backward()
        opt.step()
        losses.append(float(loss))
    return losses


@pytest.mark.parametrize("optimizer_state", [1])
def test_training_loop(optimizer_state):
    torch.manual_seed(0)
    a = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.BatchNorm1d(8), nn.Linear(8, 1))
    b = copy.deepcopy(a)
    batches = [torch.randn(n, 4) for n in (8, 5, 16, 7, 9, 3)]

    def step(m, x):
        return (m(x) - x.sum(1, keepdim=True)).pow(2).mean()

    assert sgd(step, a, batches) == pytest.approx(sgd(compiled(step), b, batches), rel=1e-4)
    for p, q in zip(a.parameters(), b.parameters(), strict=True):
        assert torch.allclose(p, q, atol=1e-5)


def test_backward_twice_and_accumulation():
    fn = compiled(lambda x: (x**2).sum())
    x, y = t(4, grad=True), t(4, grad=True)
    for _ in range(2):
        fn(x).backward()
        (y**2).sum().backward()
    assert torch.equal(x.grad, y.grad)
    out = fn(x)
    out.backward(retain_graph=True)
    out.backward()
    with pytest.raises(RuntimeError, match="second time"):
        out.backward()


def masked(x):
    with torch.no_grad():
        scale = x * 2
    return (x * scale).sin()[x > 0] * x.detach().sum()


def edited(x):
    a = x * 2
    a.mul_(x)
    a[0] = x[1] * 3
    return a**2, x.t()


def dropped(x):
    return nn.functional.dropout(x**2, 0.5)


LAYERS = nn.Sequential(nn.Conv1d(4, 4, 2), nn.BatchNorm1d(4), nn.Tanh())
NORM = nn.LayerNorm(4)


def layers(x):
    return LAYERS(x[None]).softmax(1) + NORM(x.sum(1)).sum()


@pytest.mark.parametrize("program", [lambda x: x**3, masked, edited, dropped, layers])
def test_differentiating_three_times(program):
    def derivatives(fn, n):
        torch.manual_seed(0)
        given = t(4, n, grad=True)
        x = given * 1  # an input with a history
        sources = [given, x, *LAYERS.parameters(), *NORM.parameters()] if program is layers else [given, x]
        out = fn(x)
        total = sum(o.sum() for o in (out if type(out) is tuple else (out,)))
        grads = torch.autograd.grad(total, sources, create_graph=True, allow_unused=True)
        found = list(grads)
        for _ in range(2):
            total = sum((g**2).sum() for g in grads if g is not None and g.requires_grad)
            if not isinstance(total, torch.Tensor):
                break
            grads = torch.autograd.grad(total, sources, create_graph=True, allow_unused=True)
            found += grads
        return found

    fn = compiled(program)
    for n in (4, 6, 5):
        for want, got in zip(derivatives(program, n), derivatives(fn, n), strict=True):
            assert (want is None) is (got is None)
            assert want is None or torch.allclose(want, got, rtol=1e-3, atol=1e-4)


def test_inputs_that_depend_on_each_other_differentiated_twice():
    def second(fn):
        a = t(4, grad=True)
        b = a * 2
        (g,) = torch.autograd.grad(fn(a, b).sum(), a, create_graph=True)
        return g, *torch.autograd.grad((g**2).sum(), a)

    def program(a, b):
        return (a * b * b).sin()

    assert all(map(torch.allclose, second(program), second(compiled(program))))


@own_backend
def test_a_function_of_the_users_differentiated_twice_is_refused():
    x = t(4, grad=True)
    (g,) = torch.autograd.grad(compiled(lambda x: Square.apply(x, 3))(x).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="differentiated once, not twice"):
        torch.autograd.grad(g.sum() + x.sum(), x)


def test_saved_tensor_modified_in_place_is_noticed():
    def program(x, y):
        return x * y

    fn = compiled(program)
    x, y = t(4, grad=True), t(4, seed=1, grad=False)
    out = fn(x, y)
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_an_lstm_is_trained():
    """oneDNN's LSTM keeps what its backward needs only where gradients are on while it runs: it runs in eager PyTorch."""
    want, got = torch.nn.LSTM(4, 3, batch_first=True), torch.nn.LSTM(4, 3, batch_first=True)
    got.load_state_dict(want.state_dict())
    compiled = pliant.compile(lambda x: got(x)[0].square(), strict=True)
    for n in (5, 7, 6):
        x = torch.randn(2, n, 4, generator=torch.Generator().manual_seed(n))
        for y in (want(x)[0].square(), compiled(x)):
            y.sum().backward()
    for a, b in zip(want.parameters(), got.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad)


def trained(data, model, optimizer, scaler, loss_fn, skipped, scales):
    for i, (x, target) in enumerate(data):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.half, enabled=scales):
            output = model(x)
            loss = loss_fn(output, target)
        if scales:
            scaler.scale(loss).backward()
            if i == skipped and scaler.is_enabled():
                with torch.no_grad():
                    model[1].weight.grad.fill_(float("inf"))
            scaler.step(optimizer)
            scaler.update()
        else:
            loss.backward()
            if not scaler.is_enabled() or i != skipped:
                optimizer.step()


def grad_scaled(enabled):
    """Two models, one plain and one under autocast, whose scaler may be off; a gradient is infinite once."""
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    scaled = copy.deepcopy(plain)
    data = [(torch.randn(8, 8), torch.randn(8, 8)) for _ in range(4)]
    scaler = torch.GradScaler(device="cpu", init_scale=128.0, growth_factor=2.0, enabled=enabled, growth_interval=1)
    optimizers = [torch.optim.AdamW(m.parameters(), lr=1.0) for m in (plain, scaled)]
    trained(data, plain, optimizers[0], scaler, nn.MSELoss(), 2, False)
    trained(data, scaled, optimizers[1], scaler, nn.MSELoss(), 2, True)
    ps = [*plain.parameters(), *scaled.parameters()]
    return [p.detach().clone() for p in ps], [p.grad.clone() for p in ps], scaler.get_scale()


def test_casts_of_weights_do_not_outlive_a_step():
    """Where the graph breaks under autocast, CPython's part fills autocast's cache; compiled code that leaves the region empties it."""
    compiled = pliant.compile(grad_scaled, strict=True, background=False, backend="aten")
    for enabled in (True, False):
        for a, b in zip(grad_scaled(enabled)[:2], compiled(enabled)[:2]):
            for v, w in zip(a, b):
                torch.testing.assert_close(v, w, equal_nan=True)
