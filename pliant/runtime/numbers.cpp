// Scalar operations of a plan: 64-bit integers with Python's floor semantics, doubles, truths. What Python would raise for is "bad", and
// only counts where it is used: `n // m if m else 0` is fine for an m of 0.
#include "runtime.h"
#include <climits>
#include <cmath>
#include <cstring>
#include <limits>

namespace pliant::runtime {
namespace {

enum Op {
    Symbol, Constant, Add, Sub, Mul, Neg, FloorDiv, Mod, Abs, Min, Max, IntPow, BitAnd, BitOr, BitXor, ShiftLeft, ShiftRight, Same,
    Eq, Ne, Lt, Le, Gt, Ge, FEq, FNe, FLt, FLe, FGt, FGe, And, Or, Not, Where, ToFloat, IntTrueDiv, Floor, Ceil, Trunc, Round,
    FAdd, FSub, FMul, FDiv, FMod, FFloorDiv, FPow, FMin, FMax, CopySign, FNeg, FAbs,
    Sqrt, Exp, Log, Log2, Sin, Cos, Tan, ASin, ACos, ATan, SinH, CosH, TanH
};

struct Name {
    const char *name;
    Op op;
    int arity;
};
// The rows of pliant/symbolic/ops.py; tests/export/test_runtime.py compares the two.
constexpr Name kNames[] = {
    {"add", Add, 2}, {"sub", Sub, 2}, {"mul", Mul, 2}, {"neg", Neg, 1}, {"floordiv", FloorDiv, 2}, {"mod", Mod, 2}, {"abs", Abs, 1},
    {"min", Min, 2}, {"max", Max, 2}, {"int_pow", IntPow, 2}, {"bit_and", BitAnd, 2}, {"bit_or", BitOr, 2}, {"bit_xor", BitXor, 2},
    {"lshift", ShiftLeft, 2}, {"rshift", ShiftRight, 2}, {"subtotal", Same, 1}, {"eq", Eq, 2}, {"ne", Ne, 2}, {"lt", Lt, 2}, {"le", Le, 2},
    {"gt", Gt, 2}, {"ge", Ge, 2}, {"feq", FEq, 2}, {"fne", FNe, 2}, {"flt", FLt, 2}, {"fle", FLe, 2}, {"fgt", FGt, 2}, {"fge", FGe, 2},
    {"and", And, 2}, {"or", Or, 2}, {"not", Not, 1}, {"where", Where, 3}, {"bool_to_int", Same, 1}, {"to_float", ToFloat, 1},
    {"int_truediv", IntTrueDiv, 2}, {"floor", Floor, 1}, {"ceil", Ceil, 1}, {"trunc", Trunc, 1}, {"round", Round, 1}, {"fadd", FAdd, 2},
    {"fsub", FSub, 2}, {"fmul", FMul, 2}, {"fdiv", FDiv, 2}, {"fmod", FMod, 2}, {"ffloordiv", FFloorDiv, 2}, {"fpow", FPow, 2},
    {"fmin", FMin, 2}, {"fmax", FMax, 2}, {"copysign", CopySign, 2}, {"fneg", FNeg, 1}, {"fabs", FAbs, 1}, {"sqrt", Sqrt, 1}, {"exp", Exp, 1},
    {"log", Log, 1}, {"log2", Log2, 1}, {"sin", Sin, 1}, {"cos", Cos, 1}, {"tan", Tan, 1}, {"asin", ASin, 1}, {"acos", ACos, 1},
    {"atan", ATan, 1}, {"sinh", SinH, 1}, {"cosh", CosH, 1}, {"tanh", TanH, 1},
};

Number integer(int64_t i, bool bad = false) {
    Number n;
    n.i = i, n.bad = bad;
    return n;
}
Number real(double f, bool bad = false) {
    Number n;
    n.f = f, n.bad = bad;
    return n;
}
// A float as an integer, if it is one that there is.
Number whole(double f) { return f >= -9223372036854775808.0 && f < 9223372036854775808.0 ? integer(static_cast<int64_t>(f)) : integer(0, true); }

Number power(int64_t a, int64_t n) {
    if (n < 0) return integer(0, true);
    if (a == 0 || a == 1 || n == 0) return integer(n == 0 ? 1 : a);
    if (a == -1) return integer(n & 1 ? -1 : 1);
    int64_t r = 1;
    for (; n > 0; n--)
        if (__builtin_mul_overflow(r, a, &r)) return integer(0, true);
    return integer(r);
}

double python_mod(double a, double b) {
    const double m = std::fmod(a, b);
    if (m != 0.0) return (b < 0) != (m < 0) ? m + b : m;
    return std::copysign(0.0, b);
}

double python_floordiv(double a, double b) {
    const double m = std::fmod(a, b);
    double d = (a - m) / b;
    if (m != 0.0 && (b < 0) != (m < 0)) d -= 1.0;
    if (d == 0.0) return std::copysign(0.0, a / b);
    const double f = std::floor(d);
    return d - f > 0.5 ? f + 1.0 : f;
}

// Of a function of one number: Python raises where a number gives none, or something infinite out of something finite.
Number checked(double x, double y) { return real(y, (std::isnan(y) && !std::isnan(x)) || (std::isinf(y) && std::isfinite(x))); }

} // namespace

bool is_constant(const Row &row) { return row.op == Constant; }
bool is_symbol(const Row &row) { return row.op == Symbol; }

Row read_row(const Json &data, int64_t before, std::string *symbol) {
    Row row;
    const std::string &name = data[0].string();
    if (name == "sym") {
        row.op = Symbol;
        row.is_float = data[1].string() == "float";
        *symbol = data[2].string();
        return row;
    }
    if (name == "int" || name == "bool") {
        row.op = Constant;
        row.value.i = data[1].integer();
        return row;
    }
    if (name == "float") {
        row.op = Constant;
        row.is_float = true;
        const std::string &text = data[1].string();
        char *end = nullptr;
        row.value.f = std::strtod(text.c_str(), &end);
        if (text.empty() || *end) fail("the plan has a float that is none");
        return row;
    }
    for (const Name &n : kNames) {
        if (name != n.name) continue;
        if (data.list().size() != static_cast<size_t>(n.arity) + 1) fail("the plan has a row of a wrong length");
        row.op = n.op;
        for (int k = 0; k < n.arity; k++) row.args[k] = static_cast<int32_t>(data[k + 1].below(before));
        return row;
    }
    fail("the plan has an operation that this runtime does not know: ", name);
}

Number evaluate(const Row &row, const Number *values) {
    const Number &x = values[row.args[0]], &y = values[row.args[1]], &z = values[row.args[2]];
    const int64_t a = x.i, b = y.i;
    const bool one = x.bad, two = x.bad || y.bad;
    int64_t r = 0;
    bool bad;
    switch (static_cast<Op>(row.op)) {
    case Symbol: return integer(0, true); // filled by others
    case Constant: return row.value;
    case Add: bad = __builtin_add_overflow(a, b, &r); return integer(r, two || bad);
    case Sub: bad = __builtin_sub_overflow(a, b, &r); return integer(r, two || bad);
    case Mul: bad = __builtin_mul_overflow(a, b, &r); return integer(r, two || bad);
    case Neg: return integer(a == INT64_MIN ? 0 : -a, one || a == INT64_MIN);
    case FloorDiv:
    case Mod: {
        if (two || b == 0 || (b == -1 && a == INT64_MIN)) return integer(0, true);
        const int64_t q = a / b, m = a % b;
        const bool off = m != 0 && (m ^ b) < 0;
        return integer(row.op == FloorDiv ? q - off : off ? m + b : m);
    }
    case Abs: return integer(a == INT64_MIN ? 0 : a < 0 ? -a : a, one || a == INT64_MIN);
    case Min: return integer(b < a ? b : a, two);
    case Max: return integer(b > a ? b : a, two);
    case IntPow: return two ? integer(0, true) : power(a, b);
    case BitAnd: return integer(a & b, two);
    case BitOr: return integer(a | b, two);
    case BitXor: return integer(a ^ b, two);
    case ShiftLeft:
        if (two || b < 0) return integer(0, true);
        if (a == 0) return integer(0);
        if (b > 62 || __builtin_mul_overflow(a, int64_t{1} << b, &r)) return integer(0, true);
        return integer(r);
    case ShiftRight: return two || b < 0 ? integer(0, true) : integer(a >> (b > 63 ? 63 : b));
    case Same: return x;
    case Eq: return integer(a == b, two);
    case Ne: return integer(a != b, two);
    case Lt: return integer(a < b, two);
    case Le: return integer(a <= b, two);
    case Gt: return integer(a > b, two);
    case Ge: return integer(a >= b, two);
    case FEq: return integer(x.f == y.f, two);
    case FNe: return integer(x.f != y.f, two);
    case FLt: return integer(x.f < y.f, two);
    case FLe: return integer(x.f <= y.f, two);
    case FGt: return integer(x.f > y.f, two);
    case FGe: return integer(x.f >= y.f, two);
    case And: return one ? integer(0, true) : !a ? integer(0) : integer(b != 0, y.bad);
    case Or: return one ? integer(0, true) : a ? integer(1) : integer(b != 0, y.bad);
    case Not: return integer(!a, one);
    case Where: {
        Number n = a ? y : z;
        n.bad = n.bad || one;
        return n;
    }
    case ToFloat: return real(static_cast<double>(a), one);
    case IntTrueDiv: return two || b == 0 ? real(0, true) : real(static_cast<double>(a) / static_cast<double>(b));
    case Floor: return one ? x : whole(std::floor(x.f));
    case Ceil: return one ? x : whole(std::ceil(x.f));
    case Trunc: return one ? x : whole(std::trunc(x.f));
    case Round: return one ? x : whole(std::nearbyint(x.f));
    case FAdd: return real(x.f + y.f, two);
    case FSub: return real(x.f - y.f, two);
    case FMul: return real(x.f * y.f, two);
    case FDiv: return two || y.f == 0 ? real(0, true) : real(x.f / y.f);
    case FMod: return two || y.f == 0 ? real(0, true) : real(python_mod(x.f, y.f));
    case FFloorDiv: return two || y.f == 0 ? real(0, true) : real(python_floordiv(x.f, y.f));
    case FPow: {
        const double p = std::pow(x.f, y.f);
        return real(p, two || (std::isnan(p) && !std::isnan(x.f) && !std::isnan(y.f)) || (std::isinf(p) && std::isfinite(x.f) && std::isfinite(y.f)));
    }
    case FMin: return real(y.f < x.f ? y.f : x.f, two);
    case FMax: return real(y.f > x.f ? y.f : x.f, two);
    case CopySign: return real(std::copysign(x.f, y.f), two);
    case FNeg: return real(-x.f, one);
    case FAbs: return real(std::fabs(x.f), one);
    default: break;
    }
    if (one) return x;
    switch (static_cast<Op>(row.op)) {
    case Sqrt: return checked(x.f, std::sqrt(x.f));
    case Exp: return checked(x.f, std::exp(x.f));
    case Log: return checked(x.f, std::log(x.f));
    case Log2: return checked(x.f, std::log2(x.f));
    case Sin: return checked(x.f, std::sin(x.f));
    case Cos: return checked(x.f, std::cos(x.f));
    case Tan: return checked(x.f, std::tan(x.f));
    case ASin: return checked(x.f, std::asin(x.f));
    case ACos: return checked(x.f, std::acos(x.f));
    case ATan: return checked(x.f, std::atan(x.f));
    case SinH: return checked(x.f, std::sinh(x.f));
    case CosH: return checked(x.f, std::cosh(x.f));
    case TanH: return checked(x.f, std::tanh(x.f));
    default: return integer(0, true);
    }
}

} // namespace pliant::runtime
