"""Kernels printed as Triton, run by Triton's interpreter on the CPU, against their meaning and against eager.

Triton is no dependency of pliant's tests: where it is missing they are skipped. `PLIANT_FUZZ` is how many random kernels are tried.
"""

from __future__ import annotations

import importlib.util
import os
import pkgutil
import sys

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import pliant
from pliant.codegen import target
from pliant.codegen.triton.backend import known
from pliant.lower.loops import Kernel
from tests.codegen.loop_reference import reference
from tests.codegen.random_kernels import RandomKernel
from tests.codegen.test_cpu_kernels import FUZZ, differs, edge_kernels
from tests.codegen.test_native import PROGRAMS, compare

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed", allow_module_level=True)
if "triton" not in sys.modules:
    os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is imported
if not pkgutil.resolve_name("pliant.codegen.triton.functions").INTERPRETED:
    pytest.skip("Triton was imported without its interpreter (TRITON_INTERPRET=1)", allow_module_level=True)

Launcher = pkgutil.resolve_name("pliant.codegen.triton.launch:Launcher")


def run(kernel: Kernel, memory: list[np.ndarray], sizes: dict) -> list[np.ndarray]:
    """The buffers after the kernel."""
    halves = [b.dtype == "bf16" for b in kernel.buffers]
    tensors = [torch.from_numpy(m.copy()) for m in memory]
    tensors = [t.view(torch.bfloat16) if half else t for t, half in zip(tensors, halves, strict=True)]
    Launcher(kernel)(*tensors, *[sizes[s] for s in kernel.sizes])
    return [(t.view(torch.uint16) if half else t).numpy() for t, half in zip(tensors, halves, strict=True)]


def check(kernel: Kernel, memory: list[np.ndarray], sizes: dict) -> None:
    for i, (got, want) in enumerate(zip(run(kernel, memory, sizes), reference(kernel, memory, sizes), strict=True)):
        assert not (wrong := differs(kernel.buffers[i].dtype, got, want)), f"{kernel.name}, buffer {i}: {wrong}"


def test_edges():
    for kernel, memory, sizes in edge_kernels():
        if sum(m.size for m in memory) < 1000:
            check(kernel, memory, sizes)


@pytest.mark.parametrize("first", range(0, max(FUZZ, 24), 12))
def test_random_kernels(first):
    for seed in range(3_000_000 + first, 3_000_000 + first + 12):
        case = RandomKernel(seed)
        if all(map(known, case.kernel.nodes())) and not any(s.index or s.mode != "set" for s in case.kernel.stores):
            check(case.kernel, case.memory, case.sizes)


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name):
    with target.using("triton"):
        compare(PROGRAMS[name][0], *PROGRAMS[name][1])


def test_positions_of_64_bits(monkeypatch):
    """The text that counts beyond 2**31, taken for small tensors."""
    case = RandomKernel(3_000_001)
    launcher = Launcher(case.kernel)
    grid = launcher.grid
    launcher.grid = lambda *sizes: (grid(*sizes)[0], True)
    monkeypatch.setitem(globals(), "Launcher", lambda kernel: launcher)
    check(case.kernel, case.memory, case.sizes)
    assert set(launcher.functions) <= {"tl.int64"}


def test_what_has_no_text_stays_a_call_of_aten():
    def scans(x, i):
        return (x * 2).cumsum(-1) + 1, F.embedding(i, x) * 2, torch.zeros(3, 4).index_add(0, i, x[:2] * 2) + 1

    args = torch.randn(5, 4), torch.tensor([0, 2])
    with target.using("triton"):
        got = pliant.compile(scans, strict=True)(*args)
    for g, w in zip(got, scans(*args), strict=True):
        torch.testing.assert_close(g, w)


def test_gradients():
    net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.LayerNorm(16), torch.nn.Linear(16, 2))
    with target.using("triton"):
        compiled = pliant.compile(net, strict=True)
        for n in (3, 5):
            x = torch.randn(n, 8)
            got = torch.autograd.grad(compiled(x).square().sum(), list(net.parameters()))
            want = torch.autograd.grad(net(x).square().sum(), list(net.parameters()))
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
