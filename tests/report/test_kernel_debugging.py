"""Looking at kernels: logs, a dump that runs again alone, and the search for the kernel that is wrong."""

from __future__ import annotations

import io

import pytest
import torch

import pliant
from pliant.codegen import target
from pliant.codegen.cpu import debug, scalars
from pliant.errors import PliantError
from pliant.report import bisect
from pliant.report.logs import logging_to


@pytest.fixture(autouse=True)
def alone(monkeypatch, tmp_path):
    """Kernels of these tests are nobody else's."""
    monkeypatch.setattr(target.named("cpu"), "launchers", {})
    monkeypatch.setattr(target.named("cpu"), "addresses", {})
    monkeypatch.setenv("PLIANT_CACHE_DIR", str(tmp_path / "cache"))


def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    a = torch.relu(x) + y
    b = a.sum(-1, keepdim=True)
    c = torch.exp(a - b) * 2
    return torch.tanh(c) + c.t().mean()


def arguments() -> tuple[torch.Tensor, torch.Tensor]:
    maker = torch.Generator().manual_seed(0)
    return torch.rand(6, 9, generator=maker), torch.rand(6, 9, generator=maker)


def test_logs_of_kernels():
    out = io.StringIO()
    with logging_to(out, "schedule", "llvm", "asm"):
        pliant.compile(program, backend="native", strict=True)(*arguments())
    pliant.reset()
    text = out.getvalue()
    for part in ("SCHEDULE of kernel k", "vector d", "reduce(%", "LLVM IR of kernel", "define i32 @k0(ptr %ctx)", "ASSEMBLY of kernel"):
        assert part in text


def test_a_dump_runs_again_alone(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("PLIANT_KERNEL_DUMP", str(tmp_path / "kernels"))
    x = torch.rand(8, 10)[2:, 1:]  # memory that begins before the tensor
    pliant.compile(lambda x: torch.exp(x) * 2 + 1, backend="native", strict=True)(x)
    (path,) = (tmp_path / "kernels").iterdir()
    for checked in (False, True):
        run, buffers = debug.load(path).prepared(checked)
        assert run() == 0
        written = [b for b, buffer in zip(buffers, debug.load(path).kernel.buffers, strict=True) if buffer.written]
        torch.testing.assert_close(written[0].view(6, 9), torch.exp(x) * 2 + 1)
    assert debug.main([str(path), "--checked", "--llvm", "--asm", "--times", "2"]) == 0
    said = capsys.readouterr().out
    assert "load(b0" in said and "define i32 @k0" in said and said.rstrip().endswith("us")


def test_a_dump_tells_which_access_left_its_buffer(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("PLIANT_KERNEL_DUMP", str(tmp_path))
    pliant.compile(lambda x: torch.exp(x) * 2, backend="native", strict=True)(torch.rand(40))
    (path,) = (p for p in tmp_path.iterdir() if p.suffix == ".pt")
    found = torch.load(path, weights_only=False)
    found["memory"] = [(whole[:30].clone(), at) for whole, at in found["memory"]]
    torch.save(found, path)
    assert debug.main([str(path), "--checked"]) == 1
    assert "the load load(b0" in capsys.readouterr().out
    with pytest.raises(PliantError, match="PLIANT_KERNEL_DUMP"):
        debug.load(tmp_path / "none.pt")


def test_the_first_wrong_kernel_is_found(monkeypatch):
    assert bisect.first_wrong(program, *arguments()) is None
    monkeypatch.setattr(target.named("cpu"), "launchers", {})
    monkeypatch.setitem(scalars.ROWS, "exp", lambda m, dtype, a: a)
    culprit = bisect.first_wrong(program, *arguments())
    assert culprit is not None and culprit.operation == "aten.exp.default" and "exp(%" in str(culprit)
    assert "test_kernel_debugging.py" in culprit.site


def test_a_fault_outside_kernels_is_no_kernels():
    answers = iter(range(100))
    with pytest.raises(PliantError, match="without a kernel"):
        bisect.first_wrong(lambda x: x.exp() * 2 + next(answers), torch.rand(3, 4))
