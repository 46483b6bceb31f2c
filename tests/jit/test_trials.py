"""Trials (`pliant/jit/trials.py`): which calls run compiled, as they are, and timed; and what is made of the times."""

from __future__ import annotations

import threading
import time
import weakref

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import pliant
from pliant import events, native
from pliant.jit import rations, trials


class Script:
    """A trial that answers what it is told, and writes down what it hears."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.heard = []

    def __call__(self, point, compiled, plain):
        self.heard.append((len(compiled), len(plain)))
        return self.answers.pop(0)


def entry(script):
    ran = []

    def fn(x):
        ran.append("plain")
        if x is None:
            raise ValueError
        return x

    def miss(point, f, args):
        ran.append("compiled")
        return "value", args[0]

    return native.EntryPoint(fn, miss, None, script), ran


def test_calls_that_pass_and_calls_that_run_as_they_are():
    point, ran = entry(script := Script((False, 2, 0), (True, 3, 0), (False, 1 << 40, 0)))
    assert [point(i) for i in range(7)] == list(range(7))
    assert ran == ["compiled"] * 2 + ["plain"] * 3 + ["compiled"] * 2
    assert script.heard == [(0, 0)] * 3


def order(i):
    return "plain" if i.bit_count() & 1 else "compiled"


def test_timed_calls_take_turns_and_those_that_capture_or_raise_are_not_counted():
    point, ran = entry(script := Script((False, 0, 8), (True, 1 << 40, 0)))
    for _ in range(4):
        point(0)
    for i in range(4, 8):
        if order(i) == "plain":
            with pytest.raises(ValueError):
                point(None)
        else:
            point(None)
    assert ran == [order(i) for i in range(8)]
    point(0)
    assert script.heard == [(0, 0), (0, 2)]  # each compiled call came to a miss
    assert ran[-1] == "plain"


def test_calls_that_rest_say_what_the_next_ones_take():
    """No entry fits, and nothing is captured: that is what such calls will cost, so they are timed."""
    def fn(x):
        return x

    script = Script((False, 0, 8), (True, 1 << 40, 0))
    point = native.EntryPoint(fn, lambda *_: ("rest",), None, script)
    assert [point(i) for i in range(9)] == list(range(9))
    assert script.heard == [(0, 0), (4, 4)]


def test_calls_inside_of_a_timed_one_run_as_it_does():
    def fn(n):
        ran.append("plain")
        return point(n - 1) if n else 0

    def miss(_, f, args):
        ran.append("compiled")
        return "value", point(args[0] - 1) if args[0] else 0

    ran = []
    point = native.EntryPoint(fn, miss, None, Script((False, 0, 2), (False, 1 << 40, 0)))
    point(2)
    point(2)
    assert ran == ["compiled"] * 3 + ["plain"] * 3


def test_an_error_of_the_trial_ends_it(monkeypatch):
    told = []
    monkeypatch.setattr("sys.unraisablehook", told.append)
    point, ran = entry(Script("nonsense"))
    assert point(1) == 1 and point(2) == 2
    assert ran == ["compiled"] * 2
    assert len(told) == 1


def test_begin_anew():
    point, ran = entry(Script((True, 1 << 40, 0), (False, 1 << 40, 0)))
    point(1)
    point._untried()
    point(2)
    assert ran == ["plain", "compiled"]


class Region:
    codes = [None, None]
    records = {}


@pytest.fixture
def trial(monkeypatch):
    monkeypatch.setattr(trials, "differentiates", lambda region: False)
    monkeypatch.setattr(trials, "busy", lambda: False)
    region = Region()
    made = trials.Trial(region)
    made.keeps = region
    return made


def point():
    return native.EntryPoint(lambda: None)


@pytest.mark.parametrize(
    ("compiled", "plain", "as_is"),
    [([1.0] * 8, [2.0] * 8, False), ([2.0] * 8, [1.0] * 8, True), ([1.0] * 8, [1.0] * 8, False), ([], [1.0] * 8, True), ([], [], False)],
)
def test_the_verdict(trial, compiled, plain, as_is):
    p = point()
    assert trial(p, [], []) == (False, 0, trials.BLOCK, False)
    answer = (False, 0, trials.BLOCK, False)
    for blocks in range(trials.MOST_BLOCKS + 1):
        if answer[2] == 0:
            break
        answer = trial(p, compiled, plain)
    assert answer == (as_is, trials.PAUSE, 0, False)
    assert trial(p, [], []) == (as_is, 0, trials.BLOCK, False)  # after the pause
    assert bool([e for e in events.events("policy") if "as they are" in e.fields["what"]]) == as_is


def test_an_unclear_difference_takes_more_blocks(trial):
    p = point()
    trial(p, [], [])
    assert trial(p, [1.0, 3.0] * 4, [1.1, 3.0] * 4) == (False, 0, trials.BLOCK, False)
    assert trial(p, [1.0] * 400, [4.0] * 400)[0] is False


@pytest.mark.parametrize(("compiled", "as_is"), [(2.0, True), (0.5, False)])
def test_while_machine_code_is_waited_for_what_is_faster_by_then_runs(trial, monkeypatch, compiled, as_is):
    waits = [True] * 3
    monkeypatch.setattr(trials, "busy", lambda: waits.pop() if waits else False)
    p = point()
    assert trial(p, [], []) == (False, 0, trials.EARLY, False)  # the first wait
    assert trial(p, [compiled] * 8, [1.0] * 8) == (as_is, trials.BLOCK, 0, False)
    assert [trial(p, [], []) for _ in range(2)] == [(as_is, trials.BLOCK, 0, False)] * 2
    if as_is:  # first runs of new code take longer
        assert trial(p, [], []) == (False, trials.BLOCK, 0, False)
    assert trial(p, [], []) == (as_is, 0, trials.BLOCK, False)  # it is there
    assert trial(p, [0.5] * 8, [1.0] * 8) == (False, trials.PAUSE, 0, False)


def test_while_something_is_captured_nothing_is_timed(trial, monkeypatch):
    counts = iter([2, 5, 9, 10])
    monkeypatch.setattr(trials, "captures", lambda region: next(counts))
    assert [trial(point(), [], []) for _ in range(4)] == [(False, trials.SOON, 0, False)] * 3 + [(False, 0, trials.BLOCK, False)]


def test_a_trial_keeps_no_region_alive():
    region = weakref.ref(r := type("R", (), {})())
    t = trials.Trial(r)
    del r
    assert region() is None
    assert t(point(), [], []) == (False, trials.FOREVER, 0, False)


def pieces(x):
    pliant.graph_break()
    y = x + 1
    pliant.graph_break()
    return y * 2


def test_a_program_with_breaks_is_tried_and_one_without_is_not(monkeypatch):
    """Whatever the clock says, answers are the same."""
    asked = []
    monkeypatch.setattr(trials.Trial, "timed", lambda self, *_: asked.append(1) or (True, 5, 0, False))
    with torch.no_grad():
        for fn, tried in ((pieces, True), (lambda x: x * 3 + 1, False)):
            asked.clear()
            compiled = pliant.compile(fn, background=True)
            for n in range(2, 160):
                x = torch.ones(n % 7 + 2)
                assert torch.equal(compiled(x), fn(x))
                if n % 16 == 0:
                    pliant.synchronize()
            assert bool(asked) == tried


def test_what_passes_between_calls_is_timed_where_gradients_are_recorded(monkeypatch):
    """Whatever the clock says, gradients are the same."""
    asked = []

    def timed(self, *_):
        asked.append(self.rounds)
        return len(asked) % 2 == 0, 5, 0, False

    monkeypatch.setattr(trials.Trial, "timed", timed)
    w, v = (torch.ones(4, requires_grad=True) for _ in range(2))
    compiled = pliant.compile(lambda x: pieces(x * w), background=True)
    for n in range(160):
        x = torch.ones(n % 7 + 2, 4)
        compiled(x).sum().backward()
        pieces(x * v).sum().backward()
        assert torch.equal(w.grad, v.grad)
        if n % 16 == 0:
            pliant.synchronize()
    assert len(asked) > 2 and all(asked)


def test_between_calls():
    point, ran = entry(script := Script((False, 0, 8, True), (False, 1 << 40, 0)))
    for i in range(8):
        if i == 4:  # "plain": another thread makes the next call
            threading.Thread(target=point, args=(i,)).start()
            while len(ran) == i:
                time.sleep(0.001)
        else:
            point(i)
    assert ran == [order(i) for i in range(8)]
    point(0)
    # rounds of compiled calls have met a miss; the one before the thread's and the thread's own began and ended in two threads
    assert script.heard == [(0, 0), (0, 4 - [order(i) for i in (3, 4)].count("plain"))]


def test_what_is_checkpointed_runs_compiled_both_times(monkeypatch):
    asked = []
    monkeypatch.setattr(trials.Trial, "timed", lambda *_: asked.append(1) or (len(asked) % 2 == 1, 5, 0, False))

    def f(x, flag):
        if flag:
            return pieces(x * w)
        return (x * w).sin().cos()

    w = torch.full((4,), 0.5, requires_grad=True)
    compiled = pliant.compile(f, background=True)
    x = torch.ones(3, 4)
    for n in range(100):
        if n % 16 == 0:
            pliant.synchronize()
        y = checkpoint(lambda x: compiled(compiled(x, n % 4 == 0), False), x, use_reentrant=False)
        compiled(x, True)
        want = torch.autograd.grad(f(f(x, n % 4 == 0), False).sum(), w)[0]
        w.grad = None
        y.sum().backward()
        torch.testing.assert_close(w.grad, want)
    assert len(asked) > 2


def test_none_in_a_process_that_is_one_of_several(trial, monkeypatch):
    monkeypatch.setattr(trials, "in_group", lambda: True)
    assert [trial(point(), [], [])[0::2] for _ in range(5)] == [(False, 0)] * 5


def test_none_where_the_background_is_off(monkeypatch):
    monkeypatch.setattr(trials.Trial, "timed", lambda *_: pytest.fail("it was timed"))
    still = pliant.compile(pieces, background=False)
    with torch.no_grad():
        for _ in range(100):
            still(torch.ones(4))
    assert not trials.wanted(pliant.config.Config(background=True, fullgraph=True))


def test_captures_of_known_code_are_rationed(monkeypatch):
    """Once the free ones are used up, CPython runs what no entry fits: answers stay eager's. Code that is new is captured still."""
    monkeypatch.setattr(rations, "FREE", 1)
    monkeypatch.setattr(rations, "SHARE", 1e9)

    def program(x, what, more):
        y = x * 2
        pliant.graph_break()
        z = y + len(str(what)) if what else y - 1
        if more:
            pliant.graph_break()
            z = z.exp()
        return z, what

    fn = pliant.compile(program, background=True)
    x = torch.arange(4.0)
    for _ in range(2):
        pliant.reset()  # and the ration is a new one
        before, counts = pliant.stats()["captures"], []
        for what in (1, 2.5, "three", None, (4, 5), b"6", True, 1):
            got, want = fn(x, what, False), program(x, what, False)
            assert torch.equal(got[0], want[0]) and got[1] is want[1]
            counts.append(pliant.stats()["captures"] - before)
        assert counts[0] == 2 and counts[1:] == [3] * 7
    assert torch.equal(fn(x, 1, True)[0], program(x, 1, True)[0])


def test_rations_are_inherited():
    ration = rations.Ration()
    ration.inherit(rations.FREE)
    assert not ration.waits()  # the first is captured
    ration.captured(time.thread_time() - 1e6)
    assert ration.waits() and ration.again == rations.FREE + 1
    ration.inherit(3)
    assert ration.again == rations.FREE + 1
