"""bf16 two vectors at a time: as many 16-bit elements as fill twice the lanes are moved at once, and the even ones are one frame's, the odd
ones its neighbour's.

Bits of bf16 are the upper half of the f32 of the same value, so a shift and a mask take two vectors apart, and a shift and an or put them
together: half of what widening and narrowing each would cost. Lanes then stand for other elements than those at their place, which
matters to nothing that is computed lane by lane, and to no sum. It is done where every access that moves along the vector dim is contiguous
bf16, and nobody asks for the place of a lane.
"""

from __future__ import annotations

from pliant.codegen.cpu.access import Access, Frame, Memory
from pliant.codegen.cpu.text import Text, Value, const, vector_type
from pliant.lower.loops import Store
from pliant.lower.schedule import Schedule, is_inner, padded


def pairs(s: Schedule) -> bool:
    """May the unrolled copies of this kernel's body work in pairs?"""
    v, kernel = s.vector, s.kernel
    if v is None or s.unroll % 2 or s.lanes == 1 or s.tile is not None or s.serial:
        return False
    for n in s.nodes:
        varies = s.depends[id(n)] >> v & 1
        if n.op == "index" and varies or n.op == "reduce" and n.attrs[0].startswith("arg"):
            return False
        if n.op == "load" and varies and (n.dtype != "bf16" or n.args or not steps_by_one(n.strides, v)):
            return False
    return all(s.reduces_vector and not is_inner(kernel, st) or fits(st, v, len(kernel.dims)) for st in kernel.stores)


def steps_by_one(strides: tuple, v: int) -> bool:
    return v < len(strides) and type(strides[v]) is int and strides[v] == 1


def fits(st: Store, v: int, rank: int) -> bool:
    plain = st.mode == "set" and not st.index and st.predicate is None
    return plain and st.node.dtype == "bf16" and steps_by_one(padded(st.strides, rank), v)


def load(memory: Memory, a: Access, frame: Frame) -> tuple[Value, Value]:
    """The values of `frame` and of the one behind it."""
    b = memory.b
    pointer, contiguous = memory.address(a, frame)
    assert contiguous and frame.mask is None
    both = b.op(f"load {vector_type('i32', frame.lanes)}, ptr {pointer.ref}, align 2", "i32", frame.lanes)
    even = b.binary("shl", both, const(16, "i32"))
    odd = b.binary("and", both, const(-0x10000, "i32"))
    return b.bitcast(even, "float"), b.bitcast(odd, "float")


def store(memory: Memory, a: Access, frame: Frame, even: Value, odd: Value) -> None:
    """The converse of `load`; values of bf16 have no bits in the lower half."""
    b = memory.b
    pointer, contiguous = memory.address(a, frame)
    assert contiguous and frame.mask is None
    low = b.binary("lshr", whole(b, even, frame.lanes), const(16, "i32"))
    both = b.binary("or", low, whole(b, odd, frame.lanes))
    b.line(f"store {both.type} {both.ref}, ptr {pointer.ref}, align 2")


def whole(b: Text, v: Value, lanes: int) -> Value:
    return b.bitcast(b.splat(v, lanes), "i32")
