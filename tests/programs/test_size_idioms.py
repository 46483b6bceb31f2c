"""What ordinary programs do with sizes, in one graph for all of them: arithmetic, texts, factories, tensors made of them."""

from __future__ import annotations

import functools
import math
import operator

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import pliant
from tests.helpers import check

IDIOMS = {
    "half, rounded up": lambda x: x[: math.ceil(x.shape[0] / 2)],
    "a share, rounded down": lambda x: x[: math.floor(x.shape[0] * 0.3)],
    "a share, rounded": lambda x: x[: round(x.shape[0] * 0.6)],
    "rounded to tens": lambda x: x + round(x.shape[0], -1) + round(-x.shape[0] * 37, -2) + round(x.shape[0] * 5, ndigits=-1),
    "rounded to nothing": lambda x: x + round(x.shape[0], 1) + round(x.shape[0], 0),
    "a share, cut": lambda x: x[: int(x.shape[0] * 0.75)],
    "math.sqrt": lambda x: x / math.sqrt(x.shape[0]),
    "math.log": lambda x: x * math.log(x.shape[0]) + math.log2(x.shape[1] * x.shape[0]),
    "math.log of a base": lambda x: x * math.log(8.0, 2),
    "trigonometry": lambda x: x * (math.sin(x.shape[0]) + math.cos(x.shape[0]) + math.atan(x.shape[0]) + math.tanh(x.shape[0] * 0.1)),
    "a root as a power": lambda x: x * x.shape[0] ** -0.5 + x[: int(x.shape[0] ** 0.5)].sum(),
    "np.sqrt": lambda x: x / np.sqrt(x.shape[0]),
    "math.prod": lambda x: x.reshape(math.prod(x.shape)),
    "np.prod": lambda x: x.reshape(int(np.prod(x.shape))),
    "np.prod of a part": lambda x: x.reshape(np.prod(x.shape[:1]), -1) + np.prod([x.shape[0], 2]),
    "np.sum": lambda x: x * int(np.sum(x.shape)),
    "reduce": lambda x: x.reshape(functools.reduce(operator.mul, x.shape)),
    "sum, min, max": lambda x: x * sum(x.shape) + min(x.shape) - max(x.shape),
    "divmod": lambda x: x * divmod(x.shape[0], 3)[1],
    "to a multiple": lambda x: F.pad(x, (0, 0, 0, -x.shape[0] % 8)),
    "torch.tensor of a size": lambda x: x + torch.tensor(x.shape[0]),
    "torch.tensor of a shape": lambda x: x.sum() + torch.tensor(x.shape),
    "torch.tensor of a list": lambda x: x.sum() + torch.tensor([[x.shape[0], 2], [3, x.shape[1]]]),
    "torch.tensor with floats": lambda x: x.sum() + torch.tensor([x.shape[0], 0.5, x.shape[0] * 0.25]),
    "torch.tensor with a dtype": lambda x: x[0, 0] + torch.tensor([x.shape[0], 1], dtype=torch.float64),
    "torch.as_tensor": lambda x: x.sum() + torch.as_tensor(list(x.shape)),
    "linspace": lambda x: x * torch.linspace(0, 1, x.shape[0])[:, None],
    "linspace with keywords": lambda x: torch.linspace(-1.0, end=3.0, steps=2 * x.shape[0] + 1, dtype=torch.float64),
    "arange": lambda x: x + torch.arange(x.shape[0])[:, None],
    "a shape extended": lambda x: x.reshape(x.shape[:-1] + (2, 2)).reshape(*x.shape[:-1], 4),
    "a mask": lambda x: (x @ x.t()).masked_fill(torch.ones(x.shape[0], x.shape[0]).triu(1).bool(), -1.0),
    "kinds": lambda x: x * (isinstance(x.shape[0], int) + (type(x.shape[0]) is int)),
    "a question": lambda x: x if len(x) > 500 else x * 2,
}


@pytest.mark.parametrize("name", IDIOMS)
@pytest.mark.parametrize("backend", ["native", "aten", "eager"])
def test_one_graph_for_all_sizes(name, backend):
    program = IDIOMS[name]
    compiled = pliant.compile(program, backend=backend, fullgraph=True)
    for rows in (5, 7, 3, 8, 11, 6, 16, 21):
        x = torch.randn(rows, 4)
        expected, found = program(x), compiled(x)
        torch.testing.assert_close(found, expected)
        assert found.dtype is expected.dtype
    assert pliant.stats()["captures"] == 1


def test_what_has_no_answer_raises_as_in_eager():
    programs = (
        lambda x: x / math.sqrt(x.shape[0] - 9),
        lambda x: x * math.log(x.shape[0] - 3),
        lambda x: torch.linspace(0, 1, x.shape[0] - 9),
    )
    for program in programs:
        compiled = pliant.compile(program)
        for rows in (12, 10, 3, 14, 2):
            x, said = torch.ones(rows, 2), []
            for fn in (program, compiled):
                try:
                    said.append(fn(x).tolist())
                except (ValueError, RuntimeError) as e:
                    said.append((type(e), str(e).split("\n")[0]))
            assert said[0] == said[1]


@pytest.mark.parametrize("backend", ["native", "aten", "eager"])
@pytest.mark.parametrize("fn", [torch.linspace, torch.logspace], ids=lambda f: f.__name__)
def test_a_number_of_steps_that_is_an_argument(fn, backend):
    """Nothing says beforehand that it is not negative: that is asked, and one graph serves all that are not."""

    def program(x, steps):
        return fn(0, 2, steps)[:, None] * x

    compiled = pliant.compile(program, backend=backend)
    for steps in (3, 5, 7, 4, 9):
        x = torch.ones(2)
        torch.testing.assert_close(compiled(x, steps), program(x, steps))
    assert pliant.stats()["captures"] <= 2
    with pytest.raises(RuntimeError, match="number of steps must be non-negative"):
        compiled(torch.ones(2), -1)


def test_linspace_of_a_size_is_exported():
    program = pliant.export(lambda x: x * torch.linspace(0, 1, x.shape[0])[:, None], (torch.randn(3, 4),))
    for rows in (1, 2, 9):
        x = torch.randn(rows, 4)
        torch.testing.assert_close(program(x), x * torch.linspace(0, 1, rows)[:, None])


WITH_GRADIENTS = {
    "the masked": lambda x, m: torch.masked_select(x, m).sort()[0] * 2,
    "the masked, as a method": lambda x, m: x.masked_select(m[0] if x.shape[0] else m) ** 2,
    "rows of a mask": lambda x, m: x[:, :1].masked_select(m).sum(),
    "signs": lambda x, m: torch.sgn(x) + x.sgn() * 2 + x,
    "what needs no gradients": lambda x, m: (x * 2, x.detach().masked_select(m), x.detach().sgn()),
}


@pytest.mark.parametrize("name", WITH_GRADIENTS)
def test_one_graph_for_all_sizes_with_gradients(name):
    """PyTorch's C++ code for these derivatives asks for sizes as numbers: they were captured anew for each."""
    given = [(torch.randn(rows, 4).requires_grad_(), torch.randn(rows, 4) > 0) for rows in (5, 7, 3, 8, 11)]
    check(WITH_GRADIENTS[name], *given, grad=True, captures=1, options={"fullgraph": True})


DIAGONALS = {
    "of a mask": lambda x, n: torch.where((x > 0).byte().fill_diagonal_(0)),
    "of an input": lambda x, n: x.fill_diagonal_(3.5) + 1,
    "of a transposed copy": lambda x, n: x.t().clone().fill_diagonal_(True),
    "of rows": lambda x, n: (m := x * 1, m[1:].fill_diagonal_(7)),
    "with numbers that change": lambda x, n: (x * 1).fill_diagonal_(n) + (x * 1).fill_diagonal_(x.shape[0] * 0.5),
}


@pytest.mark.parametrize("name", DIAGONALS)
def test_diagonals_that_are_filled(name):
    """C++ code took the sizes for plain numbers: one graph for each, then a graph break."""
    given = [(torch.randn(rows, columns), n) for n, (rows, columns) in enumerate([(5, 5), (7, 7), (6, 6), (9, 9), (4, 7), (8, 3), (5, 6)])]
    check(DIAGONALS[name], *given, captures=2 if "change" in name else 1, options={"fullgraph": True})


def test_diagonals_with_gradients():
    def fn(x):
        m = x * 2
        m.fill_diagonal_(0)
        return m.sin()

    check(fn, *[(torch.randn(n, n).requires_grad_(),) for n in (5, 7, 6, 9)], grad=True, captures=1)


def test_masks_that_do_not_fit():
    def select(x, m):
        return x.masked_select(m)

    check(select, (torch.randn(3, 4).requires_grad_(), torch.ones(3) > 0), (torch.randn(4, 4).requires_grad_(), torch.ones(4) > 0))
    check(select, (torch.randn(3, 4).requires_grad_(), torch.ones(3, 4)))


@pytest.mark.parametrize("digits", [-1, -2, -3])
def test_numbers_rounded_to_tens(digits):
    def fn(x, n):
        return x + round(n, digits)

    compiled = pliant.compile(fn, fullgraph=True)
    for n in (*range(-250, 250, 25), 5, 15, -5, -15, 44, 46, 1500, 2500, 10**12 + 5, -(10**12) - 15):
        x = torch.zeros(1, dtype=torch.int64)
        assert torch.equal(compiled(x, n), fn(x, n))
    assert pliant.stats()["captures"] <= 2


def same_rows(x, y):
    same = x.shape[0] == y.shape[0]
    return y.mean(0).sum(), int(same)


def same_shape(x, y):
    same = x.shape == y.shape
    return (y / 2).mean(0).sum(), same


@pytest.mark.parametrize("backend", ["aten", "native"])
@pytest.mark.parametrize("fn", [same_rows, same_shape], ids=lambda fn: fn.__name__)
def test_a_size_that_gradients_need_equals_that_of_a_tensor_which_the_graph_does_not_read(fn, backend):
    def case(rows, columns, twice):
        x = torch.randn(rows, columns, requires_grad=True)
        return x, x if twice else torch.randn(rows, columns, requires_grad=True)

    cases = [case(*c) for c in ((1, 2, True), (4, 3, True), (1, 2, False), (5, 2, False), (6, 3, False))]
    check(fn, *cases, grad=True, options={"backend": backend})
