"""The backend `"native"`: fused kernels between ATen calls.

A graph goes through the passes of `lower/pipeline.py`: groups of operations become kernels, kernels and library calls that follow each
other one native function, and what no kernel computes stays the ATen call that it was. The target (`codegen/target.py`) makes code of them,
and `codegen/aten.py` prints the straight-line program that calls it. No Python runs inside of a segment; what it alone reads lies in an
arena.
"""

from __future__ import annotations

from typing import Any

from pliant.codegen import target
from pliant.codegen.aten import Executable
from pliant.codegen.autograd_region import compile_region
from pliant.lower import liveness, pipeline
from pliant.lower.kernels import Launch
from pliant.lower.program import KernelCall, Program, SegmentCall


def compile_native(trace: Any, inputs: list[Any], outputs: Any, *, name: str = "region") -> Executable:
    """The executable of a captured region with fused kernels; arguments as for `compile_region`."""
    return compile_region(trace, inputs, outputs, name=name, lower=lower)


def lower(p: Program) -> Program:
    """The program with groups of its operations replaced by kernels, compiled, in an order that keeps all dependencies."""
    if any([liveness.restrides(op) for op in p.steps]):
        return pipeline.run(p, pipeline.REWRITE)
    p = p.replaced(p.steps, target=target.current())
    p = pipeline.run(p, pipeline.COMPILE)
    kernels = [op.target for op in p.steps if type(op.target) is KernelCall]
    segments = [op.target for op in p.steps if type(op.target) is SegmentCall]
    compile_all([call.launch for call in kernels], segments)
    for call in kernels:
        call.launcher = p.target.launcher(call.launch)
    return p


def compile_all(launches: list[Launch], segments: list[SegmentCall] | tuple[()] = ()) -> None:
    """Make code of everything that a program calls."""
    target.current().compile(launches, list(segments))
