"""Entries of what goes on behind graph breaks: a process that finds them captures nothing, and does what eager PyTorch does."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator
from typing import Any

import pytest

from tests.jit.processes import Processes

PROGRAM = """
import contextlib
import pliant
import torch

def stop(*words):
    pliant.graph_break()
    print(*words)

def prints(x):
    y = x * 2
    stop("sum", float(y.sum()))
    return y.relu() + 1

def branch(x):
    y = x.sin()
    if y.sum() > 0:
        return y + 1
    return y - 1

def joined(x):
    y = x.sin()
    if y.sum() > 0:
        return y.softmax(0) + 1
    return y.cumsum(0)

def inner(x, out):
    y = x + 1
    out.append(int(y.sum()))
    stop("inner", len(out))
    return y * 2

def inlined(x):
    out = []
    y = inner(x, out) + inner(x * 3, out)
    return y, out

def handled(x):
    try:
        y = x * 2
        stop("in try")
        if y.sum() > 0:
            raise ValueError("positive")
        return y
    except ValueError as e:
        stop("caught", e)
        return x + 100
    finally:
        stop("done")

@contextlib.contextmanager
def managed(log):
    log.append("in")
    try:
        yield 3
    finally:
        log.append("out")

def within(x):
    log = []
    with managed(log) as k:
        y = x * k
        stop("with", log)
        y = y + 1
    return y, log

def counting(x):
    for i in range(3):
        stop("gives", i)
        yield x * i

def generated(x):
    total = x
    for y in counting(x):
        total = total + y.cos()
    return total

def closure(x):
    k = 2
    def add(y):
        nonlocal k
        k += 1
        stop("k is", k)
        return y + k
    return add(x) * add(x)

def ragged(x):
    out = []
    for i in range(int(x.abs().sum()) % 5 + 2):
        if x.sum() * i > 3:
            stop("stops at", i)
            break
        out.append(x * i)
    return torch.stack(out).sum(0)

def converging(x):
    n = 0
    while x.norm() > 1:
        x = x / 2
        n += 1
    return x, n

def leaving(x):
    log = []
    y = x.abs() * 2
    if y.sum() > 10:
        log.append("more")
        y = y + 1
    else:
        log.append(len(log))  # of another type than on the other side: these are no one operation
        y = y.cos()
    return y * 3, log

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a = torch.nn.Linear(3, 3)
        self.calls = 0
        with torch.no_grad():
            self.a.weight.copy_(torch.arange(9.0).reshape(3, 3) / 9)
            self.a.bias.zero_()
    def forward(self, x):
        self.calls += 1
        y = self.a(x)
        stop("call", self.calls)
        return y.tanh() + self.calls

def module(x, net=Net()):
    return net(x)

def trained(x):
    x = x.clone().requires_grad_()
    y = (x * 3).tanh()
    stop("before")
    (y * y).sum().backward()
    return x.grad

XS = [torch.ones(4, 3), -torch.ones(4, 3), torch.full((2, 3), 1.5), torch.full((5, 3), -0.25), torch.full((3, 3), 4.0)]
"""
RUN = """
import contextlib, copy, io, pliant, {module} as program
def run(fn):
    torch.manual_seed(0)
    out = []
    for x in program.XS:
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            got = fn(x.clone())
        parts = got if isinstance(got, tuple) else (got,)
        out.append([p.tolist() if isinstance(p, torch.Tensor) else p for p in parts] + [text.getvalue()])
    return out
fresh = program.Net
def once(fn):
    program.module.__defaults__ = (fresh(),)
    return run(fn)
answer = [once(program.{name}), once(pliant.compile(program.{name}, strict=True))]
"""
NAMES = [
    "prints", "branch", "joined", "inlined", "handled", "within", "generated", "closure", "ragged", "converging", "leaving", "module",
    "trained",
]  # fmt: skip
ONE_GRAPH = {"converging", "branch", "joined"}


@pytest.fixture(scope="module")
def processes() -> Iterator[Processes]:
    p = Processes()
    yield p
    p.close()


def run(processes: Processes, home: pathlib.Path, name: str, module: str = "program") -> dict[str, int]:
    """All calls of a program in a fresh process, which are eager's: what was counted."""
    found: dict[str, Any] = processes.fresh(RUN.format(name=name, module=module), str(home))
    eager, compiled = found["answer"]
    assert len(eager) == len(compiled)
    for a, b in zip(eager, compiled, strict=True):
        assert a[-1] == b[-1], found["why"]  # what it printed
        for u, v in zip(a[:-1], b[:-1], strict=True):
            assert v == (u if isinstance(u, (int, str)) or not numbers(u) else near(u))
    counted: dict[str, int] = found["counters"]
    counted["why"] = found["why"]
    return counted


def numbers(v: Any) -> bool:
    return isinstance(v, float) or (isinstance(v, list) and all(map(numbers, v)))


def near(v: Any) -> Any:
    return pytest.approx(v, rel=1e-5, abs=1e-6) if not isinstance(v, list) or not isinstance(v[0], list) else list(map(near, v))


@pytest.fixture
def home(tmp_path: pathlib.Path) -> pathlib.Path:
    (tmp_path / "program.py").write_text(PROGRAM)
    return tmp_path


@pytest.mark.parametrize("name", NAMES)
def test_the_second_process_captures_nothing(processes: Processes, home: pathlib.Path, name: str) -> None:
    first = run(processes, home, name)
    assert first["captures"] == first["entries_kept"] >= (1 if name in ONE_GRAPH else 2), first["why"]
    second = run(processes, home, name)
    assert second.get("captures") is None and second["entries_from_disk"] == first["captures"], second["why"]
    assert second.get("side_exits") == first.get("side_exits") and bool(first.get("side_exits")) == (name == "leaving")


@pytest.mark.parametrize(("old", "new"), [("y.relu() + 1", "y.relu() + 2"), ("y = x * 2\n    stop", "y = x * 3\n    stop")])
def test_edits_on_either_side_of_a_break_are_seen(processes: Processes, home: pathlib.Path, old: str, new: str) -> None:
    run(processes, home, "prints")
    (home / "program.py").write_text(PROGRAM.replace(old, new))
    counted = run(processes, home, "prints")
    assert counted["captures"] > 1 and "entries_from_disk" not in counted


def test_two_versions_side_by_side(processes: Processes, home: pathlib.Path) -> None:
    other = PROGRAM.replace("y = x.sin()", "y = x.cos()")
    for text, captures in ((PROGRAM, True), (other, True), (PROGRAM, False), (other, False)):
        (home / "program.py").write_text(text)
        assert bool(run(processes, home, "branch").get("captures")) == captures


def test_a_callee_that_was_replaced_is_seen_behind_the_break(processes: Processes, home: pathlib.Path) -> None:
    text = PROGRAM + "\ndef late(x):\n    y = x + 1\n    stop('now')\n    return helper(y)\ndef helper(y):\n    return y * 2\n"
    (home / "program.py").write_text(text)
    run(processes, home, "late")
    patched = RUN.format(name="late", module="program").replace("fresh =", "program.helper = lambda y: y * 5\nfresh =")
    found = processes.fresh(patched, str(home))
    assert found["answer"][0] == found["answer"][1] and found["counters"]["captures"] == 1  # the part before the break is as it was


ELSEWHERE = """
import types, pliant, program
x = torch.linspace(-1, 1, 12).reshape(4, 3)
names = dict(vars(program))
{change}
f = types.FunctionType(program.late.__code__, names, "late")
answer = [f(x).tolist(), pliant.compile(f, strict=True)(x).tolist(), names.get("seen"), program.seen]
"""


def test_what_goes_on_reads_the_namespace_of_its_own_function(processes: Processes, home: pathlib.Path) -> None:
    """A function with the code of another and a namespace that is a copy of the module's."""
    text = PROGRAM + "\nseen = 0\ndef late(x):\n    global seen\n    y = x + 1\n    pliant.graph_break()\n"
    text += "    seen += 1\n    return helper(y)\n"
    (home / "program.py").write_text(text + "def helper(y):\n    return y * 2\ndef other(y):\n    return y * 5\n")
    processes.fresh("import pliant, program\nanswer = pliant.compile(program.late)(torch.ones(4, 3)).tolist()", str(home))
    for change in ("", "names['helper'] = program.other"):
        found = processes.fresh(ELSEWHERE.format(change=change), str(home))
        eager, compiled, seen, modules = found["answer"]
        assert eager == compiled and (seen, modules) == (2, 0), found["why"]


def test_torn_entries_are_captured_again(processes: Processes, home: pathlib.Path) -> None:
    first = run(processes, home, "inlined")
    entries = sorted(p for p in (home / "cache").rglob("*-*-*"))
    assert len(entries) == first["captures"]
    for i, path in enumerate(entries):
        good = path.read_bytes()
        path.write_bytes((good[: len(good) // 2], b"", good[:60] + bytes([good[60] ^ 1]) + good[61:])[i % 3])
        counted = run(processes, home, "inlined")
        assert counted["captures"] == 1 and counted["entries_from_disk"] == first["captures"] - 1
    assert run(processes, home, "inlined").get("captures") is None


LEARNING = """
import pliant, learning
f = pliant.compile(learning.f, strict=True)
answer = []
for n in {ns}:
    learning.box.n = n
    answer.append(f(torch.ones(3, dtype={dtype}))[0].item())
"""


def test_what_was_learned_comes_along(processes: Processes, home: pathlib.Path) -> None:
    """Which sizes change is known at once in a process that captures something else."""
    head = "import pliant\nclass Box: pass\nbox = Box()\nbox.n = 3\n"
    (home / "learning.py").write_text(head + "def f(x):\n    y = x * box.n\n    pliant.graph_break()\n    return y + box.n\n")
    first = processes.fresh(LEARNING.format(ns=[3, 4, 5], dtype="torch.float32"), str(home))
    assert first["answer"] == [6.0, 8.0, 10.0]
    second = processes.fresh(LEARNING.format(ns=[4, 6, 7, 8], dtype="torch.float64"), str(home))
    assert second["answer"] == [8.0, 12.0, 14.0, 16.0]
    assert first["counters"]["captures"] == 4 and second["counters"]["captures"] == 2, second["why"]


RATIONED = """
import pliant, learning
from pliant.jit import rations
rations.FREE, rations.SHARE = 1, 1e9
f = pliant.compile(learning.f, background=True)
answer = [f(torch.ones(3), what)[0].sum().item() for what in {whats}]
pliant.codegen.background.background.synchronize()
"""


def test_rations_that_were_used_up_come_along(processes: Processes, home: pathlib.Path) -> None:
    """What CPython ran in the first process is not captured in the second one for nothing."""
    lines = ["import pliant", "def f(x, what):", "    y = x * 2", "    pliant.graph_break()"]
    (home / "learning.py").write_text("\n".join([*lines, "    return y + len(str(what)) if what else y - 1, what"]))
    first = processes.fresh(RATIONED.format(whats=[1, 2.5, "three", None]), str(home))
    assert first["answer"] == [9.0, 15.0, 21.0, 3.0] and first["counters"]["captures"] == 3, first["why"]
    second = processes.fresh(RATIONED.format(whats=[None, 1, (4, 5), b"6", True]), str(home))
    assert second["answer"] == [3.0, 9.0, 24.0, 18.0, 18.0] and second["counters"]["captures"] == 1, second["why"]


PLAIN = """
import pliant, learning
f = pliant.compile(learning.f)
answer = [f(torch.arange(float(n)), n) for n in range(2, 6)]
"""


def test_what_pieces_are_worth_comes_along(processes: Processes, home: pathlib.Path) -> None:
    """A second process leaves to CPython what the first one has left to it, and nothing else: no capture is missing."""
    lines = ["import pliant", "def f(x, n):", "    s = 0"]
    for i in range(20):
        lines += ["    pliant.graph_break()", f"    s = s + float(({'x * 2 + ' * 12} x).sum())" if i % 4 == 0 else f"    s = s + {i}"]
    (home / "learning.py").write_text("\n".join([*lines, "    return s"]))
    first = processes.fresh(PLAIN, str(home))
    second = processes.fresh(PLAIN, str(home))
    assert first["answer"] == second["answer"] and "captures" not in second["counters"], second["why"]
    assert not [w for w in first["why"] + second["why"] if "CPython goes on" in w]


def test_many_processes_at_once_with_pruning(processes: Processes, home: pathlib.Path) -> None:
    job = {"code": RUN.format(name="ragged", module="program"), "path": str(home)}
    prune = "import os, time\nfrom pliant.jit.persist import inventory\nanswer = []\n"
    prune += "for _ in range(40):\n    answer.append(inventory.prune(None, 0)[0])\n    time.sleep(0.01)\n"
    for _ in range(2):
        *found, pruned = processes.run([job] * 3 + [{"code": prune, "path": str(home)}])
        assert not pruned["error"], pruned["error"]
        for f in found:
            assert not f["error"], f["error"]
            assert [a[-1] for a in f["answer"][0]] == [b[-1] for b in f["answer"][1]]
            assert f["counters"].get("entries_broken") is None
    run(processes, home, "ragged")
    assert run(processes, home, "ragged").get("captures") is None
