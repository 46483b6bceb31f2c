"""Elements two to four apart: whole vectors are moved, and taken apart or put together in registers.

Where as many accesses of one buffer as their stride has elements lie side by side (the two halves of pairs, the three of colours), together
they touch every element, and vectors of neighbours are moved. A load that is alone with its stride of 2 reads two vectors that overlap, so
that nothing beyond its last element is touched.
"""

from __future__ import annotations

from collections.abc import Hashable

from pliant.codegen.cpu.access import Access, Frame, Memory, step
from pliant.codegen.cpu.dtypes import BYTES, MEMORY, from_memory, to_memory
from pliant.codegen.cpu.schedule import WOVEN, padded
from pliant.codegen.cpu.text import Text, Value, const, vector_type
from pliant.lower.loops import Node, Store


def groups(accesses: list[tuple[int, tuple, object]], v: int) -> list[list[int]]:
    """Positions of accesses, given as (buffer, strides, offset), that lie side by side, in the order of their offsets."""
    alike: dict[Hashable, dict[int, int]] = {}
    for k, (buffer, strides, offset) in enumerate(accesses):
        if type(offset) is int and type(strides[v]) is int and 1 < strides[v] <= WOVEN:
            alike.setdefault((buffer, strides), {}).setdefault(offset, k)
    out = []
    for (_, strides), at in alike.items():
        count = strides[v]
        for first in sorted(at):
            whole = [at.get(first + j) for j in range(count)]
            if first in at and None not in whole:
                out.append([k for k in whole if k is not None])
                for j in range(count):
                    del at[first + j]
    return out


def woven_loads(nodes: list[Node], v: int, rank: int) -> list[list[Node]]:
    """Groups of loads."""
    plain = [n for n in nodes if n.op == "load" and not n.args and len(n.strides) == rank]
    return [[plain[k] for k in group] for group in groups([(n.buffer, n.strides, n.offset) for n in plain], v)]


def woven_stores(stores: list[Store], v: int, rank: int) -> list[list[Store]]:
    """Groups of stores, the others each by itself, in an order that keeps what comes after what."""
    plain = [s for s in stores if s.mode == "set" and not s.index and s.predicate is None]
    if len(plain) != len(stores) or len({(s.buffer, s.offset) for s in stores}) != len(stores):
        return [[s] for s in stores]
    found = [[plain[k] for k in group] for group in groups([(s.buffer, padded(s.strides, rank), s.offset) for s in plain], v)]
    inside = {id(s) for group in found for s in group}
    return found + [[s] for s in stores if id(s) not in inside]


def pick(b: Text, vectors: list[Value], lanes: list[tuple[int, int]]) -> Value:
    """The vector of the given (vector, lane)s."""
    out, n = vectors[0], len(lanes)
    for k in range(1, len(vectors)):
        out = b.shuffle(out, vectors[k], [n + at if of == k else at if k == 1 else i for i, (of, at) in enumerate(lanes)])
    return out


def masks(b: Text, mask: Value, count: int) -> list[Value]:
    """Of `count` vectors of neighbours, the lanes that belong to active points."""
    n = mask.lanes
    return [b.shuffle(mask, None, [(j * n + i) // count for i in range(n)]) for j in range(count)]


def load(memory: Memory, accesses: list[Access], frame: Frame) -> list[Value]:
    """Vectors of neighbours: as many as there are loads in the group."""
    b, n, count = memory.b, frame.lanes, len(accesses)
    a = accesses[0]
    ty, align = MEMORY[a.dtype], BYTES[a.dtype]
    places = [step(b, frame.pointers[a], const(j * n, "i64"), a) for j in range(count)]

    if frame.mask is None:
        return [b.op(f"load {vector_type(ty, n)}, ptr {at.ref}, align {align}", ty, n) for at in places]
    return [memory.masked_load(at, on, ty, align) for at, on in zip(places, masks(b, frame.mask, count), strict=True)]


def apart(b: Text, vectors: list[Value], dtype: str) -> list[Value]:
    """The values of a group of loads."""
    n, count = vectors[0].lanes, len(vectors)
    out = [pick(b, vectors, [divmod(i * count + k, n) for i in range(n)]) for k in range(count)]
    return [from_memory(b, v, dtype) for v in out]


def load_alone(memory: Memory, a: Access, frame: Frame) -> list[Value]:
    """Two vectors with all elements of one load of every other one."""
    b, n, ty = memory.b, frame.lanes, MEMORY[a.dtype]
    whole, vectors = vector_type(ty, n), []
    for first in (0, n - 1):
        at = step(b, frame.pointers[a], const(first, "i64"), a)
        vectors.append(b.op(f"load {whole}, ptr {at.ref}, align {BYTES[a.dtype]}", ty, n))
    return vectors


def every_other(b: Text, vectors: list[Value], dtype: str) -> Value:
    """The value of a load that is alone."""
    n = vectors[0].lanes
    lanes = [(0, 2 * i) if 2 * i < n else (1, 2 * i - n + 1) for i in range(n)]
    return from_memory(b, pick(b, vectors, lanes), dtype)


def together(b: Text, n: int, values: list[Value], dtype: str) -> list[Value]:
    """Vectors of neighbours, made of the values of a group of stores."""
    values, count = [to_memory(b, b.splat(v, n), dtype) for v in values], len(values)
    return [pick(b, values, [((j * n + i) % count, (j * n + i) // count) for i in range(n)]) for j in range(count)]


def store(memory: Memory, accesses: list[Access], frame: Frame, woven: list[Value]) -> None:
    """The stores of a group."""
    b, n, count = memory.b, frame.lanes, len(accesses)
    a = accesses[0]
    places = [step(b, frame.pointers[a], const(j * n, "i64"), a) for j in range(count)]
    if frame.mask is None:
        for v, at in zip(woven, places, strict=True):
            b.line(f"store {v.type} {v.ref}, ptr {at.ref}, align {BYTES[a.dtype]}")
    else:
        for v, at, on in zip(woven, places, masks(b, frame.mask, count), strict=True):
            memory.masked_store(v, at, on, BYTES[a.dtype])
