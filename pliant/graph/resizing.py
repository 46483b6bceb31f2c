"""Resizing by a factor, with sizes kept symbolic.

`F.interpolate(x, scale_factor=...)` reaches overloads of `upsample_*` whose C++ code works the output size out in plain integers. They
are tried again by PyTorch's Python code (`symbolic_resizing`), which takes symbols but differs in one thing: along a dim whose size
comes out as it was, the kernels copy, whatever the factor is. `settled` asks for that first, and then says 1.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode

aten = torch.ops.aten
NAMES = (
    "upsample_nearest1d upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d"
    " upsample_linear1d upsample_bilinear2d upsample_trilinear3d upsample_bicubic2d _upsample_bilinear2d_aa _upsample_bicubic2d_aa"
).split()

#: PyTorch's Python binding -> (the overload with an output size, whether it is told of corners).
RESIZERS: dict[Any, tuple[Any, bool]] = {
    getattr(torch._C._nn, name): (getattr(aten, name).default, "nearest" not in name) for name in NAMES if hasattr(torch._C._nn, name)
}


def resize(op: Any, corners: bool, x: torch.Tensor, output_size: Any, *rest: Any) -> torch.Tensor:
    """As ATen's overload `vec`: exactly one of `output_size` and the factors (the last argument) is given."""
    *flags, factors = rest
    n = x.dim() - 2
    if factors is None:
        return op(x, output_size, *flags, *[None] * n)
    sizes = [torch.sym_int(torch.sym_float(x.shape[i + 2]) * factors[i]) for i in range(n)]
    return op(x, sizes, *flags, *factors)


def settled(args: tuple, kwargs: dict) -> dict:
    """Keyword arguments of `F.interpolate` with a factor of 1 along the dims that keep their size; which those are is guarded."""
    factors, x = kwargs.get("scale_factor"), args[0] if args else kwargs.get("input")
    if len(args) > 1 or factors is None or kwargs.get("recompute_scale_factor") or not isinstance(x, torch.Tensor):
        return kwargs
    if kwargs.get("mode") == "bicubic" or kwargs.get("antialias"):
        return kwargs  # those kernels use the factor all the same
    if not isinstance(factors, (list, tuple)):
        factors = [factors] * (x.dim() - 2)
    if len(factors) != x.dim() - 2:
        return kwargs
    return kwargs | {"scale_factor": [1.0 if stays(n, f) else f for n, f in zip(x.shape[2:], factors, strict=True)]}


def refused(args: tuple, kwargs: dict) -> bool:
    """Whether PyTorch's kernels may refuse what its Python code for symbols takes: numbers that are not float, nothing to resize."""
    x = args[0] if args else kwargs.get("input")
    return isinstance(x, torch.Tensor) and (not x.is_floating_point() or any(type(n) is int and n == 0 for n in x.shape[1:]))


def stays(n: Any, factor: Any) -> bool:
    """Does a dim of `n` keep its size under this factor? (A dim of 1 has one value, whatever is done with it.)"""
    if isinstance(factor, (int, float)) and not 1 < factor < 1.5:
        return False
    return bool(torch.sym_int(torch.sym_float(n) * factor) == n)


class symbolic_resizing(TorchFunctionMode):
    """See the module's docstring."""

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        found = RESIZERS.get(func)
        # (input, output size, corners if the kind has them, factors): the other overload has the factors one by one
        if found is not None and not kwargs and len(args) == 3 + found[1] and not isinstance(args[-1], float):
            return resize(*found, *args)
        return func(*args, **(kwargs or {}))
