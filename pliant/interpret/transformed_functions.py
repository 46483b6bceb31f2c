"""`torch.autograd.Function` inside a function transform: one level at a time, as PyTorch does it.

At a level of `grad`, `vjp` or `jvp` it becomes a node of that level's tape: its forward part is the function applied a level below. At a
level of `vmap` its own rule is called a level below, or its code is run on the wrappers. Below all levels it is what it is without
transforms (`gradients.py`). The program's functions are interpreted where PyTorch's C++ code calls for them.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch
from torch._functorch.autograd_function import VmapInfo, custom_function_call_vmap, validate_vmap_returns_tuple_of_two_elements
from torch._functorch.pyfunctorch import retrieve_current_functorch_interpreter
from torch.autograd.function import FunctionCtx, _SingleLevelFunction
from torch.utils import _pytree as pytree

from pliant.graph.originals import ORIGINAL
from pliant.graph.traced import TracedTensor
from pliant.interpret.arity import binds
from pliant.interpret.attributes import getattr_
from pliant.interpret.calls import call
from pliant.interpret.state import Break, vm
from pliant.interpret.wrappers import on_wrappers, shown, wrapper_of

C: Any = torch._C._functorch
VMAP = C.TransformType.Vmap
GRADIENTS = (C.TransformType.Grad, C.TransformType.Jvp)


def applied(cls: Any, args: tuple, below: Callable[..., Any]) -> Any:
    """`cls.apply(*args)` at the level that the program is in. `below(cls, args)` applies it below all levels."""
    if not C.get_dynamic_layer_stack_depth():
        return below(cls, args)
    if getattr_(cls, "setup_context") is torch.autograd.Function.setup_context:
        torch.autograd.Function.apply.__func__(cls)  # type: ignore[attr-defined]  # RuntimeError: in a transform it has to have one
    forward = getattr_(cls, "forward")
    if type(forward) is FunctionType and not binds(forward.__code__, forward, args, {}):
        raise Break("PL0030", "an autograd.Function in a transform, whose forward takes other arguments", clean=True)
    level = retrieve_current_functorch_interpreter()
    if level.key() == VMAP:
        return batched(cls, args, level, below)
    if not any([level.key() == k for k in GRADIENTS]):
        raise Break("PL0030", "an autograd.Function in a transform of this kind")
    return differentiated(cls, args, level, below)


def unwrapped(args: tuple, unwrap: Callable[..., Any]) -> list[Any]:
    return [on_wrappers(lambda a, k: unwrap(*a), (v,), {}) if type(v) is TracedTensor else v for v in args]


def batched(cls: Any, args: tuple, level: Any, below: Callable[..., Any]) -> Any:
    number = level.level()
    pairs = [v if type(v) is tuple else (v, None) for v in unwrapped(args, lambda t: C._unwrap_batched(t, number))]
    values, dims = tuple([v for v, _ in pairs]), tuple([d for _, d in pairs])
    if bool(getattr_(cls, "generate_vmap_rule")) is (getattr_(cls, "vmap") is not torch.autograd.Function.vmap):
        custom_function_call_vmap(level, cls)  # RuntimeError: it has none, or two
    if all([d is None for d in dims]):
        with level.lower():
            return applied(cls, args, below)
    if getattr_(cls, "generate_vmap_rule"):
        if any([type(v) is TracedTensor and wrapper_of(v).requires_grad for v in values]):
            raise Break("PL0030", "gradients through an autograd.Function whose rule for vmap is to be made")
        out = call(getattr_(cls, "forward"), args, {})
        unread: Any = FunctionCtx()  # no gradients come to it: `setup_context` is called for what it does besides
        unread.needs_input_grad = (False,) * len(args)
        call(getattr_(cls, "setup_context"), (unread, args, out), {})
        if getattr(unread, "dirty_tensors", None):
            raise Break("PL0030", "an autograd.Function that writes to what it is given, in a function transform")
        return out
    with level.lower():
        made = call(getattr_(cls, "vmap"), (VmapInfo(level.batch_size(), level.randomness()), dims, *values), {})
    validate_vmap_returns_tuple_of_two_elements(made)
    out, places = made
    leaves, spec = pytree.tree_flatten(out)
    dims_of = pytree.tree_leaves(places, is_leaf=lambda x: x is None) if not isinstance(places, int) else [places] * len(leaves)
    if len(dims_of) != len(leaves):
        raise Break("PL0030", "a rule for vmap whose dims do not fit what it returns")

    def wrap(v: Any, dim: Any) -> Any:
        return v if dim is None else on_wrappers(lambda a, k: C._add_batch_dim(a[0], dim % ORIGINAL.dim(a[0]), number), (v,), {})

    return pytree.tree_unflatten([wrap(v, d) for v, d in zip(leaves, dims_of)], spec)


def differentiated(cls: Any, args: tuple, level: Any, below: Callable[..., Any]) -> Any:
    number = level.level()

    class Level(_SingleLevelFunction):
        @staticmethod
        def forward(*given: Any) -> Any:
            inside = unwrapped(shown(given), lambda t: C._unwrap_for_grad(t, number))
            with torch.enable_grad(), torch.autograd.forward_ad._set_fwd_grad_enabled(True), level.lower():
                out = applied(cls, tuple(inside), below)
            return pytree.tree_map_only(torch.Tensor, lambda t: C._wrap_for_grad(wrapper_of(t), number), out)

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            call(getattr_(cls, "setup_context"), (ctx, shown(inputs), shown(output)), {})
            if getattr(ctx, "dirty_tensors", None):
                raise Break("PL0030", "an autograd.Function that writes to what it is given, in a function transform")
            for name in ("non_differentiable", "to_save", "saved_for_forward"):
                held = getattr(ctx, name, None)
                if held is not None:
                    setattr(ctx, name, wrapper_of(held))

        @staticmethod
        def backward(ctx: Any, *given: Any) -> Any:
            return wrapper_of(call(getattr_(cls, "backward"), (Context(ctx), *shown(given)), {}))

        @staticmethod
        def jvp(ctx: Any, *given: Any) -> Any:
            return wrapper_of(call(getattr_(cls, "jvp"), (Context(ctx), *shown(given)), {}))

    Level.__name__ = Level.__qualname__ = cls.__name__
    for made in (Level, Level._backward_cls):  # type: ignore[attr-defined]
        vm.world.own_functions[id(made)] = made  # made for this capture: no guard may ask for them at the next call
    before = C.get_single_level_autograd_function_allowed()
    C.set_single_level_autograd_function_allowed(True)
    try:
        return shown(Level.apply(*[wrapper_of(a) for a in args]))  # type: ignore[attr-defined]
    finally:
        C.set_single_level_autograd_function_allowed(before)


class Context:
    """What the program's `backward` sees of a node: its fields, with proxies for the tensors that it keeps."""

    def __init__(self, ctx: Any) -> None:
        self.__dict__.update(vars(ctx))
        self.saved_tensors = shown(ctx.saved_tensors)
        self.needs_input_grad = ctx.needs_input_grad
        if getattr(ctx, "saved_for_forward", None) is not None:
            self.saved_for_forward = shown(ctx.saved_for_forward)


__all__ = ["applied"]
