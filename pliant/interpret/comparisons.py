"""`torch.equal` and `torch.allclose`: what the truth of two tensors is only the run knows."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from pliant.graph.handlers import equal as truth_of_two
from pliant.graph.originals import ORIGINAL, torch
from pliant.graph.traced import TracedTensor
from pliant.interpret.calls import LOOKASIDES, METHOD_LOOKASIDES, graph_call
from pliant.interpret.state import Break, by_value, vm, whole_loops


def compared(fn: Any, overload: Any) -> Callable:
    """`torch.equal`, `torch.allclose`: C++ would want the answer at once, so the truth value is recorded here."""

    def look(args: tuple, kw: dict) -> Any:
        plain = len(args) >= 2 and all([type(x) is TracedTensor and x.pytype in PLAIN_TENSORS for x in args[:2]])
        settings = (*args[2:], *kw.values())
        if not plain or not whole_loops() or not all([type(v) in (float, int, bool) for v in settings]):
            return graph_call(fn, args, kw)
        fits = not settings if overload is EQUAL else len(settings) <= 3 and kw.keys() <= {"rtol", "atol", "equal_nan"}
        if not fits or torch._C._len_torch_function_stack():
            return graph_call(fn, args, kw)
        if args[0].dtype is not args[1].dtype:
            raise Break("PL0041", f"{fn.__name__} of two dtypes, which PyTorch refuses", clean=True)
        if vm.frame is not None:
            vm.frame.tail = False
        if by_value():
            return of_elements(fn, overload, args, kw)
        return truth_of_two(vm.trace, overload, args, kw)

    return look


def of_elements(fn: Any, overload: Any, args: tuple, kw: dict) -> Any:
    """The same of operators that all formats of an export have."""
    a, b = args[:2]
    if overload is EQUAL:
        if a.dtype is not b.dtype or a.storage_id == b.storage_id:  # it raises; NaN is equal to itself in the same memory
            return graph_call(fn, args, kw)
        if len(a.sizes) != len(b.sizes) or not all([vm.truth(m == n) for m, n in zip(a.sizes, b.sizes, strict=True)]):
            return False
    alike = graph_call(torch.eq if overload is EQUAL else torch.isclose, args, kw)
    return graph_call(ORIGINAL.item, (graph_call(torch.all, (alike,), {}),), {}, "item")


PLAIN_TENSORS = (torch.Tensor, torch.nn.Parameter)
EQUAL = torch.ops.aten.equal.default
for _compare, _overload in ((torch.equal, EQUAL), (torch.allclose, torch.ops.aten.allclose.default)):
    LOOKASIDES[_compare] = _look = compared(_compare, _overload)
    METHOD_LOOKASIDES[(torch.Tensor, _compare.__name__)] = functools.partial(lambda look, t, a, k: look((t, *a), k), _look)
