"""Resizing by a factor, with sizes kept symbolic.

`F.interpolate(x, scale_factor=...)` reaches overloads of `upsample_*` whose C++ code works the output size out in plain integers. While
`symbolic_resizing` is on, they are called with the size that this code would find, and with the factors, which the kernels use as well.
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


class symbolic_resizing(TorchFunctionMode):
    """See the module's docstring."""

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        found = RESIZERS.get(func)
        # (input, output size, corners if the kind has them, factors): the other overload has the factors one by one
        if found is not None and not kwargs and len(args) == 3 + found[1] and not isinstance(args[-1], float):
            return resize(*found, *args)
        return func(*args, **(kwargs or {}))
