"""`torch.autograd.Function` of wrappers, tensors of a class with a `__torch_dispatch__` (masked tensors have such functions).

On the stack of the interpreter a proxy is in a wrapper's place; what C++ builds the tape over is the wrapper. So the node is one of a
function of pliant's, which is given wrappers and gives some, and calls the program's with proxies. The engine calls its backward part:
in a rehearsal the program's is interpreted, and when the gradients are worked out CPython runs it, on the wrappers themselves.
"""

from __future__ import annotations

import types
from typing import Any

import torch

from pliant.graph.distributed_tensors import is_distributed
from pliant.graph.traced import TracedTensor
from pliant.interpret.attributes import getattr_
from pliant.interpret.calls import call
from pliant.interpret.jagged import is_jagged
from pliant.interpret.state import Break, vm
from pliant.interpret.wrappers import Levels, Made, shown, wrapper_of

INHERITED = (torch.autograd.function._SingleLevelFunction.backward, torch.autograd.Function.backward)
FOUND: list[type] = []
"""Functions that the attempts of this capture have seen to make wrappers, where that was not known."""
OF_NODE = ("non_differentiable", "to_save", "dirty_tensors")


def has_wrappers(values: Any) -> bool:
    """Whether there is a proxy for a wrapper among arguments or results, whose class is interpreted: CPython runs that of others."""
    return any([type(v) is TracedTensor and type(v.owner) is Made and not of_pytorch(v.pytype) for v in values])


def of_pytorch(cls: type) -> bool:
    return is_jagged(cls) or is_distributed(cls)


def real_one(v: Any, levels: Levels) -> Any:
    """The wrapper behind a proxy, also when no capture is going on."""
    found = levels.wrappers.get(id(v)) if type(v) is TracedTensor else None
    return v if found is None else found[1]


def on_the_wrappers(fn: Any, levels: Levels) -> Any:
    """A function whose variables, from around it, are wrappers where they were proxies."""
    if type(fn) is not types.FunctionType or not fn.__closure__:
        return fn
    cells = []
    for cell in fn.__closure__:
        try:
            cells.append(types.CellType(real_one(cell.cell_contents, levels)))
        except ValueError:  # it is empty
            cells.append(cell)
    return types.FunctionType(fn.__code__, fn.__globals__, fn.__name__, fn.__defaults__, tuple(cells))


class Context:
    """What the program's function sees of a node: its fields, with proxies for the tensors that it keeps."""

    def __init__(self, ctx: Any) -> None:
        self.__dict__.update(vars(ctx))
        self.saved_tensors = shown(ctx.saved_tensors)
        self.needs_input_grad = ctx.needs_input_grad


class Known:
    """The same for CPython: wrappers in the place of proxies."""

    def __init__(self, ctx: Any, levels: Levels) -> None:
        self.__dict__.update({k: real_one(v, levels) for k, v in vars(ctx).items()})
        self.saved_tensors = ctx.saved_tensors
        self.needs_input_grad = ctx.needs_input_grad


def applied(cls: Any, args: tuple) -> Any:
    """`cls.apply(*args)`, where it takes or makes wrappers."""
    backward, levels = getattr_(cls, "backward"), vm.world.levels
    if backward in INHERITED or getattr_(cls, "setup_context") is not torch.autograd.Function.setup_context:
        raise Break("PL0011", f"an autograd.Function of wrappers, {cls.__qualname__}, with a setup_context, or without backward")

    class Node(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *given: Any) -> Any:
            out = call(getattr_(cls, "forward"), (ctx, *shown(given)), {})
            for name in OF_NODE:
                held = getattr(ctx, name, None)
                if held is not None:
                    setattr(ctx, name, wrapper_of(held))
            return wrapper_of(out)

        @staticmethod
        def backward(ctx: Any, *given: Any) -> Any:
            if vm.active and vm.world.levels is levels:
                out = wrapper_of(call(backward, (Context(ctx), *shown(given)), {}))
            else:
                out = on_the_wrappers(backward, levels)(Known(ctx, levels), *given)
            return out if isinstance(out, tuple) else (out,)

    Node.__name__ = Node.__qualname__ = cls.__name__
    for made in (Node, Node._backward_cls):  # type: ignore[attr-defined]
        vm.world.own_functions[id(made)] = made  # made for this capture: no guard may ask for them at the next call
    return shown(Node.apply(*[wrapper_of(a) for a in args]))
