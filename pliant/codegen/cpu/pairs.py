"""bf16 two vectors at a time: as many 16-bit elements as fill twice the lanes are moved at once, and the even ones are one frame's, the odd
ones its neighbour's.

Bits of bf16 are the upper half of the f32 of the same value, so a shift and a mask take two vectors apart, and a shift and an or put them
together: half of what widening and narrowing each would cost. Lanes then stand for other elements than those at their place, which
matters to nothing that is computed lane by lane, and to no sum. It is done where every access that moves along the vector dim is contiguous
bf16, and nobody asks for the place of a lane (`schedule.moves_in_pairs`).
"""

from __future__ import annotations

import functools

from pliant.codegen.cpu.access import Access, Frame, Memory
from pliant.codegen.cpu.text import Text, Value, const, vector_type


def load(memory: Memory, a: Access, frame: Frame) -> tuple[Value, Value]:
    """The values of `frame` and of the one behind it."""
    b = memory.b
    pointer, contiguous = memory.address(a, frame)
    assert contiguous
    lanes = frame.lanes

    def whole() -> list[Value]:
        return [b.op(f"load {vector_type('i32', lanes)}, ptr {pointer.ref}, align 2", "i32", lanes)]

    def some(mask: Value) -> list[Value]:
        zero = f"<{2 * lanes} x i16> zeroinitializer"
        halves = b.call(f"llvm.masked.load.v{2 * lanes}i16.p0", "i16", 2 * lanes, [f"ptr align 2 {pointer.ref}", mask, zero])
        return [b.op(f"bitcast {halves.type} {halves.ref} to {vector_type('i32', lanes)}", "i32", lanes)]

    if frame.pair is None or frame.full is None:
        both = whole()[0] if frame.pair is None else some(frame.pair)[0]
    else:
        both = b.either(frame.full, whole, functools.partial(some, frame.pair))[0]
    even = b.binary("shl", both, const(16, "i32"))
    odd = b.binary("and", both, const(-0x10000, "i32"))
    return b.bitcast(even, "float"), b.bitcast(odd, "float")


def store(memory: Memory, a: Access, frame: Frame, even: Value, odd: Value) -> None:
    """The converse of `load`; values of bf16 have no bits in the lower half."""
    b = memory.b
    pointer, contiguous = memory.address(a, frame)
    assert contiguous
    low = b.binary("lshr", bits(b, even, frame.lanes), const(16, "i32"))
    both = b.binary("or", low, bits(b, odd, frame.lanes))

    def whole() -> list[Value]:
        b.line(f"store {both.type} {both.ref}, ptr {pointer.ref}, align 2")
        return []

    def some(mask: Value) -> list[Value]:
        halves = b.op(f"bitcast {both.type} {both.ref} to <{2 * frame.lanes} x i16>", "i16", 2 * frame.lanes)
        args = [halves, f"ptr align 2 {pointer.ref}", mask]
        b.line(b.call_text(f"llvm.masked.store.v{2 * frame.lanes}i16.p0", "void", args))
        return []

    if frame.pair is None:
        whole()
    elif frame.full is None:
        some(frame.pair)
    else:
        b.either(frame.full, whole, functools.partial(some, frame.pair))


def bits(b: Text, v: Value, lanes: int) -> Value:
    return b.bitcast(b.splat(v, lanes), "i32")
