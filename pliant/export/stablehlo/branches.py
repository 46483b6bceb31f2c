"""Branches on data: the programs of both sides as the branches of one `stablehlo.case`.

What each side asks of data is computed first; the first side whose questions are all answered yes is the branch that runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from jaxlib.mlir import ir

from pliant.export.program import Program, Relation
from pliant.export.stablehlo.builder import Value
from pliant.symbolic.scope import BRANCH

NO_SIDE = "no captured side"
Taken = tuple[list[Value], list[tuple[Value, str]], list[Any]]


def case(programs: list[Program], lowering: Callable[[Program], Any], given: dict[str, Any]) -> Taken:
    """The results of the side that data choose, what must hold of data besides, and the lowerings that were used."""
    used = []
    takes = []
    for q in programs:
        b = lowering(q)
        used.append(b)
        b.bind_inputs([given[i.name] for i in q.inputs])
        asked = questions(q)
        b.run([], asked)
        yes = b.splat(True, (), torch.bool)
        for v, _ in b.conditions(asked):
            yes = b.same("and", yes, v)
        takes.append(yes)
    b = used[0]
    index = b.splat(len(programs) - 1, (), torch.int32)
    some = takes[-1]
    for k in reversed(range(len(programs) - 1)):
        index = b.select(takes[k], b.splat(k, (), torch.int32), index)
        some = b.same("or", takes[k], some)
    shapes = [joined([lowering(q).results_shape(o) for q in programs]) for o in range(len(programs[0].outputs))]
    types = [*[b.type(sizes, dtype) for sizes, dtype in shapes], b.type((), torch.bool)]
    made = ir.Operation.create("stablehlo.case", types, [index.ir], regions=len(programs))
    texts = []
    for k, q in enumerate(programs):
        side = lowering(q)
        used.append(side)
        block = made.regions[k].blocks.append()
        with ir.InsertionPoint(block):
            results, conditions = side.emit([given[i.name] for i in q.inputs])
            holds = side.splat(True, (), torch.bool)
            for v, text in conditions:
                if BRANCH not in text:
                    holds = side.same("and", holds, v)
                    texts.append(text)
            out = [fitted(side, v, t) for v, t in zip(results, types)]
            ir.Operation.create("stablehlo.return", [], [*out, holds.ir])
    found = [Value(r, sizes, dtype) for r, (sizes, dtype) in zip(made.results, shapes)]
    conditions = [(some, f"{NO_SIDE} of the branches of {programs[0].name} takes this call: the function itself raises there")]
    if texts:
        conditions.append((Value(made.results[len(shapes)], (), torch.bool), "; or ".join(dict.fromkeys(texts))))
    return found, conditions, used


def questions(q: Program) -> list[Relation]:
    """What the branches of this side asked of data."""
    return [r for r in q.asserts if r.expr.const is None and BRANCH in r.why]


def joined(shapes: list[tuple[tuple[Any, ...], torch.dtype]]) -> tuple[tuple[Any, ...], torch.dtype]:
    """A shape that all sides can have: static where all agree."""
    first, dtype = shapes[0]
    if any(d != dtype or len(s) != len(first) for s, d in shapes):
        raise TypeError("the sides of a branch give tensors of other dtypes or numbers of dims")
    return tuple(n if all(type(s[d]) is int and s[d] == n for s, _ in shapes) else OPEN for d, n in enumerate(first)), dtype


class Open:
    """A size that the sides disagree on, or that changes."""


OPEN = Open()


def fitted(b: Any, v: Value, t: Any) -> Any:
    """A value as a more open type."""
    if v.ir.type == t:
        return v.ir
    return ir.Operation.create("stablehlo.dynamic_reshape", [t], [v.ir, b.shape(v.sizes)]).results[0]
