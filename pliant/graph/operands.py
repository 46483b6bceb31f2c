"""What operations are given: the traced tensors and the sizes among their arguments."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from pliant.graph.traced import TracedTensor, Untraceable, leaves
from pliant.symbolic.expr import Expr

PLAIN = frozenset((int, float, bool, str, type(None), torch.dtype, torch.device))


def op_inputs(op: Any) -> tuple[TracedTensor, ...]:
    """The traced tensors among the arguments, which nobody changes: they are asked for again and again."""
    if op.reads is None:
        read_operands(op)
    return op.reads


def op_numbers(op: Any) -> tuple[Expr, ...]:
    """The expressions of the symbolic numbers among the arguments."""
    if op.reads is None:
        read_operands(op)
    return op.numbers


def read_operands(op: Any) -> None:
    read: list[TracedTensor] = []
    numbers: list[Expr] = []

    def walk(values: Iterable[Any]) -> None:
        for v in values:
            t = type(v)
            if t is TracedTensor:
                read.append(v)
            elif t in PLAIN:
                continue
            elif t is list or t is tuple:
                walk(v)
            else:
                for leaf in leaves(v):
                    if type(leaf) is TracedTensor:
                        read.append(leaf)
                    elif (e := number(leaf)) is not None:
                        numbers.append(e)

    walk(op.args)
    if op.kwargs:
        walk(op.kwargs.values())
    op.reads, op.numbers = tuple(read), tuple(numbers)


def node_of(t: TracedTensor) -> Any:
    try:
        return t.grad_fn
    except (Untraceable, RuntimeError):  # a view whose memory was written since: autograd would make its history anew
        return None


def views_without(ops: Iterable[Any]) -> set[int]:
    """Views (vids) that were made where no gradients are recorded, of what has some: to autograd each of them is a leaf."""
    found = set()
    for op in ops:
        if not op.grad and any([t.requires_grad for t in op_inputs(op)]):
            given = {t.vid for t in op_inputs(op)}
            made = [t for t in op.outs if type(t) is TracedTensor and t.requires_grad and t.vid not in given]
            found |= {t.vid for t in made if node_of(t) is None}
    return found


def number(value: Any) -> Any:
    """The `Expr` behind a symbolic number (or the `Expr` itself); None for everything else."""
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return value.node.expr
    return value if type(value) is Expr else None
