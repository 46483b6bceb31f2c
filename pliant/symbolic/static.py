"""Ranges that hold in every scope state: from the declared bounds of symbols alone. Rewrite rules may rely on them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pliant.symbolic import intervals as iv
from pliant.symbolic.expr import TABLE, Expr, postorder, shallow


def declared(e: Expr) -> Any:
    """The interval of a symbol from its declaration; None for a float that may be nan."""
    info = e.info
    if info.kind is bool:
        return iv.BOOL
    lo, hi = info.lo, info.hi
    if info.kind is float and lo is None and hi is None:
        return None
    return (-iv.INF if lo is None else lo, iv.INF if hi is None else hi)


def default(kind: type) -> tuple | None:
    return iv.ALL if kind is int else iv.BOOL if kind is bool else None


def poly_range(e: Expr, of: Callable[[Expr], tuple | None]) -> tuple:
    """The interval of a sum, monomial by monomial."""
    lo: int | float = 0
    hi: int | float = 0
    for mono, c in e.terms:
        if not mono:
            a = b = c
        elif len(mono) == 1:
            a, b = of(mono[0])  # type: ignore[misc]
        else:
            a, b = mono_range(mono, of)
        if c != 1 and mono:
            a, b = iv.endpoint_mul(a, c), iv.endpoint_mul(b, c)
            if c < 0:
                a, b = b, a
        lo = lo + a if lo.__class__ is a.__class__ is int else iv.endpoint_add(lo, a)
        hi = hi + b if hi.__class__ is b.__class__ is int else iv.endpoint_add(hi, b)
    return lo, hi


def mono_range(mono: tuple[Expr, ...], of: Callable[[Expr], tuple | None]) -> tuple:
    if len(mono) == 2 and mono[0] is not mono[1]:
        return iv.mul(of(mono[0]), of(mono[1]))  # type: ignore[arg-type]
    r = (1, 1)
    i = 0
    while i < len(mono):
        j = i
        while j < len(mono) and mono[j] is mono[i]:
            j += 1
        x = of(mono[i])
        r = iv.mul(r, x if j == i + 1 else iv.power(x, j - i))  # type: ignore[arg-type]
        i = j
    return r


def node_range(e: Expr, of: Callable[[Expr], tuple | None]) -> tuple | None:
    """The interval of one opaque node from those of its operands, by its row's rule."""
    rule = TABLE[e.op].range
    if rule is None:
        return default(e.kind)
    ranges = [of(a) for a in e.args]
    if e.op != "where" and None in ranges:
        return default(e.kind)
    r = rule(*ranges)
    return default(e.kind) if r is None else r


def static_range(e: Expr) -> Any:
    """(lo, hi) that every model satisfies; None for a float that may be nan."""
    r = e.cache.get("range", e)
    if r is e:
        if shallow(e, "range"):
            return _own_range(e)
        for n in postorder(e, stop="range"):
            if "range" not in n.cache:
                _own_range(n)
        r = e.cache["range"]
    return r


def _own_range(n: Expr) -> Any:
    """The range of one node, those of its parts being at hand."""
    if n.const is not None:
        v: Any = None if n.kind is float and n.const != n.const else (n.const, n.const)
    elif n.info is not None:
        v = declared(n)
    elif n.op == "sum":
        v = poly_range(n, _cached)
    else:
        v = node_range(n, _cached)
    n.cache["range"] = v
    return v


def _cached(e: Expr) -> tuple | None:
    r = e.cache.get("range", e)
    return static_range(e) if r is e else r
