"""Growing an ONNX graph: one method makes a node, shares it with an equal one, and casts where ONNX Runtime has no kernel for a dtype.

`Tensor` is what the rows of the operator tables get for a traced tensor: the ONNX value with the dtype and the sizes that the program
knows. Sizes are ints and expressions; `sizes.py` makes nodes of these.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir
import torch
from onnx_ir import tensor_adapters

from pliant.errors import PliantError
from pliant.export.onnx.kernels import KERNELS, carrier
from pliant.graph.traced import TracedTensor
from pliant.lower import liveness
from pliant.symbolic.expr import Expr

Size = int | Expr
RANDOM = frozenset(("RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Bernoulli", "Multinomial"))
HALVES = (torch.float16, torch.bfloat16)


class NotExpressible(PliantError):
    """An operator, or a use of one, that ONNX has no words for: `to_onnx` names it with the user's line."""


@dataclass(frozen=True, slots=True, eq=False)
class Tensor:
    """A traced tensor in the graph."""

    value: ir.Value
    dtype: torch.dtype
    sizes: tuple[Size, ...]

    @property
    def rank(self) -> int:
        return len(self.sizes)


def onnx_dtype(dtype: torch.dtype) -> ir.DataType:
    return tensor_adapters.from_torch_dtype(dtype)


def torch_dtype(value: ir.Value) -> torch.dtype:
    assert value.dtype is not None
    return tensor_adapters.to_torch_dtype(value.dtype)


def compute(dtype: torch.dtype) -> torch.dtype:
    """Where PyTorch's kernels compute: half precision is float."""
    return torch.float32 if dtype in HALVES else dtype


class Context:
    """What belongs to one program: its scope, the values of its tensors, its sizes."""

    def __init__(self, scope: Any) -> None:
        self.scope = scope
        self.values: dict[int, Tensor] = {}  # by vid
        self.live: set[int] = set()  # vids that something reads
        self.sizes: Any = None

    def saved(self) -> tuple:
        return dict(self.values), dict(self.sizes.of), dict(self.sizes.later)

    def restore(self, saved: tuple) -> None:
        """Forget what a branch has made: nothing outside of it sees that."""
        values, of, later = saved
        self.values = dict(values)
        self.sizes.of, self.sizes.later = dict(of), dict(later)


class Graph:
    """The nodes and constants so far. `site` is the user's line that they are made for; `narrowed` tells where float64 became float32."""

    def __init__(self, opset: int) -> None:
        self.opset = opset
        self.nodes: list[ir.Node] = []
        self.initializers: list[ir.Value] = []
        self.known: dict[tuple, tuple[ir.Value, ...]] = {}
        self.constants: dict[tuple, ir.Value] = {}
        self.used: list[ir.Value] = []  # what nodes read, those of branches too
        self.names: set[str] = set()
        self.narrowed: dict[str, None] = {}
        self.site = ""
        self.context: Context = Context(None)

    @property
    def scope(self) -> Any:
        return self.context.scope

    @property
    def values(self) -> dict[int, Tensor]:
        return self.context.values

    @property
    def live(self) -> set[int]:
        return self.context.live

    @property
    def sizes(self) -> Any:
        return self.context.sizes

    @contextmanager
    def inside(self) -> Iterator[list[ir.Node]]:
        """Nodes go to a graph within this one, which sees what is here already."""
        nodes, known, context = self.nodes, self.known, self.context
        self.nodes, self.known = [], dict(known)
        try:
            yield self.nodes
        finally:
            self.nodes, self.known, self.context = nodes, known, context

    def choose(self, condition: ir.Value, yes: ir.Graph, no: ir.Graph, dtypes: Sequence[torch.dtype]) -> tuple[ir.Value, ...]:
        """The outputs of one of two graphs."""
        outs = [self.value(d, f"if_{len(self.nodes)}") for d in dtypes]
        attrs = [ir.AttrGraph("then_branch", yes), ir.AttrGraph("else_branch", no)]
        self.nodes.append(ir.Node("", "If", [condition], attrs, outputs=outs, name=self.name("If")))
        self.used.append(condition)
        return tuple(outs)

    # names and values ----------------------------------------------------------------------------------------------------------
    def name(self, wanted: str) -> str:
        """`wanted`, or that with a number if it is taken."""
        found, n = wanted, 1
        while found in self.names:
            found, n = f"{wanted}_{n}", n + 1
        self.names.add(found)
        return found

    def value(self, dtype: torch.dtype, name: str) -> ir.Value:
        return ir.Value(name=self.name(name), type=ir.TensorType(onnx_dtype(dtype)))

    def const(self, data: Any, dtype: torch.dtype = torch.int64) -> ir.Value:
        """A constant, from a number or nested lists."""
        t = torch.tensor(data, dtype=dtype)
        key = (dtype, tuple(t.shape), t.reshape(-1).contiguous().view(torch.uint8).numpy().tobytes() if t.numel() else b"")
        found = self.constants.get(key)
        if found is None:
            v = self.value(dtype, f"const_{len(self.constants)}")
            v.shape = ir.Shape(list(t.shape))
            v.const_value = tensor_adapters.TorchTensor(t, name=v.name)
            self.initializers.append(v)
            found = self.constants[key] = v
        return found

    def ints(self, *numbers: int) -> ir.Value:
        """A vector of int64."""
        return self.const(list(numbers))

    # nodes ---------------------------------------------------------------------------------------------------------------------
    def op(self, op_type: str, *inputs: ir.Value | None, **attrs: Any) -> ir.Value:
        """The first result of a node, cast back to the dtype of its operands."""
        return self.ops(op_type, 1, *inputs, **attrs)[0]

    def ops(self, op_type: str, n: int, *inputs: ir.Value | None, dtypes: Sequence[torch.dtype] = (), **attrs: Any) -> tuple[ir.Value, ...]:
        """A node with n results. `dtypes`: of the results; else the first has that of the first operand."""
        row = KERNELS.get(op_type)
        given = list(inputs)
        back = None
        if row is not None:
            at = [i for i in (row.at if row.at is not None else range(len(given))) if i < len(given) and given[i] is not None]
            have = torch_dtype(given[at[0]])  # type: ignore[arg-type]
            use = carrier(op_type, have)
            if use is None:
                raise NotExpressible(f"ONNX Runtime has no kernel of {op_type} for {have}")
            if use is not have:
                if have is torch.float64:
                    self.narrowed[op_type] = None
                for i in at:
                    given[i] = self.cast(given[i], use)  # type: ignore[arg-type]
                if row.same:
                    back, dtypes = have, [use, *dtypes[1:]]
        outs = self.node(op_type, given, n, dtypes, attrs)
        return outs if back is None else (self.cast(outs[0], back), *outs[1:])

    def node(
        self, op_type: str, inputs: list, n: int, dtypes: Sequence[torch.dtype], attrs: dict[str, Any], fresh: bool = False
    ) -> tuple[ir.Value, ...]:
        while inputs and inputs[-1] is None:
            inputs.pop()
        key = (op_type, n, *(id(v) for v in inputs), *((k, tuple(v) if isinstance(v, list) else v) for k, v in sorted(attrs.items())))
        found = self.known.get(key) if op_type not in RANDOM and not fresh else None
        if found is not None:
            return found
        outs = []
        for i in range(n):
            dtype = dtypes[i] if i < len(dtypes) else RESULT.get(op_type) or torch_dtype(inputs[CARRIED.get(op_type, 0)])
            outs.append(self.value(dtype, f"{op_type.lower()}_{len(self.used)}"))
        made = ir.node(op_type, inputs, attrs, outputs=outs, name=self.name(op_type))
        if self.site:
            made.metadata_props["pliant.site"] = self.site
        self.nodes.append(made)
        self.used += [v for v in inputs if v is not None]
        if op_type not in RANDOM and not fresh:
            self.known[key] = tuple(outs)
        return tuple(outs)

    def cast(self, v: ir.Value, dtype: torch.dtype) -> ir.Value:
        if torch_dtype(v) is dtype:
            return v
        if v.const_value is not None and v.const_value.size == 1 and id(v) not in self.values:
            t = torch.from_numpy(np.array(v.const_value.numpy())) if torch_dtype(v) is not torch.bfloat16 else None
            if t is not None:
                return self.const(t.to(dtype).tolist(), dtype)
        made = v.producer()
        if made is not None and made.op_type == "Cast":
            of = made.inputs[0]
            if of is not None and torch_dtype(of) is dtype and torch_dtype(v) in EXACT.get(dtype, ()):
                return of  # ONNX Runtime drops such a pair, too, and forgets that graphs within this one read it
        return self.node("Cast", [v], 1, [dtype], {"to": int(onnx_dtype(dtype))})[0]

    # arguments of ATen operations ------------------------------------------------------------------------------------------------
    def tensor(self, t: TracedTensor) -> Tensor:
        found = self.values.get(t.vid)
        if found is None:
            raise NotExpressible(f"%{t.vid} is neither an input nor the result of an operation that was exported")
        return found

    def size(self, s: Any) -> Size:
        """A size or number of the program: an int, or the expression that it is."""
        e = liveness.number(s)
        if e is None:
            return s
        e = self.scope.simplify(e)
        return e.const if e.const is not None else e

    def argument(self, x: Any) -> Any:
        """An argument as the rows get it: tensors as `Tensor`, symbolic numbers as expressions."""
        if type(x) is TracedTensor:
            return self.tensor(x)
        if isinstance(x, (list, tuple)):
            return [self.argument(v) for v in x]
        return self.size(x) if isinstance(x, (torch.SymInt, torch.SymFloat, torch.SymBool, Expr)) else x

    def number(self, x: Any, dtype: torch.dtype) -> ir.Value:
        """A number as a 0-d tensor."""
        return self.cast(self.sizes.scalar(x), dtype) if isinstance(x, Expr) else self.const(x, dtype)

    def operand(self, x: Any, dtype: torch.dtype) -> ir.Value:
        """A tensor or a number, in a dtype."""
        return self.cast(x.value, dtype) if isinstance(x, Tensor) else self.number(x, dtype)

    def reshape(self, v: ir.Value, sizes: Sequence[Size]) -> ir.Value:
        return self.op("Reshape", v, self.sizes.vector(sizes), allowzero=1)

    def transpose(self, v: ir.Value, perm: Sequence[int]) -> ir.Value:
        return v if list(perm) == list(range(len(perm))) else self.op("Transpose", v, perm=list(perm))

    def wants(self, op: Any, i: int) -> bool:
        """Whether something reads the i-th result of an operation."""
        t = op.outs[i]
        return type(t) is TracedTensor and t.vid in self.live


EXACT: dict[torch.dtype, tuple[torch.dtype, ...]] = {
    torch.float16: (torch.float32, torch.float64), torch.bfloat16: (torch.float32, torch.float64), torch.float32: (torch.float64,),
    torch.int8: (torch.int16, torch.int32, torch.int64), torch.int16: (torch.int32, torch.int64), torch.int32: (torch.int64,),
    torch.uint8: (torch.int16, torch.int32, torch.int64),
}  # fmt: skip
"""The dtypes that hold every value of this one: there and back is the value itself."""
RESULT: dict[str, torch.dtype] = dict.fromkeys(
    "Equal Greater GreaterOrEqual Less LessOrEqual IsNaN IsInf And Or Xor Not".split(), torch.bool
) | dict.fromkeys("Shape Size NonZero ArgMax ArgMin".split(), torch.int64)
"""Results of another dtype than the first operand's."""
CARRIED = {"Where": 1}
"""The operand whose dtype the result has, where that is not the first."""
