"""Instruction selection: which groups become kernels, which operations library calls, and what stays an ATen call.

Groups whose results nobody reads go (dead code elimination, with the stores of single values in it).
"""

from __future__ import annotations

from collections import Counter
from itertools import count
from typing import Any

from pliant import turns
from pliant.lower import liveness
from pliant.lower.fuse import Fuser
from pliant.lower.gemm import LIBRARY, Products
from pliant.lower.kernels import Finisher, Launch
from pliant.lower.program import Group, Instruction, NativeStep, Program

_serial = count()


def is_kernel(p: Program, g: Group) -> bool:
    """Is it a kernel wherever it stands?"""
    if g.nest is None:
        return False
    return g.fused or len(g.ops) > 1 or p.target.worth_a_kernel(p.fact("groups").ops[g.ops[0]])


def may_join(shares: Counter[int], g: Group) -> bool:
    """Is it an ATen call that may be a kernel, where that makes a run longer? Concatenations are PyTorch's."""
    return g.nest is not None and len(g.ops) == 1 and shares[g.ops[0]] == 1 and not any(n.predicated for n in g.nest.loads())


def library_calls(p: Program) -> list[Group]:
    """The groups, with the library calls that may run in place of opaque operations."""
    f: Fuser = p.fact("groups")
    if not p.target.product_dtypes():
        return p.steps
    a = f.aliases
    products = Products(f.facts, lambda t: a.tensors[a.roots[t.vid]], p.target)
    for g in p.steps:
        op = f.ops[g.ops[0]]
        steps = LIBRARY.get(op.target) if len(g.ops) == 1 and not g.fused else None
        if steps is not None:
            g.library = steps(products, op, f.builder.read) or []
    return p.steps


def needed(p: Program) -> list[Group]:
    """The groups that must run, each with the stores that somebody else reads (none for an ATen call)."""
    f: Fuser = p.fact("groups")
    a = f.aliases
    shares = Counter(i for g in p.steps for i in g.ops)  # operations of which several nests were made
    wanted = {a.root(t) for t in a.kept}
    kept: list[Group] = []
    for g in reversed(p.steps):
        kernel = is_kernel(p, g)
        g.stores = []
        if kernel or may_join(shares, g):
            assert g.nest is not None
            g.stores = g.nest.checking([q for q in g.nest.stores if not q.fresh or q.root in wanted])
            if not g.stores:
                continue
            kept.append(g)
            nest = g.nest.only(g.stores)
            wanted |= {n.attrs[0] for n in nest.loads()} | {q.root for q in g.stores if not q.fresh}
            if not kernel:
                wanted |= {a.root(t) for t in liveness.op_inputs(f.ops[g.ops[0]])}
            continue
        (position,) = g.ops
        op = f.ops[position]
        unread = not any(a.root(t) in wanted for t in liveness.op_outputs(op))
        if g.nest is not None and unread and not liveness.written(op) and not liveness.has_effect(op):
            continue
        kept.append(g)
        wanted |= {a.root(t) for t in liveness.op_inputs(op)}
    kept.reverse()
    return kept


def instructions(p: Program) -> list[Instruction]:
    """What must run, in order."""
    f: Fuser = p.fact("groups")
    a = f.aliases
    out = []
    done: set[int] = set()  # operations of which several nests were made run once
    later = {a.root(t) for g in p.steps for i in g.ops for t in liveness.op_outputs(f.ops[i])}  # made behind here, or by nothing
    for g in needed(p):
        turns.rest()
        ops = [f.ops[i] for i in g.ops]
        op = ops[0]
        later -= {a.root(t) for o in ops for t in liveness.op_outputs(o)}
        if g.stores:
            assert g.nest is not None
            launch = Finisher(f.facts, f.aliases.tensors, g.nest, g.stores, f"k{next(_serial)}").finish()
            # `new_zeros` takes no more than a dtype from its operand: fusion may have moved what makes that, and nobody reads it
            only = is_kernel(p, g) or any([a.root(t) in later for t in liveness.op_inputs(op)])
            out.append(native_instruction([launch], ops, None if only else op))
        elif g.ops[0] not in done:
            done.add(g.ops[0])
            if g.library:
                out.append(native_instruction(g.library, ops, op))
            else:
                out.append(Instruction([], op, ops, list(liveness.op_inputs(op)), liveness.op_outputs(op), liveness.written(op)))
    return out


def native_instruction(steps: list[NativeStep], ops: list[Any], op: Any = None) -> Instruction:
    """Kernels and library calls, made from `ops`. `op`: the ATen call that would do as well."""
    item = Instruction(steps, op, ops)
    mine: set[int] = set()
    for step in steps:
        fresh = [step.buffers[i] for i in step.made] if isinstance(step, Launch) else [step.out]
        mine |= {t.vid for t in fresh}
        item.made += fresh
        old = [t for t in step.buffers if t.vid not in mine]
        item.reads += old
        if isinstance(step, Launch):
            item.written += [t for t, b in zip(step.buffers, step.kernel.buffers, strict=True) if b.written and t.vid not in mine]
    if op is not None:  # the ATen call may need more: `zeros_like` takes sizes from its operand
        known = {t.vid for t in item.reads}
        item.reads += [t for t in liveness.op_inputs(op) if t.vid not in known]
    return item
