"""The backend `"native"`: fused kernels between ATen calls.

A graph goes through the passes of `lower/pipeline.py`: groups of operations become kernels, kernels and library calls that follow each
other one native function, and what no kernel computes stays the ATen call that it was. The target (`codegen/target.py`) makes code of them,
and `codegen/aten.py` prints the straight-line program that calls it. No Python runs inside of a segment; what it alone reads lies in an
arena.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pliant.codegen import target
from pliant.codegen.aten import Executable
from pliant.codegen.region import PlannedRegion, compile_region
from pliant.errors import PliantError
from pliant.graph.originals import torch
from pliant.lower import liveness, pipeline
from pliant.lower.kernels import Launch
from pliant.lower.program import KernelCall, Program, SegmentCall


def compile_native(trace: Any, inputs: list[Any], outputs: Any, *, name: str = "region") -> Executable:
    """The executable of a captured region with fused kernels; arguments as for `compile_region`."""
    return compile_region(trace, inputs, outputs, name=name, lower=lower)


def two_tiers(trace: Any, inputs: list[Any], outputs: Any, *, name: str = "region") -> Executable:
    """The same as calls of ATen, at once; its `later` makes what `compile_native` would have made.

    `later` may run in another thread, under `turns.compiling`: what a thread has for itself is as it was here. It raises `Changed` where
    settings of the process are others by then.
    """
    planned = PlannedRegion(trace, inputs, outputs, name)
    made, scope, settings = planned.build(None), trace.scope, Settings.here()

    def later() -> Executable:
        with settings.again(), scope.closed():  # the guards are compiled: operations that would need more stay ATen calls
            return planned.build(lower)

    made.later = later
    return made


class Changed(PliantError):
    """Settings of the process are others than when a graph was captured."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What lowering and printing read of PyTorch's settings: of the thread, and of the process."""

    grad: bool
    inference: bool
    autocast: tuple[bool, ...]
    process: tuple

    @classmethod
    def here(cls) -> Settings:
        return cls(torch.is_grad_enabled(), torch.is_inference_mode_enabled(), autocast(), of_process())

    @contextlib.contextmanager
    def again(self) -> Iterator[None]:
        """Inside, the thread's settings are these. Raises Changed if the process's are not, before or afterwards."""
        before = autocast()
        if self.process != of_process():
            raise Changed("before")
        with torch.inference_mode(self.inference), torch.set_grad_enabled(self.grad):
            try:
                set_autocast(self.autocast)
                yield
            finally:
                set_autocast(before)
        if self.process != of_process():
            raise Changed("meanwhile")


AUTOCAST_DEVICES = ("cpu", "cuda")


def autocast() -> tuple[bool, ...]:
    """Whether autocast is on in this thread, by device."""
    return tuple(torch.is_autocast_enabled(device) for device in AUTOCAST_DEVICES)


def set_autocast(on: tuple[bool, ...]) -> None:
    for device, enabled in zip(AUTOCAST_DEVICES, on, strict=True):
        torch.set_autocast_enabled(device, enabled)


def of_process() -> tuple:
    """Settings of the whole process that decide what is printed."""
    products = torch.get_float32_matmul_precision(), torch.backends.mkldnn.matmul.fp32_precision, torch.backends.fp32_precision
    return torch.are_deterministic_algorithms_enabled(), products, target.current().name


def lower(p: Program) -> Program:
    """The program with groups of its operations replaced by kernels, compiled, in an order that keeps all dependencies."""
    if liveness.any_restrides(p.steps):
        return pipeline.run(p, pipeline.REWRITE)
    p = p.replaced(p.steps, target=target.serving(devices(p)))
    p = pipeline.run(p, pipeline.COMPILE)
    kernels = [op.target for op in p.steps if type(op.target) is KernelCall]
    segments = [op.target for op in p.steps if type(op.target) is SegmentCall]
    compile_all([call.launch for call in kernels], segments)
    for call in kernels:
        call.launcher = p.target.launcher(call.launch)
    return p


def devices(p: Program) -> set[Any]:
    """Where the tensors of a program at level "graph" are."""
    return {t.device for op in p.steps for t in (*liveness.op_inputs(op), *liveness.op_outputs(op))}


def compile_all(launches: list[Launch], segments: list[SegmentCall] | tuple[()] = ()) -> None:
    """Make code of everything that a program calls."""
    target.serving({t.device for launch in launches for t in launch.buffers}).compile(launches, list(segments))
