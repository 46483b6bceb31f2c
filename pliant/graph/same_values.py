"""Whether two tensors of a trace hold the same values whatever the run brings: made by the same operators of the same operands.

Masked tensors ask it of the masks of two operands, each a copy of the other's. What is compared is what operators say: nothing is run.
"""

from __future__ import annotations

from typing import Any

import torch

from pliant.graph.rules.shape import known_equal
from pliant.graph.schema import written
from pliant.graph.traced import TracedTensor

COPIES = frozenset(f"aten::{name}" for name in ("clone", "alias", "detach", "lift_fresh", "contiguous"))
UNDEFINED = ("empty", "new_empty", "resize")
"""Beginnings of the names of operators whose results are whatever is in memory."""
RESIZING = frozenset(f"aten::{name}" for name in ("expand", "view", "_unsafe_view", "_reshape_alias", "reshape"))
"""Operators that are copies, where they do not change sizes."""
ATEN = torch.ops.aten
SLICE, SELECT, CAT, STACK = ATEN.slice.Tensor, ATEN.select.int, ATEN.cat.default, ATEN.stack.default
LONGEST = 64
INTS = (int, torch.SymInt)


def makers(trace: Any) -> dict[int, Any]:
    """By the vid of a tensor, the operation that made it. Each operation is looked at once."""
    n, latest, made = trace.made_by
    if n and (n > len(trace.ops) or trace.ops[n - 1] is not latest):  # some were taken back
        n, made = 0, {}
    for op in trace.ops[n:]:
        if len(op.outs) == 1 and type(op.outs[0]) is TracedTensor:
            made.setdefault(op.outs[0].vid, op)
    trace.made_by = len(trace.ops), trace.ops[-1] if trace.ops else None, made
    return made


def equal_always(trace: Any, a: Any, b: Any) -> bool:
    """Whether `a` and `b`, of a dtype without NaN, are equal element by element. False where that is not known."""
    memory: set[int] = set()
    made = makers(trace)

    def of_one_size(x: Any, y: Any) -> bool:
        return len(x.sizes) == len(y.sizes) and all([known_equal(trace, m, n) for m, n in zip(x.sizes, y.sizes, strict=True)])

    def pure(op: Any) -> bool:
        target = op.target
        known = isinstance(target, torch._ops.OpOverload) and not target._schema.is_mutable and not op.binds
        name = target._schema.name.partition("::")[2] if known else ""
        return known and torch.Tag.nondeterministic_seeded not in target.tags and not name.startswith(UNDEFINED)

    def copies(op: Any) -> bool:
        if not isinstance(op.target, torch._ops.OpOverload) or op.target._schema.overload_name:  # `view` as another dtype is none
            return False
        name = op.target._schema.name
        return name in COPIES or name in RESIZING and of_one_size(op.args[0], op.outs[0])

    def part(op: Any) -> Any:
        """The tensor that a slice of joined ones takes out again, all of it; None if it takes another part."""
        if op.target not in (SLICE, SELECT) or op.kwargs:
            return None
        whole, dim, at, *rest = op.args
        joint = made.get(origin(whole).vid)
        if joint is None or joint.target is not (CAT if op.target is SLICE else STACK) or joint.kwargs:
            return None
        n = len(joint.outs[0].sizes)
        if any([t.dtype is not whole.dtype for t in joint.args[0]]):  # they were promoted
            return None
        parts, along = joint.args[0], (joint.args[1] if len(joint.args) > 1 else 0) % n
        if along != dim % n or len(whole.sizes) != n:
            return None
        if op.target is SELECT:
            return parts[at] if type(at) is int and -len(parts) <= at < len(parts) else None
        start = 0
        for t in parts if len(rest) == 1 or rest[1:] == [1] else ():
            if len(t.sizes) == n and known_equal(trace, at, start) and known_equal(trace, rest[0], start + t.sizes[along]):
                return t
            start = start + t.sizes[along] if len(t.sizes) == n else start
        return None

    def origin(x: Any) -> Any:
        while (op := made.get(x.vid)) is not None:
            memory.add(x.storage_id)
            found = op.args[0] if copies(op) else part(op)
            if found is None:
                break
            x = found
        memory.add(x.storage_id)
        return x

    def alike(x: Any, y: Any, depth: int) -> bool:
        if type(x) is TracedTensor and type(y) is TracedTensor:
            x, y = origin(x), origin(y)
            if x is y or x.vid == y.vid:
                return True
            p, q = made.get(x.vid), made.get(y.vid)
            if p is None or q is None or p.target is not q.target or depth >= LONGEST or not pure(p):
                return False
            return alike((p.args, p.kwargs), (q.args, q.kwargs), depth + 1)
        if type(x) in (list, tuple) and type(y) in (list, tuple):
            return len(x) == len(y) and all([alike(v, w, depth) for v, w in zip(x, y, strict=True)])
        if type(x) is dict and type(y) is dict:
            return x.keys() == y.keys() and all([alike(v, y[k], depth) for k, v in x.items()])
        if type(x) in INTS and type(y) in INTS:
            return bool(known_equal(trace, x, y))
        return type(x) is type(y) and not isinstance(x, torch.Tensor) and bool(x == y)

    if not of_one_size(a, b) or a.dtype is not b.dtype or a.dtype.is_floating_point or a.dtype.is_complex or not alike(a, b, 0):
        return False
    return not any([t.storage_id in memory for op in trace.ops for t in written(op)])
