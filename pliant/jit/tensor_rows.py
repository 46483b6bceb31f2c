"""How tensors that were made here are made again from what the graph gives: their class, their attributes, what autograd knows of them."""

from __future__ import annotations

from typing import Any

import torch

from pliant.codegen import version_counters
from pliant.graph import distributed_tensors, layout, masked_tensors, wrapped
from pliant.graph.originals import ORIGINAL
from pliant.graph.traced import INFERENCE, RETAINED, WRAPPED, Reconsider, TracedTensor
from pliant.interpret import jagged, tensor_dicts
from pliant.interpret.world import TENSOR_TYPES
from pliant.interpret.wrappers import is_wrapped
from pliant.jit import support
from pliant.jit.reconstruct import Builder, CannotReconstruct, Row


def traced(b: Builder, t: Any) -> str:
    if t.source is not None and id(t) in b.world.real:
        return b.outside(b.world.waiting.get(id(t), t.source))
    row = row_of(b, t)
    if tensor_dicts.any_of(t):
        row = Row(output if row is None else row.literal, after=attributes)
    if row is None:
        return b.output(t)
    found = b.memo.get(id(t))
    return b.make(t, row) if found is None else b.revisit(found)


def output(b: Builder, t: Any) -> str:
    return b.output(t)


def row_of(b: Builder, t: Any) -> Row | None:
    """How a tensor made here comes from what the graph gives; None: it is that."""
    if is_wrapped(t):
        return WRAPPER
    if t.pytype not in TENSOR_TYPES:
        return OF_CLASS
    if id(t) in b.world.retained or id(t) in b.world.own_gradients and not t.is_leaf:
        raise Reconsider("retain_grad", "a tensor whose gradient is retained is needed later", RETAINED)
    if (t.storage_id in b.world.trace.of_inference) is not b.world.begun_in_inference:
        return OF_INFERENCE
    if t.requires_grad and t.vid in t.trace.rebound_leaves:
        return None
    if id(t) in b.world.rebound or id(t) in b.world.data_views and id(t) not in b.world.data_of:
        return REBOUND
    if id(t) in b.world.data_of:
        return DATA
    return PARAMETER if t.pytype is torch.nn.Parameter and not t.requires_grad else None


def attributes(b: Builder, t: Any, name: str) -> None:
    """What a tensor that was made here holds in its `__dict__`."""
    d, given = b.world.tensor_dicts[id(t)][1:]
    if given:
        b.emit(f"{b.constant(support.set_instance_dict)}({name}, {b.ref(d)})")
    else:
        b.emit(f"{b.constant(support.fill_dict)}({name}, {{{b.pairs(d)}}})")


PARAMETER = Row(lambda b, t: f"{b.constant(torch.nn.Parameter, 'Parameter')}({b.output(t)}, False)")
"""A parameter that was made here, without gradients. (One with gradients is made within the graph: `lower/leaves.py`.)"""


def data(b: Builder, t: Any) -> str:
    """`x.data`, read off the real tensor: it counts its own versions."""
    read = f"{b.ref(b.world.data_of[id(t)][1])}.data"
    n = version_counters.times_written(t)
    return f"{b.constant(support.with_version, 'with_version')}({read}, {n})" if n else read


DATA = Row(data)


def of_inference(b: Builder, t: Any) -> str:
    """A tensor that was made in inference mode, by a graph that is not run in it, or the other way round."""
    trace, memory = b.world.trace, t.storage_id
    if memory not in trace.shown and any([i.storage_id == memory for i in trace.inputs]):  # a view of it, which is what that is
        return b.output(t)
    if t.requires_grad or ORIGINAL.is_conj(t) or ORIGINAL.is_neg(t):
        raise Reconsider("inference_mode", "a result with gradients of a graph that is run in inference mode", INFERENCE)
    return f"{b.constant(support.of_inference, 'of_inference')}({b.output(t)}, {memory in trace.of_inference})"



def rebound(b: Builder, t: Any) -> str:
    """A tensor that was given other memory, or a view of a `.data`: it does not share the version of what else has that memory."""
    made = f"{b.constant(support.with_version, 'with_version')}({b.output(t)}, {t._version})"
    return f"{b.constant(torch.nn.Parameter, 'Parameter')}({made}, False)" if t.pytype is torch.nn.Parameter else made


REBOUND = Row(rebound)

OF_INFERENCE = Row(of_inference)


def of_class(b: Builder, t: Any) -> str:
    inference = (t.storage_id in b.world.trace.of_inference) is not b.world.begun_in_inference
    plain = of_inference(b, t) if inference else b.output(t)
    return f"{b.constant(support.of_class, 'of_class')}({plain}, {b.ref(t.pytype)})"


OF_CLASS = Row(of_class)


def wrapper(b: Builder, t: Any) -> str:
    """A tensor of a class with a `__torch_dispatch__`, made as the program has made it."""
    w = b.world.levels.wrappers[id(t)][1]
    if jagged.is_jagged(type(w)):
        return jagged_tensor(b, w)
    if distributed_tensors.is_distributed(type(w)):
        return distributed_tensor(b, w)
    recipe = b.world.wrappers_made.get(id(w))
    if recipe is None:  # code that CPython ran has made it
        like = {"strides": t.strides, "storage_offset": t.offset, "dtype": w.dtype, "device": w.device, "layout": w.layout}
        recipe = (t.sizes,), like
    stands = b.world.levels.stands
    held = {k: stands.get(id(v), v) for k, v in w.__dict__.items()}
    given = f"{b.constant(t.pytype)}, {b.ref(recipe[0])}, {b.ref(recipe[1])}"
    if w.is_leaf:
        return f"{b.constant(wrapped.made, 'made')}({given}, {{{b.pairs(held)}}})"
    names, parts = in_parts(b, w)
    rest = {k: None if k in names else v for k, v in held.items()}
    outputs = ", ".join([b.output(p) for p in parts])
    return f"{b.constant(wrapped.made_of, 'made_of')}({given}, {{{b.pairs(rest)}}}, {names!r}, ({outputs},))"


WRAPPER = Row(wrapper)


def jagged_tensor(b: Builder, w: Any) -> str:
    """A jagged nested tensor: its parts, of which the values alone may have gradients."""
    parts, cls = jagged.held(w), b.constant(type(w))
    if w.is_leaf:
        return f"{b.constant(jagged.build, 'jagged')}({cls}, {{{b.pairs(parts)}}}, {w._ragged_idx}, {w.requires_grad})"
    with b.world.trace.recording(), layout.framework():
        (values,) = wrapped.lowered(w, ["_values"])
    rest = {**parts, "_values": None}
    return f"{b.constant(jagged.differentiable, 'jagged')}({cls}, {{{b.pairs(rest)}}}, {w._ragged_idx}, {b.output(values)})"


def distributed_tensor(b: Builder, w: Any) -> str:
    """A distributed tensor, made of its part in this process."""
    form, meta = distributed_tensors.placed(w._spec), w._spec.tensor_meta
    if not all([type(p) in distributed_tensors.placement_classes() for p in form[1]]):
        raise CannotReconstruct(f"a distributed tensor that is placed as {form[1]}")
    sizes, strides = b.ref(tuple(meta.shape)), b.ref(tuple(meta.stride))
    own = f"{b.constant(type(w))}, {b.constant(form, 'placed')}, {sizes}, {strides}, {b.ref(meta.dtype)}"
    if w.is_leaf:
        return f"{b.constant(distributed_tensors.build, 'distributed')}({own}, {b.ref(w._local_tensor)}, {w.requires_grad})"
    with b.world.trace.recording(), layout.framework():
        (part,) = wrapped.lowered(w, [distributed_tensors.LOCAL])
    return f"{b.constant(wrapped.distributed, 'distributed')}({own}, {b.output(part)})"


def in_parts(b: Builder, w: Any) -> tuple[list[str], Any]:
    """The parts of a result with gradients, as outputs of the graph that have some."""
    if masked_tensors.is_masked(type(w)):
        if getattr(w, masked_tensors.DATA).requires_grad:  # written in place, it is what has a history
            raise Reconsider(type(w).__name__, "its data has gradients of its own", WRAPPED)
        with b.world.trace.recording(), layout.framework():
            return masked_tensors.OF_RESULT, wrapped.lowered(w, masked_tensors.OF_RESULT)
    try:
        names, _ = wrapped.parts_of(w)
    except AttributeError:
        raise Reconsider(type(w).__name__, "its class does not tell its parts", WRAPPED) from None
    if not all([type(w.__dict__.get(name)) is TracedTensor and ORIGINAL.is_floating_point(w.__dict__[name]) for name in names]):
        raise Reconsider(type(w).__name__, "parts of it cannot have gradients", WRAPPED)
    with b.world.trace.recording(), layout.framework():
        return names, wrapped.lowered(w, names)


__all__ = ["traced"]
