"""Is a compiled answer eager's answer?"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _pytree as pytree


class Mismatch(Exception):
    """The answers differ in more than rounding: structure, type, shape, dtype, a constant."""


def difference(got: Any, expected: Any) -> float:
    """The largest difference between two nested answers; raises Mismatch where they are not alike.

    Differences are absolute; in a tensor whose largest value is beyond 1 they are parts of that value.
    """
    leaves, spec = pytree.tree_flatten(got)
    wanted, wanted_spec = pytree.tree_flatten(expected)
    if spec != wanted_spec:
        raise Mismatch(f"structure {spec}, eager has {wanted_spec}")
    largest = 0.0
    for a, b in zip(leaves, wanted):
        if type(a) is not type(b):
            raise Mismatch(f"{type(a).__name__}, eager has {type(b).__name__}")
        if not isinstance(a, torch.Tensor):
            if a != b:
                raise Mismatch(f"{a!r}, eager has {b!r}")
        elif a.shape != b.shape or a.dtype != b.dtype:
            raise Mismatch(f"{a.dtype} {tuple(a.shape)}, eager has {b.dtype} {tuple(b.shape)}")
        elif not torch.equal(a.isnan(), b.isnan()):
            raise Mismatch("NaN in other places than eager")
        elif a.numel():
            if not a.dtype.is_floating_point and not a.dtype.is_complex:
                if not torch.equal(a, b):
                    raise Mismatch(f"other {a.dtype} values than eager")
            else:
                apart = torch.where(a == b, 0, (a - b).abs()).nan_to_num(0.0, posinf=float("inf"))  # equal infinities differ by 0
                top = float(b.abs().nan_to_num(0.0, posinf=0.0).max())
                largest = max(largest, float(apart.max()) / max(top, 1.0))
    return largest
