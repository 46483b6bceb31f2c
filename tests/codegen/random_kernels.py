"""Random kernels for the CPU printer: dims of every kind, layouts, gathers, predicates, levels of reductions, several stores.

Values are small multiples of 1/4 and the operators are exact on them, so that results are compared bit by bit almost everywhere.
"""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np

from pliant.lower.loops import DTYPES, Buffer, Kernel, Node, Store, sizes_of
from tests.codegen.loop_reference import NUMPY, to_bf16

SIZES = (0, 1, 1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 33, 64, 70)
FLOATS = ("f32", "f32", "f32", "f64", "bf16", "f16")
INTS = ("i64", "i32", "u8", "i8", "i16")


class RandomKernel:
    """One kernel (`kernel`) with its memory and sizes, from a seed."""

    def __init__(self, seed: int) -> None:
        self.r = r = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        rank = r.choice((1, 1, 2, 2, 2, 3, 3, 4))
        while True:
            self.dims = [r.choice(SIZES if r.random() < 0.9 else (300, 1000)) for _ in range(rank)]
            if math.prod(self.dims) <= 20000:
                break
        self.reduced = r.choice([0, 0, 1, *range(rank + 1)])
        self.outer = rank - self.reduced
        self.sizes: dict[Any, int] = {}
        self.buffers: list[Buffer] = []
        self.memory: list[np.ndarray] = []
        self.stores: list[Store] = []
        names = tuple(self.symbol(n) for n in self.dims)
        inner = self.expressions([self.load(True) for _ in range(r.randint(1, 3))], r.randint(1, 5))
        outer = self.expressions([self.load(False)], 2) if self.reduced else []
        for _ in range(r.randint(1, 3) if self.reduced else 0):
            reduced = [self.reduce(r.choice(inner)) for _ in range(r.randint(1, 2))]
            outer = self.expressions(outer + reduced, r.randint(1, 3))
            if r.random() < 0.25:
                inner.append(self.scan(r.choice(inner)))
            inner = self.expressions(inner + outer[-2:], r.randint(1, 3))
        made = 0
        while not made:
            for nodes, full in ((inner, True), (outer, False)):
                for _ in range(r.choice((0, 1, 1, 2)) if nodes else 0):
                    self.store(r.choice(nodes[-3:]), full)
                    made += 1
        self.kernel = Kernel(f"random{seed}", names, self.reduced, self.buffers, self.stores)
        self.kernel.sizes = sizes_of(self.kernel)
        if r.random() < 0.7:
            self.kernel.hints = {k: v if r.random() < 0.7 else r.choice((1, 8, 100000)) for k, v in self.sizes.items()}

    def symbol(self, n: int) -> Any:
        if self.r.random() < 0.5:
            return n
        name = f"s{len(self.sizes)}"
        self.sizes[name] = n
        return name

    # -- memory --

    def array(self, dtype: str, size: int) -> np.ndarray:
        # Often of one sign only, so that a lane that should have been left out (a 0) shows in a maximum or a minimum.
        values = self.numbers.integers(-12, 13, size) / 4 + self.r.choice((0, 4, -4))
        if dtype == "bf16":
            return to_bf16(values.astype(np.float32))
        if dtype == "bool":
            return values > 0
        return (values if DTYPES[dtype].kind == "f" else np.abs(values * 4) + self.r.choice((0, 0, 3))).astype(NUMPY[dtype])

    def layout(self, dims: list[int], broadcast: bool) -> tuple[tuple[Any, ...], Any, int]:
        """(strides, offset, elements): the dims in some order, some left out."""
        r = self.r
        order = list(range(len(dims)))
        if r.random() < 0.4:
            r.shuffle(order)
        strides: list[int] = [0] * len(dims)
        step = r.choice((1, 1, 1, 1, 2))
        for d in reversed(order):
            if broadcast and r.random() < 0.25:
                continue
            strides[d] = step
            step *= max(dims[d], 1)
            if r.random() < 0.1:
                step += 3
        offset = r.choice((0, 0, 5))
        last = offset + sum(s * max(n - 1, 0) for s, n in zip(strides, dims))
        return tuple(self.symbol(s) if r.random() < 0.3 and s > 1 else s for s in strides), offset, last + 1

    def buffer(self, dtype: str, size: int, written: bool) -> int:
        self.buffers.append(Buffer(dtype, written))
        self.memory.append(self.array(dtype, size))
        return len(self.buffers) - 1

    def reach(self, full: bool) -> list[int]:
        return self.dims if full else self.dims[: self.outer]

    # -- nodes --

    def load(self, full: bool) -> Node:
        r = self.r
        dtype = r.choice((*FLOATS, *INTS, "bool"))
        dims = self.reach(full)
        strides, offset, size = self.layout(dims, True)
        kind = r.random()
        if kind < 0.16 and dims:  # padding: x[i - 1] where i >= 1
            d = r.randrange(len(dims))
            stride = strides[d] if isinstance(strides[d], int) else self.sizes[strides[d]]
            on = Node("ge", (Node("index", (), "i64", (d,)), Node("const", (), "i64", (1,))), "bool")
            base = self.buffer(dtype, size, False)
            if r.random() < 0.4:
                return self.joined(d, base, dtype, strides, offset)
            return Node("load", (on,), dtype, (base, strides, offset - stride, (), True))
        if kind < 0.3:  # a gather
            rows, step = r.randint(1, 6), r.choice((1, 3))
            index = self.indices(rows, full)
            base = self.buffer(dtype, size + rows * step, False)
            return Node("load", (index,), dtype, (base, strides, offset, (step,)))
        return Node("load", (), dtype, (self.buffer(dtype, size, False), strides, offset, ()))

    def joined(self, d: int, base: int, dtype: str, strides: tuple, offset: Any) -> Node:
        """Of dim `d` one part from each of two or three buffers, as a concatenation reads them."""
        r = self.r
        n = self.dims[d]
        bounds = sorted(r.randint(-1, n + 1) for _ in range(r.choice((1, 1, 2))))
        index = Node("index", (), "i64", (d,))
        value, below = None, None
        for k, end in enumerate((*bounds, None)):
            at = base if k == 0 else self.buffer(dtype, self.memory[base].size, False)
            tests = [] if below is None else [Node(*r.choice((("ge", (index, below)), ("gt", (index, self.less_one(below))))), "bool")]
            if end is not None:
                bound = self.bound(end)
                tests.append(Node(*r.choice((("lt", (index, bound)), ("le", (index, self.less_one(bound))))), "bool"))
                below = bound
            on = tests[0] if len(tests) == 1 else Node("and", tuple(tests), "bool")
            part = Node("load", (on,), dtype, (at, strides, offset, (), True))
            value = part if value is None else Node("where", (on, part, value), dtype)
        assert value is not None
        return value

    def bound(self, value: int) -> Node:
        if self.r.random() < 0.5:
            return Node("const", (), "i64", (value,))
        name = f"s{len(self.sizes)}"
        self.sizes[name] = value
        return Node("size", (), "i64", (name,))

    def less_one(self, n: Node) -> Node:
        return Node("sub", (n, Node("const", (), "i64", (1,))), "i64")

    def indices(self, rows: int, full: bool) -> Node:
        strides, offset, size = self.layout(self.reach(full), True)
        at = self.buffer("i64", size, False)
        self.memory[at] %= rows
        return Node("load", (), "i64", (at, strides, offset, ()))

    def expressions(self, nodes: list[Node], count: int) -> list[Node]:
        nodes = list(nodes)
        for _ in range(count):
            nodes.append(self.expression(nodes))
        return nodes

    def expression(self, nodes: list[Node]) -> Node:
        r = self.r
        a, b, c = (r.choice(nodes[-5:]) for _ in range(3))
        choice = r.random()
        if choice < 0.1:
            return self.cast(a, r.choice((*FLOATS, "i64", "i32", "bool")))
        to = a.dtype if a.dtype not in ("bf16", "f16") else "f32"
        if choice < 0.2:
            test = Node("lt", (self.cast(a, "f32"), self.cast(b, "f32")), "bool")
            return Node("where", (test, self.cast(b, to), self.cast(c, to)), to)
        if choice < 0.3:
            return Node("sub", (self.cast(a, "f32"), Node("const", (), "f32", (0.5,))), "f32")
        if choice < 0.35:
            return Node("neg", (self.cast(a, "f64"),), "f64")
        if choice < 0.4:
            return Node("floor", (self.cast(a, "f32"),), "f32")
        if to == "bool":
            return Node(r.choice(("and", "or", "xor")), (a, self.cast(b, "bool")), "bool")
        name = r.choice(("add", "sub", "maximum", "minimum", "add"))
        return Node(name, (self.cast(a, to), self.cast(b, to)), to)

    def cast(self, n: Node, to: str) -> Node:
        return n if n.dtype == to else Node("cast", (n,), to)

    def reduce(self, n: Node) -> Node:
        r = self.r
        kinds = ["sum", "max", "min", "any", "all"]
        if all(self.dims[self.outer :]):
            kinds += ["argmax", "argmin", "argmax"]
        else:
            kinds = ["sum", "any", "all"]
        kind = r.choice(kinds)
        if kind == "sum":
            to = r.choice(("f32", "f64", "i64"))
            arg = self.cast(n, to)
            if to == "f32" and r.random() < 0.3:
                arg = Node("mul", (arg, arg), "f32")
            return Node("reduce", (arg,), to, ("sum",))
        if kind in ("any", "all"):
            return Node("reduce", (self.cast(n, "bool"),), "bool", (kind,))
        if kind in ("max", "min"):
            return Node("reduce", (n,), n.dtype, (kind,))
        return Node("reduce", (n,), "i64", (kind,))

    def scan(self, n: Node) -> Node:
        to = self.r.choice(("f64", "f32", "i64", "i32"))
        return Node("scan", (self.cast(n, to),), to, ("sum",))

    # -- stores --

    def store(self, n: Node, full: bool) -> None:
        r = self.r
        dims = self.reach(full)
        strides, offset, size = self.layout(dims, False)
        choice = r.random()
        if choice < 0.12 and full:  # additions, some to one address
            rows = r.randint(1, 5)
            index = self.indices(rows, full)
            wanted = self.cast(n, r.choice(("f32", "i64", "bf16")))
            kept = tuple(0 if r.random() < 0.4 else s for s in strides)
            self.stores.append(Store(self.buffer(wanted.dtype, size + rows, True), kept, offset, wanted, (index,), (1,), None, "add"))
            return
        predicate = None
        if choice < 0.25 and dims:
            d = r.randrange(len(dims))
            predicate = Node("ne", (Node("index", (), "i64", (d,)), Node("const", (), "i64", (2,))), "bool")
        elif choice < 0.45:  # in place, on what is read at this very point
            if self.in_place(n, full):
                return
        self.stores.append(Store(self.buffer(n.dtype, size, True), strides, offset, n, predicate=predicate))

    def in_place(self, n: Node, full: bool) -> bool:
        dims = self.reach(full)
        for load in self.plain_loads(n):
            plain = not load.args and len(load.strides) == len(dims) and not self.buffers[load.buffer].written
            if plain and all(s != 0 or d <= 1 for s, d in zip(load.strides, dims)):
                self.buffers[load.buffer].written = True
                self.stores.append(Store(load.buffer, load.strides, load.offset, self.cast(n, load.dtype)))
                return True
        return False

    def plain_loads(self, n: Node) -> list[Node]:
        found, seen, stack = [], set(), [n]
        while stack:
            m = stack.pop()
            if id(m) in seen:
                continue
            seen.add(id(m))
            if m.op == "load":
                found.append(m)
            stack.extend(m.args)
        return found
