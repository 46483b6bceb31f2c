"""Objects that equal themselves alone as keys of dicts from outside: which is where, and what of it each call brings along."""

from __future__ import annotations

import datetime
import time
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
import torch
from torch import nn

import pliant
from pliant import events


class Thing:
    pass


class Sub(torch.Tensor):
    pass


KINDS: dict[str, Callable[[], Any]] = {
    "tensor": lambda: torch.ones(1),
    "parameter": lambda: nn.Parameter(torch.ones(1)),
    "subclass": lambda: torch.ones(1).as_subclass(Sub),
    "object": Thing,
}


def item(d: dict, a: Any, x: torch.Tensor) -> Any:
    return x + d[a]


def got(d: dict, a: Any, x: torch.Tensor) -> Any:
    return x + d.get(a, 9)


def met(d: dict, a: Any, x: torch.Tensor) -> Any:
    return x + (2 if a in d else 1)


def stored(d: dict, a: Any, x: torch.Tensor) -> Any:
    d[a] = 4
    return x + d[a] + len(d)


def deleted(d: dict, a: Any, x: torch.Tensor) -> Any:
    del d[a]
    return x + (2 if a in d else 1)


def walked(d: dict, a: Any, x: torch.Tensor) -> Any:
    d[a] = 2
    for k, v in d.items():
        x = x * v + (2 if k is a else 1)
    return x


def merged(d: dict, a: Any, x: torch.Tensor) -> Any:
    d.update({a: 7})
    return x + d.get(a, 1) + {**d}[a]


def defaulted(d: dict, a: Any, x: torch.Tensor) -> Any:
    return x + d.setdefault(a, 7) + d[a]


def copied(d: dict, a: Any, x: torch.Tensor) -> Any:
    d[a] = 3
    return x + d.copy()[a] + dict(d)[a] + (1 if a in d.keys() else 2)


def paired(d: dict, a: Any, x: torch.Tensor) -> Any:
    d[a, 2] = 3
    return x + d[a, 2] + d.get((a, 1), 8) + (2 if (a, 1) in d else 1)


@pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("cls", [dict, OrderedDict, lambda d: defaultdict(int, d)], ids=["dict", "ordered", "default"])
@pytest.mark.parametrize("fn", [item, got, met, stored, deleted, walked, merged, defaulted, copied, paired], ids=lambda f: f.__name__)
def test_keys_of_a_dict(fn: Callable, cls: Callable, make: Callable) -> None:
    compiled = pliant.compile(fn, backend="aten")
    before = make()
    for n, known in enumerate((True, False, True, False, True)):
        a, x = (before if n == 2 else make()), torch.ones(n + 2)
        items = [(before, 5)] * (n % 2) + [((a, 1) if fn is paired else a, 6)] * known
        ran = []
        for f in (fn, compiled):
            d = cls(dict(items))
            try:
                ran.append((f(d, a, x.clone()).tolist(), [(id(k) if k is a else "", v) for k, v in d.items()]))
            except KeyError:
                ran.append(("KeyError", len(d)))
        assert ran[0] == ran[1]


def two(d: dict, a: Any, b: Any, x: torch.Tensor) -> Any:
    d[a] = 1
    d[b] = 2
    return x * d[a] + d[b]


@pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)
def test_keys_that_are_others_in_each_call_may_be_one(make: Callable) -> None:
    compiled = pliant.compile(two, backend="aten")
    x = torch.ones(3)
    for same in (False, False, False, True, False, True):
        a = make()
        b = a if same else make()
        assert torch.equal(two({}, a, b, x), compiled({}, a, b, x)), same


def trained(optimizer: Callable) -> Callable:
    def step(x: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(0)
        m = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
        o = optimizer(m)
        for _ in range(2):
            o.zero_grad()
            loss = (m(x) ** 2).mean()
            loss.backward()
            time.sleep(0)
            o.step()
        return m(x).detach()

    return step


OPTIMIZERS = {
    "momentum": lambda m: torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9),
    "adam": lambda m: torch.optim.Adam(m.parameters(), lr=0.1),
    "foreach": lambda m: torch.optim.AdamW(m.parameters(), lr=0.1, foreach=True),
    "groups": lambda m: torch.optim.RMSprop([{"params": m[0].parameters()}, {"params": m[2].parameters(), "lr": 0.01}], lr=0.1),
}


def captures_of(fn: Callable, compiled: Callable) -> list[int]:
    """How many captures each of six calls takes, whose answers are as they should be."""
    captures = []
    for n in (3, 5, 6, 7, 9, 4):
        x = torch.arange(4.0 * n).reshape(n, 4) / 10
        before = events.counters().get("captures", 0)
        torch.testing.assert_close(compiled(x), fn(x))
        captures.append(events.counters().get("captures", 0) - before)
    return captures


@pytest.mark.parametrize("optimizer", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_an_optimizer_made_inside_is_learned_once(optimizer: Callable) -> None:
    """Its state is found by parameters that are others in each call, behind a graph break."""
    step = trained(optimizer)
    step(torch.ones(2, 4))
    compiled = pliant.compile(step, backend="aten")
    captures = captures_of(step, compiled)
    assert captures[1] <= 2
    assert captures[2:] == [0, 0, 0, 0]


def in_closure(m: nn.Module, o: torch.optim.Optimizer) -> Callable:
    def step(x: torch.Tensor) -> torch.Tensor:
        return train(m, o, x)

    return step


def train(m: nn.Module, o: torch.optim.Optimizer, x: torch.Tensor) -> torch.Tensor:
    o.zero_grad()
    loss = (m(x) ** 2).mean()
    loss.backward()
    o.step()
    return loss


@pytest.mark.parametrize("optimizer", [OPTIMIZERS["momentum"], OPTIMIZERS["adam"]], ids=["momentum", "adam"])
@pytest.mark.parametrize("closed", [True, False], ids=["closure", "arguments"])
def test_optimizers_that_come_and_go(closed: bool, optimizer: Callable) -> None:
    """Each goes with its parameters, whose memory the next one gets; one is used again after another."""
    compiled = pliant.compile(train, backend="aten")

    def trains(compiles: bool, seed: int) -> Callable:
        torch.manual_seed(seed)
        m = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
        o = optimizer(m)
        if closed:
            step = pliant.compile(in_closure(m, o), backend="aten") if compiles else in_closure(m, o)
        else:
            step = (lambda x: compiled(m, o, x)) if compiles else (lambda x: train(m, o, x))

        def some() -> list[torch.Tensor]:
            return [step(torch.ones(n, 4)).detach() for n in (2, 2, 5)] + [p.detach().clone() for p in m.parameters()]

        return some

    first, of_first = trains(True, 0), trains(False, 0)
    for seed in range(1, 5):
        torch.testing.assert_close(trains(True, seed)(), trains(False, seed)())
        torch.testing.assert_close(first(), of_first())


ALIKE = {
    "decimals": (Decimal("1"), Decimal("1.0"), Decimal("1.00")),
    "zeros": (Decimal("0"), Decimal("-0")),
    "aliases": (list[1], list[1.0], list[True]),
    "unions": (int | str, str | int),
    "folds": (datetime.datetime(2020, 1, 1, fold=0), datetime.datetime(2020, 1, 1, fold=1)),
    "zones": tuple([datetime.datetime(2020, 1, 1, h, tzinfo=datetime.timezone(datetime.timedelta(hours=h))) for h in (1, 2)]),
    "ranges": (range(0), range(1, 1), range(3, 2)),
}


@pytest.mark.parametrize("name", ALIKE)
def test_keys_that_are_equal_and_not_alike(name):
    def walk(d, s, x):
        return [k for k, v in d.items()], list(d), dict(d), next(iter(s)), x + 1

    def told(f):
        return [repr(f({k: 1}, {k}, torch.ones(2))) for k in ALIKE[name] * 2]

    pliant.reset()
    assert told(pliant.compile(walk)) == told(walk)


def listens(m: nn.Module) -> Callable:
    def f(x: torch.Tensor) -> torch.Tensor:
        heard: list[torch.Tensor] = []
        handles = [layer.register_forward_hook(lambda module, given, result: heard.append(result.mean())) for layer in m]
        y = m(x)
        for h in handles:
            h.remove()
        return y.sum() + torch.stack(heard).sum()

    return f


def doubles(m: nn.Module) -> Callable:
    def f(x: torch.Tensor) -> torch.Tensor:
        h = m.register_forward_pre_hook(lambda module, given: (given[0] * 2,))
        y = m(x)
        time.sleep(0)
        h.remove()
        return m(x) + y

    return f


@pytest.mark.parametrize("make", [listens, doubles])
def test_hooks_that_each_call_registers_are_learned_once(make: Callable) -> None:
    """A serial number is their key, another one each time: the first other one says so."""
    f = make(nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)))
    compiled = pliant.compile(f, backend="aten")
    captures = captures_of(f, compiled)
    assert captures[2:] == [0, 0, 0, 0], captures


def test_a_hook_set_later_breaks_no_graph() -> None:
    m = nn.Linear(4, 4)
    compiled = pliant.compile(lambda x: m(x) * 2, backend="aten")
    x = torch.ones(2, 4)
    for _ in range(3):
        torch.testing.assert_close(compiled(x), m(x) * 2)
        m.register_forward_hook(lambda module, given, result: result + 1)
        torch.testing.assert_close(compiled(x), m(x) * 2)
    assert events.counters().get("graph_breaks", 0) <= 1
