"""Reductions that threads share: few outer points, much to reduce.

The outermost reduction loop is cut into chunks, whose number follows from the sizes alone, so that the result does not depend on how many
threads there are. `@name.body` leaves the accumulators of each chunk in memory; `@name.finish` joins them in order and goes on as if
the sweep had just ended. Both get, in place of `ctx`, a box: ctx, address of the partial results, chunks, points of a chunk.

Partial results lie as [chunk][accumulator][outer point], eight bytes reserved for each, so that lanes of outer points are contiguous.
"""

from __future__ import annotations

from pliant.codegen.cpu import parallel
from pliant.codegen.cpu.access import Access, Frame
from pliant.codegen.cpu.kernel import Body
from pliant.codegen.cpu.machine import Machine
from pliant.codegen.cpu.parallel import LAUNCH, ONE, Driver
from pliant.codegen.cpu.reduce import Accumulators
from pliant.codegen.cpu.schedule import Schedule
from pliant.codegen.cpu.sweep import ZERO, Sweeper
from pliant.codegen.cpu.text import Value, const
from pliant.native import OUT_OF_MEMORY

CHUNK_POINTS = 1 << 14
MOST_CHUNKS = 64
MOST_SHARED = 1024  # outer points beyond which chunks would only cost memory
STACK_BYTES = 1 << 16


class PartialBody(Body):
    """Prints the body: a domain of outer points times chunks."""

    def __init__(self, s: Schedule, target: Machine, checked: bool) -> None:
        super().__init__(s, target, checked)
        self.accumulators = Accumulators(self.m, s.sweeps[0].reduces)
        self.dtypes: list[str] = []
        for n, dtype in zip(self.accumulators.reduces, self.accumulators.dtypes):
            self.dtypes += [dtype, "i64"] if n.attrs[0].startswith("arg") else [dtype]

    def read_arguments(self) -> None:
        b = self.b
        fields = [b.op(f"getelementptr i64, ptr %box, i64 {k}", "ptr") for k in range(4)]
        b.line(f"%ctx = load ptr, ptr {fields[0].ref}")
        self.partials = b.op(f"load ptr, ptr {fields[1].ref}", "ptr")
        self.chunks = b.op(f"load i64, ptr {fields[2].ref}", "i64")
        self.chunk_points = b.op(f"load i64, ptr {fields[3].ref}", "i64")
        super().read_arguments()
        every = [d for d in range(len(self.kernel.dims) - self.kernel.reduced)]
        self.points = self.product(every)

    def span(self, block: Value) -> tuple[Value, Value]:
        """The chunks of a block."""
        b, width = self.b, Value("%block", "i64")
        start = b.binary("mul", block, width)
        return start, b.intrinsic("smin", b.add(start, width), self.chunks)

    def point(self, frame: Frame, span: tuple[Value, Value], tile: tuple[Value, Value] | None = None) -> None:
        b = self.b
        size = self.size(self.kernel.dims[self.s.inner[0]])

        def chunk(c: Value, carried: list[Value]) -> list[Value]:
            low = b.binary("mul", c, self.chunk_points)
            self.chunk, self.range = c, (low, b.intrinsic("smin", b.add(low, self.chunk_points), size))
            self.strips_of(frame.child())
            return []

        b.loop(*span, 1, [], chunk, "chunk")

    def strips_of(self, frame: Frame) -> None:
        """All points of the vector dim, or the one row."""
        s = self.s
        if s.vector is None or s.reduces_vector:
            self.strip([frame])
        else:
            self.vectors(ZERO, self.size(self.kernel.dims[s.vector]), [], self.strips, frame)

    def strip(self, frames: list[Frame]) -> None:
        self.sweep(self.s.sweeps[0], frames)

    def keep(self, sweeper: Sweeper, sets: list[list[Value]], frames: list[Frame]) -> None:
        for accs, frame in zip(sets, frames):
            for j, v in enumerate(accs):
                self.memory.put(self.slot(frame, self.chunk, j), frame, v)

    def slot(self, frame: Frame, chunk: Value, j: int) -> Access:
        """Where accumulator `j` of a chunk lies for the outer points of `frame`."""
        b, s, dtype = self.b, self.s, self.dtypes[j]
        row = b.times(b.plus(b.times(chunk, const(len(self.dtypes), "i64")), const(j, "i64")), self.points)
        base = b.op(f"getelementptr i64, ptr {self.partials.ref}, i64 {row.ref}", "ptr")
        at, order = ZERO, list(s.outer)
        strides = [ZERO] * len(self.kernel.dims)
        if s.vector is not None and not s.reduces_vector:
            order.append(s.vector)
            strides[s.vector] = ONE
        for d in order:
            at = b.plus(b.times(at, self.size(self.kernel.dims[d])), frame.counters[d])
        access = Access(0, dtype, base, strides, ZERO, scratch=True)
        ty = {"bool": "i8", "f32": "float", "f64": "double", "u8": "i8"}.get(dtype, dtype)
        frame.pointers[access] = b.op(f"getelementptr {ty}, ptr {base.ref}, i64 {at.ref}", "ptr")
        return access


class FinishBody(PartialBody):
    """Prints the end: joins the chunks of each outer point, then the epilogue."""

    def point(self, frame: Frame, span: tuple[Value, Value], tile: tuple[Value, Value] | None = None) -> None:
        self.strips_of(frame)

    def strip(self, frames: list[Frame]) -> None:
        accs, width = self.accumulators, self.accumulators.width()
        for frame in frames:
            lanes = frame.lanes if frame.vector is not None else 1

            def join(c: Value, carried: list[Value], frame: Frame = frame) -> list[Value]:
                (total,), errors = accs.join([carried[:width]], carried[width:], [self.fetch(frame, c)])
                return [*total, *errors]

            first = self.fetch(frame, ZERO)
            parts = self.b.loop(ONE, self.chunks, 1, [*first, *accs.errors([first])], join, "join")
            (total,) = accs.settled([parts[:width]], parts[width:])
            assert all(v.lanes == lanes for v in total)
            for n, v in zip(self.accumulators.every, self.accumulators.results(total)):
                frame.values[id(n)] = v
        self.end(frames)

    def fetch(self, frame: Frame, chunk: Value) -> list[Value]:
        return [self.memory.load(self.slot(frame, chunk, j), frame) for j in range(len(self.dtypes))]


class SplitDriver(Driver):
    """Prints the entry: chunks, memory for partial results, the body on all threads, the end on this one."""

    def text(self) -> str:
        b, s, dims = self.b, self.s, self.kernel.dims
        points, length, reduced, total = self.work_sizes()
        if self.return_if_nothing(total):
            return "  ret i32 0"
        first = self.size(dims[s.inner[0]])
        wanted = b.intrinsic("smax", b.binary("lshr", reduced, const(CHUNK_POINTS.bit_length() - 1, "i64")), ONE)
        wanted = b.intrinsic("smin", wanted, const(MOST_CHUNKS, "i64"))
        wanted = b.select(b.compare("sgt", total, const(MOST_SHARED, "i64")), ONE, wanted)
        grain = s.lanes * s.unroll * 4 if s.reduces_vector and len(s.inner) == 1 else 1
        size = b.binary("udiv", b.sub(b.add(first, wanted), ONE), wanted)
        size = b.binary("and", b.add(size, const(grain - 1, "i64")), const(-grain, "i64"))
        size = b.intrinsic("smax", size, ONE)
        chunks = b.intrinsic("smax", b.binary("udiv", b.sub(b.add(first, size), ONE), size), ONE)
        count = sum(1 + n.attrs[0].startswith("arg") for n in s.sweeps[0].reduces)
        bytes_ = b.times(b.times(chunks, total), const(8 * count, "i64"))
        # Vectors that start at the last points reach past them.
        bytes_ = b.plus(bytes_, const(64, "i64"))
        long = b.compare("sgt", bytes_, const(STACK_BYTES, "i64"))
        heap = b.when(long, lambda: [b.call("malloc", "ptr", 1, [bytes_])], [Value("null", "ptr")])[0]
        missing = b.binary("and", long, b.compare("eq", heap, Value("null", "ptr")))
        b.branch(missing, "missing", "there")
        b.label("missing")
        b.line(f"ret i32 {OUT_OF_MEMORY}")
        b.label("there")
        small = b.select(long, const(64, "i64"), bytes_)
        stack = b.op(f"alloca i8, i64 {small.ref}, align 64", "ptr")
        partials = b.select(long, heap, stack)
        box = b.op("alloca [4 x i64], align 16", "ptr")
        for k, field in enumerate(("ptr %ctx", f"ptr {partials.ref}", f"i64 {chunks.ref}", f"i64 {size.ref}")):
            place = b.op(f"getelementptr i64, ptr {box.ref}, i64 {k}", "ptr")
            b.line(f"store {field}, ptr {place.ref}")
        work = b.times(total, b.times(b.intrinsic("smax", reduced, ONE), const(s.cost, "i64")))
        large = b.compare("sgt", work, const(parallel.SERIAL_PICOSECONDS, "i64"))
        before = b.op(f"select i1 {large.ref}, i64 {work.ref}, i64 0", "i64")  # no work: the launcher stays serial
        rc = b.call(LAUNCH, "i32", 1, [f"ptr @{self.name}.body", box, points, chunks, before, "i64 1"])
        ok = b.compare("eq", rc, const(0, "i32"))
        done = b.when(
            ok, lambda: [b.op(f"call i32 @{self.name}.finish(ptr {box.ref}, i64 0, i64 {points.ref}, i64 {length.ref})", "i32")], [rc]
        )  # fmt: skip
        b.line(b.call_text("free", "void", [heap]))
        b.line(f"ret i32 {done[0].ref}")
        return "\n".join(b.lines)
