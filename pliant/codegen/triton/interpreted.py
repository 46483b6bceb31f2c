"""Functions of libdevice for Triton's interpreter, which holds tiles as NumPy arrays: NumPy's, in float64, rounded once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import triton.language as tl
from triton.runtime.interpreter import TensorHandle

from pliant.graph.originals import numpy as np
from pliant.graph.originals import torch


def function(f: Callable[..., np.ndarray]) -> Callable[..., Any]:
    def call(*args: Any) -> Any:
        first = args[0]
        with np.errstate(all="ignore"):
            out = f(*[a.handle.data.astype(np.float64) for a in args]).astype(first.handle.data.dtype)
        return tl.tensor(TensorHandle(out, first.handle.dtype), first.type)

    return call


def of_torch(f: Callable[[torch.Tensor], torch.Tensor]) -> Callable[..., Any]:
    return function(lambda a: f(torch.from_numpy(np.ascontiguousarray(a))).numpy().reshape(a.shape))


def end(n: Any) -> int:
    """Where a loop ends, as `range` takes it."""
    return int(n.handle.data.item())


exp, exp2, expm1 = map(function, (np.exp, np.exp2, np.expm1))
log, log2, log10, log1p = map(function, (np.log, np.log2, np.log10, np.log1p))
sin, cos, tan, asin, acos, atan = map(function, (np.sin, np.cos, np.tan, np.arcsin, np.arccos, np.arctan))
sinh, cosh, tanh, atan2, pow = map(function, (np.sinh, np.cosh, np.tanh, np.arctan2, np.power))
erf, erfc = map(of_torch, (torch.special.erf, torch.special.erfc))
rsqrt = function(lambda a: 1 / np.sqrt(a))
trunc, rint, fmod, copysign = map(function, (np.trunc, np.rint, np.fmod, np.copysign))
