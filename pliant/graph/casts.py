"""Casts of leaves to half precision, which autocast keeps for their next use: what is taken back of a trace may hold some of them."""

from __future__ import annotations

from pliant.graph.originals import torch
from pliant.graph.record import Op
from pliant.graph.traced import TracedTensor

CAST = torch.ops.aten._to_copy.default


def take_back(ops: list[Op], n: int) -> None:
    """Takes back the operations since `n`, but for casts of leaves: autocast goes on with them, and sums their gradients uncast."""
    on = torch._C._is_any_autocast_enabled()
    ops[n:] = [op for op in ops[n:] if on and op.target is CAST and of_a_leaf(op.args[0])]


def of_a_leaf(x: object) -> bool:
    return type(x) is TracedTensor and x.requires_grad and x.is_leaf


def forget() -> None:
    """Makes autocast forget its casts, some of which are taken back."""
    if torch._C._is_any_autocast_enabled():
        torch.clear_autocast_cache()
