"""bf16 two vectors at a time: as many 16-bit elements as fill twice the lanes are moved at once, and the even ones are one frame's, the odd
ones its neighbour's.

Bits of bf16 are the upper half of the f32 of the same value, so a shift and a mask take two vectors apart, and a shift and an or put them
together: half of what widening and narrowing each would cost. Lanes then stand for other elements than those at their place, which
matters to nothing that is computed lane by lane, and to no sum. It is done where every access that moves along the vector dim is contiguous
bf16, and nobody asks for the place of a lane (`schedule.moves_in_pairs`).
"""

from __future__ import annotations

from pliant.codegen.cpu.access import Access, Frame, Memory
from pliant.codegen.cpu.text import Text, Value, const, vector_type


def load(memory: Memory, a: Access, frame: Frame) -> Value:
    """The values of `frame` and of the one behind it, together."""
    b = memory.b
    pointer, contiguous = memory.address(a, frame)
    assert contiguous
    lanes = frame.lanes
    if frame.pair is None:
        return b.op(f"load {vector_type('i32', lanes)}, ptr {pointer.ref}, align 2", "i32", lanes)
    zero = f"<{2 * lanes} x i16> zeroinitializer"
    halves = b.call(f"llvm.masked.load.v{2 * lanes}i16.p0", "i16", 2 * lanes, [f"ptr align 2 {pointer.ref}", frame.pair, zero])
    return b.op(f"bitcast {halves.type} {halves.ref} to {vector_type('i32', lanes)}", "i32", lanes)


def apart(b: Text, both: Value) -> tuple[Value, Value]:
    """The values of a frame and of the one behind it."""
    even = b.binary("shl", both, const(16, "i32"))
    odd = b.binary("and", both, const(-0x10000, "i32"))
    return b.bitcast(even, "float"), b.bitcast(odd, "float")


def together(b: Text, lanes: int, even: Value, odd: Value) -> Value:
    """The converse of `apart`; values of bf16 have no bits in the lower half."""
    low = b.binary("lshr", bits(b, even, lanes), const(16, "i32"))
    return b.binary("or", low, bits(b, odd, lanes))


def store(memory: Memory, a: Access, frame: Frame, both: Value) -> None:
    """The converse of `load`."""
    b = memory.b
    pointer, contiguous = memory.address(a, frame)
    assert contiguous
    if frame.pair is None:
        b.line(f"store {both.type} {both.ref}, ptr {pointer.ref}, align 2")
        return
    halves = b.op(f"bitcast {both.type} {both.ref} to <{2 * frame.lanes} x i16>", "i16", 2 * frame.lanes)
    args = [halves, f"ptr align 2 {pointer.ref}", frame.pair]
    b.line(b.call_text(f"llvm.masked.store.v{2 * frame.lanes}i16.p0", "void", args))


def bits(b: Text, v: Value, lanes: int) -> Value:
    return b.bitcast(b.splat(v, lanes), "i32")
