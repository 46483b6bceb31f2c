"""What a program does besides computing, as data: the plan that `pliant/runtime` interprets.

A program at level "calls" (`lower/program.py`) becomes a list of small steps over slots (tensors) and rows (numbers), which JSON can hold:

    rows        a straight line of scalar operations: sizes, strides, offsets, what assertions say. A step says how many rows it needs
                evaluated; rows of symbols are filled from the sizes of inputs, or by the operation that makes them known
    alloc       [slot, dtype, sizes, strides or null]            memory for kernels to write
    call        [function, slots, rows, line]                    a kernel or a segment: addresses of tensors, then integers
    reuse       [slot, old slot]                                 a result that takes the memory of an operand
    view        [slot, base slot, dtype, sizes, strides, offset] other sizes over the same memory, `offset` elements further
    item        [row, slot]                                      a number out of a tensor with one element
    size        [row, slot, dim]                                 a size that an operation has decided
    assert      [row, text, line, rows that the text shows]       without a text: another variant of the program takes this call
    aten        [operator, overload, arguments, results]         an operator of libtorch, through its C functions
    fit         [slot, sizes, strides]                           what an operator returned is held to what the program was told
    free        [slots]                                          nobody reads these any more

Everything is numbers, names and texts: reading a plan runs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch

from pliant.codegen.layouts import is_certain
from pliant.errors import PliantError
from pliant.export.lowering import lowered
from pliant.export.program import USER, Input, Program
from pliant.graph.control_flow import FlowOp
from pliant.graph.schema import op_info
from pliant.graph.traced import TracedTensor
from pliant.lower import liveness
from pliant.lower.cse import IDENTITIES
from pliant.lower.program import REUSE, Alloc, KernelCall, SegmentCall
from pliant.lower.segments import Segment
from pliant.lower.text import SHORT
from pliant.lower.views import view_base
from pliant.symbolic.expr import Expr
from pliant.symbolic.scope import BRANCH
from pliant.symbolic.straight_line import StraightLine

FORMAT = 1
aten = torch.ops.aten
ITEM = aten._local_scalar_dense.default
ASSERT_SCALAR = aten._assert_scalar.default
NO_WORK = frozenset(
    getattr(aten, name).default for name in ("sym_constrain_range", "sym_constrain_range_for_size", "_assert_tensor_metadata")
)
"""What was said of sizes, and is among the program's relations and assertions by now."""
KINDS = {int: "int", float: "float", bool: "bool"}


@dataclass(slots=True)
class Code:
    """What a plan calls: kernels by their key, segments by name; each with the function that it becomes."""

    kernels: dict[Hashable, tuple[str, Any]] = field(default_factory=dict)
    segments: list[tuple[str, Segment]] = field(default_factory=list)

    def kernel(self, launch: Any) -> str:
        return self.kernels.setdefault(launch.key, (f"k{len(self.kernels)}", launch.kernel))[0]

    def segment(self, segment: Segment) -> str:
        for launch in segment.launches:
            self.kernel(launch)
        name = f"s{len(self.segments)}"
        self.segments.append((name, segment))
        return name


def plan_of(program: Program) -> tuple[dict[str, Any], Code]:
    """The plans of a program and its variants, and the functions that they call. PliantError where something has no place in a plan."""
    code = Code()
    plans = [Planner(p, code).plan() for p in (program, *program.variants)]
    outputs = {len(plan["outputs"]) for plan in plans}
    if len(outputs) > 1:
        raise PliantError(f"{program.name} gives more on one side of a branch than on another: it cannot be compiled ahead of time")
    return {"format": FORMAT, "name": program.name, "variants": plans}, code


def line_of(site: Any) -> str:
    """A site as text, without the folder that it is in."""
    text = str(site) if site is not None else ""
    return text.rsplit("/", 1)[-1]


class Planner:
    """Makes one plan."""

    def __init__(self, program: Program, code: Code) -> None:
        self.program = program
        self.code = code
        self.scope = program.scope
        self.line = StraightLine()
        self.known: set[str] = set()  # symbols whose rows are filled by now
        self.slots: dict[int, int] = {}  # vid -> slot
        self.owner: dict[int, int] = {}  # slot -> the slot whose memory it sees; -1: that of an input
        self.last: dict[int, int] = {}  # owner -> the last step that touches its memory
        self.steps: list[list[Any]] = []
        self.waiting = list(program.asserts)

    # numbers ----------------------------------------------------------------------------------------------------------
    def row(self, value: Any, promised: bool = False) -> int:
        """The row of a number. `promised`: it is a promise that is to be checked, so nothing may be taken for known."""
        e = liveness.number(value)
        if e is None:
            e = self.scope.ctx.lift(value)
        if not promised:
            e = self.scope.simplify(e)
        for s in e.symbols():
            if s.name not in self.known:
                raise PliantError(f"the program needs {s.name} before anything makes it known")
        return self.line.add(e)

    def rows(self, values: Iterable[Any]) -> list[int]:
        return [self.row(v) for v in values]

    def learn(self, symbol: Expr) -> int:
        """A symbol is filled from here on; its row."""
        self.known.add(symbol.name)
        return self.line.add(symbol)

    def is_known(self, *values: Any) -> bool:
        return all(name in self.known for v in values for name in liveness.symbols_of(v))

    # tensors ----------------------------------------------------------------------------------------------------------
    def slot(self, t: TracedTensor) -> int:
        found = self.slots.get(t.vid)
        if found is None:
            raise PliantError(f"the program reads a tensor that nobody makes ({SHORT.get(t.dtype, t.dtype)}, {len(t.sizes)} dims)")
        return found

    def new_slot(self, t: TracedTensor, owner: int | None = None) -> int:
        slot = self.slots[t.vid] = len(self.slots)
        self.owner[slot] = slot if owner is None else owner
        return slot

    def dtype(self, t: TracedTensor) -> str:
        if t.dtype not in SHORT or t.device.type != "cpu" or t.layout is not torch.strided:
            raise PliantError(f"machine code ahead of time knows no tensors of {t.dtype} on {t.device} ({t.layout})")
        return SHORT[t.dtype]

    def touch(self, *slots: int) -> None:
        for s in slots:
            self.last[self.owner[s]] = len(self.steps)

    def step(self, kind: str, *fields: Any) -> None:
        self.steps.append([kind, len(self.line.rows), *fields])

    # the whole ----------------------------------------------------------------------------------------------------------
    def plan(self) -> dict[str, Any]:
        """The steps, and what is checked before."""
        flow = next((op for op in self.program.ops if isinstance(op, FlowOp)), None)
        if flow is not None:
            raise PliantError(
                f"{self.program.name} has a branch or loop on data ({line_of(flow.site)}), which only runs with Python: save it with"
                " `program.save`, or export it to ONNX"
            )
        with torch.no_grad():
            p, heads = lowered(self.program)
        inputs = [self.input(i) for i in self.program.inputs]
        for i, row in zip(self.program.inputs, inputs, strict=True):
            if i.is_tensor:
                self.layout(i, row)
        relations = [self.relation(r) for r in self.program.relations if r.expr.const is not True and self.is_known(r.expr)]
        begin = len(self.line.rows)
        self.due_asserts()
        for op in p.steps:
            self.operation(op)
            self.due_asserts()
        if self.waiting:
            raise PliantError(f"an assertion speaks of numbers that nothing makes known: {self.waiting[0].expr}")
        outputs = []
        for o, value in zip(self.program.outputs, heads, strict=True):
            out: dict[str, Any] = {"name": o.name, "kind": o.kind, **({"of": o.of} if o.of else {})}
            if isinstance(value, TracedTensor):
                out |= {"slot": self.slot(value), "dtype": self.dtype(value), "ndim": len(value.sizes)}
                self.last[self.owner[out["slot"]]] = -1
            else:
                out |= {"row": self.row(value), "number": self.kind_of(value)}
            outputs.append(out)
        steps = self.with_frees()
        return {
            "slots": len(self.slots), "inputs": inputs, "outputs": outputs, "begin": begin, "relations": relations, "steps": steps,
            "rows": [row_data(r) for r in self.line.rows],
        }  # fmt: skip

    def relation(self, r: Any) -> list[Any]:
        """What must hold of a call: row, text, line, the symbols that the message shows."""
        return [self.row(r.expr, promised=True), r.expr.python(self.program.dims), line_of(r.site), self.shown(r.expr)]

    def kind_of(self, value: Any) -> str:
        e = liveness.number(value)
        return KINDS[e.kind if e is not None else type(value)]

    def shown(self, e: Expr) -> list[Any]:
        """The symbols of a relation, for its message: name, row."""
        return [[self.program.dims.get(s.name, s.name), self.row(s, promised=True)] for s in e.symbols()[:8]]

    def input(self, i: Input) -> dict[str, Any]:
        row: dict[str, Any] = {"name": i.name, "kind": i.kind}
        t: Any = i.value
        if not i.is_tensor:
            e = t
            return row | {"row": self.learn(e), "number": KINDS[e.kind]}
        slot = self.slots.get(t.vid)
        if slot is None:
            slot = self.new_slot(t, -1)
        row |= {"slot": slot, "dtype": self.dtype(t)}
        if i.kind != USER:
            self.settle(i)
        symbols: list[Any] = []
        for what, values in (("size", t.sizes), ("stride", t.strides)):
            for dim, v in enumerate(values):
                e = liveness.number(v)
                if e is not None and e.op == "sym" and e.name not in self.known:
                    symbols.append([what, dim, self.learn(e)])
        e = liveness.number(t.offset)
        if e is not None and e.op == "sym" and e.name not in self.known:
            symbols.append(["offset", 0, self.learn(e)])
        return row | {"symbols": symbols}

    def settle(self, i: Input) -> None:
        """Symbols that are sizes of weights: numbers, for the weights are in the file."""
        t: Any = i.value
        real = self.program.state[i.name]
        for traced, value in zip((*t.sizes, *t.strides, t.offset), (*real.shape, *real.contiguous().stride(), 0), strict=True):
            e = liveness.number(traced)
            if e is not None and e.op == "sym" and e.name not in self.known:
                self.known.add(e.name)
                self.line.done[e] = self.line.add(self.scope.ctx.lift(value))

    def layout(self, i: Input, row: dict[str, Any]) -> None:
        """What an input must look like, when all symbols are known."""
        t: Any = i.value
        settled = [self.settled_size(v) for v in t.sizes]
        row["sizes"] = [self.row(v, promised=True) for v in settled]
        row["strides"] = [self.row(v, promised=True) for v in t.strides]
        if i.kind == USER:
            row["promised"] = [str(s) if type(s) is int else s.python(self.program.dims) for s in settled]

    def settled_size(self, value: Any) -> Any:
        """A size as a number, if the program's promises leave one only, else as it stands."""
        e = liveness.number(value)
        if e is None:
            return value
        simple = self.scope.simplify(e)
        return e if simple.const is None else simple.const

    def due_asserts(self) -> None:
        """The assertions whose symbols are known by now."""
        for a in [a for a in self.waiting if self.is_known(a.expr)]:
            self.waiting.remove(a)
            if a.expr.const is not True:
                row, shown = self.row(a.expr, promised=True), self.shown(a.expr)
                text = "" if a.why == BRANCH else a.why or f"runtime assertion failed: {a.expr.python(self.program.dims)}"
                self.step("assert", row, text, line_of(a.site), shown)

    # operations ---------------------------------------------------------------------------------------------------------
    def operation(self, op: Any) -> None:
        target = op.target
        if target is REUSE:
            (old,), (new,) = op.args, op.outs
            was = self.slot(old)
            self.touch(was)
            self.step("reuse", self.new_slot(new, self.owner[was]), was)
        elif isinstance(op, Alloc):
            self.alloc(op.outs[0])
        elif isinstance(target, KernelCall):
            launch = target.launch
            self.call(self.code.kernel(launch), launch.buffers, launch.sizes, op.site)
        elif isinstance(target, SegmentCall):
            s = target.segment
            self.call(self.code.segment(s), s.outer, s.leaves, op.site)
        elif target is ITEM:
            source = self.slot(op.args[0])
            self.touch(source)
            symbol = liveness.number(op.outs[0])
            self.step("item", self.learn(symbol), source)
        elif target is ASSERT_SCALAR:
            row = self.row(op.args[0], promised=True)
            self.step("assert", row, str(op.args[1]), line_of(op.site), [])
        elif target in NO_WORK:
            return
        elif not self.views(op):
            self.aten(op)

    def alloc(self, t: TracedTensor) -> None:
        sizes = self.rows(t.sizes)
        strides = None if t.dense else self.rows(t.strides)
        slot = self.new_slot(t)
        self.touch(slot)
        self.step("alloc", slot, self.dtype(t), sizes, strides)

    def call(self, function: str, tensors: list[Any], sizes: list[Any], site: Any) -> None:
        slots = [self.slot(t) for t in tensors]
        rows = self.rows(sizes)
        self.touch(*slots)
        self.step("call", function, slots, rows, line_of(site))

    def views(self, op: Any) -> bool:
        """Whether all that the operation does is to look at memory in another way; if so, that is done."""
        bases: list[Any] = [view_base(op, i) if isinstance(o, TracedTensor) else None for i, o in enumerate(op.outs)]
        if op.target in IDENTITIES:
            bases = [op.args[0]]
        if liveness.mutable(op.target) or not bases or any(b is None for b in bases):
            return False
        if any(b.storage_id != o.storage_id or b.dtype.itemsize != o.dtype.itemsize for b, o in zip(bases, op.outs, strict=True)):
            return False
        if any(o.is_conj() or o.is_neg() for o in op.outs):
            return False
        for base, out in zip(bases, op.outs, strict=True):
            if out.vid in self.slots:
                continue
            at = self.slot(base)
            self.touch(at)
            sizes, strides = self.rows(out.sizes), self.rows(out.strides)
            offset = self.row(difference(out.offset, base.offset))
            self.step("view", self.new_slot(out, self.owner[at]), at, self.dtype(out), sizes, strides, offset)
        return True

    def aten(self, op: Any) -> None:
        """A call of libtorch."""
        target = with_tensors(op.target)
        schema = target._schema
        reads = [self.slot(t) for t in liveness.op_inputs(op)]
        arguments = []
        for i, a in enumerate(schema.arguments):
            value = op.args[i] if i < len(op.args) else (op.kwargs or {}).get(a.name, a.default_value if a.has_default_value() else None)
            arguments.append(self.argument(value, a.real_type, op))
        alias = op_info(target).returns
        results: list[Any] = []
        makes: list[int] = []
        for k, o in enumerate(op.outs):
            if not isinstance(o, TracedTensor):
                results.append(["number"])
            elif o.vid in self.slots:
                results.append(["operand"])
            else:
                base = view_base(op, k)
                slot = self.new_slot(o, self.owner[self.slot(base)] if base is not None else None)
                makes.append(slot)
                results.append(["tensor", slot, self.dtype(o), len(o.sizes)])
        many = op.out_spec is not None and "[]" in "".join(str(r.real_type) for r in schema.returns) or listed(schema)
        self.touch(*reads, *makes)
        self.step("aten", schema.name, schema.overload_name, arguments, results, bool(many), line_of(op.site))
        for b in op.binds:
            out, symbol = op.outs[b.out], liveness.number(b.symbol)
            if b.dim is None:
                self.steps[-1][5][b.out] = ["number", self.learn(symbol)]
            else:
                row = self.learn(symbol)
                self.touch(self.slot(out))
                self.step("size", row, self.slot(out), b.dim)
        if is_certain(op.target) and all(a is None for a in alias):
            return
        for o in liveness.op_outputs(op):
            if o.vid in self.slots and self.slots[o.vid] in makes and len(o.sizes) and self.is_known(*o.sizes, *o.strides):
                slot = self.slots[o.vid]
                self.touch(slot)
                sizes, strides = self.rows(o.sizes), self.rows(o.strides)
                self.step("fit", slot, sizes, strides)

    def argument(self, value: Any, type_: Any, op: Any) -> Any:
        """An argument, by the type that the schema says: [kind, value]; null for None."""
        text = str(type_)
        if value is None:
            return None
        if text.startswith("Optional["):
            return ["some", self.argument(value, type_.getElementType(), op)]
        if text.startswith("List[") and isinstance(value, (list, tuple)):
            element = type_.getElementType()
            return ["list", [self.argument(v, element, op) for v in value]]
        if text == "Tensor" and not isinstance(value, TracedTensor):
            return ["number", self.row(value), self.number_dtype(value, op)]
        make = ARGUMENTS.get(text)
        if make is None:
            raise PliantError(
                f"{op.target} cannot be called without Python: its argument of type {text} has no form in libtorch's stable interface"
                f" ({line_of(op.site)})"
            )
        return make(self, value)

    def number_dtype(self, value: Any, op: Any) -> str:
        """The dtype of a number where an operator takes a tensor: a tensor of no dims takes part in promotion, which numbers do not."""
        e = liveness.number(value)
        sample = (e.kind if e is not None else type(value))(1)
        operand = next((t for t in liveness.op_inputs(op)), None)
        dtype = torch.result_type(torch.empty(1, dtype=operand.dtype), sample) if operand is not None else torch.tensor(sample).dtype
        if dtype not in SHORT or dtype in (torch.float16, torch.bfloat16):
            raise PliantError(f"{op.target} cannot be called without Python: its number would be rounded to {dtype} ({line_of(op.site)})")
        return SHORT[dtype]

    def with_frees(self) -> list[list[Any]]:
        """The steps, and where memory may go."""
        frees: dict[int, list[int]] = {}
        for slot, owner in self.owner.items():
            at = self.last.get(owner, -1) if owner >= 0 else -1
            if at >= 0:
                frees.setdefault(at, []).append(slot)
        out = []
        for k, s in enumerate(self.steps):
            out.append(s)
            if k in frees:
                out.append(["free", s[1], frees[k]])
        return out


def with_tensors(target: Any) -> Any:
    """The overload that takes tensors of no dims for numbers, where there is one: libtorch's stable interface knows no numbers that may be
    of any type."""
    names = {"Scalar": "Tensor", "Tensor_Scalar": "Tensor_Tensor"}
    schema = target._schema
    packet = target.overloadpacket
    other = getattr(packet, names.get(schema.overload_name, ""), None)
    if other is None or len(other._schema.arguments) != len(schema.arguments):
        return target
    kinds = [(str(a.real_type), str(b.real_type)) for a, b in zip(schema.arguments, other._schema.arguments, strict=True)]
    return other if all(a == b or (a, b) == ("number", "Tensor") for a, b in kinds) else target


def listed(schema: Any) -> bool:
    """Does the operator return a list?"""
    return len(schema.returns) == 1 and str(schema.returns[0].real_type).startswith("List[")


def difference(a: Any, b: Any) -> Any:
    a, b = liveness.number(a) if liveness.number(a) is not None else a, liveness.number(b) if liveness.number(b) is not None else b
    return 0 if a is b else a - b


def number(p: Planner, value: Any) -> list[Any]:
    return ["row", p.row(value)]


ARGUMENTS: dict[str, Callable[[Planner, Any], list[Any]]] = {
    "Tensor": lambda p, v: ["tensor", p.slot(v)],
    "int": lambda p, v: ["dtype", SHORT[v]] if isinstance(v, torch.dtype) else number(p, v),
    "SymInt": number,
    "float": lambda p, v: ["float", p.row(float(v)) if liveness.number(v) is None else p.row(v)],
    "bool": number,
    "ScalarType": lambda p, v: ["dtype", SHORT[v]],
    "Device": lambda p, v: ["device", str(v)],
    "Layout": lambda p, v: ["layout", "strided"],
    "MemoryFormat": lambda p, v: ["format", str(v).removeprefix("torch.")],
    "str": lambda p, v: ["text", str(v)],
}
"""How an argument of each type goes through libtorch's stable C interface."""


def row_data(step: Any) -> list[Any]:
    """A row as JSON: [operator, rows], ["sym", kind, name], ["int", n], ["bool", 0 or 1], ["float", hex]."""
    if step.op == "sym":
        return ["sym", KINDS[step.kind], step.value.name]
    if step.op != "const":
        return [step.op, *step.args]
    if type(step.value) is float:
        return ["float", step.value.hex()]
    if not -(2**63) <= step.value < 2**63:
        raise PliantError(f"the number {step.value} does not fit into 64 bits")
    return ["bool" if type(step.value) is bool else "int", int(step.value)]
