"""Operators on remote tensors outside of a captured graph: each is a program of one operator.

It is recorded at the sizes that are there, and known again by operator, sizes, placements and numbers.
"""

from __future__ import annotations

from typing import Any

import torch

from pliant import turns
from pliant.graph.dispatch import is_dense
from pliant.graph.trace import Trace
from pliant.graph.traced import TracedTensor, Untraceable, make
from pliant.lower import liveness
from pliant.remote import sharding
from pliant.remote.backend import mesh_of, overlapping, start, tell, travelling
from pliant.remote.failed import line_here
from pliant.remote.partition import EAGER, VIEWS, Plan, Refused, partition
from pliant.remote.placements import OnWorker, Placement, RemoteError, Replicate
from pliant.remote.tensor import RemoteTensor
from pliant.symbolic.scope import Scope

aten = torch.ops.aten
ITEM = aten._local_scalar_dense.default
CHECK = aten._linalg_check_errors.default
SAME = (aten.detach.default, aten.alias.default)
LAZY = {aten._conj.default: aten.conj_physical.default, aten._neg_view.default: aten.neg.default}
"""Views that say that elements are to be conjugated or negated, and what computes them: no tensor on a worker has such bits."""
BY_VALUE = object()
"""In place of a plan: the operator runs in this process."""
MOST = 4096
"""Plans of single operators that a mesh keeps."""


class Known:
    """A recorded operator: its plan, and what it returns."""

    __slots__ = ("makers", "plan", "spec", "where")

    def __init__(self, plan: Plan, makers: list[Any], where: list[Any], spec: Any) -> None:
        self.plan, self.makers, self.where, self.spec = plan, makers, where, spec


def operator(func: Any, args: tuple, kwargs: dict) -> Any:
    """Run one operator of ATen on remote tensors."""
    if func is ITEM:
        return args[0].fetched("item()").item()
    if func in SAME:  # another object for the same tensor
        return args[0].another()
    if func in LAZY:
        return spelled_out(args[0], operator(LAZY[func], args, {}))
    view = VIEWS.get(func)
    if view is not None:
        return restride(func, view, args)
    if func._schema.name in liveness.METADATA_WRITERS:
        raise Refused(f"{func} changes the layout of a remote tensor in place")
    flat: list[Any] = []
    key = (func, described(args, flat), described(kwargs, flat))
    mesh = mesh_of(flat)
    with mesh.lock:
        for t in flat:
            if type(t) is RemoteTensor and t.mesh is not mesh:
                raise RemoteError("an operator reads tensors of two meshes")
        written = written_of(func, args, kwargs)
        own = [t for t in written if type(t) is not RemoteTensor]  # tensors of this process
        if own and len(own) == len(written):
            return here(func, args, kwargs)
        distinct: list[Any] = []
        for t in flat:
            if not any(t is d for d in distinct):
                distinct.append(t)
        known = mesh.plans.get(key)
        if known is BY_VALUE:
            return by_value(mesh, func, args, kwargs, distinct)
        slots: list[Any] = [t if type(t) is RemoteTensor else travelling(mesh, t, alone(distinct)) for t in distinct]
        if known is None:
            if len(mesh.plans) >= MOST:
                mesh.plans.clear()
            with turns.compiling:
                known = mesh.plans[key] = recorded(mesh, func, args, kwargs, distinct, slots)
            if known is BY_VALUE:
                return by_value(mesh, func, args, kwargs, distinct)
        if known.plan.writes and overlapping(known.plan, slots):  # `y[2] = y[3]`: what is read is read before
            slots = [s if i in known.plan.writes or own else torch.clone(s.detach()) for i, s in enumerate(slots)]
            if overlapping(known.plan, slots):
                raise Refused(f"{func} writes to memory of which it reads another tensor")
        spoils = slots[0].handle.beside if func is CHECK else ()
        outs = start(mesh, known.plan, slots, {}, known.makers, bool(known.plan.answers), line=line_here(), spoils=spoils)
        if outs and func._schema.name.endswith("_ex"):
            outs[-1].handle.beside = tuple([t.handle.id for t in outs[:-1]])
        for t in own:  # they have travelled, and come back as they were written
            t.copy_(next(s for d, s in zip(distinct, slots, strict=True) if d is t).fetched(f"{func} into a tensor of this process"))
    return put_together(known.spec, known.where, outs, distinct)


def spelled_out(x: RemoteTensor, found: RemoteTensor) -> RemoteTensor:
    """What should be a view of `x`, and is a copy: while it lives, `x` is not written."""
    found.handle.becomes_copy_of(x.handle)
    return found


def restride(func: Any, view: Any, args: tuple) -> RemoteTensor:
    """An operator that gives a tensor object other sizes over the same memory."""
    x = args[0]
    found = operator(view, args, {})
    with torch._C._DisableTorchDispatch():
        func(*args)
    x.handle, x.placement = found.handle, found.placement
    return x


def here(func: Any, args: tuple, kwargs: dict, why: str = "into a tensor of this process") -> Any:
    """Only tensors of this process are written: the operator runs here."""
    fetch = lambda x: x.fetched(f"{func} {why}") if type(x) is RemoteTensor else x
    return func(*mapped(args, fetch), **mapped(kwargs, fetch))


def by_value(mesh: Any, func: Any, args: tuple, kwargs: dict, distinct: list[Any]) -> Any:
    """What the operator gives depends on values (how many there are; a plain bool): it runs here, and tensors that it makes go back.

    To the worker that has all operands, or to every one.
    """
    back = alone(distinct)
    made = here(func, args, kwargs, "depends on values")
    return mapped(made, lambda x: mesh.put(x, back) if isinstance(x, torch.Tensor) else x)


def alone(operands: list[Any]) -> Placement:
    """The worker that has all the remote ones; or every one."""
    places = {t.placement for t in operands if type(t) is RemoteTensor}
    return places.pop() if len(places) == 1 and isinstance(next(iter(places)), OnWorker) else Replicate()


def mapped(x: Any, fn: Any) -> Any:
    if type(x) in (list, tuple):
        return type(x)(mapped(v, fn) for v in x)
    if type(x) is dict:
        return {k: mapped(v, fn) for k, v in x.items()}
    return fn(x)


def written_of(func: Any, args: tuple, kwargs: dict) -> list[Any]:
    if not func._schema.is_mutable:
        return []
    found: list[Any] = []
    for i, a in enumerate(func._schema.arguments):
        if a.alias_info is not None and a.alias_info.is_write:
            v = args[i] if i < len(args) else kwargs.get(a.name)
            found += v if isinstance(v, (list, tuple)) else [v]
    return [v for v in found if v is not None]


def described(x: Any, flat: list[Any]) -> Any:
    """Arguments as a key; the tensors among them are added to `flat`."""
    if isinstance(x, torch.Tensor):
        n = next((i for i, t in enumerate(flat) if t is x), len(flat))
        if n == len(flat):
            flat.append(x)
        where = (x.placement, x.handle.laid) if type(x) is RemoteTensor else None
        return n, x.dtype, tuple(x.shape), x.stride(), x.storage_offset() != 0, where
    if type(x) in (list, tuple):
        return (type(x), *[described(v, flat) for v in x])
    if type(x) is dict:
        return tuple([(k, described(v, flat)) for k, v in x.items()])
    if isinstance(x, torch.Generator):
        raise RemoteError("a generator of random numbers cannot be given to an operator on a mesh")
    return type(x), repr(x) if type(x) is float else x


def recorded(mesh: Any, func: Any, args: tuple, kwargs: dict, distinct: list[Any], slots: list[RemoteTensor]) -> Any:
    """The plan of an operator, or `BY_VALUE`."""
    scope = Scope()
    trace = Trace(scope, allow_unbacked=False)
    stands: dict[int, TracedTensor] = {}
    with trace.paused():
        for t, slot in zip(distinct, slots, strict=True):
            sizes, strides = tuple(slot.shape), tuple(slot.stride())
            offset: Any = slot.storage_offset()
            stands[id(t)] = make(trace, sizes, strides, slot.dtype, offset, None, slot.device, is_dense(sizes, strides))
    now = lambda v: stands[id(v)] if isinstance(v, torch.Tensor) else v
    with torch.no_grad(), trace.recording():
        try:
            out = func(*mapped(args, now), **mapped(kwargs, now))
        except Untraceable as e:
            if e.kind == "data-dependent" and not func._schema.is_mutable:
                return BY_VALUE
            raise Refused(f"{e}, on a mesh") from e
        except (RuntimeError, IndexError, ValueError, ArithmeticError):
            # Of nothing, PyTorch's shape functions raise where the operators do not (norms of infinite order, means of no squares).
            if func._schema.is_mutable or all(t.numel() for t in distinct):
                raise
            return BY_VALUE
    inputs = list(stands.values())
    given = {t.vid: i for i, t in enumerate(inputs)}
    flat = liveness.leaves(out) if isinstance(out, (list, tuple)) else [out]
    where: list[Any] = []
    outputs: list[TracedTensor] = []
    for o in flat:
        if type(o) is TracedTensor and o.vid in given:
            where.append(("given", given[o.vid]))
        elif type(o) is TracedTensor:
            where.append(("made", len(outputs)))
            outputs.append(o)
        else:
            where.append(("plain", o))
    plan = partition(scope, trace.ops, inputs, outputs, [t.placement for t in slots], slots, mesh.shape, sharding.ALL, EAGER)
    tell(plan)
    makers = [(fixed(o.sizes), fixed(o.strides), fixed((o.offset,)), o.dtype) for o in outputs]
    return Known(plan, makers, where, type(out) if isinstance(out, (list, tuple)) else None)


def fixed(numbers: tuple) -> Any:
    numbers = tuple(map(int, numbers))
    return lambda env: numbers


def put_together(spec: Any, where: list[Any], outs: tuple, given: list[Any]) -> Any:
    found = [outs[v] if kind == "made" else given[v] if kind == "given" else v for kind, v in where]
    return found[0] if spec is None else spec(found)


RemoteTensor.operator = staticmethod(operator)
