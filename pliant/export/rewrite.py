"""Rewriting the operations of a trace: some are recorded anew as others, all that follows reads the new tensors.

An operation whose operands have been replaced is recorded anew too, for its result may be laid out otherwise. One that defines symbols
(`nonzero`, `item`) keeps its results: its layout does not depend on its operands', and its symbols must stay the same.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import torch

from pliant.graph import layout, symnode
from pliant.graph.control_flow import Block, Branch, Flow, FlowOp, Leave, captures
from pliant.graph.decompositions import PAST_SCHEMAS
from pliant.graph.dispatch import dispatch
from pliant.graph.record import Op
from pliant.graph.recurrent import WHOLE
from pliant.graph.symnode import to_sym
from pliant.graph.traced import TracedTensor
from pliant.lower import liveness
from pliant.symbolic import ops
from pliant.symbolic.scope import BRANCH, Assert

VIEWS = {torch.ops.aten.view.default: torch.reshape, torch.ops.aten._unsafe_view.default: torch.reshape}
"""How an operator on a replaced operand is spelled, which may be laid out so that it cannot be viewed. (In a program without writes a copy
is as good as a view.)"""


SETTLED = {
    torch.ops.aten.lift_fresh_copy.default: torch.ops.aten.clone.default, torch.ops.aten.lift_fresh.default: torch.ops.aten.alias.default,
}  # fmt: skip
"""Operators that mean something during a capture only, and what they come to."""


class Rewriter:
    """Collects the new operations in `ops`. `values`: traced tensors (by vid) that stand for others now.

    The blocks of a flow are rewritten like the rest: `step` is what becomes of one operation, there too. Their names are used once
    (`flows.Canonical`), so `values` may speak of all of them.
    """

    def __init__(self, trace: Any) -> None:
        self.trace = trace
        self.ops: list[Op] = []
        self.values: dict[int, TracedTensor] = {}

    def value(self, t: TracedTensor) -> TracedTensor:
        """What stands for `t` now."""
        return self.values.get(t.vid, t)

    def now(self, x: Any) -> Any:
        """An argument or an output, its tensors replaced."""
        if type(x) is TracedTensor:
            return self.value(x)
        if type(x) is list:
            return [self.now(v) for v in x]
        if type(x) is tuple:
            return tuple([self.now(v) for v in x])
        if type(x) is dict:
            return {k: self.now(v) for k, v in x.items()}
        return x

    def record(self, fn: Callable[..., Any], *args: Any, site: Any = None, **kwargs: Any) -> tuple[Any, list[Op]]:
        """What `fn` gives for traced arguments, and the operations that it came to; they are not yet among `ops`."""
        trace = self.trace
        kept, trace.ops = trace.ops, []
        hook, symnode.site_hook = symnode.site_hook, lambda: site
        try:
            with torch.no_grad(), layout.framework(swept=True), trace.recording():
                out = dispatch(trace, fn, args, kwargs) if fn in WHOLE or fn in PAST_SCHEMAS else fn(*args, **kwargs)
            made = trace.ops
        finally:
            trace.ops = kept
            symnode.site_hook = hook
        for op in made:
            if op.site is None:
                op.site = site
        return out, made

    def put(self, fn: Callable[..., Any], *args: Any, site: Any = None, **kwargs: Any) -> Any:
        """Record and append."""
        out, made = self.record(fn, *args, site=site, **kwargs)
        self.ops += made
        return out

    def step(self, op: Op) -> Any:
        """What becomes of an operation."""
        return self.again(op)

    def again(self, op: Op) -> list[Any]:
        """Append `op` on what its operands are now; its results, flat."""
        if isinstance(op, FlowOp):
            self.flow(op)
            return op.outs
        args, kwargs = self.now(op.args), self.now(op.kwargs)
        if same(args, op.args) and same(kwargs, op.kwargs):
            self.ops.append(op)
            return op.outs
        if op.binds or not op.outs:
            self.ops.append(dataclasses.replace(op, args=args, kwargs=kwargs))
            return op.outs
        target = VIEWS.get(op.target, SETTLED.get(op.target, op.target))
        out = self.put(target, *args, site=op.site, **kwargs)
        outs = [out] if op.out_spec is None else liveness.leaves(out)
        self.replace(op.outs, outs)
        return outs

    # -- branches and loops on data -------------------------------------------------------------------------------------------------
    def flow(self, op: FlowOp) -> None:
        """Append a flow whose blocks are rewritten; what it carries and gives stays."""
        carried = [row_major(self, self.now(v)) for v in op.args[0]]
        self.now(op.args[1])  # what is made for that is made here
        entry = self.block(op.flow.entry) if op.flow.entry is not None else None
        self.put_flow(op, Flow(op.flow.params, self.block(op.flow.body), entry, op.flow.sizes), carried)

    def put_flow(self, op: FlowOp, flow: Flow, carried: list[Any], **changes: Any) -> None:
        """Append `op` with these blocks."""
        scope = self.trace.scope
        flow.captured = captures(flow, scope.simplify)
        captured = [c if type(c) is TracedTensor else to_sym(scope, c) for c in flow.captured]
        self.ops.append(dataclasses.replace(op, args=(carried, captured), flow=flow, **changes))

    def block(self, b: Block) -> Block:
        """A block, and those behind it."""
        kept, self.ops = self.ops, []
        try:
            with supposed(self.trace.scope) as found:
                asserts = list(b.asserts)
                done = self.suppose(asserts)
                for op in b.ops:
                    self.step(op)
                    done += self.suppose(asserts)
                if isinstance(b.end, Branch):
                    test = self.expression(b.end.test)
                    end: Any = Branch(test, self.side(b.end.yes, test), self.side(b.end.no, ops.not_(test)))
                else:
                    end = Leave(b.end.again, [row_major(self, self.now(v)) for v in b.end.values])
            return Block(self.ops, [*done, *found], end)
        finally:
            self.ops = kept

    def side(self, b: Block, fact: Any) -> Block:
        """A block that runs where `fact` holds."""
        with supposed(self.trace.scope):
            learn(self.trace.scope, fact)
            return self.block(b)

    def expression(self, e: Any) -> Any:
        """An expression in the names that are used now. None where these are not known yet."""
        return e

    def suppose(self, asserts: list[Any]) -> list[Any]:
        """Learn those of the assertions whose symbols are known, which are taken out of the list."""
        found = []
        for a in list(asserts):
            e = self.expression(a.expr)
            if e is not None:
                asserts.remove(a)
                found.append(dataclasses.replace(a, expr=e))
                learn(self.trace.scope, e)
        return found

    def replace(self, old: list[Any], new: list[Any]) -> None:
        """From now on `new` stand for `old`."""
        for a, b in zip(old, new, strict=True):
            if type(a) is TracedTensor and a is not b:
                self.values[a.vid] = b


def row_major(r: Rewriter, v: Any) -> Any:
    """A tensor as one with the strides of its sizes, at the beginning of its memory; anything else as it is."""
    if type(v) is not TracedTensor or (v.dense and type(v.offset) is int and v.offset == 0):
        return v
    return r.put(torch.ops.aten.clone.default, v, memory_format=torch.contiguous_format)


@contextlib.contextmanager
def supposed(scope: Any) -> Iterator[list[Any]]:
    """What is learned inside is forgotten behind it, but symbols and guards. The list holds, then, what was assumed inside."""
    token, names, guards = scope.snapshot(), set(scope.symbols), len(scope.all_guards)
    assumed: list[Assert] = []
    begin = len(scope.asserts)
    try:
        yield assumed
    finally:
        assumed += [a for a in scope.asserts[begin:] if a.message != BRANCH]
        relied = scope.all_guards[guards:]
        made = {name: s for name, s in scope.symbols.items() if name not in names}
        scope.rollback(token)
        scope.symbols.update(made)
        for g in relied:
            scope.keep(g)


def learn(scope: Any, fact: Any) -> None:
    if getattr(fact, "const", None) is None and not scope.known_true(fact) and not scope.known_false(fact):
        scope.learn(fact)


def same(a: Any, b: Any) -> bool:
    """Whether the very same tensors are read."""
    if type(a) is TracedTensor or type(b) is TracedTensor:
        return a is b
    if isinstance(a, (list, tuple)):
        return all(map(same, a, b))
    if isinstance(a, dict):
        return all(same(v, b[k]) for k, v in a.items())
    return True
