"""What a call holds at most, as PyTorch's allocator and the arena tell it: compiled code holds about as much as eager, or less."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
import torch.nn.functional as F

import pliant
from benchmarks.memory import highest, peak, peak_with_arena, row
from pliant.lower import peak_memory


def test_a_peak_is_the_most_that_was_held_at_once():
    assert highest([]) == 0 and highest([-8, 4]) == 0 and highest([8, -8, 4, 4, 4, -12]) == 12
    x = torch.zeros(1000)
    most, out = peak(lambda: (x + 1).exp())
    assert most == 8000 and out.numel() == 1000
    assert row([1 << 20, 1 << 19, 10], [1 << 19, 1 << 20, 99]) == ("1.049", "0.524", "2.00", "0.50", "1 of 2")


class Layers(torch.nn.Module):
    def __init__(self, depth: int = 10, width: int = 64) -> None:
        super().__init__()
        self.ws = torch.nn.ParameterList(torch.randn(width, width) / 8 for _ in range(depth))

    def forward(self, x):
        for w in self.ws:
            x = x + F.gelu(F.linear(F.layer_norm(x, (x.shape[-1],)), w))
        return x.sum()


def step(fn, model, x):
    fn(x).backward()
    for w in model.parameters():
        w.grad = None


def backward_peak(n=48):
    """Ours over eager's, where gradients of weights take as much as what is saved."""
    model, other = Layers(), Layers()
    fn = pliant.compile(model, backend="native", strict=True)
    step(fn, model, torch.randn(16, 64))
    x = torch.randn(n, 64)
    step(fn, model, x)
    step(other, other, x)
    return peak_with_arena(lambda: step(fn, model, x))[0] / peak(lambda: step(other, other, x))[0]


def test_saved_tensors_make_room_for_gradients(monkeypatch):
    ratio = backward_peak()
    assert ratio < 1.2
    pliant.reset()
    monkeypatch.setattr(peak_memory, "SHORTEST", 1 << 30)  # one native run for the whole backward pass
    assert backward_peak() > ratio + 0.1


@pytest.mark.parametrize("backend", ["aten", "native"])
def test_what_was_saved_is_freed_with_the_graph_or_kept_with_it(backend):
    def program(x):
        return (x.exp() * x).sin().sum()

    fn = pliant.compile(program, backend=backend, strict=True)
    x = torch.randn(32, requires_grad=True)
    out = fn(x)
    out.backward(retain_graph=True)
    first, x.grad = x.grad, None
    out.backward()
    assert torch.equal(first, x.grad)
    with pytest.raises(RuntimeError, match="second time"):
        out.backward()


def test_inputs_are_let_go_after_backward():
    fn = pliant.compile(lambda x, y: (x * y).sum(), backend="native", strict=True)
    x, y = torch.randn(8, requires_grad=True), torch.randn(8, requires_grad=True) * 1
    gone = weakref.ref(y)
    out = fn(x, y)
    out.backward()
    del y
    gc.collect()
    assert gone() is None and out.grad_fn is not None


def test_fills_wait_for_their_readers():
    def program(x, i):
        for k in range(4):
            x = torch.zeros(x.shape[0], x.shape[1]).index_add(0, i, x.exp() * k) + torch.cat([x, x], 1)[:, : x.shape[1]].sort(0)[0]
        return x

    x, i = torch.randn(300, 40), torch.randint(0, 300, (300,))
    fn = pliant.compile(program, backend="native", strict=True)
    torch.testing.assert_close(fn(torch.randn(20, 12), torch.arange(20)).shape, torch.Size([20, 12]))
    torch.testing.assert_close(fn(x, i), program(x, i), rtol=1e-4, atol=1e-4)
    assert peak_with_arena(lambda: fn(x, i))[0] <= peak(lambda: program(x, i))[0] * 1.05
