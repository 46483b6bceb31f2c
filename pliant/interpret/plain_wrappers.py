"""Which tensors that wrap others are read attribute by attribute: those that answer for nothing but what PyTorch asks of all."""

from __future__ import annotations

import types
from typing import Any

import torch
from torch import Tensor
from torch.utils import _python_dispatch as python_dispatch

from pliant.graph.masked_tensors import is_masked
from pliant.graph.originals import ORIGINAL, in_memory


class Heard(python_dispatch.TorchDispatchMode):
    """Notes whether anything is asked of the class of a tensor that others answer themselves."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = False

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        self.asked = True
        return NotImplemented


def plain_wrapper(v: Any) -> bool:
    """Whether a tensor has no memory of its own, answers for its sizes, strides and device itself, and has its attributes in its dict."""
    if any([type(x) is types.MemberDescriptorType for b in type(v).__mro__ if b not in Tensor.__mro__ for x in b.__dict__.values()]):
        return False
    heard = Heard()
    try:
        with python_dispatch._disable_current_modes(), heard:
            known = (ORIGINAL.size(v), ORIGINAL.stride(v), v.device, ORIGINAL.storage_offset(v), v.is_quantized)
            strided = v.layout is torch.strided and not known[-1]
    except Exception:
        return False
    return strided and not in_memory(v) and (not heard.asked or answers_plainly(v))


def answers_plainly(v: Any) -> bool:
    """Whether the class is one of PyTorch's that answers for itself with what it was made with: that of masked tensors, unless sparse."""
    return is_masked(type(v)) and all([x.layout is torch.strided for x in v.__dict__.values()])
