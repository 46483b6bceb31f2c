"""Loads that are contiguous along another dim than the vector's: read as tiles, transposed in registers, kept on the stack for the rows.

In a tiled kernel the last two loops change places: for each strip of the vector dim, a block of the tiled dim runs inside. A tile of
`lanes` vectors is read along the tiled dim, where it is contiguous, and turned; the rows of the block then find their vectors there.
"""

from __future__ import annotations

from collections.abc import Callable

from pliant.codegen.cpu.access import Access, Memory, step
from pliant.codegen.cpu.dtypes import BYTES, MEMORY
from pliant.codegen.cpu.text import BITS, Text, Value, const, vector_type

LINE_BYTES = 64
ZERO = const(0, "i64")
Load = Callable[[list[Value], int, Value], list[Value]]
"""Vectors of the tile from their addresses, the number of the first of them, and the point of the tiled dim where they start."""


def rows(lanes: int, dtypes: list[str]) -> int:
    """Points of the tiled dim in a block: whole cache lines of the narrowest access."""
    narrow = min(BYTES[d] for d in dtypes)
    return lanes * max(1, LINE_BYTES // (lanes * narrow))


def block_of(lanes: int, ty: str) -> int:
    """Elements of a vector of which processors turn squares without moving anything far: 128 bits."""
    return min(lanes, 128 // BITS[ty])


def turn_squares(b: Text, v: list[Value]) -> list[Value]:
    """Transpose the squares that len(v) vectors of blocks of as many elements consist of, by interleaving neighbours.

    Such steps are instructions; others LLVM would take long to find instructions for.
    """
    n, block, unit = v[0].lanes, len(v), 1
    while unit < block:
        out = list(v)
        for r in range(block):
            if not r & unit:
                out[r], out[r + unit] = (b.shuffle(v[r], v[r + unit], interleaved(n, block, unit, half)) for half in (0, 1))
        v, unit = out, unit * 2
    return [v[reverse(r, block)] for r in range(block)]


def interleaved(n: int, block: int, unit: int, half: int) -> list[int]:
    """Lanes of two vectors: in turn `unit` neighbours of each, from the lower or upper half of each block."""
    out = []
    for at in range(0, n, block):
        for first in range(at + half * block // 2, at + (half + 1) * block // 2, unit):
            out += [*range(first, first + unit), *range(n + first, n + first + unit)]
    return out


def reverse(number: int, below: int) -> int:
    """The number with its bits in reverse order, of as many as numbers below `below` have."""
    out = 0
    while below > 1:
        out, number, below = out * 2 + number % 2, number // 2, below // 2
    return out


def turn_blocks(b: Text, v: list[Value], block: int) -> list[Value]:
    """Transpose vectors of as many blocks, a power of two, by taking every other block of two vectors again and again."""
    n, unit = v[0].lanes, 1
    blocks = range(0, 2 * n, block)
    odd_or_even = [[i for first in blocks[half::2] for i in range(first, first + block)] for half in (0, 1)]
    while unit < len(v):
        v = [b.shuffle(v[k], v[k + 1], lanes) for lanes in odd_or_even for k in range(0, len(v), 2)]
        unit *= 2
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

    def row(self, k: Value) -> Value:
        """Where vector `k` of the tile is."""
        return self.b.op(f"getelementptr {vector_type(self.ty, self.lanes)}, ptr {self.memory.ref}, i64 {k.ref}", "ptr")

    def fill(self, pointer: Value, high: Value, wide: Value) -> None:
        """From `pointer`, the first element: `high` points of the tiled dim, `wide` of the vector dim."""
        b = self.b
        full = b.binary("and", b.compare("sge", high, const(self.count, "i64")), b.compare("sge", wide, const(self.lanes, "i64")))
        if self.moves.masks:
            some = self.edge(pointer, high, wide)
            self.turned(pointer, lambda ats, *at: b.either(full, lambda: self.plain(ats), lambda: some(ats, *at)))
            return
        fast, slow, out = b.fresh("tile.f"), b.fresh("tile.s"), b.fresh("tile.x")
        b.branch(full, fast, slow)
        b.label(fast)
        self.turned(pointer, lambda ats, *at: self.plain(ats))
        b.jump(out)
        b.label(slow)
        self.one_by_one(pointer, high, wide)
        b.jump(out)
        b.label(out)

    def plain(self, ats: list[Value]) -> list[Value]:
        whole, align = vector_type(self.ty, self.lanes), BYTES[self.access.dtype]
        return [self.b.op(f"load {whole}, ptr {at.ref}, align {align}", self.ty, self.lanes) for at in ats]

    def edge(self, pointer: Value, high: Value, wide: Value) -> Load:
        """Loads vectors of which some lanes or all lie beyond the end: 0 there."""
        b, lanes = self.b, self.lanes
        end = b.splat(b.convert("trunc", b.intrinsic("smin", high, const(self.count, "i64")), "i32"), lanes)

        def load(ats: list[Value], row: int, first: Value) -> list[Value]:
            inside = b.compare("ult", b.add(b.iota(lanes, "i32"), b.splat(b.convert("trunc", first, "i32"), lanes)), end)
            out = []
            for k, at in enumerate(ats):
                there = b.compare("slt", const(row + k, "i64"), wide)
                # Vectors that are all beyond the edge read from the first one: processors take long over addresses where no memory is.
                on = b.select(b.splat(there, lanes), inside, const(False, "i1"))
                out.append(self.moves.masked_load(b.select(there, at, pointer), on, self.ty, BYTES[self.access.dtype]))
            return out

        return load

    def turned(self, pointer: Value, load: Load) -> None:
        """The tile transposed: squares inside of blocks, then the blocks."""
        b, block = self.b, block_of(self.lanes, self.ty)

        def part(first: Value, carried: list[Value]) -> list[Value]:
            start = step(b, pointer, first, self.access)
            squares = []
            for row in range(0, self.lanes, block):  # each behind a branch of its own: LLVM takes long over many shuffles in one piece
                ats = [step(b, start, b.times(const(row + k, "i64"), self.stride), self.access) for k in range(block)]
                squares.append(turn_squares(b, load(ats, row, first)))
            for k in range(block):
                for g, v in enumerate(turn_blocks(b, [square[k] for square in squares], block)):
                    self.keep(v, self.row(b.plus(first, const(g * block + k, "i64"))))
            return []

        if self.count > self.lanes:
            b.loop(ZERO, const(self.count, "i64"), self.lanes, [], part, "tile")
        else:
            part(ZERO, [])

    def keep(self, v: Value, at: Value) -> None:
        self.b.line(f"store {v.type} {v.ref}, ptr {at.ref}, align {self.lanes * BYTES[self.access.dtype]}")

    def kept(self, at: Value) -> Value:
        whole, align = vector_type(self.ty, self.lanes), self.lanes * BYTES[self.access.dtype]
        return self.b.op(f"load {whole}, ptr {at.ref}, align {align}", self.ty, self.lanes)

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
        return self.kept(self.row(k))
