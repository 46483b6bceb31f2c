"""Side exits in a trace: an operation that leaves the graph where a condition is false.

`leave(condition, number, values, numbers)` stands where the program branches on data. It has an effect, so what writes memory of others,
draws random numbers or may raise stays on its side of it; what is pure may move across it. `values` are the tensors that the other
side of the branch needs, `numbers` the symbols.

`mark(number, values, numbers)` stands before what may raise in a run that has written to memory of others by then, so that the frame cannot
run anew. It notes what the effects that the program had by then need of the graph: should the graph raise behind it, these are done first.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from pliant.graph.originals import ORIGINAL
from pliant.graph.record import Op
from pliant.graph.symnode import SYMS, to_sym
from pliant.graph.traced import TracedTensor
from pliant.symbolic.expr import Expr

SIDE_EXITS = "side exits"
GRADIENTS = "side exits while gradients are recorded"
"""What an earlier capture of this code has refused where its graph cannot be left half way, at all or in that grad mode."""
MARKS = "marks of what was done before the graph may raise"
LIBRARY = torch.library.Library("pliant", "FRAGMENT")
LIBRARY.define("leave(Scalar condition, int number, Tensor[] values, Scalar[] numbers) -> ()")
LEAVE: Any = torch.ops.pliant.leave.default
LIBRARY.define("mark(int number, Tensor[] values, Scalar[] numbers) -> ()")
MARK: Any = torch.ops.pliant.mark.default
WAYS = frozenset((LEAVE, MARK))
"""Behind these the program may go on elsewhere: their last three arguments are a number, tensors and symbols."""


class Left(BaseException):
    """What a graph raises at a side exit: its number, and the tensors and numbers that `Exit.after` takes."""


class Elsewhere(Exception):
    """What a graph raises where a run takes another side of a branch than it assumes, before it has done anything: its place in
    `Trace.assumed`. CPython runs the frame."""


@dataclass(slots=True, eq=False)
class Exit:
    """One way out of a trace, or a mark. `values` are what the other side needs of the graph: traced tensors and symbolic numbers.

    `after(*values, *numbers of the operation)` gives these, once the graph has been left; codegen makes it. `way` is jit's: how to go on.
    `versions`: how often the inputs of the trace had been written to by then, by `vid`.
    """

    values: list[Any]
    way: Any
    after: Any = None
    roots: list[TracedTensor] = field(default_factory=list)
    versions: dict[int, int] = field(default_factory=dict)


def leave(trace: Any, condition: Expr, values: list[Any], way: Any, site: Any) -> None:
    """Record that the graph is left here where `condition` is false.

    What was asserted so far has to be checked before, so the operation reads the symbols of that, too.
    """
    number, scope = len(trace.exits), trace.scope
    versions = {t.vid: t._version for t in trace.inputs if not ORIGINAL.is_inference(t)}
    trace.exits.append(Exit(values, way, versions=versions))
    operands = needs(trace, values, [check.expr for check in scope.asserts])
    trace.ops.append(Op(LEAVE, (to_sym(scope, condition), number, *operands), {}, [], None, site, -1))


def mark(trace: Any, n: int, values: list[Any], way: Any, site: Any) -> None:
    """Record, before operation `n`, what is to be done first should the graph raise from there on."""
    op = Op(MARK, (len(trace.marks), *needs(trace, values, [])), {}, [], None, site, -1)
    trace.marks.append(Exit(values, way))
    trace.ops.insert(n, op)


def needs(trace: Any, values: list[Any], more: list[Expr]) -> tuple[tuple, tuple]:
    """The tensors among these values, and the symbols in them, in their sizes and in `more`."""
    wanted = [*values, *(s for t in values if type(t) is TracedTensor for s in (*t.sizes, *t.strides, t.offset))]
    told = [v.node.expr for v in wanted if isinstance(v, SYMS)] + more
    symbols = dict.fromkeys(s for e in told for s in e.symbols())
    tensors = tuple({v.vid: v for v in values if type(v) is TracedTensor}.values())
    return tensors, tuple(to_sym(trace.scope, s) for s in symbols)


def exit_of(trace: Any, op: Any) -> Exit:
    """The way out, or the mark, that an operation of `WAYS` stands for."""
    found: Exit = (trace.marks if op.target is MARK else trace.exits)[op.args[-3]]
    return found
