"""An exported program on its way to machine code that runs without Python: kernels and segments, and as few ATen calls as can be.

The same passes as for `pliant.compile`, for a target that asks other questions: what a kernel can do is a kernel, and a library routine
is our own, because an ATen call would need libtorch in the process that loads the file.
"""

from __future__ import annotations

from typing import Any

from pliant.codegen import target
from pliant.export.decompose import Legalizer
from pliant.export.program import Program
from pliant.lower import liveness, pipeline
from pliant.lower import program as lower


def lowered(program: Program) -> tuple[lower.Program, list[Any]]:
    """The program at level "calls", and its outputs there."""
    legalizer = Legalizer(program.trace)
    for op in program.ops:
        legalizer.step(op)
    inputs = [i.value for i in program.inputs]
    heads = [legalizer.now(o.value) for o in program.outputs]
    asserts = [a.expr for a in program.asserts]
    p = lower.Program("program", program.scope, inputs, heads, legalizer.ops, asserts=asserts, keep_effects=True, closed=False)
    p = pipeline.run(p, pipeline.SIMPLIFY)
    if any([liveness.restrides(op) for op in p.steps]):
        return pipeline.run(p, pipeline.REWRITE), heads
    return pipeline.run(p.replaced(p.steps, target=target.named("ahead")), pipeline.COMPILE), heads
