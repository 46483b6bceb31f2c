"""The kernels of an LSTM of float32 (`native/recurrent.cpp`), with vectors of both widths, beside a loop in float64."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

from pliant import native
from pliant.codegen.cpu import runtime
from pliant.graph import lstm

BITS = (256, 512)
FENCE = 19
SIZES = (1, 2, 7, 8, 15, 16, 17, 31, 33, 48, 65)


def kernels(bits: int) -> tuple:
    if bits > native.own_products()[0]:
        pytest.skip(f"no vectors of {bits} bits here")
    runtime.share_pool()
    found = zip(native.lstm_functions(bits), runtime.LSTM_BUFFERS, (7, 8))
    return tuple(native.Launcher(f, bytes(sizes), n, None) for f, sizes, n in found)


class Case:
    """A direction of a layer: what goes in, and what a loop in float64 says of it. `plain`: padded, forward, with biases."""

    def __init__(self, rng: random.Random, batch: int, width: int, inputs: int, steps: int, plain: bool = False) -> None:
        chances = (0, 0, 1, 1) if plain else (0.5, 0.5, 0.7, 0.8)
        self.packed, self.reverse, self.biases, self.out = (rng.random() < p for p in chances)
        counts = sorted(rng.choices(range(1, batch + 1), k=steps - 1), reverse=True) if self.packed else [batch] * (steps - 1)
        self.counts, self.sizes = torch.tensor([batch, *counts]), (batch, width, inputs, steps)
        self.rows = rows = int(self.counts.sum())
        torch.manual_seed(rows)
        scale = width**-0.5
        shapes = [(rows, inputs), (batch, width), (batch, width), (4 * width, inputs), (4 * width, width), (4 * width,), (4 * width,)]
        self.given = [torch.randn(s) * (1 if i < 3 else scale) for i, s in enumerate(shapes)]
        self.heads = [torch.randn(rows, width) * self.out, torch.randn(batch, width), torch.randn(batch, width)]

    @property
    def flags(self) -> int:
        return lstm.REVERSE * self.reverse + lstm.BIASES * self.biases + lstm.PACKED * self.packed

    def wanted(self) -> list[torch.Tensor]:
        """Result, last states and gradients of everything given (of the biases: if there are any)."""
        given = [t.double().requires_grad_() for t in self.given]
        x, h, c, w, u, b, v = given
        rows, counts = x.split(self.counts.tolist()), self.counts.tolist()
        outs: dict[int, torch.Tensor] = {}
        for t in reversed(range(len(counts))) if self.reverse else range(len(counts)):
            n = counts[t]
            gates = rows[t] @ w.t() + h[:n] @ u.t() + (b + v if self.biases else 0)
            i, f, g, o = gates.chunk(4, 1)
            now = f.sigmoid() * c[:n] + i.sigmoid() * g.tanh()
            outs[t] = o.sigmoid() * now.tanh()
            h, c = torch.cat([outs[t], h[n:]]), torch.cat([now, c[n:]])
        results = [torch.cat([outs[t] for t in range(len(counts))]), h, c]
        targets = given if self.biases else given[:5]
        return [*[r.detach() for r in results], *torch.autograd.grad(results, targets, [g.double() for g in self.heads])]

    def run(self, bits: int, add: bool = False) -> list[torch.Tensor]:
        forward, backward = kernels(bits)
        (batch, width, inputs, steps), rows = self.sizes, self.rows
        x, h, c, w, u, b, v = self.given
        memory = torch.full((rows, width + FENCE), 7.0)
        out, last = memory[:, :width], [torch.empty(batch, width) for _ in range(2)]
        gates, cells = torch.empty(rows, 4 * width), torch.empty(rows, width)
        sizes = steps, batch, rows, inputs, width, width + FENCE
        forward(x, self.counts, h, c, w, u, b, v, out, *last, gates, cells, *sizes, self.flags)
        assert (memory[:, width:] == 7).all(), "written beyond the result"
        states = [g.clone() for g in self.heads[1:]]
        d_x, d_w, d_u, d_b, d_v = [torch.full(t.shape, 1.0 if add else float("nan")) for t in (x, w, u, b, v)]
        flags = self.flags | lstm.WANT_X | lstm.WANT_WEIGHTS | lstm.HAS_GRAD_OUT * self.out | lstm.ADD_X * add
        ends = d_x, d_w, d_u, d_b, d_v
        backward(x, self.counts, h, c, w, u, out, gates, cells, self.heads[0], *states, *ends, *sizes, width, flags)
        return [out, *last, d_x - 1 if add else d_x, *states, d_w, d_u, *((d_b, d_v) if self.biases else ())]


def check(got: list, want: list, what: Any) -> None:
    assert len(got) == len(want)
    for at, (a, b) in enumerate(zip(got, want)):
        error, size = (a.double() - b).abs().max().item(), b.abs().max().item()
        assert error <= 4e-6 * max(size, 0.1), (at, error, size, what)


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("seed", range(40))
def test_many_sizes(bits: int, seed: int) -> None:
    rng = random.Random(seed)
    sizes = *(rng.choice(SIZES) for _ in range(3)), rng.choice((1, 2, 3, 5, 9))
    case = Case(rng, *sizes)
    check(case.run(bits), case.wanted(), (sizes, vars(case)))


@pytest.mark.parametrize("bits", BITS)
def test_gradients_of_the_inputs_are_added(bits: int) -> None:
    case = Case(random.Random(0), 5, 17, 9, 4)
    check(case.run(bits, add=True), case.wanted(), vars(case))


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("seed", range(4))
def test_threads_change_no_bit(bits: int, seed: int) -> None:
    case, before, found = Case(random.Random(seed), 40, 200, 70, 5), torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3, 7):
            torch.set_num_threads(threads)
            found.append(case.run(bits))
    finally:
        torch.set_num_threads(before)
    check(found[0], case.wanted(), vars(case))
    for other in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], other))


@pytest.mark.parametrize("bits", BITS)
def test_numbers_that_are_none(bits: int) -> None:
    """What is not a number stays in its rows, infinite inputs saturate the gates."""
    case = Case(random.Random(1), 6, 20, 3, 4, plain=True)
    x = case.given[0].view(4, 6, 3)
    x[1, 2, 0], x[0, 3, 1], x[0, 4, 2] = float("nan"), float("inf"), -1e38
    got, want = case.run(bits), case.wanted()
    for a, b in zip(got[:3], want):
        torch.testing.assert_close(a.double(), b, rtol=1e-5, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize("bits", BITS)
def test_sums_over_many_rows_are_as_good_as_pytorch_s(bits: int) -> None:
    case, m = Case(random.Random(2), 64, 16, 16, 300, plain=True), torch.nn.LSTM(16, 16)
    got, want = case.run(bits), case.wanted()
    with torch.no_grad():
        for p, value in zip(m.parameters(), case.given[3:]):
            p.copy_(value)
    x, h, c = [t.clone().requires_grad_() for t in case.given[:3]]
    out, (last_h, last_c) = m(x.view(300, 64, 16), (h[None], c[None]))
    results = [out.view(-1, 16), last_h[0], last_c[0]]
    eager = [*results, *torch.autograd.grad(results, [x, h, c, *m.parameters()], case.heads)]
    for a, b, exact in zip(got, eager, want):
        ours, theirs = ((t.double() - exact).square().mean().sqrt().item() for t in (a, b))
        assert ours <= 2 * theirs
