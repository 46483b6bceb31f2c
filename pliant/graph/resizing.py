"""Resizing by a factor, with sizes kept symbolic.

`F.interpolate(x, scale_factor=...)` reaches overloads of `upsample_*` whose C++ code works the output size out in plain integers. They
are tried again with PyTorch's decompositions in Python, which take symbols but differ in one thing. Where a dim comes out as long as it
was, the linear kernels copy, whatever the factor is; so do the two-dimensional nearest ones, which also repeat each item where it comes
out twice as long. `settled` asks for that first, and then says 1 or 2. The other nearest ones go
by the factor, but for that of three dimensions and channels-last memory, which does one or the other as the number of channels is.

Such cases, and all of an export, keep the operator that the C++ code would have come to (`whole`), with its sizes as expressions.
"""

from __future__ import annotations

from typing import Any

from pliant.graph.dispatch import same
from pliant.graph.layout import contiguous_strides, is_open
from pliant.graph.originals import ORIGINAL, torch
from pliant.graph.rules.nn import TO_NOTHING
from pliant.graph.rules.shape import holds
from pliant.graph.traced import TracedTensor
from pliant.symbolic import ops

aten = torch.ops.aten

PARAMETERS = ("input", "size", "scale_factor", "mode", "align_corners", "recompute_scale_factor", "antialias")
#: By mode and number of dims: the factors that kernels take for the given one where the output size is the same with both.
SETTLED = {("linear", 1): (1,), ("bilinear", 2): (1,), ("trilinear", 3): (1,), ("nearest", 2): (1, 2)}


def settled(args: tuple, kwargs: dict) -> dict:
    """Keyword arguments of `F.interpolate` with the factors that its kernels take; which those are is guarded."""
    kwargs = dict(zip(PARAMETERS, args, strict=False)) | kwargs
    factors, x = kwargs.get("scale_factor"), kwargs.get("input")
    if factors is None or kwargs.get("recompute_scale_factor") or kwargs.get("antialias") or not isinstance(x, torch.Tensor):
        return kwargs
    n = ORIGINAL.dim(x) - 2
    whole = SETTLED.get((kwargs.get("mode", "nearest"), n), ())
    if not whole:
        return kwargs
    if not isinstance(factors, (list, tuple)):
        factors = [factors] * n
    if len(factors) != n:
        return kwargs
    return kwargs | {"scale_factor": [taken(size, f, whole) for size, f in zip(x.shape[2:], factors, strict=True)]}


#: By mode, number of dims and `antialias`: the operator that `F.interpolate` comes to. ("area" is a pooling.)
OPERATORS = {
    ("nearest", 1, False): aten.upsample_nearest1d.default, ("nearest", 2, False): aten.upsample_nearest2d.default,
    ("nearest", 3, False): aten.upsample_nearest3d.default, ("nearest-exact", 1, False): aten._upsample_nearest_exact1d.default,
    ("nearest-exact", 2, False): aten._upsample_nearest_exact2d.default,
    ("nearest-exact", 3, False): aten._upsample_nearest_exact3d.default,
    ("linear", 1, False): aten.upsample_linear1d.default, ("bilinear", 2, False): aten.upsample_bilinear2d.default,
    ("trilinear", 3, False): aten.upsample_trilinear3d.default, ("bicubic", 2, False): aten.upsample_bicubic2d.default,
    ("bilinear", 2, True): aten._upsample_bilinear2d_aa.default, ("bicubic", 2, True): aten._upsample_bicubic2d_aa.default,
}  # fmt: skip


def refused(args: tuple, kwargs: dict) -> bool:
    """Whether PyTorch's kernels may refuse what its Python code for symbols takes: numbers that are not float, nothing to resize."""
    x = (dict(zip(PARAMETERS, args, strict=False)) | kwargs).get("input")
    return isinstance(x, torch.Tensor) and (not ORIGINAL.is_floating_point(x) or any(type(n) is int and n == 0 for n in x.shape[1:]))


UPSAMPLING = frozenset([fn for name, fn in vars(torch._C._nn).items() if "upsample_" in name])
"""What `F.interpolate` calls."""


def unsure(args: tuple, kwargs: dict) -> bool:
    """`refused` of a call of one of these; and whether the strides of dims of 1, or of none, are the kernel's own."""
    x: Any = (dict(zip(PARAMETERS, args, strict=False)) | kwargs).get("input")
    few = isinstance(x, torch.Tensor) and any(type(n) is int and n <= 1 for n in x.shape[:2])
    return refused(args, kwargs) or few and not all(map(same, x.strides, contiguous_strides(x.sizes)))


def stays_whole(args: tuple, kwargs: dict) -> bool:
    """Whether this is an export, or PyTorch's Python code may give something else than its kernels, which look at more than sizes."""
    given = dict(zip(PARAMETERS, args, strict=False)) | kwargs
    x = given.get("input")
    if type(x) is not TracedTensor or key_of(given) not in OPERATORS:
        return False
    if any([type(n) is torch.SymInt and is_open(n.node.expr) for n in (*x.sizes, *sizes_of(given))]):
        return True
    nearest = given.get("mode", "nearest") == "nearest"
    if nearest and ORIGINAL.dim(x) == 5 and ORIGINAL.is_contiguous(x, memory_format=torch.channels_last_3d):
        return True
    one = ORIGINAL.dim(x) > 3 and any([type(n) is int and n == 1 for n in x.sizes[:2]])
    return one and not all(map(same, x.strides, contiguous_strides(x.sizes)))  # the stride of a dim of 1 is the kernel's own


def key_of(given: dict) -> tuple:
    return given.get("mode", "nearest"), ORIGINAL.dim(given["input"]) - 2, bool(given.get("antialias"))


def sizes_of(given: dict) -> Any:
    size = given.get("size")
    return size if isinstance(size, (tuple, list)) else (size,)


def whole(args: tuple, kwargs: dict) -> Any:
    """`F.interpolate`, whose arguments it has looked at already, as one operator."""
    given = dict(zip(PARAMETERS, args, strict=False)) | kwargs
    x, size, factors = given["input"], given.get("size"), given.get("scale_factor")
    n = ORIGINAL.dim(x) - 2
    if size is None:
        factors = list(factors) if isinstance(factors, (tuple, list)) else [factors] * n
        size = [torch.sym_int(s * f) for s, f in zip(x.shape[2:], factors, strict=True)]
        if given.get("recompute_scale_factor"):
            factors = None
    elif not isinstance(size, (tuple, list)):
        size = [size] * n
    corners = () if given.get("mode", "nearest").startswith("nearest") else (bool(given.get("align_corners")),)
    scales = [float(f) if isinstance(f, int) else f for f in factors] if factors is not None else [None] * n
    return OPERATORS[key_of(given)](x, list(size), *corners, *scales)


def to_nothing(out: Any, n: Any) -> bool:
    """Whether this is a size of 0, which the kernels refuse: of one that only the run knows, that is asserted."""
    return n == 0 if type(n) is int else not holds(out.trace, ops.ne(n.node.expr, 0), TO_NOTHING)


def packed(x: Any) -> Any:
    """Rows are resized into new ones; the Python code leaves them in the order of the strides that the input has."""
    return ORIGINAL.contiguous(x) if type(x) is TracedTensor and len(x.sizes) == 3 and not x.dense else x


def taken(n: Any, factor: Any, whole: tuple[int, ...]) -> Any:
    """The factor by which a dim of `n` is resized. (A dim of 1 has one value, whatever is done with it.)"""
    for k in whole:
        if isinstance(factor, (int, float)) and not k < factor < (1.5, 3)[k - 1]:
            continue
        if torch.sym_int(torch.sym_float(n) * factor) == n * k:
            return float(k)
    return factor
