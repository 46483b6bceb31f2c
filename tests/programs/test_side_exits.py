"""Side exits: behind a branch on data the graph goes on along the hot side; the other side is exact, and no effect happens twice."""

from __future__ import annotations

import contextlib
import random

import pytest
import torch

import pliant
from benchmarks import fuzz
from pliant import events
from pliant.jit import branches
from tests import helpers
from tests.helpers import check, check_world
from tests.programs.registry import t

OURS = helpers.BACKEND in ("aten", "native")  # other backends get graphs that no branch leaves
needs_exits = pytest.mark.skipif(not OURS, reason="this backend's graphs have one way out")
HOT, COLD = torch.ones(3, 4), -torch.ones(3, 4)
CALLS = [HOT, HOT, HOT, HOT, COLD, HOT, COLD, -COLD * 2, COLD * 3]


@pytest.fixture(autouse=True)
def no_gradients(no_joins):
    with torch.no_grad():
        yield


def inner(x, seen):
    seen.append("inner")
    if x.sum() > 0:
        return x * 2
    seen.append("cold")
    return x - 1


def middle(x, seen):
    try:
        return inner(x + 0, seen) + 1
    finally:
        seen.append("left")


class Scope:
    def __init__(self, seen):
        self.seen = seen

    def __enter__(self):
        self.seen.append("in")
        return self

    def __exit__(self, kind, error, tb):
        self.seen.append(kind.__name__ if kind else "out")
        return kind is ValueError


class Box:
    def __init__(self):
        self.k = 0
        self.log = []

    @property
    def big(self):
        return self.k > 2


# Programs of a tensor, a list, a dict and an object: what they write is compared, and what they print.
def plain(x, seen, d, o):
    y = x.relu() + x
    if y.sum() > 0:
        return y * 3
    return y.sigmoid()


def effects(x, seen, d, o):
    y = x * 2
    seen.append(y)
    d["before"] = len(seen)
    o.k += 1
    print("before", o.k, o.big)
    if (y > 0).any():
        seen.append("hot")
        o.log.append(d["before"])
    else:
        seen.insert(0, "cold")
        del d["before"]
        o.log = [y]
    print("after", len(seen))
    o.k += 10
    return seen[-1], y + o.k


def in_place(x, seen, d, o):
    x.add_(1)
    row = x[0]
    row.mul_(2)
    if x.sum() > 10:
        x.t().sub_(1)
        return row + 1
    row.add_(5)
    x.neg_()
    return row


def views(x, seen, d, o):
    y = x * 2
    z = y.view(-1)
    w = z[1:3]
    if y.sum() > 0:
        z.add_(1)
        return y, z
    w.add_(7)
    return y, z, w, w._base is y


def twins(x, seen, d, o):
    a, b = x + 1, x + 1
    if x.sum() > 0:
        return a * b
    a.add_(1)
    return a, b


def draws(x, seen, d, o):
    y = x + torch.rand(4)
    if x.sum() > 0:
        y = y * torch.rand_like(y)
    else:
        y = y - torch.randn(3, 4)
    return y + torch.rand(1)


def raises_cold(x, seen, d, o):
    seen.append(1)
    y = x.exp()
    if x.mean() < 0:
        raise ValueError("cold")
    seen.append(2)
    return y


def raises_hot(x, seen, d, o):
    y = x.exp()
    try:
        if x.mean() > 0:
            seen.append("hot")
            raise KeyError(3)
        seen.append("cold")
    except KeyError as e:
        seen.append(e.args[0])
        return y + 1
    finally:
        seen.append("finally")
    return y


def handled(x, seen, d, o):
    try:
        raise ValueError("first")
    except ValueError as e:
        if x.sum() > 0:
            y = x + 1
        else:
            y = x - 1
            seen.append(str(e))
            try:
                raise
            except ValueError:
                seen.append("again")
    return y * 2


def scopes(x, seen, d, o):
    with Scope(seen), contextlib.suppress(KeyError):
        y = x * 2
        if y.sum() > 0:
            y = y + 1
        else:
            seen.append("cold")
            raise ValueError("left early")
        seen.append("rest")
    return y


def modes(x, seen, d, o):
    with torch.enable_grad(), torch.no_grad():
        if x.max() > 0:
            x = x + 1
        seen.append(torch.is_grad_enabled())
    seen.append(torch.is_grad_enabled())
    return x


def calls(x, seen, d, o):
    a = middle(x, seen)
    seen.append("between")
    return a + middle(x=-x, seen=seen)


def items(x, seen, d, o):
    out = []
    for i, row in enumerate(x.unbind(0)):
        if row.sum() > 0:
            out.append(row * i)
        else:
            seen.append(i)
            continue
        seen.append(out[-1])
    return out


def through_generator(x, seen, d, o):
    def rows():
        for row in x.unbind(0):
            seen.append("next")
            yield row + 1

    for row in rows():
        if row.sum() < 0:
            break
        seen.append(row)
    return x


def logic(x, seen, d, o):
    a = "yes" if not x.sum() <= 0 and x.max() > 0.5 else "no"
    b = x.sum() > 3 or seen
    seen.append(a)
    return x * 2 if b is seen else x + 1


def numbers(x, seen, d, o):
    n = x.sum().item()
    y = x * n
    if n > 3:
        seen.append(n)
        y = y + n
    elif int(n) < -20:
        seen.append(int(n))
    return y, n


def sizes(x, seen, d, o):
    n = int((x > 0).sum().item())
    if n > 2:
        return torch.zeros(n) + 1
    return torch.ones(n + 1)


def assumed(x, seen, d, o):
    n = int(x.sum().item())
    if x[0, 0] > 0:
        torch._check(n >= 0)
        return torch.zeros(n)
    return x + n


def divided(x, seen, d, o):
    k = (x > 0).sum()
    if k > 0:
        return torch.tensor(12) // k
    return x


def two(x, seen, d, o):
    y = x * 2
    if y.sum() > 0:
        y = y + 1
    else:
        y = y - 1
    seen.append(y)
    y.add_(1)
    if y.max() > 2:
        return y * 2
    return y


def carried(x, seen, d, o):
    it = iter([1, 2, 3])
    first = next(it)
    late = (v * 2 for v in (5, 6))
    if x.sum() > 0:
        return x + first + next(it)
    return x + sum(it) + next(late)


def changed_later(x, seen, d, o):
    mine, table = [x], {"a": [1]}
    alias = table["a"]
    if x.sum() > 0:
        mine.append(x + 1)
        table["a"].append(2)
        table["b"] = mine
        return mine, alias, table
    alias.append(3)
    return mine, alias, table


def nonlocals(x, seen, d, o):
    k = 1

    def step(y):
        nonlocal k
        k += 1
        if y.sum() > 0:
            k += 10
        return y * k

    return step(step(x)), k


PROGRAMS = [
    plain, effects, in_place, views, twins, draws, raises_cold, raises_hot, handled, scopes, modes, calls, items, through_generator, logic,
    numbers, sizes, assumed, divided, two, carried, changed_later, nonlocals,
]  # fmt: skip


def arguments(x):
    return x.clone(), ["s"], {"k": x.clone()}, Box()


@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda f: f.__name__)
def test_both_sides_are_exact(fn):
    check(fn, *map(arguments, CALLS), must_compile=False)


@needs_exits
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda f: f.__name__)
def test_both_sides_are_exact_whichever_is_hot(fn, seed, monkeypatch):
    monkeypatch.setattr(branches, "forced", lambda code, offset: random.Random(f"{seed} {code.co_name} {offset}").random() < 0.5)
    check(fn, *map(arguments, CALLS), must_compile=False)


@needs_exits
@pytest.mark.parametrize(
    "fn", [plain, effects, in_place, views, twins, draws, scopes, calls, numbers, changed_later], ids=lambda f: f.__name__
)
def test_the_hot_side_is_one_graph(fn):
    pliant.reset()
    compiled = helpers.compiled(fn)
    for _ in range(6):
        compiled(*arguments(HOT))
    before = pliant.stats()
    for n in (3, 5, 7):
        compiled(*arguments(torch.ones(n, 4) * n))
    after = pliant.stats()
    assert after["calls"] - before["calls"] == 3, "a call of the hot side ran more than one entry"
    assert after["captures"] == before["captures"] and after["graph_breaks"] == before["graph_breaks"]
    assert after["side_exits"] == 0


@needs_exits
def test_exits_are_counted():
    pliant.reset()
    compiled = helpers.compiled(plain)
    for x in CALLS:
        compiled(*arguments(x))
    stats = pliant.stats()
    assert stats["exit_points"] == 1 and stats["side_exits"] == 3


def walk(pattern):
    """`plain` along the sides in this pattern: how often it was captured."""
    pliant.reset()
    compiled = helpers.compiled(plain)
    for side in pattern:
        x = HOT if side else COLD
        assert torch.equal(compiled(*arguments(x)), plain(*arguments(x)))
    return pliant.stats()["captures"]


@pytest.mark.parametrize("name", ["one side", "the other", "in turn", "at random", "phases", "rarely", "first the cold one"])
def test_captures_are_bounded(name):
    dice = random.Random(name)
    pattern = {
        "one side": [True] * 60,
        "the other": [False] * 60,
        "in turn": [True, False] * 100,
        "at random": [dice.random() < 0.5 for _ in range(300)],
        "phases": ([True] * 100 + [False] * 150) * 3,
        "rarely": [i % 20 != 19 for i in range(300)],
        "first the cold one": [False] + [True] * 40,
    }[name]
    # a capture of the first part for each form of the branch, and one of each side
    assert walk(pattern) <= 2 + 1 + branches.MOST_CHANGES
    if OURS and name in ("one side", "the other", "rarely"):
        assert pliant.stats()["graph_breaks"] == 1
    if OURS and name == "first the cold one":
        assert pliant.stats()["exit_points"] == 1


def test_training_regions_stay_whole():
    def fn(x, w):
        y = (x @ w).tanh()
        if y.sum() > 0:
            return (y * 2).sum()
        return (y - 1).sum()

    with torch.enable_grad():
        w = torch.eye(4, requires_grad=True)
        check(fn, *[(x.clone(), w.detach().clone().requires_grad_()) for x in CALLS], grad=True)


@needs_exits
def test_a_model_that_was_trained_has_exits_without_gradients():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

        def forward(self, x):
            if x.sum() > 0:
                x = x + 1
            y = self.first(x).tanh()
            if y.abs().sum() > 0:
                return self.second(y)
            return y

    pliant.reset()
    model = Model()
    compiled = helpers.compiled(model)
    with torch.enable_grad():
        for _ in range(8):
            compiled(HOT).sum().backward()
        want = [p.grad.clone() for p in model.parameters()]
        model.zero_grad()
        for _ in range(8):
            model(HOT).sum().backward()
        assert all(torch.allclose(a, p.grad, atol=1e-6) for a, p in zip(want, model.parameters(), strict=True))
        trained = pliant.stats()["captures"]
        compiled(HOT)
        assert pliant.stats()["captures"] == trained
    for x in (HOT, HOT, HOT, HOT, COLD, HOT):
        assert torch.allclose(compiled(x), model(x), atol=1e-6)
    assert pliant.stats()["exit_points"] >= 2 and pliant.stats()["side_exits"] == 1


def test_other_sizes():
    check(plain, *[(t(n, 3, seed=n) + s, [], {}, Box()) for n in range(2, 9) for s in (5, 5, -5)])


@needs_exits
def test_the_log_tells_the_line():
    pliant.reset()
    compiled = helpers.compiled(plain)
    for _ in range(5):
        compiled(*arguments(HOT))
    line = plain.__code__.co_firstlineno + 2
    told = [e.fields for e in events.events("policy") if f":{line} " in e.fields["where"]]
    assert len(told) == 1 and "3 true, 0 false" in told[0]["what"]


@needs_exits
@pytest.mark.parametrize("number", range(12))
def test_random_programs(number):
    verdict, text = fuzz.examine(f"exits:{number}", exits=True)
    branches.forced = None
    assert verdict == "right", text


def test_versions_at_an_exit():
    """A write through `.data` is not counted; one behind the exit has not happened."""

    def fn(x, y):
        y.data.mul_(2)
        if x.sum() > 0:
            y.zero_()

    check(fn, *[(x, torch.ones(3)) for x in CALLS], must_compile=False)


def test_world_changes():
    def factory():
        state = {"n": 0}

        def fn(x):
            state["n"] += 1
            y = x * state["n"]
            if y.sum() > 0:
                state["hot"] = y
            else:
                state["cold"] = y
            return y

        return fn, state

    check_world(factory, *[(x,) for x in CALLS], must_compile=False)


@needs_exits
def test_what_only_the_other_side_gets_is_written_to(monkeypatch):
    """Nobody reads the write, whose operands, a tensor and a number, nothing else needs."""
    monkeypatch.setattr(branches, "forced", lambda code, offset: True)

    def fn(x, n, z, seen):
        y = x + 1
        if y[0, 0].item() > 0.5:
            y[0] = abs(n) ** 0.5 + 1.5
            y.add_(z)
        else:
            seen.append(y)
        return x * 2

    check(fn, *[(x.clone(), n, torch.full((4,), float(n)), []) for n, x in enumerate(CALLS)], must_compile=False)
