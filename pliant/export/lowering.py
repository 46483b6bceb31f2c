"""An exported program on its way to machine code that runs without Python: kernels and segments, and as few ATen calls as can be.

The same passes as for `pliant.compile`, for a target that asks other questions: what a kernel can do is a kernel, and a library routine
is our own, because an ATen call would need libtorch in the process that loads the file.
"""

from __future__ import annotations

from typing import Any

import torch

from pliant.codegen.cpu.backend import CPU
from pliant.export.program import Program
from pliant.lower import liveness, pipeline
from pliant.lower import program as lower
from pliant.lower.program import NativeStep


class Portable(CPU):
    """A processor of which only the kind is known. Code for each level of it is made later (`codegen/cpu/image.py`)."""

    name = "cpu, ahead of time"

    def worth_a_kernel(self, op: Any) -> bool:
        return True

    def worth_a_call(self, step: NativeStep) -> bool:
        return True

    def has_segments(self) -> bool:
        return True

    def product_dtypes(self) -> frozenset[torch.dtype]:
        return frozenset((torch.float32,))

    def has_attention(self) -> bool:
        return True

    def has_convolutions(self) -> bool:
        return True


def lowered(program: Program) -> lower.Program:
    """The program at level "calls"."""
    inputs = [i.value for i in program.inputs]
    heads = [o.value for o in program.outputs]
    asserts = [a.expr for a in program.asserts]
    p = lower.Program("program", program.scope, inputs, heads, list(program.ops), asserts=asserts, keep_effects=True, closed=False)
    p = pipeline.run(p, pipeline.SIMPLIFY)
    if any([liveness.restrides(op) for op in p.steps]):
        return pipeline.run(p, pipeline.REWRITE)
    return pipeline.run(p.replaced(p.steps, target=Portable()), pipeline.COMPILE)
