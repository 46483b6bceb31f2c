"""The scalar operators of the loop IR (`SCALARS`), one row each: how they are printed on values of any number of lanes.

A row is given the `Math` (whose `b` is the text), the operands' dtype and the operands. bf16 and f16 operands are computed in f32.
"""

from __future__ import annotations

from collections.abc import Callable

from pliant.codegen.cpu.dtypes import cast
from pliant.codegen.cpu.math import Math
from pliant.codegen.cpu.text import BITS, Text, Value, const
from pliant.lower.loops import DTYPES, SCALARS

Row = Callable[..., Value]


def kind(dtype: str) -> str:
    return DTYPES[dtype].kind


def arithmetic(opcode: str) -> Row:
    return lambda m, d, a, c: getattr(m.b, opcode)(a, c)


def maximum(m: Math, dtype: str, a: Value, c: Value, name: str = "max") -> Value:
    if kind(dtype) == "f":
        return m.b.intrinsic(name + "imum", a, c, flags="nsz")
    if kind(dtype) == "b":
        return m.b.binary("or" if name == "max" else "and", a, c)
    return m.b.intrinsic(("s" if kind(dtype) == "i" else "u") + name, a, c)


def minimum(m: Math, dtype: str, a: Value, c: Value) -> Value:
    return maximum(m, dtype, a, c, "min")


def fmax(m: Math, dtype: str, a: Value, c: Value, predicate: str = "ogt") -> Value:
    b = m.b
    better = b.select(b.compare(predicate, a, c), a, c)
    a, better = b.same(a, better)
    return b.select(b.compare("uno", c, c), a, better)


def absolute(m: Math, dtype: str, a: Value) -> Value:
    b = m.b
    if a.floating:
        return b.intrinsic("fabs", a)
    return b.select(b.compare("slt", a, const(0, a.ty)), b.neg(a), a)


def sign(m: Math, dtype: str, a: Value) -> Value:
    b = m.b
    if a.floating:  # NaN gives 0, as eager does
        up, down = (b.select(b.compare(p, a, const(0, a.ty)), const(1, a.ty), const(0, a.ty)) for p in ("ogt", "olt"))
        return b.sub(up, down)
    one = b.convert("zext", b.compare("ne" if kind(dtype) == "u" else "sgt", a, const(0, a.ty)), a.ty)
    return one if kind(dtype) == "u" else b.sub(one, b.convert("zext", b.compare("slt", a, const(0, a.ty)), a.ty))


def quotient(m: Math, dtype: str, a: Value, c: Value) -> Value:
    """Integers, rounded towards zero. A divisor of 0 gives anything, but never a trap; the least integer over -1 wraps."""
    b = m.b
    signed = kind(dtype) == "i"
    a, c = b.same(a, c)
    if BITS[a.ty] <= 32:  # exact in f64: a quotient is never nearer to a whole number than 2**-31
        into, back = ("sitofp", "fptosi") if signed else ("uitofp", "fptoui")
        wide = b.binary("fdiv", b.convert(into, a, "double"), b.convert(into, c, "double"))
        return b.convert("trunc", b.convert(back, wide, "i64"), a.ty)
    zero = b.compare("eq", c, const(0, c.ty))
    if not signed:
        return b.binary("udiv", a, b.select(zero, const(1, c.ty), c))
    minus = b.compare("eq", c, const(-1, c.ty))
    safe = b.select(b.binary("or", zero, minus), const(1, c.ty), c)
    return b.select(minus, b.neg(a), b.binary("sdiv", a, safe))


def truncdiv(m: Math, dtype: str, a: Value, c: Value) -> Value:
    if kind(dtype) == "f":
        return m.b.intrinsic("trunc", m.b.binary("fdiv", a, c))
    return quotient(m, dtype, a, c)


def fmod(m: Math, dtype: str, a: Value, c: Value) -> Value:
    b = m.b
    if kind(dtype) != "f":
        return b.sub(a, b.mul(quotient(m, dtype, a, c), c))
    a, c = b.same(a, c)
    if dtype == "f64" or a.lanes == 1:
        return m.call("fmod", a, c)
    # In f64 a quotient below 2**28 is exact to one unit; beyond it, or where an operand is not finite, the C library.
    x, y = b.convert("fpext", a, "double"), b.convert("fpext", c, "double")
    q = b.intrinsic("trunc", b.binary("fdiv", x, y))
    r = b.fma(b.neg(q), y, x)
    r = b.intrinsic("copysign", b.convert("fptrunc", r, "float"), a)
    inside = b.compare("olt", b.intrinsic("fabs", q), const(2.0**28, "double"))
    inside = b.binary("and", inside, b.compare("olt", b.intrinsic("fabs", y), const(float("inf"), "double")))
    far = b.invert(b.reduce_bits("and", inside))
    return b.when(far, lambda: [m.call("fmod", a, c)], [r])[0]


def remainder(m: Math, dtype: str, a: Value, c: Value) -> Value:
    b = m.b
    r = fmod(m, dtype, a, c)
    if kind(dtype) == "u":
        return r
    zero = const(0, r.ty)
    if kind(dtype) == "f":
        other = b.binary("xor", b.compare("olt", r, zero), b.compare("olt", c, zero))
        wrong = b.binary("and", b.compare("une", r, zero), other)
    else:
        wrong = b.binary("and", b.compare("ne", r, zero), b.compare("slt", b.binary("xor", r, c), zero))
    return b.select(wrong, b.add(r, c), r)


def floordiv(m: Math, dtype: str, a: Value, c: Value) -> Value:
    b = m.b
    if kind(dtype) == "u":
        return quotient(m, dtype, a, c)
    if kind(dtype) == "i":
        q = quotient(m, dtype, a, c)
        r = b.sub(a, b.mul(q, c))
        wrong = b.binary("and", b.compare("ne", r, const(0, r.ty)), b.compare("slt", b.binary("xor", r, c), const(0, r.ty)))
        return b.add(q, b.convert("sext", wrong, q.ty))
    # torch.floor_divide: exact remainder first, then the quotient that belongs to it.
    zero = const(0, a.ty)
    r = fmod(m, dtype, a, c)
    q = b.binary("fdiv", b.sub(a, r), c)
    other = b.binary("xor", b.compare("olt", r, zero), b.compare("olt", c, zero))
    q = b.select(b.binary("and", b.compare("une", r, zero), other), b.sub(q, const(1, a.ty)), q)
    down = b.intrinsic("floor", q)
    down = b.select(b.compare("ogt", b.sub(q, down), const(0.5, a.ty)), b.add(down, const(1, a.ty)), down)
    plain = b.binary("fdiv", a, c)
    out = b.select(b.compare("une", q, zero), down, b.intrinsic("copysign", b.splat(zero, plain.lanes), plain))
    return b.select(b.compare("oeq", c, zero), plain, out)


def compare(floating: str, signed: str, unsigned: str) -> Row:
    def row(m: Math, dtype: str, a: Value, c: Value) -> Value:
        predicate = floating if kind(dtype) == "f" else signed if kind(dtype) == "i" else unsigned
        return m.b.compare(predicate, a, c)

    return row


def shift(opcode: str) -> Row:
    """By the width or more: 0, or the sign, as eager; LLVM would leave it undefined."""

    def row(m: Math, dtype: str, a: Value, c: Value) -> Value:
        b = m.b
        signed, width = kind(dtype) == "i", BITS[a.ty]
        code = "shl" if opcode == "shl" else "ashr" if signed else "lshr"
        beyond = b.compare("uge", c, const(width, c.ty))
        kept = b.binary(code, a, b.select(beyond, const(width - 1 if code == "ashr" else 0, c.ty), c))
        return kept if code == "ashr" else b.select(beyond, const(0, a.ty), kept)

    return row


def function(name: str) -> Row:
    return lambda m, d, *args: m.call(name, *args)


def intrinsic(name: str) -> Row:
    return lambda m, d, *args: m.b.intrinsic(name, *args)


def bitwise(opcode: str) -> Row:
    return lambda m, d, a, c: m.b.binary(opcode, a, c)


ROWS: dict[str, Row] = {
    **{name: arithmetic(name) for name in ("add", "sub", "mul")},
    "div": lambda m, d, a, c: m.b.binary("fdiv", a, c),
    "fma": lambda m, d, a, c, e: m.b.fma(a, c, e),
    "neg": lambda m, d, a: m.b.neg(a),
    "abs": absolute,
    "maximum": maximum,
    "minimum": minimum,
    "fmax": fmax,
    "fmin": lambda m, d, a, c: fmax(m, d, a, c, "olt"),
    "floordiv": floordiv,
    "truncdiv": truncdiv,
    "remainder": remainder,
    "fmod": fmod,
    **{name: intrinsic(name) for name in ("floor", "ceil", "trunc", "sqrt")},
    "round": intrinsic("rint"),
    "sign": sign,
    "reciprocal": lambda m, d, a: m.b.binary("fdiv", const(1, a.ty), a),
    **{
        name: function(name)
        for name in (
            "rsqrt", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos", "atan", "atan2",
            "sinh", "cosh", "tanh", "erf", "erfc", "sigmoid", "pow",
        )
    },
    "isnan": lambda m, d, a: m.b.compare("uno", a, a),
    "eq": compare("oeq", "eq", "eq"),
    "ne": compare("une", "ne", "ne"),
    "lt": compare("olt", "slt", "ult"),
    "le": compare("ole", "sle", "ule"),
    "gt": compare("ogt", "sgt", "ugt"),
    "ge": compare("oge", "sge", "uge"),
    **{name: bitwise(name) for name in ("and", "or", "xor")},
    "not": lambda m, d, a: m.b.invert(a),
    "shl": shift("shl"),
    "shr": shift("shr"),
}  # fmt: skip


def scalar(m: Math, op: str, dtype: str, args: list[tuple[Value, str]]) -> Value:
    """Apply a row. `args`: (value, dtype) pairs; `dtype` is the result's."""
    if op == "where":
        return m.b.select(args[0][0], args[1][0], args[2][0])
    of = args[0][1]
    if of in ("bf16", "f16"):
        out = ROWS[op](m, "f32", *(cast(m.b, v, d, "f32", m.target) for v, d in args))
        return out if SCALARS[op].result == "bool" else cast(m.b, out, "f32", of, m.target)
    return ROWS[op](m, of, *(v for v, _ in args))


# -- reductions --


def identity(kind_: str, dtype: str) -> float | int | bool:
    """What a reduction starts from."""
    d = DTYPES[dtype]
    if kind_ in ("sum", "any"):
        return 0
    if kind_ in ("prod", "all"):
        return 1
    low = kind_ in ("max", "argmax")
    if d.kind == "f":
        return float("-inf") if low else float("inf")
    if d.kind == "b":
        return 0 if low else 1
    if d.kind == "u":
        return 0 if low else 255
    return -(1 << (d.bits - 1)) if low else (1 << (d.bits - 1)) - 1


def combine(m: Math, kind_: str, dtype: str, a: Value, c: Value) -> Value:
    """Two partial results in one; not for argmax and argmin, see `better`."""
    if kind_ == "sum":
        return m.b.add(a, c) if kind(dtype) != "b" else m.b.binary("or", a, c)
    if kind_ == "prod":
        return m.b.mul(a, c) if kind(dtype) != "b" else m.b.binary("and", a, c)
    if kind_ in ("any", "all"):
        return m.b.binary("or" if kind_ == "any" else "and", a, c)
    return maximum(m, dtype, a, c, kind_)


def later(b: Text, kind_: str, dtype: str, new: Value, old: Value) -> Value:
    """Whether a value that comes later beats the best so far for argmax and argmin: the first NaN does, then what is strictly beyond."""
    up, k = kind_ == "argmax", kind(dtype)
    if k == "f":
        return b.binary("and", b.compare("ugt" if up else "ult", new, old), b.compare("ord", old, old))
    return b.compare(("sgt" if up else "slt") if k == "i" else ("ugt" if up else "ult"), new, old)


def better(b: Text, kind_: str, dtype: str, new: Value, at: Value, old: Value, place: Value) -> Value:
    """Whether (new, at) beats (old, place) for argmax and argmin: NaN first, then the value, then the lower position."""
    up = kind_ == "argmax"
    earlier = b.compare("slt", at, place)
    k = kind(dtype)
    if k == "f":
        beats = b.compare("ogt" if up else "olt", new, old)
        nan, was = b.compare("uno", new, new), b.compare("uno", old, old)
        beats = b.binary("or", beats, b.binary("and", nan, b.invert(was)))
        tie = b.binary("or", b.compare("oeq", new, old), b.binary("and", nan, was))
    else:
        beats = b.compare({"i": "sgt", "u": "ugt", "b": "ugt"}[k] if up else {"i": "slt", "u": "ult", "b": "ult"}[k], new, old)
        tie = b.compare("eq", new, old)
    return b.binary("or", beats, b.binary("and", tie, earlier))
