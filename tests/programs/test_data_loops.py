"""Loops whose number of rounds depends on data."""

from __future__ import annotations

import signal
from typing import Any

import pytest
import torch

import pliant
from pliant import events
from tests.helpers import check


def test_many_rounds_need_no_deep_stack() -> None:
    def until(x: Any, most: Any) -> Any:
        while x.sum() < most:
            print(end="")
            x = x + 1
        return x

    fn = pliant.compile(until)
    for most in (5.0, 5000.0):
        assert fn(torch.zeros(1), torch.tensor(most)).item() == most
    assert pliant.stats()["fallbacks"] == 0


def test_a_branch_on_data_in_a_loop_over_a_size() -> None:
    def counted(x: Any, k: int) -> Any:
        i = 0
        while i < k:
            if x.sum() > 0:
                i += 1
            x = x + 1
            i += 1
        return x

    check(counted, (torch.tensor([-3.0]), 4), (torch.tensor([1.0]), 9), (torch.tensor([-1.0]), 2500), (torch.tensor([1.0]), 0))


# -- closed loops: one graph, whatever the number of rounds ---------------------------------------------------------------------------
def fixed_point(x: Any, tol: float) -> Any:
    err = torch.tensor(1.0)
    n = 0
    while err > tol:
        y = torch.cos(x)
        err = (y - x).abs().max()
        x = y
        n += 1
    return x, n


def newton(a: Any) -> Any:
    x = a.clone()
    while (x * x - a).abs().max() > 1e-4:
        x = x - (x * x - a) / (2 * x)
    return x


def bisection(lo: Any, hi: Any, target: float) -> Any:
    while hi - lo > 1e-3:
        mid = (lo + hi) / 2
        if mid * mid > target:
            hi = mid
        else:
            lo = mid
    return lo, hi


def power_iteration(a: Any, v: Any) -> Any:
    while True:
        w = a @ v
        w = w / w.norm()
        if (w - v).abs().max() < 1e-3:
            break
        v = w
    return w


def greedy(weights: Any, table: Any, ids: Any, end: int) -> Any:
    while ids.shape[0] < 12:
        h = table[ids].mean(0)
        token = (table @ torch.tanh(weights @ h)).argmax()
        ids = torch.cat([ids, token[None]])
        if token.item() == end:
            break
    return ids


def all_done(x: Any) -> Any:
    done = torch.zeros(x.shape[0], dtype=torch.bool)
    rounds = 0
    while not done.all():
        x = torch.where(done, x, x + 1)
        done = x > 3
        rounds += 1
    return x, rounds


def collatz(n: Any) -> Any:
    k = n.item()
    steps = 0
    while k != 1:
        if k % 2 == 0:
            k = k // 2
        else:
            k = 3 * k + 1
        steps += 1
    return steps, k


def with_else(x: Any, most: int) -> Any:
    n = 0
    while x.sum() < 10:
        n += 1
        if n >= most:
            state = -1
            break
        if x.max() > 2:
            x = x * 2
            continue
        x = x + 1
    else:
        state = 1
    return x * state, n


def shifted(x: Any) -> Any:
    before = x
    while (x - before).abs().sum() < 1 and x.sum() < 50:
        before, x = x, x + x.abs().mean() * 0.1 + 0.01
    return before, x


def nested_loops(x: Any) -> Any:
    total = 0
    while x.sum() > 1:
        y = x
        while y.max() > 0.5:
            y = y / 2
            total += 1
        x = x - y - 0.3
    return x, total


def drawing(x: Any) -> Any:
    n = 0
    while x.sum() < 5:
        x = x + torch.rand(3)
        n += 1
    return x, n, torch.rand(2)


def found(x: Any, y: Any) -> Any:
    i = 0
    while i < x.shape[0]:
        if x[i] > y:
            return i, x[i]
        i += 1
    return -1, y


def halving(x: Any) -> Any:
    while x.sum() > 1:
        x = x[: x.shape[0] // 2]
    return x * 2


def in_place_on_its_own(x: Any) -> Any:
    while x.sum() < 9:
        y = x * 1
        y += 1
        y[0] = 2
        x = y
    return x


def t(*values: float) -> Any:
    return torch.tensor(values[0] if len(values) == 1 else values)


CLOSED: dict[Any, list[tuple]] = {
    fixed_point: [(torch.rand(4), 1e-3), (torch.rand(9), 1e-3), (torch.rand(2, 3), 2.0)],
    newton: [(torch.rand(3) + 1,), (torch.rand(7) + 9,), (torch.ones(5),)],
    bisection: [(t(0.0), t(4.0), 2.0), (t(0.0), t(9.0), 2.0), (t(1.0), t(1.0), 7.0)],
    power_iteration: [(torch.diag(t(3.0, 1.0, 0.5)) + 0.1, torch.ones(3)), (torch.diag(torch.arange(1.0, 6)), torch.ones(5))],
    greedy: [
        (torch.eye(4), torch.arange(24.0).view(6, 4).sin(), torch.tensor([1, 2]), 4),
        (torch.eye(3), torch.eye(3), torch.tensor([0, 2]), 4),
        (torch.eye(3), torch.eye(3), torch.tensor([0, 2]), 0),
    ],
    all_done: [(t(1.0, 3.0),), (t(4.0, 5.0, 9.0),), (t(-9.0, 0.0, 1.0),)],
    collatz: [(torch.tensor(27),), (torch.tensor(2),), (torch.tensor(97),), (torch.tensor(2**60 + 1),)],
    with_else: [(torch.ones(2), 9), (torch.ones(3), 9), (torch.zeros(2), 2), (torch.full((2,), 50.0), 5)],
    shifted: [(torch.rand(3),), (torch.rand(5) * 40,), (torch.rand(4) + 30,)],
    nested_loops: [(torch.full((3,), 2.0),), (torch.full((2,), 5.0),), (torch.zeros(4),)],
    drawing: [(torch.zeros(3),), (torch.ones(3) * 9,), (torch.ones(3),)],
    found: [(torch.arange(5.0), t(2.5)), (torch.arange(9.0), t(6.0)), (torch.arange(3.0), t(6.0))],
    halving: [(torch.ones(9),), (torch.ones(33),), (torch.zeros(4),)],
    in_place_on_its_own: [(torch.zeros(3),), (torch.zeros(5),), (torch.full((2,), 9.0),)],
}


@pytest.mark.parametrize("fn", CLOSED, ids=lambda fn: fn.__name__)
def test_one_graph_for_every_number_of_rounds(fn: Any) -> None:
    check(fn, *CLOSED[fn])
    pliant.reset()
    events.reset()
    compiled = pliant.compile(fn)
    for args in CLOSED[fn][:2]:
        compiled(*args)
    stats = pliant.stats()
    counts = (stats["captures"], stats["graph_breaks"], stats["fallbacks"])
    assert counts == (1, 0, 0), [e.fields["why"] for e in events.events("loop_open")]


# -- loops that are not closed: left to Python, and right -------------------------------------------------------------------------------
def collecting(x: Any) -> Any:
    out = []
    while x.sum() < 5:
        x = x + 1
        out.append(x)
    return out


def telling(x: Any) -> Any:
    while x.sum() < 5:
        print("round", x.shape)
        x = x + 1
    return x


def writing(x: Any, y: Any) -> Any:
    while x.sum() < 5:
        y += 1
        x = x + y.mean()
    return x


def raising(x: Any) -> Any:
    n = 0
    try:
        while x.sum() < 50:
            x = x + x[n]
            n += 1
    except IndexError as e:
        return x, n, type(e)
    return x, n


def first_none(x: Any) -> Any:
    before = None
    while x.sum() < 5:
        before, x = x, x + 1
    return before, x


OPEN: dict[Any, list[tuple]] = {
    collecting: [(t(0.0, 1.0),), (t(9.0, 1.0),), (t(-4.0, 1.0, 2.0),)],
    telling: [(t(0.0, 1.0),), (t(9.0, 1.0),)],
    writing: [(t(0.0, 1.0), torch.ones(2)), (t(9.0, 1.0), torch.ones(3)), (t(-9.0, 1.0), torch.zeros(3))],
    raising: [(t(1.0, 2.0, 3.0),), (t(50.0, 2.0),), (t(0.0, 1.0),)],
    first_none: [(t(0.0, 1.0),), (t(9.0, 1.0),)],
}


@pytest.mark.parametrize("fn", OPEN, ids=lambda fn: fn.__name__)
def test_other_loops_are_eager_s(fn: Any) -> None:
    check(fn, *OPEN[fn])


def test_gradients_flow_as_in_eager() -> None:
    def doubled(x: Any) -> Any:
        while x.sum() < 10:
            x = x * 2
        return x.sum()

    check(doubled, (torch.rand(3, requires_grad=True),), (torch.full((5,), 9.0, requires_grad=True),), grad=True)


def test_an_index_out_of_range_in_a_round_raises_what_eager_raises() -> None:
    def walk(steps: Any, i: Any) -> Any:
        n = 0
        while i >= 0:
            i = steps[i]
            n += 1
        return n

    compiled = pliant.compile(walk)
    assert compiled(torch.tensor([1, 2, -1]), torch.tensor(0)) == 3
    for steps in (torch.tensor([1, 2, 7]), torch.tensor([1, 9, 7])):
        with pytest.raises(IndexError) as want:
            walk(steps, torch.tensor(0))
        with pytest.raises(IndexError) as got:
            compiled(steps, torch.tensor(0))
        assert str(got.value).startswith(str(want.value))
    assert pliant.stats()["captures"] == 1


def test_integers_of_any_size() -> None:
    def grown(x: Any) -> Any:
        n = 1
        while x.sum() < 90:
            n = n * 7 + 1
            x = x + 1
        return n

    check(grown, (torch.zeros(1),), (torch.ones(3),))


def test_the_identity_of_what_a_loop_gives_back() -> None:
    def same(x: Any) -> Any:
        y = x
        while x.sum() < 5:
            x = x + 1
        return x is y, x

    check(same, (t(9.0, 1.0),), (t(0.0, 1.0),), (t(8.0, 1.0),))


def test_writes_behind_a_loop_are_seen_by_what_shares_the_memory() -> None:
    def shared(x: Any) -> Any:
        before = x
        while x.sum() < 5:
            before, x = x, x + 1
        x += 1
        return before, x

    check(shared, (t(9.0, 1.0),), (t(0.0, 1.0),))


def test_a_loop_can_be_interrupted() -> None:
    def endless(x: Any) -> Any:
        while x.sum() > 0:
            x = x * 1
        return x

    compiled = pliant.compile(endless)
    compiled(torch.zeros(2))
    signal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        with pytest.raises(KeyboardInterrupt):
            compiled(torch.ones(2))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
    assert pliant.stats()["captures"] == 1


def test_sizes_that_are_found_to_be_equal_behind_the_loop() -> None:
    """The loop was recorded when it read a size of its own; by then that is the size of another tensor."""

    def fn(x: torch.Tensor, y: torch.Tensor) -> Any:
        n, total = 0, x.sum()
        while (y * 2).sum() * n < 40:
            n = n + 1
        return torch.where(y <= x, y, x), n, total

    with torch.no_grad():
        check(fn, *[(torch.ones(k, 3), torch.ones(k, 3)) for k in (4, 5, 7)], captures=1, breaks=0)


class Settling(torch.nn.Module):
    """A module that calls another in a loop on data."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(4, 4, bias=False)

    def forward(self, x: Any) -> Any:
        n = 0
        while x.abs().sum() > 0.1:
            x = torch.tanh(self.inner(x)) * 0.5
            n += 1
        return x, n


def test_modules_in_loops() -> None:
    model = Settling()
    with torch.no_grad():
        compiled = pliant.compile(model, fullgraph=True)
        for rows in (3, 5, 1):
            x = torch.randn(rows, 4)
            got, want = compiled(x), model(x)
            torch.testing.assert_close(got[0], want[0])
            assert got[1] == want[1]


def test_sizes_that_a_loop_changes_pin_nothing() -> None:
    """A branch in the first round asks a size that later rounds have otherwise."""
    compiled = pliant.compile(greedy, fullgraph=True)
    weights, table = torch.eye(5), torch.randn(7, 5)
    with torch.no_grad():
        for n in (2, 3, 10, 11):
            ids = torch.zeros(n, dtype=torch.int64)
            assert torch.equal(compiled(weights, table, ids, 99), greedy(weights, table, ids, 99))
    assert pliant.stats()["captures"] == 1


def test_how_far_an_iterator_has_come_behind_a_break():
    """The frame behind the branch was taken to be in its last round for good: the loop ended early where another call had more."""
    seen = []

    def program(x):
        def rounds(t, n):
            for i in range(n):
                if x.sum() > 5.0:
                    seen.append("large")
                print(i)
                if x.sum() < float(i):
                    pass
            return t

        return rounds(rounds(rounds(x, 1), 3), 2)

    check(program, *[torch.full((1, 2), v) for v in (-1.0, 1.0, 4.0, -2.0)])
