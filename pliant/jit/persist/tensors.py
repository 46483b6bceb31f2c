"""Tensors as data: those that programs hold as constants, and what guards know of the tensors that they were made from."""

from __future__ import annotations

import ctypes
import functools

from pliant.graph.originals import ORIGINAL, torch
from pliant.jit.persist.names import Missing
from pliant.jit.persist.values import NotPortable

MOST_BYTES = 1 << 16  # of a tensor that a program holds as a constant


def dispatch_keys(t: torch.Tensor) -> int:
    keys: int = torch._C._dispatch_keys(t).raw_repr()
    return keys


@functools.cache
def example(dtype: torch.dtype, device: str, keys: int) -> torch.Tensor:
    """A tensor that dispatches like the one that a guard was made from. Raises Missing."""
    for inference in (False, True):
        with torch.inference_mode(inference), torch._C.DisableTorchFunctionSubclass():
            t = torch.empty(0, dtype=dtype, device=device)
        if dispatch_keys(t) == keys:
            return t
    raise Missing(f"a tensor with the dispatch keys {keys:#x}")


def encode_example(t: torch.Tensor) -> tuple:
    """Of a tensor, what `example` makes another from."""
    with torch._C.DisableTorchFunctionSubclass():
        row = (str(t.dtype).removeprefix("torch."), str(t.device), dispatch_keys(t))
    try:
        decode_example(row)
    except Missing as e:
        raise NotPortable(str(e)) from None
    return row


def decode_example(row: tuple) -> torch.Tensor:
    dtype, device, keys = row
    return example(getattr(torch, dtype), device, keys)


def encode_tensor(t: torch.Tensor) -> tuple:
    """A tensor made of Python constants."""
    like = torch.empty(0, dtype=t.dtype)
    plain = type(t) is torch.Tensor and t.device.type == "cpu" and t.layout is torch.strided
    plain = plain and ORIGINAL.is_contiguous(t) and not t.requires_grad
    if not plain or t.nbytes > MOST_BYTES or dispatch_keys(t) != dispatch_keys(like):
        raise NotPortable(f"a constant tensor of {t.nbytes} bytes")
    return str(t.dtype).removeprefix("torch."), tuple(t.shape), ctypes.string_at(ORIGINAL.data_ptr(t), t.nbytes) if t.nbytes else b""


def decode_tensor(dtype: str, shape: tuple, data: bytes) -> torch.Tensor:
    kind = getattr(torch, dtype)
    with torch.inference_mode(False), torch._C.DisableTorchFunction():  # no mode of the program's hears of it
        if not data:
            return torch.empty(shape, dtype=kind)
        return ORIGINAL.reshape(ORIGINAL.clone(torch.frombuffer(bytearray(data), dtype=kind)), shape)
