"""Views: which tensors are made from which without copying, and which of them are needless.

Autograd must see views as views: an output of a training region that is a view is made outside of the differentiable node, by
replaying the view operations that the program used. Then `_base`, in-place writes, version counters and gradients are those of
eager, because they *are* eager's. Inside a graph, views that lead back to where they came from are dropped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from pliant.graph.dispatch import same as same_size
from pliant.graph.operators import Column
from pliant.graph.schema import UNDECLARED_VIEWS, argument, op_info
from pliant.graph.traced import TracedTensor, Untraceable
from pliant.lower import liveness

DETACH = torch.ops.aten.detach.default
COPY_CONSTANT = torch.ops.aten.lift_fresh_copy.default
IDENTITIES = Column("identity")
IDENTITIES.add(*(getattr(torch.ops.aten, name).default for name in ("detach", "alias", "lift_fresh", "lift")))
"""Operators that only give their operand a new tensor object."""


@dataclass(frozen=True, slots=True)
class ViewStep:
    """`op` made a view of `base`."""

    op: Any
    base: TracedTensor


def view_base(op: Any, i: int = 0) -> TracedTensor | None:
    """The argument that result `i` is a view of, according to the operator's schema; None if it is no view.

    `detach` of what has no gradient is no view: autograd tells the two apart, and factories (`torch.zeros`) record one.
    """
    info = op_info(op.target)
    if not info.returns or op.target in UNDECLARED_VIEWS:
        return None
    alias = info.returns[min(i, len(info.returns) - 1)]
    if alias is not None and alias[1]:
        return None
    name = alias[0] if alias is not None else listed_views(op.target)
    if name is None:
        return None
    base = argument(info, op.args, op.kwargs or {}, name)
    if not isinstance(base, TracedTensor) or base is op.outs[i] or (op.target is DETACH and not base.requires_grad):
        return None
    return base


@liveness.of_operator
def listed_views(target: Any) -> str | None:
    """The argument that an operator returns a list of views of (`split`, `unbind`): schemas write it as `Tensor(a -> *)`."""
    if len(target._schema.returns) != 1 or "List[Tensor]" not in str(target._schema.returns[0].type):
        return None
    found = (a.name for a in target._schema.arguments if a.alias_info is not None and "*" in a.alias_info.after_set)
    return next(found, None)


def view_steps(ops: Iterable[Any]) -> dict[int, ViewStep]:
    """For each traced tensor (by vid) that is a view, how it was made."""
    steps: dict[int, ViewStep] = {}
    for op in ops:
        for i, out in enumerate(op.outs):
            base = view_base(op, i) if isinstance(out, TracedTensor) else None
            if base is not None:
                steps.setdefault(out.vid, ViewStep(op, base))
    return steps


def output_steps(ops: list[Any], outputs: Iterable[Any]) -> dict[int, ViewStep]:
    """The same for `outputs`, which the program gets to see: `y.detach()` has the version counter of `y`, though neither has gradients.

    Where nothing else is made of `y`, nobody can tell.
    """
    steps = view_steps(ops)
    detached = [op for op in ops if op.target is DETACH and op.outs[0].vid not in steps]
    if detached:
        uses = Counter(t.vid for op in ops for t in liveness.op_inputs(op)) + Counter(t.vid for t in liveness.tensors(list(outputs)))
        made = {t.vid for op in ops for t in liveness.op_outputs(op)}
        for op in detached:
            base = op.args[0]
            if not isinstance(base, TracedTensor) or base is op.outs[0]:
                continue
            if uses[base.vid] > 1 or base.vid not in made or base.vid in steps:
                steps[op.outs[0].vid] = ViewStep(op, base)
    return steps


def root(t: TracedTensor, steps: dict[int, ViewStep]) -> TracedTensor:
    """The tensor at the bottom of a chain of views."""
    while t.vid in steps:
        t = steps[t.vid].base
    return t


def chain(tensors: Iterable[TracedTensor], steps: dict[int, ViewStep], stop: set[int], ops: list[Any]) -> list[Any]:
    """The view operations that make `tensors` out of their roots (or out of tensors whose vid is in `stop`), in program order."""
    needed: set[int] = set()
    for t in tensors:
        while t.vid in steps and t.vid not in stop:
            step = steps[t.vid]
            needed.add(id(step.op))
            t = step.base
    return [op for op in ops if id(op) in needed]


def hides_gradient(op: Any) -> bool:
    """Was this view made under `no_grad`? (Its base has gradients, the view has none, and it is not `detach`.)"""
    if op.target is DETACH:
        return False
    return any(t.requires_grad for t in liveness.op_inputs(op)) and all(without_history(t) for t in liveness.op_outputs(op))


def without_history(t: TracedTensor) -> bool:
    try:
        return t.grad_fn is None
    except Untraceable:  # autograd would make the history of a view anew, after its base was written: it has one
        return False


# needless views ------------------------------------------------------------------------------------
@dataclass(slots=True)
class Same:
    """What `without_repetition` found: `tensors` maps the vid of a dropped view to the tensor that it equals."""

    tensors: dict[int, TracedTensor] = field(default_factory=dict)
    bases: dict[int, TracedTensor] = field(default_factory=dict)

    def copy(self) -> Same:
        return Same(dict(self.tensors), dict(self.bases))


def without_repetition(ops: list[Any], outputs: Iterable[Any], same: Same | None = None) -> list[Any]:
    """The operations without views that equal what they are views of (`x.t().t()`, `x.detach()`), and without repetitions.

    `outputs` keep theirs: they are told apart by identity. Nothing is dropped if some operation changes the metadata of tensor
    objects. The copy of a constant is dropped where nobody writes to it or gets to see its memory. `same` carries over what
    earlier operations (the forward part) found.
    """
    same = Same() if same is None else same
    if any([liveness.restrides(op) for op in ops]):
        return [substitute(op, same.tensors) for op in ops]
    outputs = list(liveness.tensors(list(outputs)))
    seen = {t.vid for t in outputs}
    ops = without_detached_factories(ops, seen)
    dirty = liveness.dirty_memory(ops)
    exposed = {t.storage_id for t in outputs} | dirty
    table: dict[tuple, Any] = {}
    out: list[Any] = []
    for op in ops:
        op = substitute(op, same.tensors)
        result = op.outs[0] if len(op.outs) == 1 and op.out_spec is None else None
        if isinstance(result, TracedTensor):
            twin = equal_tensor(op, result, same, exposed)
            if twin is not None and result.vid not in seen:
                same.tensors[result.vid] = twin
                continue
        twin_op = computed_before(op, table, seen, exposed, dirty)
        if twin_op is not None:
            same.tensors.update((a.vid, b) for a, b in zip(op.outs, twin_op.outs, strict=True) if isinstance(a, TracedTensor))
            continue
        out.append(op)
    return out


def computed_before(op: Any, table: dict[tuple, Any], seen: set[int], exposed: set[int], dirty: set[int]) -> Any:
    """The earlier operation that computes the same; else None, and `op` enters the `table`.

    Only where nobody can tell: no effects, no writes to the memory that is read or made, and what is new memory stays inside.
    """
    if op.binds or liveness.has_effect(op) or liveness.mutable(op.target):
        return None
    if any(t.storage_id in dirty for t in liveness.op_inputs(op)):
        return None
    for i, t in enumerate(op.outs):
        if not isinstance(t, TracedTensor) or t.vid in seen or (t.storage_id in exposed and view_base(op, i) is None):
            return None
    key = (op.target, key_of(op.args), key_of(op.kwargs))
    found = table.setdefault(key, op)
    return found if found is not op else None


def key_of(value: Any) -> Any:
    """A hashable that is equal for arguments that are the same."""
    if isinstance(value, TracedTensor):
        return ("tensor", value.vid)
    if isinstance(value, (list, tuple)):
        return tuple([key_of(v) for v in value])
    if isinstance(value, dict):
        return tuple([(k, key_of(v)) for k, v in value.items()])
    e = liveness.number(value)
    if e is not None:
        return ("expr", id(e))
    return (type(value), repr(value) if isinstance(value, float) else value)


def without_detached_factories(ops: list[Any], seen: set[int]) -> list[Any]:
    """`a = zeros(..); b = detach(a)`, where nobody else reads `a`, is `b = zeros(..)`: so factories are recorded."""
    if not any([op.target is DETACH for op in ops]):
        return ops
    uses = Counter(t.vid for op in ops for t in liveness.op_inputs(op))
    makers = {op.outs[0].vid: i for i, op in enumerate(ops) if len(op.outs) == 1 and isinstance(op.outs[0], TracedTensor)}
    out: list[Any] = list(ops)
    for i, op in enumerate(ops):
        source = op.args[0] if op.target is DETACH else None
        if isinstance(source, TracedTensor) and uses[source.vid] == 1 and source.vid not in seen and source.vid in makers:
            at = makers[source.vid]
            if at < i and out[at] is not None and not liveness.written(ops[at]) and view_base(ops[at]) is None:
                out[at] = replace(out[at], outs=[op.outs[0]])
                out[i] = None
    return [op for op in out if op is not None]


def equal_tensor(op: Any, result: TracedTensor, same: Same, exposed: set[int]) -> TracedTensor | None:
    """The existing tensor with the memory and the metadata of `result`."""
    if op.target is COPY_CONSTANT:
        return op.args[0] if result.storage_id not in exposed else None
    base = view_base(op)
    if base is None:
        return op.args[0] if op.target in IDENTITIES and isinstance(op.args[0], TracedTensor) and op.args[0] is not result else None
    same.bases[result.vid] = base
    if op.target in IDENTITIES:
        return base
    t: TracedTensor | None = base
    while t is not None:
        if same_layout(t, result):
            return t
        t = same.bases.get(t.vid)
    return None


def same_layout(a: TracedTensor, b: TracedTensor) -> bool:
    """Sizes, strides, offset, dtype and lazy bits are the same, structurally."""
    return (
        len(a.sizes) == len(b.sizes)
        and a.dtype is b.dtype
        and same_size(a.offset, b.offset)
        and all(map(same_size, a.sizes, b.sizes))
        and all(map(same_size, a.strides, b.strides))
        and a.is_conj() == b.is_conj()
        and a.is_neg() == b.is_neg()
    )


def substitute(op: Any, same: dict[int, TracedTensor]) -> Any:
    """`op` with the tensors in `same` (by vid) replaced among its arguments, and so among its results if it returns one of these."""
    if not same or not any(t.vid in same for t in liveness.op_inputs(op)):
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
