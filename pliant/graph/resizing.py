"""Resizing by a factor, with sizes kept symbolic.

`F.interpolate(x, scale_factor=...)` reaches overloads of `upsample_*` whose C++ code works the output size out in plain integers. They
are tried again with PyTorch's decompositions in Python, which take symbols but differ in one thing. Where a dim comes out as long as it
was, the linear kernels copy, whatever the factor is; so do the two-dimensional nearest ones, which also repeat each item where it comes
out twice as long. `settled` asks for that first, and then says 1 or 2. The other nearest ones go
by the factor, but for that of three dimensions and channels-last memory, which does one or the other as the number of channels is: it is
refused.
"""

from __future__ import annotations

from typing import Any

import torch

from pliant.graph.dispatch import same
from pliant.graph.layout import contiguous_strides
from pliant.graph.traced import TracedTensor

PARAMETERS = ("input", "size", "scale_factor", "mode", "align_corners", "recompute_scale_factor", "antialias")
#: By mode and number of dims: the factors that kernels take for the given one where the output size is the same with both.
SETTLED = {("linear", 1): (1,), ("bilinear", 2): (1,), ("trilinear", 3): (1,), ("nearest", 2): (1, 2)}


def settled(args: tuple, kwargs: dict) -> dict:
    """Keyword arguments of `F.interpolate` with the factors that its kernels take; which those are is guarded."""
    kwargs = dict(zip(PARAMETERS, args, strict=False)) | kwargs
    factors, x = kwargs.get("scale_factor"), kwargs.get("input")
    if factors is None or kwargs.get("recompute_scale_factor") or kwargs.get("antialias") or not isinstance(x, torch.Tensor):
        return kwargs
    n = x.dim() - 2
    whole = SETTLED.get((kwargs.get("mode", "nearest"), n), ())
    if not whole:
        return kwargs
    if not isinstance(factors, (list, tuple)):
        factors = [factors] * n
    if len(factors) != n:
        return kwargs
    return kwargs | {"scale_factor": [taken(size, f, whole) for size, f in zip(x.shape[2:], factors, strict=True)]}


def refused(args: tuple, kwargs: dict) -> bool:
    """Whether PyTorch's kernels may refuse what its Python code for symbols takes: numbers that are not float, nothing to resize; or
    do what depends on more than the sizes of what is resized."""
    given = dict(zip(PARAMETERS, args, strict=False)) | kwargs
    x = given.get("input")
    if not isinstance(x, torch.Tensor):
        return False
    if given.get("mode", "nearest") == "nearest" and x.dim() == 5 and x.is_contiguous(memory_format=torch.channels_last_3d):
        return True
    if isinstance(x, TracedTensor) and x.dim() > 3 and any([type(n) is int and n == 1 for n in x.sizes[:2]]):
        if not all(map(same, x.strides, contiguous_strides(x.sizes))):
            return True  # the stride of a dim of 1 is the kernel's own
    return not x.is_floating_point() or any(type(n) is int and n == 0 for n in x.shape[1:])


def packed(x: Any) -> Any:
    """Rows are resized into new ones; the Python code leaves them in the order of the strides that the input has."""
    return x.contiguous() if type(x) is TracedTensor and len(x.sizes) == 3 and not x.dense else x


def taken(n: Any, factor: Any, whole: tuple[int, ...]) -> Any:
    """The factor by which a dim of `n` is resized. (A dim of 1 has one value, whatever is done with it.)"""
    for k in whole:
        if isinstance(factor, (int, float)) and not k < factor < (1.5, 3)[k - 1]:
            continue
        if torch.sym_int(torch.sym_float(n) * factor) == n * k:
            return float(k)
    return factor
