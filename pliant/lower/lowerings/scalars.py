"""Scalar expressions with Python's operators, for writing lowerings.

Arithmetic is done in `f32`, `f64` or integers; Python numbers take the dtype of the other operand.
"""

from __future__ import annotations

from typing import Any

from pliant.graph.originals import torch
from pliant.lower.loops import DTYPES, SCALARS, Node

NAMES: dict[torch.dtype, str] = {
    torch.float32: "f32",
    torch.float64: "f64",
    torch.bfloat16: "bf16",
    torch.float16: "f16",
    torch.int8: "i8",
    torch.int16: "i16",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.uint8: "u8",
    torch.bool: "bool",
}
"""The dtypes that kernels know. Others (complex, quantized, ...) stay with ATen."""

COMPUTED = {"bf16": "f32", "f16": "f32"}
HALVES = {"bf16": torch.bfloat16, "f16": torch.float16}
FLOATS = frozenset(("f32", "f64", "bf16", "f16"))


class Refuse(Exception):
    """This operation, with these operands, is not for kernels: it stays an ATen call."""


NEUTRAL = {"add": 0, "mul": 1}
"""What leaves an integer as it is."""


class V:
    """A node with operators."""

    __slots__ = ("node",)

    def __init__(self, node: Node) -> None:
        self.node = node

    @property
    def dtype(self) -> str:
        return self.node.dtype

    def __add__(self, other: Any) -> V:
        return op("add", self, other)

    def __radd__(self, other: Any) -> V:
        return op("add", other, self)

    def __sub__(self, other: Any) -> V:
        return op("sub", self, other)

    def __rsub__(self, other: Any) -> V:
        return op("sub", other, self)

    def __mul__(self, other: Any) -> V:
        return op("mul", self, other)

    def __rmul__(self, other: Any) -> V:
        return op("mul", other, self)

    def __truediv__(self, other: Any) -> V:
        return op("div", self, other)

    def __rtruediv__(self, other: Any) -> V:
        return op("div", other, self)

    def __neg__(self) -> V:
        return op("neg", self)

    def __lt__(self, other: Any) -> V:
        return op("lt", self, other)

    def __le__(self, other: Any) -> V:
        return op("le", self, other)

    def __gt__(self, other: Any) -> V:
        return op("gt", self, other)

    def __ge__(self, other: Any) -> V:
        return op("ge", self, other)

    def __and__(self, other: Any) -> V:
        return op("and", self, other)

    def __or__(self, other: Any) -> V:
        return op("or", self, other)

    def __xor__(self, other: Any) -> V:
        return op("xor", self, other)

    def __invert__(self) -> V:
        return op("not", self)


def const(value: Any, dtype: str) -> V:
    """A Python number in `dtype`, rounded where that is a half."""
    if dtype in HALVES:
        value = torch.tensor(float(value), dtype=torch.float64).to(HALVES[dtype]).item()
    return V(Node("const", (), dtype, (float(value) if dtype in FLOATS else bool(value) if dtype == "bool" else int(value),)))


def op(name: str, *args: Any) -> V:
    """A row of `SCALARS` on values and Python numbers."""
    like = next(a.dtype for a in (args[1:] if name == "where" else args) if isinstance(a, V))
    nodes = tuple((a if isinstance(a, V) else const(a, like)).node for a in args)
    if name in NEUTRAL and like not in FLOATS:
        for n, other in ((nodes[1], nodes[0]), (nodes[0], nodes[1])):
            if n.op == "const" and n.attrs[0] == NEUTRAL[name] and other.dtype == n.dtype:
                return V(other)
    row = SCALARS[name]
    operand = nodes[-1] if row.result == "second" else nodes[0]
    if DTYPES[operand.dtype].kind not in row.kinds:
        raise Refuse  # eager refuses it, too, in words of its own
    dtype = "bool" if row.result == "bool" else nodes[1].dtype if row.result == "second" else nodes[0].dtype
    return V(Node(name, nodes, dtype))


def cast(x: V, dtype: str) -> V:
    """`x` as `dtype`, rounding as PyTorch does."""
    if x.dtype == dtype:
        return x
    if x.node.op == "const" and (dtype in ("f32", "f64") or x.dtype not in FLOATS):
        return const(x.node.attrs[0], dtype)
    return V(Node("cast", (x.node,), dtype))


def up(x: V) -> V:
    """`x` in the dtype that arithmetic is done in: halves as `f32`."""
    return cast(x, COMPUTED.get(x.dtype, x.dtype))


def rounded(x: V, dtype: torch.dtype) -> V:
    """`x` as it comes back from memory of `dtype`: where eager keeps halves between its steps."""
    return up(cast(x, NAMES[dtype]))


def where(condition: V, a: Any, b: Any) -> V:
    return op("where", condition, a, b)


def reduce(kind: str, x: V) -> V:
    """One value for all points of the reduction dims."""
    return V(Node("reduce", (x.node,), "i64" if kind.startswith("arg") else x.dtype, (kind,)))


def scan(kind: str, x: V) -> V:
    """At each point of the reduction dims, what those up to it give."""
    return V(Node("scan", (x.node,), x.dtype, (kind,)))


def call(name: str) -> Any:
    """The function that applies one row of `SCALARS`."""
    return lambda *args: op(name, *args)


exp, log, sqrt, tanh, erf, sigmoid, maximum, minimum = map(call, ("exp", "log", "sqrt", "tanh", "erf", "sigmoid", "maximum", "minimum"))
