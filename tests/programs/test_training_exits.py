"""Branches on data where gradients are recorded: behind one that goes one way the graph goes on, and a run of the other way begins anew."""

from __future__ import annotations

import random

import pytest
import torch

import pliant
from pliant.jit import branches
from tests import helpers
from tests.helpers import check_world

OURS = helpers.BACKEND in ("aten", "native")
needs_exits = pytest.mark.skipif(not OURS, reason="this backend's graphs have one way out")
HOT = torch.arange(12.0).view(3, 4) / 4


def calls(turns):
    """`turns`: which calls are negative."""
    return [((-HOT if cold else HOT).clone().requires_grad_(), torch.eye(4).requires_grad_()) for cold in turns]


ONE_SIDE = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0]
OTHER = [0, 0, 0, 0, *[1] * 16, 0, 1, 1, 1]
TURNS = [0, 1] * 12


def plain(x, w, seen):
    y = (x @ w).tanh()
    if y.sum() > 0:
        return (y * 2).sum()
    return (y - 1).sum()


def with_effects(x, w, seen):
    seen.append(len(seen))
    y = (x @ w).sin()
    print("before", len(seen))
    if x.sum() > 0:
        seen.append("hot")
        y = y.relu() @ w
    else:
        print("cold")
        seen.append("cold")
        y = y * 3
    seen.append("after")
    return y.square().mean()


def with_draws(x, w, seen):
    y = torch.dropout(x @ w, 0.5, True)
    a = random.random()
    if x.mean() > 0:
        y = torch.dropout(y, 0.3, True)
    b = random.random()
    seen.append((a, b))
    return (y * a + b).sum()


def with_dropout(x, w, seen):
    y = torch.dropout(x @ w, 0.5, True)
    if x.mean() > 0:
        y = torch.dropout(y, 0.3, True)
    seen.append(torch.rand(()).item())
    return y.sum()


def that_raises(x, w, seen):
    y = x @ w
    seen.append("computed")
    if not (x >= 0).all():
        seen.append("negative")
        raise ValueError("negative")
    return (y * y).sum()


def look(x, seen):
    if x.max() <= 0:
        seen.append("found")
        raise KeyError("x")
    return x + 1


def under_a_handler(x, w, seen):
    try:
        y = look(x @ w, seen) * 2
    except KeyError as e:
        seen.append(str(e))
        y = x * w[:3]
    finally:
        seen.append("finally")
    return y.sum()


def that_would_raise_on_the_wrong_side(x, w, seen):
    n = (x > 0).sum()
    if n > 4:
        rows = torch.nonzero(x[:, 1] > 0)[:, 0]
        return (w[rows] * x[rows[-1]]).sum()
    return (w * 2).sum()


def two_branches(x, w, seen):
    y = x @ w
    if x[0, 1] > 0:
        y = y.sin()
    z = y * w[0]
    if z.sum() > 0.5:
        seen.append("large")
        return z.sum()
    return (z * y).sum()


def behind_a_break(x, w, seen):
    y = x @ w
    pliant.graph_break()
    seen.append("resumed")
    if y.sum() > 0:
        y = y.relu() * 2
    return (y @ w).sum()


def a_number(x, w, seen):
    n = int(x.sum())
    if n > 3:
        return (x * n).sum() + w.sum()
    return (x / (n - 1)).sum() + w.sum()


def that_writes_memory_of_others(x, w, seen):
    y = x @ w
    if y.sum() > 0:
        y = y * 2
    with torch.no_grad():
        w.mul_(0.5)
    return y.sum()


def with_views(x, w, seen):
    y = x.t()
    if y.sum() > 0:
        seen.append(y[0].shape)
        return (y[1:] @ x).sum() + w[0].sum()
    return (y[:1] * w[0, 0]).sum()


def that_begins_without_gradients(x, w, seen):
    with torch.no_grad():
        pliant.graph_break()
        if x.sum() > 0:
            seen.append("hot")
        y = x * 2
    return ((x @ w).tanh() * y).sum()


PROGRAMS = [
    that_begins_without_gradients,
    plain, with_effects, with_draws, with_dropout, that_raises, under_a_handler, that_would_raise_on_the_wrong_side, two_branches,
    behind_a_break, a_number, that_writes_memory_of_others, with_views,
]  # fmt: skip


def factory(program):
    def make():
        seen: list = []
        return (lambda x, w: program(x, w, seen)), seen

    return make


def seed(i, state):
    torch.manual_seed(i)
    random.seed(i)


@pytest.mark.parametrize("turns", [ONE_SIDE, OTHER, TURNS], ids=["one side", "the other", "turns"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_runs_of_both_sides_are_those_of_eager(program, turns):
    with torch.enable_grad():
        check_world(factory(program), *calls(turns), grad=True, before=seed)


@needs_exits
@pytest.mark.parametrize("side", [False, True])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_forced_to_a_side_from_the_first_capture_on(program, side, monkeypatch):
    monkeypatch.setattr(branches, "forced", lambda code, offset: side)
    with torch.enable_grad():
        check_world(factory(program), *calls([0, 1, 1, 0]), grad=True, before=seed, must_compile=False)


@needs_exits
def test_the_hot_side_is_one_graph_and_the_work_is_bounded():
    for program, exits, captures in ((plain, 1, 3), (with_effects, 1, 7), (with_dropout, 1, 5), (that_writes_memory_of_others, 0, 7)):
        with torch.enable_grad():
            check_world(factory(program), *calls([0] * 12), grad=True, before=seed, captures=(1, captures))
        assert bool(pliant.stats()["exit_points"]) == bool(exits)
    with torch.enable_grad():
        found = check_world(factory(plain), *calls(TURNS * 4), grad=True)
    assert found.captures <= 3 * (1 + branches.MOST_CHANGES)


@needs_exits
def test_a_run_of_the_other_side_is_counted_and_does_its_effects_once():
    with torch.enable_grad():
        check_world(factory(with_effects), *calls([0] * 6 + [1, 0, 1]), grad=True)
    assert pliant.stats()["side_exits"] == 2 and pliant.stats()["fallbacks"] == 0
