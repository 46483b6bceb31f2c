"""Powers of symbolic numbers: which stay symbolic, and what Python refuses to work out."""

from __future__ import annotations

import operator
from typing import Any

from pliant.graph.originals import math, torch
from pliant.graph.symnode import expr_of, in_float, number
from pliant.interpret.gate import SYM_TYPES
from pliant.interpret.state import current_site, vm
from pliant.symbolic import ops
from pliant.symbolic.expr import Expr

POWERS = (operator.pow, operator.ipow)
LARGEST = 709.0
"""`e` to a power that is not beyond it is finite."""
TOO_LARGE = "Numerical result out of range"
INTEGERS = (int, bool, torch.SymInt, torch.SymBool)


def pinned(ta: type, tb: type, a: Any, b: Any) -> bool:
    """Whether a power is one of the numbers themselves, which CPython works out or refuses."""
    return of_unsure_sign(ta, tb, a, b) or overflows(ta, tb, a, b)


def of_unsure_sign(ta: type, tb: type, a: Any, b: Any) -> bool:
    """Does a sign decide what kind of number a power is, or whether there is one? A base that is not negative stays symbolic, a positive
    one beside floats and exponents that may be negative; so does an integer to a power that is not negative."""
    if complex in (ta, tb):
        return True
    if ta in INTEGERS and tb in INTEGERS:
        if tb in SYM_TYPES:
            return tb is torch.SymInt and b.node.expr.backed and bool(b < 0)
        return b < 0 and not positive(a)
    if ta is torch.SymFloat or tb is torch.SymFloat or tb is float and b < 0:
        return not positive(a)
    if ta is float and a == 0:
        return bool(b < 0)
    return bool(a < 0)


def positive(a: Any) -> bool:
    """Decided here, and guarded; of what only the run knows, whether it is known."""
    if type(a) in SYM_TYPES and not a.node.expr.backed:
        return bool(vm.scope.known_true(ops.gt(number(a.node.expr), 0)))
    return bool(a > 0)


def overflows(ta: type, tb: type, a: Any, b: Any) -> bool:
    """Whether a power of floats is too large for one, in this call. In others that is an assertion: Python raises, whoever reads it."""
    if ta in INTEGERS and tb in INTEGERS:
        return False
    scope = vm.scope
    x, y = (in_float(scope, expr_of(v, scope)) for v in (a, b))
    if not is_small(scope, x, y):
        p = ops.pow_(x, y)
        fits = ops.or_(finite(p), ops.not_(finite(x)), ops.not_(finite(y)))
        return not scope.assume(fits, current_site(), TOO_LARGE, OverflowError)
    return False


def finite(e: Expr) -> Any:
    return ops.lt(ops.abs_(e), math.inf)


def is_small(scope: Any, x: Expr, y: Expr) -> bool:
    """Whether what is known of a positive base and its exponent leaves no power that is too large."""
    if y.const is not None:
        k = float(y.const)
        if k != k or 0 <= k <= 1:
            return True
        # a base towards infinity, or towards zero
        return scope.known_true(ops.le(x, math.exp(LARGEST / k)) if k > 1 else ops.ge(x, math.exp(LARGEST / k)))
    if x.const is not None:
        size = math.log(x.const) if 0 < x.const else 0.0
        if not size or size != size:
            return True
        return scope.known_true(ops.le(y, LARGEST / size) if size > 0 else ops.ge(y, LARGEST / size))
    return False
