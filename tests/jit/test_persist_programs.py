"""Entries of whole steps on the disk (optimizers, random numbers, sets, NumPy, settings): a second process captures nothing."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pytest

from tests.jit.processes import Processes

PROGRAMS = """
import random
import numpy as np
import torch
import torch.nn.functional as F

def adam(c):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    def step(x):
        loss = model(x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()
    step = c(step)
    return [step(torch.randn(n, 3)).item() for n in (2, 3, 5)] + [p.sum().item() for p in model.parameters()]

def two(c):
    # the same parameters at other places of the optimizer: another process may be given these instead
    torch.manual_seed(0)
    a, b = (torch.nn.Parameter(torch.randn(3)) for _ in range(2))
    optimizer = torch.optim.SGD([a, b] if IN_ORDER else [b, a], lr=0.1, momentum=0.9)
    def step(x):
        (x * a - b * 2).pow(2).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    step = c(step)
    for _ in range(3):
        step(torch.randn(3))
    return [*a.tolist(), *b.tolist()]

def one_for_two(c):
    # a state that is found by one tensor in the first process, and by another in the second
    torch.manual_seed(0)
    a, b = torch.nn.Parameter(torch.ones(3)), torch.nn.Parameter(torch.ones(3))
    state = {(a if IN_ORDER else b): 2.0}
    def step(x):
        return (x * state.get(a, 7.0) + x * state.get(b, 5.0)).sum()
    step = c(step)
    return [step(torch.full((n,), 3.0)).item() for n in (2, 3)]

def freed(c):
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    def step(x):
        hidden = model(x)
        loss = hidden.pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss, hidden  # with their history, which is gone
    step = c(step)
    told = []
    for n in (2, 3):
        loss, hidden = step(torch.ones(n, 3))
        told += [loss.item(), float(loss.requires_grad), float(hidden.sum())]
        try:
            loss.backward()
        except RuntimeError as e:
            told.append(float("second time" in str(e)))
    return told

def functional(c):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1)).eval()
    def step(x, scale):
        given = {name: p * scale for name, p in model.named_parameters()}
        loss = torch.func.functional_call(model, given, (x,)).pow(2).mean()
        return loss + sum(g.sum() for g in torch.autograd.grad(loss, given.values())).detach()
    step = c(step)
    return [step(torch.ones(n, 3), 0.5).item() for n in (2, 3)]

def draws(c):
    random.seed(3)
    np.random.seed(3)
    def f(x):
        return x * random.random() + random.randrange(10) + float(np.random.rand()) + x * random.gauss(0.0, 1.0)
    f = c(f)
    return [v for n in (2, 3, 4) for v in f(torch.ones(n)).tolist()] + [random.random(), float(np.random.rand())]

NAMES = {"a", "b", "c"}
def members(c):
    def f(x, name):
        return x * 2 if name in NAMES and len(NAMES) == 3 else x - 1
    f = c(f)
    return [v for n, name in ((2, "a"), (3, "a"), (2, "z")) for v in f(torch.ones(n), name).tolist()]

def numpys(c):
    def f(a, x):
        return x * float(np.sqrt(a).sum() / 3) + torch.from_numpy(np.clip(a, 0, 1)).sum()
    f = c(f)
    return [v for n in (2, 3) for v in f(np.arange(n, dtype=np.float64), torch.ones(n)).tolist()]

def numbers_in_lists(c):
    def f(rows, x):
        return torch.tensor(rows) + x[rows].sum() if rows else x
    f = c(f)
    def g(rows, x):  # a short one is an input since another was there
        return torch.tensor(rows).sum() + len(rows)
    g = c(g)
    h = c(lambda rows, x: x * sum(rows) + max(rows) - min(rows))
    x = torch.arange(50.0)
    said = [h(rows, x).sum().item() for rows in ([*range(2, 12)], [*range(3, 20)], [0.5] * 12, [1.5, 2.5] * 8)]
    return said + [f(list(range(n)), x).sum().item() for n in (12, 20, 30, 0, 5)] + [g([n] * n, x).item() for n in (3, 4, 6, 5)]

def backends(c):
    def f(q):
        return F.scaled_dot_product_attention(q, q, q) * (2 if torch.backends.mha.get_fastpath_enabled() else 3)
    f = c(f)
    return [v for n in (2, 3) for v in f(torch.ones(1, n, 4)).flatten().tolist()]

def loaded(c):
    # what it gives back is of a class that is made of one without a name, `namedtuple("IncompatibleKeys", ...)`
    torch.manual_seed(0)
    model, other = torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)
    def f(x):
        keys = model.load_state_dict(other.state_dict())
        return model(x) + len(keys.missing_keys)
    f = c(f)
    with torch.no_grad():
        return [f(torch.ones(n, 3)).sum().item() for n in (2, 3)]

def distributions(c):
    def f(logits):
        d = torch.distributions.Categorical(logits=logits)
        return d.entropy() + d.probs.sum(-1)
    f = c(f)
    return [v for n in (2, 3) for v in f(torch.arange(4.0).repeat(n, 1)).tolist()]
"""
RUN = """
import pliant, programs
programs.IN_ORDER = {in_order}
answer = [programs.{name}(lambda f: pliant.compile(f, strict=True, background=False)), programs.{name}(lambda f: f)]
"""
NAMES = ("adam", "freed", "functional", "two", "one_for_two", "draws", "members", "numpys", "numbers_in_lists", "backends", "distributions",
         "loaded")  # fmt: skip


@pytest.fixture(scope="module")
def processes() -> Iterator[Processes]:
    found = Processes()
    yield found
    found.close()


def run(processes: Processes, home: pathlib.Path, name: str, in_order: bool = True) -> dict:
    found = processes.fresh(RUN.format(name=name, in_order=in_order), str(home))
    got, want = found["answer"]
    assert got == pytest.approx(want, rel=1e-5, abs=1e-6)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_a_second_process_captures_nothing(processes: Processes, tmp_path: pathlib.Path, name: str) -> None:
    (tmp_path / "programs.py").write_text(PROGRAMS)
    first = run(processes, tmp_path, name)
    assert first["counters"]["captures"] >= 1 and "entries_not_kept" not in first["counters"], first["why"]
    second = run(processes, tmp_path, name)
    assert second["counters"].get("captures") is None, second["why"]
    assert second["counters"]["entries_from_disk"] == first["counters"]["captures"]


@pytest.mark.parametrize("name", ["two", "one_for_two"])
def test_which_tensor_is_a_key(processes: Processes, tmp_path: pathlib.Path, name: str) -> None:
    """The second process has other tensors at the places that the first one's entries name."""
    (tmp_path / "programs.py").write_text(PROGRAMS)
    run(processes, tmp_path, name)
    run(processes, tmp_path, name, in_order=False)
    found = run(processes, tmp_path, name)
    assert found["counters"].get("captures") is None, found["why"]


INSTALLED = """
import pliant, torch, broken
with pliant.install():
    f = torch.compile(broken.f)
    answer = [f(torch.ones(n)).tolist() for n in (2, 3)]
    from torch._dynamo.utils import counters
    again = torch.compile(broken.f)(torch.ones(2))
    answer += [counters["stats"]["unique_graphs"], counters["frames"]["ok"], sum(counters["graph_break"].values())]
"""
BROKEN = """
import torch
def f(x):
    y = x * 2
    torch._dynamo.graph_break()
    return y.sin() + 1
"""


def test_in_the_place_of_torch_compile(processes: Processes, tmp_path: pathlib.Path) -> None:
    """TorchDynamo's counters hear of entries from the disk, and keep nobody from it."""
    (tmp_path / "broken.py").write_text(BROKEN)
    first, second = (processes.fresh(INSTALLED, str(tmp_path)) for _ in range(2))
    assert first["answer"][:2] == second["answer"][:2]
    assert first["counters"]["captures"] >= 2 and second["counters"].get("captures") is None, second["why"]
    assert second["answer"][2] >= 2 and second["answer"][3] >= 2 and second["answer"][4] >= 1


MODELS = """
import gc, pliant, torch, models
answer = []
for k in range(4):
    torch.manual_seed(k)
    model = models.Net()
    compiled = pliant.compile(model)
    for n in (2, 3):
        answer.append(torch.allclose(compiled(torch.ones(n, 3)), model(torch.ones(n, 3)), atol=1e-5))
    from pliant.codegen.background import background
    del model, compiled
    gc.collect()
    background.synchronize()
"""
NET = """
import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.GELU(), torch.nn.Linear(4, 2))
    def forward(self, x):
        return self.layers(x).softmax(-1)
"""


def test_models_that_come_and_go(processes: Processes, tmp_path: pathlib.Path) -> None:
    """Machine code is made for the disk even if the model is gone by then: the next one of its class is found there."""
    (tmp_path / "models.py").write_text(NET)
    found = processes.fresh(MODELS, str(tmp_path))
    assert all(found["answer"])
    assert found["counters"]["captures"] == 1 and found["counters"]["entries_from_disk"] == 3


SAID = """
import said, pliant, torch
{before}
f = pliant.compile(said.f, strict=True, background=False)
answer = [f(torch.ones(n)).tolist() for n in (2, 3)]
"""
SAYS = """
import torch
def host(x):
    return x.exp() + 1
def f(x):
    return host(x * 2).sin()
"""


def test_what_the_program_says_of_functions(processes: Processes, tmp_path: pathlib.Path) -> None:
    """It is part of the name: another process that says the same captures nothing, one that does not has entries of its own."""
    (tmp_path / "said.py").write_text(SAYS)
    skip, inline = SAID.format(before="pliant.skip(said.host)"), SAID.format(before="")
    seen = []
    for code in (skip, skip, inline, inline, skip):
        found = processes.fresh(code, str(tmp_path))
        seen.append((bool(found["counters"].get("captures")), bool(found["counters"].get("graph_breaks"))))
        assert found["answer"] == [pytest.approx([0.8605] * n, abs=1e-3) for n in (2, 3)]
    assert seen == [(True, True), (False, True), (True, False), (False, False), (False, True)]
