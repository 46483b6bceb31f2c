"""Further programs, by feature: what PyTorch's own compiler is asked by its tests. One graph each, but for those whose reason is listed.

PYTEST_DONT_REWRITE: the programs keep their own asserts.
"""

from __future__ import annotations

import random
import types

import pytest
import torch
from torch import nn
from torch.func import grad, jacrev, vmap

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


@pytest.mark.parametrize("case", cases(__name__), ids=repr)
def test_more_features(case):
    case.run()
