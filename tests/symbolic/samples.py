"""Expressions over a few symbols that use every row of the table, for the printers' tests."""

from __future__ import annotations

import itertools
import math
import random

from pliant.symbolic import Expr, Scope, ops
from pliant.symbolic.expr import TABLE

INTS = ("i", "j", "k")
FLOATS = ("x", "y")
EDGE_INTS = [-9, -8, -3, -2, -1, 0, 1, 2, 3, 7, 8, 64, 1000003]
EDGE_FLOATS = [-2.5, -1.0, -0.5, -0.0, 0.0, 0.5, 1.0, 1.5, 2.5, 3.75, 1e9]
INT_ROWS = ("add", "sub", "mul", "neg", "floordiv", "mod", "abs", "ceildiv", "bit_and", "bit_or", "bit_xor", "to_float", "truediv")
FLOAT_ROWS = ("floor", "ceil", "trunc", "round", "fadd", "fsub", "fmul", "fdiv", "fmod", "ffloordiv", "fpow", "fmin", "fmax", "copysign")
FLOAT_ROWS += ("fneg", "fabs", *ops.UNARY)


def world() -> tuple[Scope, dict[str, Expr]]:
    scope = Scope()
    names = {n: scope.backed(n, hint=3) for n in INTS} | {n: scope.backed(n, hint=0.5, kind=float) for n in FLOATS}
    return scope, names | {"b": scope.backed("b", hint=True, kind=bool), "n": scope.backed("n", hint=2, lo=0, hi=20)}


def sample_expressions() -> list[Expr]:
    """Each row applied to plain operands, and random nestings."""
    _, s = world()
    i, j, k, n, x, y, b = (s[a] for a in ("i", "j", "k", "n", "x", "y", "b"))
    out = [ops.where(b, i, j * 2 - 1), ops.where(b, x, y), ops.not_(b), ops.and_(b, i < j)]
    out += [ops.or_(b, i < j, x <= y), ops.to_int(b) + i]
    out += [i ** n, 2 ** n, 3 ** n, i << n, i >> n, -i + 3, i * j * j - 7 * k + 2, ops.min_(i, ops.min_(j, k))]
    out += [ops.max_(i, ops.max_(j, 5)), ~i]
    out += [ops.DOORS[c](p, q) for c in ("eq", "ne", "lt", "le", "gt", "ge") for p, q in ((i, j), (x, y), (i, x))]
    out.append(i.ctx.node("subtotal", (i + j + k,), int))
    for name in INT_ROWS:
        out += [ops.DOORS[name](*args[: TABLE[name].arity]) for args in ((i, j), (j * 2 + 1, k), (i * k, j))]
    for name in FLOAT_ROWS:
        out += [ops.DOORS[name](*args[: TABLE[name].arity]) for args in ((x, y), (y, x + i))]
    rng = random.Random(7)
    pool = [i, j, k, n, i + j, ops.floordiv(i, 3), ops.mod(j, 5), ops.abs_(k)]
    binary = ["add", "sub", "mul", "min", "max", "floordiv", "mod", "bit_and", "ceildiv"]
    for _ in range(60):
        p, q = rng.choice(pool), rng.choice(pool)
        try:
            pool.append(ops.DOORS[rng.choice(binary)](p, q))
        except ZeroDivisionError:
            continue
    return [e for e in out + pool if isinstance(e, Expr)]


def environments(count: int = 60) -> list[dict]:
    rng = random.Random(11)
    rows = list(itertools.islice(itertools.product((-3, 0, 1, 7), (-2, 2, 5), (1, -8), (-0.0, 0.5, 2.5), (1.5, -2.5)), 0, None, 3))
    envs = [dict(zip((*INTS, *FLOATS), r, strict=True)) for r in rows]
    envs += [{n: rng.choice(EDGE_INTS) for n in INTS} | {n: rng.choice(EDGE_FLOATS) for n in FLOATS} for _ in range(count)]
    return [e | {"n": rng.randrange(0, 9), "b": rng.random() < 0.5} for e in envs]


def close(a, b) -> bool:
    """Equal, with the last bits of libm forgiven."""
    if isinstance(a, float) and isinstance(b, float):
        return (math.isnan(a) and math.isnan(b)) or a == b or math.isclose(a, b, rel_tol=1e-12, abs_tol=1e-300)
    return a == b


def value(e: Expr, env: dict):
    """Its value, or None where Python raises or leaves 64 bits: printers promise nothing there."""
    try:
        v = e.evaluate(env)
    except (ArithmeticError, ValueError):
        return None
    return None if isinstance(v, int) and not -(2**62) < v < 2**62 else v
