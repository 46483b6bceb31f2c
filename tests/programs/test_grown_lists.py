"""Loops on data that append to lists, and that go over ranges whose length is data: one graph, whatever the number of rounds."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import pliant
from tests.helpers import check

X = [(torch.linspace(0.2, 1.5, n),) for n in (5, 8, 3, 9)]


def stacked(x: Any) -> Any:
    kept = []
    while x.sum() > 0.5:
        kept.append(x[0])
        x = x * 0.5
    return torch.stack(kept), len(kept)


def returned(x: Any) -> Any:
    states = [x]
    while x.sum() > 0.5:
        x = x * 0.5
        states.append(x)
    return states, x, states[-1] is x, states[0]


def of_numbers(x: Any) -> Any:
    losses = []
    while True:
        losses.append(x.square().sum().item())
        if losses[-1] < 0.5:
            break
        x = x * 0.7
    return losses, torch.tensor(losses), len(losses)


def last_is_read(x: Any) -> Any:
    tokens = [int(x.argmax())]
    while len(tokens) < 9:
        token = (tokens[-1] * 3 + 1) % x.shape[0]
        x = x.roll(1) + x[token]
        tokens.append(int(x.argmin()))
        if tokens[-1] == tokens[-2]:
            break
    return tokens, x


def of_pairs(x: Any) -> Any:
    found = []
    n = 0
    while x.sum() > 0.5:
        x = x * 0.6
        n += 1
        if x.max() < 1:
            found.append((n, x))
    if not found:
        return x
    return found, len(found)


def grows_on(x: Any) -> Any:
    kept = []
    while x.sum() > 0.5:
        kept.append(x)
        x = x * 0.5
    kept.append(x + 1)
    more = [*kept, x]
    kept += [x - 1]
    return kept, more, torch.cat(kept), kept[-1]


def nested(x: Any) -> Any:
    kept, counts = [], []
    while x.sum() > 0.5:
        n = 0
        y = x
        while y.max() > 0.3:
            y = y * 0.7
            kept.append(y.sum())
            n += 1
        counts.append(n)
        x = x * 0.5
    return torch.stack(kept), counts


def two_names(x: Any) -> Any:
    kept: list[Any] = []
    other = kept
    while x.sum() > 0.5:
        kept.append(x)
        x = x * 0.5
    return other, other is kept


def written_later(x: Any) -> Any:
    kept = [x]
    while x.sum() > 0.5:
        x = x * 0.5
        kept.append(x)
    x += 1
    return kept


def shrinks(x: Any) -> Any:
    kept = [x]
    while x.sum() > 0.5:
        x = x * 0.5
        kept.append(x)
        if len(kept) > 3:
            kept.pop(0)
    return kept


WHOLE = (stacked, returned, of_numbers, last_is_read, of_pairs, grows_on, nested)


@pytest.mark.parametrize("fn", [*WHOLE, two_names, written_later, shrinks])
def test_a_list_that_grows(fn: Any) -> None:
    check(fn, *X)


@pytest.mark.parametrize("fn", WHOLE)
def test_one_graph(fn: Any) -> None:
    compiled = pliant.compile(fn, backend="aten")
    with torch.no_grad():
        compiled(*X[0])
    breaks = fn in (returned, of_pairs)  # behind the loop: at the identity of an item, at a branch on the length
    assert pliant.stats()["captures"] == 1 + breaks
    assert pliant.stats()["graph_breaks"] == breaks


def test_an_empty_list_raises_as_eager_does() -> None:
    check(stacked, *X, (torch.zeros(3),))


def over_range(x: Any, n: Any) -> Any:
    for i in range(int(n)):
        x = torch.sin(x) + i
    return x


def backwards(x: Any, n: Any) -> Any:
    for i in range(n.item(), -2, -1):
        for j in range(i):
            x = x + j * 0.1
            if x.sum() > 20:
                break
    return x


def counts(x: Any, n: Any) -> Any:
    k = n.item()
    i = -1
    for i in range(2, k, 3):
        if x.sum() > 30:
            break
        x = x + i
    else:
        x = x * 2
    return x, i


def printed(x: Any, n: Any) -> Any:
    for i in range(n.item()):
        print(i)
        x = x + 1
    return x


def read(x: Any, n: Any) -> Any:
    r = range(n.item())
    return x * len(r), list(r), r, 2 in r


def gathered(x: Any, n: Any) -> Any:
    return [x * i for i in range(n.item())]


def maybe_unbound(x: Any, n: Any) -> Any:
    for i in range(n.item()):
        x = x + i
    return x, i


@pytest.mark.parametrize("fn", [over_range, backwards, counts, printed, read, gathered, maybe_unbound])
def test_a_range_over_data(fn: Any) -> None:
    check(fn, *[(torch.linspace(0, 1, m), torch.tensor(n)) for m, n in ((3, 4), (5, 0), (2, 1), (4, 9), (3, -2))])


@pytest.mark.parametrize("fn", [over_range, backwards, counts])
def test_a_range_over_data_is_one_graph(fn: Any) -> None:
    check(fn, *[(torch.linspace(0, 1, m), torch.tensor(n)) for m, n in ((3, 4), (5, 0), (4, 9))], captures=1, breaks=0)
