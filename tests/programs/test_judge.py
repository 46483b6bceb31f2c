"""The judge itself: `helpers.check` must notice what it promises to notice."""

from __future__ import annotations

import pytest
import torch

from tests.helpers import IDENTITY, Comparer, Mismatch, check_world


def differ(a, b):
    with pytest.raises(Mismatch):
        Comparer()(a, b, "value")


class Thing:
    def __init__(self, **kw):
        self.__dict__.update(kw)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (1, True),
        (1, 1.0),
        ([1], (1,)),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({1, 2}, {1, 3}),
        ([float("nan")], [0.0]),
        (Thing(a=1), Thing(a=2)),
        (Thing(a=1, b=2), Thing(b=2, a=1)),
        (torch.ones(2), torch.ones(2, 1)),
        (torch.ones(2), torch.ones(2, dtype=torch.float64)),
        (torch.ones(2, 3), torch.ones(3, 2).t()),
        (torch.ones(2), torch.ones(2, requires_grad=True)),
        (torch.ones(2), torch.full((2,), 1.01)),
        (torch.ones(2), torch.nn.Parameter(torch.ones(2), requires_grad=False)),
        (torch.Size([2]), (2,)),
        (ValueError("a"), ValueError("b")),
        (lambda v=1: v, lambda v=2: v),
    ],
)
def test_values(a, b):
    differ(a, b)


def test_identity_and_storage():
    x, y, same, other = torch.ones(4), torch.ones(4), [1], [1]
    differ((x, x[1:]), (y, torch.ones(5)[2:]))
    differ((x, x), (y, y.clone()))
    differ((x, x.clone()), (y, y))
    differ((same, same), (other, [1]))
    differ((Thing(t=x), x), (Thing(t=y), y.clone()))
    Comparer()((x, x[1:], [same, same]), (y, y[1:], [other, other]), "value")


def test_nan_equals_nan():
    Comparer()((float("nan"), torch.tensor([float("nan")])), (float("nan"), torch.tensor([float("nan")])), "value")


@pytest.mark.skipif(not IDENTITY, reason="each side is given its own program, both run eagerly")
@pytest.mark.parametrize("kind", ["value", "mutation", "print", "error", "message", "rng", "state", "grad mode", "version"])
def test_behaviour(kind):
    sides = iter([False, True])

    def factory():
        wrong, state = next(sides), []

        def fn(x):
            if wrong:
                if kind == "error":
                    raise ValueError
                {
                    "value": lambda: None,
                    "message": lambda: None,
                    "mutation": lambda: x.add_(1),
                    "print": lambda: print("more"),
                    "rng": lambda: torch.rand(1),
                    "state": lambda: state.append(1),
                    "grad mode": lambda: torch.set_grad_enabled(False),
                    "version": lambda: x.add_(0),
                }[kind]()
            if kind == "message":
                raise ValueError(wrong)
            return x + (1 if wrong and kind == "value" else 0)

        return fn, state

    with pytest.raises(Mismatch):
        check_world(factory, torch.ones(2))
