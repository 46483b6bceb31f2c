"""Which operations of a trace must run, and what each reads, writes and aliases.

The facts come from operator schemas (`alias_info`) and from the trace's storage numbers: an operation without effects is
dropped when nobody reads its results, an in-place operation when nobody reads that memory afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from pliant.graph.data_errors import CHECKS_DATA
from pliant.graph.data_errors import depends as depends
from pliant.graph.data_errors import overlaps as overlaps
from pliant.graph.data_errors import raises_here as raises_here
from pliant.graph.data_errors import sized_by_data as sized_by_data
from pliant.graph.dispatch import same
from pliant.graph.implemented import refused, untold
from pliant.graph.operands import number as number
from pliant.graph.operands import op_inputs as op_inputs
from pliant.graph.operands import op_numbers as op_numbers
from pliant.graph.operands import read_operands
from pliant.graph.schema import KNOWN, of_operator, written
from pliant.graph.traced import TracedTensor
from pliant.graph.traced import leaves as leaves
from pliant.graph.traced import tensors_of as tensors_of
from pliant.symbolic.expr import Expr, postorder

RANDOM = torch.Tag.nondeterministic_seeded
DROP_NOTHING = {torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default}
"""Attention that is not called where something is dropped, though its operator says that it may draw random numbers."""
RESTRIDERS = frozenset(f"aten::{name}" for name in "t_ transpose_ squeeze_ unsqueeze_ as_strided_ swapaxes_ swapdims_".split())
"""In-place operators that give a tensor object other sizes and strides over the same memory."""
METADATA_WRITERS = RESTRIDERS | frozenset(f"aten::{name}" for name in "resize_ resize_as_ set_ rename_ detach_ sparse_resize_".split())
"""In-place operators that change the tensor object (sizes, strides, storage), not only its data."""


def restrides(op: Any) -> bool:
    """Do the operations before and after this one see different layouts of one tensor object?

    Not if only strides of dims of size 1 changed: these say nothing.
    """
    name = op.target._schema.name
    if name not in METADATA_WRITERS:
        return False
    if name not in RESTRIDERS:
        return True
    if op.before is None:
        return False
    sizes, strides, offset = op.before
    x = op.outs[0]
    if len(sizes) != len(x.sizes) or not all(map(same, (*sizes, offset), (*x.sizes, x.offset))):
        return True
    return not all([same(a, b) or type(n) is int and n == 1 for n, a, b in zip(sizes, strides, x.strides, strict=True)])


def operators(ops: Iterable[Any]) -> list[Any]:
    """The different operators of these operations: what is asked of operators is asked of each once (they hash themselves in Python)."""
    return list({id(op.target): op.target for op in ops}.values())


def any_restrides(ops: Iterable[Any]) -> bool:
    """Whether `restrides` is true of any of them."""
    return any([t._schema.name in METADATA_WRITERS for t in operators(ops)]) and any([restrides(op) for op in ops])


def op_outputs(op: Any) -> list[TracedTensor]:
    """The traced tensors among the results."""
    return [o for o in op.outs if type(o) is TracedTensor]


@of_operator
def mutable(target: Any) -> bool:
    return target._schema.is_mutable


def dirty_memory(ops: list[Any]) -> set[int]:
    """The storages that these operations write. If one is from outside, all that are from outside: they may share memory."""
    if not any(map(mutable, operators(ops))):
        return set()
    made: set[int] = set()
    outside: set[int] = set()
    dirty: set[int] = set()
    for op in ops:
        outside.update(t.storage_id for t in op_inputs(op) if t.storage_id not in made)
        made.update(t.storage_id for t in op_outputs(op) if t.storage_id not in outside)
        dirty.update(t.storage_id for t in written(op))
    return dirty if dirty.isdisjoint(outside) else dirty | outside


def has_effect(op: Any) -> bool:
    """Must run even if nobody reads its results: random, raising, asserting, or opaque."""
    return not op.outs or effectful(op.target) or depends(op.target) and raises_here(op) or sized_by_data(op)


@of_operator
def unknown(target: Any) -> bool:
    """Is it neither PyTorch's own nor pliant's? It may do anything (talk to other processes, for one), in a backward part, too."""
    return not target._schema.name.startswith(("aten::", "prims::", "pliant::"))


@of_operator
def effectful(target: Any) -> bool:
    schema = target._schema
    if not schema.name.startswith(KNOWN):
        return True  # a custom operator may do anything
    if RANDOM in target.tags or target in CHECKS_DATA:
        return True
    return "assert" in schema.name or "sym_constrain" in schema.name


@of_operator
def traits(target: Any) -> tuple[bool, bool, bool, bool]:
    """(`mutable`, `effectful`, `unknown`, `depends`): what is asked of the operator of each operation."""
    return mutable(target), effectful(target), unknown(target), depends(target)


@of_operator
def draws(target: Any) -> bool:
    """Does the operator draw random numbers?"""
    return RANDOM in target.tags and target not in DROP_NOTHING


@of_operator
def only_checks(target: Any) -> bool:
    """Is raising on bad data all that the operator may do besides computing? A kernel that checks can stand for it."""
    return (target in CHECKS_DATA or depends(target)) and RANDOM not in target.tags


def live_ops(ops: list[Any], outputs: Iterable[Any], inputs: Iterable[Any], keep_effects: bool = True) -> list[Any]:
    """The operations needed for `outputs` (traced tensors, symbolic numbers) and for the effects, in order.

    Writes to `inputs`, and to any memory that no operation here made, are effects. Symbols that an operation binds count as its
    results.
    """
    results = [op_outputs(op) for op in ops]
    made: set[int] = set()
    own_memory: set[int] = set()
    for outs in results:
        for t in outs:
            made.add(t.vid)
            own_memory.add(t.storage_id)
    outer = {t.storage_id for t in tensors_of(list(inputs))}
    for op in ops:
        if op.reads is None:
            read_operands(op)
        for t in op.reads:
            if t.vid not in made:
                outer.add(t.storage_id)
    binds = binders(ops)
    live: set[int] = set()
    memory: set[int] = set()
    symbols: set[str] = set()
    seen: set[Expr] = set()

    def read(value: Any) -> None:
        for v in leaves(value):
            if type(v) is TracedTensor:
                live.add(v.vid)
                memory.add(v.storage_id)
            else:
                e = number(v)
                if e is not None:
                    symbols.update([s.name for s in new_symbols(e, seen)])

    for value in outputs:
        read(value)
    kept: list[Any] = []
    for op, outs in zip(reversed(ops), reversed(results), strict=True):
        changes, effects, foreign, conditional = traits(op.target)
        targets = written(op) if changes else ()
        need = foreign or (keep_effects and (effects or not op.outs or conditional and raises_here(op) or sized_by_data(op)))
        if not need:
            for t in outs:
                if t.vid in live:
                    need = True
                    break
        if not need:
            if targets:
                need = any([t.storage_id in memory or t.storage_id in outer or t.storage_id not in own_memory for t in targets])
                need = need or (keep_effects and (overlaps(op, targets) or untold(op)))
            else:
                need = bool(binds) and any([name in symbols for name in binds.get(id(op), ())])
                need = need or (keep_effects and refused(op))
        if need:
            kept.append(op)
            for t in op.reads:
                live.add(t.vid)
                memory.add(t.storage_id)
            for e in op.numbers:
                if e not in seen:
                    symbols.update([s.name for s in new_symbols(e, seen)])
    kept.reverse()
    return kept


def binders(ops: list[Any]) -> dict[int, list[str]]:
    """For each operation (by `id`) that makes unbacked symbols known, their names."""
    return {id(op): [symbols_of(b.symbol)[0] for b in op.binds] for op in ops if op.binds}


def new_symbols(e: Expr, seen: set[Expr]) -> list[Expr]:
    """The symbols below `e` but not below any expression in `seen`, to which everything met is added.

    Over many expressions that share their parts, as the prefix sums of 500 lengths do, this takes time linear in the parts.
    """
    nodes = postorder(e, done=seen)
    seen.update(nodes)
    return [n for n in nodes if n.op == "sym"]


def symbols_of(value: Any) -> list[str]:
    """Names of the symbols in a symbolic number."""
    e = number(value)
    return [] if e is None else [s.name for s in e.symbols()]
