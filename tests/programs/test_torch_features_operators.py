"""Higher-order operators, `autograd.Function`, checkpoints and custom operators: one graph each, but for those whose reason is listed.

PYTEST_DONT_REWRITE: the programs keep their own asserts.
"""

from __future__ import annotations

import functools

import pytest
import torch
import torch.utils.checkpoint as cp
from torch import nn
from torch._higher_order_ops import wrap as wraps
from torch._higher_order_ops.associative_scan import associative_scan
from torch._higher_order_ops.hints_wrap import hints_wrapper
from torch._higher_order_ops.map import map as torch_map
from torch._higher_order_ops.scan import scan
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import pliant
from pliant.graph.trace import Trace
from tests.helpers import alive
from tests.programs.registry import cases, each, program, programs, t

ROWS = each(3, 5, 2, tail=(4,))
TWO = each(3, 5, 2, tail=(4,), n=2)
GRADS = each(3, 5, 2, tail=(4,), grad=True)
WHOLE = {"breaks": 0, "captures": 1}
BACK = {"grad": True, **WHOLE}
W = t(4, 4, seed=3)
COMPILED = torch.compile(lambda v: v * 3, backend="eager")


# -- control flow -----------------------------------------------------------------------------------------------------
@program(*ROWS, **WHOLE)
def cond_plain(x):
    return torch.cond(x.sum() > 0, lambda a: a.sin(), lambda a: a.cos() * 2, (x,))


@program(*GRADS, **BACK)
def cond_backward(x):
    return torch.cond(x.sum() > 0, lambda a: a.sin(), lambda a: a.cos() * 2, (x,))


@program(*GRADS, **BACK)
def cond_backward_of_captured(x):
    y = x * 2
    return torch.cond(x.sum() > 0, lambda a: a.sin() * y, lambda a: a.cos() + y, (x,)).sum() + y.sum()


@program(*GRADS, **BACK)
def cond_nested_backward(x):
    def deep(a):
        return torch.cond(a.max() > 1, lambda b: b * 2, lambda b: b.exp(), (a,))

    return torch.cond(x.sum() > 0, deep, lambda a: a.cos() * 2, (x,))


@program(*ROWS, world=True, grad=True, **WHOLE)
def cond_backward_of_modules():
    torch.manual_seed(0)
    a, b = nn.Linear(4, 3), nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.LayerNorm(5), nn.Linear(5, 3))
    return lambda x: torch.cond(x.sum() > 0, lambda v: a(v), lambda v: b(v), (x,)).pow(2), (a, b)


@program(*GRADS, **BACK)
def cond_backward_of_several(x):
    y = x.sin()
    a, b = torch.cond(x.sum() > 0, lambda p, q: (p * q, p.sum(1)), lambda p, q: (p - q, (q * 2).mean(1)), (x, y))
    return a, b.unsqueeze(1) * a, torch.cond(x.max() > 100, lambda p: p * 2, lambda p: p * 3, (a,))


@program(*GRADS, **BACK)
def cond_backward_of_one_side(x):
    def off(a):
        with torch.no_grad():
            c = a.exp()
        return c * a

    return torch.cond(x.sum() > 0, off, lambda a: a.detach() * 2 + a.mean(), (x,)), torch.cond(
        x.sum() > 1, torch.zeros_like, torch.clone, (x,)
    )


@program(*GRADS, **BACK)
def cond_backward_in_a_loop(x):
    for _ in range(3):
        x = torch.cond(x.mean() > 0.1, lambda a: a * 0.5, lambda a: a.sin() + 0.2, (x,))
    return x.sum(0)


@program(*GRADS, **BACK)
def cond_backward_of_products(x):
    w = W * 2
    return torch.cond(x.sum() > 0, lambda a: torch.softmax(a @ w, 1), lambda a: (a @ w).T.sin().T, (x,)).norm()


@program(*GRADS, **BACK)
def cond_backward_of_random_numbers(x):
    def noisy(v):
        return nn.functional.dropout(v, 0.5) * torch.rand_like(v)

    a = torch.cond(x.sum() > 0, noisy, lambda v: v * 2 + torch.randn(4), (x,))
    b = torch.cond(a.sum() > 0, lambda v: nn.functional.dropout(v, 0.5), lambda v: v.sin(), (a,))
    return b, torch.rand(3), torch.cond(x.sum() > 0, lambda v: v.exp(), lambda v: v.sin(), (x.detach(),))


def deep(v):
    return torch.cond(v.max() > 1, lambda u: nn.functional.dropout(u * u, 0.5), lambda u: u * torch.rand_like(u), (v,))


def deep_in_a_row(v):
    b = deep(v) * torch.rand_like(v)
    return b + deep(b)


def deep_without_gradients(v):
    with torch.no_grad():
        a = deep(v)
    return v * a


def deep_of_two(v):
    a, b = torch.cond(
        v.max() > 1, lambda u: (nn.functional.dropout(u, 0.5), u * 2), lambda u: (u * torch.rand_like(u), u.sin()), (v,)
    )
    return a * b + b


# A branch in a branch draws once more in eager: in the backward part of the outer one, and again in its own.
programs(__name__, *GRADS, **BACK)({
    f"cond_in_a_cond_of_random_numbers_{name}": lambda x, side=side: (
        torch.cond(x.sum() > 0, side, lambda v: deep(v).sin(), (x,)) * torch.rand(4), torch.rand(1)
    )
    for name, side in {
        "plain": deep,
        "deeper": lambda v: torch.cond(v.sum() > -1, deep, lambda u: u * torch.randn_like(u), (v,)),
        "in_a_row": deep_in_a_row,
        "without_gradients": deep_without_gradients,
        "of_two": deep_of_two,
        "unread": lambda v: v * deep(v.detach()) + deep(v).detach(),
    }.items()
})  # fmt: skip


@program(*each(3, 5, 2, tail=(4,)), (-t(5, 4).abs(),), (t(3, 4).abs(),), world=True, **WHOLE)
def cond_of_what_each_side_reads():
    a, b, c, d = t(4, 3, seed=1), t(4, 3, seed=2), t(3, seed=3), t(3, seed=4)
    return lambda x: torch.cond(x.sum() > 0, lambda v: v @ a + c, lambda v: v @ b + d, (x,))


@program(*ROWS, **WHOLE)
def cond_of_a_size(x):
    return torch.cond(x.shape[0] > 1, lambda a: a.sin(), lambda a: a.cos(), (x,))


@program(*ROWS, **WHOLE)
def while_plain(x):
    i = torch.tensor(0)
    return torch.while_loop(lambda i, a: i < 4, lambda i, a: (i + 1, a * 2), (i, x))


@program(*ROWS, **WHOLE)
def while_on_data(x):
    return torch.while_loop(lambda a: a.abs().max() > 0.1, lambda a: (a / 2,), (x,))


@program(*ROWS, **WHOLE)
def map_plain(x):
    return torch_map(lambda r, k: r.sin() * k, x, 3.0), torch_map(lambda r: (r.sum(), r * 2), x)


@program(*GRADS, **BACK)
def map_backward(x):
    return torch_map(lambda r: torch.tanh(r @ W), x)


@program(*ROWS, **WHOLE)
def scan_plain(x):
    return scan(lambda c, r: (c + r, c * r), x[0] * 0, x)


@program(*each(20, 70, 33, tail=(4,)), **WHOLE)
def scan_of_many(x):
    def step(c, r):
        c = torch.where(r.sum() > 0, c * 0.5 + r, c - r)
        return c, (c.sum(), c.long())

    return scan(step, x[0] * 0, x)


@program(*GRADS, grad=True, breaks=0)  # unrolled: a graph for each length
def scan_backward(x):
    return scan(lambda c, r: (torch.tanh(c + r @ W), c.sum()), torch.zeros(4), x)


@program(*ROWS, **WHOLE)
def scan_reverse(x):
    return scan(lambda c, r: (c + r, c * r), x[0] * 0, x, reverse=True), scan(lambda c, r: (c * 0.5 + r, c.clone()), x[:, 0] * 0, x, dim=1)


@program(*ROWS, **WHOLE)
def scan_trees(x):
    return scan(lambda c, d: ({"s": c["s"] + d[0].sum()}, (d[0] * 2, d[1] + 1)), {"s": x.sum() * 0}, (x, x.sin()))


@program(*ROWS, breaks=0)  # as many steps as the length has binary digits
def associative_plain(x):
    return associative_scan(lambda a, b: a + b, x, 0, combine_mode="generic"), associative_scan(
        torch.mul, x, 1, reverse=True, combine_mode="generic"
    )


@program(*ROWS, breaks=0)
def associative_trees(x):
    return associative_scan(lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1]), (x.sigmoid(), x), 0, combine_mode="generic")


@program(*GRADS, grad=True, breaks=0)
def associative_backward(x):
    return associative_scan(lambda a, b: a + b, x.sin(), 0, combine_mode="generic")


@torch.compiler.nested_compile_region
def region(x, y):
    return torch.tanh(x) * y


@program(*GRADS, **BACK)
def nested_region(x):
    return region(x, x.sin()) + region(x * 2, x)


# -- flex attention ---------------------------------------------------------------------------------------------------
HEADS = [(t(2, 2, n, 8), t(2, 2, n, 8, seed=1), t(2, 2, n, 8, seed=2)) for n in (3, 5, 9)]
HEADS_GRAD = [tuple(t(2, 2, n, 8, seed=i, grad=True) for i in range(3)) for n in (3, 5, 9)]


@program(*HEADS, **WHOLE)
def flex_plain(q, k, v):
    return flex_attention(q, k, v)


@program(*HEADS_GRAD)  # which PyTorch refuses on a CPU
def flex_backward(q, k, v):
    return flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: s + (i - j) * 0.1)


@program(*HEADS, **WHOLE)
def flex_causal(q, k, v):
    mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, q.shape[2], k.shape[2], device="cpu")
    return flex_attention(q, k, v, block_mask=mask)


@program(*HEADS, **WHOLE)
def flex_alibi(q, k, v):
    slopes = torch.tensor([0.5, 0.25])
    return flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: s + slopes[h] * (j - i), scale=0.3)


@program(*HEADS, **WHOLE)
def flex_lse(q, k, v):
    return flex_attention(q, k, v, return_lse=True)


# -- checkpoints ------------------------------------------------------------------------------------------------------
def block(x, scale=1.0):
    return torch.tanh(x @ W) * scale


@program(*GRADS, **BACK)
def checkpoint_plain(x):
    return cp.checkpoint(block, x, use_reentrant=False)


@program(*GRADS, **BACK)
def checkpoint_reentrant(x):
    return cp.checkpoint(block, x, use_reentrant=True)


@program(*GRADS, **BACK)
def checkpoint_keywords(x):
    return cp.checkpoint(block, x, scale=2.0, use_reentrant=False, preserve_rng_state=False, determinism_check="none")


@program(*GRADS, **BACK)
def checkpoint_dropout(x):
    return cp.checkpoint(lambda a: nn.functional.dropout(a.sin(), 0.5), x, use_reentrant=False)


def save_matmuls(ctx, op, *args, **kwargs):
    if op is torch.ops.aten.mm.default:
        return cp.CheckpointPolicy.MUST_SAVE
    return cp.CheckpointPolicy.PREFER_RECOMPUTE


@program(*GRADS, **BACK)
def checkpoint_selective(x):
    context = functools.partial(cp.create_selective_checkpoint_contexts, save_matmuls)
    return cp.checkpoint(block, x, use_reentrant=False, context_fn=context)


@program(*GRADS, **BACK)
def checkpoint_selective_list(x):
    context = functools.partial(cp.create_selective_checkpoint_contexts, [torch.ops.aten.mm.default])
    return cp.checkpoint(block, x, use_reentrant=False, context_fn=context)


@program(*GRADS, **BACK)
def checkpoint_sequential(x):
    return cp.checkpoint_sequential([torch.sin, torch.cos, torch.tanh, torch.exp], 2, x, use_reentrant=False)


@program(*GRADS, **BACK)
def checkpoint_nested(x):
    return cp.checkpoint(lambda a: cp.checkpoint(block, a, use_reentrant=False).sin(), x, use_reentrant=False)


@program(*GRADS, **BACK)
def checkpoint_debug(x):
    return cp.checkpoint(block, x, use_reentrant=False, debug=False, early_stop=False)


# -- autograd.Function ------------------------------------------------------------------------------------------------
class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * x * 3  # (on purpose not the derivative)


class Split(torch.autograd.Function):
    @staticmethod
    def forward(x, k):
        return x * k, (x > 0)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, k = inputs
        ctx.k = k
        ctx.save_for_backward(x, output[0])
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx, g, _):
        x, y = ctx.saved_tensors
        return g * ctx.k + y * 0 if ctx.needs_input_grad[0] else None, None


class InPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx, g):
        return g * 5


class Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x @ y.T

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        return g @ y, g.T @ x


class Mapped(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x.sin()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        return g * ctx.saved_tensors[0].cos() * 2

    @staticmethod
    def jvp(ctx, g):
        return g * 7


class OwnRule(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return x.exp()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, g):
        return g * ctx.saved_tensors[0]

    @staticmethod
    def vmap(info, in_dims, x):
        return OwnRule.apply(x) * info.batch_size, in_dims[0]


@program(*GRADS, **BACK)
def function_plain(x):
    return Square.apply(x) + Square.apply(x.sin())


@program(*GRADS, **BACK)
def function_setup_context(x):
    y, mask = Split.apply(x, 3.0)
    return y * mask


@program(*GRADS, **BACK)
def function_dirty(x):
    y = x * 1
    z = InPlace.apply(y)
    return z + y


@program(*each(3, 5, 2, tail=(4,), n=2, grad=True), **BACK)
def function_once(x, y):
    return Once.apply(x, y)


@program(*GRADS, **WHOLE)
def function_under_grad(x):
    return torch.func.grad(lambda a: Mapped.apply(a).sum())(x.detach())


@program(*ROWS, **WHOLE)
def function_under_vmap(x):
    return torch.vmap(Mapped.apply)(x)


@program(*ROWS, **WHOLE)
def function_own_vmap_rule(x):
    return torch.vmap(OwnRule.apply)(x), torch.vmap(torch.func.grad(lambda a: OwnRule.apply(a).sum()))(x)


@program(*ROWS, **WHOLE)
def function_under_jvp(x):
    return torch.func.jvp(Mapped.apply, (x,), (x,))


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(x, k):
        return x**3 * k, x.sign()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0], output[0])
        ctx.k = inputs[1]
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    def backward(ctx, g, _):
        x, y = ctx.saved_tensors
        return g * 3 * x**2 * ctx.k + y * 0, None

    @staticmethod
    def vmap(info, in_dims, x, k):
        return Cube.apply(x.movedim(in_dims[0], 0), k), (0, 0)


@program(*GRADS, **BACK)
def function_at_several_levels(x):
    f = lambda a: Cube.apply(a, 2.0)[0].sum()  # noqa: E731
    return torch.func.grad(f)(x), torch.func.grad(lambda a: torch.func.grad(f)(a).sum())(x)


@program(*GRADS, **BACK)
def function_mapped_and_differentiated(x):
    f = lambda a: Cube.apply(a, 0.5)[0].sum()  # noqa: E731
    return (
        torch.vmap(torch.func.grad(f))(x),
        torch.vmap(lambda a: Cube.apply(a, 2.0))(x),
        torch.func.jacrev(lambda a: Cube.apply(a, 1.5)[0])(x[0]),
    )


@program(*GRADS, **BACK)
def function_whose_rule_is_made(x):  # gradients through it, from outside of vmap, are left to PyTorch
    return torch.vmap(Mapped.apply)(x.detach()) * x


@program(*GRADS, **BACK)
def function_made_here(x):
    class Local(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a):
            return a * 2

        @staticmethod
        def backward(ctx, g):
            return g * 3

    return Local.apply(x)


# -- custom operators -------------------------------------------------------------------------------------------------
@torch.library.custom_op("pliant_features::scaled", mutates_args=())
def scaled(x: torch.Tensor, k: float) -> torch.Tensor:
    return torch.from_numpy(x.detach().numpy() * k)


@scaled.register_fake
def _(x, k):
    return torch.empty_like(x)


def scaled_setup(ctx, inputs, output):
    ctx.k = inputs[1]


def scaled_backward(ctx, g):
    return g * ctx.k * 2, None


scaled.register_autograd(scaled_backward, setup_context=scaled_setup)


@scaled.register_vmap
def _(info, in_dims, x, k):
    return scaled(x, k), in_dims[0]


@torch.library.custom_op("pliant_features::fill", mutates_args={"x"})
def fill(x: torch.Tensor, k: float) -> None:
    x.fill_(k)


@torch.library.custom_op("pliant_features::positive", mutates_args=())
def positive(x: torch.Tensor) -> torch.Tensor:
    return x[x > 0].clone()


@positive.register_fake
def _(x):
    n = torch.library.get_ctx().new_dynamic_size()
    return x.new_empty(n)


LIB = torch.library.Library("pliant_features", "FRAGMENT")
LIB.define("twice(Tensor x) -> Tensor")
LIB.impl("twice", lambda x: x * 2, "CompositeImplicitAutograd")
LIB.define("thrice(Tensor x, int n) -> (Tensor, Tensor)")
LIB.impl("thrice", lambda x, n: (x * 3, x.sum() * n), "CPU")


@torch.library.register_fake("pliant_features::thrice")
def _(x, n):
    return torch.empty_like(x), x.new_empty(())


@program(*ROWS, **WHOLE)
def custom_plain(x):
    return scaled(x.sin(), 3.0) + 1


@program(*GRADS, **BACK)
def custom_backward(x):
    return scaled(x, 3.0).sin()


@program(*ROWS, **WHOLE)
def custom_mutates(x):
    y = x.clone()
    fill(y, 2.0)
    return y + x


@program(*ROWS, **WHOLE)
def custom_dynamic(x):
    y = positive(x)
    return y.sum(), y * 2


@program(*ROWS, **WHOLE)
def custom_vmapped(x):
    return torch.vmap(lambda r: scaled(r, 2.0))(x)


@program(*ROWS, breaks=0)  # an int of an operator of somebody else is a number
def library_defined(x):
    return torch.ops.pliant_features.twice(x), torch.ops.pliant_features.thrice(x, x.shape[0])


# -- hooks ------------------------------------------------------------------------------------------------------------
@program(*GRADS, **BACK)
def hook_on_a_result(x):
    y = x * 2
    y.register_hook(lambda g: g * 3)
    return y.sin()


@program(*GRADS, **BACK)
def saved_tensors_hooks(x):
    with torch.autograd.graph.saved_tensors_hooks(lambda v: v * 1, lambda v: v):
        y = x.sin() * x
    return y


@program(*GRADS, **BACK)
def save_on_cpu(x):
    with torch.autograd.graph.save_on_cpu():
        return x.sin() * x


@program(*each(3, 5, 2, tail=(4,)), breaks=0)
def backward_inside(x):
    w = W.clone().requires_grad_()
    (torch.tanh(x @ w)).sum().backward()
    return w.grad


@program(*GRADS)  # retain_grad() breaks the graph
def retained_gradient(x):
    y = x * 2
    y.retain_grad()
    y.sum().backward()
    return y.grad


# -- operators that only name what they run ----------------------------------------------------------------------------
programs(__name__, *GRADS, **BACK)({
    "wrapped": lambda x: wraps.wrap(lambda a, b: a * b + x, x, x.sin()),
    "wrapped_without_gradients": lambda x: (wraps.wrap_with_set_grad_enabled(False, lambda a: a.sin(), x), x.cos()),
    "wrapped_with_autocast": lambda x: wraps.wrap_with_autocast("cpu", torch.bfloat16, True, False, lambda a: a @ a.T, x),
    "compiled_inside": lambda x: torch.compile(lambda v: v * 2)(x) + COMPILED(x),
})  # fmt: skip
programs(__name__, *ROWS, **WHOLE)({
    "hinted": lambda x: hints_wrapper(lambda a, b: a + b, (x, x), {}, hints={"k": True}),
    "while_of_an_integer": lambda x: torch.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a * 2), (0, x)),
    "while_of_a_size": lambda x: torch.while_loop(lambda i, a: a.sum() < 99, lambda i, a: (i + 2, a * 2 + i), (x.shape[0], x.abs())),
    "while_of_integers": lambda x: [(a * i, i, j) for i, j, a in [torch.while_loop(
        lambda i, j, a: i < 5, lambda i, j, a: (i + 1, j, a * 2 + j), (0, 4, x))]],
    "cond_in_vmap": lambda x: torch.vmap(lambda r: torch.cond(r.sum() > 0, lambda a: a.sin(), lambda a: a.cos(), (r,)))(x),
    "cond_around_vmap": lambda x: [torch.vmap(lambda r: torch.cond(p, lambda a: a.sin(), torch.cos, (r,)))(x) for p in [x.sum() > 0]],
    "cond_in_vmap_of_trees": lambda x: torch.vmap(lambda r: torch.cond(
        r.sum() > 0, lambda a: {"k": a.sin() * a.sum()}, lambda a: {"k": a.cos()}, (r,)))(x),
    "dropout_in_vmap": lambda x: torch.vmap(lambda v: nn.functional.dropout(v), randomness="same")(x),
})  # fmt: skip


@program(*ROWS)  # the loop would be one for all slices
def while_in_vmap(x):
    return torch.vmap(lambda r: torch.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a * 2), (torch.tensor(0), r)))(x)


@pytest.mark.parametrize("case", cases(__name__), ids=repr)
def test_program(case):
    case.run()


def test_a_branch_with_gradients_keeps_nothing_of_its_capture():
    """Its results hold a node, and that a class made for it: a circle that goes through C++, where the collector does not look."""
    def both(x):
        y = x * 2
        return torch.cond(x.sum() > 0, lambda a: a.sin() * y, lambda a: a.cos() + y, (x,)).sum() + y.sum()

    before = alive(Trace)
    compiled = pliant.compile(both)
    for sign in (1.0, -1.0):
        compiled(torch.full((2, 3), sign, requires_grad=True)).backward()
    del compiled
    pliant.reset()  # entries with a backward part keep its plan
    assert not [o for o in alive(Trace) if o.torch_ops and not any(o is b for b in before)]
