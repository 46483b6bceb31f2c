"""Loop IR: what a fused CPU kernel computes, before anybody decides how.

A `Kernel` is a rectangular loop nest. Its last `reduced` dims are reduction dims, run inside the others. The body is a DAG of
scalar `Node`s, evaluated at each point; `Store`s write nodes to buffers. Memory is addressed by strides: dim `i` of the nest moves a
load or store by `strides[i]` elements, so that permutes, expands, slices and reshapes cost nothing here. A node above a `reduce` has
one value for each point of the outer dims; nodes that use it may again run over the reduction dims (softmax is one kernel).

Sizes (`Size`) are Python ints, known now, or any other hashable: an argument of the kernel, an int64 that is passed at each call.
They are equal only if they are the same key.

The compiled form is `int32 kernel(int64 *ctx)`: `ctx` holds the addresses of `buffers`, then the values of `sizes`, in order.
Addresses point at element 0 of the buffer; offsets are part of the accesses. It returns 0, or the number of the check that failed.
The bounds-checked build takes, after the sizes, the first and the last valid element of each buffer.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pliant import native

Size = int | Hashable


class DType(NamedTuple):
    """How a scalar is kept in memory (`bits`; a bool takes a byte) and computed. `kind` is "f", "i" (signed), "u" or "b"."""

    name: str
    kind: str
    bits: int


DTYPES: dict[str, DType] = {
    d.name: d
    for d in (
        DType("f32", "f", 32),
        DType("f64", "f", 64),
        DType("bf16", "f", 16),
        DType("f16", "f", 16),
        DType("i8", "i", 8),
        DType("i16", "i", 16),
        DType("i32", "i", 32),
        DType("i64", "i", 64),
        DType("u8", "u", 8),
        DType("bool", "b", 8),
    )
}


class Scalar(NamedTuple):
    """A row of the table of scalar operators.

    `result`: "same" as the first operand, "bool", or "second" (`where`). `kinds` are the operand kinds it is defined on. `cost` counts
    simple vector instructions, for fusion's choice between computing again and storing.
    """

    arity: int
    kinds: str
    cost: int = 1
    result: str = "same"


# Floats compute in f32 or f64 only: a lowering casts bf16 and f16 up before an operator and rounds after it, where eager rounds.
# Integers wrap around. Comparisons of floats are ordered, `ne` is unordered (NaN != NaN), as in C.
SCALARS: dict[str, Scalar] = {
    "add": Scalar(2, "fiu"),
    "sub": Scalar(2, "fiu"),
    "mul": Scalar(2, "fiu"),
    "div": Scalar(2, "f", 4),  # true division
    "fma": Scalar(3, "f"),  # one rounding
    "neg": Scalar(1, "fiu"),
    "abs": Scalar(1, "fi"),
    "maximum": Scalar(2, "fiub", 2),  # NaN if either is NaN
    "minimum": Scalar(2, "fiub", 2),
    "fmax": Scalar(2, "f", 2),  # the other one if one is NaN
    "fmin": Scalar(2, "f", 2),
    "floordiv": Scalar(2, "fiu", 8),  # rounds towards -inf, as Python; float: torch.floor_divide
    "truncdiv": Scalar(2, "fiu", 6),  # ints as C; float: trunc(a / b)
    "remainder": Scalar(2, "fiu", 8),  # sign of the divisor
    "fmod": Scalar(2, "fiu", 8),  # sign of the dividend
    "floor": Scalar(1, "f"),
    "ceil": Scalar(1, "f"),
    "trunc": Scalar(1, "f"),
    "round": Scalar(1, "f"),  # half to even
    "sign": Scalar(1, "fiu", 2),
    "sqrt": Scalar(1, "f", 6),
    "rsqrt": Scalar(1, "f", 10),
    "reciprocal": Scalar(1, "f", 4),
    "exp": Scalar(1, "f", 12),
    "exp2": Scalar(1, "f", 12),
    "expm1": Scalar(1, "f", 20),
    "log": Scalar(1, "f", 16),
    "log2": Scalar(1, "f", 16),
    "log10": Scalar(1, "f", 16),
    "log1p": Scalar(1, "f", 20),
    "sin": Scalar(1, "f", 24),
    "cos": Scalar(1, "f", 24),
    "tan": Scalar(1, "f", 32),
    "asin": Scalar(1, "f", 24),
    "acos": Scalar(1, "f", 24),
    "atan": Scalar(1, "f", 24),
    "atan2": Scalar(2, "f", 32),
    "sinh": Scalar(1, "f", 24),
    "cosh": Scalar(1, "f", 24),
    "tanh": Scalar(1, "f", 20),
    "erf": Scalar(1, "f", 20),
    "erfc": Scalar(1, "f", 30),
    "sigmoid": Scalar(1, "f", 18),
    "pow": Scalar(2, "f", 40),
    "isnan": Scalar(1, "f", 1, "bool"),
    "eq": Scalar(2, "fiub", 1, "bool"),
    "ne": Scalar(2, "fiub", 1, "bool"),
    "lt": Scalar(2, "fiub", 1, "bool"),
    "le": Scalar(2, "fiub", 1, "bool"),
    "gt": Scalar(2, "fiub", 1, "bool"),
    "ge": Scalar(2, "fiub", 1, "bool"),
    "and": Scalar(2, "iub"),  # bitwise; on bool logical
    "or": Scalar(2, "iub"),
    "xor": Scalar(2, "iub"),
    "not": Scalar(1, "iub"),
    "shl": Scalar(2, "iu"),
    "shr": Scalar(2, "iu"),  # arithmetic for signed
    "where": Scalar(3, "fiub", 1, "second"),
}

FAILURES: dict[int, tuple[type[Exception], str]] = {code: (error, words) for code, error, words in native.FAILURES.values()}
"""Codes of failures of "bounded", and what eager raises."""
OUT_OF_SELF, OUT_OF_BOUNDS, OUT_OF_GATHER, OUT_OF_CLASSES, NO_RANGE = (
    native.FAILURES[name][0] for name in ("OUT_OF_SELF", "OUT_OF_BOUNDS", "OUT_OF_GATHER", "OUT_OF_CLASSES", "NO_RANGE")
)

# What a reduction starts from and how partial results meet. sum: floats cascade (pairwise over blocks), f32 sums of bf16 are the
# lowering's casts. max/min give NaN if there is one. argmax/argmin give i64, the first position (row-major in the reduction dims).
REDUCTIONS = ("sum", "prod", "max", "min", "any", "all", "argmax", "argmin")


@dataclass(slots=True, eq=False)
class Node:
    """A scalar value at each point of a kernel's nest. `op` is one of

    - "load": `attrs` = (buffer, strides, offset, index strides); `args` = index nodes (i64), each moving the address by its index
      stride (a gather), then, if `attrs[4]` is True, a bool node: where it is false nothing is read and the value is 0;
    - "const": `attrs` = (value,); "size": `attrs` = (Size,), i64; "index": `attrs` = (dim,), i64, the loop counter;
    - "cast": to `dtype` (float to int truncates; anything to bool is `!= 0`; f32 to bf16 rounds to nearest even);
    - "bitcast";
    - "bounded": `args` = (an i64 node, then maybe a bool node), `attrs` = (Size, does -1 mean the last, code of the failure): the index as
      a position in [0, Size). Another index, where the bool node is true, ends the kernel with that code;
    - "reduce": `attrs` = (kind,): over all reduction dims; its value has one value per outer point;
    - "scan": `attrs` = (kind,), "sum" or "prod": at each point of the reduction dims, what the points up to it give, row-major;
    - a row of `SCALARS`.
    """

    op: str
    args: tuple[Node, ...]
    dtype: str
    attrs: tuple[Any, ...] = ()

    @property
    def buffer(self) -> int:
        return self.attrs[0]

    @property
    def strides(self) -> tuple[Size, ...]:
        return self.attrs[1]

    @property
    def offset(self) -> Size:
        return self.attrs[2]

    @property
    def predicated(self) -> bool:
        return len(self.attrs) > 4 and self.attrs[4]


@dataclass(slots=True, eq=False)
class Store:
    """Write `node` to `buffer` at `offset + sum(strides[i] * counter[i])`, plus index nodes times their strides (a scatter).

    `node.dtype` is the dtype of the buffer. Where `strides` covers only the outer dims (`len(dims) - reduced` of them), the store runs
    once per outer point. `mode` "add", "maximum" or "minimum" stores what that operator makes of it and of what is there, in order of the
    loop counters (never concurrently to one address).
    """

    buffer: int
    strides: tuple[Size, ...]
    offset: Size
    node: Node
    index: tuple[Node, ...] = ()
    index_strides: tuple[Size, ...] = ()
    predicate: Node | None = None
    mode: str = "set"


@dataclass(slots=True, eq=False)
class Buffer:
    """Memory that a kernel touches. `written` ones may also be read, but only at the very element that the same point writes.

    `unique` promises that no other buffer of the kernel overlaps it.
    """

    dtype: str
    written: bool
    unique: bool = True


@dataclass(slots=True, eq=False)
class Kernel:
    """A loop nest. `hints` are typical values of sizes, for tuning alone: never for what is computed."""

    name: str
    dims: tuple[Size, ...]
    reduced: int
    buffers: list[Buffer]
    stores: list[Store]
    sizes: tuple[Hashable, ...] = ()
    hints: dict[Hashable, int] = field(default_factory=dict)

    def nodes(self) -> list[Node]:
        """Every node that the stores need, operands first."""
        return operands_first(self.roots())

    def roots(self) -> Iterator[Node]:
        for s in self.stores:
            yield from s.index
            if s.predicate is not None:
                yield s.predicate
            yield s.node


def operands_first(roots: Iterable[Node]) -> list[Node]:
    """Every node that the roots are made of, once each, behind everything it uses."""
    seen: dict[int, Node] = {}
    for root in roots:
        visit(root, seen)
    return list(seen.values())


def visit(node: Node, seen: dict[int, Node]) -> None:
    """Add `node` to `seen` behind everything it uses. Iterative: chains of operators are long."""
    stack = [node]
    while stack:
        n = stack[-1]
        if id(n) not in seen:
            if n.args:
                ahead = [a for a in n.args if id(a) not in seen]
                if ahead:
                    ahead.reverse()
                    stack += ahead
                    continue
            seen[id(n)] = n
        stack.pop()


def levels(nodes: list[Node]) -> dict[int, int]:
    """id of a node -> its level: how many reductions are below each other on the deepest path to it."""
    level: dict[int, int] = {}
    for n in nodes:
        below = max((level[id(a)] for a in n.args), default=0)
        level[id(n)] = below + (n.op == "reduce")
    return level


def sizes_of(kernel: Kernel) -> tuple[Hashable, ...]:
    """The sizes that are arguments, in order of first use: dims, then accesses."""
    out: dict[Hashable, None] = {}

    def add(values: Any) -> None:
        for v in values:
            if type(v) is not int:
                out.setdefault(v)

    add(kernel.dims)
    for n in kernel.nodes():
        if n.op == "load":
            add((*n.strides, n.offset, *n.attrs[3]))
        elif n.op in ("size", "bounded"):
            add(n.attrs[:1])
    for s in kernel.stores:
        add((*s.strides, s.offset, *s.index_strides))
    return tuple(out)
