"""Gradients of distributed tensors that are placed otherwise than the part of the tensor tells, on their way through a region.

Eager's gradients have the placement that operators give them: of rows of an embedding the gradient is whole, and whoever sums a result
sends a gradient back that is whole. The engine checks each gradient against the tensor it is for, and in a region that is the part, which
may be of another size. So it is given an `Arrived`: of the part's size, with the distributed gradient inside.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pliant.graph.distributed_tensors import build, local_sizes
from pliant.graph.layout import contiguous_strides
from pliant.graph.originals import gradients, torch
from pliant.graph.traced import make

ADD = torch.ops.aten.add.Tensor
MAKE: Any = torch.Tensor._make_wrapper_subclass
TAKEN = [0]
"""How many who go through a tape just now take them."""


class Arrived(torch.Tensor):
    """Stands for a part's gradient. `whole`: the distributed tensor that is meant."""

    whole: Any
    __torch_function__: Any = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        if func is ADD and not kwargs and len(args) == 2 and all([type(a) is cls for a in args]):  # as the engine adds up gradients
            return arrived(func(args[0].whole, args[1].whole), args[0].size(), args[0].dtype, args[0].device)
        raise RuntimeError(f"{func} of a gradient that is placed otherwise than what it is for")


def arrived(whole: Any, size: Any, dtype: Any, device: Any) -> Arrived:
    """`whole` in the place of the gradient of a part that is like this."""
    g: Arrived = MAKE(Arrived, size, dtype=dtype, device=device)
    g.whole = whole
    return g


@contextmanager
def taken() -> Iterator[None]:
    """While inside, whoever runs the engine over the tape of a capture takes an `Arrived` for the gradient of a part."""
    TAKEN[0] += 1
    try:
        yield
    finally:
        TAKEN[0] -= 1


def expected(trace: Any, head: Any, form: tuple) -> tuple[Any, Arrived]:
    """A traced gradient for the part `head` of a distributed result, which arrives placed like `form`: its own part, and what the engine is
    given."""
    cls, meta = trace.wholes[head.vid]
    sizes = local_sizes(form, meta.shape)
    part = make(trace, sizes, contiguous_strides(sizes), meta.dtype, 0, None, head.device, True)
    with gradients(False):
        whole = build(cls, form, meta.shape, contiguous_strides(tuple(meta.shape)), meta.dtype, part)
        return part, arrived(whole, head.size(), head.dtype, head.device)


def given(cls: type, form: tuple, dtype: Any, part: Any, sizes: tuple, strides: tuple, own: tuple) -> Arrived:
    """What a backward part gives for the part (of size `own`) of an input whose gradient is placed like `form`."""
    return arrived(build(cls, form, sizes, strides, dtype, part), own, dtype, part.device)
