"""Hooks on saved tensors that are set around compiled functions hear what eager saves: such calls run in eager PyTorch."""

from __future__ import annotations

import pytest
import torch
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

import pliant


def layer(x, w):
    return torch.tanh(x @ w).sin() * x


def layers(x, w):
    return layer(layer(x, w), w)


def rows(x, w):
    y = x * w
    x.data.mul_(2)
    return y.sin() * x


def in_grad_mode(x, w):
    with torch.enable_grad():
        return layer(x, w)


def arguments():
    return [torch.linspace(-1.5, 2, 9).reshape(3, 3).requires_grad_() for _ in range(2)]


def told(fn, grad=True):
    heard = []

    def pack(t):
        heard.append((tuple(t.shape), t.dtype, t.detach().clone()))
        return t.half()

    args = arguments()
    with torch.set_grad_enabled(grad), saved_tensors_hooks(pack, lambda t: t.float()):
        out = fn(*args)
    if out.requires_grad:
        out.sum().backward()
    return [out.detach(), *[a.grad for a in args], *[t for h in heard for t in h]]


def same(a, b):
    assert len(a) == len(b)
    for x, y in zip(a, b, strict=True):
        assert torch.equal(x, y) if isinstance(x, torch.Tensor) else x == y


@pytest.mark.parametrize("fn", [layer, layers, rows, in_grad_mode])
@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("grad", [False, True])
def test_hooks_hear_what_eager_saves(fn, warm, grad):
    compiled = pliant.compile(fn)
    if warm:
        compiled(*arguments())
    for _ in range(2):
        same(told(fn, grad), told(compiled, grad))


def test_the_entries_hold_again_behind_them():
    compiled = pliant.compile(layer)
    compiled(*arguments())
    before = pliant.stats()["captures"]
    told(compiled)
    compiled(*arguments())
    assert pliant.stats()["captures"] == before


@pytest.mark.parametrize("warm", [False, True])
def test_checkpoints_count_what_is_saved(warm):
    compiled = pliant.compile(layers)
    results = []
    for fn in (layers, compiled, compiled):
        args = arguments()
        if warm:
            fn(*arguments())
        checkpoint(fn, *args, use_reentrant=False).sum().backward()
        results.append([a.grad for a in args])
    for r in results[1:]:
        torch.testing.assert_close(r, results[0])


@pytest.mark.parametrize("warm", [False, True])
def test_what_is_saved_on_the_cpu_is_from_before_later_writes(warm):
    compiled = pliant.compile(rows)
    if warm:
        compiled(*arguments())
    results = []
    for fn in (rows, compiled):
        args = arguments()
        with save_on_cpu():
            out = fn(*args)
        out.sum().backward()
        results.append([a.grad for a in args])
    torch.testing.assert_close(results[1], results[0])
