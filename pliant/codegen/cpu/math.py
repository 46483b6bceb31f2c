"""Transcendental functions, printed inline as polynomials.

f32: within 2 units in the last place over the whole range, denormals and special values right (`tests/codegen/test_cpu_math.py` sweeps
them). The hot ones (exp, log, tanh, erf, sigmoid, sin, cos) compute in f32, the others in f64 lanes, which makes their last bit easy.
f64: exp, log and sigmoid inline; the rest calls libm lane by lane.

Polynomials are minimax fits of our own; ranges are given beside them. Multiply-adds are fused here, and only here and in sums.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pliant.codegen.cpu.machine import Machine
from pliant.codegen.cpu.text import BITS, Text, Value, const
from pliant.graph.originals import math

LN2 = math.log(2.0)
# ln 2 and pi/2 as sums: the heads have few enough bits that a small integer times them is exact.
LN2_HEAD32, LN2_TAIL32 = 0.693359375, -2.12194440054690583e-4
LN2_HEAD64, LN2_TAIL64 = 0.6931471803691238, 1.9082149292705877e-10
PIO2_HEAD, PIO2_TAIL = 1.5707963267948966, 6.123233995736766e-17
PIO2_32 = (1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15)
# exp(r) = 1 + r + r^2 P(r), |r| <= ln(2)/2
EXP32 = (0.4999999403953552, 0.1666652113199234, 0.04166826233267784, 0.00836867094039917, 0.0013820999301970005)
EXPM1_32 = (0.5, 0.1666666567325592, 0.04166649281978607, 0.008333546109497547, 0.0013932321453467011, 0.00019761724979616702)
EXP64 = (
    0.5000000000000012, 0.16666666666665614, 0.0416666666665065, 0.008333333334001436, 0.0013888888950444698, 0.00019841268423895174,
    2.48014858321531e-05, 2.7558537225142034e-06, 2.763284742534881e-07, 2.4704420535732013e-08,
)  # fmt: skip
# log(1 + f) = f - f^2/2 + f^3 P(f), sqrt(1/2) <= 1 + f <= sqrt(2)
LOG32 = (
    0.3333331346511841, -0.25000008940696716, 0.2000207155942917, -0.16667990386486053, 0.14220362901687622, -0.12406210601329803,
    0.11883475631475449, -0.11670157313346863, 0.06749483197927475,
)  # fmt: skip
# log((1 + s) / (1 - s)) = 2 s + s^3 P(s^2), the same range
LOG64 = (
    0.6666666666666758, 0.39999999999246105, 0.2857142878040262, 0.22222194656234007, 0.18183767774837686, 0.1530886235328677,
    0.14847601022692444,
)  # fmt: skip
# sin(r) = r + r^3 P(r^2), cos(r) = 1 - r^2/2 + r^4 P(r^2), tan(r) = r + r^3 P(r^2), |r| <= pi/4
SIN32 = (-0.1666666716337204, 0.008333379402756691, -0.00019853073172271252, 2.832724931067787e-06)
COS32 = (0.04166664555668831, -0.0013887310633435845, 2.4432552891084924e-05)
TAN = (
    0.33333331847480074, 0.1333341048623985, 0.053954648574263256, 0.02198451946483626, 0.008332047439536886, 0.004991231836905799,
    -0.0005941135131293914, 0.002040372106158319,
)  # fmt: skip
# atan(x) = x + x^3 P(x^2), x <= 1; asin(x) = x + x^3 P(x^2), x <= 1/2; both good for f32
ATAN = (
    -0.33333332132139015, 0.19999927168078757, -0.14284165991841735, 0.11094493527187414, -0.0898539120451735, 0.07259297899270156,
    -0.054513337561194, 0.03447271373148205, -0.016297091663276572, 0.004925362504247893, -0.0006977763235890557,
)  # fmt: skip
ASIN = (
    0.16666667181932504, 0.0749994875559269, 0.044660012397125824, 0.030112003123349905, 0.024608122272350076, 0.007498575470167485,
    0.03465987972557167,
)  # fmt: skip
# tanh(x) = x + x^3 P(x^2), x <= 0.6
TANH = (-0.33333298563957214, 0.13331936299800873, -0.05378471687436104, 0.02079862542450428, -0.005897966679185629)
# erf(x) = x + x P(x^2), x <= 0.85; beyond it 1 - 2**P(x) up to 3.95, where erf is 1
ERF_NEAR = (
    0.12837916612625122, -0.37612590193748474, 0.11282864958047867, -0.026807287707924843, 0.0050577037036418915, -0.0006348518654704094,
)  # fmt: skip
ERF_FAR = (
    -0.00015077054558787495, -1.6274480819702148, -0.9183027148246765, -0.15079890191555023, 0.03248796984553337, -0.004498043097555637,
    0.00029383247601799667,
)  # fmt: skip
# 2**r = 1 + r P(r), |r| <= 1/2: 24 bits
POWER32 = (0.6931470036506653, 0.24022245407104492, 0.05550706386566162, 0.00967136025428772, 0.001327154110185802)
# erfc(x) exp(x^2) = P((x - 2) / (x + 2)), 0 <= x <= 10.2; good for f32
ERFCX = (
    0.25539567631065274, -0.42718584741553817, 0.24165819421402765, -0.0789785808853602, 0.0037328933344600427, 0.0069974589721948964,
    -0.0008471555247088773, -0.000981953163038614, 4.3640722070511424e-05, 0.00017426610936423562, 2.7184329362231505e-05,
    -2.7428889991689384e-05, -1.31736184590257e-05, 1.4649774414734187e-06, 2.7915962500654433e-06, 6.716579536615238e-07,
)  # fmt: skip


@dataclass(slots=True, frozen=True)
class X:
    """A value that writes instructions when it is computed with: the notation of this file. Python numbers are constants of its type."""

    m: Math
    v: Value

    def other(self, o: X | float) -> Value:
        return o.v if isinstance(o, X) else const(o, self.v.ty)

    def __add__(self, o: X | float) -> X:
        return X(self.m, self.m.b.add(self.v, self.other(o)))

    def __radd__(self, o: float) -> X:
        return self + o

    def __sub__(self, o: X | float) -> X:
        return X(self.m, self.m.b.sub(self.v, self.other(o)))

    def __rsub__(self, o: float) -> X:
        return X(self.m, self.m.b.sub(const(o, self.v.ty), self.v))

    def __mul__(self, o: X | float) -> X:
        return X(self.m, self.m.b.mul(self.v, self.other(o)))

    def __rmul__(self, o: float) -> X:
        return self * o

    def __truediv__(self, o: X | float) -> X:
        return X(self.m, self.m.b.binary("fdiv", self.v, self.other(o)))

    def __rtruediv__(self, o: float) -> X:
        return X(self.m, self.m.b.binary("fdiv", const(o, self.v.ty), self.v))

    def __neg__(self) -> X:
        return X(self.m, self.m.b.neg(self.v))

    def compare(self, predicate: str, o: X | float) -> Value:
        return self.m.b.compare(predicate, self.v, self.other(o))

    def abs(self) -> X:
        return self.bits("and", (1 << (BITS[self.v.ty] - 1)) - 1)

    def bits(self, opcode: str, mask: int) -> X:
        b = self.m.b
        whole = "i32" if self.v.ty == "float" else "i64"
        return X(self.m, b.bitcast(b.binary(opcode, b.bitcast(self.v, whole), const(mask, whole)), self.v.ty))

    def signed_as(self, o: X) -> X:
        return X(self.m, self.m.b.intrinsic("copysign", self.v, o.v))

    def rint(self) -> X:
        """To the nearest whole number, for |x| < 2**22 (f32) or 2**51 (f64)."""
        if self.m.target.rounds:
            return X(self.m, self.m.b.intrinsic("rint", self.v))
        shift = 1.5 * (2.0**23 if self.v.ty == "float" else 2.0**52)  # the sum has no bits left for a fraction
        return (self + shift) - shift

    def sqrt(self) -> X:
        return X(self.m, self.m.b.intrinsic("sqrt", self.v))

    def to(self, ty: str) -> X:
        return X(self.m, self.m.b.convert("fpext" if ty == "double" else "fptrunc", self.v, ty))


class Math:
    """Prints functions into one text. `call(name, *values)` is the door."""

    def __init__(self, text: Text, target: Machine) -> None:
        self.b = text
        self.target = target

    def call(self, name: str, *values: Value) -> Value:
        values = tuple(self.b.same(*values))
        args = [X(self, v) for v in values]
        table = F32 if values[0].ty == "float" else F64
        if name in table:
            return table[name](self, *args).v
        return self.libm(name, *args).v

    # -- parts --

    def where(self, cond: Value, a: X | float, o: X | float) -> X:
        like = a if isinstance(a, X) else o
        assert isinstance(like, X)
        return X(self, self.b.select(cond, like.other(a), like.other(o)))

    def fma(self, a: X, o: X | float, c: X | float) -> X:
        """Rounded once where the machine can; elsewhere only `exact_fma` insists."""
        if not self.target.fma:
            return a * o + c
        return self.exact_fma(a, o, c)

    def exact_fma(self, a: X, o: X | float, c: X | float) -> X:
        return X(self, self.b.fma(a.v, a.other(o), a.other(c)))

    def poly(self, x: X, coefficients: tuple[float, ...]) -> X:
        """Lowest power first. Horner: kernels have enough independent lanes to fill the pipeline."""
        out: X | float = coefficients[-1]
        for c in reversed(coefficients[:-1]):
            out = self.fma(x, out, c)
        assert isinstance(out, X)
        return out

    def scale(self, x: X, n: X) -> X:
        """x * 2**n for whole n, right in the denormal range too."""
        b, v = self.b, x.v
        if self.target.masks:
            letter, bits = ("s", 512) if v.ty == "float" else ("d", 512)
            full = bits // BITS[v.ty]
            if v.lanes % full == 0:
                return X(self, self.scalef(v, b.splat(n.v, v.lanes), full, letter))
        whole, mantissa, bias = ("i32", 23, 127) if v.ty == "float" else ("i64", 52, 1023)
        ni = b.convert("fptosi", n.v, whole)
        half = b.binary("ashr", ni, const(1, whole))
        for part in (half, b.sub(ni, half)):
            power = b.bitcast(b.binary("shl", b.add(part, const(bias, whole)), const(mantissa, whole)), v.ty)
            v = b.mul(v, power)
        return X(self, v)

    def scalef(self, v: Value, n: Value, full: int, letter: str) -> Value:
        parts = []
        for at in range(0, v.lanes, full):
            pick = range(at, at + full)
            a, c = (v, n) if v.lanes == full else (self.b.shuffle(v, None, pick), self.b.shuffle(n, None, pick))
            zero = Value("zeroinitializer", v.ty, full)
            name = f"llvm.x86.avx512.mask.scalef.p{letter}.512"
            mask = "i16 -1" if full == 16 else "i8 -1"
            if name not in self.b.declared:
                ty = a.type
                self.b.declared[name] = f"declare {ty} @{name}({ty}, {ty}, {ty}, {mask.split()[0]}, i32 immarg)"
            parts.append(self.b.call(name, v.ty, full, [a, c, zero, mask, "i32 4"]))
        while len(parts) > 1:
            parts = [self.b.shuffle(a, c, range(2 * a.lanes)) for a, c in zip(parts[::2], parts[1::2])]
        return parts[0]

    def libm(self, name: str, *args: X) -> X:
        """The C library's function, lane by lane."""
        b, v = self.b, args[0].v
        symbol = name + ("f" if v.ty == "float" else "")
        if v.lanes == 1:
            return X(self, b.call(symbol, v.ty, 1, [a.v for a in args]))
        out = Value("poison", v.ty, v.lanes)
        for lane in range(v.lanes):
            one = b.call(symbol, v.ty, 1, [b.extract(a.v, lane) for a in args])
            out = b.insert(out, one, lane)
        return X(self, out)

    def once(self, name: str, v: Value) -> Value:
        """Of one number for many lanes, the sum of a row say: the C library's code is made for one, where ours waits for each step."""
        return self.libm(name, X(self, v)).v

    def clamp(self, x: X, low: float, high: float) -> X:
        """NaN stays."""
        x = self.where(x.compare("olt", low), low, x)
        return self.where(x.compare("ogt", high), high, x)

    # -- exp and its family --

    def exp_parts(self, x: X, coefficients: tuple[float, ...]) -> tuple[X, X]:
        """(n, p): exp(x) = 2**n * (1 + p), |p| < 0.42."""
        if x.v.ty == "float":
            head, tail = -LN2_HEAD32, -LN2_TAIL32
        else:
            head, tail = -LN2_HEAD64, -LN2_TAIL64
        n = (x * (1 / LN2)).rint()
        r = self.fma(n, tail, self.fma(n, head, x))
        return n, self.fma(r * r, self.poly(r, coefficients), r)

    def exp(self, x: X, negative: bool = False) -> X:
        """`negative`: x is at most 0."""
        low, high, coefficients = (-104.0, 89.0, EXP32) if x.v.ty == "float" else (-746.0, 710.0, EXP64)
        x = self.where(x.compare("olt", low), low, x) if negative else self.clamp(x, low, high)
        n, p = self.exp_parts(x, coefficients)
        return self.scale(p + 1.0, n)

    def exp2(self, x: X) -> X:
        low, high, coefficients = (-151.0, 129.0, EXP32) if x.v.ty == "float" else (-1076.0, 1025.0, EXP64)
        x = self.clamp(x, low, high)
        n = x.rint()
        r = (x - n) * LN2
        return self.scale(self.fma(r * r, self.poly(r, coefficients), r) + 1.0, n)

    def expm1(self, x: X) -> X:
        low, high, coefficients = (-30.0, 89.0, EXPM1_32) if x.v.ty == "float" else (-60.0, 710.0, EXP64)
        n, p = self.exp_parts(self.clamp(x, low, high), coefficients)
        half = self.power_of_two(n - 1.0)
        out = self.fma(half, p, half - 0.5) * 2.0
        # Near zero the sum above is exact only up to the sign of zero and the denormals.
        return self.where(x.abs().compare("olt", 1e-7 if x.v.ty == "float" else 1e-16), x, out)

    def power_of_two(self, n: X) -> X:
        """2**n for whole n within the normal range."""
        b = self.b
        whole, mantissa, bias = ("i32", 23, 127) if n.v.ty == "float" else ("i64", 52, 1023)
        i = b.add(b.convert("fptosi", n.v, whole), const(bias, whole))
        return X(self, b.bitcast(b.binary("shl", i, const(mantissa, whole)), n.v.ty))

    def sigmoid(self, x: X) -> X:
        e = self.exp(-x.abs(), negative=True)
        top = self.where(x.compare("olt", 0.0), e, 1.0)
        below = e + 1.0
        lost = e - (below - 1.0)  # what that sum rounded away; 1 - e/2 stands for 1 / (1 + e), good enough for a correction
        out = top / below
        return self.fma(-(out * lost), self.fma(e, -0.5, 1.0), out)

    def tanh(self, x: X) -> X:
        a = x.abs()
        n, p = self.exp_parts(self.where(a.compare("ogt", 9.02), 9.02, a) * 2.0, EXPM1_32)
        power = self.power_of_two(n)
        e = self.fma(power, p, power - 1.0)  # expm1(2a)
        z = x * x
        near = self.fma(a * z, self.poly(z, TANH), a)
        return self.where(a.compare("olt", 0.6), near, e / (e + 2.0)).signed_as(x)

    def half_exp(self, a: X) -> X:
        """exp(a) / 2 without overflow where the result of sinh and cosh is finite."""
        high, coefficients = (90.0, EXP32) if a.v.ty == "float" else (711.0, EXP64)
        n, p = self.exp_parts(self.where(a.compare("ogt", high), high, a), coefficients)
        return self.scale(p + 1.0, n - 1.0)

    def cosh(self, x: X) -> X:
        e = self.half_exp(x.abs())
        return e + 0.25 / e

    def sinh(self, x: X) -> X:
        a = x.abs()
        e = self.half_exp(a)
        s = x * x
        # Odd Taylor series to x^13 below 1.
        near = a * self.poly(s, tuple(1.0 / math.factorial(k) for k in range(1, 15, 2)))
        return self.where(a.compare("olt", 1.0), near, e - 0.25 / e).signed_as(x)

    # -- logarithms --

    def mantissa(self, x: X) -> tuple[X, X]:
        """(e, m): x = 2**e * m with sqrt(1/2) <= m < sqrt(2), for positive finite x, denormals too."""
        b = self.b
        if x.v.ty == "float":
            whole, width, least, up, root = "i32", 23, 2.0**-126, 2.0**24, 0x3F3504F3
            shift = 24.0
        else:
            whole, width, least, up, root = "i64", 52, 2.0**-1022, 2.0**54, 0x3FE6A09E667F3BCD
            shift = 54.0
        small = x.compare("olt", least)
        i = b.bitcast(self.where(small, x * up, x).v, whole)
        # Subtracting sqrt(1/2) from the bits makes the exponent field round where m crosses it.
        moved = b.sub(i, const(root, whole))
        e = b.binary("ashr", moved, const(width, whole))
        m = b.bitcast(b.sub(i, b.binary("shl", e, const(width, whole))), x.v.ty)
        exponent = X(self, b.convert("sitofp", e, x.v.ty))
        return self.where(small, exponent - shift, exponent), X(self, m)

    def log_ends(self, x: X, out: X) -> X:
        """The logarithm's values at 0, infinity, below 0 and at NaN."""
        out = self.where(x.compare("oeq", math.inf), math.inf, out)
        out = self.where(x.compare("oeq", 0.0), -math.inf, out)
        return self.where(x.compare("oge", 0.0), out, math.nan)

    def log_of(self, f: X, e: X) -> X:
        """log(2**e * (1 + f)) in f64."""
        s = f / (f + 2.0)
        z = s * s
        # f - (f^2/2 - s (f^2/2 + R)): exact to the last bit where e is 0.
        square = f * f * 0.5
        rest = self.poly(z, LOG64) * z
        inner = self.fma(e, LN2_TAIL64, s * (square + rest))
        return self.fma(e, LN2_HEAD64, f - (square - inner))

    def log(self, x: X) -> X:
        e, m = self.mantissa(x)
        f = m - 1.0
        if x.v.ty == "double":
            return self.log_ends(x, self.log_of(f, e))
        z = f * f
        y = self.poly(f, LOG32) * f * z
        y = self.fma(e, LN2_TAIL32, y)
        y = self.fma(z, -0.5, y)
        return self.log_ends(x, self.fma(e, LN2_HEAD32, f + y))

    def log_wide(self, x: X, factor: float) -> X:
        """f32 log to another base, through f64."""
        wide = x.to("double")
        e, m = self.mantissa(wide)
        return self.log_ends(x, (self.log_of(m - 1.0, e) * factor).to("float"))

    def log1p(self, x: X) -> X:
        """log(u) for u = 1 + x, and what that sum has lost."""
        b = self.b
        u = x + 1.0
        t = u - x
        lost = (x - (u - t)) + (1.0 - t)  # u + lost is 1 + x
        moved = b.sub(b.bitcast(u.v, "i32"), const(0x3F3504F3, "i32"))  # as in `mantissa`; u is no denormal
        whole = b.binary("ashr", moved, const(23, "i32"))
        m = X(self, b.bitcast(b.sub(b.bitcast(u.v, "i32"), b.binary("shl", whole, const(23, "i32"))), "float"))
        near = b.compare("eq", whole, const(0, "i32"))
        f = self.where(near, x, m - 1.0)  # x itself: the sum has lost bits
        e = X(self, b.convert("sitofp", whole, "float"))
        down = b.sub(const(127, "i32"), b.intrinsic("smin", whole, b.splat(const(60, "i32"), whole.lanes)))  # 2**-e
        d = lost * X(self, b.bitcast(b.binary("shl", down, const(23, "i32")), "float"))
        d = self.where(near, 0.0, self.fma(-d, f, d))  # d / (1 + f), nearly
        z = f * f
        y = self.fma(e, LN2_TAIL32, self.poly(f, LOG32) * f * z)
        y = self.fma(z, -0.5, y) + d
        out = self.fma(e, LN2_HEAD32, f + y)
        out = self.where(x.compare("oeq", math.inf), math.inf, out)
        out = self.where(x.compare("oeq", -1.0), -math.inf, out)
        out = self.where(x.compare("oeq", 0.0), x, out)
        return self.where(x.compare("oge", -1.0), out, math.nan)

    def pow(self, x: X, y: X) -> X:
        """f32 power: 2**(y log2 |x|) in f64, then the cases of C's pow."""
        b = self.b
        a, wide_y = x.abs().to("double"), y.to("double")
        e, m = self.mantissa(a)
        product = self.log_ends(a, self.fma(self.log_of(m - 1.0, e * 0.0), 1 / LN2, e)) * wide_y
        out = self.exp2(self.clamp(product, -1000.0, 1000.0)).to("float")
        whole = y.compare("oeq", X(self, b.intrinsic("trunc", y.v)))
        half = y * 0.5
        odd = b.binary("and", whole, half.compare("une", X(self, b.intrinsic("trunc", half.v))))
        out = self.where(odd, out.signed_as(x), out)
        negative = b.binary("and", x.compare("olt", 0.0), x.compare("ogt", -math.inf))
        fraction = b.binary("and", b.invert(whole), y.compare("ord", y))
        out = self.where(b.binary("and", negative, fraction), math.nan, out)
        minus_one = b.binary("and", x.compare("oeq", -1.0), y.abs().compare("oeq", math.inf))
        one = b.binary("or", x.compare("oeq", 1.0), y.compare("oeq", 0.0))
        return self.where(b.binary("or", one, minus_one), 1.0, out)

    # -- circular functions --

    def quadrant(self, x: X) -> tuple[X, Value]:
        """(r, q) in f64: x = q pi/2 + r, |r| <= pi/4, for |x| < 2**48."""
        n = (x * (2 / math.pi)).rint()
        r = self.exact_fma(n, -PIO2_TAIL, self.exact_fma(n, -PIO2_HEAD, x))
        return r, self.b.convert("fptosi", n.v, "i64")

    def quadrant32(self, x: X) -> tuple[X, Value]:
        """The same in f32, for |x| < 2**18. The first difference is exact: a multiple of 2**-23 below 1, or x itself."""
        n = (x * (2 / math.pi)).rint()
        r = x
        for part in PIO2_32:
            r = self.exact_fma(n, -part, r)
        return r, self.b.convert("fptosi", n.v, "i32")

    def circular(self, x: X, names: Sequence[str], near: Callable[[X], Sequence[X]], limit: float = 2.0**48) -> list[X]:
        """`near` for |x| below the limit; where a lane is beyond (or not finite), libm. One result for each of `names`."""
        b = self.b
        inside = x.abs().compare("olt", limit)
        out = near(self.where(inside, x, 0.0))
        far = b.invert(b.reduce_bits("and", inside))
        slow = b.when(far, lambda: [self.libm(name, x).v for name in names], [o.v for o in out])
        return [X(self, v) for v in slow]

    @property
    def sine_limit(self) -> float:
        return 2.0**18 if self.target.fma else 2.0**48

    def sines(self, x: X, turns: Sequence[int]) -> list[X]:
        """sin(x + turn pi/2) for each of `turns`: all but the last few instructions are the same."""
        b = self.b
        if self.target.fma:
            r, q = self.quadrant32(x)
        else:
            r64, q64 = self.quadrant(x.to("double"))
            r, q = r64.to("float"), b.convert("trunc", q64, "i32")
        z = r * r
        sine = self.fma(r * z, self.poly(z, SIN32), r)
        cosine = self.fma(z * z, self.poly(z, COS32), self.fma(z, -0.5, 1.0))
        found = []
        for turn in turns:
            n = b.add(q, const(turn, "i32")) if turn else q
            odd = b.compare("ne", b.binary("and", n, const(1, "i32")), const(0, "i32"))
            sign = b.binary("shl", b.binary("and", n, const(2, "i32")), const(30, "i32"))
            out = self.where(odd, cosine, sine)
            found.append(X(self, b.bitcast(b.binary("xor", b.bitcast(out.v, "i32"), sign), "float")))
        return found

    def sin(self, x: X) -> X:
        (out,) = self.circular(x, ("sin",), lambda x: self.sines(x, (0,)), self.sine_limit)
        return self.where(x.compare("oeq", 0.0), x, out)

    def cos(self, x: X) -> X:
        return self.circular(x, ("cos",), lambda x: self.sines(x, (1,)), self.sine_limit)[0]

    def sin_cos(self, x: Value) -> tuple[Value, Value]:
        """Both of one f32 operand, which costs little more than one."""
        wide = X(self, x)
        sine, cosine = self.circular(wide, ("sin", "cos"), lambda x: self.sines(x, (0, 1)), self.sine_limit)
        return self.where(wide.compare("oeq", 0.0), wide, sine).v, cosine.v

    def tan_near(self, x: X) -> X:
        b = self.b
        r, q = self.quadrant(x.to("double"))
        z = r * r
        t = self.fma(r * z, self.poly(z, TAN), r)
        odd = b.compare("ne", b.binary("and", q, const(1, "i64")), const(0, "i64"))
        # One division serves both: t / 1 or -1 / t.
        out = self.where(odd, -1.0, t) / self.where(odd, t, 1.0)
        return out.to("float")

    def tan(self, x: X) -> X:
        (out,) = self.circular(x, ("tan",), lambda x: [self.tan_near(x)])
        return self.where(x.compare("oeq", 0.0), x, out)

    def atan_of(self, top: X, bottom: X) -> X:
        """atan(top / bottom) in f64 for non-negative operands, in [0, pi/2]."""
        swap = top.compare("ogt", bottom)
        t = self.where(swap, bottom, top) / self.where(swap, top, bottom)
        z = t * t
        a = self.fma(t * z, self.poly(z, ATAN), t)
        return self.where(swap, math.pi / 2 - a, a)

    def atan(self, x: X) -> X:
        wide = x.abs().to("double")
        one = self.where(wide.compare("oeq", 0.0), 1.0, wide * 0.0 + 1.0)  # NaN stays NaN
        one = self.where(wide.compare("oeq", math.inf), 1.0, one)
        return self.atan_of(wide, one).to("float").signed_as(x)

    def atan2(self, y: X, x: X) -> X:
        b = self.b
        top, bottom = y.abs().to("double"), x.abs().to("double")
        both = b.binary("and", top.compare("oeq", math.inf), bottom.compare("oeq", math.inf))
        top, bottom = self.where(both, 1.0, top), self.where(both, 1.0, bottom)
        none = b.binary("and", top.compare("oeq", 0.0), bottom.compare("oeq", 0.0))
        a = self.atan_of(top, self.where(none, 1.0, bottom))
        behind = b.compare("slt", b.bitcast(x.v, "i32"), const(0, "i32"))
        a = self.where(behind, math.pi - a, a)
        nan = b.compare("uno", y.v, x.v)
        return self.where(nan, math.nan, a.to("float").signed_as(y))

    def asin_of(self, a: X) -> tuple[X, Value]:
        """(angle, far): far lanes hold asin(sqrt((1 - a) / 2)), the others asin(a); f64, 0 <= a <= 1."""
        far = a.compare("ogt", 0.5)
        half = (1.0 - a) * 0.5
        t = self.where(far, half.sqrt(), a)
        z = self.where(far, half, a * a)
        return self.fma(t * z, self.poly(z, ASIN), t), far

    def asin(self, x: X) -> X:
        angle, far = self.asin_of(x.abs().to("double"))
        return self.where(far, math.pi / 2 - angle * 2.0, angle).to("float").signed_as(x)

    def acos(self, x: X) -> X:
        angle, far = self.asin_of(x.abs().to("double"))
        below = x.compare("olt", 0.0)
        double = angle * 2.0
        beyond = self.where(below, math.pi - double, double)
        within = math.pi / 2 - self.where(below, -angle, angle)
        return self.where(far, beyond, within).to("float")

    # -- error functions --

    def erf(self, x: X) -> X:
        a = x.abs()
        z = x * x
        near = self.fma(self.poly(z, ERF_NEAR), a, a)
        # 1 - 2**q: q is at most -2.1, so the power needs two bits less than the result.
        q = self.poly(self.where(a.compare("ogt", 3.95), 3.95, a), ERF_FAR)
        n = q.rint()
        r = q - n
        power = self.power_of_two(n)
        far = 1.0 - self.fma(r * power, self.poly(r, POWER32), power)
        return self.where(a.compare("ogt", 0.85), far, near).signed_as(x)

    def erfc(self, x: X) -> X:
        wide = x.to("double")
        a = wide.abs()
        a = self.where(a.compare("ogt", 10.2), 10.2, a)
        t = (a - 2.0) / (a + 2.0)
        tail = self.poly(t, ERFCX) * self.exp(-(a * a), negative=True)
        return self.where(x.compare("olt", 0.0), 2.0 - tail, tail).to("float")

    def rsqrt(self, x: X) -> X:
        return 1.0 / x.sqrt()


F32: dict[str, Callable[..., X]] = {
    "exp": Math.exp,
    "exp2": Math.exp2,
    "expm1": Math.expm1,
    "log": Math.log,
    "log2": lambda m, x: m.log_wide(x, 1 / LN2),
    "log10": lambda m, x: m.log_wide(x, 1 / math.log(10.0)),
    "log1p": Math.log1p,
    "sin": Math.sin,
    "cos": Math.cos,
    "tan": Math.tan,
    "asin": Math.asin,
    "acos": Math.acos,
    "atan": Math.atan,
    "atan2": Math.atan2,
    "sinh": Math.sinh,
    "cosh": Math.cosh,
    "tanh": Math.tanh,
    "erf": Math.erf,
    "erfc": Math.erfc,
    "sigmoid": Math.sigmoid,
    "pow": Math.pow,
    "rsqrt": Math.rsqrt,
}
# What is missing here is libm's.
F64: dict[str, Callable[..., X]] = {
    "exp": Math.exp,
    "log": Math.log,
    "sigmoid": Math.sigmoid,
    "rsqrt": Math.rsqrt,
}
