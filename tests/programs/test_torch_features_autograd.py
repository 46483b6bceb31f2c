"""Autograd inside of what is compiled, settings in `with` blocks, random numbers, profilers: one graph each for sizes that change.

PYTEST_DONT_REWRITE: the programs keep their own asserts.
"""

from __future__ import annotations

import collections
import contextlib
import functools

import pytest
import torch
import torch._dynamo
import torch.utils.checkpoint as cp
from torch import nn
from torch._higher_order_ops.out_dtype import out_dtype
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, linearize, vjp, vmap

from tests.helpers import compiled
from tests.programs.registry import cases, each, listed, program, programs, t

F = nn.functional
WHOLE = {"breaks": 0, "captures": 1}
BACK = {"grad": True, **WHOLE}
ROWS = each(3, 5, 2, tail=(4,))
TWO = each(3, 5, 2, tail=(4,), n=2)
GRADS = each(3, 5, 2, tail=(4,), grad=True)
GRADS2 = each(3, 5, 2, tail=(4,), n=2, grad=True)
W = t(4, 4, seed=3)


def scaled_hook(k):
    return lambda g: g * k


# -- settings in `with` blocks ----------------------------------------------------------------------------------------
@program(*GRADS, **BACK)
def recorded_function(x):
    with torch.profiler.record_function("outer"):
        y = x * 2
        with torch.autograd.profiler.record_function("inner", "arguments"):
            y = y.sin()
    return y


@program(*GRADS, **BACK)
def recorded_decorator(x):
    @torch.profiler.record_function("step")
    def step(v):
        return v * 3

    return step(x)


@program(*ROWS, **WHOLE)
def forked_generator(x):
    with torch.random.fork_rng():
        a = torch.rand(3)
    return a, torch.rand(2), x * 2


@program(*ROWS, **WHOLE)
def seeded(x):
    torch.manual_seed(3)
    return torch.rand(x.shape), torch.randn(2)


@program(*ROWS, **WHOLE)
def seeded_and_put_back(x):
    state = torch.get_rng_state()
    generator = torch.manual_seed(7)
    noise = F.dropout(torch.ones(9), 0.5)
    torch.set_rng_state(state)
    return noise, torch.rand(x.shape), generator is torch.default_generator


@program(*ROWS, **WHOLE)
def generator_state(x):
    state = torch.get_rng_state()
    a = torch.rand(2)
    torch.set_rng_state(state)
    return a, torch.rand(2), x + 1


@program(*ROWS, **WHOLE)
def functions_disabled(x):
    with torch._C.DisableTorchFunctionSubclass():
        y = x * 2
    with torch._C.DisableTorchFunction():
        return y + 1


@program(*ROWS, **WHOLE)
def break_settings(x):
    with torch._dynamo.error_on_graph_break(True):
        y = x * 2
    with torch._dynamo.set_fullgraph(False) if hasattr(torch._dynamo, "set_fullgraph") else contextlib.nullcontext():
        return y + 1


@program(*ROWS, **WHOLE)
def compiler_settings(x):
    with torch._dynamo.patch_dynamo_config(allow_unspec_int_on_nn_module=True):
        y = x * 2
    return y + 1


@program(*GRADS, **BACK)
def gradient_modes(x):
    with torch.no_grad():
        a = x * 2
    with torch.enable_grad():
        b = x * 3
    with torch.set_grad_enabled(False):
        c = x * 4
    return a + b + c, a.requires_grad, b.requires_grad, c.requires_grad, torch.is_grad_enabled()


@program(*GRADS, **BACK)
def autocasts(x):
    with torch.autocast("cpu", torch.bfloat16):
        y = x @ W
        with torch.autocast("cpu", enabled=False):
            z = x @ W
    return y, z, y.dtype, torch.is_autocast_enabled("cpu")


@program(*GRADS, **BACK)
def autocast_decorators(x):
    @torch.autocast("cpu", dtype=torch.bfloat16)
    def f(v):
        return v @ W

    return f(x), x @ W


@program(*GRADS, **BACK)
def multithreading_off(x):
    with torch.autograd.set_multithreading_enabled(False):
        return x * 2


@program(*GRADS, **BACK)
def version_counters(x):
    y = x * 1
    before = y._version
    y.add_(1)
    with torch.autograd._unsafe_preserve_version_counter(y):
        y.add_(1)
    return y, y._version - before


@program(*ROWS, **WHOLE)
def version_counters_of_results(x):
    a, b, c = x * 1, x + 1, x + 2
    a.add_(1)
    with torch.autograd._unsafe_preserve_version_counter((a, b)):
        a.mul_(2)
        b.add_(1)
    torch._C._autograd._unsafe_set_version_counter((c,), (7,))
    c.add_(1)
    v = b[0]
    v.add_(1)
    return a, b, c, v, [t._version for t in (a, b, c, v)]


@program(*ROWS, breaks=0)
def version_counters_of_views(x):
    a = x * 1
    v = a[0]
    with torch.autograd._unsafe_preserve_version_counter(a):
        a.add_(1)
    v.add_(1)
    return a, v, a._version, v._version


@program(*ROWS, breaks=0)
def version_counters_through_views(x):
    a, b = x * 1, x + 1
    v, w, d = a.view(-1)[1:], b[:1], b.detach()
    with torch.autograd._unsafe_preserve_version_counter((v, b)):
        v.add_(1)
        w.mul_(2)
    d.add_(1)
    torch._C._autograd._unsafe_set_version_counter((a[0],), (9,))
    a.add_(1)
    return a, b, v, w, d, [t._version for t in (a, b, v, w, d, a[:1])]


@program(*GRADS, grad=True)
def version_counters_of_what_is_saved(x):
    w = x * 1
    h = w * w
    with torch.no_grad(), torch.autograd._unsafe_preserve_version_counter(w):
        w.mul_(3)
    return h


@program(*GRADS, **BACK)
def anomaly_asked(x):
    return x * 2, torch.is_anomaly_enabled()


@program(*GRADS, **BACK)
def deterministic_asked(x):
    return x * (2 if torch.are_deterministic_algorithms_enabled() else 3)


@program(*ROWS, **WHOLE)
def backends_asked(x):
    return x + 1, torch.backends.mkldnn.is_available(), torch.backends.cudnn.enabled, torch.get_num_threads() > 0, torch.cuda.is_available()


@program(*GRADS, **BACK)
def attention_kernels(x):
    q = x[None, None]
    with nn.attention.sdpa_kernel(nn.attention.SDPBackend.MATH):
        return F.scaled_dot_product_attention(q, q, q)


# -- gradients worked out inside --------------------------------------------------------------------------------------
@program(*GRADS, **BACK)
def gradient_with_seed(x):
    (g,) = torch.autograd.grad(x.sin(), x, grad_outputs=torch.ones_like(x) * 2, create_graph=True)
    return g * x


@program(*GRADS, **WHOLE)
def gradient_of_unused(x):
    return torch.autograd.grad((x * 2).sum(), [x, x.detach().clone().requires_grad_()], allow_unused=True)


@program(*GRADS, **WHOLE)
def gradient_materialized(x):
    y = x.detach().clone().requires_grad_()
    return torch.autograd.grad((x * 2).sum(), [x, y], allow_unused=True, materialize_grads=True)


@program(*GRADS, **WHOLE)
def gradient_kept(x):
    y = (x**2).sum()
    (a,) = torch.autograd.grad(y, x, retain_graph=True)
    (b,) = torch.autograd.grad(y, x)
    return a + b


@program(*GRADS, **WHOLE)
def gradients_batched(x):
    y = x.sin().sum(1)
    return torch.autograd.grad(y, x, torch.eye(y.shape[0]), is_grads_batched=True)


@program(*GRADS, **WHOLE)
def gradient_three_times(x):
    y = (x**4).sum()
    for _ in range(3):
        (g,) = torch.autograd.grad(y, x, create_graph=True)
        y = g.sum()
    return g.detach()


@program(*GRADS, **BACK)
def double_backward_of_a_module(x):
    h = torch.tanh(x @ W)
    (g,) = torch.autograd.grad(h.sum(), x, create_graph=True)
    return (g * g).sum() + h.mean()


@program(*GRADS, **WHOLE)
def functional_jacobians(x):
    return torch.autograd.functional.jacobian(lambda v: v.sin().sum(0), x.detach()),
    torch.autograd.functional.hessian(lambda v: (v**3).sum(), x.detach()[0])


@program(*ROWS, **WHOLE)
def functional_products(x):
    f = lambda v: (v**3).sum(0)  # noqa: E731
    return torch.autograd.functional.vjp(f, x, x[0]), torch.autograd.functional.jvp(f, x, x),
    torch.autograd.functional.hvp(lambda v: (v**3).sum(), x, x)


@program(*ROWS, **WHOLE)
def forward_mode(x):
    with torch.autograd.forward_ad.dual_level():
        d = torch.autograd.forward_ad.make_dual(x, x * 2)
        y = d.sin()
        return torch.autograd.forward_ad.unpack_dual(y).tangent


@program(*ROWS, **WHOLE)
def backward_with_inputs(x):
    a, b = W.clone().requires_grad_(), W.clone().requires_grad_()
    ((x @ a) @ b).sum().backward(inputs=[a])
    return a.grad, b.grad is None


MAKE_INPUTS = {
    "a view of a dict": lambda a, b: {"a": a, "b": b}.values(),
    "a view of an ordered dict": lambda a, b: collections.OrderedDict(a=a, b=b).values(),
    "keys": lambda a, b: {a: 1, b: 2}.keys(),
    "a generator": lambda a, b: (p for p in (a, b)),
    "an iterator": lambda a, b: reversed([b, a]),
}


def gradients_of_iterables(make):
    def f(x):
        a, b = W.clone().requires_grad_(), W.clone().requires_grad_()
        y = (x @ a).cos() @ b
        g = torch.autograd.grad(make(y.sum(), (y * y).sum()), make(a, b), make(torch.tensor(2.0), x.sum()), create_graph=True)
        torch.autograd.backward(make(g[0].sum(), y.sum()), make(torch.tensor(1.0), x.sum()), inputs=make(a, b))
        return *g, a.grad, b.grad

    return f


programs(__name__, *ROWS, **WHOLE)({f"gradients of {k}": gradients_of_iterables(v) for k, v in MAKE_INPUTS.items()})


@program(*ROWS, **WHOLE)
def backward_with_inputs_of_a_dict(x):
    a, b = W.clone().requires_grad_(), W.clone().requires_grad_()
    ((x @ a) @ b).sum().backward(inputs={"a": a})
    return a.grad, b.grad is None


@program(*ROWS, **WHOLE)
def backward_with_gradient(x):
    a = W.clone().requires_grad_()
    y = x @ a
    y.backward(torch.ones_like(y) * 0.5)
    return a.grad


@program(*ROWS, **WHOLE)
def backward_twice(x):
    a = W.clone().requires_grad_()
    y = (x @ a).sum()
    y.backward(retain_graph=True)
    y.backward()
    return a.grad


@program(*ROWS, **WHOLE)
def backward_by_function(x):
    a = W.clone().requires_grad_()
    torch.autograd.backward([(x @ a).sum(), a.sum()])
    return a.grad


@program(*ROWS, world=True, **WHOLE)
def training_step_inside():
    torch.manual_seed(0)
    m = nn.Linear(4, 3)

    def step(x):
        for p in m.parameters():
            p.grad = None
        loss = m(x).pow(2).mean()
        loss.backward()
        with torch.no_grad():
            for p in m.parameters():
                p -= 0.1 * p.grad
        return loss.detach()

    return step, m


@program(*ROWS, world=True, grad=True)  # the first step makes the optimizer's state
def optimizer_step_inside():
    torch.manual_seed(0)
    m = nn.Linear(4, 3)
    opt = torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9)

    def step(x):
        opt.zero_grad()
        loss = m(x).pow(2).mean()
        loss.backward()
        opt.step()
        return loss.detach()

    return step, m


# -- hooks ------------------------------------------------------------------------------------------------------------
@program(*GRADS, **BACK)
def hooks_in_order(x):
    y = x * 2
    y.register_hook(scaled_hook(3))
    y.register_hook(lambda g: g + 1)
    y.register_hook(lambda g: None)
    return y.sin()


@program(*GRADS, **BACK)
def hook_removed(x):
    y = x * 2
    handle = y.register_hook(scaled_hook(3))
    handle.remove()
    return y.sin()


@program(*GRADS, **BACK)
def hook_that_is_partial(x):
    y = x.sin()
    y.register_hook(functools.partial(torch.mul, 4))
    return y * 2


@program(*GRADS, **BACK)
def hook_with_closure(x):
    k = x.mean().detach()
    y = x.cos()
    y.register_hook(lambda g: g * k + g.mean())
    return y * y


@program(*GRADS, **BACK)
def hook_under_grad_mode(x):
    y = x * 2
    y.register_hook(lambda g: g.clamp(-0.5, 0.5))
    (g,) = torch.autograd.grad(y.sin().sum(), x, create_graph=True)
    return g.sum() + y


@program(*GRADS, **BACK)
def retained(x):
    y = x * 2
    y.retain_grad()
    return y.sin()


@program(*GRADS, **BACK)
def multi_gradient_hook(x):
    a, b = x * 2, x.sin()
    return a * b, a.requires_grad and b.requires_grad


@program(*GRADS, **BACK)
def saved_tensors_packed(x):
    with torch.autograd.graph.saved_tensors_hooks(lambda v: (v.half(), v.dtype), lambda p: p[0].to(p[1])):
        y = x.sin() * x.cos()
    return y.sum(1)


@program(*GRADS, **BACK)
def saved_tensors_nested(x):
    with torch.autograd.graph.saved_tensors_hooks(lambda v: v * 2, lambda v: v / 2):
        y = x.sin()
        with torch.autograd.graph.saved_tensors_hooks(lambda v: v + 1, lambda v: v - 1):
            y = y * y.exp()
    return y


@program(*GRADS, **BACK)
def saved_tensors_mutation_allowed(x):
    with torch.autograd.graph.allow_mutation_on_saved_tensors():
        return x.sin()


@program(*GRADS, **BACK)
def saved_on_cpu_pinned(x):
    with torch.autograd.graph.save_on_cpu(pin_memory=False):
        return (x.tanh() @ W).exp()


def kept_handle(x):
    y = x * 2
    handle = y.register_hook(scaled_hook(3))
    return y.sin(), handle


def test_the_handle_of_a_hook_may_be_kept():
    got = []
    for f in (kept_handle, compiled(kept_handle)):
        for remove in (False, True):
            x = t(3, 4, grad=True)
            y, handle = f(x)
            if remove:
                handle.remove()
            y.sum().backward()
            got.append(x.grad)
    torch.testing.assert_close(got[:2], got[2:])


@program(*GRADS, **BACK)
def hook_of_a_block(x):
    y = x * 2
    with y.register_hook(scaled_hook(3)):
        z = y.sin()
    return z


# -- autograd.Function ------------------------------------------------------------------------------------------------
class Several(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y, k=2.0):
        ctx.save_for_backward(x, y)
        ctx.k = k
        return x * y * k, x + y

    @staticmethod
    def backward(ctx, a, b):
        x, y = ctx.saved_tensors
        return a * y * ctx.k + b, a * x * ctx.k + b, None


class Straight(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, g):
        return g


class Reversal(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, alpha):
        ctx.alpha = alpha
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        return -g * ctx.alpha, None


class Directional(torch.autograd.Function):
    @staticmethod
    def forward(x, y):
        return x * y

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        return g * y, g * x

    @staticmethod
    def jvp(ctx, a, b):
        x, y = ctx.saved_tensors
        return a * y + b * x + 1


class Batched(torch.autograd.Function):
    @staticmethod
    def forward(x, n):
        return x.sum(-1) * n

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.sizes, ctx.n = inputs[0].shape, inputs[1]

    @staticmethod
    def backward(ctx, g):
        return g.unsqueeze(-1).expand(ctx.sizes) * ctx.n, None

    @staticmethod
    def vmap(info, in_dims, x, n):
        assert info.randomness == "error"
        return Batched.apply(x.movedim(in_dims[0], 0), n), 0


class Checked(torch.autograd.Function):
    """Its backward asks what is needed."""

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x @ w

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        gx = g @ w.T if ctx.needs_input_grad[0] else None
        gw = x.T @ g if ctx.needs_input_grad[1] else None
        return gx, gw


class Twice(torch.autograd.Function):
    """Differentiable twice: its backward is another function."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return TwiceBackward.apply(g, x)


class TwiceBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, g, x):
        ctx.save_for_backward(g, x)
        return 3 * x**2 * g

    @staticmethod
    def backward(ctx, h):
        g, x = ctx.saved_tensors
        return 3 * x**2 * h, 6 * x * g * h


class Structured(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, parts, flag):
        ctx.flag = flag
        ctx.n = len(parts)
        return x * sum(parts) if flag else x

    @staticmethod
    def backward(ctx, g):
        return g * ctx.n if ctx.flag else g, None, None


programs(__name__, *GRADS2, **BACK)({
    "function_of_several": lambda x, y: Several.apply(x, y), "function_with_default": lambda x, y: Several.apply(x, y, 3.0)[0],
        "function_of_results": lambda x, y: Several.apply(x.sin(), y * 2)[0] + Several.apply(y, x)[1],
    "function_one_detached": lambda x, y: Several.apply(x, y.detach()), "function_asks_what_is_needed": lambda x, y: Checked.apply(x,
        y.T) + Checked.apply(x.detach(), y.T),
})  # fmt: skip
programs(__name__, *GRADS, **BACK)({
    "function_straight_through": lambda x: Straight.apply(x * 2), "function_reversal": lambda x: Reversal.apply(x, 0.5).sin(),
        "function_in_a_loop": lambda x: functools.reduce(lambda v, _: Straight.apply(v * 1.5), range(3), x),
    "function_twice": lambda x: torch.autograd.grad(Twice.apply(x).sum(), x, create_graph=True)[0],
        "function_of_structures": lambda x: Structured.apply(x, [1, 2], True) + Structured.apply(x, [], False),
    "function_under_no_grad": lambda x: [Straight.apply(y) for y in [x.detach()]] + [Straight.apply(x)],
})  # fmt: skip
programs(__name__, *ROWS, **WHOLE)({
    "function_jvp": lambda x: jvp(Directional.apply, (x, x + 1), (x, x * 2)),
        "function_jvp_of_one": lambda x: jvp(lambda v: Directional.apply(v, v), (x,), (x,)),
            "function_vjp": lambda x: vjp(Directional.apply, x, x + 1)[1](x),
    "function_vmap_rule": lambda x: vmap(lambda r: Batched.apply(r, 2.0))(x),
        "function_vmap_rule_of_columns": lambda x: vmap(lambda r: Batched.apply(r, 2.0), in_dims=1)(x),
            "function_grad_of_vmap_rule": lambda x: grad(lambda v: vmap(lambda r: Batched.apply(r, 2.0))(v).sum())(x),
    "function_vmap_of_grad": lambda x: vmap(grad(lambda r: Batched.apply(r, 2.0)))(x),
        "function_jacobian": lambda x: jacrev(lambda r: Directional.apply(r, r))(x[0]),
            "function_jacobian_forward": lambda x: jacfwd(lambda r: Directional.apply(r, r * 2))(x[0]),
    "function_linearized": lambda x: linearize(lambda v: Directional.apply(v, v), x)[1](x),
})  # fmt: skip


# -- transforms -------------------------------------------------------------------------------------------------------
programs(__name__, *ROWS, **WHOLE)({
    "vmap_norms": lambda x: vmap(lambda r: F.layer_norm(r, (4,)))(x), "vmap_softmaxes": lambda x: vmap(lambda r: r.softmax(0))(x),
        "vmap_joins": lambda x: vmap(lambda r: torch.cat([r, r * 2]))(x), "vmap_stacks": lambda x: vmap(lambda r: torch.stack([r, r]))(x),
    "vmap_gathers": lambda x: vmap(lambda r: r.gather(0, torch.tensor([1, 0])))(x), "vmap_scatters": lambda x: vmap(lambda r: r.scatter(0,
        torch.tensor([1, 0]), r[:2]))(x), "vmap_selects": lambda x: vmap(lambda r: r.index_select(0, torch.tensor([1, 0])))(x),
    "vmap_convolutions": lambda x: vmap(lambda r: F.conv1d(r[None, None], torch.ones(2, 1, 3)))(x),
        "vmap_losses": lambda x: vmap(lambda r: F.cross_entropy(r, torch.tensor(1)))(x),
            "vmap_embeddings": lambda x: vmap(lambda i: F.embedding(i, W))(x.abs().long()),
    "vmap_linears": lambda x: vmap(lambda r: F.linear(r, W, W[0]))(x), "vmap_sorts": lambda x: vmap(lambda r: r.sort().values)(x),
        "vmap_topks": lambda x: vmap(lambda r: r.topk(2).values)(x), "vmap_cumulative": lambda x: vmap(lambda r: r.cumsum(0))(x),
            "vmap_splits": lambda x: vmap(lambda r: r.chunk(2))(x),
    "vmap_flips": lambda x: vmap(lambda r: r.flip(0).roll(1))(x), "vmap_triangles": lambda x: vmap(lambda r: torch.outer(r, r).tril())(x),
        "vmap_one_hot": lambda x: vmap(lambda i: F.one_hot(i, 9))(x.abs().long()), "vmap_pads": lambda x: vmap(lambda r: F.pad(r, (1,
            2)))(x), "vmap_repeats": lambda x: vmap(lambda r: r.repeat(2))(x),
    "vmap_where": lambda x: vmap(lambda r: torch.where(r > 0, r, 0.0))(x), "vmap_masks": lambda x: vmap(lambda r: r.masked_fill(r > 0,
        1.0))(x), "vmap_pools": lambda x: vmap(lambda r: F.avg_pool1d(r[None, None], 2))(x),
        "vmap_attention": lambda x: vmap(lambda r: F.scaled_dot_product_attention(r[None, :, None], r[None, :, None], r[None, :, None]))(x),
    "vmap_linalg": lambda x: vmap(lambda r: torch.linalg.inv(torch.outer(r, r) + 5 * torch.eye(4)))(x),
        "vmap_expands": lambda x: vmap(lambda r: r.expand(3, 4) + r[:, None].expand(4, 3).T)(x),
            "vmap_dropout": lambda x: vmap(lambda r: F.dropout(r, 0.5), randomness="different")(x),
                "vmap_writes": lambda x: vmap(lambda r: r.clone().index_fill_(0, torch.tensor([0]), 2.0))(x),
    "vmap_dicts": lambda x: vmap(lambda d: {"a": d["a"] * 2, "b": [d["b"]]}, in_dims=({"a": 0, "b": None},), out_dims={"a": 0,
        "b": [None]})({"a": x, "b": 3}), "vmap_thrice": lambda x: vmap(vmap(vmap(lambda s: s * 2)))(torch.stack([x, x])),
            "vmap_reduces": lambda x: vmap(lambda r: (r.sum(), r.mean(), r.max(), r.argmax(), r.std(), r.norm()))(x),
    "vmap_batch_norm": lambda x: vmap(lambda r: F.batch_norm(r[None], None, None, training=False) if False else F.instance_norm(r[None,
        None]))(x), "vmap_group_norm": lambda x: vmap(lambda r: F.group_norm(r[None], 2))(x),
    "grad_of_norm": lambda x: grad(lambda v: F.layer_norm(v, (4,)).pow(2).sum())(x),
        "grad_of_loss": lambda x: grad(lambda v: F.cross_entropy(v, torch.zeros(v.shape[0], dtype=torch.int64)))(x),
            "grad_in_loop": lambda x: functools.reduce(lambda v, _: v - 0.1 * grad(lambda u: (u**2).sum())(v), range(3), x),
    "grad_with_in_place": lambda x: grad(lambda v: (v.clone().mul_(2).add_(v) ** 2).sum())(x),
        "grad_of_keywords": lambda x: grad(lambda v, k=1.0: (v * k).sum())(x, k=3.0),
            "grad_of_indexing": lambda x: grad(lambda v: (v[0] * v[-1]).sum() + v[:, 1].prod())(x),
                "vjp_of_many": lambda x: vjp(lambda v: (v.sin(), {"a": v.sum()}), x)[1]((x, {"a": x.sum()})),
    "jvp_of_matmul": lambda x: jvp(lambda v: v @ W, (x,), (x * 2,)), "jvp_of_softmax": lambda x: jvp(lambda v: v.softmax(1), (x,), (x,)),
        "jvp_of_norm": lambda x: jvp(lambda v: F.layer_norm(v, (4,)), (x,), (x,)),
            "hessian_of_loss": lambda x: hessian(lambda v: F.softplus(v @ W).sum())(x[0]),
                "jacobians_agree": lambda x: jacrev(torch.sin)(x[0]) - jacfwd(torch.sin)(x[0]),
    "vmap_of_jvp": lambda x: vmap(lambda r: jvp(torch.sin, (r,), (r,))[1])(x), "vmap_of_vjp": lambda x: vmap(lambda r: vjp(torch.sin,
        r)[1](r)[0])(x), "jvp_of_vmap": lambda x: jvp(lambda v: vmap(torch.sum)(v), (x,), (x,)),
        "linearized_twice": lambda x: [f(x) + f(x * 2) for f in [linearize(torch.exp, x)[1]]],
            "trace_of_hessian": lambda x: vmap(lambda r: hessian(lambda v: (v**3).sum())(r).trace())(x),
    "called_functionally": lambda x: functional_call(nn.Linear(4, 4), {"weight": W, "bias": W[0]}, (x,)),
        "functionalized": lambda x: torch.func.functionalize(lambda v: v.clone().add_(1))(x),
            "dtype_of_product": lambda x: out_dtype(torch.ops.aten.mm.default, torch.int32, x.to(torch.int8), W.to(torch.int8)),
})  # fmt: skip


# -- checkpoints ------------------------------------------------------------------------------------------------------
def keep(op, *args, **kwargs):
    return cp.CheckpointPolicy.MUST_SAVE if op in (torch.ops.aten.sin.default,
    torch.ops.aten.mm.default) else cp.CheckpointPolicy.MUST_RECOMPUTE


def policy(ctx, op, *args, **kwargs):
    return keep(op)


programs(__name__, *GRADS, **BACK)({
    "checkpoint_of_a_lambda": lambda x: cp.checkpoint(lambda v: v.sin().exp(), x, use_reentrant=False),
        "checkpoint_in_a_loop": lambda x: functools.reduce(lambda v, _: cp.checkpoint(torch.tanh, v, use_reentrant=False), range(3), x),
    "checkpoint_of_structures": lambda x: cp.checkpoint(lambda d: {"s": d["a"].sin(), "k": d["k"]}, {"a": x, "k": 3},
        use_reentrant=False), "checkpoint_under_policy": lambda x: cp.checkpoint(lambda v: (v.sin() @ W).cos().sum(), x,
        use_reentrant=False, context_fn=functools.partial(cp.create_selective_checkpoint_contexts, policy)),
    "checkpoint_and_gradient": lambda x: torch.autograd.grad(cp.checkpoint(lambda v: (v**3).sum(), x, use_reentrant=False), x,
        create_graph=True)[0], "checkpoint_random": lambda x: cp.checkpoint(lambda v: v * torch.rand_like(v), x, use_reentrant=False),
    "checkpoint_with_autocast": lambda x: cp.checkpoint(lambda v: v @ W, x, use_reentrant=False).float(),
        "checkpoint_debugged": lambda x: cp.checkpoint(lambda v: v.sin().cos(), x, use_reentrant=False, debug=True),
    "checkpoint_own_contexts": lambda x: cp.checkpoint(lambda v: v.sin().cos(), x, use_reentrant=False,
        context_fn=lambda: (contextlib.nullcontext(), contextlib.nullcontext())),
    "checkpoint_early_stop": lambda x: cp.checkpoint(lambda v: (v.sin(), v.cos())[1], x, use_reentrant=False),
})  # fmt: skip


@program(*GRADS, **BACK)
def checkpoint_early_stop_set(x):
    with cp.set_checkpoint_early_stop(False):
        return cp.checkpoint(lambda v: v.sin().cos(), x, use_reentrant=False)


# -- random numbers ---------------------------------------------------------------------------------------------------
programs(__name__, *ROWS, **WHOLE)({
    "random_made": lambda x: (torch.rand(x.shape), torch.randn(x.shape[0], 2), torch.randint(0, 9, (x.shape[0],)),
        torch.randperm(x.shape[0]), torch.rand_like(x), torch.randn_like(x), torch.randint_like(x, 5), torch.randint(3, (2,))),
    "random_filled": lambda x: (x.clone().uniform_(), x.clone().normal_(1, 2), x.clone().exponential_(), x.clone().bernoulli_(0.3),
        x.clone().random_(0, 5), x.clone().cauchy_(), x.clone().geometric_(0.5), x.clone().log_normal_()),
    "random_drawn": lambda x: (torch.bernoulli(x.sigmoid()), torch.normal(x, 1.0), torch.normal(x, x.abs()), torch.poisson(x.abs()),
        torch.multinomial(x.softmax(1), 3), torch.normal(0.0, x.abs()), torch.binomial(x.abs().floor(), x.sigmoid())),
    "random_in_modules": lambda x: (F.dropout(x, 0.5), F.dropout1d(x, 0.5), F.alpha_dropout(x, 0.2, True), F.feature_alpha_dropout(x, 0.2,
        True), F.rrelu(x, training=True), F.gumbel_softmax(x), F.gumbel_softmax(x, hard=True)),
    "random_distributions": lambda x: [d.rsample() for d in (torch.distributions.Normal(x, 1.0), torch.distributions.Uniform(x, x + 1),
        torch.distributions.Laplace(x, 1.0), torch.distributions.Exponential(x.abs() + 1), torch.distributions.Gamma(x.abs() + 1, 1.0),
        torch.distributions.LogNormal(x, 1.0))],
    "random_discrete": lambda x: [d.sample() for d in (torch.distributions.Bernoulli(logits=x), torch.distributions.Categorical(logits=x),
        torch.distributions.Poisson(x.abs()), torch.distributions.Geometric(x.sigmoid()), torch.distributions.OneHotCategorical(logits=x))],
    "log_probabilities": lambda x: [d.log_prob(x.abs() * 0.3 + 0.1) for d in (torch.distributions.Normal(x, 1.0),
        torch.distributions.Beta(x.abs() + 1, 2.0), torch.distributions.StudentT(3.0), torch.distributions.HalfNormal(1.0),
        torch.distributions.Cauchy(x, 1.0), torch.distributions.Gumbel(x, 1.0))],
    "divergences": lambda x: (torch.distributions.kl_divergence(torch.distributions.Normal(x, 1.0), torch.distributions.Normal(0.0, 1.0)),
        torch.distributions.Independent(torch.distributions.Normal(x, 1.0), 1).log_prob(x), torch.distributions.Normal(x, 2.0).entropy(),
        torch.distributions.Normal(x, 2.0).cdf(x), torch.distributions.Normal(x, 1.0).icdf(x.sigmoid())),
    "multivariate_normal": lambda x: torch.distributions.MultivariateNormal(x, torch.eye(4)).log_prob(x),
        "dirichlet": lambda x: torch.distributions.Dirichlet(x.abs() + 1).log_prob(x.softmax(1)),
            "transformed": lambda x: torch.distributions.TransformedDistribution(torch.distributions.Normal(x, 1.0),
                [torch.distributions.transforms.TanhTransform()]).rsample(),
})  # fmt: skip


@program(*ROWS, world=True)  # a generator from outside is handed to the operator
def random_with_generator():
    g = torch.Generator().manual_seed(1)
    return lambda x: torch.rand(x.shape, generator=g), ()


# -- gradients that vmap has wrapped, given to the backward part of what is compiled -----------------------------------
def several(x):
    return torch.tanh(x @ W).sum(1), (x * 2).exp(), F.dropout(x, 0.5)


def batched(f, x):
    y = f(x)[1]
    return torch.autograd.grad(y, x, torch.stack([y.detach(), y.detach() * 2, y.detach().sin()]), is_grads_batched=True)


def batched_partly(f, x):
    y = f(x)
    return torch.autograd.grad(y[:2], x, [torch.stack([v.detach(), v.detach() * 2]) for v in y[:2]], is_grads_batched=True)


def vectorized(f, x):
    return torch.autograd.functional.jacobian(lambda v: f(v)[0], x, vectorize=True)


def mapped(f, x):
    y = f(x)[1]
    return vmap(lambda g: torch.autograd.grad(y, x, g, retain_graph=True)[0])(torch.stack([y.detach(), y.detach() + 1]))


def mapped_twice(f, x):
    y = f(x)[2]
    g = torch.ones(2, 3, *y.shape) * torch.arange(6.0).reshape(2, 3, 1, 1)
    return vmap(vmap(lambda g: torch.autograd.grad(y, x, g, retain_graph=True)[0]))(g), torch.autograd.grad(y.sum(), x)


@pytest.mark.parametrize("way", [batched, batched_partly, vectorized, mapped, mapped_twice], ids=lambda f: f.__name__)
def test_gradients_of_a_batch(way):
    compiled_ = compiled(several)
    for n in (3, 5):
        torch.manual_seed(0)
        want = way(several, t(n, 4, grad=True))
        torch.manual_seed(0)
        torch.testing.assert_close(way(compiled_, t(n, 4, grad=True)), want)


listed(__name__, {
    **dict.fromkeys(
        ["vmap_norms", "vmap_joins", "vmap_gathers", "vmap_scatters", "vmap_selects", "vmap_convolutions", "vmap_losses", "vmap_pools",
         "vmap_batch_norm", "vmap_group_norm"],
        "its C++ rule asks for the batch as a number",
    ),
    "jvp_of_norm": "its C++ formula asks for the sizes",
}, breaks=0)
listed(__name__, {
    "functions_disabled": "what keeps subclasses out is an object of C",
    "gradients_batched": "the older vmap asks for the memory of its tensors",
    "retained": "the gradient of a result is kept, and may be asked for later",
    "saved_tensors_mutation_allowed": "a mode of dispatch is entered",
    "function_jacobian_forward": "PyTorch refuses it",
    "functionalized": "a transform of PyTorch's own compilers",
    "random_discrete": "a check in a `with` block",
    "multivariate_normal": "a check in a `with` block",
})  # fmt: skip


@pytest.mark.parametrize("case", cases(__name__), ids=repr)
def test_program(case):
    case.run()
