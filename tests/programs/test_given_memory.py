"""`p.data = u` of tensors from outside: values, versions, gradients, and which memory is whose, call by call."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import pliant

PROGRAMS: dict[str, tuple[Callable, int]] = {}


def program(breaks: int) -> Callable:
    def add(fn: Callable) -> Callable:
        PROGRAMS[fn.__name__] = fn, breaks
        return fn

    return add


@program(0)
def averaged(m: Any, k: Any, x: Any, s: dict) -> Any:
    with torch.no_grad():
        before = k(x)
        for a, b in zip(m.parameters(), k.parameters(), strict=True):
            b.data = b.data * 0.9 + a.data * 0.1
        return before, k(x)


@program(0)
def twice(m: Any, k: Any, x: Any, s: dict) -> Any:
    for b in k.parameters():
        b.data = b.data * 0.9
    for b in k.parameters():
        b.data = b.data + 1
    return k(x), k[0].weight._version


@program(0)
def written(m: Any, k: Any, x: Any, s: dict) -> Any:
    for b in k.parameters():
        b.mul_(1.01)
        b.data = b.data * 0.9
        b.add_(0.1)
        b.add_(0.1)
    return [b._version for b in k.parameters()], k(x)


@program(0)
def shared(m: Any, k: Any, x: Any, s: dict) -> Any:
    u = x.sum(0)[:3] * 2
    k[2].bias.data = u
    k[2].bias.add_(1)
    u.mul_(2)
    return u, k(x)


@program(0)
def of_two(m: Any, k: Any, x: Any, s: dict) -> Any:
    a, b = k[0].bias, k[0].weight[0]
    with torch.no_grad():
        a.data, k[2].bias.data = k[2].bias.repeat(2)[:4], a.data[:3]
    return k(x), b


@program(0)
def exchanged(m: Any, k: Any, x: Any, s: dict) -> Any:
    with torch.no_grad():
        for a, b in zip(m.parameters(), k.parameters(), strict=True):
            a.data, b.data = b.data, a.data
        return m(x), k(x)


@program(0)
def views_of_before(m: Any, k: Any, x: Any, s: dict) -> Any:
    v, d = k[2].bias[:2], k[2].bias.data
    k[2].bias.data = k[2].bias * 2
    s["v"], s["d"] = v, d
    return v + 1, d


@program(1)
def views_of_now(m: Any, k: Any, x: Any, s: dict) -> Any:
    k[2].bias.data = k[2].bias * 2
    s["v"], s["d"] = k[2].bias[:2], k[2].bias.data
    k[2].bias.add_(1)
    return s["v"] + 1


@program(0)
def given_back(m: Any, k: Any, x: Any, s: dict) -> Any:
    k[2].bias.data = k[2].bias * 2
    return k[2].bias


@program(0)
def perturbed(m: Any, k: Any, x: Any, s: dict) -> Any:
    first = m(x).pow(2).mean()
    first.backward()
    with torch.no_grad():
        for p in m.parameters():
            s.setdefault("old", {})[p] = p.data.clone()
            p.add_(p.grad * 0.1)
    m.zero_grad()
    m(x).pow(2).mean().backward()
    with torch.no_grad():
        for p in m.parameters():
            p.data = s["old"][p]
            p.add_(p.grad, alpha=-0.1)
    m.zero_grad()
    return first.item(), [p._version for p in m.parameters()]


@program(0)
def before_backward(m: Any, k: Any, x: Any, s: dict) -> Any:
    y = m[2](torch.tanh(m[0](x)))
    m[2].weight.data = m[2].weight.data * 2  # a leaf is not saved, but read when gradients arrive
    y.sum().backward()
    return m[0].weight.grad.clone()


@program(1)
def with_gradients_left(m: Any, k: Any, x: Any, s: dict) -> Any:
    y = m[2](torch.tanh(m[0](x)))
    m[2].weight.data = m[2].weight.data * 2
    return y


@program(0)
def beside_gradients(m: Any, k: Any, x: Any, s: dict) -> Any:
    y = m[2](torch.tanh(m[0](x)))
    with torch.no_grad():
        for a, b in zip(m.parameters(), k.parameters(), strict=True):
            b.data = b.data * 0.9 + a.data * 0.1
        z = k(x)
    return y * z, z


@program(1)
def kept_for_gradients(m: Any, k: Any, x: Any, s: dict) -> Any:
    y = m[2](torch.tanh(m[0](x) * k[0].bias))
    k[0].bias.data = k[0].bias.data * 2
    return y


@program(2)
def kept_for_gradients_later(m: Any, k: Any, x: Any, s: dict) -> Any:
    k[0].bias.data = k[0].bias.data * 2
    return m[2](torch.tanh(m[0](x) * k[0].bias))


@program(1)
def of_another_size(m: Any, k: Any, x: Any, s: dict) -> Any:
    s["w"].data = torch.ones(len(s["w"]) + 1)
    return s["w"] * 2


@program(0)
def of_another_layout(m: Any, k: Any, x: Any, s: dict) -> Any:
    k[0].weight.data = k[0].weight.data.t()
    return k(x), k[0].weight.stride()


@program(0)
def count(m: Any, k: Any, x: Any, s: dict) -> Any:
    n = k[1].num_batches_tracked
    n.data = n + 5
    n.add_(2)
    return n.item(), n > 7


@program(0)
def count_of_aliases(m: Any, k: Any, x: Any, s: dict) -> Any:
    a, b, c = k[0].weight.detach(), k[0].bias, k[2].bias.detach()
    with torch.no_grad():
        k[0].weight.data = k[0].weight.data * 2
        a.add_(1)
        b.add_(1)
        d = b.detach()
        b.data = b.data + 1
        d.mul_(2)
        b.data = b.data + 2
        d.mul_(3)
        c.mul_(0.5)
        k[2].bias.data = torch.zeros_like(c)
    return [a, c, d]


@program(0)
def copied(m: Any, k: Any, x: Any, s: dict) -> Any:
    k[2].bias.data = k[2].bias * 2
    c = copy.deepcopy(k[2].bias)
    c.add_(1)
    return c, k[2].bias


@program(0)
def gradient(m: Any, k: Any, x: Any, s: dict) -> Any:
    m(x).sum().backward()
    p = m[0].weight
    p.grad.data = p.grad.data * 0.5
    p.grad.add_(1)
    return p.grad


@program(2)
def behind_a_side(m: Any, k: Any, x: Any, s: dict) -> Any:
    with torch.no_grad():
        if x.sum() > 0:
            y = s["side"] = x * 2
        else:
            y = x
        k[2].bias.data = k[2].bias * 2
        k[2].bias.add_(1)
        if x.sum() > 1:
            s["side"] = x
        return k(x) + y.sum()


@program(2)
def branch_that_writes(m: Any, k: Any, x: Any, s: dict) -> Any:
    if x.sum() > 0:
        k[2].bias.add_(1)
    k[2].bias.data = k[2].bias * 2
    if x.sum() > -1:
        k[2].bias.add_(1)
    return k(x), k[2].bias._version


@program(2)
def error_behind(m: Any, k: Any, x: Any, s: dict) -> Any:
    try:
        k[0].bias.data = k[0].bias * 2
        k[0].bias.add_(1)
        s["w"].add_(1)
        return torch.linalg.inv(x[:2, :2] * (0 if x.shape[0] == 4 else 1))
    except RuntimeError:
        return k[0].bias * 1


def seen(o: Any) -> Any:
    if isinstance(o, torch.Tensor):
        return o.detach().clone(), o.requires_grad, o.is_leaf, type(o), o.stride()
    if isinstance(o, dict):
        return [seen(v) for v in o.values()]
    return [seen(v) for v in o] if isinstance(o, (list, tuple)) else o


def same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return a.shape == b.shape and torch.allclose(a, b, rtol=1e-4, atol=1e-5)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return a == pytest.approx(b) if isinstance(a, float) else a == b


def left_gradients(y: Any, m: Any) -> list:
    """What comes of a backward pass behind the call, through what it has left."""
    if not isinstance(y, torch.Tensor) or y.grad_fn is None:
        return []
    found = torch.autograd.grad(y.pow(2).sum(), list(m.parameters()), allow_unused=True, retain_graph=True)
    return [g for g in found if g is not None]


def calls(fn: Callable) -> list:
    torch.manual_seed(0)
    m = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))
    k = copy.deepcopy(m).requires_grad_(False).eval()
    s = {"w": torch.ones(2)}
    state = [*m.parameters(), *k.parameters(), *k.buffers()]
    others = [t.detach() for t in state]  # which keep what was there
    given, told = [], []
    for i in range(6):
        torch.manual_seed(i)
        out = fn(m, k, torch.randn(2 + i % 3, 4), s)
        given.append(out)
        told.append([g for y in (out if isinstance(out, tuple) else [out]) for g in left_gradients(y, m)])
        memory = [t.untyped_storage().data_ptr() for t in (*state, *others)]
        told.append([seen(x) for x in (given, s, state, others, [t.grad for t in state])])
        told.append([[t._version for t in state], [a == b for a in memory for b in memory]])
    with torch.no_grad():
        for t in state:
            t.add_(1)
    return [*told, seen(given), seen(s)]


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("backend", ["native", "aten"])
def test_as_eager(name: str, backend: str) -> None:
    fn, breaks = PROGRAMS[name]
    want, got = calls(fn), calls(pliant.compile(fn, backend=backend))
    for a, b in zip(want, got, strict=True):
        assert same(a, b)
    found = pliant.stats()
    assert found["fallbacks"] == 0
    assert found["graph_breaks"] <= breaks
    assert breaks == 0 or found["graph_breaks"] > 0
