"""From what was captured to the form that was asked for."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch

from pliant.errors import PliantError
from pliant.export import torch_form
from pliant.export.decompose import decompose
from pliant.export.flows import live_flow
from pliant.export.functionalize import Functionalizer
from pliant.export.program import GRADIENT, MUTATION, USER, Output, Program
from pliant.export.rewrite import SETTLED
from pliant.graph.python_random import BELOW, NUMBERS
from pliant.graph.record import Op
from pliant.graph.traced import TracedTensor
from pliant.lower import liveness

ATEN = torch.ops.aten

DRAWS = frozenset((BELOW, *NUMBERS.values()))
ITEM = torch.ops.aten._local_scalar_dense.default


def aten(p: Program, writer: Any) -> Program:
    """As it was recorded."""
    p.ops = settled(p.ops)
    mark_written(p)
    return p


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
    p.outputs += [Output(f"{i.name}.out", MUTATION, d.now(v), of=i.name, path=i.path if i.kind == USER else ()) for i, v in mutations]
    wanted = [o.value for o in p.outputs] + [a.expr for a in writer.asserts()]
    p.ops = [live_flow(op, p.scope) for op in without_draws(p, liveness.live_ops(d.ops, wanted, tensors), wanted)]
    p.form = "core"
    return dropped(p)


def without_draws(p: Program, ops: list[Any], wanted: list[Any]) -> list[Any]:
    """Without numbers that are drawn from generators of Python and of NumPy, and that nobody reads: a note, as these are no part of a
    program (`if training and np.random.uniform() < p`)."""
    drawn = {t.vid for op in ops if op.target in DRAWS for t in liveness.op_outputs(op)}
    if not drawn:
        return ops
    numbers = {id(op): op for op in ops if op.target is ITEM and op.args[0].vid in drawn}
    rest = [op for op in ops if id(op) not in numbers]
    shapes = [(t.sizes, t.strides, t.offset) for op in rest for t in liveness.op_outputs(op)]
    named = [liveness.number(v) for v in liveness.leaves([[(op.args, op.kwargs) for op in rest], shapes, wanted])]
    known = {s.name for e in named if e is not None for s in e.symbols()}
    unread = {n for n, op in numbers.items() if not any(liveness.number(b.symbol).name in known for b in op.binds)}
    ops = [op for op in ops if id(op) not in unread]
    read = {t.vid for op in ops for t in liveness.op_inputs(op)} | {t.vid for t in liveness.tensors_of([o.value for o in p.outputs])}
    gone = {id(op) for op in ops if op.target in DRAWS and not any(t.vid in read for t in liveness.op_outputs(op))}
    if gone:
        p.notes.append(f"it draws {len(gone)} numbers from generators of Python or NumPy, which nobody reads")
    return [op for op in ops if id(op) not in gone]


def dropped(p: Program) -> Program:
    """The program without state that nobody reads."""
    vids = {t.vid for op in p.ops for t in liveness.op_inputs(op)} | {t.vid for t in liveness.tensors_of([o.value for o in p.outputs])}
    gone = [i for i in p.inputs if i.kind != USER and i.is_tensor and i.value.vid not in vids]
    p.inputs = [i for i in p.inputs if i not in gone]
    for i in gone:
        p.state.pop(i.name, None)
    return p


def training(p: Program, writer: Any) -> Program:
    """The form "core" of the function, whose first result is the loss, and of the gradients of parameters and inputs that require them."""
    loss = next((o for o in p.outputs if o.kind == USER), None)
    t = loss.value if loss is not None else None
    if type(t) is not TracedTensor or t.sizes or not t.requires_grad:
        raise PliantError(f'form="training": the first result of {p.name} must be the loss, one number that depends on a parameter')
    targets = [i for i in p.inputs if i.is_tensor and i.value.requires_grad]
    n = len(p.trace.ops)
    tangents, gradients = p.trace.backward([t], [i.value for i in targets])
    one = Op(ATEN.full.default, ([], 1.0), {"dtype": t.dtype, "device": t.device}, [tangents[0]], None, None, -1)
    p.ops = [*p.ops, one, *p.trace.ops[n:]]
    p.outputs += [Output(f"{i.name}.grad", GRADIENT, g, of=i.name) for i, g in zip(targets, gradients, strict=True) if g is not None]
    p = core(p, writer)
    p.outputs.sort(key=lambda o: o.kind == GRADIENT)  # behind mutations
    p.form = "training"
    return p


def torch_level(p: Program, writer: Any) -> Program:
    """The form "aten", and beside it the calls of the torch API as a module with the function's parameters."""
    torch_form.put(p, writer)
    p = aten(p, writer)
    p.form = "torch"
    return p


FORMS: dict[str, Callable[[Program, Any], Program]] = {"torch": torch_level, "aten": aten, "core": core, "training": training}
