"""Entries of programs over wrappers (tensors of a class with a `__torch_dispatch__`) and recurrent networks, for other processes."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Iterator

import pytest

from tests.jit.processes import Processes

CLASSES = """
import functools
import torch
from torch.utils._pytree import tree_map_only

def checked(fn):
    @functools.wraps(fn)
    def wrapper(self, *args):
        fn(self, *args)
    return wrapper

class Scaled(torch.Tensor):
    @staticmethod
    def __new__(cls, inner, scale):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)
    @checked
    def __init__(self, inner, scale):
        self.inner, self.scale = inner, scale
    def __tensor_flatten__(self):
        return ["inner"], self.scale
    @classmethod
    def __tensor_unflatten__(cls, parts, scale, size, stride):
        return cls(parts["inner"], scale)
    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        first = next(a for a in args if isinstance(a, Scaled))
        out = func(*tree_map_only(Scaled, lambda a: a.inner * a.scale, args), **(kwargs or {}))
        return cls(out, 1.0 * 1)

TOLD = []
class Told(torch.Tensor):
    @classmethod
    def __torch_function__(cls, fn, types, args=(), kwargs=None):
        TOLD.append(getattr(fn, "__name__", str(fn)))
        return super().__torch_function__(fn, types, args, kwargs or {})
"""
PROGRAM = """
import torch
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from classes import Scaled, Told

def given(n):
    return Scaled(torch.arange(12.0).reshape(n, -1), 2.0)
def used(x):
    return (x * 3).sin()
def made(x):
    return (Scaled(x.inner, 4.0) + x).inner + 1

torch.manual_seed(0)
gru, lstm = torch.nn.GRU(4, 5, batch_first=True), torch.nn.LSTM(4, 5, batch_first=True)
def packed(x, n):
    return pad_packed_sequence(gru(pack_padded_sequence(x, n, batch_first=True))[0], batch_first=True)[0]
def plain(x, n):
    return lstm(x)[0]
def number(x):
    return torch.tensor([x, x]) * 2
"""
WRAPPERS = """
import pliant, program
def plain(x):
    return x.inner * x.scale if isinstance(x, program.Scaled) else x
answer = []
for fn in (pliant.compile(program.{name}, strict=True), program.{name}):
    answer.append([v for n in (3, 4, 2) for v in plain(fn(program.given(n))).flatten().tolist()])
"""
TRAINED = """
import pliant, program
answer = []
for fn in (pliant.compile(program.{name}, strict=True), program.{name}):
    found = []
    for t in (4, 6):
        x = torch.linspace(0, 1, 12 * t).reshape(3, t, 4).requires_grad_()
        fn(x, torch.tensor([t, 2, 1])).sum().backward()
        found += x.grad.flatten().tolist()
    answer.append(found)
"""
TELLING = """
import classes, pliant, program
answer = []
for fn in (pliant.compile(program.number, strict=True), program.number):
    classes.TOLD.clear()
    found = fn(torch.tensor(2.0).as_subclass(classes.Told))
    answer.append([*found.tolist(), len(classes.TOLD)])
"""


@pytest.fixture(scope="module")
def processes() -> Iterator[Processes]:
    p = Processes()
    yield p
    p.close()


@pytest.fixture
def home(tmp_path: pathlib.Path) -> pathlib.Path:
    for name, text in (("classes", CLASSES), ("program", PROGRAM)):
        path = tmp_path / f"{name}.py"
        path.write_text(text)
        os.utime(path, (0, 1_600_000_000))  # what was written just now is not relied on
    return tmp_path


def once_captured(processes: Processes, home: pathlib.Path, script: str, rel: float) -> None:
    """The first process captures, the second one finds the entry."""
    for captures in (1, None):
        found = processes.fresh(script, str(home))
        got, want = found["answer"]
        assert got == pytest.approx(want, rel=rel, abs=1e-6)
        assert found["counters"].get("captures") == captures, found["why"]


@pytest.mark.parametrize("name", ["used", "made"])
def test_wrappers(processes: Processes, home: pathlib.Path, name: str) -> None:
    once_captured(processes, home, WRAPPERS.format(name=name), 1e-5)
    (home / "classes.py").write_text(CLASSES.replace("a.inner * a.scale", "a.inner - a.scale"))
    found = processes.fresh(WRAPPERS.format(name=name), str(home))
    got, want = found["answer"]
    assert got == pytest.approx(want, rel=1e-5, abs=1e-6) and found["counters"]["captures"] == 1


def test_writing_an_entry_tells_no_class(processes: Processes, home: pathlib.Path) -> None:
    for _ in range(2):
        got, want = processes.fresh(TELLING, str(home))["answer"]
        assert got == want


@pytest.mark.parametrize("name", ["packed", "plain"])
def test_recurrent_networks(processes: Processes, home: pathlib.Path, name: str) -> None:
    once_captured(processes, home, TRAINED.format(name=name), 1e-4)
