"""Functions of Python alone whose decisions keep changing are called where they were interpreted; flags of lists become opaque together."""

from __future__ import annotations

import random
import sys

import pytest
import torch

import pliant
from pliant import events
from pliant.jit.functions_apart import Functions
from tests import helpers

LAYER = torch.nn.Linear(6, 4)
APART = sys.version_info < (3, 12)
"""Whether comprehensions are functions; of later Pythons they are a part of the frame, whose own decisions these are then."""


def collate(rows):
    ids = [[k for k in r["ids"] if k % 7] for r in rows]
    most = max(map(len, ids)) or 1
    padded = torch.tensor([i + [0] * (most - len(i)) for i in ids])
    return padded, torch.tensor([len(i) for i in ids]), torch.tensor([r["x"] for r in rows])


def step(rows):
    ids, lengths, x = collate(rows)
    hidden = LAYER(x).relu() * lengths[:, None]
    return (hidden.sum(1) + ids.sum(1)).softmax(0) @ hidden


def nested(rows):
    return step(rows), sum([len(r["ids"]) for r in rows])


def batch(seed):
    draw = random.Random(seed)
    return [
        {"ids": [draw.randrange(50) for _ in range(draw.randint(1, 5))], "x": [draw.random() for _ in range(6)]}
        for _ in range(draw.randint(2, 9))
    ]


@pytest.mark.parametrize("fn", [step, nested], ids=lambda f: f.__name__)
def test_what_makes_a_batch_is_called(fn):
    """Three captures of it at most, then one graph break in front of it; what follows is one graph for all batches."""
    compiled = helpers.compiled(fn)
    for seed in range(20):
        torch.testing.assert_close(compiled(batch(seed)), fn(batch(seed)))
    stats = pliant.stats()
    assert stats["captures"] <= (10 if APART else 20)
    assert stats["graph_breaks"] <= (3 if APART else 8)  # (the sum in `nested` is a function of its own)
    for seed in range(20, 60):
        torch.testing.assert_close(compiled(batch(seed)), fn(batch(seed)))
    assert pliant.stats()["captures"] <= stats["captures"] + 1  # (a size of 1)


def padded(rows):
    """A few things are done with tensors beside the loops over Python's own."""
    out = []
    for key in ("ids", "others"):
        ids = [r[key] for r in rows]
        lengths = torch.tensor([len(i) for i in ids])
        begins = torch.cat([torch.zeros(1, dtype=torch.long), lengths.cumsum(0)[:-1]])
        out.append((torch.tensor([k for i in ids for k in i]), begins))
    return out, torch.tensor([r["x"] for r in rows])


def in_loops(rows):
    ids, begins, x, at = [], [], [], 0
    for r in rows:
        x.append(r["x"])
        begins.append(at)
        for k in r["ids"]:
            ids.append(k)
            at += 1
    return [(torch.tensor(ids).clamp(max=40), torch.tensor(begins))], torch.tensor(x) * 2


TABLE = torch.nn.EmbeddingBag(50, 4, mode="sum")


def bags_of(collate):
    def bags(rows):
        features, x = collate(rows)
        hidden = LAYER(x).relu()
        for ids, begins in features:
            hidden = hidden * TABLE(ids, begins).sigmoid()
        return hidden.sum(1).softmax(0) @ hidden

    return bags


@pytest.mark.parametrize("collate", [padded, in_loops], ids=lambda f: f.__name__)
def test_walks_beside_a_few_operations(collate):
    """Rounds in which nothing is done with tensors: the function around them is called, though it does a few things itself."""
    bags = bags_of(collate)
    compiled = helpers.compiled(bags)
    rows = [[{**r, "others": r["ids"][::-1]} for r in batch(seed)] for seed in range(60)]
    for some in rows[:20]:
        torch.testing.assert_close(compiled(some), bags(some))
    stats = pliant.stats()
    assert stats["captures"] <= 10
    assert stats["graph_breaks"] <= 2
    for some in rows[20:]:
        torch.testing.assert_close(compiled(some), bags(some))
    assert pliant.stats()["captures"] <= stats["captures"] + 1


def scaled(x, weights):
    for w in weights:
        x = x * w
    return x.relu()


def of_scaled(x, weights):
    return LAYER(scaled(x, weights)).sum()


def test_a_walk_that_was_of_nothing_first():
    """A loop without a round says nothing of what is done in its rounds."""
    compiled = helpers.compiled(of_scaled)
    for count in (0, 0, 3, 0, 5, 9, 12, 15):
        x, weights = torch.randn(6), [0.5 + i / 16 for i in range(count)]
        torch.testing.assert_close(compiled(x, weights), of_scaled(x, weights))
    assert not any("called, not interpreted" in e.fields["what"] for e in events.events("policy"))


def test_a_graph_that_must_not_break():
    """`fullgraph` makes one more version instead."""
    compiled = pliant.compile(step, fullgraph=True)
    for seed in range(6):
        torch.testing.assert_close(compiled(batch(seed)), step(batch(seed)))
    assert pliant.stats()["graph_breaks"] == 0


def layers(xs):
    total = torch.zeros(4)
    for x in xs:
        for _ in range(12):
            x = LAYER(torch.cat([x, x[:2]])).relu()
        total = total + x
    return total


def model(xs):
    return layers(xs).sigmoid()


def test_what_does_much_with_tensors_is_interpreted():
    """A loop over tensors is split as ever."""
    compiled = helpers.compiled(model)
    for count in (2, 3, 4, 5, 6, 7):
        xs = list(torch.randn(count, 4).unbind())
        torch.testing.assert_close(compiled(xs), model(xs))
    assert not any("called, not interpreted" in e.fields["what"] for e in events.events("policy"))


def halved(x):
    while x.norm() > 1:
        x = (x * 0.5).sin()
    if x.sum() > 0:
        x = x.exp().cos()
    return x


def around_halved(x):
    return halved(x)


@torch.no_grad()
def test_what_loops_and_branches_compute_counts(monkeypatch):
    """A loop on data is one operation of the graph, but not one that does hardly anything."""
    told = {}
    note = Functions.note
    monkeypatch.setattr(Functions, "note", lambda self, code, n, inlined: (told.update({code.co_name: n}), note(self, code, n, inlined)))
    x = torch.randn(8) * 5
    torch.testing.assert_close(helpers.compiled(around_halved)(x), around_halved(x))
    assert pliant.stats()["graph_breaks"] == 0
    assert told.keys() == {"halved", "around_halved"}
    assert all([n >= 6 for n in told.values()])  # norm, mul, sin; sum, exp, cos


def flagged(x, flags):
    for i, flag in enumerate(flags):
        x = x * 1.5 + i if flag else x - 1
    return x.sum()


def of_flags(x, rows):
    done = torch.tensor([d for _, d in rows])
    values = torch.tensor([v for v, _ in rows])
    return (x * values * done).sum()


def named(x, names):
    total = torch.zeros(5)
    for name in names:
        total = total + (x if name == "a" else x * 2)
    return total


def flags(draw, n):
    return torch.randn(5), [draw.random() < 0.5 for _ in range(n)]


def rows_of_flags(draw, n):
    return torch.randn(n), [(draw.random(), draw.random() < 0.5) for _ in range(n)]


def names(draw, n):
    return torch.randn(5), [draw.choice("abc") for _ in range(n)]


@pytest.mark.parametrize(("fn", "made"), [(flagged, flags), (of_flags, rows_of_flags), (named, names)], ids=lambda f: f.__name__)
@pytest.mark.parametrize("n", [6, 12])
def test_flags_of_a_list(fn, made, n):
    """Once some items have changed, all of them are opaque: not a version for each of 4,096 combinations."""
    compiled = helpers.compiled(fn)
    draw = random.Random(1)
    for _ in range(60):
        args = made(draw, n)
        torch.testing.assert_close(compiled(*args), fn(*args))
    assert pliant.stats()["captures"] <= 30


ITEMS = list(range(10, 22))
INSIDE = {
    "indexed": lambda x: ([ITEMS[j] for j in x.topk(2)[1].tolist()], x * 2),
    "nested": lambda x: ([[ITEMS[j] for j in row] for row in x[None].topk(2)[1].tolist()], x * 2),
    "chosen": lambda x: ([v for v in x.tolist() if v > 0], x.sum()),
    "dict": lambda x: ({k: v for k, v in zip(ITEMS, x.tolist(), strict=False) if v > 0}, x + 1),
    "set": lambda x: ({int(v) for v in x.tolist() if v > 0}, x * 3),
    "drawn": lambda x: ([random.choice(ITEMS) for _ in ITEMS], x + 1),
    "with tensors": lambda x: [x * random.choice(ITEMS) for _ in range(3)],
    "raises": lambda x: ([ITEMS[random.choice([0, 99])] for _ in range(2)], x),
}


@pytest.mark.parametrize("name", INSIDE)
def test_comprehensions_in_which_the_graph_breaks(name):
    """Over plain values: the graph breaks once, where it is called; each round was a piece or two (5 to 17 captures)."""
    compiled = helpers.compiled(INSIDE[name])

    def answer(fn, seed):
        random.seed(seed)
        try:
            return fn(torch.randn(6, generator=torch.Generator().manual_seed(seed)))
        except IndexError as e:
            return str(e)

    for seed in range(12):
        assert str(answer(compiled, seed)) == str(answer(INSIDE[name], seed))
    if sys.version_info < (3, 12):  # from there on they are a part of the frame
        assert pliant.stats()["captures"] <= 4
