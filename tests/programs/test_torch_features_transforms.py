"""Transforms of `torch.func`, from inside and from outside: one graph each, of ordinary operators.

PYTEST_DONT_REWRITE: the programs keep their own asserts.
"""

from __future__ import annotations

import functools

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, grad_and_value, hessian, jacfwd, jacrev, jvp, linearize, stack_module_state, vjp, vmap
from torch.utils.checkpoint import checkpoint

from tests.helpers import check, own_backend
from tests.programs.registry import cases, each, program, t

ROWS = each(3, 5, 2, tail=(4,))
TWO = each(3, 5, 2, tail=(4,), n=2)
GRADS = each(3, 5, 2, tail=(4,), grad=True)
WHOLE = {"breaks": 0, "captures": 1}
BACK = {"grad": True, **WHOLE}
W = t(4, 4, seed=3)
G = t(4, 4, seed=3, grad=True)


# -- vmap ------------------------------------------------------------------------------------------------------------
@program(*ROWS, **WHOLE)
def vmap_plain(x):
    return vmap(lambda r: r.sin().sum() * 2)(x)


@program(*GRADS, **BACK)
def vmap_backward(x):
    return vmap(lambda r: torch.tanh(r @ W).sum())(x)


@program(*TWO, **WHOLE)
def vmap_two(x, y):
    return vmap(torch.dot)(x, y), vmap(torch.add, in_dims=(0, None))(x, y[0])


@program(*TWO, **WHOLE)
def vmap_in_dims(x, y):
    return vmap(lambda a, b: a * 2 + b, in_dims=(1, 1), out_dims=1)(x, y), vmap(
        lambda d: d["a"] + d["b"][0], in_dims=({"a": 0, "b": (1,)},)
    )({"a": x, "b": (y.T,)})


@program(*ROWS, **WHOLE)
def vmap_out_dims(x):
    return vmap(lambda r: (r, r.sum(), {"k": r * 2}), out_dims=(1, 0, -1))(x)


@program(*ROWS, **WHOLE)
def vmap_nested(x):
    return vmap(vmap(lambda s: s * s + 1))(x), vmap(lambda r: vmap(lambda s: s * r.sum())(r))(x)


@program(*ROWS, **WHOLE)
def vmap_of_captured(x):
    k = x.mean()
    return vmap(lambda r: r - k + x[0])(x)


@program(*ROWS, **WHOLE)
def vmap_factories(x):
    return vmap(lambda r: r + torch.arange(4) + torch.zeros(4).fill_(2) + r.new_ones(4))(x)


@program(*ROWS, **WHOLE)
def vmap_in_place(x):
    def f(r):
        y = r.clone()
        y.add_(1)
        y[0] = 3
        y.mul_(r)
        return y

    return vmap(f)(x)


@program(*ROWS, **WHOLE)
def vmap_writes_to_its_argument(x):
    y = x.clone()
    vmap(lambda r: r.add_(1))(y)
    return y


@program(*ROWS, **WHOLE)
def vmap_shapes(x):
    def f(r):
        assert r.shape == (4,) and r.dim() == 1 and len(r) == 4 and r.size(0) == 4 and isinstance(r, torch.Tensor)
        return r.reshape(2, 2).T.flatten() * r.numel() + r.unsqueeze(0).expand(3, -1).sum(0)

    return vmap(f)(x)


@program(*ROWS, **WHOLE)
def vmap_none_dim(x):
    return vmap(lambda r, k: (r * k, k), in_dims=(0, None), out_dims=(0, None))(x, 3)


@program(*ROWS, breaks=0)  # how many chunks there are is a number of steps
def vmap_chunks(x):
    return vmap(lambda r: r.sin(), chunk_size=2)(x)


@program(*ROWS, **WHOLE)
def vmap_random_different(x):
    return vmap(lambda r: r + torch.rand(4), randomness="different")(x)


@program(*ROWS, **WHOLE)
def vmap_random_same(x):
    return vmap(lambda r: r + torch.randn_like(r), randomness="different")(x), vmap(lambda r: r + torch.rand(4), randomness="same")(x)


@program(*ROWS)
def vmap_random_error(x):
    return vmap(lambda r: r + torch.rand(4))(x)


@program(*ROWS)
def vmap_wrong(x):
    return vmap(lambda r: r.sum().item())(x)


@program(*ROWS)
def vmap_wrong_size(x):
    return vmap(torch.add)(x, x[:1])


@program(*ROWS)
def vmap_not_a_tensor(x):
    return vmap(lambda r: 3)(x)


@program(*ROWS, **WHOLE)
def vmap_matmul(x):
    return vmap(lambda r: W @ r)(x), vmap(torch.mm, in_dims=(None, 0))(W, torch.stack([W, W + 1])), vmap(torch.outer)(x, x)


@program(*ROWS, breaks=0)  # its C++ rule asks for the batch as a number
def vmap_softmax(x):
    return vmap(lambda r: torch.softmax(r, 0))(x), vmap(lambda r: torch.nn.functional.layer_norm(r, (4,)))(x)


@program(*ROWS, **WHOLE)
def vmap_where(x):
    return vmap(lambda r: torch.where(r > 0, r, r.exp()).cumsum(0).max())(x)


@program(*ROWS, **WHOLE)
def vmap_index(x):
    return vmap(lambda r, i: r[i], in_dims=(0, None))(x, torch.tensor([0, 2])), vmap(lambda i: x[i])(torch.arange(x.shape[0]))


@program(*ROWS, breaks=0)  # its C++ rule asks for the batch as a number
def vmap_cat_stack(x):
    return vmap(lambda r: torch.cat([r, r * 2]))(x), vmap(lambda r: torch.stack([r, r]))(x), vmap(lambda r: r.split(2)[1])(x)


@program(*ROWS, **WHOLE)
def vmap_loop_and_branch(x):
    def f(r):
        for i in range(3):
            r = r * i + 1 if i % 2 else r - i
        return r if r.shape[0] > 2 else r * 100

    return vmap(f)(x)


@program(*ROWS)
def vmap_branch_on_data(x):
    return vmap(lambda r: r if r.sum() > 0 else -r)(x)


@program(*ROWS, breaks=0)  # its C++ rule asks for the batch as a number
def vmap_conv(x):
    k = torch.ones(2, 1, 3)
    return vmap(lambda r: torch.nn.functional.conv1d(r[None, None], k, padding=1))(x)


@program(*ROWS, breaks=0)
def vmap_decorated(x):
    @vmap
    def f(r):
        return r.cos()

    @functools.partial(vmap, in_dims=1)
    def g(c):
        return c.sum()

    return f(x), g(x)


# -- grad, vjp, jvp ---------------------------------------------------------------------------------------------------
@program(*ROWS, **WHOLE)
def grad_plain(x):
    return grad(lambda r: (r**2).sum())(x)


@program(*GRADS, **BACK)
def grad_backward(x):
    return grad(lambda r: torch.sin(r).sum())(x)


@program(*TWO, **WHOLE)
def grad_argnums(x, y):
    return grad(lambda a, b: (a * b.sin()).sum(), argnums=(0, 1))(x, y), grad(lambda a, b: (a * b.sin()).sum(), argnums=1)(x, y)


@program(*ROWS, **WHOLE)
def grad_aux(x):
    return grad(lambda r: (r.sin().sum(), (r * 2, r.sum())), has_aux=True)(x)


@program(*ROWS, **WHOLE)
def grad_of_tree(x):
    return grad(lambda d: (d["a"] * d["b"]).sum())({"a": x, "b": x.sin()})


@program(*ROWS, **WHOLE)
def grad_twice(x):
    return grad(lambda r: grad(lambda s: s.sin().sum())(r).sum())(x)


@program(*ROWS, **WHOLE)
def grad_thrice(x):
    f = lambda s: s.sin()  # noqa: E731
    return grad(grad(grad(f)))(x[0, 0])


@program(*ROWS, **WHOLE)
def grad_unused(x):
    return grad(lambda a, b: b.sum(), argnums=(0, 1))(x, x * 2)


@program(*ROWS, **WHOLE)
def grad_no_grad_inside(x):
    def f(r):
        with torch.no_grad():
            c = r**2
        return (r * c).sum() + r.detach().sum()

    return grad(f)(x)


@program(*ROWS, **WHOLE)
def grad_under_no_grad(x):
    with torch.no_grad():
        return grad(lambda r: (r**2).sum())(x)


@program(*ROWS)
def grad_of_vector(x):
    return grad(lambda r: r)(x)


@program(*ROWS, **WHOLE)
def value_too(x):
    return grad_and_value(lambda r: (r**3).sum())(x), grad_and_value(lambda r: ((r**3).sum(), r), has_aux=True)(x)


@program(*ROWS, **WHOLE)
def per_sample(x):
    return vmap(grad(lambda r: torch.tanh(W @ r).sum()))(x), vmap(grad(lambda w, r: torch.tanh(w @ r).sum()), in_dims=(None, 0))(W, x)


@program(*GRADS, **BACK)
def per_sample_backward(x):
    return vmap(grad(lambda r: torch.tanh(W @ r).sum()))(x)


@program(*ROWS, **WHOLE)
def grad_of_vmap(x):
    return grad(lambda y: vmap(lambda r: (r * r).sum())(y).sum())(x)


@program(*ROWS, **WHOLE)
def vjp_plain(x):
    out, back = vjp(torch.sin, x)
    return out, back(out), back(torch.ones_like(out))


@program(*TWO, **WHOLE)
def vjp_two(x, y):
    out, back = vjp(lambda a, b: {"p": a * b, "q": a.sum()}, x, y)
    out2, back2, aux = vjp(lambda a: (a * 2, a.sum()), x, has_aux=True)
    return out, back({"p": y, "q": y.sum()}), out2, back2(x), aux


@program(*ROWS, **WHOLE)
def vjp_vmapped(x):
    out, back = vjp(lambda a: a.sin().sum(1), x)
    return vmap(back)(torch.eye(2, x.shape[0]))


@program(*TWO, **WHOLE)
def jvp_plain(x, y):
    return (
        jvp(torch.sin, (x,), (y,)),
        jvp(lambda a, b: (a @ b.T, a), (x, y), (y, x)),
        jvp(lambda a: (a * 2, a.sum()), (x,), (y,), has_aux=True),
    )


@program(*GRADS, **BACK)
def jvp_backward(x):
    return jvp(torch.sin, (x,), (x * 2,))


@program(*TWO, **WHOLE)
def jvp_nested(x, y):
    f = lambda a: jvp(torch.sin, (a,), (y,))[1]  # noqa: E731
    return jvp(f, (x,), (y,))


@program(*ROWS, **WHOLE)
def jvp_independent(x):
    return jvp(lambda a: torch.ones(3), (x,), (x,))


@program(*TWO, **WHOLE)
def jvp_of_grad(x, y):
    return jvp(grad(lambda a: (a**3).sum()), (x,), (y,))


# -- Jacobians --------------------------------------------------------------------------------------------------------
@program(*ROWS, **WHOLE)
def jacrev_plain(x):
    return jacrev(lambda r: r.sin().sum(1))(x)


@program(*ROWS, **WHOLE)
def jacrev_forms(x):
    f = lambda a, b: {"u": a * b, "v": a.sum()}  # noqa: E731
    return jacrev(f, argnums=(0, 1))(x[0], x[1]), jacrev(lambda r: (r.sin(), r), has_aux=True)(x[0])


@program(*ROWS, **WHOLE)
def jacrev_chunks(x):
    return jacrev(lambda r: r.sin(), chunk_size=1)(x[0]), jacrev(lambda r: r.sin(), chunk_size=3)(x[0])


@program(*ROWS, **WHOLE)
def jacfwd_plain(x):
    return jacfwd(lambda r: r.sin().sum(1))(x)


@program(*ROWS, **WHOLE)
def jacfwd_forms(x):
    return jacfwd(lambda a, b: (a * b, a.sum()), argnums=(0, 1))(x[0], x[1]), jacfwd(lambda r: (r.sin(), r), has_aux=True)(x[0])


@program(*ROWS, **WHOLE)
def hessian_plain(x):
    return hessian(lambda r: (r.sin() * r).sum())(x[0])


@program(*ROWS, **WHOLE)
def hessian_of_rows(x):
    return vmap(hessian(lambda r: (r.sin() * r).sum()))(x)


@program(*GRADS, **BACK)
def jacobian_backward(x):
    return jacrev(lambda r: torch.tanh(r @ W).sum(1))(x)


@program(*TWO, **WHOLE)
def linearized(x, y):
    out, forward = linearize(torch.sin, x)
    return out, forward(y), forward(x)


@program(*ROWS, **WHOLE)
def jacobian_with_softmax(x):
    return jacrev(torch.softmax)(x[0], 0), jacfwd(lambda r: torch.softmax(r, 0))(x[0]), jacrev(lambda r: torch.log_softmax(r, 0))(x[0])


SCALE = torch.nn.Parameter(torch.tensor(2.0))


@program(*GRADS, grad=True)
def linearized_with_gradients(x):
    """They go through the tangents alone: what PyTorch's graph was made of is constant there."""
    out, forward = linearize(lambda r: r.sin() * SCALE, x)
    return out, forward(x * 2), linearize(torch.exp, x.detach())[1](x)


@program(*GRADS, grad=True)
def linearized_of_a_parameter(x):
    forward = linearize(lambda r: r * r * SCALE, x.detach())[1]
    with torch.no_grad():
        other = linearize(torch.exp, x)[1]
    return forward(x.detach()) + other(x.detach())


# -- modules ----------------------------------------------------------------------------------------------------------
class Net(nn.Module):
    def __init__(self, n=4):
        super().__init__()
        self.a = nn.Linear(4, 8)
        self.b = nn.Linear(8, n)
        self.register_buffer("scale", torch.tensor(0.5))

    def forward(self, x):
        return self.b(torch.relu(self.a(x))) * self.scale


def made(n=4, seed=0):
    torch.manual_seed(seed)
    return Net(n)


NET = made()
NETS = [made(seed=s) for s in range(3)]


@program(*ROWS, **WHOLE)
def per_sample_gradients(x):
    params = {k: v.detach() for k, v in NET.named_parameters()}
    buffers = dict(NET.named_buffers())

    def loss(p, b, r):
        return functional_call(NET, (p, b), (r.unsqueeze(0),)).pow(2).sum()

    return vmap(grad(loss), in_dims=(None, None, 0))(params, buffers, x)


@program(*ROWS, breaks=0)
def ensembles(x):
    params, buffers = stack_module_state(NETS)
    return vmap(lambda p, b, r: functional_call(NETS[0], (p, b), (r,)), in_dims=(0, 0, None))(params, buffers, x)


@program(*ROWS, **WHOLE)
def module_vmapped(x):
    return vmap(NET)(x)


@program(*ROWS, **WHOLE)
def gradient_of_parameters(x):
    params = dict(NET.named_parameters())
    return grad(lambda p: functional_call(NET, p, (x,)).square().mean())(params)


@program(*ROWS, **WHOLE)
def maml(x):
    params = {k: v.detach() for k, v in NET.named_parameters()}

    def inner(p):
        return functional_call(NET, p, (x,)).square().mean()

    def outer(p):
        g = grad(inner)(p)
        return inner({k: p[k] - 0.1 * g[k] for k in p})

    return grad(outer)(params)


@program(*ROWS, **WHOLE)
def hessian_vector_product(x):
    f = lambda r: (r.sin() * r).sum()  # noqa: E731
    return jvp(grad(f), (x,), (x,))[1], vjp(grad(f), x)[1](x)[0]


@program(*ROWS, **WHOLE)
def jacobian_of_a_module(x):
    return vmap(jacrev(NET))(x), vmap(jacfwd(NET))(x)


# -- from outside -----------------------------------------------------------------------------------------------------
def rowwise(r):
    return torch.tanh(r @ W).sum()


OUTSIDE = {
    "vmap": lambda: vmap(rowwise),
    "vmap dims": lambda: vmap(rowwise, in_dims=0, out_dims=0),
    "grad": lambda: grad(lambda x: rowwise(x).sum()),
    "grad and value": lambda: grad_and_value(lambda x: rowwise(x).sum()),
    "jacrev": lambda: jacrev(lambda x: torch.tanh(x @ W).sum(1)),
    "jacfwd": lambda: jacfwd(lambda x: torch.tanh(x @ W).sum(1)),
    "hessian": lambda: hessian(lambda x: torch.tanh(x @ W).sum()),
    "per sample": lambda: vmap(grad(rowwise)),
    "nested": lambda: vmap(vmap(lambda s: s * s)),
    "partial": lambda: functools.partial(vmap(rowwise)),
}


@own_backend
@pytest.mark.parametrize("name", OUTSIDE)
def test_from_outside(name):
    check(OUTSIDE[name](), *ROWS, breaks=0)


# -- gradients inside -------------------------------------------------------------------------------------------------
@program(*GRADS, grad=True, breaks=0)
def autograd_grad(x):
    (g,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
    return g


@program(*GRADS, **WHOLE)
def double_backward(x):
    (g,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
    (h,) = torch.autograd.grad(g.sum(), x)
    return g.detach(), h


@program(*GRADS, grad=True, breaks=0)
def gradient_penalty(x):
    (g,) = torch.autograd.grad(torch.tanh(x @ W).sum(), x, create_graph=True)
    return ((g.norm(dim=1) - 1) ** 2).mean()


@program(*ROWS, breaks=0)
def leaf_inside(x):
    y = x.detach().requires_grad_()
    (g,) = torch.autograd.grad((y**2).sum(), y)
    return g


@program(*ROWS, breaks=0)
def gradient_of_several(x):
    a, b = x.clone().requires_grad_(), (x * 2).requires_grad_()
    return torch.autograd.grad([(a * b).sum(), a.sum()], [a, b], allow_unused=True)


@program(*GRADS, breaks=0)
def gradients_behind_a_transform(x):
    g = grad(lambda v: (v.sin() * x).sum())(x)
    a = torch.autograd.grad((g * x).sum(), x, create_graph=True)[0]
    return a.detach(), torch.autograd.grad((x * x).sum(), x)[0]


# -- in a checkpoint, which sets hooks on saved tensors -----------------------------------------------------------------
IN_CHECKPOINTS = {
    "grad": grad(lambda v: (v * v).sum()),
    "grad_and_value": lambda x: grad_and_value(lambda v: (v * v).sum())(x)[0],
    "vjp": lambda x: vjp(torch.sin, x)[0],
    "jacrev": lambda x: jacrev(torch.sin)(x).sum(0),
    "jvp": lambda x: jvp(torch.sin, (x,), (x,))[1],
    "vmap": vmap(torch.sin),
}


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("name", IN_CHECKPOINTS)
def test_in_a_checkpoint(name, reentrant):
    """PyTorch refuses transforms that go backward where there are hooks on saved tensors."""
    check(lambda x: checkpoint(IN_CHECKPOINTS[name], x, use_reentrant=reentrant), *each(3, 2, grad=True), must_compile=False)


def test_disabled_hooks_in_a_checkpoint():
    def inside(x):
        with torch.autograd.graph.disable_saved_tensors_hooks("not here"):
            return x.sin()

    check(lambda x: checkpoint(inside, x, use_reentrant=False), *each(3, 2, grad=True), must_compile=False)


@pytest.mark.parametrize("case", cases(__name__), ids=repr)
def test_program(case):
    case.run()
