"""PyTorch's functions as they were when pliant was imported.

A program may put a function of its own in the place of `torch.Tensor.item` or `torch.is_grad_enabled`. Where the program calls it, it is
interpreted; what pliant itself asks for, and what captured operators are printed as, is PyTorch's.
"""

from __future__ import annotations

import types
from typing import Any

import torch
from torch import get_default_dtype, is_grad_enabled, is_inference_mode_enabled

ORIGINAL: Any = types.SimpleNamespace(**{name: getattr(torch.Tensor, name) for name in dir(torch.Tensor) if name != "__class__"})
"""The methods of tensors."""

SPELLED = (
    "view permute expand repeat t transpose unsqueeze squeeze to item __add__ __radd__ __sub__ __rsub__ __mul__ __rmul__ __truediv__"
    " __rtruediv__ __getitem__"
).split()
"""Methods and operators as which generated code spells some operations of ATen (`codegen.fastops.FORMS`)."""

_set_grad_enabled = torch._C._set_grad_enabled


class gradients:  # noqa: N801
    """`torch.set_grad_enabled(on)` as a context, which asks nothing that a program may have replaced."""

    __slots__ = ("before", "on")

    def __init__(self, on: bool) -> None:
        self.on = on

    def __enter__(self) -> None:
        self.before = is_grad_enabled()
        _set_grad_enabled(self.on)

    def __exit__(self, *_: object) -> None:
        _set_grad_enabled(self.before)


def is_own(method: str) -> bool:
    """Whether a method of tensors is PyTorch's."""
    return getattr(torch.Tensor, method) is getattr(ORIGINAL, method)


__all__ = ["ORIGINAL", "SPELLED", "get_default_dtype", "gradients", "is_grad_enabled", "is_inference_mode_enabled", "is_own"]
