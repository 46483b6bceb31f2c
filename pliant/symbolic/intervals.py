"""Interval arithmetic with Python's integer semantics: the range rules of the operator table.

An interval is `(lo, hi)`, inclusive, each end an int or +-math.inf. A rule gives the hull of the results, or None when nothing
is known (a float that may be nan has no interval). Rules must *contain*: tests sweep each against concrete values.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf, isnan, nextafter  # names that a program may replace in the module

INF = inf
Interval = tuple  # (lo, hi)
ALL: Interval = (-INF, INF)
BOOL: Interval = (0, 1)


def endpoint_add(a, b):
    """a + b where infinite ends absorb (and huge ints never meet floats)."""
    if a == INF or a == -INF:
        return a
    if b == INF or b == -INF:
        return b
    return a + b


def endpoint_mul(a, b):
    """a * b with 0 * inf = 0: an infinite end stands for arbitrarily large finite values."""
    if a == 0 or b == 0:
        return 0
    if a == INF or a == -INF or b == INF or b == -INF:
        return INF if (a > 0) == (b > 0) else -INF
    return a * b


def endpoint_div(a, b):
    """a // b, b != 0, as the limit for infinite ends."""
    if b == INF or b == -INF:
        if a == INF or a == -INF:
            return 0
        return 0 if a == 0 or (a > 0) == (b > 0) else -1
    if a == INF or a == -INF:
        return INF if (a > 0) == (b > 0) else -INF
    return a // b


def add(x: Interval, y: Interval) -> Interval:
    return endpoint_add(x[0], y[0]), endpoint_add(x[1], y[1])


def neg(x: Interval) -> Interval:
    return -x[1], -x[0]


def sub(x: Interval, y: Interval) -> Interval:
    return add(x, neg(y))


def mul(x: Interval, y: Interval) -> Interval:
    if x[0] >= 0 and y[0] >= 0:  # sizes
        return endpoint_mul(x[0], y[0]), endpoint_mul(x[1], y[1])
    c = [endpoint_mul(a, b) for a in x for b in y]
    return min(c), max(c)


def scale(x: Interval, k: int) -> Interval:
    if k == 1:
        return x
    a, b = endpoint_mul(x[0], k), endpoint_mul(x[1], k)
    return (a, b) if k >= 0 else (b, a)


def power(x: Interval, n: int) -> Interval:
    """x ** n for a whole n >= 0 (an even power is never negative)."""
    if n == 0:
        return 1, 1
    lo, hi = _pow(x[0], n), _pow(x[1], n)
    if n % 2:
        return lo, hi
    return (0 if x[0] <= 0 <= x[1] else min(lo, hi)), max(lo, hi)


def _pow(a, n):
    if a == INF or a == -INF:
        return INF if a > 0 or n % 2 == 0 else -INF
    return a**n


def intersect(x: Interval, y: Interval) -> Interval:
    return max(x[0], y[0]), min(x[1], y[1])


def hull(x: Interval, y: Interval) -> Interval:
    return min(x[0], y[0]), max(x[1], y[1])


def _nonzero_parts(y: Interval) -> list[Interval]:
    """The negative and the positive part of a divisor."""
    out = []
    if y[1] >= 1:
        out.append((max(1, y[0]), y[1]))
    if y[0] <= -1:
        out.append((y[0], min(-1, y[1])))
    return out


def floordiv(x: Interval, y: Interval) -> Interval:
    if y[0] == y[1] > 0:  # a divisor that is known
        return endpoint_div(x[0], y[0]), endpoint_div(x[1], y[0])
    parts = _nonzero_parts(y)
    if not parts:
        return ALL
    c = [endpoint_div(a, b) for p in parts for a in x for b in p]
    return min(c), max(c)


def mod(x: Interval, y: Interval) -> Interval:
    parts = _nonzero_parts(y)
    if not parts:
        return ALL
    if x[0] == x[1] == 0:
        return 0, 0
    out = []
    for lo, hi in parts:
        if lo == hi and abs(x[0]) != INF and abs(x[1]) != INF and x[0] // lo == x[1] // lo:
            out.append((x[0] % lo, x[1] % lo))  # one period: mod is x minus a constant there
        elif lo > 0:
            out.append((x[0], x[1]) if x[0] >= 0 and x[1] < lo else (0, min(hi - 1, x[1]) if x[0] >= 0 else hi - 1))
        else:
            out.append((x[0], x[1]) if x[1] <= 0 and x[0] > hi else (max(lo + 1, x[0]) if x[1] <= 0 else lo + 1, 0))
    r = out[0]
    return hull(r, out[1]) if len(out) == 2 else r


def absolute(x: Interval) -> Interval:
    if x[0] >= 0:
        return x
    return (0 if x[1] >= 0 else -x[1]), max(-x[0], x[1])


def minimum(x: Interval, y: Interval) -> Interval:
    return min(x[0], y[0]), min(x[1], y[1])


def maximum(x: Interval, y: Interval) -> Interval:
    return max(x[0], y[0]), max(x[1], y[1])


def where(c: Interval | None, x: Interval | None, y: Interval | None) -> Interval | None:
    if c == (1, 1):
        return x
    if c == (0, 0):
        return y
    return hull(x, y) if x is not None and y is not None else None


def int_pow(x: Interval, y: Interval) -> Interval:
    """x ** y for whole y >= 0."""
    if y[0] == y[1] and y[0] != INF:
        return power(x, y[0])
    if x[0] < 0 or y[0] < 0 or y[0] > 4096:
        return ALL
    lo = min(_pow(x[0], y[0]), _pow(x[0], y[1]) if y[1] <= 4096 else (0 if x[0] == 0 else INF if x[0] > 1 else 1))
    hi = INF if y[1] > 4096 or x[1] == INF else max(x[1] ** y[0], x[1] ** y[1])
    return lo, hi


def bit_and(x: Interval, y: Interval) -> Interval:
    """Of two numbers, a non-negative one bounds the result."""
    if x[0] >= 0 and y[0] >= 0:
        return 0, min(x[1], y[1])
    if x[0] >= 0:
        return 0, x[1]
    if y[0] >= 0:
        return 0, y[1]
    return -INF, max(x[1], y[1]) if x[1] >= 0 or y[1] >= 0 else -1


def bit_or(x: Interval, y: Interval) -> Interval:
    if x[0] < 0 or y[0] < 0:
        return ALL
    return max(x[0], y[0]), _all_ones(max(x[1], y[1]))


def bit_xor(x: Interval, y: Interval) -> Interval:
    if x[0] < 0 or y[0] < 0:
        return ALL
    return 0, _all_ones(max(x[1], y[1]))


def _all_ones(n):
    return n if n == INF else (1 << int(n).bit_length()) - 1


def bit_not(x: Interval) -> Interval:
    return endpoint_add(-x[1], -1), endpoint_add(-x[0], -1)


def lshift(x: Interval, y: Interval) -> Interval:
    if y[0] < 0 or y[1] > 4096:
        return (0 if x[0] >= 0 else -INF), (0 if x[1] <= 0 else INF)
    return mul(x, (1 << y[0], 1 << y[1]))


def rshift(x: Interval, y: Interval) -> Interval:
    if y[0] < 0 or y[0] > 4096:
        return (0 if x[0] >= 0 else min(x[0], -1)), (max(x[1], 0) if x[1] >= 0 else -1)
    return floordiv(x, (1 << y[0], 1 << y[1] if y[1] <= 4096 else INF))


# floats: an interval says "not nan, and between"; rounding is monotone, so rounding the ends is sound ----------------


def _float_end(a) -> float:
    try:
        return float(a)
    except OverflowError:
        return INF if a > 0 else -INF


def to_float(x: Interval) -> Interval:
    return _float_end(x[0]), _float_end(x[1])


def _guard_nan(lo: float, hi: float) -> Interval | None:
    return None if isnan(lo) or isnan(hi) else (lo, hi)


def fadd(x: Interval, y: Interval) -> Interval | None:
    if (x[0] == -INF and y[1] == INF) or (x[1] == INF and y[0] == -INF):
        return None  # inf - inf
    return _guard_nan(x[0] + y[0], x[1] + y[1])


def fmul(x: Interval, y: Interval) -> Interval | None:
    for a, b in ((x, y), (y, x)):
        if a[0] <= 0 <= a[1] and (b[0] == -INF or b[1] == INF):
            return None  # 0 * inf
    c = [a * b for a in x for b in y]
    return _guard_nan(min(c), max(c))


def fdiv(x: Interval, y: Interval) -> Interval | None:
    if y[0] <= 0 <= y[1] or ((x[0] == -INF or x[1] == INF) and (y[0] == -INF or y[1] == INF)):
        return None
    c = [a / b for a in x for b in y]
    return _guard_nan(min(c), max(c))


def int_truediv(x: Interval, y: Interval) -> Interval | None:
    """int / int: finite operands, so infinite ends are limits, not values."""
    parts = _nonzero_parts(y)
    c: list[float] = []
    for p in parts:
        for a in x:
            for b in p:
                if b in (INF, -INF):
                    c.append(0.0)
                elif a in (INF, -INF):
                    c.append(INF if (a > 0) == (b > 0) else -INF)
                else:
                    try:
                        c.append(a / b)
                    except OverflowError:
                        c.append(INF if (a > 0) == (b > 0) else -INF)
    return (min(c), max(c)) if c else None


def rounding(fn: Callable) -> Callable[[Interval], Interval]:
    """The range rule of a monotone float -> int function."""

    def rule(x: Interval) -> Interval:
        return tuple(v if v in (INF, -INF) else fn(v) for v in x)

    return rule


def monotone(fn: Callable, lo: float = -INF) -> Callable[[Interval], Interval | None]:
    """The range rule of a non-decreasing float function on [lo, inf); one ulp of slack for libm."""

    def rule(x: Interval) -> Interval | None:
        if x[0] < lo or x[0] == -INF or x[1] == INF:
            return None
        try:
            return nextafter(fn(x[0]), -INF), nextafter(fn(x[1]), INF)
        except (OverflowError, ValueError):
            return None

    return rule
