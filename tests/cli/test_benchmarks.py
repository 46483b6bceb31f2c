"""The benchmarks judge: they must see a wrong answer, and their programs must be the same on both sides."""

from __future__ import annotations

import pytest
import torch

from benchmarks import cold_start, soak
from benchmarks.compare import Mismatch, difference
from benchmarks.patterns import PATTERNS
from benchmarks.programs import PROGRAMS
from benchmarks.run import COLUMNS, row
from benchmarks.worker import Side
from tests.helpers import compiled

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("got", "expected", "apart"),
    [
        ([torch.tensor([0.5, 0.0]), "text"], [torch.tensor([0.5, 0.5]), "text"], 0.5),
        (torch.tensor([4.0, 12.0]), torch.tensor([8.0, 16.0]), 0.25),
        (torch.tensor([NAN, INF, -INF]), torch.tensor([NAN, INF, -INF]), 0.0),
        (torch.tensor([1.0]), torch.tensor([INF]), INF),
        ({"a": torch.empty(0)}, {"a": torch.empty(0)}, 0.0),
        (torch.tensor([1, 2]), torch.tensor([1, 2]), 0.0),
    ],
)
def test_difference(got, expected, apart):
    assert difference(got, expected) == apart


@pytest.mark.parametrize(
    ("got", "expected"),
    [
        (torch.ones(2), torch.ones(3)),
        (torch.ones(2), torch.ones(2, dtype=torch.float64)),
        (torch.tensor([1, 2]), torch.tensor([1, 3])),
        (torch.tensor([NAN]), torch.tensor([1.0])),
        (torch.ones(2), 1.0),
        ([torch.ones(2)], (torch.ones(2),)),
        ({"a": 1}, {"b": 1}),
        ("printed", "other"),
        (True, 1),
    ],
)
def test_other_answers_than_eagers_are_seen(got, expected):
    with pytest.raises(Mismatch):
        difference(got, expected)


def steps(side, count):
    for i in range(count):
        side.step(i)
    return side.answers[:count]


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_is_the_same_each_time_it_is_made(name):
    program = PROGRAMS[name]
    assert difference(steps(Side(program, program.make()), 4), steps(Side(program, program.make()), 4)) == 0.0


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_changes_its_shapes(name):
    def shape(args):
        leaves = torch.utils._pytree.tree_leaves(args)
        return tuple(tuple(leaf.shape) for leaf in leaves if isinstance(leaf, torch.Tensor))

    program = PROGRAMS[name]
    inputs = program.inputs()
    assert len(inputs) == (128 if name == "llama" else 30)
    assert name == "llama" or len(set(map(shape, inputs))) >= 25


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_compiled_program_answers_as_eager(name):
    program = PROGRAMS[name]
    ours = steps(Side(program, compiled(program.make())), 8)
    assert difference(ours, steps(Side(program, program.make()), 8)) <= program.tolerance


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda p: p.name)
def test_a_compiled_pattern_answers_as_eager(pattern):
    torch.manual_seed(0)
    fn = compiled(pattern.make())
    torch.manual_seed(0)
    eager = pattern.make()
    with torch.no_grad():
        for i in (0, 1, 2, 7, 3, 12, 4, 29):
            assert difference(fn(*pattern.args(i)), eager(*pattern.args(i))) <= 1e-4


def test_unfinished_and_failed_runs_are_rows_too():
    unfinished = {"status": "not finished", "calls": 30, "cold_s": [11.2, 3.0], "error": ""}
    failed = {"status": "failed", "calls": 30, "cold_s": [], "error": "Traceback\nValueError: broken"}
    for result, words in ((unfinished, "2 of 30 calls"), (failed, "ValueError: broken")):
        cells = row(result)
        assert len(cells) == len(COLUMNS) and words in cells[-1]
    assert row(unfinished)[0] == "11.2 s"


def test_first_calls_are_told_in_milliseconds():
    def sample(wall: float, kernels: int = 4) -> dict:
        return {"wall_s": wall, "cpu_s": wall / 2, "llvm_s": wall / 4, "kernels": kernels, "lost_s": wall / 8, "captures": 0}

    rounds = [{"eager": sample(0.004), "cold": sample(w), "warm": sample(w / 2)} for w in (0.2, 0.4, 0.3)]
    assert cold_start.row("x", rounds, 1.5) == ["x", "4.0", "300", "150", "150", "75", "50%", "37.5", "0", "50%", "4", "18.8", "ok"]
    assert cold_start.row("x", rounds, 0.2)[-1] == "> 0.2 s"
    del rounds[1]["warm"]
    assert cold_start.row("x", rounds, 1.5)[4:10] == ["failed", "failed", "-", "-", "-", "-"]
    none = [{"eager": sample(0.1, 0), "cold": sample(0.1, 0), "warm": sample(0.1, 0)}]
    assert cold_start.row("x", none, 1.5)[10:12] == ["0", "-"]
    assert cold_start.row("x", [{}], 1.5) == ["x", *["failed"] * 5, *["-"] * 6, "failed"]


def judged(eager, compiled, monkeypatch):
    monkeypatch.setattr("sys.stdout", soak.words)
    work = soak.Work("it", lambda: eager, soak.branching, soak.with_log, soak.alike(1e-3))
    return soak.wrong(work, eager, compiled, 4)


def test_the_soak_sees_what_is_wrong(monkeypatch):
    """Answers, what is left in arguments, exceptions, and words."""

    def writes(x, log):
        log.append("more")
        return soak.leaves(x, log)

    def keeps(x, log):
        return soak.leaves(x.clone(), log)

    def fails(x, log):
        soak.leaves(x, log)
        raise ValueError("no")

    def speaks(x, log):
        print("words")
        return soak.leaves(x, log)

    assert judged(soak.leaves, soak.leaves, monkeypatch) == ""
    assert judged(soak.raises, soak.raises, monkeypatch) == ""
    assert "differs by" in judged(soak.leaves, lambda x, log: soak.leaves(x, log) + 1, monkeypatch)
    assert "structure" in judged(soak.leaves, writes, monkeypatch)
    assert "differs by" in judged(soak.leaves, keeps, monkeypatch)
    assert "ValueError: no" in judged(soak.leaves, fails, monkeypatch)
    assert "words" in judged(soak.leaves, speaks, monkeypatch)


def test_the_programs_of_the_soak_are_themselves(monkeypatch):
    """Eager beside eager, nothing is wrong."""
    monkeypatch.setattr("sys.stdout", soak.words)
    works = soak.everything()
    assert len({w.name for w in works}) == len(works) > 100
    for work in works[::9]:
        assert soak.wrong(work, work.make(), work.make(), 3) == ""
