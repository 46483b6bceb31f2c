"""When two floats are the same but for rounding: the rule of docs/verify.md, as a table.

A compiled program sums in another order than eager does, and fuses. With `e` eager's result and `c` the compiled one, an element passes if
`|c - e| <= r * (|e| + m) + a`, where `m` is the root of the mean square of eager's tensor: the size of what was summed is not known, but it
is of that order, unless all of the tensor is what rounding left of a zero, which `a` is for. NaNs must stand at the same places,
infinities too. What fails is compared again with eager's own computation in float64 (`runs.py`): `error_rule`.
"""

from __future__ import annotations

import re

from pliant.graph.originals import math, torch

TOLERANCE: dict[torch.dtype, tuple[float, float, float]] = {
    torch.float64: (1e-11, 1e-8, 1e-14),
    torch.float32: (2e-5, 2e-3, 1e-6),
    torch.float16: (1e-2, 5e-2, 1e-4),
    torch.bfloat16: (4e-2, 2e-1, 1e-3),
    torch.float8_e4m3fn: (0.25, 0.5, 1e-2),
    torch.float8_e5m2: (0.5, 1.0, 1e-2),
}
"""By type: `r`; the `r` that holds where float64 says nothing (it cannot be had, or is far from eager's own result); `a`."""

ERRORS = 8.0
"""The compiled result may be so many times as far from float64's as eager's is."""

PARTS = {torch.complex64: torch.float32, torch.complex128: torch.float64}
COARSE = torch.float32
"""Python's floats are compared as if of this type: most were read from tensors of it."""


def tolerance(dtype: torch.dtype, loose: bool = False) -> tuple[float, float]:
    """`r` and `a`."""
    row = TOLERANCE.get(PARTS.get(dtype, dtype), (0.0, 0.0, 0.0))
    return row[loose], row[2]


def wide(t: torch.Tensor) -> torch.Tensor:
    """As float64, complex numbers as pairs."""
    t = t.detach().resolve_conj().resolve_neg()
    return torch.view_as_real(t.to(torch.complex128)) if t.is_complex() else t.to(torch.float64)


def size_of(t: torch.Tensor) -> float:
    """The root of the mean square of what is finite."""
    finite = torch.where(torch.isfinite(t), t, 0.0)
    return float(finite.square().mean().sqrt()) if t.numel() else 0.0


def beyond(e: torch.Tensor, c: torch.Tensor, rule: tuple[float, float]) -> torch.Tensor:
    """Where two wide tensors differ by more than the rule allows."""
    r, a = rule
    allowed = r * (e.abs() + size_of(e)) + a
    same = (c == e) | (c.isnan() & e.isnan())
    return ~(same | (e.isfinite() & ((c - e).abs() <= allowed)))


def close(e: torch.Tensor, c: torch.Tensor, loose: bool = False) -> bool:
    """Whether tensors of one dtype and shape pass."""
    if torch.equal(e, c):
        return True
    if not (e.is_floating_point() or e.is_complex()):
        return False
    rule = tolerance(e.dtype, loose)
    return surely_close(e, c, rule) or not bool(beyond(wide(e), wide(c), rule).any())


def surely_close(e: torch.Tensor, c: torch.Tensor, rule: tuple[float, float]) -> bool:
    """Whether the largest difference is less than any element may have: three quick passes, where the rule takes ten in float64."""
    if not e.numel() or e.dtype not in (torch.float32, torch.float64):
        return False
    r, a = rule
    e, c = e.detach().resolve_neg(), c.detach().resolve_neg()
    size = float(torch.linalg.vector_norm(e)) / math.sqrt(e.numel())
    return float(torch.linalg.vector_norm(c - e, math.inf)) <= 0.99 * (r * size) + a and math.isfinite(size)


def close_numbers(e: float, c: float, loose: bool = False) -> bool:
    if e == c or (e != e and c != c):
        return True
    r, a = tolerance(COARSE, loose)
    return math.isfinite(e) and math.isfinite(c) and abs(c - e) <= 2 * r * abs(e) + a


def error_rule(e: torch.Tensor, c: torch.Tensor, reference: torch.Tensor, drawn_alike: bool) -> bool | None:
    """Judged by eager's float64: does the compiled result pass? None if the reference cannot say.

    It can where it drew the same random numbers (`drawn_alike`), or else where it is near to eager's result.
    """
    if reference.shape != e.shape or reference.is_complex() is not e.is_complex():
        return None
    if not (e.is_floating_point() or e.is_complex()):  # whole numbers that hang on a rounding, such as an argmax between equals
        where = e != c
        return bool((reference == c)[where].all()) if reference.dtype == c.dtype else None
    (r, a), ref, ew, cw = tolerance(e.dtype), wide(reference), wide(e), wide(c)
    if not drawn_alike and bool(beyond(ref, ew, tolerance(e.dtype, True)).any()):
        return None
    if not torch.equal(cw.isfinite(), ew.isfinite()) or not torch.equal(cw.isnan(), ew.isnan()):
        return False
    finite = ew.isfinite()
    worst = float((ew - ref)[finite].abs().max()) if bool(finite.any()) else 0.0
    return bool(((cw - ref)[finite].abs() <= ERRORS * worst + r * (ref[finite].abs() + size_of(ref)) + a).all())


NUMBER = re.compile(r"[-+]?\d+\.\d*(?:[eE][-+]?\d+)?|[-+]?\.\d+(?:[eE][-+]?\d+)?|[-+]?\d+[eE][-+]?\d+")


def close_texts(e: str, c: str) -> bool:
    """Whether two texts are the same but for the rounding of floats written in them, or for one unit of their last digit."""
    if e == c:
        return True
    if NUMBER.sub("#", e) != NUMBER.sub("#", c):
        return False
    return all(close_numbers(float(a), float(b)) or abs(float(a) - float(b)) <= 1.01 * unit(a) for a, b in zip(
        NUMBER.findall(e), NUMBER.findall(c), strict=True))


def unit(number: str) -> float:
    """One of the last digit that is written."""
    mantissa, _, exponent = number.lower().partition("e")
    return 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))
