"""Tensors whose history `backward()` has freed, where a run leaves a graph that keeps none: they say that they have one, and it is gone."""

from __future__ import annotations

from typing import Any

from pliant.codegen.double_backward import FREED
from pliant.graph.originals import ORIGINAL, gradients, torch


class Freed(torch.autograd.Function):
    """The same memory, as a result of a node that has been gone through."""

    @staticmethod
    def forward(ctx: Any, t: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
        return ORIGINAL.detach(t)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise RuntimeError(FREED)


def went_backward_from(t: torch.Tensor) -> torch.Tensor:
    """`t`, which a graph has computed without gradients, as what `backward()` has been called on."""
    with gradients(True):
        return Freed.apply(t, torch.empty(0, requires_grad=True))  # type: ignore[no-untyped-call, no-any-return]
