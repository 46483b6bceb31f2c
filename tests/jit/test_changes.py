"""Several things that change from call to call are learned at once (`jit/changes.py`), and no instruction is blamed for them."""

from __future__ import annotations

import copy
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import pliant


class Growing(nn.Module):
    """A layer with two buffers that grow."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(8, 8)
        self.register_buffer("k", torch.randn(3, 8))
        self.register_buffer("v", torch.randn(3, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.k, self.v = torch.cat([self.k, self.lin(x)]), torch.cat([self.v, x])
        return x + torch.softmax(x @ self.k.t(), -1) @ self.v


class HalfBuffers(Growing):
    """One of the two is no buffer, hence of a size that is a symbol from the first call on."""

    def __init__(self) -> None:
        super().__init__()
        del self.k
        self.k = torch.randn(3, 8)


class Pruned(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.relu(self.up(x)))


def prune(layer: Pruned, k: int) -> None:
    layer.up.weight = nn.Parameter(layer.up.weight[:k].detach().clone())
    layer.up.bias = nn.Parameter(layer.up.bias[:k].detach().clone())
    layer.down.weight = nn.Parameter(layer.down.weight[:, :k].detach().clone())


def prune_data(layer: Pruned, k: int) -> None:
    layer.up.weight.data = layer.up.weight.data[:k].clone()
    layer.up.bias.data = layer.up.bias.data[:k].clone()
    layer.down.weight.data = layer.down.weight.data[:, :k].clone()


class Layers(nn.Module):
    def __init__(self, cls: type) -> None:
        super().__init__()
        self.layers = nn.ModuleList(cls() for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def captures_and_breaks(eager: Callable, compiled: Callable, calls: list[tuple[tuple, tuple]]) -> tuple[int, int]:
    before = pliant.stats()
    for theirs, ours in calls:
        torch.testing.assert_close(compiled(*ours), eager(*theirs), rtol=1e-4, atol=1e-4)
    now = pliant.stats()
    return now["captures"] - before["captures"], now["graph_breaks"] - before["graph_breaks"]


@pytest.mark.parametrize("cls, change", [(Growing, None), (HalfBuffers, None), (Pruned, prune), (Pruned, prune_data)])
def test_sizes_of_parameters_and_buffers(cls: type, change: Callable | None) -> None:
    model = Layers(cls)
    twin = copy.deepcopy(model)
    compiled = pliant.compile(twin, backend="aten")
    seen = [0, 0]
    with torch.no_grad():
        for i in range(7):
            x = torch.randn(2, 8)
            found = captures_and_breaks(model, compiled, [((x,), (x,))])
            seen = [a + b for a, b in zip(seen, found, strict=True)]
            for layer in (*model.layers, *twin.layers) if change is not None else ():
                change(layer, 15 - i)
    assert seen == [2, 0]


def scaled(x: torch.Tensor, o: Any) -> torch.Tensor:
    for name in "abcdef":
        x = x * getattr(o, name)
    return x


def filled(x: torch.Tensor, o: Any) -> torch.Tensor:
    return torch.cat([x, *(torch.ones(getattr(o, name)) for name in "abcdef")])


def called(x: torch.Tensor, o: Any) -> torch.Tensor:
    for name in "abcdef":
        x = getattr(o, name)(x)
    return x


def as_wide(x: torch.Tensor, o: Any) -> torch.Tensor:
    """What it compares sizes with changes with them."""
    if x.shape[0] != o.a:
        return x - o.b
    return x.view(o.a) + o.b if x.numel() == o.a else x * 2


class Slots:
    __slots__ = tuple("abcdef")


VALUES: dict[str, tuple[Callable, Callable[[int, int], Any]]] = {
    "floats": (scaled, lambda i, k: 1.5 + 0.1 * i + k),
    "ints": (scaled, lambda i, k: 2 + i * (k + 3) % 7),
    "sizes": (filled, lambda i, k: 2 + (i * (k + 3) + k) % 5),
    "functions": (called, lambda i, k: lambda x: x + k),
}


@pytest.mark.parametrize("make", [types.SimpleNamespace, nn.Module, Slots], ids=["object", "module", "slots"])
@pytest.mark.parametrize("kind", VALUES)
def test_values_of_attributes(kind: str, make: Callable) -> None:
    fn, value = VALUES[kind]
    o = make()
    compiled = pliant.compile(fn, backend="aten")
    seen = [0, 0]
    for i in range(10):
        for k, name in enumerate("abcdef"):
            setattr(o, name, value(i, k))
        x = torch.ones(3)
        seen = [a + b for a, b in zip(seen, captures_and_breaks(fn, compiled, [((x, o), (x, o))]), strict=True)]
    assert seen == [2, 0]


def test_no_branch_is_blamed_for_a_number_that_changes_with_a_size() -> None:
    o = nn.Module()
    compiled = pliant.compile(as_wide, backend="aten")
    seen = [0, 0]
    for i in range(10):
        o.a, o.b = 3 + i, 0.5 * i
        x = torch.ones(3 + i)
        seen = [a + b for a, b in zip(seen, captures_and_breaks(as_wide, compiled, [((x, o), (x, o))]), strict=True)]
    assert seen == [2, 0]


@pytest.mark.parametrize("turns", ["one way", "in turn"])
def test_what_changes_is_learned_beside_calls_without_gradients(turns: str) -> None:
    """The newest entry was for the other way, and failing in that it says nothing of what changes: it must not be the one that is asked."""
    counts: dict = {}

    def step(x, key):
        counts[key] = counts.get(key, 0) + 1
        return (x * 2 + 1).relu().sum()

    compiled, seen = pliant.compile(step, backend="aten"), pliant.stats()["captures"]
    for i in range(40):
        with torch.set_grad_enabled(turns == "one way" or i % 2 == 0):
            x = torch.ones(3 + i, requires_grad=True)
            y = compiled(x, (i, 1))
        assert y.item() == 3 * (3 + i) and y.requires_grad is (turns == "one way" or i % 2 == 0) and counts[i, 1] == 1
    assert pliant.stats()["captures"] - seen <= 16
