"""Rules of placement for operators on lists of tensors: `_foreach_*`, and the fused steps of optimizers.

Each tensor of a list is worked on with those at the same position in the other lists: these are placed alike, other positions in any way.
"""

from __future__ import annotations

from typing import Any

import torch

from pliant.graph.operators import overloads
from pliant.graph.record import Op
from pliant.graph.symnode import expr_of
from pliant.graph.traced import TracedTensor
from pliant.lower import liveness
from pliant.remote import collectives as c
from pliant.remote.partition import Partial, Partitioner, Place, R, Shard, argument
from pliant.remote.sharding import bytes_of, rule, same_sizes, settle, settle_or_refuse
from pliant.symbolic import ops

aten = torch.ops.aten
POINTWISE = (
    "abs acos add addcdiv addcmul asin atan ceil clamp_max clamp_min copy cos cosh div erf erfc exp expm1 floor frac lerp lgamma log log10"
    " log1p log2 maximum minimum mul neg pow reciprocal round rsqrt sigmoid sign sin sinh sqrt sub tan tanh trunc zero"
)
NAMES = " ".join(f"_foreach_{name} _foreach_{name}_" for name in POINTWISE.split())
STEPS = "_fused_sgd_ _fused_adagrad_ _fused_adam_ _fused_adamw_"
FUSED = frozenset(overloads(tuple(STEPS.split())))


@rule(f"{' '.join(n for n in NAMES.split() if hasattr(aten, n))} {STEPS}")
def by_position(p: Partitioner, op: Op) -> Any:
    """Elements of tensors at the same position, each piece by itself."""
    lists = [a for a in (*op.args, *op.kwargs.values()) if type(a) in (list, tuple) and a and all(type(v) is TracedTensor for v in a)]
    if not lists or any(len(a) != len(lists[0]) for a in lists):
        return NotImplemented
    written = {t.vid for t in liveness.written(op)}
    if op.target in FUSED and argument(op, "grad_scale") is None:
        written -= {t.vid for t in op.args[1]}  # gradients are written only where they are scaled
    want: dict[int, Place] = {}
    places: list[Place] = []
    for group in zip(*lists, strict=True):
        for t in group:
            if t.vid in written and isinstance(p.place(t), Partial):
                settle_or_refuse(p, t)
        own = [t for t in group if t.vid in written and t.sizes]
        leader = own[0] if own else max(group, key=lambda t: (isinstance(p.place(t), Shard), bytes_of(t)))
        place = p.place(leader) if isinstance(p.place(leader), Shard) else R
        places.append(place)
        if op.target in FUSED:
            assume_alike(p, leader, group)
        for t in group:
            if same_sizes(p, t, leader):
                found = place
            elif not t.sizes or not isinstance(place, Shard):
                found = R
            else:
                return NotImplemented
            if t.vid in written and not p.same(p.place(t), found):
                if t.storage_id in p.outside or t.vid in want or not isinstance(p.place(t), type(R)):
                    return NotImplemented
                settle(p, t, found)
            if want.setdefault(t.vid, found) != found:
                return NotImplemented
    p.apply(op, lambda t: want.get(t.vid, R), R if written else places)
    return None


def assume_alike(p: Partitioner, leader: TracedTensor, group: tuple[TracedTensor, ...]) -> None:
    """What a fused step takes at one position has the same sizes, which nothing in the graph says: workers check it."""
    for t in group:
        if t.sizes and len(t.sizes) == len(leader.sizes):
            for a, b in zip(t.sizes, leader.sizes, strict=True):
                x, y = p.number(a), p.number(b)
                if not p.equal(x, y):
                    p.scope.assume(ops.eq(expr_of(x, p.scope), expr_of(y, p.scope)), p.site)


@rule("_foreach_norm")
def norms(p: Partitioner, op: Op) -> Any:
    """Of what is cut: the root of the sum of the squares of the norms of all pieces, all of them in one go."""
    given = op.args[0]
    cut = [i for i, t in enumerate(given) if isinstance(p.place(t), Shard)]
    if not cut or argument(op, "ord") != 2 or not all(t.dtype.is_floating_point for t in given) or len({t.dtype for t in given}) != 1:
        return NotImplemented
    xs = [p.local[t.vid] if i in cut else p.at(t, R) for i, t in enumerate(given)]
    made = p.emit(op.target, xs, 2, **{k: p.converted(v) for k, v in op.kwargs.items()})
    squares = [p.emit(aten.mul.Tensor, made[i], made[i]) for i in cut]
    for i, total in zip(cut, p.emit(c.ALL_REDUCE_MANY, squares, "sum"), strict=True):
        made[i] = p.emit(aten.sqrt.default, total)
    for o, t in zip(op.outs, made, strict=True):
        p.give(o, t, R)
    return None
