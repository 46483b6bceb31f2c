"""Masked tensors (`torch.masked`) at the edges of a graph that gradients flow through.

The gradient of a masked tensor is one, too, and so may be that of a plain tensor which one was made of. Which of its elements count is
found out with it. A region knows gradients of floating-point tensors alone: so the mask of a gradient goes through it as the gradient of a
part of its own, a tensor of the size of the data that nobody reads.
"""

from __future__ import annotations

import sys
from typing import Any

from pliant.graph.originals import ORIGINAL, torch
from pliant.graph.same_values import equal_always
from pliant.graph.traced import TracedTensor

CORE = "torch.masked.maskedtensor.core"
DATA, MASK = "_masked_data", "_masked_mask"
NAMES = [DATA, MASK]
OF_RESULT = [DATA, "masked"]
"""Parts of a result: of its data, and a number whose gradient says no more than that that of the data has the result's mask."""
MAKE: Any = torch.Tensor._make_wrapper_subclass


def is_masked(cls: type) -> bool:
    return cls is getattr(sys.modules.get(CORE), "MaskedTensor", None)


def class_() -> Any:
    return sys.modules[CORE].MaskedTensor


def build(data: Any, mask: Any) -> Any:
    """A masked tensor, as its class makes one, without a word of warning."""
    like = {"device": data.device, "dtype": data.dtype, "layout": data.layout}
    w = MAKE(class_(), data.size(), **like, dispatch_sizes_strides_policy="strides", dispatch_layout=True)
    w.__dict__.update({DATA: data, MASK: mask})
    return w


def parts(w: Any) -> tuple[Any, Any]:
    """The data, and the mask in the data's dtype."""
    data = getattr(w, DATA)
    return data, getattr(w, MASK).to(data.dtype)


def whole(data: Any, mask: Any) -> Any:
    """The gradient that has these parts. Without a mask it is a plain tensor."""
    return data if data is None or mask is None else build(data, mask.to(torch.bool))


ANOTHER = (
    "the gradient of a masked result, or of a masked gradient, arrives with another mask than that has, for which the compiled region is "
    "not made: decorate the function with pliant.disable"
)


def same_mask(g: Any, mask: Any) -> bool:
    own = getattr(g, MASK)
    if type(own) is TracedTensor or type(mask) is TracedTensor:  # in a capture: what is not known is refused
        return type(own) is type(mask) and equal_always(own.trace, own, mask)
    return bool(ORIGINAL.equal(own, mask))


def as_the_result(g: Any, mask: Any) -> tuple[Any, Any]:
    """The gradients for the parts of a result whose mask is this. One that is plain stays plain."""
    if g is None:
        return None, None
    if is_masked(type(g)) and not same_mask(g, mask):
        raise RuntimeError(ANOTHER)
    return (getattr(g, DATA), ORIGINAL.new_zeros(mask, (), dtype=g.dtype)) if is_masked(type(g)) else (g, None)


def as_the_gradient(g: Any, mask: Any) -> None:
    """Refuses the gradient of a masked gradient that has not its mask."""
    if g is not None and not (is_masked(type(g)) and same_mask(g, mask)):
        raise RuntimeError(ANOTHER)
