"""The normal form of truth: relations `p >= 0`, `p == 0`, `p != 0` over integer polynomials.

`normal(c)` maps every integer comparison to one of these with a primitive polynomial: no common factor in the
coefficients (the constant of `p >= 0` is tightened: `2*x - 1 >= 0` is `x - 1 >= 0`), a leading coefficient above zero for == and !=,
and atoms that are certainly positive divided out (`s0*s1*4 == s0*4` is `s1 == 1`). Two ways to ask the same thing meet here.
"""

from __future__ import annotations

from math import gcd  # names that a program may replace in the module

from pliant.symbolic.expr import Expr, Mono, poly_add, poly_scale
from pliant.symbolic.static import static_range

OPPOSITE = {"eq": "ne", "ne": "eq", "lt": "ge", "ge": "lt", "le": "gt", "gt": "le"}
MIRROR = {"eq": "eq", "ne": "ne", "lt": "gt", "gt": "lt", "le": "ge", "ge": "le"}


def is_int_comparison(e: Expr) -> bool:
    return e.op in OPPOSITE and e.args[0].kind is int and e.args[1].kind is int


def normal(c: Expr) -> Expr:
    """The normal form of a bool expression; itself where it is no integer comparison."""
    n = c.cache.get("normal")
    if n is None:
        n = c.cache["normal"] = _normal(c)
    return n


def _normal(c: Expr) -> Expr:
    if not is_int_comparison(c):
        return c
    a, b = c.args
    match c.op:
        case "lt":
            return relation("ge", poly_add(b, a, -1, -1))
        case "le":
            return relation("ge", poly_add(b, a, -1))
        case "gt":
            return relation("ge", poly_add(a, b, -1, -1))
        case op:
            return relation(op, poly_add(a, b, -1))


def shift(p: Expr, k: int) -> Expr:
    """p + k."""
    d = dict(p.terms)
    d[()] = d.get((), 0) + k
    return p.ctx.poly(d)


def constant_of(p: Expr) -> int:
    """The constant term."""
    terms = p.terms
    return terms[-1][1] if terms and not terms[-1][0] else 0


def relation(op: str, p: Expr) -> Expr:
    """The canonical `p op 0`, op in ge, eq, ne."""
    ctx = p.ctx
    if p.const is not None:
        return ctx.lift(p.const >= 0 if op == "ge" else p.const == 0 if op == "eq" else p.const != 0)
    terms = p.terms
    first, c = terms[0]
    if len(first) == 1 and first[0].info is not None and (c == 1 or (c == -1 and op == "ge")) and (len(terms) == 1 or not terms[1][0]):
        return _node(op, p)  # a symbol against a number: nothing to do
    p = _divide_positive_factor(p)
    if p.const is not None:
        return relation(op, p)
    terms = p.terms
    k = constant_of(p)
    g = gcd(*[c for m, c in terms if m])
    if op == "ge":
        if g > 1:
            p = ctx.poly({m: c // g for m, c in terms})  # floor of the constant: integers
    else:
        if k % g:
            return ctx.lift(op == "ne")
        if terms[0][1] < 0:
            g = -g
        if g != 1:
            p = ctx.poly({m: c // g for m, c in terms})
    if op == "ge":
        opened = _open_quotient(p)
        if opened is not None:
            return relation("ge", opened)
    return _node(op, p)


def _node(op: str, p: Expr) -> Expr:
    e = p.ctx.node(op, (p, p.ctx.zero), bool)
    e.cache["normal"] = e
    return e


def whole_quotient(p: Expr) -> tuple[Expr, int, Expr] | None:
    """(q, c, rest) with p == c*q + rest, q some `x // d` with a constant d > 0 and c = 1 or -1; the newest such q."""
    best = None
    for m, c in p.terms:
        if len(m) == 1 and m[0].op == "floordiv" and abs(c) == 1:
            d = m[0].args[1].const
            if d is not None and d > 0 and (best is None or m[0].serial > best[0].serial):
                best = m[0], c
    if best is None:
        return None
    q, c = best
    return q, c, poly_add(p, q, -c)


def _open_quotient(p: Expr) -> Expr | None:
    """What is >= 0 exactly where p is, without a quotient: x // d >= r says x >= r*d, and x // d <= r says x < (r + 1)*d."""
    found = whole_quotient(p)
    if found is None:
        return None
    q, c, rest = found
    x, d = q.args
    if c == 1:
        return poly_add(x, rest, d.const)
    return poly_add(shift(poly_scale(rest, d.const), d.const - 1), x, -1)


def _divide_positive_factor(p: Expr) -> Expr:
    """Divide by the atoms common to all terms that are certainly >= 1: the sign stays."""
    terms = p.terms
    first = terms[0][0]
    if len(first) < 2 and len(terms) > 1 and not terms[-1][0]:
        return p
    common = list(first)
    for m, _ in terms[1:]:
        if not common:
            return p
        common = mono_common(common, m)
    common = [a for a in common if static_range(a)[0] >= 1]
    if not common:
        return p
    return p.ctx.poly({mono_without(m, common): c for m, c in terms})


def mono_common(a, b) -> list[Expr]:
    """The greatest common divisor of two monomials."""
    rest = list(b)
    out = []
    for x in a:
        for i, y in enumerate(rest):
            if x is y:
                out.append(x)
                del rest[i]
                break
    return out


def mono_without(m: Mono, factors) -> Mono:
    """m / factors; factors must divide m."""
    rest = list(m)
    for f in factors:
        for i, y in enumerate(rest):
            if f is y:
                del rest[i]
                break
    return tuple(rest)


def negated(c: Expr) -> Expr:
    """The negation of a *normal* relation, itself normal."""
    if c.const is not None:
        return c.ctx.lift(not c.const)
    if c.op == "ge" and c.args[0].kind is int and c.args[1].const == 0:
        return relation("ge", shift(poly_scale(c.args[0], -1), -1))
    if c.op in ("eq", "ne") and c.args[0].kind is int and c.args[1].const == 0:
        return relation(OPPOSITE[c.op], c.args[0])
    return c.ctx.node("not", (c,), bool) if c.op != "not" else c.args[0]


def direction(p: Expr) -> tuple[Expr, int, int]:
    """p as `k * q + c`, where q has no constant, coefficients without common factor and a positive leading one."""
    d = p.cache.get("direction")
    if d is None:
        terms = p.terms
        c = constant_of(p)
        if len(terms) == (2 if c else 1) and len(terms[0][0]) == 1 and abs(terms[0][1]) == 1:
            d = p.cache["direction"] = (terms[0][0][0], terms[0][1], c)  # an atom against a number
            return d
        lin = terms[:-1] if c else terms
        k = gcd(*[x for _, x in lin])
        if lin and lin[0][1] < 0:
            k = -k
        q = p.ctx.poly({m: x // k for m, x in lin}) if (c or k != 1) else p
        d = p.cache["direction"] = (q, k, c)
    return d
