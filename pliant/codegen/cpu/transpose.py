"""Loads that are contiguous along another dim than the vector's: read as tiles, transposed in registers, kept on the stack for the rows.

In a tiled kernel the last two loops change places: for each strip of the vector dim, a block of the tiled dim runs inside. A tile of
`lanes` vectors is read along the tiled dim, where it is contiguous, and turned; the rows of the block then find their vectors there.
"""

from __future__ import annotations

from collections.abc import Callable

from pliant.codegen.cpu.access import Access, Memory, step
from pliant.codegen.cpu.dtypes import BYTES, MEMORY
from pliant.codegen.cpu.text import Text, Value, const, vector_type

LINE_BYTES = 64


def rows(lanes: int, dtypes: list[str]) -> int:
    """Points of the tiled dim in a block: whole cache lines of the narrowest access."""
    narrow = min(BYTES[d] for d in dtypes)
    return lanes * max(1, LINE_BYTES // (lanes * narrow))


def turn(b: Text, v: list[Value]) -> list[Value]:
    """Transpose len(v) vectors of as many lanes, in log steps: exchange what lies `distance` off the diagonal."""
    n, distance = len(v), 1
    while distance < n:
        out = list(v)
        for r in range(n):
            if r & distance:
                continue
            low = [c if not c & distance else n + c - distance for c in range(n)]
            high = [c + distance if not c & distance else n + c for c in range(n)]
            out[r], out[r + distance] = b.shuffle(v[r], v[r + distance], low), b.shuffle(v[r], v[r + distance], high)
        v, distance = out, distance * 2
    return v


class Tile:
    """The tile of one access: `rows` vectors of `lanes` on the stack."""

    def __init__(self, memory: Memory, access: Access, vector: int, lanes: int, count: int) -> None:
        self.moves, self.b = memory, memory.b
        b = self.b
        self.access, self.lanes, self.count = access, lanes, count
        self.stride = access.strides[vector]
        self.ty = MEMORY[access.dtype]
        self.memory = b.op(f"alloca [{count} x {vector_type(self.ty, lanes)}], align 64", "ptr")

    def row(self, k: Value | int) -> Value:
        at = k if isinstance(k, Value) else const(k, "i64")
        whole = vector_type(self.ty, self.lanes)
        return self.b.op(f"getelementptr {whole}, ptr {self.memory.ref}, i64 {at.ref}", "ptr")

    def fill(self, pointer: Value, high: Value, wide: Value) -> None:
        """From `pointer`, the first element: `high` points of the tiled dim, `wide` of the vector dim."""
        b = self.b
        full = b.binary("and", b.compare("sge", high, const(self.count, "i64")), b.compare("sge", wide, const(self.lanes, "i64")))
        if self.moves.masks:
            some = self.edge(pointer, high, wide)
            self.turned(pointer, lambda ats, first: b.either(full, lambda: self.plain(ats), lambda: some(ats, first)))
            return
        fast, slow, out = b.fresh("tile.f"), b.fresh("tile.s"), b.fresh("tile.x")
        b.branch(full, fast, slow)
        b.label(fast)
        self.turned(pointer, lambda ats, first: self.plain(ats))
        b.jump(out)
        b.label(slow)
        self.one_by_one(pointer, high, wide)
        b.jump(out)
        b.label(out)

    def plain(self, ats: list[Value]) -> list[Value]:
        whole, align = vector_type(self.ty, self.lanes), BYTES[self.access.dtype]
        return [self.b.op(f"load {whole}, ptr {at.ref}, align {align}", self.ty, self.lanes) for at in ats]

    def edge(self, pointer: Value, high: Value, wide: Value) -> Callable[[list[Value], int], list[Value]]:
        """Loads vectors of which some lanes or all lie beyond the end: 0 there."""
        b, lanes = self.b, self.lanes

        def bound(n: Value, most: int) -> Value:
            return b.splat(b.convert("trunc", b.intrinsic("smin", n, const(most, "i64")), "i32"), lanes)

        def load(ats: list[Value], first: int) -> list[Value]:
            rows = bound(wide, lanes)
            inside = b.compare("ult", b.add(b.iota(lanes, "i32"), const(first, "i32")), bound(high, self.count))
            out = []
            for k, at in enumerate(ats):
                # Vectors that are all beyond the edge read from the first one: processors take long over addresses where no memory is.
                at = b.select(b.compare("slt", const(k, "i64"), wide), at, pointer) if k else at
                on = b.binary("and", inside, b.compare("ult", b.splat(const(k, "i32"), lanes), rows))
                out.append(self.moves.masked_load(at, on, self.ty, BYTES[self.access.dtype]))
            return out

        return load

    def turned(self, pointer: Value, load: Callable[[list[Value], int], list[Value]]) -> None:
        """`load(addresses, point of the tiled dim)` for each group of vectors, transposed."""
        b, lanes = self.b, self.lanes
        starts = [step(b, pointer, b.times(const(k, "i64"), self.stride), self.access) for k in range(lanes)]
        for first in range(0, self.count, lanes):
            vectors = load([step(b, start, const(first, "i64"), self.access) for start in starts], first)
            for k, v in enumerate(turn(b, vectors)):
                b.line(f"store {v.type} {v.ref}, ptr {self.row(first + k).ref}, align {lanes * BYTES[self.access.dtype]}")

    def one_by_one(self, pointer: Value, high: Value, wide: Value) -> None:
        b, align = self.b, BYTES[self.access.dtype]

        def element(u: Value, v: Value) -> None:
            source = step(b, step(b, pointer, b.times(v, self.stride), self.access), u, self.access)
            value = b.op(f"load {self.ty}, ptr {source.ref}, align {align}", self.ty)
            place = step(b, self.row(u), v, self.access)
            b.line(f"store {self.ty} {value.ref}, ptr {place.ref}, align {align}")

        def row(u: Value, carried: list[Value]) -> list[Value]:
            def lane(v: Value, inside: list[Value]) -> list[Value]:
                element(u, v)
                return []

            b.loop(const(0, "i64"), b.intrinsic("smin", wide, const(self.lanes, "i64")), 1, [], lane, "tile.v")
            return []

        b.loop(const(0, "i64"), b.intrinsic("smin", high, const(self.count, "i64")), 1, [], row, "tile.u")

    def vector_at(self, k: Value) -> Value:
        """The vector of row `k` of the block."""
        whole = vector_type(self.ty, self.lanes)
        align = self.lanes * BYTES[self.access.dtype]
        return self.b.op(f"load {whole}, ptr {self.row(k).ref}, align {align}", self.ty, self.lanes)
