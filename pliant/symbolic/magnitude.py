"""How large integers may be: how many bits an expression has at most, where a symbol has 64."""

from __future__ import annotations

from math import inf, log2  # names that a program may replace in the module

from pliant.symbolic.expr import Expr, postorder
from pliant.symbolic.static import static_range

WORD = 63.0
OF_A_FLOAT = 1024.0
"""Bits of the largest float."""
LARGEST = 2**1024 - 2**970 - 1
"""The largest integer that is a float once it is rounded."""
CHOOSING = {"min", "max", "where"}
GROWING = {"int_pow", "lshift"}


def bits(e: Expr) -> float:
    """A bound of the logarithm of an integer's size."""
    if "bits" not in e.cache:
        for n in postorder(e, stop="bits"):
            if "bits" not in n.cache:
                n.cache["bits"] = min(of_node(n), of_range(n))
    return e.cache["bits"]


def of_node(n: Expr) -> float:
    if n.kind is float or n.op in ("trunc", "floor", "ceil", "round"):
        return OF_A_FLOAT - 1
    if n.const is not None or n.op in GROWING:
        return inf
    if n.info is not None:
        return WORD
    if n.op == "sum":
        sizes = [sum([a.cache["bits"] for a in mono]) + float(abs(c).bit_length()) for mono, c in n.terms]
        return max(sizes) + log2(len(sizes))
    args = n.args[n.op == "where" :]
    return max([a.cache["bits"] for a in args]) + (0.0 if n.op in CHOOSING else 1.0)  # bits and differences; quotients are smaller


def of_range(n: Expr) -> float:
    if n.kind is float:
        return inf
    lo, hi = static_range(n)
    top = max(abs(lo), abs(hi))
    return inf if top == inf else float(int(top).bit_length())
