"""Differentiating twice: the forward part of a training region, run again under PyTorch's own autograd.

The node of a region is a black box to autograd: its backward part is a program without a history. When gradients are themselves to be
differentiated (`create_graph=True`), the operations of the forward part run once more on the inputs that the node was given, with the
C++ engine recording, and `torch.autograd.grad` does the rest. That is slower than the compiled backward part, and exact to any order.

Where running again would not give what was computed (random numbers, inputs that were written since, a `torch.autograd.Function` of
the program's own) the region says so when somebody asks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from pliant.graph.traced import TracedTensor
from pliant.lower import liveness
from pliant.lower.autograd import AUTOCAST, Plan
from pliant.symbolic.expr import Expr

OWN_STATISTICS = frozenset(f"aten::{name}" for name in ("native_batch_norm", "_native_batch_norm_legit", "cudnn_batch_norm"))
"""Operators that write running statistics which they do not read (in training): given copies, they can run again."""


class Again:
    """How to run the forward part of `plan` again; `refusal` says why that is impossible, or is empty.

    `reads` is what the node saves for its backward part: of that, what has no gradient (a dropout mask) is taken and not computed again.
    """

    def __init__(self, plan: Plan, reads: Sequence[TracedTensor]) -> None:
        self.plan = plan
        self.reads = reads
        own = {t.vid for t in plan.slots}
        self.saved = {t.vid for t in reads if not t.requires_grad and t.vid not in own and settled(plan.program, t)}
        self.ops = needed(plan.program, plan.differentiable, self.saved)
        self.refusal = self.why_not()

    def why_not(self) -> str:
        memory = {t.storage_id for t in self.plan.slots}
        known = {t.vid for t in self.plan.slots} | self.saved
        if self.plan.rebased:
            return "it writes to an input that has gradients"
        for op in self.ops:
            name = op.target._schema.name
            writes = [t for t in liveness.written(op) if t.storage_id in memory]
            if writes and not (name in OWN_STATISTICS and trains(op)):
                return f"it writes to an input ({name})"
            if liveness.RANDOM in op.target.tags:
                return f"it draws random numbers ({name})"
            if not name.startswith("aten::"):
                return f"it calls {name}"
            if not op.grad and any(t.requires_grad for t in liveness.op_outputs(op)):
                return "it uses a torch.autograd.Function, or writes with gradients to what was made without"
            if any(t.vid not in known and t.constant is None for t in liveness.op_inputs(op)):
                return "it reads a tensor that is not among its inputs"
            known.update(t.vid for t in liveness.op_outputs(op))
        return ""

    def gradients(self, slots: Sequence[Any], saved: Sequence[Any], given: Sequence[Any]) -> list[Any]:
        """The gradients of `plan.wanted`, themselves differentiable.

        `saved` goes with the `reads`; `given` holds a gradient or None for each of `plan.heads`.
        """
        with torch.enable_grad(), torch._C._ExcludeDispatchKeyGuard(AUTOCAST):
            env, targets, numbers = self.bind(slots)
            env.update((t.vid, v) for t, v in zip(self.reads, saved, strict=True) if t.vid in self.saved)
            for op in self.ops:
                self.run(op, env, numbers)
            used = [(env[h.vid], g) for h, g in zip(self.plan.heads, given, strict=False) if g is not None and h.requires_grad]
            used = [(h, g) for h, g in used if h.requires_grad]
            if not used:
                return [None] * len(targets)
            heads, tangents = zip(*used, strict=True)
            return list(torch.autograd.grad(heads, targets, tangents, create_graph=True, allow_unused=True))

    def bind(self, slots: Sequence[Any]) -> tuple[dict[int, Any], list[Any], dict[str, Any]]:
        """Tensors by vid, the targets of differentiation, and the values of symbols.

        Each wanted input is given a name of its own: one input may have been made from another outside of the region, and that is not
        this node's business.
        """
        wanted = {t.vid for t in self.plan.wanted}
        written = {t.storage_id for op in self.ops for t in liveness.written(op)}
        env: dict[int, Any] = {}
        numbers: dict[str, Any] = {}
        for slot, value in zip(self.plan.inputs, slots, strict=True):
            if not isinstance(slot, TracedTensor):
                numbers[slot.name if isinstance(slot, Expr) else slot] = value
                continue
            if slot.vid in env:
                continue
            for traced, real in zip((*slot.sizes, *slot.strides, slot.offset), (*value.shape, *value.stride(), value.storage_offset())):
                e = liveness.number(traced)
                if e is not None and e.op == "sym":
                    numbers.setdefault(e.name, real)
            if slot.vid in wanted:
                env[slot.vid] = torch.ops.aten.alias.default(value)
            else:
                env[slot.vid] = value.detach().clone() if slot.storage_id in written else value.detach()
        return env, [env[t.vid] for t in self.plan.wanted], numbers

    def run(self, op: Any, env: dict[int, Any], numbers: dict[str, Any]) -> None:
        def real(value: Any) -> Any:
            if isinstance(value, TracedTensor):
                return env[value.vid] if value.vid in env else value.constant
            if isinstance(value, (list, tuple)):
                return [real(v) for v in value]
            e = liveness.number(value)
            return value if e is None else self.plan.trace.scope.simplify(e).evaluate(numbers)

        with torch.set_grad_enabled(op.grad):
            result = op.target(*map(real, op.args), **{k: real(v) for k, v in op.kwargs.items()})
        outs = [result] if op.out_spec is None else liveness.leaves(result)
        for traced, made in zip(op.outs, outs, strict=True):
            if isinstance(traced, TracedTensor):
                env[traced.vid] = made
        for b in op.binds:
            numbers[liveness.number(b.symbol).name] = outs[b.out] if b.dim is None else outs[b.out].size(b.dim)


class Refuse(torch.autograd.Function):
    """Gradients that raise when they are differentiated with respect to anything that they depend on."""

    @staticmethod
    def forward(ctx: Any, why: str, n: int, *tensors: Any) -> tuple:
        ctx.why = why
        return tuple(t.detach() for t in tensors[:n])

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple:
        raise RuntimeError(ctx.why)


def settled(ops: list[Any], t: TracedTensor) -> bool:
    """Is the memory of `t` written only before anybody else reads it?"""
    used = False
    for op in ops:
        if any(w.storage_id == t.storage_id for w in liveness.written(op)):
            if used:
                return False
        elif any(x.storage_id == t.storage_id for x in liveness.op_inputs(op)):
            used = True
    return True


def needed(ops: list[Any], heads: list[Any], saved: set[int]) -> list[Any]:
    """The operations that `heads` depend on, writes to memory that they read included; no other effects, nothing behind `saved`."""
    vids = {h.vid for h in heads}
    memory = {h.storage_id for h in heads}
    symbols: set[str] = set()
    out: list[Any] = []
    for op in reversed(ops):
        binds = {liveness.number(b.symbol).name for b in op.binds}
        made = any(t.vid in vids for t in liveness.op_outputs(op)) or any(t.storage_id in memory for t in liveness.written(op))
        if not made and not binds & symbols:
            continue
        out.append(op)
        for t in liveness.op_inputs(op):
            if t.vid in saved:
                continue
            vids.add(t.vid)
            memory.add(t.storage_id)
        for value in liveness.leaves([op.args, op.kwargs]):
            e = liveness.number(value)
            if e is not None:
                symbols.update(s.name for s in e.symbols())
    return out[::-1]


def trains(op: Any) -> bool:
    """Does this batch norm use the statistics of the batch?"""
    names = [a.name for a in op.target._schema.arguments]
    at = names.index("training") if "training" in names else -1
    return at >= 0 and (op.args[at] if at < len(op.args) else op.kwargs.get("training")) is True
