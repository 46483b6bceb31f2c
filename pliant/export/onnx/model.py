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
from pliant.export.flows import all_ops
from pliant.export.onnx import complexes, elementwise, indexing, losses, networks, pooling, recurrent, reductions, shapes
from pliant.export.onnx.control_flow import Flows, needed
from pliant.export.onnx.graph import Context, Graph, NotExpressible, Tensor, onnx_dtype, torch_dtype
from pliant.export.onnx.sizes import DTYPE, Sizes
from pliant.export.program import MUTATION, USER, Input, Program
from pliant.graph.control_flow import FlowOp
from pliant.graph.record import Op
from pliant.graph.traced import TracedTensor
from pliant.lower import liveness
from pliant.symbolic.expr import Expr

OPSET = 23
OPSET_OF_RANDOM = 21
OPSETS = range(21, 26)
IR_VERSION = 10
LARGE = 1 << 20
"""Bytes of weights above which they go to a file of their own, beside the model: protobuf ends at 2 GiB."""

TABLES = (elementwise.ROWS, reductions.ROWS, shapes.ROWS, indexing.ROWS, networks.ROWS, pooling.ROWS, losses.ROWS, recurrent.ROWS)
ROWS: dict[str, Callable[..., Any]] = {name: row for table in TABLES for name, row in table.items()}

NOTHING = frozenset((
    "_assert_async", "_assert_async.msg", "_assert_scalar", "_assert_tensor_metadata", "sym_constrain_range",
    "sym_constrain_range_for_size",
))  # fmt: skip
"""Checks: ONNX has none."""

UNFIT = (TypeError, ValueError, IndexError, KeyError, ArithmeticError, AttributeError)
"""What a row raises for arguments that it was not written for."""

DTYPES = frozenset((
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.bool,
))  # fmt: skip


def to_onnx(program: Program, path: str | os.PathLike, *, opset: int | None = None) -> None:
    """Write a program as an ONNX model that runs at every size of it.

    Inputs and outputs have the program's names; what an input or a buffer becomes is an output `<name>.out`, and the caller feeds it back
    (a buffer that is written is therefore an input, too, with its value in the file as the default where the runtime allows that).
    Dimensions are named as the user declared them. Numbers are 0-d tensors: int64, double, bool. The sides of branches
    (`Program.variants`) are those of `If` nodes. With weights of over a megabyte in all, these are in `<path>.data`.

    ONNX has no assertions: what must hold of the sizes is in the model's metadata, as text (`pliant.relations`, `pliant.asserts`), and
    nothing checks it; a call that breaks it may give wrong numbers. Random operators draw other numbers than PyTorch's, of the same
    distributions; a program that draws is written in opset 21, the last whose random operators ONNX Runtime has. Where ONNX
    Runtime's CPU has no float64 kernel, float32 is used, and `pliant.narrowed` names these operators. Its max pooling overlooks nans, and
    its powers of ints are those of float64.

    Raises `PliantError` for an operator that ONNX cannot express, with the line of the program that calls it.
    """
    if opset is None:
        draws = any(liveness.draws(op.target) for q in (program, *program.variants) for op in all_ops(q.ops))
        opset = OPSET_OF_RANDOM if draws else OPSET
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
    """Writes one program. Its variants are the branches of `If` nodes, one within the other: each runs where what it needs holds."""

    def __init__(self, p: Program, opset: int) -> None:
        if p.form == "torch":
            raise PliantError('to_onnx takes ATen operations: export the program with form="core"')
        self.p = p
        self.g = Graph(opset)
        self.named: dict[str, ir.Value] = {}  # inputs and weights
        self.inputs: list[ir.Value] = []
        self.outputs: list[ir.Value] = []
        self.parts = [Part(self, q) for q in (p, *p.variants)]
        for i in p.inputs:  # they have the first claim to their names
            self.g.names.add(i.name)

    def model(self) -> ir.Model:
        for part in self.parts:
            part.read_inputs()
        self.give(self.choice(0))
        nodes = self.g.nodes
        graph = ir.Graph(
            self.inputs, self.outputs, nodes=nodes, initializers=self.g.initializers, name=self.p.name, opset_imports={"": self.g.opset}
        )
        used = {id(v) for v in (*self.g.used, *self.outputs)}
        for v in list(graph.initializers.values()):
            if id(v) not in used:
                del graph.initializers[v.name]  # type: ignore[arg-type]
        return ir.Model(graph, ir_version=IR_VERSION, producer_name="pliant", metadata_props=self.metadata())

    def metadata(self) -> dict[str, str]:
        p = self.p
        found = {"pliant.relations": [text(p, r) for r in p.relations if told(r)], "pliant.asserts": [text(p, r) for r in p.asserts]}
        if p.variants:  # one of them must hold
            found = {k: [" and ".join(text(q, r) for r in getattr(q, k.removeprefix("pliant."))) for q in (p, *p.variants)] for k in found}
        found["pliant.narrowed"] = list(self.g.narrowed)
        found["pliant.notes"] = [str(n) for n in p.notes]
        return {k: json.dumps(v) for k, v in found.items() if any(v)}

    def choice(self, n: int) -> list[ir.Value]:
        """The outputs of the first of the parts from n on that takes the call; the last takes what is left."""
        part = self.parts[n]
        if n == len(self.parts) - 1:
            return part.body()
        g = self.g
        holds = part.condition()
        yes = self.branch(part.body)
        no = self.branch(lambda: self.choice(n + 1))
        dtypes = [torch_dtype(v) for v in yes.outputs]
        return list(g.choose(holds, yes, no, dtypes))

    def branch(self, make: Callable[[], list[ir.Value]]) -> ir.Graph:
        """A graph of its own, that sees what is around it."""
        with self.g.inside() as nodes:
            values = [self.g.node("Identity", [v], 1, (), {}, fresh=True)[0] for v in make()]
        return ir.Graph((), values, nodes=nodes, name=self.g.name("branch"))

    def give(self, values: list[ir.Value]) -> None:
        """The outputs of the model."""
        for k, (o, v) in enumerate(zip(self.p.outputs, values, strict=True)):
            name = f"{o.of}.out" if o.kind == MUTATION else o.name
            final = self.g.value(torch_dtype(v), name if name not in self.g.names else f"{name}.out")
            final.shape = self.common_shape([part.p.outputs[k].value for part in self.parts])
            self.g.nodes.append(ir.node("Identity", [v], outputs=[final], name=f"output_{k}"))
            self.g.used.append(v)
            self.outputs.append(final)

    def common_shape(self, values: list[Any]) -> ir.Shape | None:
        """As all parts have it: a size on which they do not agree has no name."""
        texts = [part.sizes_text(v) for part, v in zip(self.parts, values, strict=True)]
        if len({len(t) for t in texts}) > 1:
            return None
        return ir.Shape([t[0] if all(x == t[0] for x in t) else None for t in zip(*texts)])

    def value_of(self, i: Input, part: Part) -> ir.Value:
        """The value of an input or weight: one for all parts."""
        found = self.named.get(i.name)
        if found is not None:
            return found
        value = i.value
        if isinstance(value, TracedTensor):
            if value.dtype not in DTYPES:
                raise PliantError(f"the input {i.name} is {value.dtype}, which to_onnx does not write")
            same = [q.value for x in self.parts for q in x.p.inputs if q.name == i.name]
            shape = self.common_shape(same) if len(same) == len(self.parts) else ir.Shape(part.sizes_text(value))
            v = ir.Value(name=i.name, type=ir.TensorType(onnx_dtype(value.dtype)), shape=shape)
        else:
            v = ir.Value(name=i.name, type=ir.TensorType(onnx_dtype(DTYPE[value.kind])), shape=ir.Shape([]))
        if i.kind == USER:
            self.inputs.append(v)
        else:
            v.const_value = tensor_adapters.TorchTensor(self.p.state[i.name].detach().contiguous(), name=i.name)
            self.g.initializers.append(v)
            if i.written:
                self.inputs.append(v)
        self.named[i.name] = v
        return v


class Part:
    """One program among the variants: its tensors and sizes. `g` speaks of it while it is written."""

    def __init__(self, writer: Writer, p: Program) -> None:
        self.writer = writer
        self.p = p
        self.g = writer.g
        self.context = Context(p.scope)
        self.g.context = self.context
        self.context.sizes = Sizes(self.g)

    def sizes_text(self, t: Any) -> list[Any]:
        if type(t) is not TracedTensor:
            return []
        self.g.context = self.context
        return [s.python(self.p.dims) if isinstance(s, Expr) else int(s) for s in (self.g.size(s) for s in t.sizes)]

    def read_inputs(self) -> None:
        for i in self.p.inputs:
            v = self.writer.value_of(i, self)
            self.g.context = self.context
            value = i.value
            if not isinstance(value, TracedTensor):
                self.g.sizes.define(value, lambda v=v: self.g.reshape(v, [1]))  # type: ignore[misc]
                continue
            sizes = tuple(self.g.size(s) for s in value.sizes)
            self.g.values[value.vid] = Tensor(v, value.dtype, sizes)
            if i.kind == USER:
                self.g.sizes.bind(v, sizes)
                self.g.sizes.bind(v, [e if (e := liveness.number(s)) is not None else s for s in value.sizes])

    # what it needs ---------------------------------------------------------------------------------------------------------------
    def condition(self) -> ir.Value:
        """Whether a call is for this part: its relations, and then, where they hold, its assertions."""
        g = self.g
        g.context = self.context
        tests = [t for t in (self.test(r.expr) for r in self.p.relations) if t is not None]
        holds = self.all_of(tests)
        if not self.p.asserts:
            return holds
        saved = self.context.saved()

        def asserted() -> list[ir.Value]:
            self.operations(needed(self.p.scope, self.p.ops, [r.expr for r in self.p.asserts], g.live))
            return [self.all_of([t for t in (self.test(r.expr) for r in self.p.asserts) if t is not None])]

        yes = self.writer.branch(asserted)
        g.context = self.context
        self.context.restore(saved)
        no = self.writer.branch(lambda: [g.const(False, torch.bool)])
        return g.choose(holds, yes, no, [torch.bool])[0]

    def all_of(self, tests: list[ir.Value]) -> ir.Value:
        g = self.g
        out = g.const(True, torch.bool)
        for t in tests:
            out = g.op("And", out, t)
        return out

    def test(self, e: Any) -> ir.Value | None:
        """A condition, written out whatever the program knows of it. None where nothing tells its symbols: it is about strides."""
        g = self.g
        if not isinstance(e, Expr) or e.const is not None:
            return None
        if not all(g.sizes.tells(s) for s in e.symbols()):
            return None
        return g.op("Squeeze", g.sizes.exactly(e), g.ints(0))

    # operations ----------------------------------------------------------------------------------------------------------------
    def body(self) -> list[ir.Value]:
        """The values of the outputs."""
        g = self.g
        g.context = self.context
        saved = self.context.saved()
        self.operations(needed(self.p.scope, self.p.ops, [o.value for o in self.p.outputs], g.live))
        g.site = ""
        values = [self.output(o.value) for o in self.p.outputs]
        if self.writer.p.variants:
            self.context.restore(saved)
        return values

    def output(self, value: Any) -> ir.Value:
        if type(value) is TracedTensor:
            if value.dtype not in DTYPES:
                raise PliantError(f"to_onnx cannot write an output of {value.dtype}")
            return self.g.tensor(value).value
        e = liveness.number(value)
        return self.g.sizes.scalar(e if e is not None else value)

    def operations(self, ops: list[Op]) -> None:
        for op in ops:
            self.operation(op)

    def operation(self, op: Op) -> None:
        g = self.g
        name = op_name(op)
        g.site = str(op.site) if op.site is not None else ""
        if name in NOTHING:
            return
        if isinstance(op, FlowOp):
            self.known(op, Flows(self).values(op))
            return
        dtypes = {o.dtype for o in (*liveness.op_inputs(op), *liveness.op_outputs(op))}
        table = complexes.ROWS if dtypes & complexes.REAL.keys() else ROWS
        row = table.get(name)
        where = f" at {g.site}" if g.site else ""
        wrong = next((d for d in dtypes if d not in DTYPES and (row is None or d not in complexes.REAL)), None)
        if wrong is not None:
            raise PliantError(f"to_onnx cannot write {op.target} of {wrong}{where}")
        if row is None:
            raise PliantError(f"to_onnx knows no form of {op.target}{where}")
        try:
            args, kwargs = arguments(op)
            made = row(g, op, *g.argument(args), **{k: g.argument(v) for k, v in kwargs.items()})
        except NotExpressible as e:
            raise PliantError(f"to_onnx cannot write {op.target}{where}: {e}") from e
        except UNFIT as e:
            raise PliantError(f"to_onnx knows no form of this use of {op.target}{where}: {op} ({e})") from e
        values = list(made) if isinstance(made, (tuple, list)) else [made]
        self.known(op, values)

    def known(self, op: Op, values: list[Any]) -> None:
        """The results of an operation are these values."""
        g = self.g
        where = f" at {g.site}" if g.site else ""
        for k, (out, v) in enumerate(zip(op.outs, values)):
            if v is None and g.wants(op, k):
                raise PliantError(f"to_onnx knows no form of result {k} of {op.target}{where}")
            if type(out) is TracedTensor and v is not None:
                g.values[out.vid] = Tensor(v, out.dtype, tuple(g.size(s) for s in out.sizes))
        for b in op.binds:
            symbol = liveness.number(b.symbol)
            v = values[b.out]
            assert symbol is not None and v is not None
            g.sizes.define(symbol, (lambda v=v: v) if b.dim is None else (lambda v=v, d=b.dim: g.sizes.dim(v, d)))  # type: ignore[misc]


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
    """`add.Tensor`, `relu`, `library::name`: the operator as the tables have it."""
    name = op.target._schema.name.removeprefix("aten::")
    overload = op.target._overloadname
    return name if overload in ("", "default") else f"{name}.{overload}"


def told(r: Any) -> bool:
    return r.expr.const is not True


def text(p: Program, r: Any) -> str:
    return r.expr.python(p.dims) + (f"  # {r.site}" if r.site else "")
