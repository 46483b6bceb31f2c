"""Exact facts about `//` and `%` of polynomials: the rewrite rules of division.

All rest on two identities of floor division that hold for every sign, the divisor not zero:
`(k*a) // (k*b) == a // b` and `(q*b + r) // b == q + r // b`.
"""

from __future__ import annotations

from math import gcd  # names that a program may replace in the module

from pliant.symbolic.expr import Context, Expr, Mono, mono_mul, poly_add, poly_mul, poly_scale, same
from pliant.symbolic.relation import mono_common, mono_without, whole_quotient
from pliant.symbolic.static import static_range


def content(a: Expr) -> tuple[int, list[Expr]]:
    """The greatest common divisor of the terms: (positive coefficient, monomial)."""
    terms = a.terms
    g = 0
    common: list[Expr] | None = None
    for m, c in terms:
        g = gcd(g, c)
        common = list(m) if common is None else mono_common(common, m) if common else common
    return g, common or []


def cancel(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """a and b without their common content; b's leading coefficient above zero."""
    ctx = a.ctx
    ga, ma = content(a)
    gb, mb = content(b)
    g = gcd(ga, gb)
    m = mono_common(ma, mb) if ma and mb else []
    if b.terms[0][1] < 0:
        g = -g
    if g != 1 or m:
        a = ctx.poly({mono_without(t, m): c // g for t, c in a.terms})
        b = ctx.poly({mono_without(t, m): c // g for t, c in b.terms})
    return a, b


def divide(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """(q, r) with a == q*b + r: by a constant, coefficients of r are smaller than it and keep their sign, the constant lies in [0, b).

    By one monomial, no term of r is its multiple; by a longer polynomial, q is taken only if it is exact or a constant.
    """
    ctx = a.ctx
    if b.const is not None:
        k: int = b.const
        q = {m: (abs(c) // abs(k) * (1 if c * k > 0 else -1)) if m else c // k for m, c in a.terms}
        return ctx.poly(q), ctx.poly({m: c - k * q[m] for m, c in a.terms})
    if len(b.terms) == 1:
        (bm, bc) = b.terms[0]
        q = {}
        r: dict[Mono, int] = {}
        for m, c in a.terms:
            if c % bc == 0 and len(m) >= len(bm) and len(mono_common(m, bm)) == len(bm):
                q[mono_without(m, bm)] = c // bc
            else:
                r[m] = c
        return (ctx.poly(q), ctx.poly(r)) if q else (ctx.zero, a)
    q_exact = _exact(a, b)
    return (q_exact, ctx.zero) if q_exact is not None else _constant_part(a, b)


def _constant_part(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """(k, a - k*b) for the whole k that cancels b's leading term, when a has that very term."""
    lead, c = b.terms[0]
    for m, x in a.terms:
        if same(m, lead) and x % c == 0:
            k = a.ctx.lift(x // c)
            return k, poly_add(a, poly_mul(k, b), -1)
    return a.ctx.zero, a


def _leading(p: Expr) -> tuple[Mono, int]:
    """The greatest term in a graded lexicographic order (any monomial order will do, this one is cheap)."""
    return max(p.terms, key=lambda t: (len(t[0]), [x.serial for x in t[0]]))


def _exact(a: Expr, b: Expr) -> Expr | None:
    """a / b if b divides a as a polynomial, by long division; None otherwise."""
    if len(a.terms) > 64 or len(b.terms) > 16:
        return None
    ctx = a.ctx
    bm, bc = _leading(b)
    q: dict[Mono, int] = {}
    for _ in range(64):
        if a.const == 0:
            return ctx.poly(q)
        m, c = _leading(a)
        if c % bc or len(m) < len(bm) or len(mono_common(m, bm)) != len(bm):
            return None
        qm, qc = mono_without(m, bm), c // bc
        q[qm] = q.get(qm, 0) + qc
        a = poly_add(a, ctx.poly({mono_mul(qm, t): x * qc for t, x in b.terms}), -1)
    return None


def floordiv(ctx: Context, a: Expr, b: Expr) -> Expr:
    """The normal form of a // b for ints."""
    if b.const == 0:
        raise ZeroDivisionError("integer division or modulo by zero")
    if a.const == 0 or b.const == 1:
        return a
    a, b = cancel(a, b)
    q, r = divide(a, b)
    if r.const == 0:
        return q
    if r is not a:
        if b.const is None:
            r, b = cancel(r, b)
        return poly_add(q, _floordiv_rest(ctx, r, b))
    return _floordiv_rest(ctx, r, b)


def _floordiv_rest(ctx: Context, a: Expr, b: Expr) -> Expr:
    if b.const == 1:
        return a
    if a.const is not None and b.const is not None:
        return ctx.lift(a.const // b.const)
    alo, ahi = static_range(a)
    blo, bhi = static_range(b)
    if alo >= 0 and ahi < blo:
        return ctx.zero
    if b.const is not None and a.terms[0][1] < 0:  # -x // k == -((x + k - 1) // k): one form for both ways to round up
        flipped = ctx.poly({m: -c for m, c in a.terms})
        return poly_scale(floordiv(ctx, poly_add(flipped, ctx.lift(b.const - 1)), b), -1)
    if a.op == "floordiv" and blo > 0:
        inner, divisor = a.args  # (x // d) // b == x // (d*b) for b > 0
        return floordiv(ctx, inner, poly_mul(divisor, b))
    if b.const is not None:
        found = whole_quotient(a)
        if found is not None and found[1] == 1:  # (x // d + r) // b == (x + r*d) // (d*b): chains of strided convolutions
            q, _, rest = found
            x, d = q.args
            return floordiv(ctx, poly_add(x, rest, d.const), poly_mul(d, b))
    return ctx.node("floordiv", (a, b), int)


def mod(ctx: Context, a: Expr, b: Expr) -> Expr:
    """The normal form of a % b for ints."""
    if b.const == 0:
        raise ZeroDivisionError("integer division or modulo by zero")
    if a.const == 0 or b.const in (1, -1):
        return ctx.zero
    ga, ma = content(a)
    gb, mb = content(b)
    g = gcd(ga, gb)
    m = mono_common(ma, mb) if ma and mb else []
    if g != 1 or m:  # (k*a) % (k*b) == k * (a % b)
        a = ctx.poly({mono_without(t, m): c // g for t, c in a.terms})
        b = ctx.poly({mono_without(t, m): c // g for t, c in b.terms})
    r = _mod_rest(ctx, divide(a, b)[1] if b.const is None else symmetric(a, b.const), b)
    return poly_mul(r, ctx.poly({tuple(m): g})) if g != 1 or m else r


def symmetric(a: Expr, k: int) -> Expr:
    """a modulo k, the coefficients nearest to zero: `-x % 8` rather than `7*x % 8`; the constant in [0, |k|)."""
    n = abs(k)
    return a.ctx.poly({m: c % n - n * (2 * (c % n) > n) if m else c % n for m, c in a.terms})


def _mod_rest(ctx: Context, a: Expr, b: Expr) -> Expr:
    if a.const == 0 or b.const in (1, -1):
        return ctx.zero
    if a.const is not None and b.const is not None:
        return ctx.lift(a.const % b.const)
    alo, ahi = static_range(a)
    if alo >= 0 and ahi < static_range(b)[0]:
        return a
    k = b.const
    if a.op == "mod" and k is not None and a.args[1].const is not None and a.args[1].const % k == 0:
        return mod(ctx, a.args[0], b)  # (x % (k*n)) % k == x % k
    return ctx.node("mod", (a, b), int)
