"""The one table of scalar operators.

A row says all that pliant knows of an operator. Fields of `Op`:

- `fn`: its value on Python numbers (Python's semantics: `//` floors, `%` has the divisor's sign);
- `make`: the rewrite rules: builds the normal form from operands that are not all constant (`rules.py`);
- `range`: an interval that contains the result, from the operands' intervals (`intervals.py`);
- `python`, `smt` (SMT-LIB): the expression with `{0}`, `{1}`, ... the operands; helpers of the latter are in `validate.PRELUDE`;
- `llvm`, `stablehlo`: statements `name = instruction; ...; instruction`, the last one, without a name, is the result; `{name}` refers to
  an earlier one, `{T}` is the result's type. In StableHLO the dialect's prefix is left out and types are `@I`, `@F`, `@B` for scalar
  tensors of i64, f64, i1; `@II>B` is a function type. Machine integers wrap: sizes are far from that.

What programs call are the doors at the end; `make` picks the int, float or bool form. Rows that only dispatch (`truediv`, `ceildiv`,
`pow`, `to_int`, ...) never appear in an expression and have no printers beyond Python's. How to add a row: docs/symbolic.md.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from functools import reduce
from typing import Any

from pliant.symbolic import division, subtotals
from pliant.symbolic import intervals as iv
from pliant.symbolic import rules as r
from pliant.symbolic.expr import LONG, TABLE, Expr, Op, apply


def _row(name: str, arity: int, fn: Callable, make: Callable, range: Callable | None, python: str, *printers: str) -> None:
    """`printers`: llvm, stablehlo, smt."""
    TABLE[name] = Op(name, arity, fn, make, range, python, *(printers or ("", "", "")))


# ints; arity -1 is any number of operands, at least two, printed as a chain ------------------------------------------------
_row("add", 2, operator.add, r.numeric(r.make_add, "fadd"), iv.add, "{0} + {1}",
     "add i64 {0}, {1}", "add {0}, {1} @I", "(+ {0} {1})")
_row("sub", 2, operator.sub, r.numeric(r.make_sub, "fsub"), iv.sub, "{0} - {1}",
     "sub i64 {0}, {1}", "subtract {0}, {1} @I", "(- {0} {1})")
_row("mul", 2, operator.mul, r.numeric(r.make_mul, "fmul"), iv.mul, "{0} * {1}",
     "mul i64 {0}, {1}", "multiply {0}, {1} @I", "(* {0} {1})")
_row("neg", 1, operator.neg, r.numeric(r.make_neg, "fneg"), iv.neg, "-{0}",
     "sub i64 0, {0}", "negate {0} @I", "(- {0})")
_row("floordiv", 2, operator.floordiv, r.numeric(r.make_floordiv, "ffloordiv"), iv.floordiv, "{0} // {1}",
     "q = sdiv i64 {0}, {1}; m = srem i64 {0}, {1}; x = xor i64 {m}, {1}; s = icmp slt i64 {x}, 0; z = icmp ne i64 {m}, 0;"
     " d = and i1 {s}, {z}; e = zext i1 {d} to i64; sub i64 {q}, {e}",
     "z = constant dense<0> @I; o = constant dense<1> @I; q = divide {0}, {1} @I;"
     " m = remainder {0}, {1} @I; x = xor {m}, {1} @I; s = compare LT, {x}, {z} @II>B; n = compare NE, {m}, {z} @II>B; d = and {s}, {n} @B;"
     " e = select {d}, {o}, {z} @B,I; subtract {q}, {e} @I",
     "(pl_floordiv {0} {1})")
_row("mod", 2, operator.mod, r.numeric(division.mod, "fmod"), iv.mod, "{0} % {1}",
     "m = srem i64 {0}, {1}; x = xor i64 {m}, {1}; s = icmp slt i64 {x}, 0; z = icmp ne i64 {m}, 0; d = and i1 {s}, {z};"
     " e = select i1 {d}, i64 {1}, i64 0; add i64 {m}, {e}",
     "z = constant dense<0> @I; m = remainder {0}, {1} @I; x = xor {m}, {1} @I;"
     " s = compare LT, {x}, {z} @II>B; n = compare NE, {m}, {z} @II>B; d = and {s}, {n} @B; e = select {d}, {1}, {z} @B,I;"
     " add {m}, {e} @I",
     "(pl_mod {0} {1})")
_row("abs", 1, abs, r.numeric(r.make_abs, "fabs"), iv.absolute, "abs({0})",
     "call i64 @llvm.abs.i64(i64 {0}, i1 false)", "abs {0} @I", "(abs {0})")
_row("min", -1, min, r.numeric(r.make_extremum("min"), "fmin"), r.variadic_range(iv.minimum), "min({*})",
     "call i64 @llvm.smin.i64(i64 {0}, i64 {1})", "minimum {0}, {1} @I", "(pl_min {0} {1})")
_row("max", -1, max, r.numeric(r.make_extremum("max"), "fmax"), r.variadic_range(iv.maximum), "max({*})",
     "call i64 @llvm.smax.i64(i64 {0}, i64 {1})", "maximum {0}, {1} @I", "(pl_max {0} {1})")
_row("int_pow", 2, operator.pow, r.make_pow, iv.int_pow, "{0} ** {1}",
     "call i64 @pl_pow(i64 {0}, i64 {1})", "power {0}, {1} @I", "(pl_pow {0} {1})")
_row("bit_and", 2, operator.and_, r.make_bit("bit_and"), iv.bit_and, "{0} & {1}",
     "and i64 {0}, {1}", "and {0}, {1} @I", "(pl_signed (bvand ((_ int2bv 64) {0}) ((_ int2bv 64) {1})))")
_row("bit_or", 2, operator.or_, r.make_bit("bit_or"), iv.bit_or, "{0} | {1}",
     "or i64 {0}, {1}", "or {0}, {1} @I", "(pl_signed (bvor ((_ int2bv 64) {0}) ((_ int2bv 64) {1})))")
_row("bit_xor", 2, operator.xor, r.make_bit("bit_xor"), iv.bit_xor, "{0} ^ {1}",
     "xor i64 {0}, {1}", "xor {0}, {1} @I", "(pl_signed (bvxor ((_ int2bv 64) {0}) ((_ int2bv 64) {1})))")
_row("lshift", 2, operator.lshift, r.make_shift("lshift"), iv.lshift, "{0} << {1}",
     "shl i64 {0}, {1}", "shift_left {0}, {1} @I", "(* {0} (pl_pow 2 {1}))")
_row("rshift", 2, operator.rshift, r.make_shift("rshift"), iv.rshift, "{0} >> {1}",
     "ashr i64 {0}, {1}", "shift_right_arithmetic {0}, {1} @I", "(pl_floordiv {0} (pl_pow 2 {1}))")


_row("subtotal", 1, operator.pos, r.int_only(subtotals.make), lambda a: a, "{0}",
     "add i64 {0}, 0", "z = constant dense<0> @I; add {0}, {z} @I", "{0}")


# truth: comparisons of ints under their own name, with a float operand under "f" + name ---------------------------------------
def _comparison(name: str, fn: Callable, sign: str, llvm_int: str, llvm_float: str, hlo: str, smt: str) -> None:
    make, rule, python = r.make_compare(name), r.compare_range(name), f"{{0}} {sign} {{1}}"
    for op, t, instruction in ((name, "I", f"icmp {llvm_int} i64"), ("f" + name, "F", f"fcmp {llvm_float} double")):
        _row(op, 2, fn, make, rule, python, f"{instruction} {{0}}, {{1}}", f"compare {hlo}, {{0}}, {{1}} @{t}{t}>B", smt)


_comparison("eq", operator.eq, "==", "eq", "oeq", "EQ", "(= {0} {1})")
_comparison("ne", operator.ne, "!=", "ne", "une", "NE", "(not (= {0} {1}))")
_comparison("lt", operator.lt, "<", "slt", "olt", "LT", "(< {0} {1})")
_comparison("le", operator.le, "<=", "sle", "ole", "LE", "(<= {0} {1})")
_comparison("gt", operator.gt, ">", "sgt", "ogt", "GT", "(> {0} {1})")
_comparison("ge", operator.ge, ">=", "sge", "oge", "GE", "(>= {0} {1})")
_row("and", -1, r.and_value, r.make_junction("and"), r.variadic_range(iv.minimum), "{* and *}",
     "and i1 {0}, {1}", "and {0}, {1} @B", "(and {0} {1})")
_row("or", -1, r.or_value, r.make_junction("or"), r.variadic_range(iv.maximum), "{* or *}",
     "or i1 {0}, {1}", "or {0}, {1} @B", "(or {0} {1})")
_row("not", 1, operator.not_, r.make_not, lambda a: (1 - a[1], 1 - a[0]), "not {0}",
     "xor i1 {0}, true", "not {0} @B", "(not {0})")
_row("where", 3, r.where_value, r.make_where, iv.where, "{1} if {0} else {2}",
     "select i1 {0}, {T} {1}, {T} {2}", "select {0}, {1}, {2} @B,{T}", "(ite {0} {1} {2})")

# between the kinds ------------------------------------------------------------------------------------------------------------
_row("bool_to_int", 1, int, r.int_only(lambda ctx, a: a), lambda a: a, "int({0})",
     "zext i1 {0} to i64", "convert {0} @B>I", "(ite {0} 1 0)")
_row("to_float", 1, float, lambda ctx, a: r.as_float(a), iv.to_float, "float({0})",
     "sitofp i64 {0} to double", "convert {0} @I>F", "(to_real {0})")
_row("int_truediv", 2, operator.truediv, r.make_truediv, iv.int_truediv, "{0} / {1}",
     "a = sitofp i64 {0} to double; b = sitofp i64 {1} to double; fdiv double {a}, {b}",
     "a = convert {0} @I>F; b = convert {1} @I>F;"
     " divide {a}, {b} @F", "(/ (to_real {0}) (to_real {1}))")


def _rounding(name: str, fn: Callable, llvm: str, hlo: str, smt: str) -> None:
    """A float to an int."""
    _row(name, 1, fn, r.make_rounding(name), iv.rounding(fn), f"{'' if name == 'round' else 'math.'}{name}({{0}})",
         f"x = call double @llvm.{llvm}.f64(double {{0}}); fptosi double {{x}} to i64",
         f"{hlo}convert {{{'x' if hlo else '0'}}} @F>I", smt)


_rounding("floor", math.floor, "floor", "x = floor {0} @F; ", "(to_int {0})")
_rounding("ceil", math.ceil, "ceil", "x = ceil {0} @F; ", "(- (to_int (- {0})))")
_rounding("trunc", math.trunc, "trunc", "", "(ite (>= {0} 0.0) (to_int {0}) (- (to_int (- {0}))))")
_rounding("round", round, "roundeven", "x = round_nearest_even {0} @F; ", "(pl_round {0})")


# floats: opaque, never re-associated --------------------------------------------------------------------------------------------
def _float_binary(name: str, fn: Callable, range: Callable | None, python: str, llvm: str, stablehlo: str, smt: str) -> None:
    _row(name, 2, fn, r.opaque(name, float, r.as_float), range, python, llvm, stablehlo, smt)


_float_binary("fadd", operator.add, iv.fadd, "{0} + {1}", "fadd double {0}, {1}", "add {0}, {1} @F", "(+ {0} {1})")
_float_binary("fsub", operator.sub, lambda a, b: iv.fadd(a, iv.neg(b)), "{0} - {1}",
              "fsub double {0}, {1}", "subtract {0}, {1} @F", "(- {0} {1})")
_float_binary("fmul", operator.mul, iv.fmul, "{0} * {1}", "fmul double {0}, {1}", "multiply {0}, {1} @F", "(* {0} {1})")
_float_binary("fdiv", operator.truediv, iv.fdiv, "{0} / {1}", "fdiv double {0}, {1}", "divide {0}, {1} @F", "(/ {0} {1})")
# CPython's float_divmod, statement by statement: fmod corrected to the divisor's sign, the quotient snapped to a whole number.
_LLVM_FMOD = (
    "m = frem double {0}, {1}; nz = fcmp une double {m}, 0.0; mn = fcmp olt double {m}, 0.0; bn = fcmp olt double {1}, 0.0;"
    " ds = xor i1 {mn}, {bn};"
    " fix = and i1 {nz}, {ds}; mb = fadd double {m}, {1}; mf = select i1 {fix}, double {mb}, double {m};"
    " zero = call double @llvm.copysign.f64(double 0.0, double {1}); "
)
_HLO_FMOD = (
    "z = constant dense<0.0> @F; m = remainder {0}, {1} @F;"
    " nz = compare NE, {m}, {z} @FF>B; mn = compare LT, {m}, {z} @FF>B; bn = compare LT, {1}, {z} @FF>B; ds = xor {mn}, {bn} @B;"
    " fix = and {nz}, {ds} @B; mb = add {m}, {1} @F; mf = select {fix}, {mb}, {m} @B,F; mz = negate {z} @F;"
    " zb = select {bn}, {mz}, {z} @B,F; "
)
_float_binary("fmod", operator.mod, None, "{0} % {1}",
              _LLVM_FMOD + "select i1 {nz}, double {mf}, double {zero}", _HLO_FMOD + "select {nz}, {mf}, {zb} @B,F",
              "(pl_fmod {0} {1})")
_float_binary("ffloordiv", operator.floordiv, None, "{0} // {1}",
              _LLVM_FMOD + "n = fsub double {0}, {m}; d0 = fdiv double {n}, {1}; d1 = fsub double {d0}, 1.0;"
              " d = select i1 {fix}, double {d1}, double {d0};"
              " f = call double @llvm.floor.f64(double {d}); gap = fsub double {d}, {f}; up = fcmp ogt double {gap}, 0.5;"
              " f1 = fadd double {f}, 1.0;"
              " w = select i1 {up}, double {f1}, double {f}; q = fdiv double {0}, {1};"
              " qz = call double @llvm.copysign.f64(double 0.0, double {q});"
              " dz = fcmp oeq double {d}, 0.0; select i1 {dz}, double {qz}, double {w}",
              _HLO_FMOD + "o = constant dense<1.0> @F; h = constant dense<0.5> @F;"
              " n = subtract {0}, {m} @F; d0 = divide {n}, {1} @F; d1 = subtract {d0}, {o} @F;"
              " d = select {fix}, {d1}, {d0} @B,F; f = floor {d} @F;"
              " gap = subtract {d}, {f} @F; up = compare GT, {gap}, {h} @FF>B;"
              " f1 = add {f}, {o} @F; w = select {up}, {f1}, {f} @B,F; q = divide {0}, {1} @F; qn = compare LT, {q}, {z} @FF>B;"
              " qz = select {qn}, {mz}, {z} @B,F; dz = compare EQ, {d}, {z} @FF>B; select {dz}, {qz}, {w} @B,F",
              "(to_real (to_int (/ {0} {1})))")
_float_binary("fpow", r.fpow_value, None, "{0} ** {1}", "call double @llvm.pow.f64(double {0}, double {1})",
              "power {0}, {1} @F", "(pl_fpow {0} {1})")
# Python's min and max keep the first operand unless the second is strictly beyond it: with nan, order matters.
_float_binary("fmin", min, iv.minimum, "min({0}, {1})", "b = fcmp olt double {1}, {0}; select i1 {b}, double {1}, double {0}",
              "b = compare LT, {1}, {0} @FF>B; select {b}, {1}, {0} @B,F",
              "(ite (< {1} {0}) {1} {0})")
_float_binary("fmax", max, iv.maximum, "max({0}, {1})", "b = fcmp ogt double {1}, {0}; select i1 {b}, double {1}, double {0}",
              "b = compare GT, {1}, {0} @FF>B; select {b}, {1}, {0} @B,F",
              "(ite (> {1} {0}) {1} {0})")
_float_binary("copysign", math.copysign, None, "math.copysign({0}, {1})",
              "call double @llvm.copysign.f64(double {0}, double {1})",
              "i = bitcast_convert {1} @F>I; z = constant dense<0> @I;"
              " neg = compare LT, {i}, {z} @II>B; a = abs {0} @F;"
              " m = negate {a} @F; select {neg}, {m}, {a} @B,F",
              "(pl_copysign {0} {1})")
_row("fneg", 1, operator.neg, r.make_float_negation, iv.neg, "-{0}", "fneg double {0}", "negate {0} @F", "(- {0})")
_row("fabs", 1, abs, r.opaque("fabs", float, r.as_float), iv.absolute, "abs({0})",
     "call double @llvm.fabs.f64(double {0})", "abs {0} @F", "(ite (>= {0} 0.0) {0} (- {0}))")

_HLO_CONST = "o = constant dense<1.0> @F; "
_HLO_EXP = "h = constant dense<0.5> @F; p = exponential {0} @F; n = negate {0} @F;" \
           " m = exponential {n} @F; "
_HLO_ROOT = _HLO_CONST + "s = multiply {0}, {0} @F; d = subtract {o}, {s} @F; c = sqrt {d} @F; "
# name: (range rule, StableHLO). Arguments outside the domain raise in Python and give nan elsewhere.
UNARY: dict[str, tuple[Callable | None, str]] = {
    "sqrt": (iv.monotone(math.sqrt, 0.0), "sqrt {0} @F"),
    "exp": (iv.monotone(math.exp), "exponential {0} @F"),
    "log": (iv.monotone(math.log, 5e-324), "log {0} @F"),
    "log2": (iv.monotone(math.log2, 5e-324), "k = constant dense<0.6931471805599453> @F; x = log {0} @F;"
             " divide {x}, {k} @F"),
    "sin": (None, "sine {0} @F"),
    "cos": (None, "cosine {0} @F"),
    "tan": (None, "s = sine {0} @F; c = cosine {0} @F; divide {s}, {c} @F"),
    "asin": (None, _HLO_ROOT + "atan2 {0}, {c} @F"),
    "acos": (None, _HLO_ROOT + "atan2 {c}, {0} @F"),
    "atan": (iv.monotone(math.atan), _HLO_CONST + "atan2 {0}, {o} @F"),
    "sinh": (iv.monotone(math.sinh), _HLO_EXP + "x = subtract {p}, {m} @F; multiply {x}, {h} @F"),
    "cosh": (None, _HLO_EXP + "x = add {p}, {m} @F; multiply {x}, {h} @F"),
    "tanh": (iv.monotone(math.tanh), "tanh {0} @F"),
}
_LLVM_INTRINSIC = frozenset(("sqrt", "exp", "log", "log2", "sin", "cos"))
for _f, (_range, _hlo) in UNARY.items():
    _row(_f, 1, getattr(math, _f), r.opaque(_f, float, r.as_float), _range, f"math.{_f}({{0}})",
         f"call double @{f'llvm.{_f}.f64' if _f in _LLVM_INTRINSIC else _f}(double {{0}})", _hlo, f"(pl_{_f} {{0}})")

# names that only dispatch to the rows above ----------------------------------------------------------------------------------------
_row("ceildiv", 2, r.ceildiv_value, r.make_ceildiv, lambda a, b: iv.neg(iv.floordiv(iv.neg(a), b)), "-(-{0} // {1})")
_row("truediv", 2, operator.truediv, r.make_truediv, None, "{0} / {1}")
_row("pow", 2, operator.pow, r.make_pow, None, "{0} ** {1}")
_row("bit_not", 1, operator.invert, r.make_bit_not, iv.bit_not, "~{0}")
_row("to_int", 1, int, r.make_to_int, None, "int({0})")
_row("to_bool", 1, bool, lambda ctx, a: r.as_bool(a), None, "bool({0})")
DISPATCH_ONLY = frozenset(("ceildiv", "truediv", "pow", "bit_not", "to_int", "to_bool"))


# The doors: one function per row that programs call ---------------------------------------------
def _door(name: str) -> Callable[..., Any]:
    def door(*args: Any) -> Any:
        return apply(name, *args)

    def binary_door(a: Any, b: Any) -> Any:  # most calls repeat: one look-up
        if a.__class__ is Expr:
            ctx = a.ctx
            if b.__class__ is not Expr:
                b = ctx.constant(b)
        elif b.__class__ is Expr:
            ctx = b.ctx
            a = ctx.constant(a)
        else:
            return TABLE[name].fn(a, b)
        key = (name, a, b)
        r = ctx.memo.get(key)
        if r is not None:
            return r
        if a.ctx is not b.ctx or (a.const is not None and b.const is not None):
            return apply(name, a, b)
        r = ctx.memo[key] = TABLE[name].make(ctx, a, b)
        if ctx.record is not None:
            ctx.record(name, key[1:], r)
        return r

    if TABLE[name].arity == 2:
        door = binary_door

    door.__name__ = name
    door.__doc__ = f"`{TABLE[name].python}` of numbers or expressions; plain numbers give a plain number."
    return door


add, sub, mul, neg, floordiv, mod = map(_door, ("add", "sub", "mul", "neg", "floordiv", "mod"))
abs_, min_, max_, ceildiv, truediv, pow_ = map(_door, ("abs", "min", "max", "ceildiv", "truediv", "pow"))
eq, ne, lt, le, gt, ge = map(_door, ("eq", "ne", "lt", "le", "gt", "ge"))
and_, or_, not_, where = map(_door, ("and", "or", "not", "where"))
bit_and, bit_or, bit_xor, bit_not, lshift, rshift = map(_door, ("bit_and", "bit_or", "bit_xor", "bit_not", "lshift", "rshift"))
to_int, to_float, to_bool = map(_door, ("to_int", "to_float", "to_bool"))
floor, ceil, trunc, round_, sqrt = map(_door, ("floor", "ceil", "trunc", "round", "sqrt"))
DOORS: dict[str, Callable[..., Any]] = {name: _door(name) for name in TABLE}


def sum_(xs) -> Any:
    """The sum of many numbers or expressions, in one step for ints."""
    xs = list(xs)
    ctx = next((x.ctx for x in xs if x.__class__ is Expr), None)
    if ctx is None or any((x.kind if x.__class__ is Expr else type(x)) is not int for x in xs):
        return reduce(lambda a, b: apply("add", a, b), xs, 0)
    d: dict = {}
    for x in xs:
        for m, c in ctx.lift(x).terms:
            d[m] = d.get(m, 0) + c
        if len(d) > LONG:  # folds as adding one by one would
            d = dict(ctx.poly(d).terms)
    return ctx.poly(d)
