"""The entry point of a kernel: how much work is there, and who does it.

Decided at run time: below `SERIAL_PICOSECONDS`, with one thread, or inside a parallel region, the caller runs the body itself. Otherwise
the domain is split evenly over PyTorch's own OpenMP pool (`runtime.py` says which functions that are).
"""

from __future__ import annotations

from pliant.codegen.cpu.text import Text, Value, const
from pliant.lower.loops import Kernel, Size
from pliant.lower.schedule import Schedule

SERIAL_PICOSECONDS = 60_000_000
GRAIN_PICOSECONDS = 20_000_000  # at least this much for each thread
THREADS, INSIDE, PARALLEL, NUMBER, TEAM = "pliant_threads", "pliant_inside", "pliant_parallel", "pliant_number", "pliant_team"
ZERO, ONE = const(0, "i64"), const(1, "i64")


class Driver:
    """Prints `i32 @name(ptr ctx)` around `@name.body`."""

    def __init__(self, s: Schedule, name: str) -> None:
        self.s, self.kernel, self.name = s, s.kernel, name
        self.b = Text()
        self.sizes = {key: k for k, key in enumerate(s.kernel.sizes)}
        self.read: dict[Size, Value] = {}

    def size(self, size: Size) -> Value:
        if isinstance(size, int):
            return const(size, "i64")
        if size not in self.read:
            slot = len(self.kernel.buffers) + self.sizes[size]
            at = self.b.op(f"getelementptr i64, ptr %ctx, i64 {slot}", "ptr")
            self.read[size] = self.b.op(f"load i64, ptr {at.ref}", "i64")
        return self.read[size]

    def text(self) -> str:
        b, s, dims = self.b, self.s, self.kernel.dims
        points = ONE
        for d in s.outer:
            points = b.times(points, self.size(dims[d]))
        strips = s.vector is not None and not s.reduces_vector
        length = self.size(dims[s.vector]) if strips else ONE  # type: ignore[index]
        reduced = ONE
        for d in s.inner:
            reduced = b.times(reduced, self.size(dims[d]))
        total = b.times(points, length)
        nothing, some = "nothing", "some"
        b.branch(b.compare("sle", total, ZERO), nothing, some)
        b.label(nothing)
        b.line("ret i32 0")
        b.label(some)
        if not s.serial:
            self.maybe_parallel(points, length, total, reduced, strips)
        rc = b.op(f"call i32 @{self.name}.body(ptr %ctx, i64 0, i64 {points.ref}, i64 {length.ref})", "i32")
        b.line(f"ret i32 {rc.ref}")
        return "\n".join(b.lines)

    def maybe_parallel(self, points: Value, length: Value, total: Value, reduced: Value, strips: bool) -> None:
        b, s = self.b, self.s
        work = b.times(total, b.times(b.intrinsic("smax", reduced, ONE), const(s.cost, "i64")))
        b.branch(b.compare("sgt", work, const(SERIAL_PICOSECONDS, "i64")), "large", "serial")
        b.label("large")
        inside = b.call(INSIDE, "i32", 1, [])
        b.branch(b.compare("ne", inside, const(0, "i32")), "serial", "free")
        b.label("free")
        threads = b.convert("sext", b.call(THREADS, "i32", 1, []), "i64")
        threads = b.intrinsic("smin", threads, b.binary("udiv", work, const(GRAIN_PICOSECONDS, "i64")))
        if strips:
            # Cut the vector dim only where the outer dims alone would leave threads idle.
            many = b.compare("sge", points, b.binary("shl", threads, const(3, "i64")))
            wanted = b.binary("udiv", b.sub(b.add(b.binary("shl", threads, const(2, "i64")), points), ONE), points)
            wanted = b.select(b.compare("eq", points, ONE), threads, b.select(many, ONE, wanted))
            grain = max(64, s.lanes * s.unroll)
            block = b.binary("udiv", b.sub(b.add(length, wanted), ONE), wanted)
            block = b.binary("and", b.add(block, const(grain - 1, "i64")), const(-grain, "i64"))
            blocks = b.binary("udiv", b.sub(b.add(length, block), ONE), block)
            domain = b.times(points, blocks)
        else:
            block, domain = ONE, points
        threads = b.intrinsic("smin", threads, domain)
        b.branch(b.compare("sgt", threads, ONE), "split", "serial")
        b.label("split")
        data = b.op("alloca [4 x i64], align 16", "ptr")
        slots = [data, *(b.op(f"getelementptr i64, ptr {data.ref}, i64 {k}", "ptr") for k in (1, 2, 3))]
        b.line(f"store ptr %ctx, ptr {slots[0].ref}")
        b.line(f"store i64 {domain.ref}, ptr {slots[1].ref}")
        b.line(f"store i64 {block.ref}, ptr {slots[2].ref}")
        b.line(f"store i64 0, ptr {slots[3].ref}")
        count = b.convert("trunc", threads, "i32")
        b.line(b.call_text(PARALLEL, "void", [f"ptr @{self.name}.share", data, count, "i32 0"]))
        rc = b.op(f"load i32, ptr {slots[3].ref}", "i32")
        b.line(f"ret i32 {rc.ref}")
        b.label("serial")


SHARE = """
define internal void @{name}.share(ptr %data) #0 {{
  %number = call i32 @pliant_number()
  %team = call i32 @pliant_team()
  %n = sext i32 %number to i64
  %t = sext i32 %team to i64
  %ctx = load ptr, ptr %data
  %p1 = getelementptr i64, ptr %data, i64 1
  %domain = load i64, ptr %p1
  %p2 = getelementptr i64, ptr %data, i64 2
  %block = load i64, ptr %p2
  %p3 = getelementptr i64, ptr %data, i64 3
  %a = mul i64 %domain, %n
  %lo = udiv i64 %a, %t
  %b = add i64 %a, %domain
  %hi = udiv i64 %b, %t
  %rc = call i32 @{name}.body(ptr %ctx, i64 %lo, i64 %hi, i64 %block)
  %bad = icmp ne i32 %rc, 0
  br i1 %bad, label %failed, label %done
failed:
  store atomic i32 %rc, ptr %p3 monotonic, align 8
  br label %done
done:
  ret void
}}
"""
SHARE_DECLARED = {NUMBER: f"declare i32 @{NUMBER}()", TEAM: f"declare i32 @{TEAM}()"}


def shared(kernel: Kernel, name: str) -> str:
    return SHARE.format(name=name)
