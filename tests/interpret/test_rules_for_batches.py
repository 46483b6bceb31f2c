"""`autograd.Function`s whose rule for batches PyTorch makes: what their `setup_context` does besides is done under `vmap`, too."""

from __future__ import annotations

import pytest
import torch

from tests.helpers import pliant

HEARD: list = []


class Hears(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x, k):
        return x.sin() * k, x.argmax()

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, k = inputs
        if k > 5:
            raise ValueError("note")
        ctx.k = k
        ctx.save_for_backward(x)
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)
        HEARD.append((k, tuple(x.shape), ctx.needs_input_grad))

    @staticmethod
    def backward(ctx, g, _):
        return g * ctx.k, None


PROGRAMS = [
    lambda x, k: torch.vmap(lambda v: Hears.apply(v, k))(x)[0],
    lambda x, k: torch.vmap(torch.func.grad(lambda v: Hears.apply(v, k)[0].sum()))(x),
    lambda x, k: torch.func.grad(lambda v: torch.vmap(lambda u: Hears.apply(u, k))(v)[0].sum())(x),
]


@pytest.mark.parametrize("program", PROGRAMS)
def test_it_is_called_as_often_and_may_raise(program):
    compiled = pliant.compile(program)
    for n, k in ((2, 2), (4, 2), (3, 3), (3, 7), (2, 2)):
        said = []
        for fn in (program, compiled):
            HEARD.clear()
            try:
                out = fn(torch.linspace(0, 1, n * 3).view(n, 3), k)
            except ValueError as e:
                out = torch.zeros(1) if e.args == ("note",) else None
            said.append((out, list(HEARD)))
        torch.testing.assert_close(said[1][0], said[0][0])
        assert said[0][1] == said[1][1]
