"""What a kernel computes at one place of its nest: nodes as values, loads and stores, printed once at the level where they are known.

`Values` is the part of a kernel's printer that knows nodes; the loops around them are in `kernel.py` and `sweep.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import NamedTuple

from pliant.codegen.cpu import interleaving, pairs
from pliant.codegen.cpu.access import Access, Frame, Memory
from pliant.codegen.cpu.dtypes import cast, constant, fit_bf16, from_memory, plain_nans, reinterpret, round_bf16
from pliant.codegen.cpu.machine import Machine
from pliant.codegen.cpu.math import Math
from pliant.codegen.cpu.scalars import scalar
from pliant.codegen.cpu.schedule import Schedule
from pliant.codegen.cpu.sweep import MID, OUTER, STRIP, SWEEP, ZERO
from pliant.codegen.cpu.text import Text, Value, const
from pliant.lower.loops import Node, Size, Store

ONCE = frozenset(("log",))  # functions that the C library computes faster for a single number
SIDES = {"lt": "slt", "le": "sle", "gt": "sgt", "ge": "sge", "eq": "eq", "ne": "ne"}


class Move(NamedTuple):
    """A load in two parts: `read` prints what touches memory and gives `count` values, `take` makes of them what the nodes are."""

    count: int
    read: Callable[[list[Frame]], list[Value]]
    take: Callable[[list[Frame], list[Value]], None]


class Values:
    """Prints nodes and stores for frames."""

    def __init__(self, s: Schedule, target: Machine, checked: bool) -> None:
        self.s, self.kernel, self.target, self.checked = s, s.kernel, target, checked
        self.b = Text()
        self.m = Math(self.b, target)
        self.memory = Memory(self.m, self.fail if checked else None)
        self.mid = s.outer[-1] if s.outer else None
        self.where = {d: OUTER for d in s.outer}
        if self.mid is not None:
            self.where[self.mid] = MID
        if s.vector is not None and not s.reduces_vector:
            self.where[s.vector] = STRIP
        for k, d in enumerate(s.inner):
            self.where[d] = SWEEP + k
        self.tile = None if checked else s.tile  # checks are made access by access
        if self.tile is not None:
            assert s.vector is not None
            self.where[self.tile], self.where[s.vector] = STRIP, MID
        self.vector_bit = 0 if s.vector is None else 1 << s.vector
        self.homes = self.find_homes()
        self.pairs = s.pairs and not checked
        self.narrow, self.plain = fit_bf16(s.nodes), plain_nans(s.nodes)
        self.twins = sines_and_cosines(s.nodes)
        self.loads: dict[int, Access] = {}
        self.store_accesses: dict[int, Access] = {}
        self.sizes: dict[Hashable, Value] = {}

    def find_homes(self) -> dict[int, int]:
        """id of a node -> level at which it is printed."""
        homes: dict[int, int] = {}
        for n in self.s.nodes:
            home = STRIP if n.op == "reduce" or id(n) in self.s.pinned else OUTER
            bits, d = self.s.depends[id(n)], 0
            while bits:
                if bits & 1:
                    home = max(home, self.where.get(d, OUTER))
                bits >>= 1
                d += 1
            if n.op != "reduce":
                for a in n.args:
                    home = max(home, homes[id(a)])
            homes[id(n)] = home
        return homes

    def at_home(self, nodes: list[Node], level: int) -> list[Node]:
        return [n for n in nodes if self.homes[id(n)] == level]

    def size(self, size: Size) -> Value:
        return const(size, "i64") if isinstance(size, int) else self.sizes[size]

    def product(self, dims: list[int]) -> Value:
        out = const(1, "i64")
        for d in dims:
            out = self.b.times(out, self.size(self.kernel.dims[d]))
        return out

    def fail(self, cond: Value, number: int) -> None:
        """Leave with `number` if `cond`."""
        b = self.b
        bad, on = b.fresh("bad"), b.fresh("on")
        b.branch(cond, bad, on)
        b.label(bad)
        b.line(f"store i32 {number}, ptr %rc")
        b.jump("leave")
        b.label(on)

    def evaluate(self, nodes: list[Node], frames: list[Frame]) -> None:
        """Print nodes at each frame; once for all of them where they don't vary along the vector dim."""
        nodes = [n for n in nodes if id(n) not in frames[0].values]
        here = {id(n) for n in nodes}
        self.load_all([n for n in nodes if n.op == "load" and not n.args], frames)
        for n in nodes:
            key = id(n)
            if key in frames[0].values:
                continue
            if (twin := self.twins.get(key)) is not None and id(twin) in here and id(twin) not in frames[0].values:
                self.both(n, twin, frames)
            elif n.op == "scan":
                self.go_on(n, frames)
            elif len(frames) > 1 and not self.s.depends[key] & self.vector_bit:
                value = self.node(n, frames[0])
                for f in frames:
                    f.values[key] = value
            else:
                for f in frames:
                    f.values[key] = self.node(n, f)

    def go_on(self, n: Node, frames: list[Frame]) -> None:
        """Give each frame the value of a scan."""
        raise NotImplementedError

    def either_way(self, frames: list[Frame], body: Callable[[list[Frame]], list[Value]]) -> list[Value]:
        """What `body` prints for the frames: twice, without the mask and with it, where a bit says that all lanes are active."""
        full = frames[0].full
        if full is None:
            return body(frames)
        return self.b.either(full, lambda: body([f.whole() for f in frames]), lambda: body([f.partial() for f in frames]))

    def load_all(self, loads: list[Node], frames: list[Frame]) -> None:
        """Loads whose addresses are known: all that vary along the vector dim behind one branch, if it takes a branch."""
        moves = self.moves(loads, frames)
        if not moves:
            return
        found = iter(self.either_way(frames, lambda at: [v for move in moves for v in move.read(at)]))
        for move in moves:
            move.take(frames, [next(found) for _ in range(move.count)])

    def moves(self, loads: list[Node], frames: list[Frame]) -> list[Move]:
        """How to make loads that vary along the vector dim; the others are made."""
        still = [n for n in loads if not self.s.depends[id(n)] & self.vector_bit]
        for n in still:
            value = self.memory.load(self.loads[id(n)], frames[0])
            for f in frames:
                f.values[id(n)] = value
        moves: list[Move] = []
        woven = self.woven(loads, frames[0])
        for n in loads:
            if not self.s.depends[id(n)] & self.vector_bit:
                continue
            if (group := woven.get(id(n))) is not None:
                if n is group[0]:
                    moves += [self.woven_move(group, k) for k in range(len(frames))]
            elif self.pairs and len(frames) > 1:
                moves += [self.pair_move(n, k) for k in range(0, len(frames), 2)]
            else:
                moves += [self.plain_move(n, k) for k in range(len(frames))]
        return moves

    def plain_move(self, n: Node, k: int) -> Move:
        access = self.loads[id(n)]

        def take(frames: list[Frame], read: list[Value]) -> None:
            frames[k].values[id(n)] = from_memory(self.b, read[0], access.dtype)

        return Move(1, lambda frames: [self.memory.read(access, frames[k])], take)

    def pair_move(self, n: Node, k: int) -> Move:
        def take(frames: list[Frame], read: list[Value]) -> None:
            frames[k].values[id(n)], frames[k + 1].values[id(n)] = pairs.apart(self.b, read[0])

        return Move(1, lambda frames: [pairs.load(self.memory, self.loads[id(n)], frames[k])], take)

    def woven_move(self, group: list[Node], k: int) -> Move:
        b, accesses = self.b, [self.loads[id(n)] for n in group]
        alone, dtype = len(group) == 1, accesses[0].dtype

        def read(frames: list[Frame]) -> list[Value]:
            if alone:
                return interleaving.load_alone(self.memory, accesses[0], frames[k])
            return interleaving.load(self.memory, accesses, frames[k])

        def take(frames: list[Frame], read: list[Value]) -> None:
            values = [interleaving.every_other(b, read, dtype)] if alone else interleaving.apart(b, read, dtype)
            frames[k].values.update((id(n), value) for n, value in zip(group, values, strict=True))

        return Move(2 if alone else len(group), read, take)

    def woven(self, loads: list[Node], frame: Frame) -> dict[int, list[Node]]:
        """id of a load -> the loads that it is moved with, where vectors are taken apart in registers."""
        v = self.s.vector
        if v is None or frame.vector != v or frame.lanes == 1 or self.checked:
            return {}
        out = {id(n): group for group in interleaving.woven_loads(loads, v, len(self.kernel.dims)) for n in group}
        if frame.mask is None:
            for n in loads:
                if n.strides[v : v + 1] == (2,):
                    out.setdefault(id(n), [n])
        return out

    def both(self, n: Node, twin: Node, frames: list[Frame]) -> None:
        """Print the sine and the cosine of one operand."""
        once = len(frames) > 1 and not self.s.depends[id(n)] & self.vector_bit
        found = [self.m.sin_cos(f.values[id(n.args[0])]) for f in (frames[:1] if once else frames)]
        for k, f in enumerate(frames):
            sine, cosine = found[0 if once else k]
            f.values[id(n)], f.values[id(twin)] = (sine, cosine) if n.op == "sin" else (cosine, sine)

    def node(self, n: Node, frame: Frame) -> Value:
        b = self.b
        if n.op == "load":
            return self.memory.load(self.loads[id(n)], frame)
        if n.op == "const":
            return constant(n.attrs[0], n.dtype)
        if n.op == "size":
            return self.size(n.attrs[0])
        if n.op == "index":
            return self.index(n.attrs[0], frame)
        if n.op == "cast":
            if n.dtype == "bf16" and id(n.args[0]) in self.narrow:
                return cast(b, frame.values[id(n.args[0])], n.args[0].dtype, "f32", self.target)
            if n.dtype == "bf16" and n.args[0].dtype == "f32":
                return round_bf16(b, frame.values[id(n.args[0])], self.target, id(n.args[0]) in self.plain)
            return cast(b, frame.values[id(n.args[0])], n.args[0].dtype, n.dtype, self.target)
        if n.op == "bounded":
            return self.bounded(n, frame)
        if n.op == "bitcast":
            return reinterpret(b, frame.values[id(n.args[0])], n.args[0].dtype, n.dtype)
        if n.op in SIDES and n.args[0].op == "index" and n.args[0].attrs[0] == frame.vector and frame.lanes > 1:
            bound = frame.values[id(n.args[1])]
            if bound.lanes == 1:
                return self.side(SIDES[n.op], frame.counters[frame.vector], bound, frame.lanes)
        assert n.op != "reduce", "a reduction is a result of its sweep"
        if n.op in ONCE and n.dtype in ("f32", "f64") and self.vector_bit and not self.s.depends[id(n)] & self.vector_bit:
            return self.m.once(n.op, frame.values[id(n.args[0])])
        return scalar(self.m, n.op, n.dtype, [(frame.values[id(a)], a.dtype) for a in n.args])

    def bounded(self, n: Node, frame: Frame) -> Value:
        """An index as a position, where it is one; else the kernel ends."""
        b, (size, wraps, code) = self.b, n.attrs
        v, end = frame.values[id(n.args[0])], self.size(size)
        if wraps:
            v = b.add(v, b.select(b.compare("slt", v, ZERO), end, ZERO))
        bad = b.compare("uge", v, end)
        for on in (frame.mask if v.lanes > 1 else None, frame.values[id(n.args[1])] if len(n.args) > 1 else None):
            if on is not None:
                bad = b.binary("and", bad, on)
        self.fail(b.reduce_bits("or", bad) if bad.lanes > 1 else bad, code)
        return v

    def side(self, predicate: str, first: Value, bound: Value, lanes: int) -> Value:
        """Which lanes of the counter that starts at `first` are on one side of a bound: one comparison of narrow lane numbers."""
        b = self.b
        at = b.intrinsic("smin", b.intrinsic("smax", b.intrinsic("ssub.sat", bound, first), const(-1, "i64")), const(lanes, "i64"))
        return b.compare(predicate, b.iota(lanes, "i32"), b.splat(b.convert("trunc", at, "i32"), lanes))

    def index(self, d: int, frame: Frame) -> Value:
        counter = frame.counters.get(d, ZERO)
        if d != frame.vector or frame.lanes == 1:
            return counter
        return self.b.add(self.b.splat(counter, frame.lanes), self.b.iota(frame.lanes, "i64"))

    def store_all(self, stores: list[Store], frames: list[Frame]) -> None:
        """Every store at every frame."""
        puts = self.puts(stores, frames)

        def write(at: list[Frame]) -> list[Value]:
            for put in puts:
                put(at)
            return []

        if puts:
            self.either_way(frames, write)

    def puts(self, stores: list[Store], frames: list[Frame]) -> list[Callable[[list[Frame]], None]]:
        """Make ready what is to be stored; each of the results writes some of it."""
        groups = [[st] for st in stores]
        paired = self.pairs and len(frames) > 1
        if not paired and self.s.vector is not None and frames[0].vector == self.s.vector and frames[0].lanes > 1 and not self.checked:
            groups = interleaving.woven_stores(stores, self.s.vector, len(self.kernel.dims))
        return [self.put(group, frames, k, paired) for k in range(0, len(frames), 2 if paired else 1) for group in groups]

    def put(self, group: list[Store], frames: list[Frame], k: int, paired: bool) -> Callable[[list[Frame]], None]:
        """Make ready what a group of stores writes at frame `k`; the result writes it."""
        memory, accesses = self.memory, [self.store_accesses[id(st)] for st in group]
        frame, access, mode = frames[k], accesses[0], group[0].mode
        values = [frame.values[id(st.node)] for st in group]
        if paired:
            both = pairs.together(self.b, frame.lanes, values[0], frames[k + 1].values[id(group[0].node)])
            return lambda at: pairs.store(memory, access, at[k], both)
        if len(group) > 1:
            woven = interleaving.together(self.b, frame.lanes, values, access.dtype)
            return lambda at: interleaving.store(memory, accesses, at[k], woven)
        value = memory.ready(access, frame, values[0]) if mode == "set" else values[0]
        return lambda at: memory.store(access, at[k], value, mode)


def sines_and_cosines(nodes: list[Node]) -> dict[int, Node]:
    """id of a sine or cosine in f32 -> the other one of the same operand, where there are both."""
    of = {(n.op, id(n.args[0])): n for n in nodes if n.op in ("sin", "cos") and n.dtype == "f32"}
    out = {}
    for (name, operand), n in of.items():
        twin = of.get(("cos" if name == "sin" else "sin", operand))
        if twin is not None:
            out[id(n)] = twin
    return out
