"""Wrappers of function transforms, and the proxies for them on the interpreter's stack (`transforms.py` says what they are for)."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from pliant.graph.dispatch import apply_metadata, is_dense, plain, plain_one, same
from pliant.graph.originals import ORIGINAL
from pliant.graph.traced import TracedTensor, make
from pliant.interpret.state import Break, vm

C: Any = torch._C._functorch


@dataclass(slots=True)
class Levels:
    """The levels that the program is in just now, and the proxies for wrappers that a capture has met."""

    entered: list[tuple[Callable[..., Any], tuple]] = field(default_factory=list)  # how each is left, innermost last
    wrappers: dict[int, tuple[TracedTensor, torch.Tensor]] = field(default_factory=dict)  # by the id of the proxy
    stands: dict[int, TracedTensor] = field(default_factory=dict)  # by the id of the wrapper


def unwind(levels: Levels, depth: int = 0) -> None:
    """Leave the levels beyond `depth`: those of an attempt that was given up."""
    while len(levels.entered) > depth:
        leave, args = levels.entered.pop()
        leave(*args)


# -- proxies ---------------------------------------------------------------------------------------------------------
def stand_for(w: torch.Tensor, owner: type[Elsewhere] | None = None) -> TracedTensor:
    """The proxy for a wrapper: of a transform, or one that a class of the program makes (`Made`)."""
    levels, trace = vm.world.levels, vm.trace
    x = levels.stands.get(id(w))
    if x is None:
        if owner is Made:
            trace.wrapping.add(type(w))
        sizes, strides, offset = metadata(w)
        with torch._C._DisableTorchDispatch():
            x = make(trace, sizes, strides, w.dtype, offset, None, w.device, is_dense(sizes, strides), w.requires_grad)
        x.owner = (owner or Elsewhere)(trace.ref)
        levels.stands[id(w)] = x
        levels.wrappers[id(x)] = (x, w)
        if owner is Made:
            x.pytype = type(w)
    elif w.requires_grad is not x.requires_grad:
        tell_gradients(x, w.requires_grad)
    return x


def tell_gradients(x: TracedTensor, on: bool) -> None:
    """Make `x.requires_grad` say so, which inside a transform is refused to programs."""
    if not x.is_leaf:
        raise Break("PL0011", f"gradients of a {x.pytype.__name__} that an autograd.Function made")
    before = C.get_inplace_requires_grad_allowed()
    C.set_inplace_requires_grad_allowed(True)
    try:
        with torch._C._DisableTorchDispatch():
            ORIGINAL.requires_grad_(x, on)
    finally:
        C.set_inplace_requires_grad_allowed(before)


class Elsewhere:
    """What a proxy has in the place of the reference to its trace: it is no tensor of it, and `dispatch.check` refuses it."""

    __slots__ = ("ref",)

    def __init__(self, ref: weakref.ref) -> None:
        self.ref = ref

    def __call__(self) -> Any:
        return self.ref()


class Made(Elsewhere):
    """The same of a wrapper that a class of the program makes (`tensor_subclasses.py`)."""

    __slots__ = ()


def metadata(w: torch.Tensor) -> tuple[tuple, tuple, Any]:
    if C.is_functorch_wrapped_tensor(w):
        return plain(ORIGINAL.size(w)), plain(ORIGINAL.stride(w)), 0
    return plain(ORIGINAL.size(w)), plain(ORIGINAL.stride(w)), plain_one(ORIGINAL.storage_offset(w))


def is_stand(x: Any) -> bool:
    """Whether a traced tensor stands for a wrapper of a transform."""
    return type(x.owner) is Elsewhere


def is_wrapped(x: Any) -> bool:
    """Whether a traced tensor stands for a wrapper that a class of the program makes."""
    return type(x.owner) is Made


def wrapper_of(v: Any) -> Any:
    """What C++ is given for a value: wrappers in the place of their proxies."""
    if type(v) is TracedTensor:
        return vm.world.levels.wrappers[id(v)][1] if isinstance(v.owner, Elsewhere) else v
    if type(v) in (list, tuple):
        return type(v)([wrapper_of(x) for x in v])
    if isinstance(v, tuple):
        return type(v)(*[wrapper_of(x) for x in v]) if hasattr(v, "_fields") else v
    if type(v) is dict:
        return {k: wrapper_of(x) for k, x in v.items()}
    if type(v) is slice:
        return slice(wrapper_of(v.start), wrapper_of(v.stop), wrapper_of(v.step))
    return v


def shown(v: Any) -> Any:
    """What the interpreter is given for a result of C++: proxies in the place of wrappers."""
    if isinstance(v, torch.Tensor):
        t = type(v)
        if t is torch.Tensor:
            return stand_for(v) if C.is_functorch_wrapped_tensor(v) else v
        return stand_for(v, Made) if t is not TracedTensor and vm.world.has_subclasses and t is not torch.nn.Parameter else v
    if type(v) in (list, tuple):
        return type(v)([shown(x) for x in v])
    if isinstance(v, tuple) and any([isinstance(x, torch.Tensor) for x in v]):
        return type(v)(*[shown(x) for x in v]) if hasattr(v, "_fields") else type(v)([shown(x) for x in v])
    return v


def refresh(v: Any) -> None:
    """An operator may have changed the wrappers among its arguments in place."""
    if type(v) is TracedTensor:
        if isinstance(v.owner, Elsewhere):
            w = vm.world.levels.wrappers[id(v)][1]
            sizes, strides, offset = metadata(w)
            if len(sizes) != len(v.sizes) or not all(map(same, (*sizes, *strides), (*v.sizes, *v.strides))):
                apply_metadata(vm.trace, v, sizes, strides, offset)
            if w.requires_grad is not v.requires_grad:
                tell_gradients(v, w.requires_grad)
    elif type(v) in (list, tuple):
        for x in v:
            refresh(x)
    elif type(v) is dict:
        for x in v.values():
            refresh(x)


def on_wrappers(run: Callable[..., Any], args: tuple, kwargs: dict) -> Any:
    """`run(args, kwargs)` with wrappers in the place of proxies, and what it returns with proxies in the place of wrappers."""
    try:
        return shown(run(wrapper_of(args), wrapper_of(kwargs)))
    finally:
        refresh(args)
        if kwargs:
            refresh(kwargs)
