"""Common subexpressions: what a program computes again, and views that equal what they are made from, go.

Results that the caller gets are told apart by identity, so each keeps its own operation, but one and the same computation serves a result
and those who read it in here: `f(x + y), x + y` is one addition.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from pliant.graph.control_flow import FLOWS
from pliant.graph.dispatch import all_same
from pliant.graph.dispatch import same as same_size
from pliant.graph.operators import Column
from pliant.graph.originals import ORIGINAL
from pliant.graph.traced import TracedTensor
from pliant.lower import liveness, views
from pliant.lower.views import DETACH, view_base

COPY_CONSTANT = torch.ops.aten.lift_fresh_copy.default
IDENTITIES = Column("identity")
IDENTITIES.add(*(getattr(torch.ops.aten, name).default for name in ("detach", "alias", "lift_fresh", "lift")))
"""Operators that only give their operand a new tensor object."""


@dataclass(slots=True)
class Same:
    """What `without_repetition` found: `tensors` maps the vid of a dropped tensor to the one that it equals."""

    tensors: dict[int, TracedTensor] = field(default_factory=dict)
    bases: dict[int, TracedTensor] = field(default_factory=dict)

    def copy(self) -> Same:
        return Same(dict(self.tensors), dict(self.bases))


def without_repetition(ops: list[Any], outputs: Iterable[Any], same: Same | None = None, results: bool = False) -> list[Any]:
    """The operations without views that equal what they are views of (`x.t().t()`, `x.detach()`), and without repetitions.

    `outputs` keep theirs. With `results`, and if they are all that anybody will ever see of these operations (autograd may yet save what
    is made in between), an operation that makes one of them serves its repetitions, too. Nothing is dropped if some operation changes the
    metadata of tensor objects. The copy of a constant is dropped where nobody writes to it or gets to see its memory. `same` carries over
    what earlier operations (the forward part) found.
    """
    same = Same() if same is None else same
    if liveness.any_restrides(ops):
        return [substitute(op, same.tensors) for op in ops]
    outputs = list(liveness.tensors_of(list(outputs)))
    if not FLOWS.isdisjoint(liveness.operators(ops)):
        outputs += [t for op in ops if op.target in FLOWS for t in liveness.op_inputs(op)]  # which may give back what they are given
    ops = without_detached_factories(ops, {t.vid for t in outputs}, same)
    r = Repetitions(ops, outputs, same, results)
    for op in ops:
        op = substitute(op, same.tensors)
        result = op.outs[0] if len(op.outs) == 1 and op.out_spec is None else None
        twin = equal_tensor(op, result, same, r.exposed) if type(result) is TracedTensor else None
        if twin is not None and result.vid not in r.seen:
            same.tensors[result.vid] = twin
        elif not r.repeats(op):
            r.out.append(op)
    return [substitute(op, r.renamed) for op in r.out] if r.renamed else r.out


class Repetitions:
    """Finds operations that compute what an earlier one does. One use: `repeats` of each, in order, those that do not being in `out`."""

    def __init__(self, ops: list[Any], outputs: list[TracedTensor], same: Same, results: bool) -> None:
        self.ops = ops
        self.same = same
        self.seen = {t.vid for t in outputs}
        self.dirty = liveness.dirty_memory(ops)
        self.exposed = {t.storage_id for t in outputs} | self.dirty
        self.outputs = outputs
        self.results = results
        self.outside: set[int] | None = None  # tensors whose memory results lie in
        self.first: dict[tuple, int] = {}  # operator and operands -> the place in `out` of the first operation with these
        self.table: dict[tuple, int] = {}  # what is computed -> its place in `out`, where operator and operands were met twice
        self.out: list[Any] = []
        self.renamed: dict[int, TracedTensor] = {}  # by vid: a tensor whose operation makes a result now -> that
        self.keys: dict[int, int] = {}  # the other way round, for keys of what was met before

    def repeats(self, op: Any) -> bool:
        """Is it computed already? If so, `same` knows by which tensors.

        Only where nobody can tell: no effects, no writes to the memory that is read or made, and what is new memory stays inside.
        """
        changes, effects, *_ = liveness.traits(op.target)
        if op.binds or changes or effects or not op.outs:
            return False
        inputs = liveness.op_inputs(op)
        if self.dirty and any([t.storage_id in self.dirty for t in inputs]):
            return False
        private = self.private(op)
        if not private and not (self.results and self.makes_result(op)):
            return False
        keys = self.keys
        operands = (id(op.target), *([keys.get(t.vid, t.vid) for t in inputs] if keys else [t.vid for t in inputs]))
        at = self.first.setdefault(operands, len(self.out))
        if at == len(self.out):
            return False  # most are the only ones, and need no key of all their arguments
        self.table.setdefault(self.key(self.out[at]), at)
        at = self.table.setdefault(self.key(op), len(self.out))
        if at == len(self.out):
            return False
        first = self.out[at]
        if private and (not self.results or self.private(first) or self.inside(op)):
            self.same.tensors.update((a.vid, b) for a, b in zip(op.outs, first.outs, strict=True) if isinstance(a, TracedTensor))
            return True
        if private or not self.private(first) or not self.inside(first) or not same_layout(first.outs[0], op.outs[0]):
            return False
        self.take_over(at, op.outs[0])
        return True

    def key(self, op: Any) -> tuple:
        return id(op.target), key_of(op.args, self.keys), key_of(op.kwargs, self.keys)

    def private(self, op: Any) -> bool:
        """Does nobody outside get what it makes?"""
        for i, t in enumerate(op.outs):
            if not isinstance(t, TracedTensor) or t.vid in self.seen or (t.storage_id in self.exposed and view_base(op, i) is None):
                return False
        return True

    def makes_result(self, op: Any) -> bool:
        """Is a result in memory of its own, which nobody writes, all that it makes?"""
        if len(op.outs) != 1 or op.out_spec is not None or type(op.outs[0]) is not TracedTensor or view_base(op) is not None:
            return False
        made, reads = op.outs[0], liveness.op_inputs(op)
        return made.vid in self.seen and made.storage_id not in self.dirty and bool(reads) and not any([t is made for t in reads])

    def inside(self, op: Any) -> bool:
        """Is what it makes one tensor, of memory that no result shares?"""
        if self.outside is None:
            steps = views.view_steps(self.ops)
            self.outside = {views.root(t, steps).vid for t in self.outputs}
        return len(op.outs) == 1 and op.outs[0].vid not in self.outside

    def take_over(self, at: int, made: TracedTensor) -> None:
        """The operation at this place of `out` makes the result `made`, which its readers read."""
        twin = self.out[at].outs[0]
        self.out[at] = replace(self.out[at], outs=[made])
        self.renamed[twin.vid], self.keys[made.vid] = made, twin.vid
        for vid, t in self.same.tensors.items():
            if t is twin:
                self.same.tensors[vid] = made
        self.same.tensors[twin.vid] = made


def key_of(value: Any, same: dict[int, int]) -> Any:
    """A hashable that is equal for arguments that are the same; `same`: vids of tensors that have other tensors' keys."""
    if isinstance(value, TracedTensor):
        return ("tensor", same.get(value.vid, value.vid))
    if isinstance(value, (list, tuple)):
        return tuple([key_of(v, same) for v in value])
    if isinstance(value, dict):
        return tuple([(k, key_of(v, same)) for k, v in value.items()])
    e = liveness.number(value)
    if e is not None:
        return ("expr", id(e))
    return (type(value), repr(value) if isinstance(value, (float, complex)) else value)


def without_detached_factories(ops: list[Any], seen: set[int], same: Same) -> list[Any]:
    """`a = zeros(..); b = detach(a)`, where nobody else reads `a`, is `b = zeros(..)`: so factories are recorded.

    A function of the program's may save `a` for its backward part, which is none of these operations: `same` says that it is `b`.
    """
    if not any([op.target is DETACH for op in ops]):
        return ops
    uses = Counter(t.vid for op in ops for t in liveness.op_inputs(op))
    makers = {op.outs[0].vid: i for i, op in enumerate(ops) if len(op.outs) == 1 and isinstance(op.outs[0], TracedTensor)}
    out: list[Any] = list(ops)
    for i, op in enumerate(ops):
        source = op.args[0] if op.target is DETACH else None
        alone = isinstance(source, TracedTensor) and uses[source.vid] == 1 and not source.requires_grad
        if alone and source.vid not in seen and source.vid in makers:
            at = makers[source.vid]
            if at < i and out[at] is not None and not liveness.written(ops[at]) and view_base(ops[at]) is None:
                out[at] = replace(out[at], outs=[op.outs[0]])
                same.tensors[source.vid] = op.outs[0]
                out[i] = None
    return [op for op in out if op is not None]


def equal_tensor(op: Any, result: TracedTensor, same: Same, exposed: set[int]) -> TracedTensor | None:
    """The existing tensor with the memory and the metadata of `result`."""
    identity = is_identity(op.target)
    if not identity and not views.viewed(op.target):
        return op.args[0] if op.target is COPY_CONSTANT and result.storage_id not in exposed else None
    base = view_base(op)
    if base is None:
        return op.args[0] if identity and isinstance(op.args[0], TracedTensor) and op.args[0] is not result else None
    same.bases[result.vid] = base
    if identity:
        return base
    t: TracedTensor | None = base
    while t is not None:
        if same_layout(t, result):
            return t
        t = same.bases.get(t.vid)
    return None


@liveness.of_operator
def is_identity(target: Any) -> bool:
    return target in IDENTITIES


def same_layout(a: TracedTensor, b: TracedTensor) -> bool:
    """Sizes, strides, offset, dtype and lazy bits are the same, structurally."""
    return (
        all_same(a.sizes, b.sizes)
        and a.dtype is b.dtype
        and same_size(a.offset, b.offset)
        and all_same(a.strides, b.strides)
        and ORIGINAL.is_conj(a) == ORIGINAL.is_conj(b)
        and ORIGINAL.is_neg(a) == ORIGINAL.is_neg(b)
    )


def substitute(op: Any, same: dict[int, TracedTensor]) -> Any:
    """`op` with the tensors in `same` (by vid) replaced among its arguments, and so among its results if it returns one of these."""
    if not same or same.keys().isdisjoint([t.vid for t in liveness.op_inputs(op)]):
        return op
    return replace(op, args=swap(op.args, same), kwargs=swap(op.kwargs, same), outs=list(swap(op.outs, same)))


def swap(value: Any, same: dict[int, TracedTensor]) -> Any:
    if isinstance(value, TracedTensor):
        return same.get(value.vid, value)
    if isinstance(value, (list, tuple)):
        return tuple(swap(v, same) for v in value)
    if isinstance(value, dict):
        return {k: swap(v, same) for k, v in value.items()}
    return value
