"""Rules that programs register with operators run as they are: what they read of the outside is guarded, or breaks the graph."""

from __future__ import annotations

import pytest
import torch

from tests.helpers import compiled, pliant
from tests.programs.registry import t

FACTOR = 2.0
FACTORS = [1.0]


def made(add):
    def rule(info, dims, x, by, shift=None):
        return scaled(x, by * FACTOR + add, shift), dims[0]

    return rule


@torch.library.custom_op("pliant_rules::scaled", mutates_args=())
def scaled(x: torch.Tensor, by: float, shift: int | None = None) -> torch.Tensor:
    return x * by + (shift or 0)


def keep(ctx, inputs, output):
    ctx.by = inputs[1] * FACTOR


BATCHED = made(0.5)
scaled.register_fake(lambda x, by, shift=None: torch.empty_like(x))
scaled.register_vmap(BATCHED)
scaled.register_autograd(lambda ctx, g: (g * ctx.by, None, None), setup_context=keep)


@torch.library.custom_op("pliant_rules::listed", mutates_args=())
def listed(x: torch.Tensor) -> torch.Tensor:
    return x * 2


listed.register_fake(torch.empty_like)
listed.register_autograd(lambda ctx, g: g * FACTORS[0])


def batched(x):
    return torch.vmap(lambda v: scaled(v, 3.0))(x)


def differentiated(x):
    x = x.clone().requires_grad_()
    scaled(x, 3.0).sum().backward()
    return x.grad


def of_a_list(x):
    x = x.clone().requires_grad_()
    listed(x).sum().backward()
    return x.grad


@pytest.mark.parametrize("fn", [batched, differentiated, of_a_list])
def test_what_rules_read_changes(fn, monkeypatch):
    pliant.reset()
    run, x = compiled(fn), t(3, 4)

    def alike():
        torch.testing.assert_close(run(x), fn(x))

    alike()
    alike()
    with monkeypatch.context() as m:
        m.setattr(f"{__name__}.FACTOR", 5.0)
        alike()
        m.setattr(f"{__name__}.FACTORS", [3.0])
        alike()
        FACTORS[0] = 4.0
        alike()
    alike()
    cell = BATCHED.__closure__[0]
    for value in (9.0, 0.5):
        cell.cell_contents = value
        alike()
    for defaults in ((1,), (None,)):
        BATCHED.__defaults__ = defaults
        alike()
