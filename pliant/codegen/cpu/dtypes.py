"""How the dtypes of the loop IR look in LLVM: in memory, in registers, and every conversion.

In registers f32 and f64 are themselves, integers are themselves (signedness is the operator's business), bool is i1, and bf16 and f16
are their 16 bits, for nothing computes in them. Rounding is to nearest even, denormals are kept, NaN stays NaN.
"""

from __future__ import annotations

import math
import struct

from pliant.codegen.cpu.target import Target
from pliant.codegen.cpu.text import Text, Value, const
from pliant.lower.loops import DTYPES

# dtype -> type of a value; bool is i8 in memory.
REGISTER = {
    "f32": "float", "f64": "double", "bf16": "i16", "f16": "i16", "i8": "i8", "i16": "i16", "i32": "i32", "i64": "i64", "u8": "i8",
    "bool": "i1",
}  # fmt: skip
MEMORY = {**REGISTER, "bool": "i8"}
BYTES = {name: d.bits // 8 for name, d in DTYPES.items()}


def constant(value: float | int | bool, dtype: str) -> Value:
    """A constant of a dtype, rounded as a conversion would."""
    if dtype in ("bf16", "f16"):
        return const(half_bits(float(value), dtype), "i16")
    return const(value, REGISTER[dtype])


def half_bits(value: float, dtype: str) -> int:
    """The 16 bits of a Python float, through float32 as PyTorch's own constructors go."""
    try:
        rounded = struct.pack("f", value)
    except OverflowError:
        rounded = struct.pack("f", math.copysign(math.inf, value))
    if dtype == "f16":
        try:
            return struct.unpack("H", struct.pack("e", struct.unpack("f", rounded)[0]))[0]
        except OverflowError:
            return 0x7C00 if value > 0 else 0xFC00
    bits = struct.unpack("I", rounded)[0]
    if bits & 0x7FFFFFFF > 0x7F800000:
        return 0x7FC0
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16


def from_memory(b: Text, v: Value, dtype: str) -> Value:
    return b.compare("ne", v, const(0, "i8")) if dtype == "bool" else v


def to_memory(b: Text, v: Value, dtype: str) -> Value:
    return b.convert("zext", v, "i8") if dtype == "bool" else v


def cast(b: Text, v: Value, source: str, to: str, target: Target) -> Value:
    """Convert a value; see `Node` for the rules."""
    if source == to:
        return v
    s, d = DTYPES[source], DTYPES[to]
    if source == "bf16":
        return cast(b, widen_bf16(b, v), "f32", to, target)
    if source == "f16":
        return cast(b, widen_f16(b, v, target), "f32", to, target)
    if to == "bf16":
        return narrow_bf16(b, cast(b, v, source, "f32", target), target)
    if to == "f16":
        return narrow_f16(b, cast(b, v, source, "f32", target), target)
    if to == "bool":
        return b.compare("une" if s.kind == "f" else "ne", v, const(0, v.ty))
    ty = REGISTER[to]
    if s.kind == "f" and d.kind == "f":
        return b.convert("fpext" if d.bits > s.bits else "fptrunc", v, ty)
    if s.kind == "f":  # through a wider integer, as C compilers convert: what is out of range wraps
        middle = "i64" if to in ("i64", "u8") else "i32"
        wide = b.convert("fptosi", v, middle)
        return wide if middle == ty else b.convert("trunc", wide, ty)
    if d.kind == "f":
        return b.convert("sitofp" if s.kind == "i" else "uitofp", v, ty)
    if s.kind == "b" or d.bits > s.bits:
        return b.convert("sext" if s.kind == "i" else "zext", v, ty)
    return v if d.bits == s.bits else b.convert("trunc", v, ty)


def widen_bf16(b: Text, v: Value) -> Value:
    return b.bitcast(b.binary("shl", b.convert("zext", v, "i32"), const(16, "i32")), "float")


def narrow_bf16(b: Text, v: Value, target: Target) -> Value:
    """The instruction of AVX-512 flushes denormals, which eager keeps: where there are any, by integer arithmetic."""
    if not target.bf16 or v.lanes != 16:
        return round_bf16(b, v)
    fast = b.bitcast(b.convert("fptrunc", v, "bfloat"), "i16")
    denormal = b.call("llvm.x86.avx512.fpclass.ps.512", "i1", 16, [v, "i32 32"], "")
    return b.when(b.reduce_bits("or", denormal), lambda: [round_bf16(b, v)], [fast])[0]


def round_bf16(b: Text, v: Value) -> Value:
    bits = b.bitcast(v, "i32")
    high = b.binary("lshr", bits, const(16, "i32"))
    odd = b.binary("and", high, const(1, "i32"))
    rounded = b.binary("lshr", b.add(b.add(bits, const(0x7FFF, "i32")), odd), const(16, "i32"))
    rounded = b.select(b.compare("uno", v, v), b.binary("or", high, const(0x40, "i32")), rounded)
    return b.convert("trunc", rounded, "i16")


def widen_f16(b: Text, v: Value, target: Target) -> Value:
    if target.halves:
        return b.convert("fpext", b.bitcast(v, "half"), "float")
    wide = b.convert("zext", v, "i32")
    sign = b.binary("shl", b.binary("and", wide, const(0x8000, "i32")), const(16, "i32"))
    rest = b.binary("shl", b.binary("and", wide, const(0x7FFF, "i32")), const(13, "i32"))
    # A product with 2**112 moves the exponent and normalizes denormals; infinity and NaN need the largest exponent.
    scaled = b.bitcast(b.mul(b.bitcast(rest, "float"), const(2.0**112, "float")), "i32")
    special = b.compare("uge", rest, const(0x7C00 << 13, "i32"))
    whole = b.select(special, b.binary("or", rest, const(0x7F800000, "i32")), scaled)
    return b.bitcast(b.binary("or", whole, sign), "float")


def narrow_f16(b: Text, v: Value, target: Target) -> Value:
    if target.halves:
        return b.bitcast(b.convert("fptrunc", v, "half"), "i16")
    bits = b.bitcast(v, "i32")
    sign = b.binary("and", bits, const(-0x80000000, "i32"))
    rest = b.binary("xor", bits, sign)
    # Denormal results: adding 0.5 lets the float unit round at bit 2**-24.
    small = b.sub(b.bitcast(b.add(b.bitcast(rest, "float"), const(0.5, "float")), "i32"), const(0x3F000000, "i32"))
    odd = b.binary("and", b.binary("lshr", rest, const(13, "i32")), const(1, "i32"))
    usual = b.binary("lshr", b.add(b.add(rest, const(0xFFF - (112 << 23), "i32")), odd), const(13, "i32"))
    out = b.select(b.compare("ult", rest, const(113 << 23, "i32")), small, usual)
    out = b.select(b.compare("ult", rest, const(0x477FF000, "i32")), out, const(0x7C00, "i32"))
    out = b.select(b.compare("ugt", rest, const(0x7F800000, "i32")), const(0x7E00, "i32"), out)
    return b.convert("trunc", b.binary("or", out, b.binary("lshr", sign, const(16, "i32"))), "i16")
