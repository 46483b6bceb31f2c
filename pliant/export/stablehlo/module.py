"""A program as a StableHLO module.

`main` takes the program's inputs in order (parameters too: nothing is baked in) and gives its outputs in order; both carry their names as
the attribute `pliant.name`. Relations between sizes become `custom_call @shape_assertion` at its start. What must hold of data cannot be
one: it becomes a further result, named `assert: ` and the text, which whoever runs the module looks at.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from jax._src.interpreters import mlir
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import func
from jaxlib.mlir.dialects import stablehlo as hlo

from pliant.errors import PliantError
from pliant.export.program import Program, Relation
from pliant.export.stablehlo import backward, branches, complex, indexing, linear, pointwise, reductions, views, windows
from pliant.export.stablehlo.builder import ELEMENTS, Builder, Unsupported, Value
from pliant.export.stablehlo.composite import composite
from pliant.export.stablehlo.control_flow import NUMBERS, Flows
from pliant.export.stablehlo.sizes import make
from pliant.export.stablehlo.table import LOWERINGS, key
from pliant.export.variants import SIZE_BRANCH
from pliant.graph.control_flow import FlowOp
from pliant.graph.record import Op
from pliant.graph.traced import TracedTensor
from pliant.lower import liveness
from pliant.symbolic.expr import Expr

FAMILIES = (pointwise, views, reductions, linear, indexing, windows, complex, backward)
"""The modules whose rows make up the table."""

ASSERTION = "assert: "
CHECKS = frozenset(f"aten::{name}" for name in (
    "_assert_async.msg", "_assert_scalar.default", "sym_constrain_range.default", "sym_constrain_range_for_size.default",
    "_assert_tensor_metadata.default", "sym_size.int", "sym_numel.default",
))  # fmt: skip
"""Operators without a result that matters: what they check is among the program's assertions, or it holds by construction."""
PLACES = ("device", "layout", "pin_memory", "generator")
"""Arguments that say where a tensor is, not what."""
MOST_SHOWN = 4  # numbers that the text of an assertion shows


class ExportError(PliantError):
    """A program, or an operation of it, has no form in StableHLO. The message names the operator and the line."""


@dataclass(slots=True)
class Made:
    """A module as text, and what running it needs to know: the names of its inputs; the numbers (inputs that are no tensors) that sizes
    are made of, by symbol; the symbols of sizes that only data tell; the texts of the assertions that are results."""

    text: str
    inputs: list[str] = field(default_factory=list)
    shaped_by: list[str] = field(default_factory=list)
    shaped_by_data: list[str] = field(default_factory=list)
    assertions: list[str] = field(default_factory=list)


class Out:
    """What the trace says of a result: sizes in their simplest form, dtype."""

    __slots__ = ("sizes", "dtype")

    def __init__(self, sizes: Sequence[Any], dtype: torch.dtype) -> None:
        self.sizes = tuple(sizes)
        self.dtype = dtype


class Lowering(Builder):
    """The builder of one function, with the values of the program's tensors."""

    def __init__(self, p: Program, bounded: bool, composites: bool, body: Any, counts: Any) -> None:
        super().__init__(p.scope, bounded)
        self.p = p
        self.composites = composites
        self.body = body  # of the module
        self.counts = counts  # of composites
        self.values: dict[int, Value] = {}
        self.reads: set[int] = set()
        self.holds: list[tuple[Value, str]] = []  # what must hold of data in loops and branches, with the text
        self.shown: dict[str, str] = {}
        self.numbers = {i.value.name for i in p.inputs if not i.is_tensor}

    def child(self) -> Lowering:
        """A builder for a function of its own."""
        return Lowering(self.p, self.bounded, False, self.body, self.counts)

    # -- the function ------------------------------------------------------------------------------------------------------------
    def emit(self, arguments: Sequence[Any]) -> tuple[list[Value], list[tuple[Value, str]]]:
        """The program at the insertion point: its results, and what must hold of data with the text that says so."""
        p = self.p
        asserts = [r for r in p.asserts if r.expr.const is None]  # not simplified: they are among the facts
        wanted = [o.value for o in p.outputs]
        self.bind_inputs(arguments)
        for r in p.relations:
            self.relation(r)
        self.run(wanted, asserts)
        return self.results(), self.conditions(asserts)

    def run(self, wanted: list[Any], asserts: list[Relation]) -> None:
        """The operations that results and assertions need."""
        p = self.p
        ops = liveness.live_ops(p.ops, [*wanted, *[r.expr for r in asserts]], [i.value for i in p.inputs if i.is_tensor])
        self.reads = {t.vid for op in ops for t in liveness.op_inputs(op)} | {t.vid for t in liveness.tensors_of(wanted)}
        for op in ops:
            self.operation(op)

    def conditions(self, asserts: list[Relation]) -> list[tuple[Value, str]]:
        """Assertions about data as values; those about sizes are checked where they stand."""
        found = list(self.holds)
        for r in asserts:
            if any(s.name in self.of_data | self.numbers for s in r.expr.symbols()):
                found.append((Value(self.scalar(r.expr), (), torch.bool), r.told or f"{r.expr} at {r.site}"))
            else:
                self.relation(r)
        return found

    def input_type(self, i: Any) -> Any:
        if not i.is_tensor:
            return self.type((), NUMBERS[i.value.kind])
        if i.value.dtype not in ELEMENTS:
            raise ExportError(f"the input {i.name} is of {i.value.dtype}, which has no counterpart in StableHLO as pliant writes it")
        return self.type(self.sizes_of(i.value), i.value.dtype)

    def sizes_of(self, t: TracedTensor) -> tuple[Any, ...]:
        return tuple(self.simple(n if (e := liveness.number(n)) is None else e) for n in t.sizes)

    def bind_inputs(self, arguments: Sequence[Any]) -> None:
        """Tensors by number; each symbol where an input tells it."""
        self.shown = {i.value.name: i.name for i in self.p.inputs if not i.is_tensor}
        for i, argument in zip(self.p.inputs, arguments):
            if not i.is_tensor:
                bits = {int: 64, float: -64, bool: 1}[i.value.kind]
                self.bind(i.value.name, lambda v=argument, n=bits: (v, n), of_data=True)  # type: ignore[misc]
                continue
            self.values[i.value.vid] = Value(argument, self.sizes_of(i.value), i.value.dtype)
            for d, n in enumerate(i.value.sizes):
                e = liveness.number(n)
                if e is not None and e.op == "sym":
                    self.shown.setdefault(e.name, f"{i.name}.size({d})")
                    self.bind(e.name, lambda v=argument, k=d: (self.dimension(v, k), 32))  # type: ignore[misc]
        self.shown |= self.p.dims
        for i, argument in zip(self.p.inputs, arguments):  # sizes like 2*s
            for d, n in enumerate(i.value.sizes if i.is_tensor else ()):
                e = liveness.number(n)
                if e is not None and e.op == "sum" and len(e.symbols()) == 1 and e.symbols()[0].name not in self.sources:
                    self.bind_linear(e, argument, d)

    def bind_linear(self, e: Expr, argument: Any, d: int) -> None:
        """A size that is c * s + k tells s."""
        s = e.symbols()[0]
        terms = dict(e.terms)
        k, c = terms.pop((), 0), terms.pop((s,), 0)
        if not terms and c:

            def source() -> tuple[Any, int]:
                n = self.dimension(argument, d)
                rest = make("subtract", [n, self.constant(k, 32)]) if k else n
                return make("divide", [rest, self.constant(c, 32)]), 32

            self.bind(s.name, source)

    def dimension(self, value: Any, d: int) -> Any:
        found = ir.RankedTensorType(value.type).shape[d]
        if found >= 0:
            return self.constant(found, 32)
        key_ = ("dimension", value, d)
        if key_ not in self.memo:
            n = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), d)
            self.memo[key_] = self.hoisted(lambda: make("get_dimension_size", [value], scalar(32), dimension=n))
        return self.memo[key_]

    def relation(self, r: Relation) -> None:
        """A check of sizes, with the text that tells which and whose line."""
        if r.expr.const is not None or any(s.name not in self.sources or s.name in self.of_data for s in r.expr.symbols()):
            return  # about layouts, which this form has not; about data, see `conditions`
        if not self.foldable(r.expr):
            return  # of floats: refinement would stop at it. Who calls checks it (`run.py`)
        shown = r.expr.symbols()[:MOST_SHOWN]
        names = self.shown
        text = f"{self.p.name} needs {r.expr.python(names)}" + (f", because of {r.site}" if r.site else "")
        seen = ", ".join(f"{names.get(s.name, s.name)} = {{{i}}}" for i, s in enumerate(shown))
        text = text.replace("{", "(").replace("}", ")") + (f", but {seen}." if shown else "")
        attributes = dict(
            call_target_name=ir.StringAttr.get("shape_assertion"), has_side_effect=ir.BoolAttr.get(True),
            error_message=ir.StringAttr.get(text),
            api_version=ir.IntegerAttr.get(ir.IntegerType.get_signless(32), 2),
        )  # fmt: skip
        ir.Operation.create("stablehlo.custom_call", [], [self.scalar(r.expr), *[self.scalar(s) for s in shown]], attributes)

    def results(self) -> list[Value]:
        out = []
        for o in self.p.outputs:
            if type(o.value) is TracedTensor:
                v = self.values.get(o.value.vid)
                out.append(self.constant_tensor(o.value) if v is None else self.shaped(v, self.sizes_of(o.value)))
            else:
                e = liveness.number(o.value)
                out.append(self.number(o.value if e is None else e))
        return out

    def results_shape(self, k: int) -> tuple[tuple[Any, ...], torch.dtype]:
        """Sizes and dtype of a result."""
        value = self.p.outputs[k].value
        if type(value) is TracedTensor:
            return self.sizes_of(value), value.dtype
        e = liveness.number(value)
        return (), NUMBERS[type(value) if e is None else e.kind]

    # -- operations --------------------------------------------------------------------------------------------------------------
    def operation(self, op: Op) -> None:
        name = key(op.target)
        if name in CHECKS:
            return
        if isinstance(op, FlowOp):
            self.flow(op)
            return
        row = LOWERINGS.get(name)
        if row is None and liveness.draws(op.target):
            raise refused(op, "a module is a function of its inputs: each call would draw the same numbers. Pass them in")
        if row is None:
            raise refused(op, "pliant has no StableHLO for it")
        self.name = name
        self.outs = [Out(self.sizes_of(o), o.dtype) if type(o) is TracedTensor else None for o in op.outs]
        self.used = [type(o) is not TracedTensor or o.vid in self.reads for o in op.outs]
        tensors = liveness.op_inputs(op)
        self.operand = tensors[0] if tensors else None
        try:
            for o in op.outs:
                if type(o) is TracedTensor:
                    self.element(o.dtype)
            with ir.Location.name(name.removeprefix("aten::"), place(op)):
                args, kwargs = [self.argument(a) for a in op.args], {k: self.argument(v) for k, v in op.kwargs.items()}
                kwargs = {k: v for k, v in kwargs.items() if k not in PLACES}
                if row.composite and self.composites:
                    found = composite(self, self.child, row.fn, op.target, args, kwargs)
                else:
                    found = row.fn(self, *args, **kwargs)
        except Unsupported as e:
            raise refused(op, str(e)) from None
        except (TypeError, ValueError, KeyError, IndexError, AttributeError, AssertionError) as e:
            raise refused(op, f"no StableHLO could be made: {type(e).__name__}: {e}") from e
        for o, v, out in zip(op.outs, found if isinstance(found, list) else [found], self.outs):
            if v is not None and out is not None:
                if v.dtype != out.dtype:
                    raise refused(op, f"it should give {out.dtype}, but its lowering gave {v.dtype}")
                self.values[o.vid] = self.shaped(v, out.sizes)
        for bind in op.binds:
            if bind.dim is not None:
                raise refused(op, "the size of its result is known only from data")
            self.bind_number(bind, found if not isinstance(found, list) else found[bind.out])

    def flow(self, op: FlowOp) -> None:
        """A branch or loop on data. Sizes of its results that it tells are no sizes that XLA can know."""
        made = Flows(self).values(op)
        for o, v in zip(op.outs, made, strict=True):
            if type(o) is TracedTensor:
                self.values[o.vid] = v
        for bind in op.binds:
            v = made[bind.out]
            if bind.dim is None:
                self.bind_number(bind, v)
            else:
                self.bind(liveness.number(bind.symbol).name, lambda v=v, d=bind.dim: (self.dimension(v.ir, d), 32), of_data=True)  # type: ignore[misc]

    def bind_number(self, bind: Any, v: Any) -> None:
        s = liveness.number(bind.symbol)
        dtype = NUMBERS[s.kind]
        made = self.convert(v, dtype)
        self.bind(s.name, lambda: (made.ir, {int: 64, float: -64, bool: 1}[s.kind]), of_data=True)

    def shaped(self, v: Value, sizes: Sequence[Any]) -> Value:
        """A value with the type that the trace gives it: it may know a size better than the lowering, or not so well."""
        sizes = tuple(sizes)
        if v.ir.type == self.type(sizes, v.dtype):
            return Value(v.ir, sizes, v.dtype)
        return self.op("dynamic_reshape", (v, self.shape(sizes)), sizes, v.dtype)

    def argument(self, a: Any) -> Any:
        if type(a) is TracedTensor:
            v = self.values.get(a.vid)
            return v if v is not None else self.constant_tensor(a)
        if isinstance(a, (list, tuple)):
            return [self.argument(x) for x in a]
        e = liveness.number(a)
        return a if e is None else self.simple(e)

    def constant_tensor(self, t: TracedTensor) -> Value:
        """Data made in the program from constants."""
        if t.constant is None:
            raise Unsupported(f"%{t.vid} is read before anything made it")
        data = t.constant.detach()
        if t.dtype == torch.bfloat16:
            self.values[t.vid] = self.convert(self.array(data.float().numpy(), torch.float32), torch.bfloat16)
        else:
            self.values[t.vid] = self.array(data.numpy(), t.dtype)
        return self.values[t.vid]


def named(name: str) -> Any:
    return ir.DictAttr.get({"pliant.name": ir.StringAttr.get(name)})


def place(op: Op) -> Any:
    """The user's line as a location."""
    return ir.Location.name(str(op.site)) if op.site is not None else None


def refused(op: Op, why: str) -> ExportError:
    where = f" at {op.site}" if op.site is not None else ""
    return ExportError(f"{op.target}{where} cannot be written as StableHLO: {why}")


def scalar(bits: int) -> Any:
    return ir.RankedTensorType.get([], ir.IntegerType.get_signless(bits))


def in_context(work: Callable[[Any], Any]) -> Any:
    """`work(context)` with jax's dialects at hand."""
    with mlir.make_ir_context() as context, ir.Location.unknown(context):
        hlo.register_stablehlo_passes()
        return work(context)


def build(programs: list[Program], bounded: bool = False, composites: bool = False) -> Made:
    """The module of a program, verified. Of several, the sides of its branches on data (`sides`), a `case` takes the right one.
    `ExportError` names what has no StableHLO."""
    p = programs[0]

    def work(context: Any) -> Made:
        module = ir.Module.create()
        module.operation.attributes["sym_name"] = ir.StringAttr.get("".join(c if c.isalnum() else "_" for c in p.name))
        with ir.InsertionPoint(module.body):
            made = main_function(module.body, programs, bounded, composites)
        try:
            module.operation.verify()
        except ir.MLIRError as e:
            raise ExportError(f"{p.name}: the module is not valid StableHLO: {e}") from e
        made.text = str(module)
        return made

    return in_context(work)


def main_function(body: Any, programs: list[Program], bounded: bool, composites: bool) -> Made:
    """`main`, and what running it needs to know."""
    p = programs[0]
    inputs = inputs_of(programs)
    made = Made("", inputs=[i.name for i in inputs])
    counts = itertools.count()

    def lowering(q: Program) -> Lowering:
        return Lowering(q, bounded, composites, body, counts)

    types = [lowering(p).input_type(i) for i in inputs]
    main = func.FuncOp("main", (types, []), visibility="public")  # type: ignore[call-arg]
    block = main.add_entry_block()  # type: ignore[attr-defined]
    given = dict(zip(made.inputs, block.arguments))
    with ir.InsertionPoint(block):
        if len(programs) == 1:
            one = lowering(p)
            results, conditions = one.emit(list(block.arguments))
            lowerings = [one]
        else:
            results, conditions, lowerings = branches.case(programs, lowering, given)
        func.ReturnOp([v.ir for v in (*results, *[c for c, _ in conditions])])
    made.assertions = [text for _, text in conditions]
    names = [*[o.name for o in p.outputs], *[ASSERTION + text for text in made.assertions]]
    made_types = [v.ir.type for v in (*results, *[c for c, _ in conditions])]
    main.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(types, made_types))
    main.arg_attrs = ir.ArrayAttr.get([named(n) for n in made.inputs])
    main.res_attrs = ir.ArrayAttr.get([named(n) for n in names])
    by = {n: low for low in lowerings for n in low.shaped_by_data}
    made.shaped_by_data = [n for n, low in by.items() if n not in low.numbers]
    made.shaped_by = [n for n, low in by.items() if n in low.numbers]
    return made


def sides(p: Program) -> list[list[Program]]:
    """The program and its variants, together where they take the same sizes and ask data: data choose between those, sizes between the
    groups."""
    groups: dict[frozenset[str], list[Program]] = {}
    for q in (p, *p.variants):
        asks = bool(branches.questions(q))
        groups.setdefault(frozenset(str(r.expr) for r in q.relations if r.why == SIZE_BRANCH or not asks), []).append(q)
    return list(groups.values())


def inputs_of(programs: list[Program]) -> list[Any]:
    """The inputs of all, those of the first in front, by name."""
    found: dict[str, Any] = {}
    for q in programs:
        for i in q.inputs:
            found.setdefault(i.name, i)
    users = [i for i in found.values() if i.kind == "user"]
    return [*[i for i in found.values() if i.kind != "user"], *users]
