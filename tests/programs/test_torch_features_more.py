"""Further programs, by feature: what PyTorch's own compiler is asked by its tests. One graph each, but for those whose reason is listed.

PYTEST_DONT_REWRITE: the programs keep their own asserts.
"""

from __future__ import annotations

import functools
import math
import random
import types

import pytest
import torch
from torch import nn
from torch.func import functionalize, grad, jacrev, vmap

from tests.programs.registry import cases, each, program, programs

F = nn.functional
ROWS = each(3, 5, 2, tail=(4,))
GRADS = each(3, 5, 2, tail=(4,), grad=True)
WHOLE = {"breaks": 0, "captures": 1}
BACK = {"grad": True, **WHOLE}


# -- what PyTorch refuses, and programs that catch it -----------------------------------------------------------------
class NoRule(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return x * 2

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, g):
        return g * 2


class NoSetup(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * 2


class TwoRules(NoRule):
    generate_vmap_rule = True

    @staticmethod
    def vmap(info, dims, x):
        return x * 2, dims[0]


class NoPair(NoRule):
    @staticmethod
    def vmap(info, dims, x):
        return (x * 2,)


def refused(cls, transform):
    def run(x):
        try:
            return transform(lambda r: cls.apply(r).sum())(x)
        except RuntimeError as e:
            return str(e), x + 1

    return run


programs(__name__, *ROWS, **WHOLE)({
    f"refused_{cls.__name__}_{transform.__name__}": refused(cls, transform)
    for cls, transform in ((NoRule, vmap), (NoRule, jacrev), (NoSetup, vmap), (NoSetup, grad), (TwoRules, vmap), (NoPair, vmap))
})  # fmt: skip


# -- generators of random numbers that the program makes --------------------------------------------------------------
@program(*ROWS, **WHOLE)
def random_made_here(x):
    own, other = random.Random(3), random.Random("text")
    items = [x, x + 1, 2]
    other.shuffle(items)
    return (
        own.random() * x, own.randint(1, 5), own.choice(items), own.sample(items, 2), own.choices([1, 2], k=3), own.getrandbits(70),
        own.uniform(1, 2), own.betavariate(1, 2), own.gauss(0, 1), own.normalvariate(), other.random(), items, own.getstate()[1][:3],
    )  # fmt: skip


@program(*ROWS, world=True, breaks=1)
def random_made_here_over_a_break():
    held = types.SimpleNamespace()

    def f(x):
        held.own = random.Random(x.dim())
        held.own.mark = x + held.own.gauss(0, 1)
        torch._dynamo.graph_break()
        return x * 2

    return f, held


@program(*ROWS)
def random_made_here_and_drawn_after_a_break(x):
    own = random.Random(3)
    a = own.random(), own.gauss(0, 1)
    torch._dynamo.graph_break()
    return a, own.random() * x, own.gauss(0, 1)


@program(*ROWS)
def random_drawn_in_a_branch_on_data(x):
    own = random.Random(1)
    if x.sum() > 0:
        x = x * own.random()
    return x + own.random()


# -- exceptions from outside ------------------------------------------------------------------------------------------
@program(*ROWS, world=True, **WHOLE)
def texts_of_outside_errors():
    held = [ValueError("a", 3), KeyError("k"), RuntimeError(), TypeError("only")]
    return lambda x: (x + 1, [str(e) for e in held], [repr(e) for e in held], f"{held[1]}"), held


@program(*ROWS, world=True)
def texts_of_an_outside_error_that_changes():
    e = ValueError("a")

    def f(x):
        said = str(e)
        e.args = (said + "b",)
        return x + len(said)

    return f, e


@program(*ROWS, breaks=2)
def error_over_a_break(x):
    try:
        torch._dynamo.graph_break()
        raise ValueError("caught", 2)
    except ValueError as e:
        torch._dynamo.graph_break()
        return x + 1, str(e), repr(e)


# -- iterators at their end behind a graph break --------------------------------------------------------------------------
@program(*ROWS, breaks=1)
def ended_iterator(x):
    it, pair = iter([]), iter(())
    torch._dynamo.graph_break()
    return x + next(it, 2), next(it, None), next(pair, None), [y for y in pair]


@program(*ROWS, breaks=2)
def ended_iterator_whose_list_grows(x):
    held = []
    it = iter(held)
    torch._dynamo.graph_break()
    a = next(it, None)
    torch._dynamo.graph_break()
    held.append(3)
    return x * 2, a, next(it, None)


@program(*ROWS)
def iterator_whose_list_has_grown(x):
    held = []
    it = iter(held)
    torch._dynamo.graph_break()
    held.append(3)
    return x + next(it, 0), next(it, None)


@program(*ROWS, world=True)
def iterators_of_an_object():
    held = [None]

    def f(x):
        held[0] = iter([] if x.shape[0] != 5 else [x, 4])
        return g(x)

    @torch._dynamo.disable
    def g(x):
        return h(x)

    def h(x):
        return x * 2, next(held[0], 1), next(held[0], 1)

    return f, held


# -- conditions that are bytes ----------------------------------------------------------------------------------------
programs(__name__, *GRADS, **BACK)({
    "where_of_bytes": lambda x: torch.where((x > 0).byte() * 2, x, x * 3),
    "where_of_bytes_and_a_number": lambda x: (x.where((x > 0).byte(), -x), torch.where((x > 0).byte()[:, :1], x, 2.0)),
})  # fmt: skip


# -- another layout for a tensor of which there are views -------------------------------------------------------------
def layout_after(change):
    def run(x):
        y = x * 1
        z, w = y[1:], y.view(-1)
        z.mul_(2)
        change(y)
        return y, z, w + 1, z.sum()

    return run


LAYOUTS = {
    "layout_transposed": layout_after(lambda y: y.t_()),
    "layout_with_a_dim": layout_after(lambda y: y.unsqueeze_(0)),
    "layout_twice": layout_after(lambda y: y.transpose_(0, 1).t_()),
    "layout_strided": layout_after(lambda y: y.as_strided_((2, 2), (4, 1))),
    "layout_without_a_dim": lambda x: (lambda y: (y.squeeze_(0), y[1:]))((x * 1).view(1, -1, 4)),
}
programs(__name__, *ROWS, **WHOLE)(LAYOUTS)
HISTORIES = ("layout_transposed", "layout_strided")
"""Of a view autograd makes the history anew, by a `view` that the new layout refuses to proxies: the graph breaks in front of it."""
programs(__name__, *GRADS, grad=True, breaks=1)({f"{name}_with_gradients": LAYOUTS[name] for name in HISTORIES})
programs(__name__, *GRADS, grad=True, breaks=0)({f"{n}_with_gradients": fn for n, fn in LAYOUTS.items() if n not in HISTORIES})


@program(*GRADS, grad=True, breaks=0)
def layout_of_a_view_with_gradients(x):
    y = (x * 1).view(1, -1, 4)
    y.squeeze_(0)
    return y


@program(*ROWS)
def layout_of_an_input(x):
    z = x[1:]
    x.unsqueeze_(0)
    z.add_(1)
    return z * 2, x


# -- what has no derivative: eager says so when gradients arrive ------------------------------------------------------
programs(__name__, *GRADS, grad=True, breaks=0)({
    "without_derivative": lambda x: torch.heaviside(x, torch.tensor(1.0)),
    "without_derivative_beside_others": lambda x: (torch.heaviside(x, torch.tensor(1.0)) * x + x.sin(), x * 2),
    "without_derivative_of_one_argument": lambda x: torch.igamma(x.abs() + 1, x.abs() + 1),
    "without_derivative_of_a_custom_operator": lambda x: (torch.ops.prims.sin(x), x + 1),
})  # fmt: skip


# -- functionalize, cached functions of sizes -------------------------------------------------------------------------
def written(v):
    y = v.clone()
    y.add_(1)
    y[0] = 3
    return y * 2


def shared(v):
    y = v.clone()
    z = y.view(-1)
    z.mul_(2)
    return y, z


@program(*GRADS, **BACK)
def functionalized_writes(x):
    return functionalize(written)(x), functionalize(lambda v: (v.sin(), v))(x), functionalize(written, remove="mutations_and_views")(x)


@program(*each(12, 5, 2, grad=True), *each(3, 5, tail=(4,), dtype=torch.complex64, grad=True), grad=True)
def functionalized_writes_without_derivative(x):
    return functionalize(written)(x), x * 2


@program(*GRADS, grad=True)
def functionalized_views(x):
    return functionalize(shared)(x)


@program(*ROWS)
def functionalized_writes_to_an_input(x):
    def f(v):
        v.mul_(2)
        return v + 1

    return functionalize(f)(x), x


@functools.lru_cache(maxsize=2)
def area(n, m=2, *, k=3):
    return n * m + k, max(n, 3) // 2, math.sqrt(n)


@functools.lru_cache
def offset(n):
    return [n, OFFSET]


OFFSET = 5


@program(*ROWS, **WHOLE)
def cached_of_sizes(x):
    a, b, c = area(x.shape[0], x.shape[1])
    return x * a + b, c, area(x.shape[0], k=1)[0]


@program(*ROWS)
def cached_of_sizes_by_identity(x):
    return x * offset(x.shape[0])[0], offset(x.shape[0]) is offset(x.shape[0])


@pytest.mark.parametrize("case", cases(__name__), ids=repr)
def test_more_features(case):
    case.run()
