"""Matrix products that segments of kernels call themselves: which operations are one, over which memory.

Operands are matrices of f32, or of halves, whose rows or columns lie dense, a known distance apart; views are their root's memory. A bias
is part of the product.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from pliant.graph.operators import Column
from pliant.graph.originals import torch
from pliant.graph.traced import TracedTensor, is_lazy
from pliant.lower.loop_nest import Facts, Size
from pliant.native import PRODUCT_FLAGS

aten = torch.ops.aten
Batch = tuple[Size, Size, Size]
"""Something of each dim of a batch, the innermost last."""
ONE: Batch = (1, 1, 1)
TRANSPOSED_A, TRANSPOSED_B, HAS_BIAS = (PRODUCT_FLAGS[name] for name in ("TRANSPOSED_A", "TRANSPOSED_B", "HAS_BIAS"))
HALVES = {torch.float16: PRODUCT_FLAGS["F16"], torch.bfloat16: PRODUCT_FLAGS["BF16"]}


@dataclass(slots=True, eq=False)
class Operand:
    """A batch of matrices in the memory of `root`, `offset` elements from where its data begins.

    Rows are dense and `distance` apart; if `transposed`, columns are. `steps` are the distances of matrices along the dims of the batch.
    """

    root: TracedTensor
    offset: Size
    rows: Size
    columns: Size
    distance: Size
    transposed: bool
    steps: Batch = (0, 0, 0)


@dataclass(slots=True, eq=False)
class Gemm:
    """`out = a @ b` for each of `batch`, and `bias` (its memory, from this element on) added to every row. `out` is dense, row by row."""

    a: Operand
    b: Operand
    out: TracedTensor
    batch: Batch
    bias: tuple[TracedTensor, Size] | None = None

    @property
    def buffers(self) -> list[TracedTensor]:
        return [self.a.root, self.b.root, self.out, *([] if self.bias is None else [self.bias[0]])]

    @property
    def sizes(self) -> list[Size]:
        """The batch's dims, m, n, k, distances of a and b, steps of a and b, offsets of a, b and the bias."""
        a, b = self.a, self.b
        offsets = [a.offset, b.offset, 0 if self.bias is None else self.bias[1]]
        return [*self.batch, a.rows, b.columns, a.columns, a.distance, b.distance, *a.steps, *b.steps, *offsets]

    @property
    def flags(self) -> int:
        of_operands = TRANSPOSED_A * self.a.transposed + TRANSPOSED_B * self.b.transposed + HAS_BIAS * (self.bias is not None)
        return of_operands + HALVES.get(self.out.dtype, 0)


@dataclass(slots=True, eq=False)
class Routine:
    """A call of a routine of the library. `sizes` are the fields of its struct there, of the same name, then the offset of each operand in
    its elements."""

    operands: list[TracedTensor]  # roots
    out: TracedTensor
    sizes: list[Size]

    @property
    def buffers(self) -> list[TracedTensor]:
        return list(dict.fromkeys([*self.operands, self.out]))


class Products:
    """Recognizes matrix products among operations."""

    def __init__(self, facts: Facts, root: Callable[[TracedTensor], TracedTensor], target: Any) -> None:
        """`target`: what it has products of, and of which devices."""
        self.facts = facts
        self.root = root
        self.target = target
        self.dtypes = target.product_dtypes()

    def plain(self, t: TracedTensor) -> bool:
        """Is it of f32, in memory that can be read?"""
        return t.dtype is torch.float32 and self.known(t)

    def known(self, t: TracedTensor) -> bool:
        """The same of all dtypes that there are products for."""
        r = self.root(t)
        dense = t.layout is torch.strided and r.layout is torch.strided and not is_lazy(t)
        return dense and t.dtype is r.dtype and t.dtype in self.dtypes and self.target.supports(t.device) and self.target.supports(r.device)

    def linear(self, out: TracedTensor, x: TracedTensor, w: TracedTensor, bias: TracedTensor | None = None) -> list[Gemm] | None:
        if len(w.sizes) != 2 or not x.sizes:
            return None
        a, b = self.rows(x), self.matrix(w, swapped=True)
        return self.product(out, a, b, ONE, bias)

    def mm(self, out: TracedTensor, x: TracedTensor, y: TracedTensor) -> list[Gemm] | None:
        return self.product(out, self.matrix(x), self.matrix(y), ONE, None)

    def addmm(self, out: TracedTensor, bias: TracedTensor, x: TracedTensor, y: TracedTensor) -> list[Gemm] | None:
        return self.product(out, self.matrix(x), self.matrix(y), ONE, bias)

    def matmul(self, out: TracedTensor, x: TracedTensor, y: TracedTensor) -> list[Gemm] | None:
        """Batches of matrices along the same dims, as pattern fusion leaves them."""
        lead = len(out.sizes) - 2
        if not 1 <= lead <= 3 or len(x.sizes) != len(y.sizes) or len(x.sizes) != lead + 2:
            return None
        batch = self.of_batch(out.sizes, 1)
        if not all(all(map(self.facts.surely_equal, self.of_batch(t.sizes, 1), batch)) for t in (x, y)):
            return None
        return self.product(out, self.matrix(x), self.matrix(y), batch, None)

    def of_batch(self, values: Any, rest: int) -> Batch:
        """Those of `values` that belong to a batch of matrices, and `rest` for the dims that there are not."""
        found = [rest, rest, rest, *map(self.facts.size, values[:-2])]
        return found[-3], found[-2], found[-1]

    def product(self, out: TracedTensor, a: Operand | None, b: Operand | None, batch: Batch, bias: Any) -> list[Gemm] | None:
        if a is None or b is None or self.root(out) is not out:
            return None
        a, batch, b = self.merged(a, batch, b)
        row = None
        if bias is not None:
            row = self.row(bias, b.columns)
            if row is None:
                return None
        return [Gemm(a, b, out, batch, row)]

    def merged(self, a: Operand, batch: Batch, b: Operand) -> tuple[Operand, Batch, Operand]:
        """Rows that are multiplied by the same matrix, as those of heads that share keys, become one matrix."""
        apart, shared = a.steps[2], type(b.steps[2]) is int and b.steps[2] == 0
        if not shared or is_one(batch[2]) or not is_one(a.rows) or a.transposed or not self.facts.at_least(apart, a.columns):
            return a, batch, b
        a = replace(a, rows=batch[2], distance=apart, steps=(0, *a.steps[:2]))
        return a, (1, *batch[:2]), replace(b, steps=(0, *b.steps[:2]))

    def offset(self, t: TracedTensor) -> Size:
        return self.facts.difference(self.facts.size(t.offset), self.facts.size(self.root(t).offset))

    def matrix(self, t: TracedTensor, swapped: bool = False) -> Operand | None:
        """The last two dims of `t` (`swapped`: the other way round), those before them being the batch."""
        size, facts = self.facts.size, self.facts
        rows, columns = map(size, t.sizes[-2:])
        down, along = map(size, t.strides[-2:])
        steps = self.of_batch(t.strides, 0)
        if swapped:
            rows, columns, down, along = columns, rows, along, down
        if is_one(along) and facts.at_least(down, columns):
            return Operand(self.root(t), self.offset(t), rows, columns, down, False, steps)
        if is_one(down) and facts.at_least(along, rows):
            return Operand(self.root(t), self.offset(t), rows, columns, along, True, steps)
        return None

    def rows(self, t: TracedTensor) -> Operand | None:
        """`t` as a matrix of all its rows."""
        sizes, strides = [*map(self.facts.size, t.sizes)], [*map(self.facts.size, t.strides)]
        if not is_one(strides[-1]):
            return self.matrix(t) if len(sizes) == 2 else None
        lead = range(len(sizes) - 2)
        if not all(self.facts.equal(strides[i], self.facts.product((sizes[i + 1], strides[i + 1]))) for i in lead):
            return None
        distance = strides[-2] if len(sizes) > 1 else sizes[-1]
        if not self.facts.at_least(distance, sizes[-1]):
            return None
        return Operand(self.root(t), self.offset(t), self.facts.product(sizes[:-1]), sizes[-1], distance, False)

    def row(self, bias: TracedTensor, columns: Size) -> tuple[TracedTensor, Size] | None:
        """A vector that is added to every row of a matrix with `columns`; None if it is no such vector."""
        size = self.facts.size
        if len(bias.sizes) != 1 or not self.facts.equal(size(bias.sizes[0]), columns) or not is_one(size(bias.strides[0])):
            return None
        return self.root(bias), self.offset(bias)


def is_one(stride: Size) -> bool:
    return type(stride) is int and stride == 1


def reduced_precision_is_off() -> bool:
    """Nobody asked for products of fewer bits."""
    chosen = (torch.backends.mkldnn.matmul.fp32_precision, torch.backends.fp32_precision)
    return torch.get_float32_matmul_precision() == "highest" and all(p in ("none", "ieee") for p in chosen)


def product(form: Callable) -> Callable[[Products, Any, set[int]], list[Gemm] | None]:
    """The row of an operator that is a matrix product in this form."""

    def steps(p: Products, op: Any, read: set[int]) -> list[Gemm] | None:
        if op.kwargs or len(op.outs) != 1 or not isinstance(op.outs[0], TracedTensor):
            return None
        operands = [t for t in op.args if isinstance(t, TracedTensor)]
        if len(operands) != len([a for a in op.args if a is not None]) or not all(map(p.known, (*operands, op.outs[0]))):
            return None
        return form(p, op.outs[0], *operands) if op.outs[0].dense and reduced_precision_is_off() else None

    return steps


LIBRARY = Column("library")
"""`steps(products, op, read)`: the library calls that may run in place of an operation, None where there are none; `read`: the results that
somebody reads, by vid."""
LIBRARY.update(
    {
        aten.linear.default: product(Products.linear),
        aten.mm.default: product(Products.mm),
        aten.addmm.default: product(Products.addmm),
        aten.bmm.default: product(Products.matmul),
        aten.matmul.default: product(Products.matmul),
    }
)
