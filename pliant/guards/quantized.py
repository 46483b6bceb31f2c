"""The packed weights of `torch.ao`'s dynamic linear layers, as tensors that a graph may have, and the kernel that takes these.

A packed object never changes, so its parts are made once and live as long as it does.
"""

from __future__ import annotations

import ctypes
import warnings
import weakref
from typing import Any

from torch.utils._python_dispatch import _disable_current_modes

from pliant import native
from pliant.graph.originals import ORIGINAL, torch
from pliant.graph.quantized import DYNAMIC_LINEAR, LIBRARY
from pliant.guards.views import view

PACKED = "LinearPackedParamsBase"
LEVELS, REDUCED = 255, 127
"""Steps of a range of bytes, and of one that is reduced to 7 bits."""

Box = ctypes.c_int64 * 13
_routine = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)(native.int8_functions(native.own_products()[0], True)[1])


def dynamic_linear(x: Any, weight: Any, scale: Any, sums: Any, bias: Any, most: int, fused: bool) -> Any:
    """`pliant::dynamic_linear` on the CPU: what compiled programs do inside of their native functions."""
    n, k = weight.shape
    given = [(scale, torch.float32), (sums, torch.int32), *([] if bias is None else [(bias, torch.float32)])]
    fits = all(t.dtype is dtype and t.shape == (n,) and ORIGINAL.is_contiguous(t) for t, dtype in given)
    if not fits or weight.dtype is not torch.int8 or not ORIGINAL.is_contiguous(weight):
        raise RuntimeError("dynamic_linear of parts that do not fit each other")
    if x.dtype is not torch.float32 or ORIGINAL.dim(x) < 2 or x.shape[-1] != k:
        raise RuntimeError(f"dynamic_linear of {x.dtype} of shape {tuple(x.shape)} with a weight of shape {tuple(weight.shape)}")
    x = ORIGINAL.contiguous(x)
    out = ORIGINAL.new_empty(x, (*x.shape[:-1], n))
    rows = ORIGINAL.numel(x) // k if k else ORIGINAL.numel(out) // max(n, 1)
    data = [ORIGINAL.data_ptr(t) if t is not None else 0 for t in (x, weight, scale, sums, bias, out)]
    failure = _routine(Box(*data, rows, n, k, k, k, most, fused))
    if failure:
        error, words = next(((e, w) for code, e, w in native.FAILURES.values() if code == failure), (RuntimeError, "out of memory"))
        raise error(words)
    return out


LIBRARY.impl("dynamic_linear", dynamic_linear, "CPU")

_parts: dict[int, tuple[Any, tuple]] = {}  # id of a packed object -> (a weak reference to it, its parts)


@view
def packed_linear(p: Any) -> tuple:
    """(weight of int8, its scales, sums of its rows, bias or None, is the reduced range honoured, is the bias added in one rounding, is the
    whole range computed without cutting sums).

    Raises ValueError for what is packed in a way that the kernel does not compute.
    """
    found = _parts.get(id(p))
    if found is not None and found[0]() is p:
        return found[1]
    with torch._C.DisableTorchFunction(), _disable_current_modes(), torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        parts = unpacked(p)
    number = id(p)
    _parts[number] = weakref.ref(p, lambda _: _parts.pop(number, None)), parts
    return parts


def unpacked(p: Any) -> tuple:
    if type(p) is not torch.ScriptObject or p._type().name() != PACKED:  # type: ignore[attr-defined]
        raise ValueError("no packed linear layer")
    quantized, bias = torch.ops.quantized.linear_unpack(p)
    if quantized.dtype is not torch.qint8 or ORIGINAL.dim(quantized) != 2:
        raise ValueError(f"a packed weight of {quantized.dtype}")
    per_channel = quantized.qscheme() in (torch.per_channel_affine, torch.per_channel_symmetric)
    zeros = quantized.q_per_channel_zero_points() if per_channel else torch.tensor(quantized.q_zero_point())
    if ORIGINAL.any(zeros) or per_channel and quantized.q_per_channel_axis() != 0:
        raise ValueError("a packed weight with zero points")
    weight = ORIGINAL.contiguous(ORIGINAL.int_repr(quantized))
    n = weight.shape[0]
    each = ORIGINAL.q_per_channel_scales(quantized) if per_channel else torch.full((n,), quantized.q_scale(), dtype=torch.float32)
    scale = ORIGINAL.float(each)
    sums = ORIGINAL.sum(weight, 1, dtype=torch.int32)
    if bias is not None:
        bias = ORIGINAL.contiguous(ORIGINAL.float(ORIGINAL.detach(bias)))
    how = behaviour(p, weight, scale, sums, bias)
    held = [None if t is None else torch.nn.Parameter(t, requires_grad=False) for t in (weight, scale, sums, bias)]
    return (*held, *how)


def behaviour(p: Any, weight: Any, scale: Any, sums: Any, bias: Any) -> tuple[bool, bool, bool]:
    """What the engine does that packed it, which the object does not tell: it is seen from its answers."""
    x = probes(weight)
    want = {reduced: torch.ops.quantized.linear_dynamic(x, p, reduced) for reduced in (True, False)}
    found = []
    for reduces in (True, False):
        for fused in (True, False):
            got = {r: DYNAMIC_LINEAR(x, weight, scale, sums, bias, REDUCED if r and reduces else LEVELS, fused) for r in want}
            same = {r: torch.equal(got[r], want[r]) for r in want}
            near = all([torch.allclose(got[r], want[r], rtol=1e-6, atol=1e-6 * float(ORIGINAL.max(ORIGINAL.abs(want[r])))) for r in want])
            found.append(((reduces, fused), same, near))
    exact = [(*how, True) for how, same, _ in found if all(same.values())]
    close = [(*how, True) for how, _, near in found if near]
    reduced = [(*how, False) for how, same, _ in found if how[0] and same[True]]
    best = exact or close or reduced
    if not best:
        raise ValueError("a packed linear layer of an engine that computes otherwise")
    return best[0]


def probes(weight: Any) -> Any:
    """Rows to try an engine with: without instructions for it, sums of two products of bytes are cut to 16 bits. So beside ordinary rows
    there are those that make the sums of the largest weights as large as they can be."""
    n, k = weight.shape
    plain = ORIGINAL.reshape(torch.linspace(-1.0, 1.3, 3 * k), 3, k)
    if n == 0 or k < 2:
        return plain
    pairs = ORIGINAL.abs(ORIGINAL.sum(ORIGINAL.reshape(weight[:, : k - k % 2], n, -1, 2), 2, dtype=torch.int32)).amax(1)
    largest = weight[pairs.topk(min(n, 4)).indices]
    return torch.cat([plain, torch.where(largest > 0, 1.3, -1.0), torch.where(largest < 0, 1.3, -1.0)])
