"""How the dtypes of the loop IR look in LLVM: in memory, in registers, and every conversion.

In registers f32 and f64 are themselves, integers are themselves (signedness is the operator's business), bool is i1, f16 is its 16 bits,
for nothing computes in it, and bf16 is the f32 of the same value: what eager rounds between two operators is then rounded in place, and
never narrowed and widened again. Rounding is to nearest even, denormals are kept, NaN stays NaN.
"""

from __future__ import annotations

import struct

from pliant.codegen.cpu.machine import Machine
from pliant.codegen.cpu.text import Text, Value, const
from pliant.graph.originals import math
from pliant.lower.loops import DTYPES, Node

# dtype -> type of a value; bool is i8 in memory, bf16 its 16 bits.
REGISTER = {
    "f32": "float", "f64": "double", "bf16": "float", "f16": "i16", "i8": "i8", "i16": "i16", "i32": "i32", "i64": "i64", "u8": "i8",
    "bool": "i1",
}  # fmt: skip
MEMORY = {**REGISTER, "bool": "i8", "bf16": "i16"}
BYTES = {name: d.bits // 8 for name, d in DTYPES.items()}


def constant(value: float | int | bool, dtype: str) -> Value:
    """A constant of a dtype, rounded as a conversion would."""
    if dtype == "bf16":
        return const(as_bf16(float(value)), "float")
    if dtype == "f16":
        return const(half_bits(float(value), dtype), "i16")
    return const(value, REGISTER[dtype])


def as_bf16(value: float) -> float:
    """The nearest number that bf16 has."""
    return struct.unpack("f", struct.pack("I", half_bits(value, "bf16") << 16))[0]


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
    if dtype == "bf16":
        return b.bitcast(b.binary("shl", b.convert("zext", v, "i32"), const(16, "i32")), "float")
    return b.compare("ne", v, const(0, "i8")) if dtype == "bool" else v


def to_memory(b: Text, v: Value, dtype: str) -> Value:
    if dtype == "bf16":
        return b.convert("trunc", b.binary("lshr", b.bitcast(v, "i32"), const(16, "i32")), "i16")
    return b.convert("zext", v, "i8") if dtype == "bool" else v


def reinterpret(b: Text, v: Value, source: str, to: str) -> Value:
    """The same bits in memory as a number of another dtype."""
    return from_memory(b, b.bitcast(to_memory(b, v, source), MEMORY[to]), to)


# What has no more bits than its operands have.
EXACT = frozenset(("neg", "abs", "maximum", "minimum", "fmax", "fmin"))


def fit_bf16(nodes: list[Node]) -> set[int]:
    """ids of the nodes, given operands first, whose f32 values bf16 surely has, so that there is nothing to round."""
    out: set[int] = set()
    for n in nodes:
        if n.op == "cast":
            fits = n.args[0].dtype in ("bf16", "bool", "u8", "i8")
        elif n.op == "const":
            fits = isinstance(n.attrs[0], (int, float)) and as_bf16(float(n.attrs[0])) == n.attrs[0]
        elif n.op == "mul" and n.dtype == "f32" and any(doubles(a) for a in n.args):
            fits = all(id(a) in out for a in n.args)
        else:
            fits = n.op == "where" or n.op in EXACT
            fits = fits and all(id(a) in out for a in (n.args[1:] if n.op == "where" else n.args))
        if fits:
            out.add(id(n))
    return out


def doubles(n: Node) -> bool:
    """Is it a power of two that takes no bits off any number? (Halving does, from the smallest.)"""
    return n.op == "const" and isinstance(n.attrs[0], (int, float)) and abs(n.attrs[0]) in (1.0, 2.0, 4.0, 8.0, 16.0)


FOREIGN = frozenset(("fmod", "remainder", "floordiv", "bitcast"))
"""Operators whose NaNs come from elsewhere: the C library, or any bits."""


def plain_nans(nodes: list[Node]) -> set[int]:
    """ids of the nodes, given operands first, whose NaNs are surely the processor's own or bf16's: the lower 16 bits of the f32 are 0."""
    out: set[int] = set()
    for n in nodes:
        if n.op == "load":
            plain = n.dtype not in ("f32", "f64")
        else:
            plain = n.op not in FOREIGN and all(id(a) in out for a in n.args)
        if plain:
            out.add(id(n))
    return out


def cast(b: Text, v: Value, source: str, to: str, target: Machine) -> Value:
    """Convert a value; see `Node` for the rules."""
    if source == to:
        return v
    s, d = DTYPES[source], DTYPES[to]
    if source == "bf16":
        return cast(b, v, "f32", to, target)
    if source == "f16":
        return cast(b, widen_f16(b, v, target), "f32", to, target)
    if to == "bf16":
        return round_bf16(b, cast(b, v, source, "f32", target), target)
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


def round_bf16(b: Text, v: Value, target: Machine, plain: bool = False) -> Value:
    """In integers: the instruction of AVX-512 flushes denormals, which eager keeps. `plain`: NaNs have no bits that are lost."""
    bits = b.bitcast(v, "i32")
    if target.vnni and v.lanes == 16:
        # bits + 0x7FFF + (bit 16) in two instructions: a logical one, then one that adds both halves of a word to a third operand.
        # Asked for by name, which spares LLVM to find them.
        logical = [b.splat(const(0x7FFF, "i32"), 16), bits, b.splat(const(0x10000, "i32"), 16), "i32 248"]  # first | second & third
        halves = b.call("llvm.x86.avx512.pternlog.d.512", "i32", 16, logical)
        words = b.op(f"bitcast {halves.type} {halves.ref} to <32 x i16>", "i16", 32)
        up = b.call("llvm.x86.avx512.vpdpwssd.512", "i32", 16, [bits, words, b.splat(const(1, "i16"), 32)])
    else:
        odd = b.binary("and", b.binary("lshr", bits, const(16, "i32")), const(1, "i32"))
        up = b.add(b.add(bits, const(0x7FFF, "i32")), odd)
    rounded = b.bitcast(b.binary("and", up, const(-0x10000, "i32")), "float")
    return rounded if plain else b.select(b.compare("uno", v, v), const(math.nan, "float"), rounded)


def widen_f16(b: Text, v: Value, target: Machine) -> Value:
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


def narrow_f16(b: Text, v: Value, target: Machine) -> Value:
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
