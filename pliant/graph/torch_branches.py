"""Branches and loops on data in graphs for other backends: `torch.ops.higher_order.cond` of two graph modules, as TorchDynamo writes
`torch.cond`, and `rounds` of two, which only who runs the graph as it is takes.

A side is a graph module of its own, of ATen operations. Its inputs are what either side reads and does not make: tensors, then integers.
Those of a round are what it carries, then what it reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import fx
from torch._higher_order_ops.cond import cond_op

from pliant.graph.builder import Undefined
from pliant.graph.control_flow import Block, Branch, Flow, FlowOp, Leave, captures
from pliant.graph.originals import operator, torch
from pliant.graph.traced import LOOPS_OF_OTHERS, Reconsider, TracedTensor, Untraceable, tensors_of
from pliant.symbolic.expr import Expr

if TYPE_CHECKING:
    from pliant.graph.torch_graph import TorchBuilder


def emit(b: TorchBuilder, op: FlowOp) -> fx.Node:
    """Append the branch and what it defines. Returns its node. Raises Untraceable for a loop, and for results that are no tensors."""
    flow = op.flow
    loops = flow.loops or flow.entry is not None
    if not loops and (isinstance(flow.body.end, Leave) or not all([type(o) is TracedTensor for o in op.outs])):
        raise Untraceable(op.target, "a branch that gives numbers, for a backend that is not pliant's own")
    node = loop(b, op) if loops else branch(b, flow.body)
    node.meta["site"], node.meta["val"] = op.site, tuple(op.outs)
    for i, out in enumerate(op.outs):
        part = b.numbers[i] = b.graph.call_function(operator.getitem, (node, i))
        part.meta["site"] = op.site
        if type(out) is TracedTensor:
            b.result(out, part)
    for bind in op.binds:
        b.bind(op, bind)
    return node


def rounds(entry: Any, round_: Any, carried: tuple, captured: tuple) -> tuple:
    """The loop: each module gives (whether there is a round behind it, what that one is given, the results if there is none)."""
    goes_on, now, results = (True, carried, ()) if entry is None else entry(*captured)
    if now is None:
        now = carried
    while goes_on:
        goes_on, now, results = round_(*now, *captured)
    return tuple(results)


def loop(b: TorchBuilder, op: FlowOp) -> fx.Node:
    """A loop of rounds that each end in one question."""
    flow = op.flow
    first, captured = op.args
    if flow.sizes or flow.late or any([type(c) is Expr and c.kind is not int for c in (*flow.params, *flow.captured)]):
        refused("a loop on data that carries tensors of changing sizes, or reads a float")
    entry = None if flow.entry is None else b.graph.get_attr(b.held(round_of(b, flow.entry, flow.captured)))
    body = b.graph.get_attr(b.held(round_of(b, flow.body, [*flow.params, *flow.captured])))
    given = [tuple([b.number(c) if type(c) is Expr else b.argument(c) for c in values]) for values in (first, captured)]
    return b.graph.call_function(rounds, (entry, body, *given))


def refused(what: str) -> None:
    raise Reconsider("a loop", f"{what}, for a backend that is not pliant's own", LOOPS_OF_OTHERS)


def round_of(b: TorchBuilder, block: Block, inputs: list[Any]) -> fx.GraphModule:
    """The module of a block that ends in one question, or in none."""
    inner = type(b)(b.trace, set(), b.keeps)
    inner.grad, inner.autocast = b.grad, dict(b.autocast)
    sides = [block.end.yes, block.end.no] if isinstance(block.end, Branch) else [block]
    ends = [side.end for side in sides if isinstance(side.end, Leave)]
    if len(ends) < len(sides) or len(ends) == 2 and ends[0].again is ends[1].again:
        refused("a loop on data whose rounds end in several questions")
    try:
        for c in inputs:
            inner.placeholder(c)
        straight(inner, block)
        test: Any = ends[0].again
        if isinstance(block.end, Branch):
            for side in sides:
                straight(inner, side)
            asked = inner.number(block.end.test)
            test = asked if test else inner.graph.call_function(torch.sym_not, (asked,))
        ways = {end.again: tuple([inner.argument(v) for v in end.values]) for end in ends}
    except Undefined as e:
        raise Reconsider("a loop", f"{e.value} is not known in a round", LOOPS_OF_OTHERS) from e
    made = inner.module_of_nodes((test, ways.get(True) or None, ways.get(False, ())), "Round")
    for node in made.graph.nodes:
        node.meta.clear()
    return made


def branch(b: TorchBuilder, block: Block) -> fx.Node:
    """The operations of a block that ends in a branch, and the branch."""
    straight(b, block)
    end: Any = block.end
    operands: list[Any] = []
    for side in (end.yes, end.no):
        operands += [c for c in captures(Flow([], side), b.trace.scope.simplify) if not any([c is o for o in operands])]
    operands.sort(key=lambda c: type(c) is Expr)
    if any([type(c) is Expr and c.kind is not int for c in operands]):
        raise Untraceable(cond_op, "a branch on data that reads a float, for a backend that is not pliant's own")
    given = tuple(b.number(c) if type(c) is Expr else b.argument(c) for c in operands)
    sides = [b.graph.get_attr(b.held(module_of(b, side, operands))) for side in (end.yes, end.no)]
    return b.graph.call_function(cond_op, (b.number(end.test), *sides, given))


def straight(b: TorchBuilder, block: Block) -> None:
    if block.asserts:
        raise Untraceable(cond_op, "an assertion in a branch on data, for a backend that is not pliant's own")
    for op in block.ops:
        b.in_its_state(op)


def module_of(b: TorchBuilder, block: Block, operands: list[Any]) -> fx.GraphModule:
    """A side. What its nodes are of is forgotten: the module outlives the capture."""
    inner = type(b)(b.trace, set(), b.keeps)
    inner.grad, inner.autocast = b.grad, dict(b.autocast)
    try:
        for c in operands:
            inner.placeholder(c)
        if isinstance(block.end, Leave):
            straight(inner, block)
            if len(tensors_of(block.end.values)) != len(block.end.values):
                raise Untraceable(cond_op, "a side of a branch that gives no tensors, for a backend that is not pliant's own")
            out = [inner.argument(v) for v in block.end.values]
        else:
            node = branch(inner, block)
            count = len(block.leaves()[0].values)
            out = [inner.graph.call_function(operator.getitem, (node, i)) for i in range(count)]
    except Undefined as e:
        raise Untraceable(cond_op, f"{e.value} is not known in a side of a branch") from e
    made = inner.module_of_nodes(tuple(out), "Side")
    for node in made.graph.nodes:
        node.meta.clear()
    return made

