"""Gradients of gradients of regions with hooks, an `autograd.Function` or writes to what they are given, beside eager, at any size."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.autograd.function import once_differentiable

import pliant

F = torch.nn.functional
LINEAR = torch.nn.Linear(1, 4)


class Power(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, k):
        ctx.save_for_backward(x)
        ctx.k = k
        return x**k

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * ctx.k * x ** (ctx.k - 1), None


class Reversed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, a):
        ctx.a = a
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        return -ctx.a * g, None


class Both(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x * y, x + y

    @staticmethod
    def backward(ctx, g, h):
        x, y = ctx.saved_tensors
        return g * y + h, g * x + h


class Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        return g * 3 * ctx.saved_tensors[0] ** 2


class Clipped(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, g):
        return g.clamp(-0.1, 0.1)


def function(x, w):
    return Power.apply(x * w, 3)


def reversed_alone(x, w):
    return Reversed.apply(x * 2, 0.5)


def two_results(x, w):
    return Reversed.apply(x * w, 0.5) * w, (x * w * 2).cos()


def of_two(x, w):
    a, b = Both.apply(x * x, w)
    return a * b.sin(), b * w


def hook(x, w):
    h = (x * w).tanh()
    h.register_hook(lambda g: g * 2 * x.shape[0])
    return h.sin() * w


def hook_behind_a_write(x, w):
    z = x * w
    z.mul_(w)
    h = z * 1
    h.register_hook(lambda g: g * x)
    return h * w


def layers(x, w):
    h = LINEAR(x[:, None]).relu()
    h.register_hook(lambda g: g * 0.5)
    return (h @ LINEAR.weight)[:, 0] * w.softmax(0) + Power.apply(torch.cat([x, w]), 2).view(2, -1).sum(0)


def repeated(x, w):
    h, out = x.cumsum(0), []
    for i in range(x.shape[0]):
        h = Reversed.apply(h * w[i], 1.0)
        out.append(h.sum())
    return torch.stack(out)


def drawn(x, w):
    y = x.clone()
    y[0] = 3.0
    return F.rrelu(Power.apply(y, 2) - w, training=True) * F.dropout(Reversed.apply(w, 1.0), 0.5)


def written(x, w):
    x.mul_(w)
    return x * x * w


def written_and_returned(x, w):
    x.mul_(w)
    return Power.apply(x, 2) * w, x


def by_data(x, w):
    at = (x > 0).nonzero().squeeze(1)
    return Power.apply(x[at], 2).sum() * w[at]


def once(x, w):
    return Once.apply(x * w) * w


def many(x, w):
    a = Power.apply(x * w, 2)
    return a, a.sin() * w, Reversed.apply(a * w, 2.0).exp()


MEAN = torch.zeros(())


def running_mean(x, w):
    """A buffer is written, and the second derivative of batch norm wants sizes as integers."""
    with torch.no_grad():
        MEAN.mul_(0.5).add_(0.5 * (x > 0).float().mean())
        MEAN.fill_(0.25)
    h = F.leaky_relu((x - MEAN).tanh() * w, 0.1).masked_fill(x > 0.5, 0.1)
    h = h + F.batch_norm(torch.stack([x, w], 1), torch.zeros(2), torch.ones(2), training=True)[:, 0]
    return h + torch.arange(x.shape[0]) / 3, F.smooth_l1_loss(h[:, None].expand(-1, 3), w[:, None]), h.pow(2).mean()


PROGRAMS = [
    running_mean,
    function, reversed_alone, two_results, of_two, hook, hook_behind_a_write, layers, repeated, drawn, written, written_and_returned,
    by_data, once, many,
]  # fmt: skip


def of_all(outs: list[Any], base: list[Any]) -> list[Any]:
    found = torch.autograd.grad(sum(o.pow(2).sum() for o in outs), base, create_graph=True, allow_unused=True)
    return [*found, *torch.autograd.grad(sum((g**2).sum() for g in found if g is not None), base, allow_unused=True)]


def of_the_last(outs: list[Any], base: list[Any]) -> list[Any]:
    """Gradients of one result, each differentiated on its own."""
    found = torch.autograd.grad(outs[-1].sum(), base, create_graph=True, allow_unused=True)
    told: list[Any] = [*found, [g is not None and g.requires_grad for g in found]]
    for g in found:
        if g is not None and g.requires_grad:
            told += torch.autograd.grad((g**2).sum(), base, allow_unused=True, retain_graph=True)
    return told


def penalty(outs: list[Any], base: list[Any]) -> list[Any]:
    """A loss and the size of its gradients go backward together."""
    loss = sum(o.sin().sum() for o in outs)
    found = torch.autograd.grad(loss, base, create_graph=True, allow_unused=True)
    (loss + sum(g.norm() for g in found if g is not None)).backward()
    return [b.grad for b in base]


def tried(fn: Callable, ask: Callable, n: int, made: bool) -> Any:
    base = [torch.randn(n, generator=torch.Generator().manual_seed(n + i)).requires_grad_() for i in range(2)]
    torch.manual_seed(7)
    out = fn(*[b * 1 for b in base]) if made else fn(*base)
    outs = list(out) if isinstance(out, tuple) else [out]
    try:
        return [*[o.detach().clone() for o in outs], *ask(outs, base)]
    except RuntimeError as e:
        return type(e)


def same(want: Any, got: Any) -> None:
    assert type(want) is type(got), (want, got)
    if isinstance(want, list):
        assert len(want) == len(got)
        for a, b in zip(want, got, strict=True):
            same(a, b)
    elif isinstance(want, torch.Tensor):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
        assert got.requires_grad == want.requires_grad
    else:
        assert want == got


@pytest.mark.parametrize("backend", ["aten", "native"])
@pytest.mark.parametrize("ask", [of_all, of_the_last, penalty], ids=lambda f: f.__name__)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_differentiated_twice(program, ask, backend):
    compiled = pliant.compile(program, backend=backend, background=False)
    writes = program in (written, written_and_returned)
    for n in (3, 5, 4):
        for made in (True,) if writes else (False, True):
            same(tried(program, ask, n, made), tried(compiled, ask, n, made))
    assert pliant.stats()["fallbacks"] == 0


def clipped(x, w):
    return Clipped.apply(x * w) * w


def added_to(x, w):
    h = x * w
    h.register_hook(lambda g: g + 1)
    return h.sin()


def replaced(x, w):
    h = x * w
    h.register_hook(lambda g: torch.ones_like(g))
    return h.sin()


def signs(x, w):
    h = x * w
    h.register_hook(lambda g: g.sign())
    return h.sin()


def drawing(x, w):
    h = x * w
    h.register_hook(lambda g: g * torch.rand(1))
    return h.sin()


@pytest.mark.parametrize("program", [clipped, added_to, replaced, signs, drawing], ids=lambda f: f.__name__)
def test_what_is_not_linear_in_gradients_is_refused(program):
    """Eager adds up what arrives there, of the results and of the gradients, before it calls the hook."""
    compiled = pliant.compile(program, backend="aten", background=False)
    x, w = torch.rand(3, requires_grad=True), torch.rand(3, requires_grad=True)
    found = torch.autograd.grad(compiled(x, w).sum(), [x, w], create_graph=True)
    torch.testing.assert_close(found, torch.autograd.grad(program(x, w).sum(), [x, w])) if program is not drawing else None
    if any(g.requires_grad for g in found):
        with pytest.raises(RuntimeError, match="differentiated once, not twice"):
            torch.autograd.grad(sum(g.sum() for g in found), [x, w])


def test_a_third_time_is_refused():
    compiled = pliant.compile(function, backend="aten", background=False)
    x, w = torch.rand(3, requires_grad=True), torch.rand(3, requires_grad=True)
    (g,) = torch.autograd.grad(compiled(x, w).sum(), x, create_graph=True)
    (h,) = torch.autograd.grad(g.sum(), x, create_graph=True)
    (want,) = torch.autograd.grad(torch.autograd.grad(function(x, w).sum(), x, create_graph=True)[0].sum(), x)
    torch.testing.assert_close(h, want)
    with pytest.raises(RuntimeError, match="not three times"):
        torch.autograd.grad(h.sum(), x)


@pytest.mark.skipif(os.environ.get("PLIANT_TEST_ENTRIES") == "1", reason="an entry from disk has no tape of its capture")
def test_an_input_that_was_written_since():
    """Nothing of it was kept: eager does not mind."""

    def program(x, b):
        return x.sin() * 2 + b

    answers = []
    for fn in (program, pliant.compile(program, backend="aten", background=False)):
        x, b = torch.arange(3.0).requires_grad_(), torch.ones(3)
        out = fn(x, b)
        b.add_(1)
        (g,) = torch.autograd.grad(out.sum(), x, create_graph=True)
        answers.append((g.detach(), *torch.autograd.grad(g.sum(), x)))
    torch.testing.assert_close(*answers)


class Resized(torch.autograd.Function):
    """Its result is that of a write, and its backward part works on memory of its own."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clone().mul_(2)

    @staticmethod
    def backward(ctx, g):
        out = g.new()
        out.resize_as_(g)
        return torch.mul(g, 2, out=out)


def test_a_backward_part_that_resizes_breaks_the_graph():
    """This was an internal error: the write of the forward part was taken for what has no derivative."""
    compiled = pliant.compile(lambda x: Resized.apply(x) * x)
    for n in (3, 5):
        x = torch.arange(float(n), requires_grad=True)
        compiled(x).sum().backward()
        assert torch.equal(x.grad, 4 * x.detach())


def test_an_operator_without_a_derivative_that_python_code_stands_in_for():
    """The graph breaks there, and `backward()` says so; this was an internal error."""
    compiled = pliant.compile(lambda x: torch.native_channel_shuffle(x * 2, 2).sin())
    for n in (3, 5):
        x = torch.ones(n, 4, 2, 2, requires_grad=True)
        out = compiled(x)
        assert torch.allclose(out, (x * 2).sin())
        with pytest.raises(RuntimeError, match="native_channel_shuffle is not implemented"):
            out.sum().backward()


def test_shuffled_channels():
    compiled = pliant.compile(lambda x: torch.channel_shuffle(x.sin(), 2).pow(2), fullgraph=True)
    for n in (4, 6):
        x = torch.randn(2, n, 2, 3, requires_grad=True)
        (g,) = torch.autograd.grad(compiled(x).sum(), x, create_graph=True)
        g.sum().backward()
        assert torch.allclose(x.grad, 2 * torch.cos(2 * x), atol=1e-6)


def test_normalization_over_channels_is_differentiated_once():
    """PyTorch refuses `create_graph=True` there; a region refuses who differentiates the gradients."""
    x = torch.ones(2, 3, 4, 4, requires_grad=True)
    (g,) = torch.autograd.grad(pliant.compile(torch.nn.CrossMapLRN2d(3))(x).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="can be differentiated once"):
        g.sum().backward()


torch.manual_seed(3)
STRIDED, GROUPED = torch.nn.Conv2d(4, 4, 3, 2, 1), torch.nn.Conv2d(4, 6, 3, groups=2, padding="same")
TRANSPOSED, DILATED = torch.nn.ConvTranspose2d(4, 2, 3, 2, 1, output_padding=1), torch.nn.Conv1d(4, 3, 2, 3, dilation=2)
BATCH, ACROSS, INSTANCE = torch.nn.BatchNorm2d(4), torch.nn.BatchNorm2d(4).eval(), torch.nn.InstanceNorm2d(4, affine=True)
WEIGHTS = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(4, 5))
SPECTRAL = torch.nn.utils.parametrizations.spectral_norm(torch.nn.Conv2d(4, 2, 3, padding=1)).eval()
EMBEDDING = torch.nn.Embedding(5, 4, padding_idx=1)
SIZED = torch.nn.ModuleList([STRIDED, GROUPED, TRANSPOSED, DILATED, BATCH, INSTANCE, WEIGHTS, SPECTRAL, EMBEDDING])

AT_ANY_SIZE = {
    "strided": lambda x: STRIDED(x).sin(),
    "grouped": lambda x: GROUPED(x).sin(),
    "transposed": lambda x: TRANSPOSED(x).sin(),
    "dilated": lambda x: DILATED(x[:, :, 0]).sin(),
    "batch norm": lambda x: BATCH(x).sin(),
    "batch norm that is evaluated": lambda x: ACROSS(GROUPED(x)[:, :4]).sin(),
    "instance norm": lambda x: INSTANCE(x.sin()),
    "group norm": lambda x: F.group_norm(x, 2),
    "glu": lambda x: F.glu(x, 1),
    "weight norm": lambda x: WEIGHTS(x.mean(2).transpose(1, 2)).sin(),
    "spectral norm": lambda x: SPECTRAL(x).sin(),
    "embedding": lambda x: EMBEDDING(torch.arange(x.shape[0] * 2).reshape(-1, 2) % 5).sum(1).pow(2) * x[:, :, 0, 0],
    "linear": lambda x: torch.where(x > 0, F.pad(x, (1, -1)).clamp(-1, 1), F.normalize(x)).pow(2),
    "pixels": lambda x: F.unfold(F.interpolate(F.pixel_shuffle(x, 2), scale_factor=2), 2).pow(2),
    "spectrum": lambda x: torch.fft.rfft(x).abs() + torch.linalg.solve(x[:1].mT @ x[:1] + torch.eye(x.shape[3]), x[:1].mT).sum(),
    "filled": lambda x: x.index_fill(1, torch.tensor([0]), 0.5).pow(2) + x.take(torch.tensor([1, 2])).pow(2).sum(),
}


@pytest.mark.parametrize("name", AT_ANY_SIZE)
def test_second_derivatives_at_any_size(name):
    """PyTorch's own of convolutions and norms ask for sizes; and backward parts with pads, masks and solves are linear in gradients."""

    def program(x):
        h = x * 1.5
        h.register_hook(lambda g: None if g is None else g * 2)
        return AT_ANY_SIZE[name](h)

    compiled = pliant.compile(program, backend="aten", background=False)
    for n in (5, 7):
        found = []
        for fn in (program, compiled):
            x = torch.randn(n - 3, 4, n, n + 1, generator=torch.Generator().manual_seed(n)).requires_grad_()
            out = fn(x)
            (g,) = torch.autograd.grad((out * torch.arange(out.numel()).view(out.shape).sin()).sum(), x, create_graph=True)
            found.append([g, *torch.autograd.grad(g.pow(2).sum(), [x, *SIZED.parameters()], allow_unused=True)])
        same(*[[t if t is None else t.detach() for t in side] for side in found])
    assert pliant.stats()["recompiles"] == 0


def through_a_parameter(x, w, count):
    count.add_(1)
    y = (x * w).sin() * w.view(-1)
    return y * x, (y @ w).exp()


@pytest.mark.parametrize("backend", ["aten", "native"])
def test_a_parameter_that_gets_its_gradients_behind_the_forward_part(backend):
    """Second gradients depend on it where the formulas of the first read it; what was computed before does not."""
    compiled = pliant.compile(through_a_parameter, backend=backend, background=False)
    for n in (3, 4, 4, 5):
        sides = []
        for fn in (through_a_parameter, compiled):
            x, w, count = torch.linspace(0.5, 1, n).double().requires_grad_(), torch.linspace(1, 2, n).double(), torch.zeros(())
            out = fn(x, w, count)
            w.requires_grad_()
            count.add_(1)  # the first gradients do not read it
            firsts = [torch.autograd.grad(t.sum(), x, create_graph=True)[0] for t in out]
            sides.append([*firsts, *[g for f in firsts for g in torch.autograd.grad(f.sum(), (x, w), retain_graph=True)]])
            assert w._version == 0
        torch.testing.assert_close(*sides)


def test_such_a_parameter_of_a_region_that_cannot_run_again():
    """A region with a hook takes what had no gradients for constants: it says so, if somebody asks."""

    def program(x, w):
        t = x * w
        t.register_hook(lambda g: g * 2)
        return t.sin() * w

    for fn in (program, pliant.compile(program)):
        x, w = torch.linspace(0.5, 1, 3).requires_grad_(), torch.ones(3)
        out = fn(x, w)
        w.requires_grad_()
        (first,) = torch.autograd.grad(out.sum(), x, create_graph=True)
        assert first.requires_grad
        if fn is not program:
            with pytest.raises(RuntimeError, match="differentiated once"):
                torch.autograd.grad(first.sum(), w)


def apart_from_the_last(x, w, v):
    return (Power.apply(x, 2) * w).sum() + (v * v * v).sum()


def all_of_all(x, w, v):
    return (Power.apply(x, 2) * w * v).sum()


def two_of_a_function(x, w, v):
    x.sin()
    return (Power.apply(x, 3) + Power.apply(v, 2)).sum() * w.sum()


def heard_in_second_gradients(fn: Callable, chained: bool, rows: int) -> list:
    """What hooks on the inputs hear while gradients of each gradient are asked for, with respect to each input and all; sorted in each
    pass, as the order among leaves is not promised. Then what is still there, where these have freed what they went through."""
    out: list[Any] = []
    leaves = [(torch.arange(rows * 1.0) + k).requires_grad_() for k in (1, 2, 3)]
    given = [t * t if chained else t for t in leaves]
    heard: list[Any] = []
    for name, t in zip("xwv", given, strict=True):
        t.register_hook(lambda g, name=name: heard.append((name, None if g is None else g.tolist())))
    firsts = torch.autograd.grad(fn(*given), given, create_graph=True)
    for i in range(12):
        first, to = firsts[i // 4], given if i % 4 == 3 else [given[i % 4]]
        found = torch.autograd.grad(first.square().sum(), to, retain_graph=True, allow_unused=True)
        out.append((sorted(heard), [g if g is None else g.tolist() for g in found]))
        heard.clear()
    torch.autograd.grad(firsts[0].square().sum(), leaves, allow_unused=True)
    try:
        torch.autograd.grad(sum([t.sum() for t in given]), leaves, allow_unused=True)
    except RuntimeError as e:
        out.append(str(e))
    return out


@pytest.mark.parametrize("chained", [False, True])
@pytest.mark.parametrize("program", [apart_from_the_last, all_of_all, two_of_a_function], ids=lambda f: f.__name__)
def test_hooks_hear_second_gradients_of_what_they_depend_on_alone(program, chained):
    compiled = pliant.compile(program)
    for rows in (2, 3, 5):
        assert heard_in_second_gradients(compiled, chained, rows) == heard_in_second_gradients(program, chained, rows)


def attending(x, w):
    q = (x @ w).view(1, 2, -1, 8)
    return torch.nn.functional.scaled_dot_product_attention(q, q, q).sum(), (x * w.sum(0)).sin().sum()


def test_beside_attention_and_through_it():
    """Attention says that it may draw random numbers, and does not where nothing is dropped: what is beside it is differentiated twice, and
    through it PyTorch's own words arrive."""

    def of(fn, which):
        torch.manual_seed(0)
        found = []
        for rows in (8, 12):
            x, w = torch.randn(rows, 8, requires_grad=True), torch.randn(8, 8, requires_grad=True)
            (gx,) = torch.autograd.grad(fn(x, w)[which], x, create_graph=True)
            gx.pow(2).sum().backward()
            found += [gx.detach(), x.grad, w.grad]
        return found

    compiled = pliant.compile(attending)
    torch.testing.assert_close(of(compiled, 1), of(attending, 1))
    told = []
    for fn in (attending, compiled):
        with pytest.raises(RuntimeError, match="is not implemented") as error:
            of(fn, 0)
        told.append(str(error.value))
    assert told[0] == told[1]


def by_a_sum(x, w):
    return x * w.sum()


def of_the_other_alone(x, w):
    return (x.tanh() * w).sum() + x.sum()


@pytest.mark.parametrize("program", [by_a_sum, of_the_other_alone], ids=lambda f: f.__name__)
@pytest.mark.parametrize("wanted", [0, 1])
def test_what_a_gradient_does_not_depend_on_gets_none(program, wanted):
    def of(fn, rows):
        ins = torch.linspace(-1, 1, rows * 4).view(rows, 4).requires_grad_(), torch.linspace(1, 2, 4).requires_grad_()
        (g,) = torch.autograd.grad(fn(*ins).sum(), ins[wanted], create_graph=True)
        g.sum().backward()
        return [t.grad for t in ins]

    compiled = pliant.compile(program)
    for rows in (3, 4, 5, 6):
        want, got = of(program, rows), of(compiled, rows)
        assert [g is None for g in got] == [g is None for g in want]
        torch.testing.assert_close(got, want)
