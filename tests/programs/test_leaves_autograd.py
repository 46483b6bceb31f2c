"""What autograd knows of leaves that a compiled function makes: classes, flags, versions, memory, and gradients that reach them."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import pliant

PROGRAMS = []


def p(fn):
    PROGRAMS.append(fn)
    return fn


def tensors(value):
    if isinstance(value, nn.Module):
        return list(value.parameters())
    if isinstance(value, (list, tuple)):
        return [t for v in value for t in tensors(v)]
    return [value] if isinstance(value, torch.Tensor) else []


def described(t):
    return type(t), t.dtype, t.shape, t.stride(), t.is_leaf, t.requires_grad, t._base is None, t.grad_fn is None


def memory(found):
    return [[i for i, u in enumerate(found) if u.untyped_storage().data_ptr() == t.untyped_storage().data_ptr()] for t in found]


def gradients(found, x):
    """What reaches the leaves and `x` from each of these tensors, then from all; the words of what is refused."""
    ends = [t for t in [*found, x] if t.is_leaf and t.requires_grad]
    out = []
    for t in found:
        if t.grad_fn is not None and ends:
            try:
                out += torch.autograd.grad(t.sum() * 1.5 + (t * t).sum(), ends, allow_unused=True, retain_graph=True)
            except RuntimeError as e:
                out.append(str(e)[:60])
    try:
        sum([(t**2).sum() for t in found if t.grad_fn is not None], torch.zeros((), requires_grad=True)).backward()
    except RuntimeError as e:
        out.append(str(e)[:60])
    return out + [t.grad for t in ends]


@p
def f1(x):
    w = torch.ones(4, requires_grad=True)
    return w, (x * w).sum()


@p
def f2(x):
    w = nn.Parameter(torch.ones(4))
    return w, x * w, (x * w).exp().sum()


@p
def f3(x):
    w = nn.Parameter(torch.ones(4))
    v = nn.Parameter(w.detach() * 3)
    y = x * w
    z = y * v
    return w, y, z, v


@p
def f4(x):
    m = nn.Linear(4, 3, dtype=torch.double)
    nn.init.ones_(m.weight)
    nn.init.zeros_(m.bias)
    return m, m(x.double()).tanh()


@p
def f5(x):
    w = (x.detach() * 2).requires_grad_()
    u = w.detach()
    y = (w * x).sum()
    return w, y, u


@p
def f6(x):
    d = x.clone()
    w = nn.Parameter(d)
    return d, w, d * w


@p
def f7(x):
    w = nn.Parameter(x)
    return w, w * 2, x * 3


@p
def f8(x):
    w = torch.ones(4, requires_grad=True)
    with torch.no_grad():
        w.mul_(3)
    y = w * x
    return w, y


@p
def f9(x):
    w = torch.ones(4, requires_grad=True)
    y = w.sum() * 2
    with torch.no_grad():
        w.add_(3)
    return w, y, x + 1


@p
def f10(x):
    w = torch.ones(4, requires_grad=True)
    y = w.exp()
    with torch.no_grad():
        w.add_(3)
    z = w.exp() * y
    return w, y, z


@p
def f11(x):
    w = torch.ones(4, requires_grad=True)
    (w * w * x.detach()).sum().backward()
    return w, w.grad, w * 3


@p
def f12(x):
    w = torch.ones(4, requires_grad=True)
    (w * w * x.detach()).sum().backward()
    with torch.no_grad():
        w -= 0.1 * w.grad
    w.grad = None
    return w


@p
def f13(x):
    w = torch.ones(4, requires_grad=True)
    v = torch.ones(4, requires_grad=True)
    return (w * x).sum() + (v * 2).sum(), w


@p
def f14(x):
    w = torch.ones(4, 4, requires_grad=True)
    return w[0], w.t(), w.view(16)


@p
def f15(x):
    w = torch.ones(4, 4).requires_grad_()
    v = w[0] * x
    w2 = v.detach().requires_grad_()
    return w, v, w2, (w2 * v)


@p
def f16(x):
    w = torch.ones(4, requires_grad=True)
    w.requires_grad_(False)
    y = w * x
    w.requires_grad_(True)
    return w, y, y * w


@p
def f18(x):
    with torch.no_grad():
        w = torch.ones(4, requires_grad=True)
        y = w * x
    return w, y


@p
def f19(x):
    w = torch.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)
    return w, w * x


@p
def f20(x):
    w = nn.Parameter(torch.tensor([1.0, 2.0, 3.0, 4.0]))
    return w, w * x


@p
def f21(x):
    ws = [nn.Parameter(torch.full((4,), float(i))) for i in range(3)]
    h = x
    for w in ws:
        h = (h * w + w).tanh()
    return h, ws


@p
def f22(x):
    w = nn.Parameter(torch.zeros(x.shape[0], 4))
    return w, F.linear(x, w)


@p
def f23(x):
    w = torch.ones(4, requires_grad=True)
    y = (w * x).sum()
    (g,) = torch.autograd.grad(y, w, create_graph=True)
    return w, (g * g * w).sum()


@p
def f24(x):
    w = nn.Parameter(torch.ones(4))
    w.grad = torch.full((4,), 2.0)
    return w, w.grad


@p
def f26(x):
    w = torch.zeros(4, requires_grad=True)
    x = x * w
    x = x + torch.randn(4, requires_grad=True)
    return x


@p
def f27(x):
    w = torch.ones(4, requires_grad=True)
    o = torch.optim.SGD([w], lr=0.1)
    return w, o.param_groups[0]["params"][0], w * x


@p
def f28(x):
    return torch.ones(4, requires_grad=True).sum()


@p
def f29(x):
    return torch.ones(4, requires_grad=True).expand(3, 4), torch.zeros(2, requires_grad=True)[1:]


@p
def f30(x):
    w = x.detach().requires_grad_()
    return w, w * 2


@p
def f31(x):
    w = torch.ones(4, requires_grad=True)
    l = (w * x.detach()).sum()
    l.backward()
    return l, w.grad + 1


@p
def f32(x):
    w = nn.Parameter(torch.ones(4))
    l = (w * w * x.detach()).sum()
    l.backward()
    return l, w.grad


def made(fn, rows, grad):
    torch.manual_seed(rows)
    x = torch.randn(rows, 4, requires_grad=grad)
    torch.manual_seed(1)
    return tensors(fn(x)), x


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("backend", ["native", "aten", "eager"])
@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda fn: fn.__name__)
def test_leaves_are_those_of_eager(fn, backend, grad):
    compiled = pliant.compile(fn, fullgraph=True, backend=backend)
    for rows in (3, 5, 2):
        (wanted, x), (found, y) = made(fn, rows, grad), made(compiled, rows, grad)
        assert list(map(described, wanted)) == list(map(described, found))
        assert [t._version for t in wanted if t.is_leaf and t.requires_grad] == [t._version for t in found if t.is_leaf and t.requires_grad]
        assert memory(wanted) == memory(found)
        torch.testing.assert_close(
            [t.grad for t in wanted if t.is_leaf and t.grad is not None], [t.grad for t in found if t.is_leaf and t.grad is not None]
        )
        for a, b in zip(gradients(wanted, x), gradients(found, y), strict=True):
            assert a == b if not isinstance(a, torch.Tensor) or b is None else torch.allclose(a, b, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(wanted, found)


# -- what the function has gone backward through ------------------------------------------------------------------------
def asked(x, w):
    h = x.detach().requires_grad_()
    loss = (h * h * w).sum()
    torch.autograd.grad(loss, [h])
    return loss, h


def gone_backward(x, w):
    h = x.detach().requires_grad_()
    loss = (h * h).sum()
    loss.backward()
    return loss, h


def parameter_of_two(x, w):
    h = nn.Parameter(x.detach() * 2)
    first, second = (h * h).sum(), (h.t() * h.t()).sum()
    torch.autograd.grad(first, h)
    torch.autograd.grad(second, h)
    return first, h, second


def two_leaves(x, w):
    h = x.detach().requires_grad_()
    k = (h * 2).detach().requires_grad_()
    loss = (h * h).sum() + (k * k).sum()
    torch.autograd.grad(loss, [h, k])
    return loss, h, k


def one_result_of_two(x, w):
    h = nn.Parameter(x.detach() * 2)
    first, second = (h * h).sum(), (h * w).sum()
    torch.autograd.grad(first, h)
    return second, h, first


def a_view(x, w):
    h = x.detach().clone().requires_grad_()
    v = (h * h).t()
    v.sum().backward()
    return v, h


def another_input(x, w):
    h = x.detach().clone().requires_grad_()
    loss = (h * h * w).sum()
    torch.autograd.grad(loss, w)
    return loss, h


def nothing_kept(x, w):
    h = x.detach().clone().requires_grad_()
    loss = (h + 1).sum()
    torch.autograd.grad(loss, h)
    return loss, h


def retained(x, w):
    h = x.detach().clone().requires_grad_()
    loss = (h * h).sum()
    torch.autograd.grad(loss, h, retain_graph=True)
    return loss, h


def switched_on(x, w):
    with torch.no_grad():
        h = x.detach().clone().requires_grad_()
        with torch.enable_grad():
            loss = (h * h).sum()
        torch.autograd.grad(loss, h)
    return loss, h


QUESTIONS = {
    "grad": lambda r, w: torch.autograd.grad(r[0].sum(), r[1]),
    "grad, perhaps unused": lambda r, w: torch.autograd.grad(r[0].sum(), r[1], allow_unused=True),
    "of several": lambda r, w: torch.autograd.grad(r[-1].sum() if r[-1].grad_fn else r[0].sum(), [r[1], w], allow_unused=True),
    "backward": lambda r, w: (r[0].sum().backward(), r[1].grad, w.grad),
}
FREED = [
    asked, gone_backward, parameter_of_two, two_leaves, one_result_of_two, a_view, another_input, nothing_kept, retained, switched_on,
]  # fmt: skip


def answered(fn, question, rows):
    x, w = torch.arange(rows * 2.0).reshape(rows, 2), torch.ones(rows, 2, requires_grad=True)
    r = fn(x, w)
    out = [(t.tolist(), t.is_leaf, t.requires_grad) for t in r]
    try:
        return [*out, *[t if t is None else t.tolist() for t in QUESTIONS[question](r, w)]]
    except RuntimeError as e:
        return [*out, str(e)]


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("program", FREED, ids=lambda f: f.__name__)
def test_gradients_that_are_freed_are_refused_with_respect_to_a_leaf_made_inside(program, question):
    compiled = pliant.compile(program)
    for rows in (2, 3, 2):
        assert answered(compiled, question, rows) == answered(program, question, rows)
