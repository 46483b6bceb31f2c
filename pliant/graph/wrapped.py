"""Wrappers (tensors of a class with a `__torch_dispatch__`) at the edges of a graph that gradients flow through.

A graph is made of plain tensors. Where a wrapper comes in, or goes out, a node of autograd stands between it and its parts, as its class
takes it apart (`__tensor_flatten__`) and puts it together (`__tensor_unflatten__`): one in the tape of the capture, and its like when the
graph runs. So what is between the edges is a region like any other, with gradients of parts.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

from pliant.graph import masked_tensors
from pliant.graph.arriving import TAKEN, Arrived, arrived
from pliant.graph.distributed_tensors import LOCAL, build, is_distributed, of_gradient
from pliant.graph.masked_tensors import DATA, MASK, NAMES, OF_RESULT, is_masked
from pliant.graph.originals import ORIGINAL, gradients, torch
from pliant.graph.read_later import of_class
from pliant.graph.rules.shape import known_equal
from pliant.graph.traced import WRAPPED, Reconsider, TracedTensor, make

ALIAS = torch.ops.aten.alias.default
PLAIN = (torch.Tensor, torch.nn.Parameter, TracedTensor)
SAME = torch.ops.aten._reshape_alias.default  # a result of a region, and no view that is made again outside of it


def parts_of(w: Any) -> tuple[list[str], Any]:
    """The names of the parts of a wrapper, and the rest of it."""
    if is_masked(type(w)):
        return NAMES, None
    names, rest = w.__tensor_flatten__()
    return list(names), rest


def among_parts(w: Any, names: list[str]) -> tuple[list[str], Any]:
    """`parts_of`, of which those called `names` may have gradients."""
    found, rest = parts_of(w)
    if not set(names) <= set(found):
        raise RuntimeError(f"a {type(w).__name__} has changed its parts")
    return found, rest


def leaf_of(x: TracedTensor) -> TracedTensor:
    """What the engine is asked for the gradient of the part `x` of an input."""
    leaf = make(x.trace, x.sizes, x.strides, x.dtype, x.offset, x.storage_id, x.device, x.dense, requires_grad=True)
    leaf.source = x.source
    x.trace.leaves[x.vid] = leaf
    return leaf


def gradients_of_parts(g: Any, cls: type, names: list[str]) -> list[Any]:
    """A gradient for each part, of that for the whole."""
    if g is None:
        return [None] * len(names)
    if type(g) is not cls:
        if is_masked(cls) and type(g) in PLAIN:
            return [g, None]
        raise Reconsider(cls.__name__, f"its gradient is a {type(g).__name__}", WRAPPED)
    if not set(names) <= set(parts_of(g)[0]):
        raise Reconsider(cls.__name__, "its gradient has other parts", WRAPPED)
    if torch.is_grad_enabled() and g.requires_grad:  # type: ignore[attr-defined]  # gradients that are differentiated in turn
        if is_masked(cls):
            data, number = lowered(g, OF_RESULT)
            return [data, MaskOf.apply(number, masked_tensors.parts(g)[1])]
        return list(Lower.apply(g, names, None))
    return list(masked_tensors.parts(g)) if is_masked(cls) else [getattr(g, name) for name in names]


class MaskOf(torch.autograd.Function):
    """The mask of a gradient that is differentiated in turn: its gradient says that that of the data is masked alike."""

    @staticmethod
    def forward(ctx: Any, number: Any, mask: Any) -> Any:
        ctx.set_materialize_grads(False)
        return torch.clone(mask)

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return None if g is None else ORIGINAL.new_zeros(g, ()), None


class CarryMasked(torch.autograd.Function):
    """In a capture: a plain input whose gradient may be a masked tensor, made of the leaves of its data and of the mask of its gradient."""

    @staticmethod
    def forward(ctx: Any, held: list[Any], leaf: Any, mask: Any) -> Any:
        ctx.set_materialize_grads(False)
        return held[0]

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return (None, *gradients_of_parts(g, masked_tensors.class_(), NAMES))


class Lift(torch.autograd.Function):
    """In a capture: the wrapper of an input, made of the leaves of its parts. `placement`: of a distributed tensor's gradient."""

    @staticmethod
    def forward(ctx: Any, build: Callable[[], Any], names: list[str], placement: Any, *leaves: Any) -> Any:
        w = build()
        ctx.cls, ctx.names, ctx.placement, ctx.leaves = type(w), names, placement, leaves
        if placement is not None:
            leaves[0].trace.wholes[leaves[0].vid] = type(w), w._spec.tensor_meta
        return w

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        parts = gradients_of_parts(g, ctx.cls, ctx.names)
        if ctx.placement is not None and g is not None:
            (part,), (leaf,) = parts, ctx.leaves
            as_large = all([known_equal(leaf.trace, m, n) for m, n in zip(part.size(), leaf.size(), strict=True)])
            if not ctx.placement.agrees(g) or not as_large:
                if not TAKEN[0]:
                    raise Reconsider(ctx.cls.__name__, "its gradient is placed otherwise than before", WRAPPED)
                parts = [arrived(g, leaf.size(), leaf.dtype, leaf.device)]
        return (None, None, None, *parts)


def laid_out(g: Any, size: Any, stride: Any, dtype: Any, device: Any) -> Any:
    return g if g.stride() == stride else torch.empty_strided(size, stride, dtype=dtype, device=device).copy_(g)


def awaited(part: Any) -> Any:
    """A part that waits when it is used, waited for: the graph reads its memory."""
    return part.trigger_wait() if type(part) not in PLAIN and hasattr(type(part), "trigger_wait") else part


def of_masked(w: Any, names: list[str]) -> tuple:
    """The parts of a masked tensor, or of a plain one whose gradient may be one."""
    if names == OF_RESULT:
        data = getattr(w, DATA)
        mask = torch.zeros((), dtype=data.dtype, device=data.device)
    elif is_masked(type(w)):
        data, mask = masked_tensors.parts(w)
    else:
        data, mask = w, torch.zeros((), dtype=w.dtype, device=w.device).expand(w.size())
    return (SAME(data, data.sizes, data.strides) if type(data) is TracedTensor else ALIAS(data)), mask


class Lower(torch.autograd.Function):
    """A wrapper's parts: of an input when the graph runs, of a result in its capture."""

    @staticmethod
    def forward(ctx: Any, w: Any, names: list[str], placement: Any) -> Any:
        if is_masked(type(w)) or names == NAMES:
            ctx.set_materialize_grads(False)
            ctx.whole = masked_tensors.class_(), None, None, None
            ctx.mask = getattr(w, MASK) if names == OF_RESULT else None
            return of_masked(w, names)
        found, rest = among_parts(w, names)
        if is_distributed(type(w)):
            rest = of_gradient(w, placement)
        parts = [awaited(getattr(w, name)) for name in names]
        ctx.whole = type(w), rest, w.size(), w.stride()
        ctx.names, ctx.parts = names, {name: None if name in names else getattr(w, name) for name in found}
        ctx.like = [(p.size(), p.stride(), p.dtype, p.device) for p in parts]
        ctx.set_materialize_grads(False)
        out = tuple([SAME(p, p.sizes, p.strides) if type(p) is TracedTensor else ALIAS(p) for p in parts])
        if is_distributed(type(w)) and type(out[0]) is TracedTensor:
            out[0].trace.wholes[out[0].vid] = type(w), w._spec.tensor_meta
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        if all([g is None for g in grads]):
            return None, None, None
        if type(grads[0]) is Arrived:
            return grads[0].whole, None, None
        cls, rest, sizes, strides = ctx.whole
        if is_masked(cls) and ctx.mask is not None:  # a result: its gradient has its mask, or is plain (`Whole`)
            g, masked = grads
            if g is None or masked is None:
                return g, None, None
            if torch.is_grad_enabled() and g.requires_grad:
                return Whole.apply(lambda data, number: masked_tensors.build(data, ctx.mask), OF_RESULT, g, masked), None, None
            return masked_tensors.build(g, ctx.mask), None, None
        if is_masked(cls):
            if torch.is_grad_enabled() and grads[1] is not None and any([g is not None and g.requires_grad for g in grads]):
                return Whole.apply(masked_tensors.whole, NAMES, *grads), None, None
            return masked_tensors.whole(*grads), None, None
        whole = [
            torch.empty_strided(size, stride, dtype=dtype, device=device).zero_() if g is None else g
            for g, (size, stride, dtype, device) in zip(grads, ctx.like, strict=True)
        ]
        if is_distributed(cls):  # the engine asks the whole whether it may keep the gradient as it is: its part is to say the same
            whole = [laid_out(g, *like) for g, like in zip(whole, ctx.like, strict=True)]

        def build(*own: Any) -> Any:
            return cls.__tensor_unflatten__({**ctx.parts, **dict(zip(ctx.names, own, strict=True))}, rest, sizes, strides)

        if torch.is_grad_enabled() and any([g.requires_grad for g in whole]):
            return Whole.apply(build, ctx.names, *whole), None, None
        return build(*whole), None, None


class Whole(torch.autograd.Function):
    """When the graph has run: a result made of its parts by `build`."""

    @staticmethod
    def forward(ctx: Any, build: Callable[..., Any], names: list[str], *parts: Any) -> Any:
        w = build(*[ORIGINAL.detach(p) for p in parts])
        ctx.cls, ctx.names = type(w), names
        ctx.rest, ctx.like = None, None
        ctx.mask = getattr(w, MASK) if is_masked(type(w)) else None
        if is_distributed(type(w)):
            ctx.rest, ctx.like = of_gradient(w), [(p.size(), p.dtype, p.device) for p in parts]
        ctx.set_materialize_grads(False)
        return w

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        if ctx.mask is not None and ctx.names == OF_RESULT:
            if g is not None and is_masked(type(g)) and torch.is_grad_enabled() and g.requires_grad:
                masked_tensors.as_the_gradient(g, ctx.mask)
                return None, None, *lowered(g, OF_RESULT)
            return None, None, *masked_tensors.as_the_result(g, ctx.mask)
        if ctx.mask is not None:
            masked_tensors.as_the_gradient(g, ctx.mask)
        parts = gradients_of_parts(g, ctx.cls, ctx.names)
        if ctx.rest is not None and g is not None:
            (part,), (like,) = parts, ctx.like
            if g._spec.placements != ctx.rest[0] or part.size() != like[0]:
                parts = [arrived(g, *like)]
        return (None, None, *parts)


def lowered(w: Any, names: list[str], placement: Any = None) -> tuple:
    with gradients(True):
        return Lower.apply(w, names, placement)  # type: ignore[no-any-return]


def distributed(cls: type, form: tuple, sizes: Any, strides: Any, dtype: Any, part: Any) -> Any:
    """A distributed tensor of a part that has a history."""
    with gradients(True):
        return Whole.apply(lambda own: build(cls, form, sizes, strides, dtype, own), [LOCAL], part)


def plain(x: torch.Tensor) -> torch.Tensor:
    """The tensor without its class, whose history it keeps also where the frame begins without gradients: it may turn them on."""
    if torch.is_grad_enabled():
        return ORIGINAL.as_subclass(x, torch.Tensor)
    with torch._C.DisableTorchFunction(), gradients(True):  # modes hear of the switch
        return ORIGINAL.as_subclass(x, torch.Tensor)


MAKE: Any = torch.Tensor._make_wrapper_subclass


def made(cls: type, given: tuple, named: dict, attributes: dict) -> Any:
    """A wrapper like one that the program has made."""
    w = MAKE(cls, *given, **named)
    for name, value in attributes.items():
        if not in_slot(w, name, value):
            w.__dict__[name] = value
    return w


def in_slot(w: Any, name: str, value: Any) -> bool:
    """Put an attribute of a wrapper into the slot that its class has for it, if it has one (`__slots__`)."""
    raw = of_class(type(w), name)
    if type(raw) is not types.MemberDescriptorType:
        return False
    raw.__set__(w, value)
    return True


def made_of(cls: type, given: tuple, named: dict, attributes: dict, names: list[str], parts: tuple) -> Any:
    """The same with gradients, which flow to these parts."""

    def build(*own: Any) -> Any:
        parts = {n: p for n, p in zip(names, own, strict=True) if n in attributes}
        return made(cls, given, {**named, "requires_grad": False}, {**attributes, **parts})

    with gradients(True):
        return Whole.apply(build, names, *parts)
