"""Entries that one process leaves to another: found where nothing changed, and never where anything did that the program shows."""

from __future__ import annotations

import itertools
import math
import os
import pathlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from pliant.jit.persist import environment, names, values
from pliant.jit.persist.frames import Frame
from tests.jit.processes import Processes

HELPER = """
import enum
import functools
import os
import torch

SCALE = 2.0
class Kind(enum.Enum):
    A = 3
class Base:
    def shift(self, x):
        return x + 1
class Other:
    def shift(self, x):
        return x + 5
class Config(Base):
    width = 4
    def apply(self, x):
        return self.shift(x) * self.width
def inner(x, by=7):
    return x * SCALE + by
def named(d):
    return sum(d.values())
@functools.lru_cache
def asked():
    return os.environ.get("PLIANT_TEST_ASKED", "") == "1"
def twice(fn):
    @functools.wraps(fn)
    def wrapper(x):
        return fn(x) + fn(x)
    return wrapper
@twice
def decorated(x):
    return x.sin()
"""
PROGRAM = """
import math
import torch
import torch.nn.functional as F
import helper

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.act = helper.inner
        self.config = helper.Config()
        self.register_buffer("w", torch.arange(6.0).reshape(2, 3))
    def forward(self, x):
        y = self.config.apply(self.act(x)) + helper.Kind.A.value
        y = math.sqrt(4.0) * F.relu(y @ self.w) + helper.decorated(x).sum() + x.abs().mean()
        if helper.asked():
            y = y - 100
        return y

x = torch.tensor([[1.0, -2.0], [0.5, 3.0], [2.0, 2.0]])
"""
CALL = """
import pliant
import program
net = program.Net()
{before}
with torch.no_grad():
    got, want = pliant.compile(net, strict=True{options})(program.x{after}), net(program.x{after})
answer = [got.flatten().tolist(), want.flatten().tolist()]
"""


@pytest.fixture(scope="module")
def processes() -> Iterator[Processes]:
    p = Processes()
    yield p
    p.close()


def write(home: pathlib.Path) -> pathlib.Path:
    (home / "helper.py").write_text(HELPER)
    (home / "program.py").write_text(PROGRAM)
    return home


@pytest.fixture
def home(tmp_path: pathlib.Path) -> pathlib.Path:
    return write(tmp_path)


@dataclass
class Prepared:
    """A folder with the program, and what the one process left that called it."""

    home: pathlib.Path
    result: list[float]
    entry: pathlib.Path


@pytest.fixture(scope="module")
def first_call(processes: Processes, tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    home = write(tmp_path_factory.mktemp("prepared"))
    counted, result = call(processes, home)
    assert (counted.get("captures"), counted.get("entries_kept")) == (1, 1)
    (entry,) = kept(home)
    return Prepared(home, result, entry)


@pytest.fixture
def prepared(first_call: Prepared) -> Iterator[Prepared]:
    yield first_call
    write(first_call.home)
    for path in kept(first_call.home):
        if path != first_call.entry:
            path.unlink()


Called = tuple[dict[str, int], list[float]]


def call(processes: Processes, home: pathlib.Path, before: str = "", options: str = "", after: str = "") -> Called:
    """Compile and call the program in a fresh process: what was counted, and the result, which is eager's."""
    found = processes.fresh(CALL.format(before=before, options=options, after=after), str(home))
    got, want = found["answer"]
    assert got == pytest.approx(want, rel=1e-5, abs=1e-6), found["why"]
    return found["counters"], want


def kept(home: pathlib.Path) -> list[pathlib.Path]:
    return [p for p in (home / "cache").rglob("*") if "-" in p.name]


def test_another_process_captures_nothing(processes: Processes, prepared: Prepared) -> None:
    for after in ("", "[:2]"):  # another size: the entry serves it, too
        counted, result = call(processes, prepared.home, after=after)
        assert (counted.get("captures"), counted.get("entries_from_disk")) == (None, 1)
        assert result == prepared.result[: len(result)] or after


def test_files_written_anew_are_read(processes: Processes, prepared: Prepared) -> None:
    write(prepared.home)  # the same content, at another time
    counted, _ = call(processes, prepared.home)
    assert (counted.get("captures"), counted.get("entries_from_disk")) == (None, 1)


EDITS = {
    "an inlined function": ("helper.py", "return x * SCALE + by", "return x * SCALE - by"),
    "a global": ("helper.py", "SCALE = 2.0", "SCALE = 3.0"),
    "a default": ("helper.py", "by=7", "by=8"),
    "a class attribute": ("helper.py", "width = 4", "width = 5"),
    "a base class": ("helper.py", "class Config(Base)", "class Config(Other)"),
    "a member of an enumeration": ("helper.py", "A = 3", "A = 4"),
    "a decorator": ("helper.py", "return fn(x) + fn(x)", "return fn(x) - fn(x)"),
    "what is decorated": ("helper.py", "return x.sin()", "return x.cos()"),
    "the program": ("program.py", "x.abs().mean()", "x.abs().sum()"),
    "how an object is made": ("program.py", "self.act = helper.inner", "self.act = lambda x: x * 3"),
    "a buffer's shape": ("program.py", "torch.arange(6.0).reshape(2, 3)", "torch.arange(8.0).reshape(2, 4)"),
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_is_seen(processes: Processes, prepared: Prepared, edit: str) -> None:
    name, old, new = EDITS[edit]
    text = (prepared.home / name).read_text()
    assert old in text
    (prepared.home / name).write_text(text.replace(old, new))
    counted, after = call(processes, prepared.home)
    assert counted.get("captures") == 1 and "entries_from_disk" not in counted
    assert after != prepared.result


PATCHES = {
    "a function": "program.helper.inner = lambda x: x * 9; net.act = program.helper.inner",
    "a function's code": "program.helper.inner.__code__ = (lambda x, by=0: x * 9 + by).__code__",
    "a function's defaults": "program.helper.inner.__defaults__ = (70,)",
    "a method": "program.helper.Config.shift = lambda self, x: x - 1",
    "a method of the base": "program.helper.Base.shift = lambda self, x: x - 1",
    "an attribute of a class": "program.helper.Config.width = 40",
    "an attribute of an instance": "net.config.width = 41",
    "a global": "program.helper.SCALE = 5.0",
    "a function of torch": "import torch.nn.functional as F; F.relu = lambda x: x * 2",
    "a C function of torch": "torch.sin = torch.cos; torch.Tensor.sin = torch.Tensor.cos",
    "a C function": "import math; math.sqrt = math.exp",
    "a method of tensors": "torch.Tensor.abs = lambda x: x * x",
    "forward": "import types; net.forward = types.MethodType(lambda self, x: x * 2, net)",
    "a hook": "net.register_forward_hook(lambda m, a, out: out * 2)",
    "another class": "net.__class__ = type('Sub', (program.Net,), {'forward': lambda self, x: x * 4})",
    "what a question was answered": "import os; os.environ['PLIANT_TEST_ASKED'] = '1'",
}


@pytest.mark.parametrize("patch", PATCHES)
def test_a_patch_before_the_first_call_is_seen(processes: Processes, prepared: Prepared, patch: str) -> None:
    counted, after = call(processes, prepared.home, before=PATCHES[patch])
    assert "entries_from_disk" not in counted
    assert after != prepared.result


@pytest.mark.parametrize(
    ("before", "options"),
    [
        ("torch.set_default_dtype(torch.float64)", ""),
        ("torch.use_deterministic_algorithms(True)", ""),
        ("torch.backends.mkldnn.set_flags(False)", ""),
        ("", ", dynamic=False"),
        ("", ", backend='aten'"),
        ("pliant.skip(program.helper.named)", ""),
    ],
)
def test_settings_are_part_of_the_name(processes: Processes, prepared: Prepared, before: str, options: str) -> None:
    counted, _ = call(processes, prepared.home, before=before, options=options)
    assert counted.get("captures") == 1 and "entries_from_disk" not in counted


def test_guards_decide_among_entries(processes: Processes, prepared: Prepared) -> None:
    doubled = "net = net.double(); program.x = program.x.double()"
    counted, _ = call(processes, prepared.home, before=doubled)
    assert counted.get("captures") == 1
    for before in ("", doubled):
        counted, _ = call(processes, prepared.home, before=before)
        assert (counted.get("captures"), counted.get("entries_from_disk")) == (None, 1)


def test_what_is_torn_or_open_to_others_is_not_read(processes: Processes, home: pathlib.Path) -> None:
    call(processes, home)
    spoilers = [lambda p, good: p.write_bytes(good[: len(good) // 2]), lambda p, good: p.write_bytes(b"")]
    spoilers += [lambda p, good: p.write_bytes(good[:200] + bytes([good[200] ^ 1]) + good[201:]), lambda p, good: p.chmod(0o666)]
    for spoil in spoilers:
        for entry in kept(home):
            spoil(entry, entry.read_bytes())
        counted, _ = call(processes, home)
        assert counted.get("captures") == 1


def test_lost_machine_code_is_made_again(processes: Processes, home: pathlib.Path) -> None:
    call(processes, home)
    for path in (home / "cache").rglob("*"):
        if path.is_file() and "-" not in path.name:
            os.unlink(path)
    counted, _ = call(processes, home)
    assert counted.get("captures") == 1
    counted, _ = call(processes, home)
    assert counted.get("captures") is None


def test_many_may_write_at_once(processes: Processes, home: pathlib.Path) -> None:
    job = {"code": CALL.format(before="", options="", after=""), "path": str(home)}
    for found in processes.run([job] * 4):
        assert not found["error"] and found["answer"][0] == pytest.approx(found["answer"][1], rel=1e-5)
    counted, _ = call(processes, home)
    assert (counted.get("captures"), counted.get("entries_from_disk")) == (None, 1)


REFUSED = {
    "the order of a set": "def f(x):\n    for name in {'a', 'b', 'c'}:\n        x = x * 2 + len(name)\n    return x",
    "an address": "def f(x):\n    return x + id(f) % 7",
    "a hash": "def f(x):\n    return x + hash('text') % 7",
    "a class of its own": "def f(x):\n    class A:\n        k = 2\n    return x * A().k",
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_differs_between_processes_is_not_kept(processes: Processes, home: pathlib.Path, name: str) -> None:
    (home / "refused.py").write_text(REFUSED[name])
    code = "import pliant, refused\nx = torch.ones(3)\nassert pliant.compile(refused.f)(x).tolist() == refused.f(x).tolist()"
    for _ in range(2):
        counted = processes.fresh(code, str(home))["counters"]
        assert counted.get("captures") == 1 and "entries_from_disk" not in counted
    assert not kept(home)


@pytest.mark.parametrize("backend", ["aot_eager", "eager"])
def test_graphs_of_other_backends_are_not_kept(processes: Processes, home: pathlib.Path, backend: str) -> None:
    (home / "other.py").write_text("def f(x):\n    return (x * 2).sum()")
    code = f"import pliant, other\nf = pliant.compile(other.f, backend={backend!r})\n"
    code += "f(torch.ones(3)), f(torch.ones(3, requires_grad=True)).backward()"
    counted = processes.fresh(code, str(home))["counters"]
    assert counted.get("captures") == 2 and "entries_from_disk" not in counted
    assert not kept(home)


TWINS = """
import torch
def make(k):
    return lambda x: x * k
f, g = make(2.0), make(3.0)
def same(x, a, b):
    return a(x) + (b(x) if a is b else 10 * b(x))
"""


def test_objects_stay_apart_and_the_same(processes: Processes, home: pathlib.Path) -> None:
    (home / "twins.py").write_text(TWINS)
    pairs = list(itertools.product("fg", "fg"))
    code = "import pliant\nfrom twins import *\nargs = (torch.ones(3), {0}, {1})\n"
    code += "answer = [pliant.compile(same)(*args).tolist(), same(*args).tolist()]"
    for a, b in [*pairs, *reversed(pairs)]:
        got, want = processes.fresh(code.format(a, b), str(home))["answer"]
        assert got == want


def test_why_a_guard_failed_is_told_and_learned_from(processes: Processes, home: pathlib.Path) -> None:
    (home / "counting.py").write_text("class Box: pass\nbox = Box()\nbox.n = 3\ndef f(x):\n    return x * box.n\n")
    setting = "import pliant, counting\nfrom pliant import events\nf = pliant.compile(counting.f)\nx = torch.ones(3)\n"
    first = processes.fresh(f"{setting}answer = f(x).tolist()", str(home))
    assert first["counters"].get("entries_kept") == 1
    changing = "answer = []\nfor n in (3, 4, 5, 6):\n    counting.box.n = n\n    answer += f(x).tolist()[:1]\n"
    reasons = "answer.append([e.fields['reasons'] for e in events.events('recompile')])"
    found = processes.fresh(setting + changing + reasons, str(home))
    *values, (told,) = found["answer"]
    assert values == [3.0, 4.0, 5.0, 6.0]
    assert found["counters"]["entries_from_disk"] == 1 and found["counters"]["captures"] == 1  # the second one is for every n
    assert "n: EQ_MATCH expected 3, saw 4" in told[0]


ALIKE = """
import contextvars
import torch
SAID = contextvars.ContextVar("SAID")
SAID.set(0.0)
def given(k=2, *, j=0.0):
    return k, j
def default(x):
    return x.to(torch.int64) * given()[0]
def keyword(x):
    return x * given()[1]
def variable(x):
    return x * SAID.get()
"""
LIKE = {
    "default": ("given.__defaults__ = (2.0,)", "given.__defaults__ = (True,)"),
    "keyword": ("given.__kwdefaults__['j'] = -0.0", "given.__kwdefaults__['j'] = 0"),
    "variable": ("SAID.set(-0.0)", "SAID.set(0)"),
}


@pytest.mark.parametrize("name", LIKE)
def test_what_is_equal_is_not_alike(processes: Processes, home: pathlib.Path, name: str) -> None:
    (home / "alike.py").write_text(ALIKE)
    code = "import pliant\nfrom alike import *\n{}\nx = torch.ones(3)\n"
    code += f"answer = [repr((v, v.signbit(), v.dtype)) for v in (pliant.compile({name})(x), {name}(x))]"
    for change in ("", *LIKE[name], ""):
        got, want = processes.fresh(code.format(change), str(home))["answer"]
        assert got == want, change


TRAINING = """
import torch
def heads(x, w):
    h = torch.tanh(x @ w)
    return (h * h).sum(), h.sigmoid().mean()
def noisy(x, w):
    return torch.nn.functional.dropout(x @ w, 0.5).sum()
def scaled(x, w, k=torch.tensor(2.0)):
    return ((x @ w) * torch.tensor([1.0, -1.0, 0.5])).relu().sum() * k
"""
TRAINING += """
def in_turn(x, w):
    a = (x @ w).sin()
    b = a.exp()
    return a, b, (a * b).sum()
"""
STEP = """
import pliant, training
def step(fn):
    torch.manual_seed(0)
    x, w = torch.randn(4, 3, requires_grad=True), torch.randn(3, 3, requires_grad=True)
    out = fn(x, w)
    {how}
    return [v.flatten().tolist() for v in (*(out if type(out) is tuple else (out,)), *found) if v is not None] + [v is None for v in found]
answer = [step(pliant.compile(training.{name}, strict=True)), step(training.{name})]
"""
STEPS = {
    "all gradients": ("heads", "sum(out).backward(); found = (x.grad, w.grad)"),
    "gradients of one result": ("heads", "out[1].backward(); found = (x.grad, w.grad)"),
    "gradients of gradients": (
        "heads",
        "g, = torch.autograd.grad(out[0], x, create_graph=True); g.pow(2).sum().backward(); found = (x.grad, w.grad)",
    ),
    "random numbers": ("noisy", "out.backward(); found = (x.grad, w.grad)"),
    "constant tensors": ("scaled", "out.backward(); found = (x.grad, w.grad)"),
    "data of another layout": ("heads", "w.data = (w.data * 2).t().contiguous().t(); sum(out).backward(); found = (x.grad, w.grad)"),
    "no gradients asked for": ("scaled", "found = ()"),
    "gradients of results that others come from": ("in_turn", "found = torch.autograd.grad(out[2], [*out[:2], x, w], retain_graph=True)"),
    "the same, twice": (
        "in_turn",
        "g, = torch.autograd.grad(out[2], out[0], create_graph=True); g.sum().backward(); found = (x.grad, w.grad)",
    ),
}


@pytest.mark.parametrize("name", STEPS)
def test_gradients(processes: Processes, home: pathlib.Path, name: str) -> None:
    (home / "training.py").write_text(TRAINING)
    fn, how = STEPS[name]
    for captures in (1, None):
        found = processes.fresh(STEP.format(name=fn, how=how), str(home))
        got, want = found["answer"]
        assert len(got) == len(want) and all(a == pytest.approx(b, rel=1e-5, abs=1e-6) for a, b in zip(got, want, strict=True))
        assert found["counters"].get("captures") == captures, found["why"]


def test_hints_that_lead_back_lead_nowhere() -> None:
    """Two objects that are each found in the other have no place of their own."""
    home: Any = None  # asked for nothing here
    one: dict = {}
    other = {"one": one}
    one["other"] = other
    table = names.Writer(Frame(test_hints_that_lead_back_lead_nowhere, (), home))
    table.hint(one, "key", other, "one")
    table.hint(other, "key", one, "other")
    with pytest.raises(values.NotPortable):
        table.refer(one)


def test_what_pliant_says_of_functions_itself(monkeypatch):
    """It is the same in each process. What the program says keeps entries off the disk, also of the same function."""
    from pliant.interpret import policy

    def fn():
        return 1

    monkeypatch.setattr(policy, "_by_user", {})  # what other tests of this process said
    monkeypatch.setattr(policy, "_own", set())
    assert not policy.by_the_program()
    policy.set_kind(fn, "inline", own=True)
    assert not policy.by_the_program()
    policy.set_kind(fn, "skip")
    assert policy.by_the_program()
    told = environment.said()
    import torch

    for i, of in enumerate((torch.sub, torch.nn.functional.linear, torch.nn.Linear, math.sqrt)):  # `torch.sub` knows no module
        policy.set_kind(of, "skip")
        assert told is not None and len(environment.said()) == len(told) + i + 1
    policy.set_kind([1].append, "skip")
    assert environment.said() is None
