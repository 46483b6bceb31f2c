"""How things are put together: what a class holds and what its instances, which modules are inside of others, how their weights are made.

`MADE`: rows (kind, name, types, object -> undo, or `SKIP`).
"""

from __future__ import annotations

import collections
import contextvars
import copy
import functools
import types
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.perturb.places import is_library, refill
from benchmarks.perturb.protocols import closed, instance_space
from benchmarks.perturb.values import SKIP, altered, wrapped

DATA = (int, float, str, bool, tuple, type(None))


# --------------------------------------------------------------------------------------------------------- classes and instances
def member(kind: type, other: Callable[[Any], Any]) -> Callable[[type], Any]:
    """The first member of that kind in the class becomes another."""

    def row(cls: type) -> Any:
        name = next((n for n, v in vars(cls).items() if type(v) is kind), None)
        if closed(cls) or name is None:
            return SKIP
        old = vars(cls)[name]
        type.__setattr__(cls, name, other(old))
        return lambda: type.__setattr__(cls, name, old)

    return row


def on_the_instance(obj: Any) -> Any:
    """What the class says of all its instances, this one says otherwise."""
    space = instance_space(obj)
    if space is None:
        return SKIP
    for cls in type(obj).__mro__:
        for name, v in () if is_library(cls.__module__) else vars(cls).items():
            if not name.startswith("__") and type(v) in DATA and name not in space:
                space[name] = altered(v)
                return functools.partial(space.pop, name, None)
    return SKIP


def reordered(obj: Any) -> Any:
    """The attributes of an object, or of a class's instance, in another order."""
    space = instance_space(obj)
    if space is None or len(space) < 2 or isinstance(obj, torch.nn.Module):
        return SKIP
    before = list(space.items())
    refill(space, before[::-1])
    return lambda: refill(space, before)


# ---------------------------------------------------------------------------------------------------------------------- modules
def last_child(other: Callable[[torch.nn.Module], Any]) -> Callable[[torch.nn.Module], Any]:
    def row(m: torch.nn.Module) -> Any:
        name = next(reversed(m._modules), None)
        old = m._modules[name] if name is not None else None
        new = other(old) if old is not None else SKIP
        if new is SKIP:
            return SKIP
        m._modules[name] = new  # type: ignore[index]
        return lambda: m._modules.__setitem__(name, old)  # type: ignore[arg-type]

    return row


def trained_apart(m: torch.nn.Module) -> Any:
    """A copy with other weights."""
    made = copy.deepcopy(m)
    with torch.no_grad():
        for p in made.parameters():
            p.data = p.data + 1
    return made


def child_training(m: torch.nn.Module) -> Any:
    """One module deep inside is in another mode than all others."""
    inner = list(m.modules())[-1]
    if inner is m:
        return SKIP
    inner.training = not inner.training
    return lambda: setattr(inner, "training", not inner.training)


def child_gone(m: torch.nn.Module) -> Any:
    if not isinstance(m, torch.nn.Sequential | torch.nn.ModuleList) or len(m) < 2:
        return SKIP
    before = list(m._modules.items())
    m._modules.popitem()
    return lambda: refill(m._modules, before)


def child_more(m: torch.nn.Module) -> Any:
    if not isinstance(m, torch.nn.Sequential | torch.nn.ModuleList):
        return SKIP
    before = list(m._modules.items())
    m.append(torch.nn.Tanh())
    return lambda: refill(m._modules, before)


def converted(change: Callable[[torch.nn.Module], Any]) -> Callable[[torch.nn.Module], Any]:
    """All tensors of a module become others, in the same objects."""

    def row(m: torch.nn.Module) -> Any:
        held = [*m.parameters(), *m.buffers()]
        if not held or any(torch.nn.parameter.is_lazy(t) or t.is_inference() or t.layout is not torch.strided for t in held):
            return SKIP
        before = [(t, t.data, t.requires_grad, t.grad) for t in held]
        names = [(x, dict(x._buffers)) for x in m.modules()]
        change(m)

        def undo() -> None:
            for x, buffers in names:
                x._buffers.update(buffers)
            for t, data, requires_grad, grad in before:
                t.data = data
                t.requires_grad_(requires_grad)
                t.grad = grad

        return undo

    return row


def tied(m: torch.nn.Module) -> Any:
    """A parameter that is shaped like one before it is that one."""
    seen: dict[Any, torch.nn.Parameter] = {}
    for x in m.modules():
        for name, p in x._parameters.items():
            if p is None:
                continue
            first = seen.setdefault((p.shape, p.dtype), p)
            if first is not p:
                x._parameters[name] = first
                return functools.partial(x._parameters.__setitem__, name, p)
    return SKIP


def persistence(m: torch.nn.Module) -> Any:
    name = next(iter(m._buffers), None)
    if name is None:
        return SKIP
    before = set(m._non_persistent_buffers_set)
    m._non_persistent_buffers_set ^= {name}
    return lambda: setattr(m, "_non_persistent_buffers_set", before)


def weights_made(make: Callable[[torch.nn.Module], Any]) -> Callable[[torch.nn.Module], Any]:
    """The weight is computed of others, by a parametrization or a hook."""

    def row(m: torch.nn.Module) -> Any:
        weight = m._parameters.get("weight")
        if weight is None or weight.dim() < 2 or not weight.is_floating_point() or isinstance(m, torch.nn.Bilinear | torch.nn.Embedding):
            return SKIP
        cls, parameters, modules = type(m), list(m._parameters.items()), list(m._modules.items())
        buffers, hooks, data = list(m._buffers.items()), list(m._forward_pre_hooks.items()), weight.data.clone()
        state = torch.get_rng_state()
        make(m)
        torch.set_rng_state(state)

        def undo() -> None:
            object.__setattr__(m, "__class__", cls)
            m.__dict__.pop("weight", None)
            for box, items in ((m._parameters, parameters), (m._modules, modules), (m._buffers, buffers), (m._forward_pre_hooks, hooks)):
                refill(box, items)
            weight.data.copy_(data)

        return undo

    return row


# --------------------------------------------------------------------------------------------------------------------- others
def rotated(d: collections.deque) -> Any:
    before = list(d)
    d.rotate(1)
    return lambda: (d.clear(), d.extend(before))


def forgotten(fn: Any) -> Any:
    fn.cache_clear()
    return lambda: None


def told_in_context(v: contextvars.ContextVar) -> Any:
    value = v.get(None)
    token = v.set(altered(value) if value is not None else 1)
    return lambda: v.reset(token)


def maps_more(c: collections.ChainMap) -> Any:
    if not c.maps or not c.maps[-1]:
        return SKIP
    key, value = next(iter(c.maps[-1].items()))
    c.maps.insert(0, {key: altered(value)})
    return lambda: c.maps.pop(0)


MADE: tuple[tuple[str, str, tuple, Callable[[Any], Any]], ...] = (
    ("structure", "a property is a plain value", (type,), member(property, lambda p: 5)),
    ("structure", "a property of another getter", (type,), member(property, lambda p: p.getter(wrapped(p.fget)) if p.fget else p)),
    ("structure", "a property is a method", (type,), member(property, lambda p: p.fget)),
    ("structure", "a static method is another", (type,), member(staticmethod, lambda s: staticmethod(wrapped(s.__func__)))),
    ("structure", "a static method is a class method", (type,), member(staticmethod, lambda s: classmethod(s.__func__))),
    ("structure", "a class method is another", (type,), member(classmethod, lambda s: classmethod(wrapped(s.__func__)))),
    ("structure", "a method is static", (type,), member(types.FunctionType, staticmethod)),
    ("structure", "a method is a property", (type,), member(types.FunctionType, property)),
    ("structure", "what the class says the instance says", (object,), on_the_instance),
    ("structure", "attributes in another order", (object,), reordered),
    ("structure", "last child with other weights", (torch.nn.Module,), last_child(trained_apart)),
    ("structure", "last child is the identity", (torch.nn.Module,), last_child(lambda m: torch.nn.Identity())),
    ("structure", "last child is none", (torch.nn.Module,), last_child(lambda m: None)),
    ("structure", "one child is in another mode", (torch.nn.Module,), child_training),
    ("structure", "a child less", (torch.nn.Module,), child_gone),
    ("structure", "a child more", (torch.nn.Module,), child_more),
    ("structure", "all in float64", (torch.nn.Module,), converted(lambda m: m.double())),
    ("structure", "all in bfloat16", (torch.nn.Module,), converted(lambda m: m.bfloat16())),
    ("structure", "channels last", (torch.nn.Module,), converted(lambda m: m.to(memory_format=torch.channels_last))),
    ("structure", "without gradients", (torch.nn.Module,), converted(lambda m: m.requires_grad_(False))),
    ("structure", "tied", (torch.nn.Module,), tied),
    ("structure", "a buffer that is not kept", (torch.nn.Module,), persistence),
    ("structure", "weights normed", (torch.nn.Module,), weights_made(torch.nn.utils.parametrizations.weight_norm)),
    ("structure", "weights normed by a hook", (torch.nn.Module,), weights_made(torch.nn.utils.weight_norm)),
    ("structure", "weights of norm one", (torch.nn.Module,), weights_made(torch.nn.utils.parametrizations.spectral_norm)),
    ("structure", "rotated", (collections.deque,), rotated),
    ("structure", "a cache forgets", (functools._lru_cache_wrapper,), forgotten),
    ("structure", "another value in the context", (contextvars.ContextVar,), told_in_context),
    ("structure", "a map in front", (collections.ChainMap,), maps_more),
)
