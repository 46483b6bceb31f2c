"""Loads and stores: addresses by strides, contiguous vectors, gathers and scatters, predicates and masks, bounds checks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from pliant.codegen.cpu.dtypes import BYTES, MEMORY, cast, from_memory, to_memory
from pliant.codegen.cpu.math import Math
from pliant.codegen.cpu.scalars import scalar
from pliant.codegen.cpu.text import Text, Value, const, vector_type
from pliant.lower.loops import Node

LEAST, MOST = const(-(1 << 63), "i64"), const((1 << 63) - 1, "i64")


@dataclass(slots=True, eq=False)
class Access:
    """One load or store of the kernel. `base`: address of the buffer's element 0; strides in elements, one for each dim of the nest."""

    number: int
    dtype: str
    base: Value
    strides: list[Value]
    offset: Value
    index: tuple[Node, ...] = ()
    index_strides: tuple[Value, ...] = ()
    predicate: Node | None = None
    first: Value = LEAST  # bounds, of the checked build
    last: Value = MOST
    scratch: bool = False
    roomy: bool = False  # vectors may reach beyond what belongs to them: there is room, and nobody reads it


@dataclass(slots=True, eq=False)
class Frame:
    """Where code is being printed: counters of the loops around it, pointers of accesses as far as they are known, values of nodes.

    `lanes` is the width of what varies with the vector dim, once `vector` is set; `mask` its active lanes. `full` (one bit) says that all
    of them are, as they mostly are where it is given: whole vectors are then moved without the mask (`Values.either_way`), for masked
    loads defeat the prefetcher. `pair`: the lanes of this frame and the one behind it that are active, where the two move memory as a
    pair (`pairs.py`).
    """

    counters: dict[int, Value] = field(default_factory=dict)
    pointers: dict[Access, Value] = field(default_factory=dict)
    values: dict[int, Value] = field(default_factory=dict)
    vector: int | None = None
    lanes: int = 1
    mask: Value | None = None
    full: Value | None = None
    pair: Value | None = None

    def child(self) -> Frame:
        inside = (dict(self.counters), dict(self.pointers), dict(self.values))
        return Frame(*inside, self.vector, self.lanes, self.mask, self.full, self.pair)

    def whole(self) -> Frame:
        """The same place where all lanes are active."""
        return Frame(self.counters, self.pointers, self.values, self.vector, self.lanes)

    def partial(self) -> Frame:
        """The same place where some lanes may not be."""
        return Frame(self.counters, self.pointers, self.values, self.vector, self.lanes, self.mask, None, self.pair)


def step(b: Text, pointer: Value, count: Value, access: Access) -> Value:
    """`pointer` moved by `count` elements (one, or a vector of them)."""
    if count.ref == "0":
        return pointer
    ty = MEMORY[access.dtype]
    return b.op(f"getelementptr {ty}, {pointer.type} {pointer.ref}, {count.type} {count.ref}", "ptr", max(count.lanes, pointer.lanes))


class Memory:
    """Prints the accesses of one kernel. `fail(cond, number)` leaves the kernel; None prints no checks."""

    def __init__(self, m: Math, fail: Callable[[Value, int], None] | None) -> None:
        self.b, self.m, self.fail = m.b, m, fail
        self.masks = m.target.masks

    def address(self, a: Access, frame: Frame) -> tuple[Value, bool]:
        """(pointer, contiguous): of lane 0 if the lanes are contiguous, else of all lanes (one, if they don't differ)."""
        b = self.b
        pointer = frame.pointers[a]
        lanes: Value | None = None
        for node, stride in zip(a.index, a.index_strides):
            moved = b.times(frame.values[id(node)], stride)
            if moved.lanes == 1:
                pointer = step(b, pointer, moved, a)
            else:
                lanes = moved if lanes is None else b.add(lanes, moved)
        if frame.vector is None or frame.lanes == 1:
            return pointer, False
        stride = a.strides[frame.vector]
        if stride.ref == "1" and lanes is None:
            return pointer, True
        if stride.ref != "0":
            along = b.times(b.iota(frame.lanes, "i64"), stride)
            lanes = along if lanes is None else b.add(lanes, along)
        return (pointer if lanes is None else step(b, pointer, lanes, a)), False

    def check(self, a: Access, pointer: Value, contiguous: bool, frame: Frame, mask: Value | None) -> None:
        if self.fail is None or a.scratch:
            return
        b = self.b
        address = b.convert("ptrtoint", pointer, "i64")
        place = b.binary("sdiv", b.sub(address, b.convert("ptrtoint", a.base, "i64")), const(BYTES[a.dtype], "i64"))
        if contiguous:
            place = b.add(place, b.iota(frame.lanes, "i64"))
        bad = b.binary("or", b.compare("slt", place, a.first), b.compare("sgt", place, a.last))
        if mask is not None:
            bad = b.binary("and", bad, mask)
        self.fail(b.reduce_bits("or", bad), a.number)

    def active(self, a: Access, frame: Frame, wide: bool) -> Value | None:
        """The lanes that may touch memory; None for all of them."""
        mask = frame.mask if wide and not a.roomy else None
        if a.predicate is not None:
            p = frame.values[id(a.predicate)]
            mask = p if mask is None else self.b.binary("and", mask, p)
        return mask

    def load(self, a: Access, frame: Frame) -> Value:
        """The value as it is kept in a register; 0 in lanes that may not read."""
        return from_memory(self.b, self.read(a, frame), a.dtype)

    def read(self, a: Access, frame: Frame) -> Value:
        """The value as it lies in memory."""
        b, ty = self.b, MEMORY[a.dtype]
        pointer, contiguous = self.address(a, frame)
        mask = self.active(a, frame, contiguous or pointer.lanes > 1)
        self.check(a, pointer, contiguous, frame, mask)
        align = BYTES[a.dtype]
        if contiguous:
            lanes = frame.lanes
            if mask is None:
                v = b.op(f"load {vector_type(ty, lanes)}, ptr {pointer.ref}, align {align}", ty, lanes)
            else:
                v = self.masked_load(pointer, b.splat(mask, lanes), ty, align)
        elif pointer.lanes > 1 and not a.index and self.masks and a.strides[frame.vector].ref == "2":  # type: ignore[index]
            v = self.every_other(a, frame, mask)
        elif pointer.lanes > 1 and not a.index and mask is None:
            v = self.strided(a, frame)
        elif pointer.lanes > 1:
            v = self.gather(pointer, mask, ty, align)
        elif mask is None:
            v = b.op(f"load {ty}, ptr {pointer.ref}, align {align}", ty)
        elif mask.lanes == 1:
            v = b.when(mask, lambda: [b.op(f"load {ty}, ptr {pointer.ref}, align {align}", ty)], [zero(ty)])[0]
        else:  # one address, a predicate in each lane
            v = b.when(
                b.reduce_bits("or", mask), lambda: [b.op(f"load {ty}, ptr {pointer.ref}, align {align}", ty)], [zero(ty)]
            )[0]  # fmt: skip
            v = b.select(mask, v, zero(ty))
        return v

    def masked_load(self, pointer: Value, mask: Value, ty: str, align: int) -> Value:
        """Neighbours from `pointer` on; 0 in lanes that may not read."""
        n = mask.lanes
        args: list[str | Value] = [f"ptr align {align} {pointer.ref}", mask, f"{vector_type(ty, n)} zeroinitializer"]
        return self.b.call(f"llvm.masked.load.v{n}{ty_suffix(ty)}.p0", ty, n, args)

    def masked_store(self, v: Value, pointer: Value, mask: Value, align: int) -> None:
        args: list[str | Value] = [v, f"ptr align {align} {pointer.ref}", mask]
        self.b.line(self.b.call_text(f"llvm.masked.store.v{mask.lanes}{ty_suffix(v.ty)}.p0", "void", args))

    def every_other(self, a: Access, frame: Frame, mask: Value | None) -> Value:
        """Lanes two elements apart: neighbours, of which every second one is not read, pressed together."""
        b, n, ty = self.b, frame.lanes, MEMORY[a.dtype]
        if mask is None:
            wide = Value("<" + ", ".join(["i1 true, i1 false"] * n) + ">", "i1", 2 * n)
        else:
            none = Value("zeroinitializer", "i1", n)
            wide = b.shuffle(b.splat(mask, n), none, [k // 2 if k % 2 == 0 else n for k in range(2 * n)])
        return b.shuffle(self.masked_load(frame.pointers[a], wide, ty, BYTES[a.dtype]), None, range(0, 2 * n, 2))

    def strided(self, a: Access, frame: Frame) -> Value:
        """Lanes a stride apart, one by one: quicker than the instruction that gathers."""
        b, ty = self.b, MEMORY[a.dtype]
        v = Value("poison", ty, frame.lanes)
        for lane, at in enumerate(self.places(a, frame)):
            v = b.insert(v, b.op(f"load {ty}, ptr {at.ref}, align {BYTES[a.dtype]}", ty), lane)
        return v

    def strided_store(self, a: Access, frame: Frame, v: Value) -> None:
        b, ty = self.b, MEMORY[a.dtype]
        for lane, at in enumerate(self.places(a, frame)):
            b.line(f"store {ty} {b.extract(v, lane).ref}, ptr {at.ref}, align {BYTES[a.dtype]}")

    def places(self, a: Access, frame: Frame) -> Iterator[Value]:
        """The address of each lane; four are near one that is computed."""
        assert frame.vector is not None
        b, stride = self.b, a.strides[frame.vector]
        near = [b.times(const(k, "i64"), stride) for k in range(4)]
        four, at = b.times(const(4, "i64"), stride), frame.pointers[a]
        for lane in range(frame.lanes):
            if lane and lane % 4 == 0:
                at = step(b, at, four, a)
            yield step(b, at, near[lane % 4], a)

    def gather(self, pointers: Value, mask: Value | None, ty: str, align: int) -> Value:
        b, lanes = self.b, pointers.lanes
        if mask is None and (ty not in ("i32", "i64", "float", "double") or not self.masks):
            v = Value("poison", ty, lanes)
            for lane in range(lanes):
                v = b.insert(v, b.op(f"load {ty}, ptr {b.extract(pointers, lane).ref}, align {align}", ty), lane)
            return v
        whole = vector_type(ty, lanes)
        on = b.splat(mask if mask is not None else const(True, "i1"), lanes)
        args: list[str | Value] = [f"{pointers.type} align {align} {pointers.ref}", on, f"{whole} zeroinitializer"]
        return b.call(f"llvm.masked.gather.v{lanes}{ty_suffix(ty)}.v{lanes}p0", ty, lanes, args)

    def ready(self, a: Access, frame: Frame, v: Value) -> Value:
        """A value as it is to lie in memory."""
        spread = frame.vector is not None and frame.lanes > 1
        return to_memory(self.b, self.b.splat(v, frame.lanes) if spread else v, a.dtype)

    def put(self, a: Access, frame: Frame, v: Value) -> None:
        """Write a value."""
        self.store(a, frame, self.ready(a, frame, v), "set")

    def store(self, a: Access, frame: Frame, v: Value, mode: str) -> None:
        """Write `v`: what `ready` gives if the mode is "set", else the value."""
        b, ty = self.b, MEMORY[a.dtype]
        pointer, contiguous = self.address(a, frame)
        spread = frame.vector is not None and frame.lanes > 1
        mask = self.active(a, frame, spread)
        self.check(a, pointer, contiguous, frame, mask)
        align = BYTES[a.dtype]
        if contiguous:
            lanes = frame.lanes
            if mode != "set":
                v = self.ready(a, frame, self.meet(mode, v, self.load(a, frame), a.dtype))
            if mask is None:
                b.line(f"store {v.type} {v.ref}, ptr {pointer.ref}, align {align}")
            else:
                self.masked_store(v, pointer, b.splat(mask, lanes), align)
        elif spread:  # in order of the lanes
            assert mode == "set" and not a.index, "the schedule keeps points that may meet at one address apart"
            lanes = frame.lanes
            if mask is None and not a.index and pointer.lanes > 1:
                self.strided_store(a, frame, v)
                return
            on = b.splat(mask if mask is not None else const(True, "i1"), lanes)
            where = pointer if pointer.lanes > 1 else self.everywhere(pointer, lanes)
            args: list[str | Value] = [v, f"{where.type} align {align} {where.ref}", on]
            b.line(b.call_text(f"llvm.masked.scatter.v{lanes}{ty_suffix(ty)}.v{lanes}p0", "void", args))
        else:

            def write() -> list[Value]:
                new = v
                if mode != "set":
                    old = from_memory(b, b.op(f"load {ty}, ptr {pointer.ref}, align {align}", ty), a.dtype)
                    new = to_memory(b, self.meet(mode, v, old, a.dtype), a.dtype)
                b.line(f"store {ty} {new.ref}, ptr {pointer.ref}, align {align}")
                return []

            if mask is None:
                write()
            else:
                b.when(mask, write)

    def everywhere(self, pointer: Value, lanes: int) -> Value:
        """One address in every lane."""
        return self.b.splat(pointer, lanes)

    def meet(self, mode: str, v: Value, old: Value, dtype: str) -> Value:
        b = self.b
        if mode != "add":
            return scalar(self.m, mode, dtype, [(old, dtype), (v, dtype)])
        if dtype == "bool":
            return b.binary("or", v, old)
        if dtype in ("bf16", "f16"):
            wide = b.add(*(cast(b, x, dtype, "f32", self.m.target) for x in (old, v)))
            return cast(b, wide, "f32", dtype, self.m.target)
        return b.add(old, v)


def zero(ty: str) -> Value:
    return const(0, ty)


def ty_suffix(ty: str) -> str:
    return {"float": "f32", "double": "f64"}.get(ty, ty)
