"""The rewrite rules of the operator table: from operands to normal form.

Each `make_*` gives the `make` of a row of `ops.py`: it receives expressions that are not all constant.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from math import ceil, floor, isinf, isnan  # names that a program may replace in the module
from typing import Any

from pliant.symbolic import division
from pliant.symbolic import intervals as iv
from pliant.symbolic.expr import TABLE, Context, Expr, apply, poly_add, poly_mul, poly_scale
from pliant.symbolic.relation import MIRROR, OPPOSITE
from pliant.symbolic.static import static_range

# concrete semantics ------------------------------------------------------------------


def where_value(c, a, b):
    return a if c else b


def ceildiv_value(a, b):
    return -(-a // b)


def fpow_value(a: float, b: float) -> float:
    r = a**b
    if isinstance(r, complex):
        raise ValueError(f"{a} ** {b} is complex")
    return r


def and_value(*xs):
    return all(xs)


def or_value(*xs):
    return any(xs)


# kinds --------------------------------------------------------------------------------


def as_int(e: Expr) -> Expr:
    """A bool as 0 or 1, as Python's arithmetic takes it."""
    if e.kind is not bool:
        return e
    return e.ctx.lift(int(e.const)) if e.const is not None else e.ctx.node("bool_to_int", (e,), int)


def as_float(e: Expr) -> Expr:
    e = as_int(e)
    if e.kind is float:
        return e
    return e.ctx.lift(float(e.const)) if e.const is not None else e.ctx.node("to_float", (e,), float)


def as_bool(e: Expr) -> Expr:
    """Python's truth of a number."""
    return e if e.kind is bool else apply("ne", e, 0 if e.kind is int else 0.0)


def numeric(int_rule: Callable, float_op: str) -> Callable:
    """`make` of an arithmetic operator: ints go to `int_rule`, anything with a float becomes the node `float_op`."""

    def make(ctx: Context, *args: Expr) -> Expr:
        if any(a.kind is float for a in args):
            return fold(ctx, float_op, tuple([as_float(a) for a in args]), float)
        return int_rule(ctx, *[as_int(a) for a in args])

    return make


def fold(ctx: Context, op: str, args: tuple[Expr, ...], kind: type) -> Expr:
    """The opaque node, or its value where all operands are constant."""
    if all(a.const is not None for a in args):
        return ctx.lift(TABLE[op].fn(*[a.const for a in args]))
    return ctx.node(op, args, kind)


def opaque(op: str, kind: type, convert: Callable[[Expr], Expr]) -> Callable:
    """`make` of an operator without rewrite rules."""
    return lambda ctx, *args: fold(ctx, op, tuple([convert(a) for a in args]), kind)


# rewrite rules --------------------------------------------------------------------------


def make_add(ctx: Context, a: Expr, b: Expr) -> Expr:
    return poly_add(a, b)


def make_sub(ctx: Context, a: Expr, b: Expr) -> Expr:
    return poly_add(a, b, -1)


def make_mul(ctx: Context, a: Expr, b: Expr) -> Expr:
    return poly_mul(a, b)


def make_neg(ctx: Context, a: Expr) -> Expr:
    return poly_scale(a, -1)


def make_abs(ctx: Context, a: Expr) -> Expr:
    if a.const is not None:
        return ctx.lift(abs(a.const))
    lo, hi = static_range(a)
    if lo >= 0:
        return a
    if hi <= 0:
        return poly_scale(a, -1)
    if a.terms[0][1] < 0:
        a = poly_scale(a, -1)  # abs(-x) == abs(x)
    return ctx.node("abs", (a,), int)


def make_extremum(name: str) -> Callable:
    """min and max: flattened, sorted, duplicates and statically beaten operands dropped."""
    sign = 1 if name == "max" else -1

    def make(ctx: Context, *args: Expr) -> Expr:
        seen: dict[Expr, None] = {}
        best: Expr | None = None
        for a in args:
            for x in a.args if a.op == name else (a,):
                if x.const is not None:
                    if best is None or sign * (x.const - best.const) > 0:
                        best = x
                else:
                    seen[x] = None
        flat = list(seen)
        if best is not None:
            flat.append(best)
        kept: list[Expr] = []
        for i, x in enumerate(flat):
            beaten = any(_wins(y, x, sign, strict=j > i) for j, y in enumerate(flat) if j != i) if len(flat) <= 8 else False
            if not beaten:
                kept.append(x)
        if len(kept) == 1:
            return kept[0]
        kept.sort(key=lambda e: e.serial)
        return ctx.node(name, tuple(kept), int)

    return make


def _wins(y: Expr, x: Expr, sign: int, strict: bool) -> bool:
    """Whether y >= x (for max; <= for min) always holds; of two equal operands only the first is kept."""
    d = static_range(poly_add(y, x, -1))
    lo = d[0] if sign > 0 else -d[1]
    return lo > 0 or (lo == 0 and (not strict or d != (0, 0)))


def make_pow(ctx: Context, a: Expr, b: Expr) -> Expr:
    if a.kind is float or b.kind is float:
        return fold(ctx, "fpow", (as_float(a), as_float(b)), float)
    a, b = as_int(a), as_int(b)
    if b.const is not None and 0 <= b.const <= 16 and len(a.terms) ** b.const <= 64:
        r = ctx.one
        for _ in range(b.const):
            r = poly_mul(r, a)
        return r
    if b.const is not None and b.const < 0:
        return fold(ctx, "fpow", (as_float(a), as_float(b)), float)  # Python: an int to a negative power is a float
    if a.const == 1:
        return a
    if static_range(b)[0] < 0:
        raise ValueError(f"the kind of `{a} ** {b}` depends on the exponent's sign: make sure that it is >= 0 first")
    return apply("lshift", 1, b) if a.const == 2 else ctx.node("int_pow", (a, b), int)


def make_truediv(ctx: Context, a: Expr, b: Expr) -> Expr:
    if b.const == 0:
        raise ZeroDivisionError("division by zero")
    if a.kind is float or b.kind is float:
        return fold(ctx, "fdiv", (as_float(a), as_float(b)), float)
    return fold(ctx, "int_truediv", (as_int(a), as_int(b)), float)


def make_ceildiv(ctx: Context, a: Expr, b: Expr) -> Expr:
    return apply("neg", apply("floordiv", apply("neg", a), b))


def make_floordiv(ctx: Context, a: Expr, b: Expr) -> Expr:
    return division.floordiv(ctx, a, b)


def make_compare(op: str) -> Callable:
    def make(ctx: Context, a: Expr, b: Expr) -> Expr:
        if a.kind is int and b.kind is int:
            return _compare_ints(ctx, op, a, b)
        if a.kind is bool and b.kind is bool and op in ("eq", "ne") and (a.const is not None or b.const is not None):
            x, k = (b, a.const) if a.const is not None else (a, b.const)
            return x if k == (op == "eq") else apply("not", x)
        a, b = as_int(a), as_int(b)
        if a.kind is int and b.kind is int:
            return _compare_ints(ctx, op, a, b)
        if a.kind is int and b.const is not None:
            return _compare_int_float(ctx, op, a, b.const)
        if b.kind is int and a.const is not None:
            return _compare_int_float(ctx, MIRROR[op], b, a.const)
        return fold(ctx, op, (a, b), bool)

    return make


def _compare_ints(ctx: Context, op: str, a: Expr, b: Expr) -> Expr:
    if a is b:
        return ctx.lift(op in ("eq", "le", "ge"))
    if a.const is not None and b.const is not None:
        return ctx.lift(TABLE[op].fn(a.const, b.const))
    answer = _settled(op, a.cache.get("range") or static_range(a), b.cache.get("range") or static_range(b))
    if answer is None and a.const is None and b.const is None:  # else the difference says no more
        d = poly_add(a, b, -1)
        answer = bool(TABLE[op].fn(d.const, 0)) if d.const is not None else _settled(op, static_range(d), (0, 0))
    if answer is None:
        return ctx.node(op, (a, b), bool)
    return ctx.true if answer else ctx.false


def _settled(op: str, x: tuple, y: tuple) -> bool | None:
    """The truth of a comparison, if these ranges (its symbols by declaration) leave only one."""
    if x[0] > y[1]:
        return op in ("ne", "gt", "ge")
    if x[1] < y[0]:
        return op in ("ne", "lt", "le")
    if x[0] == y[1] and op in ("ge", "lt"):
        return op == "ge"
    if x[1] == y[0] and op in ("le", "gt"):
        return op == "le"
    return None


def _compare_int_float(ctx: Context, op: str, a: Expr, v: Any) -> Expr:
    """An int against a float constant, exactly, as a comparison of ints."""
    if a.const is not None:
        return ctx.lift(TABLE[op].fn(a.const, v))
    if isnan(v) or (op in ("eq", "ne") and not float(v).is_integer()):
        return ctx.lift(op == "ne")
    if isinf(v):
        return ctx.lift(op in (("lt", "le") if v > 0 else ("gt", "ge")))
    k = int(v) if op in ("eq", "ne") else ceil(v) if op in ("lt", "ge") else floor(v)
    return _compare_ints(ctx, op, a, ctx.lift(k))


def make_not(ctx: Context, a: Expr) -> Expr:
    a = as_bool(a)
    if a.const is not None:
        return ctx.lift(not a.const)
    if a.op == "not":
        return a.args[0]
    if a.op in OPPOSITE and (a.op in ("eq", "ne") or all(x.kind is int for x in a.args)):  # nan: not (x < y) is not x >= y
        return ctx.node(OPPOSITE[a.op], a.args, bool)
    return ctx.node("not", (a,), bool)


def make_junction(name: str) -> Callable:
    """and / or: flattened, constants absorbed, duplicates dropped; the order of first appearance is kept."""
    neutral = name == "and"

    def make(ctx: Context, *args: Expr) -> Expr:
        flat: dict[Expr, None] = {}
        for a in args:
            a = as_bool(a)
            for x in a.args if a.op == name else (a,):
                if x.const is not None:
                    if x.const is not neutral:
                        return x
                else:
                    flat[x] = None
        if any(make_not(ctx, x) in flat for x in flat):
            return ctx.lift(not neutral)
        if not flat:
            return ctx.lift(neutral)
        xs = tuple(flat)
        return xs[0] if len(xs) == 1 else ctx.node(name, xs, bool)

    return make


def make_where(ctx: Context, c: Expr, a: Expr, b: Expr) -> Expr:
    c = as_bool(c)
    if c.const is not None:
        return a if c.const else b
    if a.kind is not b.kind:
        a, b = (as_float(a), as_float(b)) if float in (a.kind, b.kind) else (as_int(a), as_int(b))
    if a is b:
        return a
    return ctx.node("where", (c, a, b), a.kind)


def make_bit(name: str) -> Callable:
    logical = {"bit_and": "and", "bit_or": "or"}.get(name)

    def make(ctx: Context, a: Expr, b: Expr) -> Expr:
        if a.kind is bool and b.kind is bool:
            if logical:
                return apply(logical, a, b)
            return apply("ne", a, b)
        a, b = as_int(a), as_int(b)
        if a.const is not None and b.const is not None:
            return ctx.lift(TABLE[name].fn(a.const, b.const))
        if a is b:
            return ctx.zero if name == "bit_xor" else a
        x, k = (b, a.const) if a.const is not None else (a, b.const)
        if k == 0:
            return ctx.zero if name == "bit_and" else x
        if k == -1 and name != "bit_xor":
            return x if name == "bit_and" else ctx.lift(-1)
        if k is not None and k > 0 and k & (k + 1) == 0 and name == "bit_and":
            return apply("mod", x, k + 1)  # two's complement: the low bits
        return ctx.node(name, (a, b) if a.serial < b.serial else (b, a), int)

    return make


def make_bit_not(ctx: Context, a: Expr) -> Expr:
    return poly_add(poly_scale(as_int(a), -1), ctx.one, -1)


def make_shift(name: str) -> Callable:
    whole = "mul" if name == "lshift" else "floordiv"

    def make(ctx: Context, a: Expr, b: Expr) -> Expr:
        a, b = as_int(a), as_int(b)
        if b.const is not None and 0 <= b.const <= 62:
            return apply(whole, a, ctx.lift(1 << b.const))
        return fold(ctx, name, (a, b), int)

    return make


def make_to_int(ctx: Context, a: Expr) -> Expr:
    return as_int(a) if a.kind is not float else fold(ctx, "trunc", (a,), int)


def make_rounding(name: str) -> Callable:
    """floor, ceil, trunc, round to an int: identity on ints."""

    def make(ctx: Context, a: Expr) -> Expr:
        if a.kind is not float:
            return as_int(a)
        if a.op == "to_float" and (r := static_range(a.args[0])) and -(2**53) <= r[0] and r[1] <= 2**53:
            return a.args[0]  # exactly representable
        return fold(ctx, name, (a,), int)

    return make


def make_float_negation(ctx: Context, a: Expr) -> Expr:
    return a.args[0] if a.op == "fneg" else fold(ctx, "fneg", (a,), float)


def int_only(rule: Callable) -> Callable:
    return lambda ctx, *args: rule(ctx, *[as_int(a) for a in args])


# range rules of comparisons -----------------------------------------------------------------


def compare_range(op: str) -> Callable:
    def rule(x, y):
        if op in ("gt", "ge"):
            x, y = y, x
        match op:
            case "lt" | "gt":
                return (1, 1) if x[1] < y[0] else (0, 0) if x[0] >= y[1] else iv.BOOL
            case "le" | "ge":
                return (1, 1) if x[1] <= y[0] else (0, 0) if x[0] > y[1] else iv.BOOL
        apart = x[1] < y[0] or y[1] < x[0]
        same = x[0] == x[1] == y[0] == y[1]
        if apart:
            return (0, 0) if op == "eq" else (1, 1)
        return ((1, 1) if op == "eq" else (0, 0)) if same else iv.BOOL

    return rule


def variadic_range(rule: Callable) -> Callable:
    return lambda *xs: reduce(rule, xs)
