"""From what was captured to the form that was asked for."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch

from pliant.errors import PliantError
from pliant.export.decompose import decompose
from pliant.export.functionalize import Functionalizer
from pliant.export.program import MUTATION, USER, Output, Program
from pliant.graph.record import Op
from pliant.graph.traced import TracedTensor
from pliant.lower import liveness

ATEN = torch.ops.aten


def aten(p: Program, writer: Any) -> Program:
    """As it was recorded."""
    p.ops = settled(p.ops)
    mark_written(p)
    return p


SETTLED = {ATEN.lift_fresh_copy.default: ATEN.clone.default, ATEN.lift_fresh.default: ATEN.alias.default}
"""Operators that mean something during a capture only, and what they come to."""


def settled(ops: list[Op]) -> list[Op]:
    return [dataclasses.replace(op, target=SETTLED[op.target]) if op.target in SETTLED else op for op in ops]


def mark_written(p: Program) -> None:
    written = {t.storage_id for op in p.ops for t in liveness.written(op)}
    for i in p.inputs:
        i.written = i.is_tensor and i.value.storage_id in written


def core(p: Program, writer: Any) -> Program:
    """Functional operations of the core set."""
    tensors = [i.value for i in p.inputs if i.is_tensor]
    f = Functionalizer(p.trace, tensors)
    ops = f.run(settled(p.ops))
    outputs = [f.now(o.value) for o in p.outputs]
    written = f.written()
    known = {o.of for o in p.outputs if o.kind == MUTATION}
    mutations = []
    for i in p.inputs:
        if i.is_tensor and i.value.storage_id in written and i.name not in known:
            i.written = True
            mutations.append((i, f.value(i.value)))
    ops, f.ops = f.ops, []
    d = decompose(p.trace, ops, [*outputs, *[v for _, v in mutations]])
    for o, value in zip(p.outputs, outputs, strict=True):
        o.value = d.now(value)
    p.relations, p.asserts = writer.relations(), writer.asserts()  # recording operations anew may have asked more of sizes
    p.outputs += [Output(f"{i.name}.out", MUTATION, d.now(v), of=i.name, path=i.path if i.kind == USER else ()) for i, v in mutations]
    wanted = [o.value for o in p.outputs] + [a.expr for a in p.asserts]
    p.ops = liveness.live_ops(d.ops, wanted, tensors)
    p.form = "core"
    return dropped(p)


def dropped(p: Program) -> Program:
    """The program without state that nobody reads."""
    vids = {t.vid for op in p.ops for t in liveness.op_inputs(op)} | {t.vid for t in liveness.tensors([o.value for o in p.outputs])}
    gone = [i for i in p.inputs if i.kind != USER and i.is_tensor and i.value.vid not in vids]
    p.inputs = [i for i in p.inputs if i not in gone]
    for i in gone:
        p.state.pop(i.name, None)
    return p


def torch_level(p: Program, writer: Any) -> Program:
    raise PliantError('form="torch" is not there yet')


def training(p: Program, writer: Any) -> Program:
    raise PliantError('form="training" is not there yet')


FORMS: dict[str, Callable[[Program, Any], Program]] = {"torch": torch_level, "aten": aten, "core": core, "training": training}

__all__ = ["FORMS", "TracedTensor"]
