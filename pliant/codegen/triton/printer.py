"""Prints one kernel of the loop IR as Triton.

A tile is two-dimensional: rows by lanes (`schedule.py`). Each node is a value of the tile, [rows, lanes], or [rows, 1], [1, lanes], [1, 1]
where it does not change along the other; Triton broadcasts. What runs over reduction dims is printed anew in each pass over the lanes, the
number of a pass being that of the reductions below: pass 0 makes what the first reductions meet, and so on. Stores of the points of a
reduction nest come in a pass of their own, behind all others, so that what a kernel writes is read before.

Sizes and strides are 64-bit arguments, offsets 64-bit numbers; positions are counted in 32 bits where the launch says that they fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pliant.codegen.triton.scalars import TYPES, cast, literal, scalar
from pliant.codegen.triton.schedule import Schedule, schedule
from pliant.lower.loops import DTYPES, Kernel, Node, Store, levels, operands_first

ROW, LANE = "r", "c"
IDENTITY = {"sum": 0, "prod": 1, "any": False, "all": True}
LOWEST = {"i8": -(2**7), "i16": -(2**15), "i32": -(2**31), "i64": -(2**63), "u8": 0, "bool": False}
HIGHEST = {"i8": 2**7 - 1, "i16": 2**15 - 1, "i32": 2**31 - 1, "i64": 2**63 - 1, "u8": 255, "bool": True}
MEETS = {"sum": "plus", "prod": "times", "max": "maximum", "min": "minimum"}
LAST = 2**63 - 1


class Printer:
    """Prints `kernel` with positions of type `index` ("tl.int32" or "tl.int64")."""

    def __init__(self, kernel: Kernel, index: str, plan: Schedule | None = None) -> None:
        self.kernel, self.index = kernel, index
        self.plan = plan or schedule(kernel)
        self.nodes = kernel.nodes()
        self.level = levels(self.nodes)
        self.moves: dict[int, str] = {}  # id of a node -> what its value changes along
        for n in self.nodes:
            self.moves[id(n)] = self.movement(n)
        self.number = {id(n): i for i, n in enumerate(self.nodes)}
        self.lines: list[str] = []
        self.indent = 1
        self.plain = self.needed_without_lanes()

    # -- what moves along what ---------------------------------------------------------------------------------------
    def movement(self, n: Node) -> str:
        if n.op == "reduce":
            return ROW
        below = {c for a in n.args for c in self.moves[id(a)]}
        if n.op == "index":
            below.add(ROW if n.attrs[0] < self.plan.outer else LANE)
        elif n.op == "load":
            below |= self.along(n.strides)
        return "".join(sorted(below))

    def along(self, strides: Sequence[Any]) -> set[str]:
        return {ROW if d < self.plan.outer else LANE for d, s in enumerate(strides) if not (type(s) is int and s == 0)}

    def varies(self, n: Node) -> bool:
        """Has it another value in each turn of a loop over the lanes?"""
        return bool(self.kernel.reduced) and LANE in self.moves[id(n)]

    def needed_without_lanes(self) -> set[int]:
        """Nodes that are needed where there is no lane at all: what a store of the rows takes from no reduction."""
        seen: set[int] = set()
        stack = [n for s in self.kernel.stores if not self.is_full(s) for n in (s.node, s.predicate) if n is not None]
        while stack:
            n = stack.pop()
            if id(n) not in seen and n.op != "reduce":
                seen.add(id(n))
                stack.extend(n.args)
        return seen

    def is_full(self, s: Store) -> bool:
        return not self.kernel.reduced or len(s.strides) == len(self.kernel.dims)

    # -- text -----------------------------------------------------------------------------------------------------------
    def text(self, name: str) -> str:
        k, plan = self.kernel, self.plan
        arguments = [f"b{i}" for i in range(len(k.buffers))] + [str(s) for s in k.sizes]
        self.say(f"rows = ({self.product(k.dims[: plan.outer])}).to({self.index})")
        self.say(f"lanes = ({self.product(k.dims[plan.outer :])}).to({self.index})")
        if k.reduced:
            self.say(f"row = tl.program_id(0).to({self.index}) * {plan.rows} + tl.arange(0, {plan.rows})[:, None]")
        else:
            self.say(f"tiles = (lanes + {plan.lanes - 1}) // {plan.lanes}")
            self.say(f"tile = tl.program_id(0).to({self.index})")
            self.say(f"row = (tile // tiles) * {plan.rows} + tl.arange(0, {plan.rows})[:, None]")
            self.lane("(tile % tiles)")
        self.say("in_rows = row < rows")
        self.split("row", range(plan.outer))
        self.body()
        head = [f"def {name}({', '.join(arguments)}):"]
        return "\n".join(head + self.lines) + "\n"

    def say(self, line: str) -> None:
        self.lines.append("    " * self.indent + line)

    def product(self, dims: Sequence[Any]) -> str:
        wide = [f"tl.full([], {d}, tl.int64)" if type(d) is int else str(d) for d in dims]
        return " * ".join(wide) or "tl.full([], 1, tl.int64)"

    def lane(self, number: str) -> None:
        self.say(f"lane = {number} * {self.plan.lanes} + tl.arange(0, {self.plan.lanes})[None, :]")
        self.lane_dims()

    def lane_dims(self) -> None:
        self.say("in_lanes = lane < lanes")
        self.split("lane", range(self.plan.outer, len(self.kernel.dims)))

    def split(self, position: str, dims: range) -> None:
        """The counters of the dims that `position` walks, innermost fastest."""
        rest = position
        for d in reversed(dims):
            if d == dims[0]:
                self.say(f"i{d} = ({rest}).to(tl.int64)")
                break
            size = self.size(self.kernel.dims[d])
            self.say(f"i{d} = ({rest} % ({size}).to({self.index})).to(tl.int64)")
            self.say(f"left{d} = {rest} // ({size}).to({self.index})")
            rest = f"left{d}"

    def size(self, s: Any) -> str:
        return f"tl.full([], {s}, tl.int64)" if type(s) is int else str(s)

    def name(self, n: Node) -> str:
        return f"v{self.number[id(n)]}"

    # -- passes --------------------------------------------------------------------------------------------------------
    def body(self) -> None:
        kernel = self.kernel
        done: set[int] = set()
        full = [s for s in kernel.stores if self.is_full(s)]
        if not kernel.reduced:
            self.emit([n for s in full for n in roots(s)], done)
            self.write(full)
            return
        reductions = [n for n in self.nodes if n.op == "reduce"]
        for number in sorted({self.level[id(n)] for n in reductions}):
            here = [n for n in reductions if self.level[id(n)] == number]
            self.emit_outer([n.args[0] for n in here], done)
            for n in here:
                self.begin(n)
            self.loop([n.args[0] for n in here], done, lambda here=here: [self.meet(n) for n in here])
            for n in here:
                self.end(n)
            done |= {id(n) for n in here}
        if full:
            wanted = [n for s in full for n in roots(s)]
            self.emit_outer(wanted, done)
            self.loop(wanted, done, lambda: self.write(full))
        rows = [s for s in kernel.stores if not self.is_full(s)]
        self.emit([n for s in rows for n in roots(s)], done)
        self.write(rows)

    def emit_outer(self, wanted: list[Node], done: set[int]) -> None:
        """What the lanes share, in front of the loop over them."""
        self.emit([n for n in operands_first(wanted) if not self.varies(n)], done)

    def loop(self, wanted: list[Node], done: set[int], inside: Any) -> None:
        self.say(f"for start in range(0, F.end(lanes), {self.plan.lanes}):")
        self.indent += 1
        self.say(f"lane = (start + tl.arange(0, {self.plan.lanes})[None, :]).to({self.index})")
        self.lane_dims()
        self.emit(wanted, set(done))
        inside()
        self.indent -= 1

    def emit(self, wanted: list[Node], done: set[int]) -> None:
        """The lines that make these nodes, and what they are made of, unless they are there."""
        stack, order = list(reversed(wanted)), []
        while stack:
            n = stack[-1]
            ahead = [a for a in n.args if id(a) not in done] if id(n) not in done and n.op != "reduce" else []
            if ahead:
                stack += reversed(ahead)
                continue
            stack.pop()
            if id(n) not in done and n.op != "reduce":
                done.add(id(n))
                order.append(n)
        for n in order:
            self.say(f"{self.name(n)} = {self.value(n)}")

    # -- nodes ---------------------------------------------------------------------------------------------------------
    def value(self, n: Node) -> str:
        args = [self.name(a) for a in n.args]
        if n.op == "load":
            return self.load(n, args)
        if n.op == "const":
            return literal(n.attrs[0], n.dtype)
        if n.op == "size":
            return f"tl.full([1, 1], {n.attrs[0]}, tl.int64)"
        if n.op == "index":
            return f"i{n.attrs[0]}"
        if n.op == "cast":
            return cast(n.args[0].dtype, n.dtype, args[0])
        if n.op == "bitcast":
            return f"{args[0]}.to({TYPES[n.dtype]}, bitcast=True)"
        return scalar(n, args)

    def load(self, n: Node, args: list[str]) -> str:
        index, predicate = (args[:-1], args[-1]) if n.predicated else (args, None)
        moves = self.moves[id(n)]
        masks = self.masks(moves, n)
        if predicate is not None:
            masks.append(predicate)
        pointer = self.pointer(n.buffer, n.strides, n.offset, index, n.attrs[3], moves)
        mask = " & ".join(masks)
        return f"tl.load({pointer}, {mask}, 0)" if mask else f"tl.load({pointer})"

    def masks(self, moves: str, n: Node | None = None) -> list[str]:
        out = [mask for c, mask in ((ROW, "in_rows"), (LANE, "in_lanes")) if c in moves]
        if n is not None and self.kernel.reduced and LANE not in moves and id(n) not in self.plain:
            out.append("(lanes > 0)")  # it is there for the lanes alone, and its memory may not be, where they are none
        return out

    def pointer(self, buffer: int, strides: Sequence[Any], offset: Any, index: list[str], steps: Sequence[Any], moves: str) -> str:
        terms = [] if offset == 0 and type(offset) is int else [str(offset)]
        for d, s in enumerate(strides):
            if not (type(s) is int and s == 0):
                terms.append(f"i{d}" if type(s) is int and s == 1 else f"i{d} * {s}")
        terms += [i if type(s) is int and s == 1 else f"{i} * {s}" for i, s in zip(index, steps, strict=True)]
        have = {c for c in moves if any(c in m for m in self.term_moves(strides))}
        spread = [f"{at} * 0" for c, at in ((ROW, "row"), (LANE, "lane")) if c in moves and c not in have]
        if not moves:
            spread.append("tl.zeros([1, 1], tl.int64)")
        return f"b{buffer} + ({' + '.join(terms + spread)})"

    def term_moves(self, strides: Sequence[Any]) -> list[str]:
        return ["".join(self.along(strides))]

    # -- reductions ----------------------------------------------------------------------------------------------------
    def begin(self, n: Node) -> None:
        kind, dtype = n.attrs[0], n.args[0].dtype
        shape = f"[{self.plan.rows}, {self.plan.lanes}]"
        wide = working(dtype, kind)
        self.say(f"a{self.number[id(n)]} = tl.full({shape}, {identity(kind, wide)}, {TYPES[wide]})")
        if kind.startswith("arg"):
            self.say(f"p{self.number[id(n)]} = tl.full({shape}, {LAST}, tl.int64)")

    def meet(self, n: Node) -> None:
        kind, dtype, i = n.attrs[0], n.args[0].dtype, self.number[id(n)]
        x = self.name(n.args[0])
        wide = working(dtype, kind)
        if kind in ("any", "all"):
            x = x if dtype == "bool" else f"({x} != 0)"
        elif wide != dtype:
            x = f"{x}.to({TYPES[wide]})"
        if kind.startswith("arg"):
            here = f"tl.where(in_lanes, {x}, a{i}), tl.where(in_lanes, lane.to(tl.int64), p{i})"
            self.say(f"a{i}, p{i} = F.{kind}(a{i}, p{i}, {here})")
            return
        met = {"any": f"(a{i} | {x})", "all": f"(a{i} & {x})"}.get(kind) or f"F.{MEETS[kind]}(a{i}, {x})"
        self.say(f"a{i} = tl.where(in_lanes, {met}, a{i})")

    def end(self, n: Node) -> None:
        kind, i = n.attrs[0], self.number[id(n)]
        wide = working(n.args[0].dtype, kind)
        if kind.startswith("arg"):
            self.say(f"w{i}, {self.name(n)} = tl.reduce((a{i}, p{i}), 1, F.{kind}, keep_dims=True)")
            self.say(f"{self.name(n)} = tl.where({self.name(n)} == {LAST}, 0, {self.name(n)})")
            return
        if kind in ("any", "all"):
            meets = "maximum" if kind == "any" else "minimum"
            self.say(f"{self.name(n)} = tl.reduce(a{i}.to(tl.int32), 1, F.{meets}, keep_dims=True) != 0")
            if n.dtype != "bool":
                self.say(f"{self.name(n)} = {self.name(n)}.to({TYPES[n.dtype]})")
            return
        text = f"tl.reduce(a{i}, 1, F.{MEETS[kind]}, keep_dims=True)"
        self.say(f"{self.name(n)} = {text}" + (f".to({TYPES[n.dtype]})" if n.dtype != wide else ""))

    # -- stores --------------------------------------------------------------------------------------------------------
    def write(self, stores: list[Store]) -> None:
        read = {n.buffer for n in self.nodes if n.op == "load"}
        if any(s.buffer in read for s in stores):
            self.say("tl.debug_barrier()")  # every thread has read what others write
        for s in stores:
            moves = ROW + LANE if self.is_full(s) else ROW
            masks = self.masks(moves) + ([] if s.predicate is None else [self.name(s.predicate)])
            pointer = self.pointer(s.buffer, s.strides, s.offset, [], (), moves)
            self.say(f"tl.store({pointer}, {self.name(s.node)}, {' & '.join(masks)})")


def roots(s: Store) -> list[Node]:
    return [s.node] if s.predicate is None else [s.predicate, s.node]


def working(dtype: str, kind: str) -> str:
    """What a reduction of this dtype keeps in its lanes."""
    if kind in ("any", "all"):
        return "bool"
    return {"bf16": "f32", "f16": "f32", "bool": "i32"}.get(dtype, dtype)


def identity(kind: str, dtype: str) -> str:
    if kind in ("any", "all"):
        return repr(IDENTITY[kind])
    if kind in IDENTITY:
        return f"{IDENTITY[kind]}.0" if DTYPES[dtype].kind == "f" else str(IDENTITY[kind])
    low = kind.endswith("max")
    if DTYPES[dtype].kind == "f":
        return 'float("-inf")' if low else 'float("inf")'
    return str((LOWEST if low else HIGHEST)[dtype])


def module_text(kernel: Kernel, name: str, index: str = "tl.int32", plan: Schedule | None = None) -> str:
    """The source of a module with this kernel; `F` is `functions.py`."""
    return f"@triton.jit\n{Printer(kernel, index, plan).text(name)}"
