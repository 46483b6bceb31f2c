"""Autocast: the casts of leaves that it keeps for their next use, some of which may be among what is taken back of a trace, and operators
that obey it in what they call.

What a graph records is cast already, and runs without autocast."""

from __future__ import annotations

from typing import Any

from pliant.graph.originals import torch
from pliant.graph.record import Op
from pliant.graph.schema import op_info
from pliant.graph.traced import TracedTensor, Untraceable

has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
CAST = torch.ops.aten._to_copy.default


INSIDE = (
    torch.ops.aten.linalg_pinv.atol_rtol_tensor, torch.ops.aten._trilinear.default, torch.ops.aten.affine_grid_generator.default,
    torch.ops.aten.affine_grid_generator_backward.default, torch.ops.aten._transformer_encoder_layer_fwd.default,
    torch.ops.aten._native_multi_head_attention.default,
)  # fmt: skip
"""PyTorch's operators whose C++ code multiplies matrices in half precision under autocast."""
KEYS = (("cpu", "AutocastCPU"), ("cuda", "AutocastCUDA"))


def refuse(ops: list[Op], n: int) -> None:
    """Raises `Untraceable` for an operator since `n` that autocast reaches: code of others, unless it says what autocast is to do."""
    for device, key in KEYS if torch._C._is_any_autocast_enabled() else ():
        if torch.is_autocast_enabled(device):
            for op in ops[n:]:
                if op.target in INSIDE or foreign(op.target) and not has_kernel(op.target.name(), key):
                    raise Untraceable(op.target, "what it calls obeys autocast, without which graphs run")


def foreign(target: Any) -> bool:
    return op_info(target).custom and target.namespace != "pliant"


def take_back(trace: Any, n: int) -> None:
    """Takes back the operations since `n`, but for casts of leaves: autocast goes on with them, and sums their gradients uncast."""
    on = torch._C._is_any_autocast_enabled()
    kept = [op for op in trace.ops[n:] if on and op.target is CAST and of_a_leaf(op.args[0])]
    trace.take_back(n)
    trace.ops += kept


def of_a_leaf(x: object) -> bool:
    return type(x) is TracedTensor and x.requires_grad and x.is_leaf


def forget() -> None:
    """Makes autocast forget its casts, some of which are taken back."""
    if torch._C._is_any_autocast_enabled():
        torch.clear_autocast_cache()
