"""What Python or PyTorch refuses of a number that changes, where nobody reads what would come of it: powers, floats, sizes, texts."""

from __future__ import annotations

import math

import pytest
import torch

import pliant

F = torch.nn.functional
FLOATS = (0.5, 2.0, 3.5, -1.0, 0.0, -0.0, math.inf, math.nan, 710.5, 1e300, -1e300, 0.25)
INTS = (2, 3, 4, 1, 0, -1, -2, 20, 50, 1000, 65, 10**6, 10**300, 5)
SIZES = (2, 3, 4, 1, 0, -1, -2, -3, 5, 3)

OF_FLOATS = {
    "square": lambda f: f**2,
    "power": lambda f: pow(f, 2.5),
    "reciprocal": lambda f: f**-1,
    "exponent": lambda f: 2.0**f,
    "exponent of an int": lambda f: 2**f,
    "its own": lambda f: abs(f) ** abs(f),
    "exp": lambda f: math.exp(f),
    "product": lambda f: f * 10**400,
}
OF_INTS = {
    "negative power": lambda n: n**-2,
    "root": lambda n: n**-0.5,
    "of zero": lambda n: 0.0**n,
    "of a bool": lambda n: (n > 2) ** -1,
    "large": lambda n: 1e200**n,
    "float": lambda n: float(n**300),
    "quotient": lambda n: n**300 / 3,
    "quotient that fits": lambda n: (n**300 + 1) / (abs(n) ** 299 + 1),
    "product": lambda n: n**300 * 0.5,
    "compared": lambda n: n**300 < 0.5,
    "root of a power": lambda n: math.sqrt(abs(n**300)),
    "logarithm": lambda n: math.log(abs(n**300) + 1),
    "shift": lambda n: float(1 << abs(n) * 60),
    "character": lambda n: f"{n:c}",
    "character of a template": lambda n: "{:c}".format(n),
    "no text": lambda n: f"{n:s}",
    "digits": lambda n: f"{1.5:.{min(n, 9)}f}",
    "text": lambda n: f"{n!r:d}",
}
OF_SIZES = {
    "zeros": lambda n, x: torch.zeros(n, 2),
    "sum": lambda n, x: torch.zeros(n + 1).sum(),
    "bits": lambda n, x: torch.ones((min(n, 7) ^ 1) + 1),
    "full": lambda n, x: torch.full((2, n), 1.0),
    "new": lambda n, x: x.new_empty(n),
    "eye": lambda n, x: torch.eye(n),
    "random": lambda n, x: torch.rand(n),
    "order": lambda n, x: torch.randperm(n),
    "repeat": lambda n, x: x.repeat(n),
    "expand": lambda n, x: x[:1].expand(n),
    "broadcast": lambda n, x: torch.broadcast_to(x[:1], (n,)),
    "view": lambda n, x: x.view(2, n),
    "narrow": lambda n, x: x.narrow(0, 0, n),
    "pad": lambda n, x: F.pad(x[:2], (n, 0)),
    "top": lambda n, x: x.topk(n),
}


def outcome(fn, *args):
    try:
        return fn(*args)
    except Exception as error:
        return type(error), error.args


def same_calls(fn, calls):
    compiled = pliant.compile(fn, background=False)
    raised = 0
    for call in calls:
        want, got = (str(outcome(f, call, torch.ones(6))) for f in (fn, compiled))
        assert got == want, call
        raised += "Error" in want
    return raised


@pytest.mark.parametrize("table, calls, use", [(t, c, u) for t, c in ((OF_FLOATS, FLOATS), (OF_INTS, INTS)) for u in t])
def test_of_a_number(table, calls, use):
    made = table[use]
    same_calls(lambda n, x: (made(n), x + 1)[1], calls)


def test_of_a_number_from_data():
    raised = same_calls(lambda f, x: ((x[0].double() * f).abs().item() ** 2, x + 1)[1], FLOATS)
    raised += same_calls(lambda f, x: (2.0 ** (x[0].double() * f).item(), x + 1)[1], FLOATS)
    assert raised == 3


def test_a_handler_is_told():
    def fn(f, x):
        try:
            f**3  # noqa: B018
        except OverflowError as error:
            return x - 1, error.args
        return x + 1

    same_calls(fn, FLOATS)


@pytest.mark.parametrize("source", ["argument", "data"])
@pytest.mark.parametrize("use", OF_SIZES)
def test_of_a_size(use, source):
    made, of_data = OF_SIZES[use], source == "data"

    def fn(n, x):
        made((x[1] * n).int().item() if of_data else n, x)
        return x + 1

    assert same_calls(fn, SIZES)


@pytest.mark.parametrize("source", ["argument", "data"])
def test_a_size_that_stays_as_it_is(source):
    of_data = source == "data"

    def fn(n, x):
        wide = x[:1].expand((x[1] * n).int().item() if of_data else n)
        return wide, wide.shape[0] * 2, wide.numel()

    same_calls(fn, SIZES)
