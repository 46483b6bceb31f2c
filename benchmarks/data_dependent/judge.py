"""Runs one program of the table under one system and says how it went, size by size."""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import torch

import pliant
from benchmarks.compare import Mismatch, difference
from benchmarks.data_dependent.program import Program

TOLERANCE = 1e-4


@dataclass(slots=True)
class Verdict:
    """`right` of `sizes` calls gave eager's answer, from `captures` graphs. `problem` is the first thing that went wrong."""

    program: str
    issue: str
    system: str
    sizes: int = 0
    right: int = 0
    captures: int = 0
    allowed: int = 1
    problem: str = ""
    wrong: list[str] = field(default_factory=list)

    @property
    def fine(self) -> bool:
        return self.right == self.sizes and 1 <= self.captures <= self.allowed and not self.problem

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"fine": self.fine}


def declared(p: Program) -> dict[str, dict[int, Any]]:
    """The declared dims by parameter, as `pliant.compile(dynamic=...)` takes them."""
    names = list(inspect.signature(p.fn).parameters)
    out: dict[str, dict[int, Any]] = {}
    for argument, dim, what in p.dims:
        out.setdefault(names[argument], {})[dim] = what
    return out


def answer(fn: Callable[..., Any], p: Program, n: int) -> Any:
    """The result of one call; of differentiated programs the gradients too."""
    args = p.args(n)
    out = fn(*args)
    if not p.grad:
        return out
    out.sum().backward()
    return out.detach(), [a.grad for a in args if isinstance(a, torch.Tensor) and a.requires_grad]


def judge(p: Program, system: str, compiled: Callable[..., Any], captures: Callable[[], int]) -> Verdict:
    """Call `compiled` at every size of the program, and the function itself beside it. `captures()` counts the graphs made so far."""
    v = Verdict(p.name, p.issue, system, len(p.sizes), allowed=p.captures)
    for n in p.sizes:
        expected = answer(p.fn, p, n)
        try:
            apart = difference(answer(compiled, p, n), expected)
        except Mismatch as e:
            v.wrong.append(f"{n}: {e}")
        except Exception as e:  # whatever a system raises for a program that eager runs counts against it
            v.problem = v.problem or f"{n}: {type(e).__name__}: {first_line(e)}"
        else:
            v.right += apart <= TOLERANCE
            if apart > TOLERANCE:
                v.wrong.append(f"{n}: off by {apart:.1e}")
    v.captures = captures()
    return v


def first_line(e: Exception) -> str:
    lines = [line.strip() for line in str(e).splitlines() if line.strip()]
    return lines[0][:200] if lines else ""


# systems -------------------------------------------------------------------------------------------------------
def under_pliant(p: Program) -> Verdict:
    pliant.reset()
    dims = declared(p)
    fn = pliant.compile(p.fn, fullgraph=True, strict=True, dynamic=dims or None)
    return judge(p, "pliant", fn, lambda: pliant.stats()["captures"])


def under_torch(p: Program, backend: str = "inductor") -> Verdict:
    """`torch.compile` with everything on that lets it see data-dependent sizes."""
    dynamo = importlib.import_module("torch._dynamo")
    dynamo.config.capture_scalar_outputs = True
    dynamo.config.capture_dynamic_output_shape_ops = True
    fn = torch.compile(p.fn, fullgraph=True, dynamic=True, backend=backend)
    return judge(p, "torch" if backend == "inductor" else f"torch ({backend})", fn, lambda: dynamo.utils.counters["stats"]["unique_graphs"])


class Wrapped(torch.nn.Module):
    """What `torch.export` takes."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        super().__init__()
        self.fn = fn

    def forward(self, *args: Any) -> Any:
        return self.fn(*args)


def under_export(p: Program) -> Verdict:
    """`torch.export` at the first size; declared dims are left to it (`Dim.AUTO`)."""
    v = Verdict(p.name, p.issue, "export", len(p.sizes), allowed=p.captures)
    args = p.args(p.sizes[0])
    dims: list[Any] = [None] * len(args)
    for argument, dim, _ in p.dims:
        dims[argument] = (dims[argument] or {}) | {dim: torch.export.Dim.AUTO}
    try:
        exported = torch.export.export(Wrapped(p.fn), args, dynamic_shapes=(tuple(dims),) if p.dims else None)
    except Exception as e:
        v.problem = f"export: {type(e).__name__}: {first_line(e)}"
        return v
    return judge(p, "export", exported.module(), lambda: 1)


def prepare(system: str) -> None:
    """Import what a system needs, once for all programs."""
    if system != "pliant":
        importlib.import_module("torch._dynamo")
        importlib.import_module("torch._inductor.compile_fx" if system == "torch" else "torch.export")


SYSTEMS: dict[str, Callable[[Program], Verdict]] = {
    "pliant": under_pliant,
    "torch": under_torch,
    "torch-aot": functools.partial(under_torch, backend="aot_eager"),
    "export": under_export,
}
