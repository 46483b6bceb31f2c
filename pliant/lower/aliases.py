"""Which memory each tensor of a graph sees: its *root*, the tensor that the memory was made for, and what may overlap.

Views are no operations below the graph: kernels address the root's memory by strides.
"""

from __future__ import annotations

from typing import Any

import torch

from pliant.graph.operators import Column
from pliant.graph.schema import UNDECLARED_VIEWS
from pliant.graph.traced import TracedTensor
from pliant.lower import liveness, views

aten = torch.ops.aten
REINTERPRET = Column("reinterprets")
REINTERPRET.add(aten._neg_view.default, aten._conj.default, aten.view.dtype, aten.view_as_real.default, aten.view_as_complex.default)
"""Views whose elements are not elements of what they are views of."""
ANY_INPUT = -1


class Aliases:
    """`steps`: vid of a view -> how it is made. `makers`: vid -> the operation. `view_ops`: the `id` of those of views. `roots`: vid ->
    vid of the root."""

    def __init__(self, ops: list[Any], outputs: list[Any]) -> None:
        self.steps = {vid: s for vid, s in views.view_steps(ops).items() if not liveness.mutable(s.op.target)}
        for op in ops:
            if op.target in UNDECLARED_VIEWS:
                self.steps.setdefault(op.outs[0].vid, views.ViewStep(op, op.args[0]))
        self.makers = {t.vid: op for op in ops if not liveness.mutable(op.target) for t in liveness.op_outputs(op)}
        self.view_ops = {id(s.op) for s in self.steps.values()}
        self.kept = liveness.tensors_of(outputs)
        self.tensors: dict[int, TracedTensor] = {}
        self.roots: dict[int, int] = {}
        for op in ops:
            for t in (*liveness.op_inputs(op), *liveness.op_outputs(op)):
                base = views.root(t, self.steps)
                self.roots[t.vid] = base.vid
                self.tensors[base.vid] = base
                self.tensors[t.vid] = t
        self.made = {t.vid for op in ops for t in liveness.op_outputs(op) if all(t is not x for x in liveness.op_inputs(op))}
        self.inputs = {t.storage_id for op in ops for t in liveness.op_inputs(op) if self.roots[t.vid] not in self.made}
        self.written = {t.storage_id for op in ops for t in liveness.written(op)}
        self.inputs_written = not self.written.isdisjoint(self.inputs)
        self.repeatable = not self.inputs_written and not any(map(liveness.unknown, liveness.operators(ops)))  # nobody sees it done twice

    def root(self, t: TracedTensor) -> int:
        """The vid of the tensor whose memory `t` sees."""
        return self.roots.get(t.vid, t.vid)

    def storage(self, t: TracedTensor) -> int:
        """A number that tensors share which may share memory. Inputs may, for all we know, where one of them is written to."""
        s = self.tensors.get(self.root(t), t).storage_id
        return ANY_INPUT if self.inputs_written and s in self.inputs else s

    def storage_of(self, root: int) -> int:
        return self.storage(self.tensors[root])

    def is_given(self, root: int) -> bool:
        """May memory from outside be what this root sees?"""
        return self.storage_of(root) in (*self.inputs, ANY_INPUT)

    def reinterpreted(self) -> set[int]:
        """Views that see the memory of their root as other numbers."""
        out: set[int] = set()
        for vid, step in self.steps.items():
            if step.op.target in REINTERPRET or step.base.vid in out:
                out.add(vid)
        return out
