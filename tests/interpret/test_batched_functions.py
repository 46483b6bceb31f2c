"""Functions under `vmap`, and under `vmap` of gradients, of batches that change: one graph, and what eager gives."""

from __future__ import annotations

import pytest
import torch
from torch.func import functional_call, grad, jacrev, vmap

from tests.helpers import check, check_world, pliant

F = torch.nn.functional


def batch(n, width=4):
    x = (torch.arange(n * width * 1.0) * 7).sin().view(n, width) + torch.arange(width) / 9
    return x, (torch.arange(n * width) * 5 % width).view(n, width)


SETS = [batch(n) for n in (3, 5, 2, 7, 4)]
FUNCTIONS = {
    "gather": lambda x, i: torch.gather(x, 0, i).sin(),
    "gather of two dims": lambda x, i: torch.outer(x, x).gather(1, i[:2, None].expand(2, 3)) * 2,
    "index_select": lambda x, i: torch.outer(x, x).index_select(1, i),
    "embedding": lambda x, i: F.embedding(i, torch.outer(x, x)),
    "cat": lambda x, i: torch.cat([x, x * 2, x.sin()]),
    "cat of two dims": lambda x, i: torch.cat([torch.outer(x, x), x[:, None]], -1),
    "cat of integers": lambda x, i: torch.cat([i, i + 1]) * x.sum(),
    "layer_norm": lambda x, i: F.layer_norm(x, (4,), x, x * 2),
    "group_norm": lambda x, i: F.group_norm(torch.outer(x, x)[None], 2, x, x) * 0.01,
    "nll_loss": lambda x, i: F.nll_loss(x, i[0]),
    "nll_loss, ignored": lambda x, i: F.nll_loss(torch.outer(x, x), i, ignore_index=2, reduction="sum"),
    "cross_entropy": lambda x, i: F.cross_entropy(x, i[0]),
    "cross_entropy of rows": lambda x, i: F.cross_entropy(torch.outer(x, x), i),
    "attention": lambda x, i: F.scaled_dot_product_attention(*[torch.outer(x, x)[None, None]] * 3),
    "attention, causal": lambda x, i: F.scaled_dot_product_attention(*[torch.outer(x, x)[None]] * 3, is_causal=True, scale=0.3),
    "attention, with a bias": lambda x, i: F.scaled_dot_product_attention(*[torch.outer(x, x)[None]] * 3, attn_mask=torch.outer(x, x)),
    "gelu": lambda x, i: F.gelu(x) + F.gelu(x, approximate="tanh"),
    "max": lambda x, i: torch.outer(x, x).max(1)[0] + torch.outer(x, x).min(dim=0, keepdim=True)[0],
    "sort": lambda x, i: x.sort(descending=True)[0] * x,
    "topk": lambda x, i: torch.topk(torch.outer(x, x), 2, 0)[0],
    "whole dims": lambda x, i: torch.outer(x, x)[:, None, 1].sin() + torch.outer(x, x)[None, ..., :, 2],
    "scatter_add": lambda x, i: torch.zeros(4).scatter_add(0, i, x).sin(),
    "index_add": lambda x, i: torch.outer(x, x).index_add(1, i, torch.outer(x, x)).sin(),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_in_a_batch(name):
    fn = FUNCTIONS[name]
    check(lambda x, i: vmap(fn)(x, i), *SETS, captures=(1, 2), breaks=0)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_of_each_example(name):
    fn = FUNCTIONS[name]
    report = check(lambda x, i: vmap(grad(lambda x, i: (fn(x, i).float() * 1.5).sum()))(x, i), *SETS, breaks=0)
    assert report.captures <= 2


@pytest.mark.parametrize("name", ["gather", "cat", "layer_norm", "cross_entropy", "attention", "max", "whole dims"])
def test_nested_and_jacobians(name):
    fn = FUNCTIONS[name]
    check(lambda x, i: vmap(vmap(fn, (0, None)), (None, 0))(x, i), *SETS)
    check(lambda x, i: vmap(jacrev(fn))(x, i), *SETS)
    check(lambda x, i: vmap(fn, (0, None))(x, i[0]), *SETS)


def test_an_index_that_is_not_there():
    for fn in (
        lambda x, i: torch.gather(x, 0, i),
        lambda x, i: x.index_select(0, i),
        lambda x, i: F.embedding(i, x[:, None]),
        lambda x, i: F.nll_loss(x, i[0]),
    ):
        for wrong in (9, -1):
            x, i = batch(3)
            check(lambda x, i: vmap(fn)(x, i), (x, i), (x, torch.full_like(i, wrong)), *SETS, lines=False)  # noqa: B023


def test_gradients_of_each_example_of_a_network():
    def program():
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.LayerNorm(8), torch.nn.GELU(), torch.nn.Linear(8, 3))
        weights = {k: p.detach() for k, p in net.named_parameters()}

        def cost(weights, x, y):
            return F.cross_entropy(functional_call(net, weights, (x[None],)), y[None])

        return lambda x, y: vmap(grad(cost), (None, 0, 0))(weights, x, y)

    check_world(program, *[(x, i[:, 0] % 3) for x, i in SETS], captures=(1, 2), breaks=0)


def laid_out(x, how):
    if how == "transposed":
        return x.t().contiguous().t()
    if how == "a part":
        return torch.cat([x, x], 1)[:, 2:6]
    return x[:1].expand(x.shape[0], -1)


@pytest.mark.parametrize("how", ["transposed", "a part", "one row for all"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_batches_laid_out_otherwise(name, how):
    fn = FUNCTIONS[name]
    check(lambda x, i: vmap(fn)(x, i), *[(laid_out(x, how), i) for x, i in SETS[:3]])


@pytest.mark.parametrize("how", ["transposed", "a part", "one row for all"])
def test_norms_and_attention_of_batches_laid_out_otherwise(how):
    sets = [(laid_out(x, how),) for x, _ in SETS[:3]]
    check(lambda x: vmap(lambda r: F.group_norm(r[None], 2))(x), *sets)
    check(lambda x: vmap(lambda r: F.layer_norm(r, (4,)))(x), *sets)
    check(lambda x: vmap(lambda r: F.gelu(r))(x), *sets)
    check(lambda x: vmap(lambda r: torch.cat([r, r]))(x), *sets)
    check(lambda x: vmap(lambda r: F.scaled_dot_product_attention(*[r[None, :, None]] * 3))(x), *sets)


def test_attention_without_elements():
    check(lambda x: vmap(lambda r: F.scaled_dot_product_attention(*[r[None, :, None]] * 3))(x), *[(torch.ones(3, n),) for n in (4, 0, 5)])


@pytest.mark.parametrize(
    "fn",
    [
        lambda r: torch.cat([r, r * 2]), lambda r: torch.cat([r, torch.zeros(r.shape)], -1), lambda r: F.layer_norm(r, r.shape[-1:]),
        lambda r: r.sort(0)[0], lambda r: torch.gather(r, 0, torch.zeros_like(r, dtype=torch.long)),
    ],
    ids=["cat", "cat with zeros", "layer_norm", "sort", "gather"],
)  # fmt: skip
def test_layouts_of_batches_without_elements_or_transposed(fn):
    run = pliant.compile(vmap(fn), backend="aten")
    for shape in [(3, 0), (2, 3), (0, 3), (2, 0, 3), (2, 3, 0), (3, 2, 4)]:
        for x in (torch.ones(shape), torch.ones(shape[::-1]).permute(*reversed(range(len(shape))))):
            said = []
            for f in (vmap(fn), run):
                try:
                    y = f(x)
                    said.append((y.shape, y.stride()))
                except (RuntimeError, IndexError) as e:
                    said.append(type(e))
            assert said[0] == said[1]


@pytest.mark.parametrize("dim", [1, -2, 0, -1])
@pytest.mark.parametrize("name", ["gather", "index_select", "scatter_add", "index_add"])
def test_a_dim_that_an_example_lacks_is_refused(name, dim):
    more = {"gather": lambda a: (), "index_select": lambda a: ()}.get(name, lambda a: (a,))

    def program(x, i):
        try:
            return torch.vmap(lambda a, b: getattr(a, name)(dim, b, *more(a)))(x, i)
        except IndexError as e:
            return str(e)

    check(program, (torch.randn(3, 3), torch.tensor([[0, 1, 2], [2, 1, 0], [1, 1, 0]])))


def test_gradients_in_a_batch_that_go_on_into_the_history_of_an_input():
    """They were zeros: what came before the graph break has a history that no node of this region leads into."""
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Tanh())
    parameters = list(model.parameters())

    def fn(x):
        out = model(x).mean(0)
        torch._dynamo.graph_break()
        return torch.vmap(lambda g: torch.autograd.grad([out * 2], parameters, [g], allow_unused=True))(torch.eye(3))

    compiled = pliant.compile(fn, strict=True, background=False)
    for n in (5, 3, 7):
        x = torch.randn(n, 4)
        torch.testing.assert_close(compiled(x), fn(x))


def test_hooks_are_called_by_gradients_in_a_batch():
    w = torch.ones(3, requires_grad=True)

    def fn(x):
        out = w * x
        return torch.vmap(lambda g: torch.autograd.grad(out, w, g)[0])(torch.eye(3))

    compiled = pliant.compile(fn, strict=True, background=False)
    x = torch.arange(3.0)
    torch.testing.assert_close(compiled(x), fn(x))
    handle = w.register_hook(lambda g: g * 3)
    torch.testing.assert_close(compiled(x), fn(x))
    handle.remove()
    torch.testing.assert_close(compiled(x), fn(x))
