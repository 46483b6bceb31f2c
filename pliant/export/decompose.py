"""The form "core": operators outside of PyTorch's Core ATen set are decomposed into others, with the decompositions that PyTorch publishes.

Some stay whole although PyTorch could take them apart (`KEPT`): every target has them, and taken apart they run slower. The attention
kernel of the CPU becomes the operator that it computes.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch._decomp import core_aten_decompositions

from pliant.export import antialias
from pliant.export.flows import all_ops
from pliant.export.rewrite import Rewriter
from pliant.graph.record import Op
from pliant.graph.recurrent import WHOLE
from pliant.graph.symnode import expr_of
from pliant.graph.traced import TracedTensor
from pliant.lower import liveness
from pliant.symbolic import ops

aten = torch.ops.aten

KEPT = frozenset((
    aten.scaled_dot_product_attention, aten.linear, aten.silu, aten.hardswish, aten.hardsigmoid, aten.mish, aten.softplus, aten.glu,
    aten.pixel_shuffle, aten.pixel_unshuffle, aten.log_sigmoid_forward, aten.triu, aten.tril, aten.roll, aten.sgn, aten.baddbmm,
    aten.addcmul, aten.addcdiv, aten.lerp, aten.masked_fill, aten.stack, aten.isin, aten.logsumexp, aten.reflection_pad1d,
    aten.reflection_pad2d, aten.replication_pad1d, aten.replication_pad2d, aten.replication_pad3d, aten.reflection_pad3d, aten.index_add,
    aten.index_copy, aten.dot, aten.mv, aten.trace, aten.frac, aten.heaviside, aten.xlogy, aten.logaddexp, aten.aminmax, aten.eye,
    aten.upsample_nearest2d, aten.upsample_linear1d, aten.select_scatter, aten.nll_loss_forward, aten.nll_loss_backward,
))  # fmt: skip
"""By name: not taken apart."""

MOST = 64
"""Depth of decompositions within each other; beyond it one makes itself again."""


@functools.cache
def table() -> dict[Any, Any]:
    """What is taken apart, and by which function."""
    published = core_aten_decompositions().items()
    found = {k: fn for k, fn in published if k._schema.name.startswith("aten::") and k.overloadpacket not in KEPT and k not in WHOLE}
    return found | antialias.DECOMPOSITIONS


class Decomposer(Rewriter):
    """One use: `run(ops)`, then `value(t)` says what stands for a tensor of the old program."""

    reads: set[int]  # vids of what operations read

    def run(self, steps: list[Op]) -> list[Op]:
        for op in steps:
            self.step(op)
        return self.ops

    def step(self, op: Op, depth: int = 0) -> None:
        if op.target is FLASH and not self.used(op.outs[1]):
            self.attention(op)
            return
        fn = table().get(op.target)
        if fn is None or op.binds or depth > MOST:
            self.again(op)
            return
        scope = self.trace.scope
        before = scope.snapshot()
        try:
            out, made = self.record(fn, *self.now(op.args), site=op.site, **self.now(op.kwargs))
        except Exception:
            made = None
        if made is None or scope.snapshot()[1:3] != before[1:3]:  # it needs more of sizes than is known: the operator stays
            scope.rollback(before)
            self.again(op)
            return
        outs = [out] if op.out_spec is None else liveness.leaves(out)
        if len(outs) != len(op.outs) or not all(map(agree, outs, op.outs)) or len(made) == 1 and made[0].target is op.target:
            self.again(op)
            return
        for inner in made:
            self.step(inner, depth + 1)
        self.replace(op.outs, [self.now(o) for o in outs])

    def used(self, t: Any) -> bool:
        return type(t) is TracedTensor and t.vid in self.reads

    def attention(self, op: Op) -> None:
        q, k, v, *rest = op.args
        given = dict(zip(("dropout_p", "is_causal"), rest)) | op.kwargs
        args = (q, k, v, given.pop("attn_mask", None), given.pop("dropout_p", 0.0), given.pop("is_causal", False))
        heads, shared = (self.trace.scope.simplify(expr_of(x.sizes[1], self.trace.scope)) for x in (q, k))
        if heads is not shared and not self.trace.scope.known_true(ops.eq(heads, shared)):
            given["enable_gqa"] = True  # fewer heads of keys than of queries
        self.ops.append(Op(SDPA, self.now(args), self.now(given), [op.outs[0]], None, op.site, -1, grad=op.grad))


class Legalizer(Rewriter):
    """Legalizes operators, that is writes them as this processor computes them."""

    def step(self, op: Op) -> None:
        if op.target is not SDPA:
            self.again(op)
            return
        attention = torch.nn.functional.scaled_dot_product_attention
        made = self.put(attention, *self.now(op.args), site=op.site, **self.now(op.kwargs))
        self.replace(op.outs, [made])


FLASH = aten._scaled_dot_product_flash_attention_for_cpu.default
SDPA = aten.scaled_dot_product_attention.default


def agree(a: Any, b: Any) -> bool:
    """Whether a decomposition gave a tensor of the same dtype and number of dims."""
    if type(b) is not TracedTensor:
        return type(a) is type(b) or b is None
    return type(a) is TracedTensor and a.dtype is b.dtype and len(a.sizes) == len(b.sizes)


def decompose(trace: Any, steps: list[Op], outputs: list[Any]) -> Decomposer:
    """The rewriter that has taken `steps` apart."""
    d = Decomposer(trace)
    d.reads = {t.vid for op in all_ops(steps) for t in liveness.op_inputs(op)} | {t.vid for t in liveness.tensors_of(outputs)}
    d.run(steps)
    return d
