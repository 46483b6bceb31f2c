"""A program as an ONNX model: inputs, outputs and weights by the program's names, and one row of the tables per operation."""

from __future__ import annotations

import json
import os
import pathlib
from collections.abc import Callable
from typing import Any

import onnx_ir as ir
import torch
from onnx_ir import tensor_adapters

from pliant.errors import PliantError
from pliant.export.onnx import elementwise, indexing, networks, pooling, reductions, shapes
from pliant.export.onnx.graph import Graph, NotExpressible, Tensor, onnx_dtype
from pliant.export.onnx.sizes import DTYPE, Sizes
from pliant.export.program import MUTATION, USER, Output, Program
from pliant.graph.record import Op
from pliant.graph.traced import TracedTensor
from pliant.lower import liveness
from pliant.symbolic.expr import Expr

OPSET = 23
OPSETS = range(21, 26)
IR_VERSION = 10
LARGE = 1 << 20
"""Bytes of weights above which they go to a file of their own, beside the model: protobuf ends at 2 GiB."""

TABLES = (elementwise.ROWS, reductions.ROWS, shapes.ROWS, indexing.ROWS, networks.ROWS, pooling.ROWS)
ROWS: dict[str, Callable[..., Any]] = {name: row for table in TABLES for name, row in table.items()}

NOTHING = frozenset((
    "_assert_async", "_assert_async.msg", "_assert_scalar", "_assert_tensor_metadata", "sym_constrain_range",
    "sym_constrain_range_for_size",
))  # fmt: skip
"""Checks: ONNX has none."""

DTYPES = frozenset((
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.bool,
))  # fmt: skip


def to_onnx(program: Program, path: str | os.PathLike, *, opset: int = OPSET) -> None:
    """Write a program as an ONNX model that runs at every size of it.

    Inputs and outputs have the program's names; what an input or a buffer becomes is an output `<name>.out`, and the caller feeds it back
    (a buffer that is written is therefore an input, too, with its value in the file as the default where the runtime allows that).
    Dimensions are named as the user declared them. Numbers are 0-d tensors: int64, double, bool. Weights over a megabyte in all are in
    `<path>.data`. ONNX has no assertions: what must hold of the sizes is in the model's metadata, as text (`pliant.relations`,
    `pliant.asserts`), and nothing checks it; a call that breaks it may give wrong numbers. Random operators draw other numbers than
    PyTorch's. Where ONNX Runtime's CPU has no float64 kernel, float32 is used, and `pliant.narrowed` names these operators.

    Raises `PliantError` for an operator that ONNX cannot express, with the line of the program that calls it.
    """
    if opset not in OPSETS:
        raise PliantError(f"opset={opset}: to_onnx writes opsets {OPSETS[0]} to {OPSETS[-1]}")
    model = Writer(program, opset).model()
    path = pathlib.Path(path)
    weights = sum(t.numel() * t.element_size() for t in program.state.values())
    if weights > LARGE:
        ir.save(model, path, external_data=f"{path.name}.data", size_threshold_bytes=1024)
    else:
        ir.save(model, path)


class Writer:
    """Writes one program."""

    def __init__(self, p: Program, opset: int) -> None:
        if p.form == "torch":
            raise PliantError('to_onnx takes ATen operations: export the program with form="core"')
        self.p = p
        self.g = g = Graph(opset, p.scope)
        g.sizes = Sizes(g)
        self.inputs: list[ir.Value] = []
        self.outputs: list[ir.Value] = []
        for i in p.inputs:  # they have the first claim to their names
            g.names.add(i.name)

    def model(self) -> ir.Model:
        self.read_inputs()
        for op in self.needed():
            self.operation(op)
        self.g.site = ""
        for o in self.p.outputs:
            self.output(o)
        graph = ir.Graph(
            self.inputs,
            self.outputs,
            nodes=self.g.nodes,
            initializers=self.g.initializers,
            name=self.p.name,
            opset_imports={"": self.g.opset},
        )
        used = {id(v) for n in self.g.nodes for v in n.inputs} | {id(v) for v in self.outputs}
        for v in list(graph.initializers.values()):
            if id(v) not in used:
                del graph.initializers[v.name]  # type: ignore[arg-type]
        return ir.Model(graph, ir_version=IR_VERSION, producer_name="pliant", metadata_props=self.metadata())

    def metadata(self) -> dict[str, str]:
        p = self.p
        found = {"pliant.relations": [text(p, r) for r in p.relations if told(r)], "pliant.asserts": [text(p, r) for r in p.asserts]}
        found["pliant.narrowed"] = list(self.g.narrowed)
        found["pliant.notes"] = [str(n) for n in p.notes]
        return {k: json.dumps(v) for k, v in found.items() if v}

    # inputs --------------------------------------------------------------------------------------------------------------------
    def read_inputs(self) -> None:
        for i in self.p.inputs:
            value = i.value
            if not isinstance(value, TracedTensor):
                v = ir.Value(name=i.name, type=ir.TensorType(onnx_dtype(DTYPE[value.kind])), shape=ir.Shape([]))
                self.inputs.append(v)
                self.g.sizes.define(value, lambda v=v: self.g.reshape(v, [1]))
                continue
            sizes = tuple(self.g.size(s) for s in value.sizes)
            if value.dtype not in DTYPES:
                raise PliantError(f"the input {i.name} is {value.dtype}, which to_onnx does not write")
            v = ir.Value(name=i.name, type=ir.TensorType(onnx_dtype(value.dtype)), shape=self.shape(sizes))
            if i.kind == USER:
                self.inputs.append(v)
            else:
                v.const_value = tensor_adapters.TorchTensor(self.p.state[i.name].detach().contiguous(), name=i.name)
                self.g.initializers.append(v)
                if i.written:
                    self.inputs.append(v)
            self.g.values[value.vid] = Tensor(v, value.dtype, sizes)
            if i.kind == USER:
                self.g.sizes.bind(v, sizes)

    def shape(self, sizes: tuple) -> ir.Shape:
        return ir.Shape([s.python(self.p.dims) if isinstance(s, Expr) else int(s) for s in sizes])

    # operations ----------------------------------------------------------------------------------------------------------------
    def needed(self) -> list[Op]:
        """The operations that an output depends on."""
        live, numbers = self.g.live, set()

        def number(e: Any) -> None:
            if isinstance(e, Expr):
                for s in (*e.symbols(), *self.p.scope.simplify(e).symbols()):
                    numbers.add(s)

        def tensor(t: TracedTensor) -> None:
            live.add(t.vid)
            for s in t.sizes:
                number(liveness.number(s))

        for o in self.p.outputs:
            tensor(o.value) if type(o.value) is TracedTensor else number(liveness.number(o.value))
        kept: list[Op] = []
        for op in reversed(self.p.ops):
            outs = [o for o in op.outs if type(o) is TracedTensor]
            if not (any(o.vid in live for o in outs) or any(liveness.number(b.symbol) in numbers for b in op.binds)):
                continue
            kept.append(op)
            for b in op.binds:
                if type(op.outs[b.out]) is TracedTensor:
                    live.add(op.outs[b.out].vid)
            for t in (*liveness.op_inputs(op), *(o for o in outs if o.vid in live)):
                tensor(t)
            for e in liveness.op_numbers(op):
                number(e)
        kept.reverse()
        return kept

    def operation(self, op: Op) -> None:
        g = self.g
        name = op_name(op)
        g.site = str(op.site) if op.site is not None else ""
        if name in NOTHING:
            return
        row = ROWS.get(name)
        where = f" at {g.site}" if g.site else ""
        if row is None or not str(op.target).startswith("aten."):
            raise PliantError(f"to_onnx knows no form of {op.target}{where}")
        wrong = next((o.dtype for o in (*liveness.op_inputs(op), *liveness.op_outputs(op)) if o.dtype not in DTYPES), None)
        if wrong is not None:
            raise PliantError(f"to_onnx cannot write {op.target} of {wrong}{where}")
        try:
            args, kwargs = arguments(op)
            made = row(g, op, *g.argument(args), **{k: g.argument(v) for k, v in kwargs.items()})
        except NotExpressible as e:
            raise PliantError(f"to_onnx cannot write {op.target}{where}: {e}") from e
        except TypeError as e:
            raise PliantError(f"to_onnx knows no form of this use of {op.target}{where}: {op} ({e})") from e
        values = list(made) if isinstance(made, (tuple, list)) else [made]
        for out, v in zip(op.outs, values):
            if type(out) is TracedTensor and v is not None:
                g.values[out.vid] = Tensor(v, out.dtype, tuple(g.size(s) for s in out.sizes))
        for b in op.binds:
            symbol = liveness.number(b.symbol)
            v = values[b.out]
            assert symbol is not None and v is not None
            g.sizes.define(symbol, (lambda v=v: v) if b.dim is None else (lambda v=v, d=b.dim: g.sizes.dim(v, d)))  # type: ignore[misc]

    # outputs -------------------------------------------------------------------------------------------------------------------
    def output(self, o: Output) -> None:
        g, value = self.g, o.value
        name = f"{o.of}.out" if o.kind == MUTATION else o.name
        if type(value) is TracedTensor:
            t = g.tensor(value)
            v, sizes, dtype = t.value, t.sizes, t.dtype
        else:
            e = liveness.number(value)
            v = g.sizes.scalar(e if e is not None else value)
            sizes, dtype = (), DTYPE[e.kind if e is not None else type(value)]
        final = ir.Value(
            name=g.name(name if name not in g.names else f"{name}.out"), type=ir.TensorType(onnx_dtype(dtype)), shape=self.shape(sizes)
        )
        g.nodes.append(ir.node("Identity", [v], outputs=[final], name=f"output_{len(self.outputs)}"))
        self.outputs.append(final)


def arguments(op: Op) -> tuple[list, dict[str, Any]]:
    """The arguments by the operator's schema: positional ones in place, with defaults, and the others by name."""
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for i, a in enumerate(op.target._schema.arguments):
        if a.kwarg_only:
            if a.name in op.kwargs and a.name not in IRRELEVANT:
                kwargs[a.name] = op.kwargs[a.name]
        elif i < len(op.args):
            args.append(op.args[i])
        elif a.name in op.kwargs:
            args.append(op.kwargs[a.name])
        else:
            args.append(a.default_value)
    return args, kwargs


IRRELEVANT = frozenset(("layout", "device", "pin_memory", "memory_format", "non_blocking"))
"""Arguments that say nothing about values."""


def op_name(op: Op) -> str:
    """`add.Tensor`, `relu`: the operator as the tables have it."""
    name = op.target._schema.name.split("::")[-1]
    overload = op.target._overloadname
    return name if overload in ("", "default") else f"{name}.{overload}"


def told(r: Any) -> bool:
    return r.expr.const is not True


def text(p: Program, r: Any) -> str:
    return r.expr.python(p.dims) + (f"  # {r.site}" if r.site else "")
