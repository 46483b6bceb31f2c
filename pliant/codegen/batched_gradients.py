"""Gradients that `vmap` has wrapped, as `is_grads_batched=True` and `jacobian(vectorize=True)` give them to a region's backward part.

Kernels read memory, and a wrapper has none: the backward part runs once for each sample, and its results are stacked and wrapped again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from pliant.graph.arriving import Arrived
from pliant.graph.originals import ORIGINAL, torch

C: Any = torch._C._functorch
is_wrapped: Callable[[Any], bool] = C.is_functorch_wrapped_tensor
is_legacy: Callable[[Any], bool] = C.is_legacy_batchedtensor
"""What the older of PyTorch's two `vmap` wraps tensors with, which the autograd engine uses."""

told: Callable[[], bool] = torch._C._is_torch_function_enabled
"""Whether classes of tensors are told of torch functions."""


def of_a_class(g: Any) -> bool:
    """Whether the class of a gradient that is no plain tensor has a say in what is done with it."""
    return told() or type(g) is Arrived


ASKED = {"_wrapped": is_wrapped, "_batched": is_legacy, "_Tensor": torch.Tensor, "_told": of_a_class}
"""What every backward part asks of the gradients that it is given (`Twice` has the odd ones)."""


class Samples(NamedTuple):
    """Gradients without their wrappers: each is a tensor whose first dim is the batch (`mapped`), or the same for all samples."""

    values: list[Any]
    mapped: list[bool]
    wrap: Callable[[torch.Tensor], torch.Tensor]

    def __len__(self) -> int:
        return next(len(v) for v, on in zip(self.values, self.mapped) if on)

    def __getitem__(self, i: int) -> list[Any]:  # type: ignore[override]
        return [v[i] if on else v for v, on in zip(self.values, self.mapped)]


def samples(grads: Sequence[Any]) -> Samples | None:
    """What the outermost wrappers of these gradients hold; None where they are not of `vmap`."""
    tensors = [g for g in grads if g is not None]
    if any(map(is_legacy, tensors)):
        level = torch._C._vmapmode_increment_nesting() - 1
        torch._C._vmapmode_decrement_nesting()
        on = [g is not None and is_legacy(g) for g in grads]
        values = [torch._remove_batch_dim(g, level, -1, 0) if is_on else g for g, is_on in zip(grads, on)]
        return Samples(values, on, lambda x: torch._add_batch_dim(x, 0, level))
    level = max(map(C.maybe_get_level, tensors))
    on = [g is not None and C.is_batchedtensor(g) and C.maybe_get_level(g) == level for g in grads]
    if not any(on):
        return None
    found = [C._unwrap_batched(g, level) if is_on else (g, None) for g, is_on in zip(grads, on)]
    return Samples([v if dim is None else ORIGINAL.movedim(v, dim, 0) for v, dim in found], on, lambda x: C._add_batch_dim(x, 0, level))


class Kept:
    """The context of a node that runs once for each sample: what it saved stays for the next."""

    __slots__ = ("at", "before", "kept", "layouts", "places", "saved_tensors", "sizes", "slots", "spent", "versions")

    def __init__(self, ctx: Any) -> None:
        kept = getattr(ctx, "kept", None)
        self.saved_tensors = ctx.saved_tensors if kept is None else kept[0]
        self.kept, self.spent, self.at = None, getattr(ctx, "spent", 0), None
        self.slots = ctx.slots
        self.sizes, self.versions = getattr(ctx, "sizes", ()), getattr(ctx, "versions", None)
        self.layouts, self.places = getattr(ctx, "layouts", None), getattr(ctx, "places", None)

    def maybe_clear_saved_tensors(self) -> None:
        pass


def each(backward: Callable[..., tuple], ctx: Any, given: Samples) -> tuple:
    """`backward` of each sample, which may itself be wrapped by an outer level."""
    rounds = [backward(Kept(ctx), *given[i]) for i in range(len(given))]
    return tuple([None if column[0] is None else given.wrap(stacked(column)) for column in zip(*rounds)])


def stacked(column: Sequence[torch.Tensor]) -> torch.Tensor:
    """The gradients of all samples, each laid out as it is: as operations on the whole batch would have them."""
    strides = ORIGINAL.stride(column[0])
    order = sorted(range(len(strides)), key=lambda d: -strides[d])
    if order == list(range(len(strides))) or any([ORIGINAL.stride(t) != strides for t in column]):
        return torch.stack(tuple(column))
    out = torch.stack([ORIGINAL.permute(t, order) for t in column])
    return ORIGINAL.permute(out, 0, *[1 + order.index(d) for d in range(len(order))])
