"""Several things that change from call to call are learned at once (`jit/changes.py`), and no instruction is blamed for them."""

from __future__ import annotations

import copy
import random
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


def flagged(x, rows):
    for i, f in enumerate(rows):
        x = x * 1.5 + i if f else x - 1
    return x


def named(x, rows):
    for n in rows:
        x = x if n == "a" else x * 2
    return x


def masked(x, rows):
    """What a replay buffer's `next_state` is: a tensor, or None."""
    mask = torch.tensor([r is not None for r in rows])
    return x + torch.stack([r for r in rows if r is not None]).sum(0), mask


def handed_on(x, rows):
    first, *rest = rows
    return x + 1, first, rest, rows[-1], [r is x for r in rows]


def written(x, rows):
    x.add_(1)
    kept = {i: r for i, r in enumerate(rows)}
    x.add_(1)
    return kept, [None if r is None else r.sum() for r in rows]


LISTS = {
    "flags": (flagged, lambda x: random.random() < 0.5, 8), "texts": (named, lambda x: random.choice("abc"), 11),
    "absent": (masked, lambda x: torch.rand(3) if random.random() < 0.6 else None, 12),
    "handed on": (handed_on, lambda x: random.choice((None, x, torch.rand(3))), 8),
    "written": (written, lambda x: random.choice((None, x, torch.rand(3))), 8),
}  # fmt: skip


@pytest.mark.parametrize("name", LISTS)
def test_items_of_a_list_are_learned_together(name: str) -> None:
    """Flags, texts and what may be None: each call brings another combination, and all that are others are learned by one miss."""
    fn, item, most = LISTS[name]
    random.seed(0)
    compiled = pliant.compile(fn, background=False)
    before = pliant.stats()["captures"]
    for _ in range(40):
        x = torch.rand(3)
        rows = [item(x) for _ in range(12)]
        y = x.clone()
        copied = [y if r is x else r for r in rows]
        got, want = compiled(x, rows), fn(y, copied)
        for a, b in zip(leaves(got), leaves(want), strict=True):
            if any([b is r for r in (y, *copied)]):
                assert a is (x if b is y else b)
            else:
                torch.testing.assert_close(a, b)
        assert torch.equal(x, y)
    assert pliant.stats()["captures"] - before <= most


CACHES = {
    "filled at once": lambda i: [None if i == 0 else torch.rand(2 + i, 3)] * 8,
    "one of two ways": lambda i: [torch.rand(3, 3) if (k + i) % 2 else None for k in range(8)],
}  # fmt: skip


@pytest.mark.parametrize("name", CACHES)
def test_lists_of_few_kinds_stay_in_the_graph(name: str) -> None:
    """A cache of keys and values is empty once, and full from then on: that is no reason to leave it out."""

    def attended(x, caches):
        for c in caches:
            x = x + (0.5 if c is None else c.sum())
        return x

    compiled = pliant.compile(attended, background=False)
    breaks = pliant.stats()["graph_breaks"]
    for i in range(12):
        x, caches = torch.rand(3), CACHES[name](i)
        torch.testing.assert_close(compiled(x, caches), attended(x, caches))
    assert pliant.stats()["graph_breaks"] == breaks


def leaves(value: Any) -> list:
    if type(value) is dict:
        value = list(value.items())
    return [leaf for v in value for leaf in leaves(v)] if type(value) in (list, tuple) else [value]
