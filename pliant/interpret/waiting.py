"""Tensors that wait when they are used (`AsyncCollectiveTensor`), from outside: results of collectives that eager code has begun.

Eager waits at the first operation that is no view. A capture waits where its guards are checked, and goes on with the plain tensor; the
object itself leaves as it came. Who asks for the class, or what the class alone has, is told by eager. Nor does a graph write to one: that
counts a version of the wrapper.
"""

from __future__ import annotations

import sys
from typing import Any

from pliant.graph.distributed_tensors import COLLECTIVES
from pliant.graph.originals import ORIGINAL, torch
from pliant.graph.trace import written
from pliant.graph.traced import Reconsider, TracedTensor
from pliant.guards import views
from pliant.guards.source import Source
from pliant.interpret.state import Break, vm
from pliant.interpret.tensor_inputs import make_tensor

OF_ITS_OWN = ("__class__", "__dict__", "_version", "_base", "grad_fn", "data_ptr", "untyped_storage", "storage")
WAITING = "writes to tensors that wait"


def class_() -> Any:
    """The class; None before the program has imported it."""
    return getattr(sys.modules.get(COLLECTIVES), "AsyncCollectiveTensor", None)


def fits(v: Any) -> bool:
    """Whether a tensor is one around a plain tensor as large as it is, which has no history of its own."""
    if type(v) is not class_() or WAITING in vm.refused or (v.requires_grad and v.is_leaf):
        return False
    held = v.elem
    like = [(ORIGINAL.size(t), ORIGINAL.stride(t), ORIGINAL.storage_offset(t), t.dtype, t.device) for t in (v, held)]
    return type(held) is torch.Tensor and held.layout is torch.strided and not held.requires_grad and like[0] == like[1]


def locate(world: Any, v: Any, source: Source) -> Any:
    """The input for what is waited for."""
    known = world.tensors.get(id(v))
    if known is not None:
        at = world.waiting[id(known)]
        if at is not source:
            world.guard(source, "ALIAS", at)
        return known
    world.guard(source, "TYPE_MATCH", type(v))
    with vm.trace.paused():
        found = views.awaited(v)
    t = make_tensor(world, found, source.apply("awaited"))
    world.tensors[id(v)] = t
    world.waiting[id(t)] = source
    world.keep.append(v)
    return t


def refuse(t: Any) -> None:
    """Somebody asks for the class. Raises Break if that is not the class of a plain tensor."""
    if type(t) is TracedTensor and id(t) in vm.world.waiting:
        raise Break("PL0028", "the class of a tensor that waits when it is used", clean=True)


def refuse_attribute(t: Any, name: str) -> None:
    """Raises Break for what only tensors that wait have."""
    if name in vars(class_()) or name in OF_ITS_OWN:
        refuse(t)


def check() -> None:
    """At the end of a capture: raises Reconsider if the graph writes to one."""
    waiting = {t.storage_id for t in vm.trace.inputs if id(t) in vm.world.waiting}
    if waiting and any([t.storage_id in waiting for op in vm.trace.ops for t in written(op)]):
        raise Reconsider("wait", "a graph writes to a tensor that waits when it is used", WAITING)
