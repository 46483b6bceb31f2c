"""Methods of tensors that a program has replaced, beside classes that are told of torch functions.

C++ tells a class which method was called by its name: the function it is told is what stands on `torch.Tensor` under that name by now, also
where the original was called, and the default `__torch_function__` calls what it is told. That breaks the graph.
"""

from __future__ import annotations

from pliant.graph.originals import torch
from pliant.interpret.capture import UNSET
from pliant.interpret.state import Break

OF_TENSORS = {**dict.fromkeys(vars(torch._C.TensorBase), UNSET), **vars(torch.Tensor)}
"""By name, what `torch.Tensor` itself had of its own when pliant was imported."""


def refuse_replaced(name: str) -> None:
    """Breaks the graph if this method was replaced. No name: if any was, where it is not known which one operators come to."""
    now = vars(torch.Tensor)
    names = (name,) if name else now.keys() & OF_TENSORS.keys()
    if any([now.get(n, UNSET) is not OF_TENSORS.get(n, UNSET) for n in names]):
        raise Break("PL0011", "a method of tensors was replaced, which is what classes are told", clean=True)
