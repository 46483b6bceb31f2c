"""Methods of tensors that a program has replaced, beside classes that are told of torch functions.

C++ tells a class which method was called by its name: the function it is told is what stands on `torch.Tensor` under that name by now, also
where the original was called, and the default `__torch_function__` calls what it is told. That breaks the graph.
"""

from __future__ import annotations

from typing import Any

from pliant.graph.originals import torch
from pliant.interpret.attributes import lookup
from pliant.interpret.state import Break

OF_TENSORS = {**vars(torch._C.TensorBase), **vars(torch.Tensor)}
"""By name, what `torch.Tensor` had when pliant was imported, its own or inherited."""
OPERATORS = tuple(
    "add sub rsub mul div true_divide floor_divide remainder pow matmul neg abs bitwise_and bitwise_or bitwise_xor bitwise_not"
    " bitwise_left_shift bitwise_right_shift eq ne lt le gt ge add_ sub_ mul_ div_ pow_ bitwise_and_ bitwise_or_ bitwise_xor_"
    " positive".split()
)
"""Methods as which C++ tells the operators of Python."""


def refuse_replaced(name: str) -> None:
    """Breaks the graph if this method was replaced. Of an operator (`__sub__`), or without a name: if any was, as it is told by
    another."""
    now = vars(torch.Tensor)
    if name and not name.startswith("__"):
        names: Any = (name,)
    else:
        names = now.keys() & OF_TENSORS.keys()
        for operator in OPERATORS:
            lookup(torch.Tensor, operator)  # guarded
    if any([now.get(n, OF_TENSORS[n]) is not OF_TENSORS[n] for n in names if n in OF_TENSORS]):
        raise Break("PL0011", "a method of tensors was replaced, which is what classes are told", clean=True)
