"""Results of ATen calls, held to the sizes and strides that the capture foretold, where machine code is about to read them by these.

How PyTorch lays out a result is decided inside each operator, by rules that `graph/rules` and PyTorch's own shape functions restate. Where
they are wrong, a kernel would read other elements than are meant, or beyond the end; so results that kernels touch are looked at, at the
price of a hundred nanoseconds each, and copied into place if need be: a wrong rule of strides costs time, never an answer.
"""

from __future__ import annotations

import functools
from typing import Any

from pliant import events
from pliant.errors import InternalError
from pliant.graph.operators import Column, overloads
from pliant.graph.originals import ORIGINAL, torch
from pliant.graph.schema import op_info

CERTAIN = Column("certain")
CERTAIN.add(
    *overloads((
        "empty empty_strided zeros ones full arange linspace eye scalar_tensor rand randn randint linear mm addmm bmm baddbmm embedding"
        " native_layer_norm nll_loss_forward nll_loss2d_forward item"
    ).split())
)
"""Operators whose new results are always row-major, or laid out as their arguments say."""

_told: set[str] = set()


@functools.cache
def is_certain(target: Any) -> bool:
    """Whether nothing has to be looked at: views (strides are computed, not chosen), results that are arguments, and `CERTAIN`."""
    info = op_info(target)
    return target in CERTAIN or all(way is not None for way in info.returns)


def astray(out: torch.Tensor, count: int, strides: tuple | None) -> bool:
    """Whether elements or strides (None: row by row) are not those that were foretold."""
    return ORIGINAL.numel(out) != count or (not ORIGINAL.is_contiguous(out) if strides is None else ORIGINAL.stride(out) != strides)


def laid(out: torch.Tensor, sizes: tuple, strides: tuple, name: str) -> torch.Tensor:
    """`out`, or a copy of it with these strides. Called by compiled programs where elements or strides are not those that were foretold.

    Dims of size 1 have any stride, and so has a tensor without elements. Raises InternalError if sizes are others.
    """
    if out.shape != sizes:
        raise InternalError(f"{name} returned the shape {tuple(out.shape)}, and the capture foretold {sizes}")
    if not ORIGINAL.numel(out) or all(n < 2 or a == b for n, a, b in zip(sizes, ORIGINAL.stride(out), strides, strict=True)):
        return out
    events.count("relaid")
    if name not in _told:
        _told.add(name)
        text = f"{name} returned strides {ORIGINAL.stride(out)} for {sizes}, and the capture foretold {strides}: copied. Please report this"
        events.emit("warning", id="layout", text=text)
    return torch.empty_strided(sizes, strides, dtype=out.dtype, device=out.device).copy_(out)
