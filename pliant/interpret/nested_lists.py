"""Jagged tensors that are made of lists, and operators of `torch.masked`: functions of PyTorch decomposed in `in_torch.py`."""

from __future__ import annotations

import importlib
from typing import Any

import torch
from torch.masked import _ops as masked

from pliant.graph.traced import TracedTensor
from pliant.interpret import in_torch, jagged
from pliant.interpret.calls import call, inline
from pliant.interpret.lookasides import lookaside
from pliant.interpret.slots import unpack
from pliant.interpret.state import Break, vm, whole_loops
from pliant.interpret.tensor_subclasses import BUILT_IN, call_as_it_is
from pliant.interpret.wrappers import is_stand, is_wrapped

MAKE: Any = torch.Tensor._make_wrapper_subclass
OF_NESTED = ("tensor_list", "dtype", "layout", "device", "requires_grad", "pin_memory")
OF_AS_NESTED = ("ts", "dtype", "device", "layout")


def plain(t: Any) -> bool:
    return type(t) is TracedTensor and t.pytype in BUILT_IN and not is_stand(t) and not is_wrapped(t)


def of_list(values: dict[str, Any], name: str) -> Any:
    """A jagged tensor of the tensors of a list. Raises Break for everything else that these functions take."""
    tensors = values.get(name)
    if values.get("layout") is not torch.jagged or type(tensors) not in (list, tuple) or not whole_loops():
        raise Break("PL0034", "a nested tensor of the strided layout, of no list, or for a backend that is not pliant's own", clean=True)
    items = unpack(tensors)
    if not all([plain(t) for t in items]) or values.get("requires_grad") or values.get("pin_memory"):
        raise Break("PL0034", "a nested tensor of what are no plain tensors, or a leaf", clean=True)
    try:
        return inline(in_torch.jagged_from_list, (items, values.get("dtype"), values.get("device")), {})
    except in_torch.Refused:
        raise Break("PL0034", "a nested tensor of tensors that do not fit", clean=True) from None


@lookaside(torch.nested.as_nested_tensor)
def l_as_nested(args: tuple, kw: dict) -> Any:
    return of_list(dict(zip(OF_AS_NESTED, args, strict=False)) | kw, "ts")


@lookaside(torch.nested.nested_tensor)
def l_nested(args: tuple, kw: dict) -> Any:
    with torch.no_grad():
        return of_list(dict(zip(OF_NESTED, args, strict=False)) | kw, "tensor_list")


@lookaside(in_torch.over_values)
def l_over_values(args: tuple, kw: dict) -> Any:
    values, offsets, shortest, longest, ragged = args
    make = importlib.import_module(jagged.MODULE).nested_view_from_values_offsets
    return call_as_it_is(make, (values, offsets), {"ragged_idx": ragged, "min_seqlen": shortest, "max_seqlen": longest})


@lookaside(masked._combine_input_and_mask)
def l_combine(args: tuple, kw: dict) -> Any:
    own = len(args) > 2 and type(args[1]) is TracedTensor and is_wrapped(args[1]) and args[1].pytype is masked.MaskedTensor
    if kw or len(args) < 3 or not (own or plain(args[1])):
        raise Break("PL0011", "a masked tensor", clean=True)
    try:
        return inline(in_torch.combine_masked_tensor if own else in_torch.combine_input_and_mask, args, {})
    except in_torch.Refused:
        raise Break("PL0011", "an operator of torch.masked that it does not know", clean=True) from None


@lookaside(masked.MaskedTensor.__new__)
def l_new_masked(args: tuple, kw: dict) -> Any:
    """A `MaskedTensor`. In a rehearsal of a backward part its words of warning are no effect: the part says them when it is made."""
    if not vm.rehearsing:
        return inline(masked.MaskedTensor.__new__, args, kw)
    cls, data, mask = args[:3] if len(args) > 2 else (None, None, None)
    if not (type(data) is TracedTensor and type(mask) is TracedTensor) or is_wrapped(data) or is_wrapped(mask) or kw or len(args) > 3:
        raise Break("PL0011", "a masked tensor of other things than tensors, in a backward part")
    like = {"device": data.device, "dtype": data.dtype, "layout": data.layout}
    how = {"dispatch_sizes_strides_policy": "strides", "dispatch_layout": True}
    return call(MAKE, (cls, data.size()), {**like, **how})
