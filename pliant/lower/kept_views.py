"""What a backward part reads of views of the inputs: memory as it was, which eager keeps by keeping the view.

`x @ w.t()` keeps the view `w.t()`, `x * w` keeps `w` itself. An input may be given other data before gradients arrive
(`w.data = ...`, `module.half()`): eager's view still has the memory of then, while `w` itself has the new one. So the backward part makes
such views anew, of an alias of the input that the forward part has kept, and reads the others from the input.
"""

from __future__ import annotations

from dataclasses import replace

from pliant.graph.dispatch import copy_bits
from pliant.graph.record import Op
from pliant.graph.traced import TracedTensor, make
from pliant.lower import cse, liveness, views


class KeptViews:
    """Of one region: `aliases` are the tensors that stand for the memory of its inputs, by their vids."""

    def __init__(self, program: list[Op], slots: list[TracedTensor]) -> None:
        self.program = program
        self.slots = {t.vid: t for t in slots}
        laid_out_once = not liveness.any_restrides(program)
        self.steps = views.view_steps(program) if laid_out_once else {}
        for op in program if laid_out_once else ():  # a `detach()` of what has no gradient keeps its memory, too
            if op.target is views.DETACH and op.outs[0].vid not in self.steps:
                base = op.args[0]
                if base.vid in self.slots or base.vid in self.steps:
                    self.steps[op.outs[0].vid] = views.ViewStep(op, base)
        self.aliases: dict[int, TracedTensor] = {}

    def below(self, t: TracedTensor) -> TracedTensor | None:
        """The input that the forward part has made this view of."""
        base = views.root(t, self.steps) if t.vid in self.steps else None
        return base if base is not None and base.vid in self.slots else None

    def alias_of(self, base: TracedTensor) -> TracedTensor:
        """What stands for the memory of an input."""
        alias = self.aliases.get(base.vid)
        if alias is None:
            alias = self.aliases[base.vid] = standing_for(base, None)
        return alias

    def on_aliases(self, ops: list[Op]) -> tuple[list[Op], dict[int, TracedTensor]]:
        """Operations of a backward part, behind those that make the views of inputs that they read; and what stands for which view."""
        read = {t.vid: t for op in ops for t in liveness.op_inputs(op) if self.below(t) is not None}
        making = views.chain(read.values(), self.steps, set(self.slots), self.program)
        if any([op.again or liveness.mutable(op.target) for op in making]):  # a checkpoint makes them anew, of the input of then
            return ops, {}
        stands: dict[int, TracedTensor] = {}
        for t in read.values():
            base = self.below(t)
            assert base is not None
            stands[base.vid] = self.alias_of(base)
        made = []
        for op in making:
            outs = [standing_for(o, stands[self.below(o).vid].vid) if isinstance(o, TracedTensor) else o for o in op.outs]  # type: ignore[union-attr]
            made.append(replace(op, args=cse.swap(op.args, stands), kwargs=cse.swap(op.kwargs, stands), outs=outs))
            stands.update((o.vid, n) for o, n in zip(op.outs, outs, strict=True) if isinstance(o, TracedTensor))
        for vid in self.slots:
            stands.pop(vid, None)
        return [*made, *(cse.substitute(op, stands) for op in ops)], stands


def standing_for(t: TracedTensor, storage_id: int | None) -> TracedTensor:
    """A tensor without a history, laid out like `t`, in this memory."""
    made = make(t.trace, t.sizes, t.strides, t.dtype, t.offset, storage_id, t.device, t.dense)
    copy_bits(t.trace, t, made)
    return made
