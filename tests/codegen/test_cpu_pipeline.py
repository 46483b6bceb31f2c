"""Long chains in stages: the same bits as without them, at every length, in place, on overlapping memory; what each stage is given."""

from __future__ import annotations

import numpy as np
import pytest

from pliant.codegen.cpu import compile as cpu
from pliant.codegen.cpu import machine, schedule, stages
from pliant.codegen.cpu.schedule import Schedule, plan
from pliant.lower.loops import Buffer, Kernel, Node, Store
from tests.codegen.loop_reference import TARGETS, call, to_bf16
from tests.codegen.random_kernels import RandomKernel
from tests.codegen.test_cpu_kernels import check

pytestmark = pytest.mark.skipif("avx512" not in TARGETS, reason="stages need masks")
LENGTHS = (0, 1, 15, 16, 17, 31, 32, 33, 63, 64, 65, 95, 97, 128, 129, 200, 1000)
BEHIND = 64  # elements that are not the kernel's


@pytest.fixture(autouse=True)
def wide(monkeypatch, tmp_path):
    monkeypatch.setenv("PLIANT_CPU", "avx512")
    monkeypatch.setenv("PLIANT_CACHE_DIR", str(tmp_path))


@pytest.fixture
def everywhere(monkeypatch):
    """Every kernel that may be is cut into stages."""
    monkeypatch.setattr(stages, "AHEAD", 1e-3)
    monkeypatch.setattr(schedule, "ITERATIONS", 0)


def planned(kernel: Kernel) -> Schedule:
    to = machine.current()
    return plan(kernel, to.vector_bits, to.masks)


def op(name: str, *args: Node, dtype: str = "f32") -> Node:
    return Node(name, args, dtype)


def load(buffer: int, dtype: str) -> Node:
    return Node("load", (), dtype, (buffer, (1,), 0, ()))


def chain(dtype: str, unique: bool = True) -> Kernel:
    """Twelve operators, in halves each rounded; the first argument is written again, halfway and at the end, and one result is its own."""

    def rounded(n: Node) -> Node:
        return n if dtype == "f32" else op("cast", op("cast", n, dtype=dtype))

    x, y = (load(k, dtype) if dtype == "f32" else op("cast", load(k, dtype)) for k in range(2))
    index = op("cast", Node("index", (), "i64", (0,)))
    half = rounded(op("mul", x, Node("const", (), "f32", (0.9,))))
    for name in ("exp", "log1p", "tanh"):
        half = rounded(op(name, half))
    half = rounded(op("add", half, rounded(op("mul", half, y))))
    full = rounded(op("div", rounded(op("sqrt", op("abs", half))), rounded(op("add", y, half))))
    full = rounded(op("sub", rounded(op("tanh", op("mul", full, x))), op("mul", rounded(op("exp", full)), y)))
    full = op("where", op("lt", index, Node("const", (), "f32", (40.0,)), dtype="bool"), full, half)
    results = [n if dtype == "f32" else op("cast", n, dtype=dtype) for n in (half, full)]
    buffers = [Buffer(dtype, True, unique), Buffer(dtype, False, unique), Buffer(dtype, True, unique)]
    stores = [Store(2, (1,), 0, results[0]), Store(0, (1,), 0, results[1])]
    return Kernel(f"chain_{dtype}", ("n",), 0, buffers, stores, ("n",), {"n": 100_000})


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])
def test_stages_change_no_bit(dtype, monkeypatch):
    kernel = chain(dtype)
    assert len(planned(kernel).stages) > 2
    addresses = cpu.compile_kernels([kernel])
    monkeypatch.setattr(stages, "AHEAD", 1e9)
    assert not planned(kernel).stages
    addresses += cpu.compile_kernels([kernel])
    random = np.random.default_rng(0)
    for n in LENGTHS:
        values = random.standard_normal((3, n + BEHIND)).astype(np.float32)
        memory = [{"f32": v, "bf16": to_bf16(v), "f16": v.astype(np.float16)}[dtype] for v in values]
        staged, plain = (call(a, kernel, memory, {"n": n}) for a in addresses)
        assert staged[0] == plain[0] == 0
        for one, two, before in zip(staged[1], plain[1], memory, strict=True):
            assert one.tobytes() == two.tobytes(), n
            assert one[n:].tobytes() == before[n:].tobytes(), n


def test_memory_that_may_overlap_is_written_behind_all_loads(everywhere):
    """A result may be written early only where no load of its point, and no other store, may meet it."""
    for unique in (True, False):
        found = planned(chain("f32", unique)).stages
        places = {s.buffer: k for k, stage in enumerate(found) for s in stage.stores}
        assert places[0] == len(found) - 1 and (places[2] == len(found) - 1) != unique


def given_what_they_need(s: Schedule) -> bool:
    assert s.vector is not None
    varies = {id(n) for n in s.nodes if s.depends[id(n)] >> s.vector & 1}
    there: set[int] = set()
    stored = 0
    for stage in s.stages:
        for n in stage.nodes:
            if any(id(a) in varies and id(a) not in there for a in n.args):
                return False
            there.add(id(n))
        stored += len(stage.stores)
        if any(id(x.node) in varies and id(x.node) not in there for x in stage.stores) or any(id(n) not in there for n in stage.carried):
            return False
        there = {id(n) for n in stage.carried}
    return stored == len(s.kernel.stores)


def test_every_stage_has_what_it_needs(everywhere):
    plans = [planned(RandomKernel(seed).kernel) for seed in range(400)]
    staged = [s for s in plans if s.stages]
    assert len(staged) > 20
    assert all(map(given_what_they_need, staged))


def test_random_kernels_in_stages(everywhere):
    staged = [seed for seed in range(4000, 4400) if planned(RandomKernel(seed).kernel).stages][:16]
    assert len(staged) == 16
    for seed in staged:
        check(range(seed, seed + 1), checked=False)


def test_short_rows_and_other_targets_have_no_stages(monkeypatch):
    kernel = chain("f32")
    kernel.hints = {"n": 96}
    assert not planned(kernel).stages
    monkeypatch.setenv("PLIANT_CPU", "avx2")
    kernel.hints = {"n": 100_000}
    assert not planned(kernel).stages
