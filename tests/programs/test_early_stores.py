"""Stores that the graph makes itself (`codegen/early_stores.py`): when what stood there is freed, and that nothing else is told by it."""

from __future__ import annotations

import contextlib
import functools
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import pliant
from pliant.codegen import early_stores

N, D = 4, 8
close = functools.partial(torch.testing.assert_close, rtol=1e-4, atol=1e-4)


def same(got: Any, expected: Any) -> None:
    """Results, or what was raised."""
    if isinstance(expected, str):
        assert got == expected
    else:
        close(got, expected)


class Slot:
    """What a cache holds for one layer."""

    def __init__(self, k: torch.Tensor) -> None:
        self.k = k
        self.n = k.shape[0]


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(D, D) for _ in range(N))


class Plain(Layers):
    def forward(self, x: torch.Tensor, slots: list[Slot]) -> torch.Tensor:
        for layer, s in zip(self.layers, slots, strict=True):
            s.k = torch.cat([s.k, layer(x)], 0)
            x = x + torch.softmax(x @ s.k.t(), -1) @ s.k
        return x


class InDicts(Layers):
    def forward(self, x: torch.Tensor, slots: list[Slot]) -> torch.Tensor:
        for i, layer in enumerate(self.layers):
            d = vars(slots[i])
            d["k"] = torch.cat([d["k"], layer(x)], 0)
            d["n"] += x.shape[0]
            x = x + torch.softmax(x @ d["k"].t(), -1) @ d["k"]
        return x


class InLists(Layers):
    """One list for all layers, which slots have in common."""

    def forward(self, x: torch.Tensor, slots: list[Slot]) -> torch.Tensor:
        keys = [s.k for s in slots] if not hasattr(slots[0], "keys") else slots[0].keys
        slots[0].keys = keys
        for i, layer in enumerate(self.layers):
            keys[i] = torch.cat([keys[i], layer(x)], 0)
            x = x + torch.softmax(x @ keys[i].t(), -1) @ keys[i]
        return x


class InScopes(Layers):
    """Inside of settings of PyTorch's, in its own code."""

    def forward(self, x: torch.Tensor, slots: list[Slot]) -> torch.Tensor:
        with torch.inference_mode(False), torch.no_grad():
            for layer, s in zip(self.layers, slots, strict=True):
                with torch.autocast("cpu", enabled=False):
                    s.k = torch.cat([s.k, layer(x)], 0)
                x = x + torch.softmax(x @ s.k.t(), -1) @ s.k
            return x


class Suppressed(Layers):
    """In the hands of a manager that keeps what is raised."""

    def forward(self, x: torch.Tensor, slots: list[Slot]) -> torch.Tensor:
        with contextlib.suppress(RuntimeError):
            for layer, s in zip(self.layers, slots, strict=True):
                s.k = torch.cat([s.k, layer(x)], 0)
                x = x + torch.softmax(x @ s.k.t(), -1) @ s.k
        return x


class Counted(Layers):
    def forward(self, x: torch.Tensor, slots: list[Slot]) -> torch.Tensor:
        for layer, s in zip(self.layers, slots, strict=True):
            s.n += x.shape[0]
            s.k = torch.cat([s.k, layer(x)], 0)
            x = x + torch.softmax(x @ s.k.t(), -1) @ s.k
        return x


class Broken(Layers):
    """Its graph ends behind the layers."""

    def forward(self, x: torch.Tensor, slots: list[Slot]) -> torch.Tensor:
        for layer, s in zip(self.layers, slots, strict=True):
            s.k = torch.cat([s.k, layer(x)], 0)
            x = x + torch.softmax(x @ s.k.t(), -1) @ s.k
        pliant.graph_break()
        return x * 2 + slots[0].k.sum()


class Kept(Layers):
    """What stood there is given back, or stays in another place."""

    def forward(self, x: torch.Tensor, slots: list[Slot]) -> Any:
        old = slots[0].k
        for layer, s in zip(self.layers, slots, strict=True):
            s.before = s.k if s is slots[1] else None
            s.k = torch.cat([s.k, layer(x)], 0)
            x = x + torch.softmax(x @ s.k.t(), -1) @ s.k
        return x, old


class Viewed(Layers):
    """Results are views of what is stored, or that itself; and it is in two places."""

    def forward(self, x: torch.Tensor, slots: list[Slot]) -> Any:
        for layer, s in zip(self.layers, slots, strict=True):
            s.k = s.same = torch.cat([s.k, layer(x)], 0)
        return slots[0].k[1:], slots[1].k, slots[2].k.t(), x


class Written(Layers):
    """What is stored is written to later, and what stood there before."""

    def forward(self, x: torch.Tensor, slots: list[Slot]) -> torch.Tensor:
        slots[0].k.mul_(0.5)
        for layer, s in zip(self.layers, slots, strict=True):
            s.k = torch.cat([s.k, layer(x)], 0)
        slots[1].k[0] = 1
        slots[2].k.add_(x[0])
        return x + slots[2].k[0]


class Shared(Layers):
    """Layers whose slots may be one object."""

    def forward(self, x: torch.Tensor, slots: list[Slot]) -> torch.Tensor:
        for layer, s in zip(self.layers, slots, strict=True):
            s.k = torch.cat([s.k, layer(x)], 0)
            x = x + s.k.mean(0)
        return x


class Buffers(Layers):
    """A module keeps the last rows that it saw."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.ones(2, D))

    def forward(self, x: torch.Tensor, slots: list[Slot]) -> torch.Tensor:
        self.seen = torch.cat([self.seen, x])[-6:]
        slots[0].k = torch.cat([slots[0].k, x])
        return self.seen.sum(0) + slots[0].k.sum(0)


class Pairs(Layers):
    """As older caches are: a list of pairs, which are replaced whole."""

    def forward(self, x: torch.Tensor, past: list[Any]) -> torch.Tensor:
        for i, layer in enumerate(self.layers):
            k, v = past[i]
            k, v = torch.cat([k, layer(x)], 0), torch.cat([v, x], 0)
            past[i] = (k, v)
            x = x + torch.softmax(x @ k.t(), -1) @ v
        return x


class PairsKept(Pairs):
    """Pairs that are given back, stay in two places, are views, or of another kind than what stood there; old ones that stay."""

    def forward(self, x: torch.Tensor, past: list[Any]) -> Any:
        old, (rest, _) = past[0], past[1]
        out = []
        for i, layer in enumerate(self.layers):
            k, v = torch.cat([past[i][0], layer(x)], 0), torch.cat([past[i][1], x], 0)
            past[i] = pair = (k, v) if i != 2 else (k, v[1:])
            if i == 3:
                out.append(pair)
            x = x + torch.softmax(x @ k.t(), -1).mean() * v.mean(0)
        return x, old, rest, out


class PairsSwapped(Pairs):
    """One that becomes longer; one whose members change places; one that is read whole behind that."""

    def forward(self, x: torch.Tensor, past: list[Any]) -> Any:
        (k, v), (p, q), last = past[0][:2], past[1], past[2]
        n = len(q) - len(p)
        past[0] = (torch.cat([k, x]), torch.cat([v, x]), x + 1)
        past[1] = (q, torch.cat([p, x]))
        past[2] = (torch.cat([last[0], x]), last[1] * 2)
        return past[2], len(past[0]), past[1][0], last[1] + 1, n


def pairs_of(seed: int, one: bool) -> list[Any]:
    g = torch.Generator().manual_seed(seed)
    made = [(torch.randn(3, D, generator=g), torch.randn(3, D, generator=g)) for _ in range(N)]
    return [made[0]] * N if one else made


@pytest.mark.parametrize("how", ["native", "aten", "tiers", "verified"])
@pytest.mark.parametrize("cls", [Pairs, PairsKept, PairsSwapped])
def test_pairs_are_as_in_eager(cls: type, how: str) -> None:
    eager, compiled = twins(cls, **HOWS[how])
    for one in (False, True):
        a, b = pairs_of(1, one), pairs_of(1, one)
        for i in range(5):
            x = torch.randn(1 + i % 2, D)
            with torch.no_grad():
                expected, got = eager(x, a), compiled(x, b)
            close(got, expected)
            close(b, a)
            assert [[x is y for x in b for y in b]] == [[x is y for x in a for y in a]]
            if cls is PairsKept:
                assert got[3][0] is b[3]
            if cls is PairsSwapped:
                assert got[0] is b[2] and got[2] is b[1][0]


@pytest.mark.parametrize("how", ["native", "aten"])
def test_pairs_are_freed_when_they_are_in_eager(how: str) -> None:
    eager, compiled = twins(Pairs, **HOWS[how])
    a, b = pairs_of(1, False), pairs_of(1, False)

    def freed(fn: Callable, x: torch.Tensor, past: list[Any]) -> list[Any]:
        seen: list[Any] = []
        refs = [weakref.ref(t, lambda _: seen.append([len(k) for k, _ in past])) for pair in past for t in pair]
        fn(x, past)
        assert all(r() is None for r in refs)
        return seen

    with torch.no_grad():
        for i in range(4):
            x = torch.randn(1, D)
            expected, got = freed(eager, x, a), freed(compiled, x, b)
            if i > 1:  # by then the number of rows is a symbol
                assert got == expected


MODULES = [Plain, InDicts, InLists, InScopes, Suppressed, Counted, Broken, Kept, Viewed, Written, Shared, Buffers]


def slots_of(seed: int, one: bool = False) -> list[Slot]:
    g = torch.Generator().manual_seed(seed)
    made = [Slot(torch.randn(3, D, generator=g)) for _ in range(N)]
    return [made[0]] * N if one else made


def state(slots: list[Slot]) -> list[dict[str, Any]]:
    return [dict(vars(s)) for s in slots]


def twins(cls: type, **how: Any) -> tuple[nn.Module, Callable]:
    torch.manual_seed(0)
    one, other = cls().eval(), cls().eval()
    other.load_state_dict(one.state_dict())
    return one, pliant.compile(other, **how)


HOWS = {"native": {"backend": "native", "background": False}, "aten": {"backend": "aten"}, "tiers": {}, "verified": {"verify": 1.0}}


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("cls", MODULES)
def test_it_is_as_in_eager(cls: type, how: str) -> None:
    eager, compiled = twins(cls, **HOWS[how])
    for one in (False, True):
        a, b = slots_of(1, one), slots_of(1, one)
        for i in range(5):
            x = torch.randn(1 + i % 2, D)
            with torch.no_grad():
                expected, got = eager(x, a), compiled(x, b)
            close(got, expected)
            close(state(b), state(a))
            if cls is Viewed:
                assert got[1] is b[1].k and b[0].same is b[0].k and got[0]._base is b[0].k
            if cls is Kept and not one:
                assert b[1].before.shape == a[1].before.shape
        assert [s.k._version for s in a] == [s.k._version for s in b]


def freed_when(fn: Callable, x: torch.Tensor, slots: list[Slot]) -> list[list[int]]:
    """For each old tensor, in the order in which they went: the sizes of all slots at that time."""
    seen: list[list[int]] = []
    refs = [weakref.ref(s.k, lambda _: seen.append([len(s.k) for s in slots])) for s in slots]
    fn(x, slots)
    assert all(r() is None for r in refs)
    return seen


@pytest.mark.parametrize("cls", [Plain, InDicts, Counted, Broken])
@pytest.mark.parametrize("how", ["native", "aten"])
def test_what_stood_there_is_freed_when_it_is_in_eager(cls: type, how: str) -> None:
    eager, compiled = twins(cls, **HOWS[how])
    a, b = slots_of(1), slots_of(1)
    with torch.no_grad():
        for i in range(4):
            x = torch.randn(1, D)
            expected, got = freed_when(eager, x, a), freed_when(compiled, x, b)
            assert expected == [[4 + i] * k + [3 + i] * (N - k) for k in range(1, N + 1)]
            if i > 1:  # by then the number of rows is a symbol
                assert got == expected


def test_memory_that_is_held_at_once() -> None:
    from benchmarks.memory import peak

    eager, compiled = twins(Plain, **HOWS["native"])
    a, b = ([Slot(torch.randn(5000, D)) for _ in range(N)] for _ in range(2))
    with torch.no_grad():
        for _ in range(3):
            x = torch.randn(1, D)
            expected, got = peak(lambda x=x: eager(x, a))[0], peak(lambda x=x: compiled(x, b))[0]
    assert got < expected + 1000


class Looked(Layers):
    """The third layer looks up a row that need not be there."""

    def forward(self, x: torch.Tensor, slots: list[Slot], i: torch.Tensor) -> torch.Tensor:
        for n, (layer, s) in enumerate(zip(self.layers, slots, strict=True)):
            s.k = torch.cat([s.k, layer(x)], 0)
            if n == 2:
                x = x + torch.index_select(s.k, 0, i)
            x = x + torch.softmax(x @ s.k.t(), -1) @ s.k
        return x


@pytest.mark.parametrize("how", HOWS)
def test_exceptions_come_with_what_was_stored_by_then(how: str) -> None:
    eager, compiled = twins(Looked, **HOWS[how])
    a, b = slots_of(1), slots_of(1)
    for at in (0, 1, 2, 99, 1, -100, 3):
        x, i = torch.randn(1, D), torch.tensor([at])
        with torch.no_grad():
            outcomes: list[Any] = []
            for fn, slots in ((eager, a), (compiled, b)):
                try:
                    outcomes.append(fn(x, slots, i))
                except (IndexError, RuntimeError) as e:
                    outcomes.append(type(e).__name__)
        same(outcomes[1], outcomes[0])
        close(state(b), state(a))


class Large(Layers):
    """Behind its stores it asks for memory that there may not be, which it may handle itself."""

    def __init__(self, handles: bool = False) -> None:
        super().__init__()
        self.handles = handles

    def forward(self, x: torch.Tensor, slots: list[Slot], n: int) -> torch.Tensor:
        for layer, s in zip(self.layers, slots, strict=True):
            s.k = torch.cat([s.k, layer(x)], 0)
        if not self.handles:
            return x + x[0].expand(n, D).cumsum(1).mean()
        try:
            return x + x[0].expand(n, D).cumsum(1).mean()
        except RuntimeError:
            return x - 1


@pytest.mark.parametrize("how", ["native", "aten"])
@pytest.mark.parametrize("handles", [False, True])
def test_stores_are_made_once_where_memory_ends(how: str, handles: bool) -> None:
    eager, compiled = twins(functools.partial(Large, handles), **HOWS[how])  # type: ignore[arg-type]
    a, b = slots_of(1), slots_of(1)
    for n in (2, 3, 4, 1 << 46, 5):
        x = torch.randn(1, D)
        with torch.no_grad():
            outcomes: list[Any] = []
            for fn, slots in ((eager, a), (compiled, b)):
                try:
                    outcomes.append(fn(x, slots, n))
                except RuntimeError as e:
                    outcomes.append(type(e).__name__)
        same(outcomes[1], outcomes[0])
        close(state(b), state(a))


def test_not_while_gradients_are_recorded() -> None:
    eager, compiled = twins(Plain, **HOWS["native"])
    a, b = slots_of(1), slots_of(1)
    for _ in range(3):
        x = torch.randn(1, D)
        expected, got = eager(x, a), compiled(x, b)
        close(got, expected)
        expected.sum().backward()
        got.sum().backward()
        for s in (*a, *b):
            s.k = s.k.detach()
    grads = [p.grad for p in eager.parameters()]
    close([p.grad for p in compiled.parameters()], grads)


MAKES: dict[type, int] = {
    Plain: N, InDicts: N, InLists: N, InScopes: N, Suppressed: 0, Counted: N, Broken: N,
    Kept: 2, Written: 1, Looked: N,
}
"""How many stores the graph of each makes."""


def test_graphs_make_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of the modules that are said to, does."""
    seen: list[int] = []
    insert = early_stores.insert

    def noted(writer: Any, steps: list[Any]) -> int | None:
        seen.append(len(writer.stores))
        return insert(writer, steps)

    monkeypatch.setattr(early_stores, "insert", noted)
    for cls, most in MAKES.items():
        seen.clear()
        _, compiled = twins(cls, **HOWS["native"])
        slots = slots_of(1)
        with torch.no_grad():
            for _ in range(3):
                compiled(torch.randn(1, D), slots, *([torch.tensor([0])] if cls is Looked else []))
        assert max(seen) == most, cls
