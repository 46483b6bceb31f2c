"""Building StableHLO one operation at a time, on tensors whose sizes are expressions.

A `Value` is an MLIR value with its sizes and its torch dtype. Each method of `Builder` makes the static operation where all that it
needs is known, and the dynamic one (`dynamic_broadcast_in_dim`, `dynamic_reshape`, ...) where it is not; lowerings need not care. Sizes
and constants are made once (`sizes.py`) and shared.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo as hlo

from pliant.export.stablehlo.sizes import Sizes
from pliant.symbolic import ops
from pliant.symbolic.expr import Expr

Size = Any  # an int, or an Expr that is not constant

ELEMENTS: dict[torch.dtype, Callable[[], Any]] = {
    torch.float32: lambda: ir.F32Type.get(),
    torch.float64: lambda: ir.F64Type.get(),
    torch.float16: lambda: ir.F16Type.get(),
    torch.bfloat16: lambda: ir.BF16Type.get(),
    torch.int8: lambda: ir.IntegerType.get_signless(8),
    torch.int16: lambda: ir.IntegerType.get_signless(16),
    torch.int32: lambda: ir.IntegerType.get_signless(32),
    torch.int64: lambda: ir.IntegerType.get_signless(64),
    torch.uint8: lambda: ir.IntegerType.get_unsigned(8),
    torch.bool: lambda: ir.IntegerType.get_signless(1),
    torch.complex64: lambda: ir.ComplexType.get(ir.F32Type.get()),
    torch.complex128: lambda: ir.ComplexType.get(ir.F64Type.get()),
}
"""The element type of each dtype that can be exported; others are refused."""

HALF = (torch.float16, torch.bfloat16)


class Value:
    """A tensor: its MLIR value, its sizes (ints and expressions) and its dtype."""

    __slots__ = ("ir", "sizes", "dtype")

    def __init__(self, value: Any, sizes: Sequence[Size], dtype: torch.dtype) -> None:
        self.ir = value
        self.sizes = tuple(sizes)
        self.dtype = dtype

    @property
    def rank(self) -> int:
        return len(self.sizes)


class Unsupported(Exception):
    """A lowering cannot do this case; the message says why."""


def alike(a: Sequence[Size], b: Sequence[Size]) -> bool:
    """Whether sizes are the same: to ask expressions with == would build one."""
    return len(a) == len(b) and all(x is y or (type(x) is int and type(y) is int and x == y) for x, y in zip(a, b))


def integers(values: Sequence[int]) -> Any:
    return ir.DenseI64ArrayAttr.get([int(v) for v in values])


def integer(value: int) -> Any:
    return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), value)


def pairs(values: Sequence[tuple[int, int]]) -> Any:
    return ir.DenseIntElementsAttr.get(np.asarray(values, np.int64).reshape(len(values), 2))  # type: ignore[call-overload]


def is_float(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point


class Builder(Sizes):
    """Makes operations at the current insertion point.

    Of the operation that is being lowered: `name`, the key of its row; `outs`, what the trace says of its results (`sizes`, `dtype`);
    `used`, which of these are read; `operand`, the first traced tensor among its arguments. `numbers`: symbols that are arguments.
    """

    def __init__(self, scope: Any, bounded: bool = False) -> None:
        super().__init__(scope)
        self.bounded = bounded
        self.outs: list[Any] = []
        self.name = ""
        self.used: list[bool] = []
        self.operand: Any = None
        self.numbers: set[str] = set()

    # -- types -----------------------------------------------------------------------------------------------------------------
    def simple(self, value: Any) -> Size:
        """A size or number in its simplest form: a Python number where the facts leave one."""
        if type(value) is not Expr:
            return value
        e = self.scope.simplify(value)
        return e if e.const is None else e.const

    def element(self, dtype: torch.dtype) -> Any:
        made = ELEMENTS.get(dtype)
        if made is None:
            raise Unsupported(f"tensors of {dtype} have no counterpart here")
        return made()

    def type(self, sizes: Sequence[Size], dtype: torch.dtype) -> Any:
        shape = [s if type(s) is int else ir.ShapedType.get_dynamic_size() for s in sizes]
        return ir.RankedTensorType.get(shape, self.element(dtype), self.bounds(sizes) if self.bounded else None)

    def bounds(self, sizes: Sequence[Size]) -> Any:
        """The `#stablehlo.bounds` of sizes that have them, None if none has."""
        unknown = ir.ShapedType.get_dynamic_size()
        found = [unknown] * len(sizes)
        for i, s in enumerate(sizes):
            if type(s) is Expr and (limits := self.scope.range(s)) is not None and limits[1] != math.inf:
                found[i] = limits[1]
        return hlo.TypeExtensions.get(found) if any(n != unknown for n in found) else None

    # -- operations ------------------------------------------------------------------------------------------------------------
    def op(self, name: str, operands: Sequence[Any], sizes: Sequence[Size], dtype: torch.dtype, **attributes: Any) -> Value:
        """One operation with one result. `operands`: values of either kind."""
        raw = [v.ir if type(v) is Value else v for v in operands]
        made = ir.Operation.create(name if "." in name else f"stablehlo.{name}", [self.type(sizes, dtype)], raw, attributes)
        return Value(made.results[0], sizes, dtype)

    def same(self, name: str, *operands: Value, dtype: torch.dtype | None = None, **attributes: Any) -> Value:
        """An elementwise operation on tensors of equal sizes."""
        x = operands[0]
        return self.op(name, operands, x.sizes, dtype or x.dtype, **attributes)

    def compare(self, direction: str, x: Value, y: Value) -> Value:
        kind = "FLOAT" if is_float(x.dtype) or x.dtype.is_complex else "UNSIGNED" if x.dtype in (torch.bool, torch.uint8) else "SIGNED"
        return self.same(
            "compare", x, y, dtype=torch.bool,
            comparison_direction=hlo.ComparisonDirectionAttr.get(direction), compare_type=hlo.ComparisonTypeAttr.get(kind),
        )  # fmt: skip

    def select(self, p: Value, x: Value, y: Value) -> Value:
        return self.op("select", (p, x, y), x.sizes, x.dtype)

    def convert(self, x: Value, dtype: torch.dtype) -> Value:
        if x.dtype == dtype:
            return x
        if dtype == torch.bool:
            return self.compare("NE", x, self.full(0, x.sizes, x.dtype))
        return self.same("convert", x, dtype=dtype)

    # -- constants and scalars -------------------------------------------------------------------------------------------------
    def splat(self, value: Any, sizes: Sequence[int], dtype: torch.dtype) -> Value:
        """A constant of static sizes, all of one value."""
        key = ("splat", repr(value), tuple(sizes), dtype)
        found = self.memo.get(key)
        if found is None:
            if dtype.is_complex:
                part = torch.float32 if dtype == torch.complex64 else torch.float64
                z = complex(value)
                return self.op("complex", (self.splat(z.real, sizes, part), self.splat(z.imag, sizes, part)), sizes, dtype)
            element = self.element(dtype)
            attr: Any
            if is_float(dtype):
                attr = ir.FloatAttr.get(element, float(value))
            else:
                attr = ir.IntegerAttr.get(element, int(bool(value)) if dtype == torch.bool else int(value))
            with self.outside():
                found = self.op("constant", (), sizes, dtype, value=ir.DenseElementsAttr.get_splat(self.type(sizes, dtype), attr))
            self.memo[key] = found
        return found

    def array(self, data: np.ndarray, dtype: torch.dtype) -> Value:
        """A constant with this data."""
        if data.size and not np.any(data != data.flat[0]):
            return self.splat(data.flat[0].item(), data.shape, dtype)
        raw = np.packbits(data.reshape(-1), bitorder="little") if dtype == torch.bool else np.ascontiguousarray(data)
        if dtype == torch.bool and data.size < 8:
            raw = np.asarray(data, np.bool_)
        attr = ir.DenseElementsAttr.get(raw, type=self.element(dtype), shape=data.shape)  # type: ignore[call-overload]
        return self.op("constant", (), data.shape, dtype, value=attr)

    def full(self, value: Any, sizes: Sequence[Size], dtype: torch.dtype) -> Value:
        """A tensor filled with a number: a Python one, an expression, or a 0-d `Value`."""
        value = self.simple(value)
        if type(value) is Value:
            return self.broadcast(self.convert(value, dtype), sizes, ())
        if type(value) is Expr:
            return self.broadcast(self.convert(self.number(value), dtype), sizes, ())
        if all(type(s) is int for s in sizes):
            return self.splat(value, sizes, dtype)
        key = ("full", repr(value), tuple(sizes), dtype)
        found = self.memo.get(key)
        if found is None:
            with self.outside():
                found = self.memo[key] = self.broadcast(self.splat(value, (), dtype), sizes, ())
        return found

    def number(self, e: Any, dtype: torch.dtype | None = None) -> Value:
        """A number as a 0-d tensor: of int64, float64 or bool, converted to `dtype`."""
        e = self.simple(e)
        kind = e.kind if type(e) is Expr else type(e)
        own = {int: torch.int64, float: torch.float64, bool: torch.bool}[kind]
        value = Value(self.scalar(e), (), own) if type(e) is Expr else self.splat(e, (), own)
        return value if dtype is None else self.convert(value, dtype)

    # -- shape -----------------------------------------------------------------------------------------------------------------
    def broadcast(self, x: Value, sizes: Sequence[Size], dims: Sequence[int]) -> Value:
        """Dim i of `x` becomes dim `dims[i]`; the others, and those of size 1, are repeated."""
        sizes = tuple(map(self.simple, sizes))
        if alike(sizes, x.sizes) and list(dims) == list(range(len(sizes))):
            return x
        attribute = integers(dims)
        if all(type(s) is int for s in sizes) and all(type(s) is int for s in x.sizes):
            return self.op("broadcast_in_dim", (x,), sizes, x.dtype, broadcast_dimensions=attribute)
        return self.op("dynamic_broadcast_in_dim", (x, self.shape(sizes)), sizes, x.dtype, broadcast_dimensions=attribute)

    def expand(self, x: Value, sizes: Sequence[Size]) -> Value:
        """Broadcast by PyTorch's rule: dims are aligned at the end."""
        return self.broadcast(x, sizes, range(len(sizes) - x.rank, len(sizes)))

    def reshape(self, x: Value, sizes: Sequence[Size]) -> Value:
        sizes = tuple(map(self.simple, sizes))
        if alike(sizes, x.sizes):
            return x
        if all(type(s) is int for s in sizes) and all(type(s) is int for s in x.sizes):
            return self.op("reshape", (x,), sizes, x.dtype)
        return self.op("dynamic_reshape", (x, self.shape(sizes)), sizes, x.dtype)

    def transpose(self, x: Value, order: Sequence[int]) -> Value:
        if list(order) == list(range(x.rank)):
            return x
        return self.op("transpose", (x,), [x.sizes[d] for d in order], x.dtype, permutation=integers(order))

    def slice(self, x: Value, dim: int, start: Size, limit: Size, step: int = 1, size: Size = None) -> Value:
        """Elements start, start + step, ... before `limit` of one dim. `size`: how many these are, if known in a better form."""
        start, limit = self.simple(start), self.simple(limit)
        n = self.simple(ops.ceildiv(limit - start, step)) if size is None else self.simple(size)
        if type(start) is int and start == 0 and step == 1 and alike((limit,), (x.sizes[dim],)):
            return x
        sizes = [*x.sizes[:dim], n, *x.sizes[dim + 1 :]]
        starts, limits, steps = [0] * x.rank, list(x.sizes), [1] * x.rank
        starts[dim], limits[dim], steps[dim] = start, limit, step
        if all(type(s) is int for s in (*starts, *limits)):
            attributes = dict(start_indices=integers(starts), limit_indices=integers(limits), strides=integers(steps))
            return self.op("slice", (x,), sizes, x.dtype, **attributes)
        return self.op("real_dynamic_slice", (x, self.shape(starts), self.shape(limits), self.shape(steps)), sizes, x.dtype)

    def pad(self, x: Value, low: Sequence[Size], high: Sequence[Size], value: Any = 0, interior: Sequence[int] | None = None) -> Value:
        """Edges and gaps filled with `value`; negative amounts cut."""
        low, high, interior = list(map(self.simple, low)), list(map(self.simple, high)), list(interior or [0] * x.rank)
        if all(type(v) is int and v == 0 for v in (*low, *high, *interior)):
            return x
        sizes = [
            self.simple(s + a + b + (ops.max_(s - 1, 0) * k if k else 0)) for s, a, b, k in zip(x.sizes, low, high, interior)
        ]  # fmt: skip
        fill = value if type(value) is Value else self.full(value, (), x.dtype)
        if all(type(v) is int for v in (*low, *high)):
            attributes = dict(edge_padding_low=integers(low), edge_padding_high=integers(high), interior_padding=integers(interior))
            return self.op("pad", (x, fill), sizes, x.dtype, **attributes)
        return self.op("dynamic_pad", (x, fill, self.shape(low), self.shape(high), self.shape(interior)), sizes, x.dtype)

    def concat(self, xs: Sequence[Value], dim: int) -> Value:
        if len(xs) == 1:
            return xs[0]
        sizes = list(xs[0].sizes)
        sizes[dim] = self.simple(ops.sum_([x.sizes[dim] for x in xs]))
        return self.op("concatenate", xs, sizes, xs[0].dtype, dimension=integer(dim))

    def iota(self, sizes: Sequence[Size], dim: int, dtype: torch.dtype = torch.int64) -> Value:
        sizes = tuple(map(self.simple, sizes))
        if all(type(s) is int for s in sizes):
            return self.op("iota", (), sizes, dtype, iota_dimension=integer(dim))
        return self.op("dynamic_iota", (self.shape(sizes),), sizes, dtype, iota_dimension=integer(dim))

    # -- structured operations -------------------------------------------------------------------------------------------------
    def region(self, op: Any, index: int, types: Sequence[Any], body: Callable[..., Sequence[Value]], dtypes: Sequence[torch.dtype],
               sizes: Sequence[Sequence[Size]] | None = None) -> None:  # fmt: skip
        """Fill a region of `op` with one block."""
        block = op.regions[index].blocks.append(*types)
        self.inside.append(op)
        with ir.InsertionPoint(block):
            shapes = sizes or [()] * len(types)
            results = body(*[Value(a, s, d) for a, s, d in zip(block.arguments, shapes, dtypes)])
            ir.Operation.create("stablehlo.return", [], [r.ir for r in results])
        self.inside.pop()

    def reduce(self, xs: Sequence[Value], inits: Sequence[Any], dims: Sequence[int], body: Callable[..., Sequence[Value]]) -> list[Value]:
        """`body(*accumulated, *elements)` over `dims`, which go away."""
        sizes = [s for i, s in enumerate(xs[0].sizes) if i not in dims]
        starts = [i if type(i) is Value else self.full(i, (), x.dtype) for i, x in zip(inits, xs)]
        types = [self.type(sizes, x.dtype) for x in xs]
        operands = [v.ir for v in (*xs, *starts)]
        made = ir.Operation.create("stablehlo.reduce", types, operands, {"dimensions": integers(sorted(dims))}, regions=1)
        dtypes = [x.dtype for x in xs] * 2
        self.region(made, 0, [self.type((), d) for d in dtypes], body, dtypes)
        return [Value(r, sizes, x.dtype) for r, x in zip(made.results, xs)]

    def fold(self, name: str, x: Value, init: Any, dims: Sequence[int]) -> Value:
        """A reduction by one operation."""
        return self.reduce([x], [init], dims, lambda a, b: [self.same(name, a, b)])[0] if dims else x

    def window(self, xs: Sequence[Value], inits: Sequence[Any], sizes: Sequence[Size], kernel: Sequence[int], stride: Sequence[int],
               padding: Sequence[tuple[int, int]], dilation: Sequence[int],
               body: Callable[..., Sequence[Value]]) -> list[Value]:  # fmt: skip
        """`body` over windows of all dims; `sizes` are those of the result."""
        starts = [i if type(i) is Value else self.full(i, (), x.dtype) for i, x in zip(inits, xs)]
        attributes = dict(
            window_dimensions=integers(kernel), window_strides=integers(stride), window_dilations=integers(dilation), padding=pairs(padding)
        )
        types = [self.type(sizes, x.dtype) for x in xs]
        made = ir.Operation.create("stablehlo.reduce_window", types, [v.ir for v in (*xs, *starts)], attributes, regions=1)
        dtypes = [x.dtype for x in xs] * 2
        self.region(made, 0, [self.type((), d) for d in dtypes], body, dtypes)
        return [Value(r, sizes, x.dtype) for r, x in zip(made.results, xs)]

    def dot(self, x: Value, y: Value, batch: tuple[Sequence[int], Sequence[int]], contract: tuple[Sequence[int], Sequence[int]]) -> Value:
        """Batch dims, then the free ones of `x`, then those of `y`. Sums of halves are made in float32 and rounded once."""
        free = [
            [s for i, s in enumerate(v.sizes) if i not in (*b, *c)] for v, b, c in ((x, batch[0], contract[0]), (y, batch[1], contract[1]))
        ]
        dims = hlo.DotDimensionNumbers.get(list(batch[0]), list(batch[1]), list(contract[0]), list(contract[1]))
        sizes = [*(x.sizes[d] for d in batch[0]), *free[0], *free[1]]
        wide = torch.float32 if x.dtype in HALF else x.dtype
        return self.convert(self.op("dot_general", (x, y), sizes, wide, dot_dimension_numbers=dims), x.dtype)

    def sort(self, xs: Sequence[Value], dim: int, before: Callable[..., Value]) -> list[Value]:
        """A stable sort of several tensors by `before(a0, b0, a1, b1, ...)`."""
        attributes = dict(dimension=integer(dim), is_stable=ir.BoolAttr.get(True))
        types = [self.type(x.sizes, x.dtype) for x in xs]
        made = ir.Operation.create("stablehlo.sort", types, [x.ir for x in xs], attributes, regions=1)
        dtypes = [d for x in xs for d in (x.dtype, x.dtype)]
        self.region(made, 0, [self.type((), d) for d in dtypes], lambda *a: [before(*a)], dtypes)
        return [Value(r, x.sizes, x.dtype) for r, x in zip(made.results, xs)]

    def loop(self, starts: Sequence[Value], test: Callable[..., Value], body: Callable[..., Sequence[Value]]) -> list[Value]:
        """While `test(*state)`: `state = body(*state)`."""
        types = [v.ir.type for v in starts]
        made = ir.Operation.create("stablehlo.while", types, [v.ir for v in starts], regions=2)
        dtypes, sizes = [v.dtype for v in starts], [v.sizes for v in starts]
        self.region(made, 0, types, lambda *s: [test(*s)], dtypes, sizes)
        self.region(made, 1, types, body, dtypes, sizes)
        return [Value(r, v.sizes, v.dtype) for r, v in zip(made.results, starts)]

    def gather(self, x: Value, starts: Value, sizes: Sequence[Size], offset: Sequence[int], mapped: Sequence[int],
               slices: Sequence[Size]) -> Value:  # fmt: skip
        """Slices of `x` at the positions that the last dim of `starts` gives for the dims `mapped`, which are collapsed."""
        slices = [self.at_most(n, x.sizes[d]) if d in mapped else n for d, n in enumerate(slices)]
        dims = hlo.GatherDimensionNumbers.get(list(offset), sorted(mapped), [], [], list(mapped), starts.rank - 1)
        attributes = dict(dimension_numbers=dims, indices_are_sorted=ir.BoolAttr.get(False))
        if all(type(s) is int for s in slices):
            return self.op("gather", (x, starts), sizes, x.dtype, slice_sizes=integers(slices), **attributes)
        return self.op("dynamic_gather", (x, starts, self.shape(slices, starts.dtype)), sizes, x.dtype, **attributes)

    def at_most(self, n: Size, size: Size) -> Size:
        """`n` elements, or as many as a dim has that may be empty: nothing is read then, but the operation must be valid."""
        low = size if type(size) is int else limits[0] if (limits := self.scope.range(size)) is not None else 0
        return n if low >= 1 else self.simple(ops.min_(n, size))

    def scatter(self, x: Value, starts: Value, updates: Value, window: Sequence[int], mapped: Sequence[int],
                body: Callable[[Value, Value], Value]) -> Value:  # fmt: skip
        """`x` with `updates` combined into the slices that `gather` would have read."""
        dims = hlo.ScatterDimensionNumbers.get(list(window), sorted(mapped), [], [], list(mapped), starts.rank - 1)
        no = ir.BoolAttr.get(False)
        attributes = dict(scatter_dimension_numbers=dims, indices_are_sorted=no, unique_indices=no)
        made = ir.Operation.create(
            "stablehlo.scatter", [self.type(x.sizes, x.dtype)], [x.ir, starts.ir, updates.ir], attributes, regions=1
        )
        self.region(made, 0, [self.type((), x.dtype)] * 2, lambda a, b: [body(a, b)], [x.dtype] * 2)
        return Value(made.results[0], x.sizes, x.dtype)

    @contextmanager
    def outside(self) -> Iterator[None]:
        """At a place where what is made can be shared: before the outermost operation whose region is being filled."""
        if self.inside:
            with ir.InsertionPoint(self.inside[0]):
                inside, self.inside = self.inside, []
                yield
                self.inside = inside
        else:
            yield
