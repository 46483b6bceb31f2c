"""Functions of functions: `functional_call`, transforms, operators without a derivative, statistics that have one.

PYTEST_DONT_REWRITE: the programs keep their own asserts.
"""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.helpers import OWN_BACKEND, Observed, check_world, compiled
from tests.programs.registry import cases, each, program, t

ROWS = each(3, 5, 2, 3, tail=(4,))
GRADS = each(3, 5, 2, tail=(4,), grad=True)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self.tied = nn.Linear(4, 4, bias=False)
        self.tied.weight = self.inner.weight
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x, *, scale=1.0):
        self.count.add_(1)
        return self.tied(torch.tanh(self.inner(x))) * scale


def functional(call):
    def factory():
        torch.manual_seed(0)
        net = Net()
        values = {k: t(*v.shape, seed=2, grad=True) for k, v in net.named_parameters()}

        def fn(x):
            return call(net, values, x)

        return fn, Observed(lambda: (net, values, [v.grad for v in values.values()]))

    return factory


CALLS = {
    "plain": lambda net, values, x: torch.func.functional_call(net, values, (x,)),
    "keywords": lambda net, values, x: torch.func.functional_call(net, values, (x,), {"scale": 2.0}) + net(x),
    "some": lambda net, values, x: torch.func.functional_call(net, {"inner.weight": values["inner.weight"] * x.shape[0]}, x),
    "buffer": lambda net, values, x: torch.func.functional_call(net, (values, {"count": x.sum()}), (x,)),
    "untied": lambda net, values, x: torch.func.functional_call(net, values, (x,), tie_weights=False),
    "gradient": lambda net, values, x: torch.autograd.grad(
        torch.func.functional_call(net, values, (x,)).pow(2).sum(), list(values.values())
    ),
    "step": lambda net, values, x: torch.func.functional_call(
        net, {k: v - 0.1 * g for (k, v), g in zip(values.items(), torch.autograd.grad(net(x).sum(), list(net.parameters())))}, (x,)
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_functional_call(name):
    check_world(functional(CALLS[name]), *ROWS, grad=name not in ("gradient", "step"), breaks=0, captures=1)


def test_functional_call_that_raises():
    """The module gets its own parameters back."""
    check_world(functional(lambda net, values, x: torch.func.functional_call(net, {"nowhere": x}, (x,))), *ROWS)
    check_world(functional(lambda net, values, x: torch.func.functional_call(net, values, (x[:, 1:],))), *ROWS)


@program(*ROWS)
def transforms(x):
    out, back = torch.func.vjp(torch.sin, x)
    return (
        torch.vmap(lambda r: r.sum() * 2)(x), torch.func.grad(lambda r: (r**2).sum())(x), back(out),
        torch.func.jacrev(lambda r: r.sum(0))(x), torch.func.jvp(torch.sin, (x,), (x,)),
    )  # fmt: skip


@program(*ROWS)
def inference(x):
    with torch.inference_mode():
        y = x * 2
        with torch.inference_mode(False):
            z = x + 1
    return y, z, y.is_inference(), y[0].is_inference(), torch.is_inference(z), x.is_inference(), (y + 1).is_inference()


@program(*GRADS, grad=True)
def gradients_from_here(x):
    y = (x * 2).requires_grad_()
    z = (x * 3).detach().requires_grad_()
    (g,) = torch.autograd.grad((z**2).sum(), z)
    return y, z, g


@program(*GRADS, grad=True, breaks=0)
def statistics_of_a_norm(x):
    a, mean, rstd = torch.native_group_norm(x, None, None, x.shape[0], 4, 1, 2, 1e-5)
    b, m, r = torch.native_layer_norm(x, (4,), None, None, 1e-5)
    return a, mean, rstd * 2, b, m + r


@program(*GRADS, breaks=1 if OWN_BACKEND else None)  # others meet the derivative when they differentiate
def no_derivative(x):
    values, counts = (x * 2).unique(return_counts=True)
    return values, counts, x.sin()


def test_no_derivative_is_told_backward_only():
    def fn(x):
        return (x * 2).unique().sum() + x.sum()

    target = compiled(fn)
    for n in (3, 5):
        x = t(n, grad=True)
        out = target(x)
        assert torch.equal(out, fn(x))
        with pytest.raises(NotImplementedError, match="_unique2"):
            out.backward()


OF_DERIVATIVES = {
    "sum times a number": lambda q, b: (q + b) * 2, "times a tensor": lambda q, b: (q + b) * q.detach(),
    "quotient": lambda q, b: q / b.exp(),
    "difference": lambda q, b: (q - b) / 3, "rows": lambda q, b: torch.cat([q, b.expand(2, 4)]) * 2, "without": lambda q, b: q - b,
}  # fmt: skip


@pytest.mark.parametrize("name", OF_DERIVATIVES)
@pytest.mark.parametrize("batched", [False, True])
def test_gradients_of_a_derivative_that_does_not_depend_on_them(name, batched):
    """Those of what a forward derivative goes through are zeros in eager, which optimizers step by, or none."""
    of, b = OF_DERIVATIVES[name], nn.Parameter(torch.full((4,), 0.5))

    def fn(x):
        def along(v):
            return torch.func.jvp(lambda q: of(q, b), (x,), (v,))[1]

        return torch.vmap(along)(torch.ones(2, *x.shape)) if batched else along(torch.ones_like(x))

    told = []
    for run in (fn, compiled(fn)):
        for n in (3, 5):
            b.grad = None
            out = run(torch.ones(n, 4))
            told.append(out.requires_grad)
            if out.requires_grad:
                out.sum().backward()
            told.append(b.grad if b.grad is None else [round(v, 4) for v in b.grad.tolist()])
    assert told[: len(told) // 2] == told[len(told) // 2 :]


@pytest.mark.parametrize("case", cases(__name__), ids=repr)
def test_program(case):
    case.run()


UNDER_AUTOCAST = {
    "grid": lambda a: torch.vmap(lambda q: torch.nn.functional.affine_grid(q[None], [1, 1, 2, 2], align_corners=False))(a),
    "inverse": lambda a: torch.func.jvp(torch.linalg.pinv, (a,), (a,)),
    "product": lambda a: torch.vmap(lambda q: q @ q.mT)(a),
}


@pytest.mark.parametrize("name", UNDER_AUTOCAST)
def test_what_autocast_reaches_inside_of_operators(name):
    def cast(a, on):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=on):
            return UNDER_AUTOCAST[name](a)

    f = compiled(cast)
    for on in (True, False, True):
        want, got = (torch.utils._pytree.tree_leaves(g(torch.ones(2, 2, 3), on)) for g in (cast, f))
        assert [(t.dtype, t.shape) for t in want] == [(t.dtype, t.shape) for t in got]
