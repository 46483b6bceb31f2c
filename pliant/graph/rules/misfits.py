"""Operands whose sizes do not fit each other, of operators whose shape functions do not look: the kernel says what it refuses.

Nothing else would say so where nobody reads the result, or in time where a handler waits. The rules in here hold the sizes against each
other; where they do not fit, the operator itself runs on made-up operands of these sizes, which are guarded.
"""

from __future__ import annotations

from typing import Any

from torch.utils._pytree import tree_map

from pliant.graph import dispatch, symnode
from pliant.graph.originals import ORIGINAL, math, torch
from pliant.graph.rules.shape import require_equal
from pliant.graph.traced import TracedTensor, Untraceable

MOST_WRITTEN = 1 << 20
"""Elements of a made-up operand that is written to, which must have memory of its own; others are one element, expanded."""


def misfit(trace: Any, func: Any, *args: Any, **kwargs: Any) -> Any:
    """Raises what the operator raises for operands of these sizes. If it takes them, they are PyTorch's shape function's."""
    own = func._schema.is_mutable

    def made_up(v: Any) -> Any:
        if type(v) is not TracedTensor:
            return symnode.concrete(v)
        sizes = [int(symnode.concrete(n)) for n in v.sizes]
        if own and math.prod(sizes) > MOST_WRITTEN:
            raise Untraceable(func, "sizes that its kernel may refuse")
        if own:
            return torch.zeros(sizes, dtype=v.dtype, device="cpu")
        return ORIGINAL.expand(torch.zeros((), dtype=v.dtype, device="cpu"), sizes)

    with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction(), torch.no_grad():
        func(*tree_map(made_up, args), **tree_map(made_up, kwargs))
    return NotImplemented


def by_meta(trace: Any, func: Any, *args: Any, **kwargs: Any) -> Any:
    """What PyTorch's shape function says of an operator whose rule does not know; raises what it raises."""
    return dispatch.through_meta(trace, func, args, kwargs)


def one_size(trace: Any, a: Any, b: Any) -> bool:
    """Whether two tensors have the same sizes, as eager demands."""
    return len(a) == len(b) and all([require_equal(trace, m, n) for m, n in zip(a, b, strict=True)])
