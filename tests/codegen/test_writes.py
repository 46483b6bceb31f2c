"""Random programs that write parts of a tensor in place and read them again, in every order of dims, against eager."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

import pliant


class Writes:
    """A program over `h` (three dims), an accumulator, and tensors written part by part."""

    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)
        self.kind = rng.choice(("zeros_like", "empty_like", "new_zeros", "clone"))
        self.order = rng.choice(((0, 1, 2), (0, 2, 1), (1, 0, 2), (2, 0, 1)))
        self.steps = [
            (rng.choice(("state", "write", "write", "add", "mul", "read", "row", "masked")), rng.randrange(4), rng.choice((0.5, 2.0, -1.0)))
            for _ in range(rng.randint(2, 9))
        ]

    def __call__(self, h: torch.Tensor, g: torch.Tensor) -> tuple[torch.Tensor, ...]:
        make = {
            "zeros_like": torch.zeros_like,
            "empty_like": lambda t: torch.empty_like(t).fill_(1),
            "new_zeros": lambda t: t.new_zeros(t.shape),
            "clone": torch.clone,
        }
        out = make[self.kind](h)
        state = torch.zeros(h.shape[0], h.shape[2])
        for what, t, number in self.steps:
            if what == "state":
                state = g[:, t] * state + h[:, t]
            elif what == "write":
                out[:, t] = state
            elif what == "add":
                out[:, t] += h[:, (t + 1) % 4] * number
            elif what == "mul":
                out[:, t].mul_(number)
            elif what == "read":
                state = state + out[:, t]
            elif what == "row":
                out[0, t] = state[0] * number
            else:
                out[:, t, ::2] = number
        return out, state

    def arguments(self, batch: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
        sizes = (batch, 4, width)
        memory = torch.randn([sizes[d] for d in self.order])
        return memory.permute([self.order.index(d) for d in range(3)]), torch.randn(sizes)


@pytest.mark.parametrize("seed", range(60))
def test_parts_of_one_tensor(seed):
    program = Writes(seed)

    def fn(h, g):
        h = h + 1 if seed % 2 else h
        return program(h, g)

    compiled = pliant.compile(fn, backend="native", strict=True)
    for batch, width in ((3, 5), (2, 33), (4, 16)):
        h, g = program.arguments(batch, width)
        for got, want in zip(compiled(h.clone(), g), fn(h.clone(), g), strict=True):
            torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)
            assert got.stride() == want.stride()


def test_empty_tensors_without_memory_that_do_not_move():
    """A tensor over an empty array of NumPy has a stride of 0 and no memory: nothing of it is loaded before the loop that has no turn."""
    compiled = pliant.compile(lambda a: (a.to(torch.int64).sum(), torch.any(a != 0), a.to(torch.int64).prod()), strict=True)
    byte = torch.int8
    for a in (torch.zeros(8, dtype=byte).as_strided((0,), (0,)), torch.from_numpy(np.zeros(0, np.int8)), torch.zeros(0, dtype=byte)):
        total, found, product = compiled(a)
        assert (total.item(), found.item(), product.item()) == (0, False, 1)
