"""The entry point of a kernel: how much work is there, and who does it.

Decided at run time: below `SERIAL_PICOSECONDS`, with one thread, or inside a parallel region, the caller runs the body itself. Otherwise
`pliant_launch`, one function that all kernels share, splits the domain evenly over PyTorch's own OpenMP pool (`runtime.py` says which
functions that are).
"""

from __future__ import annotations

from pliant.codegen.cpu.schedule import TILE_BLOCK, Schedule
from pliant.codegen.cpu.text import Text, Value, const
from pliant.lower.loops import Size

SERIAL_PICOSECONDS = 6_000_000  # starting and meeting takes two threads that are awake 0.7 microseconds, much longer where others run
GRAIN_PICOSECONDS = 4_000_000  # for each thread beyond the first: larger teams take longer to start and to meet
THREADS, INSIDE, PARALLEL, NUMBER, TEAM = "pliant_threads", "pliant_inside", "pliant_parallel", "pliant_number", "pliant_team"
LAUNCH = "pliant_launch"
ZERO, ONE = const(0, "i64"), const(1, "i64")
ONCE = "noinline optnone nounwind"
"""Attributes of functions that run once a call: LLVM's quick code generation, for less than half of the time."""


class Driver:
    """Prints `i32 @name(ptr ctx)` around `@name.body`."""

    def __init__(self, s: Schedule, name: str, blocked: bool = False) -> None:
        self.s, self.kernel, self.name, self.blocked = s, s.kernel, name, blocked
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

    def work_sizes(self) -> tuple[Value, Value, Value, Value]:
        """(points of the outer dims without the vector dim, length of that if it is outer, reduction points, all outer points)."""
        b, s, dims = self.b, self.s, self.kernel.dims
        points = reduced = length = ONE
        for d in s.outer:
            points = b.times(points, self.size(dims[d]))
        if s.vector is not None and not s.reduces_vector:
            length = self.size(dims[s.vector])
        for d in s.inner:
            reduced = b.times(reduced, self.size(dims[d]))
        return points, length, reduced, b.times(points, length)

    def return_if_nothing(self, total: Value) -> bool:
        """Leave where there are no outer points. True: there never are."""
        b = self.b
        if total.constant:
            return int(total.ref) == 0
        b.branch(b.compare("sle", total, ZERO), "nothing", "some")
        b.label("nothing")
        b.line("ret i32 0")
        b.label("some")
        return False

    def text(self) -> str:
        b, s = self.b, self.s
        points, length, reduced, total = self.work_sizes()
        if self.return_if_nothing(total):
            return "  ret i32 0"
        if self.blocked:  # the body cuts the vector dim by itself
            end = b.add(length, const(TILE_BLOCK - 1, "i64"))
            points, length = b.times(points, b.binary("udiv", end, const(TILE_BLOCK, "i64"))), ONE
        if s.columns:  # the body runs whole blocks of the vector dim
            points = ONE
        if not s.serial or s.columns:
            work = b.times(total, b.times(b.intrinsic("smax", reduced, ONE), const(s.cost, "i64")))
            b.branch(b.compare("sgt", work, const(SERIAL_PICOSECONDS, "i64")), "large", "serial")
            b.label("large")
            cut = s.vector is not None and not s.reduces_vector and not self.blocked
            grain = max(64, s.lanes * s.unroll) if cut else 0
            body = f"ptr @{self.name}.body"
            rc = b.call(LAUNCH, "i32", 1, [body, "ptr %ctx", points, length, work, f"i64 {grain}"])
            b.line(f"ret i32 {rc.ref}")
            b.label("serial")
        rc = b.op(f"call i32 @{self.name}.body(ptr %ctx, i64 0, i64 {points.ref}, i64 {length.ref})", "i32")
        b.line(f"ret i32 {rc.ref}")
        return "\n".join(b.lines)


def launcher() -> str:
    """The module of `pliant_launch(body, ctx, points, length, work, grain)`: runs `body` over the domain `points` x blocks of `length`.

    `grain` 0: there is no vector dim to cut, else blocks are multiples of it. Returns the first code that is not 0, of any thread.
    """
    b = Text()
    points, length, work, grain = (Value(f"%{n}", "i64") for n in ("points", "length", "work", "grain"))
    inside = b.call(INSIDE, "i8", 1, [])
    b.branch(b.compare("ne", b.binary("and", inside, const(1, "i8")), const(0, "i8")), "serial", "free")
    b.label("free")
    threads = b.convert("sext", b.call(THREADS, "i32", 1, []), "i64")
    threads = b.intrinsic("smin", threads, b.add(b.binary("udiv", work, const(GRAIN_PICOSECONDS, "i64")), ONE))
    # Cut the vector dim only where the outer dims alone would leave threads idle.
    many = b.compare("sge", points, b.binary("shl", threads, const(3, "i64")))
    wanted = b.binary("udiv", b.sub(b.add(b.binary("shl", threads, const(2, "i64")), points), ONE), points)
    wanted = b.select(b.compare("eq", points, ONE), threads, b.select(many, ONE, wanted))
    wanted = b.select(b.compare("eq", grain, ZERO), ONE, b.intrinsic("smax", wanted, ONE))
    block = b.binary("udiv", b.sub(b.add(length, wanted), ONE), wanted)
    rounded = b.binary("and", b.sub(b.add(block, grain), ONE), b.neg(grain))
    block = b.select(b.compare("eq", wanted, ONE), length, rounded)
    blocks = b.binary("udiv", b.sub(b.add(length, block), ONE), block)
    domain = b.times(points, blocks)
    threads = b.intrinsic("smin", threads, domain)
    b.branch(b.compare("sgt", threads, ONE), "split", "serial")
    b.label("split")
    fields = ("ptr %body", "ptr %ctx", f"i64 {domain.ref}", f"i64 {block.ref}", "i64 0")
    data = b.op("alloca [5 x i64], align 16", "ptr")
    status = data
    for k, field in enumerate(fields):
        status = b.op(f"getelementptr i64, ptr {data.ref}, i64 {k}", "ptr")
        b.line(f"store {field}, ptr {status.ref}")
    count = b.convert("trunc", threads, "i32")
    b.line(b.call_text(PARALLEL, "void", ["ptr @share", data, count, "i32 0"]))
    rc = b.op(f"load i32, ptr {status.ref}", "i32")
    b.line(f"ret i32 {rc.ref}")
    b.label("serial")
    rc = b.op("call i32 %body(ptr %ctx, i64 0, i64 %points, i64 %length)", "i32")
    b.line(f"ret i32 {rc.ref}")
    arguments = "ptr %body, ptr %ctx, i64 %points, i64 %length, i64 %work, i64 %grain"
    lines = "\n".join(b.lines)
    return "\n".join([f"define i32 @{LAUNCH}({arguments}) {ONCE} {{\nentry:\n{lines}\n}}", SHARE, *b.declared.values(), ""])


SHARE = f"""
define internal void @share(ptr %data) {ONCE} {{
  %number = call i32 @{NUMBER}()
  %team = call i32 @{TEAM}()
  %n = sext i32 %number to i64
  %t = sext i32 %team to i64
  %body = load ptr, ptr %data
  %p1 = getelementptr i64, ptr %data, i64 1
  %ctx = load ptr, ptr %p1
  %p2 = getelementptr i64, ptr %data, i64 2
  %domain = load i64, ptr %p2
  %p3 = getelementptr i64, ptr %data, i64 3
  %block = load i64, ptr %p3
  %p4 = getelementptr i64, ptr %data, i64 4
  %a = mul i64 %domain, %n
  %lo = udiv i64 %a, %t
  %b = add i64 %a, %domain
  %hi = udiv i64 %b, %t
  %rc = call i32 %body(ptr %ctx, i64 %lo, i64 %hi, i64 %block)
  %bad = icmp ne i32 %rc, 0
  br i1 %bad, label %failed, label %done
failed:
  store atomic i32 %rc, ptr %p4 monotonic, align 8
  br label %done
done:
  ret void
}}
declare i32 @{NUMBER}()
declare i32 @{TEAM}()
"""
