"""What a tensor's history is: leaves and tensors with a past, views, hooks, gradients inside the program, and the lazy bits of its memory.

PYTEST_DONT_REWRITE: the programs keep their own asserts.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

import pliant
from tests.helpers import check, compiled

grad = torch.autograd.grad


# -- kinds of tensors, one after the other through one compiled function ----------------------------------------------------
def of_inference() -> torch.Tensor:
    with torch.inference_mode():
        return torch.ones(4)


def retained() -> torch.Tensor:
    x = torch.ones(4, requires_grad=True) * 2
    x.retain_grad()
    return x


def with_grad() -> torch.Tensor:
    x = torch.ones(4, requires_grad=True)
    x.grad = torch.ones(4) * 3
    return x


def hooked() -> torch.Tensor:
    x = torch.ones(4, requires_grad=True)
    x.register_hook(lambda g: g * 10)
    return x


def negated() -> torch.Tensor:
    return torch.complex(torch.ones(4), torch.arange(4.0)).conj().imag


KINDS: list[Callable[[], torch.Tensor]] = [
    lambda: torch.ones(4),
    lambda: torch.ones(4, requires_grad=True),
    lambda: torch.ones(4, requires_grad=True) * 2,
    lambda: torch.ones(2, 4)[0],
    lambda: torch.ones(2, 4, requires_grad=True)[0],
    of_inference,
    retained,
    lambda: torch.ones(4).add_(1),
    lambda: torch.ones(4).share_memory_(),
    lambda: torch.ones(2, 4, requires_grad=True).unbind(0)[1],
    with_grad,
    hooked,
    lambda: torch.nn.Parameter(torch.ones(4)),
    lambda: torch.nn.Buffer(torch.ones(4)),
    lambda: torch.ones(10)[3:7],
    negated,
]
ATTRIBUTES = """
    is_leaf requires_grad retains_grad output_nr _version name names is_sparse is_quantized is_nested layout is_cpu is_meta itemsize nbytes
    shape dtype __class__ storage_offset is_inference is_pinned is_shared _is_view is_conj is_neg is_contiguous element_size numel
""".split()


def outcome(f: Callable, args: tuple) -> Any:
    try:
        r = f(*args)
    except Exception as e:
        return type(e), str(e)
    if isinstance(r, torch.Tensor):
        r = (r,)
    shown = [t.detach().tolist() if isinstance(t, torch.Tensor) else t for t in r] if isinstance(r, tuple) else (type(r), r)
    return shown, [(a.detach().tolist(), a.grad.tolist() if a.is_leaf and a.grad is not None else None) for a in args]


def same(a: Any, b: Any) -> bool:
    """Equal, floats within rounding."""
    if type(a) is float and type(b) is float:
        return math.isclose(a, b, rel_tol=1e-5, abs_tol=1e-6)
    if type(a) in (list, tuple) and type(a) is type(b):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


def agree(f: Callable, makers: list[Callable[[], tuple]]) -> None:
    compiled = pliant.compile(f, background=False)
    for make in makers * 2:
        got, want = outcome(compiled, make()), outcome(f, make())
        assert same(got, want), (got, want)


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_attribute(name: str) -> None:
    def f(x: torch.Tensor) -> Any:
        v = getattr(x, name)
        return v() if callable(v) and name != "__class__" else v

    agree(f, [lambda k=k: (k(),) for k in KINDS])


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x.grad_fn is None,
        lambda x: x._base is None,
        lambda x: x + 1 if x.is_leaf else x - 1,
        lambda x: x.add_(1) * 2,
        lambda x: x.requires_grad_().sum(),
        lambda x: x.data.add_(1).sum(),
        lambda x: isinstance(x, torch.nn.Parameter),
        lambda x: (x.detach() * 3, x.sum(0).detach(), x.detach().exp()),
    ],
)
def test_kinds(f: Callable) -> None:
    agree(f, [lambda k=k: (k(),) for k in KINDS])


# -- memory that says the opposite of the elements -----------------------------------------------------------------------------
NEGATED = {
    "mul": lambda x: x * 3,
    "matmul": lambda x: x @ x,
    "sum": lambda x: x.sum(1),
    "softmax": lambda x: x.softmax(-1),
    "write": lambda x: x.add_(1),
    "gather": lambda x: x.gather(1, torch.zeros(4, 1).long()),
    "cumsum": lambda x: x.cumsum(0),
    "copy": lambda x: torch.zeros(4, 4).copy_(x),
    "embedding": lambda x: torch.nn.functional.embedding(torch.tensor([1]), x),
    "view": lambda x: x.view(2, 8) * 2,
    "tail": lambda x: x.reshape(16)[3:].exp(),
    "unbind": lambda x: x.unbind()[0] * 2,
    "cat": lambda x: torch.cat([x, x + 1]),
    "norm": lambda x: torch.nn.functional.layer_norm(x, (4,)),
    "conv": lambda x: torch.nn.functional.conv1d(x[None], x[None]),
}


@pytest.mark.parametrize("name", NEGATED)
def test_negated_input(name: str) -> None:
    compiled = pliant.compile(NEGATED[name], background=False)
    for seed in range(2):
        a, b = (torch.complex(torch.ones(4, 4), torch.rand(4, 4, generator=torch.Generator().manual_seed(seed))).conj().imag for _ in "ab")
        assert a.is_neg()
        torch.testing.assert_close(compiled(a), NEGATED[name](b))
        torch.testing.assert_close(a, b)


# -- torch.autograd.grad ---------------------------------------------------------------------------------------------------
class Triple(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return g * x * 3


def leaf(i: int) -> torch.Tensor:
    return torch.rand(2 + i, generator=torch.Generator().manual_seed(i)).requires_grad_()


def one(i: int) -> tuple:
    return (leaf(i),)


def two(i: int) -> tuple:
    return leaf(i), leaf(i)


def with_past(i: int) -> tuple:
    x = leaf(i)
    return x * 2, x


def past_or_leaf(i: int) -> tuple:
    x = leaf(i)
    return leaf(i) if i % 2 == 0 else x * 2, x


def with_hook(i: int) -> tuple:
    x = leaf(i)
    if i != 1:
        x.register_hook(lambda g: g * 10)
    return (x,)


def past_with_hook(i: int) -> tuple:
    y = leaf(i) * 2
    y.register_hook(lambda g: g * 10)
    return (y,)


def twice_differentiated(x: torch.Tensor) -> tuple:
    (g,) = grad((x**3).sum(), x, create_graph=True)
    (h,) = grad(g.sum(), x)
    return g, h


def freed(x: torch.Tensor) -> tuple:
    y = (x**3).sum()
    return *grad(y, x), *grad(y, x)


def kept(x: torch.Tensor) -> tuple:
    y = (x**3).sum()
    return *grad(y, x, retain_graph=True), *grad(y, x)


def nothing_saved(x: torch.Tensor) -> tuple:
    y = (x + x).sum()
    return *grad(y, x), *grad(y, x)


def freed_by_backward(x: torch.Tensor) -> torch.Tensor:
    y = x * x
    y.sum().backward()
    y.sum().backward()
    return y.detach()


def behind_a_break(x: torch.Tensor) -> tuple:
    y = x * 3
    pliant.graph_break()
    return grad((y * y).sum(), [y, x])


def of_a_function(x: torch.Tensor) -> torch.Tensor:
    y = Triple.apply(x)
    return grad(y.sum(), x, retain_graph=True)[0] + grad(y.sum(), x)[0]


GRADS: list[tuple[Callable, Callable[[int], tuple]]] = [
    (lambda y, x: grad((y * x).sum(), x), with_past),
    (lambda y, x: grad(y.sum(), x), with_past),
    (lambda y, x: grad((y * x).sum(), y), with_past),
    (lambda y, x: grad(y.sin().sum(), y), with_past),
    (lambda y, x: grad((y * x).sum(), x), past_or_leaf),
    (lambda x: grad((x * x).sum(), x), with_hook),
    (lambda x: grad((x * x).sum(), x), past_with_hook),
    (twice_differentiated, one),
    (freed, one),
    (kept, one),
    (nothing_saved, one),
    (freed_by_backward, one),
    (behind_a_break, one),
    (of_a_function, one),
    (lambda x, w: grad((x * 2).sum(), [x, w], allow_unused=True), two),
    (lambda x, w: grad((x * 2).sum(), [x, w]), two),
    (lambda x, w: grad((x * 2).sum(), [x, w], materialize_grads=True), two),
    (lambda x: grad(x * x, x, torch.eye(x.shape[0]), is_grads_batched=True), one),
    (lambda x: grad([x * x, x.sum()], [x], [torch.ones_like(x), None]), one),
    (lambda x: grad((x.detach() * 2).sum(), x), one),
    (lambda x: grad(x, x, torch.ones_like(x)), one),
    (lambda a, b: grad((a * b).sum(), [a, b], None, True, True, True, True), two),
    (lambda a, b: tuple(grad((a * b).sum(), {"a": a, "b": b}).values()), two),
    (lambda a, b: grad((a * b).sum()), two),
    (lambda a, b: grad((a * b).sum(), [a, b], foo=1), two),
]


@pytest.mark.parametrize(("f", "make"), GRADS)
def test_grad(f: Callable, make: Callable[[int], tuple]) -> None:
    agree(f, [lambda i=i: make(i) for i in range(4)])


def after_grad(x: torch.Tensor) -> torch.Tensor:
    y = x.sin()
    (g,) = grad(y.sum(), x)
    return y * 2 + g


def of_the_middle(x: torch.Tensor) -> torch.Tensor:
    y = x + 1
    (g,) = grad(y.sum(), y)
    return y * 2 + g


def penalty(x: torch.Tensor) -> torch.Tensor:
    y = (x**2).sum()
    (g,) = grad(y, x, create_graph=True)
    return (g * g).sum() + y


def after_backward(x: torch.Tensor) -> torch.Tensor:
    y = x * x
    y.sum().backward()
    return y * 2


def after_plain_backward(x: torch.Tensor) -> torch.Tensor:
    y = x + x
    y.sum().backward()
    return y * 2


@pytest.mark.parametrize("f", [after_grad, of_the_middle, penalty, after_backward, after_plain_backward])
def test_backward_behind(f: Callable) -> None:
    def step(run: Callable) -> Callable:
        def go(x: torch.Tensor) -> torch.Tensor:
            y = run(x)
            y.sum().backward()
            return y

        return go

    compiled = pliant.compile(f, background=False)
    for i in range(3):
        got, want = outcome(step(compiled), one(i)), outcome(step(f), one(i))
        assert same(got, want), (got, want)


# -- what is done with results behind the region ------------------------------------------------------------------------------
def two_losses(x: torch.Tensor, w: torch.Tensor) -> tuple:
    return (x.sin() * 2).sum(), (w.exp() * x.detach()).sum()


def one_trunk(x: torch.Tensor, w: torch.Tensor) -> tuple:
    h = x.exp()
    return (h * 2).sum(), (h * w).sum()


def plain_trunk(x: torch.Tensor, w: torch.Tensor) -> tuple:
    h = x + w
    return (h * 2).sum(), h.sum()


def hooked_result(x: torch.Tensor, w: torch.Tensor) -> tuple:
    h = x.sin()
    h.register_hook(lambda g: g * 2)
    return (h * w).sum(), (h * h).sum()


def apart(a: torch.Tensor, b: torch.Tensor, x: torch.Tensor, w: torch.Tensor) -> tuple:
    a.backward()
    b.backward()
    return x.grad, w.grad


def kept_apart(a: torch.Tensor, b: torch.Tensor, x: torch.Tensor, w: torch.Tensor) -> tuple:
    a.backward(retain_graph=True)
    b.backward()
    a.backward()
    return x.grad, w.grad


def twice_behind(a: torch.Tensor, b: torch.Tensor, x: torch.Tensor, w: torch.Tensor) -> tuple:
    g = grad(b, x, create_graph=True, allow_unused=True)[0]
    return (None if g is None else g.detach(),)


def written_between(a: torch.Tensor, b: torch.Tensor, x: torch.Tensor, w: torch.Tensor) -> tuple:
    with torch.no_grad():
        x.mul_(2)
    return (grad(a, x, create_graph=True)[0].detach(),)


@pytest.mark.parametrize("behind", [apart, kept_apart, twice_behind, written_between])
@pytest.mark.parametrize("f", [two_losses, one_trunk, plain_trunk, hooked_result])
def test_behind(f: Callable, behind: Callable) -> None:
    def step(run: Callable) -> Callable:
        return lambda x, w: behind(*run(x, w), x, w)

    compiled = pliant.compile(f, background=False)
    for i in range(3):
        got, want = outcome(step(compiled), two(i)), outcome(step(f), two(i))
        assert same(got, want), (got, want)


# -- inputs that are written with gradients -----------------------------------------------------------------------------------
def past(i: int) -> torch.Tensor:
    return leaf(i) * 2


def writes_and_reads(x: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    x.mul_(2)
    return v + 1


def writes_both(x: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    x.mul_(2)
    v.sin_()
    return x * 1


def writes_detached(x: torch.Tensor, v: torch.Tensor) -> tuple:
    d = x.detach()
    d.add_(v)
    return d, d.requires_grad, d[:1]


def writes_behind_a_break(x: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    u = x[:1]
    y = x.abs()
    pliant.graph_break()
    x.mul_(2)
    u.relu_()
    return y


def effect_first(x: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        v.add_(1)
    x.mul_(2)
    return v


def part_of_it(i: int) -> tuple:
    x = past(i)
    return (x, x[:1]) if i != 1 else (x, past(i)[:1])


def of_a_leaf(i: int) -> tuple:
    return (past(i) if i == 1 else leaf(i).view(-1)), torch.ones(2 + i)


def of_unbound(i: int) -> tuple:
    return torch.stack([past(i), past(i)]).unbind()[0] if i != 1 else past(i), torch.ones(2 + i)


@pytest.mark.parametrize("make", [part_of_it, of_a_leaf, of_unbound, lambda i: (past(i), past(i))])
@pytest.mark.parametrize("f", [writes_and_reads, writes_both, writes_detached, writes_behind_a_break, effect_first])
def test_written_inputs(f: Callable, make: Callable[[int], tuple]) -> None:
    if f is writes_detached and make is of_unbound:
        pytest.skip("eager's result cannot be looked at")
    agree(f, [lambda i=i: make(i) for i in range(4)])


# -- hooks that do more than to compute --------------------------------------------------------------------------------------
def appends(x: torch.Tensor) -> tuple:
    seen: list[int] = []
    y = x * 2
    y.register_hook(lambda g: (seen.append(g.shape[0]), g * 3)[1])
    (g,) = grad(y.sum(), x)
    return g, tuple(seen)


def counts(x: torch.Tensor) -> tuple:
    seen = {"n": 0}

    def hook(g: torch.Tensor) -> None:
        seen["n"] += 1

    y = x * 2
    y.register_hook(hook)
    y.sum().backward()
    return x.grad.clone(), tuple(seen.values())


class Counting(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, seen: list) -> torch.Tensor:
        ctx.seen = seen
        return x * 2

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> tuple:
        ctx.seen.append(1)
        return g * 2, None


def of_function(x: torch.Tensor) -> tuple:
    seen: list[int] = []
    (g,) = grad(Counting.apply(x, seen).sum(), x)
    return g, tuple(seen)


@pytest.mark.parametrize("f", [appends, counts, of_function])
def test_effects_of_hooks(f: Callable) -> None:
    agree(f, [lambda i=i: one(i) for i in range(3)])


class TimesVector(torch.autograd.Function):
    """What it gives back is a view of what it has computed."""

    @staticmethod
    def forward(ctx, m, v):
        ctx.save_for_backward(m, v)
        y = m @ v.unsqueeze(-1)
        return y.squeeze(-1), y.mul(2)

    @staticmethod
    def backward(ctx, g, h):
        m, v = ctx.saved_tensors
        g = g + 2 * h.squeeze(-1)
        return g.unsqueeze(-1) * v, m.mT @ g


@pytest.mark.parametrize("backend", ["aten", "native"])
@pytest.mark.parametrize("made_inside", [False, True])
def test_a_function_that_gives_back_a_view(backend, made_inside):
    def fn(m, v):
        m = m.detach().requires_grad_(True) if made_inside else m
        return *TimesVector.apply(m, v), m

    compiled = pliant.compile(fn, backend=backend)
    for n in (5, 3):
        v, gradients = torch.arange(float(n)), []
        for run in (fn, compiled):
            m = torch.arange(float(n * n)).reshape(n, n).requires_grad_()
            y, z, leaf = run(m, v)
            assert y.requires_grad and z.requires_grad
            (y.sum() + z.square().sum()).backward()
            gradients.append(leaf.grad)
        assert torch.equal(*gradients)


WHAT_EAGER_KEEPS = {
    "times a number": lambda x: x * 3,
    "by a number": lambda x: (x / 2).sum(),
    "negated": lambda x: -x,
    "plus a number": lambda x: (x + 1).reshape(2, -1),
    "of a bias": lambda x: torch.nn.functional.linear(torch.ones(2, 3), torch.ones(4, 3), x),
    "exp": lambda x: x.exp(),
}


@pytest.mark.parametrize("name", WHAT_EAGER_KEEPS)
def test_backward_a_second_time(name):
    """It is refused where eager has kept a tensor, also one that a backward program has no use for."""
    said = []
    for fn in (WHAT_EAGER_KEEPS[name], pliant.compile(WHAT_EAGER_KEEPS[name], strict=True)):
        x = torch.ones(4, requires_grad=True)
        y, said_here = fn(x), []
        for keep in (True, False, False):
            try:
                y.backward(torch.ones_like(y), retain_graph=keep)
            except RuntimeError as e:
                said_here.append(str(e))
            said_here.append(x.grad.tolist())
        said.append(said_here)
    assert said[0] == said[1]


def without(x):
    with torch.no_grad():
        gc.collect()
    return x.reshape(-1)


def one_of_each(x):
    with torch.no_grad():
        gc.collect()
        y = x.view(-1)
    return y, x[0]


def on_and_off(x):
    with torch.no_grad():
        gc.collect()
        with torch.enable_grad():
            y = x[0]
        z = x[0]
    return y, z


@pytest.mark.usefixtures("young_heap")
@pytest.mark.parametrize("backend", ["aten", "native"])
@pytest.mark.parametrize("fn", [without, one_of_each, on_and_off])
def test_views_where_a_graph_turns_gradients_on(fn, backend):
    """The graph behind the break is entered with gradients off, computes nothing, and gives views of its input back."""
    compiled = pliant.compile(fn, backend=backend)
    for n in (2, 3):
        for make in (lambda x: x, lambda x: x * 1, lambda x: (x * 1)[1:]):
            said = []
            for run in (fn, compiled):
                leaf = torch.ones(n, 2, requires_grad=True)
                x = make(leaf)
                found = run(x)
                found = found if isinstance(found, tuple) else (found,)
                said.append([(t.requires_grad, t.is_leaf, t._base is (x if x._base is None else x._base)) for t in found])
                sum(t.sum() for t in found if t.grad_fn is not None).backward()
                said[-1].append(leaf.grad.tolist())
            assert said[0] == said[1]


@pytest.mark.parametrize("backend", ["aten", "native"])
@pytest.mark.parametrize("written", [False, True])
def test_what_was_detached_beside_gradients_taken_inside(written, backend):
    """Results that have a history say that it was freed; those without one are no results of a node."""

    def fn(x):
        t = x * x
        if written:
            t[t <= x] = 0
        grad = torch.autograd.grad(t.sum(), x)[0]
        return t, t.t().t().detach(), t.detach(), t.data, t[0].detach(), t.t(), grad

    compiled = pliant.compile(fn, backend=backend)
    for n in (2, 3):
        said = []
        for run in (fn, compiled):
            x = torch.ones(n, 2, requires_grad=True)
            out = run(x)
            said.append([(t.requires_grad, t.grad_fn is None, t.is_leaf, t.tolist()) for t in out])
            said[-1].append(len({t.untyped_storage().data_ptr() for t in out[:-1]}))
            with pytest.raises(RuntimeError, match="second time"):
                out[0].sum().backward()
        assert said[0] == said[1]


def to_a_part(x):
    t = x.clone()
    t[0].mul_(2)
    return t


def to_a_view(x):
    t = x.clone()
    t.t().add_(1)
    return t


def to_all(x):
    t = x.clone()
    t.add_(1)
    return t


@pytest.mark.parametrize("writes", [to_a_part, to_a_view, to_all])
def test_the_history_of_a_write_is_gone_with_gradients_taken_inside(writes):
    """That of a write to a part saves no tensors, and can be gone through once all the same."""

    def fn(x):
        t = writes(x)
        return t, torch.autograd.grad(t.sum(), x)[0]

    compiled = pliant.compile(fn)
    for n in (2, 3):
        said = []
        for run in (fn, compiled):
            x = torch.ones(n, 2, requires_grad=True)
            t, g = run(x)
            try:
                t.sum().backward()
                said.append((g.tolist(), x.grad.tolist()))
            except RuntimeError as e:
                said.append((g.tolist(), str(e)))
        assert said[0] == said[1]


def test_derivatives_that_autograd_calls_by_another_name():
    """`special_zeta` is "zeta" in autograd's words: such an operator runs in eager, where it says so if ever gradients arrive."""

    def zeta(x, y):
        return torch.special.zeta(x + 1, y + 1) * 2

    given = torch.rand(3).requires_grad_(), torch.rand(3).requires_grad_()
    report = check(zeta, given, grad=True, must_compile=False)
    assert report.values[0].requires_grad


def viewed_without_gradients(x, w):
    y = x * w
    with torch.no_grad():
        k = y[0].sum()
    y.mul_(w)
    (g,) = torch.autograd.grad(y.exp().sum(), w, retain_graph=True)
    return y.tanh(), g, k


def viewed_and_changed_in_part(x, w):
    y = x + w
    with torch.no_grad():
        k = y.view(-1).sum() + y.detach()[0]
    z = y * 3
    y[0] = z[1]
    return y.sin(), k, z


@pytest.mark.parametrize("backend", ["aten", "native"])
@pytest.mark.parametrize("program", [viewed_without_gradients, viewed_and_changed_in_part], ids=lambda f: f.__name__)
def test_a_view_made_without_gradients_of_what_is_then_changed_with_gradients(program, backend):
    """To ask such a view for its history raises."""
    compiled = pliant.compile(program, backend=backend, background=False)
    for n in (3, 4):
        sides = []
        for fn in (program, compiled):
            x, w = torch.linspace(0, 1, 4 * n).reshape(n, 4).requires_grad_(), torch.full((4,), 0.5, requires_grad=True)
            out = fn(x, w)
            sum(t.sum() for t in out if t.requires_grad).backward()
            sides.append([*out, x.grad, w.grad])
        torch.testing.assert_close(*sides)


def test_a_parameter_that_is_written_behind_its_last_use():
    """PyTorch refuses to go backward through what read it, if ever somebody asks. The whole frame was given up to eager."""
    layer = torch.nn.Linear(2, 2)

    def program(x):
        y = layer(x) * layer.bias
        with torch.no_grad():
            for p in layer.parameters():
                p.clamp_(-0.5, 0.5)
        return y, layer(x).exp()

    run = compiled(program)
    for n in (2, 3):
        y, z = run(torch.ones(n, 2))
        z.sum().backward()
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()
    assert pliant.stats()["fallbacks"] == 0


def heard_alone(x, w):
    y = x * w
    y.register_hook(lambda g: g * 2)
    return y


def heard_beside(x, w):
    y = x * w
    y.register_hook(lambda g: g * 2)
    return w.sin(), y, y.detach() + 1


@pytest.mark.parametrize("program", [heard_alone, heard_beside], ids=lambda f: f.__name__)
def test_a_hook_on_a_result_is_called_before_what_is_set_on_it_later(program):
    """Hooks from outside, the gradient that it keeps and gradients that are asked for were those before the hook."""
    compiled = pliant.compile(program)
    for n in (2, 3):
        sides = []
        for fn in (program, compiled):
            heard: list[Any] = []
            x, w = torch.linspace(0, 1, n, requires_grad=True), torch.full((n,), 0.5, requires_grad=True)
            out = fn(x, w)
            y = out if isinstance(out, torch.Tensor) else out[1]
            assert len(y._backward_hooks) == 1
            y.register_hook(heard.append)
            y.retain_grad()
            y.sum().backward(retain_graph=True)
            sides.append([*heard, y.grad, x.grad, *torch.autograd.grad(y.sum(), (y, w))])
        torch.testing.assert_close(*sides)


def three_of_one(x, w):
    return x * w, (x * w).sin(), (x + w).cos()


@pytest.mark.parametrize("backend", ["aten", "native"])
@pytest.mark.parametrize("change", [lambda t: t.mul_(2), lambda t: t[:1].mul_(2), lambda t: t.view(-1)[:2].add_(1)], ids=range(3))
def test_results_that_keep_their_gradients_and_are_written_then(change, backend):
    """PyTorch finds what keeps a gradient by the number of the result: it asserted, or read past the end, for all but the first."""
    compiled = pliant.compile(three_of_one, backend=backend, background=False)
    for n in (3, 4):
        sides = []
        for fn in (three_of_one, compiled):
            x, w = torch.linspace(0, 1, n, requires_grad=True), torch.full((n,), 0.5, requires_grad=True)
            out = fn(x, w)
            for t in out:
                t.retain_grad()
                change(t)
                change(t)
            sum((t * t).sum() for t in out).backward()
            sides.append([*out, *[t.grad for t in out], x.grad, w.grad])
        torch.testing.assert_close(*sides)


def test_a_view_made_without_gradients_of_what_a_program_has_sent_backward():
    """It is a leaf, of a base with a history that is gone."""

    def program(x, w, kept):
        y = x * w
        (y * y).sum().backward()
        with torch.no_grad():
            kept.append(y.view(-1))
        return y

    for fn in (program, pliant.compile(program)):
        kept: list[Any] = []
        x, w = torch.ones(2, 3, requires_grad=True), torch.ones(3, requires_grad=True)
        y = fn(x, w, kept)
        assert (kept[0].is_leaf, kept[0].requires_grad, kept[0]._is_view(), y.is_leaf) == (True, True, True, False)
        with pytest.raises(RuntimeError, match="a second time"):
            (y * y).sum().backward()


def rows_added(out, w, x):
    """Into what had no gradients when the frame began: in a loop that branches on data, as a mixture of experts does."""
    for i in range(3):
        if x[i].sum() > 0:
            continue
        out.index_add_(0, torch.tensor([0]), x[i : i + 1] * w)
    return out * 2


def test_a_write_with_gradients_behind_a_branch_on_data():
    run = compiled(rows_added)
    for i in range(8):
        results = []
        for fn in (rows_added, run):
            torch.manual_seed(i)
            w, x, out = torch.randn(1, 4, requires_grad=True), torch.randn(3, 4), torch.zeros(3, 4)
            y = fn(out, w, x)
            if y.requires_grad:
                y.sum().backward()
            results.append((y.detach(), w.grad, out.detach(), torch.tensor(out.requires_grad)))
        torch.testing.assert_close(*results)
