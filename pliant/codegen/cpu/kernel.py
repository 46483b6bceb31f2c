"""Kernel + schedule -> the text of one LLVM function that runs a range of the kernel's domain.

The domain is the outer dims flattened, times the blocks that the vector dim is cut into (slowest). The nest is described in
`schedule.py`; its levels are numbered (`OUTER` ... `SWEEP + k`). A node is printed at the outermost level at which everything that it
depends on is known.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from pliant.codegen.cpu.access import Access, Frame, step
from pliant.codegen.cpu.dtypes import BYTES, from_memory
from pliant.codegen.cpu.index_set_splitting import Cut
from pliant.codegen.cpu.machine import Machine
from pliant.codegen.cpu.schedule import TILE_BLOCK, Schedule, Sweep, padded, reachable
from pliant.codegen.cpu.software_pipelining import Pipeline
from pliant.codegen.cpu.sweep import BLOCK, MID, OUTER, STRIP, ZERO, Sweeper
from pliant.codegen.cpu.text import Value, const
from pliant.codegen.cpu.transpose import Tile, rows
from pliant.codegen.cpu.values import Values
from pliant.lower.loops import Node, Size, Store
from pliant.native import OUT_OF_MEMORY

FEW = 4  # copies in the loop between a wider one and single vectors
STACK_BYTES = 1 << 17  # scratch rows up to this size live on the stack


class Body(Values):
    """Prints `i32 @name.body(ptr ctx, i64 lo, i64 hi, i64 block)`."""

    def __init__(self, s: Schedule, target: Machine, checked: bool) -> None:
        super().__init__(s, target, checked)
        self.blocked = s.blocked and not checked
        self.tiles: dict[int, Tile] = {}
        self.saved: dict[int, Access] = {}
        self.heap: Value | None = None
        self.epilogue = s.epilogue  # or the stores of the piece that is being printed
        self.sweeper: Sweeper | None = None  # the sweep that is being printed
        self.chain: list[Value] = []  # what its scans have so far
        self.middles: dict[tuple[Value, Value], Value] = {}  # of spans that all points of a run share: where their whole steps end
        self.range: tuple[Value, Value] | None = None  # of the outermost reduction loop, where it is not all of it
        self.first_ends: tuple[Value, Value] | None = None  # where the first block of a row ends, and its last whole step

    # -- arguments and memory --

    def argument(self, slot: int) -> Value:
        at = self.b.op(f"getelementptr i64, ptr %ctx, i64 {slot}", "ptr")
        return self.b.op(f"load i64, ptr {at.ref}", "i64")

    def read_sizes(self) -> None:
        count = len(self.kernel.buffers)
        for k, key in enumerate(self.kernel.sizes):
            self.sizes[key] = self.argument(count + k)

    def read_arguments(self) -> None:
        b, kernel = self.b, self.kernel
        self.read_sizes()
        bases, bounds = [], []
        after = len(kernel.buffers) + len(kernel.sizes)
        for k in range(len(kernel.buffers)):
            at = b.op(f"getelementptr ptr, ptr %ctx, i64 {k}", "ptr")
            bases.append(b.op(f"load ptr, ptr {at.ref}", "ptr"))
            if self.checked:
                bounds.append((self.argument(after + 2 * k), self.argument(after + 2 * k + 1)))
        number = 0

        def access(buffer: int, strides: tuple[Size, ...], offset: Size, index: tuple[Node, ...], steps: tuple[Size, ...],
                   predicate: Node | None) -> Access:  # fmt: skip
            nonlocal number
            number += 1
            found = Access(
                number, kernel.buffers[buffer].dtype, bases[buffer], [self.size(x) for x in padded(strides, len(kernel.dims))],
                self.size(offset), index, tuple(self.size(x) for x in steps), predicate,
            )  # fmt: skip
            if self.checked:
                found.first, found.last = bounds[buffer]
            return found

        for n in self.s.nodes:
            if n.op == "load":
                index, predicate = (n.args[:-1], n.args[-1]) if n.predicated else (n.args, None)
                self.loads[id(n)] = access(n.buffer, n.strides, n.offset, index, n.attrs[3], predicate)
        for st in kernel.stores:
            self.store_accesses[id(st)] = access(st.buffer, st.strides, st.offset, st.index, st.index_strides, st.predicate)

    def make_scratch(self) -> None:
        """Rows for what later sweeps load: on the stack, or on the heap where they are long."""
        b, s = self.b, self.s
        saves = [n for sweep in s.sweeps for n in sweep.saves]
        if not saves:
            return
        whole = const(s.lanes * s.unroll, "i64")
        width = 1 if s.reduces_vector or s.vector is None else s.lanes * s.unroll
        strides = [ZERO] * len(self.kernel.dims)
        points = const(width, "i64")
        for d in reversed(s.inner):
            strides[d] = points
            points = b.times(points, self.size(self.kernel.dims[d]))
        if s.vector is not None and not s.reduces_vector:
            strides[s.vector] = const(1, "i64")
        ends, total = [], ZERO
        for n in saves:
            ends.append(total)
            bytes_ = b.times(b.plus(points, whole), const(BYTES[n.dtype], "i64"))
            total = b.plus(total, b.binary("and", b.plus(bytes_, const(63, "i64")), const(-64, "i64")))
        long = b.compare("sgt", total, const(STACK_BYTES, "i64"))
        self.heap = b.when(long, lambda: [b.call("malloc", "ptr", 1, [total])], [Value("null", "ptr")])[0]
        missing = b.binary("and", long, b.compare("eq", self.heap, Value("null", "ptr")))
        self.fail(missing, OUT_OF_MEMORY)
        small = b.select(long, const(64, "i64"), total)
        stack = b.op(f"alloca i8, i64 {small.ref}, align 64", "ptr")
        base = b.select(long, self.heap, stack)
        for n, at in zip(saves, ends):
            start = b.op(f"getelementptr i8, ptr {base.ref}, i64 {at.ref}", "ptr")
            self.saved[id(n)] = Access(0, n.dtype, start, strides, ZERO, scratch=True, roomy=True)

    def make_tiles(self) -> None:
        s = self.s
        self.tile_rows = 1
        if self.tile is not None:
            assert s.vector is not None
            self.tile_rows = rows(s.lanes, [n.dtype for n in s.tiled])
            for n in s.tiled:
                self.tiles[id(n)] = Tile(self.memory, self.loads[id(n)], s.vector, s.lanes, self.tile_rows)

    # -- the nest --

    def text(self) -> str:
        b = self.b
        b.line("%rc = alloca i32")
        b.line("store i32 0, ptr %rc")
        self.read_arguments()
        self.make_scratch()
        self.make_tiles()
        self.domain()
        b.enter("leave")
        if self.heap is not None:
            b.line(b.call_text("free", "void", [self.heap]))
        rc = b.op("load i32, ptr %rc", "i32")
        b.line(f"ret i32 {rc.ref}")
        return "\n".join(b.lines)

    def domain(self) -> None:
        """Runs along the innermost outer dim, from %lo to %hi."""
        b, s = self.b, self.s
        low, high = Value("%lo", "i64"), Value("%hi", "i64")
        if s.columns:  # given blocks of the vector dim, each with all outer points
            low, high = (b.times(v, self.product(s.outer)) for v in (low, high))
        start = self.starting_place(low)
        head, inside, out = b.fresh("run.h"), b.fresh("run.b"), b.fresh("run.x")
        before = b.block
        b.enter(head)
        place = [Value("%" + b.fresh("at"), "i64") for _ in start]
        reserved = len(b.lines)
        b.lines.append("")
        at, first, block, *counters = place
        b.branch(b.compare("slt", at, high), inside, out)
        b.label(inside)
        frame = Frame(dict(zip(s.outer[:-1], counters, strict=True)))
        length = const(1, "i64")
        if self.mid is not None:
            left, remaining = b.sub(self.size(self.kernel.dims[self.mid]), first), b.sub(high, at)
            length = b.select(b.compare("slt", left, remaining), left, remaining)
        self.outermost(frame)
        span = self.span(block)

        def one(i: Value, carried: list[Value]) -> list[Value]:
            point = frame.child()
            if self.tile is not None:
                self.point(point, span, (i, b.add(first, length)))
                return []
            if self.mid is not None:
                self.move(point, self.mid, i)
            self.evaluate(self.at_home(self.s.nodes, MID), [point])
            self.point(point, span)
            return []

        if self.mid is None:
            one(ZERO, [])
        else:
            b.loop(first, b.add(first, length), self.tile_rows, [], one, "mid")
        following = [b.add(at, length), ZERO]
        carry = const(1, "i64")
        for d, counter in zip(reversed(s.outer[:-1]), reversed(counters), strict=True):
            counter = b.add(counter, carry)
            over = b.compare("eq", counter, self.size(self.kernel.dims[d]))
            following.insert(2, b.select(over, ZERO, counter))
            carry = b.convert("zext", over, "i64")
        following.insert(2, b.add(block, carry))
        end = b.block
        b.jump(head)
        rows = zip(place, start, following, strict=True)
        b.lines[reserved] = "\n".join(f"  {v.ref} = phi i64 [ {x.ref}, %{before} ], [ {y.ref}, %{end} ]" for v, x, y in rows)
        b.label(out)

    def starting_place(self, low: Value) -> list[Value]:
        """[%lo, point of the innermost outer dim, block of the vector dim, points of the other outer dims]: where the first run starts.

        Only there is anything divided, and not where that is 0, as it is wherever no work is shared.
        """
        b, s = self.b, self.s
        dims = s.outer[-1:] + s.outer[-2::-1]  # innermost first
        if not dims:
            return [low, ZERO, low]

        def divided() -> list[Value]:
            rest, found = low, []
            for d in dims:
                size = self.size(self.kernel.dims[d])
                found.append(b.binary("urem", rest, size))
                rest = b.binary("udiv", rest, size)
            return [found[0], rest, *reversed(found[1:])]

        return [low, *b.when(b.compare("ne", low, ZERO), divided, [ZERO] * (len(dims) + 1))]

    def outermost(self, frame: Frame) -> None:
        b = self.b
        for a in (*self.loads.values(), *self.store_accesses.values()):
            offset = a.offset
            for d in self.s.outer[:-1]:
                offset = b.plus(offset, b.times(frame.counters[d], a.strides[d]))
            frame.pointers[a] = step(b, a.base, offset, a)
        for a in self.saved.values():
            frame.pointers[a] = a.base
        self.evaluate(self.at_home(self.s.nodes, OUTER), [frame])

    def move(self, frame: Frame, d: int, counter: Value, accesses: list[Access] | None = None) -> None:
        """Enter an iteration of the loop over `d`."""
        frame.counters[d] = counter
        for a in frame.pointers if accesses is None else accesses:
            if a.strides[d].ref != "0" and a in frame.pointers:
                frame.pointers[a] = step(self.b, frame.pointers[a], self.b.times(counter, a.strides[d]), a)

    def span(self, block: Value) -> tuple[Value, Value]:
        """Of which points of the vector dim a block consists: [start, stop)."""
        s, b = self.s, self.b
        self.middles.clear()
        if s.vector is None or s.reduces_vector:
            if s.reduces_vector:
                step_ = s.lanes * s.unroll
                stop = b.intrinsic("smin", self.size(self.kernel.dims[s.inner[-1]]), const(BLOCK * step_, "i64"))
                self.first_ends = stop, self.whole(ZERO, stop, step_)
            return ZERO, ZERO
        size = const(TILE_BLOCK, "i64") if self.blocked else Value("%block", "i64")
        start = b.binary("mul", block, size)
        stop = b.intrinsic("smin", b.add(start, size), self.size(self.kernel.dims[s.vector]))
        if s.lanes * s.unroll > 1 and not s.always_masked:
            self.middles[start, stop] = self.whole(start, stop, s.lanes * s.unroll)
        return start, stop

    def whole(self, start: Value, stop: Value, step_: int) -> Value:
        """The end of the last whole step from `start` on."""
        b = self.b
        return b.plus(start, b.binary("and", b.sub(stop, start) if start.ref != "0" else stop, const(-step_, "i64")))

    def point(self, frame: Frame, span: tuple[Value, Value], tile: tuple[Value, Value] | None = None) -> None:
        """One point of the outer dims: all strips of its block of the vector dim, or the sweeps of its row.

        `tile`: where a block of the tiled dim starts, and where that dim's run ends.
        """
        s = self.s
        if s.vector is None or s.reduces_vector:
            self.strip([frame])
            return
        start, stop = span
        if tile is None:
            self.pieces(s.cut if s.cut is not None else s.epilogue, start, stop, frame)
        else:
            self.vectors(start, stop, [], functools.partial(self.tiled_strips, *tile, stop), frame)

    def pieces(self, cut: Cut | list[Store], start: Value, stop: Value, frame: Frame) -> None:
        """[start, stop) of the vector dim at one point of the others, cut where the stores change."""
        b = self.b
        if not isinstance(cut, Cut):
            self.epilogue = cut
            if len(self.s.stages) > 1 and not self.checked:
                Pipeline(self, self.s.stages).run(start, stop, frame)
                return
            self.vectors(start, stop, [], self.strips, frame)
            return
        middle = frame.values[id(cut.bound)]
        if cut.more:
            middle = b.intrinsic("sadd.sat", middle, const(cut.more, "i64"))
        if cut.dim != self.s.vector:
            below, above, out = b.fresh("below"), b.fresh("above"), b.fresh("cut.x")
            b.branch(b.compare("slt", frame.counters.get(cut.dim, ZERO), middle), below, above)
            for label, side in ((below, cut.low), (above, cut.high)):
                b.label(label)
                self.pieces(side, start, stop, frame)
                b.jump(out)
            b.label(out)
            return
        middle = b.intrinsic("smin", b.intrinsic("smax", middle, start), stop)
        self.pieces(cut.low, start, middle, frame)
        self.pieces(cut.high, middle, stop, frame)

    def vectors(
        self,
        start: Value,
        stop: Value,
        sets: list[list[Value]],
        body: Callable[[list[Frame], list[list[Value]]], list[list[Value]]],
        frame: Frame,
        meet: Callable[[list[list[Value]]], list[Value]] | None = None,
    ) -> list[list[Value]]:
        """Run `body` over [start, stop) of the vector dim, start <= stop: whole unrolled vectors, then what is left.

        `body` gets one frame and one set of carried values for each unrolled copy. `sets` are the carried values that come in: [of vectors,
        of single lanes] (the second only where tails run lane by lane), or nothing. `meet` joins the sets of the copies.
        """
        b, s = self.b, self.s
        assert s.vector is not None
        d, lanes, unroll = s.vector, s.lanes, s.unroll
        wide = [list(sets[0])] if sets else [[]]
        thin = list(sets[1]) if len(sets) > 1 else []

        touched = list(frame.pointers)
        if s.reduces_vector:
            assert self.sweeper is not None
            touched = self.sweeper.accesses

        def frames(i: Value, count: int, width: int, left: Value | None, full: Value | None) -> list[Frame]:
            out: list[Frame] = []
            for u in range(count):
                f = frame.child()
                f.vector, f.lanes, f.full = d, width, full
                if left is not None:
                    self.mask(f, left, u, count)
                if u == 0:
                    self.move(f, d, i, touched)
                else:  # a constant away from the first copy: part of the instruction that loads
                    f.counters[d] = b.add(i, const(u * width, "i64"))
                    for a in touched:
                        f.pointers[a] = step(b, out[0].pointers[a], b.times(const(u * width, "i64"), a.strides[d]), a)
                for a in self.saved.values():
                    if not s.reduces_vector:
                        f.pointers[a] = step(b, a.base, const(u * width, "i64"), a)
                out.append(f)
            return out

        def flat(values: list[list[Value]]) -> list[Value]:
            return [v for one in values for v in one]

        def unflat(values: list[Value], count: int) -> list[list[Value]]:
            size = len(values) // count
            return [values[k * size : (k + 1) * size] for k in range(count)]

        def run(
            i: Value, carried: list[Value], count: int, width: int, left: Value | None = None, full: Value | None = None
        ) -> list[Value]:  # fmt: skip
            return flat(body(frames(i, count, width, left, full), unflat(carried, count)))

        def masked(i: Value, carried: list[Value], count: int = 1) -> list[Value]:
            left, full = b.sub(stop, i), None
            if s.always_masked:
                left = b.intrinsic("smin", left, const(lanes * count, "i64"))
                full = b.compare("eq", left, const(lanes * count, "i64"))
            return run(i, carried, count, lanes, b.convert("trunc", left, "i32"), full)

        if s.always_masked:
            copies = flat([wide[0], *(self.fresh_set() if sets else [] for _ in range(unroll - 1))])
            copies = self.loop(start, stop, lanes * unroll, copies, lambda i, c: masked(i, c, unroll), "vec")
            return [meet(unflat(copies, unroll)) if meet is not None else copies]

        if lanes * unroll == 1:
            return [self.loop(start, stop, 1, wide[0], lambda i, c: run(i, c, 1, 1), "vec")]
        middle = self.middles.get((start, stop)) or self.whole(start, stop, lanes * unroll)
        if meet is not None and unroll > 1:
            one = self.met(start, middle, wide[0], lambda i, c: run(i, c, unroll, lanes), lambda out: meet(unflat(out, unroll)))
        else:
            one = self.loop(start, middle, lanes * unroll, flat(wide * unroll), lambda i, c: run(i, c, unroll, lanes), "vec")
        if unroll > FEW and not sets:
            few = self.whole(middle, stop, lanes * FEW)
            b.loop(middle, few, lanes * FEW, [], lambda i, c: run(i, c, FEW, lanes), "few")
            middle = few
        if self.target.masks:
            return [self.loop(middle, stop, lanes, one, masked, "tail", unroll == 1)]
        if unroll > 1:
            last = self.whole(middle, stop, lanes)
            one = self.loop(middle, last, lanes, one, lambda i, c: run(i, c, 1, lanes), "more")
            middle = last
        single = self.loop(middle, stop, 1, thin, lambda i, c: run(i, c, 1, 1), "lane")
        return [one, single] if sets else [one]

    def loop(
        self, start: Value, stop: Value, step: int, carried: list[Value], body: Callable[[Value, list[Value]], list[Value]], hint: str,
        once: bool = False,
    ) -> list[Value]:  # fmt: skip
        """`Text.loop`, of whose iterations each goes on with the scans where the one before it was. `once`: there is one at most."""
        count = len(carried)

        def iteration(i: Value, values: list[Value]) -> list[Value]:
            self.chain = values[count:]
            return [*body(i, values[:count]), *self.chain]

        every = [*carried, *self.chain]
        out = self.b.once(start, stop, every, iteration) if once else self.b.loop(start, stop, step, every, iteration, hint)
        self.chain = out[count:]
        return out[:count]

    def met(
        self, start: Value, stop: Value, one: list[Value], body: Callable[[Value, list[Value]], list[Value]],
        meet: Callable[[list[Value]], list[Value]],
    ) -> list[Value]:  # fmt: skip
        """A loop of whole unrolled vectors whose copies have accumulators of their own, which then meet; nothing of it in short rows."""
        s, chain = self.s, self.chain

        def whole() -> list[Value]:
            wide = [*one, *(v for _ in range(s.unroll - 1) for v in self.fresh_set())]
            return [*meet(self.loop(start, stop, s.lanes * s.unroll, wide, body, "vec")), *self.chain]

        out = self.b.when(self.b.compare("slt", start, stop), whole, [*one, *chain])
        self.chain = out[len(one) :]
        return out[: len(one)]

    def mask(self, f: Frame, left: Value, u: int, count: int) -> None:
        """Which lanes are active of copy `u` of `count`, of whose points there are `left` (i32)."""
        b, lanes = self.b, f.lanes
        every, first = b.iota(lanes, "i32"), u * lanes
        if self.pairs and count > 1:  # even places, then odd ones
            every, first = b.mul(every, const(2, "i32")), (u & ~1) * lanes + (u & 1)
            places = b.add(b.iota(2 * lanes, "i32"), const((u & ~1) * lanes, "i32"))
            f.pair = b.compare("ult", places, b.splat(left, 2 * lanes))
        f.mask = b.compare("ult", b.add(every, const(first, "i32")) if first else every, b.splat(left, lanes))

    def strips(self, frames: list[Frame], carried: list[list[Value]]) -> list[list[Value]]:
        self.strip(frames)
        return carried

    def tiled_strips(
        self, low: Value, high: Value, stop: Value, frames: list[Frame], carried: list[list[Value]]
    ) -> list[list[Value]]:  # fmt: skip
        """A strip of the vector dim (which ends at `stop`) at a block of the tiled dim that starts at `low`."""
        b, s, frame = self.b, self.s, frames[0]
        assert self.tile is not None and s.vector is not None
        dim = self.tile
        here = b.intrinsic("smin", b.sub(high, low), const(self.tile_rows, "i64"))
        if frame.lanes > 1:
            wide = b.sub(stop, frame.counters[s.vector])
            for n in s.tiled:
                access = self.loads[id(n)]
                pointer = step(b, frame.pointers[access], low, access)
                for node, stride in zip(access.index, access.index_strides):
                    pointer = step(b, pointer, b.times(frame.values[id(node)], stride), access)
                self.tiles[id(n)].fill(pointer, here, wide)
        self.evaluate(self.at_home(s.nodes, MID), frames)

        def rows(at: list[Frame]) -> list[Value]:
            def row(k: Value, inside: list[Value]) -> list[Value]:
                point = at[0].child()
                self.move(point, dim, b.add(low, k))
                if frame.lanes > 1:
                    for n in s.tiled:
                        point.values[id(n)] = from_memory(b, self.tiles[id(n)].vector_at(k), n.dtype)
                self.strip([point])
                return []

            return b.loop(ZERO, here, 1, [], row, "row")

        if not s.heavy:
            self.either_way(frames, rows)
        else:
            rows(frames)
        return carried

    def strip(self, frames: list[Frame]) -> None:
        """Everything at one strip of outer points: sweeps, then the epilogue."""
        s = self.s
        for sweep in s.sweeps:
            self.sweep(sweep, frames)
        self.end(frames)

    def sweep(self, sweep: Sweep, frames: list[Frame]) -> None:
        needed = reachable(sweep.roots(), sweep.loads)
        self.evaluate(self.at_home(needed, STRIP), frames)
        Sweeper(self, sweep, needed).run(frames)

    def keep(self, sweeper: Sweeper, sets: list[list[Value]], frames: list[Frame]) -> None:
        """What becomes of the accumulators at the end of a sweep: the values of the reductions."""
        for accs, frame in zip(sets, frames):
            for n, v in zip(sweeper.sweep.reduces, sweeper.accs.results(accs)):
                frame.values[id(n)] = v

    def go_on(self, n: Node, frames: list[Frame]) -> None:
        assert self.sweeper is not None
        self.chain = self.sweeper.scans.go_on(n, frames, self.chain)

    def end(self, frames: list[Frame]) -> None:
        """The epilogue."""
        roots = [n for st in self.epilogue for n in (st.node, *st.index, *((st.predicate,) if st.predicate is not None else ()))]
        self.evaluate([n for n in reachable(roots) if self.homes[id(n)] == STRIP], frames)
        self.store_all(self.epilogue, frames)

    def fresh_set(self) -> list[Value]:
        assert self.sweeper is not None
        return self.sweeper.accs.start(self.s.lanes)
