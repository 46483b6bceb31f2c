"""Modules of the standard library around tensors, operators of Python's numbers and sequences, tapes inside of `autograd.Function`.

PYTEST_DONT_REWRITE: the programs keep their own asserts.
"""

from __future__ import annotations

import dataclasses
import fractions
import functools
import inspect
import logging
import operator
import random
import reprlib
import statistics
import sys

import numpy as np
import pytest
import torch
from torch import nn

from tests.helpers import check_world
from tests.programs.registry import cases, each, program, programs, t

WHOLE = {"breaks": 0, "captures": 1}
ROWS = each(3, 5, 2, tail=(4,))
GRADS = each(3, 5, 2, tail=(4,), grad=True)
BACK = {"grad": True, **WHOLE}


# -- random numbers of Python -----------------------------------------------------------------------------------------
programs(__name__, *ROWS, **WHOLE)({
    "random_numbers": lambda x: (x * random.random(), random.random(), random.uniform(0, x.shape[0])),
    "random_integers": lambda x: (x + random.randint(1, 5), random.randrange(10), random.randrange(0, 9, 3), random.randint(0, x.shape[0])),
    "random_normals": lambda x: (x * random.gauss(0, 1), random.normalvariate(1.0, 2), random.gauss()),
    "random_beside_torch": lambda x: (torch.rand(3) + random.random(), torch.dropout(x, 0.5, True), random.random()),
    "random_used": lambda x: [(x[i], x[: i + 1].sum(), random.random()) for i in [random.randint(0, x.shape[0] - 1)]],
    "random_texts": lambda x: [(f"{u:.3f}", int(u * 10), u > 0.5, x) for u in [random.random()]],
})  # fmt: skip


@program(*ROWS, **WHOLE)
def random_seeded(x):
    random.seed(3)
    a = random.random()
    random.seed(3)
    return x * a, random.random()


@program(*ROWS, **WHOLE)
def random_side(x):
    if random.random() < 0.5:
        return x + 1
    return x - 1


@program(*ROWS)
def random_and_an_error_of_the_run(x):
    a = random.random()
    y = x[torch.tensor([99])] if x.shape[0] == 5 else x
    return y * a, random.random()


@program(*ROWS)
def random_of_its_own(x):
    own = random.Random(3)
    return own.random() * x, random.choice([1, 2, 3]), random.sample(range(4), 2), random.getrandbits(4), random.random()


@program(*ROWS, **WHOLE)
def random_of_numpy(x):
    drawn = (
        np.random.uniform(2, 5),
        np.random.rand(),
        np.random.random(),
        np.random.normal(1, 3),
        np.random.randn(),
        np.random.uniform(high=4.0),
    )
    return x * drawn[0] + drawn[1], drawn, [type(v) for v in drawn]


@program(*ROWS, **WHOLE)
def random_layers(x):
    for _ in range(3):
        if np.random.uniform(0, 1) < 0.5:
            x = x + 1
    return x


@program(*ROWS)
def random_arrays_of_numpy(x):
    own = np.random.RandomState(3)
    return (
        x * np.random.uniform(0, x.shape[0]),
        own.uniform(0, 1),
        np.random.rand(2),
        np.random.uniform(0, 1, 3),
        np.random.randint(5),
        np.random.rand(),
    )


@program(*ROWS)
def random_of_numpy_and_an_error_of_the_run(x):
    a = np.random.rand()
    y = x[torch.tensor([99])] if x.shape[0] == 5 else x
    return y * a, np.random.rand()


# -- texts, orders, loggers, exceptions ------------------------------------------------------------------------------
@dataclasses.dataclass
class Held:
    a: int
    b: object = None
    c: list = dataclasses.field(default_factory=list)


class Looped:
    @reprlib.recursive_repr("<...>")
    def __repr__(self):
        return "<" + repr(self.x) + ">"


OUTSIDE = Held(7, Held(8))
LOGGER = logging.getLogger("program")


@program(*ROWS, **WHOLE)
def texts_of_dataclasses(x):
    d = Held(1, Held(2))
    d.c.append(3)
    own = Held(1)
    own.b = own
    own.c.append(own)
    return x, repr(d), f"{d}", repr(OUTSIDE), repr([d, (d,)]), repr(own)


@program(*ROWS, **WHOLE)
def texts_that_hold_themselves(x):
    r = Looped()
    r.x = [r]
    return x, repr(r)


@program(*ROWS, **WHOLE)
def orders_from_comparisons(x):
    down = functools.cmp_to_key(lambda a, b: b - a)
    rows = functools.cmp_to_key(lambda a, b: b.shape[1] - a.shape[1])
    return sorted([3, 1, 2], key=down), max([1, 3], key=down), sorted([x, x[:, :1], x[:, :2]], key=rows), down(1) < down(2), x + 1


@program(*ROWS, **WHOLE)
def loggers_asked(x):
    if LOGGER.isEnabledFor(logging.DEBUG):
        LOGGER.debug("rows %d", x.shape[0])
    return x + 1, LOGGER.isEnabledFor(logging.ERROR), LOGGER.getEffectiveLevel(), [c.__name__ for c in inspect.getmro(Held)]


@program(*ROWS, **WHOLE)
def exceptions_at_hand(x):
    def name():
        return str(sys.exc_info()[1])

    try:
        {}["q"]
    except KeyError as e:
        try:
            int("z")
        except ValueError:
            a = name(), sys.exc_info()[0].__name__
        b = name(), sys.exc_info()[1] is e, sys.exc_info()[2] is not None
    return x, a, b


# -- operators --------------------------------------------------------------------------------------------------------
class Reflected:
    def __rmul__(self, other):
        return "times", other

    def __radd__(self, other):
        return "plus", other


class Refusing:
    def __rmul__(self, other):
        return NotImplemented

    def __radd__(self, other):
        return NotImplemented


class Indexed(Refusing):
    def __index__(self):
        return 2


def why(f):
    try:
        return f()
    except TypeError as e:
        return str(e)


@program(*ROWS, **WHOLE)
def reflected_operators(x):
    half = fractions.Fraction(1, 2)
    r = Reflected()
    return x, 2 * half, 2.5 * half, True * half, half * 3, [1] * r, "a" + r, (1,) + r, "ab" * r, r.__rmul__(3), 3 + r


@program(*ROWS, **WHOLE)
def operators_refused(x):
    n, i = Refusing(), Indexed()
    forms = (lambda: [1] * n, lambda: "a" + n, lambda: n * 2, lambda: 2 * n, lambda: (1,) + n, lambda: n + (1,), lambda: 1.5 + n)
    return x, [why(f) for f in forms], [1] * i, i * [1], why(lambda: operator.iadd([1], n)), why(lambda: operator.imul([1], Reflected()))


programs(__name__, *ROWS, **WHOLE)({
    "method_callers": lambda x: (operator.methodcaller("sum", dim=1)(x), operator.methodcaller("sum", 1, keepdim=True)(x)),
    "spreads": lambda x: (x, statistics.stdev([1.0, 2.0, 4.0]), statistics.pvariance([1, 2]), statistics.mean([1, 2])),
})  # fmt: skip


# -- autograd.Function with a tape of its own -------------------------------------------------------------------------
class Detached(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        with torch.enable_grad():
            y = x.detach().requires_grad_()
            z = y.sin().sum()
        (ctx.g,) = torch.autograd.grad(z, y)
        return z.detach()

    @staticmethod
    def backward(ctx, g):
        return ctx.g * g


class Taped(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        with torch.enable_grad():
            ctx.y = x.detach().requires_grad_()
            ctx.z = ctx.y.sin()
        return ctx.z.detach()

    @staticmethod
    def backward(ctx, g):
        with torch.enable_grad():
            (h,) = torch.autograd.grad(ctx.z, ctx.y, g)
        return h


class Viewed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        with torch.enable_grad():
            y = x * 2
        return y.view(-1)

    @staticmethod
    def backward(ctx, g):
        return g.view(-1, 4) * 5


class Same(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.detach()

    @staticmethod
    def backward(ctx, g):
        return g * 5


programs(__name__, *GRADS, **BACK)({
    "function_with_a_tape": lambda x: Detached.apply(x),
    "function_that_keeps_a_tape": lambda x: Taped.apply(x),
    "function_of_a_view": lambda x: Viewed.apply(x),
    "function_of_what_it_is_given": lambda x: (Same.apply(x * 2), Same.apply(x)),
})  # fmt: skip


# -- what the backward part reads of the outside ----------------------------------------------------------------------
class Settings:
    k = 2


class Reading(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, settings):
        ctx.settings = settings
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * ctx.settings.k, None


def hooked(x, settings):
    y = x * 2
    y.register_hook(lambda g: g * settings.k)
    return y.sin()


def held(x, settings):
    k, rows = settings.k, x.shape[0]
    y = x * k
    y.register_hook(lambda g: g * k + rows)
    return y.sin()


@pytest.mark.parametrize("kind", [int, float])
@pytest.mark.parametrize("fn", [hooked, held, Reading.apply])
def test_a_number_that_the_backward_part_reads_is_that_of_the_call(fn, kind):
    """CPython runs a hook, or a backward, on what is really there: a number that changes from call to call is no symbol in it."""

    def changed(i, state):
        state.k = kind(2 + i)

    def world():
        settings = Settings()
        return lambda x: fn(x, settings), settings

    check_world(world, *GRADS, *GRADS, grad=True, before=changed)


def test_a_tensor_that_a_hook_reads_ends_the_graph():
    def world():
        settings = Settings()
        settings.k = t(4, seed=3)
        return lambda x: hooked(x, settings), settings

    check_world(world, *GRADS, grad=True, breaks=1)


# -- backward hooks of modules ----------------------------------------------------------------------------------------
class Layers(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.k = nn.Linear(4, 4), nn.Linear(4, 4), 2.0
        with torch.no_grad():
            for i, p in enumerate(self.parameters()):
                p.copy_(t(*p.shape, seed=i))

    def forward(self, x):
        return self.b(self.a(x.sin()).tanh()) * 2


SEEN = []
MODULE_HOOKS: dict[str, tuple] = {  # breaks of the first call (one more in a process that has compiled much else: why is not known), hook
    "doubled": (0, lambda m: m.a.register_full_backward_hook(lambda mod, gi, go: (gi[0] * 2,))),
    "before": (0, lambda m: m.b.register_full_backward_pre_hook(lambda mod, go: (go[0] * 2,))),
    "whole": (0, lambda m: m.register_full_backward_hook(lambda mod, gi, go: (gi[0] * mod.k + go[0].sum(),))),
    "several": (0, lambda m: [m.b.register_full_backward_hook(h) for h in (lambda mod, gi, go: None, lambda mod, gi, go: (gi[0] + 1,))]),
    "weights": ((1, 2), lambda m: m.a.register_full_backward_hook(lambda mod, gi, go: (gi[0] * mod.weight.sum(),))),
    "kept": (1, lambda m: m.b.register_full_backward_hook(lambda mod, gi, go: SEEN.append(go[0].sum()))),
}


@pytest.mark.parametrize("name", MODULE_HOOKS)
def test_backward_hooks_of_modules(name):
    breaks, hook = MODULE_HOOKS[name]

    def world():
        m = Layers()
        hook(m)
        return m

    check_world(world, *GRADS, grad=True, breaks=breaks)


@pytest.mark.parametrize("case", cases(__name__), ids=repr)
def test_program(case):
    case.run()


def test_an_entry_of_another_binding_library_is_a_call_like_others():
    """A C function of optree, which pybind11 made with another ABI than PyTorch's, has a record of its own as `__self__`."""
    pytree = pytest.importorskip("torch.utils._cxx_pytree")
    from tests.helpers import check

    check(lambda x: pytree.tree_leaves([x, (x + 1,)]), (t(3, 4),), (t(5, 4),))
