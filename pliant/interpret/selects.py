"""Branches on data of which both sides run, and each result is selected: sides of a few operations on elements that cannot fail."""

from __future__ import annotations

from typing import Any

from pliant.graph.control_flow import Block, Branch, FlowOp, Leave
from pliant.graph.dispatch import same
from pliant.graph.layout import contiguous_strides
from pliant.graph.originals import torch
from pliant.graph.symnode import SYMS, expr_of, to_sym, truth
from pliant.graph.traced import TracedTensor
from pliant.interpret.calls import graph_call
from pliant.interpret.flow_gradients import Replay
from pliant.interpret.grown_lists import NUMBERS
from pliant.interpret.state import vm
from pliant.interpret.types.tensors import item
from pliant.symbolic import ops

MOST = 4
"""Operations of a side."""
FAIL_ON_INTEGERS = frozenset(("div", "floor_divide", "remainder", "fmod", "pow", "gcd", "lcm", "true_divide", "reciprocal"))
MAKERS = frozenset(
    (torch.ops.aten.zeros_like.default, torch.ops.aten.ones_like.default, torch.ops.aten.full_like.default, torch.ops.aten.clone.default)
)


def selected(block: Block, v: Any, begin: int) -> list[Any] | None:
    """The results of a branch on `v`, as `torch.where` gives them. `begin`: what is numbered from there on is made by a side. None: the
    sides are no such."""
    end = block.end
    if not isinstance(end, Branch) or not isinstance(end.yes.end, Leave) or not isinstance(end.no.end, Leave):
        return None
    if type(v) is TracedTensor:
        if [op.target for op in block.ops] not in ([], [torch.ops.aten._local_scalar_dense.default]):
            return None
    elif block.ops:
        return None
    columns = list(zip(end.yes.end.values, end.no.end.values, strict=True))
    tensors = [c for c in columns if type(c[0]) is TracedTensor]
    if block.asserts or not all([cheap(side) for side in (end.yes, end.no)]) or vm.trace.lazy_bits:
        return None
    if tensors and type(v) is not TracedTensor or not all([like(a, b, begin) for a, b in columns]):
        return None
    for i in range(2):
        memory = [c[i].storage_id for c in tensors]
        if len({*memory}) < len(memory):
            return None
    sides = [Replay({}).run(side).values for side in (end.yes, end.no)]
    of_tensors = flag(v) if tensors else None
    of_numbers: Any = None
    made = []
    for (a, _), x, y in zip(columns, *sides, strict=True):
        if type(a) is TracedTensor:
            made.append(graph_call(torch.where, (of_tensors, x, y), {}))
            continue
        if of_numbers is None:
            of_numbers = condition(v)
        made.append(to_sym(vm.scope, chosen(of_numbers, expr_of(x, vm.scope), expr_of(y, vm.scope))))
    return made


def condition(v: Any) -> Any:
    """The truth of what is branched on, as an expression."""
    n = item(v) if type(v) is TracedTensor else v
    return truth(n.node.expr) if isinstance(n, SYMS) else bool(n)


def chosen(c: Any, x: Any, y: Any) -> Any:
    """`x if c else y` as an expression."""
    if x.kind is bool:
        return ops.or_(ops.and_(c, x), ops.and_(ops.not_(c), y))
    return ops.where(c, x, y)


def flag(v: TracedTensor) -> Any:
    """The truth of a tensor of one element, as a tensor without dims."""
    if v.sizes:
        v = graph_call(torch.reshape, (v, ()), {})
    return v if v.dtype is torch.bool else graph_call(torch.ne, (v, 0), {})


def cheap(side: Block) -> bool:
    """Whether a side may run although the program takes the other one: it has no effect, cannot fail, and is soon done."""
    return not side.asserts and len(side.ops) <= MOST and all(map(harmless, side.ops))


def harmless(op: Any) -> bool:
    target = op.target
    if isinstance(op, FlowOp) or op.binds or torch.Tag.nondeterministic_seeded in target.tags or target._schema.is_mutable:
        return False
    if torch.Tag.pointwise not in target.tags:
        return target in MAKERS
    name = target._schema.name.split("::")[1]
    integers = any([type(x) is not TracedTensor or not (x.dtype.is_floating_point or x.dtype is torch.bool) for x in op.outs])
    return not integers or name not in FAIL_ON_INTEGERS


def like(a: Any, b: Any, begin: int) -> bool:
    """Whether `torch.where` gives what either is: new tensors laid out alike, or numbers of one type."""
    if type(a) is not TracedTensor:
        return type(b) is not TracedTensor and NUMBERS.get(type(a)) is not None and NUMBERS.get(type(a)) is NUMBERS.get(type(b))
    if type(b) is not TracedTensor or a.dtype is not b.dtype or a.device != b.device or len(a.sizes) != len(b.sizes):
        return False
    if a.pytype is not torch.Tensor or b.pytype is not torch.Tensor or a.requires_grad or b.requires_grad:
        return False
    for x in (a, b):
        if x.storage_id < begin or not all(map(same, x.strides, contiguous_strides(x.sizes))) or not same(x.offset, 0):
            return False
    return all(map(same, a.sizes, b.sizes))
