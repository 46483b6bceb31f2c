"""Flows (`graph/control_flow.py`) as Python: each block a compiled function, and between them `if` and `while`.

    def flow_0(v3, u2, v1, s0):
        while True:
            v9, u4 = _block0(v3, v1, s0)
            if u4:
                v3, u2 = v9, u2 + 1
            else:
                return (v9, u2 + 1)

No objects are made from round to round but tensors and numbers. Python's numbers stay Python's: integers of any size, floats in double.
An exception ends it, as does Ctrl-C.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import torch

from pliant import native
from pliant.codegen import fastops
from pliant.errors import InternalError
from pliant.graph.control_flow import FLOWS, Block, Branch, Flow, FlowOp, Leave, captures, needs, number_of, outputs_of, sizes_of_params
from pliant.graph.growing import is_list, read_length
from pliant.graph.originals import math
from pliant.graph.traced import TracedTensor, leaves, tensors_of
from pliant.lower import views
from pliant.lower.liveness import op_inputs, operators
from pliant.lower.restriding import as_views
from pliant.symbolic import maths
from pliant.symbolic.expr import Expr
from pliant.symbolic.printers import text_of

ITEM = torch.ops.aten._local_scalar_dense.default
Build = Callable[..., Any]  # `codegen.aten.build`
PAD = "    "


class FlowWriter:
    """One use: prints one flow. `build` compiles the operations of a block to a function of tensors and symbols."""

    def __init__(self, op: FlowOp, name: str, scope: Any, build: Build, lower: Any, guard: tuple[str, dict[str, Any]] | None) -> None:
        """`guard`: the context that blocks run in, entered once for all rounds, unless one gives back views, which autograd is to know."""
        self.flow = op.flow
        self.name = name
        self.scope = scope
        self.build = build
        self.lower = lower
        self.globals: dict[str, Any] = {"math": maths}
        self.sources: list[str] = []
        known = {v.name for v in self.flow.captured if type(v) is Expr}
        now = captures(self.flow, scope.simplify)
        self.late = [s for s in now if type(s) is Expr and s.name not in known]  # what captured sizes are by what was learned since
        self.guard = guard if guard is not None and not any(map(self.makes_views, self.flow.blocks())) else None

    def text(self) -> str:
        """The source of the function; what it needs is in `globals`."""
        flow = self.flow
        given = [*flow.params, *flow.captured, *self.late]
        lists = [name_of(p) for p in flow.params if type(p) is TracedTensor and is_list(p)]
        lines = [f"{name} = [*({name}[0] or ()), *{name}[1:]]" for name in lists]
        lines += self.block(flow.entry) if flow.entry is not None else []
        read = {name for b in flow.blocks() for name in needs(b, self.scope.simplify)[1]}
        sizes = [f"{size} = {self.read_size(t, d)}" for size, (t, d) in sizes_of_params(flow).items() if size in read]
        body = [*sizes, *self.block(flow.body)]
        lines += ["while True:", *indented(body)] if flow.loops else body
        if self.guard is not None:
            self.globals.update(self.guard[1])
            lines = [f"with {self.guard[0]}:", *indented(lines)]
        return "\n".join([f"def {self.name}({', '.join(map(name_of, given))}):", *indented(lines)]) + "\n"

    def makes_views(self, b: Block) -> bool:
        outputs = self.outputs(b)
        return any([t.vid in views.output_steps(b.ops, outputs) for t in tensors_of(outputs)])

    def read_size(self, t: TracedTensor, d: int | None) -> str:
        name, read = name_of(t), "storage_offset()" if d is None else read_length(t) if is_list(t) else f"size({d})"
        text = fastops.asked(name, read, self.globals)
        return f"0 if {name} is None else {text}" if t.vid in self.flow.late else text

    def block(self, b: Block) -> list[str]:
        lines = self.call(b) if b.ops or b.asserts else []
        if isinstance(b.end, Branch):
            yes, no = self.block(b.end.yes), self.block(b.end.no)
            test = self.value(b.end.test)
            if b is self.flow.body and self.flow.counter is not None:
                self.globals["_sides"] = self.flow.counter
                lines += [f"if _sides.counting: _sides.joined(bool({test}))"]
            return [*lines, f"if {test}:", *indented(yes), "else:", *indented(no)]
        return lines + self.end(b.end)

    def end(self, end: Leave) -> list[str]:
        appended = [f"{name_of(v[0])} += {self.value(v[1:])}" for v in end.values if type(v) is tuple and len(v) > 1]
        texts = [self.value(v[0] if type(v) is tuple else v) for v in end.values]
        return appended + self.leave(end, texts)

    def leave(self, end: Leave, texts: list[str]) -> list[str]:
        if not end.again:
            return [f"return ({', '.join(texts)}{',' if len(texts) == 1 else ''})"]
        changed = [(name_of(p), text) for p, text in zip(self.flow.params, texts) if name_of(p) != text]
        if not changed:
            return ["pass"]
        return [f"{', '.join(name for name, _ in changed)} = {', '.join(text for _, text in changed)}"]

    def call(self, b: Block) -> list[str]:
        """The call of a block's operations: what it makes goes to variables if somebody wants it."""
        if (line := self.reading(b)) is not None:
            return [line]
        tensors, symbols = needs(Block(b.ops, b.asserts, Leave(False, [])), self.scope.simplify)
        inputs = [*tensors.values(), *symbols.values()]
        outputs = self.outputs(b)
        name = f"{self.name}_{len(self.sources)}"
        of = next((t.trace for op in b.ops for t in tensors_of(op.outs)), None)
        ops = as_views(of, b.ops, outputs) if of is not None else b.ops
        trace = SimpleNamespace(scope=self.scope, ops=ops, data_memory=frozenset())
        guard = None if self.guard is None else False
        ran = self.build(trace, inputs, outputs, name=name, ops=ops, asserts=b.asserts, lower=self.lower, guard=guard)
        self.sources.append(ran.source)
        self.globals[f"_{name}"] = ran.fn
        call = f"_{name}({', '.join(map(name_of, inputs))})"
        names = [name_of(v) for v in outputs]
        return [f"{', '.join(names)}{',' if len(names) == 1 else ''} = {call}" if names else call]

    def reading(self, b: Block) -> str | None:
        """The line of a block that does nothing but read a number from a plain tensor on the CPU. None: it is no such block."""
        if len(b.ops) != 1 or b.asserts or b.ops[0].target is not ITEM or not native.FAST_TENSORS:
            return None
        (t,), outs = b.ops[0].args, b.ops[0].outs
        if t.constant is not None or t.device.type != "cpu" or t.trace.lazy_bits:
            return None
        if [x.symbol for x in b.ops[0].binds] != [number_of(outs[0])]:
            return None
        self.globals["_number"] = native.number
        return f"{name_of(outs[0])} = _number({name_of(t)})"

    def outputs(self, b: Block) -> list[Any]:
        """What the operations of a block make that is read behind them: tensors and symbols."""
        tensors, symbols = self.wanted(b)
        made = {t.vid: t for op in b.ops for t in tensors_of(op.outs) if t.vid in tensors}
        before = needs(Block(b.ops, [], Leave(False, [])), self.scope.simplify)[0]
        bound = [bind.symbol for op in b.ops for bind in op.binds if bind.symbol.name in symbols]
        return [*(t for vid, t in made.items() if vid not in before), *bound]

    def wanted(self, b: Block) -> tuple[set[int], set[str]]:
        """What is read behind the operations of this block, by vid and by name."""
        tensors: set[int] = set()
        symbols: set[str] = set()
        for i, block in enumerate(b.walk()):
            if i:
                t, s = needs(block, self.scope.simplify)
                tensors.update(t)
                symbols.update(s)
                continue
            for v in leaves(outputs_of(block)):
                if type(v) is TracedTensor:
                    tensors.add(v.vid)
                elif (e := number_of(v)) is not None:
                    symbols.update(x.name for x in e.symbols())
        return tensors, symbols

    def value(self, v: Any) -> str:
        if type(v) is TracedTensor:
            if v.constant is not None:
                self.globals[f"k{v.vid}"] = v.constant
                return f"k{v.vid}"
            return name_of(v)
        e = number_of(v)
        if e is not None:
            return f"({e.python()})" if e.op != "sym" else e.name
        if type(v) is float and not math.isfinite(v):
            return f"float('{v}')"
        if type(v) in (int, float, bool, str) or v is None:
            return text_of(v)
        if type(v) is tuple:
            return f"({''.join([f'{self.value(x)}, ' for x in v])})"
        raise InternalError(f"{self.name}: a {type(v).__name__} leaves a block")


def passes_views(ops: list[Any], steps: dict[int, Any]) -> bool:
    """Whether a flow among these operations is given one of the views `steps`, or gives one back. That is the very object that it was
    given, not one made again behind the graph: autograd has to see it made, or it has no version counter in common with its base."""
    flows = [op for op in ops if op.target in FLOWS] if not FLOWS.isdisjoint(operators(ops)) else []
    return any([gives_views(op.flow) or any([t.vid in steps for t in op_inputs(op)]) for op in flows])


def gives_views(flow: Flow) -> bool:
    """Whether something that it gives back, or carries, is a view of what it was given: autograd is to know that."""
    out = tensors_of([b.end.values for b in flow.blocks() if isinstance(b.end, Leave)])
    steps = views.output_steps(flow.ops(), out)
    return any([t.vid in steps for t in out])


def name_of(v: Any) -> str:
    return f"v{v.vid}" if type(v) is TracedTensor else v.name if type(v) is Expr else v.node.expr.name


def indented(lines: Iterable[str]) -> list[str]:
    return [PAD + line for line in lines]


__all__ = ["FlowWriter", "passes_views"]
